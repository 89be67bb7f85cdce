"""What the service promises of multi-instance tasks, as far as only nodes that run processes show it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from azure.batch import BatchClient, models

from batchtrain.emulator import server
from batchtrain.emulator.server import Settings, Status
from tests import needs
from tests.contract.conftest import completed, connect, eventually, idle, pool, task

pytestmark = pytest.mark.process

NODES = 3


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Status]:
    """An emulator with a pool of three nodes for gangs."""
    data_dir = tmp_path_factory.mktemp("gangs") / "data"
    status = server.spawn(Settings(data_dir, port=0))
    with connect(status) as client:
        client.create_pool(pool(nodes=NODES, enable_inter_node_communication=True))
        idle(client, NODES)
    yield status
    server.stop(data_dir)


@pytest.fixture
def client(running: Status) -> Iterator[BatchClient]:
    """Each test has a job of its own, called `job`; the nodes are idle before it and after."""
    with connect(running) as made:
        made.create_job(models.BatchJobCreateOptions(id="job", pool_info=models.BatchPoolInfo(pool_id="pool")))
        yield made
        made.begin_delete_job("job", polling_interval=0.01).wait()
        idle(made, NODES)


def gang(coordination: str, application: str = "true", instances: int = NODES, **more: Any) -> Any:
    """A multi-instance task; both commands are given to a shell."""
    options = {name: more.pop(name) for name in ("common_resource_files",) if name in more}
    settings = models.MultiInstanceSettings(
        number_of_instances=instances, coordination_command_line=f"/bin/bash -c '{coordination}'", **options
    )
    return task(command=f"/bin/bash -c '{application}'", multi_instance_settings=settings, **more)


def output(client: BatchClient, name: str = "stdout.txt") -> str:
    return b"".join(client.download_task_file("job", "task", name)).decode()


def instances(client: BatchClient) -> list[tuple[str, str]]:
    """Node id and task root directory of each instance, the primary's first."""
    primary = client.get_task("job", "task").node_info
    subtasks = [one.node_info for one in client.list_subtasks("job", "task")]
    return [(one.node_id, one.task_root_directory) for one in (primary, *subtasks)]


def places(client: BatchClient, running: Status) -> list[Path]:
    """The task's directory on each node, on this machine."""
    return [found / root for node, root in instances(client) for found in running.data_dir.glob(f"nodes/*/{node}")]


def living(marker: str) -> list[int]:
    """The processes of this machine that are called so."""
    return [one.pid for one in psutil.process_iter(["cmdline"]) if marker in " ".join(one.info["cmdline"] or [])]


def test_what_coordination_leaves_in_the_background_lives_until_then_on_every_node_and_no_longer(
    client: BatchClient,
) -> None:
    needs.program("pgrep")
    mark = f"sleep {os.getpid()}123"
    daemons = f"{mark}1 & setsid {mark}2 & disown -a"
    count = f'for h in ${{AZ_BATCH_HOST_LIST//,/ }}; do ssh $h "pgrep -fc \\"^{mark}\\""; done'
    client.create_task("job", gang(daemons, count))
    assert completed(client).execution_info.exit_code == 0, output(client, "stderr.txt")
    assert [int(line) >= 2 for line in output(client).splitlines()] == [True] * NODES
    assert not living(mark)


def test_deleting_it_deletes_its_directory_on_every_node(client: BatchClient, running: Status) -> None:
    client.create_task("job", gang("true"))
    completed(client)
    found = places(client, running)
    assert [place.is_dir() for place in found] == [True] * NODES
    client.delete_task("job", "task")
    eventually(lambda: not any(place.exists() for place in found))
