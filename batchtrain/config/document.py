"""One YAML (or JSON) file as plain data with a place for everything in it; knows YAML, not our language.

Scalars stay the text that was written and are converted later by the type that wants them, which is why no YAML 1.1
surprise (`yes`, `1:30`, `012`, `7.10`) can happen. A plain `null`, `~` or nothing is None, and a key whose value is
None counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        text = text.replace("\t", " ")  # JSON may indent with tabs, YAML may not; no JSON string holds a raw tab
    try:
        root = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return _broken(file, "syntax", f"YAML cannot be read: {said}", line, column)
    except yaml.YAMLError as error:
        return _broken(file, "syntax", f"YAML cannot be read: {error}", 1, 1)
    except RecursionError:
        return _broken(file, "syntax", "YAML is nested too deeply", 1, 1)
    if root is None:
        return _broken(file, "empty-file", "the file is empty", 1, 1)
    problems: list[Problem] = []
    data = _build(root, file, problems, {})
    return Document(file, data, root), tuple(problems)


def _broken(file: str, rule: str, message: str, line: int, column: int) -> tuple[Document, tuple[Problem, ...]]:
    return Document(file, None, None), (Problem(rule, message, file, line, column),)


def _build(node: Node, file: str, problems: list[Problem], seen: dict[int, Any]) -> Any:
    if isinstance(node, ScalarNode):
        if node.tag not in _KNOWN_TAGS:
            problems.append(_at(node, file, "tag", f"the tag `{node.tag}` means nothing here"))
        return None if not node.style and node.value in _NULL else node.value
    if id(node) in seen:  # an alias: shared, and safe from growing without end
        return seen[id(node)]
    if isinstance(node, SequenceNode):
        items: list[Any] = []
        seen[id(node)] = items
        items.extend(_build(item, file, problems, seen) for item in node.value)
        return items
    mapping: dict[str, Any] = {}
    seen[id(node)] = mapping
    _fill(mapping, node, file, problems, seen)
    return mapping


def _fill(mapping: dict[str, Any], node: Node, file: str, problems: list[Problem], seen: dict[int, Any]) -> None:
    places: dict[str, Node] = {}
    merged: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            problems.append(_at(key, file, "key", "a key must be plain text"))
            continue
        name = key.value
        if name == "<<" and not key.style:
            for source in _merges(_build(value, file, problems, seen)):
                merged = {**source, **merged}
            continue
        if name in places:
            first = places[name].start_mark.line + 1
            problems.append(_at(key, file, "duplicate-key", f"`{name}` is here twice, first in line {first}"))
            continue
        places[name] = key
        built = _build(value, file, problems, seen)
        if built is not None:
            mapping[name] = built
    mapping.update({name: value for name, value in merged.items() if name not in places})


def _merges(value: Any) -> Iterator[dict[str, Any]]:
    for source in value if isinstance(value, list) else [value]:
        if isinstance(source, dict):
            yield source


def _at(node: Node, file: str, rule: str, message: str) -> Problem:
    return Problem(rule, message, file, node.start_mark.line + 1, node.start_mark.column + 1)


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
