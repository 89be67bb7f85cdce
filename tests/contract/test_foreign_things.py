"""Pools and jobs of other programs with our ids: neither used without a word nor deleted, whenever they appear."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.client.client import Client
from batchtrain.client.run import run
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import AlreadyExists
from batchtrain.plan.marks import HOST, RUN, USER, Marks
from batchtrain.records.events import Event, JobAdded, NodeReady, PoolAdding
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account
from batchtrain.service.register import Thing, read_marks
from tests.emulation import FakeMachine

pytestmark = pytest.mark.process

IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}
POOL = {
    "id": "p",
    "vm_size": "STANDARD_D2S_V5",
    "vm_count": {"dedicated": 1},
    "vm_configuration": {"platform_image": IMAGE},
}
JOB = {"id": "j", "tasks": [{"id": "t", "command": "exit 0"}]}
RECIPE = msgspec.convert({"directory": "x", "pool": POOL, "jobs": [JOB]}, Recipe)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Emulator(Settings(tmp_path / "data", port=0), FakeMachine.open) as running:
        yield Client(Account(running.endpoint, running.account, Secret(running.key), emulated=True))


def add_foreign(client: Client, kind: str) -> None:
    """Add a pool or a job with our id by another run."""
    register = client.register(RECIPE, {"j": "another-run"})
    if kind == "pool":
        client.pools.add(RECIPE, register=register)
    else:
        client.jobs.add_all(RECIPE, register=register)


def replace(client: Client, kind: str) -> None:
    """Delete our pool or job, and add a foreign one of the same id."""
    if kind == "pool":
        client.pools.delete("p")
    else:
        client.jobs.handle("j").delete()
    add_foreign(client, kind)


def existing(client: Client) -> dict[str, str]:
    """The runs that added what is there."""
    things = [Thing("pool", row.id) for row in client.pools.list()] + [
        Thing("job", row.id) for row in client.jobs.list()
    ]
    return {thing.name: read_marks(client.batch, thing).run for thing in things}


@pytest.mark.parametrize("when", [PoolAdding, NodeReady, JobAdded])
def test_a_foreign_pool_survives_whenever_it_takes_the_place_of_ours(
    when: type[Event], client: Client, tmp_path: Path
) -> None:
    done = []

    def tell(event: Event) -> None:
        if isinstance(event, when) and not done:
            done.append(event)
            add_foreign(client, "pool") if when is PoolAdding else replace(client, "pool")

    try:
        run(client, RECIPE, tell=tell, origin=Origin(tmp_path / "runs"), timeout=60)
    except AlreadyExists:
        assert when is PoolAdding
    assert existing(client) == {"pool p": "another-run"}


def test_a_foreign_job_survives_in_the_place_of_ours(client: Client, tmp_path: Path) -> None:
    said: list[Any] = []

    def tell(event: Event) -> None:
        said.append(event.text)
        if event.kind == "deleted" and "job j" in event.text:
            raise AssertionError("the foreign job was deleted")
        if event.kind == "task.add" and "replaced" not in said:
            said.append("replaced")
            replace(client, "job")

    done = run(client, RECIPE, tell=tell, origin=Origin(tmp_path / "runs"), timeout=60)
    assert existing(client) == {"job j": "another-run", "pool p": done.runs[0].name}  # which the job uses
    assert "left as it is: job j, which this command did not add" in said


def test_pools_and_jobs_name_their_run_the_user_and_the_host(client: Client, tmp_path: Path) -> None:
    seen: dict[str, Marks] = {}

    def tell(event: Event) -> None:
        if event.kind == "task.add":
            seen.update(
                {kind: read_marks(client.batch, Thing(kind, name)) for kind, name in (("pool", "p"), ("job", "j"))}
            )

    outcome = run(client, RECIPE, tell=tell, origin=Origin(tmp_path / "runs"), timeout=60)
    assert seen["pool"] == seen["job"]
    assert seen["job"].run == outcome.runs[0].name
    assert seen["job"].user and seen["job"].host
    shown = {item["name"] for step in client.plan(RECIPE).steps[:2] for item in step.document["metadata"]}
    assert shown == {RUN, USER, HOST}
