"""`batchtrain images`: commands that read a recipe only for its image."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchtrain.cli.app import root
from batchtrain.config import load
from batchtrain.errors import ConfigError, UsageError
from batchtrain.shipped import shipped


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe whose source is too large for a request."""
    copy = tmp_path / "mine"
    shutil.copytree(shipped("recipes") / "mpi4py-OpenMPI", copy)
    (copy / "src" / "data.bin").write_bytes(random.Random(1).randbytes(3_000_000))
    with pytest.raises(ConfigError, match="source-size"):
        load.load(copy)
    return copy


def test_a_large_source_does_not_matter_to_the_image_of_a_recipe(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    built = CliRunner().invoke(root, ["images", "build", str(recipe)])
    assert isinstance(built.exception, UsageError)
    assert "no `docker` command" in str(built.exception)


def test_a_large_source_does_not_matter_to_the_environment_of_a_recipe(recipe: Path) -> None:
    shown = CliRunner().invoke(root, ["images", "env", str(recipe), "--dry-run"])
    assert (shown.exception, shown.exit_code) == (None, 0)
