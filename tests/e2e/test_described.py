"""Jobs described in Python train on two emulated nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import mapped_images

from .test_frameworks import RECIPES

IMAGE = "example/mpich:digits"
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
MPI = 'bt.Mpi(runtime="mpich", processes_per_node=2)'
PYTORCH = "bt.PyTorchDistribution(process_count_per_instance=2)"


def printed_by(batchtrain: Any, environment: Path, tmp_path: Path, command: str = TRAIN, launch: str = MPI) -> str:
    mapped_images.map_image(batchtrain.home, IMAGE, environment)
    source = str(RECIPES / "mpi4py-MPICH" / "src")
    script = SCRIPT.format(command=command, source=source, image=IMAGE, distribution=launch)
    (tmp_path / "job.py").write_text(script, encoding="utf-8")
    done = batchtrain.python("job.py")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
@pytest.mark.mpi
@pytest.mark.slow
def test_a_described_mpi_job_trains_on_two_nodes(
    batchtrain: Any, mpi_environment: Callable[[str], Path], tmp_path: Path
) -> None:
    printed = printed_by(batchtrain, mpi_environment("mpich"), tmp_path)
    assert "ranks 4 hosts 2" in printed
    assert float(re.findall(r"test accuracy (\S+)$", printed, re.M)[0]) >= 0.9


@pytest.mark.process
@pytest.mark.mpi
def test_a_rank_of_an_mpi_finds_its_node_in_azure_mls_words(
    batchtrain: Any, mpi_environment: Callable[[str], Path], tmp_path: Path
) -> None:
    command = "sh -c 'echo node $AZUREML_CR_NODE_RANK of $AZ_BATCHAI_MPI_MASTER_NODE epochs $AZURE_ML_INPUT_epochs.'"
    printed = printed_by(batchtrain, mpi_environment("mpich"), tmp_path, command)
    found = re.findall(r"node (\d) of ([\d.]+) epochs 10\.$", printed, re.M)
    assert sorted(node for node, _ in found) == list("0011")
    assert len({primary for _, primary in found}) == 1


@pytest.mark.process
@pytest.mark.mpi
def test_the_processes_of_a_described_pytorch_job_meet_on_two_nodes(
    batchtrain: Any, mpi_environment: Callable[[str], Path], tmp_path: Path
) -> None:
    command = "sh -c 'echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK at $MASTER_ADDR epochs $AZURE_ML_INPUT_epochs.'"
    printed = printed_by(batchtrain, mpi_environment("mpich"), tmp_path, command, PYTORCH)
    found = re.findall(r"rank (\d of 4, \d) at ([\d.]+) epochs 10\.$", printed, re.M)
    assert sorted(rank for rank, _ in found) == ["0 of 4, 0", "1 of 4, 1", "2 of 4, 0", "3 of 4, 1"]
    assert len({primary for _, primary in found}) == 1
