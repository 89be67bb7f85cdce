"""The summary of metrics: last and best value, and the throughput after warm-up. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from batchtrain.metrics.point import UNITS
from batchtrain.records import Metric, Point
from batchtrain.records.rates import is_rate, is_total, rate_unit, rates_of
from batchtrain.runtime.batchtrain_sweep import lower_is_better


class Summary:
    """Collects the points of a task."""

    def __init__(self, units: Mapping[str, str] | None = None) -> None:
        self._undefined: dict[str, Point] = {}
        self._units = {**UNITS, **(units or {})}
        self._seen: dict[str, dict[int, dict[int, Metric]]] = {}
        """By metric, attempt and rank; -1 is a value without a rank."""
        self._rates: dict[int, dict[str, dict[int, list[float]]]] = {}
        """By attempt, metric and rank."""

    def add(self, point: Point) -> None:
        """Add one point. Samples of nodes are not results."""
        if point.node:
            return
        rank = rank_of(point)
        for name, value in point.values.items():
            ranks = self._seen.setdefault(name, {}).setdefault(point.attempt, {})
            ranks[rank] = metric_after(ranks.get(rank, Metric(None, None)), name, value, point)
            if value is None:
                self._undefined.setdefault(name, point)
            elif is_rate(name):
                self._rates.setdefault(point.attempt, {}).setdefault(name, {}).setdefault(rank, []).append(value)

    @property
    def notes(self) -> tuple[str, ...]:
        """The metrics that were NaN or infinite but are not at the end, each with its first occurrence."""
        notes, metrics = [], self.metrics()
        for name, point in self._undefined.items():
            if metrics[name].last is None:
                continue
            counters = {"step": point.step, "epoch": point.epoch, "rank": point.rank}
            texts = [f"{counter} {value:g}" for counter, value in counters.items() if value is not None]
            notes.append(f"{name} was NaN or infinite, first at {', '.join(texts) or 'an unknown step'}")
        return tuple(notes)

    def metrics(self) -> dict[str, Metric]:
        """The values of the lowest rank that has a metric in each attempt: the last of the last attempt, the best of
        all; and the `throughput` of the last attempt that has one."""
        metrics = {}
        for name, attempts in self._seen.items():
            lowest = {attempt: ranks[min(ranks)] for attempt, ranks in attempts.items()}
            last, finite = lowest[max(lowest)], [seen.best for seen in lowest.values() if seen.best is not None]
            best = _better(name)(finite) if finite else None
            metrics[name] = Metric(last.last, best, last.step, self._units.get(name, ""), last.since)
        if self._rates and (rate := throughput(self._rates[max(self._rates)])):
            metrics["throughput"] = Metric(rate[0], rate[0], unit=self._units.get(rate[1]) or rate_unit(rate[1]))
        return metrics


def rank_of(point: Point) -> int:
    """The rank that measured a point, to compare: the lowest one that has a metric counts. -1 without a rank."""
    return -1 if point.rank is None else point.rank


def metric_after(before: Metric, name: str, value: float | None, point: Point) -> Metric:
    """A metric of one rank after a value of a point; None is a value that is NaN or infinite."""
    if value is None:
        return Metric(None, before.best, point.counted_step, since=before.since or point.counted)
    return Metric(value, _better(name)(value, value if before.best is None else before.best), point.counted_step)


def _better(name: str) -> Callable[..., float]:
    return min if lower_is_better(name) else max


def throughput(rates: Mapping[str, Mapping[int, Sequence[float]]]) -> tuple[float, str] | None:
    """The mean rate without the first value of each rank, and the name of its metric."""
    names = rates_of(rates)
    for name in filter(is_total, names):
        return after_warm_up(rates[name][min(rates[name])]), name
    for name in names:
        return sum(map(after_warm_up, rates[name].values())), name
    return None


def after_warm_up(values: Sequence[float]) -> float:
    """The harmonic mean without the first value, which contains the warm-up. The result is 0 if a rate is 0."""
    rest = values[1:] or values
    if min(rest) <= 0:
        return sum(rest) / len(rest)
    return len(rest) / sum(1 / value for value in rest)
