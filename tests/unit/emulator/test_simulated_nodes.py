"""Nodes that only simulate time, and the alarms of a clock that they wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batchtrain.emulator import wire
from batchtrain.emulator.alarms import Alarms
from batchtrain.emulator.clock import Clock
from batchtrain.emulator.interface import Exit, NodeLost, NodeSpec, Run
from batchtrain.emulator.machine.simulated import KILLED, SimulatedMachine, act_of

SPEC = NodeSpec("pool", "node", "10.1.2.3", "node0", "standard_d2_v3")


@pytest.mark.parametrize(
    ("command", "seconds", "code"),
    [
        ("true", 0, 0),
        ("sleep 30; exit 3", 30, 3),
        ('/bin/bash -c "sleep 1.5m && sleep 2h"', 7290, 0),
        ("sleep 1d; exit 1 || exit 2", 86400, 2),
        ("asleep 5; sleep 5s", 5, 0),
    ],
)
def test_a_command_takes_as_long_as_its_sleeps_and_ends_with_its_exit(command: str, seconds: int, code: int) -> None:
    assert act_of(command) == (seconds * wire.SECOND, code)


@contextlib.asynccontextmanager
async def on_a_node() -> AsyncIterator[tuple[SimulatedMachine, Clock, Alarms]]:
    clock = Clock(lambda: 1000)
    clock.turn("stepped")
    alarms = Alarms(clock)
    machine = SimulatedMachine(alarms, Path("/data"))
    await machine.boot(SPEC, lambda node_id: None)
    try:
        yield machine, clock, alarms
    finally:
        alarms.close()


def run(command: str, scope: str = "task") -> Run:
    return Run(scope=scope, directory="wd", command_line=command, environment={})


async def begun(machine: SimulatedMachine, command: str, scope: str = "task") -> asyncio.Task[Exit]:
    task = asyncio.ensure_future(machine.run("node", run(command, scope)))
    await asyncio.sleep(0)
    return task


async def test_a_run_ends_when_the_clock_has_gone_on_for_its_duration() -> None:
    async with on_a_node() as (machine, clock, alarms):
        task = await begun(machine, "sleep 60; exit 4")
        assert alarms.waiting == 1
        for seconds, done in ((59, False), (1, True)):
            clock.advance(seconds * wire.SECOND)
            alarms.look()
            for _ in range(3):
                await asyncio.sleep(0)
            assert task.done() is done
        assert await task == Exit(4)
        assert alarms.waiting == 0


async def test_only_the_ended_scope_is_killed() -> None:
    async with on_a_node() as (machine, _, _):
        first, second = await begun(machine, "sleep 9", "a"), await begun(machine, "sleep 9", "b")
        await machine.end("node", "a")
        await machine.end("node", "c")
        assert await first == Exit(KILLED)
        assert not second.done()
        second.cancel()


async def test_a_node_that_is_shut_down_is_lost_with_its_runs() -> None:
    async with on_a_node() as (machine, _, _):
        task = await begun(machine, "sleep 9")
        assert machine.has("node")
        await machine.remove("node")
        assert not machine.has("node")
        with pytest.raises(NodeLost):
            await task
        with pytest.raises(NodeLost):
            await machine.run("node", run("true"))


async def test_alarms_ring_in_order_and_not_before_their_moment() -> None:
    async with on_a_node() as (_, clock, alarms):
        told: list[int] = []
        alarms.notify = lambda: told.append(alarms.waiting)
        start = clock()
        late, early, gone = alarms.at(start + 20), alarms.at(start + 10), alarms.at(start + 5)
        assert told == [1, 2, 3]
        gone.cancel()
        assert (alarms.next, alarms.waiting) == (start + 10, 2)
        clock.advance(10)
        alarms.look()
        assert (early.done(), late.done(), alarms.next) == (True, False, start + 20)
        assert alarms.at(clock()).done(), "its moment has come"
        alarms.close()
        assert late.cancelled()
        assert alarms.next is None
