"""What runs cost together, and the budget of a month."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from batchtrain.runs import spending
from batchtrain.runs.directory import Cost, RunRecord
from batchtrain.runs.spending import Budget, Expense

START = datetime(2027, 1, 10, tzinfo=timezone.utc)
NOW = START + timedelta(hours=3)


def record(**values: Any) -> RunRecord:
    cost = Cost(currency="USD", region="westeurope", dedicated=2.0, spot=None, hour=4.0, run=values.pop("run", None))
    default = {"id": "r", "state": "completed", "started": START, "ended": NOW, "job": "digits", "user": "ada"}
    return RunRecord(**{**default, "vm_size": "STANDARD_D4DS_V5", "nodes": 2, "cost": cost, **values})


def test_each_group_has_its_runs_and_the_dearest_is_first() -> None:
    expenses = [
        spending.of_run(record(job=job, run=amount, node_hours=amount / 2), (), NOW)
        for job, amount in (("a", 1.5), ("b", 4.0), ("a", 2.0))
    ]
    rows = [(row.group, row.runs, row.cost, row.node_hours) for row in spending.rows(expenses, "job")]
    assert rows == [("b", 1, "4.00 USD", 2.0), ("a", 2, "3.50 USD", 1.75), ("all", 3, "7.50 USD", 3.75)]


def test_a_run_with_two_tags_is_in_both_rows_and_once_in_all() -> None:
    expenses = [spending.of_run(record(run=3.0), tags, NOW) for tags in (("lr", "paper"), ("paper",), ())]
    rows = {row.group: (row.runs, row.cost) for row in spending.rows(expenses, "tag")}
    assert rows == {"lr": (1, "3.00 USD"), "paper": (2, "6.00 USD"), "(none)": (1, "3.00 USD"), "all": (3, "9.00 USD")}


@pytest.mark.parametrize("state", ["running", "detached", "left"])
def test_a_run_without_an_end_costs_at_most_all_its_nodes_until_now(state: str) -> None:
    expense = spending.of_run(record(state=state, ended=None), (), NOW)
    assert (expense.cost, expense.node_hours, expense.is_most) == (12.0, 6.0, True)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"state": "lost", "ended": None}, "lost, so its end is not known here"),
        ({"cost": None}, "no price of STANDARD_D4DS_V5"),
        ({"run": None}, "its nodes are not known"),
    ],
)
def test_an_unknown_cost_is_named_and_not_counted_as_nothing(values: dict[str, Any], reason: str) -> None:
    (row, _) = spending.rows([spending.of_run(record(**values), (), NOW)], "user")
    assert (row.cost, row.unknown) == ("", f"1 run: {reason}")


def test_sums_of_two_currencies_are_not_added() -> None:
    expenses = [Expense((), "", "a", "", 1.0, 2.0, "USD"), Expense((), "", "a", "", 1.0, 3.0, "EUR")]
    assert spending.rows(expenses, "job")[0].cost == "3.00 EUR + 2.00 USD"


@pytest.mark.parametrize(("hour", "is_exceeded"), [(1.0, False), (1.01, True), (None, False)])
def test_a_budget_is_exceeded_by_what_an_hour_adds(hour: float | None, is_exceeded: bool) -> None:
    budget = Budget(10.0, [Expense((), "", "a", "", 1.0, 9.0, "USD"), Expense((), "", "b", "", None, None)])
    why = budget.exceeded(hour, "USD")
    assert bool(why) is is_exceeded
    assert not why or ("9.00 USD are spent" in why and "1 run of unknown cost not counted" in why)
