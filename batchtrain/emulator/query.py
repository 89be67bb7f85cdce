"""The lists' query language: $filter, $select and paging; pure.

Grammar: eq ne gt lt ge le, and, or, parentheses, startswith(property, 'text'), DateTime'...', nested a/b names.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from batchtrain.emulator import models, wire
from batchtrain.emulator.faults import Fault, invalid_parameter
from batchtrain.emulator.records import Record
from batchtrain.emulator.reply import Call, Reply, element, stamped

Document = Mapping[str, Any]

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


LITERALS: Mapping[str, str] = {"time": "time", "int": "number", "bool": "name"}
"""The type of literal that a property of a type is compared with; a quoted text for all other types."""


class _Token(NamedTuple):
    kind: str
    text: str


class Filters(NamedTuple):
    """A property that the list can be filtered by."""

    model: str
    operators: Mapping[str, frozenset[str]]
    """The filters of a list, by property."""
    is_any_case: bool = False
    """Whether a comparison of texts ignores case."""


SETS: Mapping[str, str] = {"text": "startswith eq ne ge gt le lt", "order": "eq ne ge gt le lt", "same": "eq ne"}


def filters(model: str, text: str) -> Filters:
    """The filters of a list: names with one of SETS. model: gives the types of the names; empty for any type."""
    pairs = (pair.partition(":")[::2] for pair in text.split())
    return Filters(model, {name: frozenset(SETS.get(some, some.replace(",", " ")).split()) for name, some in pairs})


_RUN = "INFO/state:eq INFO/startTime:order INFO/endTime:order INFO/exitCode:order INFO/result:same"
_JOB = (
    "state:same stateTransitionTime:order creationTime:order lastModified:order executionInfo/startTime:order"
    " executionInfo/endTime:order executionInfo/poolId:text"
)

FILTERS: Mapping[str, Filters] = {
    "pools": filters("BatchPool",
        "id:text state:same stateTransitionTime:order allocationState:eq allocationStateTransitionTime:order"
        " creationTime:order enableAutoScale:same lastModified:order vmSize:same enableInterNodeCommunication:same"),
    "nodes": filters("BatchNode", f"state:same stateTransitionTime:order lastBootTime:order allocationTime:order"
        f" {_RUN.replace('INFO', 'startTaskInfo')}"),
    "jobs": filters("BatchJob", f"id:text {_JOB}"),
    "jobsofschedule": filters("BatchJob", _JOB),
    "tasks": filters("BatchTask",
        "id:text state:same stateTransitionTime:order creationTime:order lastModifiedTime:order"
        " executionInfo/startTime:order executionInfo/endTime:order executionInfo/exitCode:order"
        " executionInfo/result:same"),
    "jobschedules": filters("BatchJobSchedule",
        "id:text state:same stateTransitionTime:order creationTime:order lastModified:order"
        " executionInfo/endTime:order schedule/doNotRunUntil:order schedule/doNotRunAfter:order"),
    "jobpreparationandreleasetaskstatuslist": filters("BatchJobPreparationAndReleaseTaskStatus",
        f"poolId:same nodeId:same {_RUN.replace('INFO', 'jobPreparationTaskExecutionInfo')}"
        f" {_RUN.replace('INFO', 'jobReleaseTaskExecutionInfo')}"),
    "files": filters("BatchNodeFile", "name:startswith"),
    "supportedimages": filters("BatchSupportedImage", "osType:same verificationType:same nodeAgentSKUId:same"),
    "poolnodecounts": filters("BatchPoolNodeCounts", "poolId:eq"),
    "poolusagemetrics": filters("BatchPoolUsageMetrics", "poolId:startswith,eq,ge,gt,le,lt"),
}  # fmt: skip
"""The filters of each list, as on the page "OData filters in Azure Batch"; others are refused."""
ALIASES: Mapping[str, str] = {"lastModifiedTime": "lastModified"}
"""Properties whose name on that page differs from their name in the answers."""


class Comparison(NamedTuple):
    """A property compared with a value."""

    path: str
    word: str
    wanted: Any
    is_time: bool
    is_any_case: bool

    def __call__(self, document: Document) -> bool:
        word, literal = self.word, self.wanted
        value = value_at(document, self.path)
        if self.is_time and isinstance(value, str):
            try:
                value = wire.parse_timestamp(value)
            except ValueError:  # not comparable with a time
                value = None
        if value is None or literal is None or isinstance(value, str) != isinstance(literal, str):
            return (word == "ne" and value is not literal) or (word == "eq" and value is literal)
        if self.is_any_case and isinstance(value, str):
            value, literal = value.lower(), literal.lower()
        try:
            return _COMPARE[word](value, literal)
        except TypeError:  # an object has no order
            return False


class StartsWith(NamedTuple):
    """A property that starts with a text."""

    path: str
    prefix: str

    def __call__(self, document: Document) -> bool:
        return str(value_at(document, self.path) or "").startswith(self.prefix)


class Every(NamedTuple):
    """Conditions that all hold."""

    terms: tuple[Condition, ...]

    def __call__(self, document: Document) -> bool:
        return all(term(document) for term in self.terms)


class Some(NamedTuple):
    """Conditions of which one holds."""

    terms: tuple[Condition, ...]

    def __call__(self, document: Document) -> bool:
        return any(term(document) for term in self.terms)


Condition = Comparison | StartsWith | Every | Some
"""A filter: returns whether it accepts a document."""


def parse_filter(text: str, filters: Filters | None = None) -> Condition:
    """A condition for wire documents. Raises Fault 400 for a syntax error or an unknown filter."""
    parser = _Parser(text, filters)
    condition = parser.disjunction(0)
    if parser.peek().kind != "end":
        raise parser.wrong(f"unexpected {parser.peek().text!r}")
    return condition


class _Parser:
    """A recursive descent parser; `and` binds tighter than `or`."""

    def __init__(self, text: str, filters: Filters | None) -> None:
        self.filters = filters
        self.text, self.tokens, self.at = text, [], 0  # type: tuple[str, list[_Token], int]
        position = 0
        content = text.rstrip()
        while position < len(content):
            match = _TOKEN.match(content, position)
            if not match:
                raise self.wrong(f"cannot read {content[position:]!r}")
            self.tokens.append(_Token(str(match.lastgroup), match[str(match.lastgroup)]))
            position = match.end()

    def wrong(self, reason: str) -> Fault:
        return invalid_parameter("$filter", self.text, Reason=f"The filter is not valid: {reason}.")

    def peek(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _Token("end", "end of filter")

    def take(self, text: str = "") -> _Token:
        token = self.peek()
        if token.kind == "end" or (text and token.text.lower() != text):
            raise self.wrong(f"{text or 'more'} expected, found {token.text}")
        self.at += 1
        return token

    def word(self, text: str) -> bool:
        """Take a keyword if it is next."""
        if self.peek().kind == "name" and self.peek().text.lower() == text:
            self.at += 1
            return True
        return False

    def disjunction(self, depth: int) -> Condition:
        terms = [self.conjunction(depth)]
        while self.word("or"):
            terms.append(self.conjunction(depth))
        return terms[0] if len(terms) == 1 else Some(tuple(terms))

    def conjunction(self, depth: int) -> Condition:
        terms = [self.condition(depth)]
        while self.word("and"):
            terms.append(self.condition(depth))
        return terms[0] if len(terms) == 1 else Every(tuple(terms))

    def condition(self, depth: int) -> Condition:
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

    def starts_with(self) -> Condition:
        self.take("(")
        name = self.allowed(self.take().text, "startswith")
        self.take(",")
        prefix = self.literal()
        self.take(")")
        if not isinstance(prefix, str):
            raise self.wrong("startswith takes a text")
        return StartsWith(name, prefix)

    def comparison(self, name: str) -> Condition:
        word = self.take().text.lower()
        if word not in _COMPARE:
            raise self.wrong(f"one of {', '.join(_COMPARE)} expected, found {word}")
        path = self.allowed(name, word)
        kind = self.peek().kind
        is_any_case = self.filters is not None and self.filters.is_any_case
        return Comparison(path, word, self.typed(path, kind, self.literal()), kind == "time", is_any_case)

    def allowed(self, name: str, word: str) -> str:
        """The name of a property that the list can be filtered by with this operator."""
        if self.filters is not None:
            operators = self.filters.operators.get(name, frozenset())
            if word not in operators:
                explanation = f"{name} takes {', '.join(sorted(operators))} only" if operators else f"not by {name}"
                raise self.wrong(f"the list cannot be filtered so: {explanation}")
        return ALIASES.get(name, name)

    def typed(self, path: str, kind: str, value: Any) -> Any:
        """A literal of the property's type; enum values in the case of the answers."""
        field = models.field_at(self.filters.model, path) if self.filters and self.filters.model else None
        if field is None or value is None:
            return value
        literal_kind = LITERALS.get(field.kind, "text")
        if kind != literal_kind:
            raise self.wrong(f"{path} compares with a {literal_kind} only")
        values = {member.lower(): member for member in models.enums().get(field.kind, ())}
        if values and value.lower() not in values:
            raise self.wrong(f"{path} is one of {', '.join(values)}")
        return values.get(value.lower(), value) if values else value

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


def value_at(document: Document, path: str) -> Any:
    """The value of a nested name such as `executionInfo/exitCode`; None if any part is missing."""
    value: Any = document
    for name in path.split("/"):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def selected(document: dict[str, Any], select: str) -> dict[str, Any]:
    """Only the properties in $select; all without a $select."""
    names = selection(select)
    if not names:
        return document
    return {name: value for name, value in document.items() if name in names or name.startswith("odata.")}


def one(call: Call, kind: str, document: dict[str, Any], record: Record | None = None) -> Reply:
    """The answer with one entity: its properties in $select, and the headers of its record."""
    document = selected(document, call.query.get("$select", ""))
    return element(kind, call.base, document, stamped(record) if record else None)


def selection(select: str) -> frozenset[str]:
    """The properties in $select."""
    return frozenset(name.strip().partition("/")[0] for name in select.split(",") if name.strip())


# What a request may ask ----------------------------------------------------------------------------------------------

COMMON = ("api-version", "timeOut")
"""Parameters of every operation."""


def checked(names: tuple[str, ...], model: str, parameters: Mapping[str, str], revision: int) -> dict[str, str]:
    """A query in canonical form: lower-case names, properties as in the current version. Raises Fault 400."""
    names_by_key = {name.lower(): name for name in (*COMMON, *names)}
    canonical = {}
    for name, value in parameters.items():
        if name.lower() not in names_by_key:
            raise Fault("UnsupportedQueryParameter", QueryParameterName=name, QueryParameterValue=value)
        if value:
            canonical[names_by_key[name.lower()]] = value
    for name in FLAGS & canonical.keys():
        if canonical[name].lower() not in ("true", "false"):
            raise _invalid(name, canonical[name], "The value must be true or false.")
    if not is_whole(canonical.get("timeOut", "0")):
        raise _invalid("timeOut", canonical["timeOut"], "The value must be a whole number of seconds.")
    for name in _words(canonical.get("$expand", "")):
        if name != "stats":
            raise _invalid("$expand", canonical["$expand"], f"Only stats can be expanded, not {name}.")
    if "$select" in canonical:
        canonical["$select"] = _selection(model, canonical["$select"], revision)
    return canonical


FLAGS = frozenset({"force", "recursive"})


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _selection(model: str, text: str, revision: int) -> str:
    shape = models.shapes(revision)[model]
    names = []
    for word in _words(text):
        name, _, subpath = word.partition("/")
        if name not in shape.kinds or (subpath and shape.kinds[name] not in ("any", *models.fields())):
            raise _invalid("$select", text, f"There is no property {word}.")
        names.append(shape.moved.get(name, (name,))[0])
    return ",".join(names)


def _invalid(name: str, value: str, reason: str) -> Fault:
    return invalid_parameter(name, value[:MOST_SHOWN], Reason=reason)


MOST_SHOWN = 1024


# Paging --------------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One entry of a list; `token` marks where the next page starts."""

    token: str
    document: dict[str, Any]


class Page:
    """Collects one page of a list."""

    def __init__(
        self, call: Call, kind: str, limit: int = MAX_PAGE, filters: str = "", *, is_filtered: bool = False
    ) -> None:
        self._call, self._kind = call, kind
        self._size = min(most_results(call.query.get("maxresults", "")) or limit, limit)
        filter_text = "" if is_filtered else call.query.get("$filter")
        self._keep = parse_filter(filter_text, FILTERS[filters or kind]) if filter_text else None
        self._rows: list[dict[str, Any]] = []
        self.last = ""
        """The token of the last row of the page."""
        self.more = False

    def add(self, row: Row) -> bool:
        """Add a row if the filter accepts it; returns False for a row of the next page."""
        if self._keep is not None and not self._keep(row.document):
            return True
        if len(self._rows) == self._size:
            self.more = True
            return False
        self._rows.append(selected(row.document, self._call.query.get("$select", "")))
        self.last = row.token
        return True

    def reply(self) -> Reply:
        document: dict[str, Any] = {"odata.metadata": f"{self._call.base}/$metadata#{self._kind}", "value": self._rows}
        if self.more:
            document["odata.nextLink"] = next_link(self._call, self.last)
        return Reply(200, document)


def listing(
    call: Call,
    kind: str,
    rows: Callable[[str], Iterable[Row]],
    limit: int = MAX_PAGE,
    filters: str = "",
    *,
    is_filtered: bool = False,
) -> Reply:
    """One page. `rows(token)` gives the rows after a token ("" is the start) in a stable order, filtered or not."""
    page = Page(call, kind, limit, filters, is_filtered=is_filtered)
    for row in rows(call.query.get("$skiptoken", "")):
        if not page.add(row):
            break
    return page.reply()


T = TypeVar("T")


def by_id(
    entries: Iterable[T], document: Callable[[T], dict[str, Any]], attribute: str = "record.id"
) -> Callable[[str], Iterator[Row]]:
    """The rows of a list in the order of their ids, as in the service. A page starts after an id."""
    id_of = operator.attrgetter(attribute)

    def rows(token: str) -> Iterator[Row]:
        for entry in sorted(entries, key=id_of):
            if id_of(entry) > token:
                yield Row(id_of(entry), document(entry))

    return rows


def is_whole(text: str) -> bool:
    """Whether a text is a whole number. `isdigit` alone also accepts `²`, and Python reads at most 4300 digits."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def number(token: str) -> int:
    """The number after which a page starts. Raises Fault 400 for an unknown token."""
    if token and not is_whole(token):
        raise invalid_parameter("$skiptoken", token)
    return int(token or 0)


def most_results(text: str) -> int:
    """The number in `maxresults`; 0 if it is empty. Raises Fault 400 if it is out of range."""
    if not text:
        return 0
    if not is_whole(text) or not 1 <= int(text) <= MAX_PAGE:
        low = text.lstrip("-").isdecimal() and int(text[:MAX_DIGITS]) < 1
        reason = "MaxResults cannot be less than 1" if low else f"The value must be between 1 and {MAX_PAGE}."
        raise _invalid("maxresults", text, reason)
    return int(text)


def next_link(call: Call, token: str) -> str:
    """The absolute URL of the next page; the client adds nothing to it."""
    parameters = (call.asked or call.query).items()
    filters = {name: value for name, value in parameters if name.lower() not in ("$skiptoken", "timeout")}
    pairs = {**filters, "$skiptoken": token}
    text = "&".join(f"{quote(name, safe='$-')}={quote(value, safe='')}" for name, value in pairs.items())
    return f"{call.base}{call.raw_path}?{text}"
