"""Decides which process runs on which node with which rank, and refuses what is impossible."""

import collections

from .spec import Gang, LaunchError, Node, Process, Role, Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .frameworks.base import Framework


def plan(spec: Spec, nodes: "list[Node]", framework: "Framework") -> Gang:
    """Every process with its node, rank and port; rank 0 is on the first node, the primary.

    Ranks go role by role in the order given, in each role node by node. Raises LaunchError if that is impossible.
    """
    processes: "list[Process]" = []
    for role in spec.roles:
        index = 0
        for at, count in enumerate(counts(spec, role, nodes)):
            for _ in range(count):
                processes.append(Process(len(processes), role, nodes[at], index))
                index += 1
    number(processes)
    gang = Gang(spec, nodes, processes, framework)
    if not any(process.role.decides for process in processes):
        raise LaunchError("no process decides when the gang is done: see processes_per_node and the roles' counts")
    for node in nodes:
        check_gpus(gang, node)
        check_infiniband(spec, node)
    take_ports(spec, nodes, gang)
    return gang


def counts(spec: Spec, role: Role, nodes: "list[Node]") -> "list[int]":
    """The number of processes of a role on each node."""
    counts = placed(role, nodes)
    for other in spec.roles:
        if other.instead_of == role.name:
            fewer = placed(other, nodes)
            counts = [max(0, have - fewer[at]) for at, have in enumerate(counts)]
    return counts


def placed(role: Role, nodes: "list[Node]") -> "list[int]":
    if role.total is None:
        return [node.processes if role.per_node in (None, "processes_per_node") else role.per_node for node in nodes]
    if role.placement == "primary":
        return [role.total] + [0] * (len(nodes) - 1)
    return [role.total // len(nodes) + (index < role.total % len(nodes)) for index in range(len(nodes))]


def number(processes: "list[Process]") -> None:
    local: "collections.Counter[int]" = collections.Counter()
    slots: "collections.Counter[int]" = collections.Counter()
    ranks = 0
    for process in processes:
        if process.role.ranked:
            process.rank, process.local_rank = ranks, local[process.node.index]
            ranks += 1
            local[process.node.index] += 1
        if process.role.gpus or process.role.ranked:
            process.slot = slots[process.node.index]
            slots[process.node.index] += 1


def check_gpus(gang: Gang, node: Node) -> None:
    wanting = sum(process.role.gpus is not False for process in gang.slots(node))
    wanting *= gang.framework.processes_of_one(gang.spec, node)
    if node.gpus and wanting > len(node.gpus):
        have = len(node.gpus)
        raise LaunchError(
            f"{node}: {wanting} processes are to share {have} GPU{'s' * (have > 1)}; give each one of its own"
            f" (processes_per_node at most {have})"
        )


def check_infiniband(spec: Spec, node: Node) -> None:
    """Without an active port NCCL would silently use tcp. An emulated node has no InfiniBand."""
    if spec.rdma and not node.infiniband and not node.emulated:
        raise LaunchError(
            f"{node}: InfiniBand is asked for, and this node has no active port (an image without the drivers? set"
            " infiniband: false to use tcp)"
        )


def take_ports(spec: Spec, nodes: "list[Node]", gang: Gang) -> None:
    """A port for each process on its node, and one on the primary, where all meet."""
    free = {node.index: iter(node.ports) for node in nodes}
    try:
        gang.port = spec.options.get("port") or next(free[0])
        for process in gang.processes:
            process.port = next(free[process.node.index])
    except StopIteration:
        raise LaunchError("a node has too few free ports below the range that the kernel gives out") from None
