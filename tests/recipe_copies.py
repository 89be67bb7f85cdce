"""The sources that recipes share: the first recipe has the source, and the others have copies.

A recipe is a directory of its own, so that it can be copied and read alone. Edit the file of the first recipe, then run
`python -m tests.recipe_copies`, which writes the others. A test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.environments import ROOT

SHARED = {
    "CNTK-CPU-OpenMPI/src/train.py": ("CNTK-GPU-OpenMPI",),
    "Fabric-Checks-OpenMPI/src/fabric.py": ("Fabric-Checks-NCCL",),
    "MXNet-Benchmark/src/dlbs.py": ("TensorFlow-Benchmarks-CPU",),
    "MXNet-CPU/src/train.py": ("MXNet-GPU",),
    "PyTorch-CPU/src/digits_folder.py": ("PyTorch-GPU",),
    "PyTorch-CPU/src/imagenet.py": ("PyTorch-GPU",),
    "PyTorch-CPU/src/train.py": ("PyTorch-GPU",),
    "TensorFlow-Distributed-CPU/src/train.py": ("TensorFlow-Distributed-GPU",),
    "mpi4py-MPICH/src/train.py": ("mpi4py-IntelMPI", "mpi4py-OpenMPI"),
    "mpiBench-MPICH/src/bench.py": ("Fabric-Checks-NCCL", "Fabric-Checks-OpenMPI", "mpiBench-OpenMPI"),
}
"""The source in its first recipe, and the recipes with a copy."""
RECIPES = ROOT / "recipes"


def copies() -> Iterator[tuple[Path, Path]]:
    """Each copy, with its source."""
    for name, others in SHARED.items():
        _, _, path = name.partition("/")
        yield from ((RECIPES / recipe / path, RECIPES / name) for recipe in others)


def main() -> None:
    for copy, source in copies():
        copy.write_bytes(source.read_bytes())


if __name__ == "__main__":
    main()
