"""VM sizes and images that the built-in tables lack: batchtrain writes those of `catalog.yaml` to small files of the
data directory, and the emulator reads them when a pool is made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from batchtrain import state_files
from batchtrain.catalog import sizes, vm_images
from batchtrain.catalog.sizes import VmSize
from batchtrain.catalog.vm_images import Image
from batchtrain.emulator.interface import Size
from batchtrain.emulator.mapped_images import alone

SIZES, IMAGES = "sizes.json", "vm-images.json"  # images.json is that of mapped_images.py
_LOSS = "the next command with your catalog.yaml writes its entries again"


def check(data_dir: Path) -> None:
    """Raise DamagedState for a file that cannot be read."""
    _sizes(data_dir)
    _images(data_dir)


def size_of(data_dir: Path, name: str) -> Size | None:
    """A VM size of the user or of the tables; None if neither has it."""
    if user_size := _sizes(data_dir).get(sizes.key(name)):
        return user_size
    size = sizes.find(name)
    return Size(size.cores, size.gpus) if size else None


def images(data_dir: Path) -> tuple[Image, ...]:
    """The images of the user, then those of the tables."""
    return (*_images(data_dir), *vm_images.EVERY)


def add(data_dir: Path, user_sizes: Iterable[VmSize], user_images: Iterable[Image] = ()) -> None:
    """Add sizes and images, or replace those of the same name; also while the emulator runs."""
    with alone(data_dir):
        existing_sizes, existing_images = _sizes(data_dir), _images(data_dir)
        all_sizes = existing_sizes | {sizes.key(size.name): Size(size.cores, size.gpus) for size in user_sizes}
        all_images = {image[:3]: image for image in (*existing_images, *user_images)}
        if all_sizes != existing_sizes:
            state_files.write_atomically(data_dir / SIZES, msgspec.json.encode(all_sizes) + b"\n")
        if tuple(all_images.values()) != existing_images:
            state_files.write_atomically(data_dir / IMAGES, msgspec.json.encode(list(all_images.values())) + b"\n")


def _sizes(data_dir: Path) -> dict[str, Size]:
    return state_files.read(data_dir / SIZES, dict[str, Size], _LOSS) or {}


def _images(data_dir: Path) -> tuple[Image, ...]:
    return state_files.read(data_dir / IMAGES, tuple[Image, ...], _LOSS) or ()
