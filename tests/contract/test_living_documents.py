"""What stands, read through the SDK, held against the plan that made it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from azure.batch import BatchClient

from batchtrain.config.types import Recipe
from batchtrain.emulator.serving import Emulator
from batchtrain.plan import diff, plan_recipe
from batchtrain.plan.types import Plan
from batchtrain.service import read
from tests.contract.conftest import ours
from tests.submitting import carry_out

IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}


@pytest.fixture
def client(emulator: Emulator) -> BatchClient:
    return ours(emulator)


def recipe(**pool: Any) -> Recipe:
    return msgspec.convert(
        {
            "directory": "x",
            "pool": {
                "id": "p",
                "vm_configuration": {"platform_image": IMAGE},
                "vm_size": "STANDARD_D4S_V5",
                "vm_count": {"dedicated": 1},
                "resize_timeout": "00:20:00",
                "metadata": {"b": "1", "a": "2"},
                **pool,
            },
            "jobs": [
                {
                    "id": "j",
                    "max_task_retries": 2,
                    "environment_variables": {"A": "1"},
                    "tasks": [{"command": "exit 0"}, {"id": "b", "command": "exit 0", "max_wall_time": "00:10:00"}],
                }
            ],
        },
        Recipe,
    )


def carried_out(client: BatchClient, plan: Plan) -> None:
    def nobody(_: str) -> str:
        raise AssertionError("there is no secret in this plan")

    for _ in carry_out(client, plan, nobody):
        pass


def compared(client: BatchClient, plan: Plan) -> tuple[diff.Compared, ...]:
    return diff.compare(plan, read.living(client, diff.wanted(plan)))


def test_what_a_plan_made_is_as_planned(client: BatchClient) -> None:
    plan = plan_recipe(recipe())
    carried_out(client, plan)
    assert [(item.id, item.differences) for item in compared(client, plan)] == [
        ("p", ()),
        ("j", ()),
        ("j/task-00000", ()),
        ("j/b", ()),
    ]


NEWER: dict[str, Any] = {
    "vm_configuration": {
        "platform_image": IMAGE,
        "data_disks": [{"lun": 0, "size_gb": 4}],
        "hyper_threading": False,
        "zones": {"max_count": 2, "max_percent_per_zone": 60},
    },
    "vm_sizes": {"alternatives": ["STANDARD_D4AS_V5"], "allocation_strategy": "prioritized"},
}


def test_a_pool_of_the_newer_api_version_is_made_and_is_as_planned(client: BatchClient) -> None:
    plan = plan_recipe(recipe(**NEWER))
    carried_out(client, plan)
    assert {(item.id, item.differences) for item in compared(client, plan)} >= {("p", ())}
    assert "vmSkuProfile" not in read.pool_document(client, "p"), "2025-06-01 has no such property"


def test_one_size_more_differs(client: BatchClient) -> None:
    carried_out(client, plan_recipe(recipe(**NEWER)))
    more = {**NEWER, "vm_sizes": {"alternatives": ["STANDARD_D4AS_V5", "STANDARD_D4DS_V5"],
                                  "allocation_strategy": "prioritized"}}  # fmt: skip
    (pool, *_) = compared(client, plan_recipe(recipe(**more)))
    assert [item.path for item in pool.differences] == ["vmSkuProfile.vmSizes[STANDARD_D4DS_V5]"]
