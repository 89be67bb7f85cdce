"""The minimum and maximum nodes of a scaling scenario, and its contradictions; no formulas, no requests.

The rules and the planner ask the same function, so that what is valid can be planned.
"""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.config.types import Autoscale, NodeCaps, Path, Pool, Scenario, VmCount

BY_WORK = ("active_tasks", "pending_tasks")
"""Scenarios that follow the number of tasks; the others follow days and hours."""
IDLE_LEAST = 300
"""Seconds between two evaluations of the formula of an idle timeout: the fewest that the service takes."""
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


def most_nodes(pool: Pool) -> VmCount:
    """The maximum number of nodes of a pool; for a custom formula only the initial number is known."""
    scaling = scaling_of(pool)
    scenario = scaling.scenario if scaling is not None and not scaling.formula else None
    if scenario is None:
        return pool.vm_count
    most = scenario.maximum_vm_count
    return VmCount(
        dedicated=max(pool.vm_count.dedicated, most.dedicated or 0),
        low_priority=max(pool.vm_count.low_priority, most.low_priority or 0),
    )


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
