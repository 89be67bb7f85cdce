"""The length of a duration of the configuration language."""

from __future__ import annotations

import pytest

from batchtrain.config.check.spans import length


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        ("00:00:00", 0),
        ("00:00:59", 59),
        ("00:59:00", 3540),
        ("23:00:01", 82_801),
        ("24:00:00", 86_400),
        ("1.23:59:59", 172_799),
        ("2.00:00:00", 172_800),
        ("00:00:60", -1),
        ("00:60:00", -1),
        ("1.24:00:00", -1),
    ],
)
def test_a_duration_has_at_most_59_minutes_and_seconds_and_23_hours_after_days(span: str, seconds: int) -> None:
    assert length(span) == seconds
