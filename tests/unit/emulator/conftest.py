"""What tests of the emulator's files share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulation import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def outside_tmp() -> Iterator[Path]:
    """A directory outside of /tmp, of which each node has its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(os.path.realpath(folder))


@pytest.fixture
def _closes_all_files() -> Iterator[None]:
    """The test leaves no file descriptor open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before
