"""Which ranks of a gang stand, wait for others or are slow. Pure: the time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal, NamedTuple

from batchtrain.records.metric import Point, Rank
from batchtrain.records.position import Course, Front
from batchtrain.records.rank_end import ENDED_EARLY, RankEnd

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
Condition = Literal["failed", "stands", "slow", "quiet", "waits", "ended", "unjudged", ""]


class Look(NamedTuple):
    """How views show a condition: the style in the words of rich, the words of a count, of a narrow row and of a wide
    one, and a sentence about one rank and about several."""

    style: str
    counted: str
    row: str
    words: str
    singular: str = ""
    plural: str = ""


_STANDS = "still while the others went on."
LOOKS: Mapping[Condition, Look] = {
    "failed": Look("red", "failed", "fails", "failed", "failed.", "failed."),
    "stands": Look("red", "stopped", "stops", "stands still", f"stands {_STANDS}", f"stand {_STANDS}"),
    "slow": Look("yellow", "slow", "slow", "slow", "is slower than the others.", "are slower than the others."),
    "quiet": Look("yellow", "quiet", "quiet", "quiet"),
    "waits": Look("dim", "waiting", "waits", "waits for others"),
    "ended": Look("dim", "ended", "ended", "ended"),
    "": Look("", "fine", "", ""),
    "unjudged": Look("dim", "not judged", "", "not judged"),
}


class RankState(NamedTuple):
    """A rank beside the others of its gang."""

    rank: Rank
    condition: Condition = ""
    """`stands`: quiet and behind the others, or quiet while they went on. `waits`: quiet because another one stands.
    `quiet`: as all others. `slow`: its steps take longer. `unjudged`: silent, as it may always be."""
    behind: int | None = None
    """Steps behind the leader; None without a step."""
    step_seconds: tuple[float, ...] = ()
    """Its last step times."""
    rate: float | None = None
    """Its throughput; None while it is silent."""
    end: str = ""
    """How it ended, such as `exited with code 7`."""


class StepTimes:
    """The last step times of each rank."""

    def __init__(self) -> None:
        self._moments: dict[int, deque[tuple[float, float]]] = {}

    def add(self, rank: int | None, t: float, global_step: float | None) -> None:
        """A rank reached a step; several reports of one step count once."""
        if rank is None or global_step is None:
            return
        moments = self._moments.setdefault(rank, deque(maxlen=STEPS + 1))
        if moments and global_step < moments[-1][1]:  # it continues from a checkpoint
            moments.clear()
        if not moments or global_step > moments[-1][1]:
            moments.append((t, global_step))

    @property
    def times(self) -> dict[int, tuple[float, ...]]:
        """The seconds of a step by rank, the oldest first."""
        copies = {rank: tuple(moments) for rank, moments in tuple(self._moments.items())}
        return {
            rank: tuple(
                (t - before) / (global_step - last)
                for (before, last), (t, global_step) in pairwise(moments)
                if t >= before
            )
            for rank, moments in copies.items()
        }


def compared(ranks: Sequence[Rank], steps: Mapping[int, Sequence[float]], now: float) -> list[RankState]:
    """The ranks, those that matter first. steps: the last step times of each. now: seconds since 1970; of a gang that
    has ended, its end."""
    leader = max(
        (global_step for rank in ranks if (global_step := rank.position.global_step) is not None), default=None
    )
    typical = {number: median(times) for number, times in steps.items() if len(times) >= FEWEST_STEPS}
    usual = median(typical.values()) if len(typical) > 1 else None
    most_lines = max((rank.lines for rank in ranks), default=0)
    regular = [  # ranks whose silence means something: in many programs, only rank 0 prints
        rank
        for rank in ranks
        if (2 * rank.lines >= most_lines if leader is None else rank.position.global_step is not None)
    ]
    latest = max((rank.heard for rank in regular), default=now)
    gap = max(GAP_SECONDS, GAP_STEPS * (usual or 0.0))
    silent = [rank for rank in regular if now - rank.heard > QUIET_SECONDS]
    front = Front(rank.position for rank in ranks)
    behind = {rank.number for rank in silent if front.is_after(rank.position)}
    standing = behind or {rank.number for rank in silent if latest - rank.heard > gap}
    quiet = {rank.number for rank in silent}
    unjudged = {
        rank.number for rank in ranks if rank not in regular and (not rank.lines or now - rank.heard > QUIET_SECONDS)
    }

    def condition(number: int) -> Condition:
        if number in standing:
            return "stands"
        if number in quiet:
            return "waits" if standing else "quiet"
        if number in unjudged:
            return "unjudged"
        return "slow" if usual is not None and typical.get(number, 0.0) > SLOW_FACTOR * usual else ""

    states = [
        RankState(
            rank,
            condition(rank.number),
            None if leader is None or rank.position.global_step is None else round(leader - rank.position.global_step),
            tuple(steps.get(rank.number, ())),
            None if now - rank.heard > QUIET_SECONDS else rank.rate,
        )
        for rank in ranks
    ]
    return sorted(states, key=_importance)


def warning(states: Sequence[RankState]) -> str:
    """What the ranks tell in one sentence; empty if nothing is wrong."""
    for condition in ("failed", "stands", "slow"):
        names = [f"r{state.rank.number}" for state in states if state.condition == condition]
        ends = {state.end for state in states if state.condition == condition and state.end}
        if names:
            look, listed = LOOKS[condition], ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
            sentence = f"{ends.pop()}." if len(ends) == 1 else look.plural if len(names) > 1 else look.singular
            return f"{listed} {sentence}"
    is_quiet = any(state.condition == "quiet" for state in states)
    return "No rank has printed a line for a while." if is_quiet else ""


def ranks_in(points: Iterable[Point]) -> tuple[Rank, ...]:
    """The ranks as their metrics tell them, if nothing else was recorded."""
    ranks, course = dict[int, Rank](), Course()
    for point in points:
        if point.rank is not None and not point.node:
            heard = max(point.t or 0.0, ranks[point.rank].heard if point.rank in ranks else 0.0)
            epoch, step, global_step = course.advance(point.rank, point.attempt, point.epoch, point.step)
            ranks[point.rank] = Rank(
                point.rank, attempt=point.attempt, heard=heard, step=step, epoch=epoch, global_step=global_step
            )
    return tuple(ranks.values())


def standstill(ranks: Sequence[Rank], now: float) -> str:
    """Which ranks stand still and how long, such as `rank 3 stood still for 84 s`; empty if none does."""
    stopped = _in_condition(ranks, now, "stands")
    seconds = now - max((rank.heard for rank in stopped), default=now)
    return f"{_names(stopped)} stood still for {seconds:.0f} s" if stopped else ""


def stall(ranks: Sequence[Rank], now: float) -> str:
    """The same with the ranks that wait for them, or that no rank prints; empty if they do."""
    if stands := standstill(ranks, now):
        waiting = _in_condition(ranks, now, "waits")
        return f"{stands}, and {_names(waiting)} wait{'s' * (len(waiting) == 1)}" if waiting else stands
    is_quiet = _in_condition(ranks, now, "quiet")
    return f"no rank has printed a line for {now - max(rank.heard for rank in ranks):.0f} s" if is_quiet else ""


def _in_condition(ranks: Sequence[Rank], now: float, condition: Condition) -> list[Rank]:
    return [state.rank for state in compared(ranks, {}, now) if state.condition == condition]


def _names(ranks: Sequence[Rank]) -> str:
    names = sorted(rank.number for rank in ranks)
    return f"rank{'s' * (len(names) > 1)} {', '.join(map(str, names[:5]))}{', …' if names[5:] else ''}"


def at_end(states: Sequence[RankState], ends: Mapping[int, RankEnd]) -> list[RankState]:
    """The ranks of a gang that has ended, those that failed first: none is silent. ends: how the ranks of a gang that
    failed ended, by number."""
    return sorted((_ended(state, ends.get(state.rank.number)) for state in states), key=_importance)


def _ended(state: RankState, end: RankEnd | None) -> RankState:
    has_failed = end is not None and not end.by_launcher and end.cause != ENDED_EARLY
    return state._replace(condition="failed" if has_failed else "ended", end=end.words if end else "")


def _importance(state: RankState) -> tuple[int, int, float, int]:
    heard = state.rank.heard if state.condition == "stands" else 0.0
    return tuple(LOOKS).index(state.condition), -(state.behind or 0), heard, state.rank.number
