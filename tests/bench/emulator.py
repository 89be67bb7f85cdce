"""Print what the embedded service holds itself to: `python tests/bench/emulator.py [--tasks N]`. Not a test.

The emulator runs as a process of its own; requests are signed beforehand and sent over a few open connections, so that
the client costs next to nothing. `cpu` is what the emulator's own process used: on a busy machine it says more than the
time on the wall. A ratio above 1 keeps the promise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from batchtrain.emulator import server, wire  # noqa: E402

VERSION = "api-version=2025-06-01"
CONNECTIONS = 4
IDLE_SECONDS = 10.0
FILES = 200_000
POOL: dict[str, Any] = {
    "vmSize": "STANDARD_D2_V3",
    "virtualMachineConfiguration": {
        "imageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"},
        "nodeAgentSKUId": "batch.node.ubuntu 22.04",
    },
}
SIMULATED = [{"name": "batchtrain-nodes", "value": "simulated"}]


# A lean client -------------------------------------------------------------------------------------------------------


class Service:
    """A running emulator, and connections to it."""

    def __init__(self, status: server.Status, stack: ExitStack) -> None:
        self.status, self.process = status, psutil.Process(status.pid)
        where = urlsplit(status.endpoint)
        self.host, place = where.netloc, (where.hostname, where.port)
        self.sockets = [stack.enter_context(socket.create_connection(place)) for _ in range(CONNECTIONS)]
        for one in self.sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, verb: str, path: str, body: object = None, query: str = VERSION) -> bytes:
        """A signed request, as it goes over the wire."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"host": self.host, "ocp-date": wire.http_date(server.clock())}
        if verb != "GET":
            headers |= {"content-length": str(len(content)), "content-type": "application/json"}
        key = self.status.key
        headers["authorization"] = wire.authorization(self.status.account, key, verb, path, query, headers)
        lines = [f"{verb} {path}?{query} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + content

    def send(self, requests: Sequence[bytes]) -> None:
        """All of them, one at a time on each connection. Raises AssertionError for a refusal."""
        for start in range(0, len(requests), len(self.sockets)):
            pairs = list(zip(self.sockets, requests[start : start + len(self.sockets)], strict=False))
            for connection, request in pairs:
                connection.sendall(request)
            for connection, _ in pairs:
                _received(connection)

    def ask(self, verb: str, path: str, body: object = None, query: str = VERSION) -> Any:
        """One request; the document of its answer."""
        self.sockets[0].sendall(self.request(verb, path, body, query))
        content = _received(self.sockets[0])
        return json.loads(content) if content else None

    def pool(self, pool_id: str, nodes: int, **more: Any) -> None:
        """A pool, all of whose nodes are idle."""
        self.ask("POST", "/pools", {"id": pool_id, "targetDedicatedNodes": nodes, **POOL, **more})
        until(lambda: self.ask("GET", f"/pools/{pool_id}", query=f"{VERSION}&$select=allocationState"), "steady")

    def job(self, job_id: str, pool_id: str) -> None:
        self.ask("POST", "/jobs", {"id": job_id, "poolInfo": {"poolId": pool_id}})

    def completed(self, job_id: str) -> int:
        return int(self.ask("GET", f"/jobs/{job_id}/taskcounts")["taskCounts"]["completed"])

    def cpu(self) -> float:
        """Seconds of processor time its process has used."""
        used = self.process.cpu_times()
        return used.user + used.system

    def all_cpu(self) -> float:
        """The same with its nodes' processes, those that ended included."""
        return sum(sum(one.cpu_times()[:4]) for one in (self.process, *self.process.children(recursive=True)))

    def resident(self) -> float:
        """Its resident memory in MB."""
        return self.process.memory_info().rss / 1e6


def _received(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    parts, missing = [body], int(headers.get("content-length", "0")) - len(body)
    while missing > 0:
        parts.append(_some(connection))
        missing -= len(parts[-1])
    assert first.split()[1] < "300", (first, b"".join(parts))
    return b"".join(parts)


def _some(connection: socket.socket) -> bytes:
    part = connection.recv(1 << 20)
    assert part, "the emulator closed the connection"
    return part


def until(look: Callable[[], Any], state: str) -> None:
    while look()["allocationState"] != state:
        time.sleep(0.02)


# What is measured ----------------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """Seconds on the wall, and of the emulator's processor time."""

    wall: float
    cpu: float


def timed(service: Service, work: Callable[[], object], cpu: Callable[[Service], float] = Service.cpu) -> Taken:
    used, start = cpu(service), time.perf_counter()
    work()
    return Taken(time.perf_counter() - start, cpu(service) - used)


def at_least(what: str, count: int, taken: Taken, promise: float) -> None:
    """A rate: the more the better."""
    rate, by_cpu = count / taken.wall, count / max(taken.cpu, 1e-3)
    line(what, f"{rate:,.0f} /s", f"≥ {promise:,.0f} /s", rate / promise, f"by cpu {by_cpu:,.0f} /s")


def at_most(what: str, figure: float, promise: float, unit: str, more: str = "") -> None:
    """A time or a size: the less the better."""
    line(what, f"{figure:,.2f} {unit}", f"≤ {promise:,.0f} {unit}", promise / max(figure, 1e-6), more)


def line(what: str, figure: str, promise: str, ratio: float, more: str) -> None:
    verdict = "ok" if ratio >= 1 else "MISSED"
    print(f"| {what:46} | {figure:>14} | {promise:>14} | {ratio:7.2f} | {verdict:6} | {more:22} |", flush=True)


@contextmanager
def emulator(place: Path, **quotas: int) -> Iterator[Service]:
    settings = server.Settings(place, port=0, quotas={"nodes": 2000, **quotas})
    status = server.spawn(settings)
    try:
        with ExitStack() as stack:
            yield Service(status, stack)
    finally:
        server.stop(place)
        shutil.rmtree(place, ignore_errors=True)


def entries(count: int, prefix: str = "t", command: str = "true") -> Iterator[dict[str, Any]]:
    return ({"id": f"{prefix}{number}", "commandLine": command} for number in range(count))


def collections(service: Service, job: str, count: int) -> Iterator[bytes]:
    """Requests that add tasks, a hundred each."""
    batch: list[dict[str, Any]] = []
    for entry in entries(count):
        batch.append(entry)
        if len(batch) == 100:
            yield service.request("POST", f"/jobs/{job}/addtaskcollection", {"value": batch})
            batch = []


def adding(service: Service) -> None:
    service.job("many", "nowhere")
    requests = list(collections(service, "many", 20_000))
    at_least("tasks added by the hundred", 20_000, timed(service, lambda: service.send(requests)), 20_000)
    service.job("single", "nowhere")
    ones = [service.request("POST", "/jobs/single/tasks", entry) for entry in entries(4_000)]
    at_least("tasks added one by one", 4_000, timed(service, lambda: service.send(ones)), 1_500)


def listing(service: Service) -> None:
    service.job("ten", "nowhere")
    service.send(list(collections(service, "ten", 10_000)))

    def all_of_them() -> None:
        assert sum(len(page["value"]) for page in pages(service, "/jobs/ten/tasks", "$select=id,state")) == 10_000

    taken = [timed(service, all_of_them) for _ in range(5)]
    wall, cpu = (statistics.median(times) for times in zip(*taken, strict=True))
    at_most("10,000 tasks listed with $select", wall * 1e3, 300, "ms", f"cpu {cpu * 1e3:.0f} ms")


def pages(service: Service, path: str, query: str) -> Iterator[Any]:
    page = service.ask("GET", path, query=f"{VERSION}&{query}")
    yield page
    while following := page.get("odata.nextLink"):
        link = urlsplit(following)
        page = service.ask("GET", link.path, query=link.query)
        yield page


def many_files(service: Service) -> None:
    """A node with 200,000 files in one directory: listed, then deleted, while others ask too."""
    service.pool("files", 1)
    (node,) = service.ask("GET", "/pools/files/nodes")["value"]
    folder = service.status.data_dir / "nodes" / "files" / node["id"] / "shared"
    for number in range(FILES):
        (folder / f"{number:07}").touch()
    with Asker(service) as asker:
        times = [time.perf_counter()]
        listed = pages(service, f"/pools/files/nodes/{node['id']}/files", "recursive=true")
        times += (time.perf_counter() for _ in listed)
    spans = [1e3 * (after - before) for before, after in itertools.pairwise(times)]
    at_most(f"a page of {FILES:,} files", statistics.median(spans), 100, "ms", f"worst {max(spans):.0f} ms")
    at_most("meanwhile: an answer to others", asker.median, 50, "ms", f"worst {asker.worst:.0f} ms")
    with Asker(service) as asker:
        start = time.perf_counter()
        service.ask("DELETE", "/pools/files")
        while service.ask("GET", "/pools")["value"]:
            time.sleep(0.02)
        seconds = time.perf_counter() - start
    at_most(f"a pool of {FILES:,} files deleted", seconds, 30, "s")
    at_most("meanwhile: an answer to others", asker.median, 50, "ms", f"worst {asker.worst:.0f} ms")


class Asker:
    """Asks for one small thing after the other, over a connection of its own, and notes how long each answer takes."""

    def __init__(self, service: Service) -> None:
        self._service, self._over = service, threading.Event()
        self._times: list[float] = []
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Asker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def median(self) -> float:
        return statistics.median(self._times)

    @property
    def worst(self) -> float:
        return max(self._times)

    def _ask(self) -> None:
        connection = self._service.sockets[-1]
        while not self._over.wait(0.01):
            start = time.perf_counter()
            connection.sendall(self._service.request("GET", "/jobs"))
            _received(connection)
            self._times.append(1e3 * (time.perf_counter() - start))


def idle(service: Service) -> None:
    service.pool("idle", 1)
    time.sleep(1.0)
    taken = timed(service, lambda: time.sleep(IDLE_SECONDS))
    at_most("idle: resident memory", service.resident(), 80, "MB")
    at_most("idle: share of a core", 100 * taken.cpu / taken.wall, 1, "%", "a pool of one node")


def on_processes(service: Service, tasks: int) -> None:
    """Tasks that do nothing, each a process of its own on one of two nodes."""
    service.pool("real", 2, taskSlotsPerNode=8)
    run_out(service, "real", tasks, "no-op tasks run, process nodes", 200)


def assigning(service: Service) -> None:
    """How long a task that could start waits for its node: a free one, or one that a task before it leaves."""
    service.pool("one", 1)
    service.job("alone", "one")
    for entry in entries(30, "free"):
        service.ask("POST", "/jobs/alone/tasks", entry)
        run_dry(service, "alone")
    free = [began(one) - moment(one["creationTime"]) for one in done(service, "alone")]
    at_most("assignment to a free node", statistics.median(free), 20, "ms", f"worst {max(free):.1f} ms")
    service.job("queue", "one")
    service.ask("POST", "/jobs/queue/addtaskcollection", {"value": list(entries(30, "queued"))})
    run_dry(service, "queue")
    found = sorted(done(service, "queue"), key=began)
    pairs = itertools.pairwise(found)
    gaps = [began(after) - moment(before["stateTransitionTime"]) for before, after in pairs]
    at_most("assignment once a node is free", statistics.median(gaps), 20, "ms", f"worst {max(gaps):.1f} ms")


def done(service: Service, job: str) -> list[dict[str, Any]]:
    return [one for page in pages(service, f"/jobs/{job}/tasks", "") for one in page["value"]]


def began(task: dict[str, Any]) -> float:
    """When a completed task got its node, in milliseconds."""
    return moment(task["previousStateTransitionTime"])


def moment(text: str) -> float:
    return wire.parse_timestamp(text) / wire.SECOND * 1e3


def run_dry(service: Service, job: str) -> None:
    while service.ask("GET", f"/jobs/{job}/taskcounts")["taskCounts"]["active"] or running(service, job):
        time.sleep(0.005)


def running(service: Service, job: str) -> int:
    return int(service.ask("GET", f"/jobs/{job}/taskcounts")["taskCounts"]["running"])


def run_out(service: Service, pool: str, tasks: int, what: str, promise: float) -> None:
    service.job(f"on-{pool}", pool)
    service.ask("POST", f"/jobs/on-{pool}/disable", {"disableTasks": "requeue"})
    send(service, collections(service, f"on-{pool}", tasks))

    def until_done() -> None:
        service.ask("POST", f"/jobs/on-{pool}/enable")
        until_completed(service, f"on-{pool}", tasks)

    at_least(what, tasks, timed(service, until_done, Service.all_cpu), promise)


def until_completed(service: Service, job: str, tasks: int) -> None:
    while service.completed(job) < tasks:
        time.sleep(0.1)


def send(service: Service, requests: Iterable[bytes]) -> None:
    """Many requests, without all of them in memory at once."""
    some: list[bytes] = []
    for request in requests:
        some.append(request)
        if len(some) == 100:
            service.send(some)
            some = []
    service.send(some)


def at_scale(service: Service, tasks: int) -> None:
    """A thousand nodes that only keep time, and many tasks."""
    service.pool("simulated", 1_000, metadata=SIMULATED, taskSlotsPerNode=4)
    run_out(service, "simulated", tasks, f"{tasks:,} no-op tasks, 1,000 simulated nodes", 5_000)
    counts = [timed(service, lambda: service.completed("on-simulated")).wall for _ in range(20)]
    at_most(f"taskcounts of {tasks:,} tasks", statistics.median(counts) * 1e3, 20, "ms")
    at_most("1,000 nodes and these tasks: resident memory", service.resident(), 1_500, "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description="What the emulator holds itself to.")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="tasks on simulated nodes")
    parser.add_argument("--only", choices=[part.__name__ for part in (adding, listing, idle, assigning, many_files)] +
                        ["on_processes", "at_scale"], action="append", help="one part, or several")  # fmt: skip
    given = parser.parse_args()
    parts: dict[str, Callable[[Service], None]] = {
        "idle": idle,
        "adding": adding,
        "listing": listing,
        "assigning": assigning,
        "many_files": many_files,
        "on_processes": lambda service: on_processes(service, 1_000),
        "at_scale": lambda service: at_scale(service, given.tasks),
    }
    for name, part in parts.items():
        if not given.only or name in given.only:
            with tempfile.TemporaryDirectory() as place, emulator(Path(place) / "data") as service:
                part(service)


if __name__ == "__main__":
    main()
