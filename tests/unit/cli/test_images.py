"""`batchtrain images`: commands that read a recipe only for its image."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchtrain.catalog.arm_images import ARM64_IMAGES, ARM64_RECIPES
from batchtrain.cli import shipped_recipes
from batchtrain.cli.app import root
from batchtrain.cli.options import Settings
from batchtrain.config import check, load
from batchtrain.config.source_packages import READY
from batchtrain.containers import build as building
from batchtrain.containers import engine
from batchtrain.containers.build import Built
from batchtrain.containers.images import Step
from batchtrain.containers.recipe_images import RECIPE_IMAGES
from batchtrain.emulator.mapped_images import list_images, map_image
from batchtrain.errors import ConfigError, UsageError
from batchtrain.scripts.recipe import Wish, prepare
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


def test_the_image_of_a_script_is_that_of_its_framework_with_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n", encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("rich >= 13 ; os_name == 'posix'\n", encoding="utf-8")
    prepared = prepare(script, Wish(), local=True)
    prepared.recipe.save(tmp_path)
    steps = _steps_of(monkeypatch, str(tmp_path))
    assert [step.directory.name for step in steps] == ["base", "openmpi", "pytorch", "packages"]
    assert (steps[-1].base, steps[-1].tag) == (steps[-2].tag, prepared.image)
    (packages,) = steps[-1].arguments
    assert shlex.split(packages.removeprefix("PACKAGES=")) == ["rich >= 13 ; os_name == 'posix'"]


def _steps_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[Step]:
    """The builds of `images build`."""
    steps: list[Step] = []

    def run(_docker: object, some: tuple[Step, ...], *_: object, **__: object) -> Built:
        steps.extend(some)
        return Built(some[-1].tag, "", 0)

    monkeypatch.setattr(engine, "find", lambda: None)
    monkeypatch.setattr(building, "run", run)
    built = CliRunner().invoke(root, ["images", "build", *arguments], catch_exceptions=False)
    assert built.exit_code == 0
    return steps


def test_environments_that_are_not_used_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_DIR", str(tmp_path))
    for name in ("old", "new"):
        (tmp_path / "environments" / name).mkdir(parents=True)
        (tmp_path / "environments" / name / READY).touch()
        map_image(tmp_path, f"example/{name}", tmp_path / "environments" / name)
    os.utime(tmp_path / "environments" / "old" / READY, (0, 0))
    invoke = CliRunner().invoke
    listed = invoke(root, ["images", "environments", "-o", "json"], obj=Settings(), catch_exceptions=False)
    assert [row["environment"] for row in json.loads(listed.stdout)] == ["new", "old"]
    pruned = invoke(root, ["images", "prune", "-y", "-o", "json"], obj=Settings(), catch_exceptions=False)
    assert [row["environment"] for row in json.loads(pruned.stdout)] == ["old"]
    assert [path.name for path in (tmp_path / "environments").iterdir()] == ["new"]
    assert list(list_images(tmp_path)) == ["example/new"]


GRACE = ("--set", "pool_specification.vm_size=Standard_ND128isr_NDR_GB200_v6")


def test_the_image_of_a_recipe_is_built_for_the_processors_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _steps_of(monkeypatch, "NCCL-Tests", *GRACE)
    assert steps and all("--platform=linux/arm64" in step.words() for step in steps)
    assert not any("--platform" in word for step in _steps_of(monkeypatch, "NCCL-Tests") for word in step.words())


def test_an_image_that_is_not_made_for_arm64_is_refused_with_the_recipes_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = CliRunner().invoke(root, ["images", "build", "DeepSpeed", *GRACE])
    assert isinstance(shown.exception, UsageError)
    assert "arm64" in str(shown.exception) and "Fabric-Checks-NCCL" in str(shown.exception)
    assert "DeepSpeed" not in str(shown.exception)


def test_the_table_of_processors_names_images_and_recipes_that_there_are() -> None:
    assert RECIPE_IMAGES.keys() >= ARM64_IMAGES
    rules = [rule.name for rule in check.RULES]
    images = {recipe.name: load.load(recipe, ignore=rules).recipe.resources for recipe in shipped_recipes.every()}
    names = {name: {image.rpartition("/")[2] for image in of.docker_images} for name, of in images.items()}
    assert tuple(sorted(name for name, of in names.items() if of <= ARM64_IMAGES)) == ARM64_RECIPES


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("opt=.", "write PATH=DIR with an absolute PATH"),
        ("/=.", "write PATH=DIR with an absolute PATH"),
        ("/opt/x=/nosuch", "/nosuch is not a directory"),
        ("/proc/x=.", "/proc belongs to the kernel"),
    ],
)
def test_a_path_that_no_image_can_have_is_refused_when_it_is_mapped(path: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    words = ["emulator", "images", "map", "me/x:1", str(tmp_path), "--path", path, "--data-dir", str(tmp_path / "data")]
    refused = CliRunner().invoke(root, words)
    assert reason in str(refused.exception)
    assert not list_images(tmp_path / "data")
