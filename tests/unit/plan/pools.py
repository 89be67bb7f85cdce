"""Small recipes of a pool, and what is planned for them."""

from __future__ import annotations

from typing import Any

import msgspec

from batchtrain.config.types import Recipe, convert
from batchtrain.plan import Plan, plan_pool

IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}
WINDOWS = {"publisher": "microsoftwindowsserver", "offer": "windowsserver", "sku": "2022-datacenter"}


def recipe(pool: dict[str, Any] | None = None, **more: Any) -> Recipe:
    """A recipe of a pool of two nodes; `pool` adds to it, `more` are the recipe's other fields."""
    known = {
        "id": "p", "vm_configuration": {"platform_image": IMAGE}, "vm_size": "STANDARD_D4S_V5",
        "vm_count": {"dedicated": 2}, **(pool or {}),
    }  # fmt: skip
    return convert({"directory": "x", "pool": known, **more}, Recipe)


def plan(pool: dict[str, Any] | None = None, **more: Any) -> Plan:
    return plan_pool(recipe(pool, **more))


def sent(pool: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The body of the request that makes the pool, as JSON has it."""
    steps = plan(pool, **more).steps
    body = next(step.document for step in steps if step.action == "pool.add")
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(body))
    return found


def rules(made: Plan) -> list[str]:
    return [item.rule for item in made.implicit]
