"""One rule of an MPI launch each."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchtrain import runtime
from batchtrain.errors import PlanError
from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.frameworks.mpi import MPIS
from batchtrain.launchers import steps
from batchtrain.launchers.launch import Implicit, Launch
from tests import modules
from tests.launching import launched

TWO = Shape(2)


def launch(runtime: str = "intelmpi", command: str = "./solve", shape: Shape = TWO, **options: object) -> Launch:
    return launched("mpi", command, shape, runtime=runtime, **options)


def test_a_quoted_number_is_the_number() -> None:
    assert launch(processes_per_node="2") == launch(processes_per_node=2)


@pytest.mark.parametrize("wanted", [0, "0", -1, "", "  "])
def test_a_number_of_ranks_below_one_is_refused_while_planning(wanted: int | str) -> None:
    with pytest.raises(PlanError, match="processes_per_node"):
        launch(processes_per_node=wanted)


def test_a_runtime_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(PlanError, match=", ".join(MPIS)):
        launch("msmpi")


def test_absent_ranks_are_one_each_and_said() -> None:
    made = launch()
    assert "bt_say 'processes_per_node is not set: 1 rank on each node'" in made.application
    assert "-np 2 -perhost 1" in made.application
    assert Implicit("processes_per_node", "1", "not set", "processes-per-node") in made.implicit


@pytest.mark.parametrize("options", ["-np 6", "-n 6", "--np 6", "-hosts a,b -np $np", "-c 6"])
def test_options_that_place_the_ranks_themselves_are_left_alone(options: str) -> None:
    text = launch(options=(options,)).application
    assert "-perhost" not in text
    assert "AZ_BATCH_HOST_LIST" not in text


@pytest.mark.parametrize("options", ["-nolocal", "--mca np_x 1", "-ncores", "-genv n=1"])
def test_other_options_do_not_place_the_ranks(options: str) -> None:
    assert "-perhost 1" in launch(options=(options,)).application


@pytest.mark.parametrize(
    ("mpi", "options"),
    [
        ("intelmpi", "-genv I_MPI_PIN_DOMAIN=core"),
        ("mpich", "-bind-to core"),
        ("mvapich", "-genv MV2_CPU_MAPPING=0:1"),
        ("mvapich", "-genv MV2_ENABLE_AFFINITY=1"),
        ("openmpi", "--bind-to core"),
        ("openmpi", "--cpu-set 0,1"),
        ("openmpi", "--map-by node"),
        ("openmpi", "--rankfile ranks"),
    ],
)
def test_ranks_that_options_bind_are_bound_by_nothing_else(mpi: str, options: str) -> None:
    assert [
        "mpi-binding" in {item.rule for item in launch(mpi, processes_per_node=2, options=said).implicit}
        for said in ((), (options,))
    ] == [True, False]


def test_an_explicit_fabric_parameter_of_open_mpi_wins() -> None:
    text = launch("openmpi", options=("--mca btl_tcp_if_include ib0",)).application
    assert "btl_tcp_if_include eth0" not in text
    text = launch("openmpi", shape=Shape(2, Fabric.SR_IOV), options=("--mca btl_tcp_if_exclude docker0",)).application
    assert "--mca btl_tcp_if_include lo" not in text
    own = frozenset({"OMPI_MCA_pml", "OMPI_MCA_btl_tcp_if_include"})
    assert "pml ucx" not in launch("openmpi", shape=Shape(2, Fabric.SR_IOV), own=own).application
    assert "btl_tcp_if_include eth0" not in launch("openmpi", own=own).application


def test_nproc_counts_cores_whatever_the_threads_of_a_rank_are() -> None:
    text = launch("openmpi", processes_per_node="nproc").application
    assert "processes_per_node=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" in text
    assert "processes_per_node=$(echo $(($(nproc) / 2)))" in launch(
        "openmpi", processes_per_node="echo $(($(nproc) / 2))"
    ).application  # fmt: skip


@pytest.mark.parametrize(
    "said", ["/usr/sbin/sshd -p 23", " /usr/sbin/sshd  -p 23\n", "/usr/sbin/sshd -D -p 23", "/usr/sbin/sshd -p 23 &"]
)
def test_batch_shipyards_own_line_is_the_default(said: str) -> None:
    shape = Shape(2, container=True)
    written, default = launch(shape=shape, coordination_command=said), launch(shape=shape)
    assert written._replace(implicit=()) == default._replace(implicit=())
    assert any(f"it replaces `{said}`" in item.because for item in written.implicit) == ("-D" in said)


def test_the_payload_is_kept_to_the_letter() -> None:
    command = "/bin/bash -c 'echo \"$A\" && exec ./run --out $AZ_BATCH_TASK_WORKING_DIR/o' > log 2>&1"
    assert f"  {command}\n" in launch(command=command).application


def test_the_files_lie_below_batchtrain_and_are_the_runtimes() -> None:
    names = ("gang.sh", "node.sh", "lines.sh", "lines.awk", "sweep.sh", "preflight.sh")
    renamed = {"python/sitecustomize.py": "registered_stacks.py", "bin/ssh": "ssh.sh"}
    contents = {name: runtime.read(renamed.get(name, name)) for name in (*names, *renamed)}
    files = {file.name.removeprefix(".batchtrain/"): file.data for file in launch().files}
    assert files == {**contents, "rank.sh": steps.RANK.data}


def test_rank_sh_reads_the_number_of_every_mpis_ranks() -> None:
    [line] = [line for line in steps.RANK.data.decode().splitlines() if line.startswith("rank=")]
    for name in (name for mpi in MPIS.values() for name in mpi.rank):
        done = subprocess.run(["sh", "-c", f"{line}; echo $rank"], env={name: "3"}, capture_output=True, check=True)
        assert done.stdout == b"3\n", name


def _compared(path: Path) -> Iterator[str]:
    """The texts that a module compares something with: `x == "a"`, `x in ("a", "b")`, `x.startswith("a")`."""
    for node in modules.nodes(path):
        parts: list[ast.expr] = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
            parts = node.args
        for item in (item for part in parts for item in ast.walk(part)):
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                yield item.value


NAMED = re.compile("|".join(f"[\"']{name}[\"']" for name in MPIS))
"""An MPI in a text of its own. Most files have none, and parsing takes a hundred times as long."""


def test_no_module_decides_by_the_name_of_an_mpi() -> None:
    """But one, a rule about the deprecated intelmpi-ofa; `containers` has packages with such names."""
    deciding = {
        path.name
        for path in modules.files()
        if path.parent.name != "containers" and NAMED.search(path.read_text(encoding="utf-8"))
        for text in _compared(path)
        if text in MPIS
    }
    assert deciding == {"older.py"}
