"""What the table of VM sizes says, and that it contradicts itself nowhere."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from batchtrain.catalog import sizes
from batchtrain.catalog.likeness import mistakes
from batchtrain.catalog.sizes import SIZES, VmSize


def named(name: str) -> VmSize:
    size = sizes.find(name)
    assert size is not None, name
    return size


def test_each_name_stands_once() -> None:
    counted = Counter(size.name.lower() for size in SIZES)
    assert [name for name, count in counted.items() if count > 1] == []


@pytest.mark.parametrize("name", ["STANDARD_NC24R", "standard_nc24r", "Standard_NC24r", "nc24r", " NC24R "])
def test_a_name_is_found_in_any_case_with_or_without_its_prefix(name: str) -> None:
    assert named(name).name == "Standard_NC24r"


def test_an_unknown_name_is_none_and_has_near_ones() -> None:
    assert sizes.find("STANDARD_NC24X") is None
    assert "Standard_NC24r" in sizes.nearest("STANDARD_NC24RR")
    assert sizes.nearest("a house by the sea") == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ND96irs_H100_v5", "Standard_ND96isr_H100_v5"),
        ("STANDARD_D4S_V55", "Standard_D4s_v5"),
        ("STANDARD_DC4AS_V7", "Standard_DC4as_v5"),
    ],
)
def test_swapped_and_mistaken_letters_lead_to_the_size_that_was_meant(name: str, meant: str) -> None:
    assert sizes.nearest(name)[0] == meant


@pytest.mark.parametrize("name", ["M999zz_v9", "QX12z_v9", "Z777"])
def test_a_name_that_is_like_none_has_no_near_one(name: str) -> None:
    assert sizes.nearest(name) == ()


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [("abc", "abc", 0), ("acb", "abc", 1), ("ab", "abc", 1), ("axc", "abc", 1), ("", "ab", 2)],
)
def test_mistakes_are_counted(one: str, other: str, count: int) -> None:
    assert mistakes(one, other) == mistakes(other, one) == count


def test_what_was_taken_away_before_the_tables_were_read_is_gone() -> None:
    assert [sizes.gone(named(name)) for name in ("NC24r", "D4_v3", "D4s_v5")] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "cores", "memory"),
    [
        ("Standard_D1_v2", 1, 3.5),
        ("Standard_D2_v2", 2, 7),
        ("Standard_D14_v2", 16, 112),
        ("Standard_D2s_v3", 2, 8),
        ("Standard_D4s_v5", 4, 16),
        ("Standard_D8ads_v5", 8, 32),
        ("Standard_F2s_v2", 2, 4),
        ("Standard_E4s_v5", 4, 32),
        ("Standard_E64s_v3", 64, 432),
        ("Standard_HB120-16rs_v3", 16, 448),
        ("Standard_A0", 1, 0.75),
        ("Standard_B2ms", 2, 8),
        ("Standard_GS5-16", 16, 448),
        ("Standard_L80s_v2", 80, 640),
        ("Standard_M128ms", 128, 3892),
        ("Standard_M64-32bds_1_v3", 32, 1397),
        ("Standard_M64dms_v2", 64, 1792),
        ("Standard_M832is_16_v3", 832, 15200),
        ("Standard_FX48mds", 48, 1008),
        ("Standard_FX96-24ms_v2", 24, 1832),
        ("Standard_DC96as_v5", 96, 384),
        ("Standard_DC4es_v6", 4, 16),
        ("Standard_EC96ads_v5", 96, 672),
        ("Standard_NP40s", 40, 672),
        ("Standard_D372s_v7", 372, 1488),
        ("Standard_DS11-1_v2", 1, 14),
        ("Standard_E8-2ads_v5", 2, 64),
        ("Standard_E128-64s_v6", 64, 1024),
    ],
)
def test_cores_and_memory_of_ordinary_and_constrained_sizes(name: str, cores: int, memory: float) -> None:
    assert (named(name).cores, named(name).memory_gib) == (cores, memory)


def test_a_row_does_not_contradict_itself() -> None:
    for size in SIZES:
        assert bool(size.gpus) == bool(size.gpu_model) == bool(size.gpu_vendor) == bool(size.gpu_memory_gib), size
        assert bool(size.infiniband) == bool(size.rdma) == bool(size.hcas), size
        assert size.cores > 0, size
        assert size.memory_gib > 0, size
        assert size.rdma in (None, "sr-iov", "network-direct"), size
        assert size.architecture == "x64" or size.generation == 2, size


def test_an_r_in_the_name_says_rdma() -> None:
    """Azure's naming rule, and A8 and A9, which are older than the rule."""
    for size in SIZES:
        letters = re.sub(r"^Standard_[A-Z]+[\d-]+", "", size.name).split("_")[0]
        assert (size.rdma is not None) == ("r" in letters or size.name in ("Standard_A8", "Standard_A9")), size
