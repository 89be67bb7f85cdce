"""The input and output of launchers: values, and the one function that renders them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from batchtrain.frameworks.base import Variable
from batchtrain.frameworks.mpi import MpiBlock
from batchtrain.launchers import shell


class Setup(NamedTuple):
    """The properties of a multi-instance task besides the block that launches it."""

    pre_execution_command: str | None = None
    coordination_command: str | None = None
    preflight: bool = True
    """The nodes are checked before anything starts."""
    rank_logs: bool = True
    """Each rank's output is also kept in files of its own."""
    inside: str = ""
    """The words before a command that runs inside an image (`apptainer.CALL`)."""
    preemption: str | None = None
    """How an announced preemption reaches the task: a file and this signal, the file alone (empty), or not (None)."""
    collects: bool = False
    """The files of the processes of other nodes are kept on the primary, too."""
    stop_when: Mapping[str, float] = {}
    """Limits of a gang that stands still: seconds of silence, seconds and percentage of idle GPUs."""
    own: frozenset[str] = frozenset()
    """Names of variables that the task or its job sets: their values win, and no rule is named for them."""


class MpiLaunch(NamedTuple):
    """A launch by an MPI: its block, and further input."""

    block: MpiBlock
    setup: Setup = Setup()
    environment: tuple[Variable, ...] = ()
    """Each for a variable without a value yet; the values are shell words."""
    binds: bool = True
    """Each rank is bound to a share of its node's cores, unless the user binds it."""
    misses_mpi4py: bool = True
    """The launch warns about a Python without mpi4py; programs of Horovod and CNTK never need it."""


SHIPPED = 946_684_800
"""The time of files that batchtrain adds: the year 2000, because a zip archive has no time before 1980."""


class File(NamedTuple):
    """One file that travels with the task; `name` is relative to AZ_BATCH_TASK_SHARED_DIR."""

    name: str
    data: bytes
    mode: int = 0o644
    modified: int = SHIPPED
    """When it was last modified, in seconds since 1970 (UTC)."""


class Implicit(NamedTuple):
    """A setting that batchtrain added: its name, value, reason, the rule in `rules.RULES`, and the path of the block in
    the configuration (set by the planner)."""

    what: str
    value: str
    because: str
    rule: str
    where: str = ""


class Step(NamedTuple):
    """One part of a launch: its lines, the files that they need, and the settings that it adds."""

    text: str = ""
    """Bash text; empty for a step that only brings files or changes another one."""
    files: tuple[File, ...] = ()
    implicit: tuple[Implicit, ...] = ()
    everywhere: bool = False
    """The lines run once on every instance, and must end with 0. Others run only on the primary, after those of every
    instance."""
    before: str = ""
    """Shell text on the command line of the task, before the script of the primary; without a single quote."""
    after: str = ""
    """The same after it."""


class Launch(NamedTuple):
    """The text that the nodes run.

    coordination: the steps of every instance. application: those of the primary.
    files: files for both, below `.batchtrain/` of AZ_BATCH_TASK_SHARED_DIR.
    implicit: the settings that the launch added.
    before, after: what the command line of the task has around the script of the primary.
    """

    coordination: str
    application: str
    files: tuple[File, ...] = ()
    implicit: tuple[Implicit, ...] = ()
    before: str = ""
    after: str = ""


def rendered(steps: Iterable[Step]) -> Launch:
    """The steps as text, in their order. A file that several steps need travels once. Around the script, a later step
    is outside an earlier one."""
    parts = tuple(steps)
    return Launch(
        coordination=shell.script(*(step.text for step in parts if step.everywhere)),
        application=shell.script(*(step.text for step in parts if not step.everywhere)),
        files=tuple(dict.fromkeys(file for step in parts for file in step.files)),
        implicit=tuple(item for step in parts for item in step.implicit),
        before="".join(step.before for step in reversed(parts)),
        after="".join(step.after for step in parts),
    )
