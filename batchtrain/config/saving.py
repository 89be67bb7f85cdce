"""Writes the types of the language as the YAML files that `load` reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from batchtrain.config import yaml_text
from batchtrain.config.types.base import Block
from batchtrain.errors import UsageError

HEAD = "# {about}\n# Its properties: batchtrain help config\n"


def rendered(block: Block) -> str:
    """The text of one file."""
    about = (type(block).__dict__.get("__doc__") or "").strip()
    return HEAD.format(about=about) + yaml_text.document(block)


def whole(files: Mapping[str, Block], schema: str) -> str:
    """The text of batchtrain.yaml, with the sections of all files. schema: the path of its schema, for editors."""
    parts = "".join(yaml_text.document(block) for block in files.values())
    about = "A whole recipe in one file; accounts and secrets stand in a credentials.yaml beside it."
    return f"# yaml-language-server: $schema={schema}\n{HEAD.format(about=about)}{parts}"


def write(directory: str | Path, files: Mapping[str, Block]) -> None:
    """Write the files, by name without suffix. Raises UsageError for a file with another content."""
    target = Path(directory)
    texts = {target / f"{name}.yaml": rendered(block) for name, block in files.items()}
    for file, text in texts.items():
        if file.exists() and file.read_text(encoding="utf-8") != text:
            raise UsageError(f"{file} exists with another content; remove it, or save to another directory")
    target.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")


def moved(path: str, old: str, new: str | Path) -> str:
    """A relative path, as seen from another directory; an absolute path is unchanged."""
    if Path(path).is_absolute():
        return path
    return os.path.relpath(Path(old) / path, new)
