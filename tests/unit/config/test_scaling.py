"""The most nodes of a pool: one answer, whatever sets their number."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from batchtrain.config.formula_bounds import most_targets
from batchtrain.config.scaling import goes_to_the_most, most_nodes, unlimited
from batchtrain.config.types import Pool
from batchtrain.plan import autoscale
from tests.unit.plan.jobs import recipe

COUNT = {"dedicated": 2, "low_priority": 1}
BOTH = "$TargetDedicatedNodes = 50; $TargetLowPriorityNodes = min(4, $PendingTasks.GetSample(1));"
NAMES = ("active_tasks", "pending_tasks", "workday", "workday_with_offpeak_max_low_priority", "weekday", "weekend")


def scenario(dedicated: int | None, spot: int | None, **more: Any) -> dict[str, Any]:
    most = {"dedicated": dedicated, "low_priority": spot}
    return {"autoscale": {"scenario": {"name": "pending_tasks", "maximum_vm_count": most, **more}}}


def pool(**more: Any) -> Pool:
    made = recipe(pool={"vm_count": COUNT, "inter_node_communication_enabled": False, **more}).pool
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("more", "most", "says"),
    [
        ({}, (2, 1), ""),
        ({"idle_timeout": "30m"}, (2, 1), ""),
        ({"autoscale": "to_zero"}, (2, 1), ""),
        ({"autoscale": {}}, (2, 1), ""),
        (scenario(7, None), (7, 1), ""),
        (scenario(7, -1), (7, None), "`autoscale.scenario.maximum_vm_count.low_priority`: -1 is no limit; write"),
        (scenario(-1, -1), (None, None), "count.dedicated` and `autoscale.scenario.maximum_vm_count.low_priority`"),
        ({"autoscale": {"formula": BOTH}}, (50, 4), ""),
        ({"autoscale": {**scenario(-1, -1)["autoscale"], "formula": BOTH}}, (50, 4), ""),
        (
            {"autoscale": {"formula": "$TargetDedicatedNodes = $PendingTasks.GetSample(1);"}},
            (None, 0),
            "write `$TargetDedicatedNodes = min(NUMBER, ...);`",
        ),
    ],
)
def test_a_pool_has_a_maximum_of_each_kind_of_node_or_names_what_to_write(
    more: dict[str, Any], most: tuple[int | None, int | None], says: str
) -> None:
    assert tuple(most_nodes(pool(**more))) == most
    assert bool(unlimited(pool(**more))) is bool(says)
    assert says in unlimited(pool(**more))


@pytest.mark.parametrize(("name", "bias"), tuple(product(NAMES, ("auto", "dedicated", "low_priority"))))
def test_the_formula_of_a_scenario_never_requests_more_than_its_maximum(name: str, bias: str) -> None:
    made = pool(**scenario(5, 6, name=name, bias_node_type=bias, maximum_vm_increment_per_evaluation={"dedicated": 2}))
    formula, most = autoscale.formula(made), most_nodes(made)
    assert formula is not None
    for kind, limit in zip(most._fields, most_targets(formula), strict=True):
        assert limit is not None and limit <= getattr(most, kind)
        assert limit == getattr(most, kind) or kind not in goes_to_the_most(made.autoscale.scenario)  # type: ignore[union-attr]
