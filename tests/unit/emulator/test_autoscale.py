"""Pools that size themselves, without a clock: the formula, its interval, its samples, its refusals."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.config.types import VmCount
from batchtrain.emulator import autoscale, node_reports, pools, tasks, wire
from batchtrain.emulator.autoscale_samples import NUMBERS, PERIOD, History
from batchtrain.emulator.records import Pool
from batchtrain.formula import METRICS
from batchtrain.plan.autoscale import idle_to_zero
from tests.emulation import POOL, START, Stage, document

BY_TASKS = "$TargetDedicatedNodes = min(4, $PendingTasks.GetSample(1));"
AUTO = {"enableAutoScale": True, "autoScaleFormula": BY_TASKS, "autoScaleEvaluationInterval": "PT5M"}


def make(stage: Stage, **more: object) -> Pool:
    stage.do(pools.create_pool, body={**POOL, **AUTO, **more})
    stage.boot()
    return stage.world.pool("pool").record


def seen(stage: Stage) -> dict[str, Any]:
    return document(stage.do(pools.get_pool, "pool"))


def code(stage: Stage, operation: Any, body: object) -> str:
    return stage.refusal(operation, "pool", body=body).code


def test_the_numbers_are_those_the_language_knows() -> None:
    assert NUMBERS == METRICS


def test_a_new_pool_is_evaluated_at_once(stage: Stage) -> None:
    make(stage, autoScaleFormula="$TargetDedicatedNodes = 2; $n = 1 + 1;")
    found = seen(stage)
    assert (found["targetDedicatedNodes"], found["currentDedicatedNodes"], found["allocationState"]) == (2, 2, "steady")
    assert found["autoScaleRun"] == {
        "timestamp": wire.timestamp(START),
        "results": "$TargetDedicatedNodes=2;$TargetLowPriorityNodes=0;$NodeDeallocationOption=requeue;$n=2",
    }


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pool_follows_its_tasks_on_its_interval_and_its_etag_stays(stage: Stage, *, restarts: bool) -> None:
    make(stage)
    stage = stage.restarted() if restarts else stage
    pool = stage.world.pool("pool").record
    tag, task = pool.etag, stage.task()
    stage.task("other")
    stage.later(299)
    stage.boot()
    assert pool.target_dedicated == 0
    stage.later(1)
    stage.boot()
    assert (pool.target_dedicated, task.state) == (2, "running")
    stage.exits(task)
    stage.later(300)
    stage.settle()
    assert (pool.target_dedicated, pool.etag) == (1, tag)


def test_a_pool_that_idles_to_zero_loses_its_nodes_and_a_task_brings_them_back(stage: Stage) -> None:
    pool, targets = make(stage, autoScaleFormula=idle_to_zero(VmCount(dedicated=3), 1800)), list[int]()
    for minute in range(0, 60, 5):
        targets.append(pool.target_dedicated)
        if minute == 45:
            stage.task()
        stage.later(300)
        stage.boot()
    assert targets == [3] * 5 + [0] * 5 + [3] * 2


def test_a_formula_that_fails_leaves_the_pool_as_it_is_and_says_why(stage: Stage) -> None:
    pool = make(stage, autoScaleFormula="$TargetDedicatedNodes = avg($ActiveTasks.GetSample(TimeInterval_Hour, 90));")
    error = seen(stage)["autoScaleRun"]["error"]
    assert error["code"] == "InsufficientSampleData"  # Azure/batch-shipyard issue 138
    assert "$ActiveTasks wanted 90%, received " in error["values"][0]["value"]
    assert (pool.target_dedicated, pool.allocation) == (0, "steady")


def test_a_formula_cannot_mix_dedicated_and_spot_on_an_inter_node_pool(stage: Stage) -> None:
    both = "$TargetDedicatedNodes = 1; $TargetLowPriorityNodes = 1;"
    pool = make(stage, autoScaleFormula=both, enableInterNodeCommunication=True)
    assert "cannot have both" in seen(stage)["autoScaleRun"]["error"]["values"][0]["value"]
    assert (pool.target_dedicated, pool.target_spot) == (0, 0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"autoScaleFormula": "$TargetDedicatedNodes = ;"}, "AutoScalingFormulaSyntaxError"),
        ({"autoScaleFormula": None}, "InvalidAutoScalingSettings"),
        ({"targetDedicatedNodes": 1}, "InvalidAutoScalingSettings"),
        ({"enableAutoScale": False}, "InvalidAutoScalingSettings"),
    ],
)
def test_settings_that_cannot_be_are_refused(stage: Stage, change: dict[str, object], expected: str) -> None:
    assert stage.refusal(pools.create_pool, body={**POOL, **AUTO, **change}).code == expected
    assert not stage.world.pools


def test_a_pool_with_autoscale_is_not_resized_by_hand(stage: Stage) -> None:
    make(stage)
    assert code(stage, pools.resize_pool, {"targetDedicatedNodes": 1}) == "OperationNotValidOnPool"


def test_autoscale_is_enabled_and_disabled(stage: Stage) -> None:
    stage.pool(1)
    settings = {"autoScaleFormula": "$TargetDedicatedNodes = 3;"}
    assert stage.do(autoscale.enable, "pool", body=settings).status == 200
    stage.boot()
    enabled = {**settings, "enableAutoScale": True, "autoScaleEvaluationInterval": "PT15M", "currentDedicatedNodes": 3}
    assert enabled.items() <= seen(stage).items()
    assert stage.do(autoscale.disable, "pool").status == 200
    stage.later(3600)
    stage.settle()
    found = seen(stage)
    assert not found["enableAutoScale"] and not {"autoScaleFormula", "autoScaleRun"} & found.keys()
    assert found["currentDedicatedNodes"] == 3


@pytest.mark.parametrize("disables", [False, True])
def test_enabling_again_keeps_omitted_settings_and_waits_30_seconds(stage: Stage, *, disables: bool) -> None:
    make(stage)
    stage.do(autoscale.enable, "pool", body={"autoScaleFormula": BY_TASKS})
    if disables:
        stage.do(autoscale.disable, "pool")
    again = {"autoScaleEvaluationInterval": "PT1H", **({"autoScaleFormula": BY_TASKS} if disables else {})}
    assert code(stage, autoscale.enable, again) == "TooManyEnableAutoScaleRequests"
    stage.later(30)
    stage.do(autoscale.enable, "pool", body=again)
    found = seen(stage)
    assert (found["autoScaleFormula"], found["autoScaleEvaluationInterval"]) == (BY_TASKS, "PT1H")


def test_enabling_needs_a_formula_and_a_steady_pool(stage: Stage) -> None:
    stage.do(pools.create_pool, body={**POOL, "targetDedicatedNodes": 1})
    assert code(stage, autoscale.enable, {"autoScaleFormula": BY_TASKS}) == "PoolBeingResized"
    stage.boot()
    assert code(stage, autoscale.enable, {}) == "InvalidAutoScalingSettings"
    assert code(stage, autoscale.enable, {"autoScaleFormula": "?"}) == "AutoScalingFormulaSyntaxError"
    assert code(stage, autoscale.evaluate, {"autoScaleFormula": BY_TASKS}) == "OperationNotValidOnPool"


def test_an_evaluation_changes_nothing(stage: Stage) -> None:
    make(stage)
    answer = document(stage.do(autoscale.evaluate, "pool", body={"autoScaleFormula": "$TargetDedicatedNodes = 9;"}))
    assert answer["results"].startswith("$TargetDedicatedNodes=9;")
    assert (seen(stage)["targetDedicatedNodes"], seen(stage)["autoScaleFormula"]) == (0, BY_TASKS)


def evaluated(stage: Stage, text: str) -> str:
    answer = document(stage.do(autoscale.evaluate, "pool", body={"autoScaleFormula": text}))
    return str(answer["results"].partition("requeue;")[2] or answer)


def test_a_multi_instance_task_counts_once_an_instance_and_a_dependant_not_at_all(stage: Stage) -> None:
    make(stage, autoScaleFormula="$TargetDedicatedNodes = 0;", enableInterNodeCommunication=True)
    stage.job(usesTaskDependencies=True)
    stage.gang(3)
    stage.task("after", dependsOn={"taskIds": ["task"]})
    assert evaluated(stage, "$a = $ActiveTasks + 0; $p = $PendingTasks + 0;") == "$a=3;$p=3"


def test_nodes_and_slots_are_seen(stage: Stage) -> None:
    make(stage, autoScaleFormula="$TargetDedicatedNodes = 2; $TargetLowPriorityNodes = 1;", taskSlotsPerNode=2)
    spot = next(node for node in stage.nodes() if not node.dedicated)
    stage.task()
    stage.settle()
    names = {"d": "CurrentDedicatedNodes", "s": "CurrentLowPriorityNodes", "u": "UsableNodeCount", "r": "RunningTasks"}
    text = "".join(f"${short} = ${name} + 0;" for short, name in names.items())
    assert evaluated(stage, text) == "$d=2;$s=1;$u=3;$r=1"
    node_reports.node_preempted(stage.world, spot.id, None, stage.now)
    assert evaluated(stage, "$p=$PreemptedNodeCount + 0; $u=$UsableNodeCount + 0;") == "$p=1;$u=2"


def test_samples_are_half_minutes_apart_and_the_last_is_of_now() -> None:
    history = History()
    base = 1000 * PERIOD
    zero = (0.0,) * len(NUMBERS)
    one = (1.0,) * len(NUMBERS)
    history.note(base + 1, zero)
    history.note(base + PERIOD + 1, one)
    history.note(base + PERIOD + 2, zero)
    history.note(base + 4 * PERIOD - 1, one)
    found = history.samples(["$ActiveTasks"], base + 4 * PERIOD + 5)["$ActiveTasks"]
    moments = [base + 1 * PERIOD, base + 2 * PERIOD, base + 3 * PERIOD, base + 4 * PERIOD, base + 4 * PERIOD + 5]
    assert [at for at, _ in found] == [wire.as_datetime(moment) for moment in moments]
    assert [value for _, value in found] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_formula_reads_what_was_there_between_its_evaluations(stage: Stage, *, restarts: bool) -> None:
    make(stage, autoScaleFormula="$TargetDedicatedNodes = 0;")
    stage = stage.restarted() if restarts else stage
    stage.later(60)
    stage.task()
    stage.settle()
    stage.later(60)
    stage.do(tasks.delete_task, "job", "task")
    stage.settle()
    stage.later(60)
    assert evaluated(stage, "$most = max($ActiveTasks.GetSample(10)); $now = $ActiveTasks + 0;") == "$most=1;$now=0"


def test_what_changes_within_half_a_minute_is_kept_once() -> None:
    history = History()
    for number in range(1000):
        history.note(1000 * PERIOD + number + 1, (float(number),) * len(NUMBERS))
    assert len(history._steps) == 1


def test_a_day_of_samples_is_kept(stage: Stage) -> None:
    make(stage, autoScaleFormula="$TargetDedicatedNodes = 0;")
    stage.later(3 * 86_400)
    stage.settle()
    assert evaluated(stage, "$n = $ActiveTasks.Count();") in ("$n=2880", "$n=2881")


def test_a_smaller_target_takes_nodes_with_the_formulas_option(stage: Stage) -> None:
    make(stage, autoScaleFormula="$TargetDedicatedNodes = 1;")
    task = stage.run_task()
    stage.later(60)
    fewer = "$TargetDedicatedNodes = 0; $NodeDeallocationOption = taskcompletion;"
    stage.do(autoscale.enable, "pool", body={"autoScaleFormula": fewer})
    assert stage.settle() == []
    assert (stage.nodes()[0].state, task.state) == ("leavingpool", "running")
    assert stage.world.pool("pool").record.deallocation == "taskcompletion"
