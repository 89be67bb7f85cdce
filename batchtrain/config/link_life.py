"""How long links to storage are valid, and for how long pools and jobs need them. Pure.

batchtrain signs a link when it sends a request. A task reads with it at each of its starts, and writes at its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from batchtrain.config import factories, task_resources, travel
from batchtrain.config.scaling import most_nodes
from batchtrain.config.types import Job, JobManager, Path, Recipe, StorageInput, Task, seconds_of

LINK_DAYS = 30
"""How long a link is valid, where `generated_sas_expiry_days` is not set."""
DELEGATED_DAYS = 7
"""The most days of a link that Entra ID signs: a user delegation key lives no longer."""
DAY = 86400
"""Seconds; also the time for nodes to start and for the last upload, which each need includes."""
THROUGH: Path = ("batchtrain", "storage_account_settings")


Use = Literal["start", "node", "upload"]


class Need(NamedTuple):
    """A link that a pool or a job needs."""

    path: Path
    """The property."""
    account: str
    """The storage account, by its name in credentials.yaml."""
    seconds: float | None = None
    """From the creation of the job to the last use; None if nothing limits it."""
    use: Use = "start"
    """At the start of a task, at the start of a node that may join the pool at any time, or at the end of a task."""
    scheduled: bool = False
    """Whether a job schedule carries it, as long as it exists."""


def days_of(recipe: Recipe, account: str) -> int:
    """The days that a link to a storage account is valid."""
    days = recipe.settings.generated_sas_expiry_days or LINK_DAYS
    return min(days, DELEGATED_DAYS) if _is_delegated(recipe, account) else days


def _is_delegated(recipe: Recipe, account: str) -> bool:
    credentials = recipe.credentials.storage.get(account)
    return credentials is not None and not credentials.has_key


def too_short(recipe: Recipe, need: Need) -> str:
    """Why a link expires before its last use, and what to write; empty if it does not, or if nothing limits the use."""
    days = math.ceil((need.seconds or 0.0) / DAY) + 1
    if need.seconds is None or days <= days_of(recipe, need.account):
        return ""
    remedies = []
    if _is_delegated(recipe, need.account) and days > DELEGATED_DAYS:
        identity = " or the output an `identity` of the pool" if need.use == "upload" else ""
        remedies.append(f"give the account its `account_key`{identity}")
    if days > (recipe.settings.generated_sas_expiry_days or LINK_DAYS):
        remedies.append(f"set `batchtrain.generated_sas_expiry_days: {days}` in config.yaml")
    return (
        f"{_expiry(recipe, need)}, and its last use may be after {days} (time limits, retries, queue, and a day for"
        f" nodes and uploads); {' and '.join(remedies)}, or shorten the limits (`max_wall_time`, `--max-duration`)"
    )


def unlimited(recipe: Recipe, need: Need) -> str:
    """What happens after the end of a link whose use nothing limits, and what to write; empty for any other. That a
    task starts after 30 days is unlikely."""
    is_unlikely = need.use == "start" and not need.scheduled and not _is_delegated(recipe, need.account)
    if need.seconds is not None or is_unlikely:
        return ""
    limit, remedy = "no time limit ends its use", "set `max_wall_time` of the job, or of its tasks"
    if need.scheduled:
        limit = "the schedule carries it longer"
        remedy = "set a higher `batchtrain.generated_sas_expiry_days`, or use an `identity` of the pool"
    return f"{_expiry(recipe, need)}, and {limit}: {_LOSSES[need.use]}; {remedy}"


_LOSSES = {
    "start": "a task that starts later lacks its files",
    "node": "a node that starts later fails",
    "upload": "what is uploaded later is lost",
}


def _expiry(recipe: Recipe, need: Need) -> str:
    signer = " (without an `account_key`, Entra ID signs it)" if _is_delegated(recipe, need.account) else ""
    return f"the link to storage account `{need.account}`{signer} expires after {days_of(recipe, need.account)} days"


# --- what needs a link -----------------------------------------------------------------------------------------------


def needs(recipe: Recipe) -> Iterator[Need]:
    """Every link to storage that the requests of a recipe carry, except those that the user writes."""
    pool, lasts = recipe.pool, list[float | None]()
    of_pool = pool.input_data.azure_storage if pool is not None else ()
    for number, job in enumerate(recipe.jobs):
        links = list(_of_job(recipe, job, ("job_specifications", number)))
        if not links and not of_pool:
            continue
        ends = _ends(recipe, job)
        lasts.append(_latest(ends))
        for position, need in links:
            seconds = lasts[-1] if position is None else ends[position]
            is_scheduled = job.recurrence is not None
            yield need._replace(seconds=None if is_scheduled else seconds, scheduled=is_scheduled)
    use: Use = "node" if pool is not None and pool.scales else "start"
    for need in _inputs(("pool_specification",), of_pool, use):
        yield need._replace(seconds=_latest(lasts) if lasts else None)


def _tasks(job: Job) -> list[tuple[Path, Task | JobManager]]:
    """The tasks of a job with their paths; those that add or merge the others are the last ones."""
    tasks: list[tuple[Path, Task | JobManager]] = [(("tasks", number), task) for number, task in enumerate(job.tasks)]
    others = (("merge_task", job.merge_task), ("job_manager", job.job_manager))
    return tasks + [((name,), task) for name, task in others if task is not None]


def _of_job(recipe: Recipe, job: Job, path: Path) -> Iterator[tuple[int | None, Need]]:
    """The links of a job, each with the position of its task; None for those that all tasks need."""
    through = recipe.settings.storage_account_settings
    if through is not None and travel.through_storage(recipe):
        yield None, Need(THROUGH, through)
    yield from ((None, need) for need in _inputs(path, job.input_data.azure_storage))
    for position, (task_path, task) in enumerate(_tasks(job)):
        if task.output_data.azure_storage:
            yield from ((position, need) for need in _outputs(recipe, (*path, *task_path), task))
        if isinstance(task, Task) and (task.input_data.azure_storage or task.task_factory is not None):
            yield from ((position, need) for need in _inputs((*path, *task_path), task.input_data.azure_storage))
            file = task.task_factory.file if task.task_factory is not None else None
            if file is not None and file.azure_storage is not None:
                where = (*path, *task_path, "task_factory", "file", "azure_storage")
                yield position, Need(where, file.azure_storage.storage_account_settings)


def _inputs(path: Path, data: tuple[StorageInput, ...], use: Use = "start") -> Iterator[Need]:
    for number, item in enumerate(data):
        if not item.is_file_share:
            yield Need((*path, "input_data", "azure_storage", number), item.storage_account_settings, use=use)


def _outputs(recipe: Recipe, path: Path, task: Task | JobManager) -> Iterator[Need]:
    for number, item in enumerate(task.output_data.azure_storage):
        account = item.storage_account_settings
        is_signed = item.identity is None or account not in recipe.credentials.storage
        if is_signed and not item.is_file_share:
            yield Need((*path, "output_data", "azure_storage", number), account, use="upload")


# --- when it is used last ---------------------------------------------------------------------------------------------


def _latest(ends: Sequence[float | None]) -> float | None:
    return None if None in ends else max(filter(None, ends), default=0.0)


def _ends(recipe: Recipe, job: Job) -> list[float | None]:
    """The seconds from the creation of a job to the end of the last attempt of each task at the latest; None without a
    limit."""
    if job.max_wall_time is not None:
        return [float(seconds_of(job.max_wall_time))] * len(_tasks(job))
    work, slots, ends, paths = _work(recipe, job), _slots(recipe), list[float | None](), dict[str, float | None]()
    for _, task in _tasks(job):
        longest = task_resources.longest_seconds(job, task)
        if isinstance(task, JobManager) or task is job.merge_task:
            ends.append(_sum(longest, _latest(ends)))
            continue
        before = _latest([paths[name] for name in task.depends_on if name in paths])
        ends.append(_sum(longest, _latest([before, (work - (longest or 0.0)) / slots if slots else 0.0])))
        if task.id is not None:
            paths[task.id] = _sum(longest, before)
    return ends


def _sum(seconds: float | None, more_seconds: float | None) -> float | None:
    return None if seconds is None or more_seconds is None else seconds + more_seconds


def _work(recipe: Recipe, job: Job) -> float:
    """The seconds of slots that all tasks with a time limit may take."""
    total = 0.0
    for task in job.tasks:
        gang = task.multi_instance
        nodes = task_resources.instances(str(gang.num_instances), recipe.pool) if gang is not None else None
        slots = nodes or task.required_slots or 1
        total += (task_resources.longest_seconds(job, task) or 0.0) * factories.count_of(task) * slots
    return total


def _slots(recipe: Recipe) -> int:
    """The slots of all nodes; 0 if their number is unknown."""
    pool = recipe.pool
    return (most_nodes(pool).total or 0) * pool.task_slots_per_node if pool is not None else 0
