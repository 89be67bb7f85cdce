"""The cores of each rank of an MPI: an equal share of its node's, near its GPU.

The node counts them (`node.sh share`), because the plan does not know them. What the user binds stays so.
"""

from __future__ import annotations

import re

from batchtrain.frameworks.mpi import Mpi
from batchtrain.launchers import shell
from batchtrain.launchers.launch import Implicit, MpiLaunch, Step


def step(options: MpiLaunch, each: str) -> Step:
    """Binds the ranks. each: their number on a node, in shell text; empty if the user places them."""
    if _user_binds(options):
        return Step()
    return _shared(options.block.mpi, each) if _is_shared(options, each) else _unbound(options)


def _unbound(options: MpiLaunch) -> Step:
    mpi = options.block.mpi
    lines = [f"bt_default {mpi.own_binding}"] if mpi.own_binding and (not mpi.shares or not options.binds) else []
    text = shell.block("No rank is bound to one core, because it has threads:", *lines) if lines else ""
    because = "a rank has threads, and the MPI would bind it to one core"
    implicit = (Implicit("binding", _free(mpi), because, "mpi-binding"),)
    return Step(text, implicit=implicit if text or mpi.unbound else ())


def _shared(mpi: Mpi, each: str) -> Step:
    has_binding = '"$bt_unbound"' if mpi.shares else '"$bt_share$bt_unbound"'
    text = shell.block(
        "Each rank gets an equal share of its node's cores, near its GPU; none is bound where it cannot be had:",
        f"bt_share_cores {each} {' '.join(map(shell.word, mpi.binding_names))}",
        "bt_binding=()" if mpi.bound else "",
        f'[ -z "$bt_share" ] || bt_binding=({mpi.bound})' if mpi.bound else "",
        f'[ -z "$bt_unbound" ] || bt_binding=({mpi.unbound})' if mpi.unbound else "",
        f"[ -z {has_binding} ] || bt_default {mpi.own_binding}" if mpi.own_binding else "",
    )
    value = mpi.bound.replace("$bt_share", "CORES/RANKS") or "the MPI's own, which is this share"
    if "bt_share" in mpi.rank_options:
        value += " with --map-by ppr:RANKS:node:pe=CORES/RANKS"
    because = (
        "each rank has an equal share of its node's cores, in the NUMA node of its GPU; no rank is bound where that"
        " cannot be had: fewer cores than ranks, a share on two packages, GPUs in another order than the NUMA nodes,"
        " emulated nodes"
    )
    value = f"{value}, or none ({_free(mpi)})" if _free(mpi) else value
    return Step(text, implicit=(Implicit("binding", value, because, "mpi-binding"),))


def _free(mpi: Mpi) -> str:
    """How no rank is bound."""
    return " ".join(filter(None, (mpi.unbound, mpi.own_binding)))


def on_line(options: MpiLaunch, each: str) -> str:
    """The options on the launcher's line."""
    if _user_binds(options):
        return ""
    mpi = options.block.mpi
    return '"${bt_binding[@]}"' * bool(mpi.bound) if _is_shared(options, each) else mpi.unbound


def _is_shared(options: MpiLaunch, each: str) -> bool:
    """Whether there may be several ranks on a node to be bound; a single one has all cores."""
    return options.binds and each not in ("", "1")


def _user_binds(options: MpiLaunch) -> bool:
    return re.search(options.block.mpi.binding, " ".join(options.block.options)) is not None
