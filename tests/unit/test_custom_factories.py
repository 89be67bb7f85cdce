"""Custom factories: the user's own `generate` is called, and whatever it does wrong becomes one sentence."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.config.custom_factories import read_made
from batchtrain.config.types import Recipe
from batchtrain.errors import UsageError


def made(directory: Path, text: str | None, name: str, **custom: Any) -> dict[tuple[str, int], Any]:
    if text is not None:
        (directory / f"{name}.py").write_text(text, encoding="utf-8")
    factory = {"custom": {"module": name, **custom}}
    tasks = [{"command": "plain"}, {"command": "{0}", "task_factory": factory}]
    document = {"directory": str(directory), "jobs": [{"id": "j", "tasks": tasks}]}
    return read_made(msgspec.convert(document, Recipe))


def test_each_tuple_of_the_function_is_a_task_s_values(tmp_path: Path) -> None:
    text = "def generate(*names, step=1):\n    for n, name in enumerate(names):\n        yield name, n * int(step)\n"
    found = made(tmp_path, text, "mine_a", input_args=["x", "y"], input_kwargs={"step": "10"})
    assert found == {("j", 1): (("x", 0), ("y", 10))}


def test_modules_of_one_name_in_two_recipes_are_two(tmp_path: Path) -> None:
    found = []
    for word in ("one", "other"):
        (tmp_path / word).mkdir()
        found.append(made(tmp_path / word, f"def generate():\n    yield '{word}'\n", "mine_a"))
    assert found == [{("j", 1): (("one",),)}, {("j", 1): (("other",),)}]
    assert "mine_a" not in sys.modules


def test_what_a_module_imports_from_elsewhere_stays(tmp_path: Path) -> None:

    made(tmp_path, "import wave\ndef generate():\n    yield wave.__name__\n", "mine_a")
    assert "wave" in sys.modules


def test_a_value_that_is_no_tuple_is_one_value(tmp_path: Path) -> None:
    assert made(tmp_path, "def generate():\n    return ['ab', ['c', 'd']]\n", "mine_b") == {
        ("j", 1): (("ab",), ("c", "d"))
    }


def test_a_module_above_the_configuration_is_found_too(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "mine_c.py").write_text("def generate():\n    yield (1,)\n", encoding="utf-8")
    before = list(sys.path)
    assert made(tmp_path / "config", None, "mine_c") == {("j", 1): ((1,),)}
    assert sys.path == before


def test_many_tasks_are_made_when_they_are_iterated(tmp_path: Path) -> None:
    text = "def generate():\n    n = 0\n    while True:\n        yield n\n        n += 1\n"
    rows = made(tmp_path, text, "mine_d")["j", 1]
    assert list(islice(rows, 2500)) == [(n,) for n in range(2500)] == list(islice(rows, 2500))


def test_a_function_that_fails_late_gives_every_task_before(tmp_path: Path) -> None:
    text = "def generate():\n    for n in range(2500):\n        yield n\n    raise ValueError('no more')\n"
    rows = iter(made(tmp_path, text, "mine_f")["j", 1])
    assert sum(1 for _ in islice(rows, 2500)) == 2500
    with pytest.raises(UsageError, match=r"failed after 2,500 tasks: ValueError: no more \(line 4 of .*mine_f\.py\)"):
        next(rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be used: ModuleNotFoundError: No module named 'mine_e'"),
        ("def other(): ...\n", "cannot be used: AttributeError"),
        ("def generate(:\n", "cannot be used: SyntaxError"),
        ("raise SystemExit(3)\n", "cannot be used: SystemExit: 3"),
        (
            "def generate():\n    yield 1 / 0\n",
            r"failed: ZeroDivisionError: division by zero \(line 2 of .*mine_e\.py\)",
        ),
        ("def generate(a):\n    yield a\n", "failed: TypeError: .*missing 1 required positional argument"),
        ("def generate():\n    return 7\n", "failed: TypeError: 'int' object is not iterable"),
    ],
)
def test_what_goes_wrong_in_it_is_one_sentence_with_its_place(tmp_path: Path, text: str | None, words: str) -> None:
    with pytest.raises(UsageError, match=f"job j, task 1: the custom factory `mine_e` {words}"):
        made(tmp_path, text, "mine_e")
