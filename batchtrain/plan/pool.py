"""From a pool's configuration to the requests that create it, or to the automatic pool of a job."""

from __future__ import annotations

from typing import Any

import msgspec

from batchtrain.catalog.meaning import MIX, PRIORITIZED
from batchtrain.config.scaling import scaling_of
from batchtrain.config.types import Pool, Recipe
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import autoscale, image, ingress, inputs, mounts, network, pool_users, start_task, wire, wire_times
from batchtrain.plan.judgement import judge
from batchtrain.plan.step import AUTOSCALE_FIELDS, Step
from batchtrain.plan.types import Plan

EMPTY: dict[str, Any] = {
    "target_dedicated_nodes": 0,
    "target_low_priority_nodes": 0,
    "resize_timeout": None,
    "enable_auto_scale": None,
    "auto_scale_formula": None,
    "auto_scale_evaluation_interval": None,
}
"""Turns a pool's request into that of a pool without nodes."""

RESIZE_FIELDS = ("targetDedicatedNodes", "targetLowPriorityNodes", "resizeTimeout")


def plan(recipe: Recipe) -> Plan:
    """POST /pools, after the upload of its files; then its identities, and the login on each node.

    Raises PlanError if the recipe has no pool, or if the pool could not be created.
    """
    pool = _pool(recipe)
    pool_specification, remarks = _specification(recipe, pool)
    created = _mixed(pool, wire.created(wire.PoolCreate, pool.id, pool_specification))
    body, identity_steps = _with_identities(pool, created) if pool.identities else (created, ())
    upload_steps = ingress.plan(recipe).steps if pool.transfer_files_on_pool_creation else ()
    logins = pool_users.logins(pool, windows=image.is_windows(pool, recipe.catalog))
    steps = (*upload_steps, Step("pool.add", pool.id, body), *identity_steps, *logins)
    judge(steps)
    return remarks._replace(steps=steps)


def _mixed(pool: Pool, body: wire.PoolCreate) -> wire.PoolCreate:
    """The request for a pool of several VM sizes, if the file has them."""
    if pool.vm_sizes is None:
        return body
    strategy, count = pool.vm_sizes.allocation_strategy, len(pool.sizes)
    ranks = range(count) if strategy == PRIORITIZED else [None] * count
    sizes = tuple(wire.MixedSize(name=name, rank=rank) for name, rank in zip(pool.sizes, ranks, strict=True))
    profile = wire.SkuProfile(vm_sizes=sizes, allocation_strategy=strategy)
    return msgspec.structs.replace(body, vm_size=MIX, vm_sku_profile=profile)


def specification(recipe: Recipe) -> wire.PoolSpecification:
    """The recipe's pool as the automatic pool of a job, which has no logins and no identities.

    Raises PlanError as `plan` does.
    """
    return _specification(recipe, _pool(recipe))[0]


def _pool(recipe: Recipe) -> Pool:
    if recipe.pool is None:
        raise PlanError(f"{recipe.directory} has no pool.yaml, so there is no pool to plan")
    return recipe.pool


def _specification(recipe: Recipe, pool: Pool) -> tuple[wire.PoolSpecification, Plan]:
    """A pool's request without its id, with its warnings and implicit settings."""
    windows = image.is_windows(pool, recipe.catalog)
    containers, delayed_images, by_containers = image.containers(recipe, pool)
    volumes, fstab = mounts.mounts(recipe)
    pool_network, by_network = network.network(recipe, pool, windows=windows)
    task, by_task, warnings = start_task.start_task(recipe, pool, images=delayed_images, mounts=fstab, windows=windows)
    formula = autoscale.formula(pool, recipe.jobs)
    timeout, longer = _resize_timeout(pool, scales=formula is not None)
    scaling = scaling_of(pool)
    interval = scaling.evaluation_interval if scaling else "00:05:00"
    scheduling = wire.TaskSchedulingPolicy(
        node_fill_type=pool.node_fill_type or "spread",  # the service's default, which the request must contain
        job_default_order=pool.job_default_order,
    )
    body = wire.PoolSpecification(
        display_name=pool.display_name,
        vm_size=pool.vm_size,
        virtual_machine_configuration=image.machine(recipe, pool, containers),
        resize_timeout=timeout,
        target_dedicated_nodes=None if formula else pool.vm_count.dedicated,
        target_low_priority_nodes=None if formula else pool.vm_count.low_priority,
        enable_auto_scale=True if formula else None,
        auto_scale_formula=formula,
        auto_scale_evaluation_interval=wire_times.optional_duration(interval) if formula else None,
        enable_inter_node_communication=pool.inter_node_communication_enabled,
        network_configuration=pool_network,
        start_task=task,
        application_package_references=inputs.packages(pool.application_packages),
        task_slots_per_node=pool.task_slots_per_node,
        task_scheduling_policy=scheduling if pool.node_fill_type or pool.job_default_order else None,
        user_accounts=pool_users.user_accounts(recipe, pool),
        metadata=tuple(wire.Metadata(name=name, value=value) for name, value in pool.metadata.items()),
        mount_configuration=volumes,
        upgrade_policy=_upgrades(pool),
    )
    implicit = by_containers + by_network + by_task + _to_zero(pool) + longer
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


def _with_identities(pool: Pool, body: wire.PoolCreate) -> tuple[wire.PoolCreate, tuple[Step, ...]]:
    """Only nodes that join later have the identities, which Azure Resource Manager sets: the pool is created without
    nodes, gets its identities, and then grows."""
    fields = AUTOSCALE_FIELDS if body.enable_auto_scale else RESIZE_FIELDS
    document = wire.document(body)
    growth = {field: document[field] for field in fields if field in document}
    return msgspec.structs.replace(body, **EMPTY), (
        Step("pool.identity", pool.id, {"identities": list(pool.identities)}),
        Step("pool.autoscale" if body.enable_auto_scale else "pool.resize", pool.id, growth),
    )


def _upgrades(pool: Pool) -> wire.UpgradePolicy | None:
    if pool.upgrade_policy is None:
        return None
    policy = wire.UpgradePolicy(mode=pool.upgrade_policy.mode)
    if (system := pool.upgrade_policy.automatic_os) is not None:
        automatic = wire.AutomaticOsUpgrade(
            disable_automatic_rollback=system.disable_rollback,
            enable_automatic_os_upgrade=system.enabled,
            use_rolling_upgrade_policy=system.use_rolling_upgrade,
            os_rolling_upgrade_deferral=system.defer_while_tasks_run,
        )
        policy = msgspec.structs.replace(policy, automatic_os_upgrade_policy=automatic)
    if (rolling := pool.upgrade_policy.rolling) is not None:
        settings = msgspec.structs.asdict(rolling)
        settings["pause_time_between_batches"] = wire_times.optional_duration(rolling.pause_time_between_batches)
        policy = msgspec.structs.replace(policy, rolling_upgrade_policy=wire.RollingUpgrade(**settings))
    return policy
