"""SIGKILL again and again while clients add tasks and nodes run them: nothing acknowledged is lost or starts twice.

BATCHTRAIN_KILLS says how often: the process and its database are real here, and `tests/simulation` has more deaths. The
emulators are forks of one process that has imported everything already, so that most of the time goes into what is
tested.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.batch import BatchClient, models
from azure.core.exceptions import AzureError

from batchtrain.emulator import server
from tests.contract.conftest import connect, eventually, idle, pool, task

pytestmark = [pytest.mark.process, pytest.mark.slow]

KILLS = int(os.environ.get("BATCHTRAIN_KILLS", "20"))
ON_PROCESSES = 3
"""Tasks of each life that are real processes; those after them are on nodes that only keep time."""
COMMAND = "/bin/sh -c 'echo $AZ_BATCH_TASK_ID >> $AZ_BATCH_NODE_SHARED_DIR/starts; exit 0'"
FORKS = """
import asyncio, json, os, sys
from pathlib import Path
import uvicorn
from batchtrain import connections
from batchtrain.emulator import alarms, control, drive, http, server, serving, store
from batchtrain.emulator.machine import process, routing, simulated

for _ in sys.stdin:
    if not os.fork():
        os.setsid()
        announced = lambda status: print(json.dumps([os.getpid(), status.endpoint, status.key]), flush=True)
        serving.serve(server.Settings(Path(sys.argv[1]), port=int(sys.argv[2])), announced)
        os._exit(0)
    os.wait()
    print("null", flush=True)
"""


class Lives:
    """One emulator after the other on a data directory."""

    def __init__(self, data_dir: Path, log: Path, port: int = 0) -> None:
        self._data_dir = data_dir
        self._log = log.open("ab")
        words = [sys.executable, "-c", FORKS, str(data_dir), str(port)]
        self._forks = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1
        )

    def begin(self) -> server.Status:
        assert self._forks.stdin is not None
        self._forks.stdin.write("\n")
        pid, endpoint, key = self._said()
        return server.Status(endpoint, "batchtrain", key, pid, self._data_dir, self._data_dir / server.LOG)

    def kill(self, status: server.Status, number: int = signal.SIGKILL) -> None:
        os.kill(status.pid, number)
        assert self._said() is None

    def end(self) -> None:
        assert self._forks.stdin is not None
        self._forks.stdin.close()
        self._forks.wait(30)
        self._log.close()

    def _said(self) -> list[object] | None:
        assert self._forks.stdout is not None
        line = self._forks.stdout.readline()
        assert line, "no emulator came up"
        said: list[object] | None = json.loads(line)
        return said


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    made = Lives(tmp_path / "data", tmp_path / "log")
    yield made
    server.stop(tmp_path / "data")
    made.end()


def add_until_it_dies(client: BatchClient, prefix: str, added: dict[str, set[str]]) -> None:
    """Tasks one by one, as fast as they are taken; `added` are those that were acknowledged, by job."""
    for number in itertools.count():
        where = "processes" if number < ON_PROCESSES else "simulated"
        try:
            client.create_task(where, task(f"{prefix}-{number}", COMMAND))
        except AzureError:
            return
        added[where].add(f"{prefix}-{number}")


def starts(data_dir: Path) -> Counter[str]:
    """How often each task was started on any node."""
    files = (data_dir / "nodes").glob("*/*/shared/starts")
    return Counter(line for file in files for line in file.read_text().split())


def ids(client: BatchClient, where: str) -> set[str]:
    return {str(one.id) for one in client.list_tasks(where, select=["id"])}


def make_pools(client: BatchClient) -> None:
    simulated = [models.BatchMetadataItem(name="batchtrain-nodes", value="simulated")]
    client.create_pool(pool("simulated", nodes=20, metadata=simulated))
    client.create_pool(pool(nodes=1, task_slots_per_node=4))
    for where, on in (("processes", "pool"), ("simulated", "simulated")):
        client.create_job(models.BatchJobCreateOptions(id=where, pool_info=models.BatchPoolInfo(pool_id=on)))
    idle(client)


def test_what_was_acknowledged_is_there_and_runs_once_an_attempt(lives: Lives, tmp_path: Path) -> None:
    chance = random.Random(os.environ.get("BATCHTRAIN_SEED", "4"))
    added: dict[str, set[str]] = {"processes": set(), "simulated": set()}
    running = lives.begin()
    with connect(running) as client:
        make_pools(client)
    for life in range(KILLS):
        with connect(running) as client:
            adding = threading.Thread(target=add_until_it_dies, args=(client, f"r{life}", added))
            adding.start()
            threading.Event().wait(chance.uniform(0.0, 0.25))
            lives.kill(running)
            adding.join()
        running = lives.begin()
        with connect(running) as client:
            assert added["processes"] <= ids(client, "processes"), f"lost in life {life}"
    with connect(running) as client:
        for where, acknowledged in added.items():
            assert acknowledged <= ids(client, where), "lost"
            eventually(lambda where=where: client.get_job_task_counts(where).task_counts.active == 0)
            eventually(lambda where=where: client.get_job_task_counts(where).task_counts.running == 0)
            assert {one.execution_info.exit_code for one in client.list_tasks(where)} <= {0}
        begun = starts(tmp_path / "data")
        for one in client.list_tasks("processes"):
            requeues = one.execution_info.requeue_count
            assert 1 <= begun[one.id] <= 1 + requeues, (one.id, begun[one.id], requeues)
    lives.kill(running, signal.SIGTERM)
