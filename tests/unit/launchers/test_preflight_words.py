"""What the plan expects of a gang's nodes, and when NCCL is told to note its network."""

from __future__ import annotations

import re
from typing import Any

import pytest

from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.launchers import node_launcher, variables
from batchtrain.launchers.launch import Launch
from tests.launching import launched, spec

CPU = Shape(2)
HB = Shape(2, Fabric.SR_IOV, size="Standard_HB120rs_v3", family="HBv3", hcas=1, port_gbps=200)
GPUS = Shape(2, Fabric.SR_IOV, gpus=8, gpu_vendor="nvidia")
A100 = GPUS._replace(size="Standard_ND96asr_v4", family="ND A100 v4", hcas=8, port_gbps=200)
ON_A100 = "gpus=8 vendor=nvidia size=Standard_ND96asr_v4"


def by_nodes(shape: Shape, **more: Any) -> str:
    """The words of gang.json."""
    launch = launched("pytorch", "python t.py", shape, **more)
    return " ".join(spec(launch)["preflight"])


def by_mpi(shape: Shape, **more: Any) -> str:
    """The words in the launch text."""
    text = launched("mpi", "python t.py", shape, **{"runtime": "openmpi", **more}).application
    [line] = [line for line in text.splitlines() if line.startswith("bt_wait_for_hosts")]
    return line.removeprefix("bt_wait_for_hosts").strip()


@pytest.mark.parametrize(
    ("shape", "more", "by_a_framework", "by_an_mpi"),
    [
        (CPU, {}, *("processes=1 port=22",) * 2),
        (CPU, {"processes_per_node": 6}, *("processes=6 port=22",) * 2),
        (CPU, {"processes_per_node": "nproc"}, *("processes=1 port=22",) * 2),
        (CPU._replace(instances=1), {}, *("processes=1",) * 2),
        (HB, {}, "processes=1 port=22", "processes=1 infiniband=1 rate=200 memlock=1 port=22"),
        (
            A100._replace(family="ND GB300 v6", gpus=4, hcas=4), {},
            f"processes=4 {ON_A100.replace('8', '4', 1)} imex=0 infiniband=4 rate=200 memlock=1 port=22",
            f"processes=4 {ON_A100.replace('8', '4', 1)} imex=\"${{NCCL_MNNVL_ENABLE-1}}\" infiniband=4 rate=200"
            " memlock=1 port=22",
        ),
        (A100, {}, *(f"processes=8 {ON_A100} infiniband=8 rate=200 memlock=1 port=22",) * 2),
        (A100._replace(hcas=0, port_gbps=0), {}, *(f"processes=8 {ON_A100} infiniband=1 memlock=1 port=22",) * 2),
        (A100._replace(fabric=Fabric.ETHERNET), {}, *(f"processes=8 {ON_A100} port=22",) * 2),
    ],
)  # fmt: skip
def test_nodes_are_expected_to_have_what_the_task_uses(
    shape: Shape, more: dict[str, Any], by_a_framework: str, by_an_mpi: str
) -> None:
    assert (by_nodes(shape, **more), by_mpi(shape, **more)) == (by_a_framework, by_an_mpi)


@pytest.mark.parametrize("words", [by_nodes, by_mpi])
def test_a_container_is_knocked_at_where_its_ssh_server_is_known_to_be(words: Any) -> None:
    assert "port=23" in words(CPU._replace(container=True))
    assert "port" not in words(CPU._replace(container=True), coordination_command="my-sshd -p 2222")


@pytest.mark.parametrize("words", [by_nodes, by_mpi])
def test_without_preflight_nothing_is_expected(words: Any) -> None:
    assert words(A100, preflight=False) == ""


def test_horovod_over_an_mpi_may_leave_it_out_too() -> None:
    launch = launched("horovod", "python t.py", CPU, preflight=False, over="mpi")
    assert "preflight" not in [item.what for item in launch.implicit]


# --- NCCL's notes ---------------------------------------------------------------------------------------------------


def notes(launch: Launch) -> bool:
    """Whether all that belongs to it is there; some of it alone would be a fault."""
    rules = {item.rule for item in launch.implicit}
    told = launch.application + "".join(file.data.decode() for file in launch.files if file.name == node_launcher.SPEC)
    parts = {
        "nccl-transport" in rules,
        ".batchtrain/verdict.py" in [file.name for file in launch.files],
        re.search(r'NCCL_DEBUG_FILE(": "|=)', told) is not None,
    }
    assert len(parts) == 1, parts
    return parts.pop()


def of_nodes(shape: Shape = A100, command: str = "python t.py", **more: Any) -> bool:
    return notes(launched("pytorch", command, shape, **more))


def of_mpi(shape: Shape = A100, command: str = "python t.py", **more: Any) -> bool:
    return notes(launched("mpi", command, shape, runtime="openmpi", **more))


@pytest.mark.parametrize("of", [of_nodes, of_mpi])
def test_nccl_notes_its_network_where_gpus_meet_infiniband_and_nowhere_else(of: Any) -> None:
    assert of()
    assert not of(HB)
    assert not of(A100._replace(fabric=Fabric.ETHERNET))


@pytest.mark.parametrize("of", [of_nodes, of_mpi])
@pytest.mark.parametrize(
    "said",
    [
        *({"own": frozenset((name,))} for name in variables.NOTES),
        {"pre_execution_command": "export NCCL_DEBUG=INFO"},
        {"command": "env NCCL_DEBUG=TRACE python t.py"},
    ],
)
def test_a_persons_own_word_on_nccls_output_is_not_sent_into_a_file(said: dict[str, Any], of: Any) -> None:
    assert not of(**said)


def test_that_word_may_stand_in_the_mpis_options() -> None:
    assert not of_mpi(options=("-x NCCL_DEBUG=INFO",))


@pytest.mark.parametrize("name", variables.NOTES)
def test_a_variable_in_leave_unset_leaves_it_out(name: str) -> None:
    assert not of_nodes(leave_unset=(name,))


def test_mxnet_whose_workers_do_not_talk_by_nccl_between_nodes_notes_nothing() -> None:
    assert not notes(launched("mxnet", "python t.py", A100))


def test_nccls_warnings_stay_in_the_output_where_no_port_is_active() -> None:
    made = spec(launched("pytorch", "python t.py", A100))
    assert made["environment"]["NCCL_DEBUG"] == "WARN"
    assert made["rdma_environment"]["NCCL_DEBUG"] == "INFO"
