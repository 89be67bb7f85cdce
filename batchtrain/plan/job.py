"""From a job's configuration to its requests: the job, its tasks in batches, and its completion rule last; or the one
request of a job schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import NamedTuple

import msgspec

from batchtrain.config import ids, masking, travel
from batchtrain.config.factories import names as parameters
from batchtrain.config.types import Job, Recipe, Task
from batchtrain.errors import PlanError, Problem
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import exits, factory, inputs, job_tasks, pool, schedule, task, wire, wire_times
from batchtrain.plan.factory import Made
from batchtrain.plan.factory_tasks import FactoryTasks
from batchtrain.plan.frame import Frame, frame
from batchtrain.plan.judgement import judge
from batchtrain.plan.step import Step
from batchtrain.plan.task_stream import COLLECTION_BYTES, COLLECTION_TASKS, ListedTasks, TaskStream
from batchtrain.plan.types import OFFLINE, Built, Facts, Plan, Sources, Upload

LARGEST = 1_000_000
"""Bytes of one task that the service takes."""
PREFIX_CHARACTERS = 20


def plan(recipe: Recipe, facts: Facts = OFFLINE, sources: Sources | None = None) -> Plan:
    """Every job of the recipe, in order. Raises PlanError for what could never run."""
    if not recipe.jobs:
        raise PlanError(f"{recipe.directory} has no jobs.yaml, so there is no job to plan")
    sources = sources or {}
    facts = _with_sources(facts, sources)
    plans = [_plan_job(recipe, job, number, facts, sources) for number, job in enumerate(recipe.jobs)]
    plan = _together(plans)._replace(hidden=masking.secrets_in(recipe))
    plan = plan._replace(implicit=(*plan.implicit, *_left_out(sources)))
    names_only = [name.split("/", 1)[1] for name, _ in plan.launch]
    if len(set(names_only)) == len(names_only):
        plan = plan._replace(launch=tuple(zip(names_only, (text for _, text in plan.launch), strict=True)))
    return plan


def _left_out(sources: Sources) -> Iterator[Implicit]:
    """What stays on this machine of each `source`."""
    for name, source in sources.items():
        if source.left_out:
            because = f"the rest is left out: {travel.listed(source.left_out)}"
            yield Implicit(f"source {name}", f"{len(source.files):,} files", because, "source-files")


def _with_sources(facts: Facts, sources: Sources) -> Facts:
    """The facts with the names of the files of each `source`, for file factories."""
    names = {factory.key_of_source(name): tuple(file.name for file in source.files) for name, source in sources.items()}
    return facts._replace(listings={**facts.listings, **names})


def _together(plans: Sequence[Plan]) -> Plan:
    """One plan of all, in order; duplicates are removed."""
    if len(plans) == 1:
        return plans[0]
    return Plan(
        steps=tuple(step for part in plans for step in part.steps),
        warnings=tuple(dict.fromkeys(warning for part in plans for warning in part.warnings)),
        implicit=tuple(dict.fromkeys(item for part in plans for item in part.implicit)),
        launch=tuple(item for part in plans for item in part.launch),
        uploads=tuple({upload.path: upload for part in plans for upload in part.uploads}.values()),
    )


class _Tasks(NamedTuple):
    """The tasks of a job, planned."""

    built: tuple[Built, ...] = ()
    """Every task; of the factories of a stream only the first one."""
    places: tuple[str, ...] = ()
    stream: TaskStream | None = None
    implicit: tuple[Implicit, ...] = ()


def _plan_job(recipe: Recipe, job: Job, number: int, facts: Facts, sources: Sources) -> Plan:
    path = f"job_specifications[{number}]"
    around = frame(recipe, job, path, facts, sources)
    mode, by_mode = exits.mode(job, (*job.tasks, job.merge_task) if job.merge_task else job.tasks, path)
    around = around._replace(acting=mode == "performexitoptionsjobaction", filling=bool(by_mode))
    tasks = _tasks(around, factory.opened(recipe, job, facts))
    specification, implicit = _specification(around, job.tasks, mode)
    notes = factory.warnings(recipe, job, facts)
    if job.recurrence is not None:
        steps, more, remarks = _scheduled(around, tasks, specification)
        implicit, notes = implicit + more, notes + remarks
    else:
        steps = tuple(_steps(around, tasks, specification))
    judge(steps)
    return Plan(
        steps=steps,
        warnings=tuple(dict.fromkeys((*notes, *(warning for item in tasks.built for warning in item.warnings)))),
        implicit=tuple(
            dict.fromkeys(
                (*by_mode, *implicit, *tasks.implicit, *(entry for item in tasks.built for entry in item.implicit))
            )
        ),
        launch=tuple((f"{job.id}/{item.body.id}", item.text) for item in tasks.built),
        uploads=_uploads(tasks.built),
    )


# --- the tasks ------------------------------------------------------------------------------------------------------


def _tasks(around: Frame, expansions: Sequence[Made | None]) -> _Tasks:
    """A stream for more tasks than a request takes, if factories make them."""
    job, sizes = around.job, [1 if expansion is None else expansion.size for expansion in expansions]
    if any(expansions) and job.recurrence is None and (None in sizes or sum(filter(None, sizes)) > COLLECTION_TASKS):
        return _streamed(around, expansions)
    return _listed(around, expansions)


def _listed(around: Frame, expansions: Sequence[Made | None]) -> _Tasks:
    """The plans of all tasks."""
    job = around.job
    numbered_tasks = tuple(factory.numbered(around.recipe, job, expansions))
    counts = [0] * len(job.tasks)
    for number, _ in numbered_tasks:
        counts[number] += 1
    naming = ids.naming(job, around.recipe.settings.autogenerated_task_id, counts)
    task_ids = tuple(ids.given((task.id for _, task in numbered_tasks), naming.rule))
    _refuse_repeated(around, expansions, task_ids, [number for number, _ in numbered_tasks])
    groups: list[list[str]] = [[] for _ in job.tasks]
    for task_id, (number, _) in zip(task_ids, numbered_tasks, strict=True):
        groups[number].append(task_id)
    places = [f"{around.path}.tasks[{number}]" for number in range(len(job.tasks))]
    build = _builder(around, groups)
    swept = [task.task_factory is not None and bool(parameters(task.task_factory)) for task in job.tasks]
    plans = [
        build(item, task_id, places[number], swept=swept[number])
        for task_id, (number, item) in zip(task_ids, numbered_tasks, strict=True)
    ]
    where = [places[number] for number, _ in numbered_tasks]
    stream = None
    if job.merge_task is not None:
        where.append(f"{around.path}.merge_task")
        plans.append(_merge(around, job.merge_task, groups, len(task_ids)))
    _refuse_too_large(around, max((len(wire.encoded(item.body)) for item in plans), default=0))
    if len(plans) > COLLECTION_TASKS:
        stream = TaskStream((ListedTasks([item.body for item in plans]),))
    return _Tasks(tuple(plans), tuple(where), stream, _numbering(around, naming))


def _refuse_repeated(
    around: Frame, expansions: Sequence[Made | None], task_ids: Sequence[str], numbers: Sequence[int]
) -> None:
    """Raise PlanError for a task of a factory with the id of an earlier task. Examples have ids of their own later."""
    merge = around.job.merge_task
    earlier_ids = {ids.merge_id(merge).lower()} if merge else set()
    counts = [0] * len(expansions)
    for task_id, number in zip(task_ids, numbers, strict=True):
        expansion = expansions[number]
        if expansion is not None and expansion.example:
            continue
        if expansion is not None and task_id.lower() in earlier_ids:
            raise expansion.repeated(counts[number], task_id)
        counts[number] += 1
        earlier_ids.add(task_id.lower())


def _streamed(around: Frame, expansions: Sequence[Made | None]) -> _Tasks:
    """Tasks that are made when they are sent; the first one of each factory is planned."""
    job = around.job
    if job.merge_task is not None or len(job.tasks) > 1:
        expansions = [expansion and expansion.counted() for expansion in expansions]
    counts = [1 if expansion is None else expansion.size for expansion in expansions]
    naming = ids.naming(job, around.recipe.settings.autogenerated_task_id, counts)
    if rules := ids.overlapping(naming.spans):
        raise PlanError(
            f"{around.path}: the rules for ids that begin with `{rules[0]}` and `{rules[1]}` can make the same id;"
            " give one of them another prefix"
        )
    groups = [
        _group(task, expansion, span) for task, expansion, span in zip(job.tasks, expansions, naming.spans, strict=True)
    ]
    build = _builder(around, groups)
    parts: list[FactoryTasks | ListedTasks] = []
    plans: list[Built] = []
    for number, (item, expansion, span) in enumerate(zip(job.tasks, expansions, naming.spans, strict=True)):
        build_task = partial(build, path=f"{around.path}.tasks[{number}]", swept=expansion is not None)
        if expansion is not None:
            parts.append(tasks := FactoryTasks(expansion, span, build_task))
            plans.append(tasks.built)
            if tasks.last_built and tasks.last_built.uploads != tasks.built.uploads:
                return _listed(around, expansions)  # each task has files of its own
        else:
            plans.append(build_task(item, span.id(0) if span else str(item.id)))
            parts.append(ListedTasks([plans[-1].body]))
    if job.merge_task is not None:
        total = sum(filter(None, counts))
        plans.append(_merge(around, job.merge_task, groups, total))
        parts.append(ListedTasks([plans[-1].body]))
    stream = TaskStream(tuple(parts))
    _refuse_too_large(around, stream.largest or 0)
    return _Tasks(tuple(plans), (), stream, _numbering(around, naming))


def _refuse_too_large(around: Frame, size: int) -> None:
    if size > LARGEST:
        raise PlanError(
            f"{around.path}: the largest request of a task has {size:,} bytes, and the service takes {LARGEST:,};"
            " shorten its command, variables or dependencies, or send its `source` through a storage account"
        )


def _group(item: Task, expansion: Made | None, span: ids.Span | None) -> Callable[[], ids.Group]:
    """The ids of the tasks that one task of the configuration becomes."""
    if span is not None:
        return lambda: span
    if expansion is None:
        return lambda: [str(item.id)]
    return lambda: [str(task.id) for task in islice(expansion.ahead(expansion.tasks()), ids.MOST_CHARACTERS)]


def _builder(around: Frame, groups: Sequence[ids.Group | Callable[[], ids.Group]]) -> Callable[..., Built]:
    """Plans one task, which may wait for all tasks of a factory."""
    factories = {item.id: group for item, group in zip(around.job.tasks, groups, strict=True) if item.task_factory}

    @lru_cache(8)
    def dependencies(names: tuple[str, ...], path: str) -> wire.Dependencies:
        return _after([_ids(factories.get(name, [name])) for name in names], path)

    def build(item: Task, task_id: str, path: str, *, swept: bool = False) -> Built:
        draft = task.build(around._replace(swept=swept), item, task_id, path)
        if factories.keys().isdisjoint(item.depends_on):
            return draft
        after = dependencies(item.depends_on, path)
        ranges = (*(draft.body.depends_on.task_id_ranges if draft.body.depends_on else ()), *after.task_id_ranges)
        after = msgspec.structs.replace(after, task_id_ranges=ranges)
        return draft._replace(body=msgspec.structs.replace(draft.body, depends_on=after))

    return build


def _ids(group: ids.Group | Callable[[], ids.Group]) -> ids.Group:
    return group() if callable(group) else group


def _numbering(around: Frame, naming: ids.Naming) -> tuple[Implicit, ...]:
    if not naming.numbers:
        return ()
    because = "a task waits for more ids than a request takes, so it waits for a range of numbers"
    return (Implicit("autogenerated_task_id", "numbers", because, "dependency-numbers", around.path),)


def _merge(around: Frame, merge: Task, groups: Sequence[ids.Group | Callable[[], ids.Group]], others: int) -> Built:
    """The merge task, after all the others."""
    path = f"{around.path}.merge_task"
    task_plan = task.build(around, merge, ids.merge_id(merge), path)
    because = "a merge task runs after all the others"
    implicit = Implicit("depends_on", f"all {others:,} tasks", because, "merge-task", path)
    body = msgspec.structs.replace(task_plan.body, depends_on=_after(list(map(_ids, groups)), path))
    return task_plan._replace(body=body, implicit=(*task_plan.implicit, implicit))


def _after(groups: Sequence[ids.Group], path: str) -> wire.Dependencies:
    if too_many := ids.excess(groups):
        raise PlanError(
            f"{path}: the ids of the tasks before it have {too_many:,} characters,"
            f" and the service takes {ids.MOST_CHARACTERS:,}; give the tasks numbers as ids"
            " (`autogenerated_task_id: {prefix: '', zfill_width: 0}`), and ranges are used"
        )
    dependencies = ids.waited(groups)
    ranges = tuple(wire.TaskIdRange(start=start, end=end) for start, end in dependencies.ranges)
    return wire.Dependencies(task_ids=dependencies.ids, task_id_ranges=ranges)


# --- the job --------------------------------------------------------------------------------------------------------


def _specification(
    around: Frame, tasks: tuple[Task, ...], mode: str | None
) -> tuple[wire.JobSpecification, tuple[Implicit, ...]]:
    """All properties of a job except its id."""
    job = around.job
    pool_info, by_pool = _pool(around)
    preparation, by_preparation = job_tasks.preparation(around)
    release, by_release = job_tasks.release(around)
    manager, by_manager = job_tasks.manager(around)
    depends, by_dependency = _uses_dependencies(around, tasks)
    specification = wire.JobSpecification(
        pool_info=pool_info,
        priority=job.priority,
        allow_task_preemption=job.allow_task_preemption,
        max_parallel_tasks=job.max_parallel_tasks,
        display_name=job.display_name,
        uses_task_dependencies=depends,
        on_task_failure=mode,
        network_configuration=(
            wire.JobNetwork(subnet_id=job.network.subnet_id, skip_withdraw_from_vnet=job.network.skip_withdraw)
            if job.network
            else None
        ),
        constraints=_constraints(job),
        job_manager_task=manager,
        job_preparation_task=preparation,
        job_release_task=release,
        common_environment_settings=inputs.environment(
            job.environment_variables, vault_id=job.environment_variables_keyvault_secret_id
        ),
        metadata=tuple(wire.Metadata(name=name, value=value) for name, value in job.metadata.items()),
    )
    return specification, by_pool + by_dependency + by_preparation + by_release + by_manager


def _pool(around: Frame) -> tuple[wire.PoolInfo, tuple[Implicit, ...]]:
    """The pool by its id, or the description of one that the service makes for the job."""
    job, recipe = around.job, around.recipe
    if job.auto_pool is None:
        pool_id = recipe.pool.id if recipe.pool else around.pool.id if around.pool else None
        if pool_id is None:
            raise PlanError(f"job {job.id}: no pool is named; add a pool.yaml")
        return wire.PoolInfo(pool_id=pool_id), ()
    if recipe.pool is None:
        raise PlanError(f"job {job.id}: `auto_pool` makes a pool from pool.yaml, and there is none")
    if job.auto_pool.pool_lifetime == "job_schedule" and job.recurrence is None:
        raise PlanError(
            f"{around.path}.auto_pool.pool_lifetime: `job_schedule` is for a job with `recurrence`; write `job`"
        )
    prefix = recipe.pool.id[:PREFIX_CHARACTERS]
    auto_pool = wire.AutoPool(
        pool_lifetime_option=job.auto_pool.pool_lifetime.replace("_", ""),
        auto_pool_id_prefix=prefix,
        keep_alive=job.auto_pool.keep_alive,
        pool=pool.specification(recipe),
    )
    because = f"the pool file's id is {recipe.pool.id}"
    return wire.PoolInfo(auto_pool_specification=auto_pool), (
        Implicit("autoPoolIdPrefix", prefix, because, "auto-pool-prefix", f"{around.path}.auto_pool"),
    )


def _uses_dependencies(around: Frame, tasks: tuple[Task, ...]) -> tuple[bool, tuple[Implicit, ...]]:
    job = around.job
    if job.force_enable_task_dependencies:
        return True, ()
    because = "a task of the job depends on others"
    if job.merge_task is None and not any(item.depends_on or item.depends_on_range for item in tasks):
        if not exits.decide_on_dependents(job, tasks):
            return False, ()
        because = "an `exit_conditions` says what happens to tasks that depend on another"
    return True, (Implicit("uses_task_dependencies", "true", because, "task-dependencies", around.path),)


def _constraints(job: Job) -> wire.JobConstraints | None:
    if job.max_wall_time is None and job.max_task_retries is None:
        return None
    return wire.JobConstraints(
        max_wall_clock_time=wire_times.duration(job.max_wall_time) if job.max_wall_time else None,
        max_task_retry_count=job.max_task_retries,
    )


# --- the requests ---------------------------------------------------------------------------------------------------


def _steps(around: Frame, tasks: _Tasks, specification: wire.JobSpecification) -> Iterator[Step]:
    job = around.job
    yield Step("job.add", job.id, wire.created(wire.JobCreate, job.id, specification))
    yield from map(_upload_step, _uploads(tasks.built))
    if tasks.stream is not None:
        yield Step("task.add", job.id, tasks.stream)
    else:
        bodies = [item.body for item in tasks.built]
        if len(bodies) == 1:
            yield Step("task.add", job.id, bodies[0])
        else:
            for batch in _batches(bodies):
                yield Step("task.add", job.id, wire.TaskCollection(value=tuple(batch)))
    if job.auto_complete:
        patch = wire.JobPatch(on_all_tasks_complete="terminatejob")
        yield Step("job.complete", job.id, patch)


def _scheduled(
    around: Frame, tasks: _Tasks, specification: wire.JobSpecification
) -> tuple[tuple[Step, ...], tuple[Implicit, ...], tuple[Problem, ...]]:
    implicit: tuple[Implicit, ...] = ()
    remarks: tuple[Problem, ...] = ()
    if schedule.only(around, len(tasks.built)):
        [item], [path] = tasks.built, tasks.places
        manager, implicit = schedule.manager(around, item.body, path)
        remarks = schedule.remarks(around, item.body, path)
        specification = msgspec.structs.replace(specification, job_manager_task=manager)
    if around.job.auto_complete:
        specification = msgspec.structs.replace(specification, on_all_tasks_complete="terminatejob")
    body = schedule.body(around, specification)
    steps = (*map(_upload_step, _uploads(tasks.built)), Step("schedule.add", around.job.id, body))
    return steps, implicit, remarks


def _uploads(task_plans: Sequence[Built]) -> tuple[Upload, ...]:
    """Each upload once: tasks alike share their files."""
    return tuple({upload.path: upload for item in task_plans for upload in item.uploads}.values())


def _upload_step(upload: Upload) -> Step:
    return Step("blob.upload", upload.path, {"bytes": upload.size})


def _batches(bodies: Sequence[wire.TaskCreate]) -> Iterator[list[wire.TaskCreate]]:
    """Less than 1 MB a request, as the service takes them."""
    batch: list[wire.TaskCreate] = []
    weight = 0
    for body in bodies:
        size = len(wire.encoded(body)) + 1
        if batch and weight + size > COLLECTION_BYTES:
            yield batch
            batch, weight = [], 0
        batch.append(body)
        weight += size
    if batch:
        yield batch
