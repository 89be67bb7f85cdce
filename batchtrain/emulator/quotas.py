"""The account's quotas, and the service's messages when one is reached; pure."""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.catalog.sizes import key
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.world import World

MOST = 2**31 - 1
QUOTAS = CORES, SPOT_CORES = ("AccountCoreQuotaReached", "AccountLowPriorityCoreQuotaReached")
"""The codes of a resize beyond a quota that the pools of the account share."""


class Room(NamedTuple):
    """How many more nodes of each kind and in all a pool can get, and how many the region has of its size."""

    dedicated: int
    spot: int
    nodes: int
    capacity: int = MOST


def check_pool(world: World) -> None:
    """Check the quota of pools. Raises Fault 409."""
    most = world.quotas.pools
    if most is not None and len(world.pools) >= most:
        raise Fault("PoolQuotaReached", MaxLimit=str(most))


def check_active_job(world: World, schedules: int = 0) -> None:
    """Check the quota of active jobs and job schedules. Raises Fault 409."""
    most = world.quotas.active_jobs
    if most is None:
        return
    active = schedules + sum(entry.record.state != "completed" for entry in world.jobs.values())
    if active >= most:
        raise Fault("ActiveJobAndScheduleQuotaReached", MaxLimit=str(most))


def room(world: World, entry: PoolEntry) -> Room:
    """The account's remaining nodes and cores for a pool."""
    cores = cores_of(world, entry)
    nodes = max(world.quotas.nodes - len(world.pool_of_node), 0)
    return Room(
        min(_left(world, world.quotas.dedicated_cores, dedicated=True) // cores, nodes),
        min(_left(world, world.quotas.low_priority_cores, dedicated=False) // cores, nodes),
        nodes,
        capacity_left(world, entry),
    )


def capacity_left(world: World, entry: PoolEntry) -> int:
    """How many more nodes of the size of a pool the region has."""
    size = key(entry.record.node_size)
    if size not in world.capacity:
        return MOST
    pools = (pool for pool in world.pools.values() if key(pool.record.node_size) == size)
    used = sum(node.state != "preempted" for pool in pools for node in pool.nodes.values())
    return max(world.capacity[size] - used, 0)


def allowed(free_room: Room, dedicated: int, spot: int) -> tuple[int, int]:
    """How many of these nodes a pool can get, dedicated ones first."""
    total = min(free_room.nodes, free_room.capacity)
    dedicated = min(dedicated, free_room.dedicated, total)
    return dedicated, min(spot, free_room.spot, total - dedicated)


def reached(world: World, free_room: Room, *, dedicated: bool) -> tuple[str, str]:
    """Why a pool gets no nodes: the code and the message of a resize error."""
    quota = "The specified account has reached its quota of"
    if not free_room.nodes:
        return CORES, f"{quota} {world.quotas.nodes} nodes."
    if dedicated and not free_room.dedicated:
        return CORES, f"{quota} {world.quotas.dedicated_cores} dedicated cores."
    if free_room.spot or (dedicated and not free_room.capacity):
        return "AllocationFailed", "Desired number of nodes could not be allocated: the region has no capacity."
    return SPOT_CORES, f"{quota} {world.quotas.low_priority_cores} low-priority cores."


def refused(world: World, entry: PoolEntry) -> str:
    """Why the last resize of a pool ended without all of its nodes, and which pools have nodes; empty if it has all."""
    record, count, target = entry.record, len(entry.nodes), entry.record.target_dedicated + entry.record.target_spot
    if record.allocation != "steady" or not record.resize_errors or count == target:
        return ""
    code, message = record.resize_errors[0]["code"], record.resize_errors[0]["message"]
    pools = (pool for pool in world.pools.values() if pool is not entry and pool.nodes and code in QUOTAS)
    others = ", ".join(f"{pool.record.id} has {len(pool.nodes)}" for pool in pools)
    held = f"; nodes of the account's other pools: {others}" if others else ""
    return f"pool {record.id} got {count} of {target} nodes: {code}: {message}{held}"


def cores_of(world: World, entry: PoolEntry) -> int:
    """Cores of each node of a pool; 1 for an unknown size."""
    return max(world.size_of(entry.record.node_size).cores, 1)


def _left(world: World, most: int | None, *, dedicated: bool) -> int:
    if most is None:
        return MOST
    cores = 0
    for entry in world.pools.values():
        count = sum(node.dedicated == dedicated for node in entry.nodes.values())
        cores += count * cores_of(world, entry) if count else 0
    return max(most - cores, 0)
