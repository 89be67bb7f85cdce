"""VM sizes that the built-in tables lack: batchtrain writes those of `catalog.yaml` to a small file of the data
directory, and the emulator reads it when a pool names such a size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from batchtrain.catalog import sizes
from batchtrain.catalog.sizes import VmSize
from batchtrain.emulator.interface import Size
from batchtrain.emulator.mapped_images import write_atomically

FILE = "sizes.json"


def size_of(data_dir: Path, name: str) -> Size | None:
    """A VM size of the user or of the tables; None if neither has it."""
    if user_size := _sizes(data_dir).get(sizes.key(name)):
        return user_size
    size = sizes.find(name)
    return Size(size.cores, size.gpus) if size else None


def add(data_dir: Path, user_sizes: Iterable[VmSize]) -> None:
    """Add sizes, or replace those of the same name; also while the emulator runs."""
    existing_sizes = _sizes(data_dir)
    all_sizes = existing_sizes | {sizes.key(size.name): Size(size.cores, size.gpus) for size in user_sizes}
    if all_sizes != existing_sizes:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(data_dir / FILE, json.dumps({name: size._asdict() for name, size in all_sizes.items()}) + "\n")


def _sizes(data_dir: Path) -> dict[str, Size]:
    try:
        entries = json.loads((data_dir / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {name: Size(**entry) for name, entry in entries.items()}
