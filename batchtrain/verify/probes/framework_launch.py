"""Launching frameworks."""

from __future__ import annotations

from typing import Any

from batchtrain.verify.probe import AMD, INFINIBAND, LAUNCH_FILE, NVIDIA, TOPOLOGY, Area, Probe
from batchtrain.verify.readings import (
    bandwidth,
    every,
    gpu_order,
    line_with,
    network,
    ports_are_whole,
    some,
    topologies_are_links,
)
from batchtrain.verify.reasons import NO_GPU, NO_INFINIBAND, NO_SSHD
from batchtrain.verify.recorded_answers import OTHER_CARD, TOPOLOGY_FILE, USING, gpus, ports, printed, sessions

PROBES = (
    Probe("nccl-ports",
        "With the active InfiniBand ports in `NCCL_IB_HCA` (`=mlx5_ib0:1,…`), NCCL does not use the card of "
        "accelerated networking", "NCCL's documentation; the card names in azhpc-images",
        "`NCCL_DEBUG=INFO` in a `pytorch` task on `Standard_ND96isr_H100_v5`: the line `NET/IB : Using`",
        "host/gang/nccl", lambda value: line_with(value, "NET/IB : Using", without="/RoCE"),
        right=printed(USING), wrong=printed(OTHER_CARD), unread={"code": 0}, code="batchtrain/launchers/fabric.py",
        needs=TOPOLOGY, not_local=NO_INFINIBAND),
    Probe("nccl-speed",
        "`NCCL_IB_PCI_RELAXED_ORDERING=1` and `NCCL_TOPO_FILE=/opt/microsoft/ndv4/topo.xml` (ndv5 on H100 and H200, "
        "ndv2 on NDv2), and `NCCL_IGNORE_CPU_AFFINITY=1` on these sizes, give the full speed of the network",
        "azhpc-images: `/etc/nccl.conf`",
        "the recipe NCCL-Tests: `all_reduce_perf -b 8 -e 8G` prints about 450 GB/s between two ND H100 v5 nodes, 188 "
        "between two ND A100 v4 nodes, and 16 between two NDv2",
        "host/gang/nccl", bandwidth,
        right=printed("# Avg bus bandwidth    : 441.2"), wrong=printed("# Avg bus bandwidth    : 23.1"),
        unread=printed("# Avg bus bandwidth    : 441.2", size="Standard_ND999"), code="batchtrain/launchers/fabric.py",
        needs=TOPOLOGY, not_local=NO_INFINIBAND),
    Probe("topology-file", "On the HPC images, the topology file is a link to `/opt/microsoft/ndv5-topo.xml`",
        "azhpc-images: customizations",
        "`head -1 /opt/microsoft/ndv5/topo.xml` in a native container, and in an Apptainer image",
        "host/nodes/nccl", topologies_are_links,
        right={"topologies": {TOPOLOGY_FILE: "/opt/microsoft/ndv5-topo.xml"}},
        wrong={"topologies": {TOPOLOGY_FILE: "/etc/topo.xml"}}, unread={"settings": {}, "topologies": {}},
        code="batchtrain/launchers/fabric.py batchtrain/plan/container.py", needs=TOPOLOGY, not_local=NO_GPU),
    Probe("nccl-lines",
        "NCCL prints lines about its network as in the samples in `tests/data/nccl` (taken from the library of NCCL "
        "2.32, older forms from memory; none was printed on InfiniBand)", "NCCL's library; memory",
        "a `pytorch` task on `Standard_ND96isr_H100_v5`: the line `NCCL used IB on 8 HCAs with GPUDirect RDMA`, and "
        "`wd/ranks/nccl.*`",
        "host/gang/nccl", lambda value: network(value).startswith("IB"),
        right=printed("NCCL INFO Using network IB"), wrong=printed("NCCL INFO a line of another form"),
        unread=printed(), code="batchtrain/runtime/verdict.py", needs=TOPOLOGY, not_local=NO_INFINIBAND),
    Probe("nvidia-smi-speed",
        "`nvidia-smi -L` answers within half a second on the HPC images (the persistence daemon runs)",
        "NVIDIA's documentation", "`time nvidia-smi -L` on the host and in a native container",
        "host/nodes/gpus", lambda value: value["code"] == 0 and value["seconds"] <= 0.5,
        right=gpus(), wrong=gpus(seconds=4.2), unread={"code": 0},
        code="batchtrain/runtime/node.sh batchtrain/runtime/preflight.sh", needs=NVIDIA, not_local=NO_GPU),
    Probe("locked-memory",
        "On the HPC images, ssh sessions between nodes can lock unlimited memory. If not, the preflight stops the "
        "launch", "azhpc-images: limits.conf",
        "`ulimit -l; ssh $host ulimit -l` on `Standard_HB120rs_v3`, and in a container with `-p 23`",
        "host/gang/ssh", lambda value: every(value, lambda host: host["memlock"] == "unlimited"),
        right=sessions(), wrong=sessions(memlock="65536"), unread={"10.0.0.4": {"code": 255, "error": ""}},
        code="batchtrain/runtime/preflight.sh batchtrain/plan/container.py", shape=dict[str, dict[str, Any]],
        needs=INFINIBAND, not_local=NO_INFINIBAND),
    Probe("infiniband-ports",
        "A size shows one active InfiniBand port per card, with the rate that Azure/azurehpc-health-checks expects "
        "and a partition key besides `0x7fff`. If not, the preflight stops the launch",
        "azurehpc-health-checks: `conf/`",
        "`bash -c 'head /sys/class/infiniband/*/ports/1/{state,rate,pkeys/*}'` on `Standard_ND96isr_H100_v5`",
        "host/nodes/infiniband", ports_are_whole,
        right=ports(), wrong=ports(expected=8), unread={"ports": []},
        code="batchtrain/runtime/preflight.sh batchtrain/catalog/sizes.py", needs=INFINIBAND, not_local=NO_INFINIBAND),
    Probe("ssh-ports", "Nodes of one pool accept connections from all other nodes on port 22, within 3 s", "memory",
        "a task of 32 nodes with `preflight: true`",
        "host/gang/reach", lambda value: every(value, lambda host: host["22"] is not None and host["22"] <= 3),
        right={"10.0.0.4": {"22": 0.001, "23": None}, "10.0.0.5": {"22": 0.2, "23": None}},
        wrong={"10.0.0.4": {"22": 0.001, "23": None}, "10.0.0.5": {"22": None, "23": None}}, unread={},
        code="batchtrain/runtime/preflight.sh", shape=dict[str, dict[str, float | None]], not_local=NO_SSHD),
    Probe("amd-gpus",
        "AMD GPUs are the entries of `/sys/class/kfd/kfd/topology` with a `gpu_id`, in a container as well",
        "kernel documentation", "`cat /sys/class/kfd/kfd/topology/nodes/*/gpu_id` on `Standard_ND96isr_MI300X_v5`",
        "host/nodes/amd_gpus", lambda value: value["count"] == value["expected"],
        right={"count": 8, "expected": 8}, wrong={"count": 0, "expected": 8}, unread={"count": 8},
        code="batchtrain/runtime/node.sh batchtrain/runtime/launch/gpus.py", needs=AMD, not_local=NO_GPU),
    Probe("nccl-settings",
        "The settings of NCCL that Azure's own launches use (`hopper.conf` on H100 and H200, `graceblackwell.conf` on "
        "GB200 and GB300), without those of SHARP, give the full speed as well",
        "Azure/ai-infrastructure-on-azure: NCCL/configs",
        "the recipe NCCL-Tests on them, and with the variables in `leave_unset`; Azure expects 450 GB/s on "
        "ND96isr_H100_v5 and 937 GB/s in a rack of GB300",
        "host/gang/nccl_settings", bandwidth,
        right=printed("# Avg bus bandwidth    : 441.2"), wrong=printed("# Avg bus bandwidth    : 23.1"),
        unread=printed("# Avg bus bandwidth    : 441.2", size="Standard_ND999"),
        code="batchtrain/launchers/variables.py", needs=LAUNCH_FILE, not_local=NO_INFINIBAND),
    Probe("rccl-settings", "MI300X (RCCL) needs no settings except the ports", "memory",
        "the recipe NCCL-Tests on it, with rccl-tests",
        "host/gang/rccl", lambda value: line_with(value, "NET/IB : Using", without="/RoCE"),
        right=printed(USING), wrong=printed("NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>"), unread={"code": 0},
        code="batchtrain/launchers/fabric.py", needs=AMD, not_local=NO_INFINIBAND),
    Probe("nccl-bootstrap",
        "`NCCL_SOCKET_IFNAME` with the interface of the address in `AZ_BATCH_HOST_LIST` (`eth0`) is enough for the "
        "bootstrap of NCCL", "azhpc-images: tests of NCCL", "as above, the line `Bootstrap : Using`",
        "host/gang/nccl", lambda value: line_with(value, "Bootstrap : Using eth0", "Bootstrap: Using eth0"),
        right=printed("NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>"),
        wrong=printed("NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>"), unread={"code": 0},
        code="batchtrain/launchers/fabric.py", needs=TOPOLOGY, not_local=NO_GPU),
    Probe("ucx-torch", "UCX accepts the same ports under UCC, as the `ucc` backend of torch uses it", "setup-mpi",
        "`ucc_perftest -c allreduce` of HPC-X with `UCX_NET_DEVICES`; `UCX_LOG_LEVEL=info` with `backend: ucc` on "
        "`Standard_HB120rs_v3`",
        "host/gang/ucc", lambda value: value["code"] == 0,
        right=printed(), wrong=printed(code=1), unread={"lines": []}, code="batchtrain/launchers/fabric.py",
        needs=INFINIBAND, not_local=NO_INFINIBAND),
    Probe("gpu-order",
        "The GPUs of a node are numbered by their position on the bus in `/proc/driver/nvidia/gpus`, as with "
        "`CUDA_DEVICE_ORDER=PCI_BUS_ID`", "NVIDIA's documentation",
        "`nvidia-smi -L` beside `ls /proc/driver/nvidia/gpus`",
        "host/nodes/gpus", lambda value: gpu_order(value["bus"], value["positions"]),
        right=gpus(), wrong=gpus(bus=["0002:00:00.0", "0001:00:00.0"]), unread=gpus(bus=[], positions=[]),
        code="batchtrain/runtime/launch/gpus.py", needs=NVIDIA, not_local=NO_GPU),
    Probe("container-gpus", "`nvidia-smi -L` shows the same GPUs in a container as on the host",
        "NVIDIA's documentation", "`nvidia-smi -L` on the host and in a native container",
        "coordination/nodes/gpus", lambda value: value["code"] == 0 and value["count"] == value["expected"],
        right=gpus(), wrong=gpus(count=0), unread={"code": 0},
        code="batchtrain/runtime/node.sh batchtrain/plan/container.py", needs=NVIDIA, not_local=NO_GPU),
    Probe("container-locked-memory",
        "In containers with `--ulimit memlock=-1:-1`, ssh sessions between nodes can lock unlimited memory",
        "azhpc-images: limits.conf", "`ssh -p 23 $host ulimit -l` in a container",
        "container/gang/ssh", lambda value: every(value, lambda host: host["memlock"] == "unlimited"),
        right=sessions(), wrong=sessions(memlock="65536"), unread={"10.0.0.4": {"code": 255, "error": ""}},
        code="batchtrain/plan/container.py batchtrain/runtime/preflight.sh", shape=dict[str, dict[str, Any]],
        needs=INFINIBAND, not_local=NO_INFINIBAND),
    Probe("container-ssh-ports",
        "Containers of one pool accept connections from all other nodes on port 23, within 3 s", "memory",
        "a task of 32 nodes with `preflight: true`",
        "container/gang/reach", lambda value: every(value, lambda host: host["23"] is not None and host["23"] <= 3),
        right={"10.0.0.4": {"22": 0.001, "23": 0.001}}, wrong={"10.0.0.4": {"22": 0.001, "23": None}}, unread={},
        code="batchtrain/runtime/preflight.sh batchtrain/runtime/gang.sh", shape=dict[str, dict[str, float | None]],
        not_local=NO_SSHD),
    Probe("container-topology",
        "A container sees the topology files of its host, because `/opt/microsoft` is mounted into it",
        "azhpc-images: customizations",
        "`head -1 /opt/microsoft/ndv5/topo.xml` in a native container, and in an Apptainer image",
        "coordination/nodes/nccl",
        lambda value: bool(some(list(value["settings"]), "setting")) and bool(value["topologies"]),
        right={"settings": {"NCCL_TOPO_FILE": TOPOLOGY_FILE}, "topologies": {TOPOLOGY_FILE: ""}},
        wrong={"settings": {"NCCL_TOPO_FILE": TOPOLOGY_FILE}, "topologies": {}},
        unread={"settings": {}, "topologies": {}}, code="batchtrain/plan/container.py batchtrain/launchers/fabric.py",
        needs=TOPOLOGY, not_local=NO_GPU),
)  # fmt: skip

AREA = Area(
    "frameworks",
    "Launching frameworks",
    (
        "Tested with real processes on two nodes: roles and environment of each framework, and training over gloo, "
        "gRPC and ps-lite on CPUs. Everything below concerns GPUs and NCCL and is untested."
    ),
    PROBES,
)
