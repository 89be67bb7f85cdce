"""A small stand-in for Azure Resource Manager, for azure-mgmt-batch: the account with its keys, and its pools; pure.

Any subscription and resource group leads to the one account. A pool is translated to the service's own request and
back, so both sides see the same pools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, unquote

import msgspec

from batchtrain.catalog import sizes
from batchtrain.emulator import arm_applications, autoscale, models, pools, query, quotas, tokens, wire
from batchtrain.emulator.applications import id_of
from batchtrain.emulator.arm_request import Account, Document, Operation, Request
from batchtrain.emulator.documents import pool_document
from batchtrain.emulator.faults import Fault, NeedsToken, invalid_property
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.interface import STORAGE_ACCOUNT
from batchtrain.emulator.reply import Call, Reply
from batchtrain.emulator.versions import REVISIONS
from batchtrain.emulator.world import USER_SUBSCRIPTION, World

PREFIXES = ("/subscriptions", "/providers", "/tenants")
VERSIONS: Mapping[str, int] = {name[:10]: revision for name, revision in REVISIONS.items() if revision >= 16}
"""API version -> the revision of the service's tables that it corresponds to."""
RENAMED = {
    "nodeAgentSkuId": "nodeAgentSKUId",
    "userName": "username",
    "inboundNatPools": "inboundNATPools",
    "dynamicVnetAssignmentScope": "dynamicVNetAssignmentScope",
}
"""Properties with another spelling in the service's own requests, at any depth."""
KEPT = ("displayName", "vmSize", "vmSkuProfile", "networkConfiguration", "taskSlotsPerNode", "taskSchedulingPolicy",
        "userAccounts", "metadata", "startTask", "mountConfiguration", "targetNodeCommunicationMode", "upgradePolicy",
        "resourceTags")  # fmt: skip
SHOWN = (*KEPT, "currentDedicatedNodes", "currentLowPriorityNodes", "creationTime", "lastModified",
         "allocationStateTransitionTime", "autoScaleRun", "currentNodeCommunicationMode")  # fmt: skip
FIXED = ("targetDedicatedNodes", "targetLowPriorityNodes", "resizeTimeout")
WORDS = {word.lower(): word for word in (
    "Allow", "Admin", "BatchManaged", "Classic", "Default", "Deny", "DockerCompatible", "CriCompatible", "Job",
    "NoPublicIPAddresses", "NonAdmin", "None", "Pack", "Pool", "Premium_LRS", "ReadOnly", "ReadWrite", "Resizing",
    "Simplified", "Spread", "StandardSSD_LRS", "Standard_LRS", "Steady", "Stopping", "TCP", "Task", "UDP",
    "UserManaged", "ContainerImageDefault", "TaskWorkingDirectory", "LowestPrice", "CapacityOptimized", "Prioritized",
)}  # fmt: skip
"""Enumeration values, which Resource Manager capitalizes."""
ENUMERATED = ("access", "allocationStrategy", "caching", "elevationLevel", "nodeFillType", "protocol", "provision",
              "scope", "type", "storageAccountType", "targetNodeCommunicationMode", "currentNodeCommunicationMode",
              "workingDirectory", "dynamicVnetAssignmentScope")  # fmt: skip
"""The properties with these values."""
OPAQUE = ("resourceTags", "settings", "protectedSettings")
"""Objects whose names are the user's."""
POLL_SECONDS = "1"
"""Retry-After of a running deletion."""
_ACCOUNTS = r"/subscriptions/[^/]+(?:/resourceGroups/[^/]+)?/providers/Microsoft\.Batch/batchAccounts"
_ACCOUNT = (
    r"(?P<id>/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Batch/batchAccounts/(?P<account>[^/]+))"
)


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The managed identities of a pool."""

    type: Literal["None", "UserAssigned"] = "None"
    userAssignedIdentities: dict[str, Any] | None = None
    principalId: str | None = None
    tenantId: str | None = None


class Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The deployment configuration of a pool's nodes."""

    virtualMachineConfiguration: Document | None = None
    cloudServiceConfiguration: Document | None = None


class FixedScale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scale settings of a pool."""

    targetDedicatedNodes: int | None = None
    targetLowPriorityNodes: int | None = None
    resizeTimeout: str | None = None
    nodeDeallocationOption: str | None = None


class AutoScale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Autoscale settings."""

    formula: str
    evaluationInterval: str | None = None


class Scale(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the two."""

    fixedScale: FixedScale | None = None
    autoScale: AutoScale | None = None


class Package(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A version of an application, by its resource id."""

    id: str
    version: str | None = None


class Properties(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A pool as clients send it. Fields of type `Any` go to the service unchanged, or are read-only."""

    deploymentConfiguration: Deployment = Deployment()
    scaleSettings: Scale = Scale()
    interNodeCommunication: Literal["Enabled", "Disabled"] = "Disabled"
    applicationPackages: list[Package] | None = None
    certificates: Any = None
    applicationLicenses: Any = None
    displayName: Any = None
    vmSize: Any = None
    vmSkuProfile: Any = None
    networkConfiguration: Any = None
    taskSlotsPerNode: Any = None
    taskSchedulingPolicy: Any = None
    userAccounts: Any = None
    metadata: Any = None
    startTask: Any = None
    mountConfiguration: Any = None
    targetNodeCommunicationMode: Any = None
    upgradePolicy: Any = None
    resourceTags: Any = None
    currentDedicatedNodes: Any = None
    currentLowPriorityNodes: Any = None
    creationTime: Any = None
    lastModified: Any = None
    provisioningState: Any = None
    provisioningStateTransitionTime: Any = None
    allocationState: Any = None
    allocationStateTransitionTime: Any = None
    autoScaleRun: Any = None
    resizeOperationStatus: Any = None
    currentNodeCommunicationMode: Any = None


class PoolBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a PUT. Clients send back properties that they received."""

    properties: Properties = Properties()
    identity: Identity | None = None
    id: Any = None
    name: Any = None
    type: Any = None
    etag: Any = None
    tags: Any = None


def is_path(raw_path: str) -> bool:
    """Whether a path belongs to Resource Manager: no path of the service starts so."""
    return any(raw_path == prefix or raw_path.startswith(f"{prefix}/") for prefix in PREFIXES)


def check_token(account: Account, verb: str, headers: Mapping[str, str], now: int) -> None:
    """Check the token; Resource Manager accepts no shared keys. Raises NeedsToken, Fault."""
    tokens.check(account.name, account.key, verb, headers, tokens.MANAGEMENT, now)


def answer(world: World, account: Account, arm_request: Request) -> Reply:
    """Carry out a request. Raises Fault."""
    for verb, path, operation, parameters in ROUTES:
        if verb == arm_request.verb and (match := path.fullmatch(arm_request.path)):
            groups = {name: unquote(value) for name, value in match.groupdict().items() if value is not None}
            if groups.get("account", account.name).lower() != account.name.lower():
                raise Fault("ResourceNotFound", f"The Batch account '{groups['account']}' was not found.")
            # Resource Manager itself has other API versions than Batch.
            revision = _revision(arm_request, parameters) if "providers" in path.pattern else 0
            here = arm_request._replace(
                path=groups.get("id", ""), version=groups.get("version", ""), raw_path=arm_request.path
            )
            return operation(world, account, here, groups.get("name", ""), revision)
    text = f"The emulator's Resource Manager does not have {arm_request.verb} {arm_request.path}."
    raise Fault("NotImplementedByEmulator", text)


def refusal(fault: Fault) -> Reply:
    """A refusal in Resource Manager's form."""
    details = "".join(f" {name}: {value}" for name, value in fault.details.items())
    code = {"NeedsToken": "InvalidAuthenticationToken"}.get(type(fault).__name__, fault.code)
    headers = {}
    if isinstance(fault, NeedsToken):
        headers["WWW-Authenticate"] = f'Bearer authorization_uri="{wire.SIGN_IN}", error="invalid_token"'
    return Reply(fault.status, {"error": {"code": code, "message": f"{fault.text}{details}"}}, headers)


def _revision(arm_request: Request, parameters: tuple[str, ...]) -> int:
    version = arm_request.query.get("api-version", "")
    if version not in VERSIONS:
        reason = f"The API version '{version}' is not supported. Use one of {', '.join(VERSIONS)}."
        raise Fault("InvalidQueryParameterValue", f"One of the query parameters is invalid. {reason}")
    if others := set(arm_request.query) - {"api-version", *parameters}:
        raise Fault("NotImplementedByEmulator", f"The emulator's Resource Manager does not take {', '.join(others)}.")
    return VERSIONS[version]


# The account ---------------------------------------------------------------------------------------------------------


def _fixed(document: Document | None, status: int = 200) -> Operation:
    """An operation with the same answer at all times."""
    return lambda *_: Reply(status, document)


TENANT = {"id": f"/tenants/{tokens.TENANT}", "tenantId": tokens.TENANT, "displayName": "emulator"}
SUBSCRIPTION: Document = {
    "id": f"/subscriptions/{tokens.TENANT}",
    "subscriptionId": tokens.TENANT,
    "tenantId": tokens.TENANT,
    "displayName": "emulator",
    "state": "Enabled",
}
"""What programs such as `az login` read before the account."""


def _list_accounts(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    group = f"{PREFIXES[0]}/{tokens.TENANT}/resourceGroups/emulator"
    where = arm_request._replace(path=f"{group}/providers/Microsoft.Batch/batchAccounts/{account.name}")
    answer_of_account = _get_account(world, account, where, "", revision)
    return Reply(200, {"value": [answer_of_account.document]})


def _get_account(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    is_user_subscription = world.allocation == USER_SUBSCRIPTION
    most, group = world.quotas, arm_request.path.partition("/providers/")[0]
    storage = f"{group}/providers/Microsoft.Storage/storageAccounts/{STORAGE_ACCOUNT}"
    properties = {
        "accountEndpoint": account.host,
        "nodeManagementEndpoint": account.host,
        "provisioningState": "Succeeded",
        "poolAllocationMode": world.allocation,
        "publicNetworkAccess": "Enabled",
        "autoStorage": {
            "storageAccountId": storage,
            "lastKeySync": wire.timestamp(arm_request.now),
            "authenticationMode": "StorageKeys",
        },
        "dedicatedCoreQuota": _limit(most.dedicated_cores),
        "lowPriorityCoreQuota": _limit(most.low_priority_cores),
        "poolQuota": _limit(most.pools),
        "activeJobAndJobScheduleQuota": _limit(most.active_jobs),
        "dedicatedCoreQuotaPerVMFamilyEnforced": False,
        "allowedAuthenticationModes": [tokens.TOKEN, *([] if is_user_subscription else [tokens.SHARED_KEY])],
    }
    kind = {"type": "Microsoft.Batch/batchAccounts", "location": "emulator", "identity": {"type": "None"}, "tags": {}}
    return Reply(200, {"id": arm_request.path, "name": account.name, **kind, "properties": properties})


def _delete_account(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    text = "The emulator cannot delete its account: `batchtrain emulator stop`."
    raise Fault("OperationInvalidForCurrentState", text)


def _regenerate_keys(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    text = "The emulator has one key, which its clients on this machine read from a file. It cannot be regenerated."
    raise Fault("OperationInvalidForCurrentState", text)


def _not_found(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    raise Fault("ResourceNotFound", f"The emulator's account has no resource '{name}'.")


def _list_operations(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """GET operations: one of each route, by its type of resource."""
    names = []
    for verb, path in (route[:2] for route in ROUTES):
        pattern = path.pattern.replace(_ACCOUNT, "/batchAccounts").replace("(?:", "")
        kinds = dict.fromkeys(re.findall(r"/([A-Za-z]+)(?=/|$)", pattern))
        action = {"GET": "read", "DELETE": "delete", "POST": "action"}.get(verb, "write")
        names.append("/".join(["Microsoft.Batch", *kinds, action]))
    return Reply(200, {"value": [{"name": name, "isDataAction": False} for name in dict.fromkeys(names)]})


def _sizes(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """The VM sizes of the tables that are not retired, as Batch lists those of a region."""
    value = [_size(size) for size in sizes.SIZES if not sizes.gone(size)]
    condition = query.parse_filter(arm_request.query["$filter"]) if arm_request.query.get("$filter") else None
    return _page(arm_request, [size for size in value if condition is None or condition(size)])


def _size(size: sizes.VmSize) -> Document:
    has = {"vCPUs": size.cores, "vCPUsAvailable": size.cores, "MemoryGB": size.memory_gib, "GPUs": size.gpus,
           "RdmaEnabled": bool(size.rdma)}  # fmt: skip
    document: Document = {
        "name": size.name,
        "familyName": f"standard{size.family.replace(' ', '')}Family",
        "capabilities": [{"name": name, "value": str(value)} for name, value in has.items() if value],
    }
    return document | ({"batchSupportEndOfLife": f"{size.retired}T00:00:00Z"} if size.retired else {})


def _check_name(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    name = str(models.decode(arm_request.body).get("name", ""))
    if not re.fullmatch(r"[a-z0-9]{3,24}", name):
        message = "The account name must contain 3 to 24 lowercase letters or numbers."
        return Reply(200, {"nameAvailable": False, "reason": "Invalid", "message": message})
    if name == account.name.lower():
        message = f"An account named '{name}' is already in use."
        return Reply(200, {"nameAvailable": False, "reason": "AlreadyExists", "message": message})
    return Reply(200, {"nameAvailable": True})


def _page(arm_request: Request, value: list[Document]) -> Reply:
    """One page of a list: `maxresults` entries after `$skiptoken`."""
    most = query.most_results(arm_request.query.get("maxresults", "")) or query.MAX_PAGE
    start = query.number(arm_request.query.get("$skiptoken", ""))
    document: Document = {"value": value[start : start + most]}
    if start + most < len(value):
        parameters = {**arm_request.query, "$skiptoken": str(start + most)}
        pairs = "&".join(f"{quote(name, safe='$-')}={quote(text, safe='')}" for name, text in parameters.items())
        document["nextLink"] = f"{arm_request.base}{arm_request.raw_path}?{pairs}"
    return Reply(200, document)


def _limit(most: int | None) -> int:
    """No limit is shown as a large number, because programs compare it."""
    return quotas.MOST if most is None else most


def _list_keys(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """The emulator has one key, shown as both."""
    return Reply(200, {"accountName": account.name, "primary": account.key, "secondary": account.key})


# Pools ---------------------------------------------------------------------------------------------------------------


def _put_pool(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    pool_body = arm_request.read(PoolBody)
    call = _call(arm_request, (), {"id": pool_id, **request(pool_body.properties)}, revision)
    entry = world.pools.get(pool_id.lower())
    if entry is None:
        pools.create_pool(world, call, _identity(pool_body.identity))
    elif arm_request.headers.get("if-none-match") == "*":
        raise Fault("ConditionNotMet")
    else:
        pools.put_pool(world, call, entry, _identity(pool_body.identity))
    return _pool(world.pool(pool_id), arm_request, revision)


def _get_pool(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    return _pool(world.pool(pool_id), arm_request, revision)


def _list_pools(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """Only texts and times of a filter are compared; `properties/scaleSettings/autoScale` compares with null."""
    entries = sorted(world.pools.values(), key=lambda entry: entry.record.id)
    documents = [shown(entry, arm_request, revision) for entry in entries]
    if text := arm_request.query.get("$filter"):
        condition = query.parse_filter(text, POOL_FILTERS)
        documents = [document for document in documents if condition(document)]
    words = arm_request.query.get("$select", "").split(",")
    if names := {word.strip().removeprefix("properties/").partition("/")[0] for word in words if word.strip()}:
        for document in documents:
            document["properties"] = {name: value for name, value in document["properties"].items() if name in names}
    return _page(arm_request, documents)


_SCALE_NAMES = "properties/scaleSettings/autoScale properties/scaleSettings/fixedScale"
_TIMES = ("allocationStateTransitionTime", "creationTime", "provisioningStateTransitionTime", "lastModified")
_STATES = ("allocationState", "provisioningState", "vmSize", "interNodeCommunication")
POOL_FILTERS = query.filters("", f"name:text {_SCALE_NAMES.replace(' ', ':same ')}:same "
                             + " ".join([*(f"properties/{name}:order" for name in _TIMES),
                                         *(f"properties/{name}:same" for name in _STATES)]))  # fmt: skip
"""The properties by which pools can be listed (azure-rest-api-specs, Pool.tsp)."""


SERVICE_NAMES = {
    **{name: name for name in KEPT},
    "deploymentConfiguration": "virtualMachineConfiguration",
    "interNodeCommunication": "enableInterNodeCommunication",
    "applicationPackages": "applicationPackageReferences",
}
"""Property of a pool here -> the one of the service's own request."""


def _patch_pool(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    """PATCH changes the given properties only."""
    entry, pool_body, sent_document = world.pool(pool_id), arm_request.read(PoolBody), models.decode(arm_request.body)
    names = sent_document.get("properties") or {}
    service_request = request(pool_body.properties)
    changed = [SERVICE_NAMES[name] for name in names if name in SERVICE_NAMES and names[name] != {}]
    call = _call(arm_request, (pool_id,), {name: service_request[name] for name in changed if name in service_request},
                 revision)  # fmt: skip
    call.check(entry.record)
    if changed:
        pools.update_pool(world, call)
    if names.get("startTask") == {}:  # removes it, as in Microsoft's published example
        entry.record.spec = {name: value for name, value in entry.record.spec.items() if name != "startTask"}
        world.stamp(entry.record, arm_request.now)
        world.save_pool(entry)
    if "scaleSettings" in names:
        pools.put_scale(world, call, entry, service_request)
    if "identity" in sent_document:
        entry.record.spec = {**entry.record.spec, "identity": _identity(pool_body.identity)}
        world.stamp(entry.record, arm_request.now)
        world.save_pool(entry)
    return _pool(entry, arm_request, revision)


def _disable_autoscale(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    autoscale.disable(world, _call(arm_request, (pool_id,), {}, revision))
    return _pool(world.pool(pool_id), arm_request, revision)


def _stop_resize(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    pools.stop_pool_resize(world, _call(arm_request, (pool_id,), {}, revision))
    return _pool(world.pool(pool_id), arm_request, revision)


def _call(arm_request: Request, path: tuple[str, ...], document: Document, revision: int) -> Call:
    """The service's own request in place of one of Resource Manager."""
    body = msgspec.json.encode(document)
    headers = {name: arm_request.headers[name] for name in ("if-match",) if name in arm_request.headers}
    where = "/".join(("/pools", *path))
    return Call(path, {}, headers, body, where, arm_request.base, arm_request.now, revision, signed_by=tokens.TOKEN)


def _delete_pool(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    """202 with the address that reports the end; 204 for a pool that does not exist."""
    entry = world.pools.get(pool_id.lower())
    if entry is None:
        return Reply(204)
    if entry.record.state != "deleting":
        pools.delete_pool(world, _call(arm_request, (pool_id,), {}, revision))
    return _going_on(arm_request, entry.record.id)


def _deletion(world: World, account: Account, arm_request: Request, operation: str, revision: int) -> Reply:
    pool_id = operation.removeprefix("delete-").rpartition("-")[0]
    return _going_on(arm_request, pool_id) if pool_id.lower() in world.pools else Reply(200)


def _going_on(arm_request: Request, pool_id: str) -> Reply:
    version = arm_request.query["api-version"]
    operation = f"delete-{pool_id}-{tokens.digest(pool_id)}"
    where = f"{arm_request.base}{quote(arm_request.path)}/poolOperationResults/{quote(operation)}?api-version={version}"
    return Reply(202, headers={"Location": where, "Retry-After": POLL_SECONDS})


def _pool(entry: PoolEntry, arm_request: Request, revision: int) -> Reply:
    return Reply(200, shown(entry, arm_request, revision), {"ETag": _etag(entry)})


def _etag(entry: PoolEntry) -> str:
    return f'W/"{entry.record.etag}"'


def request(properties: Properties) -> Document:
    """The service's own request for a pool in Resource Manager's form."""
    values = msgspec.to_builtins(properties)
    packages = [{**_only(package, "version"), "applicationId": str(package["id"]).rpartition("/")[2]}
                for package in values.get("applicationPackages") or ()]  # fmt: skip
    former = {"certificateReferences": properties.certificates, "applicationLicenses": properties.applicationLicenses}
    return {
        **_renamed({name: values[name] for name in KEPT if values.get(name) is not None}, RENAMED),
        **_machine(properties.deploymentConfiguration),
        **_scale(properties.scaleSettings),
        **({"applicationPackageReferences": packages} if packages else {}),
        **{name: value for name, value in former.items() if value},
        "enableInterNodeCommunication": properties.interNodeCommunication == "Enabled",
    }


def _machine(deployment: Deployment) -> Document:
    """The virtual machine configuration, with its image under the service's name."""
    document = msgspec.to_builtins(deployment)
    machine = document.get("virtualMachineConfiguration")
    if machine is not None and isinstance(machine.get("imageReference"), dict):
        machine = {**machine, "imageReference": _renamed(machine["imageReference"], {"id": "virtualMachineImageId"})}
        document = {**document, "virtualMachineConfiguration": machine}
    return {name: _renamed(value, RENAMED) for name, value in document.items() if value is not None}


def _scale(scale: Scale) -> Document:
    if scale.autoScale is not None:
        if scale.fixedScale is not None:
            raise invalid_property("scaleSettings", "", "It has either fixedScale or autoScale.")
        auto = {"autoScaleFormula": scale.autoScale.formula}
        interval = scale.autoScale.evaluationInterval
        return {"enableAutoScale": True, **auto, **({"autoScaleEvaluationInterval": interval} if interval else {})}
    sizes = msgspec.to_builtins(scale.fixedScale or FixedScale())
    return {name: sizes[name] for name in FIXED if sizes[name] is not None}


def _identity(identity: Identity | None) -> Document | None:
    """The pool as the service shows it."""
    if identity is None or identity.type == "None":
        return None
    identities = identity.userAssignedIdentities or {}
    return {"type": "UserAssigned", "userAssignedIdentities": [{"resourceId": name} for name in identities]}


def shown(entry: PoolEntry, arm_request: Request, revision: int) -> Document:
    """A pool in Resource Manager's form."""
    pool = models.shown("BatchPool", pool_document(entry, arm_request.base), revision)
    back = {new: old for old, new in RENAMED.items()}
    machine = _renamed(pool["virtualMachineConfiguration"], {**back, "virtualMachineImageId": "id"})
    fixed_scale = {name: pool[name] for name in FIXED if name in pool}
    scale: Document = {"fixedScale": fixed_scale}
    if pool["enableAutoScale"]:
        interval = pool.get("autoScaleEvaluationInterval", "PT15M")
        scale = {"autoScale": {"formula": pool["autoScaleFormula"], "evaluationInterval": interval}}
    properties = {
        **_renamed({name: pool[name] for name in SHOWN if name in pool}, back),
        "provisioningState": "Deleting" if entry.record.state == "deleting" else "Succeeded",
        "provisioningStateTransitionTime": pool["stateTransitionTime"],
        "allocationState": WORDS[pool["allocationState"]],
        "deploymentConfiguration": {"virtualMachineConfiguration": machine},
        "scaleSettings": scale,
        "interNodeCommunication": "Enabled" if pool["enableInterNodeCommunication"] else "Disabled",
        "resizeOperationStatus": {**fixed_scale, "errors": [_error(error) for error in pool.get("resizeErrors", [])]},
        "applicationPackages": [
            {"id": f"{arm_request.path}/applications/{id_of(package)}", **_only(package, "version")}
            for package in pool.get("applicationPackageReferences", [])
        ],
    }
    if run := pool.get("autoScaleRun"):
        error = {"error": _error(run["error"])} if "error" in run else {}
        properties["autoScaleRun"] = {"evaluationTime": run["timestamp"], "results": run["results"], **error}
    where = f"{arm_request.path}/pools/{entry.record.id}"
    kind: Document = {"type": "Microsoft.Batch/batchAccounts/pools", "etag": _etag(entry), "identity": {"type": "None"}}
    if identity := pool.get("identity"):
        identities: Document = {assignment["resourceId"]: {} for assignment in identity["userAssignedIdentities"]}
        kind["identity"] = {"type": "UserAssigned", "userAssignedIdentities": identities}
    return {"id": where, "name": entry.record.id, **kind, "properties": _spelled(properties)}


def _error(error: Document) -> Document:
    """An error of a formula or a resize, whose values are details here."""
    details = [{"code": value["name"], "message": value["value"]} for value in error.get("values", ())]
    return {"code": error["code"], "message": error["message"], "details": details}


def _only(document: Document, name: str) -> Document:
    return {name: document[name]} if name in document else {}


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The document with renamed properties, at any depth, but not within the user's own objects."""
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {names.get(name, name): inner if name in OPAQUE else _renamed(inner, names) for name, inner in value.items()}


def _spelled(value: Any, name: str = "") -> Any:
    """The document with capitalized enumeration values."""
    if isinstance(value, list):
        return [_spelled(item, name) for item in value]
    if isinstance(value, dict):
        return {inner: item if inner in OPAQUE else _spelled(item, inner) for inner, item in value.items()}
    return WORDS.get(value.lower(), value) if name in ENUMERATED and isinstance(value, str) else value


Route = tuple[str, re.Pattern[str], Operation, tuple[str, ...]]


def _route(verb: str, path: str, operation: Operation, *parameters: str) -> Route:
    """parameters: of the query, besides `api-version`."""
    return verb, re.compile(path, re.IGNORECASE), operation, parameters


_POOL, _APPLICATION = f"{_ACCOUNT}/pools/(?P<name>[^/]+)", f"{_ACCOUNT}/applications/(?P<name>[^/]+)"
_PACKAGE = f"{_APPLICATION}/versions/(?P<version>[^/]+)"
_LOCATION = r"/subscriptions/[^/]+/providers/Microsoft\.Batch/locations/[^/]+"
_PAGES = ("maxresults", "$skiptoken")
_ABSENT = ("privateLinkResources", "privateEndpointConnections", "networkSecurityPerimeterConfigurations", "detectors")
"""Kinds of resources of which the emulator's account has none."""


ROUTES: tuple[Route, ...] = (
    _route("GET", "/subscriptions", _fixed({"value": [SUBSCRIPTION]})),
    _route("GET", "/subscriptions/[^/]+", _fixed(SUBSCRIPTION)),
    _route("GET", "/tenants", _fixed({"value": [TENANT]})),
    _route("GET", r"/providers/Microsoft\.Batch/operations", _list_operations),
    _route("GET", _ACCOUNTS, _list_accounts),
    _route("GET", _ACCOUNT, _get_account),
    _route("PUT", _ACCOUNT, _get_account),  # it exists; the emulator was started with its settings
    _route("PATCH", _ACCOUNT, _get_account),
    _route("DELETE", _ACCOUNT, _delete_account),
    _route("POST", f"{_ACCOUNT}/listKeys", _list_keys),
    _route("POST", f"{_ACCOUNT}/regenerateKeys", _regenerate_keys),
    _route("POST", f"{_ACCOUNT}/syncAutoStorageKeys", _fixed(None, 204)),
    _route("GET", f"{_ACCOUNT}/outboundNetworkDependenciesEndpoints", _fixed({"value": []})),
    _route("GET", f"{_ACCOUNT}/pools", _list_pools, *_PAGES, "$filter", "$select"),
    _route("PUT", _POOL, _put_pool),
    _route("PATCH", _POOL, _patch_pool),
    _route("GET", _POOL, _get_pool),
    _route("DELETE", _POOL, _delete_pool),
    _route("POST", f"{_POOL}/disableAutoScale", _disable_autoscale),
    _route("POST", f"{_POOL}/stopResize", _stop_resize),
    _route("GET", f"{_ACCOUNT}/poolOperationResults/(?P<name>[^/]+)", _deletion),
    _route("GET", f"{_ACCOUNT}/applications", arm_applications.list_applications, *_PAGES),
    _route("GET", _APPLICATION, arm_applications.get_application),
    _route("PUT", _APPLICATION, arm_applications.put_application),
    _route("PATCH", _APPLICATION, arm_applications.patch_application),
    _route("DELETE", _APPLICATION, arm_applications.delete_application),
    _route("GET", f"{_APPLICATION}/versions", arm_applications.list_packages, *_PAGES),
    _route("GET", _PACKAGE, arm_applications.get_package),
    _route("PUT", _PACKAGE, arm_applications.put_package),
    _route("DELETE", _PACKAGE, arm_applications.delete_package),
    _route("POST", f"{_PACKAGE}/activate", arm_applications.activate),
    _route("GET", f"{_LOCATION}/quotas", _fixed({"accountQuota": 1})),
    _route("GET", f"{_LOCATION}/virtualMachineSkus", _sizes, *_PAGES, "$filter"),
    _route("POST", f"{_LOCATION}/checkNameAvailability", _check_name),
    *(_route("GET", f"{_ACCOUNT}/{kind}", _fixed({"value": []}), *_PAGES) for kind in _ABSENT),
    *(
        _route(verb, f"{_ACCOUNT}/{kind}/(?P<name>[^/]+)(?:/reconcile)?", _not_found)
        for kind in _ABSENT
        for verb in ("GET", "PATCH", "DELETE", "POST")
    ),
)
