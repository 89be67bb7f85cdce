"""One Azurite for all tests of a session, started as the emulator starts its own.

`python -m tests.azurite` installs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.interface import StorageAccount, StorageMissing
from batchtrain.emulator.machine import azurite
from tests import environments

INSTALLED = environments.home() / f"azurite-{azurite.VERSION}"


def share() -> None:
    """Let the emulators of all tests use one installation."""
    os.environ[azurite.DIRECTORY_VARIABLE] = str(INSTALLED)


def require() -> None:
    """Install Azurite, or skip the test with the reason."""
    try:
        azurite.install(azurite.find_node(), lambda _: None)
    except StorageMissing as missing:
        pytest.skip(str(missing))


@contextmanager
def serve(location: Path) -> Iterator[StorageAccount]:
    """An account whose data are below `location`."""
    require()
    running = azurite.Azurite(location)
    try:
        yield running.ensure()
    finally:
        running.close()


def credentials(account: StorageAccount, link: str = "link") -> str:
    """A credentials.yaml with the account behind a link."""
    told = f"{{account: {account.account}, account_key: {account.key}, endpoint: {account.endpoint}}}"
    return f"credentials: {{storage: {{{link}: {told}}}}}\n"


def section(account: StorageAccount) -> dict[str, Any]:
    """The section `credentials` of a recipe with the account behind `link`."""
    about = {"account": account.account, "account_key": account.key, "endpoint": account.endpoint}
    return {"storage": {"link": about}}


if __name__ == "__main__":
    share()
    require()
