"""The cores of each rank of an MPI: an equal share of its node's, near its GPU.

The node counts them (`node.sh share`), because the plan does not know them. What the user binds stays so.
"""

from __future__ import annotations

import re

from batchtrain.launchers import shell
from batchtrain.launchers.launch import Implicit, MpiLaunch


def text(options: MpiLaunch, each: str) -> str:
    """The block that binds the ranks. each: their number on a node, in shell text; empty if the user places them."""
    mpi = options.block.mpi
    if _user_binds(options):
        return ""
    if not _is_shared(options, each):
        lines = [f"bt_default {mpi.own_binding}"] if mpi.own_binding and (not mpi.shares or not options.binds) else []
        return shell.block("No rank is bound to one core, because it has threads:", *lines) if lines else ""
    has_binding = '"$bt_unbound"' if mpi.shares else '"$bt_share$bt_unbound"'
    return shell.block(
        "Each rank gets an equal share of its node's cores, near its GPU; none is bound where it cannot be had:",
        f"bt_share_cores {each} {' '.join(map(shell.word, mpi.binding_names))}",
        "bt_binding=()" if mpi.bound else "",
        f'[ -z "$bt_share" ] || bt_binding=({mpi.bound})' if mpi.bound else "",
        f'[ -z "$bt_unbound" ] || bt_binding=({mpi.unbound})' if mpi.unbound else "",
        f"[ -z {has_binding} ] || bt_default {mpi.own_binding}" if mpi.own_binding else "",
    )


def on_line(options: MpiLaunch, each: str) -> str:
    """The options on the launcher's line."""
    if _user_binds(options):
        return ""
    mpi = options.block.mpi
    return '"${bt_binding[@]}"' * bool(mpi.bound) if _is_shared(options, each) else mpi.unbound


def implicit(options: MpiLaunch, each: str) -> tuple[Implicit, ...]:
    """The binding as an implicit decision of the plan."""
    mpi = options.block.mpi
    free = " ".join(filter(None, (mpi.unbound, mpi.own_binding)))
    if _user_binds(options):
        return ()
    if not _is_shared(options, each):
        because = "a rank has threads, and the MPI would bind it to one core"
        return (Implicit("binding", free, because, "mpi-binding"),) if text(options, each) or mpi.unbound else ()
    value = mpi.bound.replace("$bt_share", "CORES/RANKS") or "the MPI's own, which is this share"
    if "bt_share" in mpi.rank_options:
        value += " with --map-by ppr:RANKS:node:pe=CORES/RANKS"
    because = (
        "each rank has an equal share of its node's cores, in the NUMA node of its GPU; no rank is bound where that"
        " cannot be had: fewer cores than ranks, a share on two packages, GPUs in another order than the NUMA nodes,"
        " emulated nodes"
    )
    return (Implicit("binding", f"{value}, or none ({free})" if free else value, because, "mpi-binding"),)


def _is_shared(options: MpiLaunch, each: str) -> bool:
    """Whether there may be several ranks on a node to be bound; a single one has all cores."""
    return options.binds and each not in ("", "1")


def _user_binds(options: MpiLaunch) -> bool:
    return re.search(options.block.mpi.binding, " ".join(options.block.options)) is not None
