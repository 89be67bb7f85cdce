"""The words of `ssh` that reach a node of Azure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.client import logins
from batchtrain.config.types import Pool, Recipe
from batchtrain.errors import NotFound, UsageError
from batchtrain.records import Endpoint
from batchtrain.service import read
from batchtrain.service.connect import Account

ACCOUNT = Account("https://a.batch.azure.com", "a", None)
BATCH: Any = None


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the arguments of a fake `ssh` on the PATH, one a line; the node n is at 1.2.3.4:49001."""
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/arguments\nexit 5\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(read, "endpoints", lambda *_: (Endpoint("n", "1.2.3.4", 49001),))
    return tmp_path / "arguments"


def recipe(**ssh: str) -> Recipe:
    block = {"ssh": {"username": "al", "ssh_public_key_data": "k", "ssh_private_key": "/k", **ssh}} if ssh else {}
    pool = {"id": "p", "vm_size": "STANDARD_D2S_V5", "vm_configuration": {}, **block}
    return Recipe(directory="d", pool=msgspec.convert(pool, Pool))


def test_a_command_is_run_and_a_port_is_forwarded_by_ssh_with_key_port_user_and_host(printed: Path) -> None:
    opened: list[int] = []
    target = logins.login(ACCOUNT, BATCH, "p", "n", recipe(username="al"))
    assert logins.run(target, "ls -l") == 5
    base = ["-i", "/k", "-o", "StrictHostKeyChecking=accept-new", "-p", "49001", "al@1.2.3.4"]
    assert printed.read_text(encoding="utf-8").splitlines() == [*base, "--", "ls -l"]
    with pytest.raises(UsageError, match="exit code 5"):
        logins.forward(target, 6006, 0, opened.append)
    options = ["-o", "ExitOnForwardFailure=yes", "-N", "-L", f"127.0.0.1:{opened[0]}:127.0.0.1:6006"]
    assert printed.read_text(encoding="utf-8").splitlines()[-5:] == options


def test_a_login_or_port_that_is_missing_is_named_with_the_next_step(printed: Path) -> None:
    with pytest.raises(UsageError, match=r"add `ssh` with a `username` to pool\.yaml"):
        logins.login(ACCOUNT, BATCH, "p", "n", recipe())
    with pytest.raises(NotFound, match="node other of pool p has no outside port"):
        logins.login(ACCOUNT, BATCH, "p", "other", recipe(username="al"))
