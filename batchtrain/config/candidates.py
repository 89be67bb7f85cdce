"""The candidates of a pool, each as a recipe of its own: the pool file, and its alternatives. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from batchtrain.catalog.prices import missing, region_of
from batchtrain.config.scaling import most_nodes, unlimited
from batchtrain.config.types import Alternative, Credentials, Pool, Recipe, VmCount
from batchtrain.errors import PlanError, UsageError

Path = tuple[str | int, ...]
PATH: Path = ("pool_specification", "candidates")


class Candidate(NamedTuple):
    """A place where the pool of a recipe may get its nodes."""

    recipe: Recipe
    """The recipe there: its pool has no candidates, and its credentials have the account as `batch`."""
    account: str = ""
    """The name of the account in credentials.yaml; empty for that of `batch`."""
    path: Path = ("pool_specification",)
    """Where it is written."""
    number: int = 1
    """Its place in the order."""

    @property
    def pool(self) -> Pool:
        """The pool there."""
        assert self.recipe.pool is not None
        return self.recipe.pool

    def __str__(self) -> str:
        count = self.pool.vm_count
        kinds = ((count.dedicated, "dedicated"), (count.low_priority, "spot"))
        nodes = " and ".join(f"{number} {kind}" for number, kind in kinds if number) or "0"
        return f"{nodes} {self.pool.vm_size}" + (f" in account {self.account}" if self.account else "")


def candidates_of(recipe: Recipe) -> tuple[Candidate, ...]:
    """The candidates of a recipe as they are written; without `candidates`, the recipe itself."""
    if recipe.pool is None or recipe.pool.candidates is None:
        return (Candidate(recipe),)
    pool = replace(recipe.pool, candidates=None)
    candidates = [Candidate(replace(recipe, pool=pool))]
    for number, alternative in enumerate(recipe.pool.candidates.alternatives):
        name = alternative.account or ""
        credentials = selected(recipe.credentials, name)
        candidate_recipe = replace(recipe, pool=_pool(pool, alternative), credentials=credentials)
        candidates.append(Candidate(candidate_recipe, name, (*PATH, "alternatives", number)))
    return tuple(candidates)


def _pool(pool: Pool, alternative: Alternative) -> Pool:
    count, machines = pool.vm_count, pool.vm_configuration
    if alternative.spot is not None:
        count = VmCount(low_priority=count.total) if alternative.spot else VmCount(dedicated=count.total)
    if alternative.zones is not None:
        machines = replace(machines, zones=alternative.zones)
    return replace(pool, vm_size=alternative.vm_size or pool.vm_size, vm_count=count, vm_configuration=machines)


def selected(credentials: Credentials, account: str) -> Credentials:
    """The credentials with a named account as `batch`, if they have it."""
    batch = credentials.batch_accounts.get(account)
    return credentials if batch is None else replace(credentials, batch=batch)


def require_account(credentials: Credentials, account: str) -> None:
    """Raise UsageError for the name of an account that the credentials lack."""
    if account and account not in credentials.batch_accounts:
        names = ", ".join(credentials.batch_accounts) or "none"
        raise UsageError(
            f"credentials.yaml has no Batch account `{account}`; write it in `batch_accounts` (there: {names})"
        )


# --- their order ----------------------------------------------------------------------------------------------------


def ordered(recipe: Recipe, region: str = "") -> tuple[Candidate, ...]:
    """The candidates in the order in which they are tried. region: of the account without a name, if its endpoint does
    not tell it. Raises PlanError for an order by prices that are unknown."""
    options = candidates_of(recipe)
    candidates = recipe.pool.candidates if recipe.pool is not None else None
    if candidates is None or candidates.order == "given":
        return _numbered(options)
    costs: dict[Path, float] = {}
    for candidate in options:
        cost = hour(candidate, region, per_gpu=candidates.order == "price-per-gpu")
        if cost is None:
            raise PlanError(f"`candidates.order` is `{candidates.order}`, and {unpriced(candidate, region)}")
        costs[candidate.path] = cost
    return _numbered(sorted(options, key=lambda candidate: costs[candidate.path]))


def _numbered(options: Iterable[Candidate]) -> tuple[Candidate, ...]:
    return tuple(candidate._replace(number=number) for number, candidate in enumerate(options, 1))


def region_at(candidate: Candidate, region: str = "") -> str:
    """The region of a candidate; empty if it is unknown."""
    batch = candidate.recipe.credentials.batch
    return region_of((batch and batch.account_service_url) or "") or ("" if candidate.account else region)


def hour(candidate: Candidate, region: str = "", *, per_gpu: bool = False) -> float | None:
    """What an hour of all nodes costs there, or of each of their GPUs; None if that is unknown."""
    pool, catalog = candidate.pool, candidate.recipe.catalog
    price = catalog.price(pool.vm_size, region_at(candidate, region))
    size, count = catalog.size(pool.vm_size), most_nodes(pool)
    cost = price.of(*count) if price is not None else None
    if cost is None or not per_gpu:
        return cost
    gpus = (size.gpus if size is not None else 0) * (count.total or 0)
    return cost / gpus if gpus else None


def unpriced(candidate: Candidate, region: str = "") -> str:
    """Why a candidate has no price."""
    pool, where = candidate.pool, region_at(candidate, region)
    if hour(candidate, region) is not None:
        return f"{pool.vm_size} has no GPUs"
    price = candidate.recipe.catalog.price(pool.vm_size, where)
    return unlimited(pool) or missing(pool.vm_size, price, *most_nodes(pool), where)
