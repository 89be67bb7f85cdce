"""`run --detach`: a run that the service ends alone, without any client.

Each job has an automatic pool with the life of the job, a wall clock that counts from its creation, and ends when its
tasks end. What the tasks leave behind is uploaded by the service into a container of the run. After the last request
nothing here is needed any more; after each earlier one, a wall clock of ten minutes ends what exists, as
plan/addition.py says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from batchtrain.client import controller, orphans
from batchtrain.client.ending import registered
from batchtrain.client.existing import refuse_existing, replace_job
from batchtrain.client.limits import UNLIMITED, Limits, hour_for
from batchtrain.client.planning import left_out_by_git, refuse_unattended
from batchtrain.config.link_life import THROUGH, Need, needs, too_short
from batchtrain.config.task_results import names_all
from batchtrain.config.types import AutoPool, Job, Recipe, seconds_of, span_of
from batchtrain.errors import PlanError, ServiceError, UsageError
from batchtrain.life import intents
from batchtrain.life.endings import cause_of
from batchtrain.plan.marks import MAX_PRICE
from batchtrain.plan.outputs import uploads_named_only
from batchtrain.records import events
from batchtrain.runs import directory
from batchtrain.runs.recording import Origin, begin, now
from batchtrain.service import retry
from batchtrain.service.register import Thing
from batchtrain.storage.run_container import container_of, put_run

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.runs.directory import RunDirectory
    from batchtrain.service.watch import Tell

DEFAULT_SECONDS = 86400.0
"""The wall clock of a detached run without a limit."""
LEAST_SECONDS = 60.0
LINK = "storage"
"""The storage link of a recipe without one; only the emulator has an account behind every link."""


class Detached(NamedTuple):
    """A run that continues without this client."""

    run: RunDirectory
    job: str
    seconds: float


def detach(
    client: Operations,
    recipe: Recipe,
    *,
    tell: Tell,
    origin: Origin,
    limits: Limits = UNLIMITED,
    has_controller: bool = False,
) -> tuple[Detached, ...]:
    """Add each job with a pool of its own, and return. has_controller: a job moves it among the candidates of the pool.

    Raises UsageError and PlanError, before anything is created, for what the service cannot end or whose results
    could not be fetched."""
    recipe, region = client.with_storage(recipe), client.account.region
    if recipe.pool is not None and limits.price is not None:
        metadata = {**recipe.pool.metadata, MAX_PRICE: f"{limits.price:g}"}
        recipe = replace(recipe, pool=replace(recipe.pool, metadata=metadata))
    overseer = controller.foresee(client, recipe) if has_controller else None
    recipes = [option.recipe for option in overseer.options] if overseer else [recipe]
    recipe = recipes[0]
    refuse_unfit(recipe)
    link = storage_link(recipe, emulated=client.account.emulated)
    hour = max(_hour(option, limits, region) for option in recipes)
    if overseer is not None:
        hour += _hour(replace(recipe, pool=overseer.pool), limits, region)
    seconds = {job.id: wall_seconds(job, limits, hour, len(recipe.jobs)) for job in recipe.jobs}
    alone = replace(recipe, jobs=tuple(bounded(job, seconds[job.id]) for job in recipe.jobs))
    refuse_short_links(alone, link)
    orphans.adopt(client, origin.root, tell, job_ids=seconds)
    for thing in (Thing("job", overseer.pool.id), Thing("pool", overseer.pool.id)) if overseer else ():
        is_job = thing.kind == "job"
        if state := client.jobs.state(thing.id) if is_job else client.pools.stands(thing.id):
            is_in_state = f", and is {state}" if is_job else ""
            raise thing.exists(f"{thing.name} exists{is_in_state}; delete it with `{thing.command('del', '')}`")
    for job_id, created in refuse_existing(client, alone, origin, tell, reuse=False).items():
        replace_job(client, job_id, created, tell)
    for text in (*remarks(recipe, seconds), *((overseer.remark(recipe, region),) if overseer else ())):
        tell(events.Waiting("", text))
    return tuple(_detached(client, recipe, job, link, seconds[job.id], tell, origin, overseer) for job in recipe.jobs)


def _detached(
    client: Operations,
    recipe: Recipe,
    job: Job,
    link: str,
    seconds: float,
    tell: Tell,
    origin: Origin,
    overseer: controller.Overseer | None,
) -> Detached:
    name = directory.new_name(job.id, now())
    alone = replace(recipe, jobs=(bounded(job, seconds),))
    foreseen = client.foresee(alone, results=f"{link}/{container_of(name)}")
    addition = overseer.foresee(client, alone, seconds, name, link) if overseer else None
    recording = begin(
        client.batch, client.account, alone, alone.jobs[0], foreseen.jobs, origin, (), foreseen.sources, foreseen.blobs,
        name=name,
    )  # fmt: skip
    recording.detach()
    try:
        register = client.register(alone, {job.id: name, controller.id_of(job.id): name})
        with registered(client, register, tell, intents.DETACH):
            put_run(client.storage(alone)(link), recording.run.path)
            for left_out in left_out_by_git(foreseen.sources):
                tell(left_out)
            client.jobs.add_all(alone, tell=tell, foreseen=foreseen, resume=False, register=register)
            if addition is not None:
                addition.carry_out(client, register, tell)
    except (Exception, KeyboardInterrupt) as error:
        recording.end(cause_of(error).state, error)
        if addition is not None:
            with contextlib.suppress(ServiceError):
                controller.forget(client.storage(alone)(link), name)
        raise
    recording.release()
    return Detached(recording.run, job.id, seconds)


# --- the limits that the service keeps ------------------------------------------------------------------------------


def bounded(job: Job, seconds: float) -> Job:
    """The job with a pool of its own, a wall clock, and an end with its tasks."""
    return replace(job, auto_pool=AutoPool(), auto_complete=True, max_wall_time=span_of(seconds))


def wall_seconds(job: Job, limits: Limits, hour: float, jobs: int = 1) -> float:
    """The wall clock of a job: the shortest of its own, the limit, and the time that the price pays for all its nodes;
    24 hours without any. hour: what all nodes cost. jobs: how many share the price. Raises UsageError for less than a
    minute."""
    times = [float(seconds_of(job.max_wall_time))] if job.max_wall_time else []
    times += [limits.seconds] if limits.seconds is not None else []
    if limits.price is not None and hour:
        times.append(limits.price / jobs / hour * 3600)
    seconds = min(times, default=DEFAULT_SECONDS)
    if seconds < LEAST_SECONDS:
        raise UsageError(f"job {job.id} would end {seconds:.0f} s after its creation; nodes need minutes to start")
    return seconds


def _hour(recipe: Recipe, limits: Limits, region: str | None) -> float:
    """What an hour of all nodes of one pool costs; 0 without a limit of the price. Raises UsageError."""
    hour = hour_for(limits, replace(recipe, jobs=()), region)
    return (hour and hour.cost) or 0.0


def remarks(recipe: Recipe, seconds: dict[str, float]) -> Iterator[str]:
    """What is reported before anything is created."""
    for job_id, time in seconds.items():
        yield (
            f"job {job_id} ends {retry.span(time)} after its creation at the latest, the wait for nodes included; then"
            " the service deletes its pool"
        )
    for job in recipe.jobs:
        for task in job.tasks:
            if uploads_named_only(task, len(job.tasks)) and not names_all(task.results):
                yield (
                    f"task {job.id}/{task.id or ''} uploads only `output`, because its inputs are in the same directory"
                    " or its job has many tasks; `results: {include: [...]}` names other files"
                )
                break
    if recipe.settings.notify is not None:
        yield "`notify` sends nothing: no command follows the run"
    if recipe.pool is not None and (recipe.pool.ssh is not None or recipe.pool.rdp is not None):
        yield f"the pool has no login (`ssh`, `rdp`): the service makes it for job {', '.join(seconds)}"


# --- what is refused ------------------------------------------------------------------------------------------------


def refuse_unfit(recipe: Recipe) -> None:
    """Raise for what a run without a client cannot have."""
    pool = recipe.pool
    if pool is None or not recipe.jobs:
        raise PlanError(
            f"a detached run makes its pool from pool.yaml and its job from jobs.yaml; see {recipe.directory}"
        )
    refuse_unattended(recipe)
    for key, is_set, reason in (
        ("identities", pool.identities, f"{_ENDS} can have none: Azure sets them through Resource Manager"),
        ("vm_sizes", pool.vm_sizes is not None, f"{_ENDS} cannot have several sizes"),
        ("candidates", pool.candidates is not None, "the service, which creates the pool, tries none"),
    ):
        if is_set:
            raise PlanError(
                f"pool {pool.id} has `{key}`, and {reason}; remove them, or create the pool with `batchtrain pool add"
                " --idle 30m`, which has no nodes when nothing runs, and add the job with `batchtrain jobs add`"
            )
    for job in recipe.jobs:
        for fits, reason in _UNFIT:
            if fits(job):
                raise UsageError(f"job {job.id} {reason}")


_ENDS = "a pool that ends with its job (`auto_pool`)"
# fmt: off
_UNFIT: tuple[tuple[Callable[[Job], bool], str], ...] = (
    (lambda job: job.recurrence is not None,
        "has a `recurrence`, and a job schedule has no end; add it with `batchtrain jobs add`"),
    (lambda job: job.auto_pool is not None and job.auto_pool.keep_alive,
        "keeps its pool alive (`auto_pool.keep_alive`), and no client would delete it; remove that"),
    (lambda job: any(task.task_factory is not None for task in job.tasks),
        "has a `task_factory`, and the results of generated tasks have no place of their own in storage; do not"
        " detach it, or write the tasks"),
)
# fmt: on


def storage_link(recipe: Recipe, *, emulated: bool) -> str:
    """The storage account that receives the results. Raises UsageError without one."""
    links = tuple(recipe.credentials.storage)
    if link := recipe.settings.storage_account_settings or only_link(links, emulated=emulated):
        return link
    if links:
        raise UsageError(
            f"credentials.yaml has several storage accounts ({', '.join(links)}), and a detached run needs one for its"
            " results; name it in config.yaml: `batchtrain.storage_account_settings`"
        )
    raise UsageError(
        "a detached run needs a storage account, because its nodes and their files are gone when it ends; write"
        " `storage.NAME.account` (and `account_key`) in credentials.yaml, or do not detach it"
    )


def only_link(links: tuple[str, ...], *, emulated: bool) -> str:
    """The only storage account of credentials.yaml, or the emulator's own; empty if there is none, or several."""
    if len(links) == 1:
        return links[0]
    return LINK if emulated and not links else ""


def refuse_short_links(recipe: Recipe, link: str) -> None:
    """Raise UsageError if a link to storage expires before its last use. recipe: with the wall clocks of its jobs.
    link: the storage account that receives the results."""
    seconds = max(float(seconds_of(job.max_wall_time or "0:0:0")) for job in recipe.jobs)
    for need in (Need(THROUGH, link, seconds, "upload"), *needs(recipe)):
        if reason := too_short(recipe, need):
            raise UsageError(reason)
