"""Nodes that only simulate time, for tests of scale and of days in a second. They run nothing.

A command takes as long as its `sleep` words say, by the account's clock, and ends with its `exit` word's code, else 0:
`sleep 30; exit 3` does what a shell would, and so does `/bin/bash -c "sleep 30"`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from batchtrain.emulator import wire
from batchtrain.emulator.alarms import Alarms
from batchtrain.emulator.interface import (
    Exit,
    NodeLogin,
    NodeLost,
    NodeSpec,
    NodeUp,
    Run,
    StorageAccount,
    StorageMissing,
)
from batchtrain.emulator.machine import output_files

_SLEEP = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?)([smhd]?)")
_EXIT = re.compile(r"\bexit\s+(\d{1,3})\b")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
KILLED = 143


class Act(NamedTuple):
    """The effect of a command: its duration in ticks, and its exit code."""

    ticks: int
    code: int


@lru_cache(maxsize=1024)
def act_of(command_line: str) -> Act:
    """The effect of a command on a simulated node."""
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _SLEEP.findall(command_line))
    codes = _EXIT.findall(command_line)
    return Act(int(seconds * wire.SECOND), int(codes[-1]) if codes else 0)


def make_files(root: str, directory: str) -> None:
    """The empty files of a task, when a client first looks at them: a million tasks may be simulated."""
    task = Path(root, directory)
    if not task.exists():
        (task / "wd").mkdir(parents=True)
        (task / "stdout.txt").touch()
        (task / "stderr.txt").touch()


class SimulatedMachine:
    """Runs nodes that exist only as records."""

    plain_nodes = plain_nodes_remedy = ""

    def __init__(self, alarms: Alarms, data_dir: Path) -> None:
        self._alarms, self._root = alarms, data_dir / "nodes"
        self._lost: dict[str, Callable[[str], None]] = {}
        self._running: dict[tuple[str, str], asyncio.Future[Exit]] = {}

    def has(self, node_id: str) -> bool:
        """Whether a node is simulated."""
        return node_id in self._lost

    async def boot(self, spec: NodeSpec, on_lost: Callable[[str], None]) -> NodeUp:
        self._lost[spec.node_id] = on_lost
        return NodeUp(self._root / spec.node_id, "/mnt/batch/tasks", {}, "simulated")

    async def run(self, node_id: str, run: Run) -> Exit:
        if node_id not in self._lost:
            raise NodeLost(node_id)
        act = act_of(run.command_line)
        if not act.ticks:
            return Exit(act.code)
        end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._running[node_id, run.scope] = end
        alarm = self._alarms.at(self._alarms.clock() + act.ticks)

        def over(alarm: asyncio.Future[None]) -> None:
            if not end.done() and not alarm.cancelled():
                end.set_result(Exit(act.code))

        alarm.add_done_callback(over)
        try:
            return await end
        finally:
            alarm.cancel()
            self._running.pop((node_id, run.scope), None)

    async def end(self, node_id: str, scope: str, grace: float = 0.0) -> None:
        end = self._running.pop((node_id, scope), None)
        if end is not None and not end.done():
            end.set_result(Exit(KILLED))

    async def upload(self, node_id: str, run: Run) -> None:
        """Does nothing: simulated nodes have no files."""

    async def shutdown(self, node_id: str) -> None:
        self._lost.pop(node_id, None)
        for key in [key for key in self._running if key[0] == node_id]:
            end = self._running.pop(key)
            if not end.done():
                end.set_exception(NodeLost(node_id))

    async def remove(self, node_id: str) -> None:
        await self.shutdown(node_id)
        if (self._root / node_id).exists():
            await asyncio.to_thread(shutil.rmtree, self._root / node_id, ignore_errors=True)

    async def sweep(self, node_ids: Mapping[str, Collection[str]]) -> None:
        """Does nothing: simulated nodes have no directories."""

    async def send_logs(self, node_id: str, container_url: str, directory: str) -> None:
        await asyncio.to_thread(output_files.send_logs, self._root.parent, node_id, container_url, directory)

    def login(self, node_id: str) -> NodeLogin:
        raise NodeLost(f"node {node_id} is simulated and runs no commands")

    async def storage(self) -> StorageAccount:
        raise StorageMissing("a machine that only keeps time has no storage")

    async def close(self) -> None:
        for node_id in tuple(self._lost):
            await self.shutdown(node_id)
