"""`run --detach --controller`: a small job that moves the job of a detached run to the next candidate of its pool.

The client plans the requests for every candidate, with all links and secrets, and puts them into the control container
of the run. A job on a pool of one node has links that read them and the program, and compares the digest of the program
before it starts it. It needs no credentials but the rights to the jobs of the Batch account.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import math
import shlex
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from batchtrain.client import controller_program
from batchtrain.client.controller_program import FILE, Requests
from batchtrain.client.identities import refuse_identities
from batchtrain.client.operations import Operations
from batchtrain.client.planning import Foreseen
from batchtrain.config.candidates import Candidate, ordered
from batchtrain.config.described import IMAGE
from batchtrain.config.link_life import days_of
from batchtrain.config.times import duration
from batchtrain.config.types import GlobalResources, Job, Pool, Recipe, Task, VmConfiguration, VmCount, span_of
from batchtrain.errors import NotFound, UsageError
from batchtrain.plan.cost import hour_of
from batchtrain.plan.inputs import ListedFile
from batchtrain.plan.marks import CONTROLS
from batchtrain.plan.types import Plan
from batchtrain.service import deletion
from batchtrain.service.register import Kind, Register, Thing, marks_or_none
from batchtrain.service.watch import Tell
from batchtrain.storage import blob
from batchtrain.storage.blob_requests import Storage
from batchtrain.storage.run_container import container_of, control_of

TASK = "controller"
PACKAGE = f"{TASK}/batchtrain.zip"
LEFT_OUT = frozenset({"__pycache__", "_data", "static"})
"""Directories of the package that a controller does not need."""
KINDS: tuple[Kind, ...] = ("job", "pool")
"""What a controller has, in the order of its deletion."""
FAMILIES = frozenset({"Dlsv5", "Dldsv5", "Dsv5", "Ddsv5", "Dasv5", "Dadsv5"})
"""The series of sizes for the node of a controller: without GPUs, and offered in most regions."""


def id_of(job_id: str) -> str:
    """The id of the controller's job and of its pool."""
    return f"{job_id[:53]}-{TASK}"


# --- before anything is created -------------------------------------------------------------------------------------


def foresee(client: Operations, recipe: Recipe) -> Overseer:
    """The controller of a recipe. Raises UsageError for a recipe without `recover`, for several accounts, and where
    the controller could not sign in."""
    pool = recipe.pool
    if pool is None or pool.candidates is None or not pool.candidates.recover:
        raise UsageError(
            "a controller moves a job among the `candidates` of its pool; write `candidates` with `recover: true` in"
            f" pool.yaml of {recipe.directory}, or leave the controller out"
        )
    options = ordered(recipe, client.account.region or "")
    if others := dict.fromkeys(option.account for option in options if option.account):
        raise UsageError(
            f"a controller has the rights of one Batch account, and the candidates name others ({', '.join(others)});"
            " do not detach the run, or write candidates without `account`"
        )
    if not client.account.emulated and pool.candidates.controller_identity is None:
        raise UsageError(
            "a controller signs in to the Batch account with a managed identity: write its resource id as"
            " `candidates.controller_identity` in pool.yaml, and give it the role Azure Batch Data Contributor; or do"
            " not detach the run"
        )
    refuse_identities(recipe, client.account)
    patience = duration(pool.candidates.patience) or 0.0
    return Overseer(options, pool_of(recipe, recipe.jobs[0].id, client.account.region), patience)


def pool_of(recipe: Recipe, job_id: str, region: str | None) -> Pool:
    """The pool of a controller: a node of the cheapest size, or of the smallest one without prices. Its formula removes
    the node when nothing runs there."""
    pool, catalog = recipe.pool, recipe.catalog
    assert pool is not None
    identity = pool.candidates.controller_identity if pool.candidates is not None else None
    prices = {size: catalog.price(size.name, region or "") for size in catalog.sizes if size.family in FAMILIES}
    costs = {size: price.dedicated if price else None for size, price in prices.items()}
    size = min(costs, key=lambda size: (costs[size] or math.inf, size.cores, size.memory_gib))
    return Pool(
        id=id_of(job_id),
        vm_size=size.name.upper(),
        vm_count=VmCount(dedicated=1),
        vm_configuration=VmConfiguration(platform_image=replace(IMAGE, native=False)),
        virtual_network=pool.virtual_network,
        identities=(identity,) if identity else (),
        idle_timeout="5m",
    )


class Overseer(NamedTuple):
    """The controller of a recipe, before the run has a name."""

    options: tuple[Candidate, ...]
    pool: Pool
    patience: float

    def remark(self, recipe: Recipe, region: str | None) -> str:
        """What is reported before anything is created."""
        hour = hour_of(replace(recipe, pool=self.pool), region)
        return f"a controller moves job {recipe.jobs[0].id} if its pool does not get its nodes back; {hour}"

    def foresee(self, client: Operations, recipe: Recipe, seconds: float, run: str, link: str) -> Addition:
        """Plan the requests of the controller of a run, and those for each candidate.

        recipe: of the one job of the run. link: the storage account that has the container of the run."""
        results, package = f"{link}/{container_of(run)}", _package()
        plans = []
        for option in self.options:
            candidate_recipe = replace(option.recipe, jobs=recipe.jobs)
            plans.append((str(option), candidate_recipe, client.foresee(candidate_recipe, results=results).jobs))
        digest = hashlib.sha256(package).hexdigest()
        small = self.recipe_of(recipe, seconds, run, link, digest, emulated=client.account.emulated)
        return Addition(small, client.foresee(small), tuple(plans), self.patience, link, control_of(run), package)

    def recipe_of(self, recipe: Recipe, seconds: float, run: str, link: str, digest: str, *, emulated: bool) -> Recipe:
        """The pool and the job of the controller of a run. digest: the SHA-256 of its program."""
        days = days_of(recipe, link)
        files = tuple(
            ListedFile(blob=f"{link}/{control_of(run)}/{name}?days={days}", file_path=name) for name in (PACKAGE, FILE)
        )
        python = shlex.quote(sys.executable) if emulated else "python3"
        commands = [f"echo '{digest}  {PACKAGE}' | sha256sum --check", f"{python} -m zipfile -e {PACKAGE} {TASK}"]
        if not emulated:
            from packaging.requirements import Requirement  # every command imports this module

            requirements = map(Requirement, importlib.metadata.requires("batchtrain") or ())
            dependencies = (item for item in requirements if item.marker is None or item.marker.evaluate({"extra": ""}))
            packages = shlex.join(f"{item.name}{item.specifier}" for item in dependencies)
            commands += ["python3 -m venv venv", f"venv/bin/pip install --quiet {packages}"]
            python = "venv/bin/python"
        commands.append(f"PYTHONPATH={TASK} {python} -m {controller_program.__name__}")
        task = Task(id=TASK, command=" && ".join(commands), resource_files=files, max_task_retries=3)
        job = Job(
            id=self.pool.id, auto_complete=True, max_wall_time=span_of(seconds), metadata={CONTROLS: run}, tasks=(task,)
        )
        return replace(recipe, pool=self.pool, jobs=(job,), resources=GlobalResources())


def _package() -> bytes:
    package, content = Path(__file__).parents[1], io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and not LEFT_OUT.intersection(path.parts):
                archive.write(path, path.relative_to(package.parent))
    return content.getvalue()


class Addition(NamedTuple):
    """The planned requests of the controller of a run."""

    recipe: Recipe
    foreseen: Foreseen
    plans: tuple[tuple[str, Recipe, Plan], ...]
    """Each candidate, its recipe, and the requests that add the job there."""
    patience: float
    link: str
    container: str
    """The control container of the run."""
    package: bytes
    """The archive of the program."""

    def carry_out(self, client: Operations, register: Register, tell: Tell) -> None:
        """Add the pool and the job of the controller."""
        job_id = self.plans[0][1].jobs[0].id
        requests = Requests(
            job=job_id,
            marks=register.marks(Thing("job", job_id)),
            patience=self.patience,
            candidates=tuple(name for name, _, _ in self.plans),
            requests=tuple(
                tuple((*step[:2], step.document) for step in client.filled(plan, at)) for _, at, plan in self.plans
            ),
            key=client.account.node_key,
        )
        storage = client.storage(self.recipe)(self.link)
        for name, content in ((FILE, msgspec.json.encode(requests)), (PACKAGE, self.package)):
            blob.upload(storage, self.container, name, content)
        client.pools.add(self.recipe, wait=False, tell=tell, foreseen=self.foreseen, register=register)
        client.jobs.add_all(self.recipe, tell=tell, foreseen=self.foreseen, resume=False, register=register)


# --- its end --------------------------------------------------------------------------------------------------------


def end(client: Operations, job_id: str, run: str) -> bool:
    """Delete the job and the pool of the controller of a run. Returns whether it has one."""
    has_one = False
    for kind in KINDS:
        with contextlib.suppress(NotFound):
            has_one |= not deletion.request(client.batch, Thing(kind, id_of(job_id)), {run})
    return has_one


def forget(storage: Storage, run: str) -> None:
    """Delete the requests of the controller of a run, which have the secrets of its job."""
    for container in (control_of(run), container_of(run)):
        blob.delete(storage, container, FILE)


def moves(client: Operations, job_id: str, run: str) -> bool:
    """Whether a controller follows a run: its job may be away while it is moved."""
    own = Thing("job", id_of(job_id))
    return marks_or_none(client.batch, own).run == run and client.jobs.state(own.id) == "active"
