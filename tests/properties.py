"""How a property of the language is set in files, and what is seen of it in the plan that comes of them."""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from batchtrain.config import override, reference
from batchtrain.config.custom_factories import read_made
from batchtrain.config.load import load
from batchtrain.config.reference import ITEM, KEY, PropertyPath
from batchtrain.config.source_directory import read_sources
from batchtrain.config.types import Recipe, Secret, read_path
from batchtrain.errors import ConfigError, PlanError, Problem, UsageError
from batchtrain.plan import Facts, Plan, plan_recipe, wire_times
from tests.reference_page import constraints, type_of

FILE_OF = {
    "credentials": "credentials",
    "batchtrain": "config",
    "global_resources": "config",
    "data_replication": "config",
    "pool_specification": "pool",
    "job_specifications": "jobs",
}
REQUESTS = {
    "pool": r"/pools",
    "job": r"/jobs(/[^/]+)?",
    "task": r"/jobs/[^/]+/(tasks|addtaskcollection)",
    "schedule": r"/jobschedules(/[^/]+)?",
    "node user": r"/pools/[^/]+/nodes/[^/]+/users",
    "*": r".*",
}
"""The paths of the requests that a wire field's first word names."""

BASE: dict[str, Any] = {
    "credentials": {
        "batch": {"account_service_url": "https://acct.westeurope.batch.azure.com", "account_key": "a2V5"},
        "storage": {
            "link": {"account": "acct", "account_key": "a2V5"},
            "other": {"account": "elsewhere", "account_key": "a2V5"},
        },
    },
    "pool_specification": {
        "id": "p",
        "vm_size": "STANDARD_D4S_V5",
        "vm_count": {"dedicated": 2},
        "inter_node_communication_enabled": True,
        "vm_configuration": {
            "platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"},
        },
    },
    "job_specifications": [{"id": "j", "tasks": [{"id": "t", "command": "echo hello"}]}],
}
"""A recipe that plans."""


class Seen(NamedTuple):
    """What came of files: the recipe, its plan, and everything that was said about them."""

    recipe: Recipe
    plan: Plan
    problems: tuple[Problem, ...]
    sources: Mapping[str, Any]

    def bodies(self, request: str) -> list[Any]:
        """The documents of one kind of request, of every kind for `*`; each task by itself."""
        documents = [step.document for step in self.plan.steps if re.fullmatch(REQUESTS[request], step.path)]
        return [body for document in documents for body in document.get("value", [document])]

    def at(self, wire: str) -> list[Any]:
        """Everything that stands at a wire path, over lists; `*` is one step, or at the beginning any depth."""
        request, _, path = wire.partition(".")
        steps = tuple(path.split("."))
        if request == "*":
            return [value for body in self.bodies("*") for value in _anywhere(body, steps)]
        return [value for body in self.bodies(request) for value in _down(body, steps)]

    def objects(self, wire: str) -> list[Any]:
        """Whole objects at a wire path."""
        request, _, path = wire.partition(".")
        steps = tuple(path.split("."))
        return [body[steps[0]] for body in self.bodies(request) if len(steps) == 1 and steps[0] in body]

    @property
    def launch(self) -> str:
        """What the nodes run, whole."""
        return "\n".join(text for _, text in self.plan.launch)


def outcome(settings: Mapping[str, Any], files: Mapping[str, str] | None = None) -> Seen:
    """Write the base with these values as YAML files, read them, and plan. `files` lie beside the YAML."""
    return _outcome(json.dumps(built(settings)), json.dumps(files or {}))


@cache  # many properties have the same base without them
def _outcome(settings: str, files: str) -> Seen:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        by_file: dict[str, dict[str, Any]] = {}
        for section, value in json.loads(settings).items():
            by_file.setdefault(FILE_OF[section], {})[section] = value
        for name, content in by_file.items():
            (place / f"{name}.yaml").write_text(yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False))
        for name, text in json.loads(files).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        loaded = load(place)
        facts = Facts(made=read_made(loaded.recipe))
        sources = read_sources(loaded.recipe)
        plan = plan_recipe(loaded.recipe, facts, sources)
        return Seen(loaded.recipe, plan, (*loaded.warnings, *plan.warnings), sources)


def built(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The base with values put at their paths."""
    data: dict[str, Any] = copy.deepcopy(BASE)
    for name, value in settings.items():
        head, *rest = read_path(name)
        path = (str(head), *override.joined(str(head), rest, data.get(str(head))))
        if value is not None or _is_there(data, path):
            data = override.put(data, path, value)
    return data


def _is_there(data: Any, path: tuple[str | int, ...]) -> bool:
    for step in path:
        known = range(len(data)) if isinstance(data, list) else data if isinstance(data, dict) else ()
        if step not in known:
            return False
        data = data[step]
    return True


def _opened(value: Any) -> Any:
    """A list of effects with the text of each secret."""
    if isinstance(value, list):
        return [_opened(item) for item in value]
    return value.reveal() if isinstance(value, Secret) else value


def _down(value: Any, steps: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _down(item, steps)
    elif not steps:
        yield value
    elif isinstance(value, dict):
        here = value.values() if steps[0] == "*" else [value[steps[0]]] if steps[0] in value else []
        for below in here:
            yield from _down(below, steps[1:])


def _anywhere(value: Any, steps: tuple[str, ...]) -> Iterator[Any]:
    yield from _down(value, steps) if isinstance(value, dict) else ()
    for below in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from _anywhere(below, steps)


def leaves(value: Any) -> Iterator[Any]:
    """Every scalar of a document."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def shows(found: Any, wanted: Any) -> bool:
    """Whether a value is among what was found, as it is, as a span, or as part of a text."""
    if isinstance(wanted, dict):
        return all(shows(found, key) and shows(found, value) for key, value in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return all(shows(found, item) for item in wanted)
    return any(_shows(leaf, wanted) for leaf in leaves(found))


def _shows(leaf: Any, wanted: Any) -> bool:
    if isinstance(leaf, bool) or isinstance(wanted, bool):
        return leaf is wanted
    if leaf == wanted:
        return True
    return isinstance(leaf, str) and (str(wanted) in leaf or (_is_span(wanted) and wire_times.duration(wanted) == leaf))


def _is_span(value: Any) -> bool:
    return isinstance(value, str) and value.count(":") == 2 and value.replace(":", "").replace(".", "").isdigit()


# --- where a property stands, and what is put there ------------------------------------------------------------------

KEYS = {
    "credentials.storage": "link",
    "credentials.batch_accounts": "west",
    "credentials.docker_registry": "reg.example.org",
    "credentials.singularity_registry": "reg.example.org",
    "credentials.user_accounts": "ann",
    "credentials.shares": "share",
    "global_resources.volumes.data_volumes": "scratch",
    "global_resources.volumes.shared_data_volumes": "share",
    "job_specifications.tasks.task_factory.grid": "lr",
    "job_specifications.merge_task.task_factory.grid": "lr",
}
"""The keys that are made up for maps."""


def path_of(place: PropertyPath) -> str:
    """A place with an item and a key for each list and map, in words of `--set`."""
    text = ""
    for number, step in enumerate(place):
        if step == ITEM:
            text += "[0]"
        elif step == KEY:
            text += f'."{KEYS[reference.anchor(place[:number])]}"'
        else:
            text += f".{step}"
    return text.removeprefix(".")


AUTOMATIC: dict[str, Any] = {
    "whole number or text": 7531,
    "mapping of names to anything": {"KEY_A": "value-a"},
    "list of anything": ["one-text", "two-text"],
    "text": "some-text",
    "whole number": 7531,
    "number": 75.31,
    "true or false": True,
    "list of text": ["one-text", "two-text"],
    "mapping of names to text": {"KEY_A": "value-a"},
}


def value_for(item: reference.Property) -> Any:
    """A value of the property's type that is not its default."""
    if "time span" in "; ".join(constraints(item)):
        return "01:02:03"
    if type_of(item.kind) == "true or false":
        return item.default != "true"
    if type_of(item.kind).startswith("one of "):
        words = [word.strip(" `") for word in type_of(item.kind).removeprefix("one of ").split(",")]
        return next(word for word in words if word != item.default)
    if type_of(item.kind) == "whole number" and " to " in "; ".join(constraints(item)):
        least = int("; ".join(constraints(item)).split(" to ", maxsplit=1)[0].replace(",", ""))
        return least + 1
    return AUTOMATIC[type_of(item.kind)]


Effect = Callable[[Seen], Any]


class Row(NamedTuple):
    """One property: the value it is given, what else must be said, and what is seen of it.

    Names of `beside` that begin with a dot are of the same block.
    Where `effect` is absent, `shown` must stand at the wire path that the property's own sentence names (or at
    `wire`), and must not when the property is not set; of a warning or an error, its rule must be named.
    """

    value: Any = None
    shown: Any = None
    wire: str = ""
    beside: Mapping[str, Any] = {}
    files: Mapping[str, str] = {}
    effect: Effect | None = None
    instead: Any = None
    """Another value, where it is enough that another value gives another plan (a random number's mean)."""
    whole: bool = False
    """What is said is said of the whole block: the block is what is left out."""


class Verdict(NamedTuple):
    """What stood where with the property and without it (None where it cannot be left out)."""

    seen: Seen
    wanted: Any
    there: Any
    without: Any

    @property
    def carried(self) -> bool:
        return shows(self.there, self.wanted) and self.there != self.without


def judged(place: PropertyPath, row: Row, context: Mapping[str, Any]) -> Verdict:
    """Set the property, plan, and look; and the same without it."""
    item = reference.properties()[place]
    value = value_for(item) if row.value is None else row.value
    path = path_of(place)
    block = path_of(place[:-1])
    around = {**context, **{f"{block}{name}" if name.startswith(".") else name: v for name, v in row.beside.items()}}
    wire = row.wire or item.wire
    if refused_by := wire.partition("error `")[2].rstrip("`"):
        without = outcome_or_nothing(around, path, row.files, required=item.required)
        return Verdict(without or outcome({}, {}), refused_by, refusals({**around, path: value}, row.files), [])
    with_it = outcome({**around, path: value}, row.files)
    if row.instead is not None:
        without = outcome({**around, path: row.instead}, row.files)
    else:
        left_out = block if row.whole else path
        without = outcome_or_nothing(around, left_out, row.files, required=item.required and not row.whole)
    rule = wire.partition("warning `")[2].rstrip("`")
    if row.effect is not None:
        wanted = value if row.shown is None else row.shown
        return Verdict(with_it, wanted, *(_opened(row.effect(seen)) if seen else None for seen in (with_it, without)))
    wanted = (() if row.instead is not None else value) if row.shown is None else row.shown
    if rule:
        return Verdict(with_it, rule, rules(with_it), rules(without) if without else None)
    if wire.startswith("batchtrain:"):
        raise AssertionError(f"{path}: say in the table what `{wire}` is")
    fields = [field.strip() for field in wire.split(",")]
    return Verdict(with_it, wanted, found_at(with_it, fields), found_at(without, fields) if without else None)


def outcome_or_nothing(
    around: Mapping[str, Any], path: str, files: Mapping[str, str], *, required: bool
) -> Seen | None:
    """What comes of the files without the property; nothing where it cannot be left out."""
    if required:
        return None
    try:
        return outcome(
            {**{name: value for name, value in around.items() if not name.startswith(path)}, path: None}, files
        )
    except (ConfigError, PlanError, UsageError):
        return None


def refusals(settings: Mapping[str, Any], files: Mapping[str, str]) -> list[str]:
    """The rules by which the files are refused."""
    try:
        outcome(settings, files)
    except ConfigError as error:
        return [f"{problem.rule} {problem.path}" for problem in error.problems]
    return []


def rules(seen: Seen) -> list[str]:
    """The rules of everything that was said."""
    return [f"{problem.rule} {problem.path}" for problem in seen.problems]


def found_at(seen: Seen, fields: list[str]) -> list[Any]:
    """What stands at any of the wire paths; of a command line, all that its shell is given."""
    found: list[Any] = []
    for field in fields:
        block, _, last = field.rpartition(".")
        if last != "commandLine":
            found += seen.at(field)
        elif block == "task":
            found += [*seen.bodies("task"), seen.launch]
        else:
            found += seen.objects(block)
    return found
