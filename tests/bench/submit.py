"""Print how fast tasks are added, beside the SDK's own `create_tasks`: `python tests/bench/submit.py`. Not a test.

Every client is a process of its own and adds the same tasks (three environment variables, container settings) to the
same server, one after the other. `sink` only answers, so that the client is measured; `emulator` is the
embedded service. `cpu` is the processor time of the client for one task. The last line is the time from the start of
`batchtrain jobs add` to its first tasks at the sink, with compiled modules, as an installation has them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from batchtrain.config.types import Recipe, Secret  # noqa: E402
from batchtrain.emulator import server, steering  # noqa: E402
from batchtrain.service.connect import Account, connect  # noqa: E402
from tests.e2e.conftest import SCRIPT  # noqa: E402

KEY = "a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5"
IMAGE = "registry.example.com/team/train:1"
VARIABLES = {"LEARNING_RATE": "0.001", "DATA": "/mnt/data/digits", "PYTHONUNBUFFERED": "1"}
TARGETS = {0.0: 2.0, 0.1: 3.0}
"""How many times as fast as the SDK, by seconds of latency."""


class Place(NamedTuple):
    """A server that takes tasks."""

    url: str
    account: str
    key: str


# --- the clients, each in a process of its own ----------------------------------------------------------------------


def recipe(count: int, job_id: str) -> Recipe:
    """A sweep with three environment variables in a container."""
    import msgspec

    task = {
        "command": "python train.py --seed {}",
        "docker_image": IMAGE,
        "environment_variables": VARIABLES,
        "task_factory": {"parametric_sweep": {"product": [{"start": 0, "stop": count, "step": 1}]}},
    }
    image = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404", "native": True}
    pool = {
        "id": "p",
        "vm_size": "STANDARD_D2S_V5",
        "vm_count": {"dedicated": 0},
        "vm_configuration": {"platform_image": image},
    }
    document = {
        "directory": "x",
        "pool": pool,
        "settings": {},
        "resources": {"docker_images": [IMAGE]},
        "jobs": [{"id": job_id, "tasks": [task]}],
    }
    return msgspec.convert(document, Recipe)


def ours(place: Place, job_id: str, count: int) -> None:
    """Plan the sweep and send it, as `jobs add` does."""
    from batchtrain.plan import plan_jobs
    from tests.submitting import carry_out

    client = connect(Account(place.url, place.account, Secret(place.key)))
    for event in carry_out(client, plan_jobs(recipe(count, job_id))):
        print(event.text, file=sys.stderr)


def sdk(place: Place, job_id: str, count: int, threads: int) -> None:
    """The same tasks through the SDK's models."""
    from azure.batch import BatchClient, models
    from azure.core.credentials import AzureNamedKeyCredential

    client = BatchClient(place.url, AzureNamedKeyCredential(place.account, place.key))  # type: ignore[arg-type]
    client.create_job(models.BatchJobCreateOptions(id=job_id, pool_info=models.BatchPoolInfo(pool_id="p")))
    tasks = [
        models.BatchTaskCreateOptions(
            id=f"task-{number:05}",
            command_line=f"/bin/bash -c 'set -e; set -o pipefail; python train.py --seed {number}; wait'",
            container_settings=models.BatchTaskContainerSettings(image_name=IMAGE, container_run_options="--rm"),
            environment_settings=[
                models.EnvironmentSetting(name=name, value=value) for name, value in VARIABLES.items()
            ],
        )
        for number in range(count)
    ]
    client.create_tasks(job_id, tasks, max_concurrency=threads)


def as_client(arguments: argparse.Namespace) -> None:
    place, used, start = Place(*arguments.place), time.process_time(), time.perf_counter()
    if arguments.client == "ours":
        ours(place, arguments.job, arguments.tasks)
    else:
        sdk(place, arguments.job, arguments.tasks, int(arguments.client.removeprefix("sdk")))
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "memory": memory}))


# --- what is measured -----------------------------------------------------------------------------------------------


def measured(client: str, place: Place, count: int) -> dict[str, float]:
    job_id = f"{client}-{count}-{time.time_ns()}"
    words = [sys.executable, __file__, "--client", client, "--job", job_id, "--tasks", str(count), "--place", *place]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    figures: dict[str, float] = json.loads(ran.stdout)
    return figures


def compare(name: str, place: Place, latency: float, count: int) -> None:
    rates: dict[str, float] = {}
    for client in ("sdk16", "sdk64", "ours"):
        taken = measured(client, place, count)
        rates[client] = count / taken["seconds"]
        best = max(rate for other, rate in rates.items() if other != client) if client == "ours" else 0.0
        verdict = _verdict(rates[client] / best, latency) if best else ""
        print(
            f"| {name:8} | {latency * 1000:4.0f} ms | {count:9,} | {client:5} | {rates[client]:8,.0f} /s"
            f" | {1e6 * taken['cpu'] / count:6.1f} µs | {taken['memory']:5.0f} MB | {verdict:22} |",
            flush=True,
        )


def _verdict(ratio: float, latency: float) -> str:
    return f"{ratio:.1f}× {'ok' if ratio >= TARGETS[latency] else 'MISSED'} (≥ {TARGETS[latency]:g}×)"


@contextmanager
def serving(latency: float) -> Iterator[IO[str]]:
    """What a sink prints: its address, then the time of the first collection of each job."""
    words = [sys.executable, str(Path(__file__).with_name("task_server.py")), "--latency", str(latency)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.terminate()


@contextmanager
def sink(latency: float) -> Iterator[Place]:
    with serving(latency) as printed:
        yield Place(printed.readline().strip(), "batchtrain", KEY)


class First(NamedTuple):
    """Seconds of `batchtrain jobs add` with 101 tasks: until its first collection, and of the processor for all."""

    wall: float
    cpu: float


def first(directory: Path) -> First:
    recipe(101, "first").save(directory)
    with serving(0.0) as printed:
        known = {"ENDPOINT": printed.readline().strip(), "ACCESS_KEY": KEY, "ACCOUNT": "batchtrain"}
        environment = {**os.environ, **{f"AZURE_BATCH_{name}": value for name, value in known.items()}}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        start, used = time.monotonic(), children()
        words = [str(SCRIPT), "jobs", "add", str(directory)]
        ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return First(float(printed.readline()) - start, children() - used)


def children() -> float:
    """The processor time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def emulator(latency: float) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as directory:
        status = server.spawn(server.Settings(Path(directory), port=0))
        try:
            if latency:
                steering.fault(status, "latency", seconds=latency)
            yield Place(status.endpoint, status.account, status.key)
        finally:
            server.stop(Path(directory))


SERVERS: dict[str, Any] = {"sink": sink, "emulator": emulator}


def main(arguments: argparse.Namespace) -> None:
    print("| server   | latency |     tasks | who   |       rate |   cpu/task |  memory | ours / the SDK's best  |")
    for name in arguments.server:
        for latency in (0.0, 0.1):
            for count in arguments.counts:
                with SERVERS[name](latency) as place:
                    compare(name, place, latency, count)
    with tempfile.TemporaryDirectory() as directory:
        taken_first = sorted(first(Path(directory, str(number))) for number in range(5))[2]
    wall, cpu = taken_first
    print(f"first tasks {wall:.2f} s after the start of `batchtrain jobs add` (≤ 0.5 s), cpu {cpu:.2f} s")
    if arguments.million:
        with sink(0.0) as place:
            taken = measured("ours", place, 1_000_000)
        print(f"1,000,000 tasks: {taken['seconds']:.0f} s, {taken['memory']:.0f} MB (≤ 150 MB)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", nargs="*", default=["sink", "emulator"], choices=SERVERS)
    parser.add_argument("--counts", nargs="*", type=int, default=[20_000, 100_000])
    parser.add_argument("--million", action="store_true", help="Also the memory of a million tasks.")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--tasks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--place", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    as_client(given) if given.client else main(given)
