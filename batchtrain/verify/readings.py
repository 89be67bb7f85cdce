"""What several probes read out of observations; each raises ValueError if nothing follows. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchtrain.catalog.fabric_marks import marks_of
from batchtrain.metrics.extract import Extractor
from batchtrain.plan.container import POOL_KEY
from batchtrain.runtime import verdict

LINK = "0o120777"
"""The mode of a link."""


def some(values: Sequence[Any], what: str) -> Sequence[Any]:
    """The values. Raises ValueError if there are none: nothing follows of all of none."""
    if not values:
        raise ValueError(f"no {what} was seen")
    return values


def uploaded(names: Sequence[str]) -> Sequence[str]:
    """The names of blobs. Raises ValueError without the one that every upload has."""
    if "dir/plain" not in names:
        raise ValueError("the upload has no dir/plain")
    return names


def every(hosts: Mapping[str, Any], holds: Callable[[Any], bool]) -> bool:
    """Whether something is true of every host."""
    return all(holds(hosts[host]) for host in some(list(hosts), "host"))


def both(answers: Sequence[Any], holds: Callable[[Any], bool]) -> bool:
    """Whether something is true of both answers."""
    if len(answers) != 2:
        raise ValueError("two answers are needed")
    return all(map(holds, answers))


def infiniband(value: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The ports of InfiniBand cards; those of accelerated networking are others."""
    return some([port for port in value["ports"] if port["link_layer"] == "InfiniBand"], "InfiniBand port")


def full_member(key: str) -> bool:
    """Whether a partition key is that of a full member of a partition other than the default one."""
    number = int(key, 16)
    return bool(number & 0x8000) and number != 0xFFFF


def ports_are_whole(value: Mapping[str, Any]) -> bool:
    """Whether all ports that the size has are active, at its rate, and in a partition."""
    active = [
        port
        for port in infiniband(value)
        if "ACTIVE" in port["state"] and port["rate"] >= value["rate"] and any(map(full_member, port["pkeys"]))
    ]
    return bool(len(active) == value["expected"])


def master_is_a_host(environment: Mapping[str, str]) -> bool:
    """Whether the primary of a gang is in its list of hosts, with port 6000."""
    address, _, port = environment["AZ_BATCH_MASTER_NODE"].partition(":")
    return port == "6000" and address in environment["AZ_BATCH_HOST_LIST"].split(",")


def topologies_are_links(value: Mapping[str, Any]) -> bool:
    """Whether each family's topo.xml leads to the file that Azure documents."""
    links = {path: target for path, target in value["topologies"].items() if path.endswith("/topo.xml")}
    return every(links, lambda target: re.fullmatch(r"/opt/microsoft/\w+-topo\.xml", target) is not None)


def gpu_share(value: Mapping[str, Any]) -> bool:
    """Whether each GPU has the memory of the catalogue, up to a tenth."""
    expected = value["expected_gib"] * 1024
    return all(abs(memory - expected) <= expected / 10 for memory in some(value["mib"], "GPU"))


def gpu_order(bus: Sequence[str], positions: Sequence[str]) -> bool:
    """Whether the driver numbers the GPUs by their positions on the bus."""
    return list(some(bus, "GPU")) == list(some(positions, "GPU"))


def line_with(value: Mapping[str, Any], *words: str, without: str = "\n") -> bool:
    """Whether a program ended well and printed a line with one of these words, and without another one."""
    lines = [line for line in value["lines"] if any(word in line for word in words)]
    return value["code"] == 0 and bool(lines) and not any(without in line for line in lines)


def is_old_intel_mpi(value: Mapping[str, Any]) -> bool:
    """Whether the launcher prints its version as batchtrain reads it."""
    return any(re.search(r"Version (5\.1\.\d|201[78] Update \d)", line) for line in some(value["lines"], "line"))


def bandwidth(value: Mapping[str, Any]) -> bool:
    """Whether all-reduce is as fast as the size allows. Raises LookupError for a size without a mark."""
    warn = marks_of(value["size"])["gpu_pair_gb_per_second"].warn
    if warn is None:
        raise LookupError("the mark of the size has no limit")
    if value["code"] != 0:
        return False
    points = [point for line in value["lines"] for point in Extractor().line(None, line)]
    speeds = [speed for point in points if (speed := point.values.get("average_busbw")) is not None]
    return bool(some(speeds, "bandwidth")[-1] >= warn)


def network(value: Mapping[str, Any]) -> str:
    """The network that NCCL used, as batchtrain reads it from NCCL's lines; empty if they do not say it."""
    if not value["lines"]:
        raise ValueError("NCCL printed nothing")
    return str(verdict.hear(value["lines"])["network"])


def other_cloud(value: Mapping[str, Any]) -> bool:
    """Whether the service of another cloud takes a token. Nothing follows in the public one."""
    if value["cloud"] == "public":
        raise ValueError("the account is in the public cloud")
    return bool(value["status"] == 200)


def has_no_role(value: Mapping[str, Any]) -> bool:
    """Whether a token without a role is refused as batchtrain reads it. Nothing follows from one with a role."""
    if value["status"] == 200:
        raise ValueError("this sign-in has a role")
    return bool(value["status"] == 403 and value["code"] == "AuthorizationFailure")


def role_is_enough(value: Mapping[str, Any]) -> bool:
    """Whether the service allows a pool. Nothing follows for another role than those of the assumption."""
    for row in some(value["permissions"], "permission"):
        if "*" in row["actions"] and not any("Authorization" in action for action in row["notActions"]):
            raise ValueError("this sign-in is an owner; sign in with the role alone")
    return bool(value["status"] < 300)


def no_token(value: Mapping[str, Any]) -> bool:
    """Whether a node refuses the token of an identity. Nothing follows if it was not asked."""
    if value["exit"] not in (0, 22):
        raise ValueError("the Instance Metadata Service was not reached")
    return bool(value["exit"] == 22)


def requeued(value: Mapping[str, Any]) -> bool:
    """Whether a gang was requeued once, without a retry. Nothing follows if the node could not be removed."""
    if value["status"] != 202:
        raise ValueError("the service did not remove the node")
    return bool(value["requeues"] == 1 and value["retries"] == 0)


def location_is_a_kind(value: Mapping[str, Any]) -> bool:
    """Whether a restriction of sizes has the type `Location`. Nothing follows from a list with zones alone."""
    kinds = some(value["kinds"], "restricted size")
    if set(kinds) == {"Zone"}:
        raise ValueError("no size is restricted in the whole region")
    return "Location" in kinds


def related_sizes_agree(value: Mapping[str, Any]) -> bool:
    """Whether the sold sizes have the figures of their related sizes. Nothing follows if none is sold."""
    if value["sold"] < 1:
        raise ValueError("the region sells none of these sizes")
    return len(value["different"]) == 0


def fails_by_settings(failure: str) -> bool:
    """Whether a pool gets no usable node. Nothing follows if Azure has none for it."""
    if "Quota" in failure or "Allocation" in failure:
        raise ValueError(f"the pool failed for another reason: {failure}")
    return bool(failure)


def first_rule_wins(value: Mapping[str, bool]) -> bool:
    """Whether the port whose first rule allows is reached, and that whose first rule denies is not."""
    allowed, denied = value["8801"], value["8802"]
    if not allowed and not denied:
        raise ValueError("neither port is reached from this machine")
    return allowed and not denied


def image_is_usable(failure: str) -> bool:
    """Whether a pool has nodes with its image. Nothing follows from a failure that is none of its containers."""
    if failure and "ContainerInvalid" not in failure:
        raise ValueError(f"the pool failed for another reason: {failure}")
    return not failure


def has_pool_key(value: Mapping[str, Any]) -> bool:
    """Whether the directory of the pool's key has a private key."""
    return value["directory"] == POOL_KEY and any(name.endswith("_rsa") for name in value["names"])


def key_is_accepted(hosts: Mapping[str, Any]) -> bool:
    """Whether ssh logs in with the key on every host. Its exit code 255 alone may be a refused connection."""
    codes = [host["code"] for host in some(list(hosts.values()), "host")]
    errors = [host["error"] for host in hosts.values() if host["code"] == 255]
    if errors and not any("Permission denied" in error for error in errors):
        raise ValueError(f"ssh did not reach the login: {errors[0]}")
    return 255 not in codes


def target(value: Mapping[str, Any]) -> int:
    """The dedicated nodes that a formula asks for."""
    return int(value["values"]["$TargetDedicatedNodes"])


def listed(files: Mapping[str, Any]) -> Sequence[Any]:
    """The files of a list."""
    return some(list(files.values()), "file")


def began(files: Sequence[str]) -> bool:
    """Whether a task has begun. Raises ValueError if it left nothing."""
    return "began" in some(files, "file")
