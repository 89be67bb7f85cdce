"""Autoscale formulas from scenarios: how many nodes follow how much work, or which days and hours; text only.

Language: Azure's "Create a formula to automatically scale compute nodes in a Batch pool" (variables, sampling).
Assumptions about the service are listed in docs/explanation/untested-on-azure.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from batchtrain.config.scaling import OFF_PEAK, TARGETS, faults, least_of, most_of, scaling_of
from batchtrain.config.schema import dotted
from batchtrain.config.times import duration
from batchtrain.config.types import MOST_NODES, Job, NodeCaps, Pool, Scenario, VmCount, seconds_of
from batchtrain.errors import PlanError

ENOUGH_SAMPLES = 70
"""Percent of the samples of a time that are there; the last ones come late."""
TASKS = {"active_tasks": "$ActiveTasks", "pending_tasks": "$PendingTasks"}
"""Scenarios that follow the work, and the variable each looks at."""


def formula(pool: Pool, jobs: Iterable[Job] = ()) -> str | None:
    """The pool's formula: its own, else its scenario's, else that of its idle timeout; None for a pool of a fixed size.

    Raises PlanError for limits that contradict each other.
    """
    if pool.idle_timeout is not None and pool.autoscale is None:
        return idle_to_zero(pool.vm_count, duration(pool.idle_timeout) or 0)
    autoscale = scaling_of(pool)
    if autoscale is None:
        return None
    if autoscale.formula:
        return autoscale.formula
    if autoscale.scenario is None:
        return None
    return formula_of(autoscale.scenario, least_of(pool), tasks_a_node(pool, jobs))


def idle_to_zero(count: VmCount, seconds: float) -> str:
    """The nodes of a pool while there is work, and no nodes after so many seconds without a task; a new task brings
    them back. A pool without enough samples, such as a new one, keeps its nodes."""
    lines = [
        "// idle_to_zero: all nodes while a task waits or runs, and none after the lookback without one.",
        *_busy(seconds, count.dedicated, count.low_priority),
        "$NodeDeallocationOption = taskcompletion;",
    ]
    return "\n".join(lines) + "\n"


def then_idle_to_zero(formula: str, seconds: float) -> str:
    """A formula that requests no nodes after so many seconds without a task."""
    head = "// No nodes after the lookback without a task."
    tail = "\n".join((head, *_busy(seconds, *TARGETS.values())))
    return f"{formula.rstrip().removesuffix(tail).rstrip()}\n{tail}\n"


def _busy(seconds: float, dedicated: int | str, spot: int | str) -> list[str]:
    samples = "$PendingTasks.GetSample(lookback)"
    return [
        f"lookback = {_interval(int(seconds))};",
        "percent = $PendingTasks.GetSamplePercent(lookback);",
        f"busy = percent >= {ENOUGH_SAMPLES} ? max({samples}) : 1;",
        f"$TargetDedicatedNodes = busy > 0 ? {dedicated} : 0;",
        f"$TargetLowPriorityNodes = busy > 0 ? {spot} : 0;",
    ]


def tasks_a_node(pool: Pool, jobs: Iterable[Job]) -> int:
    """Tasks that fit on a node at once; 1 where a gang waits, because each of its instances needs a node of its own."""
    tasks = [task for job in jobs for task in job.tasks]
    if any(task.multi_instance for task in tasks):
        return 1
    largest = max((task.required_slots or 1 for task in tasks), default=1)
    return max(1, pool.task_slots_per_node // largest)


def formula_of(scenario: Scenario, count: VmCount, tasks_per_node: int = 1) -> str:
    """A scenario as a formula; `count` is the least of each kind of node.

    Raises PlanError when a maximum is below its minimum, or a scenario of days and hours has no maximum.
    """
    for path, message in faults(scenario, count):
        raise PlanError(f"pool_specification.autoscale.scenario.{dotted(path)}: {message}")
    most = scenario.maximum_vm_count
    lines = [
        f"// {scenario.name}: {_ABOUT[scenario.name]}",
        f"minDedicated = {count.dedicated};",
        f"maxDedicated = {_most(count.dedicated, most.dedicated)}",
        f"minSpot = {count.low_priority};",
        f"maxSpot = {_most(count.low_priority, most.low_priority)}",
        "",
        *(_by_tasks(scenario, tasks_per_node) if scenario.name in TASKS else _by_time(scenario)),
        *_increments(scenario),
        "",
        "$TargetDedicatedNodes = dedicated;",
        "$TargetLowPriorityNodes = spot;",
        f"$NodeDeallocationOption = {scenario.node_deallocation_option};",
    ]
    return "\n".join(lines) + "\n"


_ABOUT = {
    "active_tasks": "as many nodes as the tasks that wait can use.",
    "pending_tasks": "as many nodes as the tasks that wait or run can use.",
    "workday": "the most nodes in working hours of working days, else the least.",
    "workday_with_offpeak_max_low_priority": "the most spot nodes always; the most dedicated ones in working hours.",
    "weekday": "the most nodes on working days, else the least.",
    "weekend": "the most nodes on days that are no working days, else the least.",
}


def _most(least: int, maximum: int | None) -> str:
    limit = most_of(least, maximum)
    return f"{limit};" if limit is not None else f"{MOST_NODES}; // no limit"


def _increments(scenario: Scenario) -> list[str]:
    """At most this number of additional nodes."""
    step = scenario.maximum_vm_increment_per_evaluation or NodeCaps()
    kinds = (("dedicated", "Dedicated", step.dedicated), ("spot", "LowPriority", step.low_priority))
    lines = [
        f"{name} = min({name}, max(min{name.capitalize()}, $Current{metric}Nodes + {most}));"
        for name, metric, most in kinds
        if most is not None and most > 0
    ]
    return ["", "// No more new nodes at once than allowed.", *lines] if lines else []


def _by_tasks(scenario: Scenario, tasks_per_node: int) -> list[str]:
    metric = TASKS[scenario.name]
    lookback = seconds_of(scenario.sample_lookback_interval)
    return [
        "// How much work there was lately; a gang that waits counts each of its instances.",
        f"tasksPerNode = {tasks_per_node};",
        f"lookback = {_interval(lookback)};",
        f"percent = {metric}.GetSamplePercent(lookback);",
        *(_biased if scenario.bias_last_sample else _steady)(metric, f"{scenario.required_sample_percentage:g}"),
        "",
        "// The service drops fractions of a node: fractions are rounded up; without work there is no node.",
        "nodes = tasks / tasksPerNode;",
        "whole = tasks > 0 ? 0.999 : 0;",
        *_preempted(scenario),
        "",
        *_SHARES[scenario.bias_node_type or "auto"],
    ]


def _biased(metric: str, required: str) -> list[str]:
    """The last sample counts at once when there is more work, and half when there is less."""
    return [
        f"last = percent > 0 ? val({metric}.GetSample(1), 0) : 0;",
        f"average = percent > 0 && percent >= {required} ? avg({metric}.GetSample(lookback)) : last;",
        "tasks = last < average ? avg(last, average) : last;",
    ]


def _steady(metric: str, required: str) -> list[str]:
    """The average counts; with too few samples there is work for the nodes there are."""
    return [
        "busy = ($CurrentDedicatedNodes + $CurrentLowPriorityNodes) * tasksPerNode;",
        f"tasks = percent > 0 && percent >= {required} ? avg({metric}.GetSample(lookback)) : busy;",
    ]


def _interval(seconds: int) -> str:
    return f"TimeInterval_Minute * {seconds // 60}" if seconds % 60 == 0 else f"TimeInterval_Second * {seconds}"


def _preempted(scenario: Scenario) -> list[str]:
    """How many spot nodes become dedicated ones, because so many were preempted."""
    limit = scenario.rebalance_preemption_percentage
    if scenario.bias_node_type == "dedicated":  # as many as may be are there anyway
        return []
    if limit is None:
        return ["moved = 0;"]
    return [
        "",
        "// Spot nodes that were preempted, percent of all nodes; dedicated ones take their place.",
        "seen = $PreemptedNodeCount.GetSamplePercent(lookback) > 0;",
        "preempted = seen ? val($PreemptedNodeCount.GetSample(1), 0) : 0;",
        "current = max(1, $CurrentDedicatedNodes + $CurrentLowPriorityNodes);",
        f"moved = 100 * preempted / current >= {limit:g} ? preempted : 0;",
    ]


_SHARES: dict[str, tuple[str, ...]] = {
    "auto": (
        "// Half of each kind; what one kind may not have goes to the other.",
        "upper = min(nodes / 2 + whole + moved, nodes + whole);",
        "lower = min(nodes / 2 + whole / 2 - moved, nodes + whole - minDedicated);",
        "dedicated = min(maxDedicated, max(minDedicated, upper, nodes + whole - maxSpot));",
        "spot = min(maxSpot, max(minSpot, lower, nodes + whole - maxDedicated));",
    ),
    "dedicated": (
        "// Dedicated nodes first; spot nodes for the rest.",
        "dedicated = min(maxDedicated, max(minDedicated, nodes + whole));",
        "spot = min(maxSpot, max(minSpot, nodes + whole - dedicated));",
    ),
    "low_priority": (
        "// Spot nodes first; dedicated nodes for the rest.",
        "spot = min(maxSpot, max(minSpot, nodes + whole - moved, nodes + whole - maxDedicated));",
        "dedicated = min(maxDedicated, max(minDedicated, nodes + whole - spot));",
    ),
}


_DEDICATED, _SPOT = "peak ? maxDedicated : minDedicated", "peak ? maxSpot : minSpot"
_PEAKS: dict[tuple[bool, str], tuple[str, str]] = {
    (False, "auto"): (_DEDICATED, _SPOT),
    (False, "dedicated"): (_DEDICATED, "minSpot"),
    (False, "low_priority"): ("minDedicated", _SPOT),
    (True, "auto"): (_DEDICATED, "maxSpot"),
    (True, "dedicated"): (_DEDICATED, "maxSpot"),
    (True, "low_priority"): ("minDedicated", "maxSpot"),
}
"""By whether spot nodes are always at their most, and the kind to prefer: the numbers of dedicated and spot nodes."""


def _by_time(scenario: Scenario) -> list[str]:
    days, hours = scenario.time_ranges.weekdays, scenario.time_ranges.work_hours
    by_hours = scenario.name.startswith("workday")
    lines = ["// Days begin at midnight UTC; weekday 0 is Sunday.", "now = time();", "day = now.weekday;"]
    if by_hours and hours.start > hours.end:
        lines[2:] = [
            "// Work continues past midnight: the hours after midnight belong to the day before.",
            "before = now.weekday == 0 ? 6 : now.weekday - 1;",
            f"day = now.hour <= {hours.end} ? before : now.weekday;",
        ]
    lines.append(f"workday = {_within('day', days.start, days.end)};")
    if by_hours:
        lines.append(f"workHours = {_within('now.hour', hours.start, hours.end)};")
    peak = "workday && workHours" if by_hours else "workday == 0" if scenario.name == "weekend" else "workday"
    dedicated, spot = _PEAKS[scenario.name == OFF_PEAK, scenario.bias_node_type or "auto"]
    return [*lines, f"peak = {peak};", "", f"dedicated = {dedicated};", f"spot = {spot};"]


def _within(value: str, start: int, end: int) -> str:
    """Whether a value is in a range with both its ends, which may go round."""
    return f"{value} >= {start} {'&&' if start <= end else '||'} {value} <= {end}"
