"""From a pool's image, disks and containers to the description of its machines."""

from __future__ import annotations

from typing import Any

from batchtrain.catalog.offer import Catalog
from batchtrain.config.image_names import server_of
from batchtrain.config.types import CommunityGalleryImage, CustomImage, Image, Pool, Recipe, SharedGalleryImage
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import inputs, wire

WHERE = "pool_specification"


VM = "pool.virtualMachineConfiguration"


def machine(recipe: Recipe, pool: Pool, containers: wire.ContainerConfiguration | None) -> dict[str, Any]:
    """The fields of the virtual machines of a pool that are not copied. Raises PlanError where the image or its node
    agent is not known."""
    vm = pool.vm_configuration
    agent = vm.security_profile and vm.security_profile.proxy_agent
    endpoints = {"imds": agent.imds, "wireServer": agent.wire_server} if agent else {}
    profiles = f"{VM}.securityProfile.proxyAgentSettings"
    share = f"{VM}.resiliencyPolicy.zoneAllocationPolicy.maxInstancePercentPerZonePolicy"
    return {
        f"{VM}.nodeAgentSKUId": node_agent(image_of(pool), recipe.catalog),
        f"{VM}.containerConfiguration": containers,
        f"{VM}.hardwareProfile.vmSizeProperties.vCPUsPerCore": None if vm.hyper_threading else 1,
        f"{VM}.placement.zonePlacementPolicy": "Auto" if vm.zones else None,
        f"{share}.enabled": True if vm.zones and vm.zones.max_percent_per_zone is not None else None,
        f"{VM}.osDisk.ephemeralOSDiskSettings.placement": "cachedisk" if vm.os_disk and vm.os_disk.ephemeral else None,
        **{f"{profiles}.{name}.mode": endpoint.mode for name, endpoint in endpoints.items() if endpoint},
        **{
            f"{profiles}.{name}.inVMAccessControlProfileReferenceId": endpoint.access_control_profile
            for name, endpoint in endpoints.items()
            if endpoint
        },
    }


def image_of(pool: Pool) -> Image:
    """The pool's only image. Raises PlanError without an image, or with several."""
    images = pool.vm_configuration.images
    if len(images) != 1:
        fault = "names no image" if not images else "names several images"
        raise PlanError(
            f"pool {pool.id} {fault}; give one of `platform_image`, `custom_image`, `shared_gallery_image` and"
            " `community_gallery_image`"
        )
    return images[0]


def node_agent(image: Image, catalog: Catalog) -> str:
    """The node agent in the file, otherwise that of the catalogue. Raises PlanError if neither has one."""
    if image.node_agent:
        return image.node_agent
    if isinstance(image, CustomImage | SharedGalleryImage | CommunityGalleryImage):
        raise PlanError("an image of your own needs `node_agent`, such as `batch.node.ubuntu 24.04`")
    entry = catalog.image(image.publisher, image.offer, image.sku)
    if entry is None:
        raise PlanError(
            f"the image {image.publisher}:{image.offer}:{image.sku} is not in the catalogue, so its node agent"
            " is not known; say it with `node_agent`, or use a listed image (such as microsoft-dsvm:ubuntu-hpc:2404)"
        )
    return entry.node_agent


def is_windows(pool: Pool, catalog: Catalog) -> bool:
    """Whether the nodes run Windows, by the node agent."""
    return "windows" in node_agent(image_of(pool), catalog).lower()


def seems_windows(recipe: Recipe) -> bool:
    """Whether the pool file's nodes run Windows; where its image is not known, the pool's own plan says so."""
    try:
        return recipe.pool is not None and is_windows(recipe.pool, recipe.catalog)
    except PlanError:
        return False


def uses_containers(recipe: Recipe) -> bool:
    """Whether the pool runs containers: it says `native`, or there are images to run."""
    is_native = recipe.pool is not None and recipe.pool.vm_configuration.native
    return (
        is_native
        or bool(recipe.resources.docker_images)
        or any(
            task is not None and task.docker_image
            for job in recipe.jobs
            for task in (*job.tasks, job.merge_task, job.job_preparation, job.job_release, job.job_manager)
        )
    )


def containers(
    recipe: Recipe, pool: Pool
) -> tuple[wire.ContainerConfiguration | None, tuple[str, ...], tuple[Implicit, ...]]:
    """The images that Batch fetches, those that the start task fetches, and the sign-ins to their registries.

    `delay_docker_image_preload` leaves an image to the start task (Linux); one from a registry that wants a sign-in
    stays with Batch, so that the environment of the start task has no password.
    """
    if not uses_containers(recipe):
        return None, (), ()
    names, sign_ins = recipe.resources.docker_images, recipe.credentials.docker_registry
    delays = recipe.settings.delay_docker_image_preload and not is_windows(pool, recipe.catalog)
    delayed_names = tuple(name for name in names if delays and server_of(name) not in sign_ins)
    preloaded_names = tuple(name for name in names if name not in delayed_names)
    configuration = wire.ContainerConfiguration(
        type=pool.vm_configuration.container_type,
        container_image_names=preloaded_names,
        container_registries=registries(recipe),
    )
    implicit = []
    if not pool.vm_configuration.native:
        because = "there are container images, and Batch itself runs the containers"
        implicit.append(Implicit("native", "true", because, "native-containers", WHERE))
    if delays and preloaded_names:
        name, value = "delay_docker_image_preload", f"false for {', '.join(preloaded_names)}"
        because = "its registry wants a sign-in, and a password has no place in the start task's environment"
        implicit.append(Implicit(name, value, because, "sign-in-not-delayed", WHERE))
    return configuration, delayed_names, tuple(implicit)


def registries(recipe: Recipe) -> tuple[wire.Registry, ...]:
    """Every registry with credentials. One without is public."""
    return tuple(filter(None, (registry(recipe, server) for server in recipe.credentials.docker_registry)))


def registry(recipe: Recipe, server: str) -> wire.Registry | None:
    """One registry by its name in credentials.yaml, with an identity of the pool, or a user name and a placeholder.
    Returns None for one without a login: it is public."""
    login = recipe.credentials.docker_registry.get(server)
    if login is None:
        return None
    address = None if server in ("hub", "docker.io") else server
    if login.identity:
        return wire.Registry(registry_server=address, identity_reference=inputs.identity(login.identity))
    return wire.Registry(username=login.username, password=wire.later("registry", server), registry_server=address)
