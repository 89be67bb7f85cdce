"""Which image fits which VM size: which ones start, which have its GPU driver, and which meet all needs of a pool."""

from __future__ import annotations

from collections.abc import Iterable

from batchtrain.catalog.sizes import VmSize
from batchtrain.catalog.vm_images import DOCKER, GEN2, NVIDIA, RDMA, ROCM, VOLTA, Image

# Series that support only generation 1. Azure: Support for generation 2 VMs (generation-2), size table.
GENERATION_1_FAMILIES = frozenset({
    "A", "A8-A11", "Av2", "D", "Dv2", "Dv3", "Ev3", "F", "G", "H", "NC", "NP", "NV",
})  # fmt: skip
VOLTA_GPUS = frozenset({"V100"})
"""GPUs that the driver of current images no longer supports. azhpc-images: the images with `v100` in their names."""


def only_generation_1(size: VmSize) -> bool:
    """Whether generation 2 images do not start on the size."""
    return size.family in GENERATION_1_FAMILIES


def architecture(image: Image) -> str:
    """The processors that an image is for: x64 or arm64."""
    return "arm64" if "arm64" in f"{image.offer} {image.sku}" else "x64"


def starts(size: VmSize, image: Image) -> bool:
    """Whether the size starts the image: its generation, and its processors."""
    if size.architecture != architecture(image):
        return False
    return not only_generation_1(size) if GEN2 in image.capabilities else size.generation == 1


def driver(size: VmSize) -> frozenset[str]:
    """The capabilities with which an image drives the GPUs of a size; none without GPUs."""
    if not size.gpus:
        return frozenset()
    if size.gpu_vendor == "amd":
        return frozenset({ROCM})
    return frozenset({NVIDIA, VOLTA} if size.gpu_model in VOLTA_GPUS else {NVIDIA})


def takes_nvidia_driver(size: VmSize | None) -> bool:
    """Whether a driver of NVIDIA installs on the size: it has such GPUs, or the catalogue does not have it."""
    return size is None or (size.gpus > 0 and size.gpu_vendor == "nvidia")


def needs(size: VmSize | None, *, os: str, containers: bool, rdma: bool) -> frozenset[str]:
    """The capabilities of an image that meets all needs of a pool; drivers are required of Linux images only.

    containers, rdma: whether tasks run in containers, and whether they use the size's InfiniBand.
    """
    capabilities = {DOCKER} if containers else set()
    if size is not None and os == "linux":
        capabilities |= driver(size) | ({RDMA} if rdma and size.rdma else set())
    return frozenset(capabilities)


def image_for(
    images: Iterable[Image], traits: frozenset[str], *, os: str, size: VmSize | None = None, like: Image | None = None
) -> Image | None:
    """The image with the wanted capabilities and the fewest others that starts on the size and has no announced end of
    support.

    like: an image whose publisher is preferred in a tie. Returns None if no image meets all needs.
    """
    fitting = [
        image
        for image in images
        if traits <= image.capabilities
        and (VOLTA in image.capabilities) == (VOLTA in traits)
        and (image.os, image.retired) == (os, None)
        and image.node_agent
        and (size is None or starts(size, image))
    ]
    publisher = like.publisher if like is not None else ""

    def least(image: Image) -> tuple[int, bool, bool]:
        return len(image.capabilities - traits - {GEN2}), GEN2 not in image.capabilities, image.publisher != publisher

    return min(fitting, key=least, default=None)
