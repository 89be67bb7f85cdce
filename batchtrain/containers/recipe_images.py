"""The image of docker/ and the local environment for each image name of a recipe."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from batchtrain.config.image_names import EXAMPLE
from batchtrain.config.source_packages import SourcePackages, digest, digest_of
from batchtrain.containers.environments import ENVIRONMENTS, Environment
from batchtrain.containers.images import BASES, CPU, IMAGES
from batchtrain.errors import UsageError


class RecipeImage(NamedTuple):
    """An image that a recipe names."""

    build: str
    """A name of IMAGES, or the directory below recipes/ that has its Dockerfile."""
    on: str = CPU
    environment: str = ""
    """A name of ENVIRONMENTS; empty if the program needs hardware that the emulator does not have."""


RECIPE_IMAGES: Mapping[str, RecipeImage] = {
    "accelerate:cpu": RecipeImage("accelerate", CPU, "pytorch"),
    "cntk:2.1-gpu-1bitsgd-py36-cuda8-cudnn6-intelmpi-refdata": RecipeImage("cntk-gpu-intelmpi", CPU, "cntk-intelmpi"),
    "cntk:2.7-cpu-openmpi": RecipeImage("cntk", CPU, "cntk"),
    "cntk:2.7-gpu-openmpi": RecipeImage("cntk-gpu", CPU, "cntk"),
    "deepspeed:cpu": RecipeImage("deepspeed", CPU, "deepspeed"),
    "horovod:pytorch-cpu": RecipeImage("horovod-pytorch", CPU, "horovod-pytorch"),
    "horovod:tensorflow-cpu": RecipeImage("horovod-tensorflow", CPU, "horovod-tensorflow"),
    "intelmpi:digits": RecipeImage("mpi4py-IntelMPI/docker", CPU, "impi-rt"),
    "jax:cpu": RecipeImage("jax", CPU, "jax"),
    "keras:cntk-cpu": RecipeImage("cntk", CPU, "cntk"),
    "keras:jax-cpu": RecipeImage("jax", CPU, "jax"),
    "keras:mxnet-cpu": RecipeImage("keras-mxnet", CPU, "mxnet"),
    "keras:pytorch-cpu": RecipeImage("keras-pytorch", CPU, "pytorch"),
    "mpich:digits": RecipeImage("mpi4py-MPICH/docker", CPU, "mpich"),
    "mxnet:1.9.1-cu112": RecipeImage("mxnet", "cuda11.8", "mxnet"),
    "mxnet:cpu": RecipeImage("mxnet", CPU, "mxnet"),
    "nccl-tests:cu13-openmpi": RecipeImage("nccl-tests", "cuda13.0"),
    "openmpi:cpu": RecipeImage("openmpi", CPU, "openmpi"),
    "openmpi:digits": RecipeImage("mpi4py-OpenMPI/docker", CPU, "openmpi"),
    "osu:mvapich": RecipeImage("osu-mvapich"),
    "pytorch:cpu": RecipeImage("pytorch", CPU, "pytorch"),
    "pytorch:gpu": RecipeImage("pytorch", "cuda13.0", "pytorch"),
    "ray:cpu": RecipeImage("ray", CPU, "ray"),
    "tensorflow:1.15-cpu": RecipeImage("tensorflow1", CPU, "tensorflow1"),
    "tensorflow:1.15-gpu-benchmarks": RecipeImage("tensorflow1-benchmarks", "ngc-tf1"),
    "tensorflow:cpu": RecipeImage("tensorflow", CPU, "tensorflow"),
    "tensorflow:gpu": RecipeImage("tensorflow", "cuda12.4", "tensorflow"),
}
"""The images by the last part of their name, which is the same in every registry."""


ENVIRONMENTS_OF = {"base": "python", "accelerate": "pytorch", "horovod-mxnet": ""}
"""The environments of images of docker/ that have another name, or none."""


SCRIPT_IMAGES: Mapping[str, RecipeImage] = {
    f"script:{name}-{'cpu' if on == CPU else 'gpu'}": RecipeImage(name, on, ENVIRONMENTS_OF.get(name, name))
    for name, image in IMAGES.items()
    if name in ENVIRONMENTS_OF or name in ENVIRONMENTS
    for on in tuple(BASES)[::-1]
    if on in image.on
}
"""The images of bare scripts, by the last part of their name without the packages that the script lists: each image of
docker/ that may run one, on CPUs, and on GPUs where it has such a base."""


def script_image(build: str, package_lists: Iterable[SourcePackages], *, gpus: bool) -> str:
    """The name of the image for a bare script: that of docker/, with the packages that the script lists."""
    kind = "gpu" if gpus and f"script:{build}-gpu" in SCRIPT_IMAGES else "cpu"
    return "-".join(filter(None, (f"{EXAMPLE}script:{build}-{kind}", digest(package_lists))))


def _entry(image: str) -> RecipeImage | None:
    name = image.rpartition("/")[2]
    return RECIPE_IMAGES.get(name) or SCRIPT_IMAGES.get(name) or SCRIPT_IMAGES.get(name.rpartition("-")[0])


def behind(image: str) -> RecipeImage:
    """The entry for an image of a recipe, in any registry. Raises UsageError for another image."""
    return _entry_or_refusal(
        image, f"write a Dockerfile for it, and build it: `batchtrain images build DIRECTORY --tag {image}`"
    )


def _entry_or_refusal(image: str, next_step: str) -> RecipeImage:
    entry = _entry(image)
    if entry is None:
        raise UsageError(f"{image} is not an image of a recipe of batchtrain; {next_step}")
    return entry


def environment_of(
    image: str, directory: str = "DIR", package_lists: Iterable[SourcePackages] = ()
) -> tuple[str, Environment]:
    """The local environment for an image of the recipe in a directory, with its name. package_lists: of the source:
    with one, any image has an environment, and one that equals the list of a framework has that of the framework.
    Raises UsageError if there is none."""
    content, entry = digest(package_lists), _entry(image)
    if content and (entry is None or entry.environment == "python"):
        equal = (entry for entry in ENVIRONMENTS.items() if digest_of(entry[1].packages) == content)
        return next(equal, ("python", ENVIRONMENTS["python"]))
    mapping = (
        f"use an environment of your own in its place, `batchtrain emulator images map {image} PREFIX` (PREFIX is its"
        " directory, such as `.venv`)"
    )
    listing = "or list its packages in `requirements.txt` or `pyproject.toml` of the `source`, and repeat the command"
    name = _entry_or_refusal(image, f"{mapping}; {listing}").environment
    if not name:
        raise UsageError(
            f"the programs of {image} need GPUs, InfiniBand or a build for containers, so there is no local environment"
            f" for it; {mapping}; `batchtrain config plan {shlex.quote(directory)}` shows what its recipe does"
        )
    return name, ENVIRONMENTS[name]
