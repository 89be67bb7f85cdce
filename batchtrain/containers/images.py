"""Tables of the images of docker/: their parents and their bases. `build.py` runs the builds."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from batchtrain.config.source_packages import SourcePackages
from batchtrain.containers.environments import ENVIRONMENTS
from batchtrain.errors import UsageError
from batchtrain.shipped import shipped

CPU, CUDA_13, NGC = "cpu", "cuda13.0", "ngc-tf1"


class Base(NamedTuple):
    """The image at the beginning of a chain of images."""

    image: str
    about: str


BASES: Mapping[str, Base] = {
    CPU: Base("debian:12-slim", "Debian 12, Python 3.11; for nodes without GPUs, and for packages that include CUDA"),
    CUDA_13: Base(
        "nvidia/cuda:13.0.2-cudnn-devel-ubuntu24.04"
        "@sha256:e071e85c52ad91fc9ea24158ff5330876b2d1a5c4ac83ccc6066976835873c01",
        "CUDA 13.0, cuDNN 9, NCCL, Ubuntu 24.04, Python 3.12; T4 and later, not V100",
    ),
    "cuda12.4": Base(
        "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04"
        "@sha256:622e78a1d02c0f90ed900e3985d6c975d8e2dc9ee5e61643aed587dcf9129f42",
        "CUDA 12.4, cuDNN 9, NCCL, Ubuntu 22.04, Python 3.10; V100 to H100",
    ),
    "cuda11.8": Base(
        "nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04"
        "@sha256:8f9dd0d09d3ad3900357a1cf7f887888b5b74056636cd6ef03c160c3cd4b1d95",
        "CUDA 11.8, cuDNN 8, NCCL, Ubuntu 22.04, Python 3.10; V100 to H100",
    ),
    NGC: Base(
        "nvcr.io/nvidia/tensorflow:23.03-tf1-py3",
        "NVIDIA's TensorFlow 1.15, CUDA 12.1, Ubuntu 20.04, Python 3.8; V100 to H100",
    ),
}
"""The bases, by the name for `--on`, pinned by digest, except NVIDIA's monthly tags, which never change."""

ANY: Mapping[str, tuple[str, ...]] = dict.fromkeys(BASES, ())


class Image(NamedTuple):
    """One image: its directory in docker/, the image it is built on, and its build arguments on each base."""

    directory: str
    parent: str
    """The parent in IMAGES. Empty for the first image of a chain."""
    on: Mapping[str, tuple[str, ...]]
    about: str


def _packages(environment: str, *left_out: str) -> tuple[str, ...]:
    """The build argument for the packages that a local environment has, without those of the parent."""
    names = (package for package in ENVIRONMENTS[environment].packages if package.partition("=")[0] not in left_out)
    return (f"PACKAGES={' '.join(names)}",)


_OF_PYTORCH = ("torch", "numpy", "scikit-learn")
IMAGES: Mapping[str, Image] = {
    "base": Image("base", "", ANY, "sshd on port 23, Python in /opt/venv, InfiniBand's user libraries"),
    "openmpi": Image("openmpi", "base", ANY, "Open MPI 5, mpi4py"),
    "mpich": Image("mpich", "base", ANY, "MPICH 5, mpi4py"),
    "intelmpi": Image("intelmpi", "base", ANY, "Intel MPI 2021, mpi4py"),
    "cntk": Image("cntk", "openmpi", {CPU: ()}, "CNTK 2.7, Python 3.6, Keras 2.3"),
    "cntk-gpu": Image(
        "cntk", "openmpi", {CPU: ("PACKAGE=cntk-gpu",)}, "the same with CUDA 10.0, which its wheel includes"
    ),
    "cntk-intelmpi": Image("cntk-intelmpi", "cntk", {CPU: ()}, "CNTK 2.7 on Intel MPI 2021, ResNet on CIFAR-10"),
    "cntk-gpu-intelmpi": Image("cntk-intelmpi", "cntk-gpu", {CPU: ()}, "the same with CUDA 10.0"),
    "pytorch": Image("pytorch", "openmpi", {CPU: (), "cuda13.0": ("INDEX=https://pypi.org/simple",)}, "PyTorch 2.13"),
    "tensorflow": Image(
        "tensorflow", "openmpi", {CPU: (), "cuda12.4": ("PACKAGE=tensorflow[and-cuda]",)}, "TensorFlow 2.15, Keras 2"
    ),
    "mxnet": Image(
        "mxnet", "base", {CPU: (), "cuda11.8": ()}, "MXNet 1.9.1, distributed key-value store; with CUDA from source"
    ),
    "horovod-pytorch": Image("horovod", "pytorch", {CPU: (), "cuda13.0": ()}, "Horovod 0.28 for PyTorch"),
    "horovod-tensorflow": Image("horovod", "tensorflow", {CPU: (), "cuda12.4": ()}, "Horovod 0.28 for TensorFlow"),
    "horovod-mxnet": Image("horovod", "mxnet", {CPU: ()}, "Horovod 0.28 for MXNet, without MPI"),
    "accelerate": Image(
        "packages", "pytorch", dict.fromkeys((CPU, CUDA_13), _packages("pytorch", *_OF_PYTORCH, "keras")), "Accelerate"
    ),
    "keras-pytorch": Image(
        "packages", "pytorch", dict.fromkeys((CPU, CUDA_13), _packages("pytorch", *_OF_PYTORCH, "accelerate")),
        "Keras 3 on PyTorch",
    ),
    "deepspeed": Image("deepspeed", "pytorch", {CPU: (), CUDA_13: ("ACCELERATOR=cuda",)}, "DeepSpeed 0.19"),
    "jax": Image("packages", "base", {CPU: _packages("jax")}, "JAX 0.10, Keras 3"),
    "ray": Image("packages", "base", {CPU: _packages("ray")}, "Ray 2.60"),
    "tensorflow1": Image("python37", "base", {CPU: _packages("tensorflow1")}, "TensorFlow 1.15, Python 3.7"),
    "keras-mxnet": Image("python37", "base", {CPU: _packages("mxnet")}, "MXNet 1.9.1, Keras 2.2, Python 3.7"),
    "nccl-tests": Image("nccl-tests", "openmpi", {CUDA_13: ()}, "NVIDIA's nccl-tests with Open MPI"),
    "osu-mvapich": Image("osu-mvapich", "base", {CPU: ()}, "MVAPICH 3.0, OSU micro-benchmarks 7.0"),
    "tensorflow1-benchmarks": Image(
        "tensorflow1-benchmarks", "base", {NGC: ()}, "TensorFlow 1.15 for GPUs, tf_cnn_benchmarks"
    ),
}  # fmt: skip


class Step(NamedTuple):
    """One build: a directory with a Dockerfile, and its inputs."""

    directory: Path
    tag: str
    base: str
    """The value of `ARG BASE`. Empty: the default of the Dockerfile."""
    arguments: tuple[str, ...] = ()
    """NAME=VALUE each."""
    architecture: str = ""
    """Of the nodes, as Docker names it; empty: that of this machine."""

    def words(self, *, network: str = "", fresh: bool = False) -> tuple[str, ...]:
        """The arguments of `docker`."""
        arguments = ((f"BASE={self.base}",) if self.base else ()) + self.arguments
        return (
            "build",
            *(("--pull",) if fresh else ()),
            *((f"--platform=linux/{self.architecture}",) if self.architecture else ()),
            *(("--network", network) if network else ()),
            *(f"--build-arg={argument}" for argument in arguments),
            f"--tag={self.tag}",
            str(self.directory),
        )


def chain(
    name: str, home: Path, *, on: str = CPU, base: str = "", tag: str = "", arguments: tuple[str, ...] = ()
) -> tuple[Step, ...]:
    """The builds that make an image of docker/, in order. on: a name of BASES, which selects the build arguments. base:
    an image to use in place of that base. tag: the name of the last image. arguments: for all builds. Raises UsageError
    if NAME is unknown.
    """
    image = IMAGES.get(name)
    if image is None:
        near = get_close_matches(name, IMAGES, 2)
        meant = f"did you mean {' or '.join(near)}?" if near else "`batchtrain images list` shows all"
        raise UsageError(f"no image is called {name}, and it is not a directory with a Dockerfile; {meant}")
    if on not in image.on:
        raise UsageError(f"{name} is made on {' or '.join(image.on)}, not on {on}")
    before = chain(image.parent, home, on=on, base=base, arguments=arguments) if image.parent else ()
    first = before[-1].tag if before else base or BASES[on].image
    return (*before, Step(home / image.directory, tag or f"batchtrain/{name}:{on}", first, image.on[on] + arguments))


def with_packages(
    base: Step, package_lists: Iterable[SourcePackages], tag: str, arguments: tuple[str, ...]
) -> Iterator[Step]:
    """The build that adds the packages of a source to an image; none without packages. Raises UsageError."""
    words = [word for packages in package_lists for word in packages.words()]
    if words:
        yield Step(shipped("docker") / "packages", tag, base.tag, (f"PACKAGES={shlex.join(words)}", *arguments))
