"""Preparation, release, preemption, gangs and schedules on one busy pool, in any order: the indexes stay right."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest

from batchtrain.emulator import job_preparation, jobs, node_reports, nodes, scheduler, schedules, tasks
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.records import Record
from batchtrain.emulator.world import World
from tests import examples
from tests.emulation import Kept, Stage
from tests.unit.emulator.test_any_order import Chaos

STEPS = 400
JOBS = ("urgent", "yielding", "prepared")


class BusyPool(Chaos):
    """Three jobs of every kind on a pool of four nodes, which reboot and die under them."""

    def __init__(self, seed: int, stage: Stage | None = None) -> None:
        super().__init__(seed)
        stage = self.stage = stage or self.stage
        stage.pool(4, enableInterNodeCommunication=True)
        preparation = {"commandLine": "p", "constraints": {"maxTaskRetryCount": 1, "maxWallClockTime": "PT20S"}}
        special = {"jobPreparationTask": preparation, "jobReleaseTask": {"commandLine": "r"}}
        self.specs: dict[str, dict[str, object]] = {
            "urgent": {"priority": 5},
            "yielding": {"allowTaskPreemption": True, **special},
            "prepared": {"usesTaskDependencies": True, "priority": 1, **special},
        }
        self.made = 0
        self.make_jobs()
        self.asked += stage.settle()

    def make_jobs(self) -> None:
        for name, more in self.specs.items():
            with contextlib.suppress(Fault):
                self.stage.do(jobs.create_job, body={"id": name, "poolInfo": {"poolId": "pool"}, **more})

    def client(self) -> None:
        stage, pick = self.stage, self.random.choice
        job = pick(JOBS)
        self.made += 1
        gang = {"multiInstanceSettings": {"numberOfInstances": pick((2, 3)), "coordinationCommandLine": "c"}}
        body = {"id": f"t{self.made}", "commandLine": "x", "constraints": {"maxTaskRetryCount": pick((0, 1, -1))}}
        known = list(stage.world.jobs[job].tasks) if job in stage.world.jobs else []
        common = (
            lambda: stage.do(tasks.create_task, job, body=body),
            lambda: stage.do(tasks.create_task, job, body={**body, **gang}),
        )
        rare = (
            lambda: stage.do(tasks.terminate_task, job, pick(known)) if known else None,
            lambda: stage.do(tasks.delete_task, job, pick(known)) if known else None,
            lambda: stage.do(tasks.reactivate_task, job, pick(known)) if known else None,
            lambda: stage.do(jobs.disable_job, job, body={"disableTasks": pick(("requeue", "terminate", "wait"))}),
            lambda: stage.do(jobs.enable_job, job),
            lambda: stage.do(jobs.terminate_job, job, force=pick(("true", "false", "false"))),
            lambda: stage.do(jobs.delete_job, job, force=pick(("true", "false", "false"))),
            lambda: self.make_jobs(),
            lambda: stage.do(nodes.reboot_node, "pool", pick(stage.nodes()).id),
            lambda: stage.do(
                schedules.create_schedule,
                body={
                    "id": "schedule",
                    "schedule": {"recurrenceInterval": "PT1M"},
                    "jobSpecification": {
                        "poolInfo": {"poolId": "pool"},
                        "jobManagerTask": {"id": "manager", "commandLine": "m"},
                        "onAllTasksComplete": "terminatejob",
                    },
                },
            ),
            lambda: stage.do(schedules.delete_schedule, "schedule"),
            lambda: stage.later(20),
        )
        pick(common if self.random.random() < 0.6 else rare)()

    def die(self) -> None:
        if self.random.random() < 0.1:
            node = self.random.choice(self.stage.nodes())
            node_reports.node_lost(self.stage.world, node.id, self.stage.now)
            node.losses = 0


def check_preparations(stage: Stage) -> None:
    for node_id, places in stage.world.jobs_of_node.items():
        for seq, place in places.items():
            assert stage.world.job_of[seq].nodes[node_id] is place
    for entry in stage.world.jobs.values():
        for task in entry.running.values():
            waiting = [instance for instance in task.instances if instance.phase == "preparing"]
            assert not waiting or task.state != "running"


@pytest.mark.property
@pytest.mark.parametrize("seed", range(examples.count(100)))
def test_jobs_of_every_kind_share_a_pool_and_come_to_rest(seed: int) -> None:
    chaos = BusyPool(seed)
    for _ in range(STEPS):
        chaos.step()
        check_preparations(chaos.stage)
    with contextlib.suppress(Fault):
        chaos.stage.do(schedules.delete_schedule, "schedule")
    chaos.asked += chaos.stage.settle()
    chaos.drain()
    world = chaos.stage.world
    for entry in world.jobs.values():
        assert not entry.running
        assert entry.record.state in ("active", "disabled", "completed")
    for entry in world.jobs.values():
        open_nodes = [
            node for node in chaos.stage.nodes() if node.state == "idle" and not job_preparation.barred(entry, node)
        ]
        if entry.record.state == "active":
            assert not [needed for needed in entry.ready.values() if len(open_nodes) >= needed]
    assert not any(tasks for pool in world.pools.values() for tasks in pool.running.values())
    assert {entry.record.seq for entry in world.jobs.values()} == set(world.job_of)


def records(world: World) -> dict[tuple[str, str, str], object]:
    """All of a world that outlives a restart."""
    found: dict[tuple[str, str, str], Record] = {}
    for pool in world.pools.values():
        found["pool", "", pool.key] = pool.record
        found |= {("node", pool.key, node.id): node for node in pool.nodes.values()}
    for schedule in world.schedules.values():
        found["schedule", "", schedule.key] = schedule.record
    for job in world.jobs.values():
        found["job", "", job.key] = job.record
        found |= {("task", job.key, task.id.lower()): task for task in job.tasks.values()}
        found |= {("jobnode", job.key, key): place for key, place in job.nodes.items()}
    built = {key: msgspec.to_builtins(record) for key, record in found.items()}
    met = {("met", job.key, key): True for job in world.jobs.values() for key in job.met}
    return {**built, **met}


@pytest.mark.property
@pytest.mark.parametrize("seed", range(examples.count(20)))
def test_what_is_stored_is_what_is_there_after_every_step(seed: int, tmp_path: Path) -> None:
    chaos = BusyPool(seed, Kept(tmp_path / "world.sqlite3"))
    stage = chaos.stage
    assert isinstance(stage, Kept)
    for _ in range(STEPS // 2):
        chaos.step()
        again = World()
        again.shelf.archive = stage.store
        assert again.restore(stage.store.load()) == []
        assert records(again) == records(stage.world)


def test_nothing_is_overlooked_by_the_chaos() -> None:
    """Each effect of jobs takes place in it."""
    seen: set[str] = set()
    for seed in range(8):
        chaos = BusyPool(seed)
        for _ in range(STEPS):
            before = len(chaos.asked)
            chaos.step()
            seen |= {type(effect).__name__ for effect in chaos.asked[before:]}
    wanted = (scheduler.RunOnNode, scheduler.EndOnNode, scheduler.RunCoordination, scheduler.RunApplication)
    assert {effect.__name__ for effect in wanted} <= seen
