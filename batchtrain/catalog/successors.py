"""What to use in place of a retiring size: the nearest of today's by number and memory of GPUs, network and price."""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.catalog import list_prices, prices
from batchtrain.catalog.prices import Prices, money
from batchtrain.catalog.sizes import FULL, VmSize

MOST = 2.0
"""Above so many times the price, the user chooses the size."""
NEARLY = 7 / 8
"""The share of the cores and the memory of a node that is enough: series differ by a few."""


class Costs(NamedTuple):
    """An hour of two sizes."""

    before: float
    today: float
    currency: str
    where: str

    @property
    def times(self) -> float:
        return self.today / self.before

    def __str__(self) -> str:
        after, before = money(self.today, self.currency), money(self.before, self.currency)
        return f"{after} an hour{f' instead of {before}' if before != after else ''} ({self.where})"


class Successor(NamedTuple):
    """The replacement of a size, what it costs, and what programs need on it."""

    today: str | None
    """The nearest current size for the same kind of launch."""
    costs: Costs | None = None
    without_network: str | None = None
    """The nearest size if the launch needs no InfiniBand; None if the retiring size has none."""
    old_cuda: str | None = None
    """The size that can still run builds for CUDA 8 to 10 (CNTK 2.x); None if that is irrelevant."""
    choice: str = ""
    """The size with its GPUs, network and price, and other sizes if it is much dearer."""
    programs: str = ""
    """What programs need on it."""

    @property
    def is_dear(self) -> bool:
        """Whether the user chooses, because it costs much more."""
        return self.costs is not None and self.costs.times > MOST

    @property
    def reason(self) -> str:
        """What to do, in sentences."""
        return " ".join(filter(None, (self.choice, self.programs)))


# Series to choose from, by the series of the retiring size. The series with T4 and A100 use the CUDA driver of Batch's
# images; the A10 of NVadsA10 v5 needs the GRID driver.
GPUS_WITH_RDMA, T4_OR_A100, A100 = ("NDv2", "ND A100 v4"), ("NCasT4_v3", "NC A100 v4"), ("NC A100 v4",)
WITH_RDMA = {
    **dict.fromkeys(("NC", "NCv2", "NCv3", "ND"), GPUS_WITH_RDMA),
    **dict.fromkeys(("H", "HB", "A8-A11", "HBv2", "HC"), ("HBv3",)),
}
WITH_GPU = {
    "NC": T4_OR_A100,
    **dict.fromkeys(("NCv2", "NCv3", "ND"), A100),
    **dict.fromkeys(("NV", "NVv3"), T4_OR_A100),
    "NVv4": ("NVads V710 v5",),
}
WITHOUT_GPU = {
    **dict.fromkeys(("DCsv2", "DCsv3", "DCdsv3", "DCas_cc_v5", "DCads_cc_v5"), ("DCasv6", "ECasv6")),
    "Msv2": ("Msv3",),
    "B": ("Bsv2",),
}

# The first CUDA that builds for a GPU (NVIDIA's compatibility guides and release notes).
FIRST_CUDA = {
    "K80": "5.0", "M60": "6.5", "P100": "8.0", "P40": "8.0", "V100": "9.0", "T4": "10.0", "A100": "11.0",
    "A10": "11.1", "H100": "11.8", "H100 NVL": "11.8", "H200": "11.8", "GB200": "12.8", "GB300": "12.9",
    "RTX PRO 6000 BSE": "12.8",
}  # fmt: skip


class Build(NamedTuple):
    """The last build that a framework's own project made for GPUs."""

    name: str
    cuda: str


# CNTK: release notes of 2.7; TensorFlow 1: its tested-configurations page; MXNet: mxnet-cu112 1.9.1 on PyPI.
LAST_BUILDS = (Build("CNTK 2.7", "10.0"), Build("TensorFlow 1.15", "10.0"), Build("MXNet 1.9", "11.2"))

OLD_CUDA_SIZE = "Standard_ND40rs_v2"
OLD_CUDA_GPUS = ("K80", "P100", "P40", "V100")
# NVIDIA: Volta (V100) is compute capability 7.0, first built for by CUDA 9; an older build runs there only if it
# carries PTX. After Turing (T4, 7.5) no GPU runs what CUDA 10 or older built, PTX apart.
OLD_CUDA_REASON = (
    f"{OLD_CUDA_SIZE} (8 x V100, compute capability 7.0) is the only remaining size with RDMA whose GPUs are"
    " supported by builds for CUDA 9 and 10; a build for CUDA 8, which is older than that GPU, runs there only if it"
    " contains PTX. NCv3, the smaller V100 size, was retired on 30 September 2025."
)
# Microsoft Learn: Set up Message Passing Interface for HPC; Intel MPI 2019: release notes.
OLD_MPI_REASON = (
    "Its InfiniBand (SR-IOV) needs Intel MPI 2019 or later, or 2018 with `runtime: intelmpi-ofa`; `shm:dapl` of older"
    " ones works only with the Network Direct of the retired sizes."
)


def today_for(size: VmSize, *, network: bool = True, own: tuple[Prices, ...] = ()) -> Successor:
    """What to use instead; the size itself if it has no retirement date.

    network: whether the launch uses the InfiniBand of a size with GPUs. own: the user's prices. The caller compares
    the retirement date with today; the reason does not repeat it.
    """
    if size.retired is None:
        return Successor(size.name)
    today = _nearest(size, network=network or not size.gpus)
    if today is None:
        return Successor(None)
    without = _nearest(size, network=False) if size.rdma else None
    costs = _costs(size, today, own)
    old_cuda = OLD_CUDA_SIZE if size.gpu_model in OLD_CUDA_GPUS else None
    old_mpi = OLD_MPI_REASON if size.rdma == "network-direct" and today.rdma == "sr-iov" else ""
    programs = " ".join(filter(None, (_programs(today), OLD_CUDA_REASON if old_cuda else "", old_mpi)))
    successor = Successor(today.name, costs, without and without.name, old_cuda, programs=programs)
    return successor._replace(choice=_choice(successor, today, without if without != today else None))


def needed_cuda(size: VmSize) -> str | None:
    """The first CUDA version that supports the GPUs of a size. Returns None without a GPU, or if no table has it."""
    return FIRST_CUDA.get(size.gpu_model or "")


def too_old_for(size: VmSize) -> tuple[Build, ...]:
    """The last builds of frameworks that are older than the GPUs of a size: they run there only if they contain PTX."""
    cuda = needed_cuda(size)
    return tuple(build for build in LAST_BUILDS if cuda and _version(build.cuda) < _version(cuda))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _nearest(size: VmSize, *, network: bool) -> VmSize | None:
    """The cheapest current size of the series that has as many GPUs with as much memory, and nearly the cores and the
    memory of the node; without GPUs and InfiniBand the smallest that has all of both."""
    if network and size.rdma:
        families = WITH_RDMA.get(size.family, ())
    elif size.gpus:
        families = WITH_GPU.get(size.family, ())
    else:
        families = WITHOUT_GPU.get(size.family, ("Dsv5", "Esv5"))
    special = bool(size.gpus or (network and size.rdma))
    share = NEARLY if special else 1
    fitting = (
        other
        for other in FULL
        if other.family in families
        and other.gpus >= size.gpus
        and (other.gpu_memory_gib or 0) >= (size.gpu_memory_gib or 0)
        and other.cores >= share * size.cores
        and other.memory_gib >= share * size.memory_gib
    )

    def order(other: VmSize) -> tuple[float, float, float, float]:
        price = list_prices.list_price(other) if special else None
        cores = -other.cores if price else other.cores
        return price or float("inf"), other.gpu_memory_gib or 0, cores, other.memory_gib

    return min(fitting, key=order, default=None)


def _costs(size: VmSize, today: VmSize, own: tuple[Prices, ...]) -> Costs | None:
    own_before, own_today = (prices.find(own, each.name, "") for each in (size, today))
    if own_before and own_today and own_before.dedicated and own_today.dedicated:
        return Costs(own_before.dedicated, own_today.dedicated, own_today.currency, own_today.region)
    before, after = list_prices.list_price(size), list_prices.list_price(today)
    return Costs(before, after, "USD", list_prices.WHERE) if before and after else None


def _choice(successor: Successor, today: VmSize, other: VmSize | None) -> str:
    costs = f": {successor.costs}" if successor.costs else ""
    text = f"The nearest of today's sizes is {_described(today)}{costs}."
    if not successor.is_dear or successor.costs is None:
        return text
    price = list_prices.list_price(other) if other else None
    cheaper = f"; without InfiniBand: {_described(other)}" if other else ""
    cheaper += f", {money(price, 'USD')}" if price else ""
    return f"{text} That is {successor.costs.times:.1f} times the price, so choose a size yourself{cheaper}."


def _described(size: VmSize) -> str:
    gpus = f"{size.gpus} x {size.gpu_model}" if size.gpus else f"{size.cores} cores"
    return f"{size.name} ({gpus}{f', {size.hcas} x {size.infiniband.upper()} InfiniBand' if size.infiniband else ''})"


def _programs(size: VmSize) -> str:
    cuda = needed_cuda(size)
    platform = "ROCm" if size.gpu_vendor == "amd" else f"CUDA {cuda} or later" if cuda else ""
    if not platform:
        return ""
    builds = ", ".join(f"{build.name} (CUDA {build.cuda})" for build in too_old_for(size))
    old = f" The last builds of {builds} do not support that GPU." if builds else ""
    return f"It needs a framework built for {platform}.{old}"
