"""The variables of each process: pure functions of the plan."""

from .spec import Any, Callable, Gang, Message, Node, Process, Values, address_of


def environment_of(gang: Gang, process: Process) -> "Values":
    """Variables that replace existing ones: the place of the process in the gang, in the framework's names and ours."""
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
        "AZ_BATCHAI_MPI_MASTER_NODE": gang.address,
        "AZUREML_CR_NODE_RANK": str(process.node.index),
    }
    if process.rank >= 0:
        values["BATCHTRAIN_RANK"] = str(process.rank)
        values["BATCHTRAIN_WORLD_SIZE"] = str(len(gang.ranked))
        values["BATCHTRAIN_LOCAL_RANK"] = str(process.local_rank)
        values["BATCHTRAIN_LOCAL_SIZE"] = str(len(local))
    for role in gang.spec.roles:
        values[f"BATCHTRAIN_{role.name.upper()}_HOSTS"] = ",".join(gang.hosts(role.name))
    values.update(visible_gpus(gang, process))
    values.update(gang.framework.variables(gang, process))
    return without(values, gang.spec.leave_unset)


def without(values: "Values", names: "list[str]") -> "Values":
    return {name: value for name, value in values.items() if name not in names}


def without_rivals(values: "Values", rivals: "dict[str, list[str]]", names: "list[str]") -> "Values":
    """The defaults, but for those that a variable of these names contradicts."""
    overruled = {name for name in values if any(rival in names for rival in rivals.get(name, ()) if rival != name)}
    return {name: value for name, value in values.items() if name not in overruled}


def defaults_of(gang: Gang, process: Process) -> "Values":
    """Variables that the process gets unless the user has set them."""
    spec, node = gang.spec, process.node
    settings = dict(spec.environment)
    if spec.rdma and node.infiniband:
        settings.update(spec.rdma_environment)
    values = gang.framework.defaults(gang, process)
    for name, value in settings.items():
        resolved = resolve(gang, process, name, value)
        if resolved is not None:
            values[name] = resolved
    return without(values, spec.leave_unset)


def resolve(gang: Gang, process: Process, name: str, value: "Any") -> "str | None":
    """The value of an `environment` entry: "auto" is detected, and the path of a file is used if the node has it."""
    if missing_files({name: value}, process.node):
        return None
    if value != "auto" or name not in AUTOMATIC:
        return str(value)
    return AUTOMATIC[name](gang, process) or None


def missing_files(values: "Message", node: Node) -> "list[tuple[str, str]]":
    """The variables that name a file that the node does not have, each with the file."""
    return [
        (name, path)
        for name, path in values.items()
        if name.endswith("_FILE") and path != "auto" and path not in node.files
    ]


def threads(gang: Gang, process: Process) -> str:
    """The cores of the node, divided by its ranks; emulated nodes share one machine."""
    sharing = max(1, len(gang.slots(process.node))) * gang.framework.processes_of_one(gang.spec, process.node)
    machines = len(gang.nodes) if process.node.emulated else 1
    return str(max(1, process.node.cores // sharing // machines))


NCCLS_NOTES = ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"]
AUTOMATIC: "dict[str, Callable[[Gang, Process], str]]" = {
    "OMP_NUM_THREADS": threads,
    "UCX_NET_DEVICES": lambda gang, process: (
        process.node.infiniband.get("ports", "") if gang.spec.rdma else process.node.interface
    ),
    "UCX_IB_PKEY": lambda gang, process: process.node.infiniband.get("key", ""),
    "NCCL_IB_HCA": lambda gang, process: "=" + process.node.infiniband["ports"] if process.node.infiniband else "",
    "NCCL_DEBUG_FILE": lambda gang, process: process.node.folder and process.node.folder + "/nccl.%h.%p.txt",
    "NCCL_MNNVL_ENABLE": lambda gang, process: "" if all(node.nvlink for node in gang.nodes) else "0",
    "NCCL_SOCKET_IFNAME": lambda gang, process: process.node.interface,
    "GLOO_SOCKET_IFNAME": lambda gang, process: process.node.interface,
}


def visible_gpus(gang: Gang, process: Process) -> "Values":
    """`gpus` of the role: all GPUs of the node (LOCAL_RANK selects one), an own share for each process, or none.

    On a node without GPUs the variable is not set, so that the user's value is kept; a role without GPUs gets none.
    """
    mode = process.role.gpus
    if not mode:
        return {"CUDA_VISIBLE_DEVICES": ""}
    if not process.node.gpus:
        return {}
    if mode is True:
        mode = gang.framework.gpus
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
    """The environment of the primary, adapted to a node: variables that belong to a node have its own values.

    roots: AZ_BATCH_NODE_ROOT_DIR of the primary and of the node; they differ on emulated nodes.
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
    """gRPC would use the user's proxy to reach the other nodes."""
    if not any(name in values or name.upper() in values for name in PROXIES):
        return
    for name in ("no_proxy", "NO_PROXY"):
        values[name] = ",".join(filter(None, (values.get(name), hosts)))
