"""Stand-ins for the emulator's tests: a world without a clock or a machine, and a machine without processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from batchtrain.emulator import jobs, node_reports, nodes, pools, recovery, reports, scheduler, tasks, wire
from batchtrain.emulator.alarms import Alarms
from batchtrain.emulator.clock import Clock
from batchtrain.emulator.drive import Driver
from batchtrain.emulator.interface import Exit, NodeLost, NodeSpec, NodeUp, Run, Size
from batchtrain.emulator.records import Node, Task
from batchtrain.emulator.reply import Call, Reply, Work
from batchtrain.emulator.store import Store
from batchtrain.emulator.world import Change, World

START = wire.parse_timestamp("2026-11-21T10:00:00Z")
BASE = "http://127.0.0.1:10010"
POOL = {
    "id": "pool",
    "vmSize": "STANDARD_D2_V3",
    "virtualMachineConfiguration": {
        "imageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"},
        "nodeAgentSKUId": "batch.node.ubuntu 22.04",
    },
}


def call(
    *path: str, body: object = None, now: int = START, headers: Mapping[str, str] | None = None, **query: str
) -> Call:
    """A request as the operations take it; query names with a `$` are given without it."""
    dollar = {"filter", "select", "expand", "skiptoken"}
    asked = {f"${name}" if name in dollar else name: value for name, value in query.items()}
    content = b"" if body is None else msgspec.json.encode(body)
    return Call(path, asked, headers or {}, content, "/pools", BASE, now)


def carried_out(work: Work) -> Reply:
    """Every step of it at once."""
    return next(reply for reply in work.steps if reply is not None)


class Stage:
    """A world and what it asks of a machine, step by step; time goes on by a second whenever asked to."""

    def __init__(self) -> None:
        self.world = World(seed="seed", find_size=lambda name: Size(2, 4 if "nc24" in name else 0))
        self.now = START

    def do(
        self, operation: Callable[[World, Call], Reply | Work], *path: str, body: object = None, **query: str
    ) -> Reply:
        reply = operation(self.world, call(*path, body=body, now=self.now, **query))
        return carried_out(reply) if isinstance(reply, Work) else reply

    def settle(self) -> list[scheduler.Effect]:
        """Carry out everything due; returns what needs a machine, in order."""
        found: list[scheduler.Effect] = []
        while effects := scheduler.due(self.world, self.world.take_touched(self.now)):
            for effect in effects:
                reports.begin(self.world, effect, self.now)
            found += effects
        self.world.take_changes()
        return [effect for effect in found if isinstance(effect, MACHINE)]

    def restart(self) -> None:
        """The records are those of an emulator that was killed; the same objects stay in use."""
        changes = everything(self.world)
        self.world = World(seed="seed", find_size=self.world.find_size)
        assert self.world.restore(iter(changes)) == []
        recovery.recover(self.world, self.now)

    def pool(self, nodes: int = 1, **more: object) -> list[Node]:
        """A pool whose nodes are up."""
        self.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": nodes, **more})
        self.boot()
        return self.nodes()

    def gang_pool(self, nodes: int = 2, **more: object) -> list[Node]:
        return self.pool(nodes, enableInterNodeCommunication=True, **more)

    def boot(self) -> list[scheduler.Effect]:
        """Answer every boot; returns what was due besides."""
        others = []
        for effect in self.settle():
            if isinstance(effect, scheduler.BootNode):
                self.up(effect.node)
            else:
                others.append(effect)
        return others + self.settle()

    def up(self, node_id: str) -> None:
        node_reports.node_up(self.world, node_id, NodeUp(Path("/nodes", node_id), "/mnt", {}, "process"), self.now)

    def nodes(self) -> list[Node]:
        return sorted(self.world.pools["pool"].nodes.values(), key=lambda node: node.seq)

    def job(self, **more: object) -> None:
        self.do(jobs.create_job, body={"id": "job", "poolInfo": {"poolId": "pool"}, **more})

    def task(self, task_id: str = "task", **more: object) -> Task:
        self.do(tasks.create_task, "job", body={"id": task_id, "commandLine": "true", **more})
        return self.world.jobs["job"].tasks[task_id.lower()]

    def gang(self, instances: int = 2, **more: object) -> Task:
        settings = {"numberOfInstances": instances, "coordinationCommandLine": "true"}
        return self.task(multiInstanceSettings=settings, **more)

    def exits(self, task: Task, code: int = 0) -> None:
        """The task's own command ends, and with it all that is left of the run."""
        reports.application_ended(self.world, task, task.run, Exit(code), self.now)
        self.end_scopes()

    def coordinated(self, task: Task, number: int, code: int = 0) -> None:
        reports.coordination_ended(self.world, task, task.run, number, Exit(code), self.now)

    def end_scopes(self) -> list[scheduler.Effect]:
        """Answer every end of a scope; returns what was due besides."""
        others = []
        for effect in self.settle():
            if isinstance(effect, scheduler.EndScope):
                reports.scope_ended(self.world, effect.task, effect.run, effect.instance, self.now)
            else:
                others.append(effect)
        return others + self.settle()

    def later(self, seconds: float = 1) -> None:
        self.now += int(seconds * wire.SECOND)

    def disable_node(self, node: Node) -> None:
        self.do(nodes.disable_scheduling, "pool", node.id, body={})


MACHINE = (
    scheduler.BootNode,
    scheduler.RunStartTask,
    scheduler.ShutdownNode,
    scheduler.WipeNode,
    scheduler.RemoveNode,
    scheduler.RunCoordination,
    scheduler.RunApplication,
    scheduler.EndScope,
    scheduler.RunOnNode,
    scheduler.EndOnNode,
)


class Kept(Stage):
    """A stage that stores every change, as the driver does, and keeps only tasks in memory that something acts on."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.store = Store(path)
        self.world.shelf.archive = self.store

    def settle(self) -> list[scheduler.Effect]:
        found: list[scheduler.Effect] = []
        self.commit()
        while effects := scheduler.due(self.world, self.world.take_touched(self.now)):
            for effect in effects:
                reports.begin(self.world, effect, self.now)
            self.commit()
            found += effects
        self.world.rest(most=0)
        return [effect for effect in found if isinstance(effect, MACHINE)]

    def commit(self) -> None:
        self.store.commit(self.world.take_changes(), self.world.last_seq)


def everything(world: World) -> list[Change]:
    """Every record of a world, as if only those of its last moment were not stored yet."""
    for pool in world.pools.values():
        world.save_pool(pool)
        for node in pool.nodes.values():
            world.save_node(node)
    for job in world.jobs.values():
        world.save_job(job)
        for place in job.nodes.values():
            world.save_job_node(place)
        for task in job.tasks.values():
            world.save_task(task)
    return world.take_changes()


class FakeMachine:
    """Nodes that are directories. Commands: `exit N`, `print TEXT`, `fail CODE`, `wait` (until ended)."""

    plain_nodes = plain_nodes_remedy = ""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.specs: dict[str, NodeSpec] = {}
        self.runs: list[tuple[str, Run]] = []
        self.logs: list[tuple[str, str, str]] = []
        self._waiting: dict[tuple[str, str], asyncio.Future[Exit]] = {}
        self._lost: dict[str, Callable[[str], None]] = {}

    @classmethod
    async def open(cls, data_dir: Path) -> FakeMachine:
        return cls(data_dir)

    async def boot(self, spec: NodeSpec, lost: Callable[[str], None]) -> NodeUp:
        self.specs[spec.node_id], self._lost[spec.node_id] = spec, lost
        root = self.data_dir / "nodes" / spec.node_id
        root.mkdir(parents=True, exist_ok=True)
        return NodeUp(root, "/mnt/batch/tasks", {"PATH": "/bin"}, "process")

    async def run(self, node_id: str, run: Run) -> Exit:
        self.runs.append((node_id, run))
        if node_id not in self.specs:
            raise NodeLost(node_id)
        directory = self.data_dir / "nodes" / node_id / run.directory
        (directory / "wd").mkdir(parents=True, exist_ok=True)
        word, _, rest = run.command_line.partition(" ")
        with (directory / "stdout.txt").open("a") as file:
            file.write(f"{rest}\n" if word == "print" else "")
        (directory / "stderr.txt").touch()
        if word == "wait":
            future = self._waiting[node_id, run.scope] = asyncio.get_running_loop().create_future()
            return await future
        if word == "fail":
            return Exit(None, rest, "as asked")
        return Exit(int(rest) if word == "exit" else 0)

    async def end(self, node_id: str, scope: str, grace: float = 0.0) -> None:
        future = self._waiting.pop((node_id, scope), None)
        if future is not None and not future.done():
            future.set_result(Exit(143))

    async def shutdown(self, node_id: str) -> None:
        self.specs.pop(node_id, None)
        for key in [key for key in self._waiting if key[0] == node_id]:
            future = self._waiting.pop(key)
            if not future.done():
                future.set_exception(NodeLost(node_id))

    async def remove(self, node_id: str) -> None:
        await self.shutdown(node_id)

    async def sweep(self, known: Mapping[str, Collection[str]]) -> None:
        self.known = known

    async def send_logs(self, node_id: str, container_url: str, directory: str) -> None:
        self.logs.append((node_id, container_url, directory))

    async def close(self) -> None:
        for node_id in tuple(self.specs):
            await self.shutdown(node_id)


class Account:
    """A driver with a machine that runs no processes."""

    def __init__(self, data_dir: Path) -> None:
        self.store = Store(data_dir / "world.sqlite3")
        self.machine = FakeMachine(data_dir)
        self.world = World(seed="seed")
        self.driver = Driver(self.world, self.store, self.machine, Alarms(Clock(lambda: START)))

    def do(self, operation: Callable[[World, Call], Reply], *path: str, body: object = None) -> Reply:
        return self.driver.change(lambda: operation(self.world, call(*path, body=body)))

    async def begin(self, command: str, **pool: object) -> None:
        """A pool of one node, a job and its task, which runs."""
        self.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1, **pool})
        self.do(jobs.create_job, body={"id": "job", "poolInfo": {"poolId": "pool"}})
        self.make(command)
        await self.until(lambda: self.machine.runs)

    def make(self, command: str) -> None:
        self.do(tasks.create_task, "job", body={"id": "task", "commandLine": command})

    async def until(self, holds: Callable[[], object]) -> None:
        while not holds():
            await asyncio.sleep(0.001)

    def state(self) -> str:
        return self.world.jobs["job"].tasks["task"].state


def tell(data_dir: Path, story: Callable[[Account], Awaitable[None]]) -> None:
    async def whole() -> None:
        account = Account(data_dir)
        try:
            await story(account)
        finally:
            await account.driver.stop()

    asyncio.run(whole())


def document(reply: Reply) -> dict[str, Any]:
    """The reply's body, which must be there."""
    assert reply.document is not None
    return reply.document
