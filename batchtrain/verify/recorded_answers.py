"""Recorded and documented answers of several probes, each with the parts that a probe varies. Pure data."""

from __future__ import annotations

from typing import Any

PORT = {"device": "mlx5_ib0", "link_layer": "InfiniBand", "state": "4: ACTIVE", "rate": 200, "pkeys": ["0x8001"]}
USING = "NCCL INFO NET/IB : Using [0]mlx5_ib0:1/IB [1]mlx5_ib1:1/IB [RO]; OOB eth0:10.0.0.4<0>"
OTHER_CARD = "NCCL INFO NET/IB : Using [0]mlx5_ib0:1/IB [1]mlx5_an0:1/RoCE [RO]; OOB eth0:10.0.0.4<0>"
TOPOLOGY_FILE = "/opt/microsoft/ndv5/topo.xml"


def ports(*, devices: tuple[str, ...] = ("uverbs0",), expected: int = 1, **changes: Any) -> dict[str, Any]:
    """The InfiniBand of a node with one port."""
    return {"ports": [{**PORT, **changes}], "devices": list(devices), "expected": expected, "rate": 200}


def gpus(**changes: Any) -> dict[str, Any]:
    """The GPUs of a node with two of them."""
    bus = ["0001:00:00.0", "0002:00:00.0"]
    return {"code": 0, "count": 2, "expected": 2, "seconds": 0.06, "bus": bus, "positions": bus, **changes}


def sessions(**changes: Any) -> dict[str, Any]:
    """An ssh session on a node."""
    session = {"code": 0, "error": "", "memlock": "unlimited", "variables": 0, "ahead": 0.001, "unsure": 0.02}
    return {"10.0.0.4": {**session, **changes}}


def response(status: int, code: str = "", *, date: bool = True, authenticate: bool = False) -> dict[str, Any]:
    """An answer of the service."""
    return {"status": status, "code": code, "headers": {"Date": date, "WWW-Authenticate": authenticate}}


REFUSED = response(403, "AuthenticationFailed")
"""Of a signature."""

CONTRIBUTOR = ("Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write")


def role(status: int, denied: tuple[str, ...] = CONTRIBUTOR) -> dict[str, Any]:
    """What a sign-in with the role Contributor may do, and the answer to a new pool."""
    return {"permissions": [{"actions": ["*"], "notActions": list(denied), "dataActions": []}], "status": status}


def identified(**changes: Any) -> dict[str, Any]:
    """The identities of a pool after one was set."""
    return {"identities": ["/subscriptions/x/verify"], "expected": "/subscriptions/x/verify", "exit": 22, **changes}


def session(**changes: Any) -> dict[str, Any]:
    """What a login sees on a node."""
    groups = {"groups": ["batchtrainverify", "verifygroup"], "sudo": True, "process": True, "container": False}
    return {"code": 0, "error": "", **groups, **changes}


def printed(*lines: str, code: int = 0, size: str = "Standard_ND96isr_H100_v5") -> dict[str, Any]:
    """What a program of the HPC images printed."""
    return {"code": code, "size": size, "lines": list(lines), "end": []}


def formula(nodes: str, *, error: bool = False) -> dict[str, Any]:
    """The evaluation of a formula."""
    return {"values": {"$TargetDedicatedNodes": nodes}, "error": error, "hour": 13}


def file(size: int = 10, mode: str = "0o100644", url: str = "") -> dict[str, Any]:
    """A file in a list."""
    return {"size": size, "mode": mode, "url": url}


def keys(
    directory: str = "/home/_azbatch/.ssh", names: tuple[str, ...] = ("authorized_keys", "id_rsa")
) -> dict[str, Any]:
    """The directory of the pool's key."""
    return {"directory": directory, "names": list(names), "owner": 1000, "mode": "0o700"}
