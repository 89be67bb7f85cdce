"""Which ranks of a gang stand, wait for others or are slow. Pure: the time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal, NamedTuple

from batchtrain.records.metric import Rank

QUIET_SECONDS = 30.0
"""After this time without a line, a rank is quiet."""
SLOW_FACTOR = 1.5
"""A rank is slow if its step takes so many times the median of all ranks."""
GAP_SECONDS, GAP_STEPS = 5.0, 3
"""The others continue if one of them printed so much later than a quiet rank: seconds, and usual step times."""
STEPS = 24
"""Last step times of a rank that are kept."""
FEWEST_STEPS = 3
"""Step times of a rank from which it is judged."""
Condition = Literal["stands", "slow", "quiet", "waits", ""]
_ORDER: tuple[Condition, ...] = ("stands", "slow", "quiet", "waits", "")


class RankState(NamedTuple):
    """A rank beside the others of its gang."""

    rank: Rank
    condition: Condition = ""
    """`stands`: quiet and behind the others, or quiet while they went on. `waits`: quiet because another one stands.
    `quiet`: as all others. `slow`: its steps take longer."""
    behind: int | None = None
    """Steps behind the leader; None without a step."""
    step_seconds: tuple[float, ...] = ()
    """Its last step times."""


class StepTimes:
    """The last step times of each rank."""

    def __init__(self) -> None:
        self._moments: dict[int, deque[tuple[float, float]]] = {}

    def add(self, rank: int | None, t: float, place: float | None) -> None:
        """A rank reached a place; several reports of one place count once."""
        if rank is None or place is None:
            return
        moments = self._moments.setdefault(rank, deque(maxlen=STEPS + 1))
        if moments and place < moments[-1][1]:  # it continues from a checkpoint
            moments.clear()
        if not moments or place > moments[-1][1]:
            moments.append((t, place))

    @property
    def times(self) -> dict[int, tuple[float, ...]]:
        """The seconds of a step by rank, the oldest first."""
        copies = {rank: tuple(moments) for rank, moments in tuple(self._moments.items())}
        return {
            rank: tuple(
                (t - before) / (place - last) for (before, last), (t, place) in pairwise(moments) if t >= before
            )
            for rank, moments in copies.items()
        }


def compared(ranks: Sequence[Rank], steps: Mapping[int, Sequence[float]], now: float) -> list[RankState]:
    """The ranks, those that matter first. steps: the last step times of each. now: seconds since 1970; of a gang that
    has ended, its end."""
    leader = max((place for rank in ranks if (place := rank.position.place) is not None), default=None)
    typical = {number: median(times) for number, times in steps.items() if len(times) >= FEWEST_STEPS}
    usual = median(typical.values()) if len(typical) > 1 else None
    most_lines = max((rank.lines for rank in ranks), default=0)
    regular = [  # ranks whose silence means something: in many programs, only rank 0 prints
        rank for rank in ranks if (2 * rank.lines >= most_lines if leader is None else rank.position.place is not None)
    ]
    latest = max((rank.heard for rank in regular), default=now)
    gap = max(GAP_SECONDS, GAP_STEPS * (usual or 0.0))
    silent = [rank for rank in regular if now - rank.heard > QUIET_SECONDS]
    positions = {rank.position for rank in ranks}
    behind = {rank.number for rank in silent if any(map(rank.position.is_before, positions))}
    standing = behind or {rank.number for rank in silent if latest - rank.heard > gap}
    quiet = {rank.number for rank in silent}

    def condition(number: int) -> Condition:
        if number in standing:
            return "stands"
        if number in quiet:
            return "waits" if standing else "quiet"
        return "slow" if usual is not None and typical.get(number, 0.0) > SLOW_FACTOR * usual else ""

    states = [
        RankState(
            rank,
            condition(rank.number),
            None if leader is None or rank.position.place is None else round(leader - rank.position.place),
            tuple(steps.get(rank.number, ())),
        )
        for rank in ranks
    ]
    return sorted(states, key=_importance)


def _importance(state: RankState) -> tuple[int, int, float, int]:
    heard = state.rank.heard if state.condition == "stands" else 0.0
    return _ORDER.index(state.condition), -(state.behind or 0), heard, state.rank.number
