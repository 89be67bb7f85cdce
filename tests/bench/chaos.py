"""Add 100,000 tasks through everything that can go wrong: `python tests/bench/chaos.py [--seed N]`. Not a test.

`batchtrain jobs add` runs again and again against the embedded service behind a proxy. The proxy refuses 1 % of the
tasks, loses every tenth answer after the service has acted on it, and throttles (`--throttle 60`: for a minute). The
service is killed half-way and started again. The client is killed 50 times at random moments. The tasks come from a
custom function, and one of them is too large for a request. Near 90 % of all tasks the function repeats an id; when
this is mended, it raises an error there; when this is mended too, the large task is shortened. Each fault must be named
with exit code 4 and exact counts. At the end the job has exactly the tasks of its plan. Prints each run, and ends with
1 at a violation. `tests/simulation` does this in virtual time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from batchtrain.client.client import Client  # noqa: E402
from batchtrain.config.types import Secret  # noqa: E402
from batchtrain.emulator import server, wire  # noqa: E402
from batchtrain.service.connect import Account  # noqa: E402
from tests.e2e.conftest import SCRIPT  # noqa: E402

POOL = """\
pool_specification:
  id: p
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 0}
  vm_configuration:
    platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}
"""
JOBS = """\
job_specifications:
- id: chaos
  tasks:
  - id: made-{0}
    command: train --seed {0} {1}
    environment_variables: {LEARNING_RATE: '0.1', DATA: /mnt/data, API_TOKEN: not-for-a-digest}
    task_factory:
      custom: {module: chaos_factory, input_args: [COUNT]}
"""
FACTORY = """from pathlib import Path


def generate(count):
    fault = Path(__file__).with_name("fault").read_text()
    for number in range(int(count)):
        if number == AT and fault == "repeat":
            yield number - 1, "x"
        if number == AT and fault == "raise":
            raise ValueError("chaos ends it")
        yield number, "y" * 1_100_000 if number == 7 and fault != "none" else "x"
"""
FAULTS = {
    "repeat": "of an earlier one",
    "raise": "ValueError: chaos ends it",
    "large": "chaos/made-7",
}
"""The faults of the custom function, one after the other, and how each is named."""
ADDING = "/addtaskcollection"
OWN_HEADERS = ("host", "connection", "content-length", "authorization", "accept-encoding", "transfer-encoding")


class Proxy(BaseHTTPRequestHandler):
    """Forwards a request, and does harm to it."""

    protocol_version = "HTTP/1.1"
    chance = random.Random(0)
    status: server.Status
    throttled_until = 0.0
    throttle = 0.0
    """Seconds of the throttling that the next request which adds tasks begins."""
    answers = 0
    adding = threading.Event()
    """Set by a request that adds tasks."""
    harm: ClassVar[Counter[str]] = Counter()
    taken: ClassVar[set[str]] = set()
    """Tasks that the service has, also if the answer was lost: it does not refuse these later."""

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        if self.throttle and self.path.split("?")[0].endswith(ADDING):
            Proxy.throttled_until, Proxy.throttle = time.monotonic() + self.throttle, 0.0
        if time.monotonic() < self.throttled_until:
            self.harm["throttled"] += 1
            self._answer(429, {"Retry-After": "0"}, b'{"code":"TooManyRequests"}')
            return
        refused: list[str] = []
        if self.path.split("?")[0].endswith(ADDING):
            self.adding.set()
            body, refused = self._without_refused(body)
        try:
            status, headers, content = self._sent(body)
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # the service is dead
            return
        if status == 200 and self.path.split("?")[0].endswith(ADDING):
            self.taken.update(row["taskId"] for row in json.loads(content)["value"])
        if refused and status == 200:
            content = self._with_refused(content, refused)
        Proxy.answers += self.path.split("?")[0].endswith(ADDING)
        if self.path.split("?")[0].endswith(ADDING) and self.answers % 10 == 5:
            self.harm["answers lost"] += 1
            self.close_connection = True
            return
        self._answer(status, headers, content)

    def _without_refused(self, body: bytes) -> tuple[bytes, list[str]]:
        tasks = json.loads(body)["value"]
        refused = [t["id"] for t in tasks if self.chance.random() < 0.01 and t["id"] not in self.taken]
        kept = [task for task in tasks if task["id"] not in refused]
        self.harm["refused"] += len(refused)
        return (json.dumps({"value": kept}).encode() if refused else body), refused

    def _with_refused(self, content: bytes, refused: list[str]) -> bytes:
        error = {"code": "InvalidPropertyValue", "message": {"value": "Chaos refuses it."}}
        more = [{"taskId": name, "status": "clienterror", "error": error} for name in refused]
        return json.dumps({"value": json.loads(content)["value"] + more}).encode()

    def _sent(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        where = urlsplit(self.status.endpoint)
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in OWN_HEADERS}
        headers["host"] = self.headers["host"]
        if self.command != "GET":
            headers["content-length"] = str(len(body))
        path, _, query = self.path.partition("?")
        account, key = self.status.account, self.status.key
        headers["authorization"] = wire.authorization(account, key, self.command, path, query, headers)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
        try:
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            told = {name: value for name, value in answer.getheaders() if name.lower() not in OWN_HEADERS}
            return answer.status, told, answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _forward

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A server whose clients may disappear."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client was killed."""


class Chaos:
    """One run of everything."""

    def __init__(self, directory: Path, count: int, seed: int) -> None:
        self.directory, self.count = directory, count
        self.chance, Proxy.chance = random.Random(seed), random.Random(seed + 1)
        self.emulator = directory / "emulator"
        Proxy.status = server.spawn(server.Settings(self.emulator, port=0))
        self.port = int(urlsplit(Proxy.status.endpoint).port or 0)
        self.proxy = Server(("127.0.0.1", 0), Proxy)
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        (directory / "pool.yaml").write_text(POOL)
        self.at = count * 9 // 10
        """The task at which the custom function fails."""
        (directory / "jobs.yaml").write_text(JOBS.replace("COUNT", str(count)))
        (directory / "chaos_factory.py").write_text(FACTORY.replace("AT", str(self.at)))
        self.set_fault("none")
        self.killer: threading.Timer | None = None
        key = Proxy.status.key
        known = {"ENDPOINT": f"http://127.0.0.1:{self.proxy.server_port}", "ACCESS_KEY": key, "ACCOUNT": "batchtrain"}
        self.environment = {**os.environ, **{f"AZURE_BATCH_{name}": value for name, value in known.items()}}
        self.client = Client(Account(Proxy.status.endpoint, "batchtrain", Secret(key)))
        self.violations: list[str] = []
        self.codes: Counter[int] = Counter()

    def stand(self) -> int:
        """The number of tasks that the service has."""
        if not self.client.jobs.state("chaos"):
            return 0
        return int(self.client.batch.get_job_task_counts("chaos").task_counts.active)

    def add(self, seconds: float | None, *, adding: bool = False) -> int:
        """Run the command, and kill it after so many seconds (adding: after it sent its first tasks). Returns its exit
        code."""
        words = [str(SCRIPT), "jobs", "add", str(self.directory), "-o", "json"]
        before, start = self.stand(), time.monotonic()
        process = subprocess.Popen(
            words, env=self.environment, cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        Proxy.adding.clear()
        try:
            while adding and process.poll() is None and not Proxy.adding.wait(0.2):
                pass
            _, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            _, stderr = process.communicate()
        code, stands = process.returncode, self.stand()
        self.codes[code] += 1
        took = time.monotonic() - start
        print(
            f"  {took:5.1f} s: exit {code:3}, tasks {before:7,} -> {stands:7,}  {self._checked(code, stderr, stands)}"
        )
        sys.stdout.flush()
        return code

    def _checked(self, code: int, stderr: str, stands: int) -> str:
        """Hold the answer of the command against the service; returns what to print."""
        if code not in (0, 4, 5, -9) or (code == 0 and self.fault != "none"):
            self.violations.append(f"exit {code} with the fault {self.fault}: {stderr[-400:]}")
        if code != 4:
            return ""
        document = json.loads(stderr.strip().splitlines()[-1])
        message = str(document["message"])
        if document["code"] == "TooManyRequests":
            return message[:90]
        if document.get("added") != stands:
            self.violations.append(f"it counts {document.get('added')} tasks, and the service has {stands}")
        made = self.at if self.fault in ("repeat", "raise") else self.count
        if document["added"] + len(document["refused"]) != made:
            self.violations.append(f"{document['added']} and {len(document['refused'])} refused are not {made}")
        refused = [task["task"] for task in document["refused"]]
        self.named |= self.fault != "none" and FAULTS[self.fault] in " ".join(
            (message, *(f"chaos/{i}" for i in refused))
        )
        if ("made-7" in refused) != (self.fault != "none"):
            self.violations.append(f"made-7 is {'' if 'made-7' in refused else 'not '}refused with {self.fault}")
        return message[:90]

    def kill_emulator(self) -> None:
        """Kill the service, and start the next on its data and port a moment later."""
        psutil.Process(Proxy.status.pid).kill()
        Proxy.harm["service killed"] += 1
        time.sleep(self.chance.uniform(0.2, 2.0))
        Proxy.status = server.spawn(server.Settings(self.emulator, port=self.port))

    def set_fault(self, fault: str) -> None:
        """Choose what the custom function does wrong from now on."""
        self.fault, self.named = fault, False
        (self.directory / "fault").write_text(fault)

    def run(self, kills: int, longest: float, throttle: float) -> None:
        subprocess.run(
            [str(SCRIPT), "pool", "add", str(self.directory), "--no-wait"],
            env=self.environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        for order, fault in enumerate(FAULTS):
            self.set_fault(fault)
            for number in range(order, kills, len(FAULTS)):
                self._add_once(number, kills, longest)
            if order == 1:
                Proxy.throttle = throttle
            until = 20
            while not self.named and until:
                self.add(None)
                until -= 1
            if not self.named:
                self.violations.append(f"the fault {fault} was not named: {FAULTS[fault]}")
        if self.killer is not None:
            self.killer.join()
        self.set_fault("none")
        for _ in range(50):
            if self.add(None) == 0:
                break
        names = [task.id for task in self.client.jobs.get("chaos").tasks]
        again = self.add(None)
        for harm in ("throttled", "refused", "answers lost", "service killed"):
            if not Proxy.harm[harm]:
                self.violations.append(f"it was never so: {harm}")
        if again != 0 or len(names) != self.count or len({name.lower() for name in names}) != self.count:
            self.violations.append(f"{len(names)} tasks, {len(set(names))} of them distinct, at last exit {again}")
        print(f"{len(names):,} tasks, {len(set(names)):,} distinct; exit codes {dict(self.codes)}; {dict(Proxy.harm)}")

    def _add_once(self, number: int, kills: int, longest: float) -> None:
        """Run the command, and kill it at a random moment."""
        if number == kills // 2:
            self.killer = threading.Timer(self.chance.uniform(0.0, longest), self.kill_emulator)
            self.killer.start()
        if number % 5 == 2:
            Proxy.throttle = self.chance.uniform(0.0, longest)
        self.add(self.chance.uniform(0.0, longest), adding=number % 5 < 2)


def main(seed: int, count: int, kills: int, longest: float, throttle: float) -> int:
    with tempfile.TemporaryDirectory() as directory:
        chaos = Chaos(Path(directory), count, seed)
        try:
            chaos.run(kills, longest, throttle)
        finally:
            chaos.proxy.shutdown()
            chaos.proxy.server_close()
            server.stop(chaos.emulator)
    for violation in chaos.violations:
        print(f"VIOLATED: {violation}")
    return 1 if chaos.violations else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--longest", type=float, default=4.0, help="The most seconds until the client is killed.")
    parser.add_argument("--throttle", type=float, default=4.0, help="Seconds of one throttling; the run ends later.")
    given = parser.parse_args()
    sys.exit(main(given.seed, given.tasks, given.kills, given.longest, given.throttle))
