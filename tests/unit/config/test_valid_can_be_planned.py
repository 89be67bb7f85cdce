"""What `config validate` calls valid, `config plan` plans: over all recipes, every property, and mutations of both."""

from __future__ import annotations

import copy
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from batchtrain.config import override, reference
from batchtrain.config.custom_factories import read_made
from batchtrain.config.load import examine
from batchtrain.config.source_directory import read_sources
from batchtrain.config.types import INSTANCES, read_path
from batchtrain.errors import PlanError, UsageError
from batchtrain.plan import Facts, plan_recipe, render
from tests import examples, properties
from tests.environments import ROOT
from tests.unit import test_every_property as every

RECIPES = sorted((ROOT / "recipes").glob("*/config"))
PLACES = {properties.path_of(place): place for place in reference.properties()}
NAMED, NAMES = sorted(every.NAMED), sorted(PLACES)
EDGES: tuple[Any, ...] = (
    "", " ", "0", "+0", "-1", "1", "2", "3", "99999", "70000", "1.5", "abc", "true", "false", None, [], {}, ["x"], [[]],
    {"x": "y"}, {"x": {}}, [{"x": "y"}], "x" * 300, "{", "{}", "{0}", "{{x}}", "$X", "'", '"', "a\nb", "é", "/abs/x",
    "../x", ".", "00:00:00", "1.00:00:00", "99:99:99", "2027-01-31T08:00:00Z", "0001-01-01T00:00:00+14:00",
    "auto", "nproc",
)  # fmt: skip
MEANT: dict[str, tuple[Any, ...]] = {
    "num_instances": (*INSTANCES, "1", "2", "3"),
    "processes": ("1", "2", "3", "4"),
    "processes_per_node": ("1", "2", "8", "auto", "nproc", " 3 ", "", "+0"),
    "min_instances": ("1", "2", "3"),
    "port": ("6000", "29500"),
    "servers": ("0", "1", "5"),
    "parameter_servers": ("0", "1", "2"),
    "dedicated": ("0", "1", "2", "4"),
    "low_priority": ("0", "1", "2"),
    "max_restarts": ("0", "1"),
    "rendezvous": ("c10d", "static", "ib0:10.0.0.4:29500", "ib0:10.0.0.4:70000", "x"),
    "command": (
        "", "echo {0}", "echo 'x", "mpirun x", "python train.py", "python $AZ_BATCH_TASK_SHARED_DIR/train.py",
        "python tf_cnn_benchmarks.py --variable_update=horovod",
        "python tf_cnn_benchmarks.py --variable_update=parameter_server",
    ),
    "repeat": ("1", "2", "5"),
    "task_slots_per_node": ("1", "2"),
    "source": ("src", "../src", ".", ".."),
}  # fmt: skip
"""Values that may well be meant, besides those that the recipes and the properties' own tests have."""


class Case(NamedTuple):
    """Files by part, as data, and the directory they stand for."""

    place: Path
    data: dict[str, Any]


class _Texts(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as PyYAML has it


@cache
def _recipes() -> tuple[Case, ...]:
    return tuple(
        Case(place, {file.stem: yaml.load(file.read_bytes(), _Texts) for file in place.glob("*.yaml")})
        for place in RECIPES
    )


@cache
def _values() -> dict[str, list[Any]]:
    """Every value that stands anywhere, by the property's name."""
    found: dict[str, list[Any]] = {name: list(values) for name, values in MEANT.items()}
    wholes = (*(case.data for case in _recipes()), *(properties.built(_settings(name)) for name in NAMED))
    for path, value in (one for whole in wholes for one in _walk(json.loads(json.dumps(whole)))):
        if path and isinstance(path[-1], str) and value not in found.setdefault(path[-1], []):
            found[path[-1]].append(value)
    return found


def _settings(path: str) -> dict[str, Any]:
    """A property with what stands around it, as its own test sets it."""
    place = every.NAMED[path]
    row = every.row_of(place)
    value = properties.value_for(reference.properties()[place]) if row.value is None else row.value
    block = properties.path_of(place[:-1])
    beside = {f"{block}{name}" if name.startswith(".") else name: one for name, one in row.beside.items()}
    return {**every.context_of(place), **beside, path: value}


def _walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    for step, below in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from _walk(below, (*path, step))


# --- a case -----------------------------------------------------------------------------------------------------------


def case_of(seed: int, home: Path) -> Case:
    """A recipe, or some properties together; mostly with a few mutations."""
    dice = random.Random(seed)
    if dice.random() < 0.3:
        case = copy.deepcopy(dice.choice(_recipes()))
    else:
        chosen = [_settings(dice.choice(NAMED)) for _ in range(dice.choice((1, 1, 2, 3)))]
        whole = json.loads(json.dumps(properties.built({name: one for some in chosen for name, one in some.items()})))
        case = Case(home, {})
        for section, value in whole.items():
            case.data.setdefault(properties.FILE_OF[section], {})[section] = value
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
        _mutate(dice, case.data)
    return case


def _mutate(dice: random.Random, data: dict[str, Any]) -> None:
    spots = [path for path, _ in _walk(data) if len(path) >= 2]
    if not spots or dice.random() < 0.3:
        _set_some(dice, data)
        return
    *above, last = dice.choice(spots)
    holder = data
    for step in above:
        holder = holder[step]
    MUTATIONS[dice.choice(sorted(MUTATIONS))](dice, holder, last)


def _delete(_: random.Random, holder: Any, key: Any) -> None:
    del holder[key]


def _edge(dice: random.Random, holder: Any, key: Any) -> None:
    holder[key] = copy.deepcopy(dice.choice(EDGES))


def _other(dice: random.Random, holder: Any, key: Any) -> None:
    """A value that the same property has elsewhere."""
    holder[key] = copy.deepcopy(dice.choice(_values().get(str(key)) or EDGES))


def _rename(_: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)


def _empty(_: random.Random, holder: Any, key: Any) -> None:
    holder[key] = type(holder[key])() if isinstance(holder[key], (dict, list)) else None


def _twice(_: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))


MUTATIONS = {one.__name__: one for one in (_delete, _edge, _other, _rename, _empty, _twice)}


def _set_some(dice: random.Random, data: dict[str, Any]) -> None:
    """Any property of the language, with a value of its own or an odd one."""
    head, *rest = read_path(dice.choice(NAMES))
    known = _values().get(str(rest[-1])) if rest else None
    value = copy.deepcopy(dice.choice(known if known and dice.random() < 0.7 else EDGES))
    sections = data.setdefault(properties.FILE_OF[str(head)], {})
    if isinstance(sections, dict):
        before = sections.get(str(head))
        sections[str(head)] = override.put(before, override.joined(str(head), rest, before), value)


# --- the property -----------------------------------------------------------------------------------------------------


def outcome(case: Case) -> str:
    """`invalid`, or `planned`; whatever else is raised is what this is about."""
    files = {str(case.place / f"{part}.yaml"): json.dumps(data).encode() for part, data in case.data.items()}
    found = examine(case.place, files)
    if not found.valid:
        return "invalid"
    recipe = found.recipe
    if recipe.pool is None and not recipe.jobs:
        return "a part"  # such as a directory of credentials: there is nothing to plan
    try:
        made = read_made(recipe)
    except UsageError:
        return "a function of the user's fails"
    try:
        plan = plan_recipe(recipe, Facts(made=made), read_sources(recipe))
    except PlanError as error:
        if recipe.pool is None and "pool.yaml" in str(error):
            return "a part"  # a directory of jobs, for `--pool`
        raise
    render.as_text(plan)
    render.as_document(plan)
    return "planned"


def try_all(seeds: range, home: Path) -> None:
    (home / "src").mkdir()
    (home / "src" / "train.py").write_text("print(1)\n", encoding="utf-8")
    counted: Counter[str] = Counter()
    faults: dict[str, str] = {}
    for seed in seeds:
        case = case_of(seed, home)
        try:
            counted[outcome(case)] += 1
        except Exception as error:  # noqa: BLE001 - a refusal after validation and a bug of ours are both faults
            kind = f"{type(error).__name__}: {re.sub(r'[0-9]+', 'N', str(error))[:100]}"
            faults.setdefault(kind, f"seed {seed}: {error!r}\n{json.dumps(case.data)[:3000]}")
    print(f"seeds {seeds.start} to {seeds.stop - 1}: {dict(counted)}")
    assert not faults, "\n\n".join(faults.values())
    assert counted["planned"] > len(seeds) / 10


@pytest.mark.property
@pytest.mark.parametrize("part", range(4))
def test_what_is_valid_can_be_planned(part: int, tmp_path: Path) -> None:
    try_all(range(part * 4_000, part * 4_000 + examples.count(400)), tmp_path)


@pytest.mark.parametrize("place", RECIPES, ids=lambda place: place.parent.name)
def test_every_recipe_is_valid_and_planned(place: Path) -> None:
    assert outcome(next(case for case in _recipes() if case.place == place)) == "planned"
