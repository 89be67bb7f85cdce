"""Values given on the command line, by path: `--set a.b[0].c=value`, and to the Python API; no files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from batchtrain.config import schema
from batchtrain.config.times import duration
from batchtrain.errors import UsageError

Path = tuple[str | int, ...]


def setting_texts(settings: Mapping[str, object] | None) -> dict[str, str]:
    """The values that a call of the Python API overrides, as `--set` has them. Raises UsageError for other types."""
    if settings is not None and not isinstance(settings, Mapping):
        raise UsageError(f'`settings` is {settings!r}; give values by path, such as {{"nodes": 3}}')
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in (settings or {}).items()
    }


def seconds(name: str, value: float | str | None) -> float | None:
    """The seconds of an argument: a number, 0 or more, or a text such as `1h30m`. Raises UsageError."""
    length = duration(value) if isinstance(value, str) else value
    if value is None or (isinstance(length, (int, float)) and 0 <= length < float("inf")):
        return length
    raise UsageError(f"`{name}` is {value!r}; give a number of seconds, 0 or more, or a time such as 90s, 30m or 1h30m")


def joined(head: str, words: Sequence[str | int], data: Any) -> Path:
    """The steps of a path; a user-defined key may have dots: `docker_registry.my.azurecr.io.username`."""
    path: Path = (head,)
    while words:
        kind = schema.shape_of(path)
        below = schema.free_keys(kind) if kind is not None else None
        length = 1 if below is None else _key_length(words, schema.fields_of(below), data)
        step = words[0] if length == 1 else ".".join(str(word) for word in words[:length])
        path, words = (*path, step), words[length:]
        data = data.get(step) if isinstance(data, dict) else None
    return path[1:]


_FIRST_TASK = ("job_specifications", 0, "tasks", 0)


def whole_path(words: Path) -> Path | None:
    """The path of a property from its section down, if `words` end as it does: `vm_count.dedicated`, `nodes`. Of
    several it is that of the first task, which most settings are about."""
    synonyms = schema.synonyms(str(words[0])) if len(words) == 1 else ()
    ends = [synonyms[-1:], *(words[number:] for number in range(len(words)))]
    paths = ((path, end) for end in ends if (path := schema.property_path(end, _FIRST_TASK)))
    return next(((*path[: -len(end)], *end) for path, end in paths), None)


_POOL, FIRST_TASK = "pool_specification", "job_specifications[0].tasks[0]"
_COUNTS = ("dedicated", "low_priority")
_SHORT = {
    "command": (f"{FIRST_TASK}.command",),
    "image": (f"{FIRST_TASK}.docker_image", "global_resources.docker_images[0]"),
    "job": ("job_specifications[0].id",),
    "pool": (f"{_POOL}.id",),
    "size": (f"{_POOL}.vm_size",),
    "source": (f"{FIRST_TASK}.source",),
}
SHORT_WORDS = ("arguments", "nodes", "processes_per_node", "spot", *_SHORT)
"""Names of values of a recipe with one task, in place of their paths; `spot` is for every recipe."""


def long_values(word: str, text: str, pool: Any, jobs: Any) -> tuple[tuple[str, str], ...]:
    """The paths of the values that a short word sets, in the data of the sections, each with its value. Empty if the
    recipe has not exactly one task, or if it is no short word."""
    tasks = [
        (f"job_specifications[{number}].tasks[{index}]", task)
        for number, job in enumerate(jobs or ())
        for index, task in enumerate(at(job, ("tasks",)) or ())
    ]
    if word == "spot":
        return tuple(_spot(text == "true", pool, tasks))
    if len(tasks) != 1:
        return ()
    ((_, task),) = tasks
    if word == "arguments":
        return ((f"{FIRST_TASK}.command", f"{at(task, ('command',)) or ''}".rstrip() + f" {text}"),)
    gang = at(task, ("multi_instance",))
    if word == "processes_per_node":
        blocks = [name for name, block in gang.items() if isinstance(block, dict)] if isinstance(gang, dict) else []
        return tuple((f"{FIRST_TASK}.multi_instance.{name}.{word}", text) for name in blocks)
    if word != "nodes":
        return tuple((path, text) for path in _SHORT.get(word, ()))
    counts = [name for name in _COUNTS if str(at(pool, ("vm_count", name)) or "0") != "0"]
    instances = f"{FIRST_TASK}.multi_instance.num_instances"
    is_number = str(at(gang, ("num_instances",))).isdecimal()
    return ((f"{_POOL}.vm_count.{(counts or _COUNTS)[0]}", text), *(((instances, text),) if is_number else ()))


def _spot(is_spot: bool, pool: Any, tasks: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """All nodes of a pool as spot nodes or as dedicated ones, and the gangs that count them."""
    counts = [str(at(pool, ("vm_count", name)) or "0") for name in _COUNTS]
    if not all(map(str.isdecimal, counts)) or not sum(map(int, counts)):
        return
    other, kind = _COUNTS if is_spot else reversed(_COUNTS)
    yield f"{_POOL}.vm_count.{kind}", str(sum(map(int, counts)))
    yield f"{_POOL}.vm_count.{other}", "0"
    for path, task in tasks:
        instances = at(task, ("multi_instance", "num_instances"))
        if isinstance(instances, str) and instances.endswith(f"_{other}"):
            yield f"{path}.multi_instance.num_instances", instances.removesuffix(other) + kind


def _key_length(words: Sequence[str | int], fields: tuple[str, ...], data: Any) -> int:
    """The number of words that form one key: an existing key, or all words before the first known property."""
    most = next((number for number, word in enumerate(words) if isinstance(word, int)), len(words)) or 1
    for length in range(most, 0, -1):
        if isinstance(data, dict) and ".".join(str(word) for word in words[:length]) in data:
            return length
    if not fields:
        return most
    return next((length for length in range(1, most) if words[length] in fields), most)


_NUMBER = "[0-9]{1,6}"


def numbered(data: Any, path: Path) -> Path:
    """The path with the number of the first item where it names an item of a list by none, such as `tasks.command`."""
    steps: Path = ()
    for step in path:
        if isinstance(data, list) and not re.fullmatch(_NUMBER, str(step)):
            steps, data = (*steps, 0), data[0] if data else None
        steps = (*steps, step)
        if isinstance(data, list):
            data = data[int(step)] if int(step) < len(data) else None
        else:
            data = data.get(str(step)) if isinstance(data, dict) else None
    return steps


def without(data: Any, paths: Iterable[Path]) -> Any:
    """A copy of `data` without the keys at some paths. Unchanged parts are shared."""
    branches: dict[str | int, Any] = {}
    for path in paths:
        branch = branches
        for step in path:
            branch = branch.setdefault(step, {})
    return _without(data, branches)


def _without(data: Any, branches: dict[str | int, Any]) -> Any:
    if isinstance(data, list):
        items = list(data)
        for number, below in branches.items():
            if isinstance(number, int) and number < len(items):
                items[number] = _without(items[number], below)
        return items
    if not isinstance(data, dict):
        return data
    remaining = {key: item for key, item in data.items() if key not in branches or branches[key]}
    return {key: _without(item, branches[key]) if key in branches else item for key, item in remaining.items()}


def at(data: Any, path: Path) -> Any:
    """The value at `path`; None if there is none."""
    for step in path:
        if isinstance(data, list) and isinstance(step, int):
            data = data[step] if step < len(data) else None
        else:
            data = data.get(step) if isinstance(data, dict) else None
    return data


def put(data: Any, path: Path, value: Any) -> Any:
    """A copy of `data` with one value set at `path`, or removed (None); numbers index lists, and may add the next item.

    Raises IndexError for an item after that.
    """
    if not path:
        return value
    step, remaining = path[0], path[1:]
    if isinstance(data, list) or (isinstance(step, int) and not data):
        items = list(data or ())
        index = step if isinstance(step, int) else int(step) if re.fullmatch(_NUMBER, step) else len(items)
        if index > len(items):
            raise IndexError(f"the list has no item [{index}]; the next new one is [{len(items)}]")
        changed = put(items[index] if index < len(items) else None, remaining, value)
        items[index : index + 1] = [] if changed is None else [changed]
        return items
    mapping = dict(data) if isinstance(data, dict) else {}
    changed = put(mapping.get(str(step)), remaining, value)
    if changed is None:
        mapping.pop(str(step), None)
    else:
        mapping[str(step)] = changed
    return mapping
