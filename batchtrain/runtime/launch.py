"""The node launcher: starts the processes of a gang on every node, joins their output, and ends them together.

    python3 launch.py primary        on the primary; reads gang.json beside this file

It travels with the task: one file, the standard library alone, Python 3.6 and later. The processes it makes:

* the *primary* has the plan and the screen. It starts one *supervisor* on each node, through ssh or by a fork, and
  talks to it over that ssh's stdin and stdout: no port of its own, nothing secret on a command line, and an end of
  file when the other side is gone.
* a *supervisor* starts its node's processes, forwards what they print, and tells how they end. It is their
  subreaper: what they leave behind, daemons in sessions of their own included, becomes its child.
* a *guard* is the supervisor's parent. It ends what is left when the supervisor itself is killed or stopped.

Every one is a single loop over events: nothing blocks for long and nothing waits for the end of a stream, which an
orphan may hold open for ever. Sources of the frameworks' variables: docs of torchrun, DeepSpeed, JAX, TensorFlow
(TF_CONFIG), MXNet (ps-lite) and Horovod; what was measured with each stands in the project's tests.
"""

import collections
import errno
import heapq
import json
import os
import re
import select
import selectors
import signal
import socket
import struct
import sys
import time

# A name that type checkers hold true; `typing` itself would cost more than all the imports above.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Values = dict[str, str]
    Message = dict[str, Any]

HERE = os.path.dirname(os.path.abspath(__file__))
QUICK = 0.5
"""Seconds from SIGTERM to SIGKILL where nobody asked for more: the gang is to be gone within a second."""
WINDOW = 256 * 1024
"""Output that a node may have on its way without the primary having taken it."""
PARTIAL = 0.1
"""Seconds that an unfinished line waits for its end before it is shown as it is."""
LONGEST = 64 * 1024
"""Bytes of an unfinished line that are kept back at most."""


class LaunchError(Exception):
    """What stops the launch, in a sentence for the person who started it."""


# === the specification ==============================================================================================


class Role:
    """What one kind of process of the gang is; `gang.json` has a list of them."""

    def __init__(self, values: "Message") -> None:
        self.name = values["name"]  # type: str
        self.command = values["command"]  # type: str
        self.place = values.get("place", "all")  # type: str
        self.per_node = values.get("per_node")
        self.total = values.get("total")
        self.gpus = values.get("gpus", False)
        self.ranked = values.get("ranked", False)  # type: bool
        self.decides = values.get("decides", False)  # type: bool
        self.instead_of = values.get("instead_of", "")  # type: str
        self.linger = values.get("linger")


class Spec:
    """`gang.json`, with its defaults."""

    def __init__(self, values: "Message") -> None:
        if values.get("version") != 1:
            raise LaunchError("gang.json has version {}; this launcher knows 1".format(values.get("version")))
        self.values = values
        self.framework = values["framework"]  # type: str
        self.instances = values["instances"]  # type: int
        self.processes_per_node = values.get("processes_per_node")
        self.pre_execution = values.get("pre_execution") or ""  # type: str
        self.barrier = float(values.get("barrier_seconds", 120))
        self.grace = float(values.get("grace_seconds", 5))
        self.heartbeat = float(values.get("heartbeat_seconds", 30))
        self.environment = values.get("environment", {})  # type: Message
        self.rdma = values.get("rdma", False)  # type: bool
        self.rdma_environment = values.get("rdma_environment", {})  # type: Message
        self.binding = values.get("binding", "auto")  # type: str
        self.roles = [Role(role) for role in values["roles"]]
        self.options = values.get("options", {})  # type: Message
        self.leave_unset = values.get("leave_unset", [])  # type: list[str]
        self.preflight = values.get("preflight") or []  # type: list[str]
        if self.framework not in FRAMEWORKS:
            raise LaunchError("framework `{}` is none of {}".format(self.framework, ", ".join(sorted(FRAMEWORKS))))


class Node:
    """What a node said of itself."""

    def __init__(self, index: int, address: str, facts: "Message") -> None:
        self.index = index
        self.address = address
        self.name = facts.get("node", address)  # type: str
        self.processes = facts.get("processes", 1)  # type: int
        self.gpus = facts.get("gpus", [])  # type: list[str]
        self.real_gpus = facts.get("real_gpus", False)  # type: bool
        self.cores = facts.get("cores", 1)  # type: int
        self.ports = facts.get("ports", [])  # type: list[int]
        self.interfaces = facts.get("interfaces", {})  # type: Values
        self.infiniband = facts.get("infiniband", {})  # type: Values
        self.files = facts.get("files", [])  # type: list[str]
        self.folder = facts.get("folder", "")  # type: str
        self.emulated = facts.get("emulated", False)  # type: bool

    def __str__(self) -> str:
        return f"node {self.name} ({self.address})"

    @property
    def interface(self) -> str:
        """The network interface that has the address the others know this node by; empty where none has."""
        return next((name for name, address in self.interfaces.items() if address == self.address), "")


class Process:
    """One process of the gang, and its place in it."""

    def __init__(self, identity: int, role: Role, node: Node, index: int) -> None:
        self.id = identity
        self.role = role
        self.node = node
        self.index = index
        """Among those of its role."""
        self.rank = -1
        """Among the ranked ones; -1 for the others."""
        self.local_rank = -1
        self.slot = -1
        """Among those of its node that share the GPUs."""
        self.port = 0
        """A port that was free on its node."""

    @property
    def label(self) -> str:
        return f"rank {self.rank}" if self.rank >= 0 else f"{self.role.name} {self.index}"

    def __str__(self) -> str:
        return f"{self.label} on {self.node}"


class Gang:
    """All nodes and processes, and where they meet."""

    def __init__(self, spec: Spec, nodes: "list[Node]", processes: "list[Process]") -> None:
        self.spec = spec
        self.nodes = nodes
        self.processes = processes
        self.ranked = [process for process in processes if process.rank >= 0]
        self.port = 0
        self.store = ("", 0)
        """Where the key-value server listens (Horovod)."""

    @property
    def address(self) -> str:
        """The primary's, on the interface that was asked for."""
        return address_of(self.nodes[0], self.spec.options.get("interface"))

    def of(self, role: str) -> "list[Process]":
        return [process for process in self.processes if process.role.name == role]

    def hosts(self, role: str) -> "list[str]":
        return ["{}:{}".format(address_of(p.node, self.spec.options.get("interface")), p.port) for p in self.of(role)]

    def local(self, process: Process) -> "list[Process]":
        """The ranked processes of the same node."""
        return [other for other in self.ranked if other.node is process.node]

    def slots(self, node: Node) -> "list[Process]":
        return [process for process in self.processes if process.node is node and process.slot >= 0]


def address_of(node: Node, interface: "str | None") -> str:
    if not interface:
        return node.address
    if interface not in node.interfaces:
        known = ", ".join(sorted(node.interfaces)) or "none"
        raise LaunchError(f"{node} has no address on interface `{interface}` (it has: {known})")
    return node.interfaces[interface]


# === the plan: which process runs where =============================================================================


def plan(spec: Spec, nodes: "list[Node]") -> Gang:
    """Every process with its node, rank and port; rank 0 is on the first node, the primary.

    Ranks go role by role in the order given, in each role node by node. Raises LaunchError for what cannot be.
    """
    processes = []  # type: list[Process]
    for role in spec.roles:
        index = 0
        for at, count in enumerate(counts(spec, role, nodes)):
            for _ in range(count):
                processes.append(Process(len(processes), role, nodes[at], index))
                index += 1
    number(processes)
    gang = Gang(spec, nodes, processes)
    if not any(process.role.decides for process in processes):
        raise LaunchError("no process decides when the gang is done: see processes_per_node and the roles' counts")
    for node in nodes:
        check_gpus(spec, node, gang.slots(node))
        check_infiniband(spec, node)
    take_ports(spec, nodes, gang)
    return gang


def counts(spec: Spec, role: Role, nodes: "list[Node]") -> "list[int]":
    """How many processes of a role each node gets."""
    found = placed(role, nodes)
    for other in spec.roles:
        if other.instead_of == role.name:
            fewer = placed(other, nodes)
            found = [max(0, have - fewer[at]) for at, have in enumerate(found)]
    return found


def placed(role: Role, nodes: "list[Node]") -> "list[int]":
    if role.total is None:
        return [node.processes if role.per_node in (None, "processes_per_node") else role.per_node for node in nodes]
    if role.place == "primary":
        return [role.total] + [0] * (len(nodes) - 1)
    return [role.total // len(nodes) + (index < role.total % len(nodes)) for index in range(len(nodes))]


def number(processes: "list[Process]") -> None:
    local = collections.Counter()  # type: collections.Counter[int]
    slots = collections.Counter()  # type: collections.Counter[int]
    ranks = 0
    for process in processes:
        if process.role.ranked:
            process.rank, process.local_rank = ranks, local[process.node.index]
            ranks += 1
            local[process.node.index] += 1
        if process.role.gpus or process.role.ranked:
            process.slot = slots[process.node.index]
            slots[process.node.index] += 1


def check_gpus(spec: Spec, node: Node, slots: "list[Process]") -> None:
    wanting = sum(process.role.gpus is not False for process in slots)
    if under_torchrun(spec):
        wanting *= node.processes
    if node.gpus and wanting > len(node.gpus):
        have = len(node.gpus)
        raise LaunchError(
            f"{node}: {wanting} processes are to share {have} GPU{'s' * (have > 1)}; give each one of its own"
            f" (processes_per_node at most {have})"
        )


def check_infiniband(spec: Spec, node: Node) -> None:
    """Without it NCCL would talk over tcp in silence; an emulated node has none."""
    if spec.rdma and not node.infiniband and not node.emulated:
        raise LaunchError(
            f"{node}: InfiniBand is asked for, and this node has no active port (an image without the drivers? set"
            " infiniband: false to go on over tcp)"
        )


def take_ports(spec: Spec, nodes: "list[Node]", gang: Gang) -> None:
    """One for each process on its node, and one where all meet, on the primary."""
    free = {node.index: iter(node.ports) for node in nodes}
    try:
        gang.port = spec.options.get("port") or next(free[0])
        for process in gang.processes:
            process.port = next(free[process.node.index])
    except StopIteration:
        raise LaunchError("a node has too few free ports below the range that the kernel gives out") from None


# === environments: pure functions of the plan =======================================================================


def environment_of(gang: Gang, process: Process) -> "Values":
    """What a process is told, whatever was set before: its place in the gang, in the framework's words and in ours."""
    local = gang.local(process)
    values = {
        "BATCHTRAIN_ROLE": process.role.name,
        "BATCHTRAIN_INDEX": str(process.index),
        "BATCHTRAIN_PORT": str(process.port),
        "BATCHTRAIN_NODES": str(len(gang.nodes)),
        "BATCHTRAIN_NODE_RANK": str(process.node.index),
        "BATCHTRAIN_NODE_ADDRESS": address_of(process.node, gang.spec.options.get("interface")),
        "BATCHTRAIN_PROCESSES_PER_NODE": str(process.node.processes),
        "BATCHTRAIN_MASTER_ADDRESS": gang.address,
        "BATCHTRAIN_MASTER_PORT": str(gang.port),
        "BATCHTRAIN_BACKEND": backend(gang),
        "BATCHTRAIN_HOST_LIST": ",".join(node.address for node in gang.nodes),
        "AZ_BATCH_HOST_LIST": ",".join(node.address for node in gang.nodes),
    }
    if process.rank >= 0:
        values["BATCHTRAIN_RANK"] = str(process.rank)
        values["BATCHTRAIN_WORLD_SIZE"] = str(len(gang.ranked))
        values["BATCHTRAIN_LOCAL_RANK"] = str(process.local_rank)
        values["BATCHTRAIN_LOCAL_SIZE"] = str(len(local))
    for role in gang.spec.roles:
        values[f"BATCHTRAIN_{role.name.upper()}_HOSTS"] = ",".join(gang.hosts(role.name))
    values.update(visible_gpus(gang, process))
    values.update(FRAMEWORKS[gang.spec.framework].told(gang, process))
    return without(values, gang.spec.leave_unset)


def without(values: "Values", names: "list[str]") -> "Values":
    return {name: value for name, value in values.items() if name not in names}


def defaults_of(gang: Gang, process: Process) -> "Values":
    """What a process is told where the person has set nothing."""
    spec, node = gang.spec, process.node
    wanted = dict(spec.environment)
    if spec.rdma and node.infiniband:
        wanted.update(spec.rdma_environment)
    found = FRAMEWORKS[spec.framework].defaults(gang, process)
    for name, value in wanted.items():
        resolved = resolve(gang, process, name, value)
        if resolved is not None:
            found[name] = resolved
    return without(found, spec.leave_unset)


def resolve(gang: Gang, process: Process, name: str, value: "Any") -> "str | None":
    """A value of `environment`: "auto" is found on the node, the path of a file holds where the node has that file."""
    if name.endswith("_FILE") and value != "auto" and value not in process.node.files:
        return None
    if value != "auto" or name not in AUTOMATIC:
        return str(value)
    return AUTOMATIC[name](gang, process) or None


def threads(gang: Gang, process: Process) -> str:
    """The node's cores, shared by its ranks; emulated nodes are all on one machine."""
    sharing = process.node.processes if under_torchrun(gang.spec) else max(1, len(gang.slots(process.node)))
    machines = len(gang.nodes) if process.node.emulated else 1
    return str(max(1, process.node.cores // sharing // machines))


NCCLS_NOTES = ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"]
AUTOMATIC = {
    "OMP_NUM_THREADS": threads,
    "UCX_NET_DEVICES": lambda gang, process: process.node.infiniband.get("ports", ""),
    "UCX_IB_PKEY": lambda gang, process: process.node.infiniband.get("key", ""),
    "NCCL_IB_HCA": lambda gang, process: "=" + process.node.infiniband["ports"] if process.node.infiniband else "",
    "NCCL_DEBUG_FILE": lambda gang, process: process.node.folder and process.node.folder + "/nccl.%h.%p.txt",
    "NCCL_SOCKET_IFNAME": lambda gang, process: process.node.interface,
    "GLOO_SOCKET_IFNAME": lambda gang, process: process.node.interface,
}  # type: dict[str, Callable[[Gang, Process], str]]


def visible_gpus(gang: Gang, process: Process) -> "Values":
    """`gpus` of the role: all of the node's (LOCAL_RANK chooses), each process its own, or none.

    A node without GPUs is told nothing, so that a person's own words there stand; a role without gets none at all.
    """
    mode = process.role.gpus
    if not mode:
        return {"CUDA_VISIBLE_DEVICES": ""}
    if not process.node.gpus:
        return {}
    if mode is True:
        mode = FRAMEWORKS[gang.spec.framework].gpus
    return {"CUDA_VISIBLE_DEVICES": ",".join(own_gpus(gang, process) if mode == "each" else process.node.gpus)}


def own_gpus(gang: Gang, process: Process) -> "list[str]":
    """Equal blocks, in the order of the node's list."""
    sharing = [other for other in gang.slots(process.node) if other.role.gpus]
    size = len(process.node.gpus) // len(sharing)
    start = sharing.index(process) * size
    return process.node.gpus[start : start + size]


def backend(gang: Gang) -> str:
    """nccl where every rank has a GPU, gloo otherwise."""
    if gang.spec.options.get("backend"):
        return str(gang.spec.options["backend"])
    wanted = any(role.gpus for role in gang.spec.roles)
    return "nccl" if wanted and all(node.real_gpus for node in gang.nodes) else "gloo"


def nothing(gang: Gang, process: Process) -> "Values":
    return {}


def pytorch(gang: Gang, process: Process) -> "Values":
    """torch.distributed's env://, which DDP, FSDP, Lightning and Accelerate read; torchrun sets it by itself."""
    if under_torchrun(gang.spec):
        return {"BATCHTRAIN_TORCHRUN": " ".join(torchrun(gang, process))}
    local = gang.local(process)
    return {
        "MASTER_ADDR": gang.address,
        "MASTER_PORT": str(gang.port),
        "RANK": str(process.rank),
        "WORLD_SIZE": str(len(gang.ranked)),
        "LOCAL_RANK": str(process.local_rank),
        "LOCAL_WORLD_SIZE": str(len(local)),
        "GROUP_RANK": str(process.node.index),
        "GROUP_WORLD_SIZE": str(len(gang.nodes)),
        "NODE_RANK": str(process.node.index),
    }


def under_torchrun(spec: Spec) -> bool:
    return bool(spec.options.get("launcher") == "torchrun")


def torchrun(gang: Gang, process: Process) -> "list[str]":
    """The options of the one torchrun of a node. With `c10d` it gives out the ranks itself."""
    options, planned = gang.spec.options, gang.spec.instances
    least = options.get("min_instances") or planned
    words = [
        f"--nnodes={f'{least}:{planned}' if least < planned else len(gang.nodes)}",
        f"--nproc-per-node={process.node.processes}",
        f"--max-restarts={options.get('max_restarts') or 0}",
        f"--local-addr={address_of(process.node, options.get('interface'))}",
        "--monitor-interval=0.1",
    ]
    if options.get("rendezvous") == "c10d":
        return [*words, "--rdzv-backend=c10d", f"--rdzv-endpoint={gang.address}:{gang.port}", "--rdzv-id=batchtrain"]
    return [*words, f"--node-rank={process.node.index}", f"--master-addr={gang.address}", f"--master-port={gang.port}"]


TORCHRUNS_WORD = re.compile(rb"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: ")
"""What a torchrun says of a rank as soon as it knows; it ends itself many seconds later."""


def torchruns_failure(gang: Gang, process: Process, printed: bytes, ended: bool = False) -> "tuple[str, int] | None":
    """(sentence, exit code) of a rank that failed for good: where torchrun starts ranks again, the last one before its
    own end, which is with 1 whatever theirs was."""
    options = gang.spec.options
    if not under_torchrun(gang.spec) or (options.get("max_restarts") and not ended):
        return None
    said = TORCHRUNS_WORD.findall(printed)
    if not said:
        return None
    code, local = (int(word) for word in said[-1])
    label = f"rank {sum(node.processes for node in gang.nodes[: process.node.index]) + local}"
    if options.get("rendezvous") == "c10d":
        label = f"local rank {local}"
    return f"{label} on {process.node} {ending(128 - code if code < 0 else code)}", 128 - code if code < 0 else code


def ending(code: int) -> str:
    return f"was killed by signal {code - 128}" if 128 < code < 193 else f"exited with code {code}"


def sockets(gang: Gang, process: Process) -> "Values":
    """gloo takes the interface that the host name resolves to, NCCL the first it likes: both are told the right one."""
    name = gang.spec.options.get("interface") or process.node.interface
    if not name:
        return {}
    found = {"GLOO_SOCKET_IFNAME": name}
    return {**found, "NCCL_SOCKET_IFNAME": name} if process.node.gpus else found


def pytorch_defaults(gang: Gang, process: Process) -> "Values":
    values = sockets(gang, process)
    if not process.node.real_gpus:
        values["ACCELERATE_USE_CPU"] = "true"
    return values


def deepspeed(gang: Gang, process: Process) -> "Values":
    values = pytorch(gang, process)
    rank, size = cross(gang, process)
    values.update({"LOCAL_SIZE": str(len(gang.local(process))), "CROSS_RANK": str(rank), "CROSS_SIZE": str(size)})
    return values


def deepspeed_defaults(gang: Gang, process: Process) -> "Values":
    values = pytorch_defaults(gang, process)
    chosen = gang.spec.options.get("accelerator") or "auto"
    if chosen != "auto" or not process.node.real_gpus:
        values["DS_ACCELERATOR"] = "cpu" if chosen == "auto" else chosen
    return values


def jax(gang: Gang, process: Process) -> "Values":
    """`jax.distributed.initialize()` without arguments reads the coordinator's address and its own devices; how many
    and which process it is, only as Open MPI says it. The uri's presence is all that counts, given the address."""
    size, rank = str(len(gang.ranked)), str(process.rank)
    devices = own_gpus(gang, process) if process.node.gpus and process.role.gpus else ["0"]
    return {
        "JAX_COORDINATOR_ADDRESS": f"{gang.address}:{gang.port}",
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
        "JAX_LOCAL_DEVICE_IDS": ",".join(str(index) for index in range(len(devices))),
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{gang.address}:{gang.port}",
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": str(process.local_rank),
    }


def jax_defaults(gang: Gang, process: Process) -> "Values":
    values = sockets(gang, process)
    if not process.node.real_gpus:
        values["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
    return values


def tensorflow(gang: Gang, process: Process) -> "Values":
    """TF_CONFIG; not for programs that take flags. An evaluator stands beside the cluster, not in it."""
    if gang.spec.options.get("mode") == "flags":
        return {}
    names = [role.name for role in gang.spec.roles if role.name != "evaluator" and gang.of(role.name)]
    cluster = {name: gang.hosts(name) for name in names}
    task = {"type": process.role.name, "index": process.index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task}, sort_keys=True)}


def filled(gang: Gang, process: Process) -> str:
    """A role's command; TensorFlow 1's programs have the cluster on their command line."""
    text = process.role.command
    if gang.spec.options.get("mode") != "flags":
        return text
    places = {"{job_name}": process.role.name, "{task_index}": str(process.index)}
    for name in ("ps_hosts", "worker_hosts", "chief_hosts", "controller_host"):
        places["{" + name + "}"] = ",".join(gang.hosts(name.partition("_")[0]))
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def mxnet(gang: Gang, process: Process) -> "Values":
    """ps-lite, whose scheduler numbers workers by the text of their host, the highest first, and then by port. So each
    has its port from us, and its address in a form that sorts as our ranks do: hexadecimal, with a zero more a node."""
    options = gang.spec.options
    address = address_of(process.node, options.get("interface"))
    values = {
        "DMLC_ROLE": process.role.name,
        "DMLC_PS_ROOT_URI": gang.address,
        "DMLC_PS_ROOT_PORT": str(gang.port),
        "DMLC_NUM_SERVER": str(len(gang.of("server"))),
        "DMLC_NUM_WORKER": str(len(gang.of("worker"))),
        "DMLC_NODE_HOST": "0x{}{}".format("0" * process.node.index, socket.inet_aton(address).hex().lstrip("0")),
    }
    if options.get("interface"):
        values["DMLC_INTERFACE"] = options["interface"]
    if process.role.name in ("worker", "server"):
        values[f"DMLC_{process.role.name.upper()}_ID"] = str(process.index)
    if options.get("verbose") is not None:
        values["PS_VERBOSE"] = str(options["verbose"])
    return values


def mxnet_defaults(gang: Gang, process: Process) -> "Values":
    return {"PORT": str(process.port)}


def horovod(gang: Gang, process: Process) -> "Values":
    """Horovod over gloo; its ranks find each other through our key-value server. The host name is what `local` is
    counted by, so it is the node's address, which no other has."""
    local = gang.local(process)
    rank, size = cross(gang, process)
    values = {
        "HOROVOD_RANK": str(process.rank),
        "HOROVOD_SIZE": str(len(gang.ranked)),
        "HOROVOD_LOCAL_RANK": str(process.local_rank),
        "HOROVOD_LOCAL_SIZE": str(len(local)),
        "HOROVOD_CROSS_RANK": str(rank),
        "HOROVOD_CROSS_SIZE": str(size),
        "HOROVOD_HOSTNAME": process.node.address,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": gang.store[0],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(gang.store[1]),
    }
    name = gang.spec.options.get("interface") or process.node.interface
    if name:
        values["HOROVOD_GLOO_IFACE"] = name
    return values


def cross(gang: Gang, process: Process) -> "tuple[int, int]":
    """(rank, size) among the processes that have this local rank on their nodes."""
    peers = [other for other in gang.ranked if other.local_rank == process.local_rank]
    return peers.index(process), len(peers)


Framework = collections.namedtuple("Framework", "told defaults gpus linger")
"""The two functions; which GPUs a process sees (all, each its own); seconds that processes which do not decide have to
end by themselves (ps-lite's do, TensorFlow's servers never)."""
FRAMEWORKS = {
    "pytorch": Framework(pytorch, pytorch_defaults, "all", 1),
    "deepspeed": Framework(deepspeed, deepspeed_defaults, "all", 1),
    "jax": Framework(jax, jax_defaults, "each", 1),
    "tensorflow": Framework(tensorflow, nothing, "each", 0),
    "mxnet": Framework(mxnet, mxnet_defaults, "each", 5),
    "horovod": Framework(horovod, sockets, "all", 1),
}

NODES_OWN = frozenset(
    "HOME USER LOGNAME SHELL HOSTNAME PWD OLDPWD SHLVL TERM TTY _ XDG_RUNTIME_DIR XDG_SESSION_ID"
    " BATCHTRAIN_EMULATED_NODE".split()
)
NODES_OWN_PREFIXES = ("AZ_BATCH_", "SSH_")
LAUNCHERS_OWN = ("BATCHTRAIN_SSH", "BATCHTRAIN_FILES_")
PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


def is_nodes_own(name: str) -> bool:
    return name in NODES_OWN or name.startswith(NODES_OWN_PREFIXES)


def carried(environment: "Values", own: "Values", roots: "tuple[str, str]") -> "Values":
    """The primary's environment as it is on a node: what is the node's own comes from there.

    roots: the primary's AZ_BATCH_NODE_ROOT_DIR and the node's; they differ where nodes are emulated.
    """
    theirs, ours = roots
    values = {
        name: value.replace(theirs, ours) if theirs and theirs != ours else value
        for name, value in environment.items()
        if not is_nodes_own(name) and not name.startswith(LAUNCHERS_OWN)
    }
    values.update((name, value) for name, value in own.items() if is_nodes_own(name))
    return values


def past_proxies(values: "Values", hosts: str) -> None:
    """gRPC would ask a person's proxy for the way to the other nodes."""
    if not any(name in values or name.upper() in values for name in PROXIES):
        return
    for name in ("no_proxy", "NO_PROXY"):
        values[name] = ",".join(filter(None, (values.get(name), hosts)))


# === the machine that we are on =====================================================================================


def text_of(path: str) -> str:
    """A small file of the kernel's; empty where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def names_in(folder: str) -> "list[str]":
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def cpu_numbers(text: str) -> "list[int]":
    """The kernel's list form: "0-2,8"."""
    found = []  # type: list[int]
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def numa_nodes() -> "dict[int, list[int]]":
    """The CPUs that we may use, by NUMA node; threads of one core side by side."""
    allowed = os.sched_getaffinity(0)
    folder = "/sys/devices/system/node"
    listed = {
        int(name[4:]): cpu_numbers(text_of(f"{folder}/{name}/cpulist"))
        for name in names_in(folder)
        if name[:4] == "node" and name[4:].isdigit()
    }
    listed = listed or {0: sorted(allowed)}
    return {node: sorted((cpu for cpu in cpus if cpu in allowed), key=core_of) for node, cpus in listed.items()}


def core_of(cpu: int) -> "tuple[int, int]":
    siblings = text_of(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return min(cpu_numbers(siblings) or [cpu]), cpu


def share_cpus(nodes: "dict[int, list[int]]", homes: "list[int]") -> "list[list[int]]":
    """Disjoint CPUs for each local process; homes: the NUMA node of its GPU, -1 where it has none.

    Empty lists (no binding) where there are fewer CPUs than processes, or one process, which may use all.
    """
    everything = [cpu for node in sorted(nodes) for cpu in nodes[node]]
    if len(homes) < 2 or len(everything) < len(homes):
        return [[] for _ in homes]
    if all(len(nodes.get(home, [])) >= homes.count(home) for home in homes):
        seen = collections.Counter()  # type: collections.Counter[int]
        shares = []
        for home in homes:
            shares.append(block(nodes[home], seen[home], homes.count(home)))
            seen[home] += 1
        return shares
    return [block(everything, index, len(homes)) for index in range(len(homes))]


def block(items: "list[int]", index: int, count: int) -> "list[int]":
    size = len(items) // count
    return items[index * size : (index + 1) * size]


def gpu_homes() -> "dict[str, int]":
    """The NUMA node of each NVIDIA GPU by its number, which goes by the place on the bus."""
    return {
        str(index): int(text_of(f"/sys/bus/pci/devices/{place.lower()}/numa_node") or -1)
        for index, place in enumerate(names_in("/proc/driver/nvidia/gpus"))
    }


def find_gpus(environment: "Values", emulated: bool) -> "tuple[list[str], bool]":
    """The node's GPUs as CUDA_VISIBLE_DEVICES names them, and whether there is a driver behind them.

    The person's own CUDA_VISIBLE_DEVICES chooses among them, in its order. nvidia-smi is asked only where the device
    files do not tell: GPUs cut in instances (MIG), and emulated nodes, whose GPUs are a number.
    """
    devices = sorted(int(name[6:]) for name in names_in("/dev") if name[:6] == "nvidia" and name[6:].isdigit())
    if not devices:
        folder = "/sys/class/kfd/kfd/topology/nodes"
        devices = [int(name) for name in names_in(folder) if text_of(f"{folder}/{name}/gpu_id") not in "0"]
    real = bool(devices)
    found = [str(index) for index in range(len(devices))]
    if is_cut() or (emulated and not real):
        ask = "! command -v nvidia-smi >/dev/null || exec nvidia-smi -L"
        _, printed = output_of(["bash", "-c", ask], environment, "/", 20)
        lines = printed.decode("utf-8", "replace").split("\n")
        instances = [line.rpartition("UUID: ")[2].rstrip(")") for line in lines if line.lstrip().startswith("MIG ")]
        found = instances or [str(index) for index in range(sum(line.startswith("GPU ") for line in lines))]
    return choose_gpus(found, environment.get("CUDA_VISIBLE_DEVICES")), real


def is_cut() -> bool:
    """Whether some GPU is cut in instances."""
    folder = "/proc/driver/nvidia/capabilities"
    return any(name.startswith("gi") for gpu in names_in(folder) for name in names_in(f"{folder}/{gpu}/mig"))


def choose_gpus(found: "list[str]", wanted: "str | None") -> "list[str]":
    """Raises LaunchError for a number that no GPU has."""
    if wanted is None or not found:
        return found
    chosen = [word.strip() for word in wanted.split(",") if word.strip()]
    for word in chosen:
        if word.isdigit() and int(word) >= len(found):
            raise LaunchError(f"CUDA_VISIBLE_DEVICES={wanted} names GPU {word}, and there are {len(found)}")
    return chosen


def find_infiniband() -> "Values":
    """Active InfiniBand ports as UCX names them, and the partition key (not the default one; its top bit only says
    "full member"). Empty where there is no device."""
    if not os.path.exists("/dev/infiniband"):
        return {}
    ports, key, folder = [], "", "/sys/class/infiniband"
    for device in names_in(folder):
        for port in names_in(f"{folder}/{device}/ports"):
            place = f"{folder}/{device}/ports/{port}/"
            if "InfiniBand" not in text_of(place + "link_layer") or "ACTIVE" not in text_of(place + "state"):
                continue
            ports.append(f"{device}:{port}")
            keys = [int(text_of(place + "pkeys/" + name) or "0", 16) & 0x7FFF for name in ("0", "1")]
            key = next((f"0x{one:04x}" for one in keys if one not in (0, 0x7FFF)), key)
    return {"ports": ",".join(ports), "key": key} if ports else {}


def find_interfaces() -> "Values":
    """IPv4 addresses by interface."""
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def find_ports(count: int, index: int, nodes: int) -> "list[int]":
    """Ports that are free on all addresses and that the kernel gives to nobody; each of `nodes` has a range of its
    own, for emulated nodes are one machine."""
    low, high = port_range(*[int(word) for word in text_of("/proc/sys/net/ipv4/ip_local_port_range").split()])
    width = max(1, (high - low) // nodes)
    low += index * width
    start = int.from_bytes(os.urandom(2), "big")
    found = []  # type: list[int]
    for step in range(width):
        port = low + (start + step) % width
        if not why_taken(port):
            found.append(port)
            if len(found) == count:
                break
    return sorted(found)


def port_range(first: int = 32768, last: int = 60999) -> "tuple[int, int]":
    """The wider of the two ranges beside the one that the kernel gives out (first to last)."""
    below, above = (20000 if first > 21000 else 10000, first), (last + 1, 65535)
    return max(below, above, key=lambda one: one[1] - one[0])


def why_taken(port: int, again: bool = False) -> str:
    """Why nobody could listen there now; empty when one could. again: as servers do, which do not mind connections of
    the one before them that have just ended."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, again)
            probe.bind(("", port))
            probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return ""


def ranks_folder(directory: str) -> str:
    """Where this node keeps what its processes print."""
    return os.path.join(os.environ.get("AZ_BATCH_TASK_WORKING_DIR", directory), "ranks")


def look(message: "Message", environment: "Values", directory: str) -> "Message":
    """What this node tells the primary of itself."""
    spec, emulated = Spec(message["spec"]), message["emulated"]
    gpus, real = find_gpus(environment, emulated)
    processes = count_processes(spec, gpus, environment, directory)
    port = spec.options.get("port") if message["index"] == 0 else None
    if port and why_taken(port, again=True):
        raise LaunchError(f"port {port} cannot be listened on: {why_taken(port, again=True)}")
    defaults = dict(spec.environment, **spec.rdma_environment)
    ports = 4 + len(spec.roles) * processes + sum(role.total or 0 for role in spec.roles)
    return {
        "processes": processes,
        "gpus": gpus,
        "real_gpus": real,
        "cores": len(os.sched_getaffinity(0)),
        "ports": find_ports(ports, message["index"] if emulated else 0, message["count"] if emulated else 1),
        "interfaces": find_interfaces(),
        "infiniband": find_infiniband(),
        "folder": ranks_folder(directory),
        "files": [path for name, path in defaults.items() if name.endswith("_FILE") and os.path.exists(path)],
        "emulated": emulated,
    }


def preflight(spec: Spec, message: "Message", environment: "Values") -> "list[str]":
    """What preflight.sh finds on this node that is not as the task needs it."""
    if not spec.preflight:
        return []
    words = spec.preflight + ["{}={}".format(name, message[name]) for name in ("own", "hosts", "now")]
    words += ["emulated=1"] * message["emulated"] + ["port="] * message["near"]
    script = os.path.join(HERE, "preflight.sh")
    code, printed = output_of(["bash", script, *words], environment, "/", 60)
    found = [line for line in printed.decode("utf-8", "replace").split("\n") if line.startswith("preflight: ")]
    return found or ([] if code == 0 else [f"preflight: node {message['own']}: {script} {ending(code)}"])


def verdict() -> "Message":
    """The functions of verdict.py, which lies beside this file where NCCL was told to note its network."""
    values = {}  # type: Message
    with open(os.path.join(HERE, "verdict.py"), encoding="utf-8") as file:
        exec(compile(file.read(), "verdict.py", "exec"), values)
    return values


def count_processes(spec: Spec, gpus: "list[str]", environment: "Values", directory: str) -> int:
    wanted = spec.processes_per_node
    if wanted is None:
        return 1
    if str(wanted).strip().isdecimal():
        number = int(wanted)
    elif wanted == "auto":
        number = len(gpus) or 1
    else:
        number = counted(spec, str(wanted), environment, directory)
    if number < 1:
        raise LaunchError(f"processes_per_node is {number}; it must be at least 1")
    return number


def counted(spec: Spec, command: str, environment: "Values", directory: str) -> int:
    """What the command prints on this node, after the same preparation as a process has."""
    text = "exec 3>&1 >&2\n{}".format(prepared(spec.pre_execution, "exec >&3 3>&-\n" + command))
    code, printed = output_of(["bash", "-c", text], environment, directory, spec.barrier)
    said = printed.decode("utf-8", "replace").strip()
    if code == 0 and said.isdecimal() and int(said) > 0:
        return int(said)
    why = "printed '{}'".format(" ".join(said.split())[:200]) if code == 0 else f"ended with code {code}"
    hint = " (no GPU, or no driver, on this node?)" if "nvidia-smi" in command else ""
    raise LaunchError(f"processes_per_node: `{command}` {why}, not a number of at least 1{hint}")


# === processes ======================================================================================================


def spawn(
    program: "list[str]",
    environment: "Values",
    directory: str,
    stdio: "tuple[int, int, int]",
    cpus: "list[int]",
    told: int = signal.SIG_DFL,
) -> int:
    """A child in a session of its own. Our own descriptors close by themselves; its stdio may not be below 3.

    told: what SIGTERM does to it.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, told)
        for target, source in enumerate(stdio):
            os.dup2(source, target)
        if cpus:
            os.sched_setaffinity(0, cpus)
        os.chdir(directory)
        values = {encoded(name): encoded(value) for name, value in environment.items()}
        os.execvpe(program[0], [encoded(word) for word in program], values)
    except BaseException as error:  # noqa: BLE001 - a forked child has no other way to tell
        os.write(2, "batchtrain: {}: {}\n".format(program[0], getattr(error, "strerror", error)).encode())
    os._exit(127)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def own_environment() -> "Values":
    """As UTF-8 whatever the locale says, which each node may have another of: nothing of it is changed on its way."""
    return {decoded(name): decoded(value) for name, value in os.environb.items()}


def prepared(before: str, command: str) -> str:
    """A command with pre_execution_command before it in the same shell; a file that it sources must be there."""
    if not before.strip():
        return command
    parts = quoted(os.path.join(HERE, "gang.sh"))
    text = """[ ! -r {0} ] || {{ . {0} && trap 'bt_check_source "$BASH_COMMAND"' DEBUG; }}
{1}

{{ bt_code=$?; trap - DEBUG; set +eu; }} 2>/dev/null
[ "$bt_code" -eq 0 ] || echo "batchtrain: warning: pre_execution_command ended with code $bt_code" >&2
{2}"""
    return text.format(parts, before.strip("\n"), command)


def output_of(program: "list[str]", environment: "Values", directory: str, seconds: float) -> "tuple[int, bytes]":
    """(exit code, what it printed), of a command that answers at once or is ended."""
    reader, writer = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    pid = spawn(program, environment, directory, (null, writer, 2), [])
    os.close(writer)
    os.close(null)
    printed, deadline, left = b"", time.monotonic() + seconds, seconds
    while left > 0 and len(printed) < LONGEST and is_ready(reader, select.POLLIN, left):
        data = os.read(reader, 4096)
        if not data:
            break
        printed += data
        left = deadline - time.monotonic()
    else:
        os.killpg(pid, signal.SIGKILL)
    os.close(reader)
    return exit_code(os.waitpid(pid, 0)[1]), printed


def is_ready(fd: int, event: int, seconds: float = 0) -> bool:
    """Or at its end. A poll, for select() knows no descriptor above 1023, which many nodes have."""
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(1000 * seconds))


def exit_code(status: int) -> int:
    """As a shell has it: 128 and the signal's number for a process that a signal ended."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def become_subreaper() -> None:
    """Orphans of our processes become our children, whatever session they are in. Without it, the mark finds them."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


class Tree:
    """The processes of this machine, by parent."""

    def __init__(self) -> None:
        self.state = {}  # type: dict[int, str]
        self.name = {}  # type: dict[int, str]
        self.children = collections.defaultdict(list)  # type: dict[int, list[int]]
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                self._read(int(entry))

    def _read(self, pid: int) -> None:
        head, _, tail = text_of(f"/proc/{pid}/stat").rpartition(") ")
        fields = tail.split(" ", 2)
        if len(fields) == 3 and fields[0] not in ("Z", "X"):
            self.state[pid], self.name[pid] = fields[0], head.partition("(")[2]
            self.children[int(fields[1])].append(pid)

    def below(self, pid: int) -> "list[int]":
        """All descendants, without dead ones that nobody has waited for."""
        found, at = list(self.children.get(pid, ())), 0
        while at < len(found):
            found.extend(self.children.get(found[at], ()))
            at += 1
        return found

    def to_tell(self, pid: int) -> "list[int]":
        """Whom SIGTERM is for: the process, and below a shell, which passes no signal on, its children."""
        found = [pid]
        if self.name.get(pid) in ("bash", "sh", "dash", "ash", "busybox"):
            for child in self.children.get(pid, ()):
                found += self.to_tell(child)
        return found


def marked(mark: str) -> "list[int]":
    """The processes that have our mark in their environment, wherever they went."""
    wanted = b"\0BATCHTRAIN_GANG=" + mark.encode() + b"\0"
    found = []  # type: list[int]
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if wanted in b"\0" + file.read() + b"\0":
                        found.append(int(entry))
            except OSError:
                continue
    return found


def left_of(mark: str) -> "list[int]":
    """What there still is of our processes."""
    return Tree().below(os.getpid()) or marked(mark)


def send_signal(number: int, pid: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it is gone, or has become somebody else's
        pass


def reap() -> "list[tuple[int, int]]":
    """(pid, status) of every child that has ended."""
    found = []  # type: list[tuple[int, int]]
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found.append((pid, status))


# === the loop, and messages =========================================================================================


class Loop:
    """Events of descriptors, clocks and signals, one after the other."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.clocks = []  # type: list[tuple[float, int, Callable[[], None]]]
        self.count = 0
        self.running = True
        self.signals = {}  # type: dict[int, Callable[[int], None]]
        self.wake, wakes = os.pipe()
        for fd in (self.wake, wakes):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakes)
        self.watch(self.wake, self._on_signal)

    def watch(self, fd: int, callback: "Callable[[], None]", writing: bool = False) -> None:
        events = selectors.EVENT_WRITE if writing else selectors.EVENT_READ
        self.selector.register(fd, events, callback)

    def forget(self, fd: int) -> None:
        self.selector.unregister(fd)

    def later(self, seconds: float, callback: "Callable[[], None]") -> None:
        self.count += 1
        heapq.heappush(self.clocks, (time.monotonic() + seconds, self.count, callback))

    def on(self, number: int, callback: "Callable[[int], None]") -> None:
        self.signals[number] = callback
        signal.signal(number, lambda *_: None)

    def run(self) -> None:
        while self.running:
            left = max(0, self.clocks[0][0] - time.monotonic()) if self.clocks else None
            signals_first = sorted(self.selector.select(left), key=lambda event: event[0].fd != self.wake)
            for key, _ in signals_first:
                if self.selector.get_map().get(key.fd) is key:  # not forgotten by the callback before
                    key.data()
            while self.clocks and self.clocks[0][0] <= time.monotonic():
                heapq.heappop(self.clocks)[2]()

    def _on_signal(self) -> None:
        for number in set(os.read(self.wake, 4096)):
            self.signals[number](number)


HEADER = struct.Struct("!Ic")
OUTPUT = struct.Struct("!IB")
GREETING = b"\0batchtrain node\0"
"""Comes first from a node: what a login shell prints before it is not ours."""


class Channel:
    """Frames over two descriptors: length, kind, body. Kind `J` is a message in JSON, `O` is output,
    as it is, `B` a sign of life."""

    def __init__(self, loop: Loop, reader: int, writer: int, greeted: bool) -> None:
        self.loop = loop
        self.reader, self.writer = reader, writer
        self.greeted = greeted
        self.heard = time.monotonic()
        self.open = True
        self.on_message = None  # type: Callable[[Message], None] | None
        self.on_output = None  # type: Callable[[int, int, bytes], None] | None
        self.on_end = None  # type: Callable[[], None] | None
        self._in, self._out = bytearray(), bytearray()
        self._writing = False
        for fd in (reader, writer):
            os.set_blocking(fd, False)
        loop.watch(reader, self.receive)

    def send(self, **message: "Any") -> None:
        self._send(b"J", json.dumps(message).encode())

    def beat(self) -> None:
        """A sign of life: that it comes is all there is to it."""
        self._send(b"B", b"")

    def send_output(self, process: int, stream: int, data: bytes) -> None:
        self._send(b"O", OUTPUT.pack(process, stream) + data)

    def _send(self, kind: bytes, body: bytes) -> None:
        if self.open:
            self._out += HEADER.pack(len(body), kind) + body
            if not self._writing:
                self.flush()

    def greet(self) -> None:
        self._out += GREETING

    def flush(self) -> None:
        """Write what the other side takes now; the rest when it takes more."""
        try:
            while self._out:
                del self._out[: os.write(self.writer, bytes(self._out[:65536]))]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # the reader sees the end
        if bool(self._out) != self._writing and self.open:
            self._writing = bool(self._out)
            if self._writing:
                self.loop.watch(self.writer, self.flush, writing=True)
            else:
                self.loop.forget(self.writer)

    def receive(self) -> None:
        try:
            data = os.read(self.reader, 1 << 17)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            if self.on_end:
                self.on_end()
            return
        self._in += data
        self._deliver()

    def drain(self) -> None:
        """Take all that is there, up to the end; for a peer that has ended."""
        while self.open and is_ready(self.reader, select.POLLIN):
            self.receive()

    def _deliver(self) -> None:
        if not self.greeted:
            place = self._in.find(GREETING)
            if place < 0:
                del self._in[: max(0, len(self._in) - len(GREETING))]
                return
            del self._in[: place + len(GREETING)]
            self.greeted = True
        at, have = 0, len(self._in)
        while have - at >= HEADER.size:
            length, kind = HEADER.unpack_from(self._in, at)
            if have - at < HEADER.size + length:
                break
            body = bytes(memoryview(self._in)[at + HEADER.size : at + HEADER.size + length])
            at += HEADER.size + length
            self.heard = time.monotonic()
            self._hand_over(kind, body)
        del self._in[:at]

    def _hand_over(self, kind: bytes, body: bytes) -> None:
        if kind == b"O" and self.on_output:
            process, stream = OUTPUT.unpack_from(body)
            self.on_output(process, stream, body[OUTPUT.size :])
        elif kind == b"J" and self.on_message:
            self.on_message(json.loads(body.decode()))

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        self.loop.forget(self.reader)
        if self._writing:
            self.loop.forget(self.writer)
        os.close(self.reader)
        os.close(self.writer)


# === a node: the guard and the supervisor ===========================================================================


def guarded(reader: int, writer: int, mark: str) -> int:
    """Fork the supervisor and see to it that nothing outlives it. In the process that ssh, or the primary, started."""
    become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    guards, supervisors = socket.socketpair()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            guards.close()
            Supervisor(reader, writer, supervisors, mark).loop.run()
            code = 0
        except Exception as error:  # noqa: BLE001 - whatever it is, its node is lost, and why is told
            refuse(f"its supervisor failed: {error!r}")
        finally:
            os._exit(code)
    supervisors.close()
    stand_guard(pid, guards, reader)
    code = exit_code(os.waitpid(pid, 0)[1])
    sweep(mark)
    return code


def stand_guard(pid: int, life: socket.socket, channel: int) -> None:
    """Until the supervisor is gone; one that does not go when its primary has gone (it was stopped) is killed."""
    poll = select.poll()
    poll.register(life, select.POLLIN)
    poll.register(channel, getattr(select, "POLLRDHUP", 0x2000))
    patience = None  # type: int | None
    while True:
        events = [fd for fd, _ in poll.poll(patience)]
        if life.fileno() in events:
            return
        if not events:
            send_signal(signal.SIGKILL, pid)
            return
        poll.unregister(channel)
        patience = 2000


def sweep(mark: str, seconds: float = 3) -> None:
    """SIGKILL for all that is left, until nothing is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        left = left_of(mark)
        if not left:
            return
        for pid in left:
            send_signal(signal.SIGKILL, pid)
        reap()
        time.sleep(0.005)


class Running:
    """A process of the gang on its supervisor's side."""

    def __init__(self, identity: int, pid: int, readers: "list[int]", files: "list[int]") -> None:
        self.id = identity
        self.pid = pid
        self.readers = readers
        """Its stdout and stderr; -1 once ended."""
        self.files = files
        self.stopped_since = 0.0


class Supervisor:
    """One node's processes: starts them, forwards their output, tells their ends, and ends them."""

    def __init__(self, reader: int, writer: int, guard: socket.socket, mark: str) -> None:
        become_subreaper()
        self.mark = mark
        self.loop = Loop()
        self.channel = Channel(self.loop, reader, writer, greeted=True)
        self.channel.on_message = self.on_message
        self.channel.on_end = lambda: self.end(QUICK)
        self.credit = WINDOW
        self.paused = []  # type: list[tuple[Running, int]]
        self.running = {}  # type: dict[int, Running]
        self.every = []  # type: list[Running]
        self.ending = False
        self.told = set()  # type: set[int]
        self.deadline = 0.0
        self.environment = {}  # type: Values
        self.directory = "/"
        self.heartbeat = 30.0
        self.loop.watch(guard.fileno(), lambda: self.on_guard(guard))
        self.loop.on(signal.SIGCHLD, lambda _: self.on_children())
        self.loop.on(signal.SIGTERM, self.on_told)
        self.channel.greet()
        self.channel.flush()

    # messages

    def on_message(self, message: "Message") -> None:
        getattr(self, "on_" + message["do"])(message)

    def on_look(self, message: "Message") -> None:
        """The first: what is to run, and the primary's environment."""
        emulated = os.environ.get("BATCHTRAIN_EMULATED_NODE", "")
        roots = (message["root"], emulated if emulated.startswith("/") else message["root"])
        self.environment = carried(message["environment"], own_environment(), roots)
        self.heartbeat = message["heartbeat"]
        own = os.environ.get("AZ_BATCH_TASK_WORKING_DIR", "/")
        there = message["directory"].replace(*roots) if roots[0] else message["directory"]
        self.directory = there if os.path.isdir(there) else own
        name = os.environ.get("AZ_BATCH_NODE_ID") or socket.gethostname()
        faults = preflight(Spec(message["spec"]), message, self.environment)
        try:
            facts = look(message, self.environment, self.directory)
        except LaunchError as error:
            facts = {"error": str(error)}
        self.channel.send(do="hello", node=name, time=time.time(), faults=faults, **facts)
        self.channel.heard = time.monotonic()
        self.beat()

    def on_start(self, message: "Message") -> None:
        folder = ranks_folder(self.directory)
        for name in names_in(folder):
            if name.startswith("nccl."):  # an earlier try's
                os.unlink(os.path.join(folder, name))
        shares = self.cpus(message) if message["bind"] else []
        for process in message["processes"]:
            slot = process["slot"]
            process["command"] = prepared(message["before"], process["command"])
            self.start(process, folder, shares[slot] if 0 <= slot < len(shares) else [])

    def cpus(self, message: "Message") -> "list[list[int]]":
        homes = gpu_homes()
        return share_cpus(numa_nodes(), [homes.get(gpu, -1) for gpu in message["slots"]])

    def start(self, process: "Message", folder: str, cpus: "list[int]") -> None:
        environment = dict(process["defaults"])
        if any(name in self.environment for name in NCCLS_NOTES):
            environment = without(environment, NCCLS_NOTES)  # a person's own word is not to end in our file
        environment.update(self.environment)
        environment.update(process["environment"])
        environment["BATCHTRAIN_GANG"] = self.mark
        past_proxies(environment, process["environment"]["BATCHTRAIN_HOST_LIST"])
        null = os.open(os.devnull, os.O_RDONLY)
        pipes = [os.pipe(), os.pipe()]
        stdio = (null, pipes[0][1], pipes[1][1])
        pid = spawn(["bash", "-c", process["command"]], environment, self.directory, stdio, cpus)
        for fd in stdio:
            os.close(fd)
        files = [self.open_file(folder, process["file"], name) for name in ("stdout", "stderr")]
        running = Running(process["id"], pid, [pipe[0] for pipe in pipes], files)
        self.running[pid] = running
        self.every.append(running)
        for stream in (0, 1):
            os.set_blocking(running.readers[stream], False)
            self.resume(running, stream)

    def open_file(self, folder: str, process: str, stream: str) -> int:
        try:
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"{process}.{stream}.txt")
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as error:
            self.say(f"the output of {process} is kept in no file: {error}")
            return -1

    def say(self, text: str) -> None:
        self.channel.send(do="say", text=text)

    def on_credit(self, message: "Message") -> None:
        self.credit += message["bytes"]
        if self.credit > 0:
            paused, self.paused = self.paused, []
            for running, stream in paused:
                if running.readers[stream] >= 0:
                    self.resume(running, stream)

    def on_end(self, message: "Message") -> None:
        self.end(message["grace"])

    # output

    def resume(self, running: Running, stream: int) -> None:
        self.loop.watch(running.readers[stream], lambda: self.forward(running, stream))

    def forward(self, running: Running, stream: int) -> None:
        """One read of what a process printed."""
        fd = running.readers[stream]
        try:
            data = os.read(fd, 16384)
        except BlockingIOError:
            return
        if not data:
            self.close_stream(running, stream)
            return
        self.keep(running, stream, data)
        self.channel.send_output(running.id, stream, data)
        self.credit -= len(data)
        if self.credit <= 0 and fd in self.loop.selector.get_map():
            self.loop.forget(fd)
            self.paused.append((running, stream))

    def keep(self, running: Running, stream: int, data: bytes) -> None:
        if running.files[stream] < 0:
            return
        try:
            os.write(running.files[stream], data)
        except OSError as error:
            self.say(f"the output of a process is no longer kept in a file: {error.strerror}")
            os.close(running.files[stream])
            running.files[stream] = -1

    def close_stream(self, running: Running, stream: int) -> None:
        fd, file = running.readers[stream], running.files[stream]
        if fd in self.loop.selector.get_map():
            self.loop.forget(fd)
        os.close(fd)
        if file >= 0:
            os.close(file)
        running.readers[stream] = running.files[stream] = -1

    def drain(self, running: Running) -> None:
        """What a dead process left in its pipes, which hold little; an orphan that writes on is not waited for."""
        for stream in (0, 1) * 8:
            if running.readers[stream] >= 0:
                self.forward(running, stream)

    # ends

    def on_children(self) -> None:
        now = time.time()
        for pid, status in reap():
            running = self.running.pop(pid, None)
            if running is not None:
                self.drain(running)
                self.channel.send(do="ended", id=running.id, code=exit_code(status), at=now, ours=pid in self.told)
        if self.ending:
            self.check_left()

    def on_told(self, number: int) -> None:
        """Who ends a task may tell every process of it: the primary then says how long the ranks have."""
        why = f"its supervisor was ended by {signal.Signals(number).name}"
        self.loop.later(QUICK, lambda: None if self.ending else self.give_up(why))

    def on_guard(self, guard: socket.socket) -> None:
        self.loop.forget(guard.fileno())
        self.give_up("its supervisor's guard was ended")

    def give_up(self, why: str) -> None:
        """End by ourselves; the primary is told before a process of another node can fail of it."""
        self.channel.send(do="lost", why=why)
        self.end(QUICK)

    def end(self, grace: float) -> None:
        """SIGTERM, and after the grace SIGKILL for all that is left; a shorter grace than before holds."""
        deadline = time.monotonic() + grace
        if self.ending and deadline >= self.deadline:
            return
        first, self.ending, self.deadline = not self.ending, True, deadline
        self.loop.later(grace, self.kill)
        if first:
            self.on_children()

    def check_left(self) -> None:
        """Each child that is ours now, orphans included, is told once."""
        tree = Tree()
        if not tree.below(os.getpid()) and not marked(self.mark):
            self.finish()
            return
        for child in tree.children.get(os.getpid(), ()):
            for pid in tree.to_tell(child) if child not in self.told else ():
                self.told.add(pid)
                send_signal(signal.SIGTERM, pid)
                send_signal(signal.SIGCONT, pid)

    def kill(self) -> None:
        if time.monotonic() < self.deadline:
            return
        left = left_of(self.mark)
        for pid in left:
            self.told.add(pid)
            send_signal(signal.SIGKILL, pid)
        if not left:
            self.on_children()
        elif time.monotonic() < self.deadline + 3:
            self.loop.later(0.01, self.kill)
        else:
            self.say("could not be rid of process {}".format(", ".join(map(str, left))))
            self.finish()

    def finish(self) -> None:
        """Nothing is left: the last output, and the last word. Then the primary, or its end, closes the channel."""
        if not self.loop.running:
            return
        for running in self.every:
            self.drain(running)
        self.tell_of_nccl()
        self.channel.send(do="done")
        deadline = time.monotonic() + 5
        while self.channel.open and self.channel._out and time.monotonic() < deadline:
            is_ready(self.channel.writer, select.POLLOUT, 0.2)
            self.channel.flush()
        self.loop.running = False

    def tell_of_nccl(self) -> None:
        """What NCCL noted of its network here, where it did. No fault of ours may stand in the way of the end."""
        folder = ranks_folder(self.directory)
        if not self.every or not any(name.startswith("nccl.") for name in names_in(folder)):
            return
        try:
            self.channel.send(do="nccl", heard=verdict()["read"](folder))
        except Exception as error:  # noqa: BLE001 - see above
            self.say(f"what NCCL noted in {folder} cannot be read: {error}")

    # heartbeats

    def beat(self) -> None:
        if self.ending:
            return
        now = time.monotonic()
        self.channel.beat()
        self.look_for_stopped(now)
        if now - self.channel.heard > self.heartbeat:
            self.give_up(f"nothing was heard of the primary for {self.heartbeat:g} s")
        self.loop.later(self.heartbeat / 6, self.beat)

    def look_for_stopped(self, now: float) -> None:
        """A process that has been in state T for long: its others would wait for it for ever."""
        tree = Tree() if self.running else None
        for pid, running in self.running.items():
            if tree and any(tree.state.get(one) == "T" for one in [pid, *tree.below(pid)]):
                running.stopped_since = running.stopped_since or now
                if now - running.stopped_since >= self.heartbeat / 3:
                    self.channel.send(do="stopped", id=running.id, seconds=round(now - running.stopped_since))
            else:
                running.stopped_since = 0.0


# === the primary ====================================================================================================


class Sink:
    """Where output goes. It is written only when it takes it, never more than a pipe takes at once, so that a reader
    that is slow, or has stopped reading, stops nothing but output."""

    def __init__(self, loop: Loop, fd: int) -> None:
        self.loop, self.fd = loop, fd
        self.waiting = bytearray()
        self.open_line = None  # type: tuple[Any, int] | None
        """Whose unfinished line the last byte belongs to."""
        self.watched = False
        self.closed = False
        self.on_room = None  # type: Callable[[], None] | None
        self.is_file = not self._can_be_watched()

    def _can_be_watched(self) -> bool:
        try:
            self.loop.watch(self.fd, self.flush, writing=True)
        except OSError:  # epoll takes no regular files: they always have room
            return False
        self.loop.forget(self.fd)
        return True

    def write(self, key: "tuple[Any, int]", prefix: bytes, data: bytes, whole: bool) -> None:
        """data: whole lines, or (not whole) a part of one."""
        if self.closed:
            return
        if self.open_line is not None and self.open_line != key:
            self.waiting += b"\n"
        if self.open_line != key:
            self.waiting += prefix
        body = data[:-1] if whole else data
        self.waiting += body.replace(b"\n", b"\n" + prefix)
        if whole:
            self.waiting += b"\n"
        self.open_line = None if whole else key
        if self.is_file or not self.watched:
            self.flush()

    def flush(self) -> None:
        try:
            while self.waiting and (self.is_file or is_ready(self.fd, select.POLLOUT)):
                size = len(self.waiting) if self.is_file else 4096
                del self.waiting[: os.write(self.fd, self.waiting[:size])]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more; but a full disk may have room again
            self.closed = not self.is_file
            self.waiting.clear()
        if bool(self.waiting) != self.watched:
            self.watched = bool(self.waiting)
            if self.watched:
                self.loop.watch(self.fd, self.flush, writing=True)
            else:
                self.loop.forget(self.fd)
        if self.on_room:
            self.on_room()


class Screen:
    """Joins what all processes print, line by line, and keeps the last of each."""

    ROOM = 1 << 20

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        same = os.path.sameopenfile(1, 2)
        first = Sink(loop, 1)
        self.sinks = (first, first if same else Sink(loop, 2))
        self.partial = {}  # type: dict[tuple[Any, int], bytes]
        self.prefixes = {}  # type: dict[Any, bytes]
        self.last = collections.defaultdict(bytes)  # type: dict[int, bytes]
        self.due = False
        self.debts = []  # type: list[tuple[Session, int]]
        for sink in set(self.sinks):
            sink.on_room = self.pay

    def say(self, text: str) -> None:
        self.sinks[1].write(("batchtrain", 1), b"batchtrain: ", text.encode("utf-8", "replace") + b"\n", whole=True)

    def show(self, process: int, stream: int, data: bytes) -> None:
        self.last[process] = (self.last[process] + data)[-32768:]
        key = (process, stream)
        data = self.partial.pop(key, b"") + data
        cut = data.rfind(b"\n") + 1
        if cut:
            self.sinks[stream].write(key, self.prefixes[process], data[:cut], whole=True)
        if len(data) - cut > LONGEST:
            self.sinks[stream].write(key, self.prefixes[process], data[cut:], whole=False)
        elif len(data) > cut:
            self.partial[key] = data[cut:]
            if not self.due:
                self.due = True
                self.loop.later(PARTIAL, self.show_partial)

    def show_partial(self) -> None:
        self.due = False
        partial, self.partial = self.partial, {}
        for (process, stream), data in partial.items():
            self.sinks[stream].write((process, stream), self.prefixes[process], data, whole=False)

    def end_lines(self) -> None:
        self.show_partial()
        for sink in set(self.sinks):
            if sink.open_line is not None:
                sink.open_line = None
                sink.waiting += b"\n"
            sink.flush()

    def take(self, session: "Session", size: int) -> None:
        """Room for more output of a node, at once or when there is some."""
        self.debts.append((session, size))
        self.pay()

    def pay(self) -> None:
        if self.debts and sum(len(sink.waiting) for sink in set(self.sinks)) < self.ROOM:
            debts, self.debts = self.debts, []
            for session, size in debts:
                session.give_credit(size)

    def last_lines(self, process: int, count: int = 10) -> "list[str]":
        lines = self.last[process][-4096:].decode("utf-8", "backslashreplace").rstrip("\n").split("\n")
        return [line for line in lines if line.strip()][-count:]

    def is_empty(self) -> bool:
        return not any(sink.waiting for sink in self.sinks)


class Failure:
    """One way in which the gang went wrong, and when; the first is the cause."""

    def __init__(self, at: float, text: str, code: int, process: int = -1) -> None:
        self.at, self.text, self.code, self.process = at, text, code, process
        self.lines = []  # type: list[str]
        """What the process had printed last, when it failed."""


class Session:
    """The primary's side of one node."""

    def __init__(self, primary: "Primary", index: int, address: str) -> None:
        self.primary = primary
        self.index = index
        self.address = address
        self.pid = 0
        self.channel = None  # type: Channel | None
        self.node = None  # type: Node | None
        self.done = False
        self.skew = 0.0
        """Its clock less ours, in seconds."""
        self.said = b""
        """The last of its ssh's stderr."""
        self.stderr = -1
        self.credit = 0
        self.reason = "no answer"
        self.faults = []  # type: list[str]
        """What its preflight found."""
        self.heard = []  # type: list[Message]
        """What NCCL noted of its network there."""

    def __str__(self) -> str:
        return str(self.node) if self.node else f"node {self.address}"

    def connect(self) -> None:
        """Start its supervisor, and tell it at once what it is to look for."""
        if self.index == 0:
            mine, theirs = socket.socketpair()
            self.pid = self.primary.fork_supervisor(theirs, mine)
            theirs.close()
            reader = mine.detach()
            writer = os.dup(reader)
        else:
            reader, writer = self.start_ssh()
        self.channel = Channel(self.primary.loop, reader, writer, greeted=False)
        self.channel.on_message = self.on_message
        self.channel.on_output = self.on_output
        self.channel.on_end = self.on_end
        self.channel.send(do="look", **self.primary.first_message(self.index))

    def connect_again(self) -> None:
        if not self.done and not self.primary.ending:
            self.connect()

    def start_ssh(self) -> "tuple[int, int]":
        stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        line = self.primary.ssh_line(self.address, self.index)
        stdio = (stdin[0], stdout[1], stderr[1])
        # Who ends a task may tell every process of it; the nodes are reached until all is over.
        self.pid = spawn(line, self.primary.environment, "/", stdio, [], told=signal.SIG_IGN)
        for fd in (stdin[0], stdout[1], stderr[1]):
            os.close(fd)
        self.stderr = stderr[0]
        self.said = b""
        os.set_blocking(self.stderr, False)
        self.primary.loop.watch(self.stderr, self.on_stderr)
        return stdout[0], stdin[1]

    def on_stderr(self) -> None:
        try:
            data = os.read(self.stderr, 65536)
        except BlockingIOError:
            return
        self.said = (self.said + data)[-2048:]
        if not data:
            self.close_stderr()

    def close_stderr(self) -> None:
        if self.stderr >= 0:
            self.primary.loop.forget(self.stderr)
            os.close(self.stderr)
            self.stderr = -1

    def on_message(self, message: "Message") -> None:
        getattr(self, "on_" + message.pop("do"))(message)

    def on_hello(self, message: "Message") -> None:
        skew = message["time"] - time.time()
        self.skew = skew if abs(skew) > 1 else 0.0  # less is the way here: clocks in a data centre agree
        self.node = Node(self.index, self.address, message)
        self.faults = message["faults"]
        if "error" in message:
            self.primary.tell_faults([self])
            if self.stderr >= 0:
                self.on_stderr()
            words = f" ({self.last_words()})" if self.last_words() else ""
            self.primary.fail(Failure(time.time(), "{}: {}{}".format(self, message["error"], words), 1))
        else:
            self.primary.on_joined()

    def on_say(self, message: "Message") -> None:
        self.primary.screen.say("{}: {}".format(self, message["text"]))

    def on_ended(self, message: "Message") -> None:
        self.primary.on_process_ended(message["id"], message["code"], message["at"] - self.skew, message["ours"])

    def on_stopped(self, message: "Message") -> None:
        self.primary.on_process_stopped(message["id"], message["seconds"])

    def on_lost(self, message: "Message") -> None:
        """It ends by itself, and says when it has."""
        self.primary.lose(self, message["why"])

    def on_nccl(self, message: "Message") -> None:
        self.heard = message["heard"]

    def on_done(self, message: "Message") -> None:
        """Nothing is left there; its process ends now."""
        self.done = True

    def on_output(self, process: int, stream: int, data: bytes) -> None:
        self.primary.screen.show(process, stream, data)
        self.primary.screen.take(self, len(data))
        self.primary.on_printed(process)

    def give_credit(self, size: int) -> None:
        self.credit += size
        if self.credit >= WINDOW // 4 and self.channel:
            self.channel.send(do="credit", bytes=self.credit)
            self.credit = 0

    def on_end(self) -> None:
        """The end of the channel; its process follows, or is made to."""
        pid = self.pid
        self.primary.loop.later(2, lambda: self.on_late(pid))

    def on_late(self, pid: int) -> None:
        if self.pid == pid and not self.done:
            self.primary.lose(self, "its connection ended")
            self.cut()

    def on_process_ended(self, code: int) -> None:
        """ssh, or the local guard, has ended: what it wrote is all there."""
        self.pid = 0
        if self.channel and self.channel.open:
            self.channel.drain()
        if self.channel:
            self.channel.close()
        if self.stderr >= 0:
            self.on_stderr()
            self.close_stderr()
        if self.done:
            self.primary.check_over()
        else:
            self.primary.on_node_gone(self, code, self.last_words())

    def cut(self) -> None:
        """No more of this node: its supervisor sees the end of the channel. Our own is not killed: its guard ends."""
        self.done = True
        if self.channel:
            self.channel.close()
        if self.pid and self.index:
            send_signal(signal.SIGKILL, self.pid)

    @property
    def greeted(self) -> bool:
        return bool(self.channel and self.channel.greeted)

    def why_not_here(self) -> str:
        if self.greeted:
            return "it answered ssh, and has not said yet what it has (does `processes_per_node` end there?)"
        return self.last_words() or self.reason

    def last_words(self) -> str:
        lines = [line for line in self.said.decode("utf-8", "replace").split("\n") if line.strip()]
        return lines[-1].strip() if lines else ""


class Primary:
    """Brings the nodes together, starts the gang, and is there until it is over."""

    def __init__(self, spec: Spec, hosts: "list[str]", environment: "Values") -> None:
        self.spec = spec
        self.environment = environment
        self.gang = None  # type: Gang | None
        self.mark = "{:x}".format(int.from_bytes(os.urandom(8), "big"))
        self.loop = Loop()
        self.screen = Screen(self.loop)
        self.sessions = [Session(self, index, host) for index, host in enumerate(hosts)]
        self.joined = []  # type: list[Session]
        self.failures = []  # type: list[Failure]
        self.alive = {}  # type: dict[int, Process]
        self.ending = False
        self.finished = 0.0
        """When all that decide had ended well."""
        self.over = False
        self.told = 0
        self.beaten = 0.0
        self.patience = 0.0
        self.store = None  # type: Store | None

    def run(self) -> int:
        """The exit code of the whole."""
        self.loop.on(signal.SIGCHLD, lambda _: self.on_children())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.loop.on(number, self.on_told)
        for session in self.sessions:
            session.connect()
        self.loop.later(self.spec.barrier, self.on_barrier)
        self.loop.later(self.spec.heartbeat / 6, self.beat)
        self.loop.run()
        return self.code()

    # reaching the nodes

    def fork_supervisor(self, theirs: socket.socket, mine: socket.socket) -> int:
        """This node's own needs no ssh; the child has nothing of the primary's but the socket."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            mine.close()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            self.loop.selector.close()
            os.setsid()
            code = guarded(theirs.fileno(), os.dup(theirs.fileno()), f"{self.mark}-0")
        finally:
            os._exit(code)

    def ssh_line(self, address: str, index: int) -> "list[str]":
        """The ssh is the one beside us (gang.sh's bt_use_ssh), which knows the port and minds no host key; an
        emulated node's needs neither."""
        options = [f"ConnectTimeout={max(1, min(10, int(self.spec.barrier)))}", "ServerAliveInterval=5"]
        line = ["ssh", "-T"] + [word for option in options for word in ("-o", option)]
        return [*line, address, remote_text(HERE, self.environment, f"{self.mark}-{index}")]

    def first_message(self, index: int) -> "Message":
        return {
            "spec": self.spec.values,
            "environment": self.environment,
            "root": self.environment.get("AZ_BATCH_NODE_ROOT_DIR", ""),
            "directory": os.getcwd(),
            "index": index,
            "count": len(self.sessions),
            "heartbeat": self.spec.heartbeat,
            "emulated": "BATCHTRAIN_EMULATED_NODE" in self.environment,
            "near": self.environment.get("BATCHTRAIN_EMULATED_NODE", "container") != "container",
            "own": self.sessions[index].address,
            "hosts": ",".join(session.address for session in self.sessions),
            "now": int(time.time()),
        }

    def on_node_gone(self, session: Session, code: int, words: str) -> None:
        """Before the gang runs, ssh (255) is tried again; a supervisor that ended tells why."""
        if self.ending:
            session.done = True
            self.check_over()
        elif session.node is None and code == 255:
            session.reason = words or "ssh ended with code 255"
            self.loop.later(QUICK, session.connect_again)
        else:
            self.lose(session, words or f"its supervisor{' or its ssh' * (session.index > 0)} {ending(code)}")

    def lose(self, session: Session, why: str) -> None:
        """A node is gone or going; an elastic gang goes on without it."""
        session.done = True
        left = sum(not other.done for other in self.joined)
        if self.ending:
            return
        if self.gang and session.index and left >= (self.spec.options.get("min_instances") or len(self.sessions)):
            self.screen.say(f"{session} is lost ({why}); the others go on")
            for process in [one for one in self.alive.values() if one.node is session.node]:
                del self.alive[process.id]
            self.check_finished()
        else:
            verb = "was lost" if self.gang else "did not join"
            self.fail(Failure(time.time(), f"{session} {verb}: {why}", 1))

    def on_barrier(self) -> None:
        """The nodes that have not joined are named, each with the reason of its last try."""
        missing = [session for session in self.sessions if session.node is None]
        if self.gang or self.ending or not missing:
            return
        reasons = {session.address: session.why_not_here() for session in missing}
        for address, reason in reasons.items():
            self.screen.say(f"{address}: {reason}")
        self.tell_faults(self.joined)
        least = self.spec.options.get("min_instances") or len(self.sessions)
        if len(self.joined) >= least and self.sessions[0].node:
            for session in missing:
                session.cut()
            self.begin()
            return
        names = sentence([session.address for session in missing])
        if any(session.greeted for session in missing):
            verb = "were not ready"
        elif all("Permission denied" in reason for reason in reasons.values()):
            verb = "let nobody in by ssh"
        else:
            verb = "did not answer ssh"
        text = f"{names} of {len(self.sessions)} {verb} in {self.spec.barrier:g} s"
        self.fail(Failure(time.time(), text, 1))

    def on_joined(self) -> None:
        self.joined = [session for session in self.sessions if session.node is not None]
        if len(self.joined) == len(self.sessions) and not self.ending:
            self.begin()

    def tell_faults(self, sessions: "list[Session]") -> bool:
        """Say all that the preflight found on these nodes, and InfiniBand that is not there; whether there was any."""
        told = [fault for session in sessions for fault in session.faults]
        for session in sessions if told else ():
            try:
                if session.node and session.node.interfaces:
                    check_infiniband(self.spec, session.node)
            except LaunchError as error:
                told.append(f"preflight: {error}")
            session.faults = []
        for text in told:
            self.screen.say(text)
        return bool(told)

    # the gang

    def begin(self) -> None:
        if self.tell_faults(self.joined):
            self.fail(Failure(time.time(), UNFIT, 1))
            return
        nodes = [session.node for session in self.joined if session.node]
        for index, node in enumerate(nodes):
            node.index = index  # without those that an elastic gang goes on without
        try:
            gang = plan(self.spec, nodes)
            if self.spec.framework == "horovod":
                self.store = Store(self.loop, gang)
                gang.store = self.store.address
            messages = [self.start_message(gang, node) for node in nodes]
        except LaunchError as error:
            self.fail(Failure(time.time(), str(error), 1))
            return
        self.gang = gang
        self.alive = {process.id: process for process in gang.processes}
        self.introduce(gang)
        for at, session in enumerate(self.joined):
            if session.channel:
                session.channel.send(do="start", **messages[at])

    def introduce(self, gang: Gang) -> None:
        for process in gang.processes:
            name = str(process.rank) if process.rank >= 0 else process.label
            self.screen.prefixes[process.id] = f"[{process.node.index}:{name}] ".encode()
        for node in gang.nodes:
            labels = [process.label for process in gang.processes if process.node is node]
            what = ", ".join(labels) or "nothing to run"
            self.screen.say(f"node {node.index} is {node.name} ({node.address}): {what}")
            if self.spec.rdma and not node.infiniband:
                self.screen.say(f"{node} is emulated and has no InfiniBand: its processes talk over tcp")

    def start_message(self, gang: Gang, node: Node) -> "Message":
        slots = gang.slots(node)
        return {
            "before": self.spec.pre_execution,
            "bind": self.spec.binding == "auto" and not node.emulated,
            "slots": [(own_gpus(gang, one) or ["-1"])[0] if one.role.gpus and node.gpus else "-1" for one in slots],
            "processes": [
                {
                    "id": process.id,
                    "command": filled(gang, process),
                    "environment": environment_of(gang, process),
                    "defaults": defaults_of(gang, process),
                    "slot": process.slot,
                    "file": process.label.replace(" ", "-"),
                }
                for process in gang.processes
                if process.node is node
            ],
        }

    # ends

    def on_process_ended(self, identity: int, code: int, at: float, ours: bool) -> None:
        process = self.alive.pop(identity, None)
        if process is None or ours:
            return
        if code == 0 or (self.finished and not process.role.decides):
            self.check_finished()
            return
        found = torchruns_failure(self.gang, process, self.screen.last[identity], True) if self.gang else None
        if found and code == 1:
            left = ", and no restart was left" if self.spec.options.get("max_restarts") else ""
            self.fail(Failure(at, found[0] + left, found[1], identity))
        else:
            self.fail(Failure(at, f"{process} {ending(code)}", code, identity))

    def on_printed(self, identity: int) -> None:
        process = self.alive.get(identity)
        if self.gang and process and not self.ending and under_torchrun(self.spec):
            found = torchruns_failure(self.gang, process, self.screen.last[identity])
            if found:
                self.fail(Failure(time.time(), found[0], found[1], identity))

    def on_process_stopped(self, identity: int, seconds: int) -> None:
        process = self.alive.get(identity)
        if process is not None:
            text = f"{process} has been stopped for {seconds} s (SIGSTOP, state T)"
            self.fail(Failure(time.time(), text, 128 + signal.SIGSTOP, identity))

    def check_finished(self) -> None:
        """Done when all that decide have ended well; the others have a moment to end by themselves."""
        if self.ending or any(process.role.decides for process in self.alive.values()):
            return
        now, usual = time.monotonic(), FRAMEWORKS[self.spec.framework].linger
        self.finished = self.finished or now
        lingers = [usual if one.role.linger is None else one.role.linger for one in self.alive.values()]
        left = self.finished + max(lingers, default=0) - now
        if left <= 0:
            self.end(QUICK)
        else:
            self.loop.later(left, self.check_finished)

    def fail(self, failure: Failure) -> None:
        failure.lines = self.screen.last_lines(failure.process) if failure.process >= 0 else []
        self.failures.append(failure)
        self.end(QUICK)

    def end(self, grace: float) -> None:
        """Tell all nodes; each says when nothing is left there."""
        if self.ending:
            return
        self.ending = True
        for session in self.sessions:
            if session.node is None:
                session.cut()
            elif session.channel and session.channel.open:
                session.channel.send(do="end", grace=grace)
        self.loop.later(grace + 3.5, self.give_up)
        self.check_over()

    def give_up(self) -> None:
        for session in self.sessions:
            if session.pid:
                if not session.done:
                    self.screen.say(f"{session} does not say that its processes are gone")
                session.cut()
                send_signal(signal.SIGKILL, session.pid)
                session.pid = 0
        self.check_over()

    def check_over(self) -> None:
        """When nothing is left of any node: the last words, and away."""
        if self.over or not self.ending or any(session.pid for session in self.sessions):
            return
        self.over = True
        self.screen.end_lines()
        self.judge_nccl()
        self.tell_cause()
        self.patience = time.monotonic() + 3
        self.leave()

    def leave(self) -> None:
        """As soon as all is written; a reader that takes nothing is not waited for."""
        self.screen.show_partial()
        for sink in set(self.screen.sinks):
            sink.flush()
        if self.screen.is_empty() or time.monotonic() > self.patience:
            self.loop.running = False
        else:
            self.loop.later(0.01, self.leave)

    def judge_nccl(self) -> None:
        heard = [(str(session), session.heard) for session in self.joined if session.heard]
        for sentence in verdict()["judge"](heard) if heard else ():
            self.screen.say(sentence)

    def tell_cause(self) -> None:
        if self.told:
            self.screen.say(f"ended by {signal.Signals(self.told).name}")
            return
        if not self.failures:
            return
        cause = min(self.failures, key=lambda failure: failure.at)
        self.failures = [cause]
        self.screen.say(cause.text)
        for line in cause.lines:
            self.screen.say("    " + line)

    def code(self) -> int:
        return 128 + self.told if self.told else self.failures[0].code if self.failures else 0

    # signals and clocks

    def on_told(self, number: int) -> None:
        """Told twice, or when it is ending already, the ranks have no more time."""
        if not self.ending:
            self.told = number
            self.end(self.spec.grace)
            return
        for session in self.sessions:
            if session.channel and session.channel.open:
                session.channel.send(do="end", grace=0)

    def on_children(self) -> None:
        for pid, status in reap():
            for session in self.sessions:
                if session.pid == pid:
                    session.on_process_ended(exit_code(status))

    def beat(self) -> None:
        """A silent node is lost, but where it was we who could not hear: stopped, with the machine or alone."""
        now, last = time.monotonic(), self.beaten
        self.beaten = now
        for session in self.sessions:
            if session.channel and session.channel.open:
                session.channel.beat()
                silent = now - session.channel.heard > self.spec.heartbeat > now - last
                if session.node and not session.done and silent:
                    self.lose(session, f"nothing was heard of it for {self.spec.heartbeat:g} s")
                    session.cut()
        self.loop.later(self.spec.heartbeat / 6, self.beat)


UNFIT = (
    "nothing was started: the nodes are not as the task needs them (`preflight: false` in multi_instance starts all the"
    " same)"
)


def sentence(names: "list[str]") -> str:
    """ "node a", "nodes a and b", "nodes a, b and c"."""
    if len(names) == 1:
        return "node " + names[0]
    return "nodes {} and {}".format(", ".join(names[:-1]), names[-1])


FITS = "import sys, json, selectors; sys.exit(sys.version_info < (3, 6))"


def remote_text(home: str, environment: "Values", mark: str) -> str:
    """What ssh runs on another node: this file there, with the node's own AZ_BATCH_* values, by the same Python.

    On emulated nodes, which share a file system, each has a root of its own, and `home` is below the primary's.
    """
    root = environment.get("AZ_BATCH_NODE_ROOT_DIR", "")
    text = """
here={home}; root={root}
case $BATCHTRAIN_EMULATED_NODE in /*) here=$BATCHTRAIN_EMULATED_NODE${{here#"$root"}} ;; esac
[ ! -r "$here/environment" ] || . "$here/environment"
[ -r "$here/launch.py" ] || {{ echo "$here/launch.py is not on this node" >&2; exit 3; }}
for python in {python} python3 python; do
  ! "$python" -I -S -c {fits} >/dev/null 2>&1 || exec "$python" -I -S "$here/launch.py" node {mark}
done
echo "there is no Python 3.6 or later on this node: neither {python} nor python3 on PATH ($PATH)" >&2; exit 127"""
    script = text.format(
        home=quoted(home), root=quoted(root), python=quoted(sys.executable or "python3"), mark=mark, fits=quoted(FITS)
    )
    return "exec /bin/sh -c " + quoted(script)


def quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


# === Horovod's meeting place ========================================================================================


class Scopes:
    """What the server knows and answers: as much HTTP as Horovod's ranks speak.

    A scope is forgotten when as many of its ranks have deleted themselves as it has (they meet again after a
    shutdown); of a scope that they made up, a key.
    """

    LARGEST = 16 << 20

    def __init__(self, sizes: "dict[str, int]") -> None:
        self.sizes = sizes
        self.values = collections.defaultdict(dict)  # type: dict[str, dict[str, bytes]]
        self.left = collections.defaultdict(set)  # type: dict[str, set[str]]

    def answer(self, request: bytes) -> "bytes | None":
        """To `VERB /scope/key HTTP/1.x`, or None while more of the request is to come."""
        head, blank, body = request.partition(b"\r\n\r\n")
        if not blank:
            return None if len(head) < LONGEST else reply(400)
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = fields.get("content-length") or "0"
        words = lines[0].split(" ")
        path = words[1].split("/", 2) if len(words) == 3 else []
        if len(path) != 3 or not length.isdigit() or int(length) > self.LARGEST:
            return reply(400)
        if len(body) < int(length):
            return None
        return self.do(words[0], path[1], path[2], body[: int(length)])

    def do(self, verb: str, scope: str, key: str, body: bytes) -> bytes:
        if verb == "GET":
            value = self.values[scope].get(key)
            return reply(404) if value is None else reply(200, value)
        if verb == "PUT":
            self.values[scope][key] = body
        elif verb == "DELETE":
            self.forget(scope, key)
        else:
            return reply(400)
        return reply(200)

    def forget(self, scope: str, key: str) -> None:
        if scope not in self.sizes:
            self.values[scope].pop(key, None)
            return
        self.left[scope].add(key)
        if len(self.left[scope]) >= self.sizes[scope]:
            self.values.pop(scope, None)
            self.left.pop(scope)


def scopes_of(gang: Gang) -> "dict[str, int]":
    """Horovod's three communicators: how many ranks meet in each."""
    sizes = {"global": len(gang.ranked)}
    for process in gang.ranked:
        sizes["local_" + process.node.address] = len(gang.local(process))
        sizes[f"cross_{process.local_rank}"] = cross(gang, process)[1]
    return sizes


class Store:
    """The server's sockets, on the primary's address alone."""

    def __init__(self, loop: Loop, gang: Gang) -> None:
        self.loop = loop
        self.scopes = Scopes(scopes_of(gang))
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.listener.bind((gang.address, gang.port))
            self.listener.listen(512)
        except OSError as error:
            raise LaunchError(f"cannot listen on {gang.address}:{gang.port}: {error.strerror}") from None
        self.listener.setblocking(False)
        self.address = self.listener.getsockname()  # type: tuple[str, int]
        loop.watch(self.listener.fileno(), self.accept)

    def accept(self) -> None:
        try:
            client = self.listener.accept()[0]
        except OSError:
            return
        client.setblocking(False)
        request = bytearray()
        self.loop.watch(client.fileno(), lambda: self.read(client, request))

    def read(self, client: socket.socket, request: bytearray) -> None:
        try:
            data = client.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        request += data
        answer = self.scopes.answer(bytes(request)) if data else b""
        if answer is None:
            return
        self.loop.forget(client.fileno())
        client.settimeout(1)
        try:
            client.sendall(answer)
        except OSError:  # it asks again
            pass
        client.close()


def reply(status: int, body: bytes = b"") -> bytes:
    reason = {200: "OK", 400: "Bad Request", 404: "Not Found"}[status]
    return f"HTTP/1.0 {status} {reason}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


# === the door =======================================================================================================


def hosts_of(environment: "Values", instances: int) -> "list[str]":
    """The nodes' addresses, the primary's first: the service promises no order."""
    listed = environment.get("AZ_BATCH_HOST_LIST", "")
    hosts = [host.strip() for host in listed.split(",") if host.strip()]
    own = environment.get("AZ_BATCH_MASTER_NODE", "").rpartition(":")[0]
    if not hosts:
        raise LaunchError("AZ_BATCH_HOST_LIST is not set: this is no multi-instance task's primary")
    if own not in hosts:
        where = own or "(AZ_BATCH_MASTER_NODE is not set)"
        raise LaunchError(f"the primary's own address {where} is not in AZ_BATCH_HOST_LIST ({listed})")
    if len(hosts) != instances:
        text = "{} instances were planned, AZ_BATCH_HOST_LIST has {} hosts ({})"
        raise LaunchError(text.format(instances, len(hosts), listed))
    return [own] + [host for host in hosts if host != own]


def be_primary() -> int:
    try:
        with open(os.path.join(HERE, "gang.json"), encoding="utf-8") as file:
            spec = Spec(json.load(file))
        environment = own_environment()
        hosts = hosts_of(environment, spec.instances)
    except LaunchError as error:
        return refuse(str(error))
    except OSError as error:
        return refuse(f"{error.filename}: {error.strerror}")
    except (ValueError, KeyError) as error:
        return refuse(f"gang.json cannot be read: {error!r}")
    return Primary(spec, hosts, environment).run()


def refuse(text: str) -> int:
    os.write(2, f"batchtrain: {text}\n".encode("utf-8", "replace"))
    return 1


def be_node(mark: str) -> int:
    """stdin and stdout are the channel; nobody else may write to it."""
    reader, writer = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return guarded(reader, writer, mark)


def keep_to_ourselves() -> None:
    """What our caller has open is not the ranks'; and 0, 1 and 2 are there."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            break
        os.set_inheritable(fd, True)
    for name in names_in("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.set_inheritable(int(name), False)
            except OSError as error:
                if error.errno != errno.EBADF:  # the one that listed them
                    raise


def main(arguments: "list[str]") -> int:
    keep_to_ourselves()
    if arguments[:1] == ["primary"] and len(arguments) == 1:
        return be_primary()
    if arguments[:1] == ["node"] and len(arguments) == 2:
        return be_node(arguments[1])
    return refuse("usage: launch.py primary")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
