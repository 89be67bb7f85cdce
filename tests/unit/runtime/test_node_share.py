"""`node.sh share` says how many cores each rank of an MPI gets, where its launcher can bind them so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from batchtrain import runtime
from tests import machines
from tests.machines import CPUs

HB = CPUs(packages=2, numa=2, cores=30)
H100 = CPUs(packages=2, cores=48, gpus=(0, 0, 0, 0, 1, 1, 1, 1))
A100 = CPUs(packages=2, numa=2, cores=24, gpus=(1, 1, 0, 0, 3, 3, 2, 2))


def share(tmp_path: Path, cpus: CPUs, ranks: int, **environment: str) -> str:
    script = tmp_path / "node.sh"
    script.write_text(machines.write(tmp_path / "machine", cpus).seen_by(runtime.read("node.sh").decode()))
    line = ["bash", str(script), "share", str(ranks)]
    variables = {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(line, env=variables, capture_output=True, text=True, check=False).stdout.strip()


@pytest.mark.parametrize(
    ("cpus", "ranks", "cores"),
    [
        (CPUs(cores=2), 2, "1"),
        (CPUs(cores=9), 4, "2"),
        (CPUs(cores=2, threads=2), 2, "1"),  # cores, not their threads
        (CPUs(cores=2, threads=2), 4, ""),  # a core cannot be divided
        (CPUs(cores=2), 3, ""),
        (CPUs(cores=8, allowed="2-3,6"), 3, "1"),
        (HB, 120, "1"),
        (HB, 4, "30"),
        (HB, 8, "15"),
        (HB, 3, ""),  # Open MPI 5 refuses a rank on two packages
        (HB, 1, ""),
        (CPUs(packages=2, cores=10), 6, "3"),  # three in each package
        (CPUs(packages=2, cores=5), 3, ""),  # one in each package, and no room for the third
        (CPUs(cores=8, has_packages=False), 2, ""),
    ],
)
def test_a_share_is_equal_and_in_one_package(cpus: CPUs, ranks: int, cores: str, tmp_path: Path) -> None:
    assert share(tmp_path, cpus, ranks) == cores


@pytest.mark.parametrize(
    ("cpus", "ranks", "cores"),
    [
        (H100, 8, "12"),
        (H100, 2, ""),  # both GPUs are at the first package
        (A100, 8, ""),  # the first GPUs are at the second NUMA node
        (A100._replace(gpus=(0, 0, 1, 1, 2, 2, 3, 3)), 8, "12"),
        (A100._replace(gpus=(-1,) * 8), 8, "12"),  # unknown: equal shares, as on a node without GPUs
        (A100, 16, "6"),  # ranks without a GPU of their own
    ],
)
def test_a_share_is_in_the_numa_node_of_the_ranks_gpu(cpus: CPUs, ranks: int, cores: str, tmp_path: Path) -> None:
    assert share(tmp_path, cpus, ranks) == cores


@pytest.mark.parametrize(("visible", "cores"), [("0,4", "48"), ("4,0", ""), ("GPU-1,GPU-2", "48")])
def test_the_gpus_of_the_ranks_are_those_that_they_see(visible: str, cores: str, tmp_path: Path) -> None:
    assert share(tmp_path, H100, 2, CUDA_VISIBLE_DEVICES=visible) == cores
