"""The rules of waits: why tasks wait, and whether they can ever start. Each case is a world and the rule that it is."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from batchtrain.life import pools, rules
from batchtrain.life.seen import Seen
from batchtrain.records import Failure, Job, Node, Pool, Task
from batchtrain.records.failure import Detail
from batchtrain.records.jobs import Preparation
from batchtrain.records.tasks import ExitCodes, ExitConditions, ExitOptions, TaskRequest

NOON = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)
JOB = Job("j", "active", "p")
POOL = Pool("p", "active", "steady", dedicated=2, target_dedicated=2)
IDLE = (Node("n0", "idle"), Node("n1", "idle"))
NO_EXITS = ExitConditions()
DISABLES = ExitConditions(default=ExitOptions(job_action="disable"))
TERMINATES = ExitConditions(default=ExitOptions(job_action="terminate"))
SATISFIES = ExitConditions(exit_codes=(ExitCodes(code=3, exit_options=ExitOptions(dependency_action="satisfy")),))
BLOCKS = ExitConditions(exit_code_ranges=(ExitCodes(start=0, end=9, exit_options=ExitOptions("", "block")),))


def task(name: str, *after: str, **request: Any) -> Task:
    return Task(name, "active", request=TaskRequest(depends_on=after, **request))


def ended(name: str, exit_code: int = 3, exits: ExitConditions = NO_EXITS) -> Task:
    result = "failure" if exit_code else "success"
    return Task(name, "completed", result, exit_code, request=TaskRequest(exits=exits))


def step(
    *tasks: Task, job: Job = JOB, pool: Pool | None = POOL, nodes: tuple[Node, ...] = IDLE
) -> rules.Decision | None:
    return rules.decide(Seen(job, pool, nodes, tasks, is_whole=True))


def formula(target: int = 0, **more: Any) -> Pool:
    times = {"evaluated": NOON, "evaluation_interval": timedelta(minutes=10)}
    return Pool("p", "active", "steady", target_dedicated=target, autoscale=True, **times, **more)


# fmt: off
BEHIND_OTHERS: list[tuple[tuple[Task, ...], str, str]] = [
        ((ended("a"), task("b", "a")), "waits-for-failed-task", "b waits for a, which failed: it never starts"),
        ((task("b", "7"), task("7", "a"), task("a")), "waits-for-turn", ""),
        ((ended("07"), task("b", "7")), "waits-for-failed-task", "b waits for 07, which failed"),
        ((ended("A"), task("b", "a")), "waits-for-failed-task", "b waits for A, which failed: it never starts"),
        ((task("c", "b"), task("b", "a"), ended("a")), "waits-for-failed-task", "b waits for a, which failed"),
        ((ended("7"), task("m", depends_on_ranges=((0, 9),))), "waits-for-failed-task", "m waits for 7, which failed"),
        ((ended("a", 0, BLOCKS), task("b", "a")), "waits-for-failed-task", "b waits for a, whose `exit_conditions`"),
        ((task("b", "gone"),), "waits-for-missing-task", "b waits for gone, and the job does not have"),
        ((task("b", "a"), task("a")), "waits-for-turn", ""),
        ((task("m", depends_on_ranges=((7, 8),)), task("7")), "waits-for-missing-task", "all tasks from 7 to 8"),
    ((task("m", depends_on_ranges=((7, 7),)), task("7")), "waits-for-turn", ""),
        ((ended("a", 3, SATISFIES), task("b", "a")), "waits-for-turn", ""),
        ((ended("a", 0), task("b", "a")), "waits-for-turn", ""),
        ((ended("a"), task("b", "a"), task("c", slots=2)), "waits-for-failed-task", "b waits for a"),
        ((task("c", slots=2),), "too-few-slots", "the task needs 2 slots, and a node has 1"),
        ((task("g", instances=2),), "gang-needs-inter-node", "the gang of 2 nodes can never start"),
]
# fmt: on


@pytest.mark.parametrize(("tasks", "rule", "text"), BEHIND_OTHERS)
def test_tasks_that_wait_for_others_are_told_why(tasks: tuple[Task, ...], rule: str, text: str) -> None:
    decided = step(*tasks)
    assert decided is not None
    assert (decided.rule.name, decided.act == "end") == (rule, decided.rule.is_final)
    assert text in decided.text and f"[{rule}]" in decided.text


UNUSABLE = Node("tvmps_1", "unusable", errors=(Failure("DiskFull", "its disk is full"),))
REFUSED = Pool("p", "active", "steady", target_dedicated=2, resize_errors=(Failure("AllocationFailed", "-"),))


# fmt: off
ON_POOLS: list[tuple[Job, Pool | None, tuple[Node, ...], str, str]] = [
        (Job("j", "completed", "p"), None, (), "job-ended", "the job ended; its active tasks never start"),
        (JOB, None, (), "pool-gone", "pool p of job j does not exist"),
        (Job("j", "disabled", "p"), POOL, IDLE, "job-disabled", "the job is disabled [job-disabled]"),
        (Job("j", "active", "p", failure=Failure("X", "no")), POOL, IDLE, "job-not-scheduled", "(X: no)"),
        (JOB, POOL, (UNUSABLE, UNUSABLE), "no-usable-node",
         "2 of 2 nodes of pool p take no tasks: tvmps_1, tvmps_1 (unusable) (DiskFull: its disk is full)"),
        (JOB, POOL, (Node("n", "starttaskfailed"),), "no-usable-node", "(start task failed)"),
        (JOB, POOL, (Node("n", "preempted"),), "waits-for-nodes", "pool p has 0 of 2 that take tasks (preempted)"),
        (JOB, POOL, (Node("n", "running"),), "waits-for-turn", "1 node of pool p runs other tasks"),
        (JOB, formula(), (), "formula-gives-too-few-nodes",
         "the autoscale formula of pool p gives 0 nodes, and is evaluated next at 2026-11-28 12:10 UTC"),
        (JOB, formula(autoscale_error=Failure("E", "bad")), (), "autoscale-error", "(E: bad)"),
        (JOB, formula(autoscale_error=Failure("InsufficientSampleData", "few", values=(Detail("Message", "got 0%"),))),
         (), "autoscale-error", "the pool has fewer samples than its autoscale formula needs"),
        (JOB, formula(2), (), "waits-for-nodes", "the task waits for 1 node; pool p has 0 of 2"),
        (JOB, Pool("p", "active", "steady"), (), "too-few-nodes", "pool p is to have 0"),
        (JOB, REFUSED, (), "resize-refused", "pool p got 0 of 2 nodes (AllocationFailed: -)"),
]
# fmt: on


@pytest.mark.parametrize(("job", "pool", "nodes", "rule", "text"), ON_POOLS)
def test_a_task_that_waits_for_its_pool_is_told_why(
    job: Job, pool: Pool | None, nodes: tuple[Node, ...], rule: str, text: str
) -> None:
    decided = step(task("t"), job=job, pool=pool, nodes=nodes)
    assert decided is not None and decided.rule.name == rule
    assert text in decided.text


@pytest.mark.parametrize(
    ("code", "holders", "words"),
    [
        ("AllocationFailed", (), "`batchtrain pool resize p --dedicated N` requests them again"),
        ("AccountCoreQuotaReached", (), "ask for a higher quota"),
        ("AccountCoreQuotaReached", (Pool("s", spot=9), Pool("q", dedicated=1)),
         "use the quota: q (1 node), s (9 nodes). Free nodes (`batchtrain pool resize q --dedicated 0` or"),
    ],
)  # fmt: skip
def test_nodes_that_a_quota_refused_can_come_only_from_other_pools(
    code: str, holders: tuple[Pool, ...], words: str
) -> None:
    pool = replace(REFUSED, resize_errors=(Failure(code, "-"),))
    decided = rules.decide(Seen(JOB, pool, (), (task("t"),), holders=holders))
    assert decided is not None and decided.rule.name == "resize-refused"
    assert words in decided.reason.next_step


def prepared(node: str, result: str = "failure", state: str = "completed") -> Preparation:
    return Preparation(node, state, result, Failure("FailureExitCode", "it exited with 3"), "workitems/j/job-1/prep")


@pytest.mark.parametrize(
    ("preparations", "request_", "rule"),
    [
        ((prepared("n0"), prepared("n1")), {}, "preparation-failed"),
        ((prepared("n0"),), {"instances": 2}, "preparation-failed"),
        ((prepared("n0"),), {}, "waits-for-turn"),
        ((prepared("n0", "success"), prepared("n1", "failure", "running")), {}, "waits-for-turn"),
        ((prepared("gone"), prepared("n1")), {}, "waits-for-turn"),
    ],
)
def test_a_task_that_no_node_takes_since_its_preparation_failed_is_told_so(
    preparations: tuple[Preparation, ...], request_: dict[str, Any], rule: str
) -> None:
    pool = replace(POOL, inter_node=True)
    decided = rules.decide(Seen(JOB, pool, IDLE, (task("t", **request_),), preparations, is_whole=True))
    assert decided is not None and decided.rule.name == rule
    if rule == "preparation-failed":
        assert "(FailureExitCode: it exited with 3)" in decided.text
        assert "`batchtrain pool get p n0 'workitems/j/job-1/prep/*'`" in decided.reason.next_step


def test_the_next_step_of_a_missing_task_names_the_one_that_waits() -> None:
    decided = step(task("b", "gone"))
    assert decided is not None and decided.rule.by_hand
    assert "`batchtrain jobs task del j b`" in decided.reason.next_step


def test_a_job_that_a_failed_task_disabled_names_it() -> None:
    decided = step(ended("a", 3, DISABLES), task("b"), job=Job("j", "disabled", "p"))
    assert decided is not None and "by the `exit_conditions` of a, which failed" in decided.text


@pytest.mark.parametrize(
    "seen",
    [
        Seen(JOB, POOL, IDLE, (ended("a"), task("b", "a"), Task("c", "running"))),
        Seen(Job("j", "terminating", "p"), POOL, IDLE, (task("b"),)),
        Seen(Job("j", "completed", "p"), None, None, (ended("b"),)),
        Seen(Job("j", "deleting", "p"), None, None, (task("b"),)),
        Seen(JOB, POOL, IDLE, (ended("a", 0),)),
    ],
    ids=[
        "a task runs",
        "the job is about to end",
        "the job has ended with its tasks",
        "the job is deleted with its pool",
        "no task is open",
    ],
)
def test_what_goes_on_by_itself_needs_no_reason(seen: Seen) -> None:
    assert rules.decide(seen) is None


@pytest.mark.parametrize(
    ("reason", "cause"), [("TaskFailed", " because g failed"), ("UserTerminate", " (UserTerminate)")]
)
def test_a_task_that_its_ended_job_left_active_is_told_why(reason: str, cause: str) -> None:
    job = Job("j", "completed", "p", reason=reason)
    decided = step(ended("f"), ended("g", 6, TERMINATES), task("b", "g"), job=job, pool=None)
    assert decided is not None and decided.act == "end"
    assert decided.text == f"the job ended{cause}; its active tasks never start [job-ended]"


def test_one_task_that_may_start_keeps_the_wait_of_all() -> None:
    decided = step(ended("a"), task("b", "a"), task("c", "a"), task("d"))
    assert decided is not None and (decided.act, decided.task) == ("wait", "d")


def test_a_wait_does_not_end_before_all_open_tasks_were_read() -> None:
    decided = rules.decide(Seen(JOB, POOL, IDLE, (ended("a"), task("b", "a")), next_page="more"))
    assert decided is not None and decided.act == "look"


def test_a_chain_of_many_tasks_behind_a_failed_one_never_starts() -> None:
    chain = [task(f"t{number}", f"t{number - 1}") for number in range(1, 20_000)]
    decided = step(ended("t0"), *reversed(chain))
    assert decided is not None and (decided.act, decided.task) == ("end", "t1")


@pytest.mark.parametrize(
    ("allocation", "minutes", "before", "is_error"),
    [
        ("steady", 0, None, True),
        ("resizing", 0, None, False),
        ("steady", 0, NOON, False),
        ("steady", 1, NOON, True),
        ("resizing", 1, NOON, False),
    ],
)
def test_a_resize_error_belongs_to_its_resize(
    allocation: str, minutes: int, before: datetime | None, is_error: bool
) -> None:
    pool = Pool(
        "p", "active", allocation, target_dedicated=1, resize_errors=(Failure("AllocationFailed", "no"),),
        allocation_since=NOON + timedelta(minutes=minutes),
    )  # fmt: skip
    assert bool(pools.resize_error(pool, before)) is is_error


def decisions() -> list[str]:
    """What is decided in each world of the tables above."""
    steps = [step(*tasks) for tasks, *_ in BEHIND_OTHERS]
    steps += [step(task("t"), job=job, pool=pool, nodes=nodes) for job, pool, nodes, *_ in ON_POOLS]
    barred = Seen(JOB, POOL, IDLE, (task("t"),), (prepared("n0"), prepared("n1")))
    behind = Seen(JOB, POOL, IDLE, (task("b", "a"), task("a")), is_whole=True)
    steps += [*rules.reasons(barred), *rules.reasons(behind), *rules.reasons(behind._replace(pool=None))]
    return [decision.rule.name if decision else "" for decision in steps]


@pytest.mark.parametrize("rule", rules.RULES[:-1], ids=lambda rule: rule.name)
def test_no_rule_can_be_taken_out(rule: rules.Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    before = decisions()
    monkeypatch.setattr(rules, "RULES", tuple(other for other in rules.RULES if other is not rule))
    assert decisions() != before


def test_the_last_rule_has_a_reason_for_every_wait() -> None:
    (decision,) = rules.reasons(Seen(JOB, POOL, IDLE, (task("t"),)))
    assert decision.rule is rules.RULES[-1]
