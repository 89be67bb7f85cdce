"""Operations on nodes, and how nodes leave their pool; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from batchtrain.catalog import meaning
from batchtrain.emulator import documents, endings, states, wire
from batchtrain.emulator.faults import Fault, check, invalid_property
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.query import Row, by_id, listing, number, one
from batchtrain.emulator.records import Document, Node
from batchtrain.emulator.reply import ENTITIES, Call, Reply, data_service_id, element
from batchtrain.emulator.world import LogUpload, World, task_document


def leave(world: World, entry: PoolEntry, node: Node, option: str, now: int) -> None:
    """Make a node leave. Its tasks end first, as the option says. A node that waits for them can get another option."""
    if node.state != "leavingpool":
        world.move(node, states.NODE, "leave", now)
    evict(world, entry, node, option, now)
    world.save_node(node)


def evict(world: World, entry: PoolEntry, node: Node, option: str, now: int) -> None:
    """End the tasks on a node. With taskcompletion and retaineddata it waits for them, with retaineddata also for their
    files."""
    node.hold = "retaineddata" if option == "retaineddata" else ""
    if option in ("requeue", "terminate"):
        for task in tuple(entry.running[node.id].values()):
            endings.condemn(world, task, option, now)


def retained_until(world: World, node: Node) -> int:
    """The end of the longest retention time of the tasks that ran on a node; 0 if none has one."""
    ends = [0]
    for entry in world.jobs.values():
        for task in entry.tasks.values():
            if (
                task.state == "completed"
                and not task.cleaned
                and any(instance.node == node.id for instance in task.instances)
            ):
                constraints = task_document(task).get("constraints", {})
                ends.append(task.end + wire.parse_duration(constraints.get("retentionTime", wire.INFINITE)))
    return min(max(ends), wire.FOREVER)


def list_nodes(world: World, call: Call) -> Reply:
    entry = world.pool(call.path[0])
    rows = by_id(entry.nodes.values(), lambda node: documents.node_document(world, entry, node, call.base), "id")
    return listing(call, "nodes", rows)


def get_node(world: World, call: Call) -> Reply:
    entry, node = world.node(*call.path)
    return one(call, "nodes", documents.node_document(world, entry, node, call.base))


REFUSALS: Mapping[str, str] = {
    "creating": "NodeBeingCreated",
    "starting": "NodeBeingStarted",
    "waitingforstarttask": "NodeBeingStarted",
    "rebooting": "NodeBeingRebooted",
    "reimaging": "NodeBeingReimaged",
    "unusable": "NodeStateUnusable",
}
"""Why a node in this state refuses the operation; OperationNotValidOnNode in all other states."""


def refusal(node: Node) -> Fault:
    """The 409 of a node whose state does not allow the operation."""
    return Fault(REFUSALS.get(node.state, "OperationNotValidOnNode"), NodeState=node.state)


def reboot_node(world: World, call: Call) -> Reply:
    return _take_down(world, call, "reboot", "BatchNodeRebootOptions", "nodeRebootOption")


def reimage_node(world: World, call: Call) -> Reply:
    """Reimage: delete all data of the node, and boot it as new."""
    return _take_down(world, call, "reimage", "BatchNodeReimageOptions", "nodeReimageOption")


def deallocate_node(world: World, call: Call) -> Reply:
    """Deallocate: the node stays in the pool, costs nothing, and keeps its directory until it is started again."""
    return _take_down(world, call, "deallocate", "BatchNodeDeallocateOptions", "nodeDeallocateOption")


def _take_down(world: World, call: Call, event: str, model: str, name: str) -> Reply:
    option = call.read(model).get(name, "requeue")
    entry, node = world.node(*call.path)
    if not states.allows(states.NODE, node.state, event):
        raise refusal(node)
    world.move(node, states.NODE, event, call.now)
    if event == "reimage" and node.phase == "down":
        node.phase = "unwiped"
    node.losses = 0
    evict(world, entry, node, option, call.now)
    world.save_node(node)
    return Reply(202, headers=data_service_id(call))


def start_node(world: World, call: Call) -> Reply:
    """Start a deallocated node."""
    _, node = world.node(*call.path)
    if not states.allows(states.NODE, node.state, "start"):
        raise refusal(node)
    world.move(node, states.NODE, "start", call.now)
    node.billed = call.now
    world.save_node(node)
    return Reply(202, headers=data_service_id(call))


def disable_scheduling(world: World, call: Call) -> Reply:
    options = call.read("BatchNodeDisableSchedulingOptions")
    entry, node = world.node(*call.path)
    if not node.scheduling:
        raise Fault("NodeAlreadyInTargetSchedulingState")
    if not states.allows(states.NODE, node.state, "offline"):
        raise refusal(node)
    node.scheduling = False
    evict(world, entry, node, options.get("nodeDisableSchedulingOption", "requeue"), call.now)
    if not entry.running[node.id]:
        world.move(node, states.NODE, "offline", call.now)
    world.save_node(node)
    return Reply(200, headers=data_service_id(call))


def enable_scheduling(world: World, call: Call) -> Reply:
    _, node = world.node(*call.path)
    if node.scheduling:
        raise Fault("NodeAlreadyInTargetSchedulingState")
    node.scheduling = True
    if node.state == "offline":
        world.move(node, states.NODE, "online", call.now)
    world.save_node(node)
    return Reply(200, headers=data_service_id(call))


RECORDED = "The emulator keeps extensions in mind; it runs none."
SERVICES_OWN: Mapping[str, object] = {
    "name": "batchNodeExtension",
    "publisher": "Microsoft.Azure.Extensions",
    "type": "CustomScript",
    "typeHandlerVersion": "2.0",
    "autoUpgradeMinorVersion": True,
}
"""The extension by which the service sets up every node."""


def list_extensions(world: World, call: Call) -> Reply:
    """The pool's extensions as this node has them, and the service's own."""
    entry, node = world.node(*call.path)

    def rows(token: str) -> Iterator[Row]:
        for index, extension in enumerate(_extensions(entry), 1):
            if index > number(token):
                yield Row(str(index), _extension(node, extension))

    return listing(call, "extensions", rows)


def get_extension(world: World, call: Call) -> Reply:
    entry, node = world.node(*call.path[:2])
    for extension in _extensions(entry):
        if extension["name"] == call.path[2]:
            return one(call, "extensions", _extension(node, extension))
    raise Fault("NodeExtensionNotFound")


def _extensions(entry: PoolEntry) -> list[Document]:
    return [*entry.record.spec["virtualMachineConfiguration"].get("extensions", []), dict(SERVICES_OWN)]


def _extension(node: Node, extension: Document) -> Document:
    status = {
        "code": "ProvisioningState/succeeded",
        "level": "Info",
        "displayStatus": "Provisioning succeeded",
        "message": RECORDED,
        "time": wire.timestamp(node.booted or node.created),
    }
    return {
        "provisioningState": "Succeeded",
        "vmExtension": extension,
        "instanceView": {"name": extension["name"], "statuses": [status]},
    }


LOG_FILES = ("agent.log", "events.log")
"""The uploaded logs of a node: its agent's log, and the emulator's lines that name it."""


def upload_logs(world: World, call: Call) -> Reply:
    """Answers how many files will be uploaded; the upload runs in the background, as in the service."""
    document = call.read("UploadBatchServiceLogsOptions")
    entry, node = world.node(*call.path)
    check(meaning.url(document["containerUrl"], "containerUrl"))
    start, end = (wire.parse_timestamp(document.get(name, "9999-01-01")) for name in ("startTime", "endTime"))
    if end <= start:
        raise invalid_property("endTime", document.get("endTime", ""), "The end must be after the start.")
    if not node.booted:
        raise refusal(node)
    directory = f"{entry.record.id}/{node.id}/{wire.timestamp(call.now).replace(':', '').partition('.')[0]}"
    world.log_uploads.append(LogUpload(node.id, document["containerUrl"], directory))
    value = {"virtualDirectoryName": directory, "numberOfFilesUploaded": len(LOG_FILES)}
    return element(f"{ENTITIES}.UploadBatchServiceLogsResult", call.base, value)
