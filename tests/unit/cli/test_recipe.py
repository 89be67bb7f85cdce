"""`recipe list` and `recipe new`, also where the disk is full."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batchtrain.cli import recipe, shipped_recipes
from batchtrain.cli.app import root
from batchtrain.cli.failures import message_of
from batchtrain.errors import NotFound


def test_a_recipe_is_listed_with_its_whole_first_sentence() -> None:
    abouts = [recipe._about(place) for place in shipped_recipes.every()]
    assert abouts
    assert [about for about in abouts if not about or about.endswith(("...", ",", " a"))] == []


def test_the_list_says_for_each_recipe_what_it_needs_here_and_how_long_it_takes_in_80_columns() -> None:
    done = CliRunner().invoke(root, ["recipe", "list"])
    lines = done.output.splitlines()
    assert (done.exit_code, len(lines)) == (0, 2 * len(shipped_recipes.every()))
    assert max(map(len, lines)) <= 80
    assert "PyTorch-CPU: runs here in pytorch (1.2 GB, 2 minutes)" in lines
    assert "NCCL-Tests: plan only, needs GPUs or InfiniBand" in lines


def test_a_name_in_another_case_is_answered_with_the_right_one() -> None:
    done = CliRunner().invoke(root, ["recipe", "show", "pytorch-cpu"])
    assert isinstance(done.exception, NotFound)
    assert str(done.exception) == "there is no recipe pytorch-cpu; did you mean PyTorch-CPU?"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("PyTorch-CPU", ("images env PyTorch-CPU", "run PyTorch-CPU --local")),
        ("NCCL-Tests", ("config validate NCCL-Tests", "config plan NCCL-Tests")),
    ],
)
def test_a_new_recipe_needs_only_its_name_and_prints_the_next_two_commands(
    name: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = CliRunner().invoke(root, ["recipe", "new", name]).output.splitlines()
    assert lines[0] == f"{name} is in {name}. Next:"
    assert [line.partition("batchtrain ")[2] for line in lines[1:]] == list(words)
    assert (tmp_path / name / "config" / "jobs.yaml").exists()


@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_leaves_no_half_recipe_and_is_no_bug(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mine"
    if there:
        target.mkdir()

    def full(_source: Any, to: Any, **_: Any) -> None:
        (Path(to) / "config").mkdir(parents=True)
        said = f"[Errno 28] {os.strerror(errno.ENOSPC)}"
        raise shutil.Error([("jobs.yaml", str(target / "config/jobs.yaml"), said)])

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="No space left") as caught:
        recipe.new(name="JAX", directory=str(target))
    assert message_of(caught.value) == (f"{target}/config/jobs.yaml: No space left on device", 2)
    assert list(tmp_path.rglob("*")) == ([target] if there else [])
