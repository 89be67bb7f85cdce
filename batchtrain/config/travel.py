"""How the files of a task are sent, and how much fits into a request; pure.

The rules and the planner ask the same functions, so that what is valid can be planned.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import posixpath
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.config.patterns import late
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
    "Or write a storage account into credentials.yaml (of several, `batchtrain.storage_account_settings` names one),"
    " send data with `input_data` or `resource_files`, or put it into the container image of the task. `--local` (in"
    " Python `local=True`) accepts it unchanged"
)
"""Other ways if a source is too large."""
SHOWN = 3
"""Names of what is left out that are shown for each rule."""
_BLOCK, _RECORD = 512, 10_240
"""Sizes of a tar archive: a file begins at a block, and the end is padded to a record."""


_PATH = late(r"[^\s'\"`=:;&|<>()]+")


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
    line_ends: tuple[str, ...] = ()
    """Scripts with the line ends of Windows, which a shell and the kernel read as part of a word."""
    unsent: Mapping[str, str] = {}
    """Files and directories (with `/`) that a command names and that are not sent, each with the rule that leaves it
    out."""
    absent: str = ""
    """Of a path of `global_resources.files` that does not exist: the full path."""


class LeftOut(NamedTuple):
    """What a rule leaves out of a source: paths of files, and of directories with `/` at the end."""

    rule: str
    names: tuple[str, ...]


def paths_in(command: str) -> frozenset[str]:
    """The words of a command that may be paths, without `./` and the like."""
    return frozenset(map(posixpath.normpath, _PATH.findall(command)))


def left_out_of(path: str, names: Container[str]) -> str:
    """The name among those that are left out of a source for which a path is not sent: its own, or that of a directory
    with it; empty for a path that is sent."""
    *above, last = itertools.accumulate(posixpath.normpath(path).split("/"), lambda parent, name: f"{parent}/{name}")
    return next((name for name in (*(f"{parent}/" for parent in above), last, f"{last}/") if name in names), "")


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
    """A source with files that travel through storage as an archive of its own, which is uploaded once for all
    commands. The others travel with the files of the launch, so an edit of the program sends only these."""

    files: tuple[FileOnDisk, ...]
    """All files."""
    size: int
    """Bytes of the files in the archive."""
    digest: str
    """Of the files in the archive: depends on names, modes and bytes; the archive has the times of the first upload."""
    left_out: tuple[LeftOut, ...] = ()
    others: tuple[File, ...] = ()
    """The files that are not in the archive."""

    @property
    def archived(self) -> tuple[FileOnDisk, ...]:
        """The files in the archive."""
        names = {file.name for file in self.others}
        return tuple(file for file in self.files if file.name not in names)


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
    packer = _packer()
    return packer.compress(_tar(files)) + packer.flush()


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
    return larger((file.name, len(file.data)) for file in file_list)


def larger(files: Iterable[tuple[str, int]]) -> str:
    """Why the files of a source, with their sizes, do not fit into a request, and what to do."""
    sizes = Counter[str]()
    for name, size in files:
        top, slash, _ = name.partition("/")
        sizes[top + slash] += size
    by_size = sizes.most_common(SHOWN)
    largest = ", ".join(f"{printable(name)} ({size / 1024:,.0f} KiB)" for name, size in by_size)
    return (
        f"it has more than the {MOST_PACKED // 1024} KiB that fit into a request when packed; the largest entries are"
        f" {largest}. If the program needs no {printable(by_size[0][0])}, write `/{printable(by_size[0][0])}` into"
        f" `.batchtrainignore`. {EXITS}"
    )


def _packer() -> zlib._Compress:
    return zlib.compressobj(9, wbits=31)  # gzip, without a time


def _packs(data: bytes) -> bool:
    """Whether data fits when packed; stops as soon as it does not."""
    packer, size = _packer(), 0
    for start in range(0, len(data), 1 << 20):
        size += len(packer.compress(data[start : start + (1 << 20)]))
        if size > MOST_PACKED:
            return False
    return size + len(packer.flush()) <= MOST_PACKED


def through_storage(recipe: Recipe) -> bool:
    """Whether the recipe names a storage account for the files of tasks."""
    return recipe.settings.storage_account_settings in recipe.credentials.storage


def link_of(recipe: Recipe) -> str:
    """The storage account for a source that does not fit into a request: the one that the recipe names, or the only
    one of the credentials; empty without one."""
    if through_storage(recipe):
        return recipe.settings.storage_account_settings or ""
    links = tuple(recipe.credentials.storage)
    return links[0] if len(links) == 1 else ""


# --- texts ----------------------------------------------------------------------------------------------------------


def overlong(text: str | None) -> str:
    """Why a command is too long for a request; empty if it is not."""
    size = len(text.encode("utf-8", "surrogatepass")) if text and len(text) * 4 > MOST_TEXT else 0
    if size <= MOST_TEXT:
        return ""
    return f"it has {size:,} bytes, and a command {MOST_TEXT:,} at most; put it into a script in the task's `source`"
