"""Why tasks wait, and whether they can ever start. Pure.

The table `RULES` is the judgement of every command and page, and `docs/reference/life-of-a-run.md` is made of it. The
first rule that applies to a task has its reason. A wait ends at once if nothing can start any open task.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from batchtrain.errors import Finding, counted, shortened
from batchtrain.life.seen import BROKEN, READY, Seen
from batchtrain.records import Failure, Job, Pool, Task
from batchtrain.records.record import minute

HOUR = 3600.0
NAMED = 3
"""Broken nodes that a reason names."""
STATES = {"starttaskfailed": "start task failed"}


class Reason(NamedTuple):
    """Why a task waits: in words, with the service's message that proves it, and what to do."""

    text: str
    next_step: str
    proof: str = ""


class Rule(NamedTuple):
    """A row of the table."""

    name: str
    when: str
    """When it applies, in words."""
    reason_of: Callable[[View, Task], Reason | None]
    """The reason if it applies to a task."""
    can_change: str
    """What can still start the task; empty if nothing can, so that the wait ends."""
    exit_code: int
    """Of a wait that ends for this reason, if a task failed or its patience is over."""
    patience: float | None = None
    """Seconds until the wait ends; None if it lasts until its deadline."""
    source: str = ""
    by_hand: bool = False
    """Whether a user or another client has to act; else only time is needed."""

    @property
    def is_final(self) -> bool:
        """Whether nothing can start the task any more."""
        return not self.can_change


class Decision(NamedTuple):
    """What comes next, and why."""

    act: Literal["wait", "look", "end"]
    """`look`: read more tasks, because those that were read never start."""
    rule: Rule
    task: str
    """The task that is the example."""
    reason: Reason

    @property
    def text(self) -> str:
        """The reason in a few words, with its stable name."""
        return f"{self.reason.text}{f' ({self.reason.proof})' if self.reason.proof else ''} [{self.rule.name}]"

    @property
    def finding(self) -> Finding:
        """The same as the cause of a diagnosis."""
        return Finding(self.rule.name, f"task {self.task}", self.reason.text, self.reason.proof, self.reason.next_step)


class View(NamedTuple):
    """What is there, with what rules ask of the tasks."""

    seen: Seen
    blockers: Mapping[str, Task]
    """By the id of an open task: the task that it waits for, and that has failed or never starts."""
    ids: frozenset[str]
    """The keys of the tasks of the job; empty if not all are known."""
    open: Mapping[str, str]
    """The ids of the tasks that have not ended, by their keys."""

    @property
    def pool(self) -> Pool:
        """The pool; without nodes if it does not exist, which an earlier rule says."""
        return self.seen.pool or Pool(self.seen.job.pool)


def decide(seen: Seen) -> Decision | None:
    """What a wait for the tasks of a job does next, and why; None if a task runs, if the job is about to end, and if
    all of its tasks have ended."""
    if seen.job.is_ending:
        return None
    if not seen.job.is_over and (gone := _pool_gone(seen)):
        return Decision("end", POOL_GONE, "", gone)
    if any(task.state != "active" for task in seen.open):
        return None
    steps = list[Decision]()
    for step in reasons(seen):
        if not step.rule.is_final and step.rule is not BEHIND_ANOTHER:  # what that one waits for says more
            return step
        steps.append(step)
    first = min(steps, key=lambda step: RULES.index(step.rule), default=None)
    if first is None or any(not step.rule.is_final for step in steps):
        return first
    return first._replace(act="look" if seen.next_page else "end")


def reasons(seen: Seen) -> Iterator[Decision]:
    """Why each active task waits: first those that may start, then those that wait for a failed task."""
    active = [task for task in seen.open if task.state == "active"]
    ids = frozenset(key_of(task.id) for task in seen.tasks or ()) if seen.is_whole else frozenset[str]()
    blockers = _blockers(seen.tasks or (), active)
    view = View(seen, blockers, ids, {key_of(task.id): task.id for task in seen.open})
    order = {task_id: number for number, task_id in enumerate(blockers, 1)}
    for task in sorted(active, key=lambda task: order.get(task.id, 0)):
        by_rule = ((rule, rule.reason_of(view, task)) for rule in RULES)
        yield next(Decision("wait", rule, task.id, reason) for rule, reason in by_rule if reason is not None)


def _blockers(tasks: Sequence[Task], active: Sequence[Task]) -> dict[str, Task]:
    """By the id of an active task: the task that keeps it from ever starting."""
    dependents, ranged = defaultdict[str, list[Task]](list), list[Task]()
    for task in active:
        for name in task.request.depends_on:
            dependents[key_of(name)].append(task)
        ranged += [task] * bool(task.request.depends_on_ranges)
    blockers, queue = dict[str, Task](), deque(task for task in tasks if task.blocks)
    while queue:
        blocker = queue.popleft()
        for task in (*dependents[key_of(blocker.id)], *(task for task in ranged if _is_in_ranges(blocker.id, task))):
            if task.id not in blockers:
                blockers[task.id] = blocker
                queue.append(task)
    return blockers


def key_of(task_id: str) -> str:
    """What tells the ids of tasks apart in a dependency: the service ignores their case, and `01` is the number 1."""
    return str(int(task_id)) if task_id.isascii() and task_id.isdigit() else task_id.lower()


def _is_in_ranges(task_id: str, task: Task) -> bool:
    ranges = task.request.depends_on_ranges
    return key_of(task_id).isdigit() and any(first <= int(task_id) <= last for first, last in ranges)


# --- the rules --------------------------------------------------------------------------------------------------------


def not_scheduled(job: Job) -> Reason:
    """Why the service could not schedule a job."""
    step = "look at the service's message; the job's pool could not be used"
    return Reason("the service could not schedule the job", step, job.failure.detailed)


def _job_ended(view: View, task: Task) -> Reason | None:
    job = view.seen.job
    if not job.is_over:
        return None
    by = _failed_with(view, "terminate") if job.reason == "TaskFailed" else ""
    cause = f" because {by} failed" if by else f" ({job.reason})" if job.reason else ""
    step = f"correct {by}, and add the job again" if by else "add the job again"
    return Reason(f"the job ended{cause}; its active tasks never start", step)


def _job_disabled(view: View, task: Task) -> Reason | None:
    job = view.seen.job
    if job.state not in ("disabled", "disabling"):
        return None
    by = _failed_with(view, "disable")
    cause = "the job is disabled" + (f" by the `exit_conditions` of {by}, which failed" if by else "")
    return Reason(cause, f"enable it: `batchtrain jobs enable {job.id}`")


def _failed_with(view: View, job_action: str) -> str:
    """The id of a failed task whose `exit_conditions` do this to the job."""
    failures = (other for other in view.seen.tasks or () if other.state == "completed" and other.failed)
    ends = ((other.id, other.request.exits.of(other.exit_code, other.failure)) for other in failures)
    return next((task_id for task_id, options in ends if options.job_action == job_action), "")


def _pool_gone(seen: Seen) -> Reason | None:
    pool_id = seen.job.pool
    if seen.pool is not None or not pool_id:
        return None
    cause = f"pool {pool_id} of job {seen.job.id} does not exist, so its tasks cannot run"
    return Reason(cause, "add the pool, or move the job to another one")


def _waits_for_failed_task(view: View, task: Task) -> Reason | None:
    blocker = view.blockers.get(task.id)
    if blocker is None:
        return None
    step = f"correct the failed task and reactivate it: `batchtrain jobs task reactivate {view.seen.job.id} TASK`"
    if blocker.state != "completed":
        return Reason(f"{task.id} waits for {blocker.id}, which never starts", step)
    step = step.replace("the failed task", blocker.id).replace("TASK", blocker.id)
    how = "which failed" if blocker.failed else "whose `exit_conditions` block it"
    return Reason(f"{task.id} waits for {blocker.id}, {how}: it never starts", step)


def _waits_for_missing_task(view: View, task: Task) -> Reason | None:
    if not view.ids:
        return None
    missing = [name for name in task.request.depends_on if key_of(name) not in view.ids]
    for first, last in task.request.depends_on_ranges:
        if sum(name.isdigit() and first <= int(name) <= last for name in view.ids) <= last - first:
            missing.append(f"all tasks from {first} to {last}")
    delete = f"`batchtrain jobs task del {view.seen.job.id} {task.id}`"
    step = f"add the tasks, delete the one that waits ({delete}), or correct its `depends_on` or `depends_on_range`"
    return Reason(f"{task.id} waits for {missing[0]}, and the job does not have them", step) if missing else None


def _waits_for_task(view: View, task: Task) -> Reason | None:
    names = (view.open[key_of(name)] for name in task.request.depends_on if key_of(name) in view.open)
    ranged = (other for other in view.open.values() if task.request.depends_on_ranges and _is_in_ranges(other, task))
    name = next((other for other in itertools.chain(names, ranged) if other != task.id), "")
    return Reason(f"{task.id} waits for {name}", "wait until that task has ended") if name else None


def _gang_needs_inter_node(view: View, task: Task) -> Reason | None:
    instances = task.request.instances or 1
    if view.seen.pool is None or instances == 1 or view.pool.inter_node:
        return None
    cause = f"the gang of {instances} nodes can never start: the pool has no inter-node communication"
    return Reason(cause, "set `inter_node_communication_enabled: true` in pool.yaml and recreate the pool")


def _too_few_slots(view: View, task: Task) -> Reason | None:
    slots, pool = task.request.slots, view.pool
    if view.seen.pool is None or slots <= pool.slots:
        return None
    cause = f"the task needs {slots} slots, and a node has {pool.slots}"
    return Reason(cause, "lower `required_slots`, or make a pool with more slots")


def _too_few_nodes(view: View, task: Task) -> Reason | None:
    pool, instances = view.pool, task.request.instances or 1
    if view.seen.pool is None or pool.autoscale or instances <= pool.target:
        return None
    cause = f"the task needs {counted(instances, 'node')}, and pool {pool.id} is to have {pool.target}"
    return Reason(cause, f"resize it: `batchtrain pool resize {pool.id} --dedicated {instances}`")


def _formula_fails(view: View, task: Task) -> Reason | None:
    if not view.pool.autoscale_error or view.pool.nodes >= (task.request.instances or 1):
        return None
    reason = formula_error(view.pool.autoscale_error)
    return reason._replace(text=f"pool {view.pool.id}: {reason.text}{_next_evaluation(view.pool)}")


def formula_error(error: Failure) -> Reason:
    """Why an autoscale formula sets no targets."""
    if error.code == "InsufficientSampleData":
        cause = "the pool has fewer samples than its autoscale formula needs"
        step = "wait for the next evaluation, or let the formula test GetSamplePercent() before it calls GetSample()"
        return Reason(cause, step, error.detailed)
    step = "correct the formula (`batchtrain config plan` shows it)"
    return Reason("the autoscale formula fails", step, error.detailed)


def _formula_gives_too_few(view: View, task: Task) -> Reason | None:
    pool, instances = view.pool, task.request.instances or 1
    if not pool.autoscale or instances <= pool.target:
        return None
    cause = f"the autoscale formula of pool {pool.id} gives {counted(pool.target, 'node')}{_next_evaluation(pool)}"
    more = f"; the task needs {instances}" if instances > 1 else ""
    step = "wait; `batchtrain pool autoscale evaluate DIR` evaluates the formula of the files in DIR"
    return Reason(cause + more, step)


def _next_evaluation(pool: Pool) -> str:
    if pool.evaluated is None or pool.evaluation_interval is None:
        return ""
    return f", and is evaluated next at {minute(pool.evaluated + pool.evaluation_interval)}"


def _no_usable_node(view: View, task: Task) -> Reason | None:
    nodes = view.seen.nodes or ()
    broken = [node for node in nodes if node.state in BROKEN]
    if not broken or len(nodes) - len(broken) >= (task.request.instances or 1):
        return None
    node = broken[0]
    proof = "; ".join(error.detailed for error in (*node.errors, node.start_failure) if error)
    names = ", ".join(shortened(other.id) for other in broken[:NAMED])
    more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
    states = ", ".join(sorted({STATES.get(other.state, other.state) for other in broken}))
    count = f"{len(broken)} of {counted(len(nodes), 'node')} of pool {view.pool.id}"
    cause = f"{count} take{_s(len(broken))} no tasks: {names}{more} ({states})"
    return Reason(cause, f"`batchtrain pool diagnose {view.pool.id}` tells why; reboot or replace them", proof)


def _preparation_failed(view: View, task: Task) -> Reason | None:
    failures = {row.node: row for row in view.seen.preparations if (row.state, row.result) == ("completed", "failure")}
    ready = [node for node in view.seen.nodes or () if node.state in READY]
    barred = [node for node in ready if node.id in failures]
    if not barred or len(ready) - len(barred) >= (task.request.instances or 1):
        return None
    pool_id, first = view.pool.id, failures[barred[0].id]
    where = f"{len(barred)} of {counted(len(view.seen.nodes or ()), 'node')} of pool {pool_id}"
    cause = f"the job preparation task failed on {where}, which take{_s(len(barred))} no tasks of the job"
    output = f"`batchtrain pool get {pool_id} {shortened(first.node)} '{first.directory}/*'` fetches its output"
    step = f"{output}; correct it and add the job again, or reboot the node: it is tried again there"
    return Reason(cause, step, first.failure.detailed)


def _resize_refused(view: View, task: Task) -> Reason | None:
    pool, instances = view.pool, task.request.instances or 1
    if not pool.refusal or pool.nodes >= instances:
        return None
    reason = refused(pool, view.seen.holders)
    return reason._replace(text=f"the task waits for {counted(instances, 'node')}; {reason.text}")


def refused(pool: Pool, holders: Sequence[Pool]) -> Reason:
    """Why the last resize of a pool ended without all of its nodes. holders: see `Seen`."""
    kind = "dedicated" if pool.dedicated < pool.target_dedicated else "spot"
    again = f"`batchtrain pool resize {pool.id} --{kind} N`"
    cause, proof = f"pool {pool.id} got {pool.nodes} of {counted(pool.target, 'node')}", pool.refusal.detailed
    if not pool.refusal.is_core_quota:
        return Reason(cause, f"{again} requests them again", proof)
    if not holders:
        return Reason(cause, f"ask for a higher quota (`batchtrain doctor`), or request fewer: {again}", proof)
    rows = sorted(holders, key=lambda other: (-getattr(other, kind), other.id))
    names = ", ".join(f"{other.id} ({counted(other.nodes, 'node')})" for other in rows[:NAMED])
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    largest = rows[0].id
    free = f"`batchtrain pool resize {largest} --{kind} 0` or `batchtrain pool del {largest}`"
    step = f"other pools of the account use the quota: {names}{more}. Free nodes ({free}), then request these: {again}"
    return Reason(cause, step, proof)


def _waits_for_nodes(view: View, task: Task) -> Reason | None:
    pool, nodes, instances = view.pool, view.seen.nodes, task.request.instances or 1
    count = pool.nodes if nodes is None else sum(node.state in READY for node in nodes)
    if view.seen.pool is None or count >= instances:
        return None
    states = ", ".join(sorted({node.state for node in nodes or () if node.state not in READY}))
    have = f"pool {pool.id} has {count} of {pool.target}{f' that take tasks ({states})' if states else ''}"
    step = f"wait: `batchtrain pool wait {pool.id}`; `batchtrain pool diagnose {pool.id}` looks closer"
    return Reason(f"the task waits for {counted(instances, 'node')}; {have}", step)


def _waits_for_turn(view: View, task: Task) -> Reason | None:
    if view.seen.pool is None:
        return Reason("the service has not made the pool of the job yet", "wait")
    nodes = [node for node in view.seen.nodes or () if node.state == "running"]
    busy = f": {counted(len(nodes), 'node')} of pool {view.pool.id} run{_s(len(nodes))} other tasks" if nodes else ""
    return Reason(f"the service has not started it yet{busy}", "wait")


def _s(count: int) -> str:
    """The ending of a verb whose subject is one."""
    return "s" if count == 1 else ""


FAILED, REFUSED, GONE, OVER = 10, 4, 3, 6
"""The exit codes of waits that end: a task failed, no task can start, the pool is gone, the patience is over."""
USER = "the user"
NOT_SCHEDULED = "job-not-scheduled"
TURN = "waits-for-turn"
"""The rule that knows no cause."""
# fmt: off
POOL_GONE = Rule("pool-gone", "the job's pool does not exist",
    lambda view, task: _pool_gone(view.seen), "", GONE, source="BatchPoolInfo")
BEHIND_ANOTHER = Rule("waits-for-task", "a task that it depends on has not ended", _waits_for_task, "that task", OVER)
JOB_ENDED = Rule("job-ended", "the job has ended, by a user or by the `exit_conditions` of a failed task",
    _job_ended, "", FAILED, source="BatchJobState")
RULES: tuple[Rule, ...] = (
    JOB_ENDED,
    Rule("waits-for-failed-task", "a task that it depends on failed, or never starts",
        _waits_for_failed_task, "", FAILED, source="doAzureParallel#36, CromwellOnAzure#116; BatchTaskDependencies"),
    POOL_GONE,
    Rule("gang-needs-inter-node", "a multi-instance task on a pool without inter-node communication",
        _gang_needs_inter_node, "", REFUSED, source="MultiInstanceSettings"),
    Rule("too-few-slots", "the task needs more slots than a node has",
        _too_few_slots, "", REFUSED, source="BatchTaskCreateOptions.requiredSlots"),
    Rule(NOT_SCHEDULED, "the service could not schedule the job, usually because of its pool",
        lambda view, task: not_scheduled(view.seen.job) if view.seen.job.failure else None, USER, OVER,
        source="BatchJobSchedulingError", by_hand=True),
    Rule("job-disabled", "the job is disabled, by a user or by the `exit_conditions` of a failed task",
        _job_disabled, USER, OVER, source="shipyard#227; BatchJobState", by_hand=True),
    Rule("waits-for-missing-task", "a task that it depends on does not exist",
        _waits_for_missing_task, "the client that adds tasks", OVER, HOUR, "BatchTaskDependencies", by_hand=True),
    BEHIND_ANOTHER,
    Rule("too-few-nodes", "the pool has a fixed size, and is to have fewer nodes than the task needs",
        _too_few_nodes, USER, OVER, HOUR, "MultiInstanceSettings.numberOfInstances", by_hand=True),
    Rule("autoscale-error", "the autoscale formula fails", _formula_fails, "the next evaluation, the user", OVER,
        source="AutoScaleRun.error", by_hand=True),
    Rule("formula-gives-too-few-nodes", "the autoscale formula gives fewer nodes than the task needs",
        _formula_gives_too_few, "the next evaluation", OVER, source="AutoScaleRun"),
    Rule("no-usable-node", "the nodes that are left take no tasks: unusable, lost, or their start task failed",
        _no_usable_node, "Azure, or a reboot by the user", OVER, HOUR, "BatchNodeState", by_hand=True),
    Rule("preparation-failed", "the job preparation task failed on the nodes that are left",
        _preparation_failed, "a reboot of the node by the user, or another node", OVER, HOUR,
        "BatchJobPreparationTask.waitForSuccess", by_hand=True),
    Rule("resize-refused", "the last resize of the pool ended without the nodes that the task needs",
        _resize_refused, "a new resize; spot nodes: Azure", OVER, HOUR, "ResizeError", by_hand=True),
    Rule("waits-for-nodes", "the pool does not have all of its nodes yet, or they start",
        _waits_for_nodes, "Azure", OVER, source="BatchNodeState"),
    Rule(TURN, "the nodes run other tasks, or the service has not looked yet",
        _waits_for_turn, "the service", OVER),
)
# fmt: on
"""In the order in which they apply."""
