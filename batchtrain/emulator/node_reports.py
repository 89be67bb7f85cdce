"""Records the machine's reports about nodes; pure. A late report changes nothing."""

from __future__ import annotations

from batchtrain.emulator import endings, job_preparation, states, usage, wire
from batchtrain.emulator.interface import Exit, NodeUp
from batchtrain.emulator.records import Node
from batchtrain.emulator.reports import conclude_if_over, gone, set_phase
from batchtrain.emulator.world import Deadline, World

MAX_LOSSES = 5
"""After this many deaths without a completed command between them, a node becomes unusable."""
ALIVE = ("booting", "up", "starting")


def node_up(world: World, node_id: str, up: NodeUp, now: int) -> None:
    """A node booted: start its start task, or make it available."""
    if (node := world.find_node(node_id, "booting")) is None:
        return
    node.phase, node.booted = "up", now
    node.root, node.root_inside = str(up.root), up.root_inside
    node.environment, node.isolation = dict(up.environment), up.isolation
    node.address = up.address or node.address
    if node.state == "starting":
        world.move(node, states.NODE, "up", now)
        if "startTask" not in world.pools[node.pool].record.spec:
            _ready(world, node, now)
    world.save_node(node)


def node_failed(world: World, node_id: str, message: str, now: int) -> None:
    """A node did not boot: a new node is given up and the resize fails; an old one becomes unusable."""
    if (node := world.find_node(node_id, "booting")) is None:
        return
    node.phase = "down"
    if node.state == "leavingpool":
        world.save_node(node)
    elif node.boots == 1:
        entry = world.pools[node.pool]
        error = {"code": "AllocationFailed", "message": f"Desired number of nodes could not be allocated: {message}"}
        entry.record.resize_errors = [error]
        if entry.record.state == "active":
            entry.record.allocation, entry.record.allocation_time = "steady", now
        world.drop_node(entry, node)
        world.save_pool(entry)
    else:
        _unusable(world, node, message, now)


def node_unfit(world: World, node_id: str, code: str, message: str, now: int) -> None:
    """A node booted but can never run a task: an application package of its pool is not available."""
    if (node := world.find_node(node_id, "booting")) is None:
        return
    node.phase = "down"
    if node.state == "leavingpool":
        world.save_node(node)
    else:
        _unusable(world, node, message, now, code)


def node_lost(world: World, node_id: str, now: int) -> None:
    """A node died: its tasks are requeued, and it boots again."""
    if (node := world.find_node(node_id, *ALIVE)) is None:
        return
    node.phase = "unwiped" if node.state == "reimaging" else "down"
    node.losses += 1
    job_preparation.node_lost(world, node_id)
    for task in tuple(world.pools[node.pool].running[node.id].values()):
        endings.condemn(world, task, "requeue", now)
        for instance in task.instances:
            if instance.node == node.id:
                gone(instance, now)
        world.save_task(task)
        conclude_if_over(world, task, now)
    if states.allows(states.NODE, node.state, "lost"):
        world.move(node, states.NODE, "lost", now)
        if node.losses > MAX_LOSSES:
            _unusable(world, node, "The node died again and again.", now)
    world.save_node(node)


def node_preempted(world: World, node_id: str, seconds: float | None, now: int) -> None:
    """A spot node was preempted: it stays listed, and returns after `seconds`. None: after the time of the pace."""
    node_lost(world, node_id, now)
    node = world.find_node(node_id)
    if node is None or not states.allows(states.NODE, node.state, "preempt"):
        return
    world.move(node, states.NODE, "preempt", now)
    node.losses = 0
    node.start, node.errors = {}, []
    world.forget_preparations(node.id)
    away = world.pace.replacement if seconds is None else seconds
    node.not_before = now + max(int(away * wire.SECOND), 1)
    world.add_deadline(Deadline(node.not_before, world.pools[node.pool].record.seq, "boot", node.pool))
    world.save_node(node)


def node_broken(world: World, node_id: str, now: int) -> None:
    """Records that a node became unusable."""
    node_lost(world, node_id, now)
    if (node := world.find_node(node_id)) and node.state != "leavingpool":
        _unusable(world, node, "The node is unusable: the emulator was asked to break it.", now)


def node_struck(world: World, node_id: str, act: str, seconds: float | None, now: int) -> None:
    """An injected fault preempts a node, kills it (`lose`) or breaks it. All its runs are lost now; the machine shuts
    it down next, and it gets no tasks meanwhile."""
    node = world.find_node(node_id, *ALIVE)
    if act == "preempt":
        node_preempted(world, node_id, seconds, now)
    else:
        (node_broken if act == "break" else node_lost)(world, node_id, now)
    if node is not None:
        set_phase(world, node.pool, node_id, "stopping")


def node_wiped(world: World, node_id: str, now: int) -> None:
    """A node was shut down and its directory deleted."""
    if node := world.find_node(node_id):
        set_phase(world, node.pool, node_id, "down")


def node_down(world: World, node_id: str, now: int) -> None:
    """A node was shut down, to boot again or to be deallocated. A reimaged node is wiped next."""
    if node := world.find_node(node_id):
        node.phase = "unwiped" if node.state == "reimaging" else "down"
        usage.deallocated(world, world.pools[node.pool], node, now)
        world.save_node(node)


def node_removed(world: World, node_id: str, now: int) -> None:
    """Remove the records of a node."""
    if node := world.find_node(node_id):
        usage.keep(world, world.pools[node.pool], node, now)
        world.drop_node(world.pools[node.pool], node)


def start_task_ended(world: World, node_id: str, boot: int, outcome: Exit, now: int) -> None:
    """The start task ended: it is retried, the node failed, or the node is ready."""
    node = world.find_node(node_id, "starting")
    if node is None or node.boots != boot:
        return
    spec = world.pools[node.pool].record.spec.get("startTask", {})
    failure = endings.failure_of(outcome)
    node.phase = "up"
    node.start |= {"state": "completed", "endTime": wire.timestamp(now)}
    node.start["result"] = "success" if failure is None else "failure"
    if outcome.code is not None:
        node.start["exitCode"] = outcome.code
    if failure is not None:
        node.start["failureInfo"] = failure
    if outcome.container is not None:
        node.start["containerInfo"] = dict(outcome.container)
    if node.state == "waitingforstarttask":
        most = spec.get("maxTaskRetryCount", 0)
        again = failure is not None and outcome.code is not None and (most < 0 or node.start["retryCount"] < most)
        if failure is not None and not again and spec.get("waitForSuccess", True):
            world.move(node, states.NODE, "start task failed", now)
        elif not again:
            _ready(world, node, now)
    world.save_node(node)


def _ready(world: World, node: Node, now: int) -> None:
    world.move(node, states.NODE, "ready", now)
    node.errors = []
    if not node.scheduling:
        world.move(node, states.NODE, "offline", now)


def _unusable(world: World, node: Node, message: str, now: int, code: str = "NodeUnusable") -> None:
    node.state, node.state_time = "unusable", now
    node.errors = [{"code": code, "message": message}]
    world.save_node(node)
