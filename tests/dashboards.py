"""A dashboard with something to see, for tests and screenshots: pools, jobs, a training, a failure, recorded runs."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from azure.batch import BatchClient

from batchtrain.service.requests import ask
from batchtrain.testing import SIMULATED
from tests.emulation import POOL

SCRIPT = Path(sys.executable).parent / "batchtrain"
TRAINING = """
import math, sys, time
epochs, pause = int(sys.argv[1]), float(sys.argv[2])
for epoch in range(1, epochs + 1):
    for rank in range(4):
        loss = 2.3 * math.exp(-epoch / 12) + 0.05 * math.sin(epoch * 1.7 + rank) + 0.08
        print(f"[{rank // 2}:{rank}] epoch {epoch} loss {loss:.4f} accuracy {1 - loss / 3:.4f}", flush=True)
    time.sleep(pause)
"""
FAILURE = """
import sys
print("Traceback (most recent call last):", file=sys.stderr)
print('  File "train.py", line 41, in <module>', file=sys.stderr)
print("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.npz'", file=sys.stderr)
sys.exit(1)
"""
HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
    " \x1b]52;c;aGk=\x07 [/b] \x00 \x1b[31mred\x1b[0m"
)
"""What a task may print: markup, a command for the clipboard, NUL, a colour."""


class Dashboard(NamedTuple):
    """A running `batchtrain dashboard`."""

    url: str
    token: str
    process: subprocess.Popen[str]

    @property
    def link(self) -> str:
        return f"{self.url}/#token={self.token}"

    def ask(
        self, path: str, *, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of an answer. Without `headers` the request has the token."""
        given = {"Authorization": f"Bearer {self.token}"} if headers is None else headers
        request = Request(f"{self.url}{path}", method=method, data=body, headers=dict(given))
        try:
            with urlopen(request) as answer:
                return answer.status, answer.headers, answer.read()
        except HTTPError as error:
            return error.code, error.headers, error.read()

    def get(self, path: str) -> Any:
        """A document of the API."""
        status, _, body = self.ask(f"/api/v1{path}")
        assert status == 200, body
        return json.loads(body)

    def events(self, topic: str, enough: Callable[[str], bool], position: str = "") -> tuple[str, str]:
        """The text of a log's events after a position, until it is enough; and the position then."""
        headers = {"Authorization": f"Bearer {self.token}", "Last-Event-ID": position}
        text = ""
        with urlopen(Request(f"{self.url}/api/v1/events?watch={topic}", headers=headers)) as stream:
            for line in stream:
                if line.startswith(b"id: "):
                    position = line[4:].decode().strip()
                if line.startswith(b"data: ") and b'"value":{' in line:
                    text += json.loads(line[6:])["value"]["text"]
                    if enough(text):
                        return position, text
        raise AssertionError(text)


@contextmanager
def dashboard(environment: Mapping[str, str], *options: str, runs: Path) -> Iterator[Dashboard]:
    """`batchtrain dashboard` as a script starts it; ended by Ctrl-C, quietly."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AZURE_", "BATCHTRAIN_"))}
    words = [str(SCRIPT), "dashboard", "--no-open", "--port", "0", "-o", "json", "--runs-dir", str(runs), *options]
    process = subprocess.Popen(
        words, env={**kept, **environment}, cwd=runs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        assert first, process.communicate()[1]
        document = json.loads(first)
        assert document["link"] == f"{document['url']}/#token={document['token']}"
        yield Dashboard(document["url"], document["token"], process)
    finally:
        process.send_signal(2)
        out, err = process.communicate()
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err, err


class Gate:
    """Where a task waits until the test lets it go on; by a socket, because nodes have a /tmp of their own."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.wait = f"import socket; socket.create_connection({self._listener.getsockname()!r}).recv(1)"
        """The Python statement of the task."""

    def open(self) -> None:
        """Let the task go on, when it has come here."""
        with self._listener, self._listener.accept()[0] as connection:
            connection.send(b"x")


# --- what there is to see -------------------------------------------------------------------------------------------


def add_pool(client: BatchClient, pool_id: str, nodes: int, *, simulated: bool = False, **more: object) -> None:
    """A pool of this machine, or of nodes that only keep time."""
    metadata = [SIMULATED] if simulated else []
    body = {**POOL, "id": pool_id, "targetDedicatedNodes": nodes, "metadata": metadata, **more}
    ask(client, "POST", "/pools", f"add pool {pool_id}", body)


def add_job(client: BatchClient, job_id: str, pool_id: str, **tasks: str) -> None:
    """A job with tasks, by id and command."""
    ask(client, "POST", "/jobs", f"add job {job_id}", {"id": job_id, "poolInfo": {"poolId": pool_id}})
    for task_id, command in tasks.items():
        ask(client, "POST", f"/jobs/{job_id}/tasks", f"add {task_id}", {"id": task_id, "commandLine": command})


def python(script: str, *arguments: object) -> str:
    """A command line that runs a script."""
    quoted = script.replace("\\", "\\\\").replace('"', '\\"')
    return " ".join([sys.executable, "-c", f'"{quoted}"', *map(str, arguments)])


def furnish(client: BatchClient, *, epochs: int = 60, pause: float = 0.0) -> None:
    """Pools, a training, a failure and a sweep."""
    add_pool(client, "cpu", 2, taskSlotsPerNode=2)
    packed = {"nodeFillType": "pack"}
    add_pool(client, "gpu-a100", 48, simulated=True, taskSlotsPerNode=4, taskSchedulingPolicy=packed)
    add_job(client, "digits", "cpu", train=python(TRAINING, epochs, pause), broken=python(FAILURE))
    add_job(client, "sweep", "gpu-a100", **{f"lr-{number:03}": _trial(number) for number in range(120)})


def _trial(number: int) -> str:
    """The command of a simulated task: most run for an hour, some have ended, of these some have failed."""
    return "sleep 3600" if number % 9 else f"exit {int(number % 4 == 0)}"


def record(root: Path, name: str, *, loss: float, state: str = "completed", **settings: str) -> None:
    """A run directory, as `run` leaves it."""
    folder = root / name
    for part in ("metrics", "logs/train", "outputs/train"):
        (folder / part).mkdir(parents=True)
    values = [(step, 2.3 * math.exp(-step / 14) + loss) for step in range(1, 61)]
    points = [
        {"t": 1795420000.0 + step, "rank": 0, "step": step, "loss": value, "accuracy": 1 - value / 3}
        for step, value in values
    ]
    _write_lines(folder / "metrics/train.jsonl", points)
    (folder / "logs/train/stdout.txt").write_text("".join(f"epoch {step} loss {value:.4f}\n" for step, value in values))
    (folder / "outputs/train/model.txt").write_text("weights\n" * 200)
    result = "success" if state == "completed" else "failure"
    _write_lines(folder / "tasks.jsonl", [{"id": "train", "state": "completed", "result": result, "seconds": 61.2}])
    texts = ("pool cpu is created", "pool cpu: steady, 2 idle of 2", "task train is added", "3 files fetched")
    events = [
        {"t": f"2026-11-22T11:15:{4 + 9 * at:02}Z", "kind": "x", "subject": "", "text": text}
        for at, text in enumerate(texts)
    ]
    _write_lines(folder / "events.jsonl", events)
    summary = {key: {"last": points[-1][key], "best": points[-1][key], "step": 60} for key in ("loss", "accuracy")}
    failure = {"message": "task digits/train failed: rank 2 on node n1 exited with code 1"}
    document = {
        "id": name,
        "state": state,
        "started": "2026-11-22T11:15:02Z",
        "ended": "2026-11-22T11:16:10Z",
        "account": "batchtrain",
        "pool": "cpu",
        "job": "digits",
        "vm_size": "standard_d2_v3",
        "nodes": 2,
        "node_hours": 0.04,
        "cost": {
            "currency": "USD",
            "region": "westeurope",
            "dedicated": 0.12,
            "spot": 0.02,
            "hour": 0.24,
            "run": 0.0048,
        },
        "command": ["batchtrain", "run", "recipes/MPI-Digits"],
        "settings": settings,
        "summary": summary,
        "failure": failure if state == "failed" else None,
    }
    (folder / "run.json").write_text(json.dumps(document))


BEGUN = 1795346102.0
"""The start of the recorded runs, in seconds since 1970."""
GANG, LARGE = "20261122T171502Z-language-3d90", "20261122T191502Z-language-b7c1"


def record_gang(root: Path, name: str, ranks: int, *, hung: int, steps: int = 60) -> None:
    """A run of a gang whose rank `hung` stood still, until the run was interrupted."""
    record(root, name, loss=0.1, state="interrupted")
    folder, end = root / name, BEGUN + 68
    lines: list[str] = []
    points: list[dict[str, Any]] = []
    states: list[dict[str, Any]] = []
    for rank in range(ranks):
        node, pace = f"n{rank // 8}", 0.4 if rank == 1 else 0.2
        last = steps - 20 if rank == hung else steps - 2 if rank == 1 else steps - rank % 2
        for step in range(1, last + 1):
            loss = 2.3 * math.exp(-step / 14) + 0.1 + 0.02 * math.sin(step + rank)
            t = BEGUN + step * pace
            points.append({"t": t, "rank": rank, "step": step, "loss": None if (rank, step) == (2, 9) else loss})
            lines.append(f"[{rank // 8}:{rank}] step {step}/120 loss {loss:.4f}\n")
        text = f"step {last}/120 loss {loss:.4f}"
        heard = end - (50 if rank == hung else 2 + rank % 3)
        states.append({"number": rank, "node": node, "lines": last, "last": text, "heard": heard, "step": last})
    for number in range(-(-ranks // 8)):
        for second in range(0, 60, 5):
            use = {"cpu_percent": 60 + 9 * math.sin(second + number), "gpu_percent": 90.0, "memory_gib": 11.5}
            points.append({"t": BEGUN + second, "node": f"n{number}", **use})
    _write_lines(folder / "metrics/train.jsonl", points)
    _write_lines(folder / "attempts.jsonl", _attempts())
    document = {"ranks": states, "progress": {"unit": "step", "at": steps - 20, "of": 120}}
    (folder / "metrics/train.ranks.json").write_text(json.dumps(document))
    (folder / "logs/train/stdout.txt").write_text("".join(lines))
    half = len("".join(lines[: len(lines) // 2]))
    times = [{"file": "stdout", "at": 0, "time": BEGUN}, {"file": "stdout", "at": half, "time": BEGUN + 40}]
    _write_lines(folder / "logs/train/times.jsonl", times)
    (folder / "logs/train/stderr.txt").write_text(COLOURS)


def _attempts() -> Iterator[dict[str, Any]]:
    """A preemption, a failure, and the last attempt."""
    reasons = [("preempted", 2, 18, None), ("exit code", 20, 31, 1), ("", 33, 68, None)]
    for number, (reason, start, end, code) in enumerate(reasons, 1):
        times = {"started": _time(start), "ended": _time(end), "checkpoint": f"step-{10 * number - 10}"}
        yield {"task": "train", "number": number, "nodes": ["n0"], "reason": reason, "exit_code": code, **times}


def _time(second: float) -> str:
    return datetime.fromtimestamp(BEGUN + second, timezone.utc).isoformat()


COLOURS = (
    "\x1b[1mbold\x1b[22m \x1b[38;5;208morange\x1b[0m \x1b[48;2;30;90;200mon blue\x1b[0m \x1b[7mreverse\x1b[0m"
    " \x1b[4munderlined\x1b[0m \x1b[31mred\x1b[39m turned \u202etxt.exe\n"
)
"""Styles of a terminal, and a character that turns the direction of a line."""


def _write_lines(path: Path, rows: Iterable[object]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def record_three(root: Path) -> None:
    """Three runs of one recipe."""
    record(root, "20261122T111502Z-digits-7f3a", loss=0.09, learning_rate="0.1")
    record(root, "20261122T131502Z-digits-1c2e", loss=0.14, learning_rate="0.01")
    record(root, "20261122T151502Z-digits-aa01", loss=0.6, state="failed", learning_rate="1.0")


def record_gangs(root: Path) -> None:
    """A gang of eight ranks, and one of 1,024."""
    record_gang(root, GANG, 8, hung=5)
    record_gang(root, LARGE, 1024, hung=700, steps=30)
