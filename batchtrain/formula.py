"""Parses, checks and evaluates Azure Batch's autoscale formulas. Pure: knows neither pools nor clocks.

Source: MicrosoftDocs/azure-docs, `articles/batch/batch-automatic-scaling.md` (variables, types, operations, functions,
samples). docs/explanation/emulator-differences.md lists what the document leaves open, and how batchtrain interprets
it.
"""

from __future__ import annotations

import difflib
import math
import operator
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

MOST_BYTES = 8 * 1024
MOST_STATEMENTS = 100
PERIOD = timedelta(seconds=30)
"""The service takes a sample every 30 seconds."""

METRICS = (
    "$CPUPercent", "$WallClockSeconds", "$MemoryBytes", "$DiskBytes", "$DiskReadBytes", "$DiskWriteBytes",
    "$DiskReadOps", "$DiskWriteOps", "$NetworkInBytes", "$NetworkOutBytes", "$SampleNodeCount", "$ActiveTasks",
    "$RunningTasks", "$PendingTasks", "$SucceededTasks", "$FailedTasks", "$CurrentDedicatedNodes",
    "$CurrentLowPriorityNodes", "$PreemptedNodeCount", "$UsableNodeCount", "$TaskSlotsPerNode",
)  # fmt: skip
"""Variables that a formula reads: the last sample if a number is needed, and an object with methods."""

TARGETS = {
    "$TargetDedicatedNodes": "$TargetDedicatedNodes",
    "$TargetDedicated": "$TargetDedicatedNodes",
    "$TargetLowPriorityNodes": "$TargetLowPriorityNodes",
    "$TargetLowPriority": "$TargetLowPriorityNodes",
}
"""Variables that a formula sets, with their older names."""

OLDER_METRICS = {"$CurrentDedicated": "$CurrentDedicatedNodes", "$CurrentLowPriority": "$CurrentLowPriorityNodes"}
"""Older names of variables that a formula reads."""

OPTION = "$NodeDeallocationOption"
OPTIONS = ("requeue", "terminate", "taskcompletion", "retaineddata")

_INTERVALS = {
    "Zero": timedelta(0), "100ns": timedelta(microseconds=0.1), "Microsecond": timedelta(microseconds=1),
    "Millisecond": timedelta(milliseconds=1), "Second": timedelta(seconds=1), "Minute": timedelta(minutes=1),
    "Hour": timedelta(hours=1), "Day": timedelta(days=1), "Week": timedelta(weeks=1), "Year": timedelta(days=365),
}  # fmt: skip

Vector = tuple[float, ...]
Sample = tuple[datetime, float]
"""A sample: its time (UTC) and its value."""


class FormulaError(Exception):
    """A formula cannot be parsed or evaluated: the reason and the position (`line`, `column` from 1)."""

    undefined = ""
    """The name that nothing defines, if that is the reason."""
    lacks_samples = False

    def __init__(self, message: str, line: int, column: int, *, syntax: bool) -> None:
        self.message, self.line, self.column, self.syntax = message, line, column, syntax
        super().__init__(f"line {line}, column {column}: {message}")


class Seen(NamedTuple):
    """The input of a formula: the time (UTC), the samples of each metric in order of time, the current targets."""

    now: datetime
    samples: Mapping[str, tuple[Sample, ...]] = {}
    dedicated: int = 0
    low_priority: int = 0
    seed: int = 0
    """The seed of `rand()`, so that an evaluation can be repeated."""


class Result(NamedTuple):
    """The result of a formula: the targets, the option, and every variable it set, in order."""

    dedicated: int
    low_priority: int
    option: str
    variables: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """The result as the service writes it in `results`."""
        head = (
            f"$TargetDedicatedNodes={self.dedicated}", f"$TargetLowPriorityNodes={self.low_priority}",
            f"{OPTION}={self.option}",
        )  # fmt: skip
        return ";".join((*head, *(f"{name}={value}" for name, value in self.variables)))


def evaluate(text: str, samples: Seen) -> Result:
    """Evaluates the formula. Raises FormulaError."""
    return _Run(samples).result(parse(text))


# --- reading: words, then a tree ------------------------------------------------------------------------------------


class Token(NamedTuple):
    """A token with its position."""

    kind: str
    text: str
    line: int
    column: int


_WORDS = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)
      | (?P<name>\$?[A-Za-z_][A-Za-z0-9_]*)
      | (?P<string>"[^"\n]*")
      | (?P<mark><=|>=|==|!=|&&|\|\||[-+*/<>!?:;,.()=])""",
    re.VERBOSE | re.DOTALL,
)


def _words(text: str) -> list[Token]:
    words, at, line, start = [], 0, 1, 0
    while at < len(text):
        match = _WORDS.match(text, at)
        if match is None:
            json = '; a text of JSON is written with `"` in place of `\\"` here' if text.startswith('\\"', at) else ""
            raise FormulaError(f"`{text[at]}` is not valid here{json}", line, at - start + 1, syntax=True)
        kind = str(match.lastgroup)
        if kind != "space":
            words.append(Token(kind, OLDER_METRICS.get(match[0], match[0]), line, at - start + 1))
        breaks = match[0].count("\n")
        if breaks:
            line, start = line + breaks, at + match[0].rindex("\n") + 1
        at = match.end()
    words.append(Token("end", "the end", line, at - start + 1))
    return words


class Node(NamedTuple):
    """A node of the syntax tree: its kind, its token, and its parts."""

    kind: str
    token: Token
    parts: tuple[Node, ...] = ()


class Statement(NamedTuple):
    """`name = value`, or a value alone (`stop()`)."""

    target: Token | None
    value: Node


_POWERS = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6}


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of a formula. Raises FormulaError if the text is not a formula, or exceeds 8 KB or 100
    statements."""
    if len(text.encode()) > MOST_BYTES:
        raise FormulaError(
            f"a formula has at most {MOST_BYTES} bytes, this has {len(text.encode())}", 1, 1, syntax=True
        )
    reader = _Reader(_words(text))
    statements = reader.statements()
    if len(statements) > MOST_STATEMENTS:
        token = reader.words[0]
        message = f"a formula has at most {MOST_STATEMENTS} statements, this has {len(statements)}"
        raise FormulaError(message, token.line, token.column, syntax=True)
    return statements


class _Reader:
    """Precedence climbing over the tokens. Nesting is bounded, so no formula can exhaust the stack."""

    DEEPEST = 60

    def __init__(self, words: list[Token]) -> None:
        self.words, self._at, self._depth = words, 0, 0

    def statements(self) -> tuple[Statement, ...]:
        statements = []
        while self._peek().kind != "end":
            if self._take(";"):
                continue
            statements.append(self._statement())
            if self._peek().kind != "end":
                self._expect(";")
        return tuple(statements)

    def _statement(self) -> Statement:
        token = self._peek()
        if token.kind == "name" and self.words[self._at + 1].text == "=":
            self._at += 2
            return Statement(token, self._ternary())
        return Statement(None, self._ternary())

    def _ternary(self) -> Node:
        self._depth += 1
        self._bounded(self._depth, self._peek())
        condition = self._binary(1)
        if mark := self._take("?"):
            yes = self._ternary()
            self._expect(":")
            condition = Node("ternary", mark, (condition, yes, self._ternary()))
        self._depth -= 1
        return condition

    def _binary(self, least: int) -> Node:
        node = self._unary()
        while (mark := self._peek()).kind == "mark" and _POWERS.get(mark.text, 0) >= least:
            self._at += 1
            node = Node("binary", mark, (node, self._binary(_POWERS[mark.text] + 1)))
        return node

    def _unary(self) -> Node:
        marks = []
        while mark := self._take("-") or self._take("!"):
            marks.append(mark)
            self._bounded(len(marks), mark)
        node = self._member()
        for mark in reversed(marks):
            node = Node("unary", mark, (node,))
        return node

    def _member(self) -> Node:
        node, steps = self._atom(), 0
        while mark := self._take("."):
            self._bounded(steps := steps + 1, mark)
            name = self._peek()
            if name.kind != "name":
                raise self._error(f"a name must follow the dot, not `{name.text}`", name)
            self._at += 1
            node = Node("method", name, (node, *self._arguments())) if self._peek().text == "(" else (
                Node("member", name, (node,))
            )  # fmt: skip
        return node

    def _atom(self) -> Node:
        token = self._peek()
        self._at += 1
        if token.kind in ("number", "string"):
            return Node(token.kind, token)
        if token.kind == "name":
            return Node("call", token, self._arguments()) if self._peek().text == "(" else Node("name", token)
        if token.text == "(":
            node = self._ternary()
            self._expect(")")
            return node
        raise self._error(f"a value is missing before `{token.text}`", token)

    def _arguments(self) -> tuple[Node, ...]:
        self._expect("(")
        arguments: list[Node] = []
        while not self._take(")"):
            if arguments and self._take(",") is None:
                raise self._error(f"`,` or `)` is missing before `{self._peek().text}`", self._peek())
            arguments.append(self._ternary())
        return tuple(arguments)

    def _peek(self) -> Token:
        return self.words[self._at]

    def _take(self, text: str) -> Token | None:
        token = self._peek()
        if token.kind != "mark" or token.text != text:
            return None
        self._at += 1
        return token

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            raise self._error(f"`{text}` is missing before `{self._peek().text}`", self._peek())

    def _bounded(self, depth: int, token: Token) -> None:
        if depth > self.DEEPEST:
            raise self._error("the formula is nested too deep", token)

    def _error(self, message: str, token: Token) -> FormulaError:
        return FormulaError(message, token.line, token.column, syntax=True)


# --- judging without samples ----------------------------------------------------------------------------------------


def judge(text: str) -> tuple[FormulaError, ...]:
    """The errors of a formula that do not depend on samples: syntax, unknown names, read-only variables, no target."""
    try:
        statements = parse(text)
    except FormulaError as error:
        return (error,)
    errors: list[FormulaError] = []
    names = {*METRICS, *TARGETS, OPTION, *OPTIONS, *(f"TimeInterval_{name}" for name in _INTERVALS)}
    targets = 0
    for target, value in statements:
        errors += _unknown(value, names)
        if target is None:
            continue
        if target.text in METRICS:
            errors.append(_error(target, f"{target.text} can only be read{_meant(target.text, TARGETS)}"))
        elif target.text.startswith("$") and target.text not in names:  # user-defined variables may begin with $, too
            meant = _meant(target.text, (*TARGETS, OPTION), 0.85)
            errors += [_error(target, f"the service has no variable {target.text}{meant}")] if meant else []
        targets += target.text in TARGETS
        names.add(target.text)
    if not targets and not errors:
        errors.append(FormulaError("it sets no target, such as $TargetDedicatedNodes", 1, 1, syntax=False))
    return tuple(errors)


def _unknown(node: Node, names: set[str]) -> Iterator[FormulaError]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        waiting += reversed(node.parts)
        name = node.token.text
        if node.kind == "name" and name not in names:
            what = f"the service has no variable {name}" if name.startswith("$") else f"`{name}` is not set above"
            yield _error(node.token, f"{what}{_meant(name, names)}")
        elif node.kind == "call" and name not in FUNCTIONS:
            yield _error(node.token, f"there is no function `{name}`{_meant(name, FUNCTIONS)}")
        elif node.kind == "method" and name not in _METHODS:
            yield _error(node.token, f"there is no `.{name}()`{_meant(name, _METHODS)}")


def _meant(word: str, names: Iterable[str], least: float = 0.6) -> str:
    near = difflib.get_close_matches(word, sorted(names), 1, least)
    return f"; did you mean `{near[0]}`?" if near else ""


# --- evaluating -----------------------------------------------------------------------------------------------------


class Metric(NamedTuple):
    """A variable of the service, as an object with methods."""

    name: str


class _Stop(Exception):
    """`stop()`: the values set so far are the result."""


class _Unfit(Exception):
    """A value that an operation does not accept; the caller knows the position."""

    def __init__(self, message: str, undefined: str = "") -> None:
        self.undefined = undefined
        super().__init__(message)


class _TooFewSamples(_Unfit):
    """A metric has fewer samples than the formula needs."""


class _Run:
    """One evaluation: its variables, and the operations on each kind of value."""

    def __init__(self, samples: Seen) -> None:
        self._seen = samples
        self._random = random.Random(samples.seed)
        self._set: dict[str, Any] = {}

    def result(self, statements: Iterable[Statement]) -> Result:
        try:
            for statement in statements:
                self._run(statement)
        except _Stop:
            pass
        targets = {}
        for spelling, name in reversed(TARGETS.items()):  # the full name wins over its older spelling
            if spelling in self._set:
                targets[name] = int(self._set[spelling])
        return Result(
            targets.get("$TargetDedicatedNodes", self._seen.dedicated),
            targets.get("$TargetLowPriorityNodes", self._seen.low_priority),
            str(self._set.get(OPTION, "requeue")),
            tuple((name, shown(value)) for name, value in self._set.items() if name not in TARGETS and name != OPTION),
        )

    def _run(self, statement: Statement) -> None:
        value = self._value(statement.value)
        token = statement.target
        if token is None:
            return
        if token.text in METRICS:
            raise _error(token, f"{token.text} can only be read")
        if token.text.startswith("TimeInterval_") or token.text in OPTIONS:
            raise _error(token, f"`{token.text}` is a reserved word and cannot be set")
        self._set[token.text] = self._fitting(token, value)

    def _fitting(self, token: Token, value: Any) -> Any:
        if token.text in TARGETS:
            try:
                number = self._number(value)
            except _Unfit as unfit:  # a metric without a sample
                raise _error(token, str(unfit)) from None
            if number is None or not math.isfinite(number):
                kind = kind_of(value) if number is None else f"{number} (a division by 0?)"
                raise _error(token, f"{token.text} must be a number, not {kind}")
            return max(0.0, number)
        if token.text == OPTION and value not in OPTIONS:
            raise _error(token, f"{OPTION} must be one of {', '.join(OPTIONS)}")
        return value

    def _value(self, node: Node) -> Any:
        try:
            return _KINDS[node.kind](self, node)
        except _Unfit as unfit:
            error = _error(node.token, str(unfit))
            error.undefined, error.lacks_samples = unfit.undefined, isinstance(unfit, _TooFewSamples)
            raise error from None
        except (OverflowError, ValueError):
            raise _error(node.token, "the value is out of range, infinite or no number") from None

    def _name(self, node: Node) -> Any:
        name = node.token.text
        if name in self._set:
            return self._set[name]
        if name in METRICS:
            return Metric(name)
        if name in TARGETS:
            dedicated = TARGETS[name] == "$TargetDedicatedNodes"
            return float(self._seen.dedicated if dedicated else self._seen.low_priority)
        if name in OPTIONS:
            return name
        if name.startswith("TimeInterval_") and name[13:] in _INTERVALS:
            return _INTERVALS[name[13:]]
        raise _Unfit(f"`{name}` was never set", name)

    def _ternary(self, node: Node) -> Any:
        condition, yes, no = node.parts
        return self._value(yes if self._true(self._value(condition)) else no)

    def _true(self, value: Any) -> bool:
        number = self._number(value)
        if number is None:
            raise _Unfit(f"a condition must be a number, not {kind_of(value)}")
        return number != 0

    def _unary(self, node: Node) -> Any:
        value = self._plain(self._value(node.parts[0]))
        if node.token.text == "!":
            return float(not self._true(value))
        if isinstance(value, (float, timedelta)):
            return -value
        raise _Unfit(f"`-` does not take {kind_of(value)}")

    def _binary(self, node: Node) -> Any:
        """Iterates from the left, so that a long sum needs no deep stack."""
        chain = [node]
        while chain[-1].parts[0].kind == "binary":
            chain.append(chain[-1].parts[0])
        value = self._value(chain[-1].parts[0])
        for link in reversed(chain):
            value = self._placed(link, value)
        return value

    def _placed(self, node: Node, operand: Any) -> Any:
        try:
            return self._operated(node, operand)
        except _Unfit as unfit:
            raise _error(node.token, str(unfit)) from None

    def _operated(self, node: Node, operand: Any) -> Any:
        mark = node.token.text
        if mark in ("&&", "||"):
            if self._true(operand) == (mark == "||"):
                return float(mark == "||")
            return float(self._true(self._value(node.parts[1])))
        return _operate(mark, self._plain(operand), self._plain(self._value(node.parts[1])))

    def _member(self, node: Node) -> float:
        value = self._value(node.parts[0])
        if not isinstance(value, datetime):
            raise _Unfit(f"{kind_of(value)} has no `.{node.token.text}`")
        if node.token.text == "weekday":
            return float(value.isoweekday() % 7)  # 0 is Sunday
        if node.token.text in ("year", "month", "day", "hour", "minute", "second"):
            return float(getattr(value, node.token.text))
        raise _Unfit(f"a timestamp has no `.{node.token.text}`")

    def _call(self, node: Node) -> Any:
        name = node.token.text
        if name == "stop" and not node.parts:
            raise _Stop
        function = _FUNCTIONS.get(name)
        values = [self._plain(self._value(part)) for part in node.parts]
        if name == "rand" and not values:
            return self._random.random()
        if name == "time":
            return self._time(values)
        if function is None:
            raise _Unfit(f"there is no function `{name}`")
        return function(values)

    def _time(self, values: list[Any]) -> datetime:
        if not values or values == [""]:
            return self._seen.now
        if len(values) != 1 or not isinstance(values[0], str):
            raise _Unfit("time() takes one text, or nothing")
        return _moment(values[0])

    def _method(self, node: Node) -> Any:
        owner = self._value(node.parts[0])
        if not isinstance(owner, Metric):
            raise _Unfit(f"{kind_of(owner)} has no `.{node.token.text}()`")
        values = [self._plain(self._value(part)) for part in node.parts[1:]]
        samples = self._seen.samples.get(owner.name, ())
        method = _METHODS.get(node.token.text)
        if method is None:
            raise _Unfit(f"{owner.name} has no `.{node.token.text}()`; it has {', '.join(_METHODS)}")
        return method(owner.name, samples, values, self._seen.now)

    def _plain(self, value: Any) -> Any:
        """The number of a value; for a metric, its last sample."""
        if not isinstance(value, Metric):
            return value
        samples = self._seen.samples.get(value.name, ())
        if not samples:
            raise _Unfit(f"there is no sample of {value.name} yet")
        return float(samples[-1][1])

    def _number(self, value: Any) -> float | None:
        """A number, or the number in a vector of length 1."""
        value = self._plain(value)
        if isinstance(value, tuple) and len(value) == 1:
            return float(value[0])
        return value if isinstance(value, float) else None


_KINDS: dict[str, Callable[[_Run, Node], Any]] = {
    "number": lambda _, node: float(node.token.text),
    "string": lambda _, node: node.token.text[1:-1],
    "name": _Run._name,
    "ternary": _Run._ternary,
    "unary": _Run._unary,
    "binary": _Run._binary,
    "member": _Run._member,
    "call": _Run._call,
    "method": _Run._method,
}


def _error(token: Token, message: str) -> FormulaError:
    return FormulaError(message, token.line, token.column, syntax=False)


def kind_of(value: Any) -> str:
    """The kind of a value, for messages."""
    return _NAMES.get(type(value), "a value")


_NAMES: dict[type, str] = {
    float: "a number", tuple: "a vector", str: "a text", datetime: "a timestamp", timedelta: "a time interval",
    Metric: "a variable of the service",
}  # fmt: skip


def shown(value: Any) -> str:
    """A value as the service writes it."""
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    if isinstance(value, tuple) and not isinstance(value, Metric):
        return f"[{','.join(shown(item) for item in value)}]"
    return value.name if isinstance(value, Metric) else str(value)


# --- operations -----------------------------------------------------------------------------------------------------


def _divide(left: float, right: float) -> float:
    """Division by IEEE 754: a number divided by zero is infinite, zero divided by zero is NaN."""
    if right:
        return left / right
    return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left)


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _operate(mark: str, left: Any, right: Any) -> Any:
    kinds = (type(left), type(right))
    if mark in _COMPARISONS:
        if isinstance(left, tuple) and len(left) == 1:
            left = left[0]
        if isinstance(right, tuple) and len(right) == 1:
            right = right[0]
        if type(left) is type(right) and not isinstance(left, tuple):
            return float(_COMPARISONS[mark](left, right))
        raise _Unfit(f"{kind_of(left)} and {kind_of(right)} cannot be compared")
    if set(kinds) <= {float, tuple}:
        return _numbers(mark, left, right)
    moments = _MOMENTS.get((mark, *kinds))
    if moments is None:
        raise _Unfit(f"`{mark}` does not take {kind_of(left)} and {kind_of(right)}")
    return moments(left, right)


_MOMENTS: dict[tuple[str, type, type], Callable[[Any, Any], Any]] = {
    ("*", float, timedelta): operator.mul,
    ("*", timedelta, float): operator.mul,
    ("/", timedelta, float): lambda interval, number: interval / number if number else timedelta.max,
    ("+", timedelta, timedelta): operator.add,
    ("-", timedelta, timedelta): operator.sub,
    ("+", timedelta, datetime): operator.add,
    ("+", datetime, timedelta): operator.add,
    ("-", datetime, timedelta): operator.sub,
    ("-", datetime, datetime): operator.sub,
}


def _numbers(mark: str, left: float | Vector, right: float | Vector) -> float | Vector:
    apply = _ARITHMETIC[mark]
    if isinstance(left, float) and isinstance(right, float):
        return apply(left, right)
    if isinstance(left, tuple) and isinstance(right, tuple):
        if len(left) != len(right):
            raise _Unfit(f"vectors of {len(left)} and {len(right)} numbers have different lengths")
        return tuple(apply(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, tuple) and isinstance(right, float):
        return tuple(apply(a, right) for a in left)
    assert isinstance(left, float) and isinstance(right, tuple)
    return tuple(apply(left, b) for b in right)


def _list(values: list[Any]) -> Vector:
    """Numbers and vectors as one vector."""
    numbers: list[float] = []
    for value in values:
        if isinstance(value, tuple):
            numbers.extend(value)
        elif isinstance(value, float):
            numbers.append(value)
        else:
            raise _Unfit(f"numbers are expected here, not {kind_of(value)}")
    return tuple(numbers)


def _some(function: Callable[[Vector], float]) -> Callable[[list[Any]], float]:
    def apply(values: list[Any]) -> float:
        numbers = _list(values)
        if not numbers:
            raise _Unfit("the argument has no number (no samples?)")
        return float(function(numbers))

    return apply


def _logarithm(base: float) -> Callable[[list[Any]], float | Vector]:
    def logarithm(number: float) -> float:
        if number > 0:
            return math.log(number) / math.log(base)
        return -math.inf if number == 0 else math.nan

    def apply(values: list[Any]) -> float | Vector:
        if len(values) == 1 and isinstance(values[0], float):
            return logarithm(values[0])
        return tuple(logarithm(number) for number in _list(values))

    return apply


def _percentile(values: list[Any]) -> float:
    if len(values) != 2 or not isinstance(values[0], tuple) or not isinstance(values[1], float) or not values[0]:
        raise _Unfit("percentile() takes a vector and a number")
    numbers: list[float] = sorted(values[0])
    rank = math.ceil(min(max(values[1], 0.0), 100.0) / 100 * len(numbers))
    return numbers[max(rank, 1) - 1]


def _mean(numbers: Vector) -> float:
    return math.fsum(numbers) / len(numbers)


def _deviation(numbers: Vector) -> float:
    """The deviation of a sample. `statistics.stdev` fails with infinite numbers, and its module takes 0.4 MB."""
    mean = _mean(numbers)
    return math.sqrt(math.fsum((number - mean) ** 2 for number in numbers) / max(len(numbers) - 1, 1))


def _val(values: list[Any]) -> float:
    if len(values) != 2 or not isinstance(values[0], tuple) or not isinstance(values[1], float):
        raise _Unfit("val() takes a vector and a number")
    if not 0 <= values[1] < len(values[0]):
        raise _Unfit(f"the vector has {len(values[0])} numbers, so number {values[1]:g} does not exist")
    return float(values[0][int(values[1])])


_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "avg": _some(_mean),
    "len": lambda values: float(len(_list(values))),
    "lg": _logarithm(2),
    "ln": _logarithm(math.e),
    "log": _logarithm(10),
    "max": _some(max),
    "min": _some(min),
    "norm": lambda values: math.hypot(*_list(values)),
    "percentile": _percentile,
    "range": _some(lambda numbers: max(numbers) - min(numbers)),
    "std": _some(_deviation),
    "sum": lambda values: math.fsum(_list(values)),
    "val": _val,
    "vec": _list,
}
FUNCTIONS = (*_FUNCTIONS, "rand", "stop", "time")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            raise _Unfit(f"`{text}` is not a time of the form 2027-01-31T12:00:00Z or of RFC 1123") from None
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)


# --- samples --------------------------------------------------------------------------------------------------------


def _get_sample(name: str, samples: tuple[Sample, ...], values: list[Any], now: datetime) -> Vector:
    if len(values) == 1 and isinstance(values[0], float):
        return tuple(float(value) for _, value in samples[-int(values[0]) :] if values[0] >= 1)
    *_, percent = values if values and isinstance(values[-1], float) else (*values, None)
    start, end = _window(values[:-1] if percent is not None else values, now)
    inside = tuple(float(value) for at, value in samples if start <= at <= end)
    if percent is not None and _percent(len(inside), start, end) < percent:
        received = _percent(len(inside), start, end)
        # the service's text (Azure/batch-shipyard issue 138)
        raise _TooFewSamples(f"Insufficient data from data set: {name} wanted {percent:g}%, received {received:g}%")
    return inside


def _get_percent(_name: str, samples: tuple[Sample, ...], values: list[Any], now: datetime) -> float:
    start, end = _window(values, now)
    return _percent(sum(start <= at <= end for at, _ in samples), start, end)


def _percent(count: int, start: datetime, end: datetime) -> float:
    periods = (end - start) / PERIOD
    return 100.0 if periods <= 0 else min(100.0, 100 * count / periods)


def _window(values: list[Any], now: datetime) -> tuple[datetime, datetime]:
    """The interval of one or two times, each a timestamp or a duration before now."""
    if not 1 <= len(values) <= 2 or not all(isinstance(value, (datetime, timedelta)) for value in values):
        raise _Unfit("one or two timestamps or time intervals are expected here")
    moments = [now - value if isinstance(value, timedelta) else value for value in values]
    return min(*moments, now) if len(moments) == 1 else min(moments), max(moments) if len(moments) == 2 else now


_METHODS: dict[str, Callable[[str, tuple[Sample, ...], list[Any], datetime], Any]] = {
    "GetSample": _get_sample,
    "GetSamplePercent": _get_percent,
    "GetSamplePeriod": lambda *_: PERIOD,
    "Count": lambda _name, samples, _values, _now: float(len(samples)),
    "HistoryBeginTime": lambda _name, samples, _values, now: samples[0][0] if samples else now,
}
