"""Where to run: values in, an account or a refusal out; no service is asked."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.client.client import Client, where
from batchtrain.client.logins import words
from batchtrain.config.types import Secret
from batchtrain.config.user_settings import is_for_emulator
from batchtrain.errors import UsageError
from batchtrain.records import Endpoint
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
