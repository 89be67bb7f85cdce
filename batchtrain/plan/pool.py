"""From a pool's configuration to the requests that create it, or to the automatic pool of a job."""

from __future__ import annotations

from typing import Any

from batchtrain.catalog import sizes
from batchtrain.catalog.meaning import MIX, PRIORITIZED
from batchtrain.config.request_fields import copied, nested
from batchtrain.config.scaling import scaling_of
from batchtrain.config.types import Pool, Recipe
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import autoscale, image, ingress, inputs, mounts, network, pool_users, start_task, wire, wire_times
from batchtrain.plan.judgement import judge
from batchtrain.plan.step import AUTOSCALE_FIELDS, Step
from batchtrain.plan.types import Plan

Document = dict[str, Any]

RESIZE_FIELDS = ("targetDedicatedNodes", "targetLowPriorityNodes", "resizeTimeout")


def plan(recipe: Recipe) -> Plan:
    """POST /pools, after the upload of its files; then its identities, and the login on each node.

    Raises PlanError if the recipe has no pool, or if the pool could not be created.
    """
    pool = _pool(recipe)
    pool_specification, remarks = _specification(recipe, pool)
    created = {"id": pool.id, **pool_specification, **_mix(pool)}
    body, identity_steps = _with_identities(pool, created) if pool.identities else (created, ())
    upload_steps = ingress.plan(recipe).steps if pool.transfer_files_on_pool_creation else ()
    logins = pool_users.logins(pool, windows=image.is_windows(pool, recipe.catalog))
    steps = (*upload_steps, Step("pool.add", pool.id, body), *identity_steps, *logins)
    judge(steps)
    return remarks._replace(steps=steps)


def _mix(pool: Pool) -> Document:
    """The part of the request about several VM sizes, if the file has them."""
    if pool.vm_sizes is None:
        return {}
    strategy = pool.vm_sizes.allocation_strategy
    ranks = [{"rank": rank} if strategy == PRIORITIZED else {} for rank in range(len(pool.sizes))]
    names = [{"name": sizes.full_name(name), **rank} for name, rank in zip(pool.sizes, ranks, strict=True)]
    return {"vmSize": MIX, "vmSkuProfile": {"vmSizes": names, "allocationStrategy": strategy}}


def specification(recipe: Recipe) -> Document:
    """The recipe's pool as the automatic pool of a job, which has no logins and no identities.

    Raises PlanError as `plan` does.
    """
    return _specification(recipe, _pool(recipe))[0]


def _pool(recipe: Recipe) -> Pool:
    if recipe.pool is None:
        raise PlanError(f"{recipe.directory} has no pool.yaml, so there is no pool to plan")
    return recipe.pool


def _specification(recipe: Recipe, pool: Pool) -> tuple[Document, Plan]:
    """A pool's request without its id, with its warnings and implicit settings: what the types of the language copy,
    and what depends on more than one property."""
    windows = image.is_windows(pool, recipe.catalog)
    containers, delayed_images, by_containers = image.containers(recipe, pool)
    volumes, fstab = mounts.mounts(recipe)
    pool_network, by_network = network.network(recipe, pool, windows=windows)
    task, by_task, warnings = start_task.start_task(
        recipe, pool, images=delayed_images, mounts=fstab, windows=windows, native=containers is not None
    )
    formula = autoscale.formula(pool, recipe.jobs)
    timeout, longer = _resize_timeout(pool, scales=formula is not None)
    scaling = scaling_of(pool)
    interval = scaling.evaluation_interval if scaling else "00:05:00"
    fill_type = pool.node_fill_type or "spread"  # the service's default, which an order of jobs must not be without
    rolling = pool.upgrade_policy and pool.upgrade_policy.rolling
    values = {
        **copied(pool),
        **image.machine(recipe, pool, containers),
        **pool_network,
        "pool.vmSize": sizes.full_name(pool.vm_size),
        "pool.resizeTimeout": timeout,
        "pool.targetDedicatedNodes": None if formula else pool.vm_count.dedicated,
        "pool.targetLowPriorityNodes": None if formula else pool.vm_count.low_priority,
        "pool.enableAutoScale": True if formula else None,
        "pool.autoScaleFormula": formula,
        "pool.autoScaleEvaluationInterval": wire_times.optional_duration(interval) if formula else None,
        "pool.startTask": task,
        "pool.applicationPackageReferences": inputs.packages(pool.application_packages),
        "pool.taskSchedulingPolicy.nodeFillType": fill_type if pool.job_default_order else pool.node_fill_type,
        "pool.userAccounts": pool_users.user_accounts(recipe, pool),
        "pool.metadata": tuple(wire.Metadata(name=name, value=value) for name, value in pool.metadata.items()),
        "pool.mountConfiguration": volumes,
        "pool.upgradePolicy.rollingUpgradePolicy.pauseTimeBetweenBatches": (
            wire_times.optional_duration(rolling.pause_time_between_batches) if rolling else None
        ),
    }
    implicit = by_containers + by_network + by_task + _to_zero(pool) + longer
    body = nested({name: value for name, value in values.items() if name != "pool.id"})["pool"]
    return body, Plan(warnings=warnings, implicit=implicit)


def _to_zero(pool: Pool) -> tuple[Implicit, ...]:
    """What the word `to_zero` and an idle timeout stand for."""
    if pool.idles:
        nodes = f"all {pool.vm_count.total} nodes, or none"
        because = f"`idle_timeout` removes the nodes after {pool.idle_timeout} without a task; a task brings them back"
        return (Implicit("autoScaleFormula", nodes, because, "idle-timeout", "pool_specification.idle_timeout"),)
    if pool.autoscale != "to_zero":
        return ()
    count = pool.vm_count
    nodes = f"scenario pending_tasks, 0 to {count.dedicated} dedicated and {count.low_priority} spot nodes"
    because = "`to_zero` follows the tasks that wait or run; nodes leave when there was no task for 10 minutes"
    return (Implicit("autoScaleFormula", nodes, because, "autoscale-to-zero", "pool_specification.autoscale"),)


_TIMEOUT = "pool_specification.resize_timeout"
AT_ONCE = 10
"""Nodes that the service's default of 15 minutes is meant for here; each two more get a minute, up to two hours."""


def _resize_timeout(pool: Pool, *, scales: bool) -> tuple[str | None, tuple[Implicit, ...]]:
    nodes = pool.vm_count.total
    if pool.resize_timeout:
        return wire_times.duration(pool.resize_timeout), ()
    if scales or nodes <= AT_ONCE:
        return None, ()
    minutes = min(120, 15 + (nodes - AT_ONCE + 1) // 2)
    timeout = wire_times.duration(f"00:{minutes}:00")
    because = f"{nodes} nodes may take longer than the 15 minutes after which the service gives up"
    return timeout, (Implicit("resizeTimeout", timeout, because, "resize-timeout-by-nodes", _TIMEOUT),)


def _with_identities(pool: Pool, body: Document) -> tuple[Document, tuple[Step, ...]]:
    """Only nodes that join later have the identities, which Azure Resource Manager sets: the pool is created without
    nodes, gets its identities, and then grows."""
    scales = "enableAutoScale" in body
    growth = {field: body[field] for field in (AUTOSCALE_FIELDS if scales else RESIZE_FIELDS) if field in body}
    rest = {field: value for field, value in body.items() if field not in (*growth, "enableAutoScale")}
    return {**rest, "targetDedicatedNodes": 0, "targetLowPriorityNodes": 0}, (
        Step("pool.identity", pool.id, {"identities": list(pool.identities)}),
        Step("pool.autoscale" if scales else "pool.resize", pool.id, growth),
    )
