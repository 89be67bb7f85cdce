"""Which metrics are rates: what one rank or the whole job counts in a second, by the name of the metric."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TOTAL_RATES = ("total_images_per_second", "results.throughput", "total_samples_per_second")
"""Rates of the whole job that are used before others."""
_OWN_RATES = ("images_per_second", "samples_per_second", "tokens_per_second")
"""The same of one rank; the rates of all ranks are added."""
_RATE = re.compile(r"(?P<total>total_)?(?P<unit>[a-z]+)(?:_per_second|_per_sec|/s|/sec)|tps", re.IGNORECASE)
_COUNTERS = frozenset({"iterations", "iteration", "iters", "iter", "it", "steps", "step", "batches", "updates"})


def is_rate(name: str) -> bool:
    """Whether a metric is a throughput: what it counts in a second, of one rank or of the whole job."""
    match = _RATE.fullmatch(name)
    return name in _TOTAL_RATES or (match is not None and (match["unit"] or "").lower() not in _COUNTERS)


def is_total(name: str) -> bool:
    """Whether a rate is that of the whole job."""
    return name in _TOTAL_RATES or name.startswith("total_")


def rates_of(names: Iterable[str]) -> list[str]:
    """The rates among metrics, the usual ones first."""
    usual = (*_TOTAL_RATES, *_OWN_RATES)
    return sorted(filter(is_rate, names), key=lambda name: usual.index(name) if name in usual else len(usual))


def rate_unit(name: str) -> str:
    """The unit of a rate, such as `tokens/s`."""
    match = _RATE.fullmatch(name)
    return f"{match['unit'] or 'tokens'}/s" if match else "images/s"
