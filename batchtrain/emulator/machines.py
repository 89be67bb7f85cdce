"""A pool's virtual machine configuration: its image, and what Batch reserves; pure."""

from __future__ import annotations

from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.records import Document

PROPERTY = "virtualMachineConfiguration"
MARKETPLACE = ("publisher", "offer", "sku")
IMAGES = ("virtualMachineImageId", "sharedGalleryImageId", "communityGalleryImageId")
RESERVED = "customscript"
"""The type of the extension with which Batch itself sets up its nodes."""


def check(machine: Document, identity: object = None) -> None:
    """The configuration with defaults and without secrets. Raises Fault 400. `identity` is the pool's; only Resource
    Manager can set it."""
    _check_image(machine["imageReference"])
    if "customerManagedKey" in machine.get("diskEncryptionConfiguration", {}) and not identity:
        path = f"{PROPERTY}/diskEncryptionConfiguration/customerManagedKey"
        raise invalid_property(path, "", "Pool Identity is required when using CustomerManagedKey.")
    for index, extension in enumerate(machine.get("extensions", [])):
        if extension["type"].lower() == RESERVED:
            path = f"{PROPERTY}/extensions[{index}]/type"
            raise invalid_property(path, extension["type"], "This type of extension is reserved for Batch.")
        extension.pop("protectedSettings", None)


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
