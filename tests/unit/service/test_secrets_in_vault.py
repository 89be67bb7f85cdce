"""Secrets that stand in Key Vault: which are asked for, what wins, and what their text may be."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest

from batchtrain.config.types import Credentials, Secret, convert
from batchtrain.errors import ConfigError, UsageError
from batchtrain.service import vault

ID = "https://mine.vault.azure.net/secrets/whole"
FILE = """credentials:
  batch: {account_service_url: https://a.b.batch.azure.com, account_key: YmF0Y2g=}
  storage: {link: {account: theirs, account_key: c3RvcmU=}, other: {account: other, account_key: b3RoZXI=}}
"""


def credentials(**sections: Any) -> Credentials:
    return convert(sections, Credentials)


class Secrets:
    """A vault as a dictionary, which remembers what it was asked."""

    def __init__(self, **known: str) -> None:
        self.known, self.asked = known, list[str]()

    def __call__(self, name: str) -> str:
        self.asked.append(name)
        return self.known[name]


def test_credentials_without_secrets_ask_for_nothing() -> None:
    own = credentials(batch={"account_key": "x"}, keyvault={"uri": "https://mine.vault.azure.net"})
    assert vault.resolved(own, Secrets()) is own


@pytest.mark.parametrize(
    ("section", "block", "value"),
    [
        ("storage", {"account": "a", "account_key_keyvault_secret_id": "s"}, "account_key"),
        ("docker_registry", {"username": "u", "password_keyvault_secret_id": "s"}, "password"),
        ("singularity_registry", {"username": "u", "password_keyvault_secret_id": "s"}, "password"),
        ("user_accounts", {"password_keyvault_secret_id": "s"}, "password"),
        ("shares", {"password_keyvault_secret_id": "s"}, "password"),
    ],
)
def test_a_secret_stands_for_a_value(section: str, block: dict[str, str], value: str) -> None:
    found = vault.resolved(credentials(**{section: {"one": block}}), Secrets(s="secret"))
    assert getattr(getattr(found, section)["one"], value) == Secret("secret")
    assert "secret'" not in repr(found)


def test_the_key_of_the_batch_account_may_be_a_secret() -> None:
    found = vault.resolved(credentials(batch={"account_key_keyvault_secret_id": "s"}), Secrets(s="a2V5"))
    assert found.batch is not None and found.batch.account_key == Secret("a2V5")


def test_a_value_of_the_file_wins_over_its_secret() -> None:
    block = {"account": "a", "account_key": "own", "account_key_keyvault_secret_id": "s"}
    secrets = Secrets(s="theirs")
    assert vault.resolved(credentials(storage={"l": block}), secrets).storage["l"].account_key == Secret("own")
    assert secrets.asked == []


@pytest.mark.parametrize(
    "text", [FILE, base64.b64encode(zlib.compress(FILE.encode())).decode()], ids=["text", "zlib and base64"]
)
def test_a_whole_credentials_file_may_be_a_secret_under_what_the_file_says_itself(text: str) -> None:
    own = credentials(
        keyvault={"credentials_secret_id": ID}, storage={"link": {"account": "mine", "account_key": "bWluZQ=="}}
    )
    found = vault.resolved(own, Secrets(**{ID: text}))
    assert found.batch is not None and found.batch.account_key == Secret("YmF0Y2g=")
    assert (found.storage["link"].account, found.storage["other"].account) == ("mine", "other")
    assert found.keyvault == own.keyvault


def test_secrets_named_in_a_file_that_is_a_secret_are_read_too() -> None:
    inner = "credentials: {storage: {link: {account: one, account_key_keyvault_secret_id: deep}}}"
    own = credentials(keyvault={"credentials_secret_id": ID})
    found = vault.resolved(own, Secrets(**{ID: inner, "deep": "a2V5"}))
    assert found.storage["link"].account_key == Secret("a2V5")


def test_a_secret_that_is_no_credentials_file_is_refused_without_a_word_of_it() -> None:
    own = credentials(keyvault={"credentials_secret_id": ID})
    for text in ("hunter2", "credentials: {batch: {account_kay: hunter2}}", "{hunter2: [}"):
        with pytest.raises(ConfigError) as caught:
            vault.resolved(own, Secrets(**{ID: text}))
        assert "hunter2" not in str(caught.value)
        assert "/secrets/whole" in str(caught.value)


@pytest.mark.parametrize("text", ["A: 1\nB: text\nC:\n", '{"A": "1", "B": "text", "C": null}'])
def test_a_mapping_is_yaml_or_json(text: str) -> None:
    assert vault.mapping(Secrets(s=text), "s") == {"A": "1", "B": "text"}


@pytest.mark.parametrize("text", ["hunter2", "[hunter2]", "A: {b: hunter2}", "A: [hunter2", ""])
def test_a_secret_that_is_no_mapping_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(ConfigError, match="is no mapping of names to values") as caught:
        vault.mapping(Secrets(s=text), "s")
    assert "hunter2" not in str(caught.value)


def test_a_name_alone_is_of_the_vault_that_the_file_names() -> None:
    assert vault.id_of("key", "https://mine.vault.azure.net/") == "https://mine.vault.azure.net/secrets/key"
    assert vault.id_of(ID, None) == ID
    with pytest.raises(UsageError, match=r"`keyvault\.uri`"):
        vault.id_of("key", None)


def test_a_reader_signs_in_at_the_first_secret_and_asks_for_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(vault.entra, "credential", lambda sign_in, ca: done.append(sign_in.mode))
    monkeypatch.setattr(vault, "secret", lambda _credential, secret_id, ca: done.append(secret_id) or "value")
    read = vault.reader(credentials(keyvault={"uri": "https://mine.vault.azure.net"}))
    assert done == []
    assert [read("a"), read("b"), read("https://mine.vault.azure.net/secrets/a")] == ["value"] * 3
    assert done == ["default", "https://mine.vault.azure.net/secrets/a", "https://mine.vault.azure.net/secrets/b"]
