"""MXNet: ps-lite's scheduler, servers and workers, with their roles in DMLC_* variables.

Source: MXNet, Distributed training; ps-lite, Environment variables; DLBS's distributed MXNet recipe (one server and
one worker a node, `INTERFACE:ADDRESS:PORT`); measured with MXNet 1.9.1.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, NamedTuple

from msgspec import Meta

from batchtrain.frameworks.base import LAUNCH, BlockFault, FrameworkRule, Nodes, Role, Scripts, Text, Variable, says

_RENDEZVOUS = re.compile(r"(?:(?P<interface>[^:\s]+):)?(?P<address>[^:\s]+):(?P<port>[0-9]{1,5})")
KVSTORE = r"--kv[-_]?store[=\s]+[\"']?(\w+)"
"""The kv-store in a command."""


class Rendezvous(NamedTuple):
    """The form of the rendezvous in DLBS's recipes. The address is ignored, because the scheduler runs on the
    primary."""

    interface: str | None = None
    port: int | None = None


def rendezvous(text: str) -> Rendezvous | None:
    """`[INTERFACE:]ADDRESS:PORT` with a port from 1024 to 65535; None for anything else."""
    match = _RENDEZVOUS.fullmatch(text.strip())
    if match is None or not 1024 <= int(match["port"]) <= 65535:
        return None
    return Rendezvous(match["interface"], int(match["port"]))


class MxnetBlock(Nodes, frozen=True, kw_only=True):
    """MXNet: a scheduler on the primary, servers and workers (ps-lite); a worker uses all GPUs of its node."""

    servers: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        says("Parameter servers of all nodes together. Default: one per node.", "batchtrain: DMLC_NUM_SERVER"),
    ] = None
    server_command: Annotated[
        Text | None,
        says("Command of the servers and the scheduler. Default: the command of the task.", LAUNCH,
             example="python -c 'import mxnet'"),
    ] = None  # fmt: skip
    rendezvous: Annotated[
        Text | None,
        says(
            "`[INTERFACE:]ADDRESS:PORT` as DLBS writes it; the address is always the primary's.",
            "batchtrain: DMLC_INTERFACE / DMLC_PS_ROOT_PORT",
            example="ib0:10.0.0.4:29500",
        ),
    ] = None
    verbose: Annotated[
        int, says("PS_VERBOSE: 1 logs connections, 2 every message.", "batchtrain: PS_VERBOSE", ge=0, le=2)
    ] = 0

    name: ClassVar[str] = "mxnet"
    source: ClassVar[str] = "ps-lite: DMLC_*"
    scripts: ClassVar[Scripts] = Scripts(imports=("mxnet",), image="mxnet")
    nccl: ClassVar[bool] = False
    waits: ClassVar[bool] = True
    variables: ClassVar[tuple[Variable, ...]] = (
        Variable("DMLC_ROLE", "scheduler, server or worker", "ps-lite asks for it when mxnet is imported"),
        Variable("DMLC_PS_ROOT_URI", "the primary's address", "the scheduler is there"),
        Variable("DMLC_PS_ROOT_PORT", "`port`, or a free one of the primary", "the scheduler listens there",
                 instead="`port` of the block chooses it"),
        Variable("DMLC_NUM_SERVER", "`servers`, or one per node", "the scheduler waits for this number",
                 instead="`servers` of the block chooses it"),
        Variable("DMLC_NUM_WORKER", "processes of all nodes", "the scheduler waits for this number",
                 instead="`processes_per_node` of the block chooses it"),
        Variable("DMLC_WORKER_ID, DMLC_SERVER_ID", "the process's number in its role", "older programs read them"),
        Variable("DMLC_NODE_HOST", "the node's own address, in hexadecimal", "ps-lite numbers workers by its text, the"
                 " highest first: rank 0 is then on the primary"),
        Variable("PORT", "a free one of the node", "ps-lite numbers the workers of a node by it", keeps=True),
        Variable("DMLC_INTERFACE", "", "`interface` or `rendezvous` sets it", option="interface",
                 instead="`interface` of the block chooses it"),
        Variable("PS_VERBOSE", "", "", keeps=True, option="verbose"),
    )  # fmt: skip
    reserved_names: ClassVar[tuple[tuple[str, str], ...]] = (("DMLC_RANK|DMLC_TASK_ID", "take it out"),)
    rules: ClassVar[tuple[FrameworkRule, ...]] = (
        FrameworkRule("mxnet-rendezvous", "A rendezvous is written as DLBS writes it.",
                      "DLBS: distributed MXNet (mxnet.rendezvous)"),
        FrameworkRule("mxnet-horovod", "MXNet under Horovod is launched as Horovod.",
                      "MXNet: Distributed training using Horovod"),
    )  # fmt: skip

    @property
    def meeting(self) -> dict[str, Any]:
        endpoint = (rendezvous(self.rendezvous) if self.rendezvous else None) or Rendezvous()
        return {"port": self.port or endpoint.port, "interface": self.interface or endpoint.interface}

    def roles(self, command: str, instances: int) -> tuple[Role, ...]:
        beside = self.server_command or command
        servers = self.servers if self.servers is not None else instances
        return (
            Role("scheduler", beside, total=1, placement="primary", gpus=False, ranked=False, decides=False),
            Role("server", beside, total=servers, placement="spread", gpus=False, ranked=False, decides=False),
            Role("worker", command),
        )

    def settings(self) -> dict[str, Any]:
        return {"verbose": self.verbose or None}

    def given(self, option: str) -> Any:
        """Read the interface from the rendezvous, which may contain one."""
        return self.meeting["interface"] if option == "interface" else super().given(option)

    def faults(self, command: str, instances: int | None) -> Iterator[BlockFault]:
        yield from super().faults(command, instances)
        if self.rendezvous and rendezvous(self.rendezvous) is None:
            text = (
                f"`{self.rendezvous}` is not [INTERFACE:]ADDRESS:PORT with a port from 1024 to 65535, such as"
                " `ib0:10.0.0.4:29500`"
            )
            yield BlockFault("mxnet-rendezvous", "rendezvous", text)
        store = re.search(KVSTORE, command)
        if store and store[1] == "horovod":
            text = (
                "kv-store `horovod` has no servers and no scheduler; write a `horovod` block in place of `mxnet`, and"
                " use an image whose Horovod was built for MXNet"
            )
            yield BlockFault("mxnet-horovod", "", text, launchable=True)
