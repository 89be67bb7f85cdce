"""Translates deprecated names and values to the current ones; the tables are in `types.history`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from batchtrain.config.schema import Flaw
from batchtrain.config.types import RENAMED, RENAMED_VALUES, Renamed, RenamedValue

Path = tuple[str | int, ...]

OLD_SECTIONS = {"batch_shipyard": "batchtrain"}
"""Older names of top-level sections, and the current ones."""


def renamed(section: str, data: Any, paths_in_file: dict[Path, Path], flaws: list[Flaw]) -> Any:
    """The data of a section with current names; each deprecated name adds a warning to `flaws`.

    paths_in_file: receives, for each current path, the path in the file.
    """
    words = _WORDS.get(section)
    return _Renaming(paths_in_file, flaws).walk(data, words, (section,)) if words else data


def today(path: Path) -> Path:
    """The path with current names."""
    words = _WORDS.get(str(path[0]))
    current = list(path[:1])
    for step in path[1:]:
        words = words and (words.below.get(str(step)) or words.below.get("*"))
        rule = words.renamed if words else None
        if rule is not None and rule.new.startswith("../"):
            current.pop()
        current.append(rule.new.removeprefix("../") if rule is not None else step)
    return tuple(current)


class _Words:
    """The deprecated names and values, as a tree of steps."""

    __slots__ = ("below", "renamed", "values")

    def __init__(self) -> None:
        self.below: dict[str, _Words] = {}
        self.renamed: Renamed | None = None
        self.values: dict[str, str] = {}

    def at(self, path: Iterable[str]) -> _Words:
        words = self
        for step in path:
            words = words.below.setdefault(step, _Words())
        return words


def _tree(rules: Iterable[Renamed], values: Iterable[RenamedValue]) -> dict[str, _Words]:
    root = _Words()
    for name in rules:
        root.at(name.path).renamed = name
    for value in values:
        root.at(value.path).values[value.old] = value.new
    return root.below


_WORDS = _tree(RENAMED, RENAMED_VALUES)


class _Renaming:
    """Walks along the paths that may have deprecated names; copies only data that has some."""

    def __init__(self, paths_in_file: dict[Path, Path], flaws: list[Flaw]) -> None:
        self._written, self._flaws = paths_in_file, flaws
        self._lifted: list[tuple[Path, str, Any]] = []  # the mapping it goes to, its name there, the value

    def walk(self, data: Any, words: _Words, path: Path) -> Any:
        if isinstance(data, str):
            return self._value(data, words, path)
        if isinstance(data, list):
            below = words.below.get("*")
            return data if below is None else self._changed(data, enumerate(data), below, path)
        if not isinstance(data, dict):
            return data
        for step, below in words.below.items():
            items = list(data.items()) if step == "*" else [(step, data[step])] if step in data else []
            data = self._changed(data, items, below, path)
        for step, below in words.below.items():
            if below.renamed is not None and step in data:
                data = self._renamed(data, below.renamed, path)
        moves = [(name, value) for to, name, value in self._lifted if to == path]
        self._lifted = [waiting for waiting in self._lifted if waiting[0] != path]
        return {**data, **{name: value for name, value in moves if name not in data}} if moves else data

    def _changed(self, data: Any, items: Iterable[tuple[Any, Any]], below: _Words, path: Path) -> Any:
        changes = {}
        for step, value in items:
            changed = self.walk(value, below, (*path, step))
            if changed is not value:
                changes[step] = changed
        if not changes:
            return data
        if isinstance(data, dict):
            return {**data, **changes}
        return [changes.get(number, value) for number, value in enumerate(data)]

    def _value(self, data: str, words: _Words, path: Path) -> str:
        new = words.values.get(data)
        if new is None:
            return data
        self._flaws.append(Flaw(path, "renamed", f"`{data}` is written `{new}` today", level="warning", fix=new))
        return new

    def _renamed(self, data: dict[str, Any], rule: Renamed, path: Path) -> dict[str, Any]:
        old, new = rule.path[-1], rule.new
        home = path[:-1] if new.startswith("../") else path
        new = new.removeprefix("../")
        others = {name: value for name, value in data.items() if name != old}
        if home == path and new in data:
            message = f"`{old}` is the deprecated name of `{new}`, and both are set; keep `{new}`"
            self._flaws.append(Flaw((*path, old), "renamed", message, at_key=True))
            return others
        now = (*home, new)
        self._written[now] = (*path, old)
        if not rule.quiet:
            why = f": {rule.why}" if rule.why else ""
            message = f"`{old}` is called `{new}` today{why}"
            fix = new if home == path else ""
            self._flaws.append(Flaw(now, "renamed", message, at_key=True, level="warning", fix=fix))
        if home == path:
            return {new if name == old else name: value for name, value in data.items()}
        self._lifted.append((home, new, data[old]))
        return others
