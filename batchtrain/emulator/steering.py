"""Changes an emulator's clock and injects faults, from another process, a test or the command line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from batchtrain.emulator import server, wire
from batchtrain.emulator.server import Status

Document = dict[str, Any]


def account(to: Status) -> Document:
    """The number of pools, jobs, nodes and tasks, the memory in use (MB), and the clock."""
    return server.ask("GET", to, "status")


def clock(to: Status) -> Document:
    """The account's time (`now`), the clock's `mode`, its speed (`times`), and how far it is ahead."""
    return server.ask("GET", to, "clock")


def turn(to: Status, mode: str, times: float = 1.0) -> Document:
    """Run the clock `real`, `scaled` (`times` as fast) or `stepped` (only by `advance`). Raises Refused."""
    return server.ask("POST", to, "clock", {"mode": mode, "times": times})


def advance(to: Status, by: timedelta, patience: float = 2.0) -> Document:
    """Advance the clock by a duration, from event to event. Each step waits up to `patience` seconds for running
    commands. Raises Refused."""
    ticks = wire.duration(by // timedelta(microseconds=1) * (wire.SECOND // 10**6))  # a float can be a tick short
    return server.ask("POST", to, "clock", {"advance": ticks, "patience": patience})


def fault(to: Status, kind: str, **more: Any) -> int:
    """Inject a fault (see `injection.Injection` for kinds and numbers) and return its number. Raises Refused."""
    return int(server.ask("POST", to, "faults", {"kind": kind, **more})["id"])


def faults(to: Status) -> list[Document]:
    """The injected faults, each with its number of strikes."""
    rules: list[Document] = server.ask("GET", to, "faults")["value"]
    return rules


def clear_faults(to: Status, number: int | None = None) -> None:
    """Remove one fault, or all. Raises Refused."""
    server.ask("DELETE", to, "faults" if number is None else f"faults/{number}")


def limit(to: Status, limits: Mapping[str, int]) -> Document:
    """Set quotas of the account by their names (`server.QUOTAS`), and how many nodes the region has of a VM size.
    Returns all of them. Raises Refused."""
    return server.ask("POST", to, "capacity", dict(limits))


def befall(to: Status, node_id: str, act: str, seconds: float | None = None, notice: float | None = None) -> None:
    """Make a node preempted (`preempt`, a spot node; it returns after `seconds`, by default after the time of the
    pace), lost (`lose`) or unusable (`break`). With `notice`, the processes of the node are notified, and it is
    preempted that many seconds later. Raises Refused."""
    body = {"act": act, "seconds": seconds, "notice": notice}
    server.ask("POST", to, f"nodes/{node_id}", {name: value for name, value in body.items() if value is not None})
