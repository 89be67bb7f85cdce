"""The service as a process that dies and starts again from its store."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timezone
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from batchtrain.client import controller_program
from batchtrain.client.controller_program import Controller, Requests
from batchtrain.client.operations import Operations
from batchtrain.config.types import Secret
from batchtrain.emulator import wire
from batchtrain.emulator.alarms import Alarms
from batchtrain.emulator.blob_store import BlobStore
from batchtrain.emulator.clock import Clock
from batchtrain.emulator.control import Identity
from batchtrain.emulator.drive import Driver
from batchtrain.emulator.http import Application
from batchtrain.emulator.injection import Injection
from batchtrain.emulator.interface import Exit, NodeLost, NodeSpec, NodeUp, Run, Size
from batchtrain.emulator.machine import output_files
from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.emulator.machine.simulated import KILLED, SimulatedMachine
from batchtrain.emulator.store import Store
from batchtrain.emulator.world import Change, Quotas, World
from batchtrain.errors import BatchtrainError
from batchtrain.service import watch
from batchtrain.service.connect import Account
from tests.simulation import owned
from tests.simulation.doors import Doors
from tests.simulation.faults import UPLOAD, Fates
from tests.simulation.invariants import CORES, Invariants
from tests.simulation.owned import Process, Simulation, real_utime
from tests.simulation.storage import HOST, Answer, BlobService

ACCOUNT, KEY = "simulation", "c2ltdWxhdGlvbg=="
TOKEN = "quite-a-long-secret"
"""Of the program of a task, which prints it."""
ENDPOINT = "https://simulation.region.batch.example"
PACE = watch.Pace(3.0, 600.0, 2.0, request=5.0)
"""Slower than in the product: what happens between two looks is not faster for it."""
QUOTAS = (*[Quotas(dedicated_cores=64, low_priority_cores=32, active_jobs=40)] * 3,
          Quotas(dedicated_cores=16, low_priority_cores=12, active_jobs=40))  # fmt: skip


class Down(Exception):
    """The service does not run, or died before its answer."""


class Died(BaseException):
    """The process of the service ends here."""


class Service:
    """The emulator's application, driver, world and store, without sockets."""

    def __init__(self, sim: Simulation, fates: Fates, directory: Path, invariants: Invariants, doors: Doors) -> None:
        self.sim, self.fates, self.directory, self.invariants = sim, fates, directory, invariants
        self.doors = doors
        self.deaths, self.starts, self.commits = 0, 0, 0
        self.full_until, self.ahead = 0.0, 0
        self.quotas = fates.at("quotas").choice(QUOTAS)
        self._open: dict[asyncio.Future[None], asyncio.Task[None]] = {}
        self.driver: Driver | None = None
        self.machine: Machine
        self.storage = BlobService()
        self.start()

    def start(self) -> None:
        """Start a process of the service on the store."""
        self.starts += 1
        self.process = Process(f"service-{self.starts}", self.sim)
        self.process.ahead = self.ahead
        self.random = self.fates.at(self.process.name)
        owned.SERVICE.append(self.process)
        self.store = _Store(self.directory / "world.sqlite3", self)
        alarms = Alarms(Clock(lambda: wire.from_unix_ns(owned.now_ns())))
        self.machine = Machine(alarms, self.directory, self)
        world = World(
            ACCOUNT, ENDPOINT, f"seed-{self.sim.seed}", 1, find_size=lambda size: Size(CORES, 0), quotas=self.quotas
        )
        self.driver = Driver(world, self.store, self.machine, alarms, BlobStore(self.directory, KEY))
        self.application = Application(self.driver, Identity("0", 1, ACCOUNT), KEY, lambda: None)
        self.driver.recover()
        self.invariants.restarted(world)
        self.store.fallible = True

    def die(self) -> None:
        """End the process: what is not in the store is lost, and no request gets its answer."""
        if self.driver is None:
            return
        driver, self.driver = self.driver, None
        self.deaths += 1
        self.sim.note("the service dies")
        self.process.die()
        self.store.dead = True
        driver._stopped = True
        for timer in (driver._timer, driver._giving_back):
            if timer is not None:
                timer.cancel()
        driver.alarms.close()
        for task in sorted(driver._running, key=lambda task: int(task.get_name().rpartition("-")[2])):  # not by address
            task.cancel()
        for done, task in self._open.items():
            task.cancel()
            if not done.done():
                done.set_exception(Down())
        self._open = {}
        self.invariants.died()
        longest = self.random.choice((1, 5, 20, 20, 20, 300))  # the patience of a call is 120 s
        self.sim.loop.call_later(0.5 + self.random.random() * longest, self._start_again)

    @property
    def is_busy(self) -> bool:
        """Whether a request is unanswered, or the machine has not done yet what was decided."""
        return bool(self._open) or (self.driver is not None and bool(self.driver._begun))

    def inject(self, injection: Injection) -> None:
        """Let a fault of the emulator's own strike."""
        assert self.driver is not None
        self.driver.world.injections.add(injection)

    def break_node(self, node_id: str) -> None:
        """Make a node unusable."""
        assert self.driver is not None
        self.driver._spawn(self.driver.befall(node_id, "break"))

    def preempt(self, node_id: str, seconds: float, notice: float = 0.0) -> None:
        """Take a spot node away after some seconds."""
        driver = self.driver
        assert driver is not None
        driver._spawn(driver._preempt_later(node_id, seconds, notice) if notice else
                      driver.befall(node_id, "preempt", seconds))  # fmt: skip

    def _start_again(self) -> None:
        if self.sim.loop.now < self.full_until:  # it does not start without room for its store
            self.sim.loop.call_later(1, self._start_again)
            return
        self.store.close()
        self.start()

    async def answer(self, verb: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer to a request. Raises Down."""
        if self.driver is None:
            raise Down
        path, _, query = target.partition("?")
        self.invariants.requested(path)
        scope = {
            "type": "http", "method": verb, "scheme": "https",
            "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(b"host", urlsplit(ENDPOINT).netloc.encode()),
                        *((name.lower().encode(), str(value).encode()) for name, value in headers.items())],
            "client": ("127.0.0.1", 1),
        }  # fmt: skip
        messages, parts, is_read = list[Any](), list[bytes](), False

        async def receive() -> dict[str, Any]:
            nonlocal is_read
            if is_read:
                await asyncio.get_running_loop().create_future()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                messages.append(message)
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body") and not done.done():  # from now on the answer is on its way
                    done.set_result(None)
                    if messages[0]["status"] == 500:
                        self.invariants.fail(f"the service has no bug: 500 to {verb} {path}: {parts[-1]!r}")
                    if verb == "POST":
                        self.invariants.answered(path, messages[0]["status"], body, b"".join(parts))

        done: asyncio.Future[None] = self.sim.loop.create_future()
        task = self.sim.loop.create_task(self.application(scope, receive, send))
        self._open[done] = task

        def over(task: asyncio.Task[None]) -> None:
            self._open.pop(done, None)
            if not task.cancelled():
                task.exception()
            if not done.done():
                done.set_exception(Down())

        task.add_done_callback(over)
        await done
        start = messages[0]
        heads = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], heads, b"".join(parts))


class _Store(Store):
    """A store whose commits the seed lets fail, or end the process."""

    def __init__(self, path: Path, service: Service) -> None:
        self.fallible = self.dead = False
        self._service = service
        super().__init__(path)

    def commit(self, changes: Iterable[Change], last_seq: int) -> None:
        if self.dead:
            raise Died
        service = self._service
        service.commits += 1
        place = f"commit {service.commits}"
        rng = service.fates.at(place)
        fate = service.fates.of_commit(place, rng) if self.fallible else ""
        if fate == "service's disk is full":
            service.fates.count(fate, place)
            service.full_until = service.sim.loop.now + rng.random() * 5
        if service.sim.loop.now < service.full_until:
            raise sqlite3.OperationalError("database or disk is full")
        if fate.endswith("before the commit"):
            service.fates.count(fate, place)
            service.die()
            raise Died
        stored = service.doors.stored(changes)
        super().commit(stored, last_seq)
        service.invariants.committed(stored, service.driver.world if service.driver else None)
        if fate.endswith("after the commit") and service.is_busy:
            service.fates.count(fate, place)
            service.die()
            raise Died

    def load(self) -> Iterator[Change]:
        changes = self._service.doors.loaded(super().load())
        self._service.invariants.loaded(changes)
        return iter(changes)

    def note(self, name: str, value: str) -> None:
        if not self.dead:
            super().note(name, value)

    def give_back(self) -> bool:
        self.has_deleted = False
        return False


UPLOADS_FAIL = 0.25
"""How often an upload fails; few are tried."""


def _control(job_id: str, requests: Requests) -> None:
    client = Operations(Account(ENDPOINT, ACCOUNT, Secret(requests.key), emulated=True))
    client.pace = PACE
    Controller(client, requests, job_id, lambda event: None).control()


def _requests_box(run: Run) -> str:
    """The container of the requests of a controller, to which its links lead; empty for any other command."""
    places = (urlsplit(item.url).path.strip("/").partition("/") for item in run.downloads)
    return next((box for box, _, name in places if name == controller_program.FILE), "")


_SIM = re.compile(r"\bsim (\d+) ([\d,]+)")


class Machine(SimulatedMachine):
    """Simulated nodes that keep files: a command `sim SECONDS CODE,CODE… [silent]` takes so long, and its runs end with
    these codes in turn. A silent one writes no files."""

    def __init__(self, alarms: Alarms, data_dir: Path, service: Service) -> None:
        super().__init__(alarms, data_dir)
        self._service, self.roots = service, dict[str, Path]()

    async def boot(self, spec: NodeSpec, on_lost: Callable[[str], None]) -> NodeUp:
        await self._alarms.sleep(1 + self._service.random.random() * 120)
        await super().boot(spec, on_lost)
        root = self._root / spec.node_id
        root.mkdir(parents=True, exist_ok=True)
        self.roots[spec.node_id] = root
        return NodeUp(root, "/mnt/batch/tasks", {}, "process")

    def fail_node(self, node_id: str) -> None:
        """The node dies by itself."""
        if lost := self._lost.get(node_id):
            self._service.invariants.lost(node_id)
            for key in [key for key in self._running if key[0] == node_id]:
                end = self._running.pop(key)
                if not end.done():
                    end.set_exception(NodeLost(node_id))
            self._lost.pop(node_id, None)
            lost(node_id)

    async def shutdown(self, node_id: str) -> None:
        self._service.invariants.lost(node_id)
        await super().shutdown(node_id)

    async def run(self, node_id: str, run: Run) -> Exit:
        if node_id not in self._lost:
            raise NodeLost(node_id)
        if box := _requests_box(run):
            return await self._controlled(node_id, run, box)
        found = None if run.stays else _SIM.search(run.environment.get("SIM", run.command_line))
        seconds, codes = (int(found[1]), [int(code) for code in found[2].split(",")]) if found else (0, [0])
        writes = "silent" not in run.command_line
        truth = self._service.invariants.begun(node_id, run)
        try:
            number = self._service.invariants.attempt(run)
            code = codes[min(number, len(codes) - 1)]
            if writes:
                self._write(
                    node_id,
                    f"{run.directory}/stdout.txt",
                    f"attempt {number}\nEpoch 1 loss=0.{number + 1} accuracy=0.5\n",
                )
                self._write(node_id, f"{run.directory}/stderr.txt", run.environment.get("API_TOKEN", ""))
            outcome = await super().run(node_id, run._replace(command_line=f"sleep {seconds}; exit {code}"))
            if writes and outcome.code == 0 and node_id in self.roots and self._service.driver is not None:
                self._write(node_id, f"{run.directory}/wd/result.txt", f"result of {run.directory}\n" * 20)
            self._service.invariants.exited(run, outcome)
            return outcome if outcome.code == KILLED else await self._uploaded(node_id, run, outcome)
        finally:
            self._service.invariants.ended(truth)

    async def _controlled(self, node_id: str, run: Run, box: str) -> Exit:
        """The end of the program of a controller, which is a process of its own. It dies with its node. box: has its
        requests, if its run has not failed and deleted them."""
        blob = self._service.storage.containers.get(box, {}).get(controller_program.FILE)
        if (requests := blob and msgspec.json.decode(blob.data, type=Requests)) is None:
            return Exit(None, "BlobNotFound", "the requests of the controller are gone")
        process, loop = Process(f"{run.directory} {run.scope}", self._service.sim), asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()
        killed: asyncio.Future[Exit] = loop.create_future()
        self._running[node_id, run.scope] = killed
        killed.add_done_callback(lambda end: end.cancelled() or end.exception())  # the service may die before it looks
        process.on_end = lambda _, error: None if ended.done() else ended.set_result(error)
        self._service.invariants.controls(process, requests.marks.run)
        process.start(partial(_control, run.environment["AZ_BATCH_JOB_ID"], requests))
        try:
            await asyncio.wait((ended, killed), return_when=asyncio.FIRST_COMPLETED)
            if killed.done():
                return killed.result()
            error = ended.result()
            self._service.sim.note(f"{process.name} ends with {error!r}")
            if error is not None and not isinstance(error, BatchtrainError):
                self._service.invariants.fail(f"no command ends with a bug: a controller ends with {error!r}")
            return Exit(1 if error else 0)
        finally:
            self._running.pop((node_id, run.scope), None)
            process.die()

    async def upload(self, node_id: str, run: Run) -> None:
        with contextlib.suppress(NodeLost):
            await self._uploaded(node_id, run, Exit(None))

    async def _uploaded(self, node_id: str, run: Run, outcome: Exit) -> Exit:
        """The end of a command after its output files were uploaded."""
        uploads = [item for item in run.uploads if output_files.applies(item, outcome.code)]
        if not uploads:
            return outcome
        service = self._service
        place = f"upload of {run.scope}"
        rng = service.fates.at(place)
        await self._alarms.sleep(rng.random() * 20)
        if node_id not in self.roots or service.driver is None:
            raise NodeLost(node_id)
        if rng.random() < UPLOADS_FAIL and service.fates.strike(UPLOAD, place):
            return outcome._replace(failure="FileUploadMiscError", message="a fault was asked for")
        source = output_files.Source(RootedPath(self.roots[node_id]), "/nowhere", run.directory, run.environment)
        for item in uploads:
            where = urlsplit(item.container_url)
            end = parse_qs(where.query)["se"][0]
            if where.netloc != HOST or end < f"{owned.Datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}":
                return outcome._replace(failure="FileUploadAccessDenied", message=f"the link to {where.path} is over")
            for path, name in output_files.matching(item, source):
                service.storage.put(where.path.strip("/"), name, (self.roots[node_id] / path).read_bytes())
        return outcome

    def _write(self, node_id: str, path: str, text: str) -> None:
        target = self.roots[node_id] / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        real_utime(target, (owned._now(), owned._now()))

    async def remove(self, node_id: str) -> None:
        await super().remove(node_id)
        if root := self.roots.pop(node_id, None):
            with contextlib.suppress(OSError):
                shutil.rmtree(root)
