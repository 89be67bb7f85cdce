"""Whatever clients ask and machines report, in whatever order: nothing breaks, and the indexes stay right."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest

from batchtrain.emulator import (
    autoscale,
    job_preparation,
    jobs,
    node_reports,
    nodes,
    pools,
    reports,
    scheduler,
    schedules,
    tasks,
)
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.interface import Exit
from batchtrain.emulator.reply import Call, Reply
from batchtrain.emulator.world import World
from tests import examples
from tests.emulation import POOL, Stage

STEPS = 300
JOB_ACTIONS = ("noaction", "performexitoptionsjobaction")


FORMULAS = (
    "$TargetDedicatedNodes = min(4, $PendingTasks.GetSample(1));",
    "$TargetDedicatedNodes = 2 - 3;",
    "$n = 1 / 0;",
)
Operation = Callable[[World, Call], Reply]


class Chaos:
    """Clients and a machine that do anything at any time; the machine answers what it was asked, late and shuffled."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.stage = Stage()
        self.asked: list[scheduler.Effect] = []

    def step(self) -> None:
        self.stage.later(self.random.random())
        act = self.random.choice((self.client, self.machine, self.machine, self.die))
        with contextlib.suppress(Fault):
            act()
        self.asked += self.stage.settle()

    def client(self) -> None:
        stage, pick = self.stage, self.random.choice
        name = f"t{self.random.randrange(6)}"
        gang = {"multiInstanceSettings": {"numberOfInstances": pick((1, 2, 3)), "coordinationCommandLine": "c"}}
        limits = {"constraints": {"maxTaskRetryCount": pick((0, 1)), "maxWallClockTime": pick(("PT3S", "PT1H"))}}
        actions = (
            lambda: stage.do(
                pools.create_pool,
                body={
                    **POOL,
                    "targetDedicatedNodes": 3,
                    "enableInterNodeCommunication": True,
                    **pick(({}, {"startTask": {"commandLine": "s", "maxTaskRetryCount": 1}})),
                },
            ),
            lambda: stage.do(
                pools.resize_pool,
                "pool",
                body={
                    "targetDedicatedNodes": self.random.randrange(4),
                    "nodeDeallocationOption": pick(("requeue", "terminate", "taskcompletion")),
                },
            ),
            lambda: stage.do(pools.delete_pool, "pool") if self.random.random() < 0.2 else None,
            lambda: stage.job(usesTaskDependencies=True, onTaskFailure=pick(JOB_ACTIONS), **self.special_tasks()),
            lambda: stage.do(
                jobs.create_job,
                body={"id": "lesser", "priority": -1, "allowTaskPreemption": True, "poolInfo": {"poolId": "pool"}},
            ),
            lambda: stage.do(tasks.create_task, "lesser", body={"id": name, "commandLine": "l"}),
            lambda: stage.do(
                schedules.create_schedule,
                body={
                    "id": "schedule",
                    "schedule": {"recurrenceInterval": "PT1M"},
                    "jobSpecification": {"poolInfo": {"poolId": "pool"}, **self.special_tasks()},
                },
            ),
            lambda: stage.do(schedules.terminate_schedule, "schedule") if self.random.random() < 0.3 else None,
            lambda: stage.do(schedules.delete_schedule, "schedule", force=pick(("true", "false"))),
            lambda: stage.later(30),
            lambda: stage.task(name, **limits),
            lambda: stage.task(name, **gang, **limits),
            lambda: stage.task(name, dependsOn={"taskIds": ["t0", "t1"]}),
            lambda: stage.do(tasks.terminate_task, "job", name),
            lambda: stage.do(tasks.delete_task, "job", name),
            lambda: stage.do(tasks.reactivate_task, "job", name),
            lambda: stage.do(jobs.disable_job, "job", body={"disableTasks": pick(("requeue", "terminate", "wait"))}),
            lambda: stage.do(jobs.enable_job, "job"),
            lambda: stage.do(jobs.update_job, "job", body={"onAllTasksComplete": pick(("noaction", "terminatejob"))}),
            lambda: (
                stage.do(jobs.terminate_job, "job", force=pick(("true", "false")))
                if self.random.random() < 0.3
                else None
            ),
            lambda: (
                stage.do(jobs.delete_job, "job", force=pick(("true", "false"))) if self.random.random() < 0.3 else None
            ),
            lambda: self.to_a_node(
                pick((nodes.reboot_node, nodes.reimage_node, nodes.deallocate_node, nodes.start_node))
            ),
            lambda: (
                stage.do(pools.remove_nodes, "pool", body={"nodeList": [pick(stage.nodes()).id]})
                if self.pool_nodes()
                else None
            ),
            lambda: stage.do(autoscale.enable, "pool", body={"autoScaleFormula": pick(FORMULAS)}),
            lambda: stage.do(autoscale.disable, "pool"),
            lambda: stage.disable_node(pick(stage.nodes())) if self.pool_nodes() else None,
            lambda: stage.do(nodes.enable_scheduling, "pool", pick(stage.nodes()).id) if self.pool_nodes() else None,
        )
        pick(actions)()

    def to_a_node(self, operation: Operation) -> None:
        if not self.pool_nodes():
            return
        option = self.random.choice(("requeue", "terminate", "taskcompletion"))
        names = ("nodeRebootOption", "nodeReimageOption", "nodeDeallocateOption")
        self.stage.do(operation, "pool", self.random.choice(self.stage.nodes()).id, body=dict.fromkeys(names, option))

    def special_tasks(self) -> dict[str, object]:
        preparation = {"commandLine": "p", "constraints": {"maxTaskRetryCount": 1, "maxWallClockTime": "PT9S"}}
        manager = {"id": "manager", "commandLine": "m", "runExclusive": self.random.random() < 0.5}
        return self.random.choice(
            (
                {},
                {"jobPreparationTask": preparation},
                {"jobPreparationTask": preparation, "jobReleaseTask": {"commandLine": "r"}},
                {"jobManagerTask": manager},
            )
        )

    def pool_nodes(self) -> bool:
        return "pool" in self.stage.world.pools and bool(self.stage.nodes())

    def die(self) -> None:
        if self.pool_nodes() and self.random.random() < 0.15:
            node = self.random.choice(self.stage.nodes())
            node_reports.node_lost(self.stage.world, node.id, self.stage.now)
            node.losses = 0

    def machine(self) -> None:
        if self.asked:
            self.answer(self.asked.pop(self.random.randrange(len(self.asked))))

    def answer(self, effect: scheduler.Effect) -> None:
        world, now, outcome = self.stage.world, self.stage.now, Exit(self.random.choice((0, 0, 0, 1)))
        match effect:
            case scheduler.BootNode(_, node):
                if self.random.random() < 0.05:
                    node_reports.node_failed(world, node, "no luck", now)
                else:
                    self.stage.up(node)
            case scheduler.RunStartTask(_, node):
                found = world.pool_of_node.get(node)
                if found:
                    node_reports.start_task_ended(world, node, found.nodes[node].boots, outcome, now)
            case scheduler.ShutdownNode(_, node):
                node_reports.node_down(world, node, now)
            case scheduler.WipeNode(_, node):
                node_reports.node_wiped(world, node, now)
            case scheduler.RemoveNode(_, node):
                node_reports.node_removed(world, node, now)
            case scheduler.RunCoordination(task, run, number):
                reports.coordination_ended(world, task, run, number, outcome, now)
            case scheduler.RunApplication(task, run, _):
                reports.application_ended(world, task, run, outcome, now)
            case scheduler.EndScope(task, run, number):
                reports.scope_ended(world, task, run, number, now)
            case scheduler.RunOnNode(place, kind):
                number = job_preparation.run_of(place, kind).run
                job_preparation.ended(world, place, kind, number, outcome, now)
            case scheduler.EndOnNode(place, kind, number):
                job_preparation.scope_ended(world, place, kind, number, now)

    def drain(self) -> None:
        """Let the machine answer everything."""
        for _ in range(10_000):
            if not self.asked:
                return
            self.answer(self.asked.pop(0))
            self.stage.later()
            self.asked += self.stage.settle()
        raise AssertionError("it never comes to rest")


@pytest.mark.property
@pytest.mark.parametrize("seed", range(examples.count(100)))
def test_the_books_are_right_after_every_step_and_all_comes_to_rest(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(STEPS):
        chaos.step()
    chaos.drain()
    for entry in chaos.stage.world.jobs.values():
        assert not entry.running
        assert entry.record.state in ("active", "disabled", "completed")
    for pool in chaos.stage.world.pools.values():
        assert pool.record.allocation == "steady"
        passing = {"creating", "starting", "leavingpool", "rebooting", "reimaging", "deallocating"}
        assert not {node.state for node in pool.nodes.values()} & passing
        assert len({node.number for node in pool.nodes.values()}) == len(pool.nodes)
