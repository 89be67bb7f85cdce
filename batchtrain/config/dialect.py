"""Translates deprecated names and values to the current ones; the tables are in `types.history`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from batchtrain.config.schema import Flaw
from batchtrain.config.types import RENAMED, RENAMED_VALUES, Branch, Renamed, RenamedValue

Path = tuple[str | int, ...]

OLD_SECTIONS = {"batch_shipyard": "batchtrain"}
"""Older names of top-level sections, and the current ones."""


def renamed(section: str, data: Any, paths_in_file: dict[Path, Path], flaws: list[Flaw]) -> Any:
    """The data of a section with current names; each deprecated name adds a warning to `flaws`.

    paths_in_file: receives, for each current path, the path in the file.
    """
    branch = _TREE.below.get(section)
    return _Renaming(paths_in_file, flaws).walk(data, branch, (section,)) if branch else data


def today(path: Path) -> Path:
    """The path with current names."""
    branch = _TREE.below.get(str(path[0]))
    current = list(path[:1])
    for step in path[1:]:
        branch = branch and (branch.below.get(str(step)) or branch.below.get("*"))
        rule = _name_rule(branch) if branch else None
        if rule is not None and rule.new.startswith("../"):
            current.pop()
        current.append(rule.new.removeprefix("../") if rule is not None else step)
    return tuple(current)


_Branch = Branch[Renamed | RenamedValue]
_TREE: _Branch = Branch((*RENAMED, *RENAMED_VALUES))


def _name_rule(branch: _Branch) -> Renamed | None:
    return next((rule for rule in branch.rules if isinstance(rule, Renamed)), None)


class _Renaming:
    """Walks along the paths that may have deprecated names; copies only data that has some."""

    def __init__(self, paths_in_file: dict[Path, Path], flaws: list[Flaw]) -> None:
        self._written, self._flaws = paths_in_file, flaws
        self._lifted: list[tuple[Path, str, Any]] = []  # the mapping it goes to, its name there, the value

    def walk(self, data: Any, branch: _Branch, path: Path) -> Any:
        if isinstance(data, str):
            return self._value(data, branch, path)
        if isinstance(data, list):
            below = branch.below.get("*")
            return data if below is None else self._changed(data, enumerate(data), below, path)
        if not isinstance(data, dict):
            return data
        for step, below in branch.below.items():
            items = list(data.items()) if step == "*" else [(step, data[step])] if step in data else []
            data = self._changed(data, items, below, path)
        for step, below in branch.below.items():
            if step in data and (rule := _name_rule(below)) is not None:
                data = self._renamed(data, rule, path)
        moves = [(name, value) for to, name, value in self._lifted if to == path]
        self._lifted = [waiting for waiting in self._lifted if waiting[0] != path]
        return {**data, **{name: value for name, value in moves if name not in data}} if moves else data

    def _changed(self, data: Any, items: Iterable[tuple[Any, Any]], below: _Branch, path: Path) -> Any:
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

    def _value(self, data: str, branch: _Branch, path: Path) -> str:
        for rule in branch.rules:
            if isinstance(rule, RenamedValue) and rule.old == data:
                message = f"`{data}` is written `{rule.new}` today"
                self._flaws.append(Flaw(path, "renamed", message, level="warning", fix=rule.new))
                return rule.new
        return data

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
