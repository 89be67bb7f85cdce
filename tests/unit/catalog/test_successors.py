"""Which size follows a retiring one: by GPUs, network and price, with both prices."""

from __future__ import annotations

import pytest

from batchtrain.catalog import list_prices, sizes, successors
from batchtrain.catalog.prices import Prices
from batchtrain.catalog.sizes import SIZES, VmSize
from tests.unit.catalog.test_sizes import named

NEAREST = {
    # K80 and M60: T4 has more memory and the CUDA driver of Batch's images
    "NC6": "NC8as_T4_v3", "NC24": "NC64as_T4_v3", "NV12s_v3": "NC16as_T4_v3",
    "NC6s_v3": "NC24ads_A100_v4", "ND12s": "NC48ads_A100_v4", "NC24rs_v3": "ND40rs_v2", "NV32as_v4": "NV28adms_V710_v5",
    "A9": "HB120rs_v3", "H16r": "HB120rs_v3", "HC44rs": "HB120rs_v3",
    "D1_v2": "D2s_v5", "D11_v2": "E2s_v5", "F8s_v2": "D8s_v5", "DC8_v2": "DC8as_v6", "M192ims_v2": "M416s_6_v3",
    "B2ms": "B2s_v2",
}  # fmt: skip


@pytest.mark.parametrize("name", NEAREST)
def test_the_nearest_size_has_as_many_gpus_and_the_network_at_the_least_price(name: str) -> None:
    assert successors.today_for(named(name)).today == f"Standard_{NEAREST[name]}"


@pytest.mark.parametrize("size", [size for size in SIZES if size.retired], ids=lambda size: size.name)
def test_each_size_that_goes_leads_to_one_that_stays_and_can_do_the_same(size: VmSize) -> None:
    today = named(successors.today_for(size).today or "")
    assert today.retired is None
    assert bool(today.rdma) == bool(size.rdma)
    assert bool(today.gpus) == bool(size.gpus)
    assert today.gpus >= size.gpus
    assert (today.gpu_memory_gib or 0) >= (size.gpu_memory_gib or 0)


def test_a_size_without_a_retirement_date_is_its_own_successor() -> None:
    assert successors.today_for(named("D4s_v5")) == ("Standard_D4s_v5", None, None, None, "", "")


def test_a_choice_that_costs_more_than_twice_is_the_user_s() -> None:
    dear = successors.today_for(named("NC24r"))
    assert dear.is_dear
    assert "22.03 USD an hour instead of 3.96 USD" in dear.reason
    assert "5.6 times the price, so choose a size yourself; without InfiniBand: Standard_NC64as_T4_v3" in dear.reason
    assert not successors.today_for(named("NC24")).is_dear


def test_two_prices_that_are_equal_when_rounded_are_one() -> None:
    assert str(successors.Costs(0.188, 0.192, "USD", "eastus")) == "0.19 USD an hour (eastus)"


def test_a_launch_within_its_nodes_needs_no_infiniband_for_its_gpus() -> None:
    assert successors.today_for(named("NC24r"), network=False).today == "Standard_NC64as_T4_v3"
    assert successors.today_for(named("H16r"), network=False).today == "Standard_HB120rs_v3"


def test_the_user_s_prices_of_both_sizes_win() -> None:
    own = (Prices("westeurope", "EUR", {"Standard_NC6": 1.0, "Standard_NC8as_T4_v3": 3.0}),)
    dear = successors.today_for(named("NC6"), own=own)
    assert str(dear.costs) == "3.00 EUR an hour instead of 1.00 EUR (westeurope)"
    assert dear.is_dear


@pytest.mark.parametrize(
    ("name", "price"),
    [("NC24r", 3.96), ("NC24", 3.6), ("D3_v2", 0.292), ("HC44-16rs", 3.168), ("DS2", 0.154), ("NC6_Promo", None)],
)
def test_a_series_costs_by_its_cores(name: str, price: float | None) -> None:
    assert list_prices.list_price(named(name)) == price


def test_each_listed_price_is_one_of_a_size() -> None:
    assert [name for name in list_prices.LISTED if sizes.find(name) is None] == []


@pytest.mark.parametrize(
    ("name", "builds"),
    [
        ("NC64as_T4_v3", ()),
        ("NC96ads_A100_v4", ("CNTK 2.7", "TensorFlow 1.15")),
        ("ND96isr_H100_v5", ("CNTK 2.7", "TensorFlow 1.15", "MXNet 1.9")),
        ("ND40rs_v2", ()),
        ("HB120rs_v3", ()),
        ("ND96isr_MI300X_v5", ()),
    ],
)
def test_the_last_builds_of_frameworks_are_known_to_be_older_than_a_gpu(name: str, builds: tuple[str, ...]) -> None:
    assert tuple(build.name for build in successors.too_old_for(named(name))) == builds


@pytest.mark.parametrize(("name", "is_told"), [("H16r", True), ("A9", True), ("NC24r", True), ("HC44rs", False)])
def test_old_mpi_of_network_direct_is_told_what_sr_iov_needs(name: str, is_told: bool) -> None:
    assert ("needs Intel MPI 2019 or later" in successors.today_for(named(name)).reason) is is_told


def test_a_gone_gpu_comes_with_what_programs_need_on_the_new_one() -> None:
    assert "CNTK 2.7 (CUDA 10.0)" in successors.today_for(named("NC6s_v3")).programs
    assert all(word in successors.today_for(named("NC24r")).programs for word in ("CUDA 8", "7.0", "NCv3"))
    assert "Intel MPI" not in successors.today_for(named("NC24r"), network=False).programs
    assert "built for ROCm" in successors.today_for(named("NV32as_v4")).programs


@pytest.mark.parametrize("size", [size for size in SIZES if size.gpu_vendor == "nvidia"], ids=lambda size: size.name)
def test_the_first_cuda_of_each_nvidia_gpu_is_known(size: VmSize) -> None:
    assert successors.needed_cuda(size) is not None
