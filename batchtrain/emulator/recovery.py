"""Recovery at a start of the emulator: no process of any node is alive; pure."""

from __future__ import annotations

from batchtrain.emulator import endings, job_preparation, lines, schedules, usage
from batchtrain.emulator.reports import gone
from batchtrain.emulator.world import World, task_document

STAYING = ("creating", "leavingpool", "unusable", "reimaging", "deallocated", "preempted")
"""States that a node keeps while the emulator is down."""


def recover(world: World, now: int) -> None:
    """After a start, no process of any node is alive: nodes boot again, and running tasks are requeued once."""
    for entry in world.pools.values():
        for node in entry.nodes.values():
            node.phase = "unwiped" if node.state == "reimaging" else "down"
            node.hold = "retaineddata" if node.hold else ""
            usage.deallocated(world, entry, node, now)
            if node.state not in STAYING:
                node.state, node.state_time = "unknown", now
            node.start = {}
            world.save_node(node)
    for node_id in world.jobs_of_node:
        job_preparation.node_lost(world, node_id)
    for schedule in world.schedules.values():
        schedules.remind(world, schedule, now)
    for job in world.jobs.values():
        _recover_job(world, job.key, now)
        world.touch_job(job.key)


def _recover_job(world: World, key: str, now: int) -> None:
    entry = world.jobs[key]
    for dependency in entry.met:
        lines.satisfy_key(entry, dependency)
    seqs, entry.to_recover = entry.to_recover, []
    for task in entry.tasks.only(seqs):
        if task.state == "completed":
            endings.retain(world, entry, task)
        elif task.state == "active":
            lines.enqueue(entry, task, task_document(task))
        else:
            running = entry.running[task.seq] = entry.tasks.at(task.seq)
            running.verdict = running.verdict or "requeue"
            for instance in running.instances:
                gone(instance, now)
            endings.conclude(world, entry, running, now)
