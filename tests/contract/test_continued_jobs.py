"""A job whose addition was interrupted at any moment is continued: it ends with exactly the tasks of its plan."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.client.client import Client
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import NotFound
from batchtrain.records.events import Event
from batchtrain.service import submission
from batchtrain.service.connect import Account
from tests.unit.plan import jobs

pytestmark = pytest.mark.process
TOKEN = "0123456789abcdef"


@pytest.fixture
def client(emulator: Emulator) -> Client:
    made = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    made.pools.add(recipe(), wait=False)
    return made


def recipe(count: int = 3, command: str = "train", **job: Any) -> Recipe:
    tasks = [
        {"id": f"t{number}", "command": f"{command} {number}", "environment_variables": {"API_TOKEN": TOKEN, "A": "1"}}
        for number in range(count)
    ]
    return jobs.recipe({"tasks": tasks, **job}, pool={"vm_count": {"dedicated": 0}})


def names(client: Client) -> list[str]:
    return sorted(task.id for task in client.jobs.get("j").tasks)


def planned(count: int) -> list[str]:
    return sorted(f"t{number}" for number in range(count))


def add(client: Client, told: Recipe, **options: Any) -> list[Event]:
    events: list[Event] = []
    client.jobs.add(told, tell=events.append, **options)
    return events


class Killed(Exception):
    """The client ends here."""


def killed_after(monkeypatch: pytest.MonkeyPatch, collections: int) -> None:
    """The client ends before it sends its next collection."""
    post, sent = submission.Submission._post, [0]

    def counted(self: submission.Submission, collection: submission.Collection) -> Any:
        sent[0] += 1
        if sent[0] > collections:
            raise Killed
        return post(self, collection)

    monkeypatch.setattr(submission.Submission, "_post", counted)


def test_a_job_that_was_interrupted_is_continued(client: Client) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        killed_after(patch, 2)
        add(client, recipe(950))
    assert 0 < len(names(client)) < 950
    assert "existed already" in add(client, recipe(950))[-1].text
    assert names(client) == planned(950)


def test_recreating_a_job_deletes_nothing_that_it_cannot_add_again(client: Client) -> None:
    add(client, recipe())
    pool = recipe().pool
    assert pool is not None
    other = msgspec.structs.replace(recipe(), pool=msgspec.structs.replace(pool, id="missing"))
    with pytest.raises(NotFound):
        client.jobs.add_all(other, recreate=True)
    assert names(client) == planned(3)
