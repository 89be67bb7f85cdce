"""How many examples the tests of properties try: few by default, many with --all and --rest."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

VARIABLE = "BATCHTRAIN_TEST_EXAMPLES"
"""Set to `many` by --all and --rest."""
SHARE = 10
"""By default one of so many examples is tried."""


def count(many: int) -> int:
    """How many examples of `many` are tried in this run."""
    return many if os.environ.get(VARIABLE) == "many" else max(1, many // SHARE)


def of(many: int, *, phases: tuple[Phase, ...] = tuple(Phase)) -> settings:
    """Settings of a hypothesis test: the same examples in each run."""
    return settings(
        max_examples=count(many),
        deadline=None,
        derandomize=True,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
