"""Which images of recipes are made for nodes with arm64 processors, such as Grace. Pure."""

from __future__ import annotations

from batchtrain.catalog.sizes import VmSize

X64_IMAGES = frozenset({
    "accelerate:cpu", "cntk:2.1-gpu-1bitsgd-py36-cuda8-cudnn6-intelmpi-refdata", "cntk:2.7-cpu-openmpi",
    "cntk:2.7-gpu-openmpi", "deepspeed:cpu", "horovod:pytorch-cpu", "horovod:tensorflow-cpu", "intelmpi:digits",
    "jax:cpu", "keras:cntk-cpu", "keras:jax-cpu", "keras:mxnet-cpu", "keras:pytorch-cpu", "mxnet:1.9.1-cu112",
    "mxnet:cpu", "osu:mvapich", "ray:cpu", "tensorflow:1.15-cpu", "tensorflow:1.15-gpu-benchmarks", "tensorflow:cpu",
    "tensorflow:gpu",
})  # fmt: skip
"""The last parts of the names of images of recipes that are made for x64 alone: not all of their packages are published
for arm64, or that was not checked."""
ARM64_RECIPES = (
    "Digits-Sweep", "Fabric-Checks-NCCL", "Fabric-Checks-OpenMPI", "NCCL-Tests", "PyTorch-CPU", "PyTorch-GPU",
    "PyTorch-Language-Model", "mpi4py-MPICH", "mpi4py-OpenMPI", "mpiBench-MPICH", "mpiBench-OpenMPI",
)  # fmt: skip
"""The recipes whose images are made for both; their packages are on PyPI for arm64 (2026-11)."""


def misfit(image: str, size: VmSize | None) -> str:
    """Why an image of a recipe cannot run on a size; empty if it can, and for other images."""
    if size is None or size.architecture != "arm64" or image.rpartition("/")[2] not in X64_IMAGES:
        return ""
    return (
        f"{size.name} has arm64 processors, and {image} is made for x64 alone; recipes with an image for both:"
        f" {', '.join(ARM64_RECIPES)}"
    )
