"""How many examples and parameters tests try: few by default, many with --all and --rest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

VARIABLE = "BATCHTRAIN_TEST_EXAMPLES"
"""Set to `many` by --all and --rest."""
SHARE = 10
"""By default one of so many examples is tried."""

Value = TypeVar("Value")


def count(many: int) -> int:
    """How many examples of `many` are tried in this run."""
    return many if os.environ.get(VARIABLE) == "many" else max(1, many // SHARE)


def some(values: Sequence[Value], number: int) -> Sequence[Value]:
    """By default a share of some values, another for each number; else all of them."""
    return values if count(SHARE) == SHARE else values[number % SHARE :: SHARE]


def first(values: Iterable[Any], number: int = 1) -> list[Any]:
    """Parameters of a test: without --all the first alone, or the first few. Of MPIs that is MPICH, which this
    environment has."""
    rest = iter(values)
    return [*islice(rest, number), *(pytest.param(value, marks=pytest.mark.slow) for value in rest)]


def of(many: int, *, phases: tuple[Phase, ...] = tuple(Phase)) -> settings:
    """Settings of a hypothesis test: the same examples in each run."""
    return settings(
        max_examples=count(many),
        deadline=None,
        derandomize=True,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
