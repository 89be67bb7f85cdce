"""Translates deprecated names and values to the current ones; the tables are in `types.history`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from batchtrain.config import override
from batchtrain.config.schema import Flaw
from batchtrain.config.types import (
    RENAMED,
    RENAMED_VALUES,
    REPLACED,
    WRAPPED,
    Branch,
    Renamed,
    RenamedValue,
    Replaced,
    Wrapped,
)

Path = tuple[str | int, ...]

OLDER = frozenset({"renamed", "size-retired", "image-retired"})
"""The rules whose findings `config migrate` replaces."""

OLD_SECTIONS = {"batch_shipyard": "batchtrain"}
"""Older names of top-level sections, and the current ones."""


def renamed(
    section: str, data: Any, paths_in_file: dict[Path, Path], flaws: list[Flaw], rewrites: list[Rewrite]
) -> Any:
    """The data of a section with current names; each deprecated name adds a warning to `flaws`.

    paths_in_file: receives, for each current path, the path in the file. rewrites: receives what `migrate` rewrites.
    """
    branch = _TREE.below.get(section)
    return _Renaming(paths_in_file, flaws, rewrites).walk(data, branch, (section,)) if branch else data


class Rewrite(NamedTuple):
    """A deprecated property that more than a new key replaces, for `config migrate`."""

    path: Path
    """In the file."""
    steps: Path
    """The new path, from the mapping of the old key."""
    values: Mapping[str, str] = {}
    beside: Mapping[str, str] = {}


def today(path: Path) -> Path:
    """The path with current names."""
    branch = _TREE.below.get(str(path[0]))
    current = list(path[:1])
    for step in path[1:]:
        branch = branch and (branch.below.get(str(step)) or branch.below.get("*"))
        rule = _name_rule(branch) if branch else None
        if rule is not None and rule.new.startswith("../"):
            current.pop()
        current += rule.steps if rule is not None else (step,)
    return tuple(current)


_Rule = Renamed | RenamedValue | Wrapped | Replaced
_Branch = Branch[_Rule]
_TREE: _Branch = Branch((*RENAMED, *RENAMED_VALUES, *WRAPPED, *REPLACED))


def _name_rule(branch: _Branch) -> Renamed | None:
    return next((rule for rule in branch.rules if isinstance(rule, Renamed)), None)


class _Renaming:
    """Walks along the paths that may have deprecated names; copies only data that has some."""

    def __init__(self, paths_in_file: dict[Path, Path], flaws: list[Flaw], rewrites: list[Rewrite]) -> None:
        self._written, self._flaws, self._rewrites = paths_in_file, flaws, rewrites
        self._lifted: list[tuple[Path, str, Any]] = []  # the mapping it goes to, its name there, the value

    def walk(self, data: Any, branch: _Branch, path: Path) -> Any:
        for rule in branch.rules:
            if isinstance(rule, Wrapped) and isinstance(data, rule.kind):
                return self.walk(self._wrapped(data, rule, path), branch, path)
        if isinstance(data, str):
            return self._value(data, branch, path)
        if isinstance(data, list):
            below = branch.below.get("*")
            return data if below is None else self._changed(data, enumerate(data), below, path)
        if not isinstance(data, dict):
            return data
        if (below := branch.below.get("*")) is not None:
            data = self._changed(data, list(data.items()), below, path)
        for step in [step for step in data if step in branch.below]:
            below = branch.below[step]
            data = self._changed(data, ((step, data[step]),), below, path)
            if below.rules:
                data = self._of_today(data, step, below, path)
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

    def _wrapped(self, data: Any, rule: Wrapped, path: Path) -> dict[str, Any]:
        now = (*path, rule.below)
        self._written[now] = path
        self._rewrites.append(Rewrite(path, (path[-1], rule.below)))
        message = f"this is a mapping today, and the value is its `{rule.below}`"
        self._flaws.append(Flaw(now, "renamed", message, level="warning"))
        return {rule.below: data}

    def _of_today(self, data: dict[str, Any], step: str, branch: _Branch, path: Path) -> dict[str, Any]:
        for rule in branch.rules:
            if isinstance(rule, Replaced):
                ignored = f"`{step}` is ignored" if rule.level == "warning" else f"`{step}` is not supported any more"
                flaw = Flaw((*path, step), "gone", f"{ignored}: {rule.instead}", at_key=True, level=rule.level)
                self._flaws.append(flaw)
                return {name: value for name, value in data.items() if name != step}
        name_rule = _name_rule(branch)
        return data if name_rule is None else self._renamed(data, name_rule, path)

    def _renamed(self, data: dict[str, Any], rule: Renamed, path: Path) -> dict[str, Any]:
        old, is_higher = rule.path[-1], rule.new.startswith("../")
        home = path[:-1] if is_higher else path
        now, name = (*home, *rule.steps), ".".join(rule.steps)
        others = {key: value for key, value in data.items() if key != old}
        if not is_higher and override.at(data, rule.steps) is not None:
            message = f"`{old}` is the deprecated name of `{name}`, and both are set; keep `{name}`"
            self._flaws.append(Flaw((*path, old), "renamed", message, at_key=True))
            return others
        self._written[now] = (*path, old)
        for count in range(1, len(rule.steps)):
            if override.at(data, rule.steps[:count]) is None:
                self._written.setdefault((*home, *rule.steps[:count]), (*path, old))
        value = rule.values.get(data[old].lower(), data[old]) if isinstance(data[old], str) else data[old]
        is_alone = not is_higher and len(rule.steps) == 1 and not rule.beside and value is data[old]
        if not rule.quiet:
            why = f": {rule.why}" if rule.why else ""
            message = f"`{old}` is called `{name}` today{why}"
            if value is not data[old]:
                message = f"`{old}: {data[old]}` is written `{name}: {value}` today"
            self._flaws.append(
                Flaw(now, "renamed", message, at_key=True, level="warning", fix=name if is_alone else "")
            )
        if is_higher:
            self._lifted.append((home, rule.steps[0], value))
            return others
        if not is_alone:
            self._rewrites.append(Rewrite((*path, old), rule.steps, rule.values, rule.beside))
        if len(rule.steps) > 1:
            return _put(others, rule.steps, value)
        return {**{name if key == old else key: value if key == old else item for key, item in data.items()},
                **rule.beside}  # fmt: skip


def _put(data: Any, steps: Path, value: Any) -> dict[str, Any]:
    below = _put(override.at(data, steps[:1]), steps[1:], value) if len(steps) > 1 else value
    return {**(data if isinstance(data, dict) else {}), str(steps[0]): below}
