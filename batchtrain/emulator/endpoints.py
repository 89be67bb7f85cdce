"""Inbound endpoints: the ports of a pool's nodes that clients reach from outside, as requested and per node; pure."""

from __future__ import annotations

from batchtrain.emulator.faults import invalid_property
from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.interface import Forward
from batchtrain.emulator.records import Document, Node

PROPERTY = "networkConfiguration/endpointConfiguration/inboundNATPools"
MOST_POOLS, MOST_RULES, MOST_CHARACTERS, LEAST_PORTS = 5, 25, 77, 40
LAST_PORT = 65_534
RESERVED = range(50_000, 55_001)
"""Frontend ports that Batch reserves."""
AGENT_PORTS = (29_876, 29_877)
PRIORITIES = range(150, 4097)


def nat_pools(spec: Document) -> list[Document]:
    """The endpoint settings of a pool."""
    network: Document = spec.get("networkConfiguration", {})
    return list(network.get("endpointConfiguration", {}).get("inboundNATPools", []))


def ipv6_address(entry: PoolEntry, node: Node) -> str:
    """A node's IPv6 address; empty unless the pool is dual-stack. It is the IPv6 form of the node's IPv4 address, so
    that connections reach the node."""
    addresses: Document = entry.record.spec.get("networkConfiguration", {}).get("publicIPAddressConfiguration", {})
    return f"::ffff:{node.address}" if "IPv6" in addresses.get("ipFamilies", []) else ""


def of_node(entry: PoolEntry, node: Node) -> list[Document]:
    """A node's inbound endpoints: one for each NAT pool and address family, within the port range of the pool."""
    families = [("", node.address), (".IPv6", ipv6_address(entry, node))]
    return [
        {
            "name": f"{pool['name']}.{node.number}{suffix}",
            "protocol": pool["protocol"],
            "publicIPAddress": address,
            "publicFQDN": node.hostname,
            "frontendPort": pool["frontendPortRangeStart"] + node.number,
            "backendPort": pool["backendPort"],
        }
        for pool in nat_pools(entry.record.spec)
        if pool["frontendPortRangeStart"] + node.number <= pool["frontendPortRangeEnd"]
        for suffix, address in families
        if address
    ]


def forwards(entry: PoolEntry, node: Node) -> tuple[Forward, ...]:
    """The endpoints that the machine forwards: TCP, where the two ports differ. The kernel forwards IPv6."""
    return tuple(
        Forward(endpoint["frontendPort"], endpoint["backendPort"])
        for endpoint in of_node(entry, node)
        if endpoint["publicIPAddress"] == node.address
        and endpoint["protocol"] == "tcp"
        and endpoint["frontendPort"] != endpoint["backendPort"]
    )


LOGIN_PORTS = (22, 3389)
"""The ports of ssh on Linux and of Remote Desktop on Windows."""


def login(entry: PoolEntry, node: Node) -> Document:
    """The log-in address: the endpoint of the log-in port, or the node's own port if the pool maps none."""
    windows = "windows" in entry.record.spec["virtualMachineConfiguration"]["nodeAgentSKUId"].lower()
    ports = sorted(LOGIN_PORTS, reverse=windows)
    tcp = [endpoint for endpoint in of_node(entry, node) if endpoint["protocol"] == "tcp"]
    frontend_ports = (endpoint["frontendPort"] for port in ports for endpoint in tcp if endpoint["backendPort"] == port)
    port = next(frontend_ports, ports[0])
    settings: Document = {"remoteLoginIPAddress": node.address, "remoteLoginPort": port}
    if address := ipv6_address(entry, node):
        settings |= {"ipv6RemoteLoginIPAddress": address, "ipv6RemoteLoginPort": port}
    return settings


def check(spec: Document) -> None:
    """Check the public addresses, NAT pools and their rules. Raises Fault 400."""
    _check_addresses(spec["networkConfiguration"].get("publicIPAddressConfiguration", {}))
    pools = nat_pools(spec)
    if len(pools) > MOST_POOLS:
        raise invalid_property(PROPERTY, len(pools), f"A pool has at most {MOST_POOLS} inbound NAT pools.")
    if sum(len(pool.get("networkSecurityGroupRules", [])) for pool in pools) > MOST_RULES:
        raise invalid_property(PROPERTY, len(pools), f"A pool has at most {MOST_RULES} network security group rules.")
    for index, pool in enumerate(pools):
        _check_pool(pool, f"{PROPERTY}[{index}]")
        for other in pools[:index]:
            _check_pair(pool, other, f"{PROPERTY}[{index}]")


def _check_addresses(addresses: Document) -> None:
    path = "networkConfiguration/publicIPAddressConfiguration"
    families = addresses.get("ipFamilies")
    if families is not None and sorted(families) not in (["IPv4"], ["IPv4", "IPv6"]):
        reason = "A pool is single-stack with IPv4, or dual-stack with IPv4 and IPv6."
        raise invalid_property(f"{path}/ipFamilies", families, reason)
    provision = addresses.get("provision", "batchmanaged")
    if (provision == "usermanaged") != bool(addresses.get("ipAddressIds")):
        reason = "The public IP addresses are given with usermanaged, and only then."
        raise invalid_property(f"{path}/ipAddressIds", addresses.get("ipAddressIds", ""), reason)


def _check_pool(pool: Document, path: str) -> None:
    name, port = pool["name"], pool["backendPort"]
    start, end = pool["frontendPortRangeStart"], pool["frontendPortRangeEnd"]
    if not 1 <= len(name) <= MOST_CHARACTERS:
        raise invalid_property(f"{path}/name", name, f"A name has 1 to {MOST_CHARACTERS} characters.")
    if not 1 <= port <= 65_535 or port in AGENT_PORTS:
        reason = f"The port must be between 1 and 65535, but not {' or '.join(map(str, AGENT_PORTS))}."
        raise invalid_property(f"{path}/backendPort", port, reason)
    if not 1 <= start <= end <= LAST_PORT or (start < RESERVED.stop and end >= RESERVED.start):
        reason = f"Ports are between 1 and {LAST_PORT}, without those from {RESERVED.start} to {RESERVED.stop - 1}."
        raise invalid_property(f"{path}/frontendPortRangeStart", start, reason)
    if end - start + 1 < LEAST_PORTS:
        raise invalid_property(f"{path}/frontendPortRangeEnd", end, f"A range has at least {LEAST_PORTS} ports.")
    priorities = set()
    for rule in pool.get("networkSecurityGroupRules", []):
        priority = rule["priority"]
        if priority not in PRIORITIES or priority in priorities:
            reason = f"Priorities lie between {PRIORITIES.start} and {PRIORITIES.stop - 1}, and each is given once."
            raise invalid_property(f"{path}/networkSecurityGroupRules/priority", priority, reason)
        priorities.add(priority)


def _check_pair(pool: Document, other: Document, path: str) -> None:
    if pool["name"] == other["name"]:
        raise invalid_property(f"{path}/name", pool["name"], "Another NAT pool has this name.")
    if (pool["backendPort"], pool["protocol"]) == (other["backendPort"], other["protocol"]):
        raise invalid_property(f"{path}/backendPort", pool["backendPort"], "Another NAT pool has this port.")
    start, end = pool["frontendPortRangeStart"], pool["frontendPortRangeEnd"]
    if start <= other["frontendPortRangeEnd"] and end >= other["frontendPortRangeStart"]:
        raise invalid_property(f"{path}/frontendPortRangeStart", start, "The ranges of two NAT pools overlap.")
