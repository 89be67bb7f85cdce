"""What the node launcher tells each process: pure functions of the plan."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from batchtrain.runtime.launch.environment import carried, defaults_of, environment_of, missing_files, past_proxies
from batchtrain.runtime.launch.frameworks.horovod import scopes_of
from batchtrain.runtime.launch.frameworks.pytorch import torchruns_failure
from batchtrain.runtime.launch.spec import Gang, LaunchError, Process
from tests.unit.runtime.gangs import WORKER, gang

SERVER = {"name": "server", "total": 1, "placement": "spread", "command": "serve", "gpus": False}
SCHEDULER = {"name": "scheduler", "total": 1, "placement": "primary", "command": "lead", "gpus": False}
CHIEF = {"name": "chief", "total": 1, "placement": "primary", "command": "lead", "ranked": False, "decides": True}
TORCHRUN = {**WORKER, "name": "torchrun", "per_node": 1, "ranked": False}
EVALUATOR = {"name": "evaluator", "total": 1, "placement": "primary", "command": "look"}


def told(made: Gang, label: str) -> dict[str, str]:
    return environment_of(made, one(made, label))


def defaults(made: Gang, label: str = "rank 0") -> dict[str, str]:
    return defaults_of(made, one(made, label))


def one(made: Gang, label: str) -> Process:
    return next(process for process in made.processes if process.label == label)


def some(values: dict[str, str], prefix: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if name.startswith(prefix)}


def test_every_process_knows_its_place_in_the_gang() -> None:
    values = some(told(gang([2, 2]), "rank 3"), "BATCHTRAIN_")
    assert values == {
        "BATCHTRAIN_ROLE": "worker", "BATCHTRAIN_INDEX": "3", "BATCHTRAIN_PORT": "20101", "BATCHTRAIN_NODES": "2",
        "BATCHTRAIN_NODE_RANK": "1", "BATCHTRAIN_NODE_ADDRESS": "10.0.0.5", "BATCHTRAIN_PROCESSES_PER_NODE": "2",
        "BATCHTRAIN_MASTER_ADDRESS": "10.0.0.4", "BATCHTRAIN_MASTER_PORT": "20000", "BATCHTRAIN_BACKEND": "gloo",
        "BATCHTRAIN_HOST_LIST": "10.0.0.4,10.0.0.5", "BATCHTRAIN_RANK": "3", "BATCHTRAIN_WORLD_SIZE": "4",
        "BATCHTRAIN_LOCAL_RANK": "1", "BATCHTRAIN_LOCAL_SIZE": "2",
        "BATCHTRAIN_WORKER_HOSTS": "10.0.0.4:20001,10.0.0.4:20002,10.0.0.5:20100,10.0.0.5:20101",
    }  # fmt: skip


def test_pytorch_reads_where_it_is_among_nodes_of_different_size() -> None:
    values = told(gang([1, 2]), "rank 2")
    expected = {
        "MASTER_ADDR": "10.0.0.4", "MASTER_PORT": "20000", "RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
    }  # fmt: skip
    assert expected.items() <= values.items()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"rendezvous": "static"},
            "--nnodes=2 --nproc-per-node=4 --max-restarts=0 --local-addr=10.0.0.5 --monitor-interval=0.1"
            " --log-dir=/torchelastic"
            " --node-rank=1 --master-addr=10.0.0.4 --master-port=20000",
        ),
        (
            {"rendezvous": "c10d", "min_instances": 1, "max_restarts": 3},
            "--nnodes=1:2 --nproc-per-node=4 --max-restarts=3 --local-addr=10.0.0.5 --monitor-interval=0.1"
            " --log-dir=/torchelastic"
            " --rdzv-backend=c10d --rdzv-endpoint=10.0.0.4:20000 --rdzv-id=batchtrain",
        ),
    ],
)
def test_torchrun_gets_its_options_and_sets_the_ranks_variables_itself(options: dict[str, Any], words: str) -> None:
    values = told(gang([4, 4], roles=[TORCHRUN], options={"launcher": "torchrun", **options}), "torchrun 1")
    assert values["BATCHTRAIN_TORCHRUN"] == words
    assert "RANK" not in values
    assert "MASTER_ADDR" not in values


def test_a_torchrun_is_known_to_the_others_by_the_interface_that_was_asked_for() -> None:
    made = gang([1, 1], roles=[TORCHRUN], options={"launcher": "torchrun", "rendezvous": "c10d", "interface": "ib0"})
    words = told(made, "torchrun 1")["BATCHTRAIN_TORCHRUN"].split()
    assert {"--local-addr=172.16.1.5", "--rdzv-endpoint=172.16.1.4:20000"} <= set(words)


def test_deepspeed_is_told_to_use_cpus_only_on_a_node_without_gpus() -> None:
    assert defaults(gang([1], framework="deepspeed"))["DS_ACCELERATOR"] == "cpu"
    assert "DS_ACCELERATOR" not in defaults(gang([1], framework="deepspeed", gpus=["0"]))


def test_an_accelerator_that_was_asked_for_is_told_to_deepspeed() -> None:
    made = gang([1], framework="deepspeed", gpus=["0"], options={"accelerator": "cpu"})
    assert defaults(made)["DS_ACCELERATOR"] == "cpu"


def test_gloo_is_told_the_interface_that_the_nodes_know_each_other_by() -> None:
    assert defaults(gang([1]))["GLOO_SOCKET_IFNAME"] == "eth0"


def test_gloo_is_told_nothing_where_no_interface_has_the_address() -> None:
    """An emulated node's address is an alias of lo; its host name leads there."""
    assert "GLOO_SOCKET_IFNAME" not in defaults(gang([1], facts={"interfaces": {"lo": "127.0.0.1"}}))


def test_an_interface_that_was_asked_for_gives_the_addresses() -> None:
    values = told(gang([1, 1], options={"interface": "ib0"}), "rank 1")
    assert (values["MASTER_ADDR"], values["BATCHTRAIN_NODE_ADDRESS"]) == ("172.16.1.4", "172.16.1.5")


def test_an_interface_that_a_node_has_not_got_is_refused_with_those_it_has() -> None:
    with pytest.raises(LaunchError, match=r"no address on interface `ib7` \(it has: eth0, ib0, lo\)"):
        told(gang([1], options={"interface": "ib7"}), "rank 0")


def test_jax_finds_its_place_by_the_variables_that_it_reads() -> None:
    values = told(gang([1, 1], framework="jax", gpus=["0", "1", "2", "3"]), "rank 1")
    expected = {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.4:20000", "JAX_LOCAL_DEVICE_IDS": "0,1,2,3", "JAX_PROCESS_ID": "1",
        "JAX_NUM_PROCESSES": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    }  # fmt: skip
    assert expected.items() <= values.items()
    assert values["OMPI_MCA_orte_hnp_uri"]


def test_jax_numbers_its_devices_among_those_that_the_process_sees() -> None:
    values = told(gang([2], framework="jax", gpus=["0", "1", "4", "5"]), "rank 1")
    assert (values["CUDA_VISIBLE_DEVICES"], values["JAX_LOCAL_DEVICE_IDS"]) == ("4,5", "0,1")


def test_tf_config_has_the_cluster_and_the_processs_own_task() -> None:
    roles = [CHIEF, {**WORKER, "per_node": 1}, {**SERVER, "name": "ps"}, EVALUATOR]
    config = json.loads(told(gang([1, 1], framework="tensorflow", roles=roles), "ps 0")["TF_CONFIG"])
    assert config == {
        "cluster": {
            "chief": ["10.0.0.4:20001"],
            "worker": ["10.0.0.4:20002", "10.0.0.5:20100"],
            "ps": ["10.0.0.4:20003"],
        },
        "task": {"type": "ps", "index": 0},
    }


def test_an_evaluator_stands_beside_the_cluster() -> None:
    config = json.loads(told(gang([1], framework="tensorflow", roles=[WORKER, EVALUATOR]), "evaluator 0")["TF_CONFIG"])
    assert (list(config["cluster"]), config["task"]) == (["worker"], {"type": "evaluator", "index": 0})


def test_flags_of_tensorflow_1_are_filled_in_and_there_is_no_tf_config() -> None:
    command = (
        "train --job_name={job_name} --task_index={task_index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}"
    )
    roles = [{**SERVER, "name": "ps", "command": command}, {**WORKER, "command": command}]
    made = gang([1, 1], framework="tensorflow", roles=roles, options={"mode": "flags"})
    assert made.framework.command(made, one(made, "rank 1")) == (
        "train --job_name=worker --task_index=1 --ps_hosts=10.0.0.4:20001 --worker_hosts=10.0.0.4:20002,10.0.0.5:20100"
    )
    assert "TF_CONFIG" not in told(made, "rank 1")


def test_places_of_another_modes_command_are_left_alone() -> None:
    made = gang([1], framework="tensorflow", roles=[{**WORKER, "command": "echo {ps_hosts}"}])
    assert made.framework.command(made, made.processes[0]) == "echo {ps_hosts}"


RAY_ROLES = [
    {**WORKER, "name": "head", "total": 1, "placement": "primary", "ranked": False, "instead_of": "worker"},
    {**WORKER, "per_node": 1, "ranked": False},
    {**WORKER, "name": "driver", "total": 1, "placement": "primary", "gpus": False, "ranked": False},
]


def test_a_ray_cluster_has_a_head_a_worker_on_each_other_node_and_one_driver() -> None:
    made = gang([3, 3], framework="ray", roles=RAY_ROLES, gpus=["0", "1"])
    assert [(process.label, process.node.index) for process in made.processes] == [
        ("head 0", 0), ("worker 0", 1), ("driver 0", 0),
    ]  # fmt: skip
    assert told(made, "head 0")["BATCHTRAIN_RAY"].startswith("--head --port=20000 ")
    assert told(made, "worker 0")["BATCHTRAIN_RAY"].startswith("--address=10.0.0.4:20000 ")
    assert "--node-ip-address=10.0.0.5 --num-cpus=3 --num-gpus=2" in told(made, "worker 0")["BATCHTRAIN_RAY"]
    assert told(made, "driver 0")["RAY_ADDRESS"] == "10.0.0.4:20000"
    tokens = {defaults(made, label)["RAY_AUTH_TOKEN"] for label in ("head 0", "worker 0", "driver 0")}
    assert len(tokens) == 1
    assert [process.slot for process in made.processes] == [0, 0, -1]  # each daemon has all cores of its node


@pytest.mark.parametrize("seconds", [1, 120, 301])
def test_a_worker_of_ray_waits_for_its_head_as_long_as_the_barrier(seconds: int) -> None:
    made = gang([1, 1], framework="ray", roles=RAY_ROLES, barrier_seconds=seconds)
    assert 2 * int(defaults(made, "worker 0")["RAY_NUM_REDIS_GET_RETRIES"]) >= seconds


def test_ps_lite_is_told_its_role_the_scheduler_and_the_nodes_own_address() -> None:
    made = gang([2, 2], framework="mxnet", roles=[SCHEDULER, SERVER, WORKER], options={"verbose": 1})
    assert {**some(told(made, "rank 3"), "DMLC_"), **some(defaults(made, "rank 3"), "PS_")} == {
        "DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "10.0.0.4", "DMLC_PS_ROOT_PORT": "20000", "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "4", "DMLC_NODE_HOST": "0x0a000005", "DMLC_WORKER_ID": "3", "PS_VERBOSE": "1",
    }  # fmt: skip


def test_ps_lite_numbers_workers_as_we_do_by_the_text_of_their_host_and_by_port() -> None:
    """Its scheduler sorts them: the highest text first, then the lowest port."""
    made = gang([2, 1, 1], framework="mxnet", roles=[SCHEDULER, SERVER, WORKER])
    workers = [
        (told(made, f"rank {rank}")["DMLC_NODE_HOST"], defaults(made, f"rank {rank}")["PORT"]) for rank in range(4)
    ]
    assert workers == sorted(sorted(workers, key=lambda one: one[1]), key=lambda one: one[0], reverse=True)
    assert [socket.inet_ntoa(socket.inet_aton(host)) for host, _ in workers[1:]] == ["10.0.0.4", "10.0.0.5", "10.0.0.6"]


def test_ps_lite_with_an_interface_is_told_its_addresses() -> None:
    made = gang(
        [1, 1], framework="mxnet", roles=[SCHEDULER, SERVER, WORKER], options={"interface": "ib0", "port": 29500}
    )
    values = told(made, "rank 1")
    assert (values["DMLC_INTERFACE"], values["DMLC_PS_ROOT_URI"], values["DMLC_PS_ROOT_PORT"]) == (
        "ib0", "172.16.1.4", "29500",
    )  # fmt: skip
    assert socket.inet_ntoa(socket.inet_aton(values["DMLC_NODE_HOST"])) == "172.16.1.5"


def test_horovod_has_three_numberings_and_our_servers_address() -> None:
    made = gang([1, 3], framework="horovod")
    made.store = ("10.0.0.4", 20000)
    assert some({**told(made, "rank 3"), **defaults(made, "rank 3")}, "HOROVOD_") == {
        "HOROVOD_RANK": "3", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "2", "HOROVOD_LOCAL_SIZE": "3",
        "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1", "HOROVOD_HOSTNAME": "10.0.0.5",
        "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_IFACE": "eth0",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.4", "HOROVOD_GLOO_RENDEZVOUS_PORT": "20000",
    }  # fmt: skip


def test_horovods_scopes_are_as_large_as_their_communicators() -> None:
    assert scopes_of(gang([1, 2], framework="horovod")) == {
        "global": 3, "local_10.0.0.4": 1, "local_10.0.0.5": 2, "cross_0": 2, "cross_1": 1,
    }  # fmt: skip


# --- GPUs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "processes", "gpus", "seen"),
    [
        ("pytorch", 2, ["0", "1", "4", "5"], "0,1,4,5"),
        ("horovod", 2, ["0", "1"], "0,1"),
        ("tensorflow", 2, ["0", "1", "4", "5"], "4,5"),
        ("mxnet", 2, ["3", "2", "1"], "2"),
    ],
)
def test_a_process_sees_all_gpus_where_the_local_rank_chooses_and_else_its_own(
    framework: str, processes: int, gpus: list[str], seen: str
) -> None:
    made = gang([processes], framework=framework, gpus=gpus)
    assert told(made, "rank 1")["CUDA_VISIBLE_DEVICES"] == seen


def test_a_role_may_say_how_its_processes_see_gpus() -> None:
    made = gang([2], gpus=["0", "1"], roles=[{**WORKER, "gpus": "each"}])
    assert told(made, "rank 1")["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_server_sees_no_gpu() -> None:
    made = gang([1], framework="mxnet", gpus=["0"], roles=[SERVER, WORKER])
    assert told(made, "server 0")["CUDA_VISIBLE_DEVICES"] == ""


def test_on_a_node_without_gpus_nothing_is_said_of_them() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in told(gang([1]), "rank 0")


def test_the_backend_is_nccl_only_where_every_node_has_real_gpus() -> None:
    assert told(gang([1], gpus=["0"]), "rank 0")["BATCHTRAIN_BACKEND"] == "nccl"
    assert told(gang([1], gpus=["0"], real=False), "rank 0")["BATCHTRAIN_BACKEND"] == "gloo"
    assert told(gang([1], options={"backend": "mpi"}), "rank 0")["BATCHTRAIN_BACKEND"] == "mpi"


# --- defaults -------------------------------------------------------------------------------------------------------

INFINIBAND = {"infiniband": {"ports": "mlx5_0:1,mlx5_1:1", "key": "0x8001"}}


def test_threads_are_the_nodes_cores_shared_by_its_ranks() -> None:
    assert defaults(gang([4], environment={"OMP_NUM_THREADS": "auto"}))["OMP_NUM_THREADS"] == "2"


def test_emulated_nodes_share_the_cores_of_one_machine() -> None:
    made = gang([2, 2], environment={"OMP_NUM_THREADS": "auto"}, facts={"emulated": True})
    assert defaults(made)["OMP_NUM_THREADS"] == "2"


def test_threads_of_a_torchruns_processes_are_shared_as_well() -> None:
    made = gang([4], roles=[TORCHRUN], options={"launcher": "torchrun"}, environment={"OMP_NUM_THREADS": "auto"})
    assert defaults(made, "torchrun 0")["OMP_NUM_THREADS"] == "2"


def test_infinibands_variables_are_set_only_where_a_port_is_active() -> None:
    wanted: Any = {"rdma": True, "rdma_environment": {"NCCL_IB_HCA": "auto", "UCX_IB_PKEY": "auto", "A": "1"}}
    emulated = gang([1], facts={"emulated": True}, **wanted)
    assert some(defaults(emulated), "A") == {"ACCELERATE_USE_CPU": "true"}
    found = defaults(gang([1], facts=INFINIBAND, **wanted))
    assert (found["NCCL_IB_HCA"], found["UCX_IB_PKEY"], found["A"]) == ("=mlx5_0:1,mlx5_1:1", "0x8001", "1")


def test_a_file_is_named_only_where_it_is_there() -> None:
    wanted: Any = {"environment": {"NCCL_TOPO_FILE": "/opt/topo.xml"}}
    assert "NCCL_TOPO_FILE" not in defaults(gang([1], **wanted))
    assert defaults(gang([1], facts={"files": ["/opt/topo.xml"]}, **wanted))["NCCL_TOPO_FILE"] == "/opt/topo.xml"


def test_a_file_that_a_node_lacks_is_told_with_its_variable() -> None:
    values = {"NCCL_TOPO_FILE": "/opt/topo.xml", "NCCL_PXN_DISABLE": "1"}
    (node,) = gang([1], facts={"files": []}).nodes
    assert missing_files(values, node) == [("NCCL_TOPO_FILE", "/opt/topo.xml")]
    (node,) = gang([1], facts={"files": ["/opt/topo.xml"]}).nodes
    assert missing_files(values, node) == []


def test_names_that_are_to_be_left_alone_are() -> None:
    made = gang([1], leave_unset=["GLOO_SOCKET_IFNAME", "NODE_RANK"])
    assert "GLOO_SOCKET_IFNAME" not in defaults(made)
    assert "NODE_RANK" not in told(made, "rank 0")


# --- what of the primary's environment comes along ------------------------------------------------------------------


def test_what_is_the_nodes_own_comes_from_the_node() -> None:
    primary = {"PATH": "/x", "HOME": "/root", "AZ_BATCH_NODE_ID": "a", "SSH_CLIENT": "1", "BATCHTRAIN_FILES_0": "data"}
    own = {"PATH": "/y", "HOME": "/home/b", "AZ_BATCH_NODE_ID": "b", "OTHER": "1"}
    assert carried(primary, own, ("/mnt", "/mnt")) == {"PATH": "/x", "HOME": "/home/b", "AZ_BATCH_NODE_ID": "b"}


def test_paths_of_an_emulated_primary_are_those_of_the_node() -> None:
    assert carried({"DATA": "/n/1/shared:/n/1/x"}, {}, ("/n/1", "/n/2")) == {"DATA": "/n/2/shared:/n/2/x"}


def test_a_persons_proxy_is_not_asked_for_the_other_nodes() -> None:
    values = {"http_proxy": "http://proxy:3128", "no_proxy": "localhost"}
    past_proxies(values, "10.0.0.4,10.0.0.5")
    assert (values["no_proxy"], values["NO_PROXY"]) == ("localhost,10.0.0.4,10.0.0.5", "10.0.0.4,10.0.0.5")


def test_without_a_proxy_nothing_is_said_of_one() -> None:
    values: dict[str, str] = {}
    past_proxies(values, "10.0.0.4")
    assert values == {}


@pytest.mark.parametrize(
    ("options", "rank", "said"),
    [
        ({"rendezvous": "static"}, 5, "rank 5 on node tvm-2 (10.0.0.5) was killed by signal 9"),
        ({"rendezvous": "c10d"}, -1, "local rank 1 on node tvm-2 (10.0.0.5) was killed by signal 9"),
    ],
)
def test_a_rank_that_a_torchrun_lost_for_good_is_known_by_its_words(
    options: dict[str, Any], rank: int, said: str
) -> None:
    made = gang([4, 4], roles=[TORCHRUN], options={"launcher": "torchrun", **options})
    printed = b"E1121 12:00:00 api.py:994] failed (exitcode: -9) local_rank: 1 (pid: 117) of binary: /bin/python\n"
    end = torchruns_failure(made, one(made, "torchrun 1"), printed, ended=False)
    assert end is not None
    assert (end.rank, end.code, str(end)) == (rank, 137, said)


def test_a_torchrun_that_ends_after_restarts_is_told_by_the_rank_that_failed_last() -> None:
    options = {"launcher": "torchrun", "rendezvous": "c10d", "max_restarts": 1}
    made = gang([2, 2], roles=[TORCHRUN], options=options)
    printed = (
        b"failed (exitcode: -9) local_rank: 0 (pid: 1) of\nagain\nfailed (exitcode: 7) local_rank: 1 (pid: 2) of\n"
    )
    at = one(made, "torchrun 1")
    assert torchruns_failure(made, at, printed, ended=False) is None
    end = torchruns_failure(made, at, printed, ended=True)
    assert end is not None
    said = "local rank 1 on node tvm-2 (10.0.0.5) exited with code 7, and no restart was left"
    assert (end.code, str(end)) == (7, said)
