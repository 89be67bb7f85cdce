"""A small stand-in for Azure Resource Manager, for azure-mgmt-batch: the account with its keys, and its pools; pure.

Any subscription and resource group leads to the one account. A pool is translated to the service's own request and
back, so both sides see the same pools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from batchtrain.emulator import models, pools, quotas, tokens, wire
from batchtrain.emulator.documents import pool_document
from batchtrain.emulator.faults import Fault, NeedsToken
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.interface import STORAGE_ACCOUNT
from batchtrain.emulator.reply import Call, Reply
from batchtrain.emulator.world import USER_SUBSCRIPTION, World

Document = dict[str, Any]

PREFIX = "/subscriptions"
VERSIONS: Mapping[str, int] = {
    "2022-10-01": 16,
    "2023-05-01": 17,
    "2023-11-01": 18,
    "2024-02-01": 19,
    "2024-07-01": 20,
    "2025-06-01": 21,
}
"""API version -> the revision of the service's tables that it corresponds to."""
RENAMED = {
    "nodeAgentSkuId": "nodeAgentSKUId",
    "userName": "username",
    "inboundNatPools": "inboundNATPools",
    "dynamicVnetAssignmentScope": "dynamicVNetAssignmentScope",
}
"""Properties with another spelling in the service's own requests, at any depth."""
KEPT = ("displayName", "vmSize", "networkConfiguration", "taskSlotsPerNode", "taskSchedulingPolicy", "userAccounts",
        "metadata", "startTask", "mountConfiguration", "targetNodeCommunicationMode", "upgradePolicy",
        "resourceTags")  # fmt: skip
SHOWN = (*KEPT, "currentDedicatedNodes", "currentLowPriorityNodes", "creationTime", "lastModified",
         "allocationStateTransitionTime", "autoScaleRun", "currentNodeCommunicationMode")  # fmt: skip
FIXED = ("targetDedicatedNodes", "targetLowPriorityNodes", "resizeTimeout")
WORDS = {word.lower(): word for word in (
    "Allow", "Admin", "BatchManaged", "Classic", "Default", "Deny", "DockerCompatible", "CriCompatible", "Job",
    "NoPublicIPAddresses", "NonAdmin", "None", "Pack", "Pool", "Premium_LRS", "ReadOnly", "ReadWrite", "Resizing",
    "Simplified", "Spread", "StandardSSD_LRS", "Standard_LRS", "Steady", "Stopping", "TCP", "Task", "UDP",
    "UserManaged", "ContainerImageDefault", "TaskWorkingDirectory",
)}  # fmt: skip
"""Enumeration values, which Resource Manager capitalizes."""
ENUMERATED = ("access", "caching", "elevationLevel", "nodeFillType", "protocol", "provision", "scope", "type",
              "storageAccountType", "targetNodeCommunicationMode", "currentNodeCommunicationMode", "workingDirectory",
              "dynamicVnetAssignmentScope")  # fmt: skip
"""The properties with these values."""
OPAQUE = ("resourceTags", "settings", "protectedSettings")
"""Objects whose names are the user's."""
POLL_SECONDS = "1"
"""Retry-After of a running deletion."""
_ACCOUNTS = r"/subscriptions/[^/]+(?:/resourceGroups/[^/]+)?/providers/Microsoft\.Batch/batchAccounts"
_ACCOUNT = (
    r"(?P<id>/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Batch/batchAccounts/(?P<account>[^/]+))"
)


class Account(NamedTuple):
    """The account as Resource Manager shows it."""

    name: str
    key: str
    host: str
    """The host name of the service, without the scheme."""

    def __repr__(self) -> str:
        return f"Account(name={self.name!r}, host={self.host!r})"


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
    """Exactly one of the two."""

    fixedScale: FixedScale = FixedScale()
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


class Request(NamedTuple):
    """One request whose token is checked."""

    verb: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    base: str
    now: int


def is_path(raw_path: str) -> bool:
    """Whether a path belongs to Resource Manager: no path of the service starts so."""
    return raw_path == PREFIX or raw_path.startswith(f"{PREFIX}/")


def check_token(account: Account, verb: str, headers: Mapping[str, str], now: int) -> None:
    """Check the token; Resource Manager accepts no shared keys. Raises NeedsToken, Fault."""
    tokens.check(account.name, account.key, verb, headers, tokens.MANAGEMENT, now)


def answer(world: World, account: Account, arm_request: Request) -> Reply:
    """Carry out a request. Raises Fault."""
    for verb, path, operation in ROUTES:
        if verb == arm_request.verb and (match := path.fullmatch(arm_request.path)):
            groups = {name: unquote(value) for name, value in match.groupdict().items()}
            if groups.get("account", account.name).lower() != account.name.lower():
                raise Fault("ResourceNotFound", f"The Batch account '{groups['account']}' was not found.")
            revision = _revision(arm_request)
            return operation(
                world, account, arm_request._replace(path=groups.get("id", "")), groups.get("pool", ""), revision
            )
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


def _revision(arm_request: Request) -> int:
    version = arm_request.query.get("api-version", "")
    if version not in VERSIONS:
        reason = f"The API version '{version}' is not supported. Use one of {', '.join(VERSIONS)}."
        raise Fault("InvalidQueryParameterValue", f"One of the query parameters is invalid. {reason}")
    if others := set(arm_request.query) - {"api-version"}:
        raise Fault("NotImplementedByEmulator", f"The emulator's Resource Manager does not take {', '.join(others)}.")
    return VERSIONS[version]


# The account ---------------------------------------------------------------------------------------------------------


def _list_accounts(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    group = f"{PREFIX}/{tokens.TENANT}/resourceGroups/emulator"
    where = arm_request._replace(path=f"{group}/providers/Microsoft.Batch/batchAccounts/{account.name}")
    answer_of_account = _get_account(world, account, where, "", revision)
    return Reply(200, {"value": [answer_of_account.document]})


def _get_account(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    own = world.allocation == USER_SUBSCRIPTION
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
        "allowedAuthenticationModes": [tokens.TOKEN, *([] if own else [tokens.SHARED_KEY])],
    }
    kind = {"type": "Microsoft.Batch/batchAccounts", "location": "emulator", "identity": {"type": "None"}, "tags": {}}
    return Reply(200, {"id": arm_request.path, "name": account.name, **kind, "properties": properties})


def _limit(most: int | None) -> int:
    """No limit is shown as a large number, because programs compare it."""
    return quotas.MOST if most is None else most


def _list_keys(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """The emulator has one key, shown as both."""
    return Reply(200, {"accountName": account.name, "primary": account.key, "secondary": account.key})


# Pools ---------------------------------------------------------------------------------------------------------------


def _put_pool(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    try:
        pool_body = msgspec.json.decode(arm_request.body, type=PoolBody)
    except msgspec.DecodeError as error:
        raise Fault("InvalidRequestBody", f"The specified request body is not valid: {error}.") from None
    body = msgspec.json.encode({"id": pool_id, **request(pool_body.properties)})
    headers = {name: arm_request.headers[name] for name in ("if-match",) if name in arm_request.headers}
    call = Call((), {}, headers, body, "/pools", arm_request.base, arm_request.now, revision, signed_by=tokens.TOKEN)
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
    entries = sorted(world.pools.values(), key=lambda entry: entry.record.seq)
    return Reply(200, {"value": [shown(entry, arm_request, revision) for entry in entries]})


def _delete_pool(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    """202 with the address that reports the end; 204 for a pool that does not exist."""
    entry = world.pools.get(pool_id.lower())
    if entry is None:
        return Reply(204)
    if entry.record.state != "deleting":
        pools.delete_pool(
            world, Call((pool_id,), {}, {}, b"", "/pools", arm_request.base, arm_request.now, signed_by=tokens.TOKEN)
        )
    return _going_on(arm_request, entry.record.id)


def _deletion(world: World, account: Account, arm_request: Request, pool_id: str, revision: int) -> Reply:
    return _going_on(arm_request, pool_id) if pool_id.lower() in world.pools else Reply(200)


def _going_on(arm_request: Request, pool_id: str) -> Reply:
    version = arm_request.query["api-version"]
    where = f"{arm_request.base}{quote(arm_request.path)}/poolOperationResults/{quote(pool_id)}?api-version={version}"
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
        auto = {"autoScaleFormula": scale.autoScale.formula}
        interval = scale.autoScale.evaluationInterval
        return {"enableAutoScale": True, **auto, **({"autoScaleEvaluationInterval": interval} if interval else {})}
    sizes = msgspec.to_builtins(scale.fixedScale)
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
    properties = {
        **_renamed({name: pool[name] for name in SHOWN if name in pool}, back),
        "provisioningState": "Deleting" if entry.record.state == "deleting" else "Succeeded",
        "provisioningStateTransitionTime": pool["stateTransitionTime"],
        "allocationState": WORDS[pool["allocationState"]],
        "deploymentConfiguration": {"virtualMachineConfiguration": machine},
        "scaleSettings": _scale_shown(pool),
        "interNodeCommunication": "Enabled" if pool["enableInterNodeCommunication"] else "Disabled",
        "resizeOperationStatus": {name: pool[name] for name in FIXED if name in pool}
        | {"errors": pool.get("resizeErrors", [])},
        "applicationPackages": [
            {"id": f"{arm_request.path}/applications/{package['applicationId']}", **_only(package, "version")}
            for package in pool.get("applicationPackageReferences", [])
        ],
    }
    where = f"{arm_request.path}/pools/{entry.record.id}"
    kind = {"type": "Microsoft.Batch/batchAccounts/pools", "etag": entry.record.etag}
    return {"id": where, "name": entry.record.id, **kind, **_identity_shown(pool), "properties": _spelled(properties)}


def _scale_shown(pool: Document) -> Document:
    if pool["enableAutoScale"]:
        interval = pool.get("autoScaleEvaluationInterval", "PT15M")
        return {"autoScale": {"formula": pool["autoScaleFormula"], "evaluationInterval": interval}}
    return {"fixedScale": {name: pool[name] for name in FIXED if name in pool}}


def _identity_shown(pool: Document) -> Document:
    identity = pool.get("identity")
    if not identity:
        return {"identity": {"type": "None"}}
    identities: Document = {assignment["resourceId"]: {} for assignment in identity["userAssignedIdentities"]}
    return {"identity": {"type": "UserAssigned", "userAssignedIdentities": identities}}


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


Operation = Callable[[World, Account, Request, str, int], Reply]


def _route(verb: str, path: str, operation: Operation) -> tuple[str, re.Pattern[str], Operation]:
    return verb, re.compile(path, re.IGNORECASE), operation


ROUTES = (
    _route("GET", _ACCOUNTS, _list_accounts),
    _route("GET", _ACCOUNT, _get_account),
    _route("POST", f"{_ACCOUNT}/listKeys", _list_keys),
    _route("GET", f"{_ACCOUNT}/pools", _list_pools),
    _route("PUT", f"{_ACCOUNT}/pools/(?P<pool>[^/]+)", _put_pool),
    _route("GET", f"{_ACCOUNT}/pools/(?P<pool>[^/]+)", _get_pool),
    _route("DELETE", f"{_ACCOUNT}/pools/(?P<pool>[^/]+)", _delete_pool),
    _route("GET", f"{_ACCOUNT}/poolOperationResults/(?P<pool>[^/]+)", _deletion),
)
