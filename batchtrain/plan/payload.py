"""How a task's files travel: one archive, deterministic to the byte, inside the request or through storage.

Inside the request it is base64 in environment variables, cut in chunks the service and the kernel take, unpacked by
the first command of each instance and then unset. So a Batch account alone is enough.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from batchtrain.config import travel
from batchtrain.config.node_preparation import PACKED
from batchtrain.config.task_paths import LINKED
from batchtrain.errors import PlanError
from batchtrain.launchers import shell
from batchtrain.plan import wire

ARCHIVE = ".batchtrain-files.tar.gz"
SOURCE = ".batchtrain-source.tar.gz"
VARIABLE = PACKED
CHUNK = 32 * 1024
NAMES = 1000
"""Paths of at most 2 KiB that fit into the arguments of one program."""
LIMIT = 640 * 1024
"""Characters of all chunks: a `source` and commands as long as they may be, beside the launch's own files."""


class Carrier(NamedTuple):
    """How files travel: their part of the request, and the shell command that unpacks them (without single quotes)."""

    environment: tuple[wire.Environment, ...] = ()
    resource_files: tuple[wire.ResourceFile, ...] = ()
    unpack: str = ""
    forget: str = ""


def refuse_reserved(names: Iterable[str], where: str) -> None:
    """A source file may not take a name that Batch or the launcher uses in the task directory."""
    if wrong := travel.reserved(names):
        raise PlanError(f"{where}: {wrong}")


def inside_request(archive: bytes, where: str) -> Carrier:
    """Carries the archive in environment variables of the request."""
    text = base64.b64encode(archive).decode()
    if len(text) > LIMIT:
        raise PlanError(
            f"{where}: its files and commands have {len(archive) // 1024:,} KiB when packed, and"
            f" {LIMIT * 3 // 4096} KiB fit into a request; {travel.EXITS}"
        )
    chunks = [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]
    names = [f"{VARIABLE}{number}" for number in range(len(chunks))]
    references = "".join(f"${{{name}}}" for name in names)
    return Carrier(
        environment=tuple(wire.Environment(name=name, value=chunk) for name, chunk in zip(names, chunks, strict=True)),
        unpack=f'printf %s "{references}" | base64 -d | tar -xzf - -C "$AZ_BATCH_TASK_SHARED_DIR"',
        forget="unset " + " ".join(names),
    )


def through_storage(url: wire.Text, name: str, *, everywhere: bool) -> Carrier:
    """The archive as a resource file: a common one lands in the task directory, a task's own in `wd`."""
    directory = "$AZ_BATCH_TASK_SHARED_DIR" if everywhere else "$AZ_BATCH_TASK_WORKING_DIR"
    return Carrier(
        resource_files=(wire.ResourceFile(http_url=url, file_path=name),),
        unpack=f'tar -xzf "{directory}/{name}" -C "$AZ_BATCH_TASK_SHARED_DIR"',
        forget=":",
    )


_IS_THERE = "batchtrain: a file of the source has the name of a file that the task downloads; rename one of them"


def linked(names: Iterable[str]) -> str:
    """The part of a script that links files of the source into the working directory, in the first attempt."""
    tops = sorted({shell.word(name.split("/", 1)[0]) for name in names})
    link = 'cp -rs -- "${names[@]/#/"$AZ_BATCH_TASK_SHARED_DIR"/}" "$AZ_BATCH_TASK_WORKING_DIR"'
    return shell.block(
        "The files of the source, where the program starts. Directories are real, so that it can write to them:",
        f'if [ ! -e "$AZ_BATCH_TASK_WORKING_DIR/{LINKED}" ]; then',
        *(
            f"  names=({' '.join(tops[start : start + NAMES])})\n  {link} || {{ echo '{_IS_THERE}' >&2; exit 1; }}"
            for start in range(0, len(tops), NAMES)
        ),
        f'  : >"$AZ_BATCH_TASK_WORKING_DIR/{LINKED}"',
        "fi",
    )


def joined(carriers: Iterable[Carrier]) -> Carrier:
    """All of them, unpacked in this order."""
    parts = tuple(carriers)
    return Carrier(
        tuple(setting for carrier in parts for setting in carrier.environment),
        tuple(file for carrier in parts for file in carrier.resource_files),
        " && ".join(carrier.unpack for carrier in parts),
        parts[-1].forget,
    )


def blob_name(archive: bytes) -> str:
    """A name by content, so that the same files are uploaded once."""
    return f"{hashlib.sha256(archive).hexdigest()[:32]}.tar.gz"
