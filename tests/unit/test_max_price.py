"""`--max-price`: what nodes cost by the emulator's clock stays within the limit, however a pool is sized."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Hour, Prices
from batchtrain.client import detach
from batchtrain.client.leaving import leave
from batchtrain.client.limits import Guard, Limits, hour_for
from batchtrain.config.scaling import scaling_of, unlimited
from batchtrain.config.types import Recipe, seconds_of, span_of
from batchtrain.emulator import autoscale, jobs, node_reports, pools, reports, scheduler, tasks, wire
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.interface import Exit
from batchtrain.errors import LimitReached, UsageError
from batchtrain.life.intents import RUN
from batchtrain.plan import Plan, plan_jobs, plan_pool
from batchtrain.plan.wire_times import duration
from batchtrain.records import Node
from batchtrain.records.events import NodesSeen
from batchtrain.service import job_actions, submit
from tests import examples
from tests.emulation import Stage
from tests.unit.plan.jobs import recipe

STEP, LOOK = 60, 60
"""Seconds of a step of the clock, and between two looks of a client."""
LONGEST = 12 * 3600
FORMULAS = (
    "$TargetDedicatedNodes = {};",
    "$TargetDedicatedNodes = min({}, $PendingTasks.GetSample(1));",
    "$TargetLowPriorityNodes = min($TargetLowPriorityNodes + 1, {});",
    "$TargetDedicatedNodes = time().hour > 12 ? 2 : 1; $TargetLowPriorityNodes = {} - $TargetDedicatedNodes;",
    "$TargetDedicatedNodes = $PendingTasks.GetSample({});",
    "$TargetDedicatedNodes = $CurrentDedicatedNodes + {};",
)
PRICES = some.sampled_from((0.05, 0.2, 1.0, 3.0, 7.0, None))


class Case(NamedTuple):
    """A run with a limit of the price, and what happens to it."""

    recipe: Recipe
    hours: float
    """What the limit pays for if all nodes of the plan exist."""
    way: str
    boot: int
    minutes: list[int]
    """How long each task takes."""
    left: int
    """The minute in which the client leaves."""
    resizes: dict[int, int]
    """The minutes in which the user resizes the pool, and to how many nodes."""


@some.composite
def cases(draw: Callable[[Any], Any]) -> Case:
    interval = f"00:{draw(some.integers(5, 20)):02d}:00"
    formula = draw(some.sampled_from(FORMULAS)).format(draw(some.integers(1, 6)))
    most = {"dedicated": draw(some.sampled_from((-1, 3, 5))), "low_priority": draw(some.sampled_from((-1, 3, 6)))}
    scenario = {"name": draw(some.sampled_from(("active_tasks", "workday", "weekend"))), "maximum_vm_count": most}
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"idle_timeout": draw(some.sampled_from(("5m", "1h")))},
        {"autoscale": "to_zero"},
        {"autoscale": {"formula": formula, "evaluation_interval": interval}},
        {"autoscale": {"scenario": scenario, "evaluation_interval": interval}},
    )
    count = {"dedicated": draw(some.integers(0, 3)), "low_priority": draw(some.integers(0, 3))}
    pool = {"vm_count": count, "inter_node_communication_enabled": False, **draw(some.sampled_from(ways))}
    minutes = draw(some.lists(some.integers(1, 300), min_size=1, max_size=5))
    job = {"tasks": [{"command": "train", "id": f"t{number}"} for number in range(len(minutes))]}
    job |= {"auto_pool": {}} if draw(some.booleans()) else {}
    all_jobs = [recipe({"id": f"j{number}", **job}).jobs[0] for number in range(draw(some.integers(1, 2)))]
    prices = {kind: price for kind in ("dedicated", "spot") if (price := draw(PRICES)) is not None}
    table = Prices("west", "EUR", **{kind: {"STANDARD_D4S_V5": price} for kind, price in prices.items()})
    return Case(
        replace(recipe(pool=pool), jobs=tuple(all_jobs), catalog=Catalog(prices=(table,))),
        hours=draw(some.floats(0.1, 5.0)),
        way=draw(some.sampled_from(("followed", "left", "detached"))),
        boot=draw(some.integers(30, 900)),
        minutes=minutes,
        left=draw(some.integers(1, 240)),
        resizes=draw(some.dictionaries(some.integers(1, 240), some.integers(0, 9), max_size=3)),
    )


class Account:
    """The emulator's world without a machine: nodes boot, and tasks end, when their time has come."""

    def __init__(self, case: Case) -> None:
        self.case, self.stage = case, Stage()
        self._acts: list[tuple[int, Callable[[], object]]] = []
        self._nodes: dict[str, tuple[bool, int, int]] = {}
        """Of every node: whether it is dedicated, when it was created, and when it was there last."""
        self.most = 0
        """The most nodes that the user has asked for."""

    @property
    def pools(self) -> list[PoolEntry]:
        return list(self.stage.world.pools.values())

    def add(self, plan: Plan) -> None:
        """Send the requests of a plan."""
        for step in plan.steps:
            document = msgspec.json.decode(msgspec.json.encode(step.document))
            if step.action == "task.add":
                for body in document.get("value", [document]):
                    self.stage.do(tasks.create_task, step.subject, body=body)
            elif step.action == "job.complete":
                self.stage.do(jobs.update_job, step.subject, body=document)
            elif step.action == "pool.autoscale":
                self.stage.do(autoscale.enable, step.subject, body=document)
            else:
                self.stage.do(pools.create_pool if step.action == "pool.add" else jobs.create_job, body=document)

    def steps(self, seconds: int) -> Iterator[int]:
        """Let time pass in steps, while a pool exists."""
        for second in range(0, seconds, STEP):
            self.stage.later(STEP)
            for time, act in [act for act in self._acts if act[0] <= self.stage.now]:
                self._acts.remove((time, act))
                act()
            while effects := self.stage.settle():
                for effect in effects:
                    self._answer(effect)
            for pool in self.pools:
                self._nodes |= {node.id: (node.dedicated, node.created, self.stage.now) for node in pool.nodes.values()}
            if not self.pools and second:
                return
            yield second

    def _answer(self, effect: scheduler.Effect) -> None:
        world, now = self.stage.world, self.stage.now
        match effect:
            case scheduler.BootNode(_, node):
                self._later(self.case.boot, lambda: node in world.pool_of_node and self.stage.up(node))
            case scheduler.ShutdownNode(_, node):
                node_reports.node_down(world, node, now)
            case scheduler.WipeNode(_, node):
                node_reports.node_wiped(world, node, now)
            case scheduler.RemoveNode(_, node):
                node_reports.node_removed(world, node, now)
            case scheduler.RunApplication(task, run, _):
                seconds = 60 * self.case.minutes[int(task.id.removeprefix("t"))]
                self._later(seconds, lambda: reports.application_ended(world, task, run, Exit(0), self.stage.now))
            case scheduler.EndScope(task, run, number):
                reports.scope_ended(world, task, run, number, now)
            case _:
                raise AssertionError(effect)

    def _later(self, seconds: int, act: Callable[[], object]) -> None:
        self._acts.append((self.stage.now + seconds * wire.SECOND, act))

    def resize(self, count: int) -> None:
        """The user resizes a pool of a fixed size."""
        for pool in self.pools:
            if not pool.record.spec["enableAutoScale"] and pool.record.allocation == "steady":
                self.stage.do(pools.resize_pool, pool.record.id, body={"targetDedicatedNodes": count})
                self.most = max(self.most, count)

    def cost(self, hour: Hour) -> float:
        """What all nodes have cost."""
        hours = {True: 0.0, False: 0.0}
        for is_dedicated, begin, end in self._nodes.values():
            hours[is_dedicated] += (end - begin) / wire.SECOND / 3600
        assert hour.price is not None
        return hour.price.of(hours[True], hours[False]) or 0.0


def follow(account: Account, guard: Guard, seconds: int) -> None:
    """Look at the nodes as a client does. Raises LimitReached."""
    for second in account.steps(seconds):
        if second // 60 in account.case.resizes and second % 60 == 0:
            account.resize(account.case.resizes[second // 60])
        for pool in account.pools if second % LOOK == 0 else ():
            nodes = (
                Node(node.id, allocated=wire.as_datetime(node.created), dedicated=node.dedicated)
                for node in pool.nodes.values()
            )
            guard.note(NodesSeen(pool.record.id, nodes=tuple(nodes)))
            if guard.reason:
                raise LimitReached(guard.reason)


def hand_over(account: Account, guard: Guard) -> bool:
    """Leave the run to the service, if that can keep the limit."""
    stage = account.stage

    def limit(_: object, job_id: str, __: object, seconds: float, ___: object) -> None:
        age = (stage.now - stage.world.jobs[job_id].record.created) / wire.SECOND
        body = {"constraints": {"maxWallClockTime": duration(span_of(age + seconds))}}
        stage.do(jobs.update_job, job_id, body=body)

    def complete(_: object, job_id: str, __: object) -> None:
        stage.do(jobs.update_job, job_id, body={"onAllTasksComplete": "terminatejob"})

    acts = {job_actions.limit: limit, job_actions.complete: complete}
    ending: Any = SimpleNamespace(recipe=account.case.recipe, intent=RUN, tell=lambda _: None)
    ending.register = SimpleNamespace(runs={"r": None})
    ending.error_of = lambda step: acts.get(step.func, step.func)(*step.args)
    ending.client = SimpleNamespace(batch=None)
    with mock.patch.object(submit, "scale_pool", lambda _, step, __: account.add(Plan((step,)))):
        return leave(ending, guard, "user")


def spend(account: Account, limits: Limits, hour: Hour) -> None:
    """Run a case to its end, or to its limit."""
    case = account.case
    if case.way == "detached":
        seconds = [
            detach.wall_seconds(job, limits, hour.cost or 0.0, len(case.recipe.jobs)) for job in case.recipe.jobs
        ]
        bounded = tuple(map(detach.bounded, case.recipe.jobs, seconds))
        account.add(plan_jobs(replace(case.recipe, jobs=bounded)))
        assert list(account.steps(25 * 3600))
        return
    guard = Guard(limits, hour_for(limits, case.recipe, ""), lambda: wire.as_datetime(account.stage.now))
    account.add(plan_pool(case.recipe) if case.recipe.needs_pool else Plan())
    account.add(plan_jobs(case.recipe))
    with contextlib.suppress(LimitReached):
        follow(account, guard, case.left * 60 if case.way == "left" else LONGEST)
        if case.way == "left" and hand_over(account, guard):
            assert list(account.steps(LONGEST))


@pytest.mark.property
@examples.of(200)
@given(cases())
def test_what_nodes_cost_stays_within_the_limit_however_a_pool_is_sized(case: Case) -> None:
    pool = case.recipe.pool
    assert pool is not None
    try:
        hour = hour_for(Limits(price=1.0), replace(case.recipe, jobs=()), "")
    except UsageError:
        price = case.recipe.catalog.price(pool.vm_size, "")
        assert unlimited(pool) or price is None or None in (price.dedicated, price.spot)
        return
    assert hour is not None and hour.price is not None
    at_most = (hour.cost or 0.0) * case.recipe.pools_at_once
    limits, account = Limits(price=case.hours * (at_most or 1.0)), Account(case)
    spend(account, limits, hour)
    most = max(at_most, (hour.price.of(account.most, hour.spot) or 0.0) * case.recipe.pools_at_once)
    scaling = scaling_of(pool)
    interval = seconds_of((scaling and scaling.evaluation_interval) or "00:05:00")
    assert account.cost(hour) <= (limits.price or 0.0) + most * (interval + case.boot) / 3600
