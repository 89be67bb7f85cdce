"""Autoscale."""

from __future__ import annotations

from batchtrain.verify.probe import Area, Probe, by_hand
from batchtrain.verify.readings import target
from batchtrain.verify.reasons import NO_PREEMPTION, NO_SPOT
from batchtrain.verify.recorded_answers import formula

PROBES = (
    Probe("fraction",
        "A target with a fraction is rounded down. Formulas therefore add 0.999, so that a fraction of a node becomes "
        "a node and 0 stays 0. If Azure rounds to the nearest number, a pool has at most one more node of each kind",
        "memory", "the formula `$TargetDedicatedNodes = 1.9;`",
        "service/fraction", lambda value: target(value) == 1,
        right=formula("1"), wrong=formula("2"), unread={"values": {}, "error": True},
        code="batchtrain/plan/autoscale.py batchtrain/formula.py"),
    Probe("pending-gangs",
        "A waiting multi-instance task counts once per instance in `$ActiveTasks` and in `$PendingTasks`. The count "
        "of a running one, which the report shows in `$PendingTasks`, is not documented",
        "documentation; batch-shipyard #343",
        "`tasks = $PendingTasks.GetSample(1);` before and after a gang of 4 starts",
        "service/pending",
        lambda value: int(value["active"]) == value["instances"] and int(value["pending"]) >= value["instances"],
        right={"instances": 2, "active": "2", "pending": "4"}, wrong={"instances": 2, "active": "1", "pending": "2"},
        unread={"instances": 2, "active": None, "pending": None}, code="batchtrain/plan/autoscale.py"),
    Probe("branches",
        "A branch of `?:` that is not taken is not evaluated, so `GetSample` without samples is not an error there",
        "samples of the documentation", "a scenario's formula on a new pool: `errors` is empty",
        "service/branch", lambda value: value["error"] is False and target(value) == 2,
        right=formula("2"), wrong=formula("2", error=True), unread={"error": False},
        code="batchtrain/plan/autoscale.py batchtrain/formula.py"),
    by_hand("preempted-nodes",
        "`$CurrentLowPriorityNodes` counts preempted nodes too; `$PreemptedNodeCount` has samples while there are "
        "spot nodes", "documentation", "`n = $PreemptedNodeCount.GetSample(1);` after a preemption",
        code="batchtrain/plan/autoscale.py", why=NO_PREEMPTION, not_local=NO_SPOT),
    Probe("weekday", "The weekday of a time is 0 on Sunday", "documentation", "`d = time().weekday;` on a Sunday",
        "service/weekday", lambda value: target(value) == 0,
        right=formula("0"), wrong=formula("7"), unread=formula("Sunday"),
        code="batchtrain/plan/autoscale.py batchtrain/formula.py"),
    Probe("utc", "`time()` in a formula is UTC", "documentation", "the formula `$TargetDedicatedNodes = time().hour;`",
        "service/hour", lambda value: target(value) in (value["hour"], (value["hour"] + 1) % 24),
        right=formula("13"), wrong=formula("15"), unread={"values": {}, "error": True, "hour": 13},
        code="batchtrain/plan/autoscale.py batchtrain/formula.py"),
)  # fmt: skip

AREA = Area(
    "autoscale",
    "Autoscale",
    (
        "Tested: the formula of every scenario, with our own evaluator of the language, which follows the "
        "documentation. `az batch pool autoscale evaluate --pool-id ID --auto-scale-formula FORMULA` verifies each "
        "row on your own pool."
    ),
    PROBES,
)
