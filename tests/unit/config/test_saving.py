"""A recipe that is saved is read back as an equal value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from msgspec import inspect

from batchtrain.config import document, saving
from batchtrain.config.load import load
from batchtrain.config.types import ConfigFile, JobsFile, PoolFile, Recipe, Secret, convert
from batchtrain.errors import UsageError
from tests import examples
from tests.environments import ROOT

RECIPES = sorted(path.parent for path in (ROOT / "recipes").glob("*/config"))
ODD = ("true", "007", "2", "1e3", "null", "~", "a: b", "a #b", " x ", "- a", "{x}", "x\ny", "x\n\n y", "$A", "'")
TEXTS = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a type of the language, within its bounds."""
    match kind:
        case inspect.Metadata(type=inner):
            return values(inner)
        case inspect.StructType(cls=cls, fields=fields):
            return some_of(fields).flatmap(lambda few: st.builds(cls, **{one.name: values(one.type) for one in few}))
        case inspect.UnionType(types=types):  # of a number or a text, the loader reads a text
            has_text = any(isinstance(one, inspect.StrType) for one in types)
            kept = [one for one in types if not (has_text and isinstance(one, inspect.IntType))]
            return st.one_of(*map(values, kept))
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType(ge=least, le=most):
            return st.integers(-5 if least is None else int(least), 10**5 if most is None else int(most))
        case inspect.FloatType(ge=least, le=most):
            return st.floats(least, most, allow_nan=False, allow_infinity=False)
        case inspect.StrType(pattern=pattern) if pattern:
            return st.from_regex(pattern.removesuffix(r"(?!\n)"), fullmatch=True).filter(lambda text: "\n" not in text)
        case inspect.StrType(max_length=most):
            return TEXTS if most is None else TEXTS.map(lambda text: text[:most])
        case inspect.LiteralType(values=words):
            return st.sampled_from(words)
        case inspect.VarTupleType(item_type=item, min_length=least):
            return st.lists(values(item), min_size=least or 0, max_size=2).map(tuple)
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(values, items))
        case inspect.DictType(value_type=item):
            return st.dictionaries(TEXTS, values(item), max_size=2)
        case inspect.AnyType():
            return TEXTS
        case inspect.CustomType(cls=cls) if cls is Secret:
            return st.none()
    raise AssertionError(kind)


def some_of(fields: tuple[inspect.Field, ...]) -> st.SearchStrategy[list[inspect.Field]]:
    """All properties that are required, and a few others."""
    required, others = ([one for one in fields if one.required is wanted] for wanted in (True, False))
    if not others:
        return st.just(required)
    return st.lists(st.sampled_from(others), unique_by=id, max_size=3).map(lambda few: [*required, *few])


@pytest.mark.parametrize("file", [ConfigFile, PoolFile, JobsFile])
@pytest.mark.property
@examples.of(30, phases=(Phase.generate,))
@given(data=st.data())
def test_what_is_written_is_read_as_an_equal_value(file: type[Any], data: st.DataObject) -> None:
    value = data.draw(values(inspect.type_info(file)))
    parsed, problems = document.parse("saved.yaml", saving.rendered(value).encode())
    assert not problems
    assert convert(parsed.data, file) == value


@pytest.mark.parametrize("place", RECIPES, ids=lambda place: place.name)
def test_a_saved_recipe_is_loaded_as_an_equal_recipe(place: Path, tmp_path: Path) -> None:
    saved = load(place).recipe.save(tmp_path / "new")
    loaded = load(tmp_path / "new").recipe
    assert _without_remarks(loaded) == _without_remarks(saved)


def _without_remarks(recipe: Recipe) -> Recipe:
    """Remarks have the lines of files, which differ."""
    return msgspec.structs.replace(recipe, warnings=())


def test_a_source_is_the_same_directory_after_saving(tmp_path: Path) -> None:
    recipe = load(ROOT / "recipes" / "PyTorch-CPU").recipe
    (task,) = recipe.save(tmp_path).jobs[0].tasks
    assert task.source is not None
    assert (tmp_path / task.source).resolve() == ROOT / "recipes" / "PyTorch-CPU" / "src"


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    recipe = load(ROOT / "recipes" / "PyTorch-CPU").recipe
    recipe.save(tmp_path)
    recipe.save(tmp_path)
    (tmp_path / "pool.yaml").write_text("mine: 1\n")
    with pytest.raises(UsageError, match=r"pool.yaml exists with another content"):
        recipe.save(tmp_path)


def test_a_saved_file_looks_like_one_written_by_hand() -> None:
    recipe = load(ROOT / "recipes" / "PyTorch-CPU").recipe
    text = """\
# jobs.yaml: the work.
# Its properties: batchtrain help config
job_specifications:
  - id: pytorch
    auto_complete: true  # The job ends when all its tasks have ended
    tasks:
      - id: train
        docker_image: example/pytorch:cpu
        source: ../src
        multi_instance:
          num_instances: pool_specification_vm_count_dedicated  # Nodes the task runs on
          pytorch:
            processes_per_node: 2  # Processes per node
        command: python -u train.py --epochs 10
"""
    assert saving.rendered(recipe.files["jobs"]) == text
