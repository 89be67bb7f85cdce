"""Waits for the tasks of jobs on the emulator: what each prints, how it ends, and the reason of every command."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from batchtrain.cli import pool
from batchtrain.cli.options import Settings as Options
from batchtrain.client.client import Client
from batchtrain.client.run import run
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator import steering
from batchtrain.emulator.interface import Exit, Run
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import BatchtrainError, TaskFailed, WaitOver
from batchtrain.records.events import Event
from batchtrain.service import retry, watch
from batchtrain.service.connect import Account
from tests.emulation import FakeMachine
from tests.unit.plan import jobs
from tests.waiting import GUARD, until

pytestmark = pytest.mark.process


class Planned(FakeMachine):
    """Nodes that know the commands of a plan, which stand in a shell."""

    @classmethod
    async def open(cls, data_dir: Path) -> Planned:
        return cls(data_dir)

    async def run(self, node_id: str, run: Run) -> Exit:
        command = re.search(r"exit \d+|hang", run.command_line)
        words = command[0].replace("hang", "wait") if command else run.command_line
        return await super().run(node_id, run._replace(command_line=words))


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "data", port=0), Planned.open) as running:
        yield running


@pytest.fixture
def client(emulator: Emulator) -> Client:
    return Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))


def recipe(*tasks: dict[str, Any], **job: Any) -> Recipe:
    return jobs.recipe({"tasks": list(tasks), **job}, pool={"vm_count": {"dedicated": 1}})


PREPARE = {"id": "prepare", "command": "exit 3"}
TRAIN = {"id": "train", "command": "exit 0", "depends_on": ["prepare"]}
SWEEP = {"id": "s", "command": "exit {0}", "task_factory": {"parametric_sweep": {"product": [{"start": 0, "stop": 3}]}}}


def job(client: Client, emulator: Emulator, *tasks: dict[str, Any], **options: Any) -> None:
    """A job of such tasks on a pool with a node."""
    client.pools.add(recipe(*tasks, **options), timeout=GUARD)
    client.jobs.add_all(recipe(*tasks, **options), timeout=GUARD)


def waits(client: Client, said: list[str], seconds: float = 7200.0) -> BatchtrainError:
    """How a wait for the job ends, whose clock moves a minute at each pause."""
    times = itertools.count()
    clock = retry.Clock(lambda: 60.0 * next(times), lambda _: None)
    deadline = watch.Deadline(seconds, "the tasks", lambda event: said.append(event.text), clock=clock)
    with pytest.raises(BatchtrainError) as caught:
        watch.tasks_ended(client.batch, "j", deadline, watch.Pace(0.0, 0.0))
        client.jobs.handle("j").raise_failed()
    return caught.value


@pytest.mark.parametrize(
    ("tasks", "options", "failed", "waiting"),
    [
        ((PREPARE, TRAIN), {}, "j/prepare", "train waits for prepare, which failed"),
        ((SWEEP,), {"merge_task": {"id": "m", "command": "exit 0"}}, "j/s-00001", "m waits for s-00001, which failed"),
    ],
    ids=["depends_on", "merge_task"],
)
def test_a_run_behind_a_failed_task_ends_at_once_with_its_cause_and_is_deleted(
    client: Client, tasks: tuple[dict[str, Any], ...], options: dict[str, Any], failed: str, waiting: str
) -> None:
    said: list[Event] = []
    outcome = run(client, recipe(*tasks, **options), tell=said.append, timeout=GUARD)
    assert isinstance(outcome.failure, TaskFailed) and outcome.failure.task == failed
    assert waiting in str(outcome.failure)
    assert failed[2:] in [event.subject for event in said if event.kind == "task.failed"]
    assert [event.text for event in said if event.kind == "deleted"] == ["deleted job j, pool p"]


def test_unusable_nodes_are_named_with_the_time_that_is_left_by_every_command(
    client: Client, emulator: Emulator
) -> None:
    client.pools.add(recipe(PREPARE), timeout=GUARD)
    (node,) = client.pools.nodes("p")
    steering.befall(emulator.status, node.id, "break")
    until(lambda: [node.state for node in client.pools.nodes("p")] == ["unusable"])
    client.jobs.add_all(recipe({"id": "t", "command": "exit 0"}), timeout=GUARD)
    said: list[str] = []
    error = waits(client, said)
    decided, diagnosis = client.jobs.handle("j").reason_to_wait(), client.jobs.handle("j").diagnose()
    assert isinstance(error, WaitOver) and error.exit_code == 6
    assert decided is not None and decided.rule.name == "no-usable-node"
    assert decided.text in said[-1] and "; the wait ends in " in said[-1] and decided.text in str(error)
    assert decided.finding in diagnosis.findings


def test_a_pool_without_quota_is_shown_with_the_error_and_the_pool_that_holds_the_quota(
    client: Client, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client.pools.add(jobs.recipe({"tasks": [TRAIN]}, pool={"id": "q", "vm_count": {"dedicated": 1}}), timeout=GUARD)
    steering.limit(emulator.status, {"nodes": 1})
    client.pools.add(recipe(TRAIN), wait=False, timeout=GUARD)
    until(lambda: bool(client.pools.get("p").refusal))
    monkeypatch.setattr(pool, "connect", lambda _: client)
    with click.Context(click.Command("show"), obj=Options(output="table")):
        pool.show_("p")
    *_, said = capsys.readouterr().err.splitlines()
    assert said.startswith("pool p got 0 of 1 node (AccountCoreQuotaReached: ")
    assert "[nodes-refused]; other pools of the account use the quota: q (1 node). Free nodes" in said


def test_a_preparation_that_failed_on_the_only_node_is_why_the_tasks_wait(client: Client, emulator: Emulator) -> None:
    client.pools.add(recipe(TRAIN), timeout=GUARD)
    preparation = {"commandLine": "/bin/sh -c 'exit 9'", "constraints": {"maxTaskRetryCount": 0}}
    client.batch.create_job({"id": "j", "poolInfo": {"poolId": "p"}, "jobPreparationTask": preparation})
    client.batch.create_task("j", {"id": "t", "commandLine": "true"})
    handle = client.jobs.handle("j")

    def names() -> list[str]:
        decided = handle.reason_to_wait()
        return [decided.rule.name] if decided else []

    until(lambda: names() == ["preparation-failed"])
    assert handle.diagnose().findings[0].rule == "preparation-failed"


def test_a_job_whose_open_tasks_never_start_has_no_work(client: Client, emulator: Emulator) -> None:
    job(client, emulator, PREPARE, TRAIN)
    handle = client.jobs.handle("j")
    until(lambda: handle.seen.failed == 1)
    assert [task.state for task in handle.tasks] == ["completed", "active"]
    assert not handle.open
