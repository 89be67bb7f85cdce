"""Why tasks and nodes are waited for, as every command says it."""

from __future__ import annotations

import itertools

import click
import pytest

from batchtrain.cli import pool
from batchtrain.cli.options import Settings as Options
from batchtrain.client.client import Client
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator import steering
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import WaitOver
from batchtrain.service import retry, watch
from batchtrain.service.connect import Account
from tests.unit.plan import jobs
from tests.waiting import GUARD, until

pytestmark = pytest.mark.process


@pytest.fixture
def client(emulator: Emulator) -> Client:
    return Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))


def recipe(pool_id: str = "p") -> Recipe:
    task = {"id": "t", "command": "exit 0"}
    return jobs.recipe({"tasks": [task]}, pool={"id": pool_id, "vm_count": {"dedicated": 1}})


def test_unusable_nodes_are_named_with_the_time_that_is_left_by_every_command(
    client: Client, emulator: Emulator
) -> None:
    client.pools.add(recipe(), timeout=GUARD)
    (node,) = client.pools.nodes("p")
    steering.befall(emulator.status, node.id, "break")
    until(lambda: [node.state for node in client.pools.nodes("p")] == ["unusable"])
    client.jobs.add_all(recipe(), timeout=GUARD)
    said, minutes = list[str](), itertools.count()
    clock = retry.Clock(lambda: 60.0 * next(minutes), lambda _: None)
    deadline = watch.Deadline(7200.0, "the tasks", lambda event: said.append(event.text), clock=clock)
    with pytest.raises(WaitOver) as error:
        watch.tasks_ended(client.batch, "j", deadline, watch.Pace(0.0, 0.0))
    decided, diagnosis = client.jobs.handle("j").reason_to_wait(), client.jobs.handle("j").diagnose()
    assert error.value.exit_code == 6
    assert decided is not None and decided.rule.name == "no-usable-node"
    assert decided.text in said[-1] and "; the wait ends in " in said[-1] and decided.text in str(error.value)
    assert decided.finding in diagnosis.findings


def test_a_pool_without_quota_is_shown_with_the_error_and_the_pool_that_holds_the_quota(
    client: Client, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client.pools.add(recipe("q"), timeout=GUARD)
    steering.limit(emulator.status, {"nodes": 1})
    client.pools.add(recipe(), wait=False, timeout=GUARD)
    until(lambda: bool(client.pools.get("p").refusal))
    monkeypatch.setattr(pool, "connect", lambda _: client)
    with click.Context(click.Command("show"), obj=Options(output="table")):
        pool.show_("p")
    *_, said = capsys.readouterr().err.splitlines()
    assert said.startswith("pool p got 0 of 1 node (AccountCoreQuotaReached: ")
    assert "[nodes-refused]; other pools of the account use the quota: q (1 node). Free nodes" in said
