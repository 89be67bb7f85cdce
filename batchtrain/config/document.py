"""One YAML (or JSON) file as plain data, and the positions of its values. Knows YAML, not the configuration language.

The C parser's events become data in one pass that makes no node tree and does not recurse, so a file of 30 MB costs
seconds and nesting cannot crash it. Positions are found by a second pass, and only for requested paths. Scalars stay
text, and the type of each property converts them later. This avoids the surprises of YAML 1.1 (`yes`, `1:30`, `012`,
`7.10`). A plain `null`, `~` or an empty value is None, and a key with the value None counts as absent.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from batchtrain.config.patterns import late
from batchtrain.errors import Problem

Path = tuple[str | int, ...]

DEEPEST = 100
"""The maximum depth of nesting."""
LARGEST = 64 * 2**20
"""The maximum size of a file in bytes."""

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_KNOWN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is many times faster; wheels have it
_PAIR = late(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.I)
_PAIR_SAVES = 11  # `\ud83d\ude00` becomes one character
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Loader(_Base):  # type: ignore[misc]  # the base is chosen at run time
    """Yields events only; without implicit resolvers every plain scalar is text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


class Position(NamedTuple):
    """A position: lines and columns counted from 1, `start` and `end` from 0 in the file's text.

    It covers the first line of the value, without the text after it.
    """

    line: int
    column: int
    end_line: int = 0
    end_column: int = 0
    start: int = 0
    end: int = 0
    exact: bool = True
    """False: the requested path does not exist, this is its nearest parent."""
    style: str = ""
    """How a scalar is written: empty (plain), `'`, `"`, `|` or `>`; `{` or `[` for a collection."""


class Document(NamedTuple):
    """The data of a file, and its text, in which the positions of values are found."""

    file: str
    data: Any
    text: str = ""
    readable: bool = True
    """Whether the text is valid YAML; otherwise no value has a position."""
    nulls: tuple[tuple[dict[str, Any], str], ...] = ()
    """Keys without a value, each with its mapping."""

    def __repr__(self) -> str:  # the text may hold secrets
        return f"Document({self.file!r})"

    def position(self, path: Path, *, key: bool = False) -> Position:
        """The position of a value, or of its key; of the key of its nearest parent if it does not exist."""
        return self.positions([(path, key)])[path, key]

    def positions(self, places: Iterable[tuple[Path, bool]]) -> dict[tuple[Path, bool], Position]:
        """The positions of many values in one pass over the text. places: pairs of a path, and whether its key is
        meant."""
        requests = list(places)
        if not self.readable:
            return dict.fromkeys(requests, Position(1, 1, exact=False))
        source, ruler = _Source(self.file, self.text), self.ruler()
        root = _Finder(source, [path for path, _ in requests]).find()
        spans = {(path, key): _span(root, path, key) for path, key in requests}
        return {request: _position(self.text, source, ruler, *span) for request, span in spans.items()}

    def ruler(self) -> Ruler:
        """A converter of offsets into lines and columns."""
        return Ruler(self.text)


class Broken(Exception):
    """The text cannot be parsed beyond this point."""

    def __init__(self, rule: str, message: str, offset: int) -> None:
        self.rule, self.message, self.offset = rule, message, offset
        super().__init__(message)


def parse(file: str, content: bytes) -> tuple[Document, tuple[Problem, ...]]:
    """Read one file's bytes. Problems: size, encoding, syntax, duplicate keys, odd keys or tags, an empty file."""
    if len(content) > LARGEST:
        return too_large(file)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return _unread(file, "encoding", "this is UTF-16; save the file as UTF-8", 1, 1)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", "replace")
        position = Ruler(before).position(len(before))
        message = f"this is not UTF-8 (byte {error.start}); save the file as UTF-8"
        return _unread(file, "encoding", message, *position)
    source = _Source(file, text)
    ruler = Ruler(text)
    try:
        builder = _Builder(source)
        data, faults = builder.build()
    except Broken as broken:
        position = ruler.position(source.offset(broken.offset))
        document = Document(file, None, text, readable=False)
        return document, (Problem(broken.rule, broken.message, file, *position),)
    problems: list[Problem] = []
    for rule, message, start, end, first in faults:
        line, column = ruler.position(source.offset(start))
        end_line, end_column = ruler.position(source.offset(end))
        if end_line != line:
            end_line, end_column = line, column + 1
        if first >= 0:
            message += f", first in line {ruler.position(source.offset(first))[0]}"
        problems.append(Problem(rule, message, file, line, column, end_line=end_line, end_column=end_column))
    return Document(file, data, text, nulls=tuple(builder.nulls)), tuple(problems)


def too_large(file: str) -> tuple[Document, tuple[Problem, ...]]:
    """The problem of a file that is too large to read."""
    message = f"the file is larger than the {LARGEST // 2**20} MB limit; generate the tasks with a task factory"
    return _unread(file, "size", message, 1, 1)


def _unread(file: str, rule: str, message: str, line: int, column: int) -> tuple[Document, tuple[Problem, ...]]:
    return Document(file, None, readable=False), (Problem(rule, message, file, line, column),)


# --- text to events -------------------------------------------------------------------------------------------------


class _Source:
    """The events of a text, and the position of an event's offset in the file."""

    def __init__(self, file: str, text: str) -> None:
        self.text = text
        self._shortened: list[int] = []
        if file.endswith(".json"):
            self.text = self._as_yaml(text)

    def _as_yaml(self, text: str) -> str:
        """JSON that YAML reads too: tabs may indent it, and characters may be written as surrogate pairs."""
        for number, pair in enumerate(_PAIR.finditer(text)):
            self._shortened.append(pair.start() - number * _PAIR_SAVES)
        return _PAIR.sub(lambda m: bytes.fromhex(m[1] + m[2]).decode("utf-16-be"), text.replace("\t", " "))

    def offset(self, index: int) -> int:
        """The file's offset of an event's."""
        return index + _PAIR_SAVES * bisect_right(self._shortened, index - 1) if self._shortened else index

    def next_event(self) -> Callable[[], Any]:
        """A function that returns one event after the other, and raises Broken at a syntax error."""
        try:
            get: Callable[[], Any] = _Loader(self.text).get_event
        except yaml.YAMLError as error:
            raise self._broken(error) from None

        def following() -> Any:
            try:
                return get()
            except yaml.YAMLError as error:
                raise self._broken(error) from None

        return following

    def _broken(self, error: yaml.YAMLError) -> Broken:
        odd = _UNREADABLE.search(self.text) if not isinstance(error, yaml.MarkedYAMLError) else None
        if odd:
            return Broken("syntax", f"the character U+{ord(odd[0]):04X} is not allowed in YAML; remove it", odd.start())
        looks_like_json = self.text.lstrip().startswith(("{", "//", "/*"))
        outside = _QUOTED.sub(lambda text: f'"{" " * (len(text[0]) - 2)}"', self.text) if looks_like_json else ""
        if comment := _COMMENT.search(outside):
            message = f"`{comment[1]}` is not a comment in JSON or YAML; write `#` instead, or remove the comment"
            return Broken("syntax", message, comment.start(1))
        if not isinstance(error, yaml.MarkedYAMLError):
            return Broken("syntax", "YAML cannot be read", 0)
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        advice = next((text for sign, text in _ADVICE if sign in reason), "")
        begins = error.context_mark if advice in _BEGINS else None  # the parser notices it at the next token
        mark = begins or error.problem_mark or error.context_mark
        offset = mark.index if mark else 0
        above = self.text[: self.text.rfind("\n", 0, offset) + 1]
        if "mapping values" in reason and (bare := _BARE_KEY.search(above)):
            offset, advice = bare.start(1), KEY_WITHOUT_COLON
        if not self.text[offset:].strip():  # the end of the file: no line to show
            offset = max(len(self.text.rstrip()) - 1, 0)
        if self.text[offset : offset + 1] == "\t":
            advice = "a tab cannot indent YAML; use spaces"
        return Broken("syntax", f"YAML cannot be read: {reason}{'; ' if advice else ''}{advice}", offset)


_COMMENT = late(r"(?m)(?:^|[,{}\[\]\"])[ \t]*(//|/\*)")
_QUOTED = late(r'"(?:[^"\\\n]|\\.)*"')


KEY_WITHOUT_COLON = "a key needs `: ` after it"
_BARE_KEY = late(r"^[ ]*(?:- )?(\w+)[ ]*\n\Z", re.M)
"""A last line of only one word; YAML continues it in the next line."""
_ADVICE = (
    ("mapping values are not allowed", "a value that contains `: ` needs quotes"),
    ("cannot start any token", "a value that starts with `@`, `` ` `` or `%` needs quotes"),
    ("unknown escape character", "single quotes keep a backslash unchanged"),
    ("unexpected end of stream", "a quote is not closed"),
    ("could not find expected ':'", KEY_WITHOUT_COLON),
    ("expected ',' or ']'", "a `[` is not closed"),
    ("expected ',' or '}'", "a `{` is not closed"),
    ("expected <block end>", "the indentation of this line differs from the lines above it"),
)
_BEGINS = frozenset({"a quote is not closed", KEY_WITHOUT_COLON, "a `[` is not closed", "a `{` is not closed"})
"""Messages about mistakes that are reported where they begin."""


# --- events to data -------------------------------------------------------------------------------------------------


class _Fault(NamedTuple):
    """A problem with its offsets, and those of the value that it contradicts."""

    rule: str
    message: str
    start: int
    end: int
    first: int = -1


class _Open:
    """A collection that is being parsed."""

    __slots__ = ("anchor", "as_key", "data", "key", "merges", "seen", "weight")

    def __init__(self, data: Any, anchor: str | None, as_key: bool) -> None:
        self.data, self.anchor, self.as_key = data, anchor, as_key
        self.seen: dict[str, int] | None = {} if isinstance(data, dict) else None  # key: where it stands
        self.key: Any = None  # the key whose value comes next
        self.merges: list[Any] = []
        self.weight = 1  # the number of its values, with aliases expanded


_DROPPED = object()
_MERGE = object()


class _Builder:
    """Makes plain data from events. An alias shares the data of its anchor, so the data is never larger than the
    file."""

    def __init__(self, source: _Source) -> None:
        self._get = source.next_event()
        self.nulls: list[tuple[dict[str, Any], str]] = []
        self._faults: list[_Fault] = []
        self._anchors: dict[str, tuple[Any, int] | None] = {}  # None: still open
        self._names: dict[str, str] = {}  # one object per name, however often it occurs
        self._root = self._current = _Open([], None, False)
        self._outer: list[_Open] = []
        self._documents = 0
        self._nodes = 0
        self._aliased = 0

    def build(self) -> tuple[Any, list[_Fault]]:
        """The data of all events, and its faults. Raises Broken."""
        take: dict[type, Callable[[Any], None]] = {
            ScalarEvent: self._scalar,
            MappingStartEvent: self._opened,
            SequenceStartEvent: self._opened,
            MappingEndEvent: self._closed,
            SequenceEndEvent: self._closed,
            AliasEvent: self._alias,
            DocumentStartEvent: self._document,
        }
        get = self._get
        while (kind := type(event := get())) is not StreamEndEvent:
            if handle := take.get(kind):
                handle(event)
        if not self._documents or self._root.data == [None]:
            raise Broken("empty-file", "the file is empty", 0)
        return self._root.data[0], self._faults

    def _document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            message = "a second document starts here; write one document per file"
            raise Broken("syntax", message, event.start_mark.index)

    def _scalar(self, event: Any) -> None:
        self._nodes += 1
        if event.tag is not None:
            self._judge_tag(event)
        value: Any = event.value
        current = self._current
        if current.key is None and current.seen is not None:
            current.key = self._key(current, event, self._names.setdefault(value, value))
            return
        if not event.style and value in _NULL:
            value = None
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)
        self._add(event, value, 1)

    def _opened(self, event: Any) -> None:
        if len(self._outer) >= DEEPEST:
            raise Broken("syntax", f"YAML is nested deeper than {DEEPEST} levels", event.start_mark.index)
        as_key = self._current.seen is not None and self._current.key is None
        if as_key:
            self._tell(event, "key", "a key must be plain text")
        if event.tag is not None:
            self._judge_tag(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._outer.append(self._current)
        self._current = _Open({} if type(event) is MappingStartEvent else [], event.anchor, as_key)

    def _closed(self, event: Any) -> None:
        self._nodes += 1
        closed, self._current = self._current, self._outer.pop()
        if closed.merges:  # add the keys of `<<` that the mapping does not have; the first of several sources wins
            additions: dict[str, Any] = {}
            for value in closed.merges:
                for source in value if isinstance(value, list) else [value]:
                    additions = {**source, **additions}
            closed.data.update({name: value for name, value in additions.items() if name not in (closed.seen or ())})
        if closed.anchor is not None:
            self._anchors[closed.anchor] = (closed.data, closed.weight)
        if closed.as_key:
            self._current.key = _DROPPED
        else:
            self._add(event, closed.data, closed.weight)

    def _alias(self, event: Any) -> None:
        value, weight = self._stands_for(event)
        current = self._current
        if current.seen is not None and current.key is None:
            current.key = self._key(current, event, value) if isinstance(value, str) else self._odd(event)
        else:
            self._add(event, value, weight)

    def _add(self, event: Any, value: Any, weight: int) -> None:
        """Put a value into the collection that is being parsed, at its key or at the end."""
        current = self._current
        current.weight += weight
        if current.seen is None:
            current.data.append(value)
            return
        key, current.key = current.key, None
        if key is _MERGE:
            self._merging(current, event, value)
        elif key is _DROPPED:
            return
        elif value is None:
            self.nulls.append((current.data, key))
        else:
            current.data[key] = value

    def _judge_tag(self, event: Any) -> None:
        if event.tag not in _KNOWN_TAGS:
            self._tell(event, "tag", "a tag (`!…`) is not supported")

    def _merging(self, mapping: _Open, event: Any, value: Any) -> None:
        sources = value if isinstance(value, list) else [value]
        if sources and all(isinstance(source, dict) for source in sources):
            mapping.merges.append(value)
        else:
            self._tell(event, "key", "`<<` needs a mapping or a list of mappings")

    def _key(self, mapping: _Open, event: Any, name: str) -> Any:
        assert mapping.seen is not None
        if name == "<<" and not event.style:
            return _MERGE
        if name in mapping.seen:
            self._tell(event, "duplicate-key", f"`{name}` is set twice", mapping.seen[name])
            return _DROPPED
        mapping.seen[name] = event.start_mark.index
        return name

    def _stands_for(self, event: Any) -> tuple[Any, int]:
        anchor: Any = self._anchors.get(event.anchor, _DROPPED)
        if anchor is _DROPPED:
            self._tell(event, "aliases", f"`*{event.anchor}` is not defined; there is no `&{event.anchor}` above it")
            return None, 1
        if anchor is None:
            self._tell(event, "aliases", "the alias contains itself")
            return None, 1
        value, weight = anchor
        self._aliased += weight
        if self._aliased > min(10 * self._nodes + 10_000, 2 * self._nodes + 5_000_000):
            message = "its aliases expand to too many values; write the values without aliases"
            raise Broken("aliases", message, event.start_mark.index)
        return value, weight

    def _odd(self, event: Any) -> object:
        self._tell(event, "key", "a key must be plain text")
        return _DROPPED

    def _tell(self, event: Any, rule: str, message: str, first: int = -1) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        self._faults.append(_Fault(rule, message, start, max(end, start + 1), first))


# --- offsets to places ----------------------------------------------------------------------------------------------


class Ruler:
    """Lines and columns of a text's offsets, as an editor counts them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(end.end() for end in _LINE_END.finditer(text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, counted from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and a column."""
        return self._starts[line - 1] + column - 1

    def line(self, number: int) -> str:
        """The text of a line, counted from 1; empty if there is no such line."""
        if not 1 <= number <= len(self._starts):
            return ""
        start = self._starts[number - 1]
        return self._text[start : self._starts[number] if number < len(self._starts) else None].rstrip("\r\n")


_LINE_END = re.compile(r"\r\n|\r|\n")


class _Node:
    """A requested value (or a parent of one), with its position."""

    __slots__ = ("end", "items", "merges", "start", "style")

    def __init__(self, start: int, end: int, style: str) -> None:
        self.start, self.end, self.style = start, end, style
        self.items: dict[str | int, tuple[tuple[int, int, str] | None, _Node]] = {}  # step: (its key, its value)
        self.merges: list[_Node] = []


_ALL: dict[Any, Any] = {}  # a mark: everything below is wanted


class _Watched:
    """A collection on the path to a requested value."""

    __slots__ = ("index", "key", "node", "skip", "want")

    def __init__(self, node: _Node, want: dict[Any, Any], mapping: bool) -> None:
        self.node, self.want = node, want
        self.index = -1 if mapping else 0  # of a sequence's next item
        self.key: Any = None
        self.skip = False  # its value is a key, which has no path


def _position(text: str, source: _Source, ruler: Ruler, start: int, end: int, style: str, exact: bool) -> Position:
    start, end = source.offset(start), source.offset(end)
    if end > start:
        end = start + len(text[start:end].rstrip())  # a block ends where the next token starts
    else:
        word = _WORD.match(text, start)
        end = word.end() if word else start
    line, column = ruler.position(start)
    width = len(re.split(r"[\r\n]", text[start:end], maxsplit=1)[0].rstrip())
    return Position(line, column, line, column + max(width, 1), start, end, exact, style)


def _span(root: _Node | None, path: Path, key: bool) -> tuple[int, int, str, bool]:
    """Start, end and style of the value at a path; of the last existing key if the path does not exist."""
    if root is None:
        return 0, 1, "", False
    node, name = root, None
    for depth, step in enumerate(path):
        child = _below(node, step)
        if child is not None:
            name, node = child
        if child is None or (key and depth == len(path) - 1):  # of an item of a list or of the file, the first word
            return (*(name or (node.start, node.start, "")), child is not None)
    return node.start, node.end, node.style, True


_WORD = re.compile(r"[^\s:,\[\]{}]+")


def _below(node: _Node, step: str | int) -> tuple[tuple[int, int, str] | None, _Node] | None:
    if step in node.items:
        return node.items[step]
    for source in node.merges:
        item = _below(source, step)
        if item is not None:
            return item
    return None


_ANCHOR = late(r"(?m)(^|[\s\[{,:-])&[^\s&]")


class _Finder:
    """One pass over the events that keeps only the values on the wanted paths (and the targets of aliases)."""

    def __init__(self, source: _Source, paths: list[Path]) -> None:
        self._get = source.next_event()
        self._anchors: dict[str, _Node] = {}
        self._has_anchors = _ANCHOR.search(source.text) is not None
        self._want: dict[Any, Any] = {}
        for path in paths:
            below = self._want
            for step in path:
                below = below.setdefault(step, {})
        self._left = _leaves(self._want)  # requested values that are not reached yet

    def find(self) -> _Node | None:
        root = _Node(0, 0, "[")
        current = _Watched(root, {0: self._want}, mapping=False)
        outer: list[_Watched] = []
        get = self._get
        while True:
            event = get()
            kind = type(event)
            if kind is ScalarEvent:
                if current.index < 0 and current.key is None:
                    current.key = event
                    continue
                node, below = self._start(current, event, event.style or "")
                if below is not None:
                    self._keep(current, node)
                    self._met(below)
                self._next(current)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                node, below = self._start(current, event, "{" if kind is MappingStartEvent else "[")
                if below is None and not self._has_anchors:
                    _skip(get)
                    self._next(current)
                    continue
                outer.append(current)
                current = _Watched(node, {} if below is None else below, kind is MappingStartEvent)
                current.skip = below is None
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                closed, current = current, outer.pop()
                closed.node.end = event.end_mark.index
                if not closed.skip:
                    self._keep(current, closed.node)
                    self._met(closed.want)
                self._next(current)
            elif kind is AliasEvent:
                if current.index < 0 and current.key is None:
                    current.key = event
                    continue
                if event.anchor in self._anchors and self._wanted(current) is not None:
                    self._keep(current, self._anchors[event.anchor])
                self._next(current)
            elif kind is StreamEndEvent:
                break
            if self._left <= 0 and not self._has_anchors:
                break
        return root.items[0][1] if 0 in root.items else self._partial(outer, current)

    def _partial(self, outer: list[_Watched], innermost: _Watched) -> _Node | None:
        """The tree if the rest of the text is not needed; open collections are kept as they are."""
        for parent, child in reversed(list(zip(outer, [*outer[1:], innermost], strict=True))):
            self._keep(parent, child.node)
        first = outer[0].node if outer else innermost.node
        return first.items[0][1] if 0 in first.items else None

    def _start(self, parent: _Watched, event: Any, style: str) -> tuple[_Node, dict[Any, Any] | None]:
        """A node for a value that starts here, and the requested paths below it. Returns None if nothing is
        requested."""
        node = _Node(event.start_mark.index, event.end_mark.index, style)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
            return node, _ALL
        return node, self._wanted(parent)

    def _wanted(self, parent: _Watched) -> dict[Any, Any] | None:
        if parent.want is _ALL or _merging(parent):
            return _ALL
        step = self._step(parent)
        return None if step in parent.node.items else parent.want.get(step)  # the first of two equal keys counts

    def _met(self, below: dict[Any, Any]) -> None:
        if not below and below is not _ALL:
            self._left -= 1

    def _step(self, parent: _Watched) -> str | int:
        return parent.index if parent.index >= 0 else getattr(parent.key, "value", "")

    def _keep(self, parent: _Watched, node: _Node) -> None:
        if _merging(parent):
            parent.node.merges.append(node)
        elif parent.index >= 0:
            parent.node.items[parent.index] = (None, node)
        elif parent.key is not None and self._step(parent) not in parent.node.items:
            key = parent.key
            parent.node.items[self._step(parent)] = ((key.start_mark.index, key.end_mark.index, key.style or ""), node)

    def _next(self, parent: _Watched) -> None:
        if parent.index >= 0:
            parent.index += 1
        elif parent.key is None:
            parent.key = _DROPPED  # the key is a collection; its value comes next
        else:
            parent.key = None


def _merging(collection: _Watched) -> bool:
    return collection.index < 0 and getattr(collection.key, "value", "") == "<<" and not collection.key.style


def _leaves(want: dict[Any, Any]) -> int:
    return sum(_leaves(below) for below in want.values()) if want else 1


def _skip(get: Callable[[], Any]) -> None:
    """Read on to the end of the collection that has just started."""
    depth = 1
    while depth:
        kind = type(get())
        if kind is MappingStartEvent or kind is SequenceStartEvent:
            depth += 1
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            depth -= 1
