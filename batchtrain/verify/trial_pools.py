"""Pools of one node whose settings are what a probe is about: whether they get their node, and what it shows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from batchtrain.config.types import (
    AdditionalNodePrep,
    ContainerRuntimes,
    GlobalResources,
    InboundNatPool,
    Network,
    NetworkRule,
    PlatformImage,
    Pool,
    PrepCommands,
    Recipe,
    SharedDataVolume,
    VmConfiguration,
    Volumes,
)
from batchtrain.config.types.pool import OsDisk
from batchtrain.verify.questions import CONTINUES, OPEN_PORT, SHUT_PORT, Question, end_of, is_dedicated, open_ports


class Trial(NamedTuple):
    """The settings of the pool, its task, and what is asked while it exists."""

    change: Callable[[Pool], Pool]
    command: str
    questions: Mapping[str, Question] = {}
    volumes: Volumes = Volumes()
    image: str | None = None
    """Of the container of its task."""
    spot: bool = False

    def of(self, recipe: Recipe) -> Recipe:
        """The recipe of the pool, from that of an ordinary one."""
        assert recipe.pool is not None
        pool = replace(self.change(recipe.pool), id=recipe.pool.id)
        return replace(recipe, pool=pool, resources=GlobalResources(volumes=self.volumes))


def _prepared(*commands: str) -> AdditionalNodePrep:
    return AdditionalNodePrep(commands=PrepCommands(post=commands))


def _port(name: str, port: int, first: int, allow: int, deny: int) -> InboundNatPool:
    """A port of the node with two rules for all addresses. allow, deny: their priorities."""
    rules = (
        NetworkRule(priority=allow, access="allow", source_address_prefix="*"),
        NetworkRule(priority=deny, access="deny", source_address_prefix="*"),
    )
    return InboundNatPool(name=name, backend_port=port, frontend_port_range=(first, first + 99), rules=rules)


_PORTS = (_port("open", OPEN_PORT, 49000, allow=150, deny=151), _port("shut", SHUT_PORT, 49100, allow=153, deny=152))
_SERVERS = f"python3 -m http.server {SHUT_PORT} & python3 -m http.server {OPEN_PORT}"
"""Until the node ends, as a start task that no task waits for."""
_ASK_SERVER = f"for second in $(seq 60); do curl -sf localhost:{OPEN_PORT} >/dev/null && exit 0; sleep 1; done; exit 1"
_SIGN = (
    "mkdir -p output root && cp /bin/true root/ && export HOME=$PWD"
    " && apptainer key newpair --name verify --email verify@example.org --password '' --push=false"
    " && apptainer build verify.sif root/ && apptainer sign verify.sif"
    " && apptainer verify --local --json verify.sif >output/observed-gang.json"
)
_NO_IMAGE = "mcr.microsoft.com/batchtrain-verify/none:1"
_WINDOWS = PlatformImage(publisher="MicrosoftWindowsServer", offer="WindowsServer", sku="2022-datacenter")
_NFS = SharedDataVolume(volume_driver="nfs", source="10.255.255.4:/verify")

TRIALS: Mapping[str, Trial] = {
    "nfs": Trial(lambda pool: pool, "true", volumes=Volumes(shared_data_volumes={"verify": _NFS})),
    "image": Trial(lambda pool: replace(pool, attempt_recovery_on_unusable=True), "true", image=_NO_IMAGE),
    "spot": Trial(lambda pool: pool, "true", {"spot": is_dedicated}, spot=True),
    "ephemeral": Trial(
        lambda pool: replace(
            pool, vm_configuration=replace(pool.vm_configuration, os_disk=OsDisk(ephemeral=True, caching="readonly"))
        ),
        "true",
        spot=True,
    ),
    "rules": Trial(
        lambda pool: replace(
            pool,
            network=Network(inbound_nat_pools=_PORTS),
            block_until_all_global_resources_loaded=False,
            additional_node_prep=_prepared(_SERVERS),
        ),
        _ASK_SERVER,
        {"ports": open_ports, CONTINUES: end_of("rules")},
    ),
    "runtimes": Trial(
        lambda pool: replace(pool, container_runtimes=ContainerRuntimes(install=("singularity", "kata_containers"))),
        _SIGN,
    ),
    "windows": Trial(
        lambda pool: replace(
            pool,
            vm_configuration=VmConfiguration(platform_image=_WINDOWS),
            additional_node_prep=_prepared(*(f"echo {n}>%AZ_BATCH_NODE_SHARED_DIR%\\{n}.txt" for n in ("one", "two"))),
        ),
        "type %AZ_BATCH_NODE_SHARED_DIR%\\one.txt && type %AZ_BATCH_NODE_SHARED_DIR%\\two.txt",
        {"windows": end_of("windows")},
    ),
}
