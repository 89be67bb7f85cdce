"""The expected properties of the nodes of a gang, which `runtime/preflight.sh` checks before anything starts."""

from __future__ import annotations

import re

from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.launchers import steps
from batchtrain.launchers.launch import Implicit, Step

REPLACE_SECONDS = 600
"""Time that a gang with a faulty node waits for a client that removes the node, which ends the wait."""


def expected(
    shape: Shape, processes: int | str | None, port: str, *, infiniband: bool, memlock: bool, imex: str = ""
) -> tuple[str, ...]:
    """The arguments of preflight.sh.

    processes: on each node; at least one per GPU is assumed. port: the port of the nodes' ssh servers; empty if
    unknown. infiniband, memlock: the task needs the ports of the size, and memory that can be locked. imex: the value
    of NCCL_MNNVL_ENABLE, which matters where NVLink connects the nodes.
    """
    number = str(processes).strip()
    each = max(int(number) if re.fullmatch(r"\d+", number) else 1, shape.gpus)
    needs_ports = infiniband and shape.fabric is Fabric.SR_IOV
    return (
        f"processes={each}",
        *((f"gpus={shape.gpus}", f"vendor={shape.gpu_vendor}", f"size={shape.size}") if shape.gpus else ()),
        *((f"imex={imex}",) if imex else ()),
        *((f"infiniband={shape.hcas or 1}",) if needs_ports else ()),
        *((f"rate={shape.port_gbps}",) if needs_ports and shape.port_gbps else ()),
        *(("memlock=1",) if memlock else ()),
        *(("container=1",) if memlock and shape.container else ()),
        *((f"port={port}",) if port and shape.instances > 1 else ()),
        *((f"replace={REPLACE_SECONDS}",) if shape.replaces_nodes else ()),
    )


_NAMES = {
    "gpus": "{} GPUs without faults, and their driver",
    "imex": "the IMEX domain of the gang, for NVLink between nodes",
    "infiniband": "active InfiniBand ports ({})",
    "rate": "{} Gb/s on each port",
    "memlock": "memory that can be locked",
    "port": "a connection to each other node's port {}",
    "replace": "{} s for a client that replaces a faulty node",
}


def step(words: tuple[str, ...]) -> Step:
    """Brings the script; the launch runs it with these arguments. Without any, nothing is checked."""
    if not words:
        return Step()
    pairs = (word.partition("=") for word in words)
    checks = [_NAMES[name].format(value) for name, _, value in pairs if name in _NAMES]
    value = ", ".join((*checks, "shared memory", "disk", "clock"))
    because = "checks every node before the launch and reports the faulty ones"
    return Step(files=(steps.PREFLIGHT,), implicit=(Implicit("preflight", value, because, "preflight"),))
