"""What the shell is offered for the id of a pool or a job; nothing is started for it, and nobody waits long."""

from __future__ import annotations

import threading
from pathlib import Path

import click
import pytest

from batchtrain.cli import completion
from batchtrain.cli.options import Settings
from batchtrain.cli.parameters import ids
from batchtrain.client.client import Client
from batchtrain.config.types import Secret
from batchtrain.emulator.local_service import account_dir
from batchtrain.emulator.server import Settings as Running
from batchtrain.emulator.serving import Emulator
from batchtrain.service.connect import Account
from tests.emulation import FakeMachine
from tests.unit.plan.jobs import recipe
from tests.waiting import GUARD

pytestmark = pytest.mark.process


def completed(kind: str, incomplete: str, chosen: Settings | None = None) -> list[str]:
    context = click.Context(click.Command("x"), obj=chosen or Settings(local=True))
    return ids(kind)(context, click.Argument(["name"]), incomplete)


def test_the_pools_and_jobs_of_the_running_emulator_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "NEAR", GUARD)
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_DIR", str(tmp_path / "data"))
    with Emulator(Running(tmp_path / "data", port=0), FakeMachine.open) as running:
        client = Client(Account(running.endpoint, running.account, Secret(running.key), emulated=True))
        client.pools.add(recipe(), timeout=GUARD)
        client.jobs.add(recipe())
        assert completed("pools", "") == ["p"]
        assert completed("jobs", "") == ["j"]
        assert completed("jobs", "x") == []


def test_the_ids_are_those_of_the_account_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "NEAR", GUARD)
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_DIR", str(tmp_path))
    with Emulator(Running(account_dir(tmp_path, "gpu"), port=0, account="gpu"), FakeMachine.open) as running:
        client = Client(Account(running.endpoint, running.account, Secret(running.key), emulated=True))
        client.pools.add(recipe(), timeout=GUARD)
        assert completed("pools", "", Settings(local=True, batch_account="gpu")) == ["p"]
        assert completed("pools", "") == []


def test_where_no_emulator_runs_none_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "NEAR", GUARD)
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_DIR", str(tmp_path / "data"))
    assert completed("pools", "") == []
    assert not (tmp_path / "data").exists()


def test_a_look_that_fails_or_takes_long_offers_nothing() -> None:
    never = threading.Event()

    def waits() -> list[str]:
        never.wait()
        return ["late"]

    def fails() -> list[str]:
        raise ZeroDivisionError

    assert completion._within(0, waits) == []
    assert completion._within(GUARD, fails) == []
    never.set()


def test_an_account_is_asked_where_the_environment_names_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(completion, "_of_account", lambda kind, chosen: [f"{kind}-of-azure"])
    monkeypatch.setattr(completion, "FAR", GUARD)
    monkeypatch.setenv("AZURE_BATCH_ENDPOINT", "https://a.b.c")
    assert completed("pools", "", Settings()) == ["pools-of-azure"]
