"""Rules about how nodes are reached: networks, addresses, ports and their rules, and what needs Entra sign-in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple

from batchtrain.catalog.meaning import (
    ACCESS_PROFILE,
    ADDRESS,
    AGENT_PORTS,
    ENCRYPTION_SET,
    FEWEST_PORTS,
    FRONTEND_RESERVED,
    GALLERY_IMAGE,
    IDENTITY,
    KEY_URL,
    LAST_PORT,
    LONGEST_NAT_NAME,
    MANAGED_IMAGE,
    MOST_RULES,
    NAT_NAME,
    NODES_OF_ADDRESS,
    SERVICE_ARTIFACT,
    SUBNET,
    has_form,
    is_source_address,
    source_ports_fault,
)
from batchtrain.config.check.subject import IMAGE_KINDS, VM, Path, Subject
from batchtrain.config.check.table import BOTH, CREDENTIALS, ERROR, JOBS, POOL, WARNING, Found, Rule
from batchtrain.config.login_ports import login_ports
from batchtrain.config.types import NetworkRule

NETWORK: Path = (*POOL, "network")
NAT: Path = (*NETWORK, "inbound_nat_pools")
ACCESS: Path = (*POOL, "remote_access_control")
VNET: Path = (*POOL, "virtual_network")


class Ports(NamedTuple):
    """Public ports that are in use."""

    path: Path
    first: int
    last: int
    taken_by: str


# --- endpoints ------------------------------------------------------------------------------------------------------


def _nat_names(subject: Subject) -> Found:
    logins = login_ports(subject.pool, windows=subject.windows)
    names = {logins.name} if logins else set()
    for number, nat in enumerate(subject.pool.network.inbound_nat_pools):
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
    for number, nat in enumerate(subject.pool.network.inbound_nat_pools):
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
            yield ports.path, f"{first} to {last} overlaps {low} to {high}, which is reserved for Batch; use others"


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
    for number, nat in enumerate(subject.pool.network.inbound_nat_pools):
        yield Ports((*NAT, number, "frontend_port_range"), *nat.frontend_port_range, f"`{nat.name}`")
    logins = login_ports(subject.pool, windows=subject.windows)
    if logins is not None:
        path = (*ACCESS, "starting_port") if subject.pool.remote_access_control else (*POOL, logins.name)
        yield Ports(path, logins.first, logins.last, "the logins (`remote_access_control.starting_port`)")


def _nat_rules(subject: Subject) -> Found:
    priorities: set[int] = set()
    rules, logins = list(_rules(subject)), subject.pool.remote_access_control
    for path, rule in rules:
        if rule.priority in priorities:
            message = f"another rule of this pool has the priority {rule.priority}; give each its own"
            yield (*path, "priority"), message
        priorities.add(rule.priority)
    count = len(rules) + (len(logins.allow) + len(logins.deny) if logins else 0)
    if count > MOST_RULES:
        path = NAT if rules else ACCESS
        yield path, f"there are {count} rules, a pool has at most {MOST_RULES} over all its endpoints"


def _addresses(subject: Subject) -> Found:
    logins = subject.pool.remote_access_control
    addresses = {
        (*ACCESS, name, number): address
        for name in ("allow", "deny")
        for number, address in enumerate(getattr(logins, name, ()))
    }
    addresses |= {(*path, "source_address_prefix"): rule.source_address_prefix for path, rule in _rules(subject)}
    for path, address in addresses.items():
        if not is_source_address(address):
            yield path, f"`{address}` is not an address; write one such as 203.0.113.0/24, or `*`"


def _rules(subject: Subject) -> Iterator[tuple[Path, NetworkRule]]:
    for number, nat in enumerate(subject.pool.network.inbound_nat_pools):
        for index, rule in enumerate(nat.rules):
            yield (*NAT, number, "rules", index), rule


def _source_ports(subject: Subject) -> Found:
    for path, rule in _rules(subject):
        if fault := source_ports_fault(rule.source_port_ranges):
            yield (*path, "source_port_ranges"), f"{fault[0].lower()}{fault[1:].rstrip('.')}"


def _unreachable(subject: Subject) -> Found:
    network = subject.pool.network
    if network.public_ip != "nopublicipaddresses":
        return
    without = "the nodes have no public addresses (`public_ip: nopublicipaddresses`)"
    if network.inbound_nat_pools:
        yield NAT, f"{without}, so no port is mapped to them"
    if network.ip_tags:
        yield (*NETWORK, "ip_tags"), f"{without} that could have tags"


# --- public addresses -----------------------------------------------------------------------------------------------


def _public_ips(subject: Subject) -> Found:
    provisioning, addresses = subject.pool.network.public_ip, subject.pool.public_ips
    if addresses and provisioning not in (None, "usermanaged"):
        message = f"`public_ips` need user-managed provisioning; write `usermanaged`, not `{provisioning}`"
        yield (*NETWORK, "public_ip"), message
    if provisioning == "usermanaged" and not addresses:
        yield (*NETWORK, "public_ip"), "`usermanaged` needs the ids of the addresses in `pool_specification.public_ips`"


def _few_public_ips(subject: Subject) -> Found:
    addresses = len(subject.pool.public_ips)
    most, nodes = NODES_OF_ADDRESS * addresses, max(count or 0 for count in subject.most_nodes)
    if 0 < most < nodes:
        yield (*POOL, "public_ips"), f"{addresses} addresses serve {most} nodes of a kind, the pool has {nodes}"


def _families(subject: Subject) -> Found:
    families = subject.pool.network.ip_families
    if families and sorted(families) not in (["IPv4"], ["IPv4", "IPv6"]):
        yield (*NETWORK, "ip_families"), "write `[IPv4]`, or `[IPv4, IPv6]` for both; IPv6 alone is not supported"


# --- networks -------------------------------------------------------------------------------------------------------


def _network_kind(subject: Subject) -> Found:
    network = subject.pool.virtual_network
    if network is None:
        return
    if network.arm_subnet_id and network.name:
        yield (*VNET, "name"), "`arm_subnet_id` names a subnet already; keep one of them"
    if not network.arm_subnet_id and not network.name:
        yield VNET, "no network is named; give `arm_subnet_id`"
    if network.name and not network.arm_subnet_id and not network.subnet.name:
        yield (*VNET, "name"), "a network by name needs `subnet.name` too"


def _network_subscription(subject: Subject) -> Found:
    network, credentials = subject.pool.virtual_network, subject.recipe.credentials
    if network is None or not network.name or network.arm_subnet_id:
        return
    if credentials.management is None or not credentials.management.subscription_id:
        message = "a network by name needs `credentials.management.subscription_id`; or write its id as `arm_subnet_id`"
        yield (*VNET, "name"), message
    elif not network.resource_group and not (credentials.batch and credentials.batch.resource_group):
        yield (*VNET, "name"), "a network by name needs `resource_group` here, or that of the Batch account"


def _made_network(subject: Subject) -> Found:
    """Advice only for a network that may not exist. `az … create` replaces one that does, with its subnets (azure-cli
    9065), so each creation runs only after `show` has not found it."""
    network = subject.pool.virtual_network
    if network is None or not network.create_nonexistant or network.arm_subnet_id:
        return
    batch = subject.recipe.credentials.batch
    group = ("-g", network.resource_group or (batch and batch.resource_group) or "GROUP")
    where = shlex.join((*group, "--vnet-name", network.name or "NAME", "-n", network.subnet.name or "SUBNET"))
    prefix = shlex.join(("--address-prefixes", network.subnet.address_prefix or "PREFIX"))
    command = f"`az network vnet subnet show {where} || az network vnet subnet create {where} {prefix}`"
    if network.address_space:
        where = shlex.join((*group, "-n", network.name or "NAME"))
        prefix = shlex.join(("--address-prefixes", network.address_space))
        command = f"`az network vnet show {where} || az network vnet create {where} {prefix}`, then {command}"
    yield (*VNET, "create_nonexistant"), f"batchtrain does not create networks; if it does not exist, run {command}"


def _job_network(subject: Subject) -> Found:
    pool = subject.recipe.pool
    for path, job in subject.jobs:
        if job.network is not None and pool and pool.network.dynamic_vnet_assignment_scope != "job":
            message = "a job can only have its own network in a pool with `network.dynamic_vnet_assignment_scope: job`"
            yield (*path, "network"), message


# --- ids of Azure's resources, and who may use them -----------------------------------------------------------------


def _resource_ids(subject: Subject) -> Found:
    for path, form, value in _ids(subject):
        if not has_form(value, form):
            example = form.partition("[")[0].replace("/*", "/ID", 1).replace("/*", "/NAME")
            yield path, f"this is not a resource id; it looks like {example}"


def _managed_image(subject: Subject) -> Found:
    """Older files name managed images, and the form of their ids is right."""
    image = subject.vm.custom_image
    if image is not None and has_form(image.arm_image_id, MANAGED_IMAGE):
        message = "Azure Batch documents images of a Compute Gallery only; copy this managed image to a gallery"
        yield (*VM, "custom_image", "arm_image_id"), message


def _customer_key(subject: Subject) -> Found:
    encryption = subject.vm.disk_encryption
    key = encryption.customer_managed_key if encryption is not None else None
    if key is not None and not has_form(key.key_url, KEY_URL):
        path = (*VM, "disk_encryption", "customer_managed_key", "key_url")
        yield path, "this is not the URL of a version of a key; it looks like https://VAULT/keys/NAME/VERSION"
    if encryption is not None and key is not None and "osdisk" not in encryption.targets:
        yield (*VM, "disk_encryption", "targets"), "a customer's key needs `osdisk` among the targets"


def _ids(subject: Subject) -> Iterator[tuple[Path, str, str]]:
    """Every resource id with a known form."""
    pool = subject.pool
    image = subject.vm.custom_image.arm_image_id if subject.vm.custom_image is not None else ""
    if image and not has_form(image, MANAGED_IMAGE):  # `_managed_image`
        yield (*VM, "custom_image", "arm_image_id"), GALLERY_IMAGE, image
    if pool.virtual_network and pool.virtual_network.arm_subnet_id:
        yield (*VNET, "arm_subnet_id"), SUBNET, pool.virtual_network.arm_subnet_id
    for number, address in enumerate(pool.public_ips):
        yield (*POOL, "public_ips", number), ADDRESS, address
    for path, job in subject.jobs:
        if job.network is not None:
            yield (*path, "network", "subnet_id"), SUBNET, job.network.subnet_id
    for number, identity in enumerate(pool.identities):
        yield (*POOL, "identities", number), IDENTITY, identity
    if pool.candidates is not None and pool.candidates.controller_identity is not None:
        yield (*POOL, "candidates", "controller_identity"), IDENTITY, pool.candidates.controller_identity
    for path, identity in identities(subject):
        yield path, IDENTITY, identity
    machine = subject.vm
    if machine.service_artifact:
        yield (*VM, "service_artifact"), SERVICE_ARTIFACT, machine.service_artifact
    for path, encryption_set in encryption_sets(subject):
        yield path, ENCRYPTION_SET, encryption_set
    agent = machine.security_profile.proxy_agent if machine.security_profile else None
    for name in ("imds", "wire_server"):
        endpoint = getattr(agent, name, None)
        if endpoint is not None and endpoint.access_control_profile:
            path = (*VM, "security_profile", "proxy_agent", name, "access_control_profile")
            yield path, ACCESS_PROFILE, endpoint.access_control_profile


def encryption_sets(subject: Subject) -> Iterator[tuple[Path, str]]:
    """The disk encryption set of each disk that has one, with its path."""
    machine = subject.vm
    disks = [((*VM, "data_disks", number), disk.disk_encryption_set) for number, disk in enumerate(machine.data_disks)]
    disks += [((*VM, "os_disk"), machine.os_disk.disk_encryption_set)] if machine.os_disk else []
    return (((*path, "disk_encryption_set"), encryption_set) for path, encryption_set in disks if encryption_set)


def identities(subject: Subject) -> Iterator[tuple[Path, str]]:
    """Every managed identity that is used, with its path."""
    owners: dict[Path, Any] = {
        ("credentials", "docker_registry", server): registry
        for server, registry in subject.recipe.credentials.docker_registry.items()
    }
    for alias, volume in subject.recipe.resources.volumes.shared_data_volumes.items():
        owners["global_resources", "volumes", "shared_data_volumes", alias] = volume
    owners |= {(*POOL, "resource_files", number): file for number, file in enumerate(subject.pool.resource_files)}
    if subject.vm.disk_encryption and subject.vm.disk_encryption.customer_managed_key:
        owners |= {(*VM, "disk_encryption", "customer_managed_key"): subject.vm.disk_encryption.customer_managed_key}
    for path, _, task in subject.tasks:
        owners |= {(*path, "resource_files", number): file for number, file in enumerate(task.resource_files)}
    owners |= dict(subject.outputs)
    return (((*path, "identity"), owner.identity) for path, owner in owners.items() if owner.identity)


def _identities_on_pool(subject: Subject) -> Found:
    pool_identities = {identity.lower().rstrip("/") for identity in subject.pool.identities}
    for path, identity in identities(subject) if subject.recipe.pool else ():
        if identity.lower().rstrip("/") not in pool_identities:
            yield path, "the nodes do not have this identity; add it to `pool_specification.identities`"


def _entra(subject: Subject) -> Found:
    """An account key always wins over other sign-ins (`service.connect`)."""
    batch = subject.recipe.credentials.batch
    if batch is None or not (batch.account_key or batch.account_key_keyvault_secret_id):
        return
    key = "account_key" if batch.account_key else "account_key_keyvault_secret_id"
    features: tuple[tuple[Path, str, object], ...] = (
        *(((*VM, kind), "a gallery image or a custom image", getattr(subject.vm, kind)) for kind in IMAGE_KINDS[1:]),
        (VNET, "a virtual network", subject.pool.virtual_network),
        ((*POOL, "public_ips"), "a user-managed public address", subject.pool.public_ips),
        ((*POOL, "identities"), "a managed identity of the pool", subject.pool.identities),
    )
    for path, name, value in features:
        if value:
            yield (
                path,
                f"{name} needs a sign-in with Microsoft Entra ID, but the account key of credentials.yaml is used"
                f" first and the service would refuse it; remove `batch.{key}`",
            )


_ENDPOINT = "azure-batch 15.1, BatchInboundNatPool"
_VNET = "Azure Batch: batch-virtual-network"
_ADDRESSES = "azure-batch 15.1, BatchPublicIpAddressConfiguration"
_IDENTITY = "Azure Batch: managed-identity-pools"

RULES = (
    Rule("nat-name", ERROR, POOL, "The name of an endpoint is unique and valid.", f"{_ENDPOINT}.name", _nat_names),
    Rule("nat-backend-port", ERROR, POOL, "The backend port of an endpoint is unique and not reserved for Batch.",
         f"{_ENDPOINT}.backendPort", _nat_backend),
    Rule("nat-frontend-ports", ERROR, POOL, "Public ports are 40 or more, outside 50000 to 55000.",
         f"{_ENDPOINT}.frontendPortRangeStart", _nat_frontend),
    Rule("nat-overlap", ERROR, POOL, "The public ports of endpoints do not overlap.",
         f"{_ENDPOINT}.frontendPortRangeStart", _nat_overlap),
    Rule("nat-rules", ERROR, POOL, f"A pool has at most {MOST_RULES} network rules, each with its own priority.",
         "azure-batch 15.1, NetworkSecurityGroupRule", _nat_rules),
    Rule("login-addresses", ERROR, POOL, "The source of a rule is an address, a range or a service tag.",
         "azure-batch 15.1, NetworkSecurityGroupRule.sourceAddressPrefix", _addresses),
    Rule("nat-source-ports", ERROR, POOL, "The source ports of a rule are ports that do not overlap.",
         "azure-batch 15.1, NetworkSecurityGroupRule.sourcePortRanges", _source_ports),
    Rule("nat-unreachable", ERROR, POOL, "Nodes with endpoints have public addresses.",
         "Azure Batch: simplified-node-communication-pool-no-public-ip", _unreachable),
    Rule("public-ips", ERROR, POOL, "`public_ips` need user-managed provisioning.", f"{_ADDRESSES}.provision",
         _public_ips),
    Rule("public-ips-few", ERROR, POOL, f"There is a public address for every {NODES_OF_ADDRESS} nodes.",
         f"{_ADDRESSES}.ipAddressIds", _few_public_ips),
    Rule("ip-families", ERROR, POOL, "Addresses are IPv4, or IPv4 and IPv6.", f"{_ADDRESSES}.ipFamilies", _families),
    Rule("network-kind", ERROR, POOL, "A network is named by id, or by name with its subnet.", _VNET, _network_kind),
    Rule("network-subscription", WARNING, (*POOL, *CREDENTIALS), "A network by name has a subscription.", _VNET,
         _network_subscription),
    Rule("network-by-name", WARNING, POOL, "A network is created before its pool.",
         "batchtrain does not create networks", _made_network),
    Rule("job-network", ERROR, BOTH, "The pool of a job with a network allows such jobs.",
         "azure-batch 15.1, BatchJobNetworkConfiguration", _job_network),
    Rule("resource-id", ERROR, (*POOL, *JOBS, *CREDENTIALS, "global_resources"),
         "A resource id has the form of its resource type.", "Azure Resource Manager: resource ids", _resource_ids),
    Rule("image-managed", WARNING, POOL, "A custom image is in a gallery.",
         "azure-batch 15.1, BatchVmImageReference.virtualMachineImageId", _managed_image),
    Rule("customer-key", ERROR, POOL, "The key of a customer has a version, and is for the disk of the system.",
         "azure-batch 15.1, DiskCustomerManagedKey.keyUrl, customerManagedKey", _customer_key),
    Rule("identity-missing", ERROR, (*POOL, *JOBS, *CREDENTIALS, "global_resources"),
         "The managed identities that are used belong to the pool.", _IDENTITY, _identities_on_pool),
    Rule("entra-needed", ERROR, (*POOL, *CREDENTIALS), "Features without shared-key support need an Entra sign-in.",
         f"{_VNET}; batch-sig-images; batch-custom-images; create-pool-public-ip; managed-identity-pools", _entra),
)  # fmt: skip
