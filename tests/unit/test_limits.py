"""When a run has cost or lasted as much as it may."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Hour, Price, Prices
from batchtrain.client.limits import UNLIMITED, Guard, Limits, hour_for, limits_of
from batchtrain.config.times import duration
from batchtrain.errors import LimitReached, UsageError
from batchtrain.records import Node
from batchtrain.records.events import Event, NodesSeen
from batchtrain.service import retry
from batchtrain.service.watch import Deadline, limited
from tests.unit.plan.jobs import recipe

PRICE = Price("D4s_v5", "westeurope", "USD", 1.0, 0.25)
HOUR = Hour("p", "D4s_v5", 2, 0, PRICE)


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


def test_a_run_ends_after_its_duration() -> None:
    clock = Clock()
    guard = Guard(Limits(seconds=3600), None, clock)
    assert guard.reason == ""
    clock.pass_(1)
    assert guard.reason == "the run has lasted 3,600 s, and at most 3,600 s are allowed"


def test_a_run_ends_when_its_nodes_have_cost_the_limit() -> None:
    clock = Clock()
    guard = Guard(Limits(price=3.0), HOUR, clock)
    guard.note(seen(clock, "a", "b"))
    clock.pass_(1)
    assert guard.reason == ""
    assert guard.cost == pytest.approx(2.0)
    clock.pass_(0.5)
    assert "have cost 3.00 USD since the run began, and at most 3.00 USD" in guard.reason


@pytest.mark.parametrize(("limits", "hours"), [(Limits(price=3.0), 1.5), (Limits(price=3.0, seconds=1800), 0.5)])
def test_a_pause_ends_when_a_limit_is_reached(limits: Limits, hours: float) -> None:
    clock = Clock()
    began = clock.now
    guard = Guard(limits, HOUR, clock)
    deadline = Deadline(1e9, "x", clock=retry.Clock(lambda: 0.0, lambda seconds: clock.pass_(seconds / 3600)))
    guard.note(seen(clock, "a", "b"))
    with limited(guard):
        deadline.pause(60)
        with pytest.raises(LimitReached):
            deadline.pause(86400)
        with limited(None):
            deadline.pause(0)
    assert (clock.now - began).total_seconds() == pytest.approx(hours * 3600)


def test_a_run_without_nodes_never_reaches_a_limit_of_the_price() -> None:
    assert Guard(Limits(price=4.0), HOUR._replace(dedicated=0), Clock()).seconds_left() is None


def test_a_run_that_is_left_without_nodes_may_last_as_long_as_all_of_them_cost_its_limit() -> None:
    guard = Guard(Limits(price=4.0), HOUR, Clock())
    assert guard.seconds_left() == pytest.approx(2 * 3600)
    assert guard.seconds_left(idle=300) == pytest.approx(2 * 3600 - 300)


def test_a_node_costs_until_the_first_look_without_it() -> None:
    clock = Clock()
    guard = Guard(Limits(price=100.0), HOUR, clock)
    both, one = seen(clock, "a", "b"), seen(clock, "a")
    guard.note(both)
    for look in (one, one):
        clock.pass_(1)
        guard.note(look)
    assert guard.cost == pytest.approx(3.0)  # nobody knows when b went in its last hour


def test_a_run_that_moves_to_other_nodes_has_cost_those_before_at_their_price() -> None:
    clock = Clock()
    guard = Guard(Limits(price=100.0), HOUR, clock)
    guard.note(seen(clock, "a", "b"))
    clock.pass_(1)
    guard.move(HOUR._replace(price=PRICE._replace(dedicated=10.0)))
    guard.note(seen(clock, "c"))
    clock.pass_(1)
    assert guard.cost == pytest.approx(12.0)


def test_spot_nodes_cost_their_own_price_and_a_pool_from_before_only_the_time_of_the_run() -> None:
    clock = Clock()
    old = seen(clock, "a", dedicated=False)
    clock.pass_(10)
    guard = Guard(Limits(price=100.0), HOUR, clock)
    guard.note(old)
    clock.pass_(2)
    assert guard.cost == pytest.approx(0.5)


def test_nodes_are_looked_at_again_each_minute_only_for_a_price() -> None:
    clock = Clock()
    guards = [Guard(limits, HOUR, clock) for limits in (Limits(price=1.0), UNLIMITED)]
    assert [guard.due() for guard in guards] == [False, False]
    clock.pass_(0.02)
    assert [guard.due() for guard in guards] == [True, False]


WORK = "$TargetDedicatedNodes = $PendingTasks.GetSample(1);"
NO_LIMIT = {"scenario": {"name": "pending_tasks", "maximum_vm_count": {"dedicated": -1}}}
SPOT = "$TargetDedicatedNodes = 1; $TargetLowPriorityNodes = 100;"
WINDOWS = {"publisher": "microsoftwindowsserver", "offer": "windowsserver", "sku": "2022-datacenter"}


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        ({"vm_size": "STANDARD_D8S_V5"}, "--prices --location westeurope` reads it"),
        ({"vm_count": {"low_priority": 1}}, r"no price of STANDARD_D4S_V5 \(spot\) in westeurope; `batchtrain"),
        ({"autoscale": {"formula": SPOT}}, r"no price of STANDARD_D4S_V5 \(spot\)"),
        ({"autoscale": {"formula": WORK}}, r"write `\$TargetDedicatedNodes = min\(NUMBER"),
        ({"autoscale": NO_LIMIT}, "maximum_vm_count.dedicated`: -1 is no limit; write a number"),
        ({"vm_configuration": {"platform_image": WINDOWS}}, "prices of Linux nodes alone.*--max-duration"),
        ({"vm_sizes": {"alternatives": ["STANDARD_D8S_V5"]}}, "no price of STANDARD_D4S_V5 or STANDARD_D8S_V5"),
    ],
)
def test_a_limit_of_the_price_without_the_cost_of_all_nodes_is_refused_with_what_to_add(
    pool: dict[str, Any], reason: str
) -> None:
    made = recipe(pool={"vm_count": {"dedicated": 0}, "inter_node_communication_enabled": False, **pool})
    priced = replace(made, catalog=Catalog(prices=(Prices("westeurope", "EUR", {"STANDARD_D4S_V5": 0.25}),)))
    with pytest.raises(UsageError, match=reason):
        hour_for(Limits(price=1.0), priced, "westeurope")
    assert hour_for(Limits(seconds=1.0), priced, "westeurope") is None


@pytest.mark.parametrize(
    ("pool", "jobs", "cost"),
    [
        ({}, [{}], 0.5),
        ({"autoscale": {"formula": "$TargetDedicatedNodes = 50;"}}, [{}], 12.5),
        ({}, [{"auto_pool": {}}, {"auto_pool": {}}], 1.0),
        ({}, [{"auto_pool": {}}, {}], 1.0),
        ({"vm_count": {"dedicated": 0}}, [{}], 0.0),
    ],
)
def test_a_limit_of_the_price_counts_all_nodes_that_a_run_may_have_at_once(
    pool: dict[str, Any], jobs: list[dict[str, Any]], cost: float
) -> None:
    made = recipe(pool=pool)
    planned = tuple(recipe({"id": f"j{number}", **job}).jobs[0] for number, job in enumerate(jobs))
    prices = Catalog(prices=(Prices("westeurope", "EUR", {"STANDARD_D4S_V5": 0.25}),))
    hour = hour_for(Limits(price=1.0), replace(made, jobs=planned, catalog=prices), None)
    assert hour is not None
    assert hour.cost == pytest.approx(cost)


def test_a_node_whose_price_is_unknown_ends_a_run_with_a_limit_of_the_price() -> None:
    clock = Clock()
    guard = Guard(Limits(price=100.0), HOUR._replace(price=PRICE._replace(spot=None)), clock)
    guard.note(seen(clock, "a"))
    spot = seen(clock, "b", dedicated=False)
    clock.pass_(0.1)
    guard.note(spot)
    assert re.search(r"no price of some of the nodes.*the limit of 100\.00 USD cannot be kept", guard.reason)


def test_the_nodes_of_several_pools_are_counted_each() -> None:
    clock = Clock()
    guard = Guard(Limits(price=100.0), HOUR, clock)
    for pool in ("p", "q"):
        guard.note(replace(seen(clock, pool), subject=pool))
    clock.pass_(1)
    assert guard.cost == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("1.5h", 5400), ("1h30m", 5400), (" 2D ", 172800), ("", None), ("3x", None),
        ("1.2.3s", None),
    ],
)  # fmt: skip
def test_a_duration_is_written_with_units(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


def test_the_limits_of_a_call_are_times_and_numbers() -> None:
    assert limits_of(3, "1h30m") == Limits(3, 5400.0)
    for price, time in ((None, -1), (None, "soon"), (None, math.nan), (-1, None), ("5", None)):
        with pytest.raises(UsageError, match="`max_"):
            limits_of(price, time)  # type: ignore[arg-type]  # the mistakes
