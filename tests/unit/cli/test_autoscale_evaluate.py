"""`batchtrain pool autoscale evaluate`, which needs no account, and the samples that it gives a formula."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from batchtrain.cli import samples
from batchtrain.errors import UsageError

EVALUATE = ("pool", "autoscale", "evaluate")


def test_a_formula_is_evaluated_with_the_samples_given(batchtrain: Any) -> None:
    formula = "$mean = avg($PendingTasks.GetSample(TimeInterval_Minute)); $TargetDedicatedNodes = min(3, $mean);"
    said = batchtrain(*EVALUATE, formula, "--sample", "PendingTasks=0,4,8", "-o", "json")
    assert json.loads(said.stdout) == {
        "targetDedicatedNodes": 3,
        "targetLowPriorityNodes": 0,
        "nodeDeallocationOption": "requeue",
        "variables": {"$mean": "4"},
    }


def test_a_formula_in_a_file_is_evaluated_at_a_moment(batchtrain: Any, tmp_path: Path) -> None:
    file = tmp_path / "formula.txt"
    file.write_text(
        "$now = time();\n$TargetLowPriorityNodes = $now.weekday < 6 && $now.hour > 8 ? 5 : $CurrentLowPriorityNodes;"
    )
    moments = tmp_path / "samples.json"
    moments.write_text(json.dumps({"$CurrentLowPriorityNodes": [["2027-01-30T08:59:30Z", 2]]}))
    for now, nodes in (("2027-01-29T10:00:00Z", 5), ("2027-01-30T09:00:00Z", 2)):
        said = batchtrain(*EVALUATE, str(file), "--now", now, "--samples", str(moments), "-o", "json")
        assert json.loads(said.stdout)["targetLowPriorityNodes"] == nodes


def evaluated(batchtrain: Any, *arguments: str) -> tuple[int, int]:
    document = json.loads(batchtrain(*EVALUATE, *arguments, "-o", "json").stdout)
    return document["targetDedicatedNodes"], document["targetLowPriorityNodes"]


@pytest.mark.parametrize("name", ["$CurrentDedicatedNodes", "$CurrentDedicated"])
def test_the_current_nodes_of_the_options_are_read_by_each_name(batchtrain: Any, name: str) -> None:
    formula = f"$TargetDedicated = avg({name}.GetSample(TimeInterval_Minute * 15)) + {name};"
    assert evaluated(batchtrain, formula, "--dedicated", "2") == (4, 0)


def test_the_formula_of_a_recipe_is_evaluated(batchtrain: Any, tmp_path: Path) -> None:
    pool = {"id": "p", "vm_size": "STANDARD_D4S_V5", "autoscale": {"formula": "$TargetLowPriorityNodes = 3;"},
            "vm_configuration": {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc",
                                                    "sku": "2404"}}}  # fmt: skip
    (tmp_path / "pool.yaml").write_text(json.dumps({"pool_specification": pool | {"vm_count": {"dedicated": 0}}}))
    for words in ((str(tmp_path),), ("--configdir", str(tmp_path)), ()):
        assert evaluated(batchtrain, *words) == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("$TargetDedicatedNodes = 1 +;",), "line 1, column 28"),
        (("$x = 1;", "--sample", "Tasks=1"), "has no samples"),
        (("$x = 1;", "--sample", "ActiveTasks=one"), "is not a number"),
        (("$x = 1;", "--now", "soon"), "is not a time"),
        (("$x = 1;", "--samples", "nothing.json"), "cannot be read"),
    ],
)
def test_what_cannot_be_evaluated_says_why(batchtrain: Any, arguments: tuple[str, ...], reason: str) -> None:
    said = batchtrain(*EVALUATE, *arguments, code=2)
    assert reason in said.stderr and not said.stdout


# --- samples --------------------------------------------------------------------------------------------------------

NOW = datetime(2027, 1, 31, 9, tzinfo=timezone.utc)


def test_numbers_are_half_a_minute_apart_and_end_now() -> None:
    found = samples.gathered(["PendingTasks=1,2.5"], None, NOW)
    assert found == {"$PendingTasks": ((NOW - timedelta(seconds=30), 1.0), (NOW, 2.5))}


def test_a_file_gives_numbers_or_moments_and_an_option_wins(tmp_path: Path) -> None:
    file = tmp_path / "samples.json"
    moments = [["2027-01-31T09:59:00+01:00", 4], ["2027-01-31T08:58:00Z", 3]]
    file.write_text(json.dumps({"$ActiveTasks": [1], "RunningTasks": moments, "FailedTasks": [7]}))
    found = samples.gathered(["$FailedTasks=8"], str(file), NOW)
    assert found["$ActiveTasks"] == ((NOW, 1.0),)
    assert found["$RunningTasks"] == ((NOW - timedelta(minutes=2), 3.0), (NOW - timedelta(minutes=1), 4.0))
    assert found["$FailedTasks"] == ((NOW, 8.0),)


@pytest.mark.parametrize("text", ["{", "[]", '{"ActiveTasks": 1}', '{"ActiveTasks": [true]}', '{"Tasks": [1]}'])
def test_a_file_that_holds_no_samples_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "samples.json").write_text(text)
    with pytest.raises(UsageError):
        samples.gathered([], str(tmp_path / "samples.json"), NOW)


def test_a_formula_is_a_text_unless_a_file_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "formula").write_text("$x = 1;")
    assert samples.text_of(str(tmp_path / "formula")) == "$x = 1;"
    assert samples.text_of("$x = 2;") == "$x = 2;"
    assert samples.text_of("$x = 1;\0" + "x" * 5000).startswith("$x = 1;")


def test_a_moment_without_a_zone_is_in_utc() -> None:
    assert samples.moment("2027-01-31T09:00:00") == samples.moment("2027-01-31T10:00:00+01:00") == NOW
