"""MXNet: ps-lite's scheduler, servers and workers, each told its role by DMLC_* variables.

Source: MXNet, Distributed training; ps-lite, Environment variables; DLBS's distributed MXNet recipe (one server and
one worker a node, `INTERFACE:ADDRESS:PORT`); measured with MXNet 1.9.1.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from batchtrain.errors import PlanError
from batchtrain.launchers import nodes
from batchtrain.launchers.environment import Variable
from batchtrain.launchers.nodes import Framework, Role
from batchtrain.launchers.types import Launch, Mxnet, Nodes, Shape

_RULE = "framework-environment"
_TOLD = (
    Variable("DMLC_ROLE", "scheduler, server or worker", "ps-lite asks for it when mxnet is imported", _RULE),
    Variable("DMLC_PS_ROOT_URI", "the primary's address", "the scheduler is there", _RULE),
    Variable("DMLC_PS_ROOT_PORT", "`port`, or a free one of the primary", "the scheduler listens there", _RULE),
    Variable("DMLC_NUM_SERVER", "`servers`, or one a node", "the scheduler waits for so many", _RULE),
    Variable("DMLC_NUM_WORKER", "processes of all nodes", "the scheduler waits for so many", _RULE),
    Variable("DMLC_WORKER_ID, DMLC_SERVER_ID", "the process's number in its role", "older programs read them", _RULE),
    Variable("DMLC_NODE_HOST", "the node's own address, in hexadecimal", "ps-lite numbers workers by its text, the"
             " highest first: rank 0 is then on the primary", _RULE),
    Variable("PORT", "a free one of the node", "ps-lite numbers the workers of a node by it", _RULE),
)  # fmt: skip

_RENDEZVOUS = re.compile(r"(?:(?P<interface>[^:\s]+):)?(?P<address>[^:\s]+):(?P<port>[0-9]{1,5})")


class Rendezvous(NamedTuple):
    """Where DLBS's workers meet; the address is not used, for the scheduler runs on the primary."""

    interface: str | None
    port: int | None


def launch(options: Mxnet, command: str, shape: Shape) -> Launch:
    """The launch with an `mxnet` block. Raises PlanError for a rendezvous that cannot be read."""
    meeting = rendezvous(options.rendezvous) if options.rendezvous else Rendezvous(None, None)
    own = options.nodes
    placed = own._replace(interface=own.interface or meeting.interface, port=own.port or meeting.port)
    beside = options.server_command or command
    servers = options.servers if options.servers is not None else shape.instances
    framework = Framework(
        name="mxnet",
        roles=(
            Role("scheduler", beside, total=1, place="primary", gpus=False, ranked=False, decides=False),
            Role("server", beside, total=servers, place="spread", gpus=False, ranked=False, decides=False),
            Role("worker", command),
        ),
        options={"verbose": options.verbose or None},
        each=1,
        told=(*_TOLD, *_chosen(placed, options)),
        nccl=False,
        waits=True,
    )
    return nodes.launch(framework, placed, command, shape)


def _chosen(placed: Nodes, options: Mxnet) -> tuple[Variable, ...]:
    found: list[Variable] = []
    if placed.interface:
        found.append(Variable("DMLC_INTERFACE", placed.interface, "`interface` or `rendezvous` names it", _RULE))
    if options.verbose:
        found.append(Variable("PS_VERBOSE", str(options.verbose), "`verbose` says it", _RULE))
    return tuple(found)


def rendezvous(text: str) -> Rendezvous:
    """`[INTERFACE:]ADDRESS:PORT`. Raises PlanError for anything else."""
    match = _RENDEZVOUS.fullmatch(text.strip())
    if match is None or not 1024 <= int(match["port"]) <= 65535:
        raise PlanError(
            f"mxnet.rendezvous `{text}` is not [INTERFACE:]ADDRESS:PORT with a port from 1024 to 65535, such as"
            " `ib0:10.0.0.4:29500`"
        )
    return Rendezvous(match["interface"], int(match["port"]))
