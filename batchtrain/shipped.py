"""The data files of batchtrain: the wheel includes them; a checkout has them beside the package."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """The directory `recipes`, `schemas`, `docs` or `docker`."""
    package = Path(__file__).resolve().parent
    carried = package / "_data"
    return (carried if carried.is_dir() else package.parent) / name
