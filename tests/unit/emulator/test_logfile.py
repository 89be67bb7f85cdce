"""The emulator's log stays below a bound, also where child processes write to it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchtrain.emulator import logfile
from batchtrain.emulator.logfile import Bounded


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, int]]:
    """A log of at most 1,000 bytes, and a descriptor that appends to it."""
    monkeypatch.setattr(logfile, "LIMIT", 1000)
    path = tmp_path / "emulator.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield path, descriptor
    os.close(descriptor)


def test_a_full_log_is_cut_and_its_last_lines_are_kept(log: tuple[Path, int]) -> None:
    path, descriptor = log
    logger = logging.Logger("test")
    with os.fdopen(os.dup(descriptor), "w") as stream:
        logger.addHandler(logging.StreamHandler(stream))
        logger.addHandler(Bounded(path, descriptor))
        for number in range(1000):
            logger.info("line %d", number)
    former = path.with_name("emulator.log.1")
    assert (former.read_text() + path.read_text()).endswith("line 998\nline 999\n")
    assert max(path.stat().st_size, former.stat().st_size) <= 1010
    assert sorted(file.name for file in path.parent.iterdir()) == ["emulator.log", "emulator.log.1"]


def test_what_others_wrote_is_cut_and_they_go_on_writing_to_the_same_file(log: tuple[Path, int]) -> None:
    path, descriptor = log
    child = os.dup(descriptor)
    os.write(child, b"x" * 5000 + b"end")
    Bounded(path, descriptor).cut()
    os.write(child, b"more")
    os.close(child)
    assert path.read_bytes() == b"more"
    assert path.with_name("emulator.log.1").read_bytes() == b"x" * 997 + b"end"


def test_a_terminal_is_not_the_log(log: tuple[Path, int]) -> None:
    path, descriptor = log
    reader, terminal = os.pipe()
    assert (Bounded(path, descriptor).is_written, Bounded(path, terminal).is_written) == (True, False)
    os.close(reader)
    os.close(terminal)
