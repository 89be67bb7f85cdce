"""Print what seeing runs costs, beside its limit: `python tests/bench/seeing.py [runs dashboard terminal azure]`.

Not a test: nothing fails. `azure` counts requests at Azure's pace against an emulator.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import io
import json
import os
import pty
import re
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.request import Request, urlopen

import psutil
from rich.console import Console
from rich.live import Live

sys.path.insert(0, str(Path(__file__).parents[2]))
from batchtrain.cli.live_block import _Shown
from batchtrain.client.client import Client, connect
from batchtrain.config.types import Secret
from batchtrain.dashboard import recorded
from batchtrain.dashboard.app import STATIC
from batchtrain.dashboard.board import Board, Viewer
from batchtrain.dashboard.budget import Budget
from batchtrain.dashboard.connection import Connection
from batchtrain.dashboard.reading import topic
from batchtrain.runs import compare, directory
from batchtrain.runs.curves import columns
from batchtrain.runs.log_follower import Follow
from batchtrain.service import watch
from batchtrain.service.connect import Account
from batchtrain.service.requests import ask
from batchtrain.testing import emulated_batch
from tests import block_pictures, dashboards
from tests.bench.run import JOBS, POOL, line
from tests.bench.watch import Counting
from tests.browsers import browser
from tests.dashboards import Dashboard

TICKS = "import time\nfor _ in range(200): print(time.time(), flush=True); time.sleep(0.05)"
STAMP = re.compile(rb"\b(1[789]\d{8}\.\d+)")
TASKS, LINES, MINUTE = 100_000, 1_000_000, 60.0
FOUND = 3_000_000
"""Lines of a log that is searched."""
METRICS = {f"metric{number}": 0.123456 * number for number in range(10)}
REDRAW = b"\x1b[2K\x1b[1A"
"""How rich moves the cursor up over the block, at least once in each redraw."""


def main() -> None:
    """Print the numbers of the named parts, or of all."""
    parts = {"runs": of_runs, "dashboard": of_dashboard, "terminal": of_terminal, "azure": of_azure}
    for name in sys.argv[1:] or parts:
        with tempfile.TemporaryDirectory() as folder:
            parts[name](Path(folder))


def timed(call: Callable[[], Any], times: int = 5, clock: Callable[[], float] = time.perf_counter) -> float:
    """The best of some."""
    taken = []
    for _ in range(times):
        began = clock()
        call()
        taken.append(clock() - began)
    return min(taken)


def computed(call: Callable[[], Any], times: int = 5) -> float:
    """The processor time of this process, which other work on the machine does not change."""
    return timed(call, times, time.process_time)


# --- recorded runs --------------------------------------------------------------------------------------------------


def of_runs(place: Path) -> None:
    """1,000 run directories, and 100 with 10,000 lines of 10 metrics."""
    for number in range(1000):
        dashboards.record(place, f"20261122T{number:06}Z-digits-{number:04x}", loss=0.1)
    line("runs list, 1,000 runs", computed(lambda: [compare.row(run.record()) for run in directory.runs(place)]), 0.2)
    line("runs page of the dashboard, 1,000 runs", computed(lambda: recorded.listed(place), 1), 0.2)
    rows = (json.dumps({"t": 1.8e9 + step, "rank": 0, "step": step, **METRICS}) for step in range(10_000))
    (place / "rows").write_text("\n".join(rows), encoding="utf-8")
    chosen = list(directory.runs(place))[:100]
    for run in chosen:
        (run.path / "metrics" / "train.jsonl").unlink()
        os.link(place / "rows", run.path / "metrics" / "train.jsonl")
    line("read metrics, 100 runs x 10 x 10^4", computed(lambda: [len(run.metrics().task) for run in chosen], 1), 2.0)
    values = [(float(step), float(step), step % 977 / 977, None) for step in range(100_000)]
    curves = [columns(values) for _ in range(16)]
    line("points sent of a curve of 10^5", max(len(curve["value"]) for curve in curves), 2000, "")
    line("16 curves of 10^5 points thinned", computed(lambda: [columns(values) for _ in range(16)], 1), 1.0)
    of_large_run(place)


def of_large_run(place: Path) -> None:
    """A search in 223 MB, and the ranks and the curves of a gang of 1,024."""
    dashboards.record_gang(place, dashboards.LARGE, 1024, hung=700, steps=30)
    task = recorded.task(place, dashboards.LARGE, "train")
    with (task.run.logs("train") / "stdout.txt").open("w", encoding="utf-8") as file:
        for number in range(FOUND):
            file.write(f"[0:{number % 1024}] step {number} loss 0.1234 accuracy 0.5678 images/sec 1234.5\n")
    line(
        f"search in {task.size('stdout.txt') / 1e6:.0f} MB",
        computed(lambda: task.search("stdout.txt", "5678 i", None, 0), 1),
        5.0,
    )
    line("its matches", task.search("stdout.txt", "step 77 ", None, 0)["matches"], 1, "")
    stream = task.run.logs("train") / "ranks/stream.jsonl"
    stream.parent.mkdir()
    with stream.open("w", encoding="utf-8") as file:
        for number in range(FOUND // 3):
            rank = f'"rank": {number % 1024}, "file": "stdout", "at": {number // 1024 * 80}'
            file.write(f'{{"time": {1.7e9 + number // 1024}, {rank}, "line": "step {number} loss 0.1234"}}\n')
    size = stream.stat().st_size / 1e6
    line(f"times of a rank, from {size:.0f} MB", computed(lambda: task.times("ranks/9.stdout.txt", 0, 9999), 1), 5.0)
    line("  again", computed(lambda: task.times("ranks/9.stdout.txt", 0, 9999), 1), 0.05)
    line("ranks of 1,024, first", computed(lambda: recorded.ranks(place, dashboards.LARGE, "train"), 1), 1.0)
    line(
        "ranks of 1,024, their bytes",
        len(json.dumps(recorded.ranks(place, dashboards.LARGE, "train"))) / 1e3,
        100,
        "kB",
    )
    line("curves of 1,024 ranks", len(json.dumps(task.metrics())) / 1e3, 100, "kB")


# --- the dashboard --------------------------------------------------------------------------------------------------


def of_dashboard(place: Path) -> None:
    """Its start, its idle cost, the delay of a line, a job of 10^5 tasks and a log of 10^6 lines."""
    with emulated_batch() as service:
        batch = connect(environment=service.environment).batch
        dashboards.add_pool(batch, "cpu", 1)
        dashboards.add_pool(batch, "large", 1000, simulated=True)
        dashboards.add_job(batch, "long", "cpu", t=f"seq {LINES}")
        dashboards.add_job(batch, "many", "large")
        for at in range(0, TASKS, 100):
            body = {"value": [{"id": f"t{number:06}", "commandLine": "sleep 9"} for number in range(at, at + 100)]}
            ask(batch, "POST", "/jobs/many/addtaskcollection", "add tasks", body)
        began = time.monotonic()
        with dashboards.dashboard(service.environment, runs=place) as running:
            line("dashboard ready", time.monotonic() - began, 1.0)
            process = psutil.Process(running.process.pid)
            process.cpu_percent()
            time.sleep(10)
            line("dashboard idle, of a core", process.cpu_percent(), 1.0, "%")
            line("dashboard idle, memory", process.memory_info().rss / 1e6, 90, "MB")
            dashboards.add_job(batch, "lines", "cpu", talk=dashboards.python(TICKS))
            line("a line to the page, median of 100", statistics.median(delays(running)), 0.3)
            large_job(running)
            long_log(running)
            painted(running)


def delays(running: Dashboard) -> list[float]:
    """Seconds between the print of a line and its event."""
    headers = {"Authorization": f"Bearer {running.token}"}
    found: list[float] = []
    with urlopen(Request(f"{running.url}/api/v1/events?watch=/jobs/lines/tasks/talk/logs", headers=headers)) as stream:
        for event in stream:
            if event.startswith(b"data: ") and b'"text"' in event:
                now = time.time()
                found += [now - float(text) for text in json.loads(event[6:])["value"]["text"].split()]
            if len(found) >= 120:
                return found[20:]  # what was printed before the stream was open does not count
    raise AssertionError("the task ended early")


def large_job(running: Dashboard) -> None:
    """The first page of a job of 10^5 tasks: its documents, and the files of the page."""
    documents = ("/account", "/jobs/many", "/jobs/many/tasks")
    line("first page, its documents", sum(timed(lambda path=path: running.get(path)) for path in documents), 1.0)  # type: ignore[misc]
    files = [file for file in STATIC.rglob("*") if file.suffix in (".html", ".js", ".css", ".svg")]
    sent = sum(len(gzip.compress(file.read_bytes(), 5)) for file in files)
    sent += sum(len(running.ask(f"/api/v1{path}")[2]) for path in documents)  # the stream is not compressed
    line("first page, bytes", sent / 1e3, 150, "kB")
    line("rows of a page", len(running.get("/jobs/many/tasks")), 200, "")
    line("tasks that failed, of 10^5", timed(lambda: running.get("/jobs/many/tasks?state=failed")), 1.0)


def painted(running: Dashboard) -> None:
    """The page of that job in Chromium: its first paint, its rows, and the memory of the browser for it."""
    with browser() as chromium:
        page = chromium.new_context().new_page()
        page.goto(running.link)
        page.wait_for_selector("main[data-ready]")
        page.goto(f"{running.url}/jobs/many")
        page.wait_for_selector("main tbody tr")
        shown = page.evaluate("performance.now()") / 1000
        first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        line("first paint of a job of 10^5 tasks", first, 0.5)
        line("  its rows", shown, 1.0)
        processes = psutil.Process().children(recursive=True)
        renderers = [process for process in processes if "--type=renderer" in process.cmdline()]
        line("  memory of the browser for it", max(each.memory_full_info().uss for each in renderers) / 1e6, 150, "MB")


def long_log(running: Dashboard) -> None:
    """The end of a log of 10^6 lines, and the part before it."""
    path = "/jobs/long/tasks/t/logs"
    end = running.get(path)
    line(f"the end of a log of {end['size'] / 1e6:.0f} MB", timed(lambda: running.get(path)), 1.0)
    line("  its bytes", (end["end"] - end["start"]) / 1024, 256, "KiB")
    line("  earlier lines", timed(lambda: running.get(f"{path}?end={end['start']}")), 1.0)


# --- the terminal ---------------------------------------------------------------------------------------------------


def of_terminal(place: Path) -> None:
    """A run in a terminal: the delay of a line, the redraws of the block, and the processor time of the command."""
    recipe = place / "recipe"
    recipe.mkdir()
    (recipe / "pool.yaml").write_text(POOL, encoding="utf-8")
    command = json.dumps(dashboards.python(TICKS))
    (recipe / "jobs.yaml").write_text(JOBS.replace("echo hello", command), encoding="utf-8")
    (place / "runs").mkdir()
    words = [str(dashboards.SCRIPT), "run", str(recipe), "--local", "--runs-dir", str(place / "runs")]
    environment = {**os.environ, "TERM": "xterm", "BATCHTRAIN_EMULATOR_DIR": str(place / "emulator")}
    environment.pop("CI", None)
    process, screen = pty.fork()
    if process == 0:
        os.execve(words[0], words, environment)
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    found, redraws, began, used = seen(screen, psutil.Process(process))
    line("a line to the terminal, median", statistics.median(found), 0.3)
    line("redraws of the block each second", redraws / (time.monotonic() - began), 4, "")
    line("the block at 4 redraws a second, of a core", redrawn() * 400, 2, "%")
    share = used / (time.monotonic() - began) * 100
    print(f"all of `run`, which reads the emulator each 0.1 s: {share:.1f} % of a core")
    os.waitpid(process, 0)


def redrawn() -> float:
    """The processor time of one drawing of the block, in seconds."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=30)
    size = mock.patch("os.get_terminal_size", return_value=os.terminal_size((80, 30)))
    with size, Live(_Shown(block_pictures.training()), console=console, auto_refresh=False) as screen:
        return computed(lambda: [screen.refresh() for _ in range(100)]) / 100


def seen(screen: int, process: psutil.Process) -> tuple[list[float], int, float, float]:
    """The delays of the lines on a screen; the redraws since the first, its time, and the processor time since then."""
    found: list[float] = []
    redraws, began, before, used = 0, time.monotonic(), 0.0, 0.0
    known: set[bytes] = set()
    while select.select([screen], [], [], 60)[0]:
        try:
            output = os.read(screen, 1 << 16)
        except OSError:  # the command has ended
            break
        now = time.time()
        fresh = set(STAMP.findall(output)) - known
        if fresh and not known:
            redraws, began, before = -1, time.monotonic(), sum(process.cpu_times()[:2])
        known |= fresh
        found += [now - float(stamp) for stamp in fresh if now > float(stamp) > now - 60]
        redraws += REDRAW in output
        if len(known) >= 150:
            used = sum(process.cpu_times()[:2]) - before
            return found, redraws, began, used
    return found, redraws, began, used


# --- at Azure's pace ------------------------------------------------------------------------------------------------


class Far(Connection):
    """The emulator as if it were far away."""

    near = False  # type: ignore[assignment]


def of_azure(place: Path) -> None:
    """The requests of a followed run and of a page, in a minute after the burst."""
    with emulated_batch() as service:
        account = Account(service.endpoint, service.account, Secret(service.key), emulated=True)
        client = Client(account)
        dashboards.add_pool(client.batch, "cpu", 1)
        dashboards.add_job(client.batch, "lines", "cpu", talk=dashboards.python(TICKS.replace("200", "9999")))
        dashboards.add_pool(client.batch, "large", 20, simulated=True)
        dashboards.add_job(client.batch, "many", "large", **{f"t{number:04}": "sleep 30" for number in range(1000)})
        followed(client, "lines", "a run")
        followed(client, "many", "a job of many tasks")
        task = "/jobs/lines/tasks/talk"
        watched(account, place, "a task", task, f"{task}/ranks", f"{task}/metrics", f"{task}/logs")
        watched(account, place, "a job of many tasks", "/jobs/many", "/jobs/many/tasks")
        watched(account, place, "its numbers", "/jobs/many", "/jobs/many/numbers")


def followed(client: Client, job_id: str, name: str) -> None:
    """`run` at the pace of Azure."""
    counting, job = Counting(client.batch), client.jobs.handle(job_id)
    follow = Follow(client.batch, job, lambda event: None, turns=watch.FAR.turns)
    with contextlib.suppress(watch.TimedOut):
        watch.tasks_ended(client.batch, job.id, watch.Deadline(MINUTE, "the bench"), watch.FAR, follow.look)
    line(f"requests of {name} in its first minute", counting.count, 25, "")


def watched(account: Account, place: Path, name: str, *topics: str) -> None:
    """A page at the pace of Azure."""
    far = Far(account, place)
    counting = Counting(far.batch)
    board = Board(lambda url: topic(far, url), Budget(time.monotonic), near=False)
    with contextlib.closing(board):
        time.sleep(5)
        line("requests while nobody looks", counting.count, 0.001, "")
        with looking(board, *topics):
            time.sleep(MINUTE)
            line(f"requests of the page of {name} in its first minute", counting.count, 25, "")
            counting.count = 0
            time.sleep(MINUTE)
            line("  in the next minute", counting.count, 25, "")
        time.sleep(1)
        counting.count = 0
        time.sleep(5)
        line("requests after the page is closed", counting.count, 0.001, "")


@contextlib.contextmanager
def looking(board: Board, *names: str) -> Iterator[Viewer]:
    """A viewer of topics."""
    import asyncio

    async def enter() -> Viewer:
        return stack.enter_context(board.watch(names))

    with contextlib.ExitStack() as stack:
        yield asyncio.run(enter())


if __name__ == "__main__":
    main()
