"""Azure Resource Manager: quotas, the VM sizes of a region, an account's settings, a pool's identity.

Raw REST, so that no management SDK is needed; untested on Azure (untested-on-azure.md). Sources:
Azure/azure-rest-api-specs, specification/batch/resource-manager (2025-06-01, with its examples) and
specification/compute (ResourceSkus 2021-07-01); MicrosoftDocs articles/batch/managed-identity-pools.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from azure.core.credentials import TokenCredential

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.sizes import VmSize
from batchtrain.config.types import Credentials
from batchtrain.errors import UsageError
from batchtrain.records.record import Int32
from batchtrain.service import entra
from batchtrain.service.answer_body import at, rows
from batchtrain.service.connect import CA_VARIABLE
from batchtrain.service.entra import PUBLIC, scope_of
from batchtrain.service.rest import Rest

BATCH = {"api-version": "2025-06-01"}
COMPUTE = {"api-version": "2021-07-01"}
SUBSCRIPTIONS = {"api-version": "2022-12-01"}

Json = Mapping[str, Any]
Value = TypeVar("Value")
AccountId = Annotated[str, msgspec.Meta(pattern="^/[^/]+/[^/]+/[^/]+/[^/]+/")]
"""`/subscriptions/ID/resourceGroups/NAME/…`"""


Memory = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class AccountSeen(NamedTuple):
    """A Batch account as Azure Resource Manager shows it. A quota is None if the subscription's own applies."""

    name: str
    subscription: str
    resource_group: str
    location: str
    endpoint: str
    allocation: str
    """BatchService, or UserSubscription, whose nodes count against the subscription's quotas."""
    public_network: str
    """Enabled, Disabled or SecuredByPerimeter."""
    sign_ins: tuple[str, ...]
    """SharedKey, AAD, TaskAuthenticationToken: the sign-ins that the account accepts."""
    dedicated_cores: Int32 | None
    spot_cores: Int32 | None
    pools: Int32 | None
    jobs: Int32 | None
    """Active jobs and job schedules."""
    by_family: bool
    """Whether dedicated cores are limited by family of sizes (`families`) and not by `dedicated_cores`."""
    families: tuple[tuple[str, Int32], ...]
    """Azure's name of a family of sizes (standardNDSH100v5Family), and its cores."""

    @property
    def path(self) -> str:
        """Its resource id."""
        group = f"/subscriptions/{quote(self.subscription)}/resourceGroups/{quote(self.resource_group)}"
        return f"{group}/providers/Microsoft.Batch/batchAccounts/{quote(self.name)}"

    def cores_of(self, family: str) -> int | None:
        """The dedicated cores of a family; None if they are not listed."""
        if not self.by_family:
            return self.dedicated_cores
        return next((cores for name, cores in self.families if name.lower() == family.lower()), None)


class Restriction(NamedTuple):
    """Why a size is not available: in a whole region, or in some of its zones."""

    reason: str
    kind: str
    zones: tuple[str, ...] = ()


class Sold(NamedTuple):
    """A VM size in a region's list."""

    name: str
    family: str
    cores: Int32
    memory_gib: Memory
    gpus: Int32 = 0
    rdma: bool = False
    generations: tuple[Int32, ...] = (1,)
    architecture: str = "x64"
    spot: bool = True
    ends: date | None = None
    """The end of Batch's support, from Batch's list."""
    restrictions: tuple[Restriction, ...] = ()
    """The same from the compute service's list."""

    @property
    def blocked(self) -> str:
        """Why this subscription cannot use it anywhere in the region; empty if it can."""
        return next((restriction.reason for restriction in self.restrictions if restriction.kind == "Location"), "")


class Region(NamedTuple):
    """A region of a subscription."""

    subscription: str
    location: str


def reach(credentials: Credentials | None, environment: Mapping[str, str], endpoint: str = "") -> Rest:
    """Azure Resource Manager with the sign-in of credentials.yaml (`management.aad`, otherwise `aad`), in the cloud of
    `endpoint`. Raises UsageError for a sign-in that cannot work."""
    management = credentials.management if credentials is not None else None
    specific, general = management.aad if management else None, credentials.aad if credentials is not None else None
    sign_in = entra.sign_in_of(specific, general, endpoint=endpoint)
    where = (specific.endpoint if specific else None) or entra.cloud_of(sign_in.authority, endpoint).management
    ca = environment.get(CA_VARIABLE) or None
    return connect(entra.credential(sign_in, ca=ca), where, ca=ca)


def connect(credential: TokenCredential, endpoint: str = PUBLIC.management, *, ca: str | None = None) -> Rest:
    """Azure Resource Manager of a cloud. `ca`: a file of certificates to trust instead of the usual ones."""
    return Rest(endpoint, credential, scope_of(endpoint.rstrip("/")), ca=ca)


# --- questions ------------------------------------------------------------------------------------------------------


def region(arm: Rest, endpoint: str, subscription: str | None, location: str | None) -> Region:
    """Complete the given values from the Batch account at `endpoint`. Raises UsageError if that fails."""
    if subscription and location:
        return Region(subscription, location)
    if not endpoint:
        missing = " and ".join(
            word for word, value in (("--subscription", subscription), ("--location", location)) if not value
        )
        raise UsageError(f"no account says where to look: give {missing}, or set AZURE_BATCH_ENDPOINT")
    account_row = account(arm, endpoint, subscription)
    if account_row is None:
        raise UsageError(
            f"no subscription that may be read has the account of {endpoint}; give --subscription and --location"
        )
    return Region(account_row.subscription, location or account_row.location)


def account(arm: Rest, endpoint: str, subscription: str | None = None) -> AccountSeen | None:
    """The Batch account at `endpoint`, searched in one subscription or in all readable ones."""
    host = urlsplit(endpoint).hostname or ""
    ids = [subscription] if subscription else subscriptions(arm)
    rows = (row for subscription_id in ids for row in accounts(arm, subscription_id))
    return next((row for row in rows if row.endpoint.lower() == host), None)


def subscriptions(arm: Rest) -> tuple[str, ...]:
    """The ids of the readable subscriptions."""
    return tuple(arm.listed_as("/subscriptions", "list subscriptions", SUBSCRIPTIONS, _subscription))


def accounts(arm: Rest, subscription: str) -> Iterator[AccountSeen]:
    """The Batch accounts of a subscription."""
    path = f"/subscriptions/{quote(subscription, safe='')}/providers/Microsoft.Batch/batchAccounts"
    return arm.listed_as(path, f"list Batch accounts of subscription {subscription}", BATCH, account_of)


def batch_sizes(arm: Rest, subscription: str, location: str) -> tuple[Sold, ...]:
    """The sizes that Batch supports in a region."""
    region = f"locations/{quote(location, safe='')}/virtualMachineSkus"
    path = f"/subscriptions/{quote(subscription, safe='')}/providers/Microsoft.Batch/{region}"
    return tuple(arm.listed_as(path, f"list Batch's VM sizes in {location}", BATCH, sold_of))


def compute_sizes(arm: Rest, subscription: str, location: str) -> tuple[Sold, ...]:
    """The sizes of a region, with those that this subscription cannot use."""
    if not location.replace("-", "").isalnum():
        raise UsageError(f"`{location}` is no name of a region; `az account list-locations` lists them")
    path = f"/subscriptions/{quote(subscription, safe='')}/providers/Microsoft.Compute/skus"
    query = {**COMPUTE, "$filter": f"location eq '{location}'"}
    sizes = arm.listed_as(path, f"list the VM sizes of {location}", query, _machine)
    return tuple(size for size in sizes if size is not None)


def set_pool_identity(arm: Rest, where: AccountSeen, pool_id: str, identities: Iterable[str]) -> tuple[str, ...]:
    """Assign user-assigned managed identities (resource ids) to a pool; returns all of its identities. Existing nodes
    do not get them, so call it while the pool has no nodes. Raises NotFound, NotAllowed."""
    mapping = {identity: {} for identity in identities}  # type: dict[str, dict[str, str]]
    body = {"identity": {"type": "UserAssigned", "userAssignedIdentities": mapping} if mapping else {"type": "None"}}
    path = f"{where.path}/pools/{quote(pool_id, safe='')}"
    return arm.patch(path, f"set the identities of pool {pool_id}", BATCH, body, _identities)


# --- from documents to values ---------------------------------------------------------------------------------------


# Each raises ValidationError for a document of another form.


def _typed(kind: type[Value], **fields: Any) -> Value:
    """A NamedTuple with the types of its fields. Numbers may be texts."""
    return msgspec.convert(tuple(fields.values()), kind, strict=False)


def _subscription(item: Json) -> str:
    return msgspec.convert(item.get("subscriptionId"), str)


def _identities(pool: Json) -> tuple[str, ...]:
    return tuple(msgspec.convert(at(pool, "identity/userAssignedIdentities") or {}, dict[str, Any]))


def _machine(item: Json) -> Sold | None:
    """A size of the compute service; None for another resource."""
    return sold_of(item) if item.get("resourceType") == "virtualMachines" else None


def account_of(item: Json) -> AccountSeen:
    """An account from its document."""
    parts = msgspec.convert(item.get("id"), AccountId).split("/")
    properties = at(item, "properties") or {}
    families = rows(at(properties, "dedicatedCoreQuotaPerVMFamily"))
    return _typed(
        AccountSeen,
        name=item.get("name"),
        subscription=parts[2],
        resource_group=parts[4],
        location=item.get("location", ""),
        endpoint=at(properties, "accountEndpoint") or "",
        allocation=at(properties, "poolAllocationMode") or "",
        public_network=at(properties, "publicNetworkAccess") or "Enabled",
        sign_ins=at(properties, "allowedAuthenticationModes") or (),
        dedicated_cores=at(properties, "dedicatedCoreQuota"),
        spot_cores=at(properties, "lowPriorityCoreQuota"),
        pools=at(properties, "poolQuota"),
        jobs=at(properties, "activeJobAndJobScheduleQuota"),
        by_family=bool(at(properties, "dedicatedCoreQuotaPerVMFamilyEnforced")),
        families=tuple((family.get("name"), family.get("coreQuota")) for family in families),
    )


def sold_of(item: Json) -> Sold:
    """A size from its document; Batch's list and the compute service's have nearly the same format."""
    can = {str(capability.get("name")): str(capability.get("value")) for capability in rows(item.get("capabilities"))}
    end = item.get("batchSupportEndOfLife")
    return _typed(
        Sold,
        name=item.get("name"),
        family=item.get("familyName") or item.get("family") or "",
        cores=can.get("vCPUsAvailable") or can.get("vCPUs") or 0,
        memory_gib=can.get("MemoryGB") or 0,
        gpus=can.get("GPUs") or 0,
        rdma=can.get("RdmaEnabled") == "True",
        generations=tuple(part[1:] for part in can.get("HyperVGenerations", "V1").split(",")),
        architecture="arm64" if can.get("CpuArchitectureType", "").lower() == "arm64" else "x64",
        spot=can.get("LowPriorityCapable") != "False",
        ends=str(end)[:10] if end else None,
        restrictions=tuple(
            (row.get("reasonCode", ""), row.get("type", ""), at(row, "restrictionInfo/zones") or ())
            for row in rows(item.get("restrictions"))
        ),
    )


def corrected(sold: Sold, size: VmSize | None) -> VmSize | None:
    """The table row for an available size; None if the table has the same. The lists contain no GPU model and no
    InfiniBand: a new size's GPU is read from its name, and the kind of its network stays unknown. A known retirement
    date is kept, unless Batch's own end of support is earlier."""
    if size is None:
        return _new(sold)
    numbers = size._replace(cores=sold.cores, memory_gib=sold.memory_gib, gpus=sold.gpus or size.gpus)
    fresh = numbers if abs(sold.memory_gib - size.memory_gib) >= 1 else numbers._replace(memory_gib=size.memory_gib)
    if sold.ends and (size.retired is None or sold.ends < size.retired):
        fresh = fresh._replace(retired=sold.ends)
    return None if fresh == size else fresh


def corrections(sold: Iterable[Sold], catalog: Catalog) -> Catalog:
    """The available sizes that a catalogue does not have, or describes differently."""
    return Catalog(own_sizes=tuple(filter(None, (corrected(size, catalog.size(size.name)) for size in sold))))


def _new(sold: Sold) -> VmSize:
    words = sold.name.removeprefix("Standard_").split("_")
    model = words[1] if sold.gpus and len(words) > 2 else None
    vendor = ("amd" if model and model.upper().startswith(("MI", "V7", "V6")) else "nvidia") if sold.gpus else ""
    return VmSize(
        name=sold.name,
        family=sold.family.removeprefix("standard").removesuffix("Family") or sold.name,
        cores=sold.cores,
        memory_gib=sold.memory_gib,
        gpus=sold.gpus,
        gpu_model=model,
        gpu_vendor=vendor,
        rdma="sr-iov" if sold.rdma else None,
        hcas=1 if sold.rdma else 0,
        generation=min(sold.generations),
        architecture=sold.architecture,
        retired=sold.ends,
    )
