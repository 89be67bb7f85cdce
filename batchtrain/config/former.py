"""Whether the checkpoints that batchtrain before 2026-11 wrote may be those of a project."""

from __future__ import annotations

from pathlib import Path

from batchtrain.config.projects import FILE


def has_former(directory: str) -> bool:
    """Whether the recipe in a directory may be older than projects. A project with a file is newer: a copy, a restored
    run, or one that `recipe new` made."""
    return not Path(directory, FILE).exists()
