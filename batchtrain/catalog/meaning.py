"""What Azure Batch refuses of a pool, a job and a task whose form is right: ranges, names and combinations; pure.

Client and emulator share this table. The client judges a plan by it before it sends anything. The emulator answers
400 `InvalidPropertyValue`. A document is a request body in the words of the current service version.

Sources, read November 2026: Azure/azure-rest-api-specs, `models.tsp` of the data plane (the text of each field);
recorded answers in azure-sdk-for-java (2023-05-01.17.0). Memory where a comment says so.
"""

from __future__ import annotations

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
_SERVICE_TAG = re.compile(r"\*|[A-Za-z][A-Za-z0-9.]*")
_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")

VM = "virtualMachineConfiguration"
NETWORK = "networkConfiguration"
ADDRESSES = f"{NETWORK}/publicIPAddressConfiguration"
NAT_POOLS = f"{NETWORK}/endpointConfiguration/inboundNATPools"


class Refusal(NamedTuple):
    """A value that the service refuses."""

    path: str
    """Where it is in the body: `virtualMachineConfiguration/dataDisks[1]/lun`."""
    value: object
    reason: str


def pool(document: Document, image: Image | None, os: str) -> Iterator[Refusal]:
    """The refusals of a pool.

    image: the marketplace image, if the tables have it. os: of the nodes; empty if it is unknown.
    """
    yield from display_name(document)
    yield from _mix(document)
    yield from _machine(document[VM], image, os)
    yield from _security(document[VM])
    yield from _zones(document[VM])
    if NETWORK in document:
        yield from network(document[NETWORK])
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


def _security(machine: Document) -> Iterator[Refusal]:
    profile = machine.get("securityProfile", {})
    is_confidential = profile.get("securityType", "").lower() == "confidentialvm"
    path = f"{VM}/osDisk/managedDisk/securityProfile/securityEncryptionType"
    disk = machine.get("osDisk", {}).get("managedDisk", {})
    encryption = disk.get("securityProfile", {}).get("securityEncryptionType")
    if is_confidential and not encryption:
        yield Refusal(path, "", "It is required for confidential VMs.")
    if encryption and not is_confidential:
        yield Refusal(path, encryption, "It can be set only for confidential VMs.")
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
    if rolling.get("enableCrossZoneUpgrade") and not is_zonal:
        reason = "Only pools with zonal node placement can be upgraded across zones."
        yield Refusal(f"{_ROLLING}/enableCrossZoneUpgrade", True, reason)
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
    if _SERVICE_TAG.fullmatch(text):
        return True
    import ipaddress  # only where there are addresses

    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def source_ports_fault(ranges: Iterable[str]) -> str:
    """Why the source ports of a rule are refused; empty if they are not."""
    spans: list[tuple[int, int]] = []
    for text in ranges:
        match = _PORTS.fullmatch(text)
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


def job(document: Document) -> Iterator[Refusal]:
    """The refusals of a job, without its pool."""
    yield from display_name(document)
    for name in ("jobPreparationTask", "jobReleaseTask"):
        for path, value, reason in environment(document.get(name, {})):
            yield Refusal(f"{name}/{path}", value, reason)


def task(document: Document, *, uses_dependencies: bool) -> Iterator[Refusal]:
    """The refusals of a task. The service documents only those of the display name and of the dependency action (an
    older REST reference); the others can never work."""
    yield from display_name(document)
    yield from environment(document)
    slots = document.get("requiredSlots", 1)
    if not 1 <= slots <= MOST_SLOTS:
        yield Refusal("requiredSlots", slots, f"The value must be between 1 and {MOST_SLOTS}.")
    if document["id"].lower() in map(str.lower, document.get("dependsOn", {}).get("taskIds", ())):
        yield Refusal("dependsOn/taskIds", document["id"], "A task cannot depend on itself.")
    conditions = document.get("exitConditions", {})
    ranges: Sequence[Document] = conditions.get("exitCodeRanges", ())
    for index, span in enumerate(ranges):
        path = f"exitConditions/exitCodeRanges[{index}]/start"
        if span["start"] > span["end"]:
            yield Refusal(path, span["start"], "The start of a range cannot be after its end.")
        if any(span["start"] <= other["end"] and span["end"] >= other["start"] for other in ranges[:index]):
            yield Refusal(path, span["start"], "Two ranges of exit codes overlap.")
    actions = [options["dependencyAction"] for options in exit_options(conditions) if "dependencyAction" in options]
    if actions and not uses_dependencies:
        yield Refusal("exitConditions/dependencyAction", actions[0], "The job does not use task dependencies.")


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
