"""End commands at many points, in every way: `python tests/bench/endings.py [--points N] [--command C] [--fault F]`.

Each command that creates something (`run`, `run --reuse`, `pool add`, `jobs add`) is ended at evenly spaced requests
of it by SIGHUP, SIGTERM, SIGINT once and twice, SIGKILL, an error inside batchtrain, a disk without space, and one
without inodes. Afterwards everything that it created is deleted, or named with its command, or adopted by the next
command; and a command that exits with 0 has its results. Prints counts by command and fault, and ends with 1 at a
violation. Disks of their own need root; without it these faults are left out. `tests/e2e/test_endings.py` is a small
version.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from batchtrain.client.client import Client, load  # noqa: E402
from batchtrain.config.types import Secret  # noqa: E402
from batchtrain.emulator import server  # noqa: E402
from batchtrain.runs import directory  # noqa: E402
from batchtrain.service.connect import Account  # noqa: E402

POOL = """\
pool_specification:
  id: p
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
"""
JOBS = """\
job_specifications:
- id: j
  tasks:
  - {id: t, command: 'mkdir output; head -c 200000 /dev/zero > output/model.pt; sleep 0.3; echo done'}
"""
MODEL_BYTES = 200_000
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run",),
    "run --reuse": ("run", "--reuse"),
    "pool add": ("pool", "add"),
    "jobs add": ("jobs", "add"),
}
FAULTS = ("SIGHUP", "SIGTERM", "SIGINT", "SIGINT twice", "SIGKILL", "exception", "no space", "no inodes")
DISKS = ("no space", "no inodes")
"""Faults of the disk that has the run directories."""
SABOTAGE = """\
import os, signal, sys, threading
from urllib.parse import urlsplit
from azure.core.pipeline.transport import RequestsTransport

fault, point, runs = sys.argv[1:4]
sys.argv = ["batchtrain", *sys.argv[4:]]
send, requests = RequestsTransport.send, 0


def fill(small):
    try:
        for number in range(100_000):
            with open(f"{runs}/filler-{number}", "wb") as file:
                if not small:
                    while True:
                        file.write(bytes(65536))
                        file.flush()
    except OSError:
        pass


def end():
    if fault == "exception":
        raise ZeroDivisionError("planted")
    if fault in ("no space", "no inodes"):
        fill(small=fault == "no inodes")
        return
    name, _, twice = fault.partition(" ")
    os.kill(os.getpid(), getattr(signal, name))
    if twice:
        os.kill(os.getpid(), getattr(signal, name))


def counted(self, request, **options):
    global requests
    requests += 1
    number = str(requests)
    if number == point and requests % 2:
        end()
    answer = send(self, request, **options)
    if (number == point and not requests % 2) or point == f"{request.method} {urlsplit(request.url).path}":
        end()
    return answer


RequestsTransport.send = counted
from batchtrain.cli.__main__ import main
try:
    main()
finally:
    if fault == "count":
        print(f"requests: {requests}", file=sys.stderr)
"""
"""Runs the command line, with a fault before (odd) or after (even) the request with the number `point`, or after the
request with that method and path."""
SUBMISSION = "POST /jobs/j/tasks"
"""The request that adds the tasks: how many come before it depends on how fast the nodes start."""


class Case(NamedTuple):
    """One command that is ended once."""

    command: str
    fault: str
    point: int | str


class World:
    """An emulator, a recipe and a directory of runs."""

    def __init__(self, place: Path) -> None:
        self.place, self.recipe, self.runs = place, place / "recipe", place / "runs"
        self.recipe.mkdir()
        (self.recipe / "pool.yaml").write_text(POOL, encoding="utf-8")
        (self.recipe / "jobs.yaml").write_text(JOBS, encoding="utf-8")
        self.home = place / "emulator"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AZURE_", "BATCHTRAIN_"))}
        own = {
            "BATCHTRAIN_EMULATOR_DIR": str(self.home),
            "BATCHTRAIN_RUNS_DIR": str(self.runs),
            "BATCHTRAIN_LOCAL": "1",
        }
        self.environment = {**kept, **own}

    def batchtrain(self, *words: str, fault: str = "", point: int | str = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        program = ["-c", SABOTAGE, fault, str(point), str(self.runs)] if fault else ["-m", "batchtrain.cli"]
        return subprocess.run(
            [sys.executable, *program, *words],
            env=self.environment,
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    @property
    def client(self) -> Client:
        """A client of the account."""
        status = server.status(self.home)
        assert status is not None
        return Client(Account(status.endpoint, status.account, Secret(status.key), emulated=True))

    def existing(self) -> set[str]:
        """The pools and jobs of the account, as messages name them."""
        names = {f"pool {pool.id}" for pool in self.client.pools.list() if pool.state != "deleting"}
        return names | {f"job {job.id}" for job in self.client.jobs.list() if job.state != "deleting"}

    def add_pool(self) -> None:
        """Add the pool of the recipe, as another command does."""
        self.client.pools.add(load(self.recipe))

    def clean(self) -> None:
        """Delete everything."""
        for name in self.existing():
            kind, _, name = name.partition(" ")
            self.client.pools.delete(name) if kind == "pool" else self.client.jobs.handle(name).delete()

    def states(self) -> list[str]:
        """The states of all runs."""
        return [run.record().state for run in directory.runs(self.runs)]

    def models(self) -> list[int]:
        """The sizes of the models in the run directories."""
        return [path.stat().st_size for path in self.runs.glob("2*/outputs/t/model.pt")]


def named(text: str, thing: str) -> bool:
    """Whether an output has the command that deletes a thing."""
    kind, _, name = thing.partition(" ")
    return re.search(rf"batchtrain {'pool' if kind == 'pool' else 'jobs'} del {name}\b", text) is not None


def violations(world: World, case: Case) -> Iterator[str]:
    """End a command once, and say what is wrong afterwards."""
    words = (*COMMANDS[case.command], str(world.recipe))
    ended = world.batchtrain(*words, fault=case.fault, point=case.point)
    free(world)
    text = ended.stdout + ended.stderr
    if case.fault != "SIGKILL":
        asked = {"run --reuse": {"pool p"}, "pool add": {"pool p"}, "jobs add": {"pool p", "job j"}}
        known = asked.get(case.command, set()) if ended.returncode == 0 else set()
        if case.command == "jobs add":
            known.add("pool p")
        for thing in world.existing() - known:
            if not named(text, thing):
                yield f"{thing} is left and not named (exit {ended.returncode}):\n{text}"
        if case.command.startswith("run") and ended.returncode == 0 and world.models() != [MODEL_BYTES]:
            yield f"exit 0 without the model: {world.models()}"
        if "running" in world.states() or ("lost" in world.states() and case.fault not in DISKS):
            yield f"a run is {world.states()}:\n{text}"
    if case.command.startswith("run") and (case.fault == "SIGKILL" or "lost" in world.states()):
        yield from not_adopted(world, words)


def not_adopted(world: World, words: Sequence[str]) -> Iterator[str]:
    """Run the command again after a kill, as a user does: it says when the job still runs."""
    again = world.batchtrain(*words)
    if again.returncode == 4 and "jobs wait j" in again.stderr:
        waited = world.batchtrain("jobs", "wait", "j")
        if waited.returncode:
            yield f"`jobs wait` ends with {waited.returncode}:\n{waited.stderr}"
        again = world.batchtrain(*words)
    if again.returncode:
        yield f"the command cannot be repeated:\n{again.stderr}"
    left = world.existing() - ({"pool p"} if "--reuse" in words else set())
    if left:
        yield f"{left} is left after the repetition:\n{again.stderr}"
    if set(world.states()) & {"running", "lost"}:
        yield f"a run is {world.states()}:\n{again.stderr}"
    if not world.models() or set(world.models()) != {MODEL_BYTES}:
        yield f"models of {world.models()} bytes"


def free(world: World) -> None:
    """Free the disk, whose contents can be read again."""
    for filler in world.runs.glob("filler-*"):
        filler.unlink()


@contextmanager
def disk(world: World, fault: str) -> Iterator[None]:
    """A new directory of runs; for a fault of the disk, a small file system of its own."""
    subprocess.run(["rm", "-rf", str(world.runs)], check=True)
    world.runs.mkdir()
    if fault not in DISKS:
        yield
        return
    size = "size=8m" if fault == "no space" else "size=64m,nr_inodes=300"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(world.runs)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(world.runs)], check=True)


def ended(world: World, case: Case) -> list[str]:
    """The violations of one case, from a clean account."""
    with disk(world, case.fault):
        if case.command == "jobs add":
            world.add_pool()
        try:
            return list(violations(world, case))
        finally:
            world.clean()


def requests_of(world: World, command: str) -> int:
    """How many requests a command sends if nothing happens to it."""
    with disk(world, ""):
        if command == "jobs add":
            world.add_pool()
        whole = world.batchtrain(*COMMANDS[command], str(world.recipe), fault="count")
        world.clean()
    match = re.search(r"^requests: (\d+)$", whole.stderr, re.M)
    assert match and whole.returncode == 0, whole.stderr
    return int(match[1])


def spread(total: int, points: int) -> list[int]:
    """So many numbers from 1 to `total`, evenly spaced."""
    return sorted({round(1 + number * (total - 1) / max(points - 1, 1)) for number in range(points)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--command", action="append", choices=COMMANDS)
    parser.add_argument("--fault", action="append", choices=FAULTS)
    options = parser.parse_args()
    faults = options.fault or [fault for fault in FAULTS if os.geteuid() == 0 or fault not in DISKS]
    failed, counts = 0, Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory(prefix="batchtrain-endings-") as place:
        world = World(Path(place))
        world.batchtrain("emulator", "start", "--port", "0")
        try:
            for command in options.command or COMMANDS:
                total = requests_of(world, command)
                points = spread(total, options.points)
                print(f"{command}: {total} requests, ended at {points}", flush=True)
                for fault in faults:
                    for point in points:
                        case = Case(command, fault, point)
                        wrong = ended(world, case)
                        counts[command, fault] += 1
                        failed += bool(wrong)
                        for text in wrong:
                            print(f"  VIOLATED {case}: {text}", flush=True)
                    print(f"  {fault}: {counts[command, fault]} points", flush=True)
        finally:
            server.stop(world.home)
    print(f"{sum(counts.values())} endings, {failed} violations")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
