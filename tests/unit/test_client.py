"""Where to run: values in, an account or a refusal out; no service is asked."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import batchtrain
from batchtrain.client.account_runs import AccountRun, named
from batchtrain.client.client import Client, where
from batchtrain.client.detach import Detached
from batchtrain.client.logins import words
from batchtrain.client.shown_progress import SHOW
from batchtrain.config.types import Secret
from batchtrain.config.user_settings import is_for_emulator
from batchtrain.errors import UsageError
from batchtrain.records import Endpoint
from batchtrain.records.events import Event
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.finished import Run
from batchtrain.service.connect import Account


def test_nowhere_to_run_is_a_usage_error_with_both_ways_out() -> None:
    with pytest.raises(UsageError, match=r"--local.*AZURE_BATCH_ACCOUNT"):
        where(local=False, credentials=None, environment={})


def test_the_environment_names_an_account_as_for_az() -> None:
    environment = {"AZURE_BATCH_ACCOUNT": "a", "AZURE_BATCH_ACCESS_KEY": "a2V5", "AZURE_BATCH_ENDPOINT": "a.b.c"}
    assert where(local=None, credentials=None, environment=environment) == Account("https://a.b.c", "a", Secret("a2V5"))


@pytest.mark.parametrize(("value", "means"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)])
def test_an_environment_switch_is_a_truth(value: str, means: bool) -> None:
    assert is_for_emulator(None, {"BATCHTRAIN_LOCAL": value}) is means


@pytest.mark.parametrize(
    ("key", "line"), [("my key", "ssh -i 'my key' -p 49001 al@1.2.3.4"), ("", "ssh -p 49001 al@1.2.3.4")]
)
def test_a_login_is_said_as_the_command_that_uses_it(key: str, line: str) -> None:
    assert shlex.join(words("al", key, Endpoint("n", "1.2.3.4", 49001))) == line


CALLS: list[Callable[[Client], Callable[[Any], object]]] = [
    lambda client: client.run,
    lambda client: client.detach,
    lambda client: client.plan,
    lambda client: client.compare,
    lambda client: client.pools.add,
    lambda client: client.jobs.add,
    lambda client: client.jobs.add_all,
]


@pytest.mark.parametrize("call", CALLS)
def test_a_path_in_place_of_a_recipe_is_answered_with_what_to_call(call: Callable[[Client], Any]) -> None:
    client = Client(Account("https://a.b.batch.azure.com", "a", Secret("a2V5")))
    with pytest.raises(UsageError, match=r"give it `batchtrain\.script\('src/train\.py'\)`"):
        call(client)("src/train.py")
    with pytest.raises(UsageError, match=r"give it `batchtrain\.load\('recipe'\)`"):
        call(client)(Path("recipe"))


class Stopped(Exception):
    pass


@pytest.mark.parametrize("call", [CALLS[0], CALLS[1], CALLS[4], CALLS[5], CALLS[6]])
def test_the_warnings_of_a_recipe_are_told_before_anything_else(call: Callable[[Client], Any], tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text("import torch\n", encoding="utf-8")
    client, events = Client(Account("https://a.b.batch.azure.com", "a", Secret("a2V5"))), list[Event]()

    def tell(event: Event) -> None:
        events.append(event)
        raise Stopped

    with pytest.raises(Stopped):
        call(client)(batchtrain.script(tmp_path / "fit.py", nodes=2), tell=tell)
    assert [event.kind for event in events] == ["recipe.warning"]
    assert "[script-alone]" in events[0].text


@pytest.mark.parametrize(("tell", "display", "count"), [(SHOW, None, 1), (None, None, 0), (SHOW, False, 0)])
def test_a_program_in_a_pipe_shows_the_warnings_unless_it_chose_silence(
    tell: Any, display: bool | None, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fit.py").write_text("import torch\n", encoding="utf-8")
    client = Client(Account("https://a.b.batch.azure.com", "a", Secret("a2V5")))
    client.display = display
    client.recipe_here(batchtrain.script(tmp_path / "fit.py", nodes=2), tell)
    assert capsys.readouterr().err.count("[script-alone]") == count


def test_a_run_is_named_by_what_detach_and_account_runs_return(tmp_path: Path) -> None:
    detached = Detached(RunDirectory(tmp_path / "runs" / "first-7f3a"), "job", 60.0)
    row = AccountRun("first-7f3a", "job", "active", None, None, "", "", "")
    for value in (detached, (detached,), Run(detached.run)):
        assert named(value) == ("first-7f3a", tmp_path / "runs")
    assert named(row) == named("first-7f3a") == ("first-7f3a", None)


@pytest.mark.parametrize("call", [Client.attach, Client.fetch_run, Client.stop_run])
def test_what_names_no_run_is_refused_with_what_does(call: Callable[[Client, Any], object], tmp_path: Path) -> None:
    client = Client(Account("https://a.b.batch.azure.com", "a", Secret("a2V5")))
    with pytest.raises(UsageError, match=r"what `detach` returned, or a row of `account_runs\(\)`; this is a int"):
        call(client, 7)
    several = tuple(Detached(RunDirectory(tmp_path / name), name, 60.0) for name in ("a", "b"))
    with pytest.raises(UsageError, match=r"these are 2 runs.* such as `detached\[0\]`"):
        call(client, several)
