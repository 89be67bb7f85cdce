"""When a run has cost or lasted as much as it may."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from batchtrain.catalog.prices import Price
from batchtrain.client.limits import UNLIMITED, Guard, Limits, price_for
from batchtrain.config.times import duration
from batchtrain.errors import LimitReached, UsageError
from batchtrain.records import Node
from batchtrain.records.events import Event, JobAdding, NodesSeen, Waiting
from batchtrain.service.connect import Account
from tests.unit.plan.jobs import recipe

PRICE = Price("D4s_v5", "westeurope", "USD", 1.0, 0.25)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 23, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, hours: float) -> None:
        self.now += timedelta(hours=hours)


def seen(clock: Clock, *names: str, dedicated: bool = True) -> Event:
    nodes = tuple(Node(name, "idle", "", allocated=clock.now, dedicated=dedicated) for name in names)
    return NodesSeen("p", target=len(nodes), nodes=nodes)


def test_a_run_ends_after_its_duration_and_only_once() -> None:
    clock = Clock()
    guard = Guard(Limits(seconds=3600), None, clock)
    guard.check()
    clock.pass_(1)
    with pytest.raises(LimitReached, match="has lasted 3,600 s, and at most 3,600 s are allowed"):
        guard.check()
    guard.check()


def test_a_run_ends_when_its_nodes_have_cost_the_limit() -> None:
    clock = Clock()
    guard = Guard(Limits(price=3.0), PRICE, clock)
    guard.note(seen(clock, "a", "b"))
    clock.pass_(1)
    guard.check()
    assert guard.cost == pytest.approx(2.0)
    clock.pass_(0.5)
    with pytest.raises(LimitReached, match=r"have cost 3\.00 USD since the run began, and at most 3\.00 USD"):
        guard.note(Waiting("", ""))


@pytest.mark.parametrize(("limits", "hours"), [(Limits(price=3.0), 1.5), (Limits(price=3.0, seconds=1800), 0.5)])
def test_a_pause_ends_when_a_limit_is_reached(limits: Limits, hours: float) -> None:
    clock = Clock()
    began = clock.now
    guard = Guard(limits, PRICE, clock, lambda seconds: clock.pass_(seconds / 3600))
    guard.note(seen(clock, "a", "b"))
    guard.sleep(60)
    with pytest.raises(LimitReached):
        guard.sleep(86400)
    assert (clock.now - began).total_seconds() == pytest.approx(hours * 3600)


def test_a_run_that_is_left_without_nodes_may_last_as_long_as_all_of_them_cost_its_limit() -> None:
    guard = Guard(Limits(price=4.0), PRICE, Clock(), planned=2.0)
    assert guard.seconds_left == pytest.approx(2 * 3600)


def test_a_node_that_is_gone_costs_nothing_more() -> None:
    clock = Clock()
    guard = Guard(Limits(price=100.0), PRICE, clock)
    both, one = seen(clock, "a", "b"), seen(clock, "a")
    guard.note(both)
    clock.pass_(1)
    guard.note(one)
    clock.pass_(1)
    assert guard.cost == pytest.approx(2.0)  # b was seen last at the beginning


def test_a_run_that_moves_to_other_nodes_has_cost_those_before_at_their_price() -> None:
    clock = Clock()
    guard = Guard(Limits(price=100.0), PRICE, clock)
    guard.note(seen(clock, "a", "b"))
    clock.pass_(1)
    guard.move(PRICE._replace(dedicated=10.0), 10.0)
    guard.note(seen(clock, "c"))
    clock.pass_(1)
    assert guard.cost == pytest.approx(12.0)


def test_spot_nodes_cost_their_own_price_and_a_pool_from_before_only_the_time_of_the_run() -> None:
    clock = Clock()
    old = seen(clock, "a", dedicated=False)
    clock.pass_(10)
    guard = Guard(Limits(price=100.0), PRICE, clock)
    guard.note(old)
    clock.pass_(2)
    assert guard.cost == pytest.approx(0.5)


def test_only_a_wait_is_ended_never_a_request() -> None:
    clock = Clock()
    guard = Guard(Limits(seconds=1), None, clock)
    clock.pass_(1)
    guard.note(JobAdding("j", ""))
    with pytest.raises(LimitReached):
        guard.note(seen(clock))


def test_nodes_are_looked_at_again_each_minute_only_for_a_price() -> None:
    clock = Clock()
    guards = [Guard(limits, PRICE, clock) for limits in (Limits(price=1.0), UNLIMITED)]
    assert [guard.due() for guard in guards] == [False, False]
    clock.pass_(0.02)
    assert [guard.due() for guard in guards] == [True, False]


def test_a_limit_of_the_price_without_a_price_is_refused_with_the_command_that_reads_it() -> None:
    account = Account("https://a.westeurope.batch.azure.com", "a")
    with pytest.raises(UsageError, match="batchtrain catalog refresh --prices --location westeurope` reads it"):
        price_for(Limits(price=1.0), recipe({}), account.region)
    assert price_for(Limits(seconds=1.0), recipe({}), account.region) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5h", 5400),
        ("1h30m", 5400),
        (" 2D ", 172800),
        ("", None),
        ("3x", None),
        ("1.2.3s", None),
    ],
)
def test_a_duration_is_written_with_units(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds
