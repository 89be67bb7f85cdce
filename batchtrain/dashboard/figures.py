"""The numbers of a task as the page draws them: its curves, and its ranks beside one another."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from batchtrain.metrics.extract import Pattern
from batchtrain.metrics.stream import Batch, MetricStream
from batchtrain.records import Point, RanksRecord
from batchtrain.records.gang import LOOKS, StepTimes, at_end, compared, warning
from batchtrain.records.rank_end import RankEnd
from batchtrain.runs.curves import MOST_POINTS, Series, curves_of, thinned, values_of

KEPT_POINTS = 20 * MOST_POINTS
MOST_SERIES = 400
MOST_ROWS = 64
"""Ranks that are all sent with their last line; of more, the SHOWN_ROWS that matter."""
SHOWN_ROWS = 10


class Numbers:
    """The curves and the ranks of a task, from its records or its output."""

    def __init__(self, patterns: Callable[[], tuple[Pattern, ...]] = tuple) -> None:
        """patterns: those of the user, asked for once, before the first line."""
        self._patterns = functools.cache(patterns)
        self.forget()

    def forget(self) -> None:
        """The task runs again: its numbers start anew."""
        self._stream: MetricStream | None = None
        self._series: Series = {}
        self._system: Series = {}
        self._steps = StepTimes()

    def forget_samples(self) -> None:
        """The file of what its node measures begins anew."""
        self._system = {}

    def forget_output(self) -> None:
        """The same for the output alone: of a gang that is read by its records, it gives no numbers."""
        if not self.has_records:
            self.forget()

    @property
    def has_records(self) -> bool:
        """Whether the records of a gang are read."""
        return self._stream is not None and self._stream.has_records

    @property
    def stream(self) -> MetricStream:
        """What the lines of the task are read by."""
        if self._stream is None:
            self._stream = MetricStream(self._patterns())
        return self._stream

    def take_output(self, lines: Sequence[str]) -> None:
        """Lines of the merged stdout."""
        now = time.time()
        self._take(self.stream.output(lines, now), now)

    def take_records(self, lines: Sequence[str]) -> None:
        """Lines of the records of a gang."""
        now = time.time()
        self._take(self.stream.records(lines, now), now)

    def take_own(self, rank: int | None, lines: Sequence[str]) -> None:
        """Lines of a file of $BATCHTRAIN_METRICS, or of the samples of a node."""
        now = time.time()
        self._take(self.stream.own(lines, now, rank), now)

    def _take(self, batch: Batch, now: float) -> None:
        for name in tuple(self._series) if batch.again else batch.hidden:
            self._series.pop(name[:100], None)
        for point in batch.points:
            self._steps.add(point.rank, now if point.t is None else point.t, point.global_step)
            add(self._system if point.node else self._series, point, now)

    def metrics(self) -> dict[str, Any]:
        """The curves, by metric and rank, or by metric and node."""
        return {**curves_of(self._series), **curves_of(self._system, system=True)}

    def ranks(self, ends: Mapping[int, RankEnd] | None = None, *, ended: bool = False) -> dict[str, Any]:
        """The ranks of the task, those that matter first. ends: how they ended, after its end."""
        stream = self._stream
        ranks = RanksRecord(stream.seen(), stream.progress) if stream else RanksRecord()
        now = time.time() if stream is None else stream.judged_at(time.time())
        if ended:
            now = max((rank.heard for rank in ranks.ranks), default=0.0)
        return ranks_document(ranks, self._steps, newest(self._system), now, ends, ended=ended)


def ranks_document(
    record: RanksRecord,
    times: StepTimes,
    nodes: Mapping[str, Mapping[str, float]],
    now: float,
    ends: Mapping[int, RankEnd] | None = None,
    *,
    ended: bool,
) -> dict[str, Any]:
    """The ranks for the page. nodes: what each node measured last. now: of a gang that has ended, its end. ends: how
    the ranks of a gang that failed ended; that of one that succeeded is empty."""
    states = compared(record.ranks, times.times, now)
    if ends is not None:
        states = at_end(states, ends)
    places = [global_step for state in states if (global_step := state.rank.position.global_step) is not None]
    medians = [median(state.step_seconds) for state in states if state.step_seconds]
    are_many = len(states) > MOST_ROWS
    tiles = sorted(states, key=lambda state: state.rank.number) if are_many else ()
    return {
        "count": len(states),
        "warning": warning(states),
        "leader": max(places, default=None),
        "slowest": min(places, default=None),
        "end": now if ended else None,
        "step_seconds": median(medians) if medians else None,
        "progress": msgspec.to_builtins(record.progress),
        "rows": [
            {
                "rank": state.rank.number,
                "node": state.rank.node,
                "lines": state.rank.lines,
                "last": state.rank.last,
                "at": state.rank.heard,
                "step": str(state.rank.position),
                "rate": state.rate,
                "words": state.end or LOOKS[state.condition].words,
                "behind": state.behind,
                "condition": state.condition,
                "step_seconds": [round(seconds, 4) for seconds in state.step_seconds],
            }
            for state in states[: SHOWN_ROWS if are_many else MOST_ROWS]
        ],
        "tiles": [
            [state.rank.number, state.rank.node, state.rank.position.global_step, state.rank.heard, state.condition]
            for state in tiles
        ],
        "nodes": nodes,
    }


def add(series: Series, point: Point, now: float) -> None:
    """Add the values of a point to the curves."""
    for name, key, value in values_of(point, now):
        if name not in series and len(series) >= MOST_SERIES:
            continue
        values = series.setdefault(name, {}).setdefault(key, [])
        values.append(value)
        if len(values) > KEPT_POINTS:
            values[:] = thinned(values, KEPT_POINTS // 2)


def newest(system: Series) -> dict[str, dict[str, float]]:
    """The last values of each node."""
    nodes: dict[str, dict[str, float]] = {}
    for name, lines in tuple(system.items()):
        for node, values in tuple(lines.items()):
            if values and values[-1][2] is not None:
                nodes.setdefault(node, {})[name] = values[-1][2]
    return nodes
