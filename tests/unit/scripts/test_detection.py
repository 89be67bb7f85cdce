"""The framework of a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.containers.environments import ENVIRONMENTS
from batchtrain.containers.recipe_images import behind, script_image
from batchtrain.scripts.detection import LAUNCHES, NAMES, Undecided, block_of, framework_of, launcher_in
from batchtrain.scripts.imports import Place, Script


def script(*modules: str) -> Script:
    imports = tuple(Place(module, Path("train.py"), line) for line, module in enumerate(modules, 1))
    return Script(Path("train.py"), imports, (), ())


@pytest.mark.parametrize(
    ("modules", "name"),
    [
        (["torch"], "pytorch"),
        (["torch", "lightning"], "pytorch"),
        (["torch", "transformers"], "accelerate"),
        (["accelerate", "torch", "deepspeed.ops"], "deepspeed"),
        (["horovod.torch", "torch"], "horovod"),
        (["tensorflow", "keras"], "tensorflow"),
        (["keras"], "tensorflow"),
        (["keras_hub"], "tensorflow"),
        (["keras_nlp", "jax"], "jax"),
        (["keras", "jax"], "jax"),
        (["ray.train", "torch"], "ray"),
        (["mpi4py.MPI", "numpy"], "mpi"),
        (["mxnet"], "mxnet"),
        (["numpy"], "none"),
    ],
)
def test_the_most_specific_import_chooses(modules: list[str], name: str) -> None:
    assert framework_of(script(*modules)).name == name


def test_two_that_fit_are_an_error_with_both_places_and_options() -> None:
    with pytest.raises(Undecided) as undecided:
        framework_of(script("torch", "mpi4py"))
    assert str(undecided.value) == (
        "train.py fits several frameworks: train.py:2 imports mpi4py for mpi and train.py:1 imports torch for pytorch;"
        " choose one of them (`--framework NAME`, `framework`)"
    )
    assert framework_of(script("torch", "mpi4py"), "pytorch").name == "pytorch"


@pytest.mark.parametrize(
    ("modules", "image"),
    [
        (["horovod", "tensorflow"], "horovod-tensorflow"),
        (["horovod", "torch"], "horovod-pytorch"),
        (["keras", "horovod.torch"], "horovod-pytorch"),
        (["horovod.keras", "keras"], "horovod-tensorflow"),
        (["horovod.mxnet"], "horovod-mxnet"),
        (["horovod", "mpi4py"], "horovod-pytorch"),
    ],
)
def test_horovod_has_an_image_for_each_framework(modules: list[str], image: str) -> None:
    assert framework_of(script(*modules), "horovod").image == image


@pytest.mark.parametrize("name", NAMES)
def test_each_framework_has_a_block_an_image_and_an_environment(name: str) -> None:
    choice = framework_of(script(), name)
    block = block_of(choice, script(), 1, 2)
    assert block is not None
    assert block.processes_per_node == 2
    assert behind(script_image(choice.image, (), gpus=False)).environment in ENVIRONMENTS


def test_every_framework_of_the_registry_says_which_scripts_it_launches() -> None:
    assert all(scripts.imports and scripts.image for scripts in LAUNCHES.values())


@pytest.mark.parametrize(
    "program",
    [
        "mpirun -n 2 a",
        "/opt/bin/torchrun train.py",
        "accelerate launch train.py",
        "mpiexec.hydra",
        "deepspeed train.py",
        "python -m torch.distributed.run train.py",
        "cd src && torchrun train.py",
    ],
)
def test_a_launcher_of_its_own_is_found(program: str) -> None:
    place = Place(program, Path("train.py"), 7)
    assert launcher_in(Script(Path("train.py"), (), (), (place,))) == place


@pytest.mark.parametrize("name", ["torch.multiprocessing.spawn", "accelerate.notebook_launcher"])
def test_a_function_that_starts_processes_is_found(name: str) -> None:
    place = Place(name, Path("train.py"), 7)
    assert launcher_in(Script(Path("train.py"), (), (place,), ())) == place


@pytest.mark.parametrize("program", ["ls mpirun", "accelerate config", "nvidia-smi"])
def test_another_program_is_no_launcher(program: str) -> None:
    assert launcher_in(Script(Path("train.py"), (), (), (Place(program, Path("train.py"), 7),))) is None
