"""What a launcher is given and what it gives back; values only."""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.frameworks.mpi import MpiBlock


class Setup(NamedTuple):
    """What a multi-instance task says beside the block that launches it."""

    pre_execution_command: str | None = None
    coordination_command: str | None = None
    preflight: bool = True
    """The nodes are looked at before anything is started."""
    rank_logs: bool = True
    """Each rank's output is also kept in files of its own."""
    inside: str = ""
    """What stands before a command to run it inside an image (`apptainer.CALL`)."""
    own: frozenset[str] = frozenset()
    """Names of variables that the task or its job sets: their values stand, and no rule is named for them."""


class MpiLaunch(NamedTuple):
    """A launch by an MPI: its block, and what else decides about it."""

    block: MpiBlock
    setup: Setup = Setup()
    environment: tuple[str, ...] = ()
    """Shell words NAME=VALUE, each for a variable without a value yet."""
    cntk: bool = False
    """The program is CNTK, which works with the MPI alone that it was built on; it has no use for mpi4py."""
    misses_mpi4py: bool = True
    """A Python without mpi4py is worth a word; programs of Horovod never need it."""


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
