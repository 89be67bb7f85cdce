"""The lists' query language: $filter, $select and paging; pure.

Grammar: eq ne gt lt ge le, and, or, parentheses, startswith(property, 'text'), DateTime'...', nested a/b names.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from batchtrain.emulator import wire
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Call, Reply

Document = Mapping[str, Any]
Predicate = Callable[[Document], bool]

MAX_PAGE = 1000
MAX_DIGITS = 18

_TOKEN = re.compile(
    r"\s*(?:(?P<time>datetime'[^']*')|(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)(?![\w/])"
    r"|(?P<name>[A-Za-z_][\w./]*)|(?P<mark>[(),]))",
    re.IGNORECASE,
)
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "lt": operator.lt,
    "ge": operator.ge,
    "le": operator.le,
}
_MAX_DEPTH = 50


class _Token(NamedTuple):
    kind: str
    text: str


PROPERTIES: Mapping[str, frozenset[str]] = {
    kind: frozenset(names.split())
    for kind, names in {
        "pools": "id displayName url eTag lastModified creationTime state stateTransitionTime allocationState"
        " allocationStateTransitionTime vmSize virtualMachineConfiguration resizeTimeout currentDedicatedNodes"
        " currentLowPriorityNodes targetDedicatedNodes targetLowPriorityNodes enableAutoScale"
        " enableInterNodeCommunication taskSlotsPerNode",
        "nodes": "id url state schedulingState stateTransitionTime lastBootTime allocationTime ipAddress affinityId"
        " vmSize totalTasksRun runningTasksCount runningTaskSlotsCount totalTasksSucceeded isDedicated",
        "jobs": "id displayName url eTag lastModified creationTime state stateTransitionTime previousState"
        " previousStateTransitionTime priority maxParallelTasks poolInfo onAllTasksComplete onTaskFailure"
        " usesTaskDependencies constraints executionInfo",
        "tasks": "id displayName url eTag lastModified creationTime state stateTransitionTime previousState"
        " previousStateTransitionTime commandLine requiredSlots constraints affinityInfo executionInfo nodeInfo",
        "jobschedules": "id displayName url eTag lastModified creationTime state stateTransitionTime previousState"
        " previousStateTransitionTime schedule executionInfo",
        "jobpreparationandreleasetaskstatuslist": "poolId nodeId nodeUrl jobPreparationTaskExecutionInfo"
        " jobReleaseTaskExecutionInfo",
        "files": "name url isDirectory properties",
        "supportedimages": "nodeAgentSKUId imageReference osType verificationType batchSupportEndOfLife",
        "poolnodecounts": "poolId",
        "applications": "",
        "extensions": "",
        "poolusagemetrics": "poolId vmSize startTime endTime totalCoreHours",
    }.items()
}
"""What the lists can be filtered by; names are case-sensitive, and any other name is refused."""


def parse_filter(text: str, names: frozenset[str] | None = None) -> Predicate:
    """A predicate over wire documents; raises Fault 400 for what is not in the grammar or not in `names`."""
    parser = _Parser(text, names)
    predicate = parser.disjunction(0)
    if parser.peek().kind != "end":
        raise parser.wrong(f"unexpected {parser.peek().text!r}")
    return predicate


class _Parser:
    """Recursive descent; `or` binds weaker than `and`."""

    def __init__(self, text: str, names: frozenset[str] | None) -> None:
        self.names = names
        self.text, self.tokens, self.at = text, [], 0  # type: tuple[str, list[_Token], int]
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if not match:
                raise self.wrong(f"cannot read {stripped[position:]!r}")
            self.tokens.append(_Token(str(match.lastgroup), match[str(match.lastgroup)]))
            position = match.end()

    def wrong(self, reason: str) -> Fault:
        return Fault(
            "InvalidQueryParameterValue",
            QueryParameterName="$filter",
            QueryParameterValue=self.text,
            Reason=f"The filter is not valid: {reason}.",
        )

    def peek(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _Token("end", "end of filter")

    def take(self, text: str = "") -> _Token:
        token = self.peek()
        if token.kind == "end" or (text and token.text.lower() != text):
            raise self.wrong(f"{text or 'more'} expected, found {token.text}")
        self.at += 1
        return token

    def word(self, text: str) -> bool:
        """Take a keyword if it comes next."""
        if self.peek().kind == "name" and self.peek().text.lower() == text:
            self.at += 1
            return True
        return False

    def disjunction(self, depth: int) -> Predicate:
        terms = [self.conjunction(depth)]
        while self.word("or"):
            terms.append(self.conjunction(depth))
        return terms[0] if len(terms) == 1 else lambda document: any(term(document) for term in terms)

    def conjunction(self, depth: int) -> Predicate:
        terms = [self.condition(depth)]
        while self.word("and"):
            terms.append(self.condition(depth))
        return terms[0] if len(terms) == 1 else lambda document: all(term(document) for term in terms)

    def condition(self, depth: int) -> Predicate:
        if depth > _MAX_DEPTH:
            raise self.wrong("too deeply nested")
        if self.peek() == _Token("mark", "("):
            self.take("(")
            inner = self.disjunction(depth + 1)
            self.take(")")
            return inner
        if self.peek().kind != "name":
            raise self.wrong(f"a property was expected, found {self.peek().text}")
        name = self.take().text
        if name.lower() == "startswith":
            return self.starts_with()
        return self.comparison(name)

    def starts_with(self) -> Predicate:
        self.take("(")
        name = self.known(self.take().text)
        self.take(",")
        prefix = self.literal()
        self.take(")")
        if not isinstance(prefix, str):
            raise self.wrong("startswith takes a text")
        return lambda document: str(value_at(document, name) or "").startswith(prefix)

    def comparison(self, name: str) -> Predicate:
        self.known(name)
        word = self.take().text.lower()
        if word not in _COMPARE:
            raise self.wrong(f"one of {', '.join(_COMPARE)} expected, found {word}")
        is_time = self.peek().kind == "time"
        return _comparison(name, word, self.literal(), is_time)

    def known(self, name: str) -> str:
        if self.names is not None and name.partition("/")[0] not in self.names:
            raise self.wrong(f"the list cannot be filtered by {name}")
        return name

    def literal(self) -> Any:
        token = self.take()
        match token.kind:
            case "text":
                return token.text[1:-1].replace("''", "'")
            case "number":
                try:
                    return float(token.text) if "." in token.text else int(token.text)
                except ValueError as error:  # more digits than Python reads
                    raise self.wrong("a number is too long") from error
            case "time":
                try:
                    return wire.parse_timestamp(token.text[len("datetime'") : -1])
                except ValueError as error:
                    raise self.wrong(str(error)) from error
            case "name" if token.text.lower() in ("true", "false", "null"):
                return {"true": True, "false": False, "null": None}[token.text.lower()]
        raise self.wrong(f"a value was expected, found {token.text}")


def _comparison(name: str, word: str, wanted: Any, is_time: bool) -> Predicate:
    compare = _COMPARE[word]

    def holds(document: Document) -> bool:
        value = value_at(document, name)
        if is_time and isinstance(value, str):
            value = _time(value)
        if value is None or wanted is None or isinstance(value, str) != isinstance(wanted, str):
            return (word == "ne" and value is not wanted) or (word == "eq" and value is wanted)
        try:
            return compare(value, wanted)
        except TypeError:  # an object has no order
            return False

    return holds


def _time(text: str) -> int | None:
    """The ticks of a property that holds a time; None for any other text, which no time compares to."""
    try:
        return wire.parse_timestamp(text)
    except ValueError:
        return None


def value_at(document: Document, path: str) -> Any:
    """The value under a nested name such as `executionInfo/exitCode`; None when any part is missing."""
    value: Any = document
    for name in path.split("/"):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def selected(document: dict[str, Any], select: str) -> dict[str, Any]:
    """Only the properties $select names (all without one)."""
    names = selection(select)
    if not names:
        return document
    return {name: value for name, value in document.items() if name in names or name.startswith("odata.")}


def selection(select: str) -> frozenset[str]:
    """The properties that $select names."""
    return frozenset(name.strip().partition("/")[0] for name in select.split(",") if name.strip())


# Paging --------------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One entry of a list; `token` is where the next page goes on."""

    token: str
    document: dict[str, Any]


def listing(call: Call, kind: str, rows: Callable[[str], Iterable[Row]], limit: int = MAX_PAGE) -> Reply:
    """One page. `rows(token)` gives the rows after a token ("" is the beginning), in a stable order."""
    size = page_size(call, limit)
    keep = parse_filter(call.query["$filter"], PROPERTIES.get(kind, frozenset())) if call.query.get("$filter") else None
    select = call.query.get("$select", "")
    page: list[dict[str, Any]] = []
    last = ""
    more = False
    for row in rows(call.query.get("$skiptoken", "")):
        if keep is not None and not keep(row.document):
            continue
        if len(page) == size:
            more = True
            break
        page.append(selected(row.document, select))
        last = row.token
    document: dict[str, Any] = {"odata.metadata": f"{call.base}/$metadata#{kind}", "value": page}
    if more:
        document["odata.nextLink"] = next_link(call, last)
    return Reply(200, document)


def is_whole(text: str) -> bool:
    """Whether a text is a whole number: `isdigit` alone takes `\u00b2` too, and Python reads 4300 digits, no more."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def number(token: str) -> int:
    """The number a page goes on after; raises Fault 400 for a token that was never given out."""
    if token and not is_whole(token):
        raise Fault("InvalidQueryParameterValue", QueryParameterName="$skiptoken", QueryParameterValue=token)
    return int(token or 0)


def page_size(call: Call, limit: int = MAX_PAGE) -> int:
    """`maxresults`, or the largest page; raises Fault 400 out of range."""
    text = call.query.get("maxresults", "")
    if not text:
        return limit
    if not is_whole(text) or not 1 <= int(text) <= MAX_PAGE:
        raise Fault(
            "InvalidQueryParameterValue",
            QueryParameterName="maxresults",
            QueryParameterValue=text,
            Reason=f"The value must be between 1 and {MAX_PAGE}.",
        )
    return min(int(text), limit)


def next_link(call: Call, token: str) -> str:
    """Absolute, and complete: the client adds nothing to it."""
    kept = {name: value for name, value in call.query.items() if name not in ("$skiptoken", "timeOut", "timeout")}
    pairs = {**kept, "$skiptoken": token}
    text = "&".join(f"{quote(name, safe='$-')}={quote(value, safe='')}" for name, value in pairs.items())
    return f"{call.base}{call.raw_path}?{text}"
