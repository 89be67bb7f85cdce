"""Finds private keys in the layers of an image; a key that a later layer deletes is still in the image."""

from __future__ import annotations

import contextlib
import io
import re
import tarfile
from collections.abc import Iterator
from typing import IO, cast

from batchtrain.containers.engine import Engine

_PLACES = re.compile(r"(.*/)?(ssh_host_\w+_key|id_(rsa|dsa|ecdsa|ed25519)|\.ssh/[^/]+)|(root|home|etc)/.*\.(pem|key)")
_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_ZSTD = b"\x28\xb5\x2f\xfd"
_HEAD = 4096
"""Bytes of each file that are read; a key file begins with its mark."""


def keys(engine: Engine, name: str) -> tuple[str, ...] | None:
    """The paths of private keys in an image's layers, all of which it reads; None if it cannot. Raises ServiceError."""
    paths: tuple[str, ...] | None = None
    with engine.output("save", name) as output:
        with contextlib.suppress(tarfile.TarError):
            paths = tuple(dict.fromkeys(in_archive(output)))
        while output.read(1 << 20):
            pass
    return paths


def in_archive(stream: IO[bytes]) -> Iterator[str]:
    """The paths of private keys in the output of `docker save`, in either format, layer by layer. Raises TarError."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield from _in_layer(cast("io.BufferedReader", content))


def _in_layer(content: io.BufferedReader) -> Iterator[str]:
    if content.peek(4)[:4] == _ZSTD:
        raise tarfile.CompressionError("Python reads no zstd before 3.14")
    try:
        with tarfile.open(fileobj=content, mode="r|*") as layer:
            for member in layer:
                if member.isfile() and _PLACES.fullmatch(member.name.removeprefix("./")):
                    file = layer.extractfile(member)
                    if file is not None and _KEY.search(file.read(_HEAD)):
                        yield "/" + member.name.removeprefix("./")
    except tarfile.ReadError:
        return  # a manifest or a configuration, not a layer
