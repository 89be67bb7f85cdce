"""From a pool's network settings to its subnet, addresses and the ports that are reached from outside."""

from __future__ import annotations

from typing import Any

import msgspec

from batchtrain.config.login_ports import login_ports
from batchtrain.config.types import Pool, Recipe, RemoteAccessControl, VirtualNetwork
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import wire

WHERE = "pool_specification"
NETWORK = "pool.networkConfiguration"
FIRST_PRIORITY = 150  # the service's own rules come before


def network(recipe: Recipe, pool: Pool, *, windows: bool) -> tuple[dict[str, Any], tuple[Implicit, ...]]:
    """The fields of the network of a pool that are not copied, with its implicit settings. Raises PlanError for
    incomplete settings."""
    ports, by_ports = _ports(pool, windows=windows)
    provision, by_addresses = _provision(pool)
    return {
        f"{NETWORK}.subnetId": _subnet(recipe, pool.virtual_network) if pool.virtual_network else None,
        f"{NETWORK}.endpointConfiguration.inboundNATPools": ports,
        f"{NETWORK}.publicIPAddressConfiguration.provision": provision,
    }, by_ports + by_addresses


def _subnet(recipe: Recipe, network: VirtualNetwork) -> wire.Text:
    """The subnet's resource id, from its id or its name; missing parts are looked up when the request is sent."""
    if network.arm_subnet_id:
        return network.arm_subnet_id
    if not network.name:
        raise PlanError("`virtual_network` names no network; give `arm_subnet_id`, or `name` and `subnet.name`")
    if not network.subnet.name:
        raise PlanError(f"`virtual_network` {network.name} names no subnet; give `subnet.name`, or `arm_subnet_id`")
    management, batch = recipe.credentials.management, recipe.credentials.batch
    subscription = management.subscription_id if management else None
    group = network.resource_group or (batch.resource_group if batch else None)
    return wire.Template(
        "/subscriptions/",
        subscription or wire.Placeholder("management", "subscription_id"),
        "/resourceGroups/",
        group or wire.Placeholder("management", "resource_group"),
        f"/providers/Microsoft.Network/virtualNetworks/{network.name}/subnets/{network.subnet.name}",
    )


def _provision(pool: Pool) -> tuple[str | None, tuple[Implicit, ...]]:
    """How public addresses are provided."""
    if not pool.public_ips or pool.network.public_ip is not None:
        return pool.network.public_ip, ()
    because = "`public_ips` gives addresses, and the service takes them only so"
    return "usermanaged", (Implicit("network.public_ip", "usermanaged", because, "addresses-of-your-own", WHERE),)


def _ports(pool: Pool, *, windows: bool) -> tuple[tuple[wire.InboundNatPool, ...], tuple[Implicit, ...]]:
    nat_pools = tuple(
        wire.InboundNatPool(
            name=nat.name,
            protocol=nat.protocol,
            backend_port=nat.backend_port,
            frontend_port_range_start=nat.frontend_port_range[0],
            frontend_port_range_end=nat.frontend_port_range[1],
            network_security_group_rules=tuple(
                wire.NetworkSecurityGroupRule(**msgspec.structs.asdict(rule)) for rule in nat.rules
            ),
        )
        for nat in pool.network.inbound_nat_pools
    )
    ports = login_ports(pool, windows=windows)
    if ports is None:
        return nat_pools, ()
    remote_access_control = pool.remote_access_control or RemoteAccessControl()
    login_pool = wire.InboundNatPool(
        name=ports.name,
        protocol="tcp",
        backend_port=ports.backend,
        frontend_port_range_start=ports.first,
        frontend_port_range_end=ports.last,
        network_security_group_rules=access_rules(remote_access_control.allow, remote_access_control.deny),
    )
    because = f"`{ports.name}` makes a login, and the service maps port {ports.backend} only where it is asked to"
    value = f"{ports.name} {ports.first}-{ports.last}"
    implicit = Implicit("network.inbound_nat_pools", value, because, "ssh-endpoint", WHERE)
    return (*nat_pools, login_pool), (implicit,)


def access_rules(allow: tuple[str, ...], deny: tuple[str, ...]) -> tuple[wire.NetworkSecurityGroupRule, ...]:
    """Who may connect, in order: those denied by address, those allowed, and all others (`*`) last.

    A denied address within an allowed range stays denied.
    """
    denials = [("deny", address) for address in deny if address != "*"]
    rules = denials + [("allow", address) for address in allow] + ([("deny", "*")] if "*" in deny else [])
    return tuple(
        wire.NetworkSecurityGroupRule(priority=priority, access=access, source_address_prefix=address)
        for priority, (access, address) in enumerate(rules, FIRST_PRIORITY)
    )
