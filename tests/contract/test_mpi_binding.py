"""The real MPIs bind the ranks of a launch on this machine, which is no emulated node."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from batchtrain.frameworks.base import Shape
from batchtrain.launchers.launch import Launch
from tests import examples, machines
from tests.contract.test_mpi_launch import RUNTIMES, VARIABLES
from tests.launching import launched
from tests.machines import CPUs

pytestmark = [pytest.mark.mpi, pytest.mark.process]

Environments = Callable[[str], Path]
CORES = len(os.sched_getaffinity(0))
PROGRAM = 'python -c "import os; print(*sorted(os.sched_getaffinity(0)), flush=True)"'


def launch(name: str, ranks: int | None, *options: str, command: str = PROGRAM) -> Launch:
    return launched(
        "mpi", command, Shape(1), runtime=RUNTIMES[name], processes_per_node=ranks, preflight=False, options=options,
        misses_mpi4py=False,
    )  # fmt: skip


def run(folder: Path, prefix: Path, name: str, made: Launch, cpus: CPUs | None = None, **variables: str) -> str:
    """What a launch prints on one node: this machine, or for node.sh one with other processors."""
    machine = machines.write(folder / "machine", cpus) if cpus else None
    for file in made.files:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(machine.seen_by(file.data.decode()) if machine else file.data.decode())
        path.chmod(file.mode)
    (folder / "wd").mkdir(exist_ok=True)
    environment = {
        "PATH": f"{prefix}/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "AZ_BATCH_NODE_ID": "tvm-0",
        "AZ_BATCH_TASK_SHARED_DIR": str(folder),
        "AZ_BATCH_TASK_WORKING_DIR": str(folder / "wd"),
        "AZ_BATCH_HOST_LIST": "127.0.0.1",
        "AZ_BATCH_MASTER_NODE": "127.0.0.1:6000",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **{variable: value.format(prefix) for variable, value in VARIABLES[name].items()},
        **variables,
    }
    line = ["bash", "-c", made.application]
    done = subprocess.run(line, cwd=folder / "wd", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", examples.first(RUNTIMES))
def test_a_single_rank_of_a_node_has_all_cores(name: str, tmp_path: Path, mpi_environment: Environments) -> None:
    printed = run(tmp_path, mpi_environment(name), name, launch(name, 1))
    assert len(printed.split()) == CORES


@pytest.mark.skipif(CORES < 2, reason="needs two cores")
@pytest.mark.parametrize("name", examples.first(RUNTIMES))
def test_the_ranks_of_a_node_have_cores_of_their_own(name: str, tmp_path: Path, mpi_environment: Environments) -> None:
    lines = run(tmp_path, mpi_environment(name), name, launch(name, 2)).splitlines()
    first, second = ({*line.split()} for line in lines)
    assert not first & second
    assert len(first) == len(second) == CORES // 2


NUMA = CPUs(packages=2, numa=2, cores=6)
HWLOC = {"HWLOC_SYNTHETIC": "pack:2 numa:2 core:6 pu:1"}
PRINTED = {
    "mpich": ((), r"binding: (0*)(1+)0*$", {"HYDRA_TOPO_DEBUG": "1"}),
    "openmpi": (("--display map", "--do-not-launch"), r"Binding: package\[\d\]\[core:L(\d+)-(\d+)\]", {}),
}


@pytest.mark.parametrize("name", examples.first(PRINTED))
def test_four_ranks_have_a_quarter_of_another_machines_cores_by_the_mpis_own_map(
    name: str, tmp_path: Path, mpi_environment: Environments
) -> None:
    options, pattern, variables = PRINTED[name]
    made = launch(name, 4, *options)
    printed = run(tmp_path, mpi_environment(name), name, made, NUMA, **HWLOC, **variables)
    found = re.findall(pattern, printed, flags=re.MULTILINE)
    spans = sorted(
        (int(first), int(last)) if name == "openmpi" else (len(first), len(first) + len(last) - 1)
        for first, last in found
    )
    assert spans == [(0, 5), (6, 11), (12, 17), (18, 23)]
