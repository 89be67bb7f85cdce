"""Rules about the nodes' image, VM size, disks and security: what fits together, and what is retired."""

from __future__ import annotations

from functools import partial

from batchtrain.catalog import fit, sizes, successors
from batchtrain.catalog.sizes import VmSize
from batchtrain.catalog.successors import Successor
from batchtrain.catalog.vm_images import DOCKER, GEN2, NO_ARM64, NVIDIA, RDMA, ROCM, VOLTA, Image
from batchtrain.config.check.subject import IMAGE, IMAGE_KINDS, VM, Subject
from batchtrain.config.check.table import BOTH, ERROR, GLOBAL, INFO, POOL, WARNING, Found, Rule

ALL = (*GLOBAL, *BOTH)
WINDOWS_LICENSES = ("windows_server", "windows_client")
REFUSED_FAMILIES = frozenset({"DS", "DSv2", "GS"})
REFUSED_SIZES = frozenset({"Standard_A0"})


# --- which image ----------------------------------------------------------------------------------------------------


def _one_image(subject: Subject) -> Found:
    kinds = [kind for kind in IMAGE_KINDS if getattr(subject.vm, kind) is not None]
    if not kinds and subject.recipe.pool:
        yield VM, "no image is named; give `platform_image`, or one of " + _ticked(IMAGE_KINDS[1:])
    elif len(kinds) > 1:
        yield VM, f"{_ticked(kinds, 'and')} are given; a pool has one image, keep one"


def _unknown(subject: Subject) -> Found:
    platform_image = subject.vm.platform_image
    if platform_image is None or platform_image.node_agent or (subject.image is not None and subject.image.node_agent):
        return
    reference = f"{platform_image.publisher}:{platform_image.offer}:{platform_image.sku}"
    if subject.image is not None:
        yield (
            IMAGE,
            f"Batch supports {reference}, but its node agent is not documented; set `node_agent` to the value that"
            " `az batch pool supported-images list` shows",
        )
        return
    near = subject.catalog.nearest_images(reference)
    hint = f"; did you mean {near[0]}?" if near else "; add it to catalog.yaml"
    yield IMAGE, f"the image {reference} is not in the catalogue, so its node agent must be named (`node_agent`){hint}"


def _new_image(subject: Subject) -> Found:
    choice = subject.vm.platform_image
    if choice is not None and choice.node_agent and subject.image is None:
        reference = f"{choice.publisher}:{choice.offer}:{choice.sku}"
        near = subject.catalog.nearest_images(reference)
        hint = f"; did you mean {near[0]}?" if near else ""
        yield IMAGE, f"the image {reference} is not in the catalogue, so nothing checks whether it fits{hint}"


def _retired(subject: Subject) -> Found:
    image = subject.image
    if image is None or image.retired is None:
        return
    platform_image = subject.vm.platform_image
    today = successor(subject, image)
    reference = f"{platform_image.publisher}:{platform_image.offer}:{platform_image.sku}" if platform_image else ""
    yield IMAGE, f"{reference}: Batch's support ends, or ended, on {image.retired}{f'; use {today}' if today else ''}"


def successor(subject: Subject, image: Image) -> str:
    """The current image for the needs of the pool, on the current size if its own is retiring: that of the table if it
    does, else the nearest. InfiniBand is a need of gangs, and of pools whose image had it."""
    size = subject.size
    if size is not None and size.retired is not None:
        size = subject.catalog.size(size_of_today(subject, size).today or "") or size
    rdma = bool(subject.gangs) or RDMA in image.capabilities
    capabilities = fit.needs(size, os=image.os, containers=subject.containers, rdma=rdma)
    listed_images = [each for each in subject.catalog.images if ":".join(each[:3]) == image.replacement]
    choices = (fit.image_for(images, capabilities, os=image.os, size=size, like=image)
               for images in (listed_images, subject.catalog.images))  # fmt: skip
    fitting = next(filter(None, choices), None)
    return ":".join(fitting[:3]) if fitting is not None else image.replacement


def _node_agent(subject: Subject) -> Found:
    agent = (subject.vm.platform_image and subject.vm.platform_image.node_agent) or ""
    agent_of_image = subject.image.node_agent if subject.image is not None else ""
    if agent and agent_of_image and agent.lower() != agent_of_image.lower():
        message = f"`{agent}` is not the agent of this image; write `{agent_of_image}`, or remove it"
        yield (*IMAGE, "node_agent"), message


def _unknown_agent(subject: Subject) -> Found:
    agents = tuple(dict.fromkeys(image.node_agent for image in subject.catalog.images if image.node_agent))
    for kind, agent in _own_agents(subject):
        if agent not in agents:
            message = f"no image of the catalogue has the node agent `{agent}`{subject.nearest(agent, agents)}"
            yield (*VM, kind, "node_agent"), message


def _agent_retired(subject: Subject) -> Found:
    for kind, agent in _own_agents(subject):
        ends = [image.retired for image in subject.catalog.images if image.node_agent == agent]
        last = max((end for end in ends if end is not None), default=None)
        if last is not None and None not in ends:
            message = f"`{agent}`: Batch's support ends, or ended, on {last}; build a newer image"
            yield (*VM, kind, "node_agent"), message


def _own_agents(subject: Subject) -> list[tuple[str, str]]:
    """The node agents in the files, by kind of image; without those of known marketplace images."""
    images = [(kind, getattr(subject.vm, kind)) for kind in IMAGE_KINDS]
    return [
        (kind, image.node_agent)
        for kind, image in images
        if image is not None and image.node_agent and not (kind == "platform_image" and subject.image)
    ]


# --- which size -----------------------------------------------------------------------------------------------------


def _misspelt_size(subject: Subject) -> Found:
    name, near = subject.pool.vm_size, _near_sizes(subject)
    if near and not sizes.is_newer(name, near[0]):
        yield (
            (*POOL, "vm_size"),
            f"the VM size `{name}` is not in the catalogue; did you mean {near[0]}?"
            " (ignoring the check `vm-size-unknown` uses the size anyway, without implicit GPUs and InfiniBand)",
        )


def _no_size(subject: Subject) -> Found:
    name = subject.pool.vm_size
    if name and subject.size is None and not sizes.is_well_formed(name) and not _near_sizes(subject):
        advice = "such as Standard_D4s_v5; `batchtrain catalog sizes` lists them"
        yield (*POOL, "vm_size"), f"`{name}` is not the name of a VM size, {advice}"


def _new_size(subject: Subject) -> Found:
    name, near = subject.pool.vm_size, _near_sizes(subject)
    is_newer = bool(near) and sizes.is_newer(name, near[0])
    if name and subject.size is None and sizes.is_well_formed(name) and (is_newer or not near):
        similar = f"similar names such as {near[0]}" if near else "no similar name"
        yield (
            (*POOL, "vm_size"),
            f"the VM size `{name}` is not in the catalogue, which has {similar}; it is used"
            " without implicit GPUs and InfiniBand (add it to `catalog.yaml`)",
        )


def _near_sizes(subject: Subject) -> tuple[str, ...]:
    name = subject.pool.vm_size
    return subject.catalog.nearest_sizes(name) if name and subject.size is None else ()


def _size_retired(subject: Subject) -> Found:
    size = subject.size
    if size is not None and size.retired is not None:
        reason = size_of_today(subject, size).reason
        yield (*POOL, "vm_size"), f"{size.name}: Azure's retirement date is {size.retired}. {reason}".rstrip(". ") + "."


def size_of_today(subject: Subject, size: VmSize) -> Successor:
    """What to use in place of a retiring size in this pool, which uses InfiniBand only between its nodes."""
    network = subject.pool.inter_node_communication_enabled
    return successors.today_for(size, network=network, own=subject.catalog.prices)


def _size_refused(subject: Subject) -> Found:
    size = subject.size
    if size is not None and (size.family in REFUSED_FAMILIES or size.name in REFUSED_SIZES):
        what = size.name if size.name in REFUSED_SIZES else f"the {size.family} series"
        yield (*POOL, "vm_size"), f"Batch does not support {what}; use a size of a v3 or later series"


def _alternatives(subject: Subject) -> list[tuple[tuple[str | int, ...], str]]:
    path = (*POOL, "vm_sizes", "alternatives")
    sizes = subject.pool.vm_sizes.alternatives if subject.pool.vm_sizes else ()
    return [((*path, number), name) for number, name in enumerate(sizes)]


def _sizes(subject: Subject) -> Found:
    alternatives = _alternatives(subject)
    if subject.pool.vm_sizes and not alternatives:
        yield (*POOL, "vm_sizes", "alternatives"), "no size is named; remove `vm_sizes`"
    names = {sizes.key(subject.pool.vm_size)}
    for path, name in alternatives:
        other = subject.catalog.size(name)
        if sizes.key(name) in names:
            yield path, f"`{name}` is a size of the pool already"
        elif subject.size is not None and other is not None and (different := _difference(subject.size, other)):
            yield path, f"{other.name} has {different}, so its nodes are not like those of {subject.size.name}"
        names.add(sizes.key(name))


def _difference(size: VmSize, other: VmSize) -> str:
    """What of its nodes is not like those of another size; empty if they are alike."""
    words = {
        "cores": f"{other.cores} vCPUs instead of {size.cores}",
        "architecture": f"{other.architecture} processors",
        "gpus": f"{other.gpus} GPUs instead of {size.gpus}",
        "gpu_model": f"GPUs of another model, {other.gpu_model}",
        "rdma": "another InfiniBand" if other.rdma else "no InfiniBand",
    }
    return next((text for name, text in words.items() if getattr(size, name) != getattr(other, name)), "")


def _new_sizes(subject: Subject) -> Found:
    for path, name in _alternatives(subject):
        if subject.catalog.size(name) is None:
            near = subject.catalog.nearest_sizes(name)
            yield path, f"the VM size `{name}` is not in the catalogue" + (f"; did you mean {near[0]}?" if near else "")


# --- image and size -------------------------------------------------------------------------------------------------


def _generation(subject: Subject) -> Found:
    image, size = subject.image, subject.size
    if image is None or size is None:
        return
    if size.generation == 2 and GEN2 not in image.capabilities:
        yield (IMAGE, f"this is a generation 1 image, {size.name} starts generation 2 images only; {_other(subject)}")
    elif _too_new(subject) and not sizes.gone(size):
        yield IMAGE, f"{_too_new(subject)}; {_other(subject)}, or use a size of a later series"


def _generation_old(subject: Subject) -> Found:
    if subject.size and sizes.gone(subject.size) and _too_new(subject):
        yield IMAGE, _too_new(subject)


def _too_new(subject: Subject) -> str:
    """The fault of a generation 2 image on a size of generation 1; empty if there is none."""
    image, size = subject.image, subject.size
    if image is None or size is None or GEN2 not in image.capabilities or not fit.only_generation_1(size):
        return ""
    return f"this is a generation 2 image, and the {size.family} series starts generation 1 images only"


def _architecture(subject: Subject) -> Found:
    image, size = subject.image, subject.size
    if image and size and size.architecture != fit.architecture(image):
        another = f"{_other(subject)}; or name an image of your own (`custom_image`)"
        if size.architecture == "arm64":
            another = (
                f"{NO_ARM64}: name an image of your own (`custom_image`; Azure/azhpc-images builds those of GB200)"
            )
        yield (
            (*POOL, "vm_size"),
            f"{size.name} has {size.architecture} processors, the image is for {fit.architecture(image)}; {another},"
            " or take another size",
        )


def _gpu_vendor(subject: Subject) -> Found:
    image, size = subject.image, subject.size
    if image is None or size is None or not size.gpus:
        return
    vendor_driver, other_driver = (ROCM, NVIDIA) if size.gpu_vendor == "amd" else (NVIDIA, ROCM)
    if other_driver in image.capabilities and vendor_driver not in image.capabilities:
        yield (
            IMAGE,
            f"{size.name} has {size.gpu_vendor.upper()} GPUs, but the image has the driver of the other vendor; "
            f"{_other(subject)}",
        )


def _gpu_old(subject: Subject) -> Found:
    image, size = subject.image, subject.size
    if image is None or size is None:
        return
    if NVIDIA in image.capabilities and VOLTA not in image.capabilities and VOLTA in fit.driver(size):
        reason = f"{size.name} has {size.gpu_model} GPUs, which the driver of this image no longer supports"
        yield IMAGE, f"{reason}; {_other(subject)}"


def _gpu_driver(subject: Subject) -> Found:
    image, size, gpu = subject.image, subject.size, subject.pool.gpu
    if image is None or size is None or not size.gpus or subject.windows:
        return
    commands, source = subject.pool.additional_node_prep.commands, gpu and gpu.nvidia_driver.source
    if not fit.takes_nvidia_driver(size):
        source = None
    if {NVIDIA, ROCM} & image.capabilities:
        if source:
            path = (*POOL, "gpu", "nvidia_driver", "source")
            yield path, "the image has a driver, and a second installation can break it; remove `gpu.nvidia_driver`"
    elif not (source or subject.vm.extensions or commands.pre or commands.post):
        driver_advice = ", or name one in `gpu.nvidia_driver.source`" if size.gpu_vendor == "nvidia" else ""
        yield IMAGE, f"{size.name} has GPUs, but the image has no driver; {_other(subject)}{driver_advice}"


def _driver_unused(subject: Subject) -> Found:
    size, gpu = subject.size, subject.pool.gpu
    if size is None or gpu is None or not gpu.nvidia_driver.source:
        return
    if subject.windows:
        reason = "it is a driver for Linux, and the nodes run Windows"
    elif not fit.takes_nvidia_driver(size):
        reason = f"{size.name} has {'AMD' if size.gpus else 'no'} GPUs"
    else:
        return
    yield (
        (*POOL, "gpu", "nvidia_driver", "source"),
        f"{reason}, so this driver is ignored: the start task does not install it; remove `gpu.nvidia_driver`",
    )


def _rdma_driver(subject: Subject) -> Found:
    image, size = subject.image, subject.size
    lacks_driver = image is not None and RDMA not in image.capabilities and not subject.vm.extensions
    if size is not None and lacks_driver and _uses_rdma(subject):
        reason = f"{size.name} has InfiniBand, but the image has no drivers for it"
        yield IMAGE, f"{reason}; {_other(subject)}, or set `infiniband: false` on the job"


def _uses_rdma(subject: Subject) -> bool:
    """Whether a gang uses the InfiniBand of the size: the pool has inter-node communication, and not every gang
    switches it off."""
    has_rdma = subject.size is not None and subject.size.rdma and subject.pool.inter_node_communication_enabled
    return bool(has_rdma) and any(
        (task.infiniband if task.infiniband is not None else job.infiniband) is not False
        for _, job, task, _ in subject.gangs
    )


def _rdma_unused(subject: Subject) -> Found:
    size = subject.size
    if size and size.rdma and not subject.pool.inter_node_communication_enabled:
        message = f"{size.name} has InfiniBand, which works only with `inter_node_communication_enabled: true`"
        yield (*POOL, "vm_size"), message


def _other(subject: Subject, *capabilities: str) -> str:
    """The advice: an image of the catalogue that meets the pool's needs, starts on its size, and has `capabilities`."""
    needs = fit.needs(
        subject.size, os=_system(subject), containers=subject.containers, rdma=_uses_rdma(subject)
    ) | frozenset(capabilities)
    reference = _fitting(subject, needs, subject.size)
    if reference:
        return f"use a suitable image, such as {reference}"
    size = subject.size
    none = f"no {_system(subject)} image of the catalogue meets these needs{f' on {size.name}' if size else ''}"
    later = subject.catalog.size(size_of_today(subject, size).today or "") if size else None
    reference = _fitting(subject, needs, later) if later != size else ""
    return f"{none}; on {later.name}, use {reference}" if later is not None and reference else none


def _fitting(subject: Subject, capabilities: frozenset[str], size: VmSize | None) -> str:
    image = fit.image_for(subject.catalog.images, capabilities, os=_system(subject), size=size, like=subject.image)
    return ":".join(image[:3]) if image is not None else ""


def _system(subject: Subject) -> str:
    return "windows" if subject.windows else "linux"


# --- containers on it -----------------------------------------------------------------------------------------------


def _containers_native(subject: Subject) -> Found:
    has_engine = subject.image is None or DOCKER in subject.image.capabilities  # `image-without-docker` reports others
    if has_engine and subject.containers and not subject.vm.native:
        yield (
            VM,
            "Batch runs the containers here, so the pool is planned as with `native: true`; the image of the nodes"
            " must have a container engine",
        )


def _lacking_engine(subject: Subject, *, retired: bool) -> Found:
    """retired: of images whose support by Batch has ended, which have to be replaced in any case."""
    image = subject.image
    if image is None or (image.retired is not None and image.retired <= sizes.READ) != retired:
        return
    if subject.containers and DOCKER not in image.capabilities:
        lacks = "the image of the nodes has no container engine, so Batch refuses it"
        yield IMAGE, f"the pool has container images, but {lacks}; {_other(subject)}"


def _container_type(subject: Subject) -> Found:
    if subject.vm.container_type == "criCompatible":
        yield (
            (*VM, "container_type"),
            "GPUs, InfiniBand and `shm_size` use options of Docker, which a `criCompatible` node may not support;"
            " write `dockerCompatible` unless the image needs the other",
        )


# --- system ---------------------------------------------------------------------------------------------------------


def _license(subject: Subject) -> Found:
    for kind in IMAGE_KINDS:
        path, name = (*VM, kind, "license_type"), getattr(getattr(subject.vm, kind), "license_type", None)
        if name is not None and subject.linux:
            yield path, "an on-premises licence is for Windows, but the nodes run Linux: remove it"
        elif name is not None and name.lower() not in WINDOWS_LICENSES:
            yield path, f"`{name}` is none of Windows_Server, Windows_Client"


def _windows_updates(subject: Subject) -> Found:
    if subject.vm.windows_automatic_updates is not None and subject.linux:
        yield (*VM, "windows_automatic_updates"), "the nodes run Linux; remove it"


# --- disks and security ---------------------------------------------------------------------------------------------


def _luns(subject: Subject) -> Found:
    unit_numbers: set[int] = set()
    for number, disk in enumerate(subject.vm.data_disks):
        if disk.lun in unit_numbers:
            yield (*VM, "data_disks", number, "lun"), f"another disk has the unit number {disk.lun}; give each its own"
        unit_numbers.add(disk.lun)


def _ephemeral(subject: Subject) -> Found:
    disk = subject.vm.os_disk
    if disk is not None and disk.ephemeral and disk.caching not in (None, "readonly"):
        message = "an ephemeral disk is stored in the cache of the host: only `readonly` is possible"
        yield (*VM, "os_disk", "caching"), message


def _ephemeral_spot(subject: Subject) -> Found:
    disk = subject.vm.os_disk
    if disk is not None and disk.ephemeral and subject.spot and subject.most_nodes.low_priority is not None:
        message = "Azure has no spot nodes with an ephemeral disk; remove `ephemeral`, or take dedicated nodes alone"
        yield (*VM, "os_disk", "ephemeral"), message


def _confidential(subject: Subject) -> Found:
    vm = subject.vm
    confidential = vm.security_profile is not None and vm.security_profile.security_type == "confidentialvm"
    encryption = vm.os_disk is not None and vm.os_disk.security_encryption is not None
    if confidential and not encryption:
        message = "a confidential VM needs `os_disk.security_encryption`, such as VMGuestStateOnly"
        yield (*VM, "security_profile", "security_type"), message
    if encryption and not confidential:
        message = "this is only for confidential VMs: it needs `security_profile.security_type: confidentialvm`"
        yield (*VM, "os_disk", "security_encryption"), message


def _uefi(subject: Subject) -> Found:
    profile = subject.vm.security_profile
    for name in ("secure_boot", "vtpm") if profile and profile.security_type is None else ():
        if getattr(profile, name) is not None:
            yield (*VM, "security_profile", name), "this needs `security_type`: trustedLaunch or confidentialvm"


def _trusted_generation(subject: Subject) -> Found:
    profile = subject.vm.security_profile
    if profile and profile.security_type and subject.image and GEN2 not in subject.image.capabilities:
        message = f"`{profile.security_type}` needs a generation 2 image; {_other(subject, GEN2)}"
        yield (*VM, "security_profile", "security_type"), message


def _secure_boot(subject: Subject) -> Found:
    profile = subject.vm.security_profile
    size = subject.size
    if profile and profile.secure_boot and size and (size.gpus or size.rdma):
        message = f"{size.name} has GPUs or InfiniBand, whose unsigned drivers do not load with secure boot"
        yield (*VM, "security_profile", "secure_boot"), message


def _encryption(subject: Subject) -> Found:
    encryption = subject.vm.disk_encryption
    if encryption is None:
        return
    targets, path = set(encryption.targets), (*VM, "disk_encryption", "targets")
    if subject.linux and subject.vm.custom_image is not None:
        yield (*VM, "disk_encryption"), "Linux nodes with an image of a gallery encrypt no disks"
    if subject.linux and "osdisk" in targets:
        yield path, "Linux nodes encrypt only the temporary disk: `[temporarydisk]`"
    if subject.windows and targets and targets != {"osdisk", "temporarydisk"}:
        yield path, "Windows nodes encrypt both disks or none: `[osdisk, temporarydisk]`"


def _zonal(subject: Subject) -> Found:
    size = subject.size
    places = {"node_placement": subject.vm.node_placement == "zonal", "zones": subject.vm.zones is not None}
    for name in (name for name, zonal in places.items() if zonal):
        if subject.pool.inter_node_communication_enabled and size and size.rdma:
            yield (
                (*VM, name),
                f"InfiniBand does not connect zones: a pool of {size.name} with inter-node communication is `regional`",
            )


def _zone_choice(subject: Subject) -> Found:
    if subject.vm.zones is not None and subject.vm.node_placement is not None:
        yield (*VM, "zones"), "`node_placement` decides about zones as well; remove one of them"


def _extensions(subject: Subject) -> Found:
    extensions = subject.vm.extensions
    names = [extension.name for extension in extensions]
    for number, extension in enumerate(extensions):
        path = (*VM, "extensions", number)
        if extension.name in names[:number]:
            yield (*path, "name"), f"another extension is called `{extension.name}`; names must be unique"
        for index, required_name in enumerate(extension.provision_after):
            if required_name not in names or required_name == extension.name:
                hint = subject.nearest(required_name, tuple(name for name in names if name != extension.name))
                yield (*path, "provision_after", index), f"no other extension is called `{required_name}`{hint}"


def _ticked(names: tuple[str, ...] | list[str], word: str = "or") -> str:
    return f", {word} ".join(f"`{name}`" for name in names) if len(names) < 3 else ", ".join(f"`{n}`" for n in names)


_REFERENCE = "azure-batch 15.1, VirtualMachineConfiguration"
_HPC = "Azure/azhpc-images README (July 2026): contents of the HPC images"
_SIZES = "Azure: Sizes for virtual machines"
_RETIRED = "Azure: Retired sizes; Azure/Batch issues 106 to 200"
_CONTAINERS = "Azure Batch: batch-docker-container-workloads"
_TRUSTED = "Azure: Trusted launch for Azure virtual machines"

RULES = (
    Rule("image-kind", ERROR, POOL, "A pool names exactly one image.", "azure-batch 15.1, BatchVmImageReference",
         _one_image),
    Rule("image-unknown", ERROR, POOL, "A marketplace image is known, or names its node agent.", _REFERENCE, _unknown),
    Rule("image-new", WARNING, POOL, "A marketplace image is in the catalogue.", _REFERENCE, _new_image),
    Rule("image-retired", WARNING, POOL, "The image of the nodes is still supported by Batch.", _RETIRED, _retired),
    Rule("node-agent", ERROR, POOL, "The node agent is that of the image.",
         f"{_REFERENCE}.nodeAgentSKUId; GET /supportedimages", _node_agent),
    Rule("node-agent-unknown", WARNING, POOL, "The node agent of a custom image is in the catalogue.",
         "GET /supportedimages, as far as the catalogue has it", _unknown_agent),
    Rule("node-agent-retired", WARNING, POOL, "The node agent of a custom image is still supported.", _RETIRED,
         _agent_retired),
    Rule("vm-size-unknown", ERROR, POOL, "The VM size is spelt as in the catalogue.", _SIZES, _misspelt_size),
    Rule("vm-size-form", ERROR, POOL, "The VM size has the form of one.", _SIZES, _no_size),
    Rule("vm-size-new", WARNING, POOL, "The VM size is in the catalogue.", _SIZES, _new_size),
    Rule("size-retired", WARNING, POOL, "The VM size is still sold.", _RETIRED, _size_retired),
    Rule("size-refused", WARNING, POOL, "The VM size is supported by Batch.", "azure-batch, pool vmSize",
         _size_refused),
    Rule("image-generation", ERROR, POOL, "The VM size supports the generation of the image.",
         "Azure: Support for generation 2 VMs", _generation),
    Rule("image-generation-old", WARNING, POOL, "A retired size started only generation 1 images.",
         "Azure: Support for generation 2 VMs", _generation_old),
    Rule("image-architecture", ERROR, POOL, "The size and the image have the same processors.", _SIZES, _architecture),
    Rule("image-gpu-vendor", WARNING, POOL, "The image's GPU driver is from the GPUs' vendor.", _HPC, _gpu_vendor),
    Rule("image-gpu-old", WARNING, POOL, "The driver of the image supports the GPUs of the size.", _HPC, _gpu_old),
    Rule("image-gpu-driver", WARNING, POOL, "Nodes with GPUs get one driver.", _HPC, _gpu_driver),
    Rule("gpu-driver-unused", WARNING, POOL, "A GPU driver is only installed on Linux nodes with GPUs of NVIDIA.",
         "NVIDIA: its installer ends without such a GPU; Batch Shipyard ignored it there", _driver_unused),
    Rule("image-rdma", WARNING, BOTH, "Nodes whose gangs use InfiniBand have drivers for it.",
         "Azure: Enable InfiniBand; azhpc-images", _rdma_driver),
    Rule("rdma-unused", INFO, POOL, "The InfiniBand of the VM size can be used.",
         "Azure Batch: batch-pool-compute-intensive-sizes", _rdma_unused),
    Rule("containers-native", WARNING, ALL, "Container tasks run on a native container pool.", f"{_CONTAINERS}; ADR 5",
         _containers_native),
    Rule("image-without-docker", ERROR, ALL, "The image of a container pool has a container engine.", _CONTAINERS,
         partial(_lacking_engine, retired=False)),
    Rule("image-without-docker-old", WARNING, ALL, "So has the image in place of a retired one.", _CONTAINERS,
         partial(_lacking_engine, retired=True)),
    Rule("container-type", WARNING, POOL, "The container technology supports the options of the tasks.",
         "azure-batch 15.1, ContainerType", _container_type),
    Rule("license-type", WARNING, POOL, "An on-premises licence is set only for Windows images.",
         f"{_REFERENCE}.licenseType", _license),
    Rule("windows-updates", ERROR, POOL, "Windows settings are for Windows nodes.",
         f"{_REFERENCE}.windowsConfiguration", _windows_updates),
    Rule("disk-lun", ERROR, POOL, "Each data disk has a unit number of its own.", "azure-batch 15.1, DataDisk.lun",
         _luns),
    Rule("disk-ephemeral", ERROR, POOL, "An ephemeral system disk is cached for reading.",
         "Azure: Ephemeral OS disks for Azure VMs", _ephemeral),
    Rule("disk-ephemeral-spot", ERROR, POOL, "Spot nodes have no ephemeral system disk.",
         "Azure Batch: Use spot VMs (batch-spot-vms, text of 2023); the probe `ephemeral-spot` asks", _ephemeral_spot),
    Rule("vm-confidential", ERROR, POOL, "Only confidential VMs set the encryption of their system disk.",
         "azure-batch 15.1, BatchVmDiskSecurityProfile.securityEncryptionType", _confidential),
    Rule("vm-uefi", ERROR, POOL, "Secure boot and vTPM need a security type that supports them.",
         "azure-batch 15.1, SecurityProfile.securityType", _uefi),
    Rule("vm-trusted-image", ERROR, POOL, "Trusted launch and confidential VMs start generation 2 images.", _TRUSTED,
         _trusted_generation),
    Rule("secure-boot-drivers", WARNING, POOL, "Secure boot is off where it would block the drivers of the size.",
         _TRUSTED, _secure_boot),
    Rule("disk-encryption", ERROR, POOL, "The operating system can encrypt the disks to encrypt.",
         "azure-batch, DiskEncryptionConfiguration.targets", _encryption),
    Rule("zonal-infiniband", ERROR, POOL, "Nodes that use InfiniBand are in one zone.",
         "Azure Batch: create-pool-availability-zones", _zonal),
    Rule("zones-twice", ERROR, POOL, "One property decides about the zones of the nodes.",
         "Azure Batch REST 2026-10-01, BatchNodePlacementConfiguration", _zone_choice),
    Rule("vm-sizes", ERROR, POOL, "The sizes of a pool are different, and their nodes are alike.",
         "Azure Batch REST 2026-10-01, VirtualMachineSkuProfile.vmSizes", _sizes),
    Rule("vm-sizes-new", WARNING, POOL, "Every size of a pool is in the catalogue.", _SIZES, _new_sizes),
    Rule("extension-names", ERROR, POOL, "Extensions have unique names and depend on existing extensions.",
         "azure-batch 15.1, VMExtension", _extensions),
)  # fmt: skip
