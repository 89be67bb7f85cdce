"""Variables that a launch sets by itself: which on what nodes, why, and by which of `rules.RULES`.

A value that the task or its job sets stands, and so does one that is there when a process starts; a name in
`leave_unset` is left alone. Sources: azhpc-images (customizations and tests by size), NCCL's and each framework's own
documents. docs/explanation/untested-on-azure.md lists what is untested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from batchtrain.frameworks import counts
from batchtrain.frameworks.base import AUTO, NUMBER_OF_THREADS, Fabric, Shape, Variable
from batchtrain.frameworks.transports import INTERFACE, NCCL_TCP, UCX_GPU_MEMORY, UCX_INFINIBAND, UCX_TCP
from batchtrain.launchers import shell
from batchtrain.launchers.launch import Implicit, Step

FOUND = "auto (found on each node)"

UNBUFFERED = Variable(
    "PYTHONUNBUFFERED", "1", "each line appears when it is printed, not after 8 KiB", "python-unbuffered"
)

TOPOLOGY = "/opt/microsoft/{}/topo.xml"
TOPOLOGY_FOLDER = "/opt/microsoft"
"""A directory that a container needs: the file is a link to one above its folder (azhpc-images: customizations)."""
GRAPH_FAMILY, GRAPH_GPUS = "NC A100 v4", 4
"""The family for which images set NCCL_GRAPH_FILE, and the GPUs that its files describe: those of NC96ads_A100_v4."""
TOPOLOGIES = {"NDv2": "ndv2", "ND A100 v4": "ndv4", "NDm A100 v4": "ndv4", "ND H100 v5": "ndv5", "ND H200 v5": "ndv5",
              GRAPH_FAMILY: "ncv4"}  # fmt: skip
"""Families whose GPUs and cards a file of the HPC images describes to NCCL, because a virtual machine hides them."""
GRAPH = "/opt/microsoft/ncv4/graph.xml"
NO_GRAPH = "/dev/null"
"""For NCCL, an empty file is one without ways between GPUs, and it searches them itself (NVIDIA/nccl: graph/xml.cc,
graph/search.cc)."""
RELAXED_ORDERING = frozenset({"ND A100 v4", "NDm A100 v4", "ND H100 v5", "ND H200 v5"})
MULTI_NODE_NVLINK = frozenset({"ND GB200 v6", "ND GB300 v6"})
"""Families whose nodes NVLink connects, for processes with an IMEX channel."""
NVLINK = "NCCL_MNNVL_ENABLE"
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels"

_HOPPER = {"PXN_DISABLE": "1", "MIN_NCHANNELS": "32", "P2P_NET_CHUNKSIZE": "2097152", "IB_QPS_PER_CONNECTION": "4"}
_GRACE_BLACKWELL = {
    "NVLS_ENABLE": "1", "SHM_DISABLE": "1", "DMABUF_ENABLE": "1", "P2P_DISABLE": "0", "P2P_NET_CHUNKSIZE": "2097152",
    "IB_QPS_PER_CONNECTION": "4", "IB_SL": "1", "NET_GDR_LEVEL": "PHB", "NET_GDR_C2C": "1",
}  # fmt: skip
LAUNCH_FILES = {"ND H100 v5": _HOPPER, "ND H200 v5": _HOPPER,
                "ND GB200 v6": _GRACE_BLACKWELL, "ND GB300 v6": _GRACE_BLACKWELL}  # fmt: skip
"""NCCL's settings of Azure's own launches by family, without `NCCL_` before the names.
Azure/ai-infrastructure-on-azure: infrastructure_validations, NCCL/configs/{hopper,graceblackwell}.conf (2026-11),
without those of SHARP (no document says whether the fabric of Batch has it) and without MNNVL_ENABLE=1, which depends
on the nodes: see `of_node`."""


def everywhere(shape: Shape) -> tuple[Variable, ...]:
    """The variables of every process of a framework, on any node of this size."""
    variables = [NUMBER_OF_THREADS, UNBUFFERED]
    if shape.gpus:
        because = f"{shape.size} has GPUs, and NCCL does not report why it fails by default"
        variables.append(Variable("NCCL_DEBUG", "WARN", because, "nccl-warnings"))
    if shape.gpus and shape.gpu_vendor == "nvidia":
        because = "GPU 0 is then the same for CUDA, nvidia-smi and NCCL's topology"
        variables.append(Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", because, "cuda-device-order"))
    return tuple(variables)


def on_infiniband(shape: Shape) -> tuple[Variable, ...]:
    """The NCCL variables of tasks that use InfiniBand (SR-IOV) between GPUs; empty for all others."""
    if shape.fabric is not Fabric.SR_IOV or not shape.gpus:
        return ()
    because = "the processes connect over the pool's Ethernet; NCCL would choose the first interface named ib*"
    variables = [Variable("NCCL_SOCKET_IFNAME", AUTO, because, "nccl-bootstrap")]
    because = "only active InfiniBand ports; NCCL would also use the card of the accelerated Ethernet"
    variables.append(Variable("NCCL_IB_HCA", AUTO, because, "nccl-cards"))
    if shape.family in RELAXED_ORDERING:
        because = f"{shape.family} reaches its cards' full bandwidth from GPU memory only with relaxed PCI ordering"
        variables.append(Variable("NCCL_IB_PCI_RELAXED_ORDERING", "1", because, "nccl-relaxed-ordering"))
    because = f"Azure's own launches on {shape.family} set it"
    settings = LAUNCH_FILES.get(shape.family, {})
    variables += (Variable(f"NCCL_{name}", value, because, "nccl-launch-file") for name, value in settings.items())
    return tuple(variables)


def of_gpus(shape: Shape) -> tuple[Variable, ...]:
    """What the HPC images tell NCCL about the GPUs of a node in /etc/nccl.conf, which no container sees."""
    file = topology(shape)
    if not shape.gpus or (file is None and shape.family not in MULTI_NODE_NVLINK):
        return ()
    because = f"the cores near a GPU that {shape.family} reports are numbered by the virtual machine"
    affinity = Variable("NCCL_IGNORE_CPU_AFFINITY", "1", because, "nccl-cpu-affinity")
    return (affinity,) if file is None else (file, affinity)


def topology(shape: Shape) -> Variable | None:
    """The description of the node's GPUs and cards, which a container sees only where TOPOLOGY_FOLDER is mounted.
    Returns None for sizes without one (of GRAPH_FAMILY, all but the largest), and for one GPU of one node."""
    least = GRAPH_GPUS if shape.family == GRAPH_FAMILY else 2 if shape.instances == 1 else 1
    if shape.family not in TOPOLOGIES or shape.gpus < least:
        return None
    because = f"a virtual machine hides how the GPUs of {shape.family} are connected; the HPC images describe it"
    return Variable("NCCL_TOPO_FILE", TOPOLOGY.format(TOPOLOGIES[shape.family]), because, "nccl-topology")


def on_ethernet(shape: Shape) -> tuple[Variable, ...]:
    """The NCCL variables of tasks between whose GPUs there is no InfiniBand; empty for all others."""
    return NCCL_TCP if shape.tcp and shape.gpus else ()


def links_nodes(shape: Shape) -> bool:
    """Whether NVLink connects the nodes of a gang."""
    return bool(shape.gpus) and shape.instances > 1 and shape.family in MULTI_NODE_NVLINK


def of_graph(shape: Shape, processes: int | str | None) -> tuple[Variable, ...]:
    """The image's description of the ways between GRAPH_GPUS GPUs, which no container sees, or none where fewer are
    used.

    processes: on each node; a single process may use one GPU or all, so it counts as one.
    """
    number = counts.number(processes) if processes is not None else None
    gpus = min(shape.gpus, shape.gpus if number is None else number)
    if shape.family != GRAPH_FAMILY or not gpus:
        return ()
    because = f"the HPC images describe the ways between {GRAPH_GPUS} GPUs"
    if gpus < GRAPH_GPUS:
        because = f"{because}, and NCCL fails with {gpus} of them: it searches the ways itself"
    return (Variable("NCCL_GRAPH_FILE", NO_GRAPH if gpus < GRAPH_GPUS else GRAPH, because, "nccl-graph"),)


def of_node(shape: Shape, processes: int | str | None) -> tuple[Variable, ...]:
    """The variables of `of_gpus` and `of_graph` for a gang, and whether NCCL uses NVLink between its nodes.

    Between nodes of one NVLink domain, NCCL fails with ncclSystemError on a node outside the gang's IMEX domain, by
    default too (NVIDIA/nccl: init.cc, mnnvl.cc).
    """
    rows = (*of_gpus(shape), *of_graph(shape, processes))
    if not links_nodes(shape):
        return rows
    because = "0 unless every node is in the IMEX domain of the gang: NCCL fails on one that is not"
    return (*rows, Variable(NVLINK, AUTO, because, "nccl-nvlink"))


def without_launch(shape: Shape, *, in_image: bool) -> tuple[Variable, ...]:
    """The same for a task whose command no launch starts: how many GPUs it uses is unknown, so an image gets no graph
    file, and on the host the image's is replaced only if fewer GPUs are visible."""
    if in_image:
        return of_gpus(shape)
    return tuple(variable for variable in of_graph(shape, AUTO) if variable.value == NO_GRAPH)


def of_ucx(shape: Shape) -> tuple[Variable, ...]:
    """The UCX variables of programs that use it (backends ucc and mpi), with GPUs or without."""
    choices = UCX_INFINIBAND if shape.fabric is Fabric.SR_IOV else UCX_TCP if shape.tcp else ()
    return tuple(
        variable._replace(value=AUTO) if variable.value.startswith("$") or variable.value == INTERFACE
        else with_gpu_memory(variable, shape)
        for variable in choices
    )  # fmt: skip


def with_gpu_memory(variable: Variable, shape: Shape) -> Variable:
    """UCX_TLS with the transports for the memory of the GPUs; any other variable unchanged."""
    transport = UCX_GPU_MEMORY.get(shape.gpu_vendor if shape.gpus else "")
    is_ucx_tls = variable in UCX_TCP and variable.name == "UCX_TLS"
    return variable._replace(value=f"{variable.value},{transport}") if transport and is_ucx_tls else variable


NOTES = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
IN_RANKS = "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/ranks/nccl.%h.%p.txt"
"""The file for NCCL's notes of an MPI's ranks; the same path on every node."""


def of_transport(shape: Shape, user_names: Collection[str], text: str, file: str = AUTO) -> tuple[Variable, ...]:
    """The variables that make NCCL note its network, so that it is known after the run.

    Empty if the user sets any of them by a variable, by `leave_unset` (user_names: the names of both), or in their text
    (commands, options): the user's log would then go to our file. file: its path, if the node launcher does not choose
    it.
    """
    if not on_infiniband(shape) or "NCCL_DEBUG" in text or {*NOTES} & {*user_names}:
        return ()
    because = "if a port is active, the launcher reports after the run which network NCCL used"
    reason = "these messages and its warnings go to a file on each node instead of the output"
    rule = "nccl-transport"
    return (
        Variable("NCCL_DEBUG", "INFO", because, rule),
        Variable("NCCL_DEBUG_SUBSYS", "INIT,NET", "only NCCL's messages about its network", rule),
        Variable("NCCL_DEBUG_FILE", file, reason, rule),
    )


def wanted(variables: Iterable[Variable], user_names: Collection[str]) -> tuple[Variable, ...]:
    """Variables that the user neither sets nor lists in `leave_unset` (user_names: the names of both), and no variable
    that chooses the same."""
    return tuple(variable for variable in variables if not {variable.name, *variable.rivals}.intersection(user_names))


def values(variables: Iterable[Variable]) -> dict[str, str]:
    """Names and values, as in gang.json."""
    return {variable.name: variable.value for variable in variables}


def implicit(variables: Iterable[Variable]) -> tuple[Implicit, ...]:
    """The variables as implicit decisions of the plan."""
    return tuple(Implicit(v.name, _SHOWN.get(v.value, v.value), v.because, v.rule) for v in variables)


def of_ranks(shape: Shape, user_names: frozenset[str]) -> tuple[Variable, ...]:
    """The NCCL variables of an MPI's ranks: the program is unknown, so only for GPUs with InfiniBand. The primary
    detects them, and its MPI exports them to the other nodes, which have the same size."""
    candidates = (
        variable._replace(value=_ON_THE_PRIMARY.get(variable.name, variable.value)) for variable in on_infiniband(shape)
    )
    return wanted(candidates, user_names)


CARDS = "=$bt_ports"
_SHOWN = {
    AUTO: FOUND,
    CARDS: "the ports of the primary, `=` before them",
    "$bt_ucx_ports": "the ports of the primary",
    "$bt_pkey": "the key of the primary, if it is not the default",
}
_ON_THE_PRIMARY = {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": CARDS}


def step_of_ranks(variables: tuple[Variable, ...]) -> Step:
    """Sets the variables of `of_ranks`; the node decides."""
    if not variables:
        return Step()
    text = shell.block(
        "NCCL on InfiniBand; variables that are set already keep their value:",
        "if [ -e /dev/infiniband ]; then",
        "  bt_find_ports" if any(variable.value == CARDS for variable in variables) else "",
        *_defaults(variables),
        "fi",
    )
    return Step(text, implicit=implicit(variables))


def step_of_node(variables: tuple[Variable, ...]) -> Step:
    """Sets the variables of `of_node`. NO_GRAPH replaces the file of the image."""
    if not variables:
        return Step()
    is_in_domain = '[ -n "$(bash "$bt_home/node.sh" imex "$AZ_BATCH_HOST_LIST")" ]'
    lines = {NO_GRAPH: f"export NCCL_GRAPH_FILE={NO_GRAPH}", AUTO: f"{is_in_domain} || bt_default {NVLINK}=0"}
    text = shell.block(
        "NCCL and the GPUs of the node; variables that are set already keep their value:",
        "if ! bt_emulated; then",
        *_defaults(tuple(variable for variable in variables if variable.value not in lines)),
        *(f"  {lines[variable.value]}" for variable in variables if variable.value in lines),
        "fi",
    )
    return Step(text, implicit=implicit(variables))


def _defaults(variables: tuple[Variable, ...]) -> Iterator[str]:
    words = {CARDS: f'"{CARDS}"'}  # the shell expands it
    files = tuple(variable for variable in variables if variable.file)
    plain = " ".join(
        f"{variable.name}={words.get(variable.value) or shell.word(variable.value)}"
        for variable in variables
        if variable not in files
    )
    if plain:
        yield f"  bt_default {plain}"
    yield from (f"  bt_default_file {variable.name} {variable.value}" for variable in files)


def step_of_transport(variables: tuple[Variable, ...]) -> Step:
    """Sets the variables of `of_transport`."""
    if not variables:
        return Step()
    values = "".join(f"${{{name}-}}" for name in NOTES)
    text = shell.block(
        "NCCL notes which network it takes; not where any of these is set already:",
        f'[ ! -e /dev/infiniband ] || [ -n "{values}" ] ||',
        "  bt_default " + " ".join(f'{variable.name}="{variable.value}"' for variable in variables),
    )
    return Step(text, implicit=implicit(variables))
