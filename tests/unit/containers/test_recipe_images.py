"""Each recipe has an image that can be built and, where it runs here, a local environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.cli import shipped_recipes
from batchtrain.config.load import load
from batchtrain.config.source_packages import Package, SourcePackages, digest
from batchtrain.containers import make_environment
from batchtrain.containers.environments import ENVIRONMENTS
from batchtrain.containers.images import IMAGES
from batchtrain.containers.recipe_images import RECIPE_IMAGES, SCRIPT_IMAGES, behind, environment_of, script_image
from batchtrain.emulator import server
from batchtrain.errors import UsageError
from batchtrain.shipped import shipped


def test_the_images_of_the_table_are_those_that_recipes_name() -> None:
    recipes = [load(place).recipe for place in shipped_recipes.every()]
    assert set(RECIPE_IMAGES) == {
        image.rpartition("/")[2] for recipe in recipes for image in recipe.resources.docker_images
    }


@pytest.mark.parametrize("name", [*RECIPE_IMAGES, *SCRIPT_IMAGES])
def test_each_image_can_be_built(name: str) -> None:
    build, on, _ = {**RECIPE_IMAGES, **SCRIPT_IMAGES}[name]
    if "/" in build:
        assert (shipped("recipes") / build / "Dockerfile").is_file()
    else:
        assert on in IMAGES[build].on


def test_each_environment_stands_behind_an_image() -> None:
    assert {one.environment for one in (*RECIPE_IMAGES.values(), *SCRIPT_IMAGES.values())} - {""} == set(ENVIRONMENTS)


def test_an_image_is_known_in_each_registry() -> None:
    assert behind("registry.example:5000/team/pytorch:cpu") == RECIPE_IMAGES["pytorch:cpu"]


def test_an_image_that_is_no_recipe_s_gets_the_command_for_an_environment_of_ones_own() -> None:
    with pytest.raises(UsageError, match=r"`batchtrain emulator images map mine/thing:1 PREFIX` .PREFIX is its dir"):
        environment_of("mine/thing:1")


def test_a_build_of_an_image_that_is_no_recipe_s_is_answered_with_a_build_of_ones_own() -> None:
    with pytest.raises(UsageError, match="`batchtrain images build DIRECTORY --tag me/x:1`"):
        behind("me/x:1")


def test_an_image_for_hardware_that_is_not_here_has_no_environment() -> None:
    with pytest.raises(UsageError, match=r"example/osu:mvapich need GPUs, InfiniBand or a build for containers"):
        environment_of("example/osu:mvapich")


def test_a_data_directory_with_nothing_but_environments_is_the_emulator_s(tmp_path: Path) -> None:
    home = make_environment.home(tmp_path / "data", {})
    assert home.name in server.OURS


def test_the_image_of_a_script_has_the_packages_of_the_script_in_its_name() -> None:
    packages = SourcePackages(Path("src"), "requirements.txt", (Package("rich", 1),))
    plain, listed = script_image("pytorch", (), gpus=False), script_image("pytorch", (packages,), gpus=True)
    assert (plain, listed) == ("example/script:pytorch-cpu", f"example/script:pytorch-gpu-{digest((packages,))}")
    assert behind(plain).environment == behind(listed).environment == "pytorch"
    assert (behind(plain).on, behind(listed).on) == ("cpu", "cuda13.0")


def test_a_script_without_a_build_for_gpus_has_the_one_for_cpus() -> None:
    assert script_image("jax", (), gpus=True) == "example/script:jax-cpu"
