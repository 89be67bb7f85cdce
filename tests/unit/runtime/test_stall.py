"""When the primary calls a gang stalled, and which process it names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.runtime.launch.stall import Stall


def process(identity: int, node: int) -> Any:
    return SimpleNamespace(id=identity, node=SimpleNamespace(index=node))


ALIVE = {identity: process(identity, identity // 2) for identity in range(4)}


class Clocked:
    """A stall of two nodes with two processes each, at a time of the test."""

    def __init__(self, **limits: float) -> None:
        self.now = 0.0
        self.stall = Stall(limits, lambda: self.now)
        self.stall.begin(SimpleNamespace(processes=ALIVE.values()))  # type: ignore[arg-type]  # what it reads of a gang

    def first_at(self, now: float, alive: dict[int, Any] = ALIVE) -> tuple[int, str] | None:
        self.now = now
        first = self.stall.first(alive)
        return first and (first[0].id, first[1])


def test_the_process_that_was_silent_first_is_named() -> None:
    gang = Clocked(silent=20)
    for identity, gang.now in ((0, 5.0), (1, 3.0), (2, 1.0), (3, 4.0)):
        gang.stall.note(identity)
    assert gang.first_at(24) is None
    assert gang.first_at(25) == (2, "stalled first, 24 s ago: no process printed anything for 20 s")


def test_an_output_of_any_process_and_its_end_are_signs_of_life() -> None:
    gang = Clocked(silent=20)
    gang.now = 19
    gang.stall.note(3)
    assert gang.first_at(30, {0: ALIVE[0]}) is None
    assert gang.first_at(39, {0: ALIVE[0]}) is not None


@pytest.mark.parametrize(("printed", "worked", "stalls"), [(0, 0, True), (15, 0, False), (0, 15, False)])
def test_both_limits_must_run_out(printed: float, worked: float, stalls: bool) -> None:
    gang = Clocked(silent=20, idle=20, below=5)
    for node in (0, 1):
        gang.stall.sampled(node, 1)
    gang.now = printed
    gang.stall.note(2)
    gang.now = worked
    gang.stall.sampled(0, 90 if worked else 1)
    assert (gang.first_at(21) is not None) is stalls


def test_a_node_without_samples_idles_never() -> None:
    gang = Clocked(idle=20, below=5)
    gang.stall.sampled(0, 1)
    assert gang.first_at(1000) is None
    gang.stall.sampled(1, 1)
    assert gang.first_at(1020) == (0, "stalled first, 1020 s ago: the GPUs of all nodes were below 5 % for 20 s")


def test_without_limits_nothing_is_looked_at() -> None:
    gang = Clocked()
    assert gang.stall.pause == 0
