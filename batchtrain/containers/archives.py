"""Saves images to archives and loads them: an archive on storage replaces a registry."""

from __future__ import annotations

import contextlib
import gzip
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from batchtrain.containers.engine import WORDS, Engine
from batchtrain.errors import NotFound, ServiceError, UsageError

PACKED = (".gz", ".tgz")
LEVEL = 1
"""The level of compression: layers are large, and a higher level takes minutes for a few per cent."""
PART = 1 << 20


class Saved(NamedTuple):
    """An archive that was written."""

    file: Path
    size: int


def save(engine: Engine, names: Sequence[str], file: Path) -> Saved:
    """Write images to one archive atomically; it is compressed if its name ends with .gz or .tgz.

    Raises UsageError for a directory, a device or a pipe, NotFound for an image that the engine does not have,
    ServiceError.
    """
    if file.exists() and not file.is_file():
        raise UsageError(f"{file} is not a regular file; name a file for the archive")
    for name in names:
        if engine.image(name) is None:
            raise NotFound(f"{name} is not on this engine; build or pull it first")
    path = file.resolve()  # a link is kept
    part = path.with_name(f"{path.name}.part")
    try:
        with engine.output("save", *names) as output, part.open("wb") as target, _packed(target, file) as stream:
            shutil.copyfileobj(output, stream, PART)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return Saved(file, file.stat().st_size)


@contextlib.contextmanager
def _packed(target: IO[bytes], file: Path) -> Iterator[IO[bytes]]:
    if not file.name.endswith(PACKED):
        yield target
        return
    with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as stream:
        yield stream  # type: ignore[misc]  # it writes bytes, which is all that is asked of it


def load(engine: Engine, file: Path) -> tuple[str, ...]:
    """Load the images of an archive into the engine; returns their names. Raises ServiceError."""
    with file.open("rb"):  # raises OSError with the name
        answer = engine.ask("load", "--input", str(file), patience=None)
    if answer.code != 0:
        raise ServiceError(f"{file} was not taken: {answer.error[-WORDS:]}")
    return tuple(line.partition(": ")[2] for line in answer.out.splitlines() if line.startswith("Loaded image"))
