"""Print what a million tasks cost the emulator: `python tests/bench/million.py [--tasks N]`. Not a test.

The tasks are added in collections, run to their end on 1,000 simulated nodes, listed and filtered, and read again after
`kill -9`. `cpu` is what the emulator's own process used: on a busy machine it says more than the time on the wall.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from batchtrain.emulator import server, wire  # noqa: E402
from tests.bench.emulator import (  # noqa: E402
    SIMULATED,
    VERSION,
    Service,
    Taken,
    at_least,
    at_most,
    collections,
    pages,
    send,
    timed,
    until_completed,
)  # fmt: skip

NODES, SLOTS = 1_000, 4
JOB = "/jobs/many/tasks"
FILTERS = (
    "state eq 'completed'",
    "state eq 'running'",
    "state eq 'active'",
    "executionInfo/result eq 'failure'",
    "stateTransitionTime gt DateTime'{now}'",
    "stateTransitionTime lt DateTime'2020-01-01T00:00:00Z'",
    "startswith(id, 't{last}')",
    "id eq 't{last}'",
    "executionInfo/result eq 'failure' and stateTransitionTime gt DateTime'2020-01-01T00:00:00Z'",
    "executionInfo/exitCode gt 0",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a million tasks cost the emulator.")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    tasks = parser.parse_args().tasks
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data"
        began = _born(data, 0)
        try:
            with ExitStack() as stack:
                service = Service(server.at(data), stack)
                print(f"started in {began.wall:.2f} s, {service.resident():.0f} MB", flush=True)
                _add_and_run(service, tasks)
                _read(service, tasks)
                service.process.kill()
                service.process.wait()
            again = _born(data, tasks)
            at_most(f"restart with {tasks:,} tasks", again.wall, 15, "s", f"cpu {again.cpu:.1f} s")
            with ExitStack() as stack:
                service = Service(server.at(data), stack)
                assert service.completed("many") == tasks
                _weigh("after the restart", service, tasks)
                _read(service, tasks)
        finally:
            server.stop(data)


def _born(data: Path, tasks: int) -> Taken:
    """The time until an emulator has answered."""
    settings, start = server.Settings(data, port=0, quotas={"nodes": 2 * NODES}), time.perf_counter()
    with ExitStack() as stack:
        used = Service(server.spawn(settings, timeout=600), stack).cpu()
    return Taken(time.perf_counter() - start, used)


def _add_and_run(service: Service, tasks: int) -> None:
    service.pool("simulated", NODES, metadata=SIMULATED, taskSlotsPerNode=SLOTS)
    service.job("many", "simulated")
    service.ask("POST", "/jobs/many/disable", {"disableTasks": "requeue"})
    at_least(
        f"{tasks:,} tasks added",
        tasks,
        timed(service, lambda: send(service, collections(service, "many", tasks))),
        25_000,
    )
    _weigh("added", service, tasks)

    def run() -> None:
        service.ask("POST", "/jobs/many/enable")
        until_completed(service, "many", tasks)

    at_least(f"{tasks:,} tasks run to their end", tasks, timed(service, run), 5_000)
    _weigh("completed", service, tasks)


def _weigh(when: str, service: Service, tasks: int) -> None:
    at_most(
        f"memory for each task, {when}", 1e6 * service.resident() / tasks, 1_000, "B", f"{service.resident():.0f} MB"
    )


def _read(service: Service, tasks: int) -> None:
    _time("taskcounts", 20, lambda: service.completed("many"), service)
    _time("a page with $select", 20, lambda: service.ask("GET", JOB, query=f"{VERSION}&$select=id,state"), service)
    now = wire.timestamp(server.clock())
    for text in FILTERS:
        text = text.format(now=now, last=tasks - 1)
        query = f"{VERSION}&$filter={quote(text, safe='')}&$select=id,state&maxresults=100"
        _time(text, 20, lambda query=query: service.ask("GET", JOB, query=query), service)  # type: ignore[misc]
    taken = timed(service, lambda: sum(len(page["value"]) for page in pages(service, JOB, "$select=id,state")))
    at_most(f"all {tasks:,} listed with $select", taken.wall, tasks / 1e5 * 1.5, "s", f"cpu {taken.cpu:.1f} s")


def _time(what: str, promise: float, ask: Callable[[], object], service: Service) -> None:
    taken = [timed(service, ask) for _ in range(3)]
    wall, cpu = (statistics.median(times) for times in zip(*taken, strict=True))
    at_most(what[:46], wall * 1e3, promise, "ms", f"cpu {cpu * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
