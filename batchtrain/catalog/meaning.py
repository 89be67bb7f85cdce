"""What Azure Batch refuses of a pool, a job and a task whose form is right: ranges, names and combinations; pure.

Client and emulator share this table. The client judges a plan by it before it sends anything. The emulator answers
400 `InvalidPropertyValue`. A document is a request body in the words of the current service version.

Sources, read November 2026: Azure/azure-rest-api-specs, `models.tsp` of the data plane (the text of each field);
recorded answers in azure-sdk-for-java (2023-05-01.17.0). Memory where a comment says so.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batchtrain.catalog.vm_images import DOCKER, Image

Document = Mapping[str, Any]

MIX = "Mix"
"""The size of a pool with several sizes."""
MOST_MIXED = 5
PRIORITIZED = "prioritized"
ZONE_SHARES = range(1, 101)
LONGEST_DISPLAY_NAME = 1024
LUNS = range(64)
SHARES = range(5, 101)
"""Percentages of the nodes that an upgrade may take at once."""
PERCENTAGES = range(101)
MOST_SLOTS = 256
MOST_NAT_POOLS, MOST_RULES, LONGEST_NAT_NAME, FEWEST_PORTS = 5, 25, 77, 40
LAST_PORT = 65_534
FRONTEND_RESERVED = range(50_000, 55_001)
"""Frontend ports that Batch reserves."""
AGENT_PORTS = (29_876, 29_877)
PRIORITIES = range(150, 4097)
NAT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
LONGEST_RELEASE_SECONDS = 15 * 60
LEAST_SCHEDULE_SECONDS = 60
"""The least recurrence of a schedule, and the least start window."""
INTER_NODE_LIMIT = 100
MIXED = "Pool cannot have both TargetDedicatedNodes and TargetLowPriorityNodes specified if communication is enabled."
"""Azure's text (Azure/aztk issue 172)."""
_SERVICE_TAG = r"\*|[A-Za-z][A-Za-z0-9.]*"
_PORTS = r"(\d{1,5})(?:-(\d{1,5}))?"

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
LONGEST_PREFIX, LONGEST_ACCOUNT_NAME = 20, 20
MOST_PACKAGES, MOST_MOUNTS = 10, 10
MOST_DEPENDENCIES, MOST_FILES = 64_000, 32_768
"""Characters of a task's dependencies, and of a list of files."""
NODES_OF_ADDRESS = 100
LEAST_RESIZE_SECONDS = 5 * 60
JOB_PRIORITIES = range(-1000, 1001)
SPECIAL_TASKS: Mapping[str, str] = {
    "jobPreparationTask": "jobpreparation",
    "jobReleaseTask": "jobrelease",
    "jobManagerTask": "",
}
"""The special tasks of a job, and their ids by default."""
ACTING = "performexitoptionsjobaction"
SOURCES = ("httpUrl", "storageContainerUrl", "autoStorageContainerName")
FILE_SYSTEMS = (
    "azureBlobFileSystemConfiguration",
    "nfsMountConfiguration",
    "cifsMountConfiguration",
    "azureFileShareConfiguration",
)
BLOB_KEYS = ("accountKey", "sasKey", "identityReference")
LATE = "{{"
"""The start of a part of a text that is filled in when a request of a plan is sent."""
_MODE = r"(0o?)?[0-7]{1,4}"
_URL = r"(?i)https?://[^/?#\s]+"
_DURATION = r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"

VM = "virtualMachineConfiguration"
NETWORK = "networkConfiguration"
ADDRESSES = f"{NETWORK}/publicIPAddressConfiguration"
NAT_POOLS = f"{NETWORK}/endpointConfiguration/inboundNATPools"


_GROUP = "/subscriptions/*/resourceGroups/*/providers"
_GALLERY = f"{_GROUP}/Microsoft.Compute/galleries/*"
SUBNET = f"{_GROUP}/Microsoft.Network/virtualNetworks/*/subnets/*"
ADDRESS = f"{_GROUP}/Microsoft.Network/publicIPAddresses/*"
GALLERY_IMAGE = f"{_GALLERY}/images/*[/versions/*]"
ACCESS_PROFILE = f"{_GALLERY}/inVMAccessControlProfiles/*/versions/*"
MANAGED_IMAGE = f"{_GROUP}/Microsoft.Compute/images/*"
SERVICE_ARTIFACT = f"{_GALLERY}/serviceArtifacts/*/vmArtifactsProfiles/*"
ENCRYPTION_SET = f"{_GROUP}/Microsoft.Compute/diskEncryptionSets/*"
IDENTITY = f"{_GROUP}/Microsoft.ManagedIdentity/userAssignedIdentities/*"
KEY_URL = "https://*/keys/*/*"
"""Forms of ids of resources; `*` is any text without `/`, and `[]` is optional. That of an encryption set is from
memory."""
FORMS: Mapping[str, str] = {
    f"{NETWORK}/subnetId": SUBNET,
    f"{ADDRESSES}/ipAddressIds": ADDRESS,
    f"{VM}/serviceArtifactReference/id": SERVICE_ARTIFACT,
    f"{VM}/securityProfile/proxyAgentSettings/imds/inVMAccessControlProfileReferenceId": ACCESS_PROFILE,
    f"{VM}/securityProfile/proxyAgentSettings/wireServer/inVMAccessControlProfileReferenceId": ACCESS_PROFILE,
    f"{VM}/osDisk/managedDisk/diskEncryptionSet/id": ENCRYPTION_SET,
    f"{VM}/dataDisks/managedDisk/diskEncryptionSet/id": ENCRYPTION_SET,
    f"{VM}/diskEncryptionConfiguration/customerManagedKey/keyUrl": KEY_URL,
    "mountConfiguration/azureFileShareConfiguration/azureFileUrl": "https://*.file.*/[*]",
}
"""Property of a pool or a job -> its form."""
INVALID, MISSING = "InvalidPropertyValue", "MissingRequiredProperty"


class Refusal(NamedTuple):
    """A value that the service refuses."""

    path: str
    """Where it is in the body: `virtualMachineConfiguration/dataDisks[1]/lun`."""
    value: object
    reason: str
    code: str = INVALID


def below(prefix: str, refusals: Iterable[Refusal]) -> Iterator[Refusal]:
    """The refusals of a part of a document."""
    return (refusal._replace(path=f"{prefix}/{refusal.path}") for refusal in refusals)


def pool_parts(document: Document) -> Iterator[Refusal]:
    """The refusals of properties of a pool that do not depend on others."""
    yield from display_name(document)
    yield from _forms(document)
    yield from _accounts(document.get("userAccounts", ()))
    yield from _mounts(document.get("mountConfiguration", ()))
    yield from packages(document)
    if "startTask" in document:
        yield from below("startTask", command(document["startTask"]))
    yield from resize_timeout(document)


def _forms(document: Document) -> Iterator[Refusal]:
    for path, form in FORMS.items():
        for where, value in values(document, tuple(path.split("/"))):
            if not has_form(str(value), form):
                yield Refusal(where, value, f"It must be of the form {form}.")


def has_form(text: str, form: str) -> bool:
    """Whether a text is of a form. A text that is completed when it is sent (`{{...}}`) is."""
    pattern = re.escape(form).replace(r"\[", "(").replace(r"\]", ")?").replace(r"\*", "[^/]+")
    return LATE in text or re.fullmatch(f"{pattern}/?", text, re.IGNORECASE) is not None


def values(value: Any, path: tuple[str, ...], where: str = "") -> Iterator[tuple[str, Any]]:
    """The values below a path of names, each with its place; of a list those of every item."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from values(item, path, f"{where}[{index}]")
    elif not path:
        yield where, value
    elif path[0] in value:
        yield from values(value[path[0]], path[1:], f"{where}/{path[0]}" if where else path[0])


def encryption_sets(document: Document) -> Iterator[Refusal]:
    """The refusals of disk encryption sets by an account that is not in UserSubscription mode."""
    for path in (path for path, form in FORMS.items() if form == ENCRYPTION_SET):
        for where, value in values(document, tuple(path.split("/"))):
            yield Refusal(where, value, "It can be set only in UserSubscription mode.")


def resize_timeout(document: Document) -> Iterator[Refusal]:
    """The refusal of a resize timeout."""
    if seconds(document.get("resizeTimeout", ""), LEAST_RESIZE_SECONDS) < LEAST_RESIZE_SECONDS:
        yield Refusal("resizeTimeout", document["resizeTimeout"], "The least resize timeout is 5 minutes.")


def packages(document: Document) -> Iterator[Refusal]:
    """The refusal of too many application packages."""
    count = len(document.get("applicationPackageReferences", ()))
    if count > MOST_PACKAGES:
        yield Refusal("applicationPackageReferences", count, f"At most {MOST_PACKAGES} packages can be referred to.")


def _accounts(accounts: Sequence[Document]) -> Iterator[Refusal]:
    names = [account["name"] for account in accounts]
    for index, account in enumerate(accounts):
        path, linux = f"userAccounts[{index}]", account.get("linuxUserConfiguration", {})
        if not 1 <= len(account["name"]) <= LONGEST_ACCOUNT_NAME or account["name"] in names[:index]:
            reason = f"A user account's name has 1 to {LONGEST_ACCOUNT_NAME} characters and is given once."
            yield Refusal(f"{path}/name", account["name"], reason)
        if ("uid" in linux) != ("gid" in linux):
            reason = "uid and gid are given together or not at all."
            yield Refusal(f"{path}/linuxUserConfiguration", linux.get("uid", linux.get("gid")), reason)


def _mounts(configurations: Sequence[Document]) -> Iterator[Refusal]:
    if len(configurations) > MOST_MOUNTS:
        reason = f"A pool mounts at most {MOST_MOUNTS} file systems."
        yield Refusal("mountConfiguration", len(configurations), reason)
    paths: set[str] = set()
    for index, configuration in enumerate(configurations):
        path = f"mountConfiguration[{index}]"
        kinds = [kind for kind in FILE_SYSTEMS if kind in configuration]
        if len(kinds) != 1:
            yield Refusal(path, kinds, f"Exactly one of {', '.join(FILE_SYSTEMS)} is needed.")
            continue
        settings = configuration[kinds[0]]
        relative, where = settings["relativeMountPath"], f"{path}/relativeMountPath"
        if not relative or any(part in ("", ".", "..") for part in relative.split("/")) or "\0" in relative:
            yield Refusal(where, relative, "The path must be relative and lead nowhere else.")
        if any(f"{relative}/".startswith(f"{other}/") or f"{other}/".startswith(f"{relative}/") for other in paths):
            yield Refusal(where, relative, "Another file system is mounted there.")
        paths.add(relative)
        keys = [name for name in BLOB_KEYS if settings.get(name)]
        if kinds[0] == FILE_SYSTEMS[0] and len(keys) != 1:
            yield Refusal(path, keys, f"Exactly one of {', '.join(BLOB_KEYS)} is needed.")


def pool(document: Document, image: Image | None, os: str) -> Iterator[Refusal]:
    """The refusals of combinations of a pool's properties.

    image: the marketplace image, if the tables have it. os: of the nodes; empty if it is unknown.
    """
    yield from _mix(document)
    yield from _machine(document[VM], image, os)
    yield from _security(document[VM], os)
    yield from _zones(document[VM])
    if NETWORK in document:
        yield from network(document[NETWORK])
    yield from addresses(document)
    for index, account in enumerate(document.get("userAccounts", ())):
        if os == "linux" and "windowsUserConfiguration" in account:
            reason = "Windows user configuration cannot be set on a Linux pool."
            yield Refusal(f"userAccounts[{index}]/windowsUserConfiguration", "", reason)
    yield from _upgrade(document)


def display_name(document: Document) -> Iterator[Refusal]:
    """The refusal of a display name."""
    length = len(document.get("displayName", ""))
    if length > LONGEST_DISPLAY_NAME:
        yield Refusal("displayName", length, f"A display name has at most {LONGEST_DISPLAY_NAME} characters.")


# Instance Mix and zones (2026-10-01) ---------------------------------------------------------------------------------


def _mix(document: Document) -> Iterator[Refusal]:
    profile = document.get("vmSkuProfile")
    if (document["vmSize"].lower() == MIX.lower()) != (profile is not None):
        yield Refusal("vmSize", document["vmSize"], f"The size is {MIX} with a vmSkuProfile, and only then.")
    if profile is None:
        return
    sizes = profile.get("vmSizes", ())
    if not 1 <= len(sizes) <= MOST_MIXED:
        yield Refusal("vmSkuProfile/vmSizes", len(sizes), f"A pool mixes 1 to {MOST_MIXED} sizes.")
    for index, name in _repeated([size["name"].lower() for size in sizes]):
        yield Refusal(f"vmSkuProfile/vmSizes[{index}]/name", name, "The size is listed already.")
    is_ranked = profile.get("allocationStrategy") == PRIORITIZED
    for index, size in enumerate(sizes):
        if ("rank" in size) != is_ranked or size.get("rank", 0) < 0:
            reason = f"Ranks begin with 0; they belong to the allocation strategy {PRIORITIZED}, and only to it."
            yield Refusal(f"vmSkuProfile/vmSizes[{index}]/rank", size.get("rank", ""), reason)


def _zones(machine: Document) -> Iterator[Refusal]:
    if "placement" in machine and "nodePlacementConfiguration" in machine:
        yield Refusal(f"{VM}/placement", "", "It cannot be given with nodePlacementConfiguration.")
    if "resiliencyPolicy" in machine and "placement" not in machine:
        yield Refusal(f"{VM}/resiliencyPolicy", "", "It needs the zonePlacementPolicy Auto.")
    policy = machine.get("resiliencyPolicy", {}).get("zoneAllocationPolicy", {})
    path = f"{VM}/resiliencyPolicy/zoneAllocationPolicy"
    if policy.get("maxZoneCount", 1) < 1:
        yield Refusal(f"{path}/maxZoneCount", policy["maxZoneCount"], "It is at least 1.")
    share = policy.get("maxInstancePercentPerZonePolicy", {}).get("value", 1)
    if share not in ZONE_SHARES:
        reason = f"It is between {ZONE_SHARES[0]} and {ZONE_SHARES[-1]}."
        yield Refusal(f"{path}/maxInstancePercentPerZonePolicy/value", share, reason)
    for name, count in machine.get("hardwareProfile", {}).get("vmSizeProperties", {}).items():
        if count < 1:
            yield Refusal(f"{VM}/hardwareProfile/vmSizeProperties/{name}", count, "It is at least 1.")


# The nodes -----------------------------------------------------------------------------------------------------------


def _machine(machine: Document, image: Image | None, os: str) -> Iterator[Refusal]:
    agent = machine["nodeAgentSKUId"]
    if image is not None and image.node_agent and agent.lower() != image.node_agent.lower():
        yield Refusal(f"{VM}/nodeAgentSKUId", agent, f"The image needs the node agent {image.node_agent}.")
    if "windowsConfiguration" in machine and os == "linux":
        yield Refusal(f"{VM}/windowsConfiguration", "", "Windows configuration cannot be set on a Linux image.")
    if "containerConfiguration" in machine and image is not None and DOCKER not in image.capabilities:
        reference = "publisher {publisher} offer {offer} sku {sku}".format_map(machine["imageReference"])
        # recorded: the pool tests of azure-sdk-for-java
        reason = f"The specified imageReference with {reference} does not support container feature."
        yield Refusal(f"{VM}/containerConfiguration", "", reason)
    disks = machine.get("dataDisks", ())
    for index, disk in enumerate(disks):
        if disk["lun"] not in LUNS:
            yield Refusal(f"{VM}/dataDisks[{index}]/lun", disk["lun"], f"A lun is between 0 and {LUNS[-1]}.")
        if disk["diskSizeGB"] < 1:
            yield Refusal(f"{VM}/dataDisks[{index}]/diskSizeGB", disk["diskSizeGB"], "A disk has at least 1 GB.")
    for index, lun in _repeated([disk["lun"] for disk in disks]):
        yield Refusal(f"{VM}/dataDisks[{index}]/lun", lun, "Another data disk has this lun.")
    for index, name in _repeated([extension["name"] for extension in machine.get("extensions", ())]):
        yield Refusal(f"{VM}/extensions[{index}]/name", name, "Another extension has this name.")


def _security(machine: Document, os: str) -> Iterator[Refusal]:
    profile = machine.get("securityProfile", {})
    is_confidential = profile.get("securityType", "").lower() == "confidentialvm"
    path = f"{VM}/osDisk/managedDisk/securityProfile/securityEncryptionType"
    disk = machine.get("osDisk", {}).get("managedDisk", {})
    encryption = disk.get("securityProfile", {}).get("securityEncryptionType")
    if is_confidential and not encryption:
        yield Refusal(path, "", "It is required for confidential VMs.")
    if encryption and not is_confidential:
        yield Refusal(path, encryption, "It can be set only for confidential VMs.")
    encrypted_disks = machine.get("diskEncryptionConfiguration", {})
    if "customerManagedKey" in encrypted_disks and "osdisk" not in encrypted_disks.get("targets", ()):
        reason = "It can be used only if osdisk is one of the targets."
        yield Refusal(f"{VM}/diskEncryptionConfiguration/customerManagedKey", "", reason)
    if encrypted_disks and os == "linux" and "virtualMachineImageId" in machine["imageReference"]:
        reason = "It is not supported on Linux with an image of a gallery."
        yield Refusal(f"{VM}/diskEncryptionConfiguration", "", reason)
    if "uefiSettings" in profile and "securityType" not in profile:
        yield Refusal(f"{VM}/securityProfile/uefiSettings", "", "It needs a securityType.")


def _repeated(values: list[Any]) -> Iterator[tuple[int, Any]]:
    """Each value that an earlier one equals, with its position."""
    return ((index, value) for index, value in enumerate(values) if value in values[:index])


# Upgrades ------------------------------------------------------------------------------------------------------------

_UPGRADE = "upgradePolicy"
_ROLLING = f"{_UPGRADE}/rollingUpgradePolicy"


def _upgrade(document: Document) -> Iterator[Refusal]:
    policy, machine = document.get(_UPGRADE, {}), document[VM]
    is_zonal = machine.get("nodePlacementConfiguration", {}).get("policy") == "zonal"
    rolling = policy.get("rollingUpgradePolicy", {})
    for name, allowed in (
        ("maxBatchInstancePercent", SHARES),
        ("maxUnhealthyInstancePercent", SHARES),
        ("maxUnhealthyUpgradedInstancePercent", PERCENTAGES),
    ):
        if name in rolling and rolling[name] not in allowed:
            yield Refusal(f"{_ROLLING}/{name}", rolling[name], f"It is between {allowed[0]} and {allowed[-1]}.")
    batch = rolling.get("maxBatchInstancePercent", 0)
    if batch > rolling.get("maxUnhealthyInstancePercent", SHARES[-1]):
        reason = "It cannot be more than maxUnhealthyInstancePercent."
        yield Refusal(f"{_ROLLING}/maxBatchInstancePercent", batch, reason)
    if "enableCrossZoneUpgrade" in rolling and not is_zonal:
        reason = "It can be set only for pools with zonal node placement."
        yield Refusal(f"{_ROLLING}/enableCrossZoneUpgrade", rolling["enableCrossZoneUpgrade"], reason)
    if policy.get("automaticOSUpgradePolicy", {}).get("enableAutomaticOSUpgrade") and machine.get(
        "windowsConfiguration", {}
    ).get("enableAutomaticUpdates"):
        reason = "Automatic OS upgrades need enableAutomaticUpdates of windowsConfiguration to be false."
        yield Refusal(f"{_UPGRADE}/automaticOSUpgradePolicy/enableAutomaticOSUpgrade", True, reason)


# The network ---------------------------------------------------------------------------------------------------------


def network(document: Document) -> Iterator[Refusal]:
    """The refusals of a pool's network: its public addresses, NAT pools and their rules."""
    addresses = document.get("publicIPAddressConfiguration", {})
    pools = document.get("endpointConfiguration", {}).get("inboundNATPools", ())
    families = addresses.get("ipFamilies")
    if families is not None and sorted(families) not in (["IPv4"], ["IPv4", "IPv6"]):
        reason = "A pool is single-stack with IPv4, or dual-stack with IPv4 and IPv6."
        yield Refusal(f"{ADDRESSES}/ipFamilies", families, reason)
    if (addresses.get("provision") == "usermanaged") != bool(addresses.get("ipAddressIds")):
        reason = "The public IP addresses are given with usermanaged, and only then."
        yield Refusal(f"{ADDRESSES}/ipAddressIds", addresses.get("ipAddressIds", ""), reason)
    if addresses.get("provision") == "nopublicipaddresses":
        reason = "A pool without public IP addresses cannot have it."
        if pools:
            yield Refusal(f"{NETWORK}/endpointConfiguration", "", reason)
        if addresses.get("ipTags"):  # from memory
            yield Refusal(f"{ADDRESSES}/ipTags", "", reason)
    if len(pools) > MOST_NAT_POOLS:
        yield Refusal(NAT_POOLS, len(pools), f"A pool has at most {MOST_NAT_POOLS} inbound NAT pools.")
    if sum(len(nat_pool.get("networkSecurityGroupRules", ())) for nat_pool in pools) > MOST_RULES:
        yield Refusal(NAT_POOLS, len(pools), f"A pool has at most {MOST_RULES} network security group rules.")
    for index, nat_pool in enumerate(pools):
        yield from _nat_pool(nat_pool, f"{NAT_POOLS}[{index}]")
        for other in pools[:index]:
            yield from _nat_pair(nat_pool, other, f"{NAT_POOLS}[{index}]")


def addresses(document: Document) -> Iterator[Refusal]:
    """The refusal of more nodes than the public IP addresses of a pool are enough for."""
    ids = document.get(NETWORK, {}).get("publicIPAddressConfiguration", {}).get("ipAddressIds", ())
    for name in ("targetDedicatedNodes", "targetLowPriorityNodes"):
        if ids and document.get(name, 0) > NODES_OF_ADDRESS * len(ids):
            reason = f"Each public IP address is enough for {NODES_OF_ADDRESS} of these nodes."
            yield Refusal(name, document[name], reason)


def _nat_pool(nat_pool: Document, path: str) -> Iterator[Refusal]:
    name, port = nat_pool["name"], nat_pool["backendPort"]
    start, end = nat_pool["frontendPortRangeStart"], nat_pool["frontendPortRangeEnd"]
    if len(name) > LONGEST_NAT_NAME or not NAT_NAME.fullmatch(name):
        reason = (
            f"A name has 1 to {LONGEST_NAT_NAME} letters, digits, `_`, `.` and `-`, a letter or digit first, and no"
            " `.` or `-` last."
        )
        yield Refusal(f"{path}/name", name, reason)
    if not 1 <= port <= 65_535 or port in AGENT_PORTS:
        reason = f"The port must be between 1 and 65535, but not {' or '.join(map(str, AGENT_PORTS))}."
        yield Refusal(f"{path}/backendPort", port, reason)
    if not 1 <= start <= end <= LAST_PORT or (start < FRONTEND_RESERVED.stop and end >= FRONTEND_RESERVED.start):
        first, last = FRONTEND_RESERVED[0], FRONTEND_RESERVED[-1]
        reason = f"Ports are between 1 and {LAST_PORT}, without those from {first} to {last}."
        yield Refusal(f"{path}/frontendPortRangeStart", start, reason)
    elif end - start + 1 < FEWEST_PORTS:
        yield Refusal(f"{path}/frontendPortRangeEnd", end, f"A range has at least {FEWEST_PORTS} ports.")
    rules = nat_pool.get("networkSecurityGroupRules", ())
    for index, rule in enumerate(rules):
        yield from _rule(rule, f"{path}/networkSecurityGroupRules[{index}]")
    for index, priority in _repeated([rule["priority"] for rule in rules]):
        yield Refusal(f"{path}/networkSecurityGroupRules[{index}]/priority", priority, "Another rule has it.")


def _rule(rule: Document, path: str) -> Iterator[Refusal]:
    if rule["priority"] not in PRIORITIES:
        reason = f"A priority is between {PRIORITIES[0]} and {PRIORITIES[-1]}."
        yield Refusal(f"{path}/priority", rule["priority"], reason)
    if not is_source_address(rule["sourceAddressPrefix"]):
        reason = "It is an IP address, a subnet such as 10.0.0.0/8, a service tag, or `*`."
        yield Refusal(f"{path}/sourceAddressPrefix", rule["sourceAddressPrefix"], reason)
    if reason := source_ports_fault(rule.get("sourcePortRanges", ())):
        yield Refusal(f"{path}/sourcePortRanges", ", ".join(rule["sourcePortRanges"]), reason)


def is_source_address(text: str) -> bool:
    """Whether the text is an IP address, a subnet, a service tag, or `*`."""
    if re.fullmatch(_SERVICE_TAG, text):
        return True
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def source_ports_fault(ranges: Iterable[str]) -> str:
    """Why the source ports of a rule are refused; empty if they are not."""
    spans: list[tuple[int, int]] = []
    for text in ranges:
        match = re.fullmatch(_PORTS, text)
        if text != "*" and match is None:
            return "A range is a port, two ports such as 100-200, or `*`."
        start, end = (0, 65_535) if match is None else (int(match[1]), int(match[2] or match[1]))
        if not start <= end <= 65_535:
            return "Ports are between 0 and 65535, the lower one first."
        if any(start <= last and first <= end for first, last in spans):
            return "The ranges overlap."
        spans.append((start, end))
    return ""


def _nat_pair(nat_pool: Document, other: Document, path: str) -> Iterator[Refusal]:
    if nat_pool["name"] == other["name"]:
        yield Refusal(f"{path}/name", nat_pool["name"], "Another NAT pool has this name.")
    if (nat_pool["backendPort"], nat_pool["protocol"]) == (other["backendPort"], other["protocol"]):
        yield Refusal(f"{path}/backendPort", nat_pool["backendPort"], "Another NAT pool has this port.")
    start, end = nat_pool["frontendPortRangeStart"], nat_pool["frontendPortRangeEnd"]
    if start <= other["frontendPortRangeEnd"] and end >= other["frontendPortRangeStart"]:
        yield Refusal(f"{path}/frontendPortRangeStart", start, "The ranges of two NAT pools overlap.")


# Jobs and tasks ------------------------------------------------------------------------------------------------------


def identifier(document: Document) -> Iterator[Refusal]:
    """The refusal of the id of a pool, job, job schedule or task."""
    if "id" in document and not ID.fullmatch(document["id"]):
        yield Refusal("id", document["id"], "An id has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -.")


def job(document: Document, *, by_schedule: bool = False) -> Iterator[Refusal]:
    """The refusals of a job, without its pool."""
    yield from display_name(document)
    yield from _forms(document)
    yield from job_limits(document)
    yield from below("poolInfo", _pool_of_job(document["poolInfo"], by_schedule=by_schedule))
    ids: list[str] = []
    for name, default in SPECIAL_TASKS.items():
        if name in document:
            special: Document = {"id": default, **document[name]}
            yield from below(name, (*identifier(special), *display_name(special), *command(special)))
            if special["id"].lower() in ids:
                yield Refusal(f"{name}/id", special["id"], "Another special task of the job has this id.")
            ids.append(special["id"].lower())
    release = document.get("jobReleaseTask", {})
    if release and "jobPreparationTask" not in document:
        reason = "A job release task needs a job preparation task."
        yield Refusal("jobPreparationTask", "", reason, MISSING)
    if not 0 < seconds(release.get("maxWallClockTime", ""), 1) <= LONGEST_RELEASE_SECONDS:
        reason = "A job release task runs for at most 15 minutes."
        yield Refusal("jobReleaseTask/maxWallClockTime", release["maxWallClockTime"], reason)


def job_limits(document: Document) -> Iterator[Refusal]:
    """The refusals of what can also be changed later."""
    if document.get("priority", 0) not in JOB_PRIORITIES:
        reason = f"The value must be between {JOB_PRIORITIES[0]} and {JOB_PRIORITIES[-1]}."
        yield Refusal("priority", document["priority"], reason)
    most = document.get("maxParallelTasks", -1)
    if most != -1 and most < 1:
        yield Refusal("maxParallelTasks", most, "The value must be -1, for no limit, or at least 1.")
    yield from retries(document)


def retries(document: Document) -> Iterator[Refusal]:
    """The refusal of a number of retries."""
    for where, settings in (("", document), ("constraints/", document.get("constraints", {}))):
        if (count := settings.get("maxTaskRetryCount", 0)) < -1:
            yield Refusal(f"{where}maxTaskRetryCount", count, "The least value is -1, for no limit.")


def _pool_of_job(pool_info: Document, *, by_schedule: bool) -> Iterator[Refusal]:
    auto = pool_info.get("autoPoolSpecification")
    if pool_info.get("poolId") and auto is not None:
        yield Refusal("", pool_info["poolId"], "Either poolId or autoPoolSpecification is given.")
    if auto is None:
        if not pool_info.get("poolId"):
            yield Refusal("poolId", "", "A job needs a pool.", MISSING)
        return
    path, prefix = "autoPoolSpecification", auto.get("autoPoolIdPrefix", "")
    if "pool" not in auto:
        yield Refusal(f"{path}/pool", "", "It is needed.", MISSING)
    if auto["poolLifetimeOption"] == "jobschedule" and not by_schedule:
        reason = "A job that no schedule made cannot share its pool with others of a schedule."
        yield Refusal(f"{path}/poolLifetimeOption", auto["poolLifetimeOption"], reason)
    if prefix and (len(prefix) > LONGEST_PREFIX or not ID.fullmatch(prefix)):
        reason = f"A prefix has up to {LONGEST_PREFIX} of the characters A-Z, a-z, 0-9, _ and -."
        yield Refusal(f"{path}/autoPoolIdPrefix", prefix, reason)
    if "hardwareProfile" in auto.get("pool", {}).get(VM, {}):
        yield Refusal(f"{path}/pool/{VM}/hardwareProfile", "", "A pool that is made for a job cannot have it.")


def times(document: Document) -> Iterator[Refusal]:
    """The refusals of the times of a job schedule."""
    for name in ("recurrenceInterval", "startWindow"):
        if seconds(document.get(name, ""), LEAST_SCHEDULE_SECONDS) < LEAST_SCHEDULE_SECONDS:
            yield Refusal(f"schedule/{name}", document[name], "The least value is one minute.")


def seconds(duration: str, default: float) -> float:
    """The seconds of an ISO 8601 duration as the service writes it; the default for any other text."""
    match = re.fullmatch(_DURATION, duration)
    if match is None or duration in ("", "P"):
        return default
    return sum(float(number or 0) * unit for number, unit in zip(match.groups(), (86_400, 3600, 60, 1), strict=True))


def task(document: Document, job: Document) -> Iterator[Refusal]:
    """The refusals of a task of a job. Azure documents no refusal of slots, of a task that depends on itself, and of
    ranges of exit codes; such a task can never work. That of the dependency action is of an older REST reference."""
    yield from display_name(document)
    yield from command(document)
    if "outputFiles" in document:
        yield from _output_files(document["outputFiles"])
    yield from packages(document)
    slots = document.get("requiredSlots", 1)
    if not 1 <= slots <= MOST_SLOTS:
        yield Refusal("requiredSlots", slots, f"The value must be between 1 and {MOST_SLOTS}.")
    if "multiInstanceSettings" in document:
        yield from _gang(document["multiInstanceSettings"], slots)
    yield from _dependencies(document, job)
    if "exitConditions" in document:
        yield from _exit_conditions(document["exitConditions"], job)


def _exit_conditions(conditions: Document, job: Document) -> Iterator[Refusal]:
    ranges: Sequence[Document] = conditions.get("exitCodeRanges", ())
    for index, span in enumerate(ranges):
        path = f"exitConditions/exitCodeRanges[{index}]/start"
        if span["start"] > span["end"]:
            yield Refusal(path, span["start"], "The start of a range cannot be after its end.")
        if any(span["start"] <= other["end"] and span["end"] >= other["start"] for other in ranges[:index]):
            yield Refusal(path, span["start"], "Two ranges of exit codes overlap.")
    for name, is_right, reason in (
        ("dependencyAction", job.get("usesTaskDependencies"), "The job does not use task dependencies."),
        ("jobAction", job.get("onTaskFailure") == ACTING, "The job's onTaskFailure is noaction."),
    ):
        actions = [options[name] for options in exit_options(conditions) if name in options]
        if actions and not is_right:
            yield Refusal(f"exitConditions/{name}", actions[0], reason)


def _gang(settings: Document, slots: int) -> Iterator[Refusal]:
    path, count = "multiInstanceSettings", settings.get("numberOfInstances", 1)
    if count < 1:
        yield Refusal(f"{path}/numberOfInstances", count, "The value must be at least 1.")
    if not settings["coordinationCommandLine"].strip():
        yield Refusal(f"{path}/coordinationCommandLine", "", "The command cannot be empty.")
    if slots != 1:
        yield Refusal("requiredSlots", slots, "A multi-instance task takes one slot of each node.")
    yield from below(path, resource_files(settings.get("commonResourceFiles", ()), "commonResourceFiles"))


def _dependencies(document: Document, job: Document) -> Iterator[Refusal]:
    if "dependsOn" not in document:
        return
    ids = document["dependsOn"].get("taskIds", ())
    spans = document["dependsOn"].get("taskIdRanges", ())
    if not job.get("usesTaskDependencies"):
        yield Refusal("dependsOn", "", "The job does not use task dependencies.", "UnsupportedProperty")
    if sum(map(len, ids)) > MOST_DEPENDENCIES:
        reason = f"The ids have at most {MOST_DEPENDENCIES} characters together."
        yield Refusal("dependsOn/taskIds", len(ids), reason, "TaskDependencyListTooLong")
    if "id" in document and document["id"].lower() in map(str.lower, ids):
        yield Refusal("dependsOn/taskIds", document["id"], "A task cannot depend on itself.")
    for task_id in ids:
        if not ID.fullmatch(task_id):
            yield Refusal("dependsOn/taskIds", task_id, "This is no task id.")
    for span in spans:
        if not 0 <= span["start"] <= span["end"]:
            yield Refusal("dependsOn/taskIdRanges", span, "start must not be after end.")
    if sum(len(f"{span['start']}-{span['end']}") for span in spans) > MOST_DEPENDENCIES:
        reason = f"The ranges have at most {MOST_DEPENDENCIES} characters together."
        yield Refusal("dependsOn/taskIdRanges", len(spans), reason, "TaskDependencyRangesTooLong")


def command(document: Document) -> Iterator[Refusal]:
    """The refusals of what every kind of task has."""
    if not document["commandLine"].strip() and "containerSettings" not in document:
        yield Refusal("commandLine", "", "The command line cannot be empty.")
    if "resourceFiles" in document:
        yield from resource_files(document["resourceFiles"], "resourceFiles")
    yield from environment(document)
    yield from retries(document)
    identity = document.get("userIdentity")
    if identity is not None and ("username" in identity) == ("autoUser" in identity):
        yield Refusal("userIdentity", identity.get("username", ""), "Either username or autoUser is given.")


def resource_files(files: Sequence[Document], path: str) -> Iterator[Refusal]:
    """The refusals of a list of resource files."""
    for index, file in enumerate(files):
        where = f"{path}[{index}]"
        sources = [name for name in SOURCES if file.get(name)]
        if len(sources) != 1:
            yield Refusal(where, sources, f"Exactly one of {', '.join(SOURCES)} is needed.")
            continue
        if sources == ["httpUrl"] and not file.get("filePath"):
            yield Refusal(f"{where}/filePath", "", "A file by its URL needs a path.", MISSING)
        if sources == ["httpUrl"] and "blobPrefix" in file:
            yield Refusal(f"{where}/blobPrefix", file["blobPrefix"], "A prefix goes with a container only.")
        if sources != ["autoStorageContainerName"]:
            yield from url(file[sources[0]], f"{where}/{sources[0]}")
        if not re.fullmatch(_MODE, file.get("fileMode", "0770")):
            yield Refusal(f"{where}/fileMode", file["fileMode"], "A mode is an octal number such as 0770.")
    yield from _sum(files, path)


def _output_files(files: Sequence[Document]) -> Iterator[Refusal]:
    for index, file in enumerate(files):
        path, container = f"outputFiles[{index}]", file["destination"].get("container")
        if container is None:
            yield Refusal(f"{path}/destination/container", "", "It is needed.", MISSING)
            continue
        if not file["filePattern"].strip():
            yield Refusal(f"{path}/filePattern", "", "The pattern cannot be empty.")
        yield from url(container["containerUrl"], f"{path}/destination/container/containerUrl")
    yield from _sum(files, "outputFiles")


def _sum(files: Sequence[Document], path: str) -> Iterator[Refusal]:
    """Azure documents the sum of a list of resource files and not how it is counted: here by the values. That of output
    files is Batch Shipyard's."""
    characters = sum(map(_characters, files))
    if characters > MOST_FILES:
        reason = f"The list has at most {MOST_FILES} characters: put the files into a container, or into an archive."
        yield Refusal(path, characters, reason, "RequestEntityTooLarge")


def _characters(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_characters, value.values()))
    return len(value) if isinstance(value, str) else 0


def url(text: str, path: str) -> Iterator[Refusal]:
    """The refusal of a URL. It names the URL without its query, which may hold a signature."""
    if LATE not in text and not re.match(_URL, text):
        yield Refusal(path, text.partition("?")[0], "An http or https URL is needed.")


def environment(document: Document) -> Iterator[Refusal]:
    """The refusals of a command's environment."""
    for index, setting in enumerate(document.get("environmentSettings", ())):
        if not setting["name"] or "=" in setting["name"]:
            reason = "The name of a variable has at least one character and no `=`."
            yield Refusal(f"environmentSettings[{index}]/name", setting["name"], reason)


def exit_options(conditions: Document) -> Iterator[Document]:
    """Every exit option of a task's exit conditions."""
    for name in ("default", "preProcessingError", "fileUploadError"):
        yield conditions.get(name, {})
    for mapping in (*conditions.get("exitCodes", ()), *conditions.get("exitCodeRanges", ())):
        yield mapping["exitOptions"]
