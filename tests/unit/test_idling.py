"""Pools that stand: which of them get an idle timeout, and the remark about those without one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from batchtrain.config.types import Recipe
from batchtrain.errors import UsageError
from batchtrain.plan.idling import costs_while_idle, with_idle_timeout
from tests.unit.plan.jobs import recipe


def of(**pool: object) -> Recipe:
    made = recipe({})
    assert made.pool is not None
    return replace(made, pool=replace(made.pool, **pool))


@pytest.mark.parametrize(
    ("pool", "timeout", "expected"),
    [
        ({}, None, "30m"),
        ({}, "2h", "2h"),
        ({"idle_timeout": "1h"}, None, "1h"),
        ({"idle_timeout": "1h"}, "2h", "2h"),
        ({"autoscale": "to_zero"}, None, None),
    ],
)
def test_the_option_wins_over_the_file_and_the_file_over_the_default(
    pool: dict[str, object], timeout: str | None, expected: str | None
) -> None:
    made = with_idle_timeout(of(**pool), timeout).pool
    assert made is not None
    assert made.idle_timeout == expected


@pytest.mark.parametrize(
    ("pool", "timeout", "reason"), [({}, "299s", "at least 5m"), ({"autoscale": "to_zero"}, "5m", "has `autoscale`")]
)
def test_a_time_that_the_pool_cannot_have_is_refused(pool: dict[str, object], timeout: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        with_idle_timeout(of(**pool), timeout)


@pytest.mark.parametrize(
    ("pool", "said"), [({}, True), ({"idle_timeout": "1h"}, False), ({"autoscale": "to_zero"}, False)]
)
def test_only_a_pool_that_keeps_its_nodes_is_remarked(pool: dict[str, object], said: bool) -> None:
    assert bool(costs_while_idle(of(**pool).pool)) is said
