"""A pool's virtual machine configuration: its image, and what Batch reserves; pure."""

from __future__ import annotations

from batchtrain.catalog import vm_images
from batchtrain.catalog.vm_images import Image
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.records import Document
from batchtrain.emulator.world import World

PROPERTY = "virtualMachineConfiguration"
MARKETPLACE = ("publisher", "offer", "sku")
IMAGES = ("virtualMachineImageId", "sharedGalleryImageId", "communityGalleryImageId")
UNKNOWN_IMAGE = (
    "The image is not known. Describe it in a catalog.yaml beside your files; batchtrain gives it to the emulator."
)
UNKNOWN_AGENT = "The node agent is not known. GET /supportedimages lists those of today."
RESERVED = "customscript"
"""The type of the extension with which Batch itself sets up its nodes."""


def check(world: World, machine: Document, identity: object) -> tuple[Image | None, str]:
    """The marketplace image of a configuration, or None for one of a gallery, and its system: linux or windows. The
    configuration gets its defaults. Raises Fault 400. `identity` is the pool's; only Resource
    Manager can set it."""
    _check_image(machine["imageReference"])
    image, system = image_and_system(world, machine)
    if "publisher" in machine["imageReference"] and image is None:
        names = ":".join(machine["imageReference"].values())
        raise invalid_property(f"{PROPERTY}/imageReference", names, UNKNOWN_IMAGE)
    if not system:
        raise invalid_property(f"{PROPERTY}/nodeAgentSKUId", machine["nodeAgentSKUId"], UNKNOWN_AGENT)
    if "customerManagedKey" in machine.get("diskEncryptionConfiguration", {}) and not identity:
        path = f"{PROPERTY}/diskEncryptionConfiguration/customerManagedKey"
        raise invalid_property(path, "", "Pool Identity is required when using CustomerManagedKey.")
    for disk in machine.get("dataDisks", []):
        disk.setdefault("caching", "none")
        disk.setdefault("managedDisk", {}).setdefault("storageAccountType", "standard_lrs")
    for index, extension in enumerate(machine.get("extensions", [])):
        if extension["type"].lower() == RESERVED:
            path = f"{PROPERTY}/extensions[{index}]/type"
            raise invalid_property(path, extension["type"], "This type of extension is reserved for Batch.")
    return image, system


def image_and_system(world: World, machine: Document) -> tuple[Image | None, str]:
    """The marketplace image of the tables, or None; and the system by the image or the node agent, empty if no table
    has it."""
    reference, images = machine["imageReference"], world.images()
    image = None
    if "publisher" in reference:
        image = vm_images.find(reference["publisher"], reference["offer"], reference["sku"], images)
    if image is not None and not image.node_agent:
        return image, image.os
    systems = {entry.node_agent.lower(): entry.os for entry in images}
    return image, systems.get(machine["nodeAgentSKUId"].lower(), "")


def _check_image(image: Document) -> None:
    """A marketplace image with all its names, or the id of a gallery image."""
    path = f"{PROPERTY}/imageReference"
    ids = [name for name in IMAGES if name in image]
    if ids and len(image) > 1:
        reason = f"{ids[0]} is mutually exclusive with the other properties of an image reference."
        raise invalid_property(path, ", ".join(image), reason)
    if ids:
        return
    for name in MARKETPLACE:
        if name not in image:
            raise Fault("MissingRequiredProperty", PropertyName=f"{path}/{name}")
    image.setdefault("version", "latest")
