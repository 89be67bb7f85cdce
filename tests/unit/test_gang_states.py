"""Which ranks of a gang stand, wait or are slow."""

from __future__ import annotations

import itertools

import pytest

from batchtrain.metrics.stream import MetricStream
from batchtrain.records import Rank
from batchtrain.records.gang import LOOKS, StepTimes, at_end, compared, stall
from batchtrain.records.position import Front, Position
from batchtrain.records.rank_end import RankEnd
from batchtrain.records.rates import is_rate, rate_unit

NOW = 1000.0


def ranks(*rows: tuple[int | None, float], lines: int = 50) -> tuple[Rank, ...]:
    """Ranks with a step, and the seconds since their last line."""
    return tuple(Rank(n, step=step, heard=NOW - quiet, lines=lines) for n, (step, quiet) in enumerate(rows))


TIMES = {0: (1.0, 1.1, 0.9), 1: (1.0, 1.0, 1.0), 2: (2.0, 1.6, 1.8)}
CHATTY = Rank(0, lines=500, heard=NOW)
CONDITIONS: dict[str, tuple[tuple[Rank, ...], dict[int, tuple[float, ...]], list[str]]] = {
    "they print": (ranks((4, 0.5), (4, 29.0)), {}, ["", ""]),
    "the others wait for the one that is behind": (
        ranks((41, 180.0), (40, 181.0), (41, 180.0)), {}, ["waits", "stands", "waits"]),
    "without steps, one is silent": (ranks((None, 1.0), (None, 60.0)), {}, ["", "stands"]),
    "without steps, one went silent before the other": (ranks((None, 60.0), (None, 90.0)), {}, ["waits", "stands"]),
    "all are silent at the same step": (ranks((7, 60.0), (7, 61.0)), {}, ["quiet", "quiet"]),
    "only rank 0 prints metrics": (
        ranks((40, 1.0), (None, 300.0), (None, 300.0)), {}, ["", "unjudged", "unjudged"]),
    "only rank 0 prints many lines": ((CHATTY, Rank(1, lines=2, heard=NOW - 300)), {}, ["", "unjudged"]),
    "the other printed its few lines just now": ((CHATTY, Rank(1, lines=2, heard=NOW - 5)), {}, ["", ""]),
    "one has said nothing while rank 0 is quiet": (
        (Rank(0, lines=50, heard=NOW - 90), Rank(1, heard=NOW - 90)), {}, ["quiet", "unjudged"]),
    "the steps of one take longer": (ranks((9, 1.0), (9, 1.0), (9, 1.0)), TIMES, ["", "", "slow"]),
    "too few steps to be called slow": (
        ranks((9, 1.0), (9, 1.0)), {0: (1.0, 1.0, 1.0), 1: (9.0, 9.0)}, ["", ""]),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "times", "conditions"), CONDITIONS.values(), ids=CONDITIONS)
def test_a_rank_is_judged_beside_the_others(
    rows: tuple[Rank, ...], times: dict[int, tuple[float, ...]], conditions: list[str]
) -> None:
    states = {state.rank.number: state.condition for state in compared(rows, times, NOW)}
    assert states == dict(enumerate(conditions))
    assert LOOKS["unjudged"].counted == "not judged"


def test_a_rank_in_an_earlier_epoch_stands_although_its_step_is_higher() -> None:
    stream = MetricStream()
    lines = [f"[0:{rank}] epoch 0 step {step} loss 1" for step in range(36) for rank in (0, 1)]
    lines += [f"[0:0] epoch 0 step {step} loss 1" for step in range(36, 100)] + ["[0:0] epoch 1 step 0 loss 1"]
    stream.output(lines, NOW - 60)
    states = compared(stream.seen(), {}, NOW)
    assert [(state.rank.number, state.condition, state.behind) for state in states] == [
        (1, "stands", 65),
        (0, "waits", 0),
    ]
    assert [str(state.rank.position) for state in states] == ["35", "1:0"]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (((7, 60.0), (7, 61.0)), "no rank has printed a line for 60 s"),
        (((7, 1.0), (7, 1.0)), ""),
        (((41, 180.0), (40, 181.0), (41, 180.0)), "rank 1 stood still for 181 s, and ranks 0, 2 wait"),
        (((41, 180.0), (40, 181.0)), "rank 1 stood still for 181 s, and rank 0 waits"),
        (((40, 1.0), (39, 60.0)), "rank 1 stood still for 60 s"),
    ],
)
def test_the_ranks_that_wait_are_named_after_those_that_stand(rows: tuple[tuple[int, float], ...], text: str) -> None:
    assert stall(ranks(*rows), NOW) == text


def test_the_ranks_that_matter_come_first_with_the_steps_that_they_are_behind() -> None:
    states = compared(ranks((9, 60.0), (9, 60.0), (5, 61.0), (3, 60.0)), {}, NOW)
    assert [(state.rank.number, state.behind) for state in states] == [(3, 6), (2, 4), (0, 0), (1, 0)]


@pytest.mark.parametrize(
    ("moments", "times"),
    [([], {}), ([(1.0, 1)], {0: ()}), ([(1.0, 1), (2.0, 1), (3.0, 2), (9.0, 4)], {0: (2.0, 3.0)})],
)
def test_step_times_are_between_the_first_reports_of_steps(
    moments: list[tuple[float, int]], times: dict[int, tuple[float, ...]]
) -> None:
    steps = StepTimes()
    for t, step in moments:
        steps.add(0, t, step)
    assert steps.times == times


def test_step_times_begin_again_at_a_checkpoint_and_only_the_last_are_kept() -> None:
    steps = StepTimes()
    for at, step in enumerate((8, 9, 3, 4)):
        steps.add(0, float(at), step)
    assert steps.times == {0: (1.0,)}
    for step in range(5, 99):
        steps.add(0, float(step), step)
    steps.add(None, 1.0, 1)
    steps.add(1, 1.0, None)
    assert [len(times) for times in steps.times.values()] == [24]


def test_after_a_failure_the_ranks_that_failed_are_first_with_how_they_ended() -> None:
    ends = {1: RankEnd(exit_code=7), 2: RankEnd(signal=15, signal_name="SIGTERM", by_launcher=True)}
    states = at_end(compared(ranks((9, 99.0), (9, 99.0), (7, 99.0)), {}, NOW), ends)
    assert [(state.rank.number, state.condition, state.end) for state in states] == [
        (1, "failed", "exited with code 7"), (2, "ended", "ended by the launcher (SIGTERM)"), (0, "ended", ""),
    ]  # fmt: skip


PARTS = (None, 0, 1, 2)
PAIRS = tuple(itertools.product(PARTS, repeat=2))


@pytest.mark.parametrize("epochs", PAIRS)
@pytest.mark.parametrize("steps", PAIRS)
def test_the_front_of_positions_is_after_those_that_are_before_one_of_them(
    epochs: tuple[int | None, ...], steps: tuple[int | None, ...]
) -> None:
    def is_before(one: Position, other: Position) -> bool:
        if None not in (one.epoch, other.epoch) and one.epoch != other.epoch:
            return bool(one.epoch < other.epoch)  # type: ignore[operator]
        return None not in (one.global_step, other.global_step) and bool(
            one.global_step < other.global_step  # type: ignore[operator]
        )

    positions = [Position(epoch, None, step) for epoch, step in zip(epochs, steps, strict=True)]
    front = Front(iter(positions))  # each is looked at once, however many there are
    for epoch, step in PAIRS:
        position = Position(epoch, None, step)
        assert front.is_after(position) == any(is_before(position, other) for other in positions)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("tokens_per_second", "tokens/s"), ("tokens/s", "tokens/s"), ("tps", "tokens/s"), ("images/sec", "images/s"),
        ("total_samples_per_second", "samples/s"), ("results.throughput", "images/s"), ("iterations_per_second", None),
        ("grad/s_norm", None), ("loss", None), ("step_time", None),
    ],
)  # fmt: skip
def test_a_rate_is_known_by_the_form_of_its_name(name: str, unit: str | None) -> None:
    assert (rate_unit(name) if is_rate(name) else None) == unit
