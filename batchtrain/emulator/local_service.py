"""The emulator's service on this machine: its data directory, its start, and its errors as those of batchtrain."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from batchtrain import state_files
from batchtrain.emulator import mapped_images, server
from batchtrain.emulator.interface import StorageMissing
from batchtrain.errors import NotFound, ServiceError, Unreachable, UsageError

VARIABLE = "BATCHTRAIN_EMULATOR_DIR"
"""The variable that names another data directory."""


def emulator_directory(environment: Mapping[str, str] | None = None) -> Path:
    """The data directory of this user's emulator; BATCHTRAIN_EMULATOR_DIR overrides it. Raises UsageError if the
    emulator cannot run here: everything that uses it asks for its directory first."""
    require_linux()
    directory = (os.environ if environment is None else environment).get(VARIABLE)
    return Path(directory).absolute() if directory else mapped_images.user_data() / "emulator"


def require_linux() -> None:
    """Raise UsageError on another system. The modules of the emulator cannot even be imported on Windows."""
    if sys.platform != "linux":
        raise UsageError(
            "the emulator needs Linux; use an Azure account, or run batchtrain in WSL or a Linux container"
        )


def account_dir(home: Path, label: str) -> Path:
    """The data directory of an account of the emulator; without a name, of the first one. Raises UsageError for a name
    that Azure would refuse."""
    if not label:
        return home
    if not re.fullmatch("[a-z0-9]{3,24}", label):
        raise UsageError(f"`{label}` is no name of a Batch account, which has 3 to 24 lower-case letters and digits")
    return mapped_images.account_dir(home, label)


@contextlib.contextmanager
def emulator_faults() -> Iterator[None]:
    """Converts errors of the emulator to errors of batchtrain."""
    try:
        yield
    except (server.Unsafe, server.PortTaken, server.Refused, StorageMissing) as error:
        raise UsageError(str(error)) from None
    except server.StartFailed as error:
        raise ServiceError(f"the emulator does not start: {error}", operation="start the emulator") from None
    except server.Busy as error:
        raise Unreachable(str(error), operation="ask the emulator") from None
    except server.NotRunning as error:
        raise NotFound(f"{error}; `batchtrain emulator start` starts it") from None


_USED: dict[Path, int] = {}
"""The data directories of the services that this process uses, open and under a shared lock until it ends."""


def use(home: Path) -> None:
    """Prevent other processes from stopping the service while this one lives; waits for one that is stopping it."""
    if home not in _USED:
        with contextlib.suppress(OSError):  # the emulator reports the problem with its directory
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            _USED[home] = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
            state_files.lock(_USED[home], shared=True)


@contextlib.contextmanager
def alone(home: Path) -> Iterator[bool]:
    """Whether no other process uses the emulator of a data directory. Inside the block, none can start to use it."""
    if home not in _USED:
        yield True
        return
    try:
        yield state_files.lock(_USED[home], wait=False) is not False
    finally:
        state_files.lock(_USED[home], shared=True)
