"""Pieces of work at once, and files that several threads write."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from batchtrain.service import local_files
from batchtrain.service.at_once import AtOnce, Piece
from tests.waiting import GUARD


def give(number: int) -> int | None:
    return number or None


def test_every_result_comes_and_a_piece_without_one_is_left_out() -> None:
    work: AtOnce[int] = AtOnce("test", (partial(give, number) for number in range(50)))
    assert sorted(work.results()) == list(range(1, 50))


def test_an_added_piece_is_due_before_the_others() -> None:
    order: list[str] = []

    def note(name: str) -> None:
        order.append(name)
        if name == "first":
            work.add([partial(note, "added"), partial(note, "added too")])

    work: AtOnce[None] = AtOnce("test", [partial(note, "first"), partial(note, "last")], workers=1)
    assert list(work.results()) == []
    assert order == ["first", "added", "added too", "last"]


def test_added_pieces_are_taken_when_they_are_due() -> None:
    order: list[str] = []

    def pieces() -> Iterator[Piece[None]]:
        for number in range(3):
            order.append(f"taken {number}")
            yield partial(order.append, f"done {number}")

    work: AtOnce[None] = AtOnce("test", [lambda: work.add(pieces())], workers=1)
    assert list(work.results()) == []
    assert order == [f"{what} {number}" for number in range(3) for what in ("taken", "done")]


def test_an_idle_thread_takes_a_piece_that_is_added_while_another_works() -> None:
    begun, helped = threading.Event(), threading.Event()

    def help_out() -> str:
        helped.set()
        return "helped"

    def wait_for_help() -> str:
        begun.set()
        work.add([help_out])
        return "was helped" if helped.wait(GUARD) else "was alone"

    work: AtOnce[str] = AtOnce("test", [wait_for_help], workers=2)
    assert sorted(work.results()) == ["helped", "was helped"]
    assert begun.is_set()


def test_an_error_of_a_piece_is_raised_and_stops_the_others() -> None:
    started: list[int] = []

    def pieces() -> Iterator[Piece[int]]:
        for number in range(1000):
            started.append(number)
            yield partial(int, "x" if number == 3 else "7")

    work: AtOnce[int] = AtOnce("test", pieces(), workers=1)
    results: list[int] = []
    with pytest.raises(ValueError, match="'x'"):
        results.extend(work.results())
    assert (results, started) == ([7, 7, 7], [0, 1, 2, 3])
    assert work.stopped.is_set()


def test_an_iteration_that_ends_early_leaves_no_thread() -> None:
    work: AtOnce[int] = AtOnce("early end", (partial(give, 1) for _ in range(10_000)), workers=2)
    results = work.results()
    assert next(results) == 1
    results.close()  # type: ignore[attr-defined]
    assert [thread.name for thread in threading.enumerate() if thread.name == "early end"] == []


# --- positions ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["at a position", "after a seek"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    if request.param == "after a seek":
        monkeypatch.delattr(os, "pread")
        monkeypatch.delattr(os, "pwrite")
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def test_bytes_are_written_and_read_at_their_position(opened: int) -> None:
    local_files.write_at(opened, b"world", 6)
    local_files.write_at(opened, memoryview(b"hello "), 0)
    assert local_files.read_at(opened, 100, 6) == b"world"
    assert local_files.read_at(opened, 5, 0) == b"hello"
    assert local_files.read_at(opened, 5, 11) == b""


def test_bytes_that_the_system_did_not_write_at_first_are_written(opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pwrite" if hasattr(os, "pwrite") else "write"
    whole = getattr(os, name)
    monkeypatch.setattr(os, name, lambda fd, content, *start: whole(fd, content[:2], *start))
    local_files.write_at(opened, b"hello", 3)
    assert local_files.read_at(opened, 100, 3) == b"hello"
