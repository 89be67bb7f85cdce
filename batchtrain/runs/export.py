"""Exports a run for other programs: CSV, DLBS logs, TensorBoard event files."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from batchtrain import state_files
from batchtrain.errors import UsageError, printable
from batchtrain.metrics.extract import split
from batchtrain.runs.directory import RunDirectory, replace_lines
from batchtrain.runs.local_names import LocalNames
from batchtrain.runtime.batchtrain_sweep import csv_cell

_KEY = re.compile(r"^[ \t]*__(.+?)__[ \t]*=(.+)")
HEADS = ("task", "t", "rank", "node", "step", "epoch", "metric", "value")


def write_csv(run: RunDirectory, file: TextIO) -> int:
    """Write one line per value; returns their number. A value that is NaN or infinite is empty. No name is a formula
    for a spreadsheet, or controls a terminal."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEADS)
    count = 0
    for task, point in run.points():
        for name, value in point.values.items():
            row = task, point.t, point.rank, point.node, point.step, point.epoch, name, value
            writer.writerow(map(csv_cell, row))
            count += 1
    return count


# --- DLBS ------------------------------------------------------------------------------------------------------------


def write_dlbs(run: RunDirectory, target: Path) -> list[Path]:
    """Write rank_N.log files, whose lines begin with `__`; returns them. Raises UsageError if no rank printed such
    lines.

    If the program prints none but has a throughput, the file gets the keys that DLBS's reports need.
    """
    ranks: dict[int, dict[str, Any]] = {}
    for path in sorted((run.path / "logs").glob("*/")):
        for rank, name, value in _keys_of_task(path):
            ranks.setdefault(rank, {})[name] = value
    if not ranks and (keys := _keys_of_summary(run)):
        ranks[0] = keys
    if not ranks:
        raise UsageError(
            f"{run.path} has nothing for DLBS: no line `__name__=value` in logs/, and no throughput in run.json"
        )
    files = []
    for rank, values in sorted(ranks.items()):
        file = target / f"rank_{rank}.log"
        pairs = ((printable(name), json.dumps(value)) for name, value in values.items())
        replace_lines(file, (f"__{name}__={text}\n".encode() for name, text in pairs), _root(run, target))
        files.append(file)
    return files


def _keys_of_task(logs: Path) -> Iterator[tuple[int, str, Any]]:
    """The keys of each rank: from its own file, which has no prefixes, or else from the merged output."""
    ranks = {
        path: int(name) for path in logs.glob("ranks/*.stdout.txt") if (name := path.name.split(".")[0]).isdecimal()
    }
    for path in sorted(ranks, key=ranks.__getitem__):
        yield from ((ranks[path], name, value) for _, name, value in _keys(path))
    if not ranks:
        yield from _keys(logs / "stdout.txt")


def _keys(path: Path) -> Iterator[tuple[int, str, Any]]:
    """The keys of a log. DLBS's parser stops at a value that is not JSON, so such lines are left out."""
    with state_files.stream(path, "it is exported without this log") as content:
        file = io.TextIOWrapper(content, encoding="utf-8", errors="replace")
        for text in state_files.pieces(file):
            rank, line = split(text)
            match = _KEY.match(line)
            if match is None:
                continue
            try:
                yield rank or 0, match[1].strip(), json.loads(match[2].strip() or "null")
            except ValueError:
                continue


def _keys_of_summary(run: RunDirectory) -> dict[str, Any]:
    record = run.record()
    rate = record.summary.get("throughput")
    if rate is None or rate.last is None:
        return {}
    keys: dict[str, Any] = {"exp.id": record.id, "exp.status": "ok", "exp.num_nodes": record.nodes}
    keys["exp.num_gpus"] = record.nodes  # DLBS's reports omit rows with 0
    keys["exp.model_title"] = record.job  # the reports show it in a row
    keys["results.throughput"] = rate.last
    for name, milliseconds in (("step_ms", 1.0), ("batch_seconds", 1000.0)):
        if name in record.summary and (last := record.summary[name].last) is not None:
            keys["results.time"] = last * milliseconds
    return keys


# --- TensorBoard: records of protocol buffers, each with checksums --------------------------------------------------


def write_tensorboard(run: RunDirectory, target: Path) -> int:
    """Write one event file per task and rank; returns the number of values. Infinite values become NaN."""
    files: dict[str, bytearray] = {}
    names, count = LocalNames(), 0
    for number, (task, point) in enumerate(run.points()):
        folder = f"{task}/{point.node or f'rank_{point.rank or 0}'}"
        step = number if point.global_step is None else int(point.global_step)
        summary = b"".join(
            _bytes(1, _bytes(1, name.encode(errors="replace")) + b"\x15" + _float(value))
            for name, value in point.values.items()
        )
        event = b"\x09" + struct.pack("<d", point.t or 0.0) + b"\x10" + _varint(step) + _bytes(5, summary)
        files.setdefault(folder, bytearray(_record(b"\x09" + bytes(8) + _bytes(3, b"brain.Event:2")))).extend(
            _record(event)
        )
        count += len(point.values)
    for folder, content in files.items():
        file = names.of(f"{folder}/events.out.tfevents.0.{run.name}")
        replace_lines(target / file, (bytes(content),), _root(run, target))
    return count


def _root(run: RunDirectory, target: Path) -> Path:
    """The directory below which no link is followed: that of the run for a directory in it."""
    return run.path if target.is_relative_to(run.path) else target


def _float(value: float | None) -> bytes:
    try:
        return struct.pack("<f", math.nan if value is None else value)
    except OverflowError:  # larger than a float of 32 bits
        return struct.pack("<f", math.nan)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    octets = bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    return bytes((*octets, number))


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _checksum(length) + content + _checksum(content)


def _checksum(content: bytes) -> bytes:
    """CRC-32C, rotated and shifted as the TFRecord format requires."""
    value = 0xFFFFFFFF
    for byte in content:
        value = _CRC[(value ^ byte) & 255] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC = tuple(map(_crc, range(256)))
