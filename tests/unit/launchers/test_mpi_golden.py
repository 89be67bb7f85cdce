"""The texts of every dialect, as files to read. BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from batchtrain import runtime as files
from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.frameworks.mpi import MPIS
from batchtrain.launchers.steps import RANK
from tests.launching import launched

GOLDEN = Path(__file__).parents[2] / "golden" / "mpi"
COMMAND = "python -u train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output"
RANKS = {"integer": 4, "command": "nvidia-smi -L | wc -l", "absent": None}


def text(runtime: str, fabric: Fabric, ranks: str, *, container: bool) -> str:
    """The application text of one row of the table."""
    options = {
        "runtime": runtime,
        "options": ("-verbose",),
        "processes_per_node": RANKS[ranks],
        "pre_execution_command": "source /opt/activate; source /opt/mpivars.sh",
    }
    return launched("mpi", COMMAND, Shape(2, fabric, container), **options).application


def compare(path: Path, now: str) -> None:
    """The file must hold this text; with the variable set it is made to."""
    if os.environ.get("BATCHTRAIN_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(now)
    assert path.read_text() == now


@pytest.mark.parametrize("fabric", Fabric, ids=lambda fabric: fabric.value)
@pytest.mark.parametrize("runtime", MPIS)
def test_the_whole_text_is_as_it_was_read_last(runtime: str, fabric: Fabric) -> None:
    compare(GOLDEN / f"{runtime}.{fabric.value}.sh", text(runtime, fabric, "command", container=True))


def test_what_rank_sh_reads_of_every_mpi_is_as_it_was_read_last() -> None:
    own = files.read("rank.sh").decode().splitlines()
    compare(GOLDEN / "rank.sh", "\n".join([line for line in RANK.data.decode().splitlines() if line not in own] + [""]))


def test_every_row_of_the_table_is_as_it_was_read_last() -> None:
    rows = []
    for runtime, fabric, ranks, container in itertools.product(MPIS, Fabric, RANKS, (False, True)):
        whole = text(runtime, fabric, ranks, container=container)
        place = "native container" if container else "no container"
        rows.append(f"#### {runtime}, {fabric.value}, processes_per_node {ranks}, {place}\n{varying(whole)}")
    compare(GOLDEN / "table.sh", "\n".join(rows))


def varying(whole: str) -> str:
    """What differs from row to row within a dialect: how ranks are counted, ssh's port, and the line."""
    before, line = whole.split("\n{\n")
    steps = ("processes_per_node=", "bt_check_ranks", "bt_say 'processes_per_node", "bt_use_ssh")
    lines = [step for step in before.splitlines() if step.startswith(steps)]
    return "\n".join([*lines, line.split("\n}")[0], ""])
