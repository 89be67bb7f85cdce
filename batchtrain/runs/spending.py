"""What runs cost together: by tag, user, job or size, and against the budget of a month. Pure.

A run without an end counts as an hour of all its nodes for each hour since its start, which is the most that it may
have cost. A pool of the account that no record here explains counts as the hours of the nodes that it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from batchtrain.catalog.prices import money
from batchtrain.errors import counted
from batchtrain.runs.directory import RunRecord

By = Literal["tag", "user", "job", "size"]
NO_GROUP = "(none)"
UNPRICED = "no price"


class Expense(NamedTuple):
    """What one run, or one pool without a run, has cost."""

    tags: tuple[str, ...]
    user: str
    job: str
    size: str
    node_hours: float | None
    cost: float | None
    """None if it is unknown."""
    currency: str = ""
    is_most: bool = False
    """Whether it may have cost less."""
    why_unknown: str = ""

    def since(self, begin: datetime, started: datetime, end: datetime) -> Expense:
        """The part from a time on. started, end: of the whole."""
        whole, part = (end - started).total_seconds(), max((end - begin).total_seconds(), 0.0)
        share = part / whole if whole > 0 else 1.0
        cost = None if self.cost is None else self.cost * share
        return self._replace(cost=cost, node_hours=None if self.node_hours is None else self.node_hours * share)


class ExpenseRow(NamedTuple):
    """The runs of a group."""

    group: str
    runs: int
    node_hours: float
    cost: str
    at_most: bool
    """Whether a run of it has not ended, so that it may have cost less."""
    unknown: str
    """The runs whose cost is not in the sum, by the reason."""


GROUPS: Mapping[By, Callable[[Expense], Sequence[str]]] = {
    "tag": lambda expense: expense.tags,
    "user": lambda expense: (expense.user,),
    "job": lambda expense: (expense.job,),
    "size": lambda expense: (expense.size,),
}


def of_run(record: RunRecord, tags: tuple[str, ...], now: datetime) -> Expense:
    """What a run has cost until now."""
    expense = Expense(tags, record.user, record.job, record.vm_size, record.node_hours, None)
    cost = record.cost
    if cost is None:
        return expense._replace(why_unknown=f"{UNPRICED} of {record.vm_size or 'its nodes'}")
    expense = expense._replace(currency=cost.currency)
    if cost.run is not None:
        return expense._replace(cost=cost.run)
    if record.ended is not None:
        return expense._replace(why_unknown="its nodes are not known")
    if not record.goes_on:
        return expense._replace(why_unknown=f"{record.state}, so its end is not known here")
    if cost.hour is None:
        return expense._replace(why_unknown="its number of nodes has no maximum")
    hours = max((now - record.started).total_seconds(), 0.0) / 3600
    return expense._replace(cost=cost.hour * hours, node_hours=record.nodes * hours, is_most=True)


def rows(expenses: Sequence[Expense], by: By) -> list[ExpenseRow]:
    """A row for each group, the dearest first, and one for all. A run with two tags is in both rows."""
    groups: dict[str, list[Expense]] = {}
    for expense in expenses:
        for name in dict.fromkeys(GROUPS[by](expense)) or ("",):
            groups.setdefault(name or NO_GROUP, []).append(expense)
    by_cost = sorted(groups, key=lambda name: (-sum(expense.cost or 0.0 for expense in groups[name]), name))
    return [*(_row(name, groups[name]) for name in by_cost), _row("all", expenses)]


def _row(name: str, expenses: Iterable[Expense]) -> ExpenseRow:
    expenses = tuple(expenses)
    reasons = Counter(expense.why_unknown for expense in expenses if expense.why_unknown)
    return ExpenseRow(
        name,
        len(expenses),
        round(sum(expense.node_hours or 0.0 for expense in expenses), 2),
        in_words(total(expenses)),
        any(expense.is_most for expense in expenses),
        "; ".join(f"{counted(number, 'run')}: {reason}" for reason, number in sorted(reasons.items())),
    )


def total(expenses: Iterable[Expense]) -> dict[str, float]:
    """The sums by currency."""
    sums: dict[str, float] = {}
    for expense in expenses:
        if expense.cost is not None:
            sums[expense.currency] = sums.get(expense.currency, 0.0) + expense.cost
    return sums


def in_words(sums: Mapping[str, float]) -> str:
    """Sums as text; empty if no cost is known."""
    return " + ".join(money(amount, currency) for currency, amount in sorted(sums.items()))


class Budget(NamedTuple):
    """What may be spent until the end of a month, beside what was spent in it."""

    month: float
    expenses: Sequence[Expense]

    def exceeded(self, hour: float | None, currency: str) -> str:
        """Why an hour of some nodes would exceed it, in words; empty if it does not. hour: what that costs at most;
        None if it is unknown."""
        spent = total(self.expenses).get(currency, 0.0)
        if spent + (hour or 0.0) <= self.month:
            return ""
        costs = "" if hour is None else f", and an hour of this pool costs at most {money(hour, currency)}"
        unknown = sum(bool(expense.why_unknown) or expense.currency != currency for expense in self.expenses)
        missing = f"; {counted(unknown, 'run')} of unknown cost not counted" if unknown else ""
        return (
            f"the budget of this month is {money(self.month, currency)}: {money(spent, currency)} are spent{costs}"
            f"{missing}; pools that were deleted without a run directory here are not counted"
        )
