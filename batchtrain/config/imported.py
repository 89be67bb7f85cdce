"""A recipe of documents that other tools send to Azure Batch: `az batch … create --json-file`, and pools of templates.

The properties of the language name the fields of the requests that they become (`reference`), so most values are
carried by that table in reverse. What nothing carries is reported with its path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from batchtrain.catalog import meaning
from batchtrain.config import reference
from batchtrain.config.document import parse
from batchtrain.config.import_converters import CONVERTERS, JOB, POOL, REASONS, Document, Path
from batchtrain.config.templates import Unknown, jobs_of, parameters_in, pools_of
from batchtrain.config.types import span_of
from batchtrain.errors import ConfigError, UsageError

KINDS: Mapping[str, str] = {"pool": "vmSize", "schedule": "jobSpecification", "job": "poolInfo", "task": "commandLine"}
"""Kind of a document of the service -> the property that no other kind has."""
READ_ONLY = frozenset({
    "allocationstate", "allocationstatetransitiontime", "autoscalerun", "creationtime", "currentdedicatednodes",
    "currentlowprioritynodes", "currentnodecommunicationmode", "etag", "executioninfo", "executioninformation",
    "lastmodified", "nodeinfo", "previousstate", "previousstatetransitiontime", "provisioningstate",
    "provisioningstatetransitiontime", "resizeerrors", "resizeoperationstatus", "state", "statetransitiontime", "stats",
    "type", "url",
})  # fmt: skip
"""Properties of answers, which `az batch pool show` prints too."""
IMPLIED = frozenset({"enableautoscale", "usestaskdependencies"})
"""Properties that the plan of a recipe has by itself."""
NOTHING = "batchtrain has no property for it"
ID = r"[A-Za-z0-9_-]{1,64}"
FOREVER_SECONDS = 10_000_000 * 86_400
"""More than this is no limit: the service shows P10675199D… where none was given."""


class Left(NamedTuple):
    """A value that the recipe does not have."""

    file: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.path}: {self.reason}"


class Imported(NamedTuple):
    """The sections of a recipe, and what they lack of the documents."""

    sections: Document
    left: tuple[Left, ...]


def imported(files: Mapping[str, bytes]) -> Imported:
    """The recipe of documents by the names of their files. Raises UsageError for what is no such document."""
    recipe = _Recipe()
    documents = sorted(_documents(files), key=lambda item: [*KINDS].index(item[1]))
    for kind in ("pool", "job"):
        names = [file for file, name, _ in documents if name.replace("schedule", "job") == kind]
        if len(names) > 1:
            raise UsageError(
                f"a recipe of documents has one {kind}, and {', '.join(names)} describe several; import them one by one"
            )
    for file, kind, document in documents:
        recipe.file = file
        recipe.take(kind, document)
    return recipe.finished()


def _documents(files: Mapping[str, bytes]) -> Iterator[tuple[str, str, Document]]:
    """File, kind and document of everything in the files."""
    contents = {file: _parsed(file, content) for file, content in files.items()}
    for file, content in contents.items():
        pools, jobs = pools_of(content, contents.values()), jobs_of(content, contents.values())
        if not (pools or jobs) and isinstance(content, dict) and "parameters" in content and not _kind(content):
            continue  # the values of a template
        templates = [*(("pool", pool) for pool in pools), *(("job", job) for job in jobs)]
        items = templates or [(_kind(item), item) for item in _items(content)]
        for kind, document in items:
            if not kind:
                needs = ", ".join(f"`{name}` ({kind})" for kind, name in KINDS.items())
                raise UsageError(f"{file} is no document of Azure Batch: it has none of {needs}")
            yield file, kind, document


def _parsed(file: str, content: bytes) -> Any:
    if file.endswith((".bicep", ".bicepparam")):
        build = "build-params" if file.endswith("param") else "build"
        raise UsageError(f"compile {file} first: `az bicep {build} --file {file}`, and import the JSON that it writes")
    document, problems = parse(file, content)
    if errors := tuple(problem for problem in problems if problem.level == "error"):
        raise ConfigError(errors)
    return document.data


def _items(content: Any) -> list[Any]:
    """The documents of a file: one, a list, or the tasks of a collection."""
    if isinstance(content, dict) and isinstance(content.get("value"), list):
        content = content["value"]
    return content if isinstance(content, list) else [content]


def _kind(document: Any) -> str:
    names = {name.lower() for name in document} if isinstance(document, dict) else set()
    return next((kind for kind, name in KINDS.items() if name.lower() in names), "")


class _Recipe:
    """The sections that grow with each value; `file` is where the values come from."""

    def __init__(self) -> None:
        self.sections: Document = {}
        self.left: list[Left] = []
        self.file = ""
        self.inside: Path = ()
        """The path of a pool in the document of a job."""

    def take(self, kind: str, document: Document) -> None:
        if kind in ("pool", "job") and not re.fullmatch(ID, str(document.get("id"))):
            given = document.get("id")
            reason = _without_value(given) if isinstance(given, Unknown) else f"the {kind} has no valid id"
            self.leave(("id",), f"{reason}; the recipe has `{_stem(self.file)}`")
            document = {**document, "id": _stem(self.file)}
        if kind == "schedule":
            self.walk("schedule", JOB, {name: value for name, value in document.items() if name == "schedule"})
            specification = {"id": document.get("id"), **document["jobSpecification"]}
            self.walk("job", JOB, specification)
        elif kind == "task":
            job = self.sections.setdefault("job_specifications", [{"id": _stem(self.file)}])[0]
            self.walk("task", (*JOB, "tasks", len(job.get("tasks", ()))), document)
        else:
            self.walk(kind, POOL if kind == "pool" else JOB, document)

    def walk(self, kind: str, root: Path, value: Any, path: Path = ()) -> None:
        """Carry a value and everything below it."""
        name = str(path[-1]).lower() if path else ""
        wire = ".".join(str(step) for step in path if not isinstance(step, int)).lower()
        if value is None or wire in READ_ONLY or wire in IMPLIED or name.startswith("odata."):
            return
        if isinstance(value, Unknown):
            self.leave(path, _without_value(value))
        elif converter := CONVERTERS.get(wire) or CONVERTERS.get(name):
            try:
                converter(self, kind, root, path, value)
            except (AttributeError, LookupError, TypeError, ValueError):
                unknown = next(_unknowns(value), None)
                self.leave(path, _without_value(unknown) if unknown else "it does not have the form of Azure Batch")
        elif (target := _target(kind, root, wire)) is not None and _is_leaf(value, target):
            self.put(_numbered(root, target, path), value)
        elif name in REASONS and value not in ([], {}):
            self.leave(path, REASONS[name])
        elif isinstance(value, dict):
            for key, inner in value.items():
                self.walk(kind, root, inner, (*path, key))
        elif isinstance(value, list) and any(isinstance(item, (dict, Unknown)) for item in value):
            for index, item in enumerate(value):
                self.walk(kind, root, item, (*path, index))
        elif value not in ([], {}):
            self.leave(path, NOTHING)

    def put(self, target: Path, value: Any) -> None:
        """Write a value at a path of the language, in its words."""
        holder: Any = self.sections
        for step, following in pairwise(target):
            empty: Any = [] if isinstance(following, int) else {}
            if isinstance(step, int):
                while len(holder) <= step:
                    holder.append({})
                holder = holder[step]
            else:
                holder = holder.setdefault(step, empty)
        words = _in_words(target, value)
        if words is not None:
            holder[target[-1]] = words

    def leave(self, path: Path, reason: str) -> None:
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in (*self.inside, *path))
        text = text.removeprefix(".")
        self.left.append(Left(self.file, text, reason))

    def finished(self) -> Imported:
        pool = self.sections.get("pool_specification")
        job = self.sections.get("job_specifications", [{}])[0]
        if pool is None:
            raise UsageError(
                "the documents have no pool; add its own: `az batch pool show --pool-id POOL -o json > pool.json`"
            )
        images = {task.get("docker_image") for task in job.get("tasks", ())} - {None}
        if images:
            resources = self.sections.setdefault("global_resources", {})
            images_of_pool = resources.get("docker_images", [])
            resources["docker_images"] = [*images_of_pool, *sorted(images - {*images_of_pool})]
        return Imported(self.sections, tuple(self.left))


def _unknowns(value: Any) -> Iterator[Unknown]:
    if isinstance(value, Unknown):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _unknowns(item)


def _without_value(value: Unknown) -> str:
    """What to do about an expression of a template: give its parameters values, or write it."""
    names = ", ".join(f"`{name}`" for name in parameters_in(value))
    if not names:
        return f"the expression {value.text} of the template is not known; write its value"
    return f"the template needs a value of {names}; give it in a file of parameters, or write this value"


def _stem(file: str) -> str:
    """An id of the name of a file."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", re.split(r"[/\\]", file)[-1].removesuffix(".json"))[:64] or "imported"


# --- the table of the language, in reverse ----------------------------------------------------------------------------


FORMULA = ("pool_specification", "autoscale", "formula")
"""The one property of several that become the formula of a pool."""


@cache
def _wires() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Top-level section and request field -> the property that becomes it; the one with the shortest path."""
    properties: dict[tuple[str, str], tuple[str, ...]] = {}
    for path, item in reference.properties().items():
        if _has_block(item.kind):
            continue
        section = "tasks" if path[:3] == ("job_specifications", "[]", "tasks") else path[0]
        for wire in item.wire.lower().split(", "):
            if len(path) < len(properties.get((section, wire), (*path, ""))):
                properties[section, wire] = path
    return {**properties, ("pool_specification", "pool.autoscaleformula"): FORMULA}


def _has_block(kind: Any) -> bool:
    kind = reference.plain(kind)
    return type(kind).__name__ == "StructType" or any(map(_has_block, getattr(kind, "types", ())))


def _target(kind: str, root: Path, wire: str) -> tuple[str, ...] | None:
    section = "tasks" if kind == "task" else str(root[0])
    return _wires().get((section, f"{kind}.{wire}"))


def _is_leaf(value: Any, target: tuple[str, ...]) -> bool:
    """Whether a property holds the whole value: a scalar, a list of scalars, or a mapping with any keys."""
    if isinstance(value, list):
        return bool(value) and not any(isinstance(item, (dict, Unknown)) for item in value)
    if not isinstance(value, dict):
        return True
    return type(reference.plain(reference.properties()[target].kind)).__name__ == "DictType"


def _numbered(root: Path, target: tuple[str, ...], path: Path) -> Path:
    """The property with the numbers of its items: those of the root, then those of the document."""
    numbers = iter([step for step in (*root, *path) if isinstance(step, int)])
    return tuple(next(numbers, 0) if step == reference.ITEM else step for step in target)


def _in_words(target: Path, value: Any) -> Any:
    """A value as the language writes it: durations, enums and numbers; None for a limit that is none."""
    if isinstance(value, list):
        return [_in_words(target, item) for item in value]
    if not isinstance(value, str):
        return value
    if value != "PT" and (seconds := meaning.seconds(value, -1)) >= 0:
        return None if seconds > FOREVER_SECONDS else span_of(seconds)
    kind = reference.properties().get(reference.path_of(target))
    words = dict(_literals(kind.kind)) if kind is not None else {}
    if value.lower() in words:
        return words[value.lower()]
    if kind is not None and type(reference.plain(kind.kind)).__name__ in ("IntType", "BoolType"):
        return json.loads(value.lower()) if re.fullmatch(r"-?\d{1,9}|true|false", value.lower()) else value
    return value


def _literals(kind: Any) -> Iterator[tuple[str, str]]:
    """The words of a type by their letters alone."""
    kind = reference.plain(kind)
    for option in getattr(kind, "types", ()):
        yield from _literals(option)
    for word in getattr(kind, "values", ()):
        if isinstance(word, str):
            yield word.lower().replace("_", ""), word
