"""The most nodes that an autoscale formula can request: interval arithmetic over its syntax tree. Pure.

A sample is any number from 0 up. The bound of a target is never too low; None means that the target has no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from operator import mul, truediv
from typing import NamedTuple

from batchtrain.formula import METRICS, TARGETS, FormulaError, Node, Statement, parse

KINDS = ("$TargetDedicatedNodes", "$TargetLowPriorityNodes")
ROUNDS = 3
"""Evaluations after which a target that still grows has no bound: it grows from its former value."""


class Interval(NamedTuple):
    """The numbers that a value can be; all of them for a value of another type."""

    low: float = -math.inf
    high: float = math.inf
    vector: bool = False
    """Whether it stands for the numbers of a vector, which may be empty."""


UNKNOWN = Interval(vector=True)
TRUTH = Interval(0.0, 1.0)
SAMPLE = Interval(0.0)
PARTS_OF_TIME = {"weekday": 6, "hour": 23, "minute": 59, "second": 59, "month": 12, "day": 31}


def most_targets(text: str) -> tuple[int | None, ...]:
    """The most dedicated and the most spot nodes that a formula can request for a pool that begins without nodes."""
    try:
        statements = parse(text)
    except FormulaError:
        return None, None
    most = [0.0, 0.0]
    for number in count():
        targets = _Evaluation(most).targets(statements)
        pairs = list(zip(targets, most, strict=True))
        if all(target <= bound for target, bound in pairs):
            break
        most = [max(pair) if pair[0] <= pair[1] or number < ROUNDS else math.inf for pair in pairs]
    return tuple(None if math.isinf(target) else int(target) for target in targets)


class _Evaluation:
    """One evaluation over intervals. most: the bounds of the targets that a formula has set before."""

    def __init__(self, most: Sequence[float]) -> None:
        self._most = dict(zip(KINDS, most, strict=True))
        self._variables: dict[str, Interval] = {}
        self._results: list[list[float]] = []

    def targets(self, statements: Sequence[Statement]) -> list[float]:
        """The bounds of the targets, at the end of the formula and at each `stop()`."""
        for target, expression in statements:
            value = self._value(expression)
            if target is not None:
                is_target = target.text in TARGETS  # the service takes a negative target as 0
                self._variables[target.text] = _hull(value, at_least=0.0) if is_target else value
        self._note_result()
        return [max(bounds) for bounds in zip(*self._results, strict=True)]

    def _note_result(self) -> None:
        bounds = dict(self._most)
        for spelling, name in reversed(TARGETS.items()):  # the full name wins over its older spelling
            if spelling in self._variables:
                bounds[name] = self._variables[spelling].high
        self._results.append(list(bounds.values()))

    def _value(self, node: Node) -> Interval:
        if node.kind == "number":
            return Interval(float(node.token.text), float(node.token.text))
        if node.kind == "name":
            return self._name(node.token.text)
        if node.kind == "binary":
            return self._binary(node)
        if node.kind == "member":
            return Interval(0.0, PARTS_OF_TIME.get(node.token.text, math.inf))
        if node.kind == "call" and node.token.text == "stop":
            self._note_result()
        values = [self._value(part) for part in node.parts]
        function = _OTHERS.get(node.token.text)
        return function(values) if function is not None else UNKNOWN

    def _name(self, name: str) -> Interval:
        if name in self._variables:
            return self._variables[name]
        if name in TARGETS:
            return Interval(0.0, self._most[TARGETS[name]])
        return SAMPLE if name in METRICS else UNKNOWN

    def _binary(self, node: Node) -> Interval:
        """Iterates from the left, so that a long sum needs no deep stack."""
        chain = [node]
        while chain[-1].parts[0].kind == "binary":
            chain.append(chain[-1].parts[0])
        value = self._value(chain[-1].parts[0])
        for link in reversed(chain):
            operate, other = _ARITHMETIC.get(link.token.text), self._value(link.parts[1])
            value = operate(value, other) if operate is not None else TRUTH
        return value


def _hull(*values: Interval, vector: bool = False, at_least: float = -math.inf) -> Interval:
    """The smallest interval with all of these."""
    if not values:
        return UNKNOWN
    low, high = min(value.low for value in values), max(value.high for value in values)
    return Interval(max(low, at_least), max(high, at_least), vector)


# --- operations ------------------------------------------------------------------------------------------------------


def _corners(operate: Callable[[float, float], float], left: Interval, right: Interval) -> Interval:
    """The interval of an operation that is monotonic in each operand. A corner such as 0 * infinity is a limit of the
    others."""
    values = [operate(a, b) for a in left[:2] for b in right[:2]]
    numbers = [0.0 if math.isnan(value) else value for value in values]
    return Interval(min(numbers), max(numbers), left.vector or right.vector)


def _plus(left: Interval, right: Interval) -> Interval:
    low, high = left.low + right.low, left.high + right.high
    is_number = not math.isnan(low + high) or low < high
    return Interval(low, high, left.vector or right.vector) if is_number else UNKNOWN


def _minus(left: Interval, right: Interval) -> Interval:
    return _plus(left, Interval(-right.high, -right.low, right.vector))


def _divided(left: Interval, right: Interval) -> Interval:
    """Division by an interval with 0 has no bounds."""
    is_bounded = right.low > 0 or right.high < 0
    return _corners(truediv, left, right) if is_bounded else UNKNOWN


_ARITHMETIC: dict[str, Callable[[Interval, Interval], Interval]] = {
    "+": _plus, "-": _minus, "*": partial(_corners, mul), "/": _divided,
}  # fmt: skip


def _least(values: Sequence[Interval]) -> Interval:
    """The minimum is at most each number, but an empty vector has none."""
    high = min((value.high for value in values if not value.vector), default=_hull(*values).high)
    return Interval(_hull(*values).low, high)


def _greatest(values: Sequence[Interval]) -> Interval:
    low = max((value.low for value in values if not value.vector), default=_hull(*values).low)
    return Interval(low, _hull(*values).high)


_OTHERS: dict[str, Callable[[Sequence[Interval]], Interval]] = {
    "?": lambda values: _hull(*values[1:], vector=any(value.vector for value in values[1:])),
    "-": lambda values: _minus(Interval(0.0, 0.0), values[0]),
    "!": lambda values: TRUTH,
    "min": _least,
    "max": _greatest,
    "avg": lambda values: _hull(*values),
    "percentile": lambda values: _hull(*values[:1]),
    "val": lambda values: _hull(*values[:1]),
    "vec": lambda values: _hull(*values, vector=True),
    "rand": lambda values: TRUTH,
    "len": lambda values: SAMPLE,
    "GetSample": lambda values: SAMPLE._replace(vector=True),
    "GetSamplePercent": lambda values: Interval(0.0, 100.0),
    "Count": lambda values: SAMPLE,
}
"""The other operations by their token: the ternary operator, those of one operand, functions and methods."""
