"""What requests of the client observe, while the pool of the requests and its job exist.

A question returns what the service answered, and judges nothing. What it creates is registered, so that it is deleted
with the pool however the command ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any, NamedTuple

import msgspec
from azure.batch import BatchClient
from azure.core.exceptions import HttpResponseError
from azure.core.rest import HttpRequest

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.sizes import UNLISTED
from batchtrain.client.operations import Operations
from batchtrain.config.types import Credentials
from batchtrain.errors import BatchtrainError, UsageError
from batchtrain.plan.wire import API_VERSION
from batchtrain.service import arm, connect, prices
from batchtrain.service.arm import AccountSeen
from batchtrain.service.register import Register, Thing
from batchtrain.service.requests import CONTENT_TYPE, quoted
from batchtrain.service.rest import Rest
from batchtrain.verify.probe import UNREAD

Answer = Any
"""An answer of the SDK's pipeline, whose own type for a refusal is another one."""
PATIENCE_SECONDS = 120
NEXT_VERSION = "2026-10-01"
GROUP = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/verify/providers"
NETWORK = f"{GROUP}/Microsoft.Network"
"""Things that no account has."""


class Target(NamedTuple):
    """What a question may use."""

    client: Operations
    register: Register
    pool: str
    job: str
    credentials: Credentials | None = None

    def region(self) -> tuple[Rest, AccountSeen]:
        """Azure Resource Manager, and the account as it shows it. Raises UsageError and ServiceError."""
        azure = arm.reach(self.credentials, os.environ, self.client.account.endpoint)
        account = arm.account(azure, self.client.account.endpoint)
        if account is None:
            raise UsageError("no readable subscription has this account; ask for the role Reader on it")
        return azure, account

    def get(self, path: str, **params: str) -> Answer:
        """An answer, whatever its status."""
        return answer_to(self.client.batch, HttpRequest("GET", path, params={"api-version": API_VERSION, **params}))

    def post(self, path: str, body: object, **headers: str) -> Answer:
        """The same, to a JSON document."""
        content = msgspec.json.encode(body)
        request = HttpRequest("POST", path, params={"api-version": API_VERSION}, headers=headers, content=content)
        return answer_to(self.client.batch, request)


def answer_to(batch: BatchClient, request: HttpRequest, **options: Any) -> Answer:
    """An answer, whatever its status; the SDK raises an error for a refusal."""
    try:
        return batch.send_request(request, **options)
    except HttpResponseError as error:
        if error.response is None:
            raise
        return error.response


Question = Callable[[Target], Any]


def answers(questions: Mapping[str, Question], names: frozenset[str], target: Target) -> dict[str, Any]:
    """The answers to the questions of these names. One that fails is unread, whatever the reason."""
    return {name: _answer(questions[name], target) for name in sorted(names & questions.keys())}


def _answer(question: Question, target: Target) -> Any:
    try:
        return question(target)
    except Exception as error:  # noqa: BLE001 - the SDK raises many kinds, and no answer costs another one
        return {UNREAD: f"{type(error).__name__}: {error}".partition("\n")[0]}


def _refusal(response: Answer) -> dict[str, Any]:
    """Status, code and headers of an answer that may be a refusal."""
    document = response.json() if response.content else {}
    headers = {name: name in response.headers for name in ("Date", "WWW-Authenticate")}
    return {"status": response.status_code, "code": document.get("code", ""), "headers": headers}


# --- sign-in ----------------------------------------------------------------------------------------------------------


def _unsigned(target: Target) -> Any:
    """A token that is none."""
    batch = connect.once(target.client.account, signed=False)
    return _refusal(answer_to(batch, _pools_request(Authorization="Bearer x")))


def _token(target: Target) -> Any:
    """A token for the audience that batchtrain asks for."""
    account = target.client.account
    return _refusal(answer_to(connect.connect(account._replace(key=None)), _pools_request()))


def _dated(target: Target) -> Any:
    """Signatures of 20 minutes ago and of 20 minutes ahead."""
    batch = connect.once(target.client.account, signed=True)
    now = datetime.now(timezone.utc)
    dates = (format_datetime(now + timedelta(minutes=minutes), usegmt=True) for minutes in (-20, 20))
    return [_refusal(answer_to(batch, _pools_request(**{"ocp-date": date}))) for date in dates]


def _pools_request(**headers: str) -> HttpRequest:
    return HttpRequest("GET", "/pools", params={"api-version": API_VERSION}, headers=headers)


def _not_found(target: Target) -> Any:
    return _refusal(target.get("/pools/batchtrain-verify-no-such-pool"))


def _linked(target: Target) -> Any:
    """Pools with a subnet, a public address and an image of a gallery, by shared key."""
    batch = connect.once(target.client.account, signed=True)
    address = {"provision": "usermanaged", "ipAddressIds": [f"{NETWORK}/publicIPAddresses/verify"]}
    image = {"virtualMachineImageId": f"{GROUP}/Microsoft.Compute/galleries/verify/images/verify/versions/1.0.0"}
    bodies: Mapping[str, Mapping[str, Any]] = {
        "subnet": {"networkConfiguration": {"subnetId": f"{NETWORK}/virtualNetworks/verify/subnets/verify"}},
        "address": {"networkConfiguration": {"publicIPAddressConfiguration": address}},
        "gallery": {"virtualMachineConfiguration": {"imageReference": image}},
    }
    return [_created(target, name, body, batch=batch) for name, body in bodies.items()]


def _no_content_type(target: Target) -> Any:
    return _refusal(target.post("/pools", {}))


def _account(target: Target) -> Any:
    """The account as Azure Resource Manager shows it."""
    _, account = target.region()
    return {"sign_ins": list(account.sign_ins), "pools": account.pools}


def _sold(target: Target) -> Any:
    """How many sizes Batch and the compute service list in the region, and how many have what batchtrain reads."""
    azure, account = target.region()
    batch = arm.batch_sizes(azure, account.subscription, account.location)
    compute = arm.compute_sizes(azure, account.subscription, account.location)
    return {
        "batch": len(batch),
        "whole": sum(bool(size.family and size.cores and size.memory_gib) for size in batch),
        "families": sorted({size.family for size in batch} & {name for name, _ in account.families})[:3],
        "kinds": sorted({restriction.kind for size in compute for restriction in size.restrictions}),
    }


def _related(target: Target) -> Any:
    """The sizes whose figures the catalogue takes from related sizes: how many are sold, and those that differ."""
    azure, account = target.region()
    assumed = {size.name: size for size in Catalog().sizes if size.notes.startswith(UNLISTED.partition(";")[0])}
    sold = arm.compute_sizes(azure, account.subscription, account.location)
    pairs = [(size, assumed[size.name]) for size in sold if size.name in assumed]
    return {"sold": len(pairs), "different": sorted(size.name for size, row in pairs if arm.corrected(size, row))}


def _prices(target: Target) -> Any:
    region = target.client.account.region or ""
    table = prices.read(region, datetime.now(timezone.utc).date())
    return {"dedicated": len(table.dedicated), "spot": len(table.spot)}


# --- pools and nodes --------------------------------------------------------------------------------------------------


def _created(
    target: Target, name: str, changes: Mapping[str, Any], *, version: str = API_VERSION, batch: Any = None
) -> Any:
    """The answer to the creation of a pool without nodes that is like the pool of the requests."""
    model = target.get(f"/pools/{quoted(target.pool)}").json()
    machine = {
        key: model["virtualMachineConfiguration"][key] for key in ("imageReference", "nodeAgentSKUId")
    } | changes.get("virtualMachineConfiguration", {})
    body = {"vmSize": model["vmSize"], "targetDedicatedNodes": 0, **changes, "virtualMachineConfiguration": machine}
    thing, answer = Thing("pool", f"{target.pool}-{name}"), {}

    def send(document: Mapping[str, Any], attempts: Any) -> None:
        nonlocal answer
        params, headers = {"api-version": version}, {"Content-Type": CONTENT_TYPE}
        request = HttpRequest("POST", "/pools", params=params, headers=headers, json=document)
        response = answer_to(batch, request) if batch else answer_to(target.client.batch, request, attempts=attempts)
        answer = _refusal(response)
        response.raise_for_status()

    try:
        target.register.create(target.client.batch, thing, {"id": thing.id, **body}, send)
    except BatchtrainError:
        if not answer:
            raise
    return answer


def _empty_pool(target: Target) -> Any:
    """The allocation state of a pool without nodes, once it is steady."""
    answer = _created(target, "empty", {})
    if answer["status"] != 201:
        return answer
    return _until(
        lambda: target.get(f"/pools/{quoted(target.pool)}-empty").json()["allocationState"],
        "steady",
        target.client.pace.first,
    )


def _until(look: Callable[[], str], state: str, pause: float) -> str:
    """What a look shows, once it shows this state; at the latest after PATIENCE_SECONDS."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (value := look()) != state and time.monotonic() < end:
        time.sleep(pause)
    return value


def _hardware(target: Target) -> Any:
    profile = {"hardwareProfile": {"vmSizeProperties": {"vCPUsPerCore": 1}}}
    return _created(target, "hardware", {"virtualMachineConfiguration": profile}, version=NEXT_VERSION)


def _zones(target: Target) -> Any:
    policy = {"zoneAllocationPolicy": {"maxZoneCount": 1}}
    machine = {"placement": {"zonePlacementPolicy": "Auto"}, "resiliencyPolicy": policy}
    return _created(target, "zones", {"virtualMachineConfiguration": machine}, version=NEXT_VERSION)


def _mix(target: Target) -> Any:
    """Sizes of two families with equally many vCPUs, and sizes of one family with different numbers."""
    return [
        _created(target, name, {"vmSize": "Mix", "vmSkuProfile": {"vmSizes": sizes}}, version=NEXT_VERSION)
        for name, sizes in {
            "families": [{"name": "STANDARD_D4S_V5"}, {"name": "STANDARD_D4AS_V5"}],
            "numbers": [{"name": "STANDARD_D4S_V5"}, {"name": "STANDARD_D8S_V5"}],
        }.items()
    ]


def _node(target: Target) -> str:
    node: str = target.get(f"/pools/{quoted(target.pool)}/nodes").json()["value"][0]["id"]
    return node


def _login(target: Target) -> Any:
    path = f"/pools/{quoted(target.pool)}/nodes/{_node(target)}/remoteloginsettings"
    document = target.get(path).json()
    return {"address": document["remoteLoginIPAddress"], "port": document["remoteLoginPort"]}


def _agents(target: Target) -> Any:
    """The node agents of Azure Linux 3."""
    images = target.get("/supportedimages").json()["value"]
    references = ((image["imageReference"], image["nodeAgentSKUId"]) for image in images)
    return sorted({agent for image, agent in references if "azurelinux" in image["offer"].lower()})


def _stranger(target: Target) -> Any:
    """A task whose user no account of the pool is: whether it is accepted, and how it ends."""
    body = {"id": "stranger", "commandLine": "true", "userIdentity": {"username": "stranger"}}
    path = f"/jobs/{quoted(target.job)}/tasks"
    answer = _refusal(target.post(path, body, **{"Content-Type": CONTENT_TYPE}))
    if answer["status"] != 201:
        return {**answer, "state": ""}
    state = _until(lambda: target.get(f"{path}/stranger").json()["state"], "completed", target.client.pace.first)
    if state != "completed":
        return {**answer, "state": state}
    document = target.get(f"{path}/stranger").json()
    return {**answer, "state": state, "failed": "failureInfo" in document["executionInfo"]}


def _files(target: Target) -> Any:
    """The files that `observe.py gang` made for this: size, mode and the end of the URL by name."""
    path = f"/jobs/{quoted(target.job)}/tasks/host/files"
    listing = target.get(path, recursive="true").json()["value"]
    files = {}
    for file in listing:
        parent, _, name = file["name"].rpartition("/")
        if parent.endswith("output") and not file["isDirectory"] and not name.startswith("observed"):
            properties = file["properties"]
            files[name] = {
                "size": int(properties["contentLength"]),
                "mode": properties.get("fileMode", ""),
                "url": file["url"].rpartition("/")[2],
            }
    return files


# --- autoscale --------------------------------------------------------------------------------------------------------

FORMULAS = {
    "fraction": "$TargetDedicatedNodes = 1.9;",
    "branch": "$TargetDedicatedNodes = 1 > 0 ? 2 : $NoSuchNodes.GetSample(TimeInterval_Day * 400);",
    "hour": "$TargetDedicatedNodes = time().hour;",
    "weekday": '$TargetDedicatedNodes = time("2026-11-29T12:00:00Z").weekday;',
}


def _evaluated(name: str) -> Question:
    def ask(target: Target) -> Any:
        path = f"/pools/{quoted(target.pool)}/evaluateautoscale"
        body = {"autoScaleFormula": FORMULAS[name]}
        hour = datetime.now(timezone.utc).hour
        document = target.post(path, body, **{"Content-Type": CONTENT_TYPE}).json()
        assignments = [part.split("=", 1) for part in document.get("results", "").split(";") if "=" in part]
        return {
            "values": {name.strip(): value.strip() for name, value in assignments},
            "error": "error" in document,
            "hour": hour,
        }

    return ask


# --- containers -------------------------------------------------------------------------------------------------------


def _end_of(task: str) -> Question:
    """How a task ended: the code of a failure, and the exit code of its program."""

    def ask(target: Target) -> Any:
        execution = target.get(f"/jobs/{quoted(target.job)}/tasks/{task}").json()["executionInfo"]
        return {"code": (execution.get("failureInfo") or {}).get("code", ""), "exit": execution.get("exitCode")}

    return ask


OF_HOST: Mapping[str, Question] = {
    "unsigned": _unsigned,
    "token": _token,
    "related": _related,
    "dated": _dated,
    "not-found": _not_found,
    "linked": _linked,
    "no-content-type": _no_content_type,
    "account": _account,
    "sold": _sold,
    "prices": _prices,
    "empty-pool": _empty_pool,
    "hardware": _hardware,
    "zones": _zones,
    "mix": _mix,
    "login": _login,
    "agents": _agents,
    "stranger": _stranger,
    "files": _files,
    **{name: _evaluated(name) for name in FORMULAS},
}
OF_CONTAINER: Mapping[str, Question] = {
    "no-program": _end_of("program"),
    "options": _end_of("options"),
    "refused": _end_of("refused"),
    "long": _end_of("long"),
}
