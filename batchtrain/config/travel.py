"""How the files of a task are sent, and how much fits into a request; pure.

The rules and the planner ask the same functions, so that what is valid can be planned.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.config.task_paths import RESERVED
from batchtrain.config.types import Recipe
from batchtrain.errors import printable

if TYPE_CHECKING:
    from batchtrain.launchers.launch import File

MOST_PACKED = 192 * 1024
"""Bytes of a packed `source` that fit into a request (1 MB) as base64 with the files of the launch."""
MOST_TEXT = 64 * 1024
"""Maximum bytes of a command; the kernel accepts 128 KiB in one argument."""
BLOB_STORE = "_local"
"""Replaces a storage link if the emulator stores the files; no link has such a name."""
EXITS = (
    "list what the program does not need in `.batchtrainignore`; send it through a storage account"
    " (`batchtrain.storage_account_settings`); move data out of it and send that with `input_data` or `resource_files`;"
    " or put it into the container image of the task. `--local` (in Python `local=True`) accepts it unchanged"
)
"""The next step if a source is too large."""
SHOWN = 3
"""Names of what is left out that are shown for each rule."""
_BLOCK, _RECORD = 512, 10_240
"""Sizes of a tar archive: a file begins at a block, and the end is padded to a record."""


class Survey(NamedTuple):
    """The survey of a `source` directory: the files to send, or why they cannot be sent."""

    names: tuple[str, ...] = ()
    rule: str = ""
    """The check that it breaks."""
    message: str = ""
    too_large: str = ""
    """Why it does not fit into a request."""
    syntax_errors: tuple[tuple[str, str], ...] = ()
    """Python files that this Python cannot compile: the name, and the line with the reason."""


class LeftOut(NamedTuple):
    """What a rule leaves out of a source: paths of files, and of directories with `/` at the end."""

    rule: str
    names: tuple[str, ...]


def listed(left_out: Iterable[LeftOut]) -> str:
    """What is left out of a source, in one line."""
    return ", ".join(
        f"{len(names):,} by {rule} ({', '.join(map(printable, names[:SHOWN]))}{', …' if names[SHOWN:] else ''})"
        for rule, names in left_out
    )


class Source(NamedTuple):
    """A source that travels in a request or with the files of its task."""

    files: tuple[File, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class FileOnDisk(NamedTuple):
    """One file of a large source; its bytes are read when they are sent."""

    name: str
    path: str
    mode: int
    sha256: str


class LargeSource(NamedTuple):
    """A source that travels through storage as an archive of its own, which is uploaded once for all commands."""

    files: tuple[FileOnDisk, ...]
    size: int
    """Bytes of all files."""
    digest: str
    """Depends on names, modes and bytes; the archive in storage has the times of the first upload."""
    left_out: tuple[LeftOut, ...] = ()


AnySource = Source | LargeSource


def digests(source: AnySource) -> list[tuple[str, str]]:
    """The name and SHA-256 of each file of a source."""
    if isinstance(source, LargeSource):
        return [(file.name, file.sha256) for file in source.files]
    return [(file.name, hashlib.sha256(file.data).hexdigest()) for file in source.files]


def reserved(names: Iterable[str]) -> str:
    """Why files must not have these names: Batch or the launcher uses them in the task's directory."""
    tops = sorted({top for name in names if (top := name.split("/", 1)[0]) in RESERVED})
    if not tops:
        return ""
    text = " and ".join(f"`{name}`" for name in tops)
    return f"{text} of it would replace files of the task directory; rename {'them' if len(tops) > 1 else 'it'}"


def archive(files: Iterable[File]) -> bytes:
    """A tar.gz of the files that depends only on their names, modes, times and bytes."""
    import gzip  # as below

    return gzip.compress(_tar(files), compresslevel=9, mtime=0)


def _tar(files: Iterable[File]) -> bytes:
    import tarfile  # slow imports (10 ms), which `config validate` of a small source avoids

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for file in sorted(files):
            entry = tarfile.TarInfo(file.name)
            entry.size, entry.mode, entry.mtime = len(file.data), file.mode, file.modified
            tar.addfile(entry, io.BytesIO(file.data))
    return buffer.getvalue()


def surely_fits(sizes: Iterable[int]) -> bool:
    """Whether files of these sizes fit even if they do not compress; saves reading and packing them."""
    return sum(size + 4 * _BLOCK for size in sizes) + 4 * _RECORD <= MOST_PACKED


def too_large(files: Iterable[File]) -> str:
    """Why the files of a source do not fit into a request, and what to do; empty if they fit."""
    file_list = tuple(files)
    if surely_fits(len(file.data) for file in file_list) or _packs(_tar(file_list)):
        return ""
    by_size = sorted(file_list, key=lambda file: -len(file.data))
    largest = ", ".join(f"{file.name} ({len(file.data) // 1024:,} KiB)" for file in by_size[:3])
    return (
        f"it has more than the {MOST_PACKED // 1024} KiB that fit into a request when packed; the largest files are"
        f" {largest}: {EXITS}"
    )


def _packs(data: bytes) -> bool:
    """Whether data fits when packed; stops as soon as it does not."""
    packer, size = zlib.compressobj(9, wbits=31), 0
    for start in range(0, len(data), 1 << 20):
        size += len(packer.compress(data[start : start + (1 << 20)]))
        if size > MOST_PACKED:
            return False
    return size + len(packer.flush()) <= MOST_PACKED


def through_storage(recipe: Recipe) -> bool:
    """Whether the recipe names a storage account for the files of tasks."""
    return recipe.settings.storage_account_settings in recipe.credentials.storage


def any_size(recipe: Recipe) -> bool:
    """Whether a source of any size can be sent: the recipe names a storage account, which may be the emulator's."""
    return bool(recipe.settings.storage_account_settings)


# --- texts ----------------------------------------------------------------------------------------------------------


def overlong(text: str | None) -> str:
    """Why a command is too long for a request; empty if it is not."""
    size = len(text.encode("utf-8", "surrogatepass")) if text and len(text) * 4 > MOST_TEXT else 0
    if size <= MOST_TEXT:
        return ""
    return f"it has {size:,} bytes, and a command {MOST_TEXT:,} at most; put it into a script in the task's `source`"
