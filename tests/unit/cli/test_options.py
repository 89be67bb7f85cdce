"""The command tree as a whole: nothing is started, and no file is read."""

from __future__ import annotations

import ast
import contextvars
import importlib
import inspect
import pkgutil
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from batchtrain import cli
from batchtrain.cli.app import root
from batchtrain.cli.help import Command, Doors, docstring
from batchtrain.cli.messages import value_options
from batchtrain.cli.options import Settings, settings
from batchtrain.cli.parameters import POSITIVE
from batchtrain.errors import counted
from tests import modules

LATE_BOUND = re.compile(r'late_(?:bound|callback)\("([^"]+)"\)')


def commands(command: click.Command, path: str = "batchtrain") -> Iterator[tuple[str, click.Command]]:
    """Every command below one, by its words."""
    yield path, command
    if isinstance(command, Doors):
        for name in command.doors:
            yield from commands(command.member(name), f"{path} {name}")


def test_the_function_of_every_command_takes_its_parameters() -> None:
    for path, command in commands(root):
        if isinstance(command, Command):
            module, _, name = command.function.rpartition(".")
            function = getattr(importlib.import_module(f"batchtrain.cli.{module}"), name)
            values = {parameter.name: None for parameter in command.params if parameter.expose_value}
            assert inspect.signature(function, follow_wrapped=False).bind(**values), path


def test_every_late_bound_function_exists() -> None:
    for module in pkgutil.iter_modules(cli.__path__):
        for path in LATE_BOUND.findall(Path(cli.__path__[0], f"{module.name}.py").read_text(encoding="utf-8")):
            name, _, function = path.rpartition(".")
            assert callable(getattr(importlib.import_module(f".{name}", "batchtrain.cli"), function)), path


def test_every_function_of_the_command_line_is_called() -> None:
    """By its module, by another one, or by a row MODULE.NAME of a table of commands."""
    texts = {path: path.read_text(encoding="utf-8") for path in Path(cli.__path__[0]).glob("*.py")}
    for path in texts:
        functions = {node.name for node in modules.tree(path).body if isinstance(node, ast.FunctionDef)}
        called = {node.id for node in modules.nodes(path) if isinstance(node, ast.Name)}
        others = "".join(text for other, text in texts.items() if other != path)
        called.update(re.findall(rf"{path.stem}(?:\(\))?\.(\w+)", others))
        for names in re.findall(rf"from batchtrain\.cli\.{path.stem} import (\([^)]*\)|.*)", others):
            called.update(re.findall(r"\w+", names))
        assert functions - called == set(), path.name


def test_no_command_has_an_option_twice() -> None:
    for path, command in commands(root):
        words = Counter(word for one in command.params if isinstance(one, click.Option) for word in one.opts)
        assert [word for word, count in words.items() if count > 1] == [], path


def test_every_number_of_an_option_is_finite() -> None:
    for path, command in commands(root):
        for option in command.params:
            if isinstance(option.type, click.types.FloatParamType):
                with pytest.raises(click.BadParameter):
                    option.process_value(click.Context(command), "nan")
                    pytest.fail(f"{path} takes {option.opts[0]} nan")


def test_a_speed_or_a_price_is_above_0() -> None:
    with pytest.raises(click.BadParameter, match="a finite number above 0"):
        POSITIVE.convert("0", None, None)


def test_every_command_says_in_a_sentence_what_it_does() -> None:
    for path, command in commands(root):
        assert (command.help if isinstance(command, Doors) else docstring(command.function) or "").strip(), path


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("tasks term j t1", "task term"),
        ("tasks del j --state failed", "task del"),
        ("tasks reactivate j t1", "task reactivate"),
        ("tasks term", "tasks"),
        ("tasks term --state failed", "tasks"),
        ("tasks j extra", "tasks"),
    ],
)
def test_jobs_tasks_with_the_verb_of_jobs_task_and_a_job_is_jobs_task(words: str, path: str) -> None:
    jobs = root.member("jobs")
    assert isinstance(jobs, Doors)
    name, _, left = jobs.resolve_command(click.Context(jobs), words.split())
    assert [name, *left] == [*path.split(), *words.split()[len(path.split()) :]]


@pytest.mark.parametrize(("number", "text"), [(1, "1 node"), (0, "0 nodes"), (2000, "2,000 nodes")])
def test_things_are_counted_in_the_right_number(number: int, text: str) -> None:
    assert counted(number, "node") == text


def test_a_thread_of_a_command_has_its_settings() -> None:
    """Such as one that submits tasks and reports that the service cannot be reached."""
    seen: list[Settings] = []
    with click.Context(click.Command("run"), obj=Settings(output="json")):
        own = settings()
        thread = threading.Thread(target=contextvars.copy_context().run, args=(lambda: seen.append(settings()),))
        thread.start()
        thread.join()
    assert seen == [own]


def test_a_command_to_paste_sets_the_same_values_without_their_secrets() -> None:
    values = {"nodes": "2", "jobs[0].environment_variables.DB_PWD": "zq81;a b", "tasks[0].command": "x --token zq81"}
    assert value_options(Settings(values=values)) == (
        " --set nodes=2 --set 'jobs[0].environment_variables.DB_PWD=***' --set 'tasks[0].command=x --token ***'"
    )


@pytest.mark.parametrize(
    ("words", "directory", "arguments"),
    [
        (["--local", "--", "--epochs", "3"], None, ("--epochs", "3")),
        (["--", "data", "--", "x"], None, ("data", "--", "x")),
        (["recipe", "--", "--epochs", "3"], "recipe", ("--epochs", "3")),
        (["train.py", "a", "--", "--b"], "train.py", ("a", "--b")),
        (["recipe"], "recipe", ()),
    ],
)
def test_words_after_two_dashes_are_never_the_directory(
    words: list[str], directory: str | None, arguments: tuple[str, ...]
) -> None:
    values = dict(commands(root))["batchtrain run"].make_context("run", words).params
    assert (values["directory"], values["arguments"]) == (directory, arguments)
