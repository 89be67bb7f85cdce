"""Stand-ins for the emulator's tests: a world without a clock or a machine, and a machine without processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.emulator import jobs, node_reports, nodes, pools, recovery, reports, scheduler, states, tasks, wire
from batchtrain.emulator.alarms import Alarms
from batchtrain.emulator.clock import Clock
from batchtrain.emulator.drive import Driver
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.indexes import COUNTED, JobEntry, count_names
from batchtrain.emulator.interface import Exit, NodeLost, NodeSpec, NodeUp, Run, Size
from batchtrain.emulator.records import JobNode, Node, Record, Task
from batchtrain.emulator.reply import Call, Reply, Steps
from batchtrain.emulator.store import _TYPES, Store
from batchtrain.emulator.world import Change, Touched, World
from tests.waiting import reached

START = wire.parse_timestamp("2026-11-21T10:00:00Z")
BASE = "http://127.0.0.1:10010"
POOL: dict[str, Any] = {
    "id": "pool",
    "vmSize": "STANDARD_D2_V3",
    "virtualMachineConfiguration": {
        "imageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"},
        "nodeAgentSKUId": "batch.node.ubuntu 22.04",
    },
}


def machine(**more: object) -> dict[str, Any]:
    """What the machines of a pool have beside those of POOL."""
    return {"virtualMachineConfiguration": {**POOL["virtualMachineConfiguration"], **more}}


def network(**more: object) -> dict[str, Any]:
    return {"networkConfiguration": more}


def call(
    *path: str, body: object = None, now: int = START, headers: Mapping[str, str] | None = None, **query: str
) -> Call:
    """A request as the operations take it; query names with a `$` are given without it."""
    dollar = {"filter", "select", "expand", "skiptoken"}
    asked = {f"${name}" if name in dollar else name: value for name, value in query.items()}
    content = b"" if body is None else msgspec.json.encode(body)
    return Call(path, asked, headers or {}, content, "/pools", BASE, now)


def carried_out(steps: Steps) -> Reply:
    """All steps at once."""
    return next(reply for reply in steps if reply is not None)


class Stage:
    """A world and what it asks of a machine, step by step; time goes on by a second whenever asked to."""

    def __init__(self) -> None:
        self.world = World(seed="seed", find_size=lambda name: Size(2, 4 if "nc24" in name else 0))
        self.now = START
        self.stored: dict[tuple[str, str, str], bytes] = {}
        """Records by kind, owner and key, as in `Change`."""
        self.client: dict[str, Any] = {}
        """Fields of each call, such as its revision, that are not those of `Call`."""

    def do(
        self, operation: Callable[[World, Call], Reply | Steps], *path: str, body: object = None, **query: str
    ) -> Reply:
        try:
            reply = operation(self.world, call(*path, body=body, now=self.now, **query)._replace(**self.client))
            return reply if isinstance(reply, Reply) else carried_out(reply)
        finally:
            self.commit()

    def refusal(
        self, operation: Callable[[World, Call], Reply | Steps], *path: str, body: object = None, **query: str
    ) -> Fault:
        with pytest.raises(Fault) as refusal:
            self.do(operation, *path, body=body, **query)
        return refusal.value

    def settle(self) -> list[scheduler.Effect]:
        """Carry out everything due; returns what needs a machine, in order. Whatever the test is about, nothing
        may then be due that no change has named, and the indexes must be right."""
        found: list[scheduler.Effect] = []
        self.commit()
        while effects := scheduler.due(self.world, self.world.take_touched(self.now)):
            for effect in effects:
                reports.begin(self.world, effect, self.now)
            self.commit()
            found += effects
        overlooked = scheduler.due(self.world, everything_touched(self.world, self.now))
        # A preemption may wait until the slots are free of a command that has ended.
        assert all(isinstance(effect, scheduler.Preempt) for effect in overlooked), overlooked
        check_indexes(self.world)
        return [effect for effect in found if isinstance(effect, MACHINE)]

    def commit(self) -> list[Change]:
        """Store every change, as the driver does; here in memory. Each record must be stored as it is then."""
        changes = self.world.take_changes()
        for change in changes:
            if change.record is not None:
                self.stored[change[:3]] = encoded(change.record)
            elif change.kind == "tasks":
                of_job = ("task", "jobnode", "met")
                for where in [where for where in self.stored if where[0] in of_job and where[1] == change.owner]:
                    del self.stored[where]
            else:
                self.stored.pop(change[:3], None)
        assert {where: data for where, data in self.stored.items() if where[0] != "met"} == {
            change[:3]: encoded(change.record) for change in everything(self.world)
        }
        return changes

    def restart(self) -> None:
        """The records are those of an emulator that was killed; the same objects stay in use."""
        self.commit()
        changes = everything(self.world)
        self.world = World(seed="seed", find_size=self.world.find_size)
        assert self.world.restore(iter(changes)) == []
        recovery.recover(self.world, self.now)

    def restarted(self) -> Stage:
        """Another stage with what this one has stored."""
        self.commit()
        other = Stage()
        other.now, other.stored = self.now, dict(self.stored)
        kinds = list(RECORDS)
        rows = sorted(self.stored.items(), key=lambda row: kinds.index(row[0][0]))
        changes = (Change(*where, msgspec.msgpack.decode(data, type=RECORDS[where[0]])) for where, data in rows)
        assert other.world.restore(changes) == []
        other.world.last_seq = self.world.last_seq
        recovery.recover(other.world, other.now)
        return other

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

    def pool_and_job(self, nodes: int = 1, **job: object) -> None:
        self.pool(nodes)
        self.job(**job)

    def task(self, task_id: str = "task", **more: object) -> Task:
        """A task of the job, which is made if there is none."""
        if "job" not in self.world.jobs:
            self.job()
        self.do(tasks.create_task, "job", body={"id": task_id, "commandLine": "true", **more})
        return self.world.jobs["job"].tasks[task_id.lower()]

    def run_task(self, task_id: str = "task", **more: object) -> Task:
        """A task that has its node, if one is free; makes a pool of one node and a job if there are none."""
        if "pool" not in self.world.pools:
            self.pool(1)
        task = self.task(task_id, **more)
        self.settle()
        return task

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

    def take_down(self, node: Node, operation: Callable[[World, Call], Reply]) -> None:
        """An operation that shuts the node down, until the machine has done so."""
        self.do(operation, "pool", node.id, body={})
        self.settle()
        node_reports.node_down(self.world, node.id, self.now)

    def disable_node(self, node: Node) -> None:
        self.do(nodes.disable_scheduling, "pool", node.id, body={})


RECORDS: dict[str, type[Record]] = {**_TYPES, "task": Task}
"""In the order of reading."""
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
        found = super().settle()
        self.world.rest(most=0)
        return found

    def commit(self) -> list[Change]:
        changes = super().commit()
        self.store.commit(changes, self.world.last_seq)
        return changes


def everything(world: World) -> list[Change]:
    """Every record of a world as it would be stored, owners before what they own; not the satisfied dependencies, of
    which the world keeps only the keys."""
    changes = []
    for pool in world.pools.values():
        changes.append(Change("pool", "", pool.key, pool.record))
        changes += (Change("node", pool.key, node.id, node) for node in pool.nodes.values())
    changes += (Change("schedule", "", key, schedule.record) for key, schedule in world.schedules.items())
    for job in world.jobs.values():
        owner = str(job.record.seq)
        changes.append(Change("job", "", job.key, job.record))
        changes += (Change("jobnode", owner, node_id, job_node) for node_id, job_node in job.nodes.items())
        changes += (Change("task", owner, str(task.seq), task) for task in job.tasks.values())
    return [*changes, *(Change("usage", *key, usage) for key, usage in world.usage.items())]


def check_indexes(world: World) -> None:
    """Compare the indexes with the records."""
    jobs_of_pool: dict[str, dict[str, JobEntry]] = {key: {} for key in world.jobs_of_pool}
    jobs_of_node: dict[str, dict[int, JobNode]] = {key: {} for key in world.jobs_of_node}
    waiting = set[int]()
    for entry in world.jobs.values():
        jobs_of_pool.setdefault(entry.pool_key, {})[entry.key] = entry
        for node_id, job_node in entry.nodes.items():
            jobs_of_node[node_id][entry.record.seq] = job_node
        counted = dict.fromkeys(COUNTED, 0)
        slots = dict.fromkeys(COUNTED, 0)
        for task in entry.tasks.values():
            for name in count_names(task):
                counted[name] += 1
                slots[name] += task.slots
        assert (entry.counts, entry.slot_counts) == (counted, slots)
        assert all(entry.tasks.at(seq).state == "active" for seq in (*entry.ready, *entry.unmet))
        assert not entry.ready.keys() & entry.unmet.keys()
        waiting |= entry.ready.keys()
        assert {task.seq for task in entry.tasks.values() if task.state in states.UNDER_WAY} <= set(entry.running)
    assert (world.jobs_of_pool, world.jobs_of_node) == (jobs_of_pool, jobs_of_node)
    assert waiting >= world.hints.keys()
    ended = {seq for seq, entry in world.job_of.items() if world.jobs.get(entry.key) is not entry}
    assert all(world.job_of[seq].running for seq in ended)
    assert world.job_of.keys() - ended == {entry.record.seq for entry in world.jobs.values()}
    assert world.pool_of_node == {node_id: pool for pool in world.pools.values() for node_id in pool.nodes}
    for pool in world.pools.values():
        assert set(pool.nodes) == set(pool.running)
        assert min(pool.record.target_dedicated, pool.record.target_spot) >= 0
        for node in pool.nodes.values():
            assert pool.used(node.id) <= pool.record.spec["taskSlotsPerNode"]
            assert (node.state == "running") <= bool(pool.running[node.id])


def encoded(record: Record | None) -> bytes:
    return msgspec.msgpack.encode(record)


def everything_touched(world: World, now: int) -> Touched:
    """As if all records had changed."""
    job_nodes = tuple(job_node for job in world.jobs.values() for job_node in job.nodes.values())
    running = tuple(task for job in world.jobs.values() for task in job.running.values())
    return Touched(tuple(world.pools), tuple(world.jobs), running, (), tuple(world.schedules), job_nodes, now)


class FakeMachine:
    """Nodes that are directories. Commands: `exit N`, `print TEXT`, `fail CODE`, `wait` (until ended)."""

    plain_nodes = plain_nodes_remedy = ""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.specs: dict[str, NodeSpec] = {}
        self.runs: list[tuple[str, Run]] = []
        self.uploaded: list[Run] = []
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

    async def upload(self, node_id: str, run: Run) -> None:
        self.uploaded.append(run)

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

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        await self.driver.stop()

    def do(self, operation: Callable[[World, Call], Reply], *path: str, body: object = None) -> Reply:
        return self.driver.change(lambda: operation(self.world, call(*path, body=body)))

    def queue(self, command: str, **pool: object) -> None:
        """A pool of one node, a job and its task, which is to run."""
        self.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1, **pool})
        self.do(jobs.create_job, body={"id": "job", "poolInfo": {"poolId": "pool"}})
        self.make(command)

    async def begin(self, command: str, **pool: object) -> None:
        """As `queue`; the task runs."""
        self.queue(command, **pool)
        await self.until(lambda: self.machine.runs)

    def make(self, command: str, **more: object) -> None:
        self.do(tasks.create_task, "job", body={"id": "task", "commandLine": command, **more})

    until = staticmethod(reached)

    def state(self) -> str:
        return self.world.jobs["job"].tasks["task"].state


def document(reply: Reply) -> dict[str, Any]:
    """The reply's body, which must be there."""
    assert reply.document is not None
    return reply.document
