"""What a client may do to pools; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from batchtrain.catalog import images
from batchtrain.emulator import documents, models, nodes, states, wire
from batchtrain.emulator.checks import check_id, check_resource_files, refuse_unimplemented, scrub_registry
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.query import Row, listing, number, selected
from batchtrain.emulator.records import Pool
from batchtrain.emulator.reply import Call, Reply, accepted, created, element, stamped
from batchtrain.emulator.world import PoolBook, World

Document = dict[str, Any]

INTER_NODE_LIMIT = 100
COUNTS_PAGE = 10
REMOVE_LIMIT = 100
DEFAULTS: Mapping[str, Any] = {
    "resizeTimeout": "PT15M",
    "enableAutoScale": False,
    "enableInterNodeCommunication": False,
    "taskSlotsPerNode": 1,
    "taskSchedulingPolicy": {"nodeFillType": "Spread"},
}
"""What the service fills in."""

TARGETS = ("targetDedicatedNodes", "targetLowPriorityNodes")

NOT_IMPLEMENTED: Mapping[str, str] = {
    "autoScaleFormula": "autoscale",
    "applicationPackageReferences": "application packages",
    "mountConfiguration": "mounted file systems",
}

ALWAYS_CHANGEABLE = ("startTask", "metadata", "applicationPackageReferences", "upgradePolicy")
"""Properties a PATCH may change while a pool has nodes."""


def create_pool(world: World, call: Call) -> Reply:
    document = models.read("BatchPoolCreateOptions", models.decode(call.body))
    pool_id = check_id(document)
    if existing := world.pools.get(pool_id.lower()):
        raise Fault("PoolBeingDeleted" if existing.record.state == "deleting" else "PoolExists")
    spec = _specification(world, document)
    dedicated, spot = (int(document.get(name, 0)) for name in TARGETS)
    _check_targets(spec, dedicated, spot)
    pool = Pool(
        id=pool_id,
        seq=world.new_seq(),
        state="active",
        state_time=call.now,
        created=call.now,
        spec=spec,
        allocation="resizing",
        allocation_time=call.now,
        target_dedicated=dedicated,
        target_spot=spot,
    )
    world.stamp(pool, call.now)
    world.add_pool(pool)
    return created(pool, documents.pool_url(call.base, pool))


def _specification(world: World, document: Document) -> Document:
    refuse_unimplemented(document, NOT_IMPLEMENTED)
    if "virtualMachineConfiguration" not in document:
        raise Fault("MissingRequiredProperty", PropertyName="virtualMachineConfiguration")
    spec = {**DEFAULTS, **document}
    for name in ("id", *TARGETS):
        spec.pop(name, None)
    return _canonical(world, spec)


def _canonical(world: World, spec: Document) -> Document:
    """Defaults inside, secrets out, bounds checked."""
    spec["vmSize"] = spec["vmSize"].lower()
    machine = spec["virtualMachineConfiguration"]
    machine["imageReference"].setdefault("version", "latest")
    for registry in machine.get("containerConfiguration", {}).get("containerRegistries", []):
        registry.pop("password", None)
    if "networkConfiguration" in spec:
        spec["networkConfiguration"].setdefault("dynamicVNetAssignmentScope", "none")
        spec["networkConfiguration"].setdefault("enableAcceleratedNetworking", False)
    for account in spec.get("userAccounts", []):
        account.pop("password", None)
        account.setdefault("elevationLevel", "nonadmin")
        account.get("linuxUserConfiguration", {}).pop("sshPrivateKey", None)
    if "startTask" in spec:
        spec["startTask"] = start_task(spec["startTask"])
    _check_slots(world, spec)
    if wire.parse_duration(spec["resizeTimeout"]) < 300 * wire.SECOND:
        raise invalid_property("resizeTimeout", spec["resizeTimeout"], "The least resize timeout is 5 minutes.")
    return spec


def start_task(document: Document) -> Document:
    """A start task with the service's defaults."""
    check_resource_files(document.get("resourceFiles", []), "startTask/resourceFiles")
    scrub_registry(document)
    identity = {"autoUser": {"scope": "pool", "elevationLevel": "nonadmin"}}
    return {"maxTaskRetryCount": 0, "waitForSuccess": True, "userIdentity": identity, **document}


def _check_slots(world: World, spec: Document) -> None:
    cores = world.size_of(spec["vmSize"]).cores
    limit = min(4 * cores, 256) if cores else 256
    slots = spec["taskSlotsPerNode"]
    if not 1 <= slots <= limit:
        raise invalid_property("taskSlotsPerNode", slots, f"The value must be between 1 and {limit}.")


def _check_targets(spec: Document, dedicated: int, spot: int) -> None:
    for name, count in zip(TARGETS, (dedicated, spot), strict=True):
        if count < 0:
            raise invalid_property(name, count, "The value cannot be negative.")
    if not spec["enableInterNodeCommunication"]:
        return
    if dedicated and spot:
        raise invalid_property(
            "targetLowPriorityNodes",
            spot,
            "A pool with inter-node communication cannot have both dedicated and spot nodes.",
        )
    if dedicated + spot > INTER_NODE_LIMIT:
        reason = f"A pool with inter-node communication has at most {INTER_NODE_LIMIT} nodes."
        raise invalid_property(TARGETS[bool(spot)], dedicated + spot, reason)


def list_pools(world: World, call: Call) -> Reply:
    def rows(token: str) -> Iterator[Row]:
        after = number(token)
        for book in sorted(world.pools.values(), key=lambda book: book.record.seq):
            if book.record.seq > after:
                yield Row(str(book.record.seq), documents.pool_document(book, call.base))

    return listing(call, "pools", rows)


def get_pool(world: World, call: Call) -> Reply:
    book = world.pool(call.path[0])
    call.check(book.record, reading=True)
    document = selected(documents.pool_document(book, call.base), call.query.get("$select", ""))
    return element("pools", call.base, document, stamped(book.record))


def pool_exists(world: World, call: Call) -> Reply:
    book = world.pool(call.path[0])
    call.check(book.record, reading=True)
    return Reply(200, headers=stamped(book.record))


def update_pool(world: World, call: Call) -> Reply:
    document = models.read("BatchPoolUpdateOptions", models.decode(call.body))
    book = _changeable(world, call)
    refuse_unimplemented(document, NOT_IMPLEMENTED)
    frozen = [name for name in document if name not in ALWAYS_CHANGEABLE]
    if frozen and book.nodes:
        raise Fault("OperationInvalidForCurrentState", PropertyName=frozen[0], Reason="The pool has nodes.")
    spec = _canonical(world, {**book.record.spec, **document})
    _check_targets(spec, book.record.target_dedicated, book.record.target_spot)
    return _respecified(world, call, book, spec, 200)


def replace_pool_properties(world: World, call: Call) -> Reply:
    """Start task, packages and metadata as given; an omitted start task is removed."""
    document = models.read("BatchPoolReplaceOptions", models.decode(call.body))
    book = _changeable(world, call)
    refuse_unimplemented(document, NOT_IMPLEMENTED)
    kept = {name: value for name, value in book.record.spec.items() if name not in ("startTask", "metadata")}
    return _respecified(world, call, book, _canonical(world, {**kept, **document}), 204)


def _respecified(world: World, call: Call, book: PoolBook, spec: Document, status: int) -> Reply:
    book.record.spec = spec
    world.stamp(book.record, call.now)
    world.save_pool(book)
    return accepted(book.record, documents.pool_url(call.base, book.record), status)


def _changeable(world: World, call: Call) -> PoolBook:
    book = world.pool(call.path[0])
    call.check(book.record)
    if book.record.state == "deleting":
        raise Fault("PoolBeingDeleted")
    return book


def delete_pool(world: World, call: Call) -> Reply:
    book = _changeable(world, call)
    world.move(book.record, states.POOL, "delete", call.now)
    _allocate(book.record, "delete", call.now)
    book.record.target_dedicated = book.record.target_spot = 0
    world.stamp(book.record, call.now)
    for node in tuple(book.nodes.values()):
        nodes.leave(world, book, node, "requeue", call.now)
    world.save_pool(book)
    return accepted(book.record, documents.pool_url(call.base, book.record))


def resize_pool(world: World, call: Call) -> Reply:
    document = models.read("BatchPoolResizeOptions", models.decode(call.body))
    book = _steady(world, call)
    if not any(name in document for name in TARGETS):
        raise Fault("MissingRequiredProperty", PropertyName=TARGETS[0])
    pool = book.record
    dedicated = document.get(TARGETS[0], pool.target_dedicated)
    spot = document.get(TARGETS[1], pool.target_spot)
    _check_targets(pool.spec, dedicated, spot)
    pool.target_dedicated, pool.target_spot = dedicated, spot
    pool.deallocation = document.get("nodeDeallocationOption", "requeue")
    pool.resize_errors = []
    if "resizeTimeout" in document:
        pool.spec = {**pool.spec, "resizeTimeout": document["resizeTimeout"]}
    return _resizing(world, call, book)


def _resizing(world: World, call: Call, book: PoolBook) -> Reply:
    _allocate(book.record, "resize", call.now)
    world.stamp(book.record, call.now)
    world.save_pool(book)
    return accepted(book.record, documents.pool_url(call.base, book.record))


def _steady(world: World, call: Call) -> PoolBook:
    book = _changeable(world, call)
    if book.record.allocation != "steady":
        raise Fault("PoolBeingResized")
    return book


def _allocate(pool: Pool, event: str, now: int) -> None:
    pool.allocation = states.after(states.ALLOCATION, pool.allocation, event)
    pool.allocation_time = now


def stop_pool_resize(world: World, call: Call) -> Reply:
    """The targets become what there is."""
    book = _changeable(world, call)
    pool = book.record
    if pool.allocation != "resizing":
        raise Fault("OperationInvalidForCurrentState", Reason="The pool is not being resized.")
    _allocate(pool, "stop", call.now)
    stopped = {"code": "ResizeStopped", "message": "Desired number of nodes could not be allocated: resize stopped."}
    pool.resize_errors = [stopped]
    world.stamp(pool, call.now)
    world.save_pool(book)
    return accepted(pool, documents.pool_url(call.base, pool))


def remove_nodes(world: World, call: Call) -> Reply:
    document = models.read("BatchNodeRemoveOptions", models.decode(call.body))
    book = _steady(world, call)
    names = document["nodeList"]
    if not 1 <= len(names) <= REMOVE_LIMIT:
        raise invalid_property("nodeList", len(names), f"The list must have 1 to {REMOVE_LIMIT} node ids.")
    chosen = [world.node(book.key, name)[1] for name in dict.fromkeys(names)]
    for node in chosen:
        nodes.leave(world, book, node, document.get("nodeDeallocationOption", "requeue"), call.now)
    book.record.target_dedicated -= sum(node.dedicated for node in chosen)
    book.record.target_spot -= sum(not node.dedicated for node in chosen)
    book.record.target_dedicated = max(book.record.target_dedicated, 0)
    book.record.target_spot = max(book.record.target_spot, 0)
    return _resizing(world, call, book)


def list_node_counts(world: World, call: Call) -> Reply:
    def rows(token: str) -> Iterator[Row]:
        after = number(token)
        for book in sorted(world.pools.values(), key=lambda book: book.record.seq):
            if book.record.seq > after:
                yield Row(str(book.record.seq), _counts(book))

    return listing(call, "poolnodecounts", rows, COUNTS_PAGE)


def _counts(book: PoolBook) -> Document:
    every = book.nodes.values()
    return {
        "poolId": book.record.id,
        "dedicated": documents.node_counts(node for node in every if node.dedicated),
        "lowPriority": documents.node_counts(node for node in every if not node.dedicated),
    }


def list_supported_images(world: World, call: Call) -> Reply:
    def rows(token: str) -> Iterator[Row]:
        after = number(token)
        for index, image in enumerate(images.SUPPORTED, 1):
            if index > after:
                yield Row(str(index), _supported(image))

    return listing(call, "supportedimages", rows)


def _supported(image: images.Image) -> Document:
    reference = {"publisher": image.publisher, "offer": image.offer, "sku": image.sku, "version": "latest"}
    document: Document = {
        "nodeAgentSKUId": image.node_agent,
        "imageReference": reference,
        "osType": image.os,
        "capabilities": list(images.service_words(image.capabilities)),
        "verificationType": "verified",
    }
    if image.retired:
        document["batchSupportEndOfLife"] = f"{image.retired.isoformat()}T00:00:00Z"
    return document
