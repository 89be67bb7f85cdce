"""Rules about how nodes are reached: networks, addresses, ports and their rules, and what needs Entra sign-in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from batchtrain.catalog.meaning import (
    AGENT_PORTS,
    FEWEST_PORTS,
    FRONTEND_RESERVED,
    LAST_PORT,
    LONGEST_NAT_NAME,
    MOST_RULES,
    NAT_NAME,
    is_source_address,
    source_ports_fault,
)
from batchtrain.config.check.subject import POOL, VM, Path, Subject
from batchtrain.config.check.table import CREDENTIALS, ERROR, JOBS, WARNING, Found, Rule
from batchtrain.config.check.table import POOL as READS
from batchtrain.config.login_ports import login_ports
from batchtrain.config.types import NetworkRule, VirtualNetwork

NETWORK: Path = (*POOL, "network")
NAT: Path = (*NETWORK, "inbound_nat_pools")
ACCESS: Path = (*POOL, "remote_access_control")
VNET: Path = (*POOL, "virtual_network")

NODES_AN_ADDRESS = 100


class Ports(NamedTuple):
    """Public ports that are in use."""

    path: Path
    first: int
    last: int
    taken_by: str


# --- endpoints ------------------------------------------------------------------------------------------------------


def _nat_names(subject: Subject) -> Found:
    logins = login_ports(subject.pool, windows=subject.windows) if subject.pool else None
    names = {logins.name} if logins else set()
    for number, nat in enumerate(subject.pool.network.inbound_nat_pools if subject.pool else ()):
        path = (*NAT, number, "name")
        if len(nat.name) > LONGEST_NAT_NAME:
            yield path, f"the name has {len(nat.name)} characters, at most {LONGEST_NAT_NAME} are allowed"
        elif not NAT_NAME.fullmatch(nat.name):
            message = f"`{nat.name}`: letters, digits, `_`, `.` and `-`, a letter or digit first and no `.` or `-` last"
            yield path, message
        if nat.name.lower() in names:
            yield path, f"another endpoint is called `{nat.name}`"
        names.add(nat.name.lower())


def _nat_backend(subject: Subject) -> Found:
    ports: set[int] = set()
    for number, nat in enumerate(subject.pool.network.inbound_nat_pools if subject.pool else ()):
        path = (*NAT, number, "backend_port")
        if nat.backend_port in AGENT_PORTS:
            yield path, f"port {nat.backend_port} of the nodes is reserved for Batch; use another"
        if nat.backend_port in ports:
            yield path, f"another endpoint maps port {nat.backend_port} of the nodes; remove one of them"
        ports.add(nat.backend_port)


def _nat_frontend(subject: Subject) -> Found:
    for ports in _frontends(subject):
        first, last = ports.first, ports.last
        if not 1 <= first <= last <= LAST_PORT:
            yield ports.path, f"{first} to {last} is not a range of ports between 1 and {LAST_PORT}"
        elif last - first + 1 < FEWEST_PORTS:
            message = f"{first} to {last} are {last - first + 1} ports, the service needs {FEWEST_PORTS} or more"
            yield ports.path, message
        elif first <= FRONTEND_RESERVED[-1] and last >= FRONTEND_RESERVED[0]:
            low, high = FRONTEND_RESERVED[0], FRONTEND_RESERVED[-1]
            yield (
                ports.path,
                f"{first} to {last} overlaps {low} to {high}, which is reserved for Batch; use ports below or above",
            )


def _nat_overlap(subject: Subject) -> Found:
    earlier_ports: list[Ports] = []
    for ports in _frontends(subject):
        other = next(
            (earlier for earlier in earlier_ports if ports.first <= earlier.last and earlier.first <= ports.last), None
        )
        if other is not None:
            message = f"{ports.first} to {ports.last} overlaps {other.first} to {other.last} of {other.taken_by}"
            yield ports.path, message
        earlier_ports.append(ports)


def _frontends(subject: Subject) -> Iterator[Ports]:
    pool = subject.pool
    if pool is None:
        return
    for number, nat in enumerate(pool.network.inbound_nat_pools):
        yield Ports((*NAT, number, "frontend_port_range"), *nat.frontend_port_range, f"`{nat.name}`")
    logins = login_ports(pool, windows=subject.windows)
    if logins is not None:
        path = (*ACCESS, "starting_port") if pool.remote_access_control else (*POOL, logins.name)
        yield Ports(path, logins.first, logins.last, "the logins (`remote_access_control.starting_port`)")


def _nat_rules(subject: Subject) -> Found:
    pool = subject.pool
    if pool is None:
        return
    priorities: set[int] = set()
    count = 0
    for path, rule in _rules(subject):
        if rule.priority in priorities:
            message = f"another rule of this pool has the priority {rule.priority}; give each its own"
            yield (*path, "priority"), message
        priorities.add(rule.priority)
        count += 1
    logins = pool.remote_access_control
    login_rules = len(logins.allow) + len(logins.deny) if logins else 0
    if count + login_rules > MOST_RULES:
        path = NAT if count else ACCESS
        yield path, f"there are {count + login_rules} rules, a pool has at most {MOST_RULES} over all its endpoints"


def _addresses(subject: Subject) -> Found:
    for path, address in _sources(subject):
        if not is_source_address(address):
            yield path, f"`{address}` is not an address; write one such as 203.0.113.0/24, or `*`"


def _sources(subject: Subject) -> Iterator[tuple[Path, str]]:
    """The source addresses of all rules."""
    for name in ("allow", "deny"):
        for number, address in enumerate(getattr(subject.pool and subject.pool.remote_access_control, name, ())):
            yield (*ACCESS, name, number), address
    for path, rule in _rules(subject):
        yield (*path, "source_address_prefix"), rule.source_address_prefix


def _rules(subject: Subject) -> Iterator[tuple[Path, NetworkRule]]:
    for number, nat in enumerate(subject.pool.network.inbound_nat_pools if subject.pool else ()):
        for index, rule in enumerate(nat.rules):
            yield (*NAT, number, "rules", index), rule


def _source_ports(subject: Subject) -> Found:
    for path, rule in _rules(subject):
        if fault := source_ports_fault(rule.source_port_ranges):
            yield (*path, "source_port_ranges"), f"{fault[0].lower()}{fault[1:].rstrip('.')}"


def _unreachable(subject: Subject) -> Found:
    network = subject.pool.network if subject.pool else None
    if network is None or network.public_ip != "nopublicipaddresses":
        return
    without = "the nodes have no public addresses (`public_ip: nopublicipaddresses`)"
    if network.inbound_nat_pools:
        yield NAT, f"{without}, so no port is mapped to them"
    if network.ip_tags:
        yield (*NETWORK, "ip_tags"), f"{without} that could have tags"


# --- public addresses -----------------------------------------------------------------------------------------------


def _public_ips(subject: Subject) -> Found:
    pool = subject.pool
    if pool is None:
        return
    provisioning = pool.network.public_ip
    if pool.public_ips and provisioning not in (None, "usermanaged"):
        message = f"`public_ips` need user-managed provisioning; write `usermanaged`, not `{provisioning}`"
        yield (*NETWORK, "public_ip"), message
    if provisioning == "usermanaged" and not pool.public_ips:
        yield (*NETWORK, "public_ip"), "`usermanaged` needs the ids of the addresses in `pool_specification.public_ips`"


def _few_public_ips(subject: Subject) -> Found:
    pool = subject.pool
    if pool is None or not pool.public_ips:
        return
    most = NODES_AN_ADDRESS * len(pool.public_ips)
    nodes = max(pool.vm_count.dedicated, pool.vm_count.low_priority)
    if nodes > most:
        message = f"{len(pool.public_ips)} addresses serve {most} nodes of a kind, the pool has {nodes}"
        yield (*POOL, "public_ips"), message


def _families(subject: Subject) -> Found:
    families = subject.pool.network.ip_families if subject.pool else ()
    if families and sorted(families) not in (["IPv4"], ["IPv4", "IPv6"]):
        yield (*NETWORK, "ip_families"), "write `[IPv4]`, or `[IPv4, IPv6]` for both; IPv6 alone is not supported"


# --- networks -------------------------------------------------------------------------------------------------------


def _network_kind(subject: Subject) -> Found:
    network = subject.pool.virtual_network if subject.pool else None
    if network is None:
        return
    if network.arm_subnet_id and network.name:
        yield (*VNET, "name"), "`arm_subnet_id` names a subnet already; keep one of them"
    if not network.arm_subnet_id and not network.name:
        yield VNET, "no network is named; give `arm_subnet_id`"
    if network.name and not network.arm_subnet_id and not network.subnet.name:
        yield (*VNET, "name"), "a network by name needs `subnet.name` too"


def _network_subscription(subject: Subject) -> Found:
    pool = subject.pool
    network = pool.virtual_network if pool else None
    if network is None or not network.name or network.arm_subnet_id:
        return
    credentials = subject.recipe.credentials
    if credentials.management is None or not credentials.management.subscription_id:
        yield (
            (*VNET, "name"),
            ("a network by name needs `credentials.management.subscription_id`; or write its id as `arm_subnet_id`"),
        )
    elif not network.resource_group and not (credentials.batch and credentials.batch.resource_group):
        yield (*VNET, "name"), "a network by name needs `resource_group` here, or that of the Batch account"


def _made_network(subject: Subject) -> Found:
    network = subject.pool.virtual_network if subject.pool else None
    if network is None:
        return
    advice = f"batchtrain does not create networks; create it with `{_making(network)}`, then name it"
    if network.create_nonexistant:
        yield (*VNET, "create_nonexistant"), advice
    if network.address_space is not None:
        yield (*VNET, "address_space"), f"this describes a network to create; {advice}"
    if network.subnet.address_prefix is not None:
        yield (*VNET, "subnet", "address_prefix"), f"this describes a subnet to create; {advice}"


def _making(network: VirtualNetwork) -> str:
    """The command that creates the network of the file."""
    options = {
        "-g": network.resource_group or "GROUP",
        "-n": network.name or "NAME",
        "--address-prefixes": network.address_space or "10.0.0.0/16",
        "--subnet-name": network.subnet.name or "SUBNET",
        "--subnet-prefixes": network.subnet.address_prefix or "10.0.0.0/24",
    }
    return shlex.join(["az", "network", "vnet", "create", *(word for pair in options.items() for word in pair)])


def _job_network(subject: Subject) -> Found:
    pool = subject.pool
    for path, job in subject.jobs:
        if job.network is not None and pool and pool.network.dynamic_vnet_assignment_scope != "job":
            message = "a job can only have its own network in a pool with `network.dynamic_vnet_assignment_scope: job`"
            yield (*path, "network"), message


# --- ids of Azure's resources, and who may use them -----------------------------------------------------------------

ID_SHAPES = {
    "subnet": r"providers/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+",
    "address": r"providers/Microsoft\.Network/publicIPAddresses/[^/]+",
    "identity": r"providers/Microsoft\.ManagedIdentity/userAssignedIdentities/[^/]+",
    "image": r"providers/Microsoft\.Compute/(images/[^/]+|galleries/[^/]+/images/[^/]+(/versions/[^/]+)?)",
}
ID_WORDS = {
    "subnet": ".../providers/Microsoft.Network/virtualNetworks/NAME/subnets/NAME",
    "address": ".../providers/Microsoft.Network/publicIPAddresses/NAME",
    "identity": ".../providers/Microsoft.ManagedIdentity/userAssignedIdentities/NAME",
    "image": ".../providers/Microsoft.Compute/galleries/NAME/images/NAME",
}
ID_PATTERNS = {kind: rf"(?i)/subscriptions/[^/]+/resourceGroups/[^/]+/{shape}/?" for kind, shape in ID_SHAPES.items()}


def _resource_ids(subject: Subject) -> Found:
    for path, kind, value in _ids(subject):
        if not re.fullmatch(ID_PATTERNS[kind], value):
            yield (
                path,
                f"this is not a resource id; it looks like /subscriptions/ID/resourceGroups/NAME/{ID_WORDS[kind][4:]}",
            )


def _ids(subject: Subject) -> Iterator[tuple[Path, str, str]]:
    """Every resource id with a known form."""
    pool = subject.pool
    if pool is not None:
        image = pool.vm_configuration.custom_image
        if image is not None:
            yield (*VM, "custom_image", "arm_image_id"), "image", image.arm_image_id
        if pool.virtual_network and pool.virtual_network.arm_subnet_id:
            yield (*VNET, "arm_subnet_id"), "subnet", pool.virtual_network.arm_subnet_id
        for number, address in enumerate(pool.public_ips):
            yield (*POOL, "public_ips", number), "address", address
    for path, job in subject.jobs:
        if job.network is not None:
            yield (*path, "network", "subnet_id"), "subnet", job.network.subnet_id
    if pool is not None:
        for number, identity in enumerate(pool.identities):
            yield (*POOL, "identities", number), "identity", identity
        if pool.candidates is not None and pool.candidates.controller_identity is not None:
            yield (*POOL, "candidates", "controller_identity"), "identity", pool.candidates.controller_identity
    for path, identity in identities(subject):
        yield path, "identity", identity


def identities(subject: Subject) -> Iterator[tuple[Path, str]]:
    """Every managed identity that is used, with its path."""
    recipe, pool = subject.recipe, subject.pool
    for server, registry in recipe.credentials.docker_registry.items():
        if registry.identity:
            yield ("credentials", "docker_registry", server, "identity"), registry.identity
    for alias, volume in recipe.resources.volumes.shared_data_volumes.items():
        if volume.identity:
            yield ("global_resources", "volumes", "shared_data_volumes", alias, "identity"), volume.identity
    if pool is not None:
        for number, file in enumerate(pool.resource_files):
            if file.identity:
                yield (*POOL, "resource_files", number, "identity"), file.identity
        encryption = pool.vm_configuration.disk_encryption
        if encryption and encryption.customer_managed_key:
            yield (
                (*VM, "disk_encryption", "customer_managed_key", "identity"),
                encryption.customer_managed_key.identity,
            )
    for path, _, task in subject.tasks:
        for number, file in enumerate(task.resource_files):
            if file.identity:
                yield (*path, "resource_files", number, "identity"), file.identity
    for path, output in subject.outputs:
        if output.identity:
            yield (*path, "identity"), output.identity


def _identities_on_pool(subject: Subject) -> Found:
    if subject.pool is None:
        return
    pool_identities = {identity.lower().rstrip("/") for identity in subject.pool.identities}
    for path, identity in identities(subject):
        if identity.lower().rstrip("/") not in pool_identities:
            yield path, "the nodes do not have this identity; add it to `pool_specification.identities`"


def _entra(subject: Subject) -> Found:
    """An account key always wins over other sign-ins (`service.connect`)."""
    batch = subject.recipe.credentials.batch
    if batch is None or not (batch.account_key or batch.account_key_keyvault_secret_id):
        return
    key = "account_key" if batch.account_key else "account_key_keyvault_secret_id"
    for path, what in _needs_entra(subject):
        yield (
            path,
            (
                f"{what} needs a sign-in with Microsoft Entra ID, but the account key of credentials.yaml is used"
                f" first and the service would refuse it; remove `batch.{key}`"
            ),
        )


def _needs_entra(subject: Subject) -> Iterator[tuple[Path, str]]:
    pool, vm = subject.pool, subject.vm
    if pool is None:
        return
    for kind in ("custom_image", "shared_gallery_image", "community_gallery_image"):
        if getattr(vm, kind) is not None:
            yield (*VM, kind), "a gallery image or a custom image"
    if pool.virtual_network is not None:
        yield VNET, "a virtual network"
    if pool.public_ips:
        yield (*POOL, "public_ips"), "a user-managed public address"
    if pool.identities:
        yield (*POOL, "identities"), "a managed identity of the pool"


_ENDPOINT = "azure-batch 15.1, BatchInboundNatPool"
_VNET = "Azure Batch: batch-virtual-network"
_ADDRESSES = "azure-batch 15.1, BatchPublicIpAddressConfiguration"
_IDENTITY = "Azure Batch: managed-identity-pools"

RULES = (
    Rule("nat-name", ERROR, READS, "The name of an endpoint is unique and valid.", f"{_ENDPOINT}.name",
         _nat_names),
    Rule("nat-backend-port", ERROR, READS, "The backend port of an endpoint is unique and not reserved for Batch.",
         f"{_ENDPOINT}.backendPort", _nat_backend),
    Rule("nat-frontend-ports", ERROR, READS, "Public ports are 40 or more, outside 50000 to 55000.",
         f"{_ENDPOINT}.frontendPortRangeStart", _nat_frontend),
    Rule("nat-overlap", ERROR, READS, "The public ports of endpoints do not overlap.",
         f"{_ENDPOINT}.frontendPortRangeStart",
         _nat_overlap),
    Rule("nat-rules", ERROR, READS, f"A pool has at most {MOST_RULES} network rules, each with its own priority.",
         "azure-batch 15.1, NetworkSecurityGroupRule", _nat_rules),
    Rule("login-addresses", ERROR, READS, "The source of a rule is an address, a range or a service tag.",
         "azure-batch 15.1, NetworkSecurityGroupRule.sourceAddressPrefix", _addresses),
    Rule("nat-source-ports", ERROR, READS, "The source ports of a rule are ports that do not overlap.",
         "azure-batch 15.1, NetworkSecurityGroupRule.sourcePortRanges", _source_ports),
    Rule("nat-unreachable", ERROR, READS, "Nodes with endpoints have public addresses.",
         "Azure Batch: simplified-node-communication-pool-no-public-ip", _unreachable),
    Rule("public-ips", ERROR, READS, "`public_ips` need user-managed provisioning.", f"{_ADDRESSES}.provision",
         _public_ips),
    Rule("public-ips-few", ERROR, READS, f"There is a public address for every {NODES_AN_ADDRESS} nodes.",
         f"{_ADDRESSES}.ipAddressIds", _few_public_ips),
    Rule("ip-families", ERROR, READS, "Addresses are IPv4, or IPv4 and IPv6.", f"{_ADDRESSES}.ipFamilies", _families),
    Rule("network-kind", ERROR, READS, "A network is named by id, or by name with its subnet.", _VNET, _network_kind),
    Rule("network-subscription", WARNING, (*READS, *CREDENTIALS), "A network by name has a subscription.", _VNET,
         _network_subscription),
    Rule("network-by-name", WARNING, READS, "A network is created before its pool.",
         "batchtrain does not create networks",
         _made_network),
    Rule("job-network", ERROR, (*READS, *JOBS), "The pool of a job with a network allows such jobs.",
         "azure-batch 15.1, BatchJobNetworkConfiguration", _job_network),
    Rule("resource-id", ERROR, (*READS, *JOBS, *CREDENTIALS, "global_resources"),
         "A resource id has the form of its resource type.", "Azure Resource Manager: resource ids", _resource_ids),
    Rule("identity-missing", ERROR, (*READS, *JOBS, *CREDENTIALS, "global_resources"),
         "The managed identities that are used belong to the pool.", _IDENTITY, _identities_on_pool),
    Rule("entra-needed", ERROR, (*READS, *CREDENTIALS), "Features without shared-key support need an Entra sign-in.",
         f"{_VNET}; batch-sig-images; batch-custom-images; create-pool-public-ip; managed-identity-pools", _entra),
)  # fmt: skip
