"""Turning an emulator's clock and asking it for faults, from another process, a test or the command line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from batchtrain.emulator import server, wire
from batchtrain.emulator.server import Status

Document = dict[str, Any]


def account(to: Status) -> Document:
    """What runs on it, how much of it, its memory (MB), its clock."""
    return server.ask("GET", to, "status")


def clock(to: Status) -> Document:
    """The account's time (`now`), its `mode`, how many `times` as fast it runs, and how far it is ahead."""
    return server.ask("GET", to, "clock")


def turn(to: Status, mode: str, times: float = 1.0) -> Document:
    """Let the clock run `real`, `scaled` (so many `times` as fast) or `stepped` (only by `advance`). Raises Refused."""
    return server.ask("POST", to, "clock", {"mode": mode, "times": times})


def advance(to: Status, by: timedelta, patience: float = 2.0) -> Document:
    """Advance the clock by a duration, from event to event.

    After each step what follows is waited for, up to `patience` seconds where commands really run. Raises Refused.
    """
    ticks = wire.duration(int(by.total_seconds() * wire.SECOND))
    return server.ask("POST", to, "clock", {"advance": ticks, "patience": patience})


def fault(to: Status, kind: str, **more: Any) -> int:
    """Ask for a fault (see `injection.Injection` for kinds and numbers); its number. Raises Refused."""
    return int(server.ask("POST", to, "faults", {"kind": kind, **more})["id"])


def faults(to: Status) -> list[Document]:
    """The faults that were asked for, with how often each struck."""
    found: list[Document] = server.ask("GET", to, "faults")["value"]
    return found


def clear_faults(to: Status, number: int | None = None) -> None:
    """Forget one fault, or all. Raises Refused."""
    server.ask("DELETE", to, "faults" if number is None else f"faults/{number}")


def befall(to: Status, node_id: str, act: str, seconds: float | None = None) -> None:
    """Let a node be taken away (`preempt`, a spot node; back after `seconds`, or never), die (`lose`) or `break`.

    Raises Refused.
    """
    server.ask("POST", to, f"nodes/{node_id}", {"act": act} | ({} if seconds is None else {"seconds": seconds}))
