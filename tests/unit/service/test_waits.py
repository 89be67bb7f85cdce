"""A wait's own words and its end, by a clock that never waits."""

from __future__ import annotations

import pytest

from batchtrain.errors import TimedOut, UsageError
from batchtrain.records.events import Event, Stdout
from batchtrain.service import retry
from batchtrain.service.watch import Deadline
from tests.unit.service.test_retry import Time


def deadline(time: Time, said: list[Event], seconds: float = 3600) -> Deadline:
    return Deadline(seconds, "the tasks of job j", said.append, clock=retry.Clock(time.now, time.sleep))


def test_each_minute_without_an_event_says_what_is_waited_for_and_for_how_long() -> None:
    time, said = Time(), list[Event]()
    wait = deadline(time, said)
    for _ in range(25):
        wait.pause(10, "1 of 1 tasks open")
    assert [event.text for event in said] == [
        f"waiting for the tasks of job j for {lasted}: 1 of 1 tasks open"
        for lasted in ("60 s", "2 min", "3 min", "4 min")
    ]


def test_the_next_step_is_said_once_and_again_when_it_changes() -> None:
    time, said = Time(), list[Event]()
    wait = deadline(time, said)
    for step in ["enable the job"] * 14 + ["add the task"] * 7:
        wait.pause(10, "it waits", step)
    assert [event.text.partition("it waits")[2] for event in said] == ["; enable the job", "", "; add the task"]


def test_events_and_news_put_the_next_word_off() -> None:
    time, said = Time(), list[Event]()
    wait = deadline(time, said)
    for number in range(30):
        wait.pause(10)
        if number % 4 == 0:
            wait.tell(Stdout("t", "a line"))
        elif number % 4 == 2:
            wait.news()
    assert {event.kind for event in said} == {"stdout"}


def test_the_deadline_ends_it_with_what_was_last_seen() -> None:
    time = Time()
    wait = deadline(time, [], 30)
    with pytest.raises(TimedOut, match="waiting for the tasks of job j took longer than 30 s; last seen: t is running"):
        while True:
            wait.pause(20, "t is running")
    assert time.pauses == [20, 10]


def test_an_outage_inside_is_an_event() -> None:
    time, said = Time(), list[Event]()
    with deadline(time, said):
        outage = retry.Outage(retry.Clock(time.now, time.sleep))
        outage.begin(0)
        time.sleep(10)
        outage.report("why", 1, retry._WAIT.get().tell)
    assert [event.kind for event in said] == ["unreachable"]
    assert retry._WAIT.get() is retry._ALONE


def test_a_wait_that_says_nothing_leaves_the_listener_of_outages_as_it_is() -> None:
    said: list[str] = []
    with retry.until(1, said.append), Deadline(1, "x"):
        retry._WAIT.get().tell("heard")
    assert said == ["heard"]


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_a_wait_has_an_end(seconds: float) -> None:
    with pytest.raises(UsageError):
        Deadline(seconds, "x")
