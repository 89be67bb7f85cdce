"""What a launcher is given and what it gives back; values only."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Fabric(enum.Enum):
    """How the nodes of a pool talk: plain Ethernet, InfiniBand with SR-IOV, or the old Network Direct."""

    ETHERNET = "ethernet"
    SR_IOV = "sr-iov"
    NETWORK_DIRECT = "network-direct"


class Shape(NamedTuple):
    """What is known of the gang while planning."""

    instances: int
    """Nodes the task runs on, one instance each."""
    fabric: Fabric = Fabric.ETHERNET
    container: bool = False
    """The task runs inside a container of a native container pool (as root, with the image's sshd on port 23)."""


class Mpi(NamedTuple):
    """The `multi_instance.mpi` block with `pre_execution_command`, as the launcher needs it."""

    runtime: str
    """One of intelmpi, intelmpi-ofa, openmpi, mpich, mvapich."""
    executable_path: str = "mpirun"
    options: tuple[str, ...] = ()
    processes_per_node: int | str | None = None
    """Ranks a node: a number, or a shell command the primary evaluates; None means 1."""
    pre_execution_command: str | None = None
    coordination_command: str | None = None
    inside: str = ""
    """What stands before the ranks' command to run it inside an image (`apptainer.CALL`)."""


class File(NamedTuple):
    """One file that travels with the task; `name` is relative to AZ_BATCH_TASK_SHARED_DIR."""

    name: str
    data: bytes
    mode: int = 0o644


class Implicit(NamedTuple):
    """Something the product switched on by itself: what, its value, because of what, by which of `rules.RULES`, and
    where (the path of the block in the configuration it was decided for; set by the planner)."""

    what: str
    value: str
    because: str
    rule: str
    where: str = ""


class Launch(NamedTuple):
    """What the nodes run.

    coordination: bash text run once on every instance, after `files` are in place; it must come back with 0.
    application: bash text run on the primary alone, when every instance's coordination has come back.
    files: what both need beside them, below `.batchtrain/` of AZ_BATCH_TASK_SHARED_DIR.
    implicit: what the launcher decided by itself.
    """

    coordination: str
    application: str
    files: tuple[File, ...] = ()
    implicit: tuple[Implicit, ...] = ()
