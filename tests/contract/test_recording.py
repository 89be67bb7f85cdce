"""What BATCHTRAIN_RECORD stores, and what `python -m tests.replay` finds in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from azure.core.exceptions import HttpResponseError

from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.service import submit
from batchtrain.service.recording import VARIABLE, Exchange
from batchtrain.service.register import Thing
from tests.contract.conftest import completed, job, ours, pool, task
from tests.emulation import FakeMachine
from tests.replay import exchanges, replay, sender

SECRET = "correct-horse-battery"


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The exchanges of a small job, with two refusals."""
    directory = tmp_path / "recording"
    monkeypatch.setenv(VARIABLE, str(directory))
    with Emulator(Settings(tmp_path / "first", port=0), FakeMachine.open) as emulator, ours(emulator) as client:
        accounts: list[Any] = [{"name": "ann", "password": SECRET}]
        client.create_pool(pool(user_accounts=accounts))
        client.create_job(job())
        client.create_task("job", task(environment_settings=[{"name": "HF_TOKEN", "value": SECRET}]))
        completed(client)
        list(client.list_nodes("pool"))
        for refused in (lambda: client.create_job(job()), lambda: client.get_pool("nothing")):
            with pytest.raises(HttpResponseError):
                refused()
        submit.delete_version(client, Thing("job", "job"), "")
    return directory


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "second", port=0), FakeMachine.open) as emulator:
        yield emulator


def test_a_recording_of_the_emulator_is_replayed_without_a_difference(recording: Path, other: Emulator) -> None:
    recorded = list(exchanges(recording))
    assert {"POST", "GET", "DELETE"} <= {exchange.verb for exchange in recorded}
    assert {201, 200, 202, 404, 409} <= {exchange.status for exchange in recorded}
    assert list(replay(recorded, sender(other))) == []


def test_a_planted_difference_is_found(recording: Path, other: Emulator) -> None:
    def planted(exchange: Exchange) -> Exchange:
        if (exchange.verb, exchange.path, exchange.status) != ("POST", "/jobs", 201):
            return exchange
        return msgspec.structs.replace(exchange, status=200, headers={**exchange.headers, "retry-after": "1"})

    found = list(replay(map(planted, exchanges(recording)), sender(other)))
    assert found == [
        "POST /jobs: status: 200 recorded, 201 here",
        "POST /jobs: header retry-after: only recorded",
    ]


def test_another_value_and_another_key_are_found(recording: Path, other: Emulator) -> None:
    def planted(exchange: Exchange) -> Exchange:
        if exchange.status != 409:
            return exchange
        return msgspec.structs.replace(exchange, answer={**exchange.answer, "code": "JobThere", "more": 1})

    found = list(replay(map(planted, exchanges(recording)), sender(other)))
    assert found == [
        "POST /jobs: code: 'JobThere' recorded, 'JobExists' here",
        "POST /jobs: more: only recorded",
    ]
