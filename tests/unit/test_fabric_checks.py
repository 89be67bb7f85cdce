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


def test_the_node_is_slow_whose_pairs_all_are() -> None:
    assert judge(HB, MEASURED).slow_nodes == ("tvm-c",)


def test_of_two_nodes_none_is_called_slow_because_either_may_be() -> None:
    assert (
        judge(HB, FabricMeasurement(("a", "b"), {"pair_gb_per_second": 1.0}, (NodePair(0, 1, 1.0),))).slow_nodes == ()
    )


@pytest.mark.parametrize(("rate", "verdict"), [(24.0, "good"), (20.0, "slow"), (11.0, "fault")])
def test_a_rate_is_judged_by_the_mark_of_its_size(rate: float, verdict: str) -> None:
    check = judge(HB, FabricMeasurement(("a", "b"), {"pair_gb_per_second": rate}))
    assert (check.judged[0].verdict, check.verdict) == (verdict, verdict)


@pytest.mark.parametrize(("latency", "verdict"), [(1.0, "good"), (3.0, "slow"), (9.0, "fault")])
def test_of_a_latency_less_is_better(latency: float, verdict: str) -> None:
    mark = Mark("pair_latency_us", 1.5, 2.0, 4.0)
    assert judge(HB, FabricMeasurement(("a", "b"), {"pair_latency_us": latency}), [mark]).verdict == verdict


def test_every_mark_is_of_a_value_that_a_check_measures() -> None:
    assert {mark.metric for mark in MARKS} <= {*METRICS}


def test_a_size_without_a_mark_says_so() -> None:
    check = judge("Standard_D4ds_v5", FabricMeasurement(("a", "b"), {"pair_gb_per_second": 1.0}))
    assert (check.judged[0].verdict, check.judged[0].expected) == ("no mark", None)


def test_half_of_the_rate_of_the_best_pair_is_a_fault_on_every_size() -> None:
    assert judge("Standard_D4ds_v5", MEASURED).verdict == "fault"


def test_a_mark_of_the_user_decides() -> None:
    low = (Mark("pair_gb_per_second", 1.0, 0.5, 0.1), Mark("pair_ratio", 0.0))
    assert judge(HB, MEASURED, low).verdict == "good"


def test_the_rate_of_the_gpus_is_that_of_the_pair() -> None:
    measured = FabricMeasurement(("a", "b"), {}, (NodePair(0, 1, 24.0, 1.5, 430.0),))
    assert list(measured.matrix()) == [("n0", "", "430"), ("n1", "430", "")]


def test_the_report_has_the_values_the_slow_node_and_the_matrix(tmp_path: Path) -> None:
    now = datetime(2026, 11, 26, tzinfo=timezone.utc)
    run = directory.make(tmp_path, "fabric", now)
    run.write(RunRecord(id=run.name, state="completed", started=now, job="fabric"))
    run.write_fabric(judge(HB, MEASURED))
    page = report.html(run)
    assert "<h2>Fabric</h2>" in page and "slow: tvm-c" in page
    assert ">11.5</td>" in page and "ib_write_bw 190 Gb/s" in page


def test_another_run_has_no_such_part(tmp_path: Path) -> None:
    now = datetime(2026, 11, 26, tzinfo=timezone.utc)
    run = directory.make(tmp_path, "fabric", now)
    run.write(RunRecord(id=run.name, state="completed", started=now, job="train"))
    assert "Fabric" not in report.html(run)
