"""The minimum and maximum nodes of a pool, and the contradictions of a scaling scenario; no requests.

The rules and the planner ask the same function, so that what is valid can be planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from batchtrain.config.types import Autoscale, NodeCaps, Path, Pool, Scenario, VmCount

BY_WORK = ("active_tasks", "pending_tasks")
"""Scenarios that follow the number of tasks; the others follow days and hours."""
IDLE_LEAST = 300
"""Seconds between two evaluations of the formula of an idle timeout: the fewest that the service takes."""
TARGETS = {"dedicated": "$TargetDedicatedNodes", "low_priority": "$TargetLowPriorityNodes"}
"""The variables of a formula that set the number of nodes of each kind."""
OFF_PEAK = "workday_with_offpeak_max_low_priority"


def scaling_of(pool: Pool) -> Autoscale | None:
    """How a pool scales; the word `to_zero` as the block that it stands for."""
    if pool.autoscale != "to_zero":
        return pool.autoscale
    most = NodeCaps(dedicated=pool.vm_count.dedicated, low_priority=pool.vm_count.low_priority)
    return Autoscale(evaluation_interval="00:05:00", scenario=Scenario(name="pending_tasks", maximum_vm_count=most))


def least_of(pool: Pool) -> VmCount:
    """The minimum of each kind of node under a scenario."""
    return VmCount() if pool.autoscale == "to_zero" else pool.vm_count


class MostNodes(NamedTuple):
    """The maximum number of nodes of each kind; None without a limit."""

    dedicated: int | None
    low_priority: int | None

    @property
    def total(self) -> int | None:
        """Of both kinds."""
        return None if self.dedicated is None or self.low_priority is None else self.dedicated + self.low_priority


def most_nodes(pool: Pool) -> MostNodes:
    """The maximum number of nodes of a pool, whatever sets it."""
    scaling, least = scaling_of(pool), pool.vm_count
    if scaling is not None and scaling.formula:
        from batchtrain.config import formula_bounds  # 10 ms, and only where there is a formula

        return MostNodes(*formula_bounds.most_targets(scaling.formula))
    if scaling is None or scaling.scenario is None:
        return MostNodes(least.dedicated, least.low_priority)
    limits = scaling.scenario.maximum_vm_count
    kinds = ((least.dedicated, limits.dedicated), (least.low_priority, limits.low_priority))
    return MostNodes(*(None if (most := most_of(*kind)) is None else max(most, kind[0]) for kind in kinds))


def maximum_path(pool: Pool, kind: str = "") -> Path:
    """The property that sets the maximum number of nodes, or that of one kind; the path starts at the pool."""
    scaling = scaling_of(pool)
    if scaling is not None and scaling.formula:
        return ("autoscale", "formula")
    is_scenario = scaling is not None and scaling.scenario is not None and pool.autoscale != "to_zero"
    return (*(("autoscale", "scenario", "maximum_vm_count") if is_scenario else ("vm_count",)), *filter(None, (kind,)))


def unlimited(pool: Pool) -> str:
    """The kinds of node without a maximum number, and what to write; empty if each kind has one."""
    kinds = [kind for kind, most in most_nodes(pool)._asdict().items() if most is None]
    if not kinds:
        return ""
    if "formula" in maximum_path(pool):
        targets = [TARGETS[kind] for kind in kinds]
        text = f"`autoscale.formula` gives {' and '.join(targets)} no maximum that can be computed"
        return f"{text}; write `{targets[0]} = min(NUMBER, ...);`"
    paths = " and ".join(f"`{'.'.join(map(str, maximum_path(pool, kind)))}`" for kind in kinds)
    return f"{paths}: -1 is no limit; write a number"


def most_of(least: int, maximum: int | None) -> int | None:
    """The maximum of a kind of node: below 0 means no limit (None); by default the minimum."""
    if maximum is None:
        return least
    return None if maximum < 0 else maximum


def goes_to_the_most(scenario: Scenario) -> tuple[str, ...]:
    """The kinds of node whose maximum a scenario of days and hours needs."""
    if scenario.name in BY_WORK:
        return ()
    without = {"dedicated": "low_priority", "low_priority": "dedicated"}.get(scenario.bias_node_type or "")
    if scenario.name == OFF_PEAK and without == "low_priority":  # the number of spot nodes is always the maximum there
        without = None
    return tuple(kind for kind in ("dedicated", "low_priority") if kind != without)


def faults(scenario: Scenario, count: VmCount) -> Iterator[tuple[Path, str]]:
    """The faults of a scenario; paths start at the scenario. `count` is the minimum of each kind."""
    for kind in ("dedicated", "low_priority"):
        least = getattr(count, kind)
        most = most_of(least, getattr(scenario.maximum_vm_count, kind))
        path: Path = ("maximum_vm_count", kind)
        if most is not None and most < least:
            yield path, f"the maximum is {most}, less than the minimum of {least} (`vm_count`)"
        if most is None and kind in goes_to_the_most(scenario):
            yield path, f"`{scenario.name}` needs a maximum number of nodes, but there is no limit; write 0 or more"
