"""Inbound endpoints: the ports of a pool's nodes that clients reach from outside, as requested and per node; pure."""

from __future__ import annotations

from batchtrain.emulator.indexes import PoolEntry
from batchtrain.emulator.interface import Forward
from batchtrain.emulator.records import Document, Node


def ipv6_address(entry: PoolEntry, node: Node) -> str:
    """A node's IPv6 address: the IPv6 form of its IPv4 address, so that it is reached; empty without dual-stack."""
    addresses: Document = entry.record.spec.get("networkConfiguration", {}).get("publicIPAddressConfiguration", {})
    return f"::ffff:{node.address}" if "IPv6" in addresses.get("ipFamilies", []) else ""


def of_node(entry: PoolEntry, node: Node) -> list[Document]:
    """A node's inbound endpoints: one for each NAT pool and address family, within the port range of the pool."""
    families = [("", node.address), (".IPv6", ipv6_address(entry, node))]
    settings = entry.record.spec.get("networkConfiguration", {}).get("endpointConfiguration", {})
    return [
        {
            "name": f"{pool['name']}.{node.number}{suffix}",
            "protocol": pool["protocol"],
            "publicIPAddress": address,
            "publicFQDN": node.hostname,
            "frontendPort": pool["frontendPortRangeStart"] + node.number,
            "backendPort": pool["backendPort"],
        }
        for pool in settings.get("inboundNATPools", [])
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
    ports = sorted(LOGIN_PORTS, reverse=entry.windows)
    tcp = [endpoint for endpoint in of_node(entry, node) if endpoint["protocol"] == "tcp"]
    frontend_ports = (endpoint["frontendPort"] for port in ports for endpoint in tcp if endpoint["backendPort"] == port)
    port = next(frontend_ports, ports[0])
    settings: Document = {"remoteLoginIPAddress": node.address, "remoteLoginPort": port}
    if address := ipv6_address(entry, node):
        settings |= {"ipv6RemoteLoginIPAddress": address, "ipv6RemoteLoginPort": port}
    return settings
