"""The public ports of the logins of a pool; no rules, no requests.

The rules and the planner ask the same function, so that what is valid can be planned.
"""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.catalog.meaning import LAST_PORT
from batchtrain.config.types import Pool, RemoteAccessControl

SSH_PORT, RDP_PORT = 22, 3389
LOGIN_PORTS = 1000


class LoginPorts(NamedTuple):
    """The endpoint of the logins: its name, the port of the nodes, and the public ports."""

    name: str
    backend: int
    first: int
    last: int


def login_ports(pool: Pool, *, windows: bool) -> LoginPorts | None:
    """The endpoint of `ssh` or `rdp`; None for a pool without logins or public addresses, or with its own endpoint."""
    name, backend, login = ("rdp", RDP_PORT, pool.rdp) if windows else ("ssh", SSH_PORT, pool.ssh)
    if login is None or pool.network.public_ip == "nopublicipaddresses":
        return None
    if any(nat.protocol == "tcp" and nat.backend_port == backend for nat in pool.network.inbound_nat_pools):
        return None
    first = (pool.remote_access_control or RemoteAccessControl()).starting_port
    return LoginPorts(name, backend, first, min(first + LOGIN_PORTS - 1, LAST_PORT))
