"""The rules beside the emulator's own scheduler, in every world of three tasks: they say that nothing can start exactly
where the scheduler starts nothing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec

from batchtrain.emulator import jobs, tasks
from batchtrain.emulator.records import Task
from batchtrain.life import rules
from batchtrain.life.seen import Seen
from batchtrain.records import Node, Pool
from batchtrain.service import answers
from tests.emulation import Stage

NAMES = ("a", "2", "C")
DEPENDS: tuple[dict[str, Any], ...] = (
    {}, {"taskIds": ["A"]}, {"taskIds": ["02", "a"]}, {"taskIdRanges": [{"start": 1, "end": 3}]},
)  # fmt: skip
"""What a task depends on; a range of ids that do not exist waits for ever."""
EXITS: tuple[dict[str, Any], ...] = (
    {},
    {"exitCodes": [{"code": 3, "exitOptions": {"dependencyAction": "satisfy"}}]},
    {"exitCodeRanges": [{"start": 0, "end": 1, "exitOptions": {"dependencyAction": "block"}}]},
    {"default": {"dependencyAction": "satisfy"}},
)
POOL, IDLE = Pool("pool", dedicated=1, target_dedicated=1), (Node("n", "idle"),)


def played(depends: tuple[dict[str, Any], ...], exits: dict[str, Any], codes: Mapping[str, int]) -> Stage:
    """A world in which the scheduler starts tasks, which end with these codes, until it starts none."""
    stage = Stage()
    stage.pool(1)
    stage.job(usesTaskDependencies=True)
    for name, after in zip(NAMES, depends, strict=True):
        stage.task(name, **({"dependsOn": after} if after else {}), **({"exitConditions": exits} if exits else {}))
    play_on(stage, codes)
    return stage


def play_on(stage: Stage, codes: Mapping[str, int]) -> None:
    stage.settle()
    while running := [task for task in of(stage) if task.state == "running"]:
        for task in running:
            stage.exits(task, codes.get(task.id, 0))


def of(stage: Stage) -> list[Task]:
    return list(stage.world.jobs["job"].tasks.values())


def active(stage: Stage) -> list[str]:
    return [task.id for task in of(stage) if task.state == "active"]


def look(stage: Stage) -> Seen:
    """What a client sees of a world."""
    documents = (stage.do(jobs.get_job, "job").document, stage.do(tasks.list_tasks, "job").document)
    job, page = (msgspec.json.decode(msgspec.json.encode(document)) for document in documents)
    records = tuple(msgspec.convert(row, answers.TaskAnswer).record for row in page["value"])
    return Seen(answers.job(job), POOL, IDLE, records, is_whole=True)


def test_a_wait_ends_exactly_where_no_task_can_start() -> None:
    states = set[tuple[str, ...]]()
    for after_2, after_c, exits in itertools.product(DEPENDS[:2], DEPENDS, EXITS):
        for numbers in itertools.product((0, 3), repeat=3):
            stage = played(({}, after_2, after_c), exits, dict(zip(NAMES, numbers, strict=True)))
            seen, waiting = look(stage), active(stage)
            states.add(tuple(task.state + task.result for task in seen.tasks or ()))
            decision = rules.decide(seen)
            assert (decision is not None) == bool(waiting)
            for name in ("1", "3"):  # the tasks that the ranges lack
                stage.task(name)
            play_on(stage, {})
            assert (decision is not None and decision.act == "end") == bool(active(stage)), decision
    print(len(states), "states")
