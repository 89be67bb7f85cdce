"""Values that have no type of their own: the arguments of a custom task factory. A plain scalar there is what YAML 1.2
says: a number, true, false or text. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from batchtrain.config import override
from batchtrain.config.document import Document, Path
from batchtrain.config.patterns import late

_NUMBERS = (
    (late(r"[-+]?[0-9]{1,4000}"), int),
    (late(r"0x[0-9a-fA-F]{1,1000}|0o[0-7]{1,1000}"), lambda text: int(text, 0)),
    (late(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
)
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: float(f"{sign}inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}


def typed(document: Document, jobs: Any) -> Any:
    """The data of the jobs of a file with the arguments of custom factories as the file types them."""
    leaves = list(_arguments(jobs)) if "custom" in document.text else []
    if not leaves:
        return jobs
    positions = document.positions((("job_specifications", *path), False) for path in leaves)
    values: dict[str | int, Any] = {}
    for path in leaves:
        position, text = positions[("job_specifications", *path), False], override.at(jobs, path)
        if position.exact and document.text[position.start : position.end] == text:  # no quotes and no tag
            branch = values
            for step in path[:-1]:
                branch = branch.setdefault(step, {})
            branch[path[-1]] = value_of(text)
    return _replaced(jobs, values)


def _replaced(data: Any, values: Any) -> Any:
    """A copy of `data` with the values of a tree of steps. Unchanged parts are shared."""
    if not isinstance(values, dict):
        return values
    if isinstance(data, list):
        return [_replaced(item, values[number]) if number in values else item for number, item in enumerate(data)]
    return {**data, **{name: _replaced(data[name], below) for name, below in values.items()}}


def value_of(text: str) -> Any:
    """The value of a plain scalar, by the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    return next((kind(text) for pattern, kind in _NUMBERS if pattern.fullmatch(text)), text)


def _arguments(jobs: Any) -> Iterator[Path]:
    """The paths of all texts in the arguments of custom factories."""
    for number, job in enumerate(jobs if isinstance(jobs, list) else ()):
        tasks = job.get("tasks") if isinstance(job, dict) else None
        for index in range(len(tasks if isinstance(tasks, list) else ())):
            path: Path = (number, "tasks", index, "task_factory", "custom")
            custom = override.at(jobs, path)
            if isinstance(custom, dict):
                for name in ("input_args", "input_kwargs"):
                    yield from _texts(custom.get(name), (*path, name))


def _texts(value: Any, path: Path) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield from _texts(item, (*path, step))
    if isinstance(value, str):
        yield path
