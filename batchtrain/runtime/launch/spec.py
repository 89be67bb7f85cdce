"""gang.json as values: the roles, the nodes, the processes, and the gang."""

import os

# Type checkers take this name as true; importing `typing` would cost more than all other imports of this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable as Callable
    from typing import Any as Any

    from .frameworks.base import Framework

    Values = dict[str, str]
    Message = dict[str, Any]
else:
    Any = Callable = Values = Message = None

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The directory of gang.json and of the scripts that travel beside this package."""

QUICK = 0.5
"""Default seconds from SIGTERM to SIGKILL: the gang must end within a second."""
LONGEST = 64 * 1024
"""Bytes of an unfinished line that are kept back at most."""


class LaunchError(Exception):
    """Stops the launch; the message is for the user."""


class Role:
    """The properties of one kind of process; `gang.json` has a list of them."""

    def __init__(self, values: "Message") -> None:
        self.name: str = values["name"]
        self.command: str = values["command"]
        self.placement: str = values.get("placement", "all")
        self.per_node = values.get("per_node")
        self.total = values.get("total")
        self.gpus = values.get("gpus", False)
        self.ranked: bool = values.get("ranked", False)
        self.decides: bool = values.get("decides", False)
        self.instead_of: str = values.get("instead_of", "")
        self.linger = values.get("linger")


class Spec:
    """`gang.json`, with its defaults."""

    def __init__(self, values: "Message") -> None:
        if values.get("version") != 1:
            raise LaunchError("gang.json has version {}; this launcher knows 1".format(values.get("version")))
        self.values = values
        self.framework: str = values["framework"]
        self.instances: int = values["instances"]
        self.processes_per_node = values.get("processes_per_node")
        self.pre_execution: str = values.get("pre_execution") or ""
        self.barrier = float(values.get("barrier_seconds", 120))
        self.grace = float(values.get("grace_seconds", 5))
        self.heartbeat = float(values.get("heartbeat_seconds", 30))
        self.environment: "Message" = values.get("environment", {})
        self.rivals: "dict[str, list[str]]" = values.get("rivals", {})
        """Names that choose the same as a variable of `environment`, which is not set if one of them is."""
        self.over_image: "list[str]" = values.get("over_image", [])
        """Variables whose values count more than those of the image for NCCL."""
        self.rdma: bool = values.get("rdma", False)
        self.rdma_environment: "Message" = values.get("rdma_environment", {})
        self.binding: str = values.get("binding", "auto")
        self.roles = [Role(role) for role in values["roles"]]
        self.options: "Message" = values.get("options", {})
        self.leave_unset: "list[str]" = values.get("leave_unset", [])
        self.rank_logs: bool = values.get("rank_logs", True)
        self.preflight: "list[str]" = values.get("preflight") or []
        self.replace = max([0.0] + [float(word[8:]) for word in self.preflight if word.startswith("replace=")])
        """Seconds to wait for a client that replaces a node with faults."""
        self.collects: bool = values.get("collects", False)
        """The files of other nodes are kept on the primary, too."""
        self.stop_when: "Message" = values.get("stop_when") or {}
        """Limits of a gang that stands still, in seconds."""
        self.preemption: "str | None" = values.get("preemption")
        """The signal of an announced preemption; empty for none; None where it is not passed on."""


class Node:
    """The facts that a node sent."""

    def __init__(self, index: int, address: str, facts: "Message") -> None:
        self.index = index
        self.address = address
        self.name: str = facts.get("node", address)
        self.processes: int = facts.get("processes", 1)
        self.gpus: "list[str]" = facts.get("gpus", [])
        self.real_gpus: bool = facts.get("real_gpus", False)
        self.cores: int = facts.get("cores", 1)
        self.ports: "list[int]" = facts.get("ports", [])
        self.interfaces: "Values" = facts.get("interfaces", {})
        self.infiniband: "Values" = facts.get("infiniband", {})
        self.nvlink: bool = facts.get("nvlink", False)
        self.files: "list[str]" = facts.get("files", [])
        self.folder: str = facts.get("folder", "")
        self.emulated: bool = facts.get("emulated", False)

    def __str__(self) -> str:
        return f"node {self.name} ({self.address})"

    @property
    def interface(self) -> str:
        """The network interface with the address by which other nodes know this one; empty if there is none."""
        return next((name for name, address in self.interfaces.items() if address == self.address), "")


class Process:
    """One process of the gang, and its place in it."""

    def __init__(self, identity: int, role: Role, node: Node, index: int) -> None:
        self.id = identity
        self.role = role
        self.node = node
        self.index = index
        """Its number among the processes of its role."""
        self.rank = -1
        """Its rank; -1 if its role has none."""
        self.local_rank = -1
        self.slot = -1
        """Its number among the processes of its node that share the GPUs."""
        self.port = 0
        """A port that was free on its node."""

    @property
    def label(self) -> str:
        return f"rank {self.rank}" if self.rank >= 0 else f"{self.role.name} {self.index}"

    @property
    def file(self) -> str:
        """The beginning of the names of its files."""
        return self.label.replace(" ", "-")


class Gang:
    """All nodes and processes, and the address where they meet."""

    def __init__(self, spec: Spec, nodes: "list[Node]", processes: "list[Process]", framework: "Framework") -> None:
        self.spec = spec
        self.framework = framework
        self.nodes = nodes
        self.processes = processes
        self.ranked = [process for process in processes if process.rank >= 0]
        self.port = 0
        self.store = ("", 0)
        """The port of the framework's own server (Horovod)."""

    @property
    def address(self) -> str:
        """The address of the primary, on the requested interface."""
        return address_of(self.nodes[0], self.spec.options.get("interface"))

    def of(self, role: str) -> "list[Process]":
        return [process for process in self.processes if process.role.name == role]

    def hosts(self, role: str) -> "list[str]":
        return ["{}:{}".format(address_of(p.node, self.spec.options.get("interface")), p.port) for p in self.of(role)]

    def local(self, process: Process) -> "list[Process]":
        """The ranked processes of the same node."""
        return [other for other in self.ranked if other.node is process.node]

    def cross(self, process: Process) -> "tuple[int, int]":
        """(rank, size) among the processes with this local rank on their nodes."""
        peers = [other for other in self.ranked if other.local_rank == process.local_rank]
        return peers.index(process), len(peers)

    def slots(self, node: Node) -> "list[Process]":
        return [process for process in self.processes if process.node is node and process.slot >= 0]


def address_of(node: Node, interface: "str | None") -> str:
    if not interface:
        return node.address
    if interface not in node.interfaces:
        known = ", ".join(sorted(node.interfaces)) or "none"
        raise LaunchError(f"{node} has no address on interface `{interface}` (it has: {known})")
    return node.interfaces[interface]
