"""From a record to a diagnosis: every rule is asked; what explains the first failure comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from batchtrain.config.travel import LeftOut
from batchtrain.diagnosis import missing_files, next_steps, output_rules, service_rules
from batchtrain.diagnosis.evidence import Evidence, ExaminedNode, ExaminedTask
from batchtrain.diagnosis.finding import Diagnosis
from batchtrain.diagnosis.missing_ranks import missing_ranks
from batchtrain.diagnosis.output_rules import Match
from batchtrain.errors import Finding, counted
from batchtrain.life import rules
from batchtrain.records import Attempt, Job, Pool
from batchtrain.records.failure import EXIT_CODE
from batchtrain.records.jobs import EXPIRED
from batchtrain.records.rank_end import ENDED_EARLY, STALLED
from batchtrain.service.causes import (
    Cause,
    admissible,
    failure_of_another,
    lines_of,
    lines_of_no_process,
    of_the_program,
)
from batchtrain.service.failed import wall_clock

SHOWN_LINES = 5
_BY_NAME = {rule.name: rule for rule in output_rules.OUTPUT_RULES}
FULL_MEMORY = {"cgroup": _BY_NAME["container-out-of-memory"], "node": _BY_NAME["host-out-of-memory"]}
"""The rule for each memory that may have been full when the kernel killed a rank."""
KILLED = (137, 143)
"""The exit codes of SIGKILL and SIGTERM: with any other one, a process can end by its own exception."""
BY_CAUSE = {"singletons": _BY_NAME["mpi-mismatch"], STALLED: _BY_NAME["stalled"]}
"""The rule for each cause that an end records; the end has its words."""
TIMEOUT = "collective-timeout"
"""The rule about ranks that wait for others; the output of all ranks together tells for which."""


def judged(evidence: Evidence) -> Diagnosis:
    """The diagnosis of a job, or of a pool if no job was read."""
    job, pool, nodes = evidence.job, evidence.pool, evidence.nodes
    about_pool = list(_of_pool(pool, nodes)) if pool else []
    if job is None:
        assert pool is not None
        ready = sum(examined_node.node.state in ("idle", "running") for examined_node in nodes)
        state = f"{pool.state}, {pool.allocation}, {pool.nodes} of {pool.target} nodes, {ready} ready"
        start_lines = next((examined_node.start_lines for examined_node in nodes if examined_node.start_lines), ())
        lines = tuple(line for line in start_lines if line.strip())[-SHOWN_LINES:]
        return Diagnosis(f"pool {pool.id}", state, "", tuple(about_pool), lines, evidence)
    failed = [examined_task for examined_task in evidence.tasks if examined_task.task.result == "failure"]
    of_task = {each.task.id: list(_of_failed(job, each, evidence)) for each in failed}
    kinds = Counter(of_each[0].kind for of_each in of_task.values() if of_each)
    failed.sort(key=lambda each: -max((kinds[finding.kind] for finding in of_task[each.task.id][:1]), default=0))
    about_tasks = [finding for each in failed for finding in of_task[each.task.id]]
    about_job = list(_of_job(job, evidence))
    findings = (*about_tasks, *about_job, *about_pool) if failed else (*about_job, *about_pool)
    if job.pool and pool is None:
        findings = tuple(finding.after_deletion() for finding in findings)
    first = failed[0] if failed else None
    counts = {"failed": job.failed, "running": job.running, "waiting": job.active, "succeeded": job.succeeded}
    tasks = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return Diagnosis(
        subject=f"job {job.id}",
        state=f"{job.state}, tasks: {tasks or 'none'}",
        who=_who(first) if first else "",
        findings=tuple(dict.fromkeys(findings)),
        lines=_shown(first) if first else (),
        evidence=evidence,
    )


def _of_failed(job: Job, examined_task: ExaminedTask, whole: Evidence) -> Iterator[Finding]:
    """The cause of a task's failure; the service's own code wins over the output, and the exit code comes last."""
    task, subject, logs = examined_task.task, f"task {examined_task.task.id}", whole.logs
    names = {
        "job": job.id,
        "task": task.id,
        "pool": job.pool or task.pool,
        "node": examined_task.cause.end.node or task.node,
    }
    match = service_rules.of_task(task)
    by_service = match if task.failure and task.failure.code != EXIT_CODE else None
    if by_service:
        (rule, cause, step), evidence = by_service
        yield _named(Finding(rule, subject, cause, evidence, step), logs, **names)
        if rule != "terminated":
            return
    if finding := _in_output(examined_task, whole.left_out):
        yield _named(finding._replace(subject=subject), logs, **names)
    elif match and not by_service and not (examined_task.cause.exception and task.exit_code not in KILLED):
        (rule, cause, step), evidence = match
        yield _named(Finding(rule, subject, cause, evidence, step), logs, **names)
    elif not by_service:
        yield _named(_unknown(examined_task, subject), logs, **names)


def _named(finding: Finding, logs: str = "", **names: str) -> Finding:
    """The finding with the names in its next steps. logs: the directory that keeps the output of the tasks."""
    step = next_steps.completed(finding.next_step, names, logs=logs)
    later = next_steps.completed(finding.next_step, names, logs=logs, pool_is_deleted=True)
    return finding._replace(next_step=step, later_step=later if later != step else "")


def _in_output(examined_task: ExaminedTask, left_out: Iterable[LeftOut]) -> Finding | None:
    """What the node recorded of the process that failed first, or the first rule that fits its output."""
    reason, everything = examined_task.cause, (*examined_task.stderr, *examined_task.stdout)
    if full := FULL_MEMORY.get(reason.end.full_memory):
        return Finding(full.name, "", full.cause, f"{reason.end.process} {reason.end.words}", full.next_step)
    if by_cause := BY_CAUSE.get(reason.end.cause):
        cause = f"{reason.end.process} {reason.end.ending}".lstrip()
        return Finding(
            by_cause.name, "", cause, "".join(f"in {call}" for call in reason.end.calls[:1]), by_cause.next_step
        )
    if reason.end.cause == ENDED_EARLY and not reason.exception:
        early = service_rules.ENDED_EARLY
        return Finding(early.rule, "", f"{reason.end.process} {reason.end.words}", reason.consequence, early.next_step)
    for rule, cause, line, name in _matches(examined_task):
        if rule.is_consequence and (another := _failure_of_another(examined_task)):
            return another
        if rule.name == TIMEOUT and (missing := missing_ranks(everything)):
            ranks = f"rank{'s' if missing[1:] else ''} {', '.join(map(str, missing))}"
            cause = f"the other ranks waited for {ranks}, and gave up"
        evidence = line.strip()
        if reason.raised and evidence.startswith(reason.exception.removesuffix("…")):
            evidence = f"{reason.raised}: {evidence}"
        finding = Finding(rule.name, "", cause, evidence, rule.next_step)
        is_file = rule.name == missing_files.RULE or (rule.name == missing_files.OF_COMMANDS and "/" in name)
        if not is_file:
            return finding
        return missing_files.refined(finding, name, examined_task.task, reason.end.node, left_out)
    return None


def _failure_of_another(examined_task: ExaminedTask) -> Finding | None:
    """The exception of another process, if its output shows that the one that ended first had lost it."""
    end = examined_task.cause.end
    name, reason = failure_of_another(examined_task.stderr, end) if end.process else ("", Cause())
    return _exception(reason, f"{name} raised {reason.exception}, and {end.process} lost it") if name else None


def _matches(examined_task: ExaminedTask) -> Iterator[Match]:
    """The rules that fit the output of the process that failed first, and if it raised no exception, those that fit the
    lines of no process. An exception of its own explains more than a consequence or a warning, and a consequence is
    never the cause of the failure of another process."""
    reason, everything = examined_task.cause, (*examined_task.stderr, *examined_task.stdout)
    is_explained = reason.exception and not reason.is_consequence
    lines = lines_of(everything, reason.end) if reason.end.process else everything
    for match in output_rules.matches(admissible(lines)):
        if not ((match.rule.is_consequence or match.rule.is_warning) and is_explained):
            yield match
    if reason.end.process and not reason.exception:
        others = output_rules.matches(admissible(lines_of_no_process(everything, reason.end)))
        yield from (match for match in others if not match.rule.is_consequence)


def _unknown(examined_task: ExaminedTask, subject: str) -> Finding:
    exit_code, exception = examined_task.task.exit_code, examined_task.cause.exception
    if exception:
        return _exception(examined_task.cause, f"the program raised {exception}")._replace(subject=subject)
    code = "without an exit code" if exit_code is None else f"with exit code {exit_code}"
    cause, last = f"the program ended {code}; no known cause fits its output", "".join(_shown(examined_task)[-1:])
    return Finding("unknown", subject, cause, last.strip(), "read its output{whole_output}")


def _exception(reason: Cause, cause: str) -> Finding:
    """The finding about an exception, at the line that raised it."""
    where = f"{reason.raised}: " if reason.raised else ""
    step = f"look at {next_steps.literal(reason.raised)} of the source, and " if reason.raised else ""
    return Finding("exception", "", cause, where + reason.exception, f"{step}read its output{{whole_output}}")


def _who(examined_task: ExaminedTask) -> str:
    end = examined_task.cause.end
    node = end.node or examined_task.task.node
    return " on ".join(filter(None, (end.process, f"node {node}" if node else "")))


def _shown(examined_task: ExaminedTask) -> tuple[str, ...]:
    """The last lines of the rank that failed first."""
    end, stderr, stdout = examined_task.cause.end, examined_task.stderr, examined_task.stdout
    own_lines = lines_of(stderr, end) if end.process else ()
    for lines in (of_the_program(own_lines), of_the_program(stderr), of_the_program(stdout), stderr):
        if nonblank := [line for line in lines if line.strip()]:
            return tuple(nonblank[-SHOWN_LINES:])
    return ()


def _of_job(job: Job, evidence: Evidence) -> Iterator[Finding]:
    subject = f"job {job.id}"
    if job.failure:
        reason = rules.not_scheduled(job)
        yield Finding(rules.NOT_SCHEDULED, subject, reason.text, reason.proof, reason.next_step)
    if job.reason == EXPIRED:
        yield wall_clock(job)
    for examined_task in evidence.tasks:
        rule, cause, step = service_rules.WARNED
        task_name = f"task {examined_task.task.id}"
        yield from (Finding(rule, task_name, cause.format(text), "", step) for text in examined_task.warnings)
    for examined_task in evidence.tasks:
        yield from _of_lost(job, [item for item in examined_task.attempts if item.reason in service_rules.LOST])
    yield from (finding for finding in evidence.waits if finding.rule != rules.NOT_SCHEDULED)
    for hint in evidence.hints if {finding.rule for finding in evidence.waits} <= {rules.TURN} else ():
        yield Finding("waits", subject, hint, "", "the emulator says this; Azure tells no reason")


LOST_SHOWN = 10
"""Attempts of a task that get a finding each, the last ones; the others are counted."""


def _of_lost(job: Job, attempts: Sequence[Attempt]) -> Iterator[Finding]:
    """The attempts of a task that the service ended."""
    earlier = len(attempts) - LOST_SHOWN
    for attempt in attempts[-LOST_SHOWN:]:
        rule, loss, step = service_rules.LOST[attempt.reason]
        node = attempt.lost or next(iter(attempt.nodes), "(unknown)")
        cause = f"attempt {attempt.number} ended, and the task was started again: {loss.format(node=node)}"
        if earlier > 0 and attempt is attempts[-1]:
            cause += f"; not listed: {counted(earlier, 'earlier attempt')}"
        finding = Finding(rule, f"task {attempt.task}", cause, "", step)
        yield _named(finding, job=job.id, task=attempt.task, pool=job.pool, node=node)


def _of_pool(pool: Pool, nodes: Iterable[ExaminedNode]) -> Iterator[Finding]:
    subject = f"pool {pool.id}"
    for failure in pool.resize_errors if pool.refusal else ():
        rule, cause, step = service_rules.of_resize(failure)
        yield _named(Finding(rule, subject, cause, failure.detailed, step), pool=pool.id)
    if pool.autoscale_error:
        cause, step, proof = rules.formula_error(pool.autoscale_error)
        yield Finding("autoscale-error", subject, cause, proof, step)
    for examined_node in nodes:
        node, subject = examined_node.node, f"node {examined_node.node.id}"
        if node.state == "starttaskfailed" or (node.start_exit_code or 0) != 0 or node.start_failure:
            yield _start_task(examined_node, subject)
        if match := service_rules.of_node(node):
            (rule, cause, step), evidence = match
            yield _named(Finding(rule, subject, cause, evidence, step), pool=pool.id, node=node.id)


def _start_task(examined_node: ExaminedNode, subject: str) -> Finding:
    """The failed start task; a rule that fits its output tells more."""
    node, lines = examined_node.node, examined_node.start_lines
    code = f" with exit code {node.start_exit_code}" if node.start_exit_code is not None else ""
    cause = f"the start task failed{code}"
    step = "correct what the node installs (`additional_node_prep`, `gpu.nvidia_driver`), and create the pool again"
    for match in output_rules.matches(lines):
        return Finding("start-task-failed", subject, f"{cause}: {match.cause}", match.line.strip(), step)
    last = next((line for line in reversed(lines) if line.strip()), "")
    return Finding("start-task-failed", subject, cause, last.strip() or node.start_failure.detailed, step)
