"""What a client may do to nodes, and how nodes leave; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from batchtrain.emulator import documents, endings, models, states
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.query import Row, listing, number, selected
from batchtrain.emulator.records import Node
from batchtrain.emulator.reply import Call, Reply, element
from batchtrain.emulator.world import PoolBook, World

VERDICTS: Mapping[str, str] = {"requeue": "requeue", "terminate": "terminate"}
"""What becomes of a task whose node goes; with taskcompletion and retaineddata the node waits for it."""


def leave(world: World, book: PoolBook, node: Node, option: str, now: int) -> None:
    """A node is to go; its tasks first, as the option says. One that waits for them may be told not to."""
    if node.state != "leavingpool":
        world.move(node, states.NODE, "leave", now)
    evict(world, book, node, option, now)
    world.save_node(node)


def evict(world: World, book: PoolBook, node: Node, option: str, now: int) -> None:
    """End what runs on a node, if the option does not let it finish."""
    if verdict := VERDICTS.get(option):
        for task in tuple(book.running[node.id].values()):
            endings.condemn(world, task, verdict, now)


def list_nodes(world: World, call: Call) -> Reply:
    book = world.pool(call.path[0])

    def rows(token: str) -> Iterator[Row]:
        after = number(token)
        for node in sorted(book.nodes.values(), key=lambda node: node.seq):
            if node.seq > after:
                yield Row(str(node.seq), documents.node_document(world, book, node, call.base))

    return listing(call, "nodes", rows)


def get_node(world: World, call: Call) -> Reply:
    book, node = world.node(*call.path[:2])
    document = documents.node_document(world, book, node, call.base)
    return element("nodes", call.base, selected(document, call.query.get("$select", "")))


def reboot_node(world: World, call: Call) -> Reply:
    options = models.read("BatchNodeRebootOptions", models.decode(call.body))
    book, node = world.node(*call.path[:2])
    if node.state == "rebooting":
        raise Fault("NodeBeingRebooted")
    if not states.allows(states.NODE, node.state, "reboot"):
        raise Fault("OperationNotValidOnNode", NodeState=node.state)
    world.move(node, states.NODE, "reboot", call.now)
    node.losses = 0
    evict(world, book, node, options.get("nodeRebootOption", "requeue"), call.now)
    world.save_node(node)
    return _done(book, node, call, 202)


def disable_scheduling(world: World, call: Call) -> Reply:
    options = models.read("BatchNodeDisableSchedulingOptions", models.decode(call.body))
    book, node = world.node(*call.path[:2])
    if not node.scheduling:
        raise Fault("NodeAlreadyInTargetSchedulingState")
    if not states.allows(states.NODE, node.state, "offline"):
        raise Fault("OperationNotValidOnNode", NodeState=node.state)
    node.scheduling = False
    evict(world, book, node, options.get("nodeDisableSchedulingOption", "requeue"), call.now)
    if not book.running[node.id]:
        world.move(node, states.NODE, "offline", call.now)
    world.save_node(node)
    return _done(book, node, call, 200)


def enable_scheduling(world: World, call: Call) -> Reply:
    book, node = world.node(*call.path[:2])
    if node.scheduling:
        raise Fault("NodeAlreadyInTargetSchedulingState")
    node.scheduling = True
    if node.state == "offline":
        world.move(node, states.NODE, "online", call.now)
    world.save_node(node)
    return _done(book, node, call, 200)


def _done(book: PoolBook, node: Node, call: Call, status: int) -> Reply:
    return Reply(status, headers={"DataServiceId": documents.node_url(call.base, book.record.id, node.id)})
