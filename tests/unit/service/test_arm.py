"""What Azure Resource Manager's documents are read as."""

from __future__ import annotations

from datetime import date

import pytest

from batchtrain.catalog import sizes
from batchtrain.service import arm
from tests import management as shapes


def test_an_account_is_read_with_its_quotas_and_what_it_accepts() -> None:
    seen = arm.account_of(shapes.account())
    assert (seen.resource_group, seen.location, seen.allocation) == (
        "default-azurebatch-japaneast", "japaneast", "BatchService",
    )  # fmt: skip
    assert (seen.pools, seen.jobs, seen.spot_cores) == (100, 300, 500)
    assert seen.sign_ins == ("SharedKey", "AAD", "TaskAuthenticationToken")
    assert seen.path == f"{shapes.GROUP}/providers/Microsoft.Batch/batchAccounts/sampleacct"


def test_cores_are_counted_by_family_where_the_account_says_so() -> None:
    seen = arm.account_of(shapes.account())
    assert (seen.cores_of("StandardNDSH100v5Family"), seen.cores_of("standardHBv3Family")) == (192, None)


def test_cores_are_counted_together_where_families_are_not_enforced() -> None:
    seen = arm.account_of(shapes.account(dedicatedCoreQuotaPerVMFamilyEnforced=False))
    assert seen.cores_of("standardHBv3Family") == 820


def test_an_account_in_the_user_s_subscription_has_no_quota_of_its_own() -> None:
    said = {"poolAllocationMode": "UserSubscription", "dedicatedCoreQuota": None, "lowPriorityCoreQuota": None,
            "dedicatedCoreQuotaPerVMFamily": None, "dedicatedCoreQuotaPerVMFamilyEnforced": False}  # fmt: skip
    seen = arm.account_of(shapes.account(**said))
    assert (seen.cores_of("standardDSv5Family"), seen.spot_cores) == (None, None)


def test_a_size_of_batch_s_list_is_read() -> None:
    sold = arm.sold_of(shapes.H100)
    assert (sold.cores, sold.memory_gib, sold.gpus, sold.rdma, sold.generations) == (96, 1900, 8, True, (2,))
    assert (sold.family, sold.spot, sold.ends) == ("standardNDSH100v5Family", True, None)


def test_the_end_of_batch_s_support_is_a_day() -> None:
    assert arm.sold_of(shapes.ENDING).ends == date(2027, 1, 31)


def test_a_constrained_size_has_the_cores_that_are_left() -> None:
    item = {**shapes.D4S, "capabilities": shapes.capabilities(vCPUs=120, vCPUsAvailable=16, MemoryGB=448)}
    assert arm.sold_of(item).cores == 16


@pytest.mark.parametrize(
    ("more", "architecture"),
    [({}, "x64"), ({"CpuArchitectureType": "x64"}, "x64"), ({"CpuArchitectureType": "Arm64"}, "arm64")],
)
def test_the_processors_of_a_size_are_x64_unless_it_says_arm64(more: dict[str, str], architecture: str) -> None:
    item = {**shapes.D4S, "capabilities": shapes.capabilities(vCPUs=4, MemoryGB=16, **more)}
    assert arm.sold_of(item).architecture == architecture


def test_a_size_that_the_whole_region_lacks_is_blocked_and_one_that_a_zone_lacks_is_not() -> None:
    blocked = arm.sold_of(shapes.sku(shapes.H100, shapes.ONE_ZONE, shapes.WHOLE_REGION))
    free = arm.sold_of(shapes.sku(shapes.D4S, shapes.ONE_ZONE))
    assert (blocked.blocked, free.blocked) == ("NotAvailableForSubscription", "")
    assert free.restrictions[0].zones == ("2",)


@pytest.mark.parametrize(
    ("known", "retired"),
    [
        (None, date(2027, 1, 31)),
        (date(2027, 2, 1), date(2027, 1, 31)),
        (date(2027, 1, 31), date(2027, 1, 31)),
        (date(2027, 1, 30), date(2027, 1, 30)),
    ],
)
def test_an_earlier_end_of_support_corrects_the_table(known: date | None, retired: date) -> None:
    table = sizes.find("D2_v2")
    assert table is not None
    size = arm.corrected(arm.sold_of(shapes.ENDING), table._replace(retired=known))
    assert (size.retired if size else known) == retired


@pytest.mark.parametrize(
    ("memory", "corrects"), [(1899.0, True), (1899.5, False), (1900.0, False), (1900.9, False), (1901.0, True)]
)
def test_a_rounded_memory_is_no_correction(memory: float, corrects: bool) -> None:
    sold = arm.sold_of(shapes.H100)._replace(memory_gib=memory)
    assert (arm.corrected(sold, sizes.find("ND96isr_H100_v5")) is not None) is corrects
