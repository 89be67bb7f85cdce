"""The archive of a large source, which is uploaded once for each content."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from batchtrain.config.travel import FileOnDisk, LargeSource
from batchtrain.errors import PlanError
from batchtrain.storage import blob
from batchtrain.storage.blob_requests import PIECE, Storage
from batchtrain.storage.ingress import bring, walk

LEVEL = 1
"""Of compression: large files are mostly data, and more costs minutes for a few per cent."""


def send(storage: Storage, container: str, name: str, source: LargeSource) -> None:
    """Pack and upload a source, unless its content is there: the name of the archive contains its digest. The archive
    depends only on names, modes, times and bytes, so an interrupted upload continues.

    Raises ServiceError, and PlanError for a file that has changed since the plan was made.
    """
    blob.make_container(storage, container)
    if any(blob.stored(storage, container, name)):
        return
    with packed(source, name) as file:
        bring(storage, f"storage/{container}", "", list(walk(file))).check()


@contextlib.contextmanager
def packed(source: LargeSource, name: str) -> Iterator[Path]:
    """The archive of a large source as a temporary file of this name. Raises PlanError as `send`."""
    with tempfile.TemporaryDirectory(prefix="batchtrain-source-") as folder:
        file = Path(folder, name)
        with (
            file.open("wb") as target,
            gzip.GzipFile(fileobj=target, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as archive,
            tarfile.open(fileobj=archive, mode="w|", format=tarfile.GNU_FORMAT) as tar,
        ):
            for source_file in source.archived:
                _add(tar, source_file)
        yield file


def _add(tar: tarfile.TarFile, file: FileOnDisk) -> None:
    with open(file.path, "rb") as content:
        entry = tarfile.TarInfo(file.name)
        status = os.fstat(content.fileno())
        entry.size, entry.mode, entry.mtime = status.st_size, file.mode, int(status.st_mtime)
        reader = _Hashed(content)
        tar.addfile(entry, reader)
    if reader.digest.hexdigest() != file.sha256:
        raise PlanError(f"the source file {file.path} has changed since the plan was made; run the command again")


class _Hashed:
    """A file that hashes what is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = PIECE) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece
