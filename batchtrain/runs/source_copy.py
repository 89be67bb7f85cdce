"""The copy of what a run was made of: source.tar.gz with the files of its `source`, source.json with their digests,
uncommitted.diff with what git had not committed of them, and the digests of its input data."""

from __future__ import annotations

import difflib
import errno
import gzip
import hashlib
import io
import itertools
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from msgspec.structs import replace

from batchtrain import state_files
from batchtrain.config.ids import name_as_text
from batchtrain.config.masking import masked_yaml
from batchtrain.config.source_directory import CREDENTIALS_NAME
from batchtrain.config.travel import AnySource, LargeSource, LeftOut
from batchtrain.config.types import Job, Recipe, Secret, Task, bytes_of
from batchtrain.errors import BatchtrainError, UsageError
from batchtrain.runs.beginnings import git
from batchtrain.runs.directory import LOSS, RunDirectory

Blobs = Callable[[str], Iterable[Any]]
"""Lists the blobs of `LINK/CONTAINER/PREFIX`, each with its name, size, MD5 and version. Raises ServiceError."""
ARCHIVE, RECORD, DIFFERENCE = "source.tar.gz", "source.json", "uncommitted.diff"
MOST_BLOBS = 1000
"""Blobs of an input whose digests are kept one by one; the digest of the input is that of all that were listed."""
LISTED = 100_000
"""Blobs of an input that are listed."""
MOST_PAIRS = 4_000_000
"""Pairs of lines of two files that are compared: a second."""
MOST_LEFT_OUT = 1000
SHORT = 12
"""Characters of a digest that are shown."""
MOST_EXPANSION, SMALL = 100, 64 << 20
"""How many times larger an archive may be when it is unpacked, from how many bytes on. Sources are 3 to 20 times."""
LAST_TIME = 1 << 33
"""Seconds since 1970 that every file system takes."""
LEVEL = 3
"""Of gzip: a tenth larger than 9 in a quarter of the time."""


class SourceFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a source."""

    name: str
    size: int
    mode: int
    sha256: str
    """Of what was sent."""
    masked: bool = False
    """Whether the copy has `***` in place of a secret of the recipe."""


class SourceDirectory(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `source` of the recipe."""

    name: str
    """As the recipe writes it."""
    folder: str
    """Its directory in the archive."""
    files: tuple[SourceFile, ...]
    left_out: dict[str, tuple[str, ...]] = {}
    """By rule, the first MOST_LEFT_OUT names that are not sent: those of directories have `/` at the end."""


class InputDigest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of an `input_data` as it was when the run began."""

    source: str
    """`LINK/CONTAINER/PREFIX`."""
    files: int = 0
    size: int = 0
    digest: str = ""
    """Of the names, sizes and digests of all blobs."""
    blobs: dict[str, str] = {}
    """The MD5 of each blob in hexadecimal, or its ETag if the sender stored none; of the first MOST_BLOBS."""
    reason: str = ""
    """Why nothing is known."""


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """source.json."""

    kept: bool
    """Whether source.tar.gz has the files."""
    reason: str = ""
    """Why it has not."""
    sources: tuple[SourceDirectory, ...] = ()
    uncommitted: bool = False
    """Whether there is an uncommitted.diff."""
    inputs: tuple[InputDigest, ...] = ()


class _Entry(NamedTuple):
    """A file as it is sent, and how to read it."""

    name: str
    mode: int
    sha256: str
    size: int
    modified: int
    path: Path | None
    data: bytes

    def read(self) -> bytes:
        return self.path.read_bytes() if self.path else self.data


_Entries = Mapping[str, tuple[_Entry, ...]]
"""The files of each source, by its name as written."""


def keep(
    run: RunDirectory,
    recipe: Recipe,
    job: Job,
    sources: Mapping[str, AnySource],
    *,
    secrets: tuple[Secret, ...] = (),
    config_files: Iterable[str] = (),
    dirty: bool = False,
    blobs: Blobs | None = None,
) -> str:
    """Write the copy into a run directory; returns why the files were not kept, or an empty text. config_files: the
    YAML files of the recipe. dirty: whether git has uncommitted changes. blobs: lists the input data in storage
    accounts, for its digests."""
    config = frozenset(Path(path).resolve() for path in config_files)
    settings = recipe.settings.source_copy
    names = dict.fromkeys(task.source for task in tasks_of(job) if task.source is not None)
    entries = {name: tuple(_entries(sources[name])) for name in names if name in sources}
    size = sum(file.size for files in entries.values() for file in files)
    reason = "" if settings.enabled else "`source_copy.enabled` is false"
    if settings.enabled and size > bytes_of(settings.max_size):
        reason = f"it has {size:,} bytes, and `source_copy.max_size` is {settings.max_size}"
    keeps = not reason and bool(entries)
    directory = Path(recipe.directory).resolve()
    packed = _pack(run, directory, entries, config, secrets) if keeps else _digests(entries)
    directories = [replace(source, left_out=_left_out(sources[source.name])) for source in packed]
    difference = _uncommitted(directory, entries, config, secrets) if dirty and settings.enabled else ""
    if difference:
        run.replace(run.path / DIFFERENCE, difference.encode())
    items = (item for task in tasks_of(job) for item in task.input_data.azure_storage if not item.is_file_share)
    paths = dict.fromkeys(f"{item.storage_account_settings}/{item.remote_path.strip('/')}" for item in items)
    inputs = tuple(_input(path, blobs) for path in paths if "{" not in path) if blobs else ()  # a factory fills it in
    if not (entries or difference or inputs):
        return ""
    record = SourceRecord(
        kept=keeps, reason=reason, sources=tuple(directories), uncommitted=bool(difference), inputs=inputs
    )
    run.replace(run.path / RECORD, msgspec.json.format(msgspec.json.encode(record)) + b"\n")
    return reason if entries else ""


def read(run: RunDirectory) -> SourceRecord | None:
    """source.json; None for a run without one. Raises DamagedState if it cannot be read."""
    return state_files.read(run.path / RECORD, SourceRecord, LOSS)


def left_out(run: RunDirectory) -> tuple[LeftOut, ...]:
    """What was left out of the sources of a run. Raises DamagedState."""
    copy = read(run)
    return tuple(LeftOut(*of_rule) for source in copy.sources for of_rule in source.left_out.items()) if copy else ()


def short_digests(run: RunDirectory) -> dict[str, str]:
    """The digests of the source and of each input, as a comparison of runs shows them."""
    copy = read(run)
    if copy is None:
        return {}
    digests = sorted(f"{file.name} {file.sha256}" for source in copy.sources for file in source.files)
    source = {"source": hashlib.sha256("\n".join(digests).encode()).hexdigest()} if digests else {}
    inputs = {f"input {data.source}": data.digest for data in copy.inputs}
    return {name: digest[:SHORT] for name, digest in {**source, **inputs}.items()}


def files_of(run: RunDirectory, directory: SourceDirectory) -> Iterator[tuple[SourceFile, bytes | None, float | None]]:
    """The files of a source with their bytes and times of modification (seconds since 1970). One that is no regular
    file has None for its bytes. Raises UsageError for an archive that cannot be read, and for one that unpacks to much
    more than its size."""
    path = run.path / ARCHIVE
    missing_files = {f"{directory.folder}/{file.name}": file for file in directory.files}
    try:
        with (
            state_files.opened(path) as packed,
            gzip.GzipFile(fileobj=packed) as unpacked,
            tarfile.open(fileobj=_Bounded(unpacked, os.fstat(packed.fileno()).st_size), mode="r|") as archive,
        ):
            for member in archive:
                if (file := missing_files.pop(member.name, None)) is not None:
                    is_plain = member.isreg() and not member.issparse()  # a sparse file has any size
                    content = archive.extractfile(member) if is_plain else None
                    is_time = 0 <= member.mtime < LAST_TIME
                    yield file, None if content is None else content.read(), member.mtime if is_time else None
    except (*state_files.UNREADABLE, EOFError, zlib.error, tarfile.TarError, ArithmeticError, LookupError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if missing_files:
        raise UsageError(f"{path} cannot be read: it has no {next(iter(missing_files))}")


class _Bounded(io.RawIOBase):
    """The bytes of an archive. Raises OSError if they are many more than the archive has."""

    def __init__(self, unpacked: io.BufferedIOBase, size: int) -> None:
        super().__init__()
        self._unpacked, self._left = unpacked, max(SMALL, size * MOST_EXPANSION)

    def read(self, size: int = -1) -> bytes:
        content = self._unpacked.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise OSError(errno.EFBIG, f"it unpacks to more than {MOST_EXPANSION} times its size")
        return content


def tasks_of(job: Job) -> Iterator[Task]:
    yield from job.tasks
    if job.merge_task is not None:
        yield job.merge_task


def _entries(source: AnySource) -> Iterator[_Entry]:
    if isinstance(source, LargeSource):
        for file in source.files:
            path = Path(file.path)
            yield _Entry(file.name, file.mode, file.sha256, path.stat().st_size, int(path.stat().st_mtime), path, b"")
        return
    for item in source.files:
        yield _Entry(
            item.name, item.mode, hashlib.sha256(item.data).hexdigest(), len(item.data), item.modified, None, item.data
        )


def _left_out(source: AnySource) -> dict[str, tuple[str, ...]]:
    return {rule: tuple(map(name_as_text, names[:MOST_LEFT_OUT])) for rule, names in source.left_out}


def _digests(entries: _Entries) -> Iterator[SourceDirectory]:
    """The digests alone."""
    for number, (name, files) in enumerate(entries.items()):
        yield SourceDirectory(
            name,
            str(number),
            tuple(SourceFile(name_as_text(file.name), file.size, file.mode, file.sha256) for file in files),
        )


def _pack(
    run: RunDirectory, directory: Path, entries: _Entries, config: frozenset[Path], secrets: tuple[Secret, ...]
) -> list[SourceDirectory]:
    """Write the archive, without the secrets of the recipe wherever they were written."""
    directories = []
    with (
        run.open(run.path / ARCHIVE, "wb") as file,
        gzip.GzipFile("", "wb", LEVEL, file, 0) as gzip_file,
        tarfile.open(fileobj=gzip_file, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for source in _digests(entries):
            files = []
            for entry, digest in zip(entries[source.name], source.files, strict=True):
                data, path = entry.read(), (directory / source.name / entry.name).resolve()
                text = _masked(data, secrets, is_config=path in config)
                member = tarfile.TarInfo(f"{source.folder}/{digest.name}")
                member.size, member.mode, member.mtime = len(text), entry.mode, entry.modified
                archive.addfile(member, io.BytesIO(text))
                files.append(replace(digest, masked=text != data))
            directories.append(replace(source, files=tuple(files)))
    return directories


def _masked(data: bytes, secrets: tuple[Secret, ...], *, is_config: bool) -> bytes:
    """The bytes with `***` in place of each secret; in a file of the recipe also of values by their names."""
    text = data.decode("utf-8", "surrogateescape")
    if is_config:
        try:
            return masked_yaml(text.removeprefix("\ufeff"), secrets).encode("utf-8", "surrogateescape")
        except yaml.YAMLError:
            return b""  # it cannot be searched for secrets
    for secret in secrets:
        text = secret.masked_in(text)
    return text.encode("utf-8", "surrogateescape")


def _uncommitted(directory: Path, entries: _Entries, config: frozenset[Path], secrets: tuple[Secret, ...]) -> str:
    """How the files of the recipe and of its sources differ from the commit, both sides without secrets; empty without
    git. Only files that are kept count, so that what the ignore rules leave out stays out."""
    sources = {(directory / name / file.name).resolve() for name, files in entries.items() for file in files}
    settings = {path for path in config if not CREDENTIALS_NAME.fullmatch(path.name)}
    top = Path(git(directory, "rev-parse", "--show-toplevel").rstrip("\n"))
    names = git(top, "diff", "HEAD", "--name-only", "--no-ext-diff", "-z").split("\0")
    parts = []
    for name in sorted(filter(None, names)):
        path = top / name
        if path in sources | settings:
            original = git(top, "cat-file", "blob", f"HEAD:{name}").encode()  # without filters, which may decrypt
            sides = original, path.read_bytes() if path.exists() else b""
            before, after = (_masked(side, secrets, is_config=path in settings) for side in sides)
            parts.append(difference(f"a/{name}" if original else "/dev/null", before, f"b/{name}", after))
    return "".join(parts)


def difference(first: str, before: bytes, second: str, after: bytes) -> str:
    """The unified difference of two files with their names. In long files of which much differs, where it would take
    minutes, all lines are replaced."""
    try:
        lines = [side.decode().split("\n") for side in (before, after)]
    except UnicodeDecodeError:
        return f"binary files {first} and {second} differ\n"
    old, new = ([f"{line}\n" for line in side[:-1]] + side[-1:] * bool(side[-1]) for side in lines)
    same = equal(old, new)
    same += equal(old[same:][::-1], new[same:][::-1])
    changed: Iterable[str]
    if (len(old) - same) * (len(new) - same) <= MOST_PAIRS:
        changed = difflib.unified_diff(old, new, first, second)
    else:
        head = (f"--- {first}\n", f"+++ {second}\n", f"@@ -1,{len(old)} +1,{len(new)} @@\n")
        changed = (*head, *(f"-{line}" for line in old), *(f"+{line}" for line in new))
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in changed)


def equal(before: list[str], after: list[str]) -> int:
    """How many lines, or words, at the beginning are equal."""
    different = (number for number, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    return next(different, min(len(before), len(after)))


# --- input data -----------------------------------------------------------------------------------------------------


def _input(source: str, blobs: Blobs) -> InputDigest:
    digest, by_name, files, size = hashlib.sha256(), dict[str, str](), 0, 0
    try:
        for item in itertools.islice(blobs(source), LISTED + 1):
            if files == LISTED:
                return InputDigest(source, files, size, blobs=by_name, reason=f"it has more than {LISTED:,} blobs")
            version = item.md5.hex() if item.md5 else item.version
            digest.update(f"{item.name}\0{item.size}\0{version}\0".encode())
            files, size = files + 1, size + item.size
            if files <= MOST_BLOBS:
                by_name[item.name] = version
    except BatchtrainError as error:
        return InputDigest(source, reason=str(error))
    return InputDigest(source, files, size, digest.hexdigest(), by_name)
