"""The emulator's own paths, outside the Batch API: health, hints, clock, faults and shutdown."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.catalog.sizes import key
from batchtrain.emulator import injection, job_preparation, models, quotas, routes, wire
from batchtrain.emulator.drive import Driver
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.indexes import JobEntry
from batchtrain.emulator.interface import NO_WINDOWS, NodeLost, StorageMissing
from batchtrain.emulator.machine import docker_engine
from batchtrain.emulator.reply import Reply
from batchtrain.emulator.world import Quotas, World
from batchtrain.errors import nodes_called

PREFIX = "/_emulator/"
PATIENCE = 2.0
"""Seconds for which each step of an advancing clock waits for running commands."""
ACTS = ("preempt", "lose", "break")


class Identity(NamedTuple):
    """The answer of `health`, which needs no signature."""

    version: str
    pid: int
    account: str
    host: str = ""
    """The host name and port that clients use; empty if it is the endpoint's own."""


class Control:
    """Answers the emulator's own paths."""

    def __init__(self, driver: Driver, identity: Identity, stop: Callable[[], None]) -> None:
        self.driver, self.identity, self.stop = driver, identity, stop
        self._since = time.monotonic()

    async def answer(self, verb: str, path: str, body: bytes) -> Reply:
        """Answer a request; `path` has no prefix. Raises Fault."""
        name, _, subject = path.partition("/")
        match verb, name:
            case "GET", "status":
                return Reply(200, self.status())
            case "GET", "engine":
                return Reply(200, {"missing": await docker_engine.missing()})
            case "POST", "storage":
                return await self._storage()
            case "GET", "login":
                return self._login(subject)
            case "GET", "hints":
                return Reply(200, {"value": hints(self.driver.world)})
            case "POST", "reset":
                await self.driver.reset()
                return Reply(204)
            case "POST", "stop":
                self.stop()
                return Reply(202)
            case "GET", "clock":
                return Reply(200, self.clock())
            case "POST", "clock":
                return await self._turn(models.decode(body))
            case "GET", "faults":
                return Reply(200, {"value": self.driver.world.injections.documents()})
            case "POST", "faults":
                return self._add_fault(models.decode(body))
            case "DELETE", "faults":
                return self._remove_faults(subject)
            case "POST", "capacity":
                return self._limit(models.decode(body))
            case "POST", "nodes":
                return await self._befall(subject, models.decode(body))
        raise Fault("ResourceNotFound")

    def status(self) -> dict[str, Any]:
        """What is running, the number of pools, jobs, nodes and tasks, and the memory in use."""
        world = self.driver.world
        entries = world.jobs.values()
        resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return {
            **self.identity._asdict(),
            "endpoint": world.endpoint,
            "upSeconds": round(time.monotonic() - self._since, 1),
            "memoryMb": round(resident_pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
            "pools": len(world.pools),
            "nodes": len(world.pool_of_node),
            "jobs": len(world.jobs),
            "activeTasks": sum(entry.counts["active"] for entry in entries),
            "runningTasks": sum(entry.counts["running"] for entry in entries),
            "completedTasks": sum(entry.counts["completed"] for entry in entries),
            "faults": len(world.injections),
            "quotas": {name: most for name, most in world.quotas._asdict().items() if most is not None},
            "capacity": world.capacity,
            "clock": self.clock(),
        }

    def clock(self) -> dict[str, Any]:
        """The account's time, and the state of its clock."""
        clock = self.driver.clock
        reading = clock.reading
        ahead = (clock() - clock.machine_time()) / wire.SECOND
        return {"now": wire.timestamp(clock()), "mode": reading.mode, "times": reading.times, "aheadSeconds": ahead}

    async def _storage(self) -> Reply:
        """The account's storage, started if it is not running."""
        try:
            account = await self.driver.machine.storage()
        except StorageMissing as missing:
            raise Fault("InvalidPropertyValue", Reason=str(missing)) from None
        return Reply(200, account._asdict())

    def _login(self, node_id: str) -> Reply:
        """How this machine runs commands on a node."""
        try:
            return Reply(200, self.driver.machine.login(node_id)._asdict())
        except NodeLost as error:
            reason = f"{error}; `batchtrain pool show` lists the nodes and their states"
            raise Fault("InvalidPropertyValue", Reason=reason) from None

    async def _turn(self, settings: Mapping[str, Any]) -> Reply:
        """Change the clock: how it runs, or `advance` it by a duration, waiting `patience` seconds in each step."""
        try:
            ticks = wire.parse_duration(str(settings["advance"])) if "advance" in settings else 0
            patience = float(settings.get("patience", PATIENCE))
            if not math.isfinite(patience) or patience < 0:
                raise ValueError("patience is a number of seconds")
            if "mode" in settings:
                self.driver.clock.turn(str(settings["mode"]), float(settings.get("times", 1.0)))
        except (ValueError, TypeError) as error:
            raise Fault("InvalidPropertyValue", Reason=str(error)) from None
        self.driver.turned()
        if ticks:
            await self.driver.advance(ticks, patience)
        return Reply(200, self.clock())

    def _add_fault(self, document: Mapping[str, Any]) -> Reply:
        try:
            number = self.driver.world.injections.add(injection.read(document, routes.NAMES))
        except ValueError as error:
            raise Fault("InvalidPropertyValue", Reason=str(error)) from None
        return Reply(201, {"id": number})

    def _remove_faults(self, number: str) -> Reply:
        injections = self.driver.world.injections
        if not number:
            injections.clear()
        elif not number.isdecimal() or not injections.remove(int(number)):
            reason = f"there is no fault {number}; `batchtrain emulator fault list` lists them"
            raise Fault("ResourceNotFound", Reason=reason)
        return Reply(204)

    def _limit(self, limits: Mapping[str, Any]) -> Reply:
        """Set quotas by their names, and how many nodes the region has of a VM size."""
        world = self.driver.world
        for name, most in limits.items():
            quota = name.replace("-", "_")
            if not isinstance(most, int) or most < 0:
                raise Fault("InvalidPropertyValue", Reason=f"{name} is not a number, 0 or more")
            if quota in Quotas._fields:
                world.quotas = world.quotas._replace(**{quota: most})
            elif world.find_size(name) is not None:
                world.capacity[key(name)] = most
            else:
                raise Fault("InvalidPropertyValue", Reason=f"{name} is neither a quota nor a VM size")
        for pool in world.pools:
            world.touch_pool(pool)
        self.driver.turned()
        return Reply(200, {"quotas": world.quotas._asdict(), "capacity": world.capacity})

    async def _befall(self, node_id: str, document: Mapping[str, Any]) -> Reply:
        act, seconds = str(document.get("act", "")), document.get("seconds")
        if act not in ACTS:
            raise Fault("InvalidPropertyValue", Reason=f"act is one of {', '.join(ACTS)}")
        if seconds is not None and not (isinstance(seconds, (int, float)) and 0 <= seconds < math.inf):
            raise Fault("InvalidPropertyValue", Reason="seconds is a number, 0 or more")
        node_id = self._node_called(node_id)
        entry = self.driver.world.pool_of_node[node_id]
        if act == "preempt" and entry.nodes[node_id].dedicated:
            raise Fault("OperationNotValidOnNode", Reason="only a spot node is preempted")
        if notice := document.get("notice"):
            if act != "preempt" or not (isinstance(notice, (int, float)) and 0 < notice < math.inf):
                raise Fault("InvalidPropertyValue", Reason="notice is a number of seconds before a node is preempted")
            await self.driver.announce(node_id, seconds, notice)
        else:
            await self.driver.befall(node_id, act, seconds)
        return Reply(202)

    def _node_called(self, name: str) -> str:
        """The id of a node by any name that a view shows; a number (`n0`) counts in its pool. Raises Fault."""
        pools = self.driver.world.pools.values()
        matches = [node_id for entry in pools for node_id in nodes_called(name, sorted(entry.nodes))]
        if len(matches) != 1:
            count = f"{len(matches)} nodes are" if matches else "there is no node"
            step = "`batchtrain pool show POOL`, or `list_nodes` of the SDK, lists the nodes of a pool"
            raise Fault("NodeNotFound", Reason=f"{count} {name}; {step}")
        return matches[0]


def hints(world: World) -> list[dict[str, str]]:
    """Why tasks stay active, and why the commands of a Windows pool fail. Azure does not report the reason."""
    rows = []
    for entry in world.jobs.values():
        seqs = [seq for seq in entry.ready if seq in world.hints] if world.hints else []
        rows += [{"jobId": entry.record.id, "taskId": entry.tasks.at(seq).id, "text": world.hints[seq]} for seq in seqs]
        if entry.counts["active"] and (reason := _job_reason(world, entry)):
            rows.append({"jobId": entry.record.id, "taskId": "", "text": reason})
        pool = world.pools.get(entry.pool_key)
        has_windows = pool is not None and pool.windows and not pool.simulated
        if has_windows and (entry.counts["active"] or entry.counts["failed"]):
            rows.append({"jobId": entry.record.id, "taskId": "", "text": NO_WINDOWS})
    return rows


def _job_reason(world: World, entry: JobEntry) -> str:
    if entry.record.error is not None:
        return f"it could not be started: {entry.record.error['message']}"
    if len(entry.unmet) == entry.counts["active"] and not entry.counts["running"]:
        return f"{len(entry.unmet)} of its tasks depend on tasks that failed or do not exist"
    pool = world.pools.get(entry.pool_key)
    if pool is None:
        return f"its pool {entry.pool_key} does not exist"
    unprepared_nodes = sum(job_preparation.barred(entry, node) for node in pool.nodes.values())
    if unprepared_nodes:
        return f"its preparation task failed on {unprepared_nodes} of {len(pool.nodes)} nodes of pool {pool.record.id}"
    failed = [node for node in pool.nodes.values() if node.state in ("starttaskfailed", "unusable")]
    if failed:
        return f"{len(failed)} of {len(pool.nodes)} nodes of pool {pool.record.id} take no tasks: {failed[0].state}"
    if refused := quotas.refused(world, pool):
        return refused
    return "" if pool.nodes else f"pool {pool.record.id} has no nodes"
