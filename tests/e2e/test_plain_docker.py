"""A recipe in plain Docker, run by the command line on one machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from batchtrain.emulator import server
from tests import containers

from .conftest import Shell

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def recipe(tmp_path: Path, root: Path) -> Path:
    """Open MPI on two nodes, for the nodes' own Docker."""
    made = tmp_path / "recipe"
    shutil.copytree(root / "recipes/mpi4py-OpenMPI", made)
    pool = made / "config/pool.yaml"
    text = pool.read_text().replace("      native: true\n", "")
    pool.write_text(text.replace("  vm_configuration:\n", "  vm_configuration:\n    plain_docker: true\n"))
    return made


@pytest.fixture
def image(recipe: Path, image: str) -> str:
    """The tests' image, as the recipe's."""
    for path in (recipe / "config").iterdir():
        path.write_text(path.read_text().replace("example/openmpi:digits", image))
    return image


@pytest.mark.docker
@pytest.mark.mpi
def test_a_recipe_trains_in_plain_docker_between_two_nodes(batchtrain: Shell, recipe: Path, image: str) -> None:
    said = batchtrain("run", str(recipe), "--local").stdout
    assert float(said.partition("test accuracy ")[2].split()[0]) >= 0.95
    assert "ranks 4 hosts 2 " in said
    server.stop(batchtrain.home)
    label = f"label=batchtrain.emulator={batchtrain.home}"
    assert containers.left_behind(batchtrain.home) == []
    assert containers.docker("volume", "ls", "--quiet", "--filter", label) == ""


@pytest.mark.docker
@pytest.mark.mpi
def test_a_task_beside_docker_trains_over_the_network_of_its_nodes(
    batchtrain: Shell, recipe: Path, image: str, mpi_environment: Callable[[str], Path]
) -> None:
    """Each of them has a loopback interface of its own."""
    openmpi = mpi_environment("openmpi")
    jobs = recipe / "config/jobs.yaml"
    lines = [line for line in jobs.read_text().splitlines() if "docker_image" not in line]
    text = "\n".join("      pre_execution_command: echo $AZ_BATCH_HOST_LIST; export PATH={0}/bin:$PATH OPAL_PREFIX={0}"
                     if "pre_execution_command" in line else line for line in lines)  # fmt: skip
    jobs.write_text(text.format(openmpi) + "\n")
    said = batchtrain("run", str(recipe), "--local").stdout
    hosts = said.partition("\n")[0].split(",")
    assert len([host for host in hosts if not host.startswith("127.")]) == 2
    assert float(said.partition("test accuracy ")[2].split()[0]) >= 0.95


def test_without_an_engine_it_is_refused_before_the_pool_is_made(batchtrain: Shell, recipe: Path) -> None:
    said = batchtrain("run", str(recipe), "--local", code=2, environment={"DOCKER_HOST": "unix:///no/engine"}).stderr
    assert "no Docker Engine answers at unix:///no/engine (DOCKER_HOST)" in said
    assert "added pool" not in said
