"""From a pool's configuration to the one request that makes it."""

from __future__ import annotations

from batchtrain.catalog import images, sizes
from batchtrain.config.types import Pool, Recipe, ResourceFile
from batchtrain.errors import PlanError
from batchtrain.launchers.types import Implicit
from batchtrain.plan import names, wire
from batchtrain.plan.types import Plan, Step

PREPARATION = "BATCHTRAIN_PREPARATION"
"""Carries the user's own preparation, so that no quoting of ours can break it."""


def plan(recipe: Recipe) -> Plan:
    """POST /pools. Raises PlanError when the recipe has no pool or its node agent is not known."""
    pool = recipe.pool
    if pool is None:
        raise PlanError(f"{recipe.directory} has no pool.yaml, so there is no pool to plan")
    containers, implicit = _containers(recipe, pool)
    body = wire.PoolCreate(
        id=pool.id,
        vm_size=pool.vm_size,
        virtual_machine_configuration=_vm(pool, containers),
        target_dedicated_nodes=pool.vm_count.dedicated,
        target_low_priority_nodes=pool.vm_count.low_priority,
        resize_timeout=names.duration(pool.resize_timeout) if pool.resize_timeout else None,
        enable_inter_node_communication=pool.inter_node_communication_enabled,
        task_slots_per_node=pool.task_slots_per_node,
        task_scheduling_policy=(
            wire.TaskSchedulingPolicy(node_fill_type=pool.node_fill_type) if pool.node_fill_type else None
        ),
        start_task=_start_task(pool),
        metadata=tuple(wire.Metadata(name=name, value=value) for name, value in pool.metadata.items()),
    )
    return Plan(steps=(Step("pool.add", "POST", "/pools", body),), implicit=implicit)


def uses_containers(recipe: Recipe) -> bool:
    """Whether the pool runs containers: it says `native`, or there are images to run."""
    image = recipe.pool and (recipe.pool.vm_configuration.platform_image or recipe.pool.vm_configuration.custom_image)
    if image and image.native:
        return True
    used = any(task.docker_image for job in recipe.jobs for task in job.tasks)
    return bool(recipe.resources.docker_images) or used


def _containers(recipe: Recipe, pool: Pool) -> tuple[wire.ContainerConfiguration | None, tuple[Implicit, ...]]:
    if not uses_containers(recipe):
        return None, ()
    built = wire.ContainerConfiguration(
        type="dockerCompatible",
        container_image_names=recipe.resources.docker_images,
        container_registries=tuple(_registry(recipe, server) for server in recipe.credentials.docker_registry),
    )
    image = pool.vm_configuration.platform_image or pool.vm_configuration.custom_image
    if image is not None and image.native:
        return built, ()
    return built, (Implicit("native", "true", "there are container images, and Batch itself runs the containers"),)


def _registry(recipe: Recipe, server: str) -> wire.Registry:
    return wire.Registry(
        username=recipe.credentials.docker_registry[server].username,
        password=f"{{{{registry:{server}}}}}",  # filled in when the request is sent: a plan holds no secret
        registry_server=None if server == "hub" else server,
    )


def _vm(pool: Pool, containers: wire.ContainerConfiguration | None) -> wire.VmConfiguration:
    platform, custom = pool.vm_configuration.platform_image, pool.vm_configuration.custom_image
    if custom is not None:
        return wire.VmConfiguration(
            image_reference=wire.ImageReference(virtual_machine_image_id=custom.arm_image_id),
            node_agent_sku_id=custom.node_agent,
            license_type=custom.license_type,
            container_configuration=containers,
        )
    if platform is None:
        raise PlanError(f"pool {pool.id} names no image; give `platform_image` or `custom_image`")
    known = images.find(platform.publisher, platform.offer, platform.sku)
    if known is None:
        raise PlanError(
            f"the image {platform.publisher}:{platform.offer}:{platform.sku} is not in the catalogue, so its node agent"
            " is not known; use a listed image (such as microsoft-dsvm:ubuntu-hpc:2404) or `custom_image` with"
            " `node_agent`"
        )
    return wire.VmConfiguration(
        image_reference=wire.ImageReference(
            publisher=platform.publisher, offer=platform.offer, sku=platform.sku, version=platform.version
        ),
        node_agent_sku_id=known.node_agent,
        license_type=platform.license_type,
        container_configuration=containers,
    )


def _start_task(pool: Pool) -> wire.StartTask | None:
    """The user's own preparation; as root, since it installs things."""
    commands = (*pool.additional_node_prep.commands.pre, *pool.additional_node_prep.commands.post)
    if not commands and not pool.resource_files:
        return None
    script = "\n".join(commands) or ":"  # a line each: a comment in one must not swallow the next
    return wire.StartTask(
        command_line=f"/bin/bash -c 'exec /bin/bash -e -c \"${PREPARATION}\"'",
        user_identity=wire.POOL_ADMIN,
        environment_settings=(
            *environment(pool.additional_node_prep.environment_variables),
            wire.Environment(name=PREPARATION, value=script),
        ),
        resource_files=resource_files(pool.resource_files),
        max_task_retry_count=0,
        wait_for_success=True,
    )


def environment(values: dict[str, str]) -> tuple[wire.Environment, ...]:
    """Environment settings, in the order they were written."""
    return tuple(wire.Environment(name=name, value=value) for name, value in values.items())


def resource_files(files: tuple[ResourceFile, ...]) -> tuple[wire.ResourceFile, ...]:
    """Files by URL."""
    return tuple(
        wire.ResourceFile(http_url=file.blob_source, file_path=file.file_path, file_mode=file.file_mode)
        for file in files
    )


def gpus_of(vm_size: str) -> int:
    """GPUs of one node by its size; 0 when it has none or is not known."""
    size = sizes.find(vm_size)
    return size.gpus if size else 0
