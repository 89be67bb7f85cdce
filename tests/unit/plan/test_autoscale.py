"""Autoscale scenarios: how many nodes a formula asks for, given the work, the clock and what is there already."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.config.types import Job, Pool, Scenario, VmCount
from batchtrain.errors import PlanError
from batchtrain.formula import MOST_BYTES, Seen, evaluate, judge
from batchtrain.plan import autoscale

GOLDEN = Path(__file__).parents[2] / "golden" / "autoscale"
MONDAY = datetime(2026, 11, 23, 13, 0, tzinfo=timezone.utc)
NAMES = ("active_tasks", "pending_tasks", "workday", "workday_with_offpeak_max_low_priority", "weekday", "weekend")


def scenario(name: str = "pending_tasks", dedicated: int = 16, spot: int = 16, **more: Any) -> Scenario:
    most = {"dedicated": dedicated, "low_priority": spot}
    return msgspec.convert({"name": name, "maximum_vm_count": most, **more}, Scenario)


def samples_of(tasks: Sequence[float], now: datetime = MONDAY) -> tuple[tuple[datetime, float], ...]:
    """A sample every 30 s; the last one is of now."""
    times = [now - timedelta(seconds=30) * n for n in range(len(tasks))][::-1]
    return tuple(zip(times, tasks, strict=True))


def nodes(
    asked: Scenario, *tasks: float, least: tuple[int, int] = (0, 0), a_node: int = 1, now: datetime = MONDAY,
    current: tuple[int, int] = (0, 0), preempted: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """Dedicated and spot nodes, when the samples of the last minutes were these."""
    count = VmCount(dedicated=least[0], low_priority=least[1])
    samples = dict.fromkeys(("$PendingTasks", "$ActiveTasks"), samples_of(tasks, now))
    samples |= {"$CurrentDedicatedNodes": ((now, current[0]),), "$CurrentLowPriorityNodes": ((now, current[1]),)}
    samples |= {"$PreemptedNodeCount": ((now, preempted),)}
    result = evaluate(autoscale.formula_of(asked, count, a_node), Seen(now, samples))
    return result.dedicated, result.low_priority


def steady(tasks: float) -> tuple[float, ...]:
    return (tasks,) * 20


def pool(**more: Any) -> Pool:
    return msgspec.convert({"id": "p", "vm_configuration": {}, "vm_size": "x", **more}, Pool)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bias", ["auto", "dedicated", "low_priority"])
def test_every_formula_fits_the_service(name: str, bias: str) -> None:
    asked = scenario(
        name,
        bias_node_type=bias,
        rebalance_preemption_percentage=50,
        maximum_vm_increment_per_evaluation={"dedicated": 4, "low_priority": 4},
        time_ranges={"weekdays": {"start": 5, "end": 1}, "work_hours": {"start": 22, "end": 5}},
    )
    text = autoscale.formula_of(asked, VmCount())
    assert judge(text) == ()
    assert len(text) < MOST_BYTES / 4


@pytest.mark.parametrize("tasks", range(8))
def test_nodes_are_as_many_as_the_tasks_that_wait_and_run(tasks: int) -> None:
    assert sum(nodes(scenario(), *steady(tasks))) == tasks


@pytest.mark.parametrize(("tasks", "wanted"), [(0, 0), (1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_begun_node_is_a_whole_node(tasks: int, wanted: int) -> None:
    for bias in ("auto", "dedicated", "low_priority"):
        assert sum(nodes(scenario(bias_node_type=bias), *steady(tasks), a_node=4)) == wanted


@pytest.mark.parametrize("tasks", [x / 4 for x in range(1, 40)])
def test_an_average_with_a_fraction_loses_no_node(tasks: float) -> None:
    for bias in ("auto", "dedicated", "low_priority"):
        assert sum(nodes(scenario(bias_node_type=bias), *steady(tasks))) == -(-tasks // 1)


def test_both_kinds_share_the_work_and_dedicated_gets_the_odd_node() -> None:
    assert nodes(scenario(), *steady(4)) == (2, 2)
    assert nodes(scenario(), *steady(5)) == (3, 2)


def test_what_one_kind_may_not_have_goes_to_the_other() -> None:
    assert nodes(scenario(dedicated=1), *steady(8)) == (1, 7)
    assert nodes(scenario(spot=1), *steady(8)) == (7, 1)
    assert nodes(scenario(spot=0), *steady(8)) == (8, 0)


def test_the_preferred_kind_comes_first() -> None:
    assert nodes(scenario(dedicated=4, bias_node_type="dedicated"), *steady(6)) == (4, 2)
    assert nodes(scenario(spot=4, bias_node_type="low_priority"), *steady(6)) == (2, 4)


def test_the_count_of_the_pool_is_the_least() -> None:
    assert nodes(scenario(), *steady(0), least=(2, 1)) == (2, 1)
    assert nodes(scenario(), *steady(6), least=(5, 0)) == (5, 1)


@pytest.mark.parametrize(("tasks", "wanted"), [(0.0, 0), (3.0, 3), (100.0, 4)])
def test_to_zero_is_no_node_without_work_and_the_count_of_the_pool_at_most(tasks: float, wanted: int) -> None:
    formula = autoscale.formula(pool(vm_count={"dedicated": 4}, autoscale="to_zero")) or ""
    seen = Seen(MONDAY, {"$PendingTasks": samples_of(steady(tasks))})
    assert evaluate(formula, seen).dedicated == wanted


def test_the_maximum_is_the_most() -> None:
    assert nodes(scenario(dedicated=3, spot=2), *steady(100)) == (3, 2)


def test_a_negative_maximum_is_no_limit() -> None:
    assert nodes(scenario(dedicated=-1, spot=0), *steady(5000)) == (5000, 0)


def test_a_kind_without_a_maximum_stays_at_its_least() -> None:
    asked = msgspec.convert({"name": "pending_tasks", "maximum_vm_count": {"dedicated": 8}}, Scenario)
    assert nodes(asked, *steady(20), least=(0, 1)) == (8, 1)


def test_new_work_counts_at_once_and_done_work_half() -> None:
    asked = scenario(spot=0)
    assert nodes(asked, *(0,) * 19, 10) == (10, 0)
    assert nodes(asked, *(10,) * 19, 0) == (5, 0)  # half way between the last sample, 0, and the average, 9.5


def test_without_bias_the_average_counts() -> None:
    assert nodes(scenario(spot=0, bias_last_sample=False), *(0,) * 10, *(10,) * 10) == (5, 0)


def test_without_bias_and_with_too_few_samples_the_number_of_nodes_stays() -> None:
    asked = scenario(bias_last_sample=False)
    assert nodes(asked, 10, 10, current=(2, 1)) == (2, 1)
    assert nodes(asked, current=(0, 0), least=(1, 0)) == (1, 0)


def test_with_bias_and_too_few_samples_the_last_one_counts() -> None:
    assert nodes(scenario(spot=0), 9, 1) == (1, 0)
    assert nodes(scenario(spot=0), least=(1, 0)) == (1, 0)


def test_no_more_nodes_come_at_once_than_allowed() -> None:
    asked = scenario(spot=0, maximum_vm_increment_per_evaluation={"dedicated": 3, "low_priority": -1})
    assert nodes(asked, *steady(10), current=(2, 0)) == (5, 0)
    assert nodes(asked, *steady(10), current=(0, 0), least=(4, 0)) == (4, 0)
    assert nodes(asked, *steady(1), current=(9, 0)) == (1, 0)


@pytest.mark.parametrize(("preempted", "wanted"), [(0, (0, 8)), (3, (0, 8)), (4, (4, 4)), (6, (6, 2)), (9, (8, 0))])
def test_preempted_spot_nodes_above_the_percentage_become_dedicated(preempted: int, wanted: tuple[int, int]) -> None:
    asked = scenario(bias_node_type="low_priority", rebalance_preemption_percentage=50)
    assert nodes(asked, *steady(8), current=(0, 8), preempted=preempted) == wanted


def test_rebalancing_keeps_the_number_of_nodes_when_both_kinds_share() -> None:
    asked = scenario(rebalance_preemption_percentage=25)
    assert nodes(asked, *steady(8), current=(4, 4), preempted=3) == (7, 1)
    assert nodes(asked, *steady(8), current=(4, 4), preempted=1) == (4, 4)


def test_rebalancing_stops_at_the_most_dedicated_nodes() -> None:
    asked = scenario(dedicated=2, bias_node_type="low_priority", rebalance_preemption_percentage=25)
    assert nodes(asked, *steady(8), current=(0, 8), preempted=6) == (2, 6)


def test_a_waiting_gang_counts_one_node_for_each_instance() -> None:
    active = {"scenario": {"name": "active_tasks", "maximum_vm_count": {"dedicated": 8}}}
    scaled = pool(task_slots_per_node=4, autoscale=active)
    gang = msgspec.convert({"id": "j", "tasks": [{"multi_instance": {"num_instances": 4}}]}, Job)
    large = msgspec.convert({"id": "j", "tasks": [{"required_slots": 2}, {}]}, Job)
    assert [autoscale.tasks_a_node(scaled, jobs) for jobs in ([gang], [large], [])] == [1, 2, 4]
    assert "tasksPerNode = 1;" in (autoscale.formula(scaled, [gang]) or "")


def test_a_formula_of_ones_own_wins() -> None:
    assert autoscale.formula(pool(autoscale={"formula": "$TargetDedicatedNodes=1;"})) == "$TargetDedicatedNodes=1;"


# --- days and hours -------------------------------------------------------------------------------------------------


def at(day: int, hour: int) -> datetime:
    """That hour of a weekday, of which 0 is Sunday."""
    return datetime(2026, 11, 22 + day, hour, 30, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("day", "hour", "wanted"), [(1, 8, 9), (1, 17, 9), (1, 7, 1), (1, 18, 1), (0, 12, 1), (6, 12, 1)]
)
def test_a_workday_has_the_most_nodes_from_its_first_to_its_last_hour(day: int, hour: int, wanted: int) -> None:
    assert nodes(scenario("workday", 9, 0), now=at(day, hour), least=(1, 0)) == (wanted, 0)


@pytest.mark.parametrize(("day", "peak"), [(0, False), (1, True), (5, True), (6, False)])
def test_weekdays_and_weekends_are_each_others_rest(day: int, peak: bool) -> None:
    assert nodes(scenario("weekday", 9, 0), now=at(day, 3)) == ((9, 0) if peak else (0, 0))
    assert nodes(scenario("weekend", 9, 0), now=at(day, 3)) == ((0, 0) if peak else (9, 0))


@pytest.mark.parametrize(("day", "peak"), [(4, False), (5, True), (6, True), (0, True), (1, True), (2, False)])
def test_a_range_of_days_may_go_round_the_week(day: int, peak: bool) -> None:
    ranges = {"weekdays": {"start": 5, "end": 1}}
    assert nodes(scenario("weekday", 9, 0, time_ranges=ranges), now=at(day, 3)) == ((9, 0) if peak else (0, 0))


@pytest.mark.parametrize(
    ("day", "hour", "peak"),
    [(5, 21, False), (5, 22, True), (6, 5, True), (6, 6, False), (6, 22, False), (1, 2, False), (1, 23, True)],
)
def test_a_night_shift_ends_on_the_day_after_it_began(day: int, hour: int, peak: bool) -> None:
    asked = scenario("workday", 9, 0, time_ranges={"work_hours": {"start": 22, "end": 5}})
    assert nodes(asked, now=at(day, hour)) == ((9, 0) if peak else (0, 0))


def test_off_peak_the_most_spot_nodes_stay() -> None:
    asked = scenario("workday_with_offpeak_max_low_priority", 9, 5)
    assert nodes(asked, now=at(1, 12)) == (9, 5)
    assert nodes(asked, now=at(0, 12)) == (0, 5)


def test_a_preferred_kind_alone_follows_the_clock() -> None:
    assert nodes(scenario("weekday", 9, 5, bias_node_type="dedicated"), now=at(1, 3), least=(0, 1)) == (9, 1)
    assert nodes(scenario("weekday", 9, 5, bias_node_type="low_priority"), now=at(1, 3)) == (0, 5)


def test_the_clock_without_a_maximum_is_refused() -> None:
    with pytest.raises(PlanError, match=r"maximum_vm_count\.low_priority: .*there is no limit"):
        autoscale.formula_of(scenario("weekday", 9, -1), VmCount())


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_the_golden_one(name: str) -> None:
    asked = scenario(
        name,
        bias_node_type={"active_tasks": "low_priority", "pending_tasks": None}.get(name, "auto"),
        bias_last_sample=name != "active_tasks",
        rebalance_preemption_percentage=50 if name == "active_tasks" else None,
        maximum_vm_increment_per_evaluation={"dedicated": 4, "low_priority": -1} if name == "pending_tasks" else None,
        time_ranges={"work_hours": {"start": 22, "end": 5}} if name == "workday" else {},
    )
    text = autoscale.formula_of(asked, VmCount(dedicated=1), 2)
    assert text == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([0.0] * 60, (0, 0)),
        ([1.0] + [0.0] * 58, (3, 1)),
        ([0.0] * 59 + [1.0], (3, 1)),
        ([0.0] * 20, (3, 1)),
        ([], (3, 1)),
    ],
    ids=["idle for the whole time", "a task just within the time", "a task now", "too few samples", "a new pool"],
)
def test_a_pool_that_idles_to_zero_keeps_its_nodes_until_the_time_is_over(
    tasks: list[float], expected: tuple[int, int]
) -> None:
    formula = autoscale.idle_to_zero(VmCount(dedicated=3, low_priority=1), 1800)
    result = evaluate(formula, Seen(MONDAY, {"$PendingTasks": samples_of(tasks)}))
    assert (result.dedicated, result.low_priority) == expected
    assert "lookback = TimeInterval_Minute * 30;" in formula
