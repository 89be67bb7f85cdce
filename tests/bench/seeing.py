"""`python tests/bench/dashboard.py`: start, memory, the delay of a line, and large lists, as printed numbers."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).parents[2]))
from batchtrain.client import connect
from batchtrain.service.requests import ask
from batchtrain.testing import emulated_batch
from tests import dashboards
from tests.dashboards import Dashboard

LINES = "import time\nfor _ in range(100): print(time.time(), flush=True); time.sleep(0.05)"
TASKS = 100_000


def main() -> None:
    """Print the numbers."""
    with tempfile.TemporaryDirectory() as folder, emulated_batch() as service:
        batch = connect(environment=service.environment).batch
        dashboards.add_pool(batch, "cpu", 1)
        dashboards.add_pool(batch, "large", 1000, simulated=True)
        dashboards.add_job(batch, "many", "large")
        for at in range(0, TASKS, 100):
            body = {"value": [{"id": f"t{number:06}", "commandLine": "sleep 9"} for number in range(at, at + 100)]}
            ask(batch, "POST", "/jobs/many/addtaskcollection", "add tasks", body)
        began = time.monotonic()
        with dashboards.dashboard(service.environment, runs=Path(folder)) as running:
            print(f"ready in {time.monotonic() - began:.2f} s, processor {_cpu(running):.2f} s")
            print(f"memory idle: {_memory(running):.0f} MB")
            dashboards.add_job(batch, "lines", "cpu", talk=dashboards.python(LINES))
            delays = _delays(running)
            print(f"a line to the stream: median {statistics.median(delays):.3f} s, most {max(delays):.3f} s")
            for path in ("/pools/large/nodes", "/jobs/many", "/jobs/many/tasks", "/jobs/many/tasks?state=failed"):
                print(f"{path}: {_timed(lambda path=path: running.get(path)):.3f} s")  # type: ignore[misc]
            print(f"memory then: {_memory(running):.0f} MB")
    help_ = [str(dashboards.SCRIPT), "--help"]
    print(f"--help: {_timed(lambda: subprocess.run(help_, capture_output=True, check=True)):.3f} s")


def _delays(running: Dashboard) -> list[float]:
    headers = {"Authorization": f"Bearer {running.token}"}
    found: list[float] = []
    with urlopen(Request(f"{running.url}/api/v1/events?watch=/jobs/lines/tasks/talk/logs", headers=headers)) as stream:
        for line in stream:
            if line.startswith(b"data: ") and b'"text"' in line:
                now = time.time()
                found += [now - float(text) for text in json.loads(line[6:])["value"]["text"].split()]
            if len(found) >= 100:
                break
    return found[20:]  # what was printed before the stream was open does not count


def _timed(call: Callable[[], Any]) -> float:
    """The best of five."""
    times = []
    for _ in range(5):
        began = time.monotonic()
        call()
        times.append(time.monotonic() - began)
    return min(times)


def _memory(running: Dashboard) -> float:
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _cpu(running: Dashboard) -> float:
    fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
