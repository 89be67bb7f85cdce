"""What a fabric check measured, judged, and shown on the report."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from batchtrain.catalog.fabric_marks import MARKS, METRICS, Mark
from batchtrain.records import FabricMeasurement, NodePair
from batchtrain.records.fabric_check import judge
from batchtrain.runs import directory, report
from batchtrain.runs.directory import RunRecord

HB = "Standard_HB120rs_v3"
PAIRS = (NodePair(0, 1, 24.0), NodePair(0, 2, 11.0), NodePair(1, 2, 11.5))
MEASURED = FabricMeasurement(("tvm-a", "tvm-b", "tvm-c"), {"pair_gb_per_second": 11.0}, PAIRS)


def test_the_node_is_slow_whose_pairs_all_are_but_none_of_two_because_either_may_be() -> None:
    of_two = FabricMeasurement(("a", "b"), {"pair_gb_per_second": 1.0}, (NodePair(0, 1, 1.0),))
    assert [judge(HB, measured).slow_nodes for measured in (MEASURED, of_two)] == [("tvm-c",), ()]


def rate(value: float, name: str = "pair_gb_per_second") -> FabricMeasurement:
    return FabricMeasurement(("a", "b"), {name: value})


LATENCY = (Mark("pair_latency_us", 1.5, 2.0, 4.0),)
LOW = (Mark("pair_gb_per_second", 1.0, 0.5, 0.1), Mark("pair_ratio", 0.0))
D4 = "Standard_D4ds_v5"


@pytest.mark.parametrize(
    ("size", "measured", "marks", "verdict", "parts"),
    [
        (HB, rate(24.0), (), "good", ["good"]),
        (HB, rate(20.0), (), "slow", ["slow"]),
        (HB, rate(11.0), (), "fault", ["fault"]),
        (HB, rate(1.0, "pair_latency_us"), LATENCY, "good", ["good"]),  # of a latency less is better
        (HB, rate(3.0, "pair_latency_us"), LATENCY, "slow", ["slow"]),
        (HB, rate(9.0, "pair_latency_us"), LATENCY, "fault", ["fault"]),
        (D4, rate(1.0), (), "no mark", ["no mark"]),
        (D4, MEASURED, (), "fault", ["no mark", "fault"]),  # half of the rate of the best pair, on every size
        (HB, MEASURED, LOW, "good", ["good", "no limit"]),  # a mark of the user decides
    ],
)
def test_a_measurement_is_judged_by_the_mark_of_its_size(
    size: str, measured: FabricMeasurement, marks: tuple[Mark, ...], verdict: str, parts: list[str]
) -> None:
    check = judge(size, measured, marks)
    assert (check.verdict, [part.verdict for part in check.judged]) == (verdict, parts)
    assert verdict != "no mark" or check.judged[0].expected is None


def test_every_mark_is_of_a_value_that_a_check_measures() -> None:
    assert {mark.metric for mark in MARKS} <= {*METRICS}


def test_the_rate_of_the_gpus_is_that_of_the_pair() -> None:
    measured = FabricMeasurement(("a", "b"), {}, (NodePair(0, 1, 24.0, 1.5, 430.0),))
    assert list(measured.matrix()) == [("n0", "", "430"), ("n1", "430", "")]


@pytest.mark.parametrize("is_measured", [True, False])
def test_the_report_of_a_check_has_the_values_the_slow_node_and_the_matrix(is_measured: bool, tmp_path: Path) -> None:
    now = datetime(2026, 11, 26, tzinfo=timezone.utc)
    run = directory.make(tmp_path, "x", now)
    run.write(RunRecord(id=run.name, state="completed", started=now, job="x"))
    if is_measured:
        run.write_fabric(judge(HB, MEASURED))
    page = report.html(run)
    parts = ("<h2>Fabric</h2>", "slow: tvm-c", ">11.5</td>", "ib_write_bw 190 Gb/s")
    assert [part in page for part in parts] == [is_measured] * 4
