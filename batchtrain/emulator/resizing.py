"""Resizing: the targets of a pool, and the steps to reach them; pure."""

from __future__ import annotations

from batchtrain.catalog import meaning
from batchtrain.catalog.meaning import INTER_NODE_LIMIT, MIXED
from batchtrain.emulator import states
from batchtrain.emulator.faults import Fault, check, invalid_property
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.records import Document, Pool
from batchtrain.emulator.reply import Call
from batchtrain.emulator.world import Deadline, World, resize_end

TARGETS = ("targetDedicatedNodes", "targetLowPriorityNodes")


def changeable(world: World, call: Call) -> PoolEntry:
    """The pool of a request that changes it. Raises Fault 404, 409 or 412."""
    entry = world.pool(call.path[0])
    call.check(entry.record)
    if entry.record.state == "deleting":
        raise Fault("PoolBeingDeleted")
    return entry


def check_targets(spec: Document, dedicated: int, spot: int) -> None:
    """The requested numbers of nodes. Raises Fault 400."""
    for name, count in zip(TARGETS, (dedicated, spot), strict=True):
        if count < 0:
            raise invalid_property(name, count, "The value cannot be negative.")
    check(meaning.addresses({**spec, TARGETS[0]: dedicated, TARGETS[1]: spot}))
    if not spec["enableInterNodeCommunication"]:
        return
    if dedicated and spot:
        raise invalid_property("targetLowPriorityNodes", spot, MIXED)
    if dedicated + spot > INTER_NODE_LIMIT:
        reason = f"A pool with inter-node communication has at most {INTER_NODE_LIMIT} nodes."
        raise invalid_property(TARGETS[bool(spot)], dedicated + spot, reason)


def begin(world: World, entry: PoolEntry, now: int) -> None:
    """Resize to the pool's targets; give up after its resize timeout."""
    pool = entry.record
    pool.resize_time = now
    if pool.allocation == "steady":
        allocate(pool, "resize", now)
    else:
        pool.allocation_time = now
    world.add_deadline(Deadline(resize_end(pool), pool.seq, "resize", entry.key))
    world.save_pool(entry)


def allocate(pool: Pool, event: str, now: int) -> None:
    """One step of its allocation state."""
    pool.allocation = states.after(states.ALLOCATION, pool.allocation, event)
    pool.allocation_time = now
