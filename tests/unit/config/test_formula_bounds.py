"""The most nodes that a formula can request, without samples."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from batchtrain.config.formula_bounds import most_targets
from batchtrain.formula import FormulaError, Seen, evaluate
from tests import examples

NOW = datetime(2026, 11, 23, 13, 5, 7, tzinfo=timezone.utc)
WORK = "$PendingTasks.GetSample(1)"
DOCUMENTED = """
$samples = $ActiveTasks.GetSamplePercent(TimeInterval_Minute * 15);
$tasks = $samples < 70 ? max(0, $ActiveTasks.GetSample(1)) :
    max($ActiveTasks.GetSample(1), avg($ActiveTasks.GetSample(TimeInterval_Minute * 15)));
$targetVMs = $tasks > 0 ? $tasks : max(0, $TargetDedicatedNodes / 2);
$TargetDedicatedNodes = max(0, min($targetVMs, 20));
$NodeDeallocationOption = taskcompletion;
"""


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("$TargetDedicatedNodes = 50;", (50, 0)),
        (DOCUMENTED, (20, 0)),
        (f"$TargetDedicatedNodes = min(50, {WORK});", (50, 0)),
        (f"$TargetDedicatedNodes = {WORK};", (None, 0)),
        (f"$TargetLowPriority = {WORK}; $TargetLowPriority = min($TargetLowPriority, 7.9);", (0, 7)),
        (f"$TargetLowPriority = {WORK}; $TargetLowPriorityNodes = 3;", (0, 3)),
        ("$TargetDedicatedNodes = time().weekday > 4 ? 2 : 10;", (10, 0)),
        ("$TargetDedicatedNodes = time().hour;", (23, 0)),
        (f"$TargetDedicatedNodes = 20 - {WORK} * 2;", (20, 0)),
        ("$TargetDedicatedNodes = -5; $TargetLowPriorityNodes = 4 - $TargetDedicatedNodes;", (0, 4)),
        ("$TargetDedicatedNodes = min($TargetDedicatedNodes + 1, 20);", (20, 0)),
        ("$TargetDedicatedNodes = $TargetDedicatedNodes > 3 ? 7 : $TargetDedicatedNodes;", (7, 0)),
        ("$TargetDedicatedNodes = $TargetDedicatedNodes + 1;", (None, 0)),
        ("$TargetDedicatedNodes = $CurrentDedicatedNodes * 1.1;", (None, 0)),
        (f"$TargetDedicatedNodes = min(25, 5 - {WORK});", (25, 0)),  # without a sample it is min(25)
        ("$TargetDedicatedNodes = 100; x = 1 > 0 ? stop() : 1; $TargetDedicatedNodes = 3;", (100, 0)),
        ("$TargetDedicatedNodes = min(5, 1 / 0);", (5, 0)),
        ("$TargetDedicatedNodes = 12 / $TaskSlotsPerNode;", (None, 0)),
        ("$TargetDedicatedNodes = val(vec(1, 8, 3), 1) + percentile(vec(1, 2), 50);", (10, 0)),
        ("$TargetDedicatedNodes = $PendingTasks.GetSamplePercent(TimeInterval_Minute) / 10;", (10, 0)),
        ("$TargetDedicatedNodes = 1e999 - 1e999;", (None, 0)),
        ("$TargetDedicatedNodes = 1" + " + 1" * 1500 + ";", (1501, 0)),
        ("$TargetDedicatedNodes = ;", (None, None)),
    ],
)
def test_a_formula_has_the_maximum_that_its_text_alone_shows(text: str, most: tuple[int | None, int | None]) -> None:
    assert most_targets(text) == most


ATOMS = some.one_of(
    some.sampled_from((
        "$PendingTasks", WORK, "$PendingTasks.GetSample(3)", "$CurrentDedicatedNodes", "$TargetDedicatedNodes",
        "$TargetLowPriorityNodes", "x", "rand()", "stop()", "time().hour", "1 / 0",
    )),
    some.integers(-3, 9).map(str),
)  # fmt: skip


def _grown(inner: some.SearchStrategy[str]) -> some.SearchStrategy[str]:
    call = some.builds("{}({})".format, some.sampled_from(("min", "max", "avg", "vec", "sum", "len", "std")), inner)
    calls = some.builds("{}({}, {})".format, some.sampled_from(("min", "max", "avg", "vec")), inner, inner)
    marks = some.sampled_from("+-*/<>")
    return call | calls | some.builds("({} {} {})".format, inner, marks, inner) | some.builds(
        "({} ? {} : {})".format, inner, inner, inner
    ) | inner.map("-{}".format)  # fmt: skip


VALUES = some.recursive(ATOMS, _grown, max_leaves=6)
NAMES = some.sampled_from(("x", "$TargetDedicatedNodes", "$TargetDedicated", "$TargetLowPriorityNodes"))


@some.composite
def formulas(draw: Callable[[Any], Any]) -> str:
    """Statements; a bounded one is likely to be the last."""
    lines = [f"{draw(NAMES)} = {draw(VALUES)};" for _ in range(draw(some.integers(1, 4)))]
    lines += draw(some.sampled_from(([], ["$TargetDedicatedNodes = min($TargetDedicatedNodes, 9);"])))
    return "x = 1; " + " ".join(lines)


WORKLOADS = some.lists(some.lists(some.integers(0, 30), max_size=3), min_size=1, max_size=6)
"""The samples that each of several evaluations sees."""


@pytest.mark.property
@examples.of(1000)
@given(formulas(), WORKLOADS, some.integers(0, 9))
def test_no_evaluation_gives_more_than_the_maximum(text: str, work: list[list[int]], seed: int) -> None:
    most, targets = most_targets(text), (0, 0)
    for values in work:
        samples = tuple((NOW + timedelta(seconds=30 * number), float(value)) for number, value in enumerate(values))
        seen = {"$PendingTasks": samples, "$CurrentDedicatedNodes": ((NOW, float(targets[0])),)}
        try:
            result = evaluate(text, Seen(NOW, seen, *targets, seed))
        except FormulaError:
            continue  # the targets stay
        targets = (result.dedicated, result.low_priority)
        assert all(limit is None or target <= limit for target, limit in zip(targets, most, strict=True)), (text, most)
