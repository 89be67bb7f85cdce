"""How fast the network of a VM size should be, as Azure publishes it: the marks of a fabric check. Pure.

A value that misses `report` is a fault to report to Azure, and one that misses `warn` is worth a look. A latency should
be below its limits, every other value above. Where a source has one limit of a port, it is `warn`, and half of it is
`report`: the baselines say that half of the rate means one bad port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from batchtrain.catalog.sizes import key

METRICS = (
    "allreduce_gb_per_second",
    "pair_gb_per_second",
    "pair_latency_us",
    "pair_ratio",
    "gpu_allreduce_gb_per_second",
    "gpu_pair_gb_per_second",
    "gpu_node_gb_per_second",
    "gpu_copy_gb_per_second",
)
"""The values of a fabric check."""


class Mark(NamedTuple):
    """What Azure expects of one value of a fabric check."""

    metric: str
    expected: float
    warn: float | None = None
    report: float | None = None
    source: str = ""
    date: str = ""
    """The day of the source's commit or page that was read."""
    sizes: tuple[str, ...] = ("*",)
    """Patterns of the sizes, in lower case without `Standard_`."""

    def is_missed(self, value: float, limit: float | None) -> bool:
        """Whether a value is worse than a limit of this mark: a latency above it, another value below it."""
        return limit is not None and (value > limit if self.metric.endswith("_us") else value < limit)


_BASELINE = "Azure/ai-infrastructure-on-azure a01b0731, sku_performance_baseline"
_NODE_TESTS = "Azure/azurehpc-health-checks 0e0a1ac2, conf/"
_PAGES = "learn.microsoft.com, hbv3-performance and its like"
_DAY = "2026-11-23"


def _ports(metric: str, gbits: float, *sizes: str) -> Mark:
    """A limit of ib_write_bw in Gb/s, which messages of MPI come close to."""
    rate = gbits / 8
    return Mark(metric, rate, rate, rate / 2, f"{_NODE_TESTS} ib_write_bw {gbits:g} Gb/s", _DAY, sizes)


def _node(metric: str, rate: float, *sizes: str, factor: float = 1.0) -> Mark:
    """A limit of a test of one node in GB/s. factor: the tests warn below this many times the limit."""
    return Mark(metric, rate * factor, rate * factor, rate, f"{_NODE_TESTS} {rate:g} GB/s", _DAY, sizes)


_H100, _H200 = "nd96is*_h100_v5", "nd96is*_h200_v5"
_A100 = "nd96a*_v4"

MARKS: tuple[Mark, ...] = (
    Mark("pair_ratio", 1.0, 0.8, 0.5, f"{_BASELINE}: half of the rate means one bad port", _DAY),
    Mark("gpu_allreduce_gb_per_second", 450, 400, 300, f"{_BASELINE}, 16 GiB", _DAY, ("nd96isr_h100_v5",)),
    Mark("gpu_pair_gb_per_second", 450, 400, 300, f"{_BASELINE}, 16 GiB", _DAY, ("nd96isr_h100_v5",)),
    Mark("gpu_allreduce_gb_per_second", 937, 800, 600, f"{_BASELINE}, one rack; 200 across racks", _DAY,
         ("nd128is*_gb300_v6",)),
    _node("gpu_node_gb_per_second", 460, _H100),
    _node("gpu_node_gb_per_second", 431, _H200),
    _node("gpu_node_gb_per_second", 228, _A100),
    _node("gpu_node_gb_per_second", 110, "nd40rs_v2"),
    _node("gpu_copy_gb_per_second", 48, _H100, _H200, "nc80adis_h100_v5", factor=1.05),
    _node("gpu_copy_gb_per_second", 21, _A100, "nc96ads_a100_v4", factor=1.05),
    _node("gpu_copy_gb_per_second", 9, "nd40rs_v2", factor=1.05),
    _ports("pair_gb_per_second", 390, "hb176*rs_v4", "hx176*rs"),
    _ports("pair_gb_per_second", 190, "hb120*rs_v3", "hb120rs_v2"),
    _ports("pair_gb_per_second", 95, "hc44*rs"),
    Mark("pair_latency_us", 1.2, source=_PAGES, date=_DAY, sizes=("hb120*rs_v3",)),
    Mark("pair_latency_us", 2.0, source=_PAGES, date=_DAY, sizes=("hb176*rs_v4", "hb368*rs_v5")),
)  # fmt: skip


def marks_of(size: str, overrides: Iterable[Mark] = ()) -> dict[str, Mark]:
    """The marks of a size by metric; marks of the user come first."""
    return {mark.metric: mark for mark in (*_of(size), *overrides)}


def _of(size: str) -> Iterator[Mark]:
    name = key(size)
    return (mark for mark in MARKS if any(fnmatchcase(name, pattern) for pattern in mark.sizes))


def is_published(size: str) -> bool:
    """Whether there is a mark of this size, and not only those of all."""
    return any(mark.sizes != ("*",) for mark in _of(size))
