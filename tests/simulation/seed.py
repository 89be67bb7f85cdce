"""One seed: a service, users with their commands, and faults, until everything is settled."""

from __future__ import annotations

import errno
import hashlib
import logging
import random
import shutil
import subprocess
import tempfile
import traceback
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from azure.core.pipeline.transport import RequestsTransport

import batchtrain as bt
from batchtrain.emulator.injection import Injection
from batchtrain.errors import BatchtrainError, NotFound
from batchtrain.runs import directory, lease
from batchtrain.service import connect as signing
from batchtrain.service import watch
from tests.simulation import owned, workload
from tests.simulation.faults import NODE_FAULTS, Fates
from tests.simulation.invariants import Invariants
from tests.simulation.network import Network
from tests.simulation.owned import Deadlock, Process, Simulation
from tests.simulation.service import Died, Down, Service

LONGEST = 3 * 86400.0
"""Virtual seconds in which the users must be done."""
QUIET = 4 * 3600.0
"""Virtual seconds after the last fault, in which everything settles."""
PACE = watch.Pace(2.0, 60.0, request=5.0)
"""Slower than in the product: what happens between two looks is not faster for it."""
TIMES = 4
"""How often a command is tried."""


class Outcome(NamedTuple):
    seed: int
    hash: str
    violations: tuple[str, ...]
    counts: Counter[str]
    seconds: float
    trace: tuple[str, ...]


def simulate(seed: int, left_out: Collection[str] = ()) -> Outcome:
    """Run one seed."""
    began = owned.real_monotonic()
    counts: Counter[str] = Counter()
    sim = Simulation(seed)
    owned.SIM.append(sim)
    random.seed(seed)
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    logging.disable(logging.CRITICAL)
    sim.loop.set_exception_handler(lambda loop, context: _unhandled(sim, context))
    _own_processes(sim)
    try:
        world = _World(sim, seed, folder, counts, left_out)
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
    return Outcome(seed, digest, tuple(world.invariants.violations), counts, elapsed, tuple(sim.trace))


def _client() -> bt.Client:
    client = bt.Client(workload.account())
    client.pace = PACE
    return client


def _unhandled(sim: Simulation, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, (Died, Down)):
        sim.note("".join(traceback.format_exception(error)) if error else str(context))
        sim.errors.append(repr(error))


class _World:
    def __init__(
        self, sim: Simulation, seed: int, directory: Path, counts: Counter[str], left_out: Collection[str]
    ) -> None:
        self.sim, self.counts, self.directory = sim, counts, directory
        self.fates, self.invariants = Fates(seed, counts, left_out), Invariants(sim, counts)
        self.random = random.Random(f"users {seed}")
        self.users = 0

    def begin(self) -> None:
        self.sim.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.service = Service(self.sim, self.fates, self.directory, self.invariants)
        network = Network(self.sim, self.service, self.fates)
        _below(network)
        runs = self.directory / "runs"
        runs.mkdir()
        self.checks = workload.Checks(self.service, self.invariants, runs)
        for number in range(self.random.choice((1, 2, 3))):
            work = workload.work(self.random, str(number))
            self.counts.update(f"feature: {feature}" for feature in work.features)
            self.users += 1
            _User(self, number, work, self.random.choice(workload.STORIES)).next()
        self.sim.loop.call_later(60, self._strike)
        self.sim.loop.call_later(LONGEST, self._too_long)

    def _strike(self) -> None:
        """A fault of a node or of an allocation."""
        rng = self.fates.random
        self.sim.loop.call_later(30 + rng.random() * 1500, self._strike)
        driver = self.service.driver
        kind = rng.choice(NODE_FAULTS)
        if driver is None or self.fates.over:
            return
        nodes = [node for pool in driver.world.pools.values() for node in pool.nodes.values()
                 if node.state in ("idle", "running", "waitingforstarttask")]  # fmt: skip
        if kind.startswith("node"):
            if not nodes or not self.fates.strike(kind):
                return
            node = rng.choice(nodes).id
            if kind == "node lost":
                self.service.machine.fail_node(node)
            elif kind == "node preempted":
                driver._spawn(driver.befall(node, "preempt", rng.random() * 600))
            else:
                driver._spawn(driver._preempt_later(node, rng.random() * 600, 30.0))
        elif self.fates.strike(kind):
            name = {"boot fails": "boot-fails", "start task fails": "start-task-fails",
                    "resize refused": "allocation-refused", "resize partial": "allocation-partial",
                    "allocation slow": "allocation-slow"}[kind]  # fmt: skip
            driver.world.injections.add(Injection(kind=name, count=1, seconds=90.0, code="AllocationFailed"))

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

    def __init__(self, world: _World, number: int, work: workload.Work, story: tuple[workload.Verb, ...]) -> None:
        self.world, self.number, self.work = world, number, work
        self.todo, self.times, self.processes = list(story), 0, 0

    def next(self) -> None:
        if not self.todo:
            self.world.user_ended()
            return
        self.times += 1
        self.processes += 1
        verb = self.todo[0]
        self.world.counts[f"verb: {verb.__name__}"] += 1
        process = Process(f"user{self.number}-{self.processes}-{verb.__name__}", self.world.sim)
        rng, fates = self.world.fates.random, self.world.fates
        if self.times < TIMES and rng.random() < 0.5 and fates.strike("client dies"):
            process.dies_at = 1 + int(rng.random() ** 2 * 60)
        elif self.times < TIMES and rng.random() < 0.1 and fates.strike("client interrupted"):
            process.interrupted_at = 1 + int(rng.random() ** 2 * 60)
        elif self.times < TIMES and rng.random() < 0.1 and fates.strike("client's disk is full"):
            process.writes_until_full = int(rng.random() * 15)
        process.on_end, process.on_death = self._ended, self._died
        told = workload.Told(self.world.invariants)
        process.start(lambda: verb(_client(), self.work, told, self.world.checks))

    def _died(self) -> None:
        self.world.counts["deaths of clients"] += 1
        self._later()

    def _ended(self, process: Process, error: BaseException | None) -> None:
        self.world.sim.note(f"{process.name} ends with {type(error).__name__}: {error}")
        self.world.counts["commands"] += 1
        process.alive = False
        if process.dies_at:
            self.world.counts["client dies"] -= 1
        is_full = process.writes_until_full is not None and isinstance(error, OSError)
        if error is not None and not is_full and not isinstance(error, (BatchtrainError, KeyboardInterrupt)):
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


def _own_processes(sim: Simulation) -> None:
    """A process's locks end with it, and no other process is started."""

    def no_git(*_: object, **__: object) -> None:
        raise OSError("no processes in a simulation")

    subprocess.run = no_git  # type: ignore[assignment]
    real_init = lease.Lease.__init__

    def init(self: lease.Lease, path: Path, descriptor: int) -> None:
        real_init(self, path, descriptor)
        fiber = owned.current()
        if fiber is not None:
            fiber.process.leases.append(self)

    lease.Lease.__init__ = init  # type: ignore[method-assign]
    real_replace = directory.replace_lines

    def replace(path: Path, lines: Iterable[bytes]) -> None:
        fiber = owned.current()
        if fiber is not None and fiber.process.writes_until_full is not None:
            fiber.process.writes_until_full -= 1
            if fiber.process.writes_until_full < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        real_replace(path, lines)

    directory.replace_lines = replace


def _below(network: Network) -> None:

    def transport(where: signing.Account) -> RequestsTransport:
        made = RequestsTransport()
        made.open()
        made.session.trust_env = False
        made.session.adapters.clear()
        made.session.mount("http://", network)
        return made

    signing._transport = transport
