"""Gangs as the node launcher plans them, from as few words as a test needs."""

from __future__ import annotations

from typing import Any

from batchtrain.runtime.launch.frameworks import load
from batchtrain.runtime.launch.placing import plan
from batchtrain.runtime.launch.spec import Gang, Node, Spec

WORKER: dict[str, Any] = {"name": "worker", "command": "train", "gpus": True, "ranked": True, "decides": True}


def spec(instances: int, **more: Any) -> Spec:
    values = {"version": 1, "framework": "pytorch", "instances": instances, "roles": [WORKER], **more}
    return Spec(values)


def nodes(processes: list[int], **facts: Any) -> list[Node]:
    """tvm-1 (10.0.0.4) is the primary; eth0 has these addresses, ib0 172.16.1.4 and up."""

    def node(index: int, count: int) -> Node:
        address, ports = f"10.0.0.{index + 4}", list(range(20000 + 100 * index, 20100 + 100 * index))
        interfaces = {"lo": "127.0.0.1", "eth0": address, "ib0": f"172.16.1.{index + 4}"}
        known = {"node": f"tvm-{index + 1}", "processes": count, "cores": 8, "ports": ports, "interfaces": interfaces}
        return Node(index, address, {**known, **facts})

    return [node(index, count) for index, count in enumerate(processes)]


def gang(processes: list[int], *, gpus: list[str] | None = None, real: bool = True, **more: Any) -> Gang:
    """`gpus` of every node."""
    facts = {"gpus": gpus, "real_gpus": real} if gpus else {}
    facts.update(more.pop("facts", {}))
    wanted = spec(len(processes), **more)
    return plan(wanted, nodes(processes, **facts), load(wanted.framework))
