"""From a pool's image, disks and containers to the description of its machines."""

from __future__ import annotations

from batchtrain.catalog.offer import Catalog
from batchtrain.config.image_names import server_of
from batchtrain.config.types import CommunityGalleryImage, CustomImage, Image, Pool, Recipe, SharedGalleryImage
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import disks, inputs, wire

WHERE = "pool_specification"


def machine(recipe: Recipe, pool: Pool, containers: wire.ContainerConfiguration | None) -> wire.VmConfiguration:
    """The virtual machines of a pool. Raises PlanError where the image or its node agent is not known."""
    image, vm = image_of(pool), pool.vm_configuration
    one_thread = wire.VmSizeProperties(vcpus_per_core=1)
    return wire.VmConfiguration(
        hardware_profile=None if vm.hyper_threading else wire.HardwareProfile(vm_size_properties=one_thread),
        placement=wire.Placement(zone_placement_policy="Auto") if vm.zones else None,
        resiliency_policy=_resiliency(pool),
        image_reference=_reference(image),
        node_agent_sku_id=node_agent(image, recipe.catalog),
        license_type=image.license_type,
        container_configuration=containers,
        windows_configuration=wire.unless_empty(
            wire.WindowsConfiguration(enable_automatic_updates=vm.windows_automatic_updates)
        ),
        os_disk=disks.os_disk(vm.os_disk) if vm.os_disk else None,
        data_disks=tuple(disks.data_disk(disk) for disk in vm.data_disks),
        disk_encryption_configuration=disks.encryption(vm.disk_encryption) if vm.disk_encryption else None,
        security_profile=disks.security(vm.security_profile) if vm.security_profile else None,
        node_placement_configuration=wire.unless_empty(wire.NodePlacement(policy=vm.node_placement)),
        extensions=tuple(disks.extension(extension) for extension in vm.extensions),
        service_artifact_reference=wire.ServiceArtifact(id=vm.service_artifact) if vm.service_artifact else None,
    )


def _resiliency(pool: Pool) -> wire.ResiliencyPolicy | None:
    """How the nodes are spread over zones. Returns None without limits."""
    if (zones := pool.vm_configuration.zones) is None:
        return None
    share = zones.max_percent_per_zone
    policy = wire.InstancePercentPolicy(value=share, enabled=True) if share is not None else None
    limits = wire.ZoneAllocationPolicy(max_zone_count=zones.max_count, max_instance_percent_per_zone_policy=policy)
    return wire.ResiliencyPolicy(zone_allocation_policy=limits) if wire.unless_empty(limits) else None


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


def _reference(image: Image) -> wire.ImageReference:
    match image:
        case CustomImage():
            return wire.ImageReference(virtual_machine_image_id=image.arm_image_id)
        case SharedGalleryImage():
            return wire.ImageReference(shared_gallery_image_id=image.id)
        case CommunityGalleryImage():
            return wire.ImageReference(community_gallery_image_id=image.id)
        case _:
            return wire.ImageReference(
                publisher=image.publisher, offer=image.offer, sku=image.sku, version=image.version
            )


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
    names, sign_ins = recipe.resources.docker_images, _servers(recipe)
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


def _servers(recipe: Recipe) -> dict[str, None]:
    return dict.fromkeys((*recipe.credentials.docker_registry, *recipe.resources.additional_registries.docker))


def registries(recipe: Recipe) -> tuple[wire.Registry, ...]:
    """Every registry with credentials, and the additional registries."""
    return tuple(registry(recipe, server) for server in _servers(recipe))


def registry(recipe: Recipe, server: str) -> wire.Registry:
    """One registry by its name in credentials.yaml, with an identity of the pool, or a user name and a placeholder."""
    login = recipe.credentials.docker_registry.get(server)
    address = None if server in ("hub", "docker.io") else server
    if login is not None and login.identity:
        return wire.Registry(registry_server=address, identity_reference=inputs.identity(login.identity))
    return wire.Registry(
        username=login.username if login is not None else None,
        password=wire.later("registry", server),
        registry_server=address,
    )
