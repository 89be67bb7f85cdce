"""Kills and lost answers for as long as it takes: `python tests/bench/soak.py [--kills 200] [--runs 10]`.

1. SIGKILL, again and again, of the emulator or of a node's agent, while two clients add tasks and nodes run them. Each
   emulator is followed by the next on the same port and data. No client may see an error: every task that was added
   stands once, runs to its end, and is started no more often than it was requeued.
2. `batchtrain run` of real 2x2 MPICH gangs, every third of which fails, while a share of all answers is dropped. Every
   training ends with its own result and everything that it prints, and leaves nothing.

Prints figures, and ends with 1 at a violation.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from batchtrain.client.client import Client  # noqa: E402
from batchtrain.config.types import Secret  # noqa: E402
from batchtrain.emulator import mapped_images, server, steering  # noqa: E402
from batchtrain.errors import BatchtrainError  # noqa: E402
from batchtrain.plan import Plan, Step  # noqa: E402
from batchtrain.service.connect import Account  # noqa: E402
from tests.conftest import mpi_prefix  # noqa: E402
from tests.contract.test_killed_under_load import Lives, make_pools, starts  # noqa: E402
from tests.e2e.conftest import SCRIPT, left_running  # noqa: E402
from tests.submitting import carry_out  # noqa: E402

COMMAND = "/bin/sh -c 'echo $AZ_BATCH_TASK_ID >> $AZ_BATCH_NODE_SHARED_DIR/starts; sleep 0.3; exit 0'"
PAUSES = {"processes": 0.15, "simulated": 0.01}
"""Seconds between two tasks of a job; those of one are processes, the nodes of the other only keep time."""
LONG = 1200.0
RECIPE = ROOT / "recipes" / "mpi4py-MPICH"
COMMAND_OF = "job_specifications[0].tasks[0].command"
EPOCHS = 12

violations: list[str] = []


def check(holds: bool, claim: str) -> None:
    if not holds:
        violations.append(claim)
        print(f"  VIOLATED: {claim}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.3, help="share of all answers that are dropped")
    parser.add_argument("--seed", type=int, default=13)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if given.kills:
            Kills(Path(name) / "kills", given.kills, given.seed).soak()
        if given.runs:
            runs(Path(name) / "runs", given.runs, given.rate, given.seed)
    print(f"{len(violations)} violations", flush=True)
    return 1 if violations else 0


# --- kills ----------------------------------------------------------------------------------------------------------


def ended(data_dir: Path) -> bool:
    """Whether every process of a data directory ends within a minute."""
    last = time.monotonic() + 60
    while left_running(data_dir) and time.monotonic() < last:
        time.sleep(0.1)
    return not left_running(data_dir)


class Kills:
    """Emulators one after the other on one port, and what two clients did meanwhile."""

    def __init__(self, place: Path, kills: int, seed: int) -> None:
        place.mkdir()
        self.data, self.kills, self.chance = place / "data", kills, random.Random(seed)
        self.lives = Lives(self.data, place / "log", _free_port())
        self.added: dict[str, set[str]] = {name: set() for name in PAUSES}
        self.killed: Counter[str] = Counter()
        self.done = threading.Event()

    def soak(self) -> None:
        began = time.monotonic()
        self.running = self.lives.begin()
        client = Client(Account(self.running.endpoint, self.running.account, Secret(self.running.key), emulated=True))
        make_pools(client.batch)
        client.pools.resize("pool", dedicated=2)
        adding = [threading.Thread(target=self._add, args=(client, name)) for name in PAUSES]
        for thread in adding:
            thread.start()
        for _ in range(self.kills):
            time.sleep(self.chance.uniform(0.0, 1.0))
            self._kill()
        self.done.set()
        for thread in adding:
            thread.join()
        added = sum(map(len, self.added.values()))
        print(
            f"kills: {dict(self.killed)} while {added:,} tasks were added, {time.monotonic() - began:.0f} s", flush=True
        )
        self._judge(client)
        self.lives.kill(self.running, 15)
        self.lives.end()
        check(ended(self.data), f"processes are left: {left_running(self.data)}")

    def _add(self, client: Client, where: str) -> None:
        number = 0
        while not self.done.is_set():
            name = f"{where}-{number}"
            try:
                step = Step("task.add", where, {"id": name, "commandLine": COMMAND})
                list(carry_out(client.batch, Plan((step,))))
            except BatchtrainError as error:
                check(False, f"task {name} was not added: {error}")
            self.added[where].add(name)
            number += 1
            time.sleep(PAUSES[where])

    def _kill(self) -> None:
        agents = _agents(self.running.pid)
        if agents and self.chance.random() < 0.5:
            self.chance.choice(agents).kill()
            self.killed["node agents"] += 1
            return
        self.lives.kill(self.running)
        self.running = self.lives.begin()
        self.killed["emulators"] += 1

    def _judge(self, client: Client) -> None:
        began, requeued = time.monotonic(), 0
        for where, names in self.added.items():
            try:
                tasks = client.jobs.get(where).wait(timeout=LONG, check=False).tasks
            except BatchtrainError as error:
                nodes = [f"{node.state} {'; '.join(node.errors)}" for node in client.pools.nodes("pool")]
                check(False, f"{where}: {error}; nodes: {nodes}")
                continue
            check({one.id for one in tasks} == names, f"{where}: {len(names)} were added, {len(tasks)} stand")
            failed = [f"{one.id}: {one.state} {one.exit_code} {one.failure}" for one in tasks if one.exit_code != 0]
            check(not failed, f"{where}: {len(failed)} tasks did not end with 0: {failed[:3]}")
            requeued += sum(one.requeues for one in tasks)
            if where == "processes":
                begun = starts(self.data)
                more = {one.id: begun[one.id] for one in tasks if not 1 <= begun[one.id] <= 1 + one.requeues}
                check(
                    not more,
                    f"{len(more)} tasks were started more often than requeued, or never: {list(more.items())[:3]}",
                )
        print(f"  all ended {time.monotonic() - began:.0f} s later; {requeued} requeues", flush=True)
        for where in PAUSES:
            client.jobs.get(where).delete(timeout=LONG)
        for pool in client.pools.list():
            client.pools.delete(pool.id, timeout=LONG)
        check(not client.pools.list() and not client.jobs.list(), "pools or jobs are left")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _agents(emulator: int) -> list[psutil.Process]:
    try:
        return [one for one in psutil.Process(emulator).children() if any("agent.py" in word for word in one.cmdline())]
    except psutil.Error:
        return []


# --- lost answers ---------------------------------------------------------------------------------------------------


def runs(place: Path, count: int, rate: float, seed: int) -> None:
    """Real gangs, one after the other."""
    status = server.spawn(server.Settings(data_dir=place, port=0))
    mapped_images.map_image(place, "example/mpich:digits", mpi_prefix("mpich"))
    environment = {**os.environ, "BATCHTRAIN_EMULATOR_DIR": str(place), "DOCKER_HOST": "unix:///no/engine"}
    client = Client(Account(status.endpoint, status.account, Secret(status.key), emulated=True))
    print(f"runs of 2x2 MPICH while {rate:.0%} of all answers are dropped:", flush=True)
    try:
        for number in range(count):
            steering.fault(status, "drop", rate=rate, seed=seed + number)
            _run(number, environment, fails=number % 3 == 2)
            (fault,) = steering.faults(status)
            steering.clear_faults(status)
            print(f"    {fault['struck']} answers were dropped", flush=True)
            check(not client.pools.list() and not client.jobs.list(), f"run {number}: pools or jobs are left")
            check(ended(place), f"run {number}: processes are left")
    finally:
        server.stop(place)


def _run(number: int, environment: dict[str, str], *, fails: bool) -> None:
    train = f"python -u $AZ_BATCH_TASK_SHARED_DIR/train.py --epochs {EPOCHS}" + (
        " --fail-rank 1 --fail-code 7" if fails else ""
    )
    words = [str(SCRIPT), "run", str(RECIPE), "--local", "--set", f"{COMMAND_OF}={train}"]
    began = time.monotonic()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LONG, check=False)
    took = time.monotonic() - began
    wanted = 10 if fails else 0
    print(
        f"  run {number}: exit {done.returncode} in {took:.1f} s (meant to {'fail' if fails else 'train'})", flush=True
    )
    check(done.returncode == wanted, f"run {number} ended with {done.returncode}, not {wanted}: {done.stderr[-800:]}")
    if fails:
        check("exited with code 7" in done.stderr, f"run {number} does not name its own failure: {done.stderr[-800:]}")
        return
    epochs = re.findall(r"^epoch (\d+) loss", done.stdout, re.M)
    check(epochs == [str(n + 1) for n in range(EPOCHS)], f"run {number} printed the epochs {epochs}")
    check(len(re.findall(r"^test accuracy 0\.9", done.stdout, re.M)) == 1, f"run {number} has no result")


if __name__ == "__main__":
    sys.exit(main())
