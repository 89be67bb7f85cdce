"""One seed: a service, users with their commands, and faults, until everything is settled."""

from __future__ import annotations

import errno
import gc
import hashlib
import logging
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from azure.core.pipeline.transport import RequestsTransport

import batchtrain as bt
from batchtrain.client import controller
from batchtrain.client.ending import Ending
from batchtrain.errors import BatchtrainError, NotFound
from batchtrain.life.endings import SeenEnd
from batchtrain.runs import directory, lease
from batchtrain.service import connect as signing
from batchtrain.service import downloads
from batchtrain.storage import blob_requests, download, upload
from tests import ends
from tests.simulation import owned, workload
from tests.simulation.doors import Doors, Plant
from tests.simulation.faults import ACCOUNT, NODE, Fates
from tests.simulation.invariants import Invariants
from tests.simulation.network import Connection, Network, Wire
from tests.simulation.owned import Deadlock, Process, Simulation
from tests.simulation.plants import PLANTS
from tests.simulation.reach import Lines
from tests.simulation.service import PACE, Died, Down, Service
from tests.simulation.stories import stories

LONGEST = 3 * 86400.0
"""Virtual seconds in which the users must be done."""
QUIET = 4 * 3600.0
"""Virtual seconds after the last fault, in which everything settles."""
PIECE = 500
"""Bytes of a block or range of a blob: larger ones go in several requests."""
TIMES = 10
"""How often a command is tried."""
REAL_LEASE, REAL_REPLACE, REAL_OPEN = lease.Lease.__init__, directory.replace_lines, directory.open_private
REAL_WRITE_AT, REAL_END = vars(downloads)["write_at"], Ending.end


class Outcome(NamedTuple):
    seed: int
    hash: str
    violations: tuple[str, ...]
    counts: Counter[str]
    seconds: float
    trace: tuple[str, ...]
    faults: tuple[str, ...]
    lines: Lines = frozenset()
    """The lines of the product that ran, if they were noted."""


def simulate(
    seed: int, left_out: Collection[str] = (), plant: str = "", make: Callable[..., World] | None = None
) -> Outcome:
    """Run one seed. left_out: faults that do not strike. plant: the name of a bug, see `plants`. make: the world, by
    default one of users who do what the seed says."""
    began = owned.real_monotonic()
    counts: Counter[str] = Counter()
    sim = Simulation(seed)
    owned.SIM.append(sim)
    random.seed(seed)
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    sim.folder = str(folder)
    gc.disable()  # a dead greenlet must not be collected: its `finally` would run
    sys.stdout = sys.stderr = owned.Output()
    _hear_bugs(sim)
    sim.loop.set_exception_handler(lambda loop, context: _unhandled(sim, context))
    doors = Doors(PLANTS[plant]() if plant else Plant(), lambda: counts.update((plant,)))
    _own_processes(sim, doors)
    try:
        world = (make or World)(sim, seed, folder, counts, left_out, doors)
        _hold_against_model(world.invariants, counts)
        world.begin()
        try:
            sim.loop.run_forever()
        except Deadlock:
            world.invariants.violations.append("everything settles: nothing happens any more, and commands wait")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    digest = hashlib.sha256("\n".join(sim.trace).encode()).hexdigest()[:16]
    counts["virtual hours"] += int(sim.loop.now / 3600)
    elapsed = owned.real_monotonic() - began
    world.invariants.violations += [f"the service has a bug: {error}" for error in sim.errors]
    sys.stdout = sys.stderr = owned.real_stdout
    violations, faults = tuple(world.invariants.violations), tuple(world.fates.struck)
    return Outcome(seed, digest, violations, counts, elapsed, tuple(sim.trace), faults)


def new_client() -> bt.Client:
    client = bt.Client(workload.account())
    client.pace = PACE
    return client


class _Bugs(logging.Handler):
    """The errors that the service logs as its own."""

    def __init__(self, sim: Simulation) -> None:
        super().__init__(logging.ERROR)
        self._sim = sim

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, (Died, sqlite3.Error)) or (error is None and not record.msg.startswith("could not begin")):
            return
        self._sim.note(f"{record.getMessage()}: {''.join(traceback.format_exception(error))}")
        self._sim.errors.append(repr(error))


def _hear_bugs(sim: Simulation) -> None:
    logging.getLogger().setLevel(logging.CRITICAL)
    logger = logging.getLogger("batchtrain.emulator")
    logger.handlers, logger.propagate = [_Bugs(sim)], False
    logger.setLevel(logging.ERROR)


def _unhandled(sim: Simulation, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, (Died, Down)):
        sim.note("".join(traceback.format_exception(error)) if error else str(context))
        sim.errors.append(repr(error))


class World:
    def __init__(
        self, sim: Simulation, seed: int, directory: Path, counts: Counter[str], left_out: Collection[str], doors: Doors
    ) -> None:
        self.sim, self.counts, self.directory, self.doors = sim, counts, directory, doors
        self.fates, self.invariants = Fates(seed, counts, left_out), Invariants(sim, counts)
        self.random = random.Random(f"users {seed}")
        self.users = self.strikes = 0

    def begin(self) -> None:
        self.sim.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.service = Service(self.sim, self.fates, self.directory, self.invariants, self.doors)
        _below(Wire(self.sim, self.service, self.fates, self.doors), self.service)
        runs = self.directory / "runs"
        runs.mkdir()
        self.checks = workload.Checks(self.service, self.invariants, runs)
        self.start_users()
        self.sim.loop.call_later(LONGEST, self._too_long)

    def start_users(self) -> None:
        """Start what the seed says, and its faults."""
        for number in range(self.random.choice((1, 2, 3))):
            work = workload.work(self.random, str(number), self.directory)
            self.checks.codes[work.recipe.jobs[0].id] = work.codes
            self.counts.update(f"feature: {feature}" for feature in work.features)
            self.users += 1
            _User(self, number, work, self.random.choice(stories(work))).next()
        self.sim.loop.call_later(60, self._strike)

    def _strike(self) -> None:
        """A fault of a node or of the service."""
        self.strikes += 1
        place = f"strike {self.strikes}"
        rng = self.fates.at(place)
        self.sim.loop.call_later(10 + rng.random() * 900, self._strike)
        driver = self.service.driver
        if driver is None or self.fates.over:
            return
        kind = rng.choice((*NODE, *NODE, *ACCOUNT))
        nodes = [node.id for pool in driver.world.pools.values() for node in pool.nodes.values()
                 if node.state in ("idle", "running", "waitingforstarttask")]  # fmt: skip
        if kind in ACCOUNT:
            if self.fates.strike(kind, place):
                ACCOUNT[kind](self.service, rng)
        elif nodes and self.fates.strike(kind, place):
            NODE[kind](self.service, rng.choice(nodes), rng)

    def user_ended(self) -> None:
        self.users -= 1
        if not self.users:
            self.fates.over = True
            self.sim.loop.call_later(QUIET, self._settled)

    def _settled(self) -> None:
        if self.service.driver is None:
            self.sim.loop.call_later(60, self._settled)
            return
        self.invariants.settled(self.service.driver.world)
        self.counts["deaths of the service"] += self.service.deaths
        self.sim.loop.stop()

    def _too_long(self) -> None:
        if self.users:
            self.invariants.fail("everything settles: commands still run after three days")


class _User:
    """One user: commands one after the other. A command whose process dies is started again."""

    def __init__(self, world: World, number: int, work: workload.Work, story: tuple[workload.Verb, ...]) -> None:
        self.world, self.number, self.work = world, number, work
        has_pool = "auto pool" not in work.features
        self.todo = [verb for verb in story if has_pool or "pool" not in verb.__name__]
        self.times, self.processes = 0, 0

    def next(self) -> None:
        if not self.todo:
            self.world.user_ended()
            return
        self.times += 1
        self.processes += 1
        verb = self.todo[0]
        self.world.counts[f"verb: {verb.__name__}"] += 1
        process = Process(f"user{self.number}-{self.processes}-{verb.__name__}", self.world.sim)
        if self.times < TIMES:
            self.world.fates.befall(process)
        process.on_end, process.on_death = self._ended, self._died
        told = workload.Told(self.world.invariants, process)
        process.start(lambda: verb(new_client(), self.work, told, self.world.checks))

    def _died(self) -> None:
        self.world.counts["deaths of clients"] += 1
        self.world.checks.all_results()
        self._later()

    def _ended(self, process: Process, error: BaseException | None) -> None:
        self.world.sim.note(f"{process.name} ends with {type(error).__name__}: {error}")
        self.world.counts["commands"] += 1
        process.alive = False
        self.world.checks.all_results()
        if error is None:
            self.world.checks.written(process)
        elif "detach" in self.todo[0].__name__:
            self.world.checks.interrupted(self.work, process)
        is_of_disk = process.has_bad_disk and isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO)
        if error is not None and not is_of_disk and not isinstance(error, (BatchtrainError, KeyboardInterrupt)):
            lines = "".join(traceback.format_exception(error))
            self.world.sim.note(lines)
            self.world.invariants.fail(f"no command ends with a bug: {process.name}: {error!r}")
        gone = isinstance(error, NotFound) and self.todo[0].__name__.endswith("del")
        if isinstance(error, BatchtrainError) and not gone and self.times < TIMES:
            self._later()
            return
        self.todo.pop(0)
        self.times = 0
        self._later()

    def _later(self) -> None:
        self.world.sim.loop.call_later(1 + self.world.random.random() * 30, self.next)


def _own_processes(sim: Simulation, doors: Doors) -> None:
    """A process's locks end with it, and no other process is started."""

    def no_git(*_: object, **__: object) -> None:
        raise OSError("no processes in a simulation")

    subprocess.run = no_git  # type: ignore[assignment]

    def init(self: lease.Lease, path: Path, descriptor: int) -> None:
        REAL_LEASE(self, path, descriptor)
        fiber = owned.current()
        if fiber is not None:
            fiber.process.leases.append(self)

    lease.Lease.__init__ = init  # type: ignore[method-assign]

    def replace(path: Path, lines: Iterable[bytes], root: Path | None = None) -> None:
        process = _process()
        lines = doors.written(process.name if process else "", path.name, lines)
        if process is not None and process.writes + 1 == process.dies_in_write:
            process.on_fault()
            moment = sim.random.choice(("before", "in", "after"))
            if moment != "before":
                REAL_REPLACE(path, lines if moment == "after" else _cut(sim, lines), root)
            sim.vanish()
        REAL_REPLACE(path, lines, root)

    def open_private(path: Path, how: str, root: Path | None = None) -> BinaryIO:
        _write(sim, path)
        return REAL_OPEN(path, how, root)

    def write_at(*arguments: Any) -> None:
        _write(sim, Path("a download"))
        REAL_WRITE_AT(*arguments)

    directory.replace_lines, directory.open_private = replace, open_private
    for module in (downloads, download):
        vars(module).update(write_at=write_at)


def _hold_against_model(invariants: Invariants, counts: Counter[str]) -> None:
    """Each step of an ending is one that `tests/ends.py` knows, in which the table of endings is proven."""

    def end(self: Ending, error: BaseException | None = None) -> None:
        looks = list[SeenEnd]()

        def look() -> SeenEnd:
            looks.append(Ending.look(self))
            counts["steps of ends"] += 1
            for text in ends.unexpected(looks[-2:]):
                invariants.fail(f"each step of an end is in the model: {text}")
            return looks[-1]

        counts["ends of commands"] += 1
        vars(self)["look"] = look
        try:
            REAL_END(self, error)
        finally:
            del vars(self)["look"]

    Ending.end = end  # type: ignore[method-assign]


def _process() -> Process | None:
    fiber = owned.current()
    return fiber.process if fiber else None


def _write(sim: Simulation, path: Path) -> None:
    """A client writes: on a full disk it cannot, and it may die."""
    process = _process()
    if process is None:
        return
    process.writes += 1
    if process.full_at and process.writes >= process.full_at:
        process.on_fault()
        raise OSError(errno.ENOSPC, "No space left on device", str(path))
    if process.writes == process.fails_at:
        process.on_fault()
        raise OSError(errno.EIO, "Input/output error", str(path))
    if process.writes == process.dies_in_write:
        process.on_fault()
        sim.vanish()


def _cut(sim: Simulation, lines: Iterable[bytes]) -> Iterable[bytes]:
    """Half of the first line; then the process dies."""
    for line in lines:
        yield line[: len(line) // 2]
        sim.vanish()


def _below(wire: Wire, service: Service) -> None:
    """Put the network below the SDK's transport, and below the client's own connections to storage."""
    network = Network(wire, service.answer)

    def transport(where: signing.Account) -> RequestsTransport:
        made = RequestsTransport()
        made.open()
        made.session.trust_env = False
        made.session.adapters.clear()
        made.session.mount("https://", network)
        return made

    signing._transport = transport
    blob_requests.Storage._opened = lambda self: Connection(wire, service.storage.answer)  # type: ignore[method-assign, assignment]
    vars(controller).update(_package=lambda: bytes(PIECE))  # the nodes start no Python
    vars(upload).update(BLOCK=PIECE)
    vars(download).update(RANGE=PIECE, PIECE=PIECE // 2)
    vars(blob_requests).update(PIECE=PIECE // 2)
