"""A file that is being downloaded: its path until it is complete, and the record of the ranges that are there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

MOST_NAME = 240
"""Most bytes of a file name that may get a suffix; the file system permits 255."""
Range = tuple[int, int]
"""The first byte, and the one behind the last."""

MOST_RANGES = 100_000
"""Most ranges of a file: a service may claim any size."""


class _Ranges(msgspec.Struct):
    version: str
    ranges: list[tuple[int, int, bytes]]


def spans(size: int, least: int) -> tuple[Range, ...]:
    """The ranges of a file, of at least so many bytes."""
    step = max(least, -(-size // MOST_RANGES))
    return tuple((start, min(start + step, size)) for start in range(0, size, step))


def partial(target: Path) -> tuple[Path, Path]:
    """The temporary path of a file until it is complete, and the path of the record of its ranges."""
    name = target.name
    if len(os.fsencode(name)) > MOST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return target.with_name(f".{name}.part"), target.with_name(f".{name}.ranges")


def keep(path: Path, version: str, digests: Mapping[Range, bytes]) -> None:
    """Record the ranges of a version of a file, with their digests. The record is replaced at once."""
    content = _Ranges(version, sorted((*span, digest) for span, digest in digests.items()))
    aside = path.with_name(f"{path.name}~")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(content))
    aside.replace(path)


def resumed(path: Path, version: str) -> dict[Range, bytes]:
    """The recorded ranges with their digests; empty if they are those of another version."""
    try:
        notes = msgspec.json.decode(path.read_bytes(), type=_Ranges)
    except (OSError, msgspec.DecodeError):
        return {}
    return {(start, end): digest for start, end, digest in notes.ranges} if notes.version == version else {}
