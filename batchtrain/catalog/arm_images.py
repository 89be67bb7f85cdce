"""Which images of recipes are made for nodes with arm64 processors, such as Grace. Pure."""

from __future__ import annotations

from batchtrain.catalog.sizes import VmSize

ARM64_IMAGES = frozenset({
    "mpich:digits", "nccl-tests:cu13-openmpi", "openmpi:cpu", "openmpi:digits", "pytorch:cpu", "pytorch:gpu",
})  # fmt: skip
"""The last parts of the names of images of recipes that are made for x64 and arm64: their packages are on PyPI for both
(2026-11). The packages of the others are not, or that was not checked."""
ARM64_RECIPES = (
    "Digits-Sweep", "Fabric-Checks-NCCL", "Fabric-Checks-OpenMPI", "NCCL-Tests", "PyTorch-CPU", "PyTorch-GPU",
    "PyTorch-Language-Model", "mpi4py-MPICH", "mpi4py-OpenMPI", "mpiBench-MPICH", "mpiBench-OpenMPI",
)  # fmt: skip
"""The recipes with one of these images."""


def misfit(image: str, size: VmSize | None) -> str:
    """Why an image of a recipe cannot run on a size; empty if it can."""
    if size is None or size.architecture != "arm64" or image.rpartition("/")[2] in ARM64_IMAGES:
        return ""
    return (
        f"{size.name} has arm64 processors, and {image} is made for x64 alone; recipes with an image for both:"
        f" {', '.join(ARM64_RECIPES)}"
    )
