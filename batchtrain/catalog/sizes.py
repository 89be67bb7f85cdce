"""VM sizes: what one node has, what its network is, and until when Azure offers it.

Nothing here asks Azure. The service knows whether a region, an account or Batch offers a size (`az batch location
list-skus`). Sources, read November 2026: MicrosoftDocs/azure-compute-docs, `articles/virtual-machines/sizes/**` (sizes,
accelerators, back-end networks, generations) and `sizes/retirement/**`; for removed sizes, the last version of their
page in MicrosoftDocs/azure-docs; for Network Direct, Batch Shipyard's tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from itertools import takewhile
from typing import Any, NamedTuple

from batchtrain.catalog.likeness import mistakes


class VmSize(NamedTuple):
    """One node of this size."""

    name: str
    """Azure's spelling: `Standard_NC24r`."""
    family: str
    """The series: `NC`, `ND H100 v5`, `Dsv5`."""
    cores: int
    """vCPUs the task sees (of a constrained-core size: those left)."""
    memory_gib: float
    gpus: int = 0
    """GPUs the task sees; a share of one counts as one."""
    gpu_model: str | None = None
    gpu_memory_gib: float | None = None
    """Memory of one GPU (or of the share)."""
    gpu_vendor: str = ""
    """nvidia, amd, or empty without a GPU."""
    infiniband: str | None = None
    """qdr, fdr, edr, hdr, ndr or xdr; None without InfiniBand."""
    rdma: str | None = None
    """sr-iov, network-direct, or None: how a guest reaches the InfiniBand card."""
    hcas: int = 0
    """InfiniBand cards a node has."""
    generation: int = 1
    """The lowest Hyper-V generation it boots: 2 means that generation 1 images do not start."""
    architecture: str = "x64"
    """x64 or arm64; an image and its node agent must match."""
    retired: date | None = None
    """The announced retirement date; None without one."""
    notes: str = ""

    @property
    def port_gbps(self) -> int:
        """Gb/s of each InfiniBand port; 0 if PORT_GBPS does not tell."""
        return PORT_GBPS.get(self.family, 0)


READ = date(2026, 11, 1)
"""The date of these tables; sizes retired by then are always reported as retired."""

Row = tuple[Any, ...]
"""(name without Standard_, cores, memory GiB[, gpus[, memory of one GPU]])"""


def _series(family: str, *rows: Row, **common: Any) -> tuple[VmSize, ...]:
    """Makes sizes that differ only in their numbers; the shared values are given once."""
    base = VmSize("", family, 0, 0, **common)
    return tuple(_size(base, *row) for row in rows)


def _size(base: VmSize, name: str, cores: int, memory: float, gpus: int = 0, gpu_memory: float | None = None) -> VmSize:
    memory_of_gpu = gpu_memory or base.gpu_memory_gib
    return VmSize(  # by position: keywords would take 4 ms for all sizes
        f"Standard_{name}", base.family, cores, memory, gpus, base.gpu_model, memory_of_gpu, *base[7:]
    )


def _by_cores(
    family: str, name: str, memory: int, counts: tuple[int, ...], common: dict[str, Any]
) -> tuple[VmSize, ...]:
    """Makes sizes with a fixed number of GiB per core; `{}` in the name is the number of cores."""
    return _series(family, *((name.format(cores), cores, cores * memory) for cores in counts), **common)


def _name_of(family: str) -> str:
    """The names of a series, with `{}` for the cores: D{}s_v5 for Dsv5."""
    return re.sub("^[A-Z]+|(?=v[0-9]$)", lambda part: f"{part[0]}{{}}" if part[0] else "_", family)


NVIDIA, AMD = {"gpu_vendor": "nvidia"}, {"gpu_vendor": "amd"}
SR_IOV, NETWORK_DIRECT = {"rdma": "sr-iov"}, {"rdma": "network-direct"}


# GPU sizes with InfiniBand between nodes. sizes/gpu-accelerated/nd*-series.md: back-end network and accelerator tables.
# No document says whether Batch offers GB200 and GB300 (arm64, with an arm64 node agent).
ND = (
    *_series("ND GB300 v6", ("ND128isr_GB300_v6", 128, 864, 4), ("ND128isrG5_GB300_v6", 128, 864, 4), **NVIDIA,
             gpu_model="GB300", gpu_memory_gib=288, infiniband="xdr", **SR_IOV, hcas=4, generation=2,
             architecture="arm64"),
    *_series("ND GB200 v6", ("ND128isr_NDR_GB200_v6", 128, 900, 4), **NVIDIA, gpu_model="GB200", gpu_memory_gib=192,
             infiniband="ndr", **SR_IOV, hcas=4, generation=2, architecture="arm64"),
    *_series("ND H200 v5", ("ND96isr_H200_v5", 96, 1850, 8), **NVIDIA, gpu_model="H200", gpu_memory_gib=141,
             infiniband="ndr", **SR_IOV, hcas=8, generation=2),
    *_series("ND H100 v5", ("ND96isr_H100_v5", 96, 1900, 8), **NVIDIA, gpu_model="H100", gpu_memory_gib=80,
             infiniband="ndr", **SR_IOV, hcas=8, generation=2),
    *_series("ND MI300X v5", ("ND96isr_MI300X_v5", 96, 1850, 8), **AMD, gpu_model="MI300X", gpu_memory_gib=192,
             infiniband="ndr", **SR_IOV, hcas=8, generation=2),
    *_series("NDm A100 v4", ("ND96amsr_A100_v4", 96, 1900, 8), **NVIDIA, gpu_model="A100", gpu_memory_gib=80,
             infiniband="hdr", **SR_IOV, hcas=8, generation=2),
    *_series("ND A100 v4", ("ND96asr_v4", 96, 900, 8), **NVIDIA, gpu_model="A100", gpu_memory_gib=40,
             infiniband="hdr", **SR_IOV, hcas=8, generation=2),
    *_series("NDv2", ("ND40rs_v2", 40, 672, 8), **NVIDIA, gpu_model="V100", gpu_memory_gib=32,
             infiniband="edr", **SR_IOV, hcas=1, generation=2,
             notes="needs an image with a driver that still supports Volta, such as ubuntu-hpc 2204-v100"),
)  # fmt: skip

# Sizes that Azure sells without a size page; they are in its price list, its machine learning service's quota table
# (articles/machine-learning) and its Kubernetes service's GPU tables (Azure/AgentBaker). Numbers: the page's twin.
UNLISTED = "without a size page of Azure; assumed to equal {}"
ND_UNLISTED = (
    *_series("ND H200 v5", ("ND96isrf_H200_v5", 96, 1850, 8), **NVIDIA, gpu_model="H200", gpu_memory_gib=141,
             infiniband="ndr", **SR_IOV, hcas=8, generation=2, notes=UNLISTED.format("ND96isr_H200_v5")),
    *_series("ND H200 v5", ("ND96is_H200_v5", 96, 1850, 8), **NVIDIA, gpu_model="H200", gpu_memory_gib=141,
             generation=2, notes=UNLISTED.format("ND96isr_H200_v5") + " without InfiniBand"),
    *_series("ND H100 v5", ("ND96isrf_H100_v5", 96, 1900, 8), **NVIDIA, gpu_model="H100", gpu_memory_gib=80,
             infiniband="ndr", **SR_IOV, hcas=8, generation=2, notes=UNLISTED.format("ND96isr_H100_v5")),
    *_series("ND H100 v5", ("ND96is_H100_v5", 96, 1900, 8), ("ND96is_flex_H100_v5", 96, 1900, 8),
             ("ND96is_noIB_H100_v5", 96, 1900, 8), **NVIDIA, gpu_model="H100", gpu_memory_gib=80, generation=2,
             notes=UNLISTED.format("ND96isr_H100_v5") + " without InfiniBand"),
    *_series("NDm A100 v4", ("ND96ams_A100_v4", 96, 1900, 8), **NVIDIA, gpu_model="A100", gpu_memory_gib=80,
             generation=2, notes=UNLISTED.format("ND96amsr_A100_v4") + " without InfiniBand"),
)  # fmt: skip

# GPU sizes without InfiniBand. sizes/gpu-accelerated/{nc,nv,ng}*-series.md.
NC_NV = (
    *_series("NCads H100 v5", ("NC40ads_H100_v5", 40, 320, 1), ("NC80adis_H100_v5", 80, 640, 2), **NVIDIA,
             gpu_model="H100 NVL", gpu_memory_gib=94, generation=2),
    *_series("NCCads H100 v5", ("NCC40ads_H100_v5", 40, 320, 1), **NVIDIA, gpu_model="H100 NVL", gpu_memory_gib=94,
             generation=2, notes="confidential VM"),
    *_series("NC A100 v4", ("NC24ads_A100_v4", 24, 220, 1), ("NC48ads_A100_v4", 48, 440, 2),
             ("NC96ads_A100_v4", 96, 880, 4), **NVIDIA, gpu_model="A100", gpu_memory_gib=80, generation=2),
    *_series("NC RTX PRO 6000 BSE v6", ("NC128ds_xl_RTXPRO6000BSE_v6", 128, 512, 1),
             ("NC256ds_xl_RTXPRO6000BSE_v6", 256, 1024, 2), ("NC320ds_xl_RTXPRO6000BSE_v6", 320, 1280, 2),
             ("NC128lds_xl_RTXPRO6000BSE_v6", 128, 256, 1), ("NC256lds_xl_RTXPRO6000BSE_v6", 256, 512, 2),
             ("NC320lds_xl_RTXPRO6000BSE_v6", 320, 640, 2), **NVIDIA, gpu_model="RTX PRO 6000 BSE",
             gpu_memory_gib=96, generation=2, notes="preview"),
    *_series("NC RTX PRO 6000 BSE v6", ("NC32ds_xl_RTXPRO6000BSE_v6", 32, 128, 1, 24),
             ("NC64ds_xl_RTXPRO6000BSE_v6", 64, 256, 1, 48), ("NC32lds_xl_RTXPRO6000BSE_v6", 32, 64, 1, 24),
             ("NC64lds_xl_RTXPRO6000BSE_v6", 64, 128, 1, 48), **NVIDIA, gpu_model="RTX PRO 6000 BSE", generation=2,
             notes="preview; a share of one GPU, its size estimated from the price"),
    *_series("NCasT4_v3", ("NC4as_T4_v3", 4, 28, 1), ("NC8as_T4_v3", 8, 56, 1), ("NC16as_T4_v3", 16, 110, 1),
             ("NC64as_T4_v3", 64, 440, 4), **NVIDIA, gpu_model="T4", gpu_memory_gib=16),
    *_series("NVadsA10 v5", ("NV6ads_A10_v5", 6, 55, 1, 4), ("NV12ads_A10_v5", 12, 110, 1, 8),
             ("NV18ads_A10_v5", 18, 220, 1, 12), **NVIDIA, gpu_model="A10", notes="a share of one GPU"),
    *_series("NVadsA10 v5", ("NV36ads_A10_v5", 36, 440, 1), ("NV36adms_A10_v5", 36, 880, 1),
             ("NV72ads_A10_v5", 72, 880, 2), **NVIDIA, gpu_model="A10", gpu_memory_gib=24),
    *_series("NVads V710 v5", ("NV4ads_V710_v5", 4, 16, 1, 4), ("NV8ads_V710_v5", 8, 32, 1, 8),
             ("NV12ads_V710_v5", 12, 64, 1, 12), **AMD, gpu_model="V710", generation=2, notes="a share of one GPU"),
    *_series("NVads V710 v5", ("NV24ads_V710_v5", 24, 128, 1), ("NV28adms_V710_v5", 28, 160, 1), **AMD,
             gpu_model="V710", gpu_memory_gib=24, generation=2),
    *_series("NGads V620", ("NG8ads_V620_v1", 8, 16, 1, 8), ("NG16ads_V620_v1", 16, 32, 1, 16), **AMD,
             gpu_model="V620", notes="a share of one GPU"),
    *_series("NGads V620", ("NG32ads_V620_v1", 32, 64, 1), ("NG32adms_V620_v1", 32, 176, 1), **AMD, gpu_model="V620",
             gpu_memory_gib=32),
)  # fmt: skip

# HPC sizes. sizes/high-performance-compute/*-series.md; the dates from sizes/retirement/{hbv2,hc}-series-retirement.md.
HPC = (
    *_series("HBv5", ("HB368rs_v5", 368, 432), ("HB368-336rs_v5", 336, 432), ("HB368-288rs_v5", 288, 432),
             ("HB368-240rs_v5", 240, 432), ("HB368-192rs_v5", 192, 432), ("HB368-144rs_v5", 144, 432),
             ("HB368-96rs_v5", 96, 432), ("HB368-48rs_v5", 48, 432), infiniband="ndr", **SR_IOV, hcas=4, generation=2),
    *_series("HBv4", ("HB176rs_v4", 176, 768), ("HB176-144rs_v4", 144, 768), ("HB176-96rs_v4", 96, 768),
             ("HB176-48rs_v4", 48, 768), ("HB176-24rs_v4", 24, 768), infiniband="ndr", **SR_IOV, hcas=1, generation=2),
    *_series("HX", ("HX176rs", 176, 1408), ("HX176-144rs", 144, 1408), ("HX176-96rs", 96, 1408),
             ("HX176-48rs", 48, 1408), ("HX176-24rs", 24, 1408), infiniband="ndr", **SR_IOV, hcas=1, generation=2),
    *_series("HBv3", ("HB120rs_v3", 120, 448), ("HB120-96rs_v3", 96, 448), ("HB120-64rs_v3", 64, 448),
             ("HB120-32rs_v3", 32, 448), ("HB120-16rs_v3", 16, 448), infiniband="hdr", **SR_IOV, hcas=1),
    *_series("HBv2", ("HB120rs_v2", 120, 456), ("HB120-96rs_v2", 96, 456), ("HB120-64rs_v2", 64, 456),
             ("HB120-32rs_v2", 32, 456), ("HB120-16rs_v2", 16, 456), infiniband="hdr", **SR_IOV, hcas=1,
             retired=date(2027, 5, 31)),
    *_series("HC", ("HC44rs", 44, 352), ("HC44-32rs", 32, 352), ("HC44-16rs", 16, 352), infiniband="edr", **SR_IOV,
             hcas=1, retired=date(2027, 5, 31)),
)  # fmt: skip

# Removed GPU sizes. Numbers: the series' last pages; dates: {nc,ncv2,nd,nv}-series-retirement.md (extended by a
# year to 6 September 2023), retired-sizes-list.md (NCv3), nvv3-series.md and nvv4-series.md. NVv2's date was not found.
# Names with _Promo were the same machines at another price.
NC_GONE, NC3_GONE, NV_GONE = date(2023, 9, 6), date(2025, 9, 30), date(2026, 9, 30)
GPU_GONE = (
    *_series("NC", ("NC6", 6, 56, 1), ("NC12", 12, 112, 2), ("NC24", 24, 224, 4), ("NC6_Promo", 6, 56, 1),
             ("NC12_Promo", 12, 112, 2), ("NC24_Promo", 24, 224, 4), **NVIDIA, gpu_model="K80",
             gpu_memory_gib=12, retired=NC_GONE),
    *_series("NC", ("NC24r", 24, 224, 4), ("NC24r_Promo", 24, 224, 4), **NVIDIA, gpu_model="K80", gpu_memory_gib=12,
             infiniband="fdr", **NETWORK_DIRECT, hcas=1, retired=NC_GONE),
    *_series("NCv2", ("NC6s_v2", 6, 112, 1), ("NC12s_v2", 12, 224, 2), ("NC24s_v2", 24, 448, 4), **NVIDIA,
             gpu_model="P100", gpu_memory_gib=16, retired=NC_GONE),
    *_series("NCv2", ("NC24rs_v2", 24, 448, 4), **NVIDIA, gpu_model="P100", gpu_memory_gib=16, infiniband="fdr",
             **NETWORK_DIRECT, hcas=1, retired=NC_GONE),
    *_series("NCv3", ("NC6s_v3", 6, 112, 1), ("NC12s_v3", 12, 224, 2), ("NC24s_v3", 24, 448, 4), **NVIDIA,
             gpu_model="V100", gpu_memory_gib=16, retired=NC3_GONE),
    *_series("NCv3", ("NC24rs_v3", 24, 448, 4), **NVIDIA, gpu_model="V100", gpu_memory_gib=16, infiniband="fdr",
             **SR_IOV, hcas=1, retired=NC3_GONE),
    *_series("ND", ("ND6s", 6, 112, 1), ("ND12s", 12, 224, 2), ("ND24s", 24, 448, 4), **NVIDIA, gpu_model="P40",
             gpu_memory_gib=24, retired=NC_GONE),
    *_series("ND", ("ND24rs", 24, 448, 4), **NVIDIA, gpu_model="P40", gpu_memory_gib=24, infiniband="fdr",
             **NETWORK_DIRECT, hcas=1, retired=NC_GONE),
    *_series("NV", ("NV6", 6, 56, 1), ("NV12", 12, 112, 2), ("NV24", 24, 224, 4), ("NV6_Promo", 6, 56, 1),
             ("NV12_Promo", 12, 112, 2), ("NV24_Promo", 24, 224, 4), **NVIDIA, gpu_model="M60",
             gpu_memory_gib=8, retired=NC_GONE),
    *_series("NVv2", ("NV6s_v2", 6, 112, 1), ("NV12s_v2", 12, 224, 2), ("NV24s_v2", 24, 448, 4), **NVIDIA,
             gpu_model="M60", gpu_memory_gib=8, notes="replaced by NVv3; no retirement page found"),
    *_series("NVv3", ("NV12s_v3", 12, 112, 1), ("NV24s_v3", 24, 224, 2), ("NV48s_v3", 48, 448, 4), **NVIDIA,
             gpu_model="M60", gpu_memory_gib=8, retired=NV_GONE),
    *_series("NVv4", ("NV4as_v4", 4, 14, 1, 2), ("NV8as_v4", 8, 28, 1, 4), ("NV16as_v4", 16, 56, 1, 8), **AMD,
             gpu_model="MI25", retired=NV_GONE, notes="a share of one GPU"),
    *_series("NVv4", ("NV32as_v4", 32, 112, 1, 16), **AMD, gpu_model="MI25", retired=NV_GONE),
)  # fmt: skip

# Removed HPC sizes: h-series.md, hb-series-retirement.md, sizes-previous-gen.md. A8 and A9 are FDR by Azure's
# page and QDR by Batch Shipyard's table; both say Network Direct.
H_GONE, HB_GONE, A8_GONE = date(2022, 8, 31), date(2024, 8, 31), date(2021, 3, 1)
HPC_GONE = (
    *_series("H", ("H8", 8, 56), ("H8m", 8, 112), ("H16", 16, 112), ("H16m", 16, 224), ("H8_Promo", 8, 56),
             ("H8m_Promo", 8, 112), ("H16_Promo", 16, 112), ("H16m_Promo", 16, 224), retired=H_GONE),
    *_series("H", ("H16r", 16, 112), ("H16mr", 16, 224), ("H16r_Promo", 16, 112), ("H16mr_Promo", 16, 224),
             infiniband="fdr", **NETWORK_DIRECT, hcas=1, retired=H_GONE),
    *_series("HB", ("HB60rs", 60, 228), ("HB60-45rs", 45, 228), ("HB60-30rs", 30, 228), ("HB60-15rs", 15, 228),
             infiniband="edr", **SR_IOV, hcas=1, retired=HB_GONE),
    *_series("A8-A11", ("A8", 8, 56), ("A9", 16, 112), infiniband="fdr", **NETWORK_DIRECT, hcas=1, retired=A8_GONE,
             notes="FDR by Azure's page, QDR by Batch Shipyard's table"),
    *_series("A8-A11", ("A10", 8, 56), ("A11", 16, 112), retired=A8_GONE),
)  # fmt: skip

ARM: dict[str, Any] = {"architecture": "arm64", "generation": 2}
GEN2: dict[str, Any] = {"generation": 2}

# Ordinary sizes whose numbers follow no rule. sizes-previous-gen.md, dv2-dsv2-series.md, av2-series.md.
AV1, DV2, AV2, DV3 = date(2024, 8, 31), date(2028, 5, 1), date(2028, 11, 15), date(2029, 11, 15)
B_ROWS = (
    ("1ls", 1, 0.5), ("1s", 1, 1), ("1ms", 1, 2), ("2s", 2, 4), ("2ms", 2, 8), ("4ms", 4, 16), ("8ms", 8, 32),
    ("12ms", 12, 48), ("16ms", 16, 64), ("20ms", 20, 80),
)  # fmt: skip
D_ROWS = (
    ("1", 1, 3.5), ("2", 2, 7), ("3", 4, 14), ("4", 8, 28), ("11", 2, 14), ("12", 4, 28), ("13", 8, 56),
    ("14", 16, 112),
)  # fmt: skip
DV2_ROWS = (*D_ROWS, ("5", 16, 56), ("15", 20, 140))
G_ROWS = (("1", 2, 28), ("2", 4, 56), ("3", 8, 112), ("4", 16, 224), ("5", 32, 448))
ORDINARY = (
    *_series("A", ("A0", 1, 0.75), ("A1", 1, 1.75), ("A2", 2, 3.5), ("A3", 4, 7), ("A4", 8, 14), ("A5", 2, 14),
             ("A6", 4, 28), ("A7", 8, 56), retired=AV1),
    *_series("Av2", ("A1_v2", 1, 2), ("A2_v2", 2, 4), ("A4_v2", 4, 8), ("A8_v2", 8, 16), ("A2m_v2", 2, 16),
             ("A4m_v2", 4, 32), ("A8m_v2", 8, 64), retired=AV2),
    *_series("D", *((f"D{n}", cores, memory) for n, cores, memory in D_ROWS), retired=DV2),
    *_series("DS", *((f"DS{n}", cores, memory) for n, cores, memory in D_ROWS), retired=DV2),
    *_series("Dv2", *((f"D{n}_v2", cores, memory) for n, cores, memory in DV2_ROWS), retired=DV2),
    *_series("DSv2", *((f"DS{n}_v2", cores, memory) for n, cores, memory in DV2_ROWS), retired=DV2),
    *_series("B", *((f"B{n}", cores, memory) for n, cores, memory in B_ROWS), retired=AV2),
    *_series("G", *((f"G{n}", cores, memory) for n, cores, memory in G_ROWS), retired=AV2),
    *_series("GS", *((f"GS{n}", cores, memory) for n, cores, memory in G_ROWS), retired=AV2),
    *_series("NP", ("NP10s", 10, 168), ("NP20s", 20, 336), ("NP40s", 40, 672), retired=date(2027, 5, 31),
             notes="FPGAs (Alveo U250); no size with FPGAs follows it"),
    *_series("Ev3", ("E64_v3", 64, 432), retired=DV3),
    *_series("Esv3", ("E64s_v3", 64, 432), retired=DV3),
    *_series("Ev4", ("E64_v4", 64, 504)),
    *_series("Esv4", ("E64s_v4", 64, 504)),
    *_series("Edv4", ("E64d_v4", 64, 504)),
    *_series("Edsv4", ("E64ds_v4", 64, 504)),
    *_series("Easv4", ("E96as_v4", 96, 672)),
    *_series("Esv5", ("E96s_v5", 96, 672)),
    *_series("Edsv5", ("E96ds_v5", 96, 672)),
    *_series("Easv5", ("E96as_v5", 96, 672)),
    *_series("Eadsv5", ("E96ads_v5", 96, 672)),
    *_series("Eav4", ("E96a_v4", 96, 672)),
    *_series("Esv4", ("E80is_v4", 80, 504)),
    *_series("Edsv4", ("E80ids_v4", 80, 504)),
    *_series("Ev5", ("E96_v5", 96, 672)),
    *_series("Edv5", ("E96d_v5", 96, 672)),
    *_series("Esv5", ("E104is_v5", 104, 672)),
    *_series("Edsv5", ("E104ids_v5", 104, 672)),
    *_series("Epsv5", ("E32ps_v5", 32, 208), **ARM),
    *_series("Epdsv5", ("E32pds_v5", 32, 208), **ARM),
    *_series("Epsv6", ("E96ps_v6", 96, 672), **ARM),
    *_series("Epdsv6", ("E96pds_v6", 96, 672), **ARM),
    *_series("Esv6", ("E192is_v6", 192, 1832), **GEN2),
    *_series("Edsv6", ("E192ids_v6", 192, 1832), **GEN2),
    *_series("FXmsv2", ("FX96ms_v2", 96, 1832), **GEN2),
    *_series("FXmdsv2", ("FX96mds_v2", 96, 1832), **GEN2),
    *_series("Ebsv5", ("E96bs_v5", 96, 672)),
    *_series("Ebdsv5", ("E96bds_v5", 96, 672)),
)  # fmt: skip

# Confidential VMs, and the enclave sizes before them. general-purpose/dc*.md, memory-optimized/ec*.md;
# dates: dcsv2-, dcsv3-, dcccv5-series-retirement.md.
DCSV2, DCSV3, DC_CC = date(2026, 6, 30), date(2029, 10, 31), date(2026, 8, 1)
CONFIDENTIAL = (
    *_series("DCsv2", ("DC1s_v2", 1, 4), ("DC2s_v2", 2, 8), ("DC4s_v2", 4, 16), ("DC8_v2", 8, 32), generation=2,
             retired=DCSV2),
    *_series("ECasv5", ("EC96as_v5", 96, 672), ("EC96ias_v5", 96, 672), generation=2),
    *_series("ECadsv5", ("EC96ads_v5", 96, 672), ("EC96iads_v5", 96, 672), generation=2),
)  # fmt: skip

# The M series. m-series.md, mv2-series.md, msv2-mdsv2-series.md, msv3-mdsv3-*-series.md, mbsv3-mbdsv3-series.md.
M192 = date(2027, 3, 31)
MSV2_ROWS = ((32, "m", 875), (64, "", 1024), (64, "m", 1792), (128, "", 2048), (128, "m", 3892))
M192_ROWS = (("is", 2048), ("ims", 4096), ("ids", 2048), ("idms", 4096))
MSV3_ROWS = (
    (12, "", 240), (24, "", 480), (48, "_1", 974), (96, "_1", 974), (96, "_2", 1946), (176, "_3", 2794),
    (176, "_4", 3892), (416, "_6", 5696), (416, "_8", 7600), (624, "_12", 11400), (832, "_12", 11400),
)  # fmt: skip
MB_ROWS = ((16, 128), (32, 256), (48, 384), (64, 512), (96, 768), (128, 1024), (176, 1536))
MEMORY = (
    *_series("M", ("M8ms", 8, 218.75), ("M16ms", 16, 437.5), ("M32ts", 32, 192), ("M32ls", 32, 256),
             ("M32ms", 32, 875), ("M64ls", 64, 512), ("M64s", 64, 1024), ("M64ms", 64, 1792), ("M64", 64, 1024),
             ("M64m", 64, 1792), ("M128s", 128, 2048), ("M128ms", 128, 3892), ("M128", 128, 2048),
             ("M128m", 128, 3892)),
    *_series("Mv2", ("M208s_v2", 208, 2850), ("M208ms_v2", 208, 5700), ("M416s_v2", 416, 5700),
             ("M416ms_v2", 416, 11400), ("M416is_v2", 416, 5700), ("M416ims_v2", 416, 11400), generation=2),
    *_series("Msv2", *((f"M{n}{m}s_v2", n, memory) for n, m, memory in MSV2_ROWS), generation=2),
    *_series("Mdsv2", *((f"M{n}d{m}s_v2", n, memory) for n, m, memory in MSV2_ROWS), generation=2),
    *_series("Msv2", *((f"M192{n}_v2", 192, memory) for n, memory in M192_ROWS), generation=2, retired=M192),
    *_series("Msv3", *((f"M{n}s{tail}_v3", n, memory) for n, tail, memory in MSV3_ROWS),
             ("M832is_16_v3", 832, 15200), generation=2),
    *_series("Mdsv3", *((f"M{n}ds{tail}_v3", n, memory) for n, tail, memory in MSV3_ROWS),
             ("M832ids_16_v3", 832, 15200), generation=2),
    *_series("Mbsv3", *((f"M{n}bs_v3", n, memory) for n, memory in MB_ROWS), generation=2),
    *_series("Mbdsv3", *((f"M{n}bds_v3", n, memory) for n, memory in MB_ROWS), generation=2),
    *_series("Mbdsv3", ("M64bds_1_v3", 64, 1397), ("M96bds_2_v3", 96, 1946), ("M128bds_3_v3", 128, 2794),
             ("M176bds_4_v3", 176, 3892), generation=2),
)  # fmt: skip

# Ordinary sizes that follow a rule: (families, GiB per core, cores, shared values).
# sizes/general-purpose/**, compute-optimized/**, memory-optimized/**; dates: retired-sizes-list.md.
TO_16, TO_48, TO_64 = (1, 2, 4, 8, 16), (2, 4, 8, 16, 20, 32, 48), (2, 4, 8, 16, 32, 48, 64)
TO_32, TO_96, TO_128, E_TO_64 = (2, 4, 8, 16, 32), (*TO_64, 96), (*TO_64, 96, 128), (*TO_48, 64)
TO_160, TO_372, L_TO_80 = (*TO_128, 160), (*TO_128, 192, 248, 372), (8, 16, 32, 48, 64, 80)
FX_TO_64, CC_TO_96 = (2, 4, 8, 12, 16, 24, 32, 48, 64), (4, 8, 16, 32, 48, 64, 96)
BY_RULE: tuple[tuple[str, int, tuple[int, ...], dict[str, Any]], ...] = (
    ("F Fs", 2, TO_16, {"retired": AV2}),
    ("Fsv2", 2, (*TO_64, 72), {"retired": AV2}),
    ("Dv3 Dsv3", 4, TO_64, {"retired": DV3}),
    ("Ev3 Esv3", 8, TO_48, {"retired": DV3}),
    ("Dv4 Dsv4 Ddv4 Ddsv4", 4, TO_64, {}),
    ("Dav4 Dasv4 Dv5 Dsv5 Ddv5 Ddsv5 Dasv5 Dadsv5", 4, TO_96, {}),
    ("Ev4 Esv4 Edv4 Edsv4", 8, TO_48, {}),
    ("Easv4 Esv5 Edsv5 Easv5 Eadsv5 Eav4 Ev5 Edv5", 8, E_TO_64, {}),
    ("Dpsv5 Dpdsv5", 4, TO_64, ARM),
    ("Dsv6 Ddsv6 DCesv6 DCedsv6", 4, TO_128, GEN2),
    ("Dasv6 Dadsv6 DCasv5 DCadsv5 DCesv5 DCedsv5 DCasv6 DCadsv6", 4, TO_96, GEN2),
    ("Dpsv6 Dpdsv6", 4, TO_96, ARM),
    ("Fasv6 Fasv7 Fadsv7", 4, TO_64, GEN2),
    ("Falsv6 Falsv7 Faldsv7", 2, TO_64, GEN2),
    ("Esv6 Easv6 Eadsv6 ECasv5 ECadsv5 ECesv5 ECedsv5", 8, E_TO_64, GEN2),
    ("Bsv2 Basv2", 4, TO_32, {}),
    ("Bpsv2", 4, (2, 4, 8, 16), ARM),
    ("Dlsv5 Dldsv5", 2, TO_96, {}),
    ("Dplsv5 Dpldsv5", 2, TO_64, ARM),
    ("Dlsv6 Dldsv6 Dlsv7 Dldsv7", 2, TO_128, GEN2),
    ("Dalsv6 Daldsv6", 2, TO_96, GEN2),
    ("Dplsv6 Dpldsv6", 2, TO_96, ARM),
    ("Dsv7 Ddsv7", 4, TO_372, GEN2),
    ("Dasv7 Dadsv7", 4, TO_160, GEN2),
    ("Dalsv7 Daldsv7", 2, TO_160, GEN2),
    ("Ebsv5 Ebdsv5", 8, TO_64, {}),
    ("Epsv5 Epdsv5", 8, (2, 4, 8, 16, 20), ARM),
    ("Esv6", 8, (96, 128), GEN2),
    ("Edsv6", 8, (*E_TO_64, 96, 128), GEN2),
    ("Easv6 Eadsv6", 7, (96,), GEN2),
    ("Epsv6 Epdsv6", 8, TO_64, ARM),
    ("Esv7 Edsv7", 8, (*TO_128, 192, 248), GEN2),
    ("Easv7 Eadsv7", 8, TO_160, GEN2),
    ("Famsv6 Famsv7 Famdsv7 ECasv6 ECadsv6 ECesv6 ECedsv6", 8, TO_64, GEN2),
    ("FXmsv2 FXmdsv2", 21, FX_TO_64, GEN2),
    ("Ls", 8, (4, 8, 16, 32), {"retired": DV2}),
    ("Lsv2", 8, L_TO_80, {"retired": AV2}),
    ("Lsv3 Lasv3", 8, L_TO_80, {}),
    ("Lsv4 Lasv4", 8, TO_96, GEN2),
    ("Laosv4", 8, (2, 4, 8, 12, 16, 24, 32), GEN2),
    ("DCsv3 DCdsv3", 8, (1, 2, 4, 8, 16, 24, 32, 48), {"retired": DCSV3, **GEN2}),
)  # fmt: skip
"""Series whose names and memory follow from their cores: `Dsv5` with 4 cores is D4s_v5."""
NAMED_OTHERWISE: tuple[tuple[str, str, int, tuple[int, ...], dict[str, Any]], ...] = (
    ("Bsv2", "B{}ls_v2", 2, TO_32, {}),
    ("Basv2", "B{}als_v2", 2, TO_32, {}),
    ("Bpsv2", "B{}pls_v2", 2, (2, 4, 8, 16), ARM),
    ("FX", "FX{}mds", 21, (4, 12, 24, 36, 48), GEN2),
    ("DCas_cc_v5", "DC{}as_cc_v5", 4, CC_TO_96, {"retired": DC_CC, **GEN2}),
    ("DCads_cc_v5", "DC{}ads_cc_v5", 4, CC_TO_96, {"retired": DC_CC, **GEN2}),
)

FULL: tuple[VmSize, ...] = (
    *ND, *ND_UNLISTED, *NC_NV, *HPC, *GPU_GONE, *HPC_GONE, *ORDINARY, *CONFIDENTIAL, *MEMORY,
    *(size for families, memory, counts, common in BY_RULE for family in families.split()
      for size in _by_cores(family, _name_of(family), memory, counts, common)),
    *(size for row in NAMED_OTHERWISE for size in _by_cores(*row)),
)  # fmt: skip

# Sizes with fewer active cores (constrained-vcpu.md): the full size, and the active cores. The E, F and FX
# series leave a half and a quarter.
E_LEFT = {4: (2,), 8: (4, 2), 16: (8, 4), 32: (16, 8), 64: (32, 16), 96: (48, 24), 128: (64, 32)}
F_LEFT = {2: (1,), 4: (2, 1), 8: (4, 2), 16: (8, 4), 32: (16, 8), 64: (32, 16)}
FX_LEFT = {4: (2,), 8: (4, 2), 12: (6,), 16: (8, 4), 24: (12, 6), 32: (16, 8), 48: (24, 12), 64: (32, 16), 96: (48, 24)}
LEFT_BY_RULE: tuple[tuple[str, int, dict[int, tuple[int, ...]]], ...] = (
    *((name, 64, E_LEFT) for name in ("E{}s_v3", "E{}s_v4", "E{}ds_v4")),
    *((name, 96, E_LEFT) for name in ("E{}as_v4", "E{}s_v5", "E{}ds_v5", "E{}as_v5", "E{}ads_v5")),
    *((name, 128, E_LEFT) for name in ("E{}s_v6", "E{}ds_v6", "E{}as_v7", "E{}ads_v7")),
    *((name, 64, F_LEFT) for name in ("F{}ams_v7", "F{}amds_v7")),
    *((name, 96, FX_LEFT) for name in ("FX{}ms_v2", "FX{}mds_v2")),
)
LEFT: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("GS4", (8, 4)), ("GS5", (16, 8)), ("DS11_v2", (1,)), ("DS12_v2", (2, 1)), ("DS13_v2", (4, 2)),
    ("DS14_v2", (8, 4)), ("M8ms", (4, 2)), ("M16ms", (8, 4)), ("M32ms", (16, 8)), ("M64ms", (32, 16)),
    ("M128ms", (64, 32)), ("M416s_v2", (208,)), ("M416ms_v2", (208,)), ("M64bds_1_v3", (32,)),
    ("M96bds_2_v3", (48,)), ("M128bds_3_v3", (64,)), ("M176bds_4_v3", (88,)), ("M128bds_v3", (64,)),
    ("M176bds_v3", (88,)), ("M128bs_v3", (64,)), ("M176bs_v3", (88,)),
    *((name.format(cores), fewer) for name, most, table in LEFT_BY_RULE for cores, fewer in table.items()
      if cores <= most),
)  # fmt: skip


def _constrained(full: VmSize, fewer: int) -> VmSize:
    """The same machine with fewer cores: its number follows the full number, as in `E8-4s_v5`."""
    letters, number, rest = re.split("([0-9]+)", full.name, maxsplit=1)
    return VmSize(f"{letters}{number}-{fewer}{rest}", full.family, fewer, *full[3:])


def key(name: str) -> str:
    """The normalised name of a size: lower case, without `Standard_`."""
    return name.strip().lower().removeprefix("standard_")


def full_name(name: str) -> str:
    """The name as the service takes it: `STANDARD_ND96isr_H100_v5` for `ND96isr_H100_v5`, which files may say."""
    has_tier = name.lower().startswith(("standard_", "basic_"))
    return name if has_tier or not is_well_formed(name) else f"STANDARD_{name}"


_FULL = {key(size.name): size for size in FULL}
SIZES: tuple[VmSize, ...] = (*FULL, *(_constrained(_FULL[key(name)], n) for name, fewer in LEFT for n in fewer))
_BY_KEY = {key(size.name): size for size in SIZES}


def find(name: str) -> VmSize | None:
    """The size of that name, ignoring case, `Standard_` optional. Returns None if this table does not have it."""
    return _BY_KEY.get(key(name))


_FORM = r"(?:standard_|basic_)?[a-z]{1,4}[0-9]+[a-z0-9]*(?:-[0-9]+[a-z0-9]*)?(?:_[a-z0-9]+)*"

PORT_GBPS = {
    "ND H200 v5": 400, "ND H100 v5": 400, "ND MI300X v5": 400, "NDm A100 v4": 200, "ND A100 v4": 200, "NDv2": 100,
    "HBv4": 400, "HX": 400, "HBv3": 200, "HBv2": 200, "HC": 100,
}  # fmt: skip
"""Gb/s of each InfiniBand port by family, as Microsoft's node tests expect them (Azure/azurehpc-health-checks, `conf/`,
2026-11); families without such a test are not here."""


def is_well_formed(name: str) -> bool:
    """Whether a text has the form of the name of a size: letters of a family, then a number."""
    return re.fullmatch(_FORM, name.strip(), re.IGNORECASE) is not None


_VERSIONED = "(?P<series>.+_[vV])(?P<version>[0-9])"


def is_newer(name: str, other: str) -> bool:
    """Whether the name of a size is that of another one with a later version, as Azure names new sizes."""
    new, old = re.fullmatch(_VERSIONED, name), re.fullmatch(_VERSIONED, other)
    return new is not None and old is not None and key(new["series"]) == key(old["series"]) and name[-1] > other[-1]


MOST_MISTAKES = 2
"""Maximum number of wrong letters in a similar name; one in a short name."""


def nearest(name: str, among: Iterable[VmSize] | None = None) -> tuple[str, ...]:
    """At most three names similar to `name`: fewest differences first, then equal length, then equal beginning;
    otherwise those that lack only the version in `name`."""
    target = key(name)
    most = MOST_MISTAKES if len(target) > 5 else 1
    ranking = []
    for size in SIZES if among is None else among:
        other = key(size.name)
        if abs(len(other) - len(target)) <= most and (wrong := mistakes(target, other)) <= most:
            alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(other, target, strict=False)))
            ranking.append((wrong, abs(len(other) - len(target)), -alike, size.name))
    versions = (size.name for size in SIZES if not ranking and key(size.name).startswith(f"{target}_v"))
    return (*(name for *_, name in sorted(ranking)[:3]), *versions)


def gone(size: VmSize) -> bool:
    """Whether it was retired by the date of these tables."""
    return size.retired is not None and size.retired <= READ
