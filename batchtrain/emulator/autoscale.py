"""Autoscale: checks a pool's formula, evaluates it on its interval, and applies the result; pure."""

from __future__ import annotations

import re

from batchtrain import formula
from batchtrain.emulator import resizing, wire
from batchtrain.emulator.autoscale_samples import NUMBERS, History
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.records import Document
from batchtrain.emulator.reply import ENTITIES, Call, Reply, accepted, data_service_id, element
from batchtrain.emulator.world import Deadline, World

INTERVAL = "PT15M"
SHORTEST, LONGEST = 300 * wire.SECOND, 168 * 3600 * wire.SECOND
PAUSE = 30 * wire.SECOND
"""The minimum time between two enablings for one pool."""
PROPERTIES = ("autoScaleFormula", "autoScaleEvaluationInterval")


def check(document: Document) -> None:
    """The autoscale settings of a new pool. Raises Fault 400."""
    if not document.get("enableAutoScale"):
        for name in PROPERTIES:
            if name in document:
                raise Fault("InvalidAutoScalingSettings", PropertyName=name, Reason="enableAutoScale is not true.")
        return
    for name in ("targetDedicatedNodes", "targetLowPriorityNodes"):
        if name in document:
            raise Fault("InvalidAutoScalingSettings", PropertyName=name, Reason="The formula sets the targets.")
    if "autoScaleFormula" not in document:
        raise Fault("InvalidAutoScalingSettings", PropertyName="autoScaleFormula", Reason="A formula is needed.")
    _check_settings(document)
    document.setdefault("autoScaleEvaluationInterval", INTERVAL)


def _check_settings(document: Document) -> None:
    if "autoScaleFormula" in document:
        try:
            formula.parse(document["autoScaleFormula"])
        except formula.FormulaError as error:
            raise Fault("AutoScalingFormulaSyntaxError", PropertyName="autoScaleFormula", Reason=str(error)) from None
    interval = document.get("autoScaleEvaluationInterval", INTERVAL)
    if not SHORTEST <= wire.parse_duration(interval) <= LONGEST:
        reason = "The interval must be between 5 minutes and 168 hours."
        raise invalid_property("autoScaleEvaluationInterval", interval, reason)


def enable(world: World, call: Call) -> Reply:
    """Enable autoscale, or change its formula or interval. Settings that are not given are kept."""
    document = call.read("BatchPoolEnableAutoScaleOptions")
    entry = resizing.changeable(world, call)
    pool = entry.record
    on = pool.spec["enableAutoScale"]
    if not on and pool.allocation != "steady":
        raise Fault("PoolBeingResized")
    if not on and "autoScaleFormula" not in document:
        raise Fault("InvalidAutoScalingSettings", PropertyName="autoScaleFormula", Reason="A formula is needed.")
    if pool.autoscale_since and call.now - pool.autoscale_since < PAUSE:
        raise Fault("TooManyEnableAutoScaleRequests")
    _check_settings(document)
    pool.spec = {"autoScaleEvaluationInterval": INTERVAL, **pool.spec, **document, "enableAutoScale": True}
    pool.autoscale_since = call.now
    start(world, entry, call.now)
    world.stamp(pool, call.now)
    return accepted(call, pool, 200)


def disable(world: World, call: Call) -> Reply:
    """Disable autoscale; the pool keeps its nodes."""
    entry = resizing.changeable(world, call)
    pool = entry.record
    pool.spec = {name: value for name, value in pool.spec.items() if name not in PROPERTIES}
    pool.spec["enableAutoScale"] = False
    pool.autoscale_next, pool.autoscale_run = 0, {}
    entry.history = None
    world.stamp(pool, call.now)
    world.save_pool(entry)
    return accepted(call, pool, 200)


def evaluate(world: World, call: Call) -> Reply:
    """Evaluate a formula without applying the result."""
    document = call.read("BatchPoolEvaluateAutoScaleOptions")
    entry = resizing.changeable(world, call)
    if not entry.record.spec["enableAutoScale"]:
        raise Fault("OperationNotValidOnPool", Reason="Automatic scaling is not enabled on the pool.")
    run, _ = _run(world, entry, document["autoScaleFormula"], call.now)
    return element(f"{ENTITIES}.AutoScaleRun", call.base, run, data_service_id(call))


def start(world: World, entry: PoolEntry, now: int) -> None:
    """Evaluate now, and again after each interval."""
    entry.history = entry.history or History()
    _tick(world, entry, now)


def time_up(world: World, deadline: Deadline, now: int) -> None:
    entry = world.pools.get(deadline.key)
    if entry is None or entry.record.seq != deadline.seq or entry.record.state != "active":
        return
    if 0 < entry.record.autoscale_next <= now:
        _tick(world, entry, now)


def _tick(world: World, entry: PoolEntry, now: int) -> None:
    pool = entry.record
    pool.autoscale_next = now + wire.parse_duration(pool.spec["autoScaleEvaluationInterval"])
    world.add_deadline(Deadline(pool.autoscale_next, pool.seq, "autoscale", entry.key))
    pool.autoscale_run, result = _run(world, entry, pool.spec["autoScaleFormula"], now)
    if result is not None and (pool.target_dedicated, pool.target_spot) != (result.dedicated, result.low_priority):
        pool.target_dedicated, pool.target_spot = result.dedicated, result.low_priority
        pool.deallocation = result.option
        pool.resize_errors = []
        if pool.allocation != "stopping":  # a running resize continues with the new targets
            resizing.begin(world, entry, now)
    world.save_pool(entry)


def _run(world: World, entry: PoolEntry, text: str, now: int) -> tuple[Document, formula.Result | None]:
    """The wire's autoScaleRun, and the targets if the pool can have them."""
    pool = entry.record
    run: Document = {"timestamp": wire.timestamp(now)}
    try:
        result = formula.evaluate(text, seen(world, entry, text, now))
        resizing.check_targets(pool.spec, result.dedicated, result.low_priority)
    except formula.FormulaError as error:
        current = formula.Result(pool.target_dedicated, pool.target_spot, pool.deallocation)
        reason = f"Undefined symbol: {error.undefined.removeprefix('$')}" if error.undefined else error.message
        reason = f"Line {error.line}, Col {error.column}: {reason}"
        texts = LACKS_SAMPLES if error.lacks_samples else FAILED
        return {**run, "results": str(current), "error": _error(reason, *texts)}, None
    except Fault as fault:
        return {**run, "results": str(result), "error": _error(fault.details.get("Reason", fault.text), *FAILED)}, None
    return {**run, "results": str(result)}, result


FAILED = "AutoScalingFormulaEvaluationError", "The specified auto-scaling formula has evaluation error"
LACKS_SAMPLES = "InsufficientSampleData", "Autoscale evaluation failed due to insufficient sample data"
"""Codes and messages: recorded in azure-sdk-for-node, and reported in Azure/batch-shipyard issue 138."""


def _error(reason: str, code: str, message: str) -> Document:
    return {"code": code, "message": message, "values": [{"name": "Message", "value": reason}]}


def seen(world: World, entry: PoolEntry, text: str, now: int) -> formula.Seen:
    """The samples that a formula can read: only the variables that it names."""
    pool = entry.record
    history = entry.history or History()
    history.note(now, world.numbers(entry))
    names = set(re.findall(r"\$[A-Za-z]+", text))
    samples = history.samples([name for name in NUMBERS if name in names], now)
    seed = pool.seq * 1_000_003 + now // wire.SECOND
    return formula.Seen(wire.as_datetime(now), samples, pool.target_dedicated, pool.target_spot, seed=seed)
