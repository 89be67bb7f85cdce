"""The map of the code is true: its files, functions, arrows and recipes are those of the package."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePath

import pytest

from batchtrain.frameworks import FRAMEWORKS
from tests import architecture, modules
from tests.architecture import ROOT, Recipe

DECISIONS = sorted((ROOT / "docs/adr").glob("*.md"))
FOLDERS = ("batchtrain", "docker", "docs", "recipes", "schemas", "tests")
NAMED = re.compile(r"\w[\w.*+-]*(?:/[\w.*+-]+)*(?:\.(?:py|sh|js|md)|/)|[\w-]+/[\w*/-]+\.(?:json|txt)")
"""A path in backticks; a user's own file, such as `jobs.yaml`, is none."""


def name(path: Path) -> str:
    return path.name


# --- files and numbers ----------------------------------------------------------------------------------------------


@cache
def paths() -> tuple[PurePath, ...]:
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts)
    return tuple(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *map(ROOT.joinpath, FOLDERS), *below))


def named(page: Path) -> Iterator[str]:
    """The paths that a page has in backticks."""
    spans = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    return (word for span in spans for word in span.split() if NAMED.fullmatch(word))


@pytest.mark.parametrize("page", [architecture.PAGE, *DECISIONS], ids=name)
def test_every_file_that_the_map_or_a_decision_names_exists(page: Path) -> None:
    assert [wanted for wanted in named(page) if not any(path.match(wanted) for path in paths())] == []


def test_the_map_names_files_by_their_whole_path() -> None:
    assert [wanted for wanted in named(architecture.PAGE) if not (ROOT / wanted).exists()] == []


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    assert [f"{number:04}" for number in range(1, len(DECISIONS) + 1)] == numbers
    titles = [path.read_text(encoding="utf-8").partition("\n")[0] for path in DECISIONS]
    assert [f"# {int(number)}. " for number in numbers] == [re.sub(r"(?<=\. ).*", "", title) for title in titles]


def test_every_decision_that_is_referred_to_exists() -> None:
    readers = [*modules.files(), *(ROOT / "docs").rglob("*.md")]
    referred = {
        int(number) for path in readers for number in re.findall(r"\bADR (\d+)", path.read_text(encoding="utf-8"))
    }
    assert referred <= set(range(1, len(DECISIONS) + 1))


# --- the picture ----------------------------------------------------------------------------------------------------


BOXES = architecture.parts()


def edges() -> set[tuple[str, str]]:
    """The imports of the package, box to box; a part that the picture lacks is a box of its own."""
    imports = {(box(start), box(end)) for start, ends in modules.graph().items() for end in ends}
    return {(start, end) for start, end in imports if start != end}


def box(module: str) -> str:
    part = [*module.split("."), "__init__"][1]
    return BOXES.get(part, part)


def reached(start: str, arrows: set[tuple[str, str]]) -> set[str]:
    following = {end for begin, end in arrows if begin == start}
    return following.union(*(reached(end, arrows) for end in following))


def test_every_import_follows_the_arrows_of_the_picture() -> None:
    arrows = architecture.arrows()
    assert {(start, end) for start, end in edges() if end not in reached(start, arrows)} == set()


def test_every_arrow_of_the_picture_is_an_import_and_follows_from_no_others() -> None:
    arrows = architecture.arrows()
    assert arrows - edges() == set()
    assert {arrow for arrow in arrows if arrow[1] in reached(arrow[0], arrows - {arrow})} == set()


# --- the journeys ---------------------------------------------------------------------------------------------------


def test_every_function_that_a_journey_names_is_in_its_file() -> None:
    hops = [hop for journey in architecture.journeys().values() for hop in journey]
    assert [hop for hop in hops if hop.function not in functions(hop.file)] == []


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


# --- the recipes ----------------------------------------------------------------------------------------------------

RECIPES = architecture.recipes()


def searched(recipe: Recipe) -> set[str]:
    done = subprocess.run(shlex.split(recipe.search), cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_every_file_that_its_search_finds(title: str) -> None:
    assert searched(RECIPES[title]) - set(RECIPES[title].files) == set()


@pytest.mark.parametrize("title", RECIPES)
def test_every_file_that_a_recipe_names_is_about_its_example(title: str) -> None:
    recipe = RECIPES[title]
    assert [file for file in recipe.files if not mentions(file, recipe.word)] == []


def mentions(file: str, word: str) -> bool:
    path = ROOT / file
    text = "" if path.is_dir() else path.read_text(encoding="utf-8")
    return word.lower() in f"{file} {text}".lower()


@pytest.mark.parametrize("framework", ["ray", "accelerate"])
def test_a_later_framework_touched_no_other_file_of_the_package(framework: str) -> None:
    recipe = RECIPES["A framework"]
    touched = searched(Recipe(recipe.search.replace("jax", framework), ()))
    touched -= {"batchtrain/metrics/programs/tables.py"}  # reads what Ray Tune prints, with every framework
    touched -= {"batchtrain/frameworks/launcher_options.py", "docs/reference/launcher-options.md"}  # of every launcher
    touched -= {f"batchtrain/{file}.py" for file in ("launchers/steps", "runtime/__init__", "runtime/accelerated")}
    assert touched - {file.replace("jax", framework) for file in recipe.files} == set()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_has_the_files_of_the_recipe(framework: str) -> None:
    own = [file for file in RECIPES["A framework"].files if PurePath(file).stem == "jax"]
    assert own
    assert [file for file in own if not (ROOT / file.replace("jax", framework)).exists()] == []
