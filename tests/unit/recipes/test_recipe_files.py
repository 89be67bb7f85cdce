"""What every recipe directory has, and that its files load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchtrain.catalog import sizes
from batchtrain.config.load import load
from batchtrain.config.types import MultiInstance, Recipe, Task
from batchtrain.config.unfilled import require_filled
from batchtrain.errors import ConfigError

RECIPES = Path(__file__).parents[3] / "recipes"
ALL = sorted(path.parent.name for path in RECIPES.glob("*/config"))
WITH_IMAGE = sorted(path.parts[-3] for path in RECIPES.glob("*/docker/Dockerfile"))
CNTK = "CNTK-GPU-Infiniband-IntelMPI"


def only_task(recipe: Recipe) -> tuple[Task, MultiInstance]:
    (job,) = recipe.jobs
    (task,) = job.tasks
    assert task.multi_instance is not None
    return task, task.multi_instance


@pytest.mark.parametrize("name", ALL)
def test_a_recipe_has_a_readme_and_three_files(name: str) -> None:
    here = RECIPES / name
    assert (here / "README.md").read_text().startswith("# ")
    assert {path.name for path in (here / "config").iterdir()} == {"config.yaml", "pool.yaml", "jobs.yaml"}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", ["config", "pool", "jobs"])
def test_each_file_names_its_schema_for_editors(name: str, kind: str) -> None:
    first = (RECIPES / name / "config" / f"{kind}.yaml").read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema=../../../schemas/{kind}.json"


@pytest.mark.parametrize("name", [name for name in ALL if name != CNTK])
def test_a_recipe_that_runs_today_loads_without_a_warning(name: str) -> None:
    assert load(RECIPES / name, ignore=["image-registry"]).warnings == ()


def test_the_cntk_recipe_warns_that_its_size_and_its_image_are_gone() -> None:
    assert {"size-retired", "image-retired"} <= {warning.rule for warning in load(RECIPES / CNTK).warnings}


def test_the_cntk_recipe_is_the_launch_this_project_was_asked_for() -> None:
    recipe = load(RECIPES / CNTK).recipe
    assert recipe.pool is not None
    assert (recipe.pool.vm_size, recipe.pool.vm_count.dedicated) == ("STANDARD_NC24R", 2)
    assert recipe.pool.inter_node_communication_enabled
    task, gang = only_task(recipe)
    assert gang.mpi is not None
    assert (gang.mpi.runtime, gang.mpi.processes_per_node) == ("intelmpi", "nvidia-smi -L | wc -l")
    assert gang.coordination_command is None
    assert gang.pre_execution_command == (
        "source /cntk/activate-cntk; source /opt/intel/compilers_and_libraries/linux/mpi/bin64/mpivars.sh"
    )
    assert (task.infiniband, task.gpus) == (None, None)
    assert "TrainResNet_CIFAR10_Distributed.py --network resnet20 -q 1 -a 0 --datadir" in (task.command or "")


@pytest.mark.parametrize("name", WITH_IMAGE)
def test_a_recipe_with_an_image_of_its_own_trains_on_two_nodes_with_two_ranks_each(name: str) -> None:
    recipe = load(RECIPES / name).recipe
    assert recipe.pool is not None
    task, gang = only_task(recipe)
    assert gang.mpi is not None
    assert (recipe.pool.vm_count.dedicated, str(gang.mpi.processes_per_node)) == (2, "2")
    assert task.source is not None
    assert (Path(recipe.directory) / task.source / "train.py").is_file()


@pytest.mark.parametrize("name", WITH_IMAGE)
def test_every_requirement_of_an_image_is_pinned(name: str) -> None:
    lines = (RECIPES / name / "docker" / "requirements.txt").read_text().split()
    assert [line for line in lines if not re.fullmatch(r"[\w-]+==[\d.]+", line)] == []


@pytest.mark.parametrize("name", WITH_IMAGE)
def test_no_key_is_part_of_an_image(name: str) -> None:
    """Host keys that the package made are removed in the layer that ends the build; none is copied in or made."""
    text = (RECIPES / name / "docker" / "Dockerfile").read_text()
    build, _, start = text.partition("CMD ")
    assert "rm -f /etc/ssh/ssh_host_*_key" in build
    assert "ssh-keygen" not in build
    assert "ssh-keygen -A" in start


@pytest.mark.parametrize("name", ALL)
def test_the_first_line_of_a_readme_is_a_sentence_that_fits_the_list_of_recipes(name: str) -> None:
    first = (RECIPES / name / "README.md").read_text().split("\n\n")[1].splitlines()[0]
    assert re.fullmatch(r"[A-Z].{1,78}\.", first)


def test_the_volume_of_a_recipe_is_not_sent_to_azure_before_it_is_yours() -> None:
    recipe = load(RECIPES / "PyTorch-Language-Model").recipe
    require_filled(recipe, emulated=True)
    with pytest.raises(ConfigError, match=r"shared\.source: `example\..*write the share"):
        require_filled(recipe, emulated=False)


@pytest.mark.parametrize("name", ALL)
def test_the_nodes_of_a_recipe_for_cpus_have_a_temporary_disk(name: str) -> None:
    pool = load(RECIPES / name).recipe.pool
    assert pool is not None
    size = sizes.find(pool.vm_size)
    assert size is not None
    assert size.gpus or size.rdma or size.family == "Ddsv5"
