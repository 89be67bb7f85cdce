"""What an MPI launch sets by itself is told as a decision: each flag on its line, each variable it gives."""

from __future__ import annotations

import itertools
import re

import pytest

from batchtrain import runtime
from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.frameworks.mpi import MPIS, MpiBlock
from batchtrain.launchers import mpi
from batchtrain.launchers.launch import Launch
from batchtrain.launchers.rules import RULES
from tests.launching import launched

FUNCTIONS = {
    name: body
    for body, name in re.findall(r"^((bt_\w+)\(\) .*?\n\})", runtime.read("gang.sh").decode(), re.DOTALL | re.MULTILINE)
}
"""The functions of gang.sh."""
OURS = re.compile(r"BATCHTRAIN_\w+|bt_\w+")
FLAG = r"(?<![\w-])--?[A-Za-z][\w-]*"
ROWS = list(itertools.product(MPIS, Fabric, (False, True)))


def launch(runtime: str, fabric: Fabric, *, container: bool) -> Launch:
    return launched("mpi", "python train.py", Shape(2, fabric, container), runtime=runtime, processes_per_node=2)


def functions(text: str) -> str:
    """The text of those functions of gang.sh that a launch calls."""
    called = {*re.findall(r"\bbt_\w+", text)}
    return "\n".join(body for name, body in FUNCTIONS.items() if name in called)


def flags(made: Launch) -> set[str]:
    """Flags on the launcher's line, and of the arrays that gang.sh fills for it."""
    whole = made.application
    line = whole.split("\n{\n", 1)[1].split("\n}", 1)[0]
    before = line.split(mpi.RANK)[0]
    found = set(re.findall(FLAG, before))
    for array in re.findall(r"\$\{(bt_\w+)\[@\]\}", line):
        for filled in re.findall(rf"{array}\+?=\((.*?)\)", whole + functions(whole)):
            found |= set(re.findall(FLAG, filled))
    return found


def variables(made: Launch) -> set[str]:
    """Names that the launch, or what it calls, exports."""
    whole = made.application
    lines = [line for line in whole.splitlines() if re.search(r"\b(export|bt_default) ", line)]
    lines += re.findall(r"^ *export .*$", functions(whole), re.MULTILINE)
    names = {name for line in lines for name in re.findall(r"(?<![\w$-])([A-Z][A-Za-z0-9_]+)=", line)}
    return {name for name in names if not OURS.fullmatch(name)}


@pytest.mark.parametrize(("runtime", "fabric", "container"), ROWS)
def test_each_flag_and_variable_of_a_launch_is_told(runtime: str, fabric: Fabric, container: bool) -> None:
    made = launch(runtime, fabric, container=container)
    told = " ".join(f"{one.what} {one.value}" for one in made.implicit)
    named = set(re.findall(FLAG, told)) | set(re.findall(r"\w+", told))
    assert flags(made) | variables(made) <= named


def test_the_search_for_flags_and_variables_finds_them() -> None:
    made = launch("openmpi", Fabric.SR_IOV, container=True)
    assert flags(made) >= {"--oversubscribe", "-host", "-np", "--map-by", "--allow-run-as-root", "--prefix", "-x",
                           "--mca", "-m"}  # fmt: skip
    assert variables(made) == {
        "OMPI_MCA_plm_rsh_no_tree_spawn", "PRTE_MCA_plm_ssh_no_tree_spawn", "UCX_NET_DEVICES", "UCX_IB_PKEY", "PATH",
        "AZ_BATCH_HOST_LIST",
    }  # fmt: skip
    assert variables(launch("mpich", Fabric.ETHERNET, container=False)) >= {"MPIR_CVAR_COREDUMP_ON_ABORT"}


def test_each_decision_of_a_launch_has_a_rule() -> None:
    made = [launch(name, fabric, container=container) for name, fabric, container in ROWS]
    assert {one.rule for each in made for one in each.implicit} <= set(RULES)


def test_what_a_person_says_is_no_decision() -> None:
    options = ("--allow-run-as-root", "--prefix /opt/mpi", "-np 4 -host a,b")
    made = launched("mpi", "x", Shape(2, container=True), runtime="openmpi", options=options)
    whats = {one.what for one in made.implicit}
    assert not whats & {"--allow-run-as-root", "--prefix", "--oversubscribe", "openmpi ranks"}
    own = launched("mpi", "x", Shape(2), runtime="mpich", own=frozenset({"MPIR_CVAR_COREDUMP_ON_ABORT"}))
    assert "MPIR_CVAR_COREDUMP_ON_ABORT" not in {one.what for one in own.implicit}


@pytest.mark.parametrize("runtime", MPIS)
@pytest.mark.parametrize(("binding", "shared"), [("auto", True), ("none", False)])
def test_horovods_processes_have_their_share_of_the_cores_unless_its_block_says_none(
    binding: str, shared: bool, runtime: str
) -> None:
    made = launched("horovod", "x", Shape(2), over="mpi", runtime=runtime, binding=binding)
    assert ("bt_share_cores" in made.application) is shared
    told = [item.value for item in made.implicit if item.rule == "mpi-binding"]
    binds_by_itself = MPIS[runtime].unbound or MPIS[runtime].own_binding
    assert told or not (shared or binds_by_itself)


@pytest.mark.parametrize("runtime", MPIS)
def test_the_default_launcher_is_one_of_each_mpi(runtime: str) -> None:
    assert MpiBlock(runtime=runtime).executable_path in MPIS[runtime].launchers
