"""Answers that are lost, refused or cut off while pools and jobs are made, watched and deleted change no result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from batchtrain.client.client import Client
from batchtrain.client.run import run
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator import steering
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import TaskFailed, TimedOut, Unreachable
from batchtrain.records.events import Event
from batchtrain.service import retry
from batchtrain.service.connect import Account
from tests.emulation import FakeMachine

pytestmark = [pytest.mark.process, pytest.mark.slow]

ANSWERS = ("drop", "truncate", "error")


@pytest.fixture
def client(emulator: Emulator) -> Client:
    return Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))


def recipe(*commands: str, tasks: int = 1) -> Recipe:
    listed = [{"id": f"t{n}", "command": text} for n, text in enumerate(commands or ("print hello",) * tasks)]
    return msgspec.convert(
        {
            "directory": "x",
            "pool": {
                "id": "p",
                "vm_size": "STANDARD_D2S_V5",
                "vm_count": {"dedicated": 2},
                "vm_configuration": {
                    "platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}
                },
            },
            "jobs": [{"id": "j", "tasks": listed}],
        },
        Recipe,
    )


@pytest.fixture(autouse=True)
def bare_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of these tests knows commands without a shell around them."""
    original = FakeMachine.run

    async def run_bare(self: FakeMachine, node_id: str, run: Any) -> Any:
        line = run.command_line.removeprefix("/bin/bash -c ").strip("'\"")
        return await original(self, node_id, run._replace(command_line=line))

    monkeypatch.setattr(FakeMachine, "run", run_bare)


def nothing_is_left(client: Client) -> bool:
    return not client.pools.list() and not client.jobs.list()


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_run_ends_with_its_own_result_while_half_of_all_answers_are_lost(
    kind: str, emulator: Emulator, client: Client
) -> None:
    steering.fault(emulator.status, kind, rate=0.5, seed=0)
    outcome = run(client, recipe(tasks=3), tell=lambda _: None, timeout=100)
    steering.clear_faults(emulator.status)
    assert [(task.state, task.exit_code) for task in outcome.tasks] == [("completed", 0)] * 3
    assert (outcome.failure, outcome.problem) == (None, None)
    assert nothing_is_left(client)


def test_a_failure_is_still_the_tasks_own(emulator: Emulator, client: Client) -> None:
    steering.fault(emulator.status, "drop", rate=0.5, seed=1)
    with pytest.raises(TaskFailed) as caught:
        client.run(recipe("exit 3"), timeout=100)
    assert caught.value.code == 3
    steering.clear_faults(emulator.status)
    assert nothing_is_left(client)


def test_two_lost_answers_in_a_row_end_no_run(emulator: Emulator, client: Client) -> None:
    steering.fault(emulator.status, "drop", operation="list_tasks", count=8)
    assert [task.exit_code for task in client.run(recipe(), timeout=100).tasks] == [0]
    (struck,) = steering.faults(emulator.status)
    assert struck["struck"] == 8


def test_a_pool_is_deleted_though_its_deletion_is_refused_again_and_again(emulator: Emulator, client: Client) -> None:
    steering.fault(emulator.status, "error", operation="delete_pool", count=9)
    assert run(client, recipe(), tell=lambda _: None, timeout=100).problem is None
    assert nothing_is_left(client)


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        *((kind, "create_task*") for kind in ANSWERS),
        *(("drop", operation) for operation in ("create_pool", "create_job", "get_pool", "list_nodes")),
    ],
)
def test_what_is_made_is_made_once(kind: str, operation: str, emulator: Emulator, client: Client) -> None:
    steering.fault(emulator.status, kind, operation=operation, count=3)
    client.pools.add(recipe(), timeout=100)
    client.jobs.add(recipe(tasks=5))
    assert [pool.id for pool in client.pools.list()] == ["p"]
    assert len(client.jobs.get("j").tasks) == 5


def watches(client: Client) -> dict[str, Callable[[Callable[[Event], None]], object]]:
    job = client.jobs.get("j")
    return {
        "jobs wait": lambda tell: job.wait(timeout=100, tell=tell),
        "jobs logs": lambda tell: list(job.logs(follow=True, timeout=100, tell=tell)),
        "pool wait": lambda tell: client.pools.wait("p", timeout=100, tell=tell),
    }


@pytest.mark.parametrize(
    ("watch", "kind"), [("jobs wait", "drop"), ("jobs logs", "drop"), ("jobs logs", "truncate"), ("pool wait", "error")]
)
def test_a_watch_outlives_lost_answers(watch: str, kind: str, emulator: Emulator, client: Client) -> None:
    client.pools.add(recipe(), timeout=100)
    client.jobs.add(recipe())
    steering.fault(emulator.status, kind, count=12)
    watches(client)[watch](lambda _: None)
    (struck,) = steering.faults(emulator.status)
    assert struck["struck"] == 12


@pytest.mark.parametrize("watch", ["jobs wait", "jobs logs"])
def test_a_watch_that_reaches_nobody_ends_at_its_deadline_and_changes_nothing(
    watch: str, emulator: Emulator, client: Client
) -> None:
    client.pools.add(recipe(), timeout=100)
    client.jobs.add(recipe("wait"))
    job = client.jobs.get("j")
    number = steering.fault(emulator.status, "drop")
    with pytest.raises(Unreachable, match="the connection was closed without an answer"):
        job.wait(timeout=1) if watch == "jobs wait" else list(job.logs(follow=True, timeout=1))
    steering.clear_faults(emulator.status, number)
    assert [task.state for task in job.tasks] != ["completed"]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks of a run have a second; its pool has what it needs."""
    monkeypatch.setattr("batchtrain.client.work.seconds_for", lambda job: 1.0)


def test_a_run_that_reaches_nobody_deletes_nothing(emulator: Emulator, client: Client, soon: None) -> None:
    said: list[Event] = []

    def tell(event: Event) -> None:
        said.append(event)
        if event.kind == "task.add":
            steering.fault(emulator.status, "drop")

    with pytest.raises(Unreachable):
        run(client, recipe("wait"), tell=tell)
    steering.clear_faults(emulator.status)
    assert [task.state for task in client.jobs.get("j").tasks] != ["completed"]
    assert "wait: batchtrain jobs wait j --local" in said[-1].text


def test_a_run_that_is_too_long_deletes_nothing(client: Client, soon: None) -> None:
    with pytest.raises(TimedOut):
        run(client, recipe("wait"), tell=lambda _: None)
    assert [task.state for task in client.jobs.get("j").tasks] != ["completed"]


def test_an_outage_is_reported_with_its_beginning_and_its_end(
    emulator: Emulator, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "QUIET", 0.1)
    client.pools.add(recipe(), timeout=100)
    client.jobs.add(recipe())
    said: list[str] = []

    def tell(event: Event) -> None:
        if event.kind == "unreachable":
            said.append(event.text)
            steering.clear_faults(emulator.status)

    steering.fault(emulator.status, "error", code="ServerBusy")
    client.jobs.handle("j").wait(timeout=100, tell=tell)
    assert "the service cannot be reached since" in said[0]
    assert "it answers 503" in said[0]
    assert "the service answers again, after" in said[1]
