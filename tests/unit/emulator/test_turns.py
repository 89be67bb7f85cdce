"""Who runs first, and who gives way: priorities, preemption, gangs that wait, affinity, rests between tries."""

from __future__ import annotations

import pytest

from batchtrain.emulator import jobs, reports, tasks, wire
from batchtrain.emulator.interface import Exit
from batchtrain.emulator.records import Task
from tests.emulation import Stage


def job(stage: Stage, job_id: str, **more: object) -> None:
    stage.do(jobs.create_job, body={"id": job_id, "poolInfo": {"poolId": "pool"}, **more})


def task(stage: Stage, job_id: str, task_id: str, **more: object) -> Task:
    stage.do(tasks.create_task, job_id, body={"id": task_id, "commandLine": "x", **more})
    return stage.world.jobs[job_id].tasks[task_id]


def working(stage: Stage, job_id: str, count: int, **more: object) -> list[Task]:
    """The tasks t0, t1, ... of a new job that others may preempt, with all that is due done."""
    job(stage, job_id, **{"allowTaskPreemption": True, **more})
    made = [task(stage, job_id, f"t{number}") for number in range(count)]
    stage.settle()
    return made


def gang(stage: Stage, job_id: str, task_id: str, instances: int) -> Task:
    settings = {"numberOfInstances": instances, "coordinationCommandLine": "c"}
    return task(stage, job_id, task_id, multiInstanceSettings=settings)


def running(stage: Stage, job_id: str) -> list[str]:
    return [one.id for one in stage.world.jobs[job_id].running.values()]


# Jobs beside each other


@pytest.mark.parametrize(
    ("nodes", "policy", "shares"), [(4, {}, [2, 2]), (2, {"jobDefaultOrder": "creationtime"}, [2, 0])]
)
def test_jobs_of_one_priority_share_a_pool_evenly_unless_it_prefers_the_oldest(
    stage: Stage, nodes: int, policy: dict[str, str], shares: list[int]
) -> None:
    stage.pool(nodes, taskSchedulingPolicy={"nodeFillType": "Spread", **policy})
    for job_id in ("a", "b"):
        job(stage, job_id)
        for number in range(6):
            task(stage, job_id, f"t{number}")
    stage.settle()
    assert [len(running(stage, job_id)) for job_id in ("a", "b")] == shares
    for name in ("t0", "t1"):
        stage.exits(stage.world.jobs["a"].tasks[name])
    assert [len(running(stage, job_id)) for job_id in ("a", "b")] == shares


# Preemption


@pytest.mark.parametrize(
    ("low", "high"),
    [({"allowTaskPreemption": False}, {"priority": 1}), ({}, {"priority": 0})],
    ids=["not allowed", "no more urgent"],
)
def test_no_task_is_preempted_without_need(stage: Stage, low: dict[str, object], high: dict[str, object]) -> None:
    stage.pool(1)
    (first,) = working(stage, "low", 1, **low)
    job(stage, "high", **high)
    task(stage, "high", "u")
    assert (stage.settle(), first.state) == ([], "running")


def test_no_more_give_way_than_are_needed(stage: Stage) -> None:
    stage.pool(3)
    low = working(stage, "low", 3)
    job(stage, "high", priority=1, maxParallelTasks=2)
    for number in range(5):
        task(stage, "high", f"u{number}")
    stage.end_scopes()
    assert (len(running(stage, "high")), len(running(stage, "low"))) == (2, 1)
    assert sum(one.requeues for one in low) == 2


@pytest.mark.parametrize("started", [0, 1])
def test_no_task_gives_way_to_one_that_must_wait_for_others_of_its_job(stage: Stage, started: int) -> None:
    stage.pool(3)
    job(stage, "high", priority=1, maxParallelTasks=2)
    for number in range(started):
        task(stage, "high", f"s{number}")
    stage.settle()
    low = working(stage, "low", 2)
    for number in range(5):
        task(stage, "high", f"u{number}")
    stage.settle()
    assert (len(running(stage, "high")), sum(one.verdict != "" for one in low)) == (1, 1)


def test_only_the_tasks_whose_slots_are_needed_give_way(stage: Stage) -> None:
    stage.pool(1, taskSlotsPerNode=4)
    job(stage, "low", allowTaskPreemption=True)
    first = task(stage, "low", "a", requiredSlots=2)
    stage.settle()
    stage.later()
    second = task(stage, "low", "b", requiredSlots=2)
    stage.settle()
    job(stage, "high", priority=1)
    task(stage, "high", "u", requiredSlots=2)
    stage.settle()
    assert (first.verdict, second.verdict) == ("", "requeue")


def test_no_other_task_is_preempted_while_one_is_still_ending(stage: Stage) -> None:
    stage.pool(2)
    leaving = working(stage, "low", 2)
    job(stage, "high", priority=1)
    task(stage, "high", "u")
    stage.settle()
    stage.world.touch_pool("pool")
    stage.settle()
    assert sorted(one.verdict for one in leaving) == ["", "requeue"]


def test_the_latest_of_the_least_urgent_gives_way(stage: Stage) -> None:
    stage.pool(1, taskSlotsPerNode=3)
    for job_id, priority in (("lowest", -2), ("low", -1)):
        job(stage, job_id, priority=priority, allowTaskPreemption=True)
    old = task(stage, "lowest", "old")
    stage.settle()
    stage.later()
    young, other = task(stage, "lowest", "young"), task(stage, "low", "other")
    stage.settle()
    job(stage, "high")
    task(stage, "high", "u")
    stage.end_scopes()
    assert [one.state for one in (old, young, other)] == ["running", "active", "running"]


def test_a_gang_can_make_room_for_itself(stage: Stage) -> None:
    stage.gang_pool(3)
    working(stage, "low", 3)
    job(stage, "high", priority=1)
    urgent = gang(stage, "high", "g", 2)
    stage.end_scopes()
    assert (urgent.state, len(running(stage, "low"))) == ("running", 1)


def test_what_became_free_for_a_more_urgent_task_is_not_given_back_while_it_waits_for_more(stage: Stage) -> None:
    stage.pool(1, taskSlotsPerNode=2)
    low = working(stage, "low", 2)
    job(stage, "high", priority=1)
    urgent = task(stage, "high", "u", requiredSlots=2)
    stage.settle()
    reports.scope_ended(stage.world, low[0], low[0].run, 0, stage.now)
    assert stage.settle() == []
    assert (low[0].state, low[0].requeues, urgent.state) == ("active", 1, "active")
    reports.scope_ended(stage.world, low[1], low[1].run, 0, stage.now)
    stage.settle()
    assert urgent.state == "running"


# Gangs that wait


def test_a_waiting_gang_does_not_starve_behind_a_stream_of_single_tasks(stage: Stage) -> None:
    stage.gang_pool(2)
    singles = [stage.task(f"s{number}") for number in range(2)]
    stage.settle()
    waiting = stage.gang(2)
    later = [stage.task(f"l{number}") for number in range(4)]
    stage.settle()
    for single, state in zip(singles, ("active", "running"), strict=True):
        stage.exits(single)
        assert stage.world.hints == {}
        assert (waiting.state, [one.state for one in later]) == (state, ["active"] * 4)


def test_a_gang_with_too_few_nodes_delays_no_other_task(stage: Stage) -> None:
    (node, *_) = stage.gang_pool(2)
    stage.disable_node(node)
    stage.settle()
    waiting, single = stage.gang(2), stage.task("single")
    stage.settle()
    assert (waiting.state, single.state) == ("active", "running")


def test_a_gang_that_waits_for_the_node_of_its_job_manager_delays_no_other_task(stage: Stage) -> None:
    stage.gang_pool(2)
    job(stage, "a", **manager())
    stage.settle()
    waiting, single = gang(stage, "a", "g", 2), task(stage, "a", "single")
    stage.settle()
    assert (waiting.state, single.state) == ("active", "running")


def test_less_urgent_jobs_wait_for_a_gang_too(stage: Stage) -> None:
    stage.gang_pool(2)
    job(stage, "a")
    first = task(stage, "a", "first")
    stage.settle()
    gang(stage, "a", "g", 2)
    job(stage, "b", priority=-1)
    lesser = task(stage, "b", "lesser")
    stage.settle()
    assert lesser.state == "active"
    stage.exits(first)
    assert running(stage, "a") == ["g"]


# Affinity


def test_a_task_gets_the_node_it_has_an_affinity_to_if_that_is_free(stage: Stage) -> None:
    *_, last = stage.pool(3)
    wanted = {"affinityInfo": {"affinityId": f"TVM:{last.id}"}}
    first, second = stage.task("a", **wanted), stage.task("b", **wanted)
    stage.settle()
    assert first.instances[0].node == last.id
    assert second.state == "running" and second.instances[0].node != last.id


# The job manager


def manager(**more: object) -> dict[str, object]:
    return {"jobManagerTask": {"id": "m", "commandLine": "manage", **more}}


def test_a_job_manager_is_a_task_of_its_job_and_ends_it(stage: Stage) -> None:
    stage.pool_and_job(2, **manager())
    other = stage.run_task("other")
    managing = stage.world.jobs["job"].tasks["m"]
    assert (managing.state, other.state) == ("running", "running")
    stage.exits(managing, 1)
    reports.scope_ended(stage.world, other, other.run, 0, stage.now)
    stage.settle()
    job_record = stage.world.jobs["job"].record
    assert (job_record.state, job_record.reason, other.state) == ("completed", "JMComplete", "completed")


def test_a_job_manager_may_leave_its_job_alone(stage: Stage) -> None:
    stage.pool_and_job(**manager(killJobOnCompletion=False))
    stage.settle()
    stage.exits(stage.world.jobs["job"].tasks["m"])
    assert stage.world.jobs["job"].record.state == "active"


@pytest.mark.parametrize(("exclusive", "state"), [(True, "active"), (False, "running")])
def test_a_job_manager_has_its_node_for_itself_unless_it_shares(stage: Stage, exclusive: bool, state: str) -> None:
    stage.pool(1, taskSlotsPerNode=2)
    stage.job(**manager(runExclusive=exclusive))
    other = stage.run_task("other")
    assert (stage.world.jobs["job"].tasks["m"].state, other.state) == ("running", state)
    stage.do(jobs.create_job, body={"id": "next", "poolInfo": {"poolId": "pool"}, **manager()})
    stage.settle()
    assert stage.world.jobs["next"].tasks["m"].state == "active"


def test_a_job_manager_has_its_node_for_itself_beside_a_task_that_starts_with_it(stage: Stage) -> None:
    stage.pool(1, taskSlotsPerNode=2)
    job(stage, "first")
    other = task(stage, "first", "other")
    job(stage, "next", **manager())
    stage.settle()
    assert (other.state, stage.world.jobs["next"].tasks["m"].state) == ("running", "active")


def test_a_job_manager_that_must_not_be_on_a_spot_node_waits_for_a_dedicated_one(stage: Stage) -> None:
    stage.pool(0, targetLowPriorityNodes=1)
    stage.job(**manager(allowLowPriorityNode=False))
    other = stage.run_task("other")
    assert (stage.world.jobs["job"].tasks["m"].state, other.state) == ("active", "running")


def test_a_job_manager_that_cannot_be_is_refused_with_its_job(stage: Stage) -> None:
    body = {"id": "job", "poolInfo": {"poolId": "pool"}, **manager(requiredSlots=0)}
    assert stage.refusal(jobs.create_job, body=body).code == "InvalidPropertyValue"
    assert stage.world.jobs == {}


# Tries without limit


def test_a_task_that_is_tried_without_limit_rests_longer_and_longer(stage: Stage) -> None:
    stage.pool(1)
    endless, other = stage.task(constraints={"maxTaskRetryCount": -1}), stage.task("other")
    stage.settle()

    rests = []
    for _ in range(20):
        while endless.state != "running":
            assert stage.world.next_deadline() is not None
            before = stage.now
            stage.now = stage.world.next_deadline() or 0
            rests.append((stage.now - before) // wire.SECOND)
            stage.settle()
        stage.exits(endless, 1)
        if other.state == "running":
            stage.exits(other)
    assert rests == [1, 2, 4, 8, 16, 32] + [60] * 8


def test_a_task_that_rests_can_be_terminated_and_after_a_restart_no_task_rests(stage: Stage) -> None:
    stage.pool(2)
    endless = [stage.task(name, constraints={"maxTaskRetryCount": -1}) for name in ("a", "b")]
    stage.settle()
    for task_ in endless:
        for _ in range(6):
            stage.exits(task_, 1)
        assert task_.state == "active"
    stage.do(tasks.terminate_task, "job", "a")
    stage.restart()
    stage.boot()
    assert [task_.state for task_ in endless] == ["completed", "running"]


def test_a_limited_number_of_retries_has_no_delay(stage: Stage) -> None:
    finite = stage.run_task(constraints={"maxTaskRetryCount": 20})
    for _ in range(20):
        reports.application_ended(stage.world, finite, finite.run, Exit(1), stage.now)
        stage.end_scopes()
    assert (finite.state, finite.retries) == ("running", 20)
