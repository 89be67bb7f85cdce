"""What the launches of the frameworks decide: processes, roles, variables, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.catalog.sizes import SIZES
from batchtrain.errors import PlanError
from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.frameworks.mxnet import Rendezvous, rendezvous
from batchtrain.launchers import steps, variables
from tests.launching import launched, spec

TWO = Shape(2)
A100 = Shape(2, Fabric.SR_IOV, size="Standard_ND96asr_v4", family="ND A100 v4", gpus=8, gpu_vendor="nvidia")
BENCH = "python tf_cnn_benchmarks.py"
COLLECTIVE = f"{BENCH} --variable_update=collective_all_reduce"


def torch(shape: Shape = TWO, command: str = "python t.py", **more: Any) -> Any:
    return spec(launched("pytorch", command, shape, **more))


def roles(options: dict[str, Any], command: str = "python t.py", shape: Shape = TWO) -> dict[str, Any]:
    return {role["name"]: role for role in spec(launched("tensorflow", command, shape, **options))["roles"]}


# --- processes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "each"), [(None, "auto"), ("auto", "auto"), ("2", 2), (3, 3), ("nproc", "nproc")])
def test_processes_a_node_are_a_number_auto_or_a_command(given: Any, each: Any) -> None:
    assert torch(processes_per_node=given)["processes_per_node"] == each


def test_processes_of_all_nodes_are_shared_evenly() -> None:
    assert torch(processes=6)["processes_per_node"] == 3


@pytest.mark.parametrize(
    ("more", "says"), [({"processes_per_node": 0}, "at least 1"), ({"processes_per_node": " "}, "is empty")]
)
def test_numbers_that_cannot_be_are_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        torch(**more)


# --- variables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["own", "leave_unset"])
def test_a_variable_is_left_alone_by_name(way: str) -> None:
    names = ("NCCL_DEBUG", "NCCL_TOPO_FILE")
    options = {"own": frozenset(names)} if way == "own" else {"leave_unset": names}
    launch = launched("pytorch", "x", A100, **options)
    told = {**spec(launch)["environment"], **spec(launch)["rdma_environment"]}
    assert not {*names} & {*told, *(item.what for item in launch.implicit)}
    assert "NCCL_SOCKET_IFNAME" in told


def test_every_family_with_settings_is_one_of_the_catalogue() -> None:
    known = {size.family for size in SIZES if size.gpu_vendor == "nvidia"}
    assert {*variables.TOPOLOGIES, *variables.RELAXED_ORDERING, *variables.MULTI_NODE_NVLINK} <= known


# --- PyTorch --------------------------------------------------------------------------------------------------------


def test_torchrun_is_started_once_a_node_by_the_commands_own_python() -> None:
    made = launched("pytorch", "/opt/py/bin/python -u t.py $HOME", TWO, port=29511, launcher="torchrun")
    [role] = spec(made)["roles"]
    assert (role["name"], role["per_node"], role["ranked"]) == ("torchrun", 1, False)
    script = '"$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/torchrun.py"'
    assert f" /opt/py/bin/python {script} $BATCHTRAIN_TORCHRUN " in role["command"]
    assert steps.TORCHRUN in made.files
    assert role["command"].endswith(f" --no-python /opt/py/bin/python -u {SETTLED} t.py $HOME")


SETTLED = '"$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/ends.py" --settle'


@pytest.mark.parametrize("launcher", ["env", "torchrun"])
@pytest.mark.parametrize(("backend", "settled"), [("auto", True), ("gloo", True), ("nccl", False)])
def test_a_program_that_may_use_gloo_settles_before_it_ends(launcher: Any, backend: Any, settled: bool) -> None:
    made = launched("pytorch", "python t.py", TWO, launcher=launcher, backend=backend)
    assert (SETTLED in spec(made)["roles"][0]["command"]) is settled
    assert ("ends-settled" in [item.rule for item in made.implicit]) is settled
    assert (steps.ENDS in made.files) is settled


def test_torchrun_takes_a_command_of_several_as_one() -> None:
    made = launched("pytorch", "cd a && python t.py", TWO, launcher="torchrun")
    [role] = spec(made)["roles"]
    assert ' sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/torchrun.sh" $BATCHTRAIN_TORCHRUN ' in role["command"]
    assert {steps.TORCHRUN, steps.TORCHRUN_SHELL} <= set(made.files)
    assert role["command"].endswith(" --no-python /bin/bash -c 'cd a && python t.py'")


def test_a_process_of_torchrun_has_its_share_of_the_cores_too() -> None:
    made = spec(launched("pytorch", "x", TWO, launcher="torchrun"))
    assert "OMP_NUM_THREADS" not in made["environment"]
    assert made["roles"][0]["command"].startswith('OMP_NUM_THREADS="${OMP_NUM_THREADS:-')
    left = spec(launched("pytorch", "x", TWO, leave_unset=("OMP_NUM_THREADS",), launcher="torchrun"))
    assert left["roles"][0]["command"].startswith("sh ")


def test_ucx_is_told_of_the_cards_where_the_backend_uses_it_with_gpus_or_without() -> None:
    hpc = Shape(2, Fabric.SR_IOV, size="Standard_HB120rs_v3", family="HBv3")
    made = spec(launched("pytorch", "x", hpc, backend="ucc"))
    assert (made["rdma"], made["rdma_environment"]) == (True, {"UCX_NET_DEVICES": "auto", "UCX_IB_PKEY": "auto"})
    assert spec(launched("pytorch", "x", hpc))["rdma"] is False


# --- TensorFlow -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "names", "flags"),
    [
        ("", {"ps", "worker"}, ["ps_hosts", "worker_hosts"]),
        ("parameter_server", {"ps", "worker"}, ["ps_hosts", "worker_hosts"]),
        ("distributed_replicated", {"ps", "worker"}, ["ps_hosts", "worker_hosts"]),
        ("collective_all_reduce", {"worker"}, ["worker_hosts"]),
        ("distributed_all_reduce", {"controller", "worker"}, ["worker_hosts", "controller_host"]),
    ],
)
def test_each_variable_update_has_its_roles_and_flags(update: str, names: set[str], flags: list[str]) -> None:
    command = f"{BENCH} --variable_update={update}" if update else BENCH
    found = roles({"mode": "flags"}, command)
    assert set(found) == names
    given = [word.partition("=")[0] for word in found["worker"]["command"].removeprefix(command).split()]
    assert given == [f"--{name}" for name in ("job_name", "task_index", *flags)]


@pytest.mark.parametrize("update", ["replicated", "independent", "horovod"])
def test_a_variable_update_without_a_cluster_is_refused(update: str) -> None:
    with pytest.raises(PlanError, match="does not support a cluster on several nodes"):
        roles({"mode": "flags"}, f"{BENCH} --variable_update={update}")


@pytest.mark.parametrize(
    ("options", "command", "says"),
    [
        ({"mode": "parameter_server", "parameter_servers": 0}, "python t.py", "needs parameter servers"),
        ({"mode": "flags", "parameter_servers": 1}, COLLECTIVE, "no parameter servers"),
    ],
)
def test_roles_that_cannot_work_together_are_refused(options: dict[str, Any], command: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        roles(options, command)


def test_flags_that_the_command_has_places_for_are_not_put_at_its_end() -> None:
    command = "python t.py --job {job_name} --servers {ps_hosts}; echo {other}"
    assert roles({"mode": "flags"}, command)["ps"]["command"] == command


# --- MXNet ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meaning"), [("10.0.0.4:29500", Rendezvous(None, 29500)), ("ib0:10.0.0.4:29500", Rendezvous("ib0", 29500))]
)
def test_a_rendezvous_of_dlbs_gives_interface_and_port(text: str, meaning: Rendezvous) -> None:
    assert rendezvous(text) == meaning


@pytest.mark.parametrize("text", ["29500", "a:b:c:29500", "10.0.0.4:80", "10.0.0.4:"])
def test_a_rendezvous_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="ADDRESS:PORT"):
        launched("mxnet", rendezvous=text)


def test_a_port_of_the_block_wins_over_the_rendezvous() -> None:
    made = launched("mxnet", "python t.py", TWO, port=9100, rendezvous="eth0:a:29500")
    assert (spec(made)["options"]["port"], spec(made)["options"]["interface"]) == (9100, "eth0")


# --- Horovod --------------------------------------------------------------------------------------------------------


def test_a_binding_of_ones_own_is_not_said_twice() -> None:
    text = launched("horovod", "python t.py", TWO, over="mpi", options=("--bind-to core",)).application
    assert text.count("bind-to") == 1


def test_what_horovod_is_told_over_an_mpi_can_be_switched_off_by_name() -> None:
    options = {"leave_unset": ("HOROVOD_CPU_OPERATIONS",), "over": "mpi"}
    made = launched("horovod", "python t.py", TWO, **options)
    assert "HOROVOD_CPU_OPERATIONS" not in made.application
    assert "HOROVOD_CPU_OPERATIONS" not in [item.what for item in made.implicit]


# --- the text -------------------------------------------------------------------------------------------------------


def test_a_gang_of_one_node_needs_no_ssh() -> None:
    assert "bt_use_ssh" not in launched("pytorch", "x", Shape(1)).application


# --- mpi4py ---------------------------------------------------------------------------------------------------------


def test_mpi4py_is_not_missed_by_cntk_and_horovod() -> None:
    cntk = launched("mpi", "python train.py", TWO, runtime="openmpi", misses_mpi4py=False).application
    over_mpi = launched("horovod", "python train.py", TWO, over="mpi").application
    assert all("bt_find_mpi4py python 2>/dev/null" in text for text in (cntk, over_mpi))
    hidden = launched("horovod", "env A=1 python train.py", TWO, over="mpi").application
    assert "mpi4py" not in hidden


@pytest.mark.parametrize(("block", "values"), [("mpi", {"runtime": "mpich"}), ("horovod", {"over": "mpi"})])
def test_ranks_that_are_alone_end_the_gang_unless_they_are_allowed(block: str, values: dict[str, str]) -> None:
    launches = (launched(block, allow_singletons=allow, **values) for allow in (False, True))
    assert ["BATCHTRAIN_LAUNCHER" in launch.application for launch in launches] == [True, False]
