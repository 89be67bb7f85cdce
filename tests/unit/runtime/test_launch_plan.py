"""The node launcher's plan: which process runs where, with which rank; what cannot be is refused."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.runtime.launch.frameworks import load
from batchtrain.runtime.launch.placing import plan
from batchtrain.runtime.launch.spec import Gang, LaunchError
from tests.unit.runtime.gangs import WORKER, gang, nodes, spec

SERVERS = {"name": "ps", "total": 3, "placement": "spread", "command": "serve", "gpus": False}


def places(made: Gang) -> list[tuple[str, int]]:
    """(label, node) of every process."""
    return [(process.label, process.node.index) for process in made.processes]


def test_ranks_go_node_by_node_from_the_primary() -> None:
    made = gang(processes=[2, 2])
    assert places(made) == [("rank 0", 0), ("rank 1", 0), ("rank 2", 1), ("rank 3", 1)]
    assert [process.local_rank for process in made.processes] == [0, 1, 0, 1]


def test_nodes_may_have_different_numbers_of_ranks() -> None:
    assert places(gang(processes=[1, 3])) == [("rank 0", 0), ("rank 1", 1), ("rank 2", 1), ("rank 3", 1)]


def test_processes_in_all_are_spread_over_the_nodes() -> None:
    made = gang(processes=[1, 1], roles=[SERVERS, WORKER])
    assert places(made) == [("ps 0", 0), ("ps 1", 0), ("ps 2", 1), ("rank 0", 0), ("rank 1", 1)]


def test_a_role_of_the_primary_has_one_process_there() -> None:
    scheduler = {"name": "scheduler", "placement": "primary", "total": 1, "command": "lead", "gpus": False}
    assert places(gang(processes=[1, 1], roles=[scheduler, WORKER]))[0] == ("scheduler 0", 0)


def test_a_role_can_take_the_place_of_another() -> None:
    chief = {**WORKER, "name": "chief", "placement": "primary", "total": 1, "instead_of": "worker"}
    made = gang(processes=[2, 2], roles=[chief, WORKER])
    assert [(process.role.name, process.node.index) for process in made.processes] == [
        ("chief", 0), ("worker", 0), ("worker", 1), ("worker", 1),
    ]  # fmt: skip


def test_a_gang_that_nobody_decides_of_is_refused() -> None:
    with pytest.raises(LaunchError, match="no process decides"):
        gang(processes=[1], roles=[SERVERS])


def test_more_processes_than_gpus_are_refused_with_the_node() -> None:
    with pytest.raises(LaunchError, match=r"tvm-1 \(10\.0\.0\.4\): 3 processes are to share 2 GPUs"):
        gang(processes=[3], gpus=["0", "1"])


def test_more_processes_of_a_torchrun_than_gpus_are_refused() -> None:
    with pytest.raises(LaunchError, match="3 processes are to share 2 GPUs"):
        gang(processes=[3], gpus=["0", "1"], roles=[{**WORKER, "per_node": 1}], options={"launcher": "torchrun"})


def test_a_node_without_infiniband_is_refused_where_it_is_asked_for_but_not_an_emulated_one() -> None:
    with pytest.raises(LaunchError, match=r"tvm-1 \(10\.0\.0\.4\): InfiniBand is asked for.*no active port"):
        gang(processes=[1], rdma=True)
    assert gang(processes=[1], rdma=True, facts={"emulated": True}).processes


def test_processes_that_use_no_gpu_may_be_more_than_there_are() -> None:
    assert len(gang(processes=[3], gpus=["0"], roles=[{**WORKER, "gpus": False}]).processes) == 3


def test_every_process_has_a_port_of_its_own_node_and_the_gang_one_of_the_primary() -> None:
    made = gang(processes=[2, 1])
    assert (made.port, [process.port for process in made.processes]) == (20000, [20001, 20002, 20100])


def test_a_port_that_a_person_gave_is_where_all_meet() -> None:
    assert gang(processes=[1], options={"port": 29500}).port == 29500


def test_a_node_without_enough_free_ports_is_refused() -> None:
    few = nodes([1])
    few[0].ports = [20000]
    with pytest.raises(LaunchError, match="too few free ports"):
        plan(spec(1), few, load("pytorch"))


@pytest.mark.parametrize(
    ("change", "said"),
    [({"version": 2}, "has version 2"), ({"framework": "caffe"}, "framework `caffe` is unknown to this launcher")],
)
def test_a_specification_that_is_not_ours_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        gang([1], **change)
