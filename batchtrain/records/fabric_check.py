"""What a fabric check measured, and how each value compares with what Azure expects of the size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from batchtrain.catalog.fabric_marks import Mark, marks_of

Verdict = Literal["good", "slow", "fault", "no limit", "no mark"]


class NodePair(msgspec.Struct, frozen=True, omit_defaults=True):
    """The network between two nodes, by their places in `nodes`."""

    first: int
    second: int
    gb_per_second: float = 0.0
    latency_us: float = 0.0
    gpu_gb_per_second: float = 0.0
    """The all-reduce of the GPUs of both nodes."""

    @property
    def rate(self) -> float:
        return self.gpu_gb_per_second or self.gb_per_second


class FabricMeasurement(msgspec.Struct, frozen=True):
    """fabric.json as the program of the recipe writes it."""

    nodes: tuple[str, ...]
    values: dict[str, float]
    pairs: tuple[NodePair, ...] = ()

    def slow_nodes(self, below: float) -> tuple[int, ...]:
        """The nodes whose best pair has less than a share of the rate of the best pair of all."""
        best = dict.fromkeys(range(len(self.nodes)), 0.0)
        for pair in self.pairs:
            best[pair.first] = max(best[pair.first], pair.rate)
            best[pair.second] = max(best[pair.second], pair.rate)
        limit = below * max(best.values(), default=0.0)
        return tuple(node for node, rate in best.items() if self.pairs and rate < limit)

    def matrix(self) -> Iterator[tuple[str, ...]]:
        """A row for each node, with the rate to each other node."""
        rates = {(pair.first, pair.second): f"{pair.rate:.3g}" for pair in self.pairs}
        places = range(len(self.nodes))
        for node in places:
            yield (f"n{node}", *(rates.get((min(node, other), max(node, other)), "") for other in places))


class Judged(NamedTuple):
    """A value of a fabric check beside its mark."""

    metric: str
    value: float
    expected: float | None
    warn: float | None
    report: float | None
    verdict: Verdict
    source: str


class FabricCheck(msgspec.Struct, frozen=True):
    """fabric.json of a run."""

    vm_size: str
    measured: FabricMeasurement
    judged: tuple[Judged, ...]
    slow_nodes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        verdicts = {row.verdict for row in self.judged}
        order: tuple[Verdict, ...] = ("fault", "slow", "good")
        return next((verdict for verdict in order if verdict in verdicts), "no mark")


def judge(size: str, measured: FabricMeasurement, overrides: Iterable[Mark] = ()) -> FabricCheck:
    """Compare each value with the mark of the size, or with that of the user."""
    marks, rates = marks_of(size, overrides), [pair.rate for pair in measured.pairs]
    ratio = {"pair_ratio": min(rates) / max(rates)} if len(rates) > 1 and max(rates) else {}
    rows = tuple(compare(metric, value, marks.get(metric)) for metric, value in {**measured.values, **ratio}.items())
    slow = measured.slow_nodes(marks["pair_ratio"].warn or 0.0)
    return FabricCheck(size, measured, rows, tuple(measured.nodes[node] for node in slow))


def compare(metric: str, value: float, mark: Mark | None) -> Judged:
    """A value beside its mark."""
    if mark is None:
        return Judged(metric, value, None, None, None, "no mark", "")
    verdict: Verdict = "no limit" if mark.warn is mark.report is None else "good"
    if mark.is_missed(value, mark.warn):
        verdict = "slow"
    if mark.is_missed(value, mark.report):
        verdict = "fault"
    source = f"{mark.source} ({mark.date})" if mark.date else mark.source
    return Judged(metric, value, mark.expected, mark.warn, mark.report, verdict, source)
