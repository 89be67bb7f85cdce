"""Checks before costs arise: look up everything, then judge it by pure functions.

A check that cannot be made gives the reason and is not a failure: quotas need the role Reader, and the emulator has
none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.sizes import key
from batchtrain.catalog.successors import today_for
from batchtrain.config.image_names import placeholders, publishing
from batchtrain.config.scaling import most_nodes, unlimited
from batchtrain.config.types import PlatformImage, Recipe
from batchtrain.config.types import Pool as PoolSettings
from batchtrain.errors import FAIL, NOT_CHECKED, OK, WARN, BatchtrainError, Check, Unreachable, UsageError, counted
from batchtrain.plan import cost
from batchtrain.plan.candidate_rows import CandidateRow, rows
from batchtrain.records import Image, Job, JobSchedule, Pool
from batchtrain.service import arm, read
from batchtrain.service.clock_difference import KEY_LIMIT, STEP, difference
from batchtrain.service.connect import Account
from batchtrain.service.retry import span

if TYPE_CHECKING:
    from azure.batch import BatchClient

SKEW_WARNS = 60.0
"""Seconds; a signature that is 15 minutes off is refused."""
SOON = timedelta(days=90)
EMBEDDED = "the embedded Azure Batch has no regions; `batchtrain emulator capacity` shows its quotas"
NO_RECIPE = "no recipe was given"
Found = TypeVar("Found")


class Unknown(NamedTuple):
    """Something that could not be looked up, with the reason."""

    why: str
    unreachable: bool = False


class Region(NamedTuple):
    """The data of Azure Resource Manager about the account and about the pool's size in its region."""

    account: arm.AccountSeen
    size: arm.Sold | None
    """The entry of Batch's list; None if the list has none, or without a pool."""
    blocked: str
    """Why the subscription cannot use the size there; empty if it can, or if it is unknown."""
    families: Mapping[str, str]
    """Azure's name of the family, by the normalised name of a size."""


class Facts(NamedTuple):
    """Everything that was looked up."""

    account: Account
    today: date
    skew: float | Unknown | None
    pools: tuple[Pool, ...] | Unknown
    jobs: tuple[Job, ...] | Unknown
    images: tuple[Image, ...] | Unknown
    region: Region | Unknown
    recipe: Recipe | None = None
    catalog: Catalog = Catalog()
    schedules: tuple[JobSchedule, ...] | Unknown = ()
    registry: str = ""
    """The user's registry of the images of recipes."""

    @property
    def unreachable(self) -> bool:
        """Whether the account does not answer at all."""
        return isinstance(self.pools, Unknown) and self.pools.unreachable


# --- looking --------------------------------------------------------------------------------------------------------


def examine(
    account: Account,
    client: BatchClient,
    recipe: Recipe | None,
    catalog: Catalog,
    clock: Callable[[], datetime],
    environment: Mapping[str, str],
    registry: str = "",
    quotas: Callable[[], Mapping[str, int]] = dict,
) -> Facts:
    """Look up everything; failed look-ups become Unknown. Changes nothing. quotas: reads those of an account of the
    emulator."""

    def region() -> Region | Unknown:
        emulated = account.emulated
        return _emulated(account, recipe, quotas()) if emulated else _region(account, recipe, environment)

    pools = _try(lambda: read.pools(client))
    out_of_reach = isinstance(pools, Unknown)
    return Facts(
        account=account,
        today=clock().date(),
        skew=pools if isinstance(pools, Unknown) and pools.unreachable else _try(lambda: read.clock_skew(client)),
        pools=pools,
        jobs=pools if isinstance(pools, Unknown) else _try(lambda: read.jobs(client)),
        images=pools if isinstance(pools, Unknown) else _try(lambda: read.images(client)),
        region=Unknown("the account cannot be used") if out_of_reach else region(),
        recipe=recipe,
        catalog=catalog,
        schedules=pools if isinstance(pools, Unknown) else _try(lambda: read.schedules(client)),
        registry=registry,
    )


def _try(question: Callable[[], Found]) -> Found | Unknown:
    try:
        return question()
    except BatchtrainError as error:
        return Unknown(str(error), isinstance(error, Unreachable))


def _region(account: Account, recipe: Recipe | None, environment: Mapping[str, str]) -> Region | Unknown:
    credentials = recipe.credentials if recipe is not None else None
    subscription = credentials.management.subscription_id if credentials and credentials.management else None
    vm_size = recipe.pool.vm_size if recipe is not None and recipe.pool is not None else ""

    def ask() -> Region:
        azure = arm.reach(credentials, environment, account.endpoint)
        row = arm.account(azure, account.endpoint, subscription)
        if row is None:
            raise UsageError("no readable subscription has this account; ask for the role Reader on it")
        batch = {key(sold_size.name): sold_size for sold_size in arm.batch_sizes(azure, row.subscription, row.location)}
        sold = {
            key(sold_size.name): sold_size for sold_size in arm.compute_sizes(azure, row.subscription, row.location)
        }
        block_reason = sold[key(vm_size)].blocked if key(vm_size) in sold else ""
        families = {name: sold_size.family for name, sold_size in batch.items()}
        return Region(row, batch.get(key(vm_size)), block_reason, families)

    return _try(ask)


def _emulated(account: Account, recipe: Recipe | None, quotas: Mapping[str, int]) -> Region | Unknown:
    """The quotas of the emulator, if it has some."""
    if not quotas.keys() & {"dedicated_cores", "low_priority_cores"}:
        return Unknown(EMBEDDED)
    pool = recipe.pool if recipe is not None else None
    size = recipe.catalog.size(pool.vm_size) if recipe is not None and pool is not None else None
    account_record = arm.AccountSeen(
        name=account.name,
        subscription="",
        resource_group="",
        location="the emulator",
        endpoint=account.endpoint,
        allocation="BatchService",
        public_network="Enabled",
        sign_ins=(),
        dedicated_cores=quotas.get("dedicated_cores"),
        spot_cores=quotas.get("low_priority_cores"),
        pools=quotas.get("pools"),
        jobs=quotas.get("active_jobs"),
        by_family=False,
        families=(),
    )
    return Region(account_record, arm.Sold(size.name, "", size.cores, size.memory_gib) if size else None, "", {})


# --- judging --------------------------------------------------------------------------------------------------------


def checks(facts: Facts) -> tuple[Check, ...]:
    """Every check, in the order in which to fix failures. Of a pool with candidates those that all of them share."""
    pool = _pool(facts)
    judges = [judge for judge in CHECKS if pool is None or pool.candidates is None or judge not in OF_CANDIDATE]
    lacks, remedy = facts.account.lost_isolation, facts.account.plain_nodes_remedy
    text = lacks or "each node has its own root and host name"
    isolation = Check("isolation", WARN if lacks else OK, text, remedy if lacks else "")
    return (*(judge(facts) for judge in judges), *((isolation,) if facts.account.emulated else ()))


def candidate_checks(recipe: Recipe, region: str, candidates: Sequence[Facts]) -> tuple[Check, ...]:
    """A row for each candidate of a pool. One that cannot have the nodes is a warning while another one may have them.

    region: of the account without a name. candidates: what was looked up for each of them.
    """
    judged = [[judge(facts) for judge in (_signed_in, *OF_CANDIDATE)] for facts in candidates]
    usable = any(all(check.result != FAIL for check in results) for results in judged)
    return tuple(map(partial(_candidate, usable), rows(recipe, region), candidates, judged))


def _candidate(usable: bool, row: CandidateRow, facts: Facts, results: Sequence[Check]) -> Check:
    faults = [check for check in results if check.result in (FAIL, WARN)]
    result = FAIL if any(check.result == FAIL for check in faults) else WARN if faults else OK
    pool = _pool(facts)
    count = most_nodes(pool) if pool is not None else None
    quotas = [_dedicated(facts)] if count is not None and count.dedicated != 0 else []
    quotas += [_spot(facts)] if count is not None and count.low_priority != 0 else []
    quota_texts = [check.found for check in quotas if check.result != NOT_CHECKED] or ["quota unknown"]
    faults_text = [check.found for check in faults if check.found not in quota_texts]
    text = "; ".join((row.candidate, row.price, *quota_texts, *faults_text, row.checks))
    remedies = "; ".join(dict.fromkeys(check.next_step for check in faults if check.next_step))
    return Check(f"candidate {row.number}", WARN if result == FAIL and usable else result, text, remedies)


def _signed_in(facts: Facts) -> Check:
    account = facts.account
    account_name = "the embedded Azure Batch" if account.emulated else f"account {account.name}"
    how = "token" if account.token is not None else "shared key" if account.key is not None else account.sign_in.mode
    if isinstance(facts.pools, Unknown):
        return Check("account", FAIL, facts.pools.why, "fix this first: the other checks need it")
    return Check("account", OK, f"{account_name} at {account.endpoint}, signed in by {how}")


def _clock(facts: Facts) -> Check:
    if isinstance(facts.skew, Unknown) or facts.skew is None:
        return Check(
            "clock", NOT_CHECKED, "the service does not report its time" if facts.skew is None else "see account"
        )
    off = abs(facts.skew)
    text = difference(facts.skew)
    if off < SKEW_WARNS:
        return Check("clock", OK, text if off >= 2 else "the clock of this machine matches the service")
    result = FAIL if off >= KEY_LIMIT else WARN
    return Check("clock", result, f"{text}; signatures fail at {span(KEY_LIMIT)}", STEP)


def _pools(facts: Facts) -> Check:
    if isinstance(facts.pools, Unknown):
        return Check("pools", NOT_CHECKED, "see account")
    quota = facts.region.account.pools if isinstance(facts.region, Region) else None
    pool = _pool(facts)
    count = len(facts.pools)
    text = counted(count, "pool") + (f" of at most {quota}" if quota is not None else "")
    if pool is not None and any(existing.id == pool.id for existing in facts.pools):
        step = f"use it as it is, or delete it first: batchtrain pool del {pool.id}{facts.account.option}"
        return Check("pools", WARN, f"{text}; pool {pool.id} is there already", step)
    if quota is not None and count >= quota:
        return Check("pools", FAIL, text, "delete a pool, or ask for a higher quota (account, Quotas)")
    return Check("pools", OK, text)


def _jobs(facts: Facts) -> Check:
    if isinstance(facts.jobs, Unknown):
        return Check("jobs", NOT_CHECKED, "see account")
    quota = facts.region.account.jobs if isinstance(facts.region, Region) else None
    schedules = () if isinstance(facts.schedules, Unknown) else facts.schedules
    both: tuple[Job | JobSchedule, ...] = (*facts.jobs, *schedules)  # one quota for both kinds of nodes
    active = [existing for existing in both if existing.state != "completed"]
    what = "jobs and schedules " if schedules else ""
    text = f"{len(active)} {what}not completed" + (f" of at most {quota}" if quota is not None else "")
    names = {job.id for job in facts.recipe.jobs} if facts.recipe is not None else set()
    clashes = sorted(names & {existing.id for existing in both})
    if clashes:
        step = f"batchtrain jobs del {clashes[0]}{facts.account.option}"
        return Check(
            "jobs", WARN, f"{text}; {', '.join(clashes)} {'is' if len(clashes) == 1 else 'are'} there already", step
        )
    if quota is not None and len(active) + len(names) > quota:
        return Check("jobs", FAIL, text, "complete or delete jobs, or ask for a higher quota (account, Quotas)")
    return Check("jobs", OK, text)


def _image(facts: Facts) -> Check:
    pool = _pool(facts)
    if pool is None:
        return Check("image", NOT_CHECKED, NO_RECIPE)
    platform = pool.vm_configuration.platform_image
    if platform is None:
        return _own_image(facts, pool)
    if isinstance(facts.images, Unknown):
        return Check("image", NOT_CHECKED, "see account")
    name = f"{platform.publisher}:{platform.offer}:{platform.sku}"
    names = {f"{image.publisher}:{image.offer}:{image.sku}".lower(): image for image in reversed(facts.images)}
    account_image = names.get(name.lower())
    if account_image is None:
        catalog_image = facts.catalog.image(platform.publisher, platform.offer, platform.sku)
        instead = catalog_image.replacement if catalog_image else ""
        step = f"use {instead}" if instead else "`az batch pool supported-images list` lists them"
        return Check("image", FAIL, f"{name} is not among the images that the account supports", step)
    return _offered(facts, name, platform, account_image)


def _own_image(facts: Facts, pool: PoolSettings) -> Check:
    text = "a custom image: only the pool itself shows whether it starts"
    vm = pool.vm_configuration
    image = vm.custom_image or vm.shared_gallery_image or vm.community_gallery_image
    agent = image.node_agent if image is not None else None
    if agent is None or isinstance(facts.images, Unknown) or not facts.images:
        return Check("image", NOT_CHECKED, text)
    agents = sorted({item.node_agent for item in facts.images})
    if agent.lower() in map(str.lower, agents):
        return Check("image", NOT_CHECKED, f"{text}; the account supports its node agent")
    return Check(
        "image", FAIL, f"the account does not support the node agent {agent}", f"write one of {', '.join(agents)}"
    )


def _offered(facts: Facts, name: str, platform: PlatformImage, account_image: Image) -> Check:
    entry = facts.catalog.image(platform.publisher, platform.offer, platform.sku)
    agent = platform.node_agent or (entry.node_agent if entry else account_image.node_agent)
    if agent != account_image.node_agent:
        step = f"write `node_agent: {account_image.node_agent}`"
        return Check("image", FAIL, f"{name} needs {account_image.node_agent}, not {agent}", step)
    if platform.native and account_image.capabilities and "DockerCompatible" not in account_image.capabilities:
        step = "use an image with a container engine: batchtrain catalog images --docker"
        return Check("image", FAIL, f"{name} cannot run containers, and the pool is native", step)
    end = account_image.ends.date() if account_image.ends else None
    if end is not None and end - facts.today < SOON:
        instead = f"use {entry.replacement}" if entry and entry.replacement else "use a newer image"
        return Check("image", FAIL if end < facts.today else WARN, f"Batch supports {name} until {end}", instead)
    return Check("image", OK, f"{name} with {agent}" + (f", supported until {end}" if end else ""))


def _registry(facts: Facts) -> Check:
    if facts.registry:
        return Check("registry", OK, f"images of recipes come from {facts.registry}")
    if facts.recipe is None:
        return Check("registry", NOT_CHECKED, "not set: batchtrain config set registry NAME")
    name = next((image for _, image in placeholders(facts.recipe.resources.docker_images)), "")
    if not name or facts.account.emulated:
        return Check("registry", OK, "not set, and not needed here")
    step = ", then ".join(publishing(facts.recipe.directory))
    return Check("registry", WARN, f"{name} is in no registry, so no node can pull it", step)


def _size(facts: Facts) -> Check:
    pool = _pool(facts)
    if pool is None:
        return Check("VM size", NOT_CHECKED, NO_RECIPE)
    size = facts.catalog.size(pool.vm_size)
    if size is None:
        near = facts.catalog.nearest_sizes(pool.vm_size)
        step = f"did you mean {near[0]}?" if near else "batchtrain catalog sizes"
        return Check("VM size", WARN, f"{pool.vm_size} is not in the catalogue", f"{step} (catalog.yaml can add it)")
    if size.retired is None:
        gpus = f", {size.gpus} x {size.gpu_model}" if size.gpus else ""
        network = f", {size.hcas} x {size.infiniband.upper()} InfiniBand" if size.infiniband else ""
        return Check("VM size", OK, f"{size.name}: {size.cores} cores, {size.memory_gib:g} GiB{gpus}{network}")
    is_retired = size.retired <= facts.today
    text = f"{size.name} {'was retired on' if is_retired else 'retires on'} {size.retired}"
    return Check("VM size", FAIL if is_retired else WARN, text, today_for(size).reason)


def _settings(facts: Facts) -> Check:
    if isinstance(facts.region, Unknown):
        return Check("account settings", NOT_CHECKED, facts.region.why)
    account, method = facts.region.account, "SharedKey" if facts.account.key is not None else "AAD"
    if account.sign_ins and method not in account.sign_ins:
        step = "remove the key from credentials.yaml to sign in by Entra ID" if method == "SharedKey" else "use the key"
        return Check("account settings", FAIL, f"the account accepts {', '.join(account.sign_ins)}, not {method}", step)
    if account.public_network != "Enabled":
        step = "run this from inside its network, or through its private endpoint"
        return Check("account settings", WARN, f"public network access is {account.public_network}", step)
    return Check("account settings", OK, f"{account.location}, nodes by {account.allocation}, public network on")


def _sold(facts: Facts) -> Check:
    pool, region = _pool(facts), facts.region
    if isinstance(region, Unknown) or pool is None:
        return Check("region", NOT_CHECKED, region.why if isinstance(region, Unknown) else NO_RECIPE)
    location = region.account.location
    if region.size is None:
        step = f"another region or size; az batch location list-skus --location {location} lists the sizes"
        return Check("region", FAIL, f"Batch does not support {pool.vm_size} in {location}", step)
    if region.blocked:
        step = f"ask for access to the size in {location} (a support request, Subscription limits)"
        return Check(
            "region", FAIL, f"this subscription cannot use {pool.vm_size} in {location}: {region.blocked}", step
        )
    if region.size.ends is not None and region.size.ends - facts.today < SOON:
        result = FAIL if region.size.ends < facts.today else WARN
        return Check("region", result, f"Batch supports {pool.vm_size} until {region.size.ends}", "choose a newer size")
    return Check("region", OK, f"Batch supports {region.size.name} in {location}; its present capacity is unknown")


OF_SUBSCRIPTION = "nodes count against the quota of the subscription: az vm list-usage"


def _dedicated(facts: Facts) -> Check:
    pool, region = _pool(facts), facts.region
    if isinstance(region, Unknown) or pool is None:
        return Check("quota", NOT_CHECKED, region.why if isinstance(region, Unknown) else NO_RECIPE)
    account, family = region.account, region.families.get(key(pool.vm_size), "")
    if account.allocation == "UserSubscription":
        return Check("quota", NOT_CHECKED, OF_SUBSCRIPTION)
    quota = account.cores_of(family)
    if quota is None:
        return Check("quota", NOT_CHECKED, f"the account lists no quota for the family of {pool.vm_size}")
    of = family if account.by_family else "dedicated cores"
    return _compared("quota", facts, most_nodes(pool).dedicated, quota, of, spot=False)


def _spot(facts: Facts) -> Check:
    pool, region = _pool(facts), facts.region
    if isinstance(region, Unknown) or pool is None:
        return Check("spot quota", NOT_CHECKED, region.why if isinstance(region, Unknown) else NO_RECIPE)
    if region.account.allocation == "UserSubscription":
        return Check("spot quota", NOT_CHECKED, OF_SUBSCRIPTION)
    if region.account.spot_cores is None:
        return Check("spot quota", NOT_CHECKED, "the account lists no quota for spot nodes")
    return _compared(
        "spot quota", facts, most_nodes(pool).low_priority, region.account.spot_cores, "spot cores", spot=True
    )


def _compared(name: str, facts: Facts, nodes: int | None, quota: int, of: str, *, spot: bool) -> Check:
    """Compares the cores of the pool and of the account's other pools with a quota."""
    pool, region = _pool(facts), facts.region
    assert pool is not None
    assert isinstance(region, Region)
    if nodes is None:
        return Check(name, NOT_CHECKED, f"the pool has no maximum number of nodes: {unlimited(pool)}")
    cores = _cores(facts, pool.vm_size)
    if cores is None:
        return Check(name, NOT_CHECKED, f"the number of cores of {pool.vm_size} is unknown")
    same = region.families.get(key(pool.vm_size)) if not spot and region.account.by_family else None
    demand, load = nodes * cores, 0
    for other in facts.pools if not isinstance(facts.pools, Unknown) else ():
        if other.id != pool.id and (same is None or region.families.get(key(other.vm_size)) == same):
            counts = (other.spot, other.target_spot) if spot else (other.dedicated, other.target_dedicated)
            load += max(counts) * (_cores(facts, other.vm_size) or 0)
    text = f"{demand} cores needed, {load} of {quota} used ({of})"
    if demand + load <= quota:
        return Check(name, OK, text)
    return Check(name, FAIL, text, f"fewer nodes, or ask for {demand + load} cores (account, Quotas, Request increase)")


def _cores(facts: Facts, name: str) -> int | None:
    size = facts.catalog.size(name)
    return size.cores if size is not None else None


def _cost(facts: Facts) -> Check:
    recipe = facts.recipe
    if recipe is None or (hour := cost.hour_of(recipe, facts.account.region)) is None:
        return Check("cost", NOT_CHECKED, NO_RECIPE)
    if hour.cost is not None or facts.account.emulated:
        may_stand = any(job.is_watched and job.stop_when is None for job in recipe.jobs)  # and costs as much
        step = "`stop_when: {silent: 20m}` of a job ends a gang that stands still" if may_stand else ""
        return Check("cost", OK, str(hour), step)
    return Check("cost", OK, str(hour), cost.unpriced(recipe, hour, facts.account.region or ""))


def _pool(facts: Facts) -> PoolSettings | None:
    return facts.recipe.pool if facts.recipe is not None else None


CHECKS: tuple[Callable[[Facts], Check], ...] = (
    _signed_in, _clock, _pools, _jobs, _image, _registry, _size, _settings, _sold, _dedicated, _spot, _cost,
)  # fmt: skip
OF_CANDIDATE = (_image, _size, _sold, _dedicated, _spot, _cost)
"""Those that depend on the account, the size or the kind of nodes."""
