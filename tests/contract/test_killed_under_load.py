"""SIGKILL again and again while clients add tasks and nodes run them: nothing acknowledged is lost or starts twice.

BATCHTRAIN_KILLS says how often.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.batch import BatchClient
from azure.core.exceptions import AzureError

from batchtrain.emulator import server
from batchtrain.emulator.server import Settings
from tests.contract.conftest import connect, eventually, idle, job, pool, task

pytestmark = [pytest.mark.process, pytest.mark.slow]

KILLS = int(os.environ.get("BATCHTRAIN_KILLS", "15"))
COMMAND = "/bin/sh -c 'echo $AZ_BATCH_TASK_ID >> $AZ_BATCH_NODE_SHARED_DIR/starts; exit 0'"


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    server.stop(tmp_path / "data")


def spawn(data_dir: Path) -> server.Status:
    return server.spawn(Settings(data_dir, port=0))


def kill(status: server.Status) -> None:
    os.kill(status.pid, signal.SIGKILL)
    os.waitpid(status.pid, 0)


def add_until_it_dies(client: BatchClient, prefix: str, added: list[str]) -> None:
    """Tasks one by one, as fast as they are taken; `added` are those that were acknowledged."""
    number = 0
    while True:
        number += 1
        try:
            client.create_task("job", task(f"{prefix}-{number}", COMMAND))
        except AzureError:
            return
        added.append(f"{prefix}-{number}")


def starts(data_dir: Path) -> Counter[str]:
    """How often each task was started on any node."""
    files = (data_dir / "nodes").glob("*/*/shared/starts")
    return Counter(line for file in files for line in file.read_text().split())


def test_what_was_acknowledged_is_there_and_runs_once_an_attempt(data_dir: Path) -> None:
    chance = random.Random(os.environ.get("BATCHTRAIN_SEED", "4"))
    added: list[str] = []
    running = spawn(data_dir)
    with connect(running) as client:
        client.create_pool(pool(nodes=2, task_slots_per_node=4))
        client.create_job(job())
        idle(client, 2)
    for round_ in range(KILLS):
        client = connect(running)
        adding = threading.Thread(target=add_until_it_dies, args=(client, f"r{round_}", added))
        adding.start()
        threading.Event().wait(chance.uniform(0.0, 0.25))
        kill(running)
        adding.join()
        client.close()
        running = spawn(data_dir)
        with connect(running) as client:
            known = {one.id for one in client.list_tasks("job", select=["id"])}
            assert not set(added) - known, f"lost in round {round_}"
    with connect(running) as client:
        eventually(lambda: client.get_job_task_counts("job").task_counts.completed >= len(added))
        eventually(lambda: client.get_job_task_counts("job").task_counts.active == 0)
        begun = starts(data_dir)
        for one in client.list_tasks("job"):
            info = one.execution_info
            assert info.exit_code == 0, one.id
            assert 1 <= begun[one.id] <= 1 + info.requeue_count, (one.id, begun[one.id], info.requeue_count)
