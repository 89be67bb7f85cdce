"""The account's time: real, scaled, stepped by hand; it never goes back."""

from __future__ import annotations

import pytest

from batchtrain.emulator.clock import Clock
from batchtrain.emulator.wire import DAY, SECOND
from tests.emulation import START


class Machine:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


def clock() -> tuple[Clock, Machine]:
    machine = Machine()
    return Clock(machine), machine


@pytest.mark.parametrize(("mode", "times"), [("real", 1), ("scaled", 60)])
def test_a_clock_is_the_machines_or_runs_so_many_times_as_fast(mode: str, times: float) -> None:
    made, machine = clock()
    made.turn(mode, times)
    machine.now += 10 * SECOND
    assert made() == START + 10 * times * SECOND
    assert made.seconds_to(made() + 60 * SECOND) == 60 / times


def test_a_stepped_clock_stands_until_it_is_stepped() -> None:
    made, machine = clock()
    made.turn("stepped")
    machine.now += 100 * SECOND
    assert made() == START
    assert made.seconds_to(START + SECOND) is None
    made.advance(7 * DAY)
    assert made() == START + 7 * DAY
    assert made.seconds_to(START + SECOND) == 0


def test_a_step_is_exact_while_the_machines_time_goes_on() -> None:
    machine = Machine()

    def ticking() -> int:
        machine.now += 10
        return machine.now

    made = Clock(ticking)
    made.turn("stepped")
    before = made()
    made.advance(SECOND)
    assert made() == before + SECOND


def test_turning_keeps_the_moment_and_what_was_gained() -> None:
    made, machine = clock()
    made.advance(DAY)
    made.turn("stepped")
    machine.now += 50 * SECOND
    made.turn("real")
    assert made() == START + DAY
    machine.now += SECOND
    assert made() == START + DAY + SECOND


def test_time_never_goes_back() -> None:
    made, machine = clock()
    first = made()
    machine.now -= 3600 * SECOND
    assert made() == first
    with pytest.raises(ValueError, match="does not go back"):
        made.advance(-1)


def test_a_reading_starts_the_next_clock_where_this_one_is() -> None:
    made, machine = clock()
    made.turn("scaled", 10)
    machine.now += SECOND
    again = Clock(machine, made.reading)
    assert again() == made()
    machine.now += SECOND
    assert again() == made() == START + 20 * SECOND


@pytest.mark.parametrize(("mode", "times"), [("fast", 1), ("scaled", 0), ("scaled", -3), ("scaled", float("nan"))])
def test_a_clock_that_cannot_be_is_refused(mode: str, times: float) -> None:
    made, _ = clock()
    with pytest.raises(ValueError):
        made.turn(mode, times)
