"""From a record to a diagnosis: every rule is asked; what explains the first failure comes first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from batchtrain.diagnosis import output_rules, service_rules
from batchtrain.diagnosis.finding import Diagnosis
from batchtrain.diagnosis.record import JobRecord, NodeRecord, PoolRecord, Record, TaskRecord
from batchtrain.errors import Finding
from batchtrain.service.causes import lines_of, of_the_program

SHOWN_LINES = 5
PREEMPTED = (
    "spot-preempted",
    "the task lost its node {} time(s) and was started again",
    "keep a checkpoint (docs/how-to/checkpoints.md), or use dedicated nodes",
)


def judged(record: Record) -> Diagnosis:
    """The diagnosis of a job, or of a pool if the record has no job."""
    job, pool = record.job, record.pool
    about_pool = list(_of_pool(pool)) if pool else []
    if job is None:
        assert pool is not None
        return Diagnosis(f"pool {pool.id}", _pool_state(pool), "", tuple(about_pool), _first_start_lines(pool), record)
    failed = [task for task in job.tasks if task.failed]
    about_tasks = [finding for task in failed for finding in _of_failed(job, task)]
    about_job = list(_of_job(job, pool, record.hints))
    findings = (*about_tasks, *about_job, *about_pool) if failed else (*about_job, *about_pool)
    first = failed[0] if failed else None
    return Diagnosis(
        subject=f"job {job.id}",
        state=_job_state(job),
        who=_who(first) if first else "",
        findings=tuple(dict.fromkeys(findings)),
        lines=_shown(first) if first else (),
        record=record,
    )


# --- a failed task --------------------------------------------------------------------------------------------------


def _of_failed(job: JobRecord, task: TaskRecord) -> Iterator[Finding]:
    """The cause of a task's failure; the service's own code wins over the output, and the exit code comes last."""
    subject = f"task {task.id}"
    known = service_rules.of_task(task)
    by_service = known if task.failure and task.failure.code != "FailureExitCode" else None
    if by_service:
        (rule, cause, step), evidence = by_service
        yield Finding(rule, subject, cause, evidence, step)
        if rule != "terminated":
            return
    finding = _in_output(task)
    if finding:
        yield finding._replace(subject=subject)
    elif known and not by_service:
        (rule, cause, step), evidence = known
        yield Finding(rule, subject, cause, evidence, step)
    elif not by_service:
        yield _unknown(job, task, subject)


def _in_output(task: TaskRecord) -> Finding | None:
    """The first rule that fits the output of the rank that failed first, otherwise the whole output."""
    own = tuple(lines_of(task.stderr, process)) if (process := task.cause.end.process) else ()
    for lines in (own, (*task.stderr, *task.stdout)):
        for rule, cause, line in output_rules.matches(lines):
            return Finding(rule.name, "", cause, line.strip(), rule.next_step)
    return None


def _unknown(job: JobRecord, task: TaskRecord, subject: str) -> Finding:
    exception = task.cause.exception
    code = "without an exit code" if task.exit_code is None else f"with exit code {task.exit_code}"
    cause = f"the program raised {exception}" if exception else f"the program ended {code}"
    where = f"{task.cause.raised}: " if task.cause.raised else ""
    last = "".join(_shown(task)[-1:])
    read = f"read its output: `batchtrain jobs logs {job.id} --task {task.id}`, and with `--file stderr.txt`"
    if job.logs:
        read = f"read its output in {job.logs}/{task.id}"
    step = f"look at {task.cause.raised} of the source, and {read}" if task.cause.raised else read
    return Finding("exception" if exception else "unknown", subject, cause, where + (exception or last.strip()), step)


def _who(task: TaskRecord) -> str:
    node = task.cause.end.node or task.node
    names = (task.cause.end.process, f"node {node}" if node else "")
    return " on ".join(filter(None, names))


def _shown(task: TaskRecord) -> tuple[str, ...]:
    """The last lines of the rank that failed first."""
    own = tuple(lines_of(task.stderr, process)) if (process := task.cause.end.process) else ()
    for lines in (of_the_program(own), of_the_program(task.stderr), of_the_program(task.stdout), task.stderr):
        if filled := [line for line in lines if line.strip()]:
            return tuple(filled[-SHOWN_LINES:])
    return ()


# --- a job ----------------------------------------------------------------------------------------------------------


def _of_job(job: JobRecord, pool: PoolRecord | None, hints: Iterable[str]) -> Iterator[Finding]:
    subject = f"job {job.id}"
    if job.failure:
        cause, step = (
            "the service could not schedule the job",
            "look at the service's message; the job's pool could not be used",
        )
        yield Finding("job-not-scheduled", subject, cause, service_rules.message_of(job.failure), step)
    if job.reason == "MaxWallClockTimeExpiry":
        cause = "the job reached its limit of run time" + (f" ({job.wall_clock:g} s)" if job.wall_clock else "")
        yield Finding("wall-clock", subject, cause, job.reason, "raise the job's `max_wall_time`")
    for task in job.tasks:
        if task.requeues:
            rule, cause, step = PREEMPTED
            yield Finding(rule, f"task {task.id}", cause.format(task.requeues), "", step)
        if task.state == "active":
            yield from _of_waiting(job, pool, task)
    for hint in hints:
        yield Finding("waits", subject, hint, "", "the emulator says this; Azure tells no reason")


def _of_waiting(job: JobRecord, pool: PoolRecord | None, task: TaskRecord) -> Iterator[Finding]:
    known = service_rules.waiting(job, pool, task)
    if known:
        (rule, cause, step), evidence = known
        yield Finding(rule, f"task {task.id}", cause, evidence, step)
        return
    failed = {other.id for other in job.tasks if other.failed}
    blocking = [other for other in task.depends_on if other in failed]
    if blocking:
        cause = f"the task waits for {blocking[0]}, which failed: it never starts"
        step = f"correct {blocking[0]} and reactivate it: `batchtrain jobs task reactivate {job.id} {blocking[0]}`"
        yield Finding("dependency-failed", f"task {task.id}", cause, "", step)


# --- a pool ---------------------------------------------------------------------------------------------------------


def _of_pool(pool: PoolRecord) -> Iterator[Finding]:
    subject = f"pool {pool.id}"
    for failure in pool.resize_errors:
        rule, cause, step = service_rules.of_resize(failure)
        yield Finding(rule, subject, cause, service_rules.message_of(failure), step)
    if pool.autoscale_error:
        step = "correct the formula (`batchtrain config plan` shows it)"
        yield Finding("autoscale-error", subject, "the autoscale formula fails", pool.autoscale_error, step)
    for node in pool.nodes:
        yield from _of_node(node)


def _of_node(node: NodeRecord) -> Iterator[Finding]:
    subject = f"node {node.id}"
    if node.state == "starttaskfailed" or (node.start_exit_code or 0) != 0 or node.start_failure:
        yield _start_task(node, subject)
    known = service_rules.of_node(node)
    if known:
        (rule, cause, step), evidence = known
        yield Finding(rule, subject, cause, evidence, step)


def _start_task(node: NodeRecord, subject: str) -> Finding:
    """The failed start task; a rule that fits its output tells more."""
    code = f" with exit code {node.start_exit_code}" if node.start_exit_code is not None else ""
    cause = f"the start task failed{code}"
    step = "correct it (`additional_node_prep`, or what pool.yaml installs), then reboot the node or recreate the pool"
    for _, reason, line in output_rules.matches(node.start_lines):
        return Finding("start-task-failed", subject, f"{cause}: {reason}", line.strip(), step)
    evidence = service_rules.message_of(node.start_failure) if node.start_failure else ""
    last = next((line for line in reversed(node.start_lines) if line.strip()), "")
    return Finding("start-task-failed", subject, cause, last.strip() or evidence, step)


def _first_start_lines(pool: PoolRecord) -> tuple[str, ...]:
    failed = next((node for node in pool.nodes if node.start_lines), None)
    return tuple(line for line in failed.start_lines if line.strip())[-SHOWN_LINES:] if failed else ()


def _pool_state(pool: PoolRecord) -> str:
    there, wanted = pool.dedicated + pool.spot, pool.target_dedicated + pool.target_spot
    ready = sum(node.state in ("idle", "running") for node in pool.nodes)
    return f"{pool.state}, {pool.allocation}, {there} of {wanted} nodes, {ready} ready"


def _job_state(job: JobRecord) -> str:
    counts = {"failed": job.failed, "running": job.running, "waiting": job.active, "succeeded": job.succeeded}
    tasks = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{job.state}, tasks: {tasks or 'none'}"
