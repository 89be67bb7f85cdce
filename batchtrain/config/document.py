"""One YAML (or JSON) file as plain data with a place for everything in it; knows YAML, not our language.

Scalars stay the text that was written and are converted later by the type that wants them, which is why no YAML 1.1
surprise (`yes`, `1:30`, `012`, `7.10`) can happen. A plain `null`, `~` or nothing is None, and a key whose value is
None counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from batchtrain.errors import Problem

Path = tuple[str | int, ...]

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_KNOWN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is 6 times faster; wheels have it


class _Loader(_Base):  # type: ignore[misc]  # the base is chosen at run time
    """Composes nodes only; with no implicit resolvers every plain scalar is text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


class Place(NamedTuple):
    """Where something stands: counted from 1."""

    line: int
    column: int


class Document(NamedTuple):
    """A file's data, and the node tree that knows where each value stands."""

    file: str
    data: Any
    root: Node | None

    def place(self, path: Path, *, key: bool = False) -> Place:
        """The place of a value, or of its key; of the nearest thing above it when it is not there."""
        return _place(self.root, path, key)


def parse(file: str, content: bytes) -> tuple[Document, tuple[Problem, ...]]:
    """Read one file's bytes. Problems: not UTF-8, syntax, duplicate keys, odd keys or tags, an empty file."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return _broken(file, "encoding", f"this is not UTF-8 (byte {error.start}); save the file as UTF-8", line, 1)
    if file.endswith(".json"):
        text = _as_yaml(text)
    try:
        if _may_be_deep(text) and _depth(text) > DEEPEST:
            return _broken(file, "syntax", f"YAML is nested deeper than {DEEPEST} levels", 1, 1)
        root = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return _broken(file, "syntax", f"YAML cannot be read: {said}", line, column)
    except yaml.YAMLError as error:
        return _broken(file, "syntax", f"YAML cannot be read: {error}", 1, 1)
    if root is None:
        return _broken(file, "empty-file", "the file is empty", 1, 1)
    builder = _Builder(file)
    data = builder.build(root)
    if builder.laughs(root):
        return _broken(file, "aliases", "its aliases stand for far more than is written; write out what is meant", 1, 1)
    return Document(file, data, root), tuple(builder.problems)


def _broken(file: str, rule: str, message: str, line: int, column: int) -> tuple[Document, tuple[Problem, ...]]:
    return Document(file, None, None), (Problem(rule, message, file, line, column),)


DEEPEST = 100
_PAIR = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.I)


def _as_yaml(text: str) -> str:
    """JSON that YAML reads too: tabs may indent it, and characters may be written as surrogate pairs."""
    return _PAIR.sub(lambda m: bytes.fromhex(m[1] + m[2]).decode("utf-16-be"), text.replace("\t", " "))


def _may_be_deep(text: str) -> bool:
    """A cheap upper bound of the nesting: the composer recurses in C, where too deep means a crash."""
    flow = max(accumulate((1 if mark in "[{" else -1 for mark in re.findall(r"[\[\]{}]", text)), initial=0))
    block = max((len(line) - len(line.lstrip()) + line.count("- ") for line in text.splitlines()), default=0)
    return flow + block > DEEPEST


def _depth(text: str) -> int:
    """How deep the collections really nest; events come one by one, without recursion."""
    deepest = depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            deepest = max(deepest, depth)
            if depth > DEEPEST:
                break
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return deepest


class _Builder:
    """Plain data from nodes; an alias shares its anchor's data, so what is built is never larger than the file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._built: dict[int, Any] = {}
        self._weights: dict[int, int] = {}  # values a collection stands for, with its aliases written out
        self._nodes = 0

    def build(self, node: Node) -> Any:
        if isinstance(node, ScalarNode):
            self._nodes += 1
            if node.tag not in _KNOWN_TAGS:
                self._problem(node, "tag", "a tag (`!…`) means nothing here")
            return None if not node.style and node.value in _NULL else node.value
        if id(node) in self._built:
            if id(node) not in self._weights:
                self._problem(node, "aliases", "an alias stands inside of what it stands for")
                return None
            return self._built[id(node)]
        self._nodes += 1
        built: Any = [] if isinstance(node, SequenceNode) else {}
        self._built[id(node)] = built
        if isinstance(node, SequenceNode):
            built.extend(self.build(item) for item in node.value)
            parts = node.value
        else:
            self._fill(built, node)
            parts = [value for _, value in node.value]
        self._weights[id(node)] = 1 + sum(self._weights.get(id(part), 1) for part in parts)
        return built

    def laughs(self, root: Node) -> bool:
        """Whether aliases make the document stand for very much more than it is."""
        return self._weights.get(id(root), 1) > 10 * self._nodes + 10_000

    def _fill(self, mapping: dict[str, Any], node: Node) -> None:
        places: dict[str, Node] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self._problem(key, "key", "a key must be plain text")
                continue
            name = key.value
            if name == "<<" and not key.style:
                for source in _merges(self.build(value)):
                    merged = {**source, **merged}
                continue
            if name in places:
                first = places[name].start_mark.line + 1
                self._problem(key, "duplicate-key", f"`{name}` is here twice, first in line {first}")
                continue
            places[name] = key
            built = self.build(value)
            if built is not None:
                mapping[name] = built
        mapping.update({name: value for name, value in merged.items() if name not in places})

    def _problem(self, node: Node, rule: str, message: str) -> None:
        mark = node.start_mark
        self.problems.append(Problem(rule, message, self.file, mark.line + 1, mark.column + 1))


def _merges(value: Any) -> Iterator[dict[str, Any]]:
    for source in value if isinstance(value, list) else [value]:
        if isinstance(source, dict):
            yield source


def _place(root: Node | None, path: Path, key: bool) -> Place:
    found: Node | None = root
    for depth, step in enumerate(path):
        pair = _child(found, step)
        if pair is None:
            break
        found = pair[0] if key and depth == len(path) - 1 else pair[1]
    if found is None:
        return Place(1, 1)
    return Place(found.start_mark.line + 1, found.start_mark.column + 1)


def _child(node: Node | None, step: str | int) -> tuple[Node, Node] | None:
    """The key node and the value node of one step down; an item of a sequence is its own key."""
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    if isinstance(node, MappingNode):
        for name, value in node.value:
            if isinstance(name, ScalarNode) and name.value == step:
                return name, value
    return None
