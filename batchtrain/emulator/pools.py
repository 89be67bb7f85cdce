"""Operations on pools; pure."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from batchtrain.catalog import meaning, vm_images
from batchtrain.catalog.vm_images import Image
from batchtrain.emulator import autoscale, checks, documents, machines, models, nodes, states, statistics, usage
from batchtrain.emulator.applications import check_references
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.faults import check as check_meaning
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.query import Row, by_id, listing, number, one
from batchtrain.emulator.quotas import check_pool
from batchtrain.emulator.records import Document, Pool
from batchtrain.emulator.reply import Call, Reply, accepted, created
from batchtrain.emulator.resizing import TARGETS, allocate, begin, changeable, check_targets
from batchtrain.emulator.world import USER_SUBSCRIPTION, World

COUNTS_PAGE = 10
REMOVE_LIMIT = 100
DEFAULTS: Mapping[str, Any] = {
    "resizeTimeout": "PT15M",
    "enableAutoScale": False,
    "enableInterNodeCommunication": False,
    "taskSlotsPerNode": 1,
    "taskSchedulingPolicy": {"nodeFillType": "Spread"},
}
START_TASK: Mapping[str, Any] = {
    "maxTaskRetryCount": 0,
    "waitForSuccess": True,
    "userIdentity": {"autoUser": {"scope": "pool", "elevationLevel": "nonadmin"}},
}
"""Properties with defaults of the service."""

ALWAYS_CHANGEABLE = ("startTask", "metadata", "applicationPackageReferences", "targetNodeCommunicationMode")
"""Properties that a PATCH may change while a pool has nodes, and that are replaced together; the last one is of older
service versions."""


def create_pool(world: World, call: Call, identity: Document | None = None) -> Reply:
    """Only Azure Resource Manager gives a pool an identity."""
    document = call.read("BatchPoolCreateOptions") | ({"identity": identity} if identity is not None else {})
    pool_id = checks.check_id(document)
    if existing := world.pools.get(pool_id.lower()):
        raise Fault("PoolBeingDeleted" if existing.record.state == "deleting" else "PoolExists")
    pool = make(world, pool_id, document, call.now)
    return created(pool, documents.pool_url(call.base, pool))


def make(world: World, pool_id: str, document: Document, now: int) -> Pool:
    """A new pool from a document in canonical form (of a request, or an auto pool's specification). Raises Fault."""
    logins = _logins(document)
    spec = specification(world, document)
    check_pool(world)
    dedicated, spot = (int(document.get(name, 0)) for name in TARGETS)
    pool = Pool(
        id=pool_id,
        seq=world.new_seq(),
        state="active",
        state_time=now,
        created=now,
        spec=spec,
        allocation="resizing",
        allocation_time=now,
        resize_time=now,
        target_dedicated=dedicated,
        target_spot=spot,
        logins=logins,
    )
    world.stamp(pool, now)
    entry = world.add_pool(pool)
    if spec["enableAutoScale"]:
        autoscale.start(world, entry, now)
    return pool


def _logins(document: Document) -> dict[str, str]:
    """The passwords of a pool's registries, which no document contains."""
    containers = document.get("virtualMachineConfiguration", {}).get("containerConfiguration", {})
    registry = document.get("startTask", {}).get("containerSettings", {}).get("registry")
    return checks.passwords([*containers.get("containerRegistries", []), *([registry] if registry else [])])


def specification(world: World, document: Document) -> Document:
    """A pool's document with the service's defaults, checked; raises Fault."""
    if "virtualMachineConfiguration" not in document:
        raise Fault("MissingRequiredProperty", PropertyName="virtualMachineConfiguration")
    autoscale.check(document)
    spec = {**DEFAULTS, **document}
    for name in ("id", *TARGETS):
        spec.pop(name, None)
    spec = _canonical(world, spec, spec)
    check_targets(spec, *(int(document.get(name, 0)) for name in TARGETS))
    return spec


def _canonical(world: World, spec: Document, sent: Document) -> Document:
    """Add defaults, remove secrets, and check the limits of what a request sent, a part of `spec`. Stored properties
    are checked only in combination with it: their secrets are gone, and what they refer to may be gone."""
    spec["vmSize"] = spec["vmSize"].lower()
    check_meaning(meaning.pool_parts(sent))
    if world.allocation != USER_SUBSCRIPTION:
        check_meaning(meaning.encryption_sets(sent))
    if not sent.keys() <= {*ALWAYS_CHANGEABLE}:
        check_meaning(meaning.pool(spec, *_image_and_system(world, spec, sent)))
        _check_size(world, spec, sent)
    models.hide("BatchPoolSpecification", sent)
    if "networkConfiguration" in sent:
        sent["networkConfiguration"].setdefault("dynamicVNetAssignmentScope", "none")
        sent["networkConfiguration"].setdefault("enableAcceleratedNetworking", False)
    for account in sent.get("userAccounts", []):
        account.setdefault("elevationLevel", "nonadmin")
    check_references(world, sent.get("applicationPackageReferences", []))
    if "startTask" in sent:
        spec["startTask"] = {**START_TASK, **sent["startTask"]}
    if "startTask" in spec:
        names = [account["name"] for account in spec.get("userAccounts", [])]
        checks.check_user(spec["startTask"], "startTask/userIdentity", names)
    return spec


def _image_and_system(world: World, spec: Document, sent: Document) -> tuple[Image | None, str]:
    """The image is None where the stored one was judged before."""
    if machines.PROPERTY in sent:
        return machines.check(world, spec[machines.PROPERTY], spec.get("identity"))
    return None, machines.image_and_system(world, spec[machines.PROPERTY])[1]


def _check_size(world: World, spec: Document, sent: Document) -> None:
    names = [size["name"] for size in spec.get("vmSkuProfile", {}).get("vmSizes", ())] or [spec["vmSize"]]
    every_size = {name: world.find_size(name) for name in names}
    is_size_sent = not sent.keys().isdisjoint(("vmSize", "vmSkuProfile"))
    for name, size in every_size.items():
        if size is None and is_size_sent:
            reason = "The VM size is not known; describe it in a catalog.yaml, which batchtrain gives to the emulator."
            raise invalid_property("vmSize" if len(names) == 1 else "vmSkuProfile/vmSizes/name", name, reason)
    different_cores = sorted({size.cores for size in every_size.values() if size is not None})
    if len(different_cores) > 1 and is_size_sent:
        raise invalid_property("vmSkuProfile/vmSizes", ", ".join(names), "All sizes have the same number of vCPUs.")
    cores = different_cores[0] if different_cores else 0
    limit = min(4 * cores, 256) if cores else 256
    slots = spec["taskSlotsPerNode"]
    if not 1 <= slots <= limit:
        raise invalid_property("taskSlotsPerNode", slots, f"The value must be between 1 and {limit}.")


def list_pools(world: World, call: Call) -> Reply:
    return listing(call, "pools", by_id(world.pools.values(), lambda entry: _document(world, entry, call)))


def _document(world: World, entry: PoolEntry, call: Call) -> Document:
    document = documents.pool_document(entry, call.base)
    if statistics.asked(call):
        document["stats"] = usage.statistics(world, entry, call)
    return document


def get_pool(world: World, call: Call) -> Reply:
    entry = world.pool(call.path[0])
    call.check(entry.record, reading=True)
    return one(call, "pools", _document(world, entry, call), entry.record)


def pool_exists(world: World, call: Call) -> Reply:
    return get_pool(world, call)._replace(document=None)


def update_pool(world: World, call: Call) -> Reply:
    document = call.read("BatchPoolUpdateOptions")
    entry = changeable(world, call)
    frozen = [name for name in document if name not in ALWAYS_CHANGEABLE]
    if frozen and entry.nodes:
        raise Fault("OperationInvalidForCurrentState", PropertyName=frozen[0], Reason="The pool has nodes.")
    logins = _logins(document)
    spec = _canonical(world, {**entry.record.spec, **document}, document)
    if "enableInterNodeCommunication" in document:
        check_targets(spec, entry.record.target_dedicated, entry.record.target_spot)
    entry.record.logins = {**entry.record.logins, **logins}
    return _respecified(world, call, entry, spec, 200)


def put_pool(world: World, call: Call, entry: PoolEntry, identity: Document | None) -> None:
    """Give a pool that exists the properties of a request that would create it. Only Azure Resource Manager does so.
    An equal request changes nothing. Raises Fault."""
    document = call.read("BatchPoolCreateOptions") | ({"identity": identity} if identity is not None else {})
    call.check(entry.record)
    if entry.record.state == "deleting":
        raise Fault("PoolBeingDeleted")
    logins, spec = _logins(document), specification(world, copy.deepcopy(document))
    scale = {name: spec.pop(name) for name in SCALE if name in spec}
    former = {name: value for name, value in entry.record.spec.items() if name not in SCALE}
    changed = {name for name in spec.keys() | former.keys() if spec.get(name) != former.get(name)}
    if (frozen := sorted(changed.difference(ALWAYS_CHANGEABLE))) and entry.nodes:
        raise Fault("OperationInvalidForCurrentState", PropertyName=frozen[0], Reason="The pool has nodes.")
    entry.record.logins = {**entry.record.logins, **logins}
    put_scale(world, call, entry, {**scale, **{name: int(document.get(name, 0)) for name in TARGETS}})
    if changed:
        scale_properties = {name: value for name, value in entry.record.spec.items() if name in SCALE}
        _respecified(world, call, entry, {**spec, **scale_properties}, 200)


SCALE = ("enableAutoScale", "autoScaleFormula", "autoScaleEvaluationInterval", "resizeTimeout")


def put_scale(world: World, call: Call, entry: PoolEntry, scale: Document) -> None:
    """Give a pool the scale settings of a request. Targets that are not given are kept."""
    former_targets = dict(zip(TARGETS, (entry.record.target_dedicated, entry.record.target_spot), strict=True))
    targets = {name: scale.get(name, number) for name, number in former_targets.items()}

    def carry_out(operation: Callable[[World, Call], Reply], document: Document) -> None:
        operation(world, call._replace(path=(entry.key,), body=msgspec.json.encode(document)))

    former = entry.record.spec
    if scale.get("enableAutoScale"):
        autoscaling = {name: scale[name] for name in SCALE[1:3] if name in scale}
        if not former["enableAutoScale"] or any(former.get(name) != value for name, value in autoscaling.items()):
            carry_out(autoscale.enable, autoscaling)
        return
    if former["enableAutoScale"]:
        carry_out(autoscale.disable, {})
    if targets != former_targets:
        timeout = scale.get("resizeTimeout", former["resizeTimeout"])
        carry_out(resize_pool, {**targets, "resizeTimeout": timeout})


def replace_pool_properties(world: World, call: Call) -> Reply:
    """Replace start task, packages and metadata; an omitted start task is removed."""
    document = call.read("BatchPoolReplaceOptions")
    entry = changeable(world, call)
    unchanging = {name: value for name, value in entry.record.spec.items() if name not in ALWAYS_CHANGEABLE}
    logins = _logins(document)
    spec = _canonical(world, {**unchanging, **document}, document)
    entry.record.logins = {**entry.record.logins, **logins}
    return _respecified(world, call, entry, spec, 204)


def _respecified(world: World, call: Call, entry: PoolEntry, spec: Document, status: int) -> Reply:
    entry.record.spec = spec
    world.stamp(entry.record, call.now)
    world.save_pool(entry)
    return accepted(call, entry.record, status)


def delete_pool(world: World, call: Call) -> Reply:
    entry = changeable(world, call)
    end(world, entry, call.now)
    world.stamp(entry.record, call.now)
    return Reply(202)


def end(world: World, entry: PoolEntry, now: int) -> None:
    """Delete a pool with all its nodes."""
    world.move(entry.record, states.POOL, "delete", now)
    allocate(entry.record, "delete", now)
    entry.record.target_dedicated = entry.record.target_spot = 0
    for node in tuple(entry.nodes.values()):
        nodes.leave(world, entry, node, "requeue", now)
    world.save_pool(entry)


def resize_pool(world: World, call: Call) -> Reply:
    document = call.read("BatchPoolResizeOptions")
    entry = _steady(world, call)
    if not any(name in document for name in TARGETS):
        raise Fault("MissingRequiredProperty", PropertyName=TARGETS[0])
    pool = entry.record
    if pool.spec["enableAutoScale"]:
        raise Fault("OperationNotValidOnPool", Reason="Automatic scaling is enabled on the pool.")
    check_meaning(meaning.resize_timeout(document))
    dedicated = document.get(TARGETS[0], pool.target_dedicated)
    spot = document.get(TARGETS[1], pool.target_spot)
    check_targets(pool.spec, dedicated, spot)
    pool.target_dedicated, pool.target_spot = dedicated, spot
    pool.deallocation = document.get("nodeDeallocationOption", "requeue")
    pool.resize_errors = []
    if "resizeTimeout" in document:
        pool.spec = {**pool.spec, "resizeTimeout": document["resizeTimeout"]}
    return _resizing(world, call, entry)


def _resizing(world: World, call: Call, entry: PoolEntry) -> Reply:
    begin(world, entry, call.now)
    world.stamp(entry.record, call.now)
    return accepted(call, entry.record)


def _steady(world: World, call: Call) -> PoolEntry:
    entry = changeable(world, call)
    if entry.record.allocation != "steady":
        raise Fault("PoolBeingResized")
    return entry


def stop_pool_resize(world: World, call: Call) -> Reply:
    """Stop the resize: the targets become the current numbers."""
    entry = changeable(world, call)
    pool = entry.record
    if pool.allocation != "resizing":
        raise Fault("OperationInvalidForCurrentState", Reason="The pool is not being resized.")
    allocate(pool, "stop", call.now)
    stopped = {"code": "ResizeStopped", "message": "Desired number of nodes could not be allocated: resize stopped."}
    pool.resize_errors = [stopped]
    world.stamp(pool, call.now)
    world.save_pool(entry)
    return accepted(call, pool)


def remove_nodes(world: World, call: Call) -> Reply:
    document = call.read("BatchNodeRemoveOptions")
    entry = _steady(world, call)
    names = document["nodeList"]
    if not 1 <= len(names) <= REMOVE_LIMIT:
        raise invalid_property("nodeList", len(names), f"The list must have 1 to {REMOVE_LIMIT} node ids.")
    leaving = [world.node(entry.key, name)[1] for name in dict.fromkeys(names)]
    check_meaning(meaning.resize_timeout(document))
    if "resizeTimeout" in document:
        entry.record.spec = {**entry.record.spec, "resizeTimeout": document["resizeTimeout"]}
    entry.record.resize_errors = []
    staying = [node for node in leaving if node.state != "leavingpool"]
    for node in leaving:
        nodes.leave(world, entry, node, document.get("nodeDeallocationOption", "requeue"), call.now)
    entry.record.target_dedicated -= sum(node.dedicated for node in leaving if node in staying)
    entry.record.target_spot -= sum(not node.dedicated for node in leaving if node in staying)
    return _resizing(world, call, entry)


def list_node_counts(world: World, call: Call) -> Reply:
    return listing(call, "poolnodecounts", by_id(world.pools.values(), _counts), COUNTS_PAGE)


def _counts(entry: PoolEntry) -> Document:
    every = entry.nodes.values()
    return {
        "poolId": entry.record.id,
        "dedicated": documents.node_counts(node for node in every if node.dedicated),
        "lowPriority": documents.node_counts(node for node in every if not node.dedicated),
    }


def list_supported_images(world: World, call: Call) -> Reply:
    def rows(token: str) -> Iterator[Row]:
        after = number(token)
        for index, image in enumerate(vm_images.SUPPORTED, 1):
            if index > after:
                reference = {"publisher": image.publisher, "offer": image.offer, "sku": image.sku, "version": "latest"}
                document: Document = {
                    "nodeAgentSKUId": image.node_agent,
                    "imageReference": reference,
                    "osType": image.os,
                    "capabilities": list(vm_images.service_words(image.capabilities)),
                    "verificationType": "verified",
                }
                if image.retired:
                    document["batchSupportEndOfLife"] = f"{image.retired.isoformat()}T00:00:00Z"
                yield Row(str(index), document)

    return listing(call, "supportedimages", rows)
