"""Launching MPI."""

from __future__ import annotations

from typing import Any

from batchtrain.verify.probe import INFINIBAND, Area, Probe, by_hand
from batchtrain.verify.readings import (
    POOL_KEY,
    began,
    every,
    full_member,
    infiniband,
    key_is_accepted,
    line_with,
    master_is_a_host,
)
from batchtrain.verify.reasons import (
    ADDRESSES,
    NO_ENGINE,
    NO_INFINIBAND,
    NO_LOGIN,
    NO_POOL_KEY,
    OLD_PROGRAMS,
    ONE_USER,
    RETIRED,
)
from batchtrain.verify.recorded_answers import keys, ports, printed, sessions

PROBES = (
    Probe(
        "infiniband-device",
        (
            "A node of an SR-IOV size has `/dev/infiniband`, in native containers too if the run options contain "
            "`--device=/dev/infiniband`"
        ),
        "Batch Shipyard's run options",
        "`ls -l /dev/infiniband` on `Standard_HB120rs_v3`, on the host and in a container",
        "coordination/nodes/infiniband",
        lambda value: bool(value["devices"]),
        right=ports(),
        wrong=ports(devices=()),
        unread={"ports": []},
        code="batchtrain/plan/container.py batchtrain/launchers/fabric.py",
        needs=INFINIBAND,
        not_local=NO_INFINIBAND,
    ),
    Probe(
        "infiniband-port-state",
        "An active InfiniBand port has `link_layer` `InfiniBand` and `ACTIVE` in its `state`",
        "kernel documentation; batch-shipyard #360",
        "`grep . /sys/class/infiniband/*/ports/*/{link_layer,state}`",
        "host/nodes/infiniband",
        lambda value: all("ACTIVE" in port["state"] for port in infiniband(value)),
        right=ports(),
        wrong=ports(state="1: DOWN"),
        unread={"ports": []},
        code="batchtrain/runtime/node.sh batchtrain/runtime/preflight.sh",
        needs=INFINIBAND,
        not_local=NO_INFINIBAND,
    ),
    Probe(
        "ucx-all-ports",
        "`UCX_NET_DEVICES` may list all InfiniBand ports (8 on ND sizes)",
        "UCX's documentation",
        "`mpirun -np 2 --map-by ppr:1:node -x UCX_NET_DEVICES=… osu_bw`, once with all ports and once with one",
        "host/gang/openmpi",
        lambda value: value["code"] == 0,
        right=printed(),
        wrong=printed(code=1),
        unread={"lines": []},
        code="batchtrain/launchers/fabric.py",
        needs=INFINIBAND,
        not_local=NO_INFINIBAND,
    ),
    Probe(
        "infiniband-partition",
        "`UCX_IB_PKEY` of UCX is the partition key other than `0x7fff`, with its top bit cleared",
        'Azure "Set up MPI" (setup-mpi), Batch Shipyard',
        "`cat /sys/class/infiniband/*/ports/1/pkeys/[01]`; `ucx_info -e -u t -D net` with and without the variable",
        "host/nodes/infiniband",
        lambda value: all(any(full_member(key) for key in port["pkeys"]) for port in infiniband(value)),
        right=ports(),
        wrong=ports(pkeys=["0x7fff"]),
        unread=ports(pkeys=["none"]),
        code="batchtrain/launchers/fabric.py batchtrain/runtime/node.sh",
        needs=INFINIBAND,
        not_local=NO_INFINIBAND,
    ),
    Probe(
        "intelmpi-mlx",
        (
            "Intel MPI 2019 and later: `I_MPI_FABRICS=shm:ofi FI_PROVIDER=mlx` uses InfiniBand, and fails with an "
            "error if it cannot"
        ),
        "setup-mpi",
        "`I_MPI_DEBUG=5 mpirun … IMB-MPI1 PingPong`: `libfabric provider: mlx`",
        "host/gang/intelmpi",
        lambda value: line_with(value, "libfabric provider: mlx"),
        right=printed("[0] MPI startup(): libfabric provider: mlx"),
        wrong=printed("[0] MPI startup(): libfabric provider: tcp;ofi_rxm"),
        unread={"code": 0},
        code="batchtrain/frameworks/mpi.py",
        needs=INFINIBAND,
        not_local=NO_INFINIBAND,
    ),
    by_hand(
        "intelmpi-ofa",
        "Intel MPI 2018: `I_MPI_FABRICS=shm:ofa` (runtime `intelmpi-ofa`)",
        "setup-mpi",
        "`I_MPI_DEBUG=5 mpirun … IMB-MPI1 PingPong`: `data transfer mode`",
        code="batchtrain/frameworks/mpi.py",
        not_local=NO_INFINIBAND,
    ),
    by_hand(
        "network-direct",
        (
            "Network Direct (`Standard_NC24r`, `Standard_H16r`; all retired): the five `I_MPI_DAPL…` settings of "
            "Batch Shipyard, Intel MPI up to 2018"
        ),
        "Batch Shipyard",
        "not possible: the sizes are retired",
        code="batchtrain/frameworks/mpi.py",
        not_local=RETIRED,
    ),
    by_hand(
        "intelmpi-version",
        "`mpirun -V` of Intel MPI 5.1 to 2018 prints `Version 5.1.3` or `Version 2018 Update 4`",
        "release notes, memory",
        "`mpirun -V | head -1` with an Intel MPI of that age",
        code="batchtrain/frameworks/mpi.py",
        not_local=OLD_PROGRAMS,
    ),
    Probe(
        "openmpi-ucx",
        (
            "Open MPI with UCX: `--mca pml ucx --mca btl ^vader,tcp,openib`; Open MPI 5 still accepts the two removed"
            " names (`vader`, `openib`)"
        ),
        "setup-mpi; a test with Open MPI 5.0.11 without InfiniBand",
        "`mpirun --mca pml_base_verbose 10 … ` on `Standard_HB120rs_v3`: `selected ucx`",
        "host/gang/openmpi",
        lambda value: line_with(value, "selected ucx"),
        right=printed("select: component ucx selected", "selected ucx best priority 51"),
        wrong=printed(),
        unread={"code": 0},
        code="batchtrain/frameworks/mpi.py",
        needs=INFINIBAND,
        not_local=NO_INFINIBAND,
    ),
    Probe(
        "own-interface",
        "Without InfiniBand the network of the nodes is `eth0` (batchtrain restricts Open MPI to it)",
        "setup-mpi, Batch Shipyard",
        "`ip -o -4 addr`",
        "host/nodes/own_address",
        lambda value: value == "eth0",
        right="eth0",
        wrong="enP1s1",
        unread={"unread": "IndexError"},
        code="batchtrain/frameworks/mpi.py batchtrain/launchers/fabric.py",
        shape=str,
        not_local=ADDRESSES,
    ),
    Probe(
        "mvapich-hydra",
        (
            "MVAPICH accepts the options of Hydra, passes the environment to the ranks, and sets `PMI_RANK` or "
            "`MV2_COMM_WORLD_RANK`"
        ),
        "its user guide",
        "`mpirun -hosts \"$AZ_BATCH_HOST_LIST\" -np 2 -ppn 1 env | grep -E 'PMI_RANK|MV2_'`",
        "host/gang/mvapich",
        lambda value: line_with(value, "PMI_RANK=", "MV2_COMM_WORLD_RANK="),
        right=printed("PMI_RANK=0", "PMI_RANK=1"),
        wrong=printed(code=1),
        unread={"code": 0},
        code="batchtrain/frameworks/mpi.py",
        needs=INFINIBAND,
        not_local=NO_INFINIBAND,
    ),
    by_hand(
        "openmpi-4",
        "Open MPI 4: `OMPI_MCA_plm_rsh_no_tree_spawn`, `--prefix`, `-x`; a value that contains `;` may break `-x`",
        "its documentation",
        "`mpirun --version; X='a;b' mpirun -x X … sh -c 'echo $X'`",
        code="batchtrain/frameworks/mpi.py",
        not_local=OLD_PROGRAMS,
    ),
    Probe(
        "master-node",
        "`AZ_BATCH_MASTER_NODE` is `address:6000`, and `AZ_BATCH_HOST_LIST` contains that address",
        "Batch's documentation",
        "`env | grep AZ_BATCH` as a multi-instance task's command",
        "host/gang/environment",
        master_is_a_host,
        right={"AZ_BATCH_MASTER_NODE": "10.0.0.4:6000", "AZ_BATCH_HOST_LIST": "10.0.0.4"},
        wrong={"AZ_BATCH_MASTER_NODE": "10.0.0.6:6000", "AZ_BATCH_HOST_LIST": "10.0.0.4"},
        unread={"AZ_BATCH_HOST_LIST": "10.0.0.4"},
        code="batchtrain/launchers/variables.py batchtrain/runtime/node.sh",
        shape=dict[str, str],
    ),
    Probe(
        "ssh-between-nodes",
        (
            "An ordinary (`nonadmin`) pool user can use `ssh` between nodes with the key that Batch creates "
            "(`_azbatch`), and the sessions get no `AZ_BATCH_*`"
        ),
        "Azure/Batch #34",
        "`for h in ${AZ_BATCH_HOST_LIST//,/ }; do ssh -o BatchMode=yes -o StrictHostKeyChecking=no $h env; done`",
        "host/gang/ssh",
        lambda value: every(value, lambda host: host["code"] == 0 and host["variables"] == 0),
        right=sessions(),
        wrong=sessions(variables=12),
        unread={},
        code="batchtrain/runtime/ssh.sh batchtrain/launchers/mpi.py batchtrain/runtime/rank.sh",
        shape=dict[str, dict[str, Any]],
    ),
    Probe(
        "container-sshd",
        (
            "In a native container `/usr/sbin/sshd -p 23`, started by the coordination command, keeps running while "
            "the application command runs"
        ),
        "Batch Shipyard",
        "`ssh -p 23 localhost true` as the application command",
        "container/gang/ssh",
        lambda value: every(value, lambda host: host["code"] == 0),
        right=sessions(),
        wrong=sessions(code=255, error="connect to host 10.0.0.4 port 23: Connection refused"),
        unread={},
        code="batchtrain/launchers/steps.py batchtrain/runtime/gang.sh",
        shape=dict[str, dict[str, Any]],
    ),
    Probe(
        "container-key",
        (
            "The application command runs in the container of the coordination command, or in another container of "
            "the same image. The launch finds the key of the pool there"
        ),
        "Azure/Batch #150 mentions two containers",
        "`touch /here` as the coordination command, `ls /here` as the application command",
        "container/gang/ssh",
        key_is_accepted,
        right=sessions(),
        wrong=sessions(code=255, error="Permission denied (publickey)"),
        unread=sessions(code=255, error="connect to host 10.0.0.4 port 23: Connection refused"),
        code="batchtrain/runtime/gang.sh batchtrain/plan/container.py",
        shape=dict[str, dict[str, Any]],
    ),
    Probe(
        "container-network",
        "Containers of a native pool use the network of their host: its ports and addresses",
        "Batch Shipyard's recipes, which use port 23 in this way",
        "`hostname -I` in a container, beside `AZ_BATCH_HOST_LIST`",
        "container/gang",
        lambda value: bool({*value["addresses"].values()} & {*value["environment"]["AZ_BATCH_HOST_LIST"].split(",")}),
        right={"addresses": {"eth0": "10.0.0.4"}, "environment": {"AZ_BATCH_HOST_LIST": "10.0.0.4"}},
        wrong={"addresses": {"eth0": "172.17.0.2"}, "environment": {"AZ_BATCH_HOST_LIST": "10.0.0.4"}},
        unread={"addresses": {"eth0": "10.0.0.4"}, "environment": {}},
        code="batchtrain/launchers/steps.py batchtrain/plan/container.py",
        not_local=ADDRESSES,
    ),
    Probe(
        "run-options",
        "`containerRunOptions` may contain `--name`, `--rm` and `--net`",
        "samples in the documentation use `--rm`",
        "a task with each option",
        "service/options",
        lambda value: value["exit"] == 0 and len(value["code"]) == 0,
        right={"code": "", "exit": 0},
        wrong={"code": "ContainerInvalidSettings", "exit": None},
        unread={"code": ""},
        code="batchtrain/plan/container.py",
    ),
    Probe(
        "missing-program",
        "The failure code of a task is `CommandProgramNotFound` if its command is not in its image",
        "the names of the codes",
        "a pool and tasks with each fault; `az batch task show --query executionInfo`",
        "service/no-program",
        lambda value: value["code"] == "CommandProgramNotFound",
        right={"code": "CommandProgramNotFound", "exit": None},
        wrong={"code": "FailureExitCode", "exit": 127},
        unread={"exit": 127},
        code="batchtrain/diagnosis/service_rules.py batchtrain/emulator/machine/engine_failures.py",
    ),
    Probe(
        "container-admin",
        "In a container, `admin` is root",
        "documentation (user accounts), memory",
        "`id` in an image with a `USER`, with each elevation",
        "coordination/nodes/user",
        lambda value: value["uid"] == 0,
        right={"uid": 0, "groups": [0], "sudo": False},
        wrong={"uid": 1000, "groups": [1000], "sudo": False},
        unread={"groups": []},
        code="batchtrain/plan/container.py batchtrain/plan/task.py",
    ),
    Probe(
        "pool-key",
        (
            "The key of the pool is in `/home/_azbatch/.ssh` (`*_rsa`, `authorized_keys`) and can be mounted into "
            "containers"
        ),
        "Azure/Batch #34; Batch Shipyard",
        "`sudo ls -l /home/_azbatch/.ssh`",
        "admin/nodes/pool_keys",
        lambda value: (
            value["directory"] == POOL_KEY
            and "authorized_keys" in value["names"]
            and any(name.endswith("_rsa") for name in value["names"])
        ),
        right=keys(),
        wrong=keys("/root/.ssh"),
        unread={"directory": "/home/_azbatch/.ssh"},
        code="batchtrain/plan/container.py batchtrain/runtime/gang.sh",
        not_local=NO_POOL_KEY,
    ),
    Probe(
        "clocks",
        (
            "The clocks of the nodes differ by a few milliseconds at most: batchtrain reports the earliest of several"
            " failures as the cause"
        ),
        "memory",
        "`chronyc tracking | grep 'System time'` on two nodes",
        "host/gang/ssh",
        lambda value: every(value, lambda host: abs(host["ahead"]) <= host["unsure"] + 0.01),
        right=sessions(),
        wrong=sessions(ahead=1.5),
        unread={"10.0.0.4": {"code": 255, "error": ""}},
        code="batchtrain/runtime/launch/primary.py batchtrain/runtime/preflight.sh",
        shape=dict[str, dict[str, Any]],
    ),
    Probe(
        "sigterm",
        "Batch sends SIGTERM to a task before SIGKILL (ranks then have `BATCHTRAIN_GRACE_SECONDS`, 0.5 s)",
        "memory",
        "`trap 'date > term; sleep 60' TERM; sleep 1000 & wait` as a task, terminated by `az batch task stop`",
        "term/gang/files",
        lambda value: began(value) and "term" in value,
        right=["began", "term"],
        wrong=["began"],
        unread=[],
        code="batchtrain/runtime/sweep.sh batchtrain/runtime/launch/supervisor.py",
        shape=list[str],
    ),
    by_hand(
        "ucx-without-partition",
        "With UCX, current sizes work with and without `UCX_IB_PKEY`",
        'Azure "Set up MPI" (setup-mpi), Batch Shipyard',
        "`ucx_info -e -u t -D net` with and without the variable",
        code="batchtrain/launchers/fabric.py",
        not_local=NO_INFINIBAND,
    ),
    Probe(
        "refused-options",
        "The failure code of a task is `ContainerInvalidSettings` if Docker refuses its run options",
        "the names of the codes",
        "a task with `additional_docker_run_options: [--no-such-option]`; `az batch task show --query executionInfo`",
        "service/refused",
        lambda value: value["code"] == "ContainerInvalidSettings",
        right={"code": "ContainerInvalidSettings", "exit": None},
        wrong={"code": "FailureExitCode", "exit": 125},
        unread={"exit": 125},
        code="batchtrain/diagnosis/service_rules.py batchtrain/emulator/machine/engine_failures.py",
    ),
    by_hand(
        "registry-codes",
        (
            "The failure code of a task is `ContainerInvalidRegistry` if its registry refuses. Nodes become "
            "`unusable` if an image of the pool cannot be pulled"
        ),
        "the names of the codes",
        "a pool and tasks with each fault; `az batch task show --query executionInfo`",
        code="batchtrain/diagnosis/service_rules.py batchtrain/emulator/machine/engine_failures.py",
        not_local=NO_ENGINE,
    ),
    Probe(
        "container-nonadmin",
        "In a container, `nonadmin` is the automatic user, and no root",
        "documentation (user accounts), memory",
        "`id` in an image with a `USER`, with each elevation",
        "inside/nodes/user",
        lambda value: value["uid"] != 0,
        right={"uid": 1000, "groups": [1000], "sudo": False},
        wrong={"uid": 0, "groups": [0], "sudo": False},
        unread={"groups": []},
        code="batchtrain/plan/container.py batchtrain/plan/task.py",
        not_local=ONE_USER,
    ),
    by_hand(
        "kill-after-sigterm",
        "Batch kills what is left of a task after SIGTERM",
        "memory",
        "`sleep 1000 & wait` as a task, terminated by `az batch task stop`, and `ps` on its node",
        code="batchtrain/runtime/sweep.sh",
        not_local=NO_LOGIN,
    ),
)

AREA = Area(
    "mpi",
    "Launching MPI",
    (
        "Tested with real processes on two nodes: MPICH 5.0, Open MPI 5.0 and Intel MPI 2021.18 over tcp, through the"
        " emulator's `ssh` and through OpenSSH's sshd on port 23. Everything below is untested."
    ),
    PROBES,
)
