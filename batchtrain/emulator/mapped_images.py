"""Mapped images: which local environment is used in place of a container image.

Stored in a small file of the data directory.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from batchtrain import state_files

FILE, LOCK_FILE = "images.json", "images.lock"
ACCOUNTS = "accounts"
"""The folder of a data directory with those of its other accounts, which share its images and its storage."""
MACHINES_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The default PATH of Debian: where commands of a node find programs besides those of the environment."""


class Mapped(NamedTuple):
    """The environment of a mapped image."""

    prefix: Path
    entrypoint: str = ""
    """The program, with its first arguments, that gets the command line of a task as further arguments."""
    paths: Mapping[str, Path] = {}
    """Local directories that nodes show at paths of the image."""


def user_data() -> Path:
    """The directory for what batchtrain keeps for this user."""
    from platformdirs import user_data_path  # only where no variable names the directory

    return user_data_path("batchtrain")


def account_dir(data_dir: Path, account: str) -> Path:
    """The data directory of another account of an emulator."""
    return data_dir / ACCOUNTS / account


def main_dir(data_dir: Path) -> Path:
    """The data directory of the emulator that an account belongs to; its own for the first one."""
    return data_dir.parent.parent if data_dir.parent.name == ACCOUNTS else data_dir


class _Entry(msgspec.Struct):
    """A mapped image in the file, unless it is the prefix alone, as older versions wrote it."""

    prefix: str
    entrypoint: str = ""
    paths: dict[str, str] = {}

    @property
    def mapped(self) -> Mapped:
        return Mapped(Path(self.prefix), self.entrypoint, {path: Path(local) for path, local in self.paths.items()})


def list_images(data_dir: Path) -> dict[str, Mapped]:
    """All mapped images, with their environments. Raises DamagedState."""
    loss = "`batchtrain emulator images map` and `batchtrain images env` map images again"
    entries = state_files.read(main_dir(data_dir) / FILE, dict[str, str | _Entry], loss) or {}
    return {image: (_Entry(entry) if isinstance(entry, str) else entry).mapped for image, entry in entries.items()}


def map_image(
    data_dir: Path, image: str, prefix: Path, entrypoint: str = "", paths: Mapping[str, Path] | None = None
) -> None:
    """Map an image to an environment; also while the emulator runs."""
    with alone(main_dir(data_dir)):
        _write(data_dir, {**_others(data_dir, image), image: Mapped(prefix, entrypoint, paths or {})})


def unmap(data_dir: Path, image: str) -> bool:
    """Remove the mapping of an image; returns False if there was none."""
    with alone(main_dir(data_dir)):
        others = _others(data_dir, image)
        if len(others) == len(list_images(data_dir)):
            return False
        _write(data_dir, others)
    return True


def prefix_of(data_dir: Path, image: str) -> str | None:
    """The environment of an image, or None."""
    mapping = mapped(data_dir, image)
    return str(mapping.prefix) if mapping else None


def mapped(data_dir: Path, image: str) -> Mapped | None:
    """The mapping of an image, or None."""
    name_to_find = canonical(image)
    return next((mapping for name, mapping in list_images(data_dir).items() if canonical(name) == name_to_find), None)


def problem(prefix: Path) -> str:
    """Why a directory cannot be used in place of an image; empty if it can."""
    if not prefix.is_dir():
        return "is not there"
    if not (prefix / "bin").is_dir():
        return "is no environment: it has no bin directory"
    return "" if any((prefix / "bin").iterdir()) else "is no environment: its bin directory is empty"


def unserved(image: str, missing: str, directory: str = "DIR") -> str:
    """How to run an image without a mapping. missing: why no container engine runs it. directory: of the recipe."""
    return (
        f"No container engine runs the image {image} here: {missing}. Start a Docker Engine, or run its tasks"
        f" in a local environment: `batchtrain images env {shlex.quote(directory)}` makes it for a recipe of"
        " batchtrain and for a `source` with requirements.txt or pyproject.toml,"
        f" `batchtrain emulator images map {image} PREFIX` uses your own (PREFIX is its directory, such as `.venv`)"
    )


def unusable(image: str, prefix: str, problem: str) -> str:
    """The problem of a mapping, and the next step."""
    return (
        f"image {image} is mapped to {prefix}, which {problem}: map it to another environment,"
        f" `batchtrain emulator images map {image} PREFIX`, or forget it, `batchtrain emulator images unmap {image}`"
    )


def impossible(targets: Iterable[str], why: str, remedy: str) -> str:
    """Why a node without namespaces does not run a task. why: the reason; remedy: how to change it."""
    return (
        f"the nodes of this emulator cannot show the task's directories {', '.join(targets)} at these paths, because"
        f" they are plain processes of this machine ({why}; {remedy})"
    )


def _others(data_dir: Path, image: str) -> dict[str, Mapped]:
    excluded_name = canonical(image)
    return {name: mapping for name, mapping in list_images(data_dir).items() if canonical(name) != excluded_name}


def canonical(image: str) -> str:
    """`ubuntu`, `docker.io/library/ubuntu` and `ubuntu:latest` are one image."""
    name = image.strip().removeprefix("docker.io/").removeprefix("library/")
    has_tag = ":" in name.rpartition("/")[2] or "@" in name
    return name if has_tag else f"{name}:latest"


def _write(data_dir: Path, images: Mapping[str, Mapped]) -> None:
    entries = {
        image: _Entry(str(prefix), entrypoint, {path: str(local) for path, local in paths.items()})
        if entrypoint or paths
        else str(prefix)
        for image, (prefix, entrypoint, paths) in sorted(images.items())
    }
    state_files.write_atomically(main_dir(data_dir) / FILE, msgspec.json.format(msgspec.json.encode(entries)) + b"\n")


@contextmanager
def alone(data_dir: Path) -> Iterator[None]:
    """While no other process rewrites the files of images and sizes."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with state_files.lock_file(data_dir / LOCK_FILE) as lock:
        state_files.lock(lock)
        yield
