"""What a run writes into its directory, and when, on the emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchtrain.client import planning
from batchtrain.client.client import Client
from batchtrain.client.run import follow, run
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import ServiceError, TimedOut
from batchtrain.life.intents import PROBE
from batchtrain.records.events import Event
from batchtrain.runs import directory
from batchtrain.runs.recording import Origin, Progress
from batchtrain.service import read
from batchtrain.service.connect import Account
from batchtrain.service.register import Register
from tests.emulation import FakeMachine
from tests.unit.plan import jobs

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes know the commands of a plan, which stand in a shell."""
    original = FakeMachine.run

    async def run_in_shell(self: FakeMachine, node_id: str, task: Any) -> Any:
        line = task.command_line.removeprefix("/bin/bash -c ").strip("'\"")
        return await original(self, node_id, task._replace(command_line=line))

    monkeypatch.setattr(FakeMachine, "run", run_in_shell)


@pytest.fixture
def client(emulator: Emulator) -> Client:
    return Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "runs", ("batchtrain", "run", "x"), {}, {"x/jobs.yaml": b"job_specifications: []\n"})


def recipe(*commands: str) -> Recipe:
    tasks = [{"command": command} for command in commands or ("exit 0",)]
    return jobs.recipe({"tasks": tasks}, pool={"vm_size": "STANDARD_D2S_V5", "vm_count": {"dedicated": 1}})


def test_the_last_lines_of_a_command_change_no_record_that_has_ended(client: Client, origin: Origin) -> None:
    said: list[Event] = []
    run(client, recipe(), tell=said.append, timeout=60, origin=origin)
    recorded = directory.find(origin.root, "latest").events()
    assert said[-1].kind == "results" and "results" not in [event.kind for event in recorded]


def test_following_reads_what_tasks_are_made_from_once(
    client: Client, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, seen = recipe(), []
    client.pools.add(wanted, timeout=60)
    monkeypatch.setattr(planning, "read_made", lambda recipe: seen.append(recipe) or {})
    for recreate in (False, True):
        follow(client, wanted, tell=lambda _: None, timeout=60, origin=origin, recreate=recreate)
    assert seen == [wanted, wanted]


def test_a_directory_that_cannot_be_written_is_refused_before_anything_is_made(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="results cannot be written to"):
        run(client, recipe(), tell=lambda _: None, origin=Origin(tmp_path / "file"))
    assert not client.pools.list()


def test_an_expendable_run_deletes_after_a_deadline(client: Client, origin: Origin) -> None:
    def fails(register: Register) -> None:
        raise TimedOut("no answer in time")

    with pytest.raises(TimedOut):
        run(client, recipe(), tell=lambda _: None, timeout=60, origin=origin, afterwards=fails, intent=PROBE)
    assert not client.pools.list()


def test_a_second_ctrl_c_skips_the_fetching(client: Client, origin: Origin) -> None:
    def begin(files: int, size: int) -> None:
        raise KeyboardInterrupt

    said: list[Event] = []

    def tell(event: Event) -> None:
        said.append(event)
        if event.kind == "stdout":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(client, recipe("print now", "wait"), tell=tell, timeout=60, origin=origin, progress=Progress(begin))
    assert "results.skipped" in [event.kind for event in said]
    assert not client.pools.list()


def test_ctrl_c_deletes_nothing_if_the_files_could_not_be_listed(
    client: Client, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise ServiceError("the service is busy", operation="look at the task", code="ServerBusy")

    said: list[Event] = []

    def tell(event: Event) -> None:
        said.append(event)
        if event.kind == "stdout":
            monkeypatch.setattr(read, "task_nodes", refused)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(client, recipe("print now", "wait"), tell=tell, timeout=60, origin=origin)
    assert [pool.id for pool in client.pools.list()] == ["p"]
    assert "the results of job j could not be fetched: the service is busy" in [event.text for event in said]
