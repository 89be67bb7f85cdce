"""The speeds that Azure publishes for its sizes: each with its source, and for sizes that exist."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from batchtrain.catalog.fabric_marks import MARKS, Mark, is_published, marks_of
from batchtrain.catalog.sizes import SIZES, key


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: f"{mark.metric}-{mark.sizes[0]}")
def test_a_mark_has_its_source_its_date_and_limits_in_order(mark: Mark) -> None:
    assert mark.source and mark.date
    limits = [limit for limit in (mark.expected, mark.warn, mark.report) if limit is not None]
    assert limits == sorted(limits, reverse=True)


@pytest.mark.parametrize("pattern", sorted({pattern for mark in MARKS for pattern in mark.sizes}))
def test_each_pattern_is_that_of_a_size_of_the_catalogue(pattern: str) -> None:
    assert any(fnmatchcase(key(size.name), pattern) for size in SIZES)


def test_a_size_without_published_marks_has_only_the_comparison_of_its_nodes() -> None:
    assert not is_published("STANDARD_D4DS_V5")
    assert set(marks_of("Standard_D4ds_v5")) == {"pair_ratio"}


def test_h100_has_the_three_baselines_of_azure() -> None:
    mark = marks_of("standard_nd96isr_h100_v5")["gpu_allreduce_gb_per_second"]
    assert (mark.expected, mark.warn, mark.report) == (450, 400, 300)
    assert is_published("Standard_ND96isr_H100_v5")


def test_a_mark_of_the_user_wins() -> None:
    assert marks_of("Standard_HB120rs_v3", [Mark("pair_gb_per_second", 1.0)])["pair_gb_per_second"].expected == 1.0
