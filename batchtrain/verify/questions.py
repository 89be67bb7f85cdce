"""What requests of the client observe, while the pool of the requests and its job exist.

A question returns what the service answered, and judges nothing. What it creates is registered, so that it is deleted
with the pool however the command ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
from azure.batch import BatchClient
from azure.core.exceptions import HttpResponseError
from azure.core.rest import HttpRequest

from batchtrain.catalog import api_versions
from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.sizes import UNLISTED
from batchtrain.client import logins
from batchtrain.client.operations import Operations
from batchtrain.config.types import Credentials, StorageCredentials
from batchtrain.errors import BatchtrainError, ServiceError, UsageError
from batchtrain.plan.wire import API_VERSION
from batchtrain.records import Endpoint
from batchtrain.service import arm, connect, entra, files, prices, vault
from batchtrain.service.answer_body import ERROR_BYTES, SILENT_SECONDS
from batchtrain.service.arm import AccountSeen
from batchtrain.service.downloads import task_tree
from batchtrain.service.register import COLLECTIONS, Kind, Register, Thing
from batchtrain.service.requests import CONTENT_TYPE, quoted
from batchtrain.service.rest import Rest
from batchtrain.storage import blob
from batchtrain.storage.blob_requests import Request, blob_path
from batchtrain.verify.probe import UNREAD

Answer = Any
"""An answer of the SDK's pipeline, whose own type for a refusal is another one."""
PATIENCE_SECONDS = 120
NEWEST_VERSION = api_versions.VERSIONS[-1].name
GROUP = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/verify/providers"
NETWORK = f"{GROUP}/Microsoft.Network"
"""Things that no account has."""
METADATA = "http://169.254.169.254/metadata/identity/oauth2/token"
HELLO = "mcr.microsoft.com/hello-world"
"""An image of 13 kB whose entry point prints some lines."""
TARGET = "$TargetDedicatedNodes"
USER = "batchtrainverify"
SLEEPER = {"name": "VERIFY_SLEEPER", "value": "here"}
SSH_OPTIONS = (
    *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=20"),
)
SESSION = """id -nG; sudo -n true && echo yes || echo no
pid=$(sudo -n grep -las VERIFY_SLEEPER=here /proc/[0-9]*/environ | head -1 | cut -d/ -f3); echo "${pid:-0}"
container=$(grep -oE '[0-9a-f]{64}' "/proc/$pid/cgroup" | head -1)
sudo -n docker exec "$container" true 2>/dev/null && echo yes || echo no"""
"""What a login runs: it finds the task, and its container, as inside.sh does."""


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

    def storage(self) -> list[tuple[str, StorageCredentials]]:
        """The storage accounts of credentials.yaml, by link."""
        return list(self.credentials.storage.items()) if self.credentials else []

    def get(self, path: str, **params: str) -> Answer:
        """An answer, whatever its status."""
        return answer_to(self.client.batch, HttpRequest("GET", path, params={"api-version": API_VERSION, **params}))

    def post(self, path: str, body: object, content_type: str = CONTENT_TYPE) -> Answer:
        """The same, to a JSON document. content_type: empty for none."""
        content, headers = msgspec.json.encode(body), {"Content-Type": content_type} if content_type else {}
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
    by_name: dict[str, Any] = {}
    for name, question in questions.items():
        if name in names:
            try:
                by_name[name] = question(target)
            except Exception as error:  # noqa: BLE001 - the SDK raises many kinds, and no answer costs another one
                by_name[name] = {UNREAD: f"{type(error).__name__}: {error}".partition("\n")[0]}
    return by_name


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
    return _refusal(answer_to(connect.connect(target.client.account._replace(key=None)), _pools_request()))


def _dated(target: Target) -> Any:
    """Signatures of 20 minutes ago and of 20 minutes ahead."""
    batch = connect.once(target.client.account, signed=True)
    now = datetime.now(timezone.utc)
    dates = (format_datetime(now + timedelta(minutes=minutes), usegmt=True) for minutes in (-20, 20))
    return [_refusal(answer_to(batch, _pools_request(**{"ocp-date": date}))) for date in dates]


def _pools_request(**headers: str) -> HttpRequest:
    return HttpRequest("GET", "/pools", params={"api-version": API_VERSION}, headers=headers)


def _cloud(target: Target) -> Any:
    """The cloud of the account, and what its service answers to a token."""
    return {"cloud": entra.cloud_of(None, target.client.account.endpoint).name, **_token(target)}


def _dates(target: Target) -> Any:
    """Whether refusals of Entra ID, of Azure Resource Manager and of a storage account have a date."""
    cloud = entra.cloud_of(None, target.client.account.endpoint)
    path = f"/subscriptions?api-version={arm.SUBSCRIPTIONS['api-version']}"
    urls = [f"https://{cloud.authority}/common/oauth2/v2.0/token", cloud.management + path]
    urls += [f"https://{entry.account}.blob.{entry.endpoint}/?comp=list" for _, entry in target.storage()[:1]]
    return [_date_of(url) for url in urls]


def _date_of(url: str) -> Any:
    """`Rest` repeats a request, and keeps no header of a refusal."""
    try:
        with urlopen(url, timeout=SILENT_SECONDS) as answer:
            return {"status": answer.status, "date": "Date" in answer.headers}
    except HTTPError as error:
        return {"status": error.code, "date": "Date" in error.headers}


def _storage_date(target: Target) -> Any:
    """The code of a storage account's refusal of a signature of 20 minutes ago; empty without a refusal."""
    link, entry = next((link, entry) for link, entry in target.storage() if entry.account_key)
    account = blob.connect(link, entry)
    account.ahead = -1200
    try:
        blob.exists(account, "batchtrain-verify", "none")
    except ServiceError as error:
        return error.code
    return ""


def _delegated(target: Target) -> Any:
    """What an Entra token may do with a storage account: write, sign a link of 7 days, and read by it."""
    link, entry = next((link, entry) for link, entry in target.storage() if not entry.account_key)
    token = entra.credential(entra.sign_in_of(None, target.credentials.aad if target.credentials else None))
    account = blob.connect(link, entry, token)
    name = f"{target.pool}-{int(time.time())}"
    try:
        blob.upload(account, name, "probe", b"probe")
        with urlopen(blob.link(account, entry, name, "probe", days=7), timeout=SILENT_SECONDS) as answer:
            return {"status": answer.status, "text": answer.read(ERROR_BYTES).decode()}
    finally:
        deletion = Request("DELETE", blob_path(name), {"restype": "container"})
        account.send(f"delete the container {name}", deletion, allow=(404,))


def _vault(target: Target) -> Any:
    """Whether the secret of the account's key in credentials.yaml has a value."""
    batch = target.credentials.batch if target.credentials else None
    if target.credentials is None or batch is None or not batch.account_key_keyvault_secret_id:
        raise UsageError("credentials.yaml has no `batch.account_key_keyvault_secret_id`")
    return bool(vault.reader(target.credentials)(batch.account_key_keyvault_secret_id))


def _roles(target: Target) -> Any:
    """What the roles of this sign-in allow, and whether the service creates and deletes a pool and a job for it."""
    azure, account = target.region()
    path = f"{account.path}/providers/Microsoft.Authorization/permissions"
    rows = azure.listed(path, "read the permissions", {"api-version": "2022-04-01"})
    permissions = [{name: row.get(name) or [] for name in ("actions", "notActions", "dataActions")} for row in rows]
    batch = connect.connect(target.client.account._replace(key=None))
    return {"permissions": permissions, "status": _created(target, "role", {}, batch=batch)["status"]}


def _identity(target: Target) -> str:
    azure, account = target.region()
    path = f"/subscriptions/{account.subscription}/providers/Microsoft.ManagedIdentity/userAssignedIdentities"
    row = next(azure.listed(path, "list managed identities", {"api-version": "2023-01-31"}), None)
    if row is None:
        raise UsageError("the subscription has no managed identity")
    return str(row["id"])


def _registry_identity(target: Target) -> Any:
    """A pool without nodes whose registry names an identity that the pool does not have."""
    registry = {"registryServer": "verify.azurecr.io", "identityReference": {"resourceId": _identity(target)}}
    containers = {"type": "dockerCompatible", "containerRegistries": [registry]}
    return _created(target, "registry", {"virtualMachineConfiguration": {"containerConfiguration": containers}})


def _identified(target: Target) -> Any:
    """The identities of a pool after one was set, beside that one; and the exit code of a task that asks for its token
    on a node that was there before."""
    azure, account = target.region()
    identity = _identity(target)
    identities = arm.set_pool_identity(azure, account, target.pool, [identity])
    url = f"{METADATA}?api-version=2018-02-01&resource=https://management.azure.com/&mi_res_id={identity}"
    end = _end_of_task(target, {"id": "identity", "commandLine": f"curl -sf -o /dev/null -H Metadata:true '{url}'"})
    return {"identities": [name.lower() for name in identities], "expected": identity.lower(), "exit": end["exit"]}


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


def _account(target: Target) -> Any:
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
    table = prices.read(target.client.account.region or "", datetime.now(timezone.utc).date())
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
    return _added(target, Thing("pool", f"{target.pool}-{name}"), body, version, batch)


def _added(target: Target, thing: Thing, body: Mapping[str, Any], version: str = API_VERSION, batch: Any = None) -> Any:
    """The answer to the creation of a pool or a job."""
    answer: dict[str, Any] = {}

    def send(document: Mapping[str, Any], attempts: Any) -> None:
        nonlocal answer
        path, params, headers = f"/{COLLECTIONS[thing.kind]}", {"api-version": version}, {"Content-Type": CONTENT_TYPE}
        request = HttpRequest("POST", path, params=params, headers=headers, json=document)
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
    path = f"/pools/{quoted(target.pool)}-empty"
    return _until(lambda: target.get(path).json()["allocationState"], "steady", target.client.pace.first)


CHANGES: Mapping[Kind, tuple[tuple[str, str, Mapping[str, Any] | None], ...]] = {
    "pool": (("PATCH", "", {"metadata": [{"name": "verify", "value": "versions"}]}), ("DELETE", "", None)),
    "job": (
        ("PATCH", "", {"priority": 1}),
        ("POST", "/disable", {"disableTasks": "wait"}),
        ("POST", "/enable", None),
        ("POST", "/terminate", {"terminateReason": "verify"}),
    ),
}


def _versions_of(kind: Kind) -> Question:
    """The answers to changes of a pool without nodes or a job without tasks, each for the version before the last
    change, and for this one."""

    def ask(target: Target) -> Any:
        thing, answers, before = Thing(kind, f"{target.pool}-versions"), list[Any](), "0x0"
        body = {"poolInfo": {"poolId": target.pool}}
        answer = _created(target, "versions", {}) if kind == "pool" else _added(target, thing, body)
        for method, verb, change in CHANGES[kind] if answer["status"] == 201 else ():
            now = target.get(thing.path).json()["eTag"]
            answers += [_conditional(target, method, thing.path + verb, etag, change) for etag in (before, now)]
            before = now
            if verb == "/disable":
                _until(lambda: target.get(thing.path).json()["state"], "disabled", target.client.pace.first)
        return answers or [answer]

    return ask


def _conditional(target: Target, method: str, path: str, etag: str, body: Any = None) -> Any:
    """The answer to a request for one version of a thing."""
    headers = {"If-Match": f'"{etag}"', **({"Content-Type": CONTENT_TYPE} if body else {})}
    content = msgspec.json.encode(body) if body else None
    request = HttpRequest(method, path, params={"api-version": API_VERSION}, headers=headers, content=content)
    return _refusal(answer_to(target.client.batch, request))


def _until(look: Callable[[], str], state: str, pause: float) -> str:
    """What a look shows, once it shows this state; at the latest after PATIENCE_SECONDS."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (value := look()) != state and time.monotonic() < end:
        time.sleep(pause)
    return value


def _hardware(target: Target) -> Any:
    profile = {"hardwareProfile": {"vmSizeProperties": {"vCPUsPerCore": 1}}}
    return _created(target, "hardware", {"virtualMachineConfiguration": profile}, version=NEWEST_VERSION)


def _zones(target: Target) -> Any:
    policy = {"zoneAllocationPolicy": {"maxZoneCount": 1}}
    machine = {"placement": {"zonePlacementPolicy": "Auto"}, "resiliencyPolicy": policy}
    return _created(target, "zones", {"virtualMachineConfiguration": machine}, version=NEWEST_VERSION)


def _mix(target: Target) -> Any:
    """Sizes of two families with equally many vCPUs, and sizes of one family with different numbers."""
    answers = []
    for name, other in (("families", "STANDARD_D4AS_V5"), ("numbers", "STANDARD_D8S_V5")):
        profile = {"vmSizes": [{"name": "STANDARD_D4S_V5"}, {"name": other}]}
        answers.append(_created(target, name, {"vmSize": "Mix", "vmSkuProfile": profile}, version=NEWEST_VERSION))
    return answers


def _node(target: Target) -> str:
    return str(target.get(f"/pools/{quoted(target.pool)}/nodes").json()["value"][0]["id"])


def _login(target: Target) -> Any:
    document = target.get(f"/pools/{quoted(target.pool)}/nodes/{_node(target)}/remoteloginsettings").json()
    return {"address": document["remoteLoginIPAddress"], "port": document["remoteLoginPort"]}


def _agents(target: Target) -> Any:
    """The node agents of Azure Linux 3."""
    images = target.get("/supportedimages").json()["value"]
    references = ((image["imageReference"], image["nodeAgentSKUId"]) for image in images)
    return sorted({agent for image, agent in references if "azurelinux" in image["offer"].lower()})


def _task(target: Target, body: Mapping[str, Any], state: str = "completed") -> Any:
    """The answer to a new task, and its document once it is in this state, or after PATIENCE_SECONDS."""
    path = f"/jobs/{quoted(target.job)}/tasks"
    answer = _refusal(target.post(path, body))
    if answer["status"] != 201:
        return {**answer, "state": ""}
    _until(lambda: target.get(f"{path}/{body['id']}").json()["state"], state, target.client.pace.first)
    return {**answer, **target.get(f"{path}/{body['id']}").json()}


def _end_of_task(target: Target, body: Mapping[str, Any]) -> Any:
    """How a new task ends: the code of a failure, and the exit code of its program."""
    return _end(_task(target, body))


def _end(task: Mapping[str, Any]) -> Any:
    execution = task["executionInfo"]
    return {"code": (execution.get("failureInfo") or {}).get("code", ""), "exit": execution.get("exitCode")}


def _stranger(target: Target) -> Any:
    """A task whose user no account of the pool is: whether it is accepted, and how it ends."""
    task = _task(target, {"id": "stranger", "commandLine": "true", "userIdentity": {"username": "stranger"}})
    seen = {name: task[name] for name in ("status", "state")}
    return {**seen, "failed": "failureInfo" in task["executionInfo"]} if task["state"] == "completed" else seen


def _stubborn(target: Target) -> Any:
    """The last second that a task has noted which ignores SIGTERM and was ended by its limit, now and 4 s later."""
    tree = task_tree(target.job, "stubborn")
    first = files.end_of(target.client.batch, tree, "wd/output/alive").decode()
    time.sleep(4)
    return {"first": first, "later": files.end_of(target.client.batch, tree, "wd/output/alive").decode()}


def _login_of(*, container: bool) -> Question:
    """What a login with an Ed25519 key sees on the node of a running task: the groups of its user, whether it may use
    `sudo`, whether a process has the environment of the task, and whether its container is found."""

    def ask(target: Target) -> Any:
        task_id = f"sleeper{'-container' * container}"
        body: dict[str, Any] = {"id": task_id, "commandLine": "sleep 120", "environmentSettings": [SLEEPER]}
        if container:
            machine = target.get(f"/pools/{quoted(target.pool)}").json()["virtualMachineConfiguration"]
            body["containerSettings"] = {"imageName": machine["containerConfiguration"]["containerImageNames"][0]}
        node = _task(target, body, "running")["nodeInfo"]["nodeId"]
        path = f"/pools/{quoted(target.pool)}/nodes/{node}"
        with tempfile.TemporaryDirectory(prefix="batchtrain-") as folder:
            key = f"{folder}/key"
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
            public = Path(f"{key}.pub").read_text(encoding="ascii").strip()
            target.post(f"{path}/users", {"name": USER, "isAdmin": True, "sshPublicKey": public})
            login = target.get(f"{path}/remoteloginsettings").json()
            endpoint = Endpoint(node, login["remoteLoginIPAddress"], login["remoteLoginPort"])
            words = [*logins.words(USER, key, endpoint, SSH_OPTIONS), SESSION]
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        target.post(f"/jobs/{quoted(target.job)}/tasks/{task_id}/terminate", {})
        lines = done.stdout.splitlines()
        seen = {"code": done.returncode, "error": done.stderr[-300:]}
        if lines:
            seen |= {"groups": lines[0].split(), "sudo": lines[1] == "yes", "process": lines[2] != "0"}
            seen |= {"container": lines[3] == "yes"}
        return seen

    return ask


def _gang(target: Target, name: str, command: str) -> Mapping[str, Any]:
    nodes = target.get(f"/pools/{quoted(target.pool)}").json()["currentDedicatedNodes"]
    multiple = {"numberOfInstances": nodes, "coordinationCommandLine": "true"}
    return {"id": name, "commandLine": command, "multiInstanceSettings": multiple}


def _pending(target: Target) -> Any:
    """The instances of a gang that waits for another one, and the tasks that formulas then count."""
    gang = _gang(target, "runs", "sleep 300")
    _task(target, gang, "running")
    _task(target, {**gang, "id": "waits"}, "active")
    formulas = [f"$TargetDedicatedNodes = avg({name}.GetSample(1));" for name in ("$ActiveTasks", "$PendingTasks")]
    count = str(gang["multiInstanceSettings"]["numberOfInstances"])
    _until(lambda: _evaluation(target, formulas[0])["values"].get(TARGET, ""), count, 5)
    active, pending = (_evaluation(target, text)["values"].get(TARGET) for text in formulas)
    for name in ("waits", "runs"):
        target.post(f"/jobs/{quoted(target.job)}/tasks/{name}/terminate", {})
    return {"instances": int(count), "active": active, "pending": pending}


def _requeued(target: Target) -> Any:
    """How often a gang was requeued and retried after the node of a subtask was removed."""
    task = _task(target, _gang(target, "loses", "sleep 300"), "running")
    nodes = target.get(f"/pools/{quoted(target.pool)}/nodes").json()["value"]
    node_id = next(node["id"] for node in nodes if node["id"] != task["nodeInfo"]["nodeId"])
    body = {"nodeList": [node_id], "nodeDeallocationOption": "requeue"}
    answer = _refusal(target.post(f"/pools/{quoted(target.pool)}/removenodes", body))
    path = f"/jobs/{quoted(target.job)}/tasks/loses"
    _until(lambda: str(target.get(path).json()["executionInfo"]["requeueCount"]), "1", target.client.pace.first)
    execution = target.get(path).json()["executionInfo"]
    target.post(f"{path}/terminate", {})
    return {"status": answer["status"], "requeues": execution["requeueCount"], "retries": execution["retryCount"]}


def _files(target: Target) -> Any:
    """The files that `observe.py gang` made for this: size, mode and the end of the URL by name."""
    seen = {}
    for file in target.get(f"/jobs/{quoted(target.job)}/tasks/host/files", recursive="true").json()["value"]:
        parent, _, name = file["name"].rpartition("/")
        if parent.endswith("output") and not file["isDirectory"] and not name.startswith("observed"):
            properties = file["properties"]
            seen[name] = {
                "size": int(properties["contentLength"]),
                "mode": properties.get("fileMode", ""),
                "url": file["url"].rpartition("/")[2],
            }
    return seen


UPLOADS = {"plain": "**/*", "hidden": "**/.*"}
"""The patterns of uploads by the directories of their blobs."""
UPLOADED = (
    "mkdir -p dir/.inner .outer; for name in plain .dot dir/plain dir/.dot dir/.inner/plain .outer/plain; do"
    " echo >$name; done; ln -s dir/plain link; ln -s dir folder; ln -s /etc/hostname outside"
)


def _uploads(target: Target) -> Any:
    """The blobs that the service uploads of a task with names that begin with a dot and with links, by pattern."""
    link, entry = next((link, entry) for link, entry in target.storage() if entry.account_key)
    account, name = blob.connect(link, entry), f"{target.pool}-{int(time.time())}"
    url = blob.container_link(account, entry, name, write=True, days=1)
    files = [
        {
            "filePattern": pattern,
            "destination": {"container": {"containerUrl": url, "path": path}},
            "uploadOptions": {"uploadCondition": "taskcompletion"},
        }
        for path, pattern in UPLOADS.items()
    ]
    line = f"/bin/bash -c '{UPLOADED}'"
    try:
        _task(target, {"id": "uploads", "commandLine": line, "outputFiles": files})
        names = [item.name.partition("/") for item in blob.stored(account, name)]
        return {path: [name for top, _, name in names if top == path] for path in UPLOADS}
    finally:
        deletion = Request("DELETE", blob_path(name), {"restype": "container"})
        account.send(f"delete the container {name}", deletion, allow=(404,))


# --- autoscale --------------------------------------------------------------------------------------------------------

FORMULAS = {
    "fraction": "$TargetDedicatedNodes = 1.9;",
    "branch": "$TargetDedicatedNodes = 1 > 0 ? 2 : $NoSuchNodes.GetSample(TimeInterval_Day * 400);",
    "hour": "$TargetDedicatedNodes = time().hour;",
    "weekday": '$TargetDedicatedNodes = time("2026-11-29T12:00:00Z").weekday;',
}


def _evaluation(target: Target, formula: str) -> Any:
    path = f"/pools/{quoted(target.pool)}/evaluateautoscale"
    hour = datetime.now(timezone.utc).hour
    document = target.post(path, {"autoScaleFormula": formula}).json()
    assignments = [part.split("=", 1) for part in document.get("results", "").split(";") if "=" in part]
    return {
        "values": {name.strip(): value.strip() for name, value in assignments},
        "error": "error" in document,
        "hour": hour,
    }


# --- containers -------------------------------------------------------------------------------------------------------


def end_of(task: str) -> Question:
    """How a task of the recipe ended."""
    return lambda target: _end(target.get(f"/jobs/{quoted(target.job)}/tasks/{task}").json())


def _entry_point(target: Target) -> Any:
    """A task without a command line, in a container of a small image."""
    return _end_of_task(target, {"id": "entry", "commandLine": "", "containerSettings": {"imageName": HELLO}})


def _refused_registry(target: Target) -> Any:
    """A task whose registry refuses its login."""
    registry = {"registryServer": "docker.io", "username": "batchtrain-verify", "password": "no"}
    container = {"imageName": "docker.io/library/alpine:3", "registry": registry}
    return _end_of_task(target, {"id": "registry", "commandLine": "true", "containerSettings": container})


# --- pools of one node ------------------------------------------------------------------------------------------------

OPEN_PORT, SHUT_PORT = 8801, 8802
CONTINUES = "continues"


def open_ports(target: Target) -> Any:
    """Whether the ports of the node that servers listen on are reached from here, by port."""
    document = target.get(f"/pools/{quoted(target.pool)}/nodes/{_node(target)}").json()
    answers = {}
    for endpoint in document["endpointConfiguration"]["inboundEndpoints"]:
        port = str(endpoint["backendPort"])
        try:
            socket.create_connection((endpoint["publicIPAddress"], endpoint["frontendPort"]), 10).close()
            answers[port] = True
        except OSError:
            answers[port] = False
    return answers


def is_dedicated(target: Target) -> Any:
    """Whether the node is a dedicated one."""
    return target.get(f"/pools/{quoted(target.pool)}/nodes/{_node(target)}").json()["isDedicated"]


OF_HOST: Mapping[str, Question] = {
    "unsigned": _unsigned,
    "token": _token,
    "related": _related,
    "dated": _dated,
    "not-found": lambda target: _refusal(target.get("/pools/batchtrain-verify-no-such-pool")),
    "linked": _linked,
    "no-content-type": lambda target: _refusal(target.post("/pools", {}, content_type="")),
    "account": _account,
    "sold": _sold,
    "prices": _prices,
    "empty-pool": _empty_pool,
    "versions": _versions_of("pool"),
    "job-versions": _versions_of("job"),
    "hardware": _hardware,
    "zones": _zones,
    "mix": _mix,
    "login": _login,
    "agents": _agents,
    "stranger": _stranger,
    "files": _files,
    "uploads": _uploads,
    **{name: partial(_evaluation, formula=formula) for name, formula in FORMULAS.items()},
    "cloud": _cloud,
    "dates": _dates,
    "storage-date": _storage_date,
    "delegated": _delegated,
    "vault": _vault,
    "roles": _roles,
    "registry-identity": _registry_identity,
    "stubborn": _stubborn,
    "session": _login_of(container=False),
    "pending": _pending,
    "identified": _identified,
    "requeued": _requeued,
}
"""In the order in which they are asked: the last ones keep the nodes busy, change the pool, or lose a node."""
OF_CONTAINER: Mapping[str, Question] = {
    "no-program": end_of("program"),
    "options": end_of("options"),
    "refused": end_of("refused"),
    "long": end_of("long"),
    "entry-point": _entry_point,
    "registry-refused": _refused_registry,
    "container-session": _login_of(container=True),
}
