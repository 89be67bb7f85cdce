"""Jobs described in Python train on two emulated nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import mapped_images

from .test_frameworks import RECIPES

TRAIN = "python -u train.py --epochs ${{inputs.epochs}} --verify"
SCRIPT = """\
import batchtrain as bt

recipe = bt.command(
    command={command!r},
    inputs={{"epochs": 10}},
    code={source!r},
    environment={image!r},
    instance_count=2,
    distribution={distribution},
    display_name="described in Python",
)
bt.connect(local=True).run(recipe, tell=lambda event: print(event.text))
"""
DISTRIBUTIONS: Mapping[str, tuple[str, str, str]] = {
    "Mpi": ("mpi4py-MPICH", "example/mpich:digits", 'bt.Mpi(runtime="mpich", processes_per_node=2)'),
    "PyTorch": ("PyTorch-CPU", "example/pytorch:cpu", "bt.PyTorchDistribution(process_count_per_instance=2)"),
}
"""The recipe whose program is trained, its image, and the launch."""


def printed_by(batchtrain: Any, kind: str, environment: Path, tmp_path: Path, command: str = TRAIN) -> str:
    recipe, image, distribution = DISTRIBUTIONS[kind]
    mapped_images.map_image(batchtrain.home, image, environment)
    source = str(RECIPES / recipe / "src")
    script = SCRIPT.format(command=command, source=source, image=image, distribution=distribution)
    (tmp_path / "job.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=tmp_path,
        env=batchtrain.environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
@pytest.mark.mpi
@pytest.mark.slow
def test_a_described_mpi_job_trains_on_two_nodes(
    batchtrain: Any, mpi_environment: Callable[[str], Path], tmp_path: Path
) -> None:
    printed = printed_by(batchtrain, "Mpi", mpi_environment("mpich"), tmp_path)
    assert "ranks 4 hosts 2" in printed
    assert float(re.findall(r"test accuracy (\S+)$", printed, re.M)[0]) >= 0.9


@pytest.mark.process
@pytest.mark.mpi
def test_a_rank_of_an_mpi_finds_its_node_in_azure_mls_words(
    batchtrain: Any, mpi_environment: Callable[[str], Path], tmp_path: Path
) -> None:
    command = "sh -c 'echo node $AZUREML_CR_NODE_RANK of $AZ_BATCHAI_MPI_MASTER_NODE epochs $AZURE_ML_INPUT_epochs.'"
    printed = printed_by(batchtrain, "Mpi", mpi_environment("mpich"), tmp_path, command)
    found = re.findall(r"node (\d) of ([\d.]+) epochs 10\.$", printed, re.M)
    assert sorted(node for node, _ in found) == list("0011")
    assert len({primary for _, primary in found}) == 1


@pytest.mark.process
@pytest.mark.framework
def test_a_described_pytorch_job_trains_on_two_nodes(
    batchtrain: Any, framework_environment: Callable[[str], Path], tmp_path: Path
) -> None:
    printed = printed_by(batchtrain, "PyTorch", framework_environment("torch"), tmp_path)
    ends = re.findall(r"rank (\d) of 4 .*?accuracy (\S+) weights ([0-9a-f]{64})", printed)
    assert sorted(rank for rank, _, _ in ends) == list("0123")
    assert len({weights for _, _, weights in ends}) == 1
    assert min(float(accuracy) for _, accuracy, _ in ends) >= 0.9
