"""Which local environment stands for a container image: a small file in the data directory."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

FILE = "images.json"


def list_images(data_dir: Path) -> dict[str, Path]:
    """Image name -> prefix of its environment."""
    try:
        found = json.loads((data_dir / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {image: Path(prefix) for image, prefix in found.items()}


def map_image(data_dir: Path, image: str, prefix: Path) -> None:
    """Let an environment stand for an image; also while the emulator runs."""
    _write(data_dir, {**_others(data_dir, image), image: prefix})


def unmap(data_dir: Path, image: str) -> bool:
    """Forget an image; False when nothing stood for it."""
    others = _others(data_dir, image)
    if len(others) == len(list_images(data_dir)):
        return False
    _write(data_dir, others)
    return True


def prefix_of(data_dir: Path, image: str) -> str | None:
    """The environment for an image, if one stands for it."""
    wanted = canonical(image)
    found = list_images(data_dir).items()
    return next((str(prefix) for name, prefix in found if canonical(name) == wanted), None)


def _others(data_dir: Path, image: str) -> dict[str, Path]:
    unwanted = canonical(image)
    return {name: prefix for name, prefix in list_images(data_dir).items() if canonical(name) != unwanted}


def canonical(image: str) -> str:
    """`ubuntu`, `docker.io/library/ubuntu` and `ubuntu:latest` are one image."""
    name = image.strip().removeprefix("docker.io/").removeprefix("library/")
    tagged = ":" in name.rpartition("/")[2] or "@" in name
    return name if tagged else f"{name}:latest"


def _write(data_dir: Path, images: Mapping[str, Path]) -> None:
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps({image: str(prefix) for image, prefix in sorted(images.items())}, indent=2)
    write_atomically(data_dir / FILE, text + "\n")


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """The old file or the new one, never half of either."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
    os.replace(name, path)  # noqa: PTH105 - Path.replace says less
