"""One claim for each GPU and HPC series: what its largest size has, and that its constrained names are there."""

from __future__ import annotations

from datetime import date

import pytest

from batchtrain.catalog.sizes import SIZES
from tests.unit.catalog.test_sizes import named

NETWORK_DIRECT = {"ND", "NC", "NCv2", "H"}

# series, a size, GPUs, GPU, InfiniBand, cards, lowest generation, architecture, the day it goes
SERIES: tuple[tuple[str, str, int, str | None, str | None, int, int, str, date | None], ...] = (
    ("ND GB300 v6", "ND128isr_GB300_v6", 4, "GB300", "xdr", 4, 2, "arm64", None),
    ("ND GB200 v6", "ND128isr_NDR_GB200_v6", 4, "GB200", "ndr", 4, 2, "arm64", None),
    ("ND H200 v5", "ND96isr_H200_v5", 8, "H200", "ndr", 8, 2, "x64", None),
    ("ND H100 v5", "ND96isr_H100_v5", 8, "H100", "ndr", 8, 2, "x64", None),
    ("ND MI300X v5", "ND96isr_MI300X_v5", 8, "MI300X", "ndr", 8, 2, "x64", None),
    ("NDm A100 v4", "ND96amsr_A100_v4", 8, "A100", "hdr", 8, 2, "x64", None),
    ("ND A100 v4", "ND96asr_v4", 8, "A100", "hdr", 8, 2, "x64", None),
    ("NDv2", "ND40rs_v2", 8, "V100", "edr", 1, 2, "x64", None),
    ("ND", "ND24rs", 4, "P40", "fdr", 1, 1, "x64", date(2023, 9, 6)),
    ("NC", "NC24r", 4, "K80", "fdr", 1, 1, "x64", date(2023, 9, 6)),
    ("NCv2", "NC24rs_v2", 4, "P100", "fdr", 1, 1, "x64", date(2023, 9, 6)),
    ("NCv3", "NC24rs_v3", 4, "V100", "fdr", 1, 1, "x64", date(2025, 9, 30)),
    ("NCasT4_v3", "NC64as_T4_v3", 4, "T4", None, 0, 1, "x64", None),
    ("NC A100 v4", "NC96ads_A100_v4", 4, "A100", None, 0, 2, "x64", None),
    ("NCads H100 v5", "NC80adis_H100_v5", 2, "H100 NVL", None, 0, 2, "x64", None),
    ("NCCads H100 v5", "NCC40ads_H100_v5", 1, "H100 NVL", None, 0, 2, "x64", None),
    ("NC RTX PRO 6000 BSE v6", "NC320ds_xl_RTXPRO6000BSE_v6", 2, "RTX PRO 6000 BSE", None, 0, 2, "x64", None),
    ("NV", "NV24", 4, "M60", None, 0, 1, "x64", date(2023, 9, 6)),
    ("NVv3", "NV48s_v3", 4, "M60", None, 0, 1, "x64", date(2026, 9, 30)),
    ("NVv4", "NV32as_v4", 1, "MI25", None, 0, 1, "x64", date(2026, 9, 30)),
    ("NVadsA10 v5", "NV72ads_A10_v5", 2, "A10", None, 0, 1, "x64", None),
    ("NVads V710 v5", "NV28adms_V710_v5", 1, "V710", None, 0, 2, "x64", None),
    ("NGads V620", "NG32adms_V620_v1", 1, "V620", None, 0, 1, "x64", None),
    ("H", "H16mr", 0, None, "fdr", 1, 1, "x64", date(2022, 8, 31)),
    ("HB", "HB60rs", 0, None, "edr", 1, 1, "x64", date(2024, 8, 31)),
    ("HBv2", "HB120rs_v2", 0, None, "hdr", 1, 1, "x64", date(2027, 5, 31)),
    ("HBv3", "HB120rs_v3", 0, None, "hdr", 1, 1, "x64", None),
    ("HBv4", "HB176rs_v4", 0, None, "ndr", 1, 2, "x64", None),
    ("HBv5", "HB368rs_v5", 0, None, "ndr", 4, 2, "x64", None),
    ("HC", "HC44rs", 0, None, "edr", 1, 1, "x64", date(2027, 5, 31)),
    ("HX", "HX176rs", 0, None, "ndr", 1, 2, "x64", None),
)


@pytest.mark.parametrize("row", SERIES, ids=lambda row: row[0])
def test_each_series_is_known_by_its_largest_size(
    row: tuple[str, str, int, str | None, str | None, int, int, str, date | None],
) -> None:
    family, name, *rest = row
    size = named(name)
    assert size.family == family
    assert [size.gpus, size.gpu_model, size.infiniband, size.hcas, size.generation, size.architecture,
            size.retired] == rest  # fmt: skip
    assert size.rdma == (size.infiniband and ("network-direct" if family in NETWORK_DIRECT else "sr-iov"))


def test_no_gpu_or_hpc_series_is_without_its_claim() -> None:
    claimed = {row[0] for row in SERIES} | {
        "NVv2",
        "A8-A11",
    }  # no page tells when NVv2 went; A8 is older than the names
    assert {size.family for size in SIZES if size.gpus or size.rdma} <= claimed


@pytest.mark.parametrize(
    ("full", "left"),
    [
        ("HB60rs", (45, 30, 15)),
        ("HB120rs_v2", (96, 64, 32, 16)),
        ("HB120rs_v3", (96, 64, 32, 16)),
        ("HB176rs_v4", (144, 96, 48, 24)),
        ("HB368rs_v5", (336, 288, 240, 192, 144, 96, 48)),
        ("HX176rs", (144, 96, 48, 24)),
        ("HC44rs", (32, 16)),
    ],
)
def test_a_constrained_size_has_fewer_cores_and_everything_else_of_the_full_one(
    full: str, left: tuple[int, ...]
) -> None:
    whole = named(full)
    for cores in left:
        head, tail = full.split("rs", 1)
        size = named(f"{head}-{cores}rs{tail}")
        assert size._replace(name=whole.name, cores=whole.cores) == whole
        assert size.cores == cores


@pytest.mark.parametrize("name", ["NC24r_Promo", "NV12_Promo", "H16mr_Promo"])
def test_a_size_at_another_price_is_the_same_machine(name: str) -> None:
    promoted, usual = named(name), named(name.removesuffix("_Promo"))
    assert promoted._replace(name=usual.name) == usual
