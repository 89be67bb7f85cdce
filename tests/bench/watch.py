"""Print what looking at a large job costs: `python tests/bench/watch.py [--tasks N]`. Not a test: nothing fails.

The tasks run on simulated nodes; every hundredth fails. Requests are those that the client sends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from batchtrain.client.client import Client  # noqa: E402
from batchtrain.config.types import Secret  # noqa: E402
from batchtrain.runs.log_follower import Follow  # noqa: E402
from batchtrain.service import watch  # noqa: E402
from batchtrain.service.connect import Account  # noqa: E402
from tests.bench.emulator import SIMULATED, Service, emulator, send  # noqa: E402
from tests.bench.submit import children  # noqa: E402

SCRIPT = Path(sys.executable).parent / "batchtrain"
NODES, SLOTS = 200, 4


class Counting:
    """Counts the requests of a client."""

    def __init__(self, client: Any) -> None:
        self.count, self._send = 0, client._client._pipeline.run
        client._client._pipeline.run = self._run

    def _run(self, request: Any, **options: Any) -> Any:
        self.count += 1
        return self._send(request, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description="What looking at a large job costs.")
    parser.add_argument("--tasks", type=int, default=100_000)
    tasks = parser.parse_args().tasks
    with tempfile.TemporaryDirectory() as place, emulator(Path(place) / "data") as service:
        service.pool("p", NODES, metadata=SIMULATED, taskSlotsPerNode=SLOTS)
        service.job("many", "p")
        status = service.status
        client = Client(Account(status.endpoint, status.account, Secret(status.key), emulated=True))
        counting = Counting(client.batch)
        send(service, _collections(service, tasks))
        job = client.jobs.handle("many")
        _line("glance while it runs", counting, job.glance)
        _watched(client, counting, watch.FAR._replace(first=2.0, most=2.0))
        _line("wait to the end", counting, lambda: job.wait(check=False, timeout=3600))
        _line("glance at the end", counting, job.glance)
        _line("the first 20 failed tasks", counting, lambda: list(job.iter_tasks("failed", limit=20)))
        _line("all failed tasks", counting, lambda: list(job.iter_tasks("failed")))
        _line("one task", counting, lambda: job.seen_task("t7"))
        _line("all tasks", counting, lambda: sum(1 for _ in job.iter_tasks()))
        _line("the last 20 tasks", counting, lambda: job.last_tasks(20))
        _line("stats", counting, job.stats)
        _command(service, "show", "many", most=" (≤ 1 s)")
        failed = ("tasks", "many", "--state", "failed")
        for words in ((*failed, "--tail", "20"), failed, ("tasks", "many")):
            _command(service, *words)


def _collections(service: Service, count: int) -> Iterator[bytes]:
    for start in range(0, count, 100):
        batch = [
            {"id": f"t{start + number}", "commandLine": "sleep 1; exit 3" if number == 50 else "sleep 1"}
            for number in range(100)
        ]
        yield service.request("POST", "/jobs/many/addtaskcollection", {"value": batch})


def _line(what: str, counting: Counting, work: Callable[[], object]) -> None:
    before, start, used = counting.count, time.perf_counter(), time.process_time()
    work()
    took, requests, cpu = time.perf_counter() - start, counting.count - before, time.process_time() - used
    rate = requests / took
    print(f"{what:30} {took:8.3f} s (cpu {cpu:6.3f} s) {requests:6} requests {rate:8.2f} requests/s", flush=True)


def _watched(client: Client, counting: Counting, pace: watch.Pace, seconds: float = 30.0) -> None:
    """Following for some seconds at the pace of Azure, with the output of the first tasks and the failures."""
    job = client.jobs.handle("many")
    follow = Follow(client.batch, job, lambda event: None)
    deadline = watch.Deadline(seconds, "the bench")

    def work() -> None:
        with contextlib.suppress(watch.TimedOut):
            watch.tasks_ended(client.batch, job.id, deadline, pace, follow.look)

    _line("followed at the pace of Azure", counting, work)


def _command(service: Service, *words: str, most: str = "") -> None:
    environment = {**os.environ, **service.status.environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has compiled modules
    start, used = time.perf_counter(), children()
    done = subprocess.run([SCRIPT, "jobs", *words], env=environment, capture_output=True, check=True, cwd="/")
    took, cpu, lines = time.perf_counter() - start, children() - used, len(done.stdout.splitlines())
    print(f"{'batchtrain jobs ' + ' '.join(words):55} {took:8.3f} s{most} (cpu {cpu:6.3f} s) {lines} lines", flush=True)


if __name__ == "__main__":
    main()
