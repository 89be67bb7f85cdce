"""Programs under the launcher of another MPI: each rank is alone in the world of its own library."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.launchers.launch import File
from tests import needs
from tests.contract.gang_of_nodes import Gang, Outcome, gang_of
from tests.contract.test_first_failure import diagnosed
from tests.contract.test_mpi_launch import RUNTIMES, VARIABLES
from tests.launching import launched

pytestmark = [pytest.mark.mpi, pytest.mark.process, pytest.mark.slow]

Environments = Callable[[str], Path]
LIBRARIES = {"mpich": "MPICH", "impi-rt": "Intel(R) MPI"}
SEES = "from mpi4py import MPI; print(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, flush=True)"
PROGRAMS = {
    "short": SEES,
    "long": f"{SEES}; import time; time.sleep(100000)",
    "that needs the others": f"""{SEES}
import os, sys, time
open(f"{{sys.argv[1]}}/{{os.environ['PMI_RANK']}}", "w").close()
while len(os.listdir(sys.argv[1])) < 4: time.sleep(0.05)  # the first that fails ends those that have not begun
assert MPI.COMM_WORLD.size == 4
""",
}
HALF = f"import os, time\nif int(os.environ['PMI_RANK']) % 2: {SEES}\ntime.sleep(3)"
HELPER = f"""import subprocess, sys, time; {SEES}
time.sleep(3.5)
subprocess.run([sys.argv[1], "-c", "from mpi4py import MPI; import time; time.sleep(2)"], check=True)
"""
C = "#include <mpi.h>\nint main() { MPI_Init(0, 0); MPI_Finalize(); return 0; }\n"


def run(
    tmp_path: Path,
    environments: Environments,
    launcher: str,
    library: str,
    program: str | bytes,
    *words: str,
    **options: Any,
) -> tuple[Outcome, str]:
    """The outcome of a program with a library, and the records of the ends. program: Python, or an executable file."""
    command = '"$AZ_BATCH_TASK_SHARED_DIR/program" ' + " ".join(words)
    if isinstance(program, str):
        program, command = program.encode(), f"{environments(library)}/bin/python -W ignore {command}"
    with gang_of(tmp_path / "nodes", environments(launcher)) as gang:
        launch = launched("mpi", command, runtime=RUNTIMES[launcher], processes_per_node=2, **options)
        launch = launch._replace(files=(*launch.files, File("program", program, 0o755)))
        values = variables(environments, launcher, library)
        if library != "impi-rt":  # the program would load the launcher's library
            values.pop("LD_LIBRARY_PATH", None)
        outcome = gang.launch(launch, values)
        assert gang.left() == []
        return outcome, ends(gang)


def ends(gang: Gang) -> str:
    try:
        return gang.read(0, "wd/ranks/ends.jsonl")
    except FileNotFoundError:
        return ""


def variables(environments: Environments, *names: str) -> dict[str, str]:
    return {key: value.format(environments(name)) for name in names for key, value in VARIABLES[name].items()}


@pytest.mark.parametrize(("launcher", "program"), [*(("mpich", program) for program in PROGRAMS), ("impi-rt", "long")])
def test_a_gang_whose_ranks_are_alone_ends_with_both_mpis_as_its_cause(
    launcher: str, program: str, tmp_path: Path, mpi_environment: Environments
) -> None:
    (begun := tmp_path / "begun").mkdir()
    outcome, records = run(tmp_path, mpi_environment, launcher, "openmpi", PROGRAMS[program], str(begun))
    finding = diagnosed(outcome, records)
    words = f"the program uses Open MPI, and mpirun is the launcher of {LIBRARIES[launcher]}"
    assert (outcome.code, finding.rule) == (1, "mpi-mismatch"), outcome.stderr
    assert finding.cause == f"each of the 4 ranks is rank 0 of 1: {words}"


def test_a_program_of_intel_mpi_under_open_mpi_is_found_when_it_ends(
    tmp_path: Path, mpi_environment: Environments
) -> None:
    finding = diagnosed(*run(tmp_path, mpi_environment, "openmpi", "impi-rt", SEES))
    assert finding.cause.endswith("the program uses Intel(R) MPI, and mpirun is the launcher of Open MPI")


def test_a_program_of_mpich_under_open_mpi_has_both_as_its_cause(tmp_path: Path, mpi_environment: Environments) -> None:
    finding = diagnosed(*run(tmp_path, mpi_environment, "openmpi", "mpich", SEES))
    assert finding.cause == "the program uses MPICH, and the launcher of Open MPI started it"


def test_a_compiled_program_is_found_too(tmp_path: Path, mpi_environment: Environments) -> None:
    needs.program("gcc")
    (tmp_path / "program.c").write_text(C)
    prefix, target = mpi_environment("openmpi"), tmp_path / "program"
    building = {"OPAL_PREFIX": str(prefix), "PATH": f"{prefix}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(
        ["mpicc", "-o", target, tmp_path / "program.c", f"-Wl,-rpath,{prefix}/lib"], env=building, check=True
    )
    finding = diagnosed(*run(tmp_path, mpi_environment, "mpich", "openmpi", target.read_bytes()))
    assert "the program uses Open MPI" in finding.cause


@pytest.mark.parametrize(
    ("library", "program", "options"),
    [("openmpi", HALF, {}), ("openmpi", SEES, {"allow_singletons": True}), ("mpich", HELPER, {})],
    ids=["some of the ranks", "allowed", "a helper of each rank"],
)
def test_other_worlds_of_one_are_left_alone(
    library: str, program: str, options: dict[str, Any], tmp_path: Path, mpi_environment: Environments
) -> None:
    helper = str(mpi_environment("openmpi") / "bin/python")
    outcome, records = run(tmp_path, mpi_environment, "mpich", library, program, helper, **options)
    assert (outcome.code, records) == (0, ""), outcome.stderr
