"""A small stand-in for Azure Resource Manager, for azure-mgmt-batch: the account with its keys, and its pools; pure.

Any subscription and resource group leads to the one account. A pool is translated to the service's own request and
back, so both sides see the same pools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NoReturn
from urllib.parse import quote, unquote

import msgspec

from batchtrain.catalog import meaning, sizes
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
VERSIONS: Mapping[str, int] = {name[:10]: number for name, number in REVISIONS.items() if number >= 12} | {
    "2021-01-01": 14, "2022-06-01": 15,
}  # fmt: skip
"""API version -> the revision of the service's tables that it corresponds to; the first is azure-mgmt-batch 14's."""
REGION = "eastus"
"""The region of the account. The emulator has no other."""
FIXED = ("targetDedicatedNodes", "targetLowPriorityNodes", "resizeTimeout")
POLL_SECONDS = "1"
"""Retry-After of a running deletion."""
_ACCOUNTS = r"/subscriptions/[^/]+(?:/resourceGroups/[^/]+)?/providers/Microsoft\.Batch/batchAccounts"
_ACCOUNT = (
    r"(?P<id>/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Batch/batchAccounts/(?P<account>[^/]+))"
)


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
        reason = f"The API version '{version}' is not supported. Use one of {', '.join(sorted(VERSIONS))}."
        raise Fault("InvalidQueryParameterValue", f"One of the query parameters is invalid. {reason}")
    if others := set(arm_request.query) - {"api-version", *parameters}:
        raise Fault("NotImplementedByEmulator", f"The emulator's Resource Manager does not take {', '.join(others)}.")
    return VERSIONS[version]


# The account ---------------------------------------------------------------------------------------------------------


def _fixed(document: Document | None, status: int = 200) -> Operation:
    """An operation with the same answer at all times."""
    return lambda *_: Reply(status, document)


TENANT = {"id": f"/tenants/{tokens.TENANT}", "tenantId": tokens.TENANT, "displayName": "emulator"}
SUBSCRIPTION = {**TENANT, "id": f"/subscriptions/{tokens.TENANT}", "subscriptionId": tokens.TENANT, "state": "Enabled"}
"""What programs such as `az login` read before the account."""


def _list_accounts(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """The account is in each subscription and resource group."""
    subscription, _, group = arm_request.raw_path.partition("/providers/")[0].partition("/resourceGroups/")
    path = f"{subscription}/resourceGroups/{group or 'emulator'}/providers/Microsoft.Batch/batchAccounts/{account.name}"
    where = arm_request._replace(path=path)
    return Reply(200, {"value": [_get_account(world, account, where, "", revision).document]})


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
    kind = {"type": "Microsoft.Batch/batchAccounts", "location": REGION, "identity": {"type": "None"}, "tags": {}}
    return Reply(200, {"id": arm_request.path, "name": account.name, **kind, "properties": properties})


def _refused(text: str) -> Operation:
    """An operation that the emulator's account cannot do."""

    def refuse(*_: object) -> NoReturn:
        raise Fault("OperationInvalidForCurrentState", text)

    return refuse


DELETION = "The emulator cannot delete its account: `batchtrain emulator stop`."
REGENERATION = "The emulator has one key, which its clients on this machine read from a file. It cannot be regenerated."


def _none(world: World, account: Account, arm_request: Request, name: str, revision: int) -> NoReturn:
    raise Fault("ResourceNotFound", f"The emulator's account has no resource '{name}'.")


OPERATIONS = """
batchAccounts/providers/Microsoft.Insights/diagnosticSettings: read write
batchAccounts/providers/Microsoft.Insights/logDefinitions: read
batchAccounts/providers/Microsoft.Insights/metricDefinitions: read
batchAccounts/jobs: read write delete
batchAccounts/jobSchedules: read write delete
operations: read
batchAccounts: read write delete listkeys/action regeneratekeys/action
locations/quotas: read
locations/checkNameAvailability: action
batchAccounts/operationResults: read
locations/accountOperationResults: read
register: action
unregister: action
batchAccounts/syncAutoStorageKeys: action
batchAccounts/applications: read write delete
batchAccounts/applications/versions: read write delete activate/action
batchAccounts/certificates: read write delete cancelDelete/action
batchAccounts/certificateOperationResults: read
batchAccounts/pools: read write delete stopResize/action disableAutoscale/action
batchAccounts/poolOperationResults: read
locations/virtualMachineSkus: read
locations/cloudServiceSkus: read
batchAccounts/privateLinkResources: read
batchAccounts/privateEndpointConnections: write read
batchAccounts/privateEndpointConnectionResults: read
batchAccounts/privateEndpointConnectionProxies: validate/action write read delete
batchAccounts/privateEndpointConnectionProxyResults: read
batchAccounts/detectors: read
batchAccounts/outboundNetworkDependenciesEndpoints: read
"""
"""The operations that Azure lists, by type of resource (recorded: azure-mgmt-batch 16.1)."""


def _list_operations(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """GET operations. The words about each are the emulator's own."""
    rows = (line.partition(": ")[::2] for line in OPERATIONS.strip().splitlines())
    return Reply(200, {"value": [_operation(kind, action) for kind, text in rows for action in text.split()]})


def _operation(kind: str, action: str) -> Document:
    resource = re.sub(r"([a-z])([A-Z])", r"\1 \2", kind.rpartition("/")[2]).lower()
    words = "" if action == "action" else action.removesuffix("/action")
    operation = f"{words} {resource.removesuffix('s')}".strip().capitalize()
    display = {"provider": "Microsoft Batch", "resource": resource.capitalize(), "operation": operation}
    of_monitor = {"origin": "system"} if "/providers/" in kind else {}
    name = f"Microsoft.Batch/{kind}/{action}"
    return {"name": name, "isDataAction": "/job" in kind, "display": display | {"description": operation}, **of_monitor}


_LINK = "batchAccount"
"""The one private link resource of an account."""


def _list_links(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    return arm_request.page([_link(arm_request)])


def _get_link(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    if name.lower() != _LINK.lower():
        _none(world, account, arm_request, name, revision)
    return Reply(200, _link(arm_request))


def _link(arm_request: Request) -> Document:
    """azure-rest-api-specs, PrivateLinkResourcesList."""
    zones = [f"privatelink.{REGION}.batch.azure.com"]
    properties = {"groupId": _LINK, "requiredMembers": [_LINK], "requiredZoneNames": zones}
    kind = "privateLinkResources"
    where = {"id": f"{arm_request.path}/{kind}/{_LINK}", "name": _LINK, "type": f"Microsoft.Batch/batchAccounts/{kind}"}
    return {**where, "properties": properties}


def _sizes(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """The VM sizes of the tables that are not retired, as Batch lists those of a region."""
    value = [_size(size) for size in sizes.SIZES if not sizes.gone(size)]
    condition = query.parse_filter(arm_request.query["$filter"]) if arm_request.query.get("$filter") else None
    return arm_request.page([size for size in value if condition is None or condition(size)])


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


def _limit(most: int | None) -> int:
    """No limit is shown as a large number, because programs compare it."""
    return quotas.MOST if most is None else most


def _list_keys(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """The emulator has one key, shown as both."""
    return Reply(200, {"accountName": account.name, "primary": account.key, "secondary": account.key})


# Pools ---------------------------------------------------------------------------------------------------------------


def _put_pool(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    pool_body = _pool_body(arm_request, revision)
    properties = pool_body.get("properties", {})
    scale = properties.get("scaleSettings", {})
    call = _call(arm_request, (), {"id": pool_id, **request(properties), **_scale(scale)}, revision)
    entry = world.pools.get(pool_id.lower())
    if entry is None:
        pools.create_pool(world, call, _identity(pool_body))
    elif arm_request.headers.get("if-none-match") == "*":
        raise Fault("ConditionNotMet")
    else:
        pools.put_pool(world, call, entry, _identity(pool_body))
    _keep(world, world.pool(pool_id), {"tags": {}, **pool_body}, scale)
    return _pool(world.pool(pool_id), arm_request, revision)


def _pool_body(arm_request: Request, revision: int) -> Document:
    """The body of a PUT or PATCH. Raises Fault 400."""
    return models.read("ArmPool", models.decode(arm_request.body), revision=revision)


def _keep(world: World, entry: PoolEntry, pool_body: Document, scale: Document) -> None:
    """Store what the service's own requests do not have."""
    pool = entry.record
    tags = pool_body.get("tags", pool.tags)
    deallocation = scale.get("fixedScale", {}).get("nodeDeallocationOption", pool.deallocation)
    if (tags, deallocation) != (pool.tags, pool.deallocation):
        pool.tags, pool.deallocation = tags, deallocation
        world.save_pool(entry)


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
    return arm_request.page(documents)


_SCALE_NAMES = "properties/scaleSettings/autoScale properties/scaleSettings/fixedScale"
_TIMES = ("allocationStateTransitionTime", "creationTime", "provisioningStateTransitionTime", "lastModified")
_STATES = ("allocationState", "provisioningState", "vmSize", "interNodeCommunication")
POOL_FILTERS = query.filters("", f"name:text {_SCALE_NAMES.replace(' ', ':same ')}:same "
                             + " ".join([*(f"properties/{name}:order" for name in _TIMES),
                                         *(f"properties/{name}:same" for name in _STATES)])
                             )._replace(is_any_case=True)  # fmt: skip
"""The properties by which pools can be listed (azure-rest-api-specs, Pool.tsp)."""


def _patch_pool(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    """PATCH changes the given properties only."""
    entry, pool_body = world.pool(pool_id), _pool_body(arm_request, revision)
    properties = pool_body.get("properties", {})
    removes_start_task = properties.get("startTask") == {}  # as in Microsoft's published example
    service_request = request({name: value for name, value in properties.items() if value != {}})
    call = _call(arm_request, (pool_id,), service_request, revision)
    call.check(entry.record)
    if service_request:
        pools.update_pool(world, call)
    scale = properties.get("scaleSettings", {})
    if scale:
        pools.put_scale(world, call, entry, _scale(scale))
    spec = entry.record.spec
    if removes_start_task:
        spec = {name: value for name, value in spec.items() if name != "startTask"}
    if "identity" in pool_body:
        spec = {**spec, "identity": _identity(pool_body)}
    if spec is not entry.record.spec:
        entry.record.spec = spec
        world.stamp(entry.record, arm_request.now)
        world.save_pool(entry)
    _keep(world, entry, pool_body, scale)
    return _pool(entry, arm_request, revision)


def _action(operation: Callable[[World, Call], Reply]) -> Operation:
    """An operation of the service without a body, which is answered with the pool."""

    def act(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
        operation(world, _call(arm_request, (pool_id,), {}, revision))
        return _pool(world.pool(pool_id), arm_request, revision)

    return act


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


def request(properties: Document) -> Document:
    """The service's own request with the given properties of a pool, except its scale settings."""
    service = {field.name for field in models.fields()["BatchPoolCreateOptions"]}
    document = {name: value for name, value in properties.items() if name in service}
    document |= properties.get("deploymentConfiguration", {})
    if "interNodeCommunication" in properties:
        document["enableInterNodeCommunication"] = properties["interNodeCommunication"] == "Enabled"
    if "applicationPackages" in properties:
        document["applicationPackageReferences"] = [
            {**_only(package, "version"), "applicationId": package["id"].rpartition("/")[2]}
            for package in properties["applicationPackages"]
        ]
    return dict(models.from_resource_manager("BatchPoolCreateOptions", document))


def _scale(scale: Document) -> Document:
    """The part of the service's own request that a pool's scale settings are."""
    if "autoScale" not in scale:
        return {name: value for name, value in scale.get("fixedScale", {}).items() if name in FIXED}
    if "fixedScale" in scale:
        raise invalid_property("scaleSettings", "", "It has either fixedScale or autoScale.")
    auto = scale["autoScale"]
    interval = {"autoScaleEvaluationInterval": auto["evaluationInterval"]} if "evaluationInterval" in auto else {}
    return {"enableAutoScale": True, "autoScaleFormula": auto["formula"], **interval}


def _identity(pool_body: Document) -> Document | None:
    """The identities of a pool as the service shows them."""
    identity = pool_body.get("identity", {"type": "None"})
    if identity["type"] == "None":
        return None
    identities = identity.get("userAssignedIdentities", {})
    return {"type": "UserAssigned", "userAssignedIdentities": [{"resourceId": name} for name in identities]}


def shown(entry: PoolEntry, arm_request: Request, revision: int) -> Document:
    """A pool in Resource Manager's form."""
    record = entry.record
    pool = models.shown("BatchPool", pool_document(entry, arm_request.base), revision)
    machine = models.in_resource_manager("VirtualMachineConfiguration", pool[meaning.VM], revision)
    packages = pool.get("applicationPackageReferences", [])
    names = models.shapes(revision)["ArmPoolProperties"].readers.keys() & pool.keys() - {"autoScaleRun"}
    properties: Document = {
        **models.in_resource_manager("BatchPool", {name: pool[name] for name in pool if name in names}, revision),
        "vmSize": pool["vmSize"].upper() if "vmSkuProfile" not in pool else meaning.MIX,
        "provisioningState": "Deleting" if record.state == "deleting" else "Succeeded",
        "provisioningStateTransitionTime": pool["stateTransitionTime"],
        "deploymentConfiguration": {meaning.VM: machine},
        "interNodeCommunication": "Enabled" if pool["enableInterNodeCommunication"] else "Disabled",
        "applicationPackages": [
            {"id": f"{arm_request.path}/applications/{id_of(package)}", **_only(package, "version")}
            for package in packages
        ],
        **_scale_shown(entry, pool, revision),
    }
    if run := pool.get("autoScaleRun"):
        error = {"error": _error(run["error"])} if "error" in run else {}
        properties["autoScaleRun"] = {"evaluationTime": run["timestamp"], "results": run["results"], **error}
    where = f"{arm_request.path}/pools/{record.id}"
    kind: Document = {"type": "Microsoft.Batch/batchAccounts/pools", "etag": _etag(entry), "identity": {"type": "None"}}
    if identity := pool.get("identity"):
        identities: Document = {assignment["resourceId"]: {} for assignment in identity["userAssignedIdentities"]}
        kind["identity"] = {"type": "UserAssigned", "userAssignedIdentities": identities}
    tags = {"tags": record.tags} if record.tags else {}
    return {"id": where, "name": record.id, **kind, **tags, "properties": properties}


def _scale_shown(entry: PoolEntry, pool: Document, revision: int) -> Document:
    """The scale settings of a pool, and its last resize."""
    record = entry.record
    fixed_scale = {name: pool[name] for name in FIXED if name in pool}
    option = models.in_resource_manager("BatchNodeDeallocationOption", record.deallocation, revision)
    resize = {**fixed_scale, "nodeDeallocationOption": option, "startTime": wire.timestamp(record.resize_time)}
    if errors := [_error(error) for error in pool.get("resizeErrors", ())]:
        resize["errors"] = errors
    scale: Document = {"fixedScale": fixed_scale}
    if pool["enableAutoScale"]:
        auto = {"formula": pool["autoScaleFormula"], "evaluationInterval": pool["autoScaleEvaluationInterval"]}
        scale = {"autoScale": auto}
    return {"scaleSettings": scale, "resizeOperationStatus": resize}


def _error(error: Document) -> Document:
    """An error of a formula or a resize, whose values are details here."""
    details = [{"code": value["name"], "message": value["value"]} for value in error.get("values", ())]
    return {"code": error["code"], "message": error["message"], "details": details}


def _only(document: Document, name: str) -> Document:
    return {name: document[name]} if name in document else {}


Route = tuple[str, re.Pattern[str], Operation, tuple[str, ...]]


def _route(verb: str, path: str, operation: Operation, *parameters: str) -> Route:
    """parameters: of the query, besides `api-version`."""
    return verb, re.compile(path, re.IGNORECASE), operation, parameters


_POOL, _APPLICATION = f"{_ACCOUNT}/pools/(?P<name>[^/]+)", f"{_ACCOUNT}/applications/(?P<name>[^/]+)"
_PACKAGE = f"{_APPLICATION}/versions/(?P<version>[^/]+)"
_LOCATION = r"/subscriptions/[^/]+/providers/Microsoft\.Batch/locations/[^/]+"
_PAGES = ("maxresults", "$skiptoken")
_ABSENT = ("privateEndpointConnections", "networkSecurityPerimeterConfigurations", "detectors")
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
    _route("DELETE", _ACCOUNT, _refused(DELETION)),
    _route("POST", f"{_ACCOUNT}/listKeys", _list_keys),
    _route("POST", f"{_ACCOUNT}/regenerateKeys", _refused(REGENERATION)),
    _route("POST", f"{_ACCOUNT}/syncAutoStorageKeys", _fixed(None, 204)),
    _route("GET", f"{_ACCOUNT}/outboundNetworkDependenciesEndpoints", _fixed({"value": []})),
    _route("GET", f"{_ACCOUNT}/pools", _list_pools, *_PAGES, "$filter", "$select"),
    _route("PUT", _POOL, _put_pool),
    _route("PATCH", _POOL, _patch_pool),
    _route("GET", _POOL, _get_pool),
    _route("DELETE", _POOL, _delete_pool),
    _route("POST", f"{_POOL}/disableAutoScale", _action(autoscale.disable)),
    _route("POST", f"{_POOL}/stopResize", _action(pools.stop_pool_resize)),
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
    _route("GET", f"{_LOCATION}/cloudServiceSkus", _fixed({"value": []}), *_PAGES, "$filter"),
    _route("GET", f"{_ACCOUNT}/privateLinkResources", _list_links, *_PAGES),
    _route("GET", f"{_ACCOUNT}/privateLinkResources/(?P<name>[^/]+)", _get_link),
    *(_route("GET", f"{_ACCOUNT}/{kind}", _fixed({"value": []}), *_PAGES) for kind in _ABSENT),
    *(
        _route(verb, f"{_ACCOUNT}/{kind}/(?P<name>[^/]+)(?:/reconcile)?", _none)
        for kind in _ABSENT
        for verb in ("GET", "PATCH", "DELETE", "POST")
    ),
)
