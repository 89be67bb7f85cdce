"""Requests to the emulated Azure Resource Manager, without tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from batchtrain.emulator import resource_manager
from batchtrain.emulator.arm_request import Account, Request
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Reply
from tests.emulation import BASE, Stage

KEY = "c2VjcmV0"
ACCOUNTS = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Batch/batchAccounts"
ACCOUNT = f"{ACCOUNTS}/batchtrain"
LOCATION = "/subscriptions/s/providers/Microsoft.Batch/locations/eastus"
UBUNTU = {
    "imageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "latest"},
    "nodeAgentSkuId": "batch.node.ubuntu 22.04",
}


def pool_body(nodes: int = 0, machine: Mapping[str, object] = UBUNTU, **more: object) -> dict[str, Any]:
    """The properties of a pool."""
    return {
        "vmSize": "STANDARD_D2_V3",
        "deploymentConfiguration": {"virtualMachineConfiguration": machine},
        "scaleSettings": {"fixedScale": {"targetDedicatedNodes": nodes}},
        **more,
    }


def ask(
    stage: Stage,
    verb: str,
    path: str,
    body: object = None,
    *,
    headers: Mapping[str, str] | None = None,
    version: str = "2025-06-01",
    **query: str,
) -> Reply:
    """Its answer; query names with a `$` are given without it. Raises Fault."""
    content = b"" if body is None else msgspec.json.encode(body)
    dollar = {f"${name}" if name in ("filter", "select", "skiptoken") else name: query[name] for name in query}
    request = Request(verb, path, {"api-version": version, **dollar}, headers or {}, content, BASE, stage.now)
    return resource_manager.answer(stage.world, Account("batchtrain", KEY, "127.0.0.1"), request)


def answer(stage: Stage, verb: str, path: str, body: object = None, **more: Any) -> Reply:
    """Its answer, a refusal too, after which the account is stored."""
    try:
        return ask(stage, verb, path, body, **more)
    except Fault as fault:
        return resource_manager.refusal(fault)
    finally:
        stage.commit()
