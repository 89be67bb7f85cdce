"""Horovod: over gloo by the node launcher, over an MPI by that MPI's launch.

Source: Horovod, Horovod with MPI; runner/gloo_run.py (the variables of a slot); measured with Horovod 0.28.1.
"""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from batchtrain.frameworks.base import (
    AUTO,
    GLOO_SOCKET,
    LAUNCH,
    SOCKETS,
    BlockFault,
    Nodes,
    OverMpi,
    Scripts,
    Text,
    Variable,
    says,
)
from batchtrain.frameworks.mpi import AllowSingletons, Runtime
from batchtrain.frameworks.mxnet import KVSTORE

_OVER = "`over` of the block chooses it"


class HorovodBlock(Nodes, frozen=True, kw_only=True):
    """Horovod: over gloo by batchtrain itself, or over an MPI; one process per GPU."""

    over: Annotated[
        Literal["gloo", "mpi"],
        says(
            "Communication library of the processes; the build must include it (`horovodrun --check-build`).",
            "batchtrain: HOROVOD_CONTROLLER",
        ),
    ] = "gloo"
    runtime: Annotated[Runtime, says("The MPI's dialect, over `mpi`.", LAUNCH)] = "openmpi"
    executable_path: Annotated[Text, says("The MPI's launcher, by path or found on PATH.", LAUNCH)] = "mpirun"
    options: Annotated[tuple[str, ...], says("Additional options for the MPI's launcher.", LAUNCH)] = ()
    allow_singletons: AllowSingletons = False

    name: ClassVar[str] = "horovod"
    source: ClassVar[str] = "Horovod: gloo_run.py"
    scripts: ClassVar[Scripts] = Scripts(
        imports=("horovod",),
        level=2,
        image="horovod",
        image_for=("pytorch", "tensorflow", "mxnet"),
        spawns=("horovod.run",),
    )
    commands: ClassVar[tuple[str, ...]] = ("horovodrun",)
    modules: ClassVar[tuple[str, ...]] = (r"horovod\.runner\S*",)
    ranks: ClassVar[tuple[str, ...]] = ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK")
    sizes: ClassVar[tuple[str, ...]] = ("HOROVOD_SIZE",)
    each: ClassVar[int | str] = AUTO
    variables: ClassVar[tuple[Variable, ...]] = (
        Variable("HOROVOD_CONTROLLER", "gloo", "the build may also have MPI", instead=_OVER),
        Variable("HOROVOD_CPU_OPERATIONS", "gloo", "the build may also have MPI", instead=_OVER),
        Variable("HOROVOD_GLOO_RENDEZVOUS_ADDR", "the primary's address", "the node launcher answers there"),
        Variable("HOROVOD_GLOO_RENDEZVOUS_PORT", "a free port of the primary", "the node launcher answers there"),
        Variable("HOROVOD_RANK, HOROVOD_SIZE", "of all nodes", "each process has its own"),
        Variable("HOROVOD_LOCAL_RANK, HOROVOD_LOCAL_SIZE", "of the node", "the program selects its GPU by it"),
        Variable("HOROVOD_CROSS_RANK, HOROVOD_CROSS_SIZE", "the same local rank of all nodes",
                 "hierarchical operations go between them"),
        GLOO_SOCKET._replace(name="HOROVOD_GLOO_IFACE"),
        Variable("HOROVOD_HOSTNAME", "the node's address", "processes of one node share memory"),
        *SOCKETS,
    )  # fmt: skip
    reserved_names: ClassVar[tuple[tuple[str, str], ...]] = (
        (r"HOROVOD_GLOO_RENDEZVOUS_\w+", "take it out"),
        ("HOROVOD_SIZE", "`processes` or `processes_per_node` of the block chooses it"),
        ("HOROVOD_ELASTIC",
         "elastic Horovod needs nodes that join and leave, but the nodes of a gang are fixed; save checkpoints, and"
         " let Batch retry the task (`max_task_retries`)"),
    )  # fmt: skip
    idle_fabric: ClassVar[str] = "`over: mpi`"

    @property
    def ucx(self) -> bool:
        return self.over == "mpi"

    @property
    def over_mpi(self) -> OverMpi | None:
        if self.over == "gloo":
            return None
        because = "the build may also have gloo, but `over: mpi` is requested"
        environment = [Variable(name, "mpi", because) for name in ("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS")]
        return OverMpi(self.runtime, self.executable_path, self.options, self.allow_singletons, tuple(environment))

    def faults(self, command: str, instances: int | None) -> Iterator[BlockFault]:
        yield from super().faults(command, instances)
        store = re.search(KVSTORE, command)
        if store and store[1].startswith("dist"):
            text = (
                f"kv-store `{store[1]}` waits for servers and a scheduler, which Horovod does not have; write"
                " `--kv-store horovod`, or an `mxnet` block in place of `horovod`"
            )
            yield BlockFault("mxnet-horovod", "", text, launchable=True)
