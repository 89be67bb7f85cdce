"""The arguments of a custom task factory have the types that the file gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchtrain.config import load
from batchtrain.config.types import CustomFactory


def custom(directory: Path, text: str, file: str = "jobs.yaml") -> CustomFactory:
    """The factory of the only task of a file."""
    (directory / file).write_text(text, encoding="utf-8")
    factory = load.load(directory).recipe.jobs[0].tasks[0].task_factory
    assert factory is not None
    assert factory.custom is not None
    return factory.custom


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8", 8),
        ("-1", -1),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("0x10", 16),
        ("0o17", 15),
        (".inf", float("inf")),
        (".Inf", float("inf")),
        ("true", True),
        ("'8'", "8"),
        ('"true"', "true"),
        ("!!str 8", "8"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("v1", "v1"),
        ("[1, '2', {a: 3}]", [1, "2", {"a": 3}]),
    ],
)
def test_a_plain_scalar_is_a_number_or_a_truth_value_and_a_quoted_one_is_text(
    tmp_path: Path, written: str, value: Any
) -> None:
    arguments = f"{{module: mine, input_args: [{written}], input_kwargs: {{name: {written}}}}}"
    task = f"{{command: 'echo {{0}}', task_factory: {{custom: {arguments}}}}}"
    factory = custom(tmp_path, f"job_specifications: [{{id: j, tasks: [{task}]}}]\n")
    assert (factory.input_args, factory.input_kwargs) == ((value,), {"name": value})


def test_a_number_in_json_is_a_number(tmp_path: Path) -> None:
    arguments = '{"module": "mine", "input_args": [8, "8"]}'
    task = f'{{"command": "echo {{0}}", "task_factory": {{"custom": {arguments}}}}}'
    text = f'{{"job_specifications": [{{"id": "j", "tasks": [{task}]}}]}}'
    assert custom(tmp_path, text, "jobs.json").input_args == (8, "8")
