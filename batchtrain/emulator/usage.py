"""The hours of pools' nodes by half hours, as the account's usage lists them; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from batchtrain.emulator import documents, quotas, states, wire
from batchtrain.emulator.faults import invalid_parameter
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.query import Row, listing
from batchtrain.emulator.records import Document, Node, Usage
from batchtrain.emulator.reply import Call, Reply, element
from batchtrain.emulator.world import World

INTERVAL = 1800 * wire.SECOND
HOUR = 3600 * wire.SECOND
ABSENT = ("deallocated",)
"""States in which a node costs nothing."""


def keep(world: World, entry: PoolEntry, node: Node, now: int) -> None:
    """Record the usage of a node that leaves or is deallocated."""
    if node.state in ABSENT:
        return
    vm_size = entry.record.node_size
    usage = world.usage.get((entry.record.id, vm_size)) or Usage(
        id=entry.record.id,
        seq=world.new_seq(),
        state="kept",
        state_time=now,
        created=now,
        vm_size=vm_size,
        cores=quotas.cores_of(world, entry),
    )
    for begin, ticks in _spans(node.billed or node.created, now):
        usage.spans[begin] = usage.spans.get(begin, 0) + ticks
    entry.record.core_time += _core_time(node, usage.cores, now)
    world.save_usage(usage)
    world.save_pool(entry)


def deallocated(world: World, entry: PoolEntry, node: Node, now: int) -> None:
    """Record the usage of a node that is down, if it was to be deallocated."""
    if node.state == "deallocating":
        keep(world, entry, node, now)
        world.move(node, states.NODE, "down", now)


def _core_time(node: Node, cores: int, now: int) -> int:
    return cores * (now - (node.billed or node.created)) if node.dedicated else 0


def _spans(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The half hours that an interval touches, and how much of it is in each."""
    while start < end:
        begin = start - start % INTERVAL
        stop = min(begin + INTERVAL, end)
        yield begin, stop - start
        start = stop


def list_usage(world: World, call: Call) -> Reply:
    """Each pool's core hours by half hours; without an interval, those of the last complete half hour."""
    last = call.now - call.now % INTERVAL
    start = _time(call, "starttime", last - INTERVAL)
    end = _time(call, "endtime", call.now if "starttime" in call.query else last)
    if start >= end:
        raise invalid_parameter("endtime", wire.timestamp(end), Reason="endtime must be after starttime.")

    def rows(token: str) -> Iterator[Row]:
        for key, pool_id, vm_size, begin, stop, hours in sorted(_rows(world, start, end, call.now)):
            document = {
                "poolId": pool_id,
                "startTime": wire.timestamp(begin),
                "endTime": wire.timestamp(stop),
                "vmSize": vm_size,
                "totalCoreHours": round(hours, 6),
            }
            if key > token:
                yield Row(key, document)

    return listing(call, "poolusagemetrics", rows)


def _time(call: Call, name: str, otherwise: int) -> int:
    text = call.query.get(name)
    if text is None:
        return otherwise
    try:
        return wire.parse_timestamp(text)
    except ValueError:
        raise invalid_parameter(name, text) from None


def _rows(world: World, start: int, end: int, now: int) -> Iterable[tuple[str, str, str, int, int, float]]:
    spans: dict[tuple[str, str, int], tuple[int, int]] = {}
    for usage in world.usage.values():
        for begin, ticks in usage.spans.items():
            _add(spans, (usage.id, usage.vm_size, begin), ticks, usage.cores)
    for entry in world.pools.values():
        cores = quotas.cores_of(world, entry)
        for node in entry.nodes.values():
            if node.state not in ABSENT:
                for begin, ticks in _spans(node.billed or node.created, now):
                    _add(spans, (entry.record.id, entry.record.node_size, begin), ticks, cores)
    for (pool_id, vm_size, begin), (ticks, cores) in spans.items():
        if begin < end and begin + INTERVAL > start:
            token = f"{pool_id}/{begin:020d}/{vm_size}"
            yield token, pool_id, vm_size, begin, min(begin + INTERVAL, now), ticks * cores / HOUR


def _add(spans: dict[tuple[str, str, int], tuple[int, int]], key: tuple[str, str, int], ticks: int, cores: int) -> None:
    spans[key] = spans.get(key, (0, cores))[0] + ticks, cores


GIB = 2.0**30
LAST_USAGE = 21
"""The last revision in which the statistics of a pool have its usage."""


def statistics(world: World, entry: PoolEntry, call: Call) -> Document:
    """The result of `$expand=stats` for a pool: its usage, and the current load of the machine that all nodes share."""
    url = f"{documents.pool_url(call.base, entry.record)}/lifetimestats"
    document = _statistics(world, [entry], url, call.now)
    if call.revision > LAST_USAGE:
        document.pop("usageStats")
    return document


def of_account(world: World, call: Call) -> Reply:
    """The answer of older service versions about all pools that still exist."""
    url = f"{call.base}/lifetimepoolstats"
    return element("poolstats", call.base, _statistics(world, list(world.pools.values()), url, call.now))


def _statistics(world: World, entries: list[PoolEntry], url: str, now: int) -> Document:
    core_time = sum(entry.record.core_time for entry in entries)
    for entry in entries:
        cores, nodes = quotas.cores_of(world, entry), entry.nodes.values()
        core_time += sum(_core_time(node, cores, now) for node in nodes if node.state not in ABSENT)
    start = min((entry.record.created for entry in entries), default=now)
    times = {"startTime": wire.timestamp(start), "lastUpdateTime": wire.timestamp(now)}
    load = world.load()
    return {
        "url": url,
        **times,
        "usageStats": {**times, "dedicatedCoreTime": wire.duration(core_time)},
        "resourceStats": {
            **times,
            "avgCPUPercentage": sum(world.numbers(entry)[0] for entry in entries) / max(len(entries), 1),
            "avgMemoryGiB": load.memory / GIB,
            "peakMemoryGiB": load.memory / GIB,
            "avgDiskGiB": load.disk / GIB,
            "peakDiskGiB": load.disk / GIB,
            "diskReadIOps": int(load.disk_reads),
            "diskWriteIOps": int(load.disk_writes),
            "diskReadGiB": load.disk_read / GIB,
            "diskWriteGiB": load.disk_written / GIB,
            "networkReadGiB": load.network_in / GIB,
            "networkWriteGiB": load.network_out / GIB,
        },
    }
