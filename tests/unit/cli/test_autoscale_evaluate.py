"""`batchtrain pool autoscale evaluate`, which needs no account."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
    samples = tmp_path / "samples.json"
    samples.write_text(json.dumps({"$CurrentLowPriorityNodes": [["2027-01-30T08:59:30Z", 2]]}))
    for now, nodes in (("2027-01-29T10:00:00Z", 5), ("2027-01-30T09:00:00Z", 2)):
        said = batchtrain(*EVALUATE, str(file), "--now", now, "--samples", str(samples), "-o", "json")
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
