"""The load of this machine: memory, disk and network, which all its nodes share."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from batchtrain.emulator.autoscale_samples import Load

FRESH_SECONDS = 30.0
"""Seconds for which one reading is used: autoscale takes samples at this interval."""
SECTOR = 512
PROC = Path("/proc")


class Gauge:
    """Reads the machine's numbers, at most once in `FRESH_SECONDS`."""

    def __init__(self, data_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._data_dir, self._clock = data_dir, clock
        self._read_at = float("-inf")
        self._last = Load()

    def __call__(self) -> Load:
        if self._clock() - self._read_at >= FRESH_SECONDS:
            self._read_at = self._clock()
            self._last = read(self._data_dir)
        return self._last


def read(data_dir: Path, proc: Path = PROC) -> Load:
    """The current numbers; 0 for those that the kernel does not provide."""
    kib = {line.partition(":")[0]: int(line.split()[1]) for line in _lines(proc / "meminfo") if len(line.split()) > 1}
    not_available = 1024.0 * (kib.get("MemTotal", 0) - kib.get("MemAvailable", kib.get("MemTotal", 0)))
    try:
        on_disk = float(shutil.disk_usage(data_dir).used)
    except OSError:
        on_disk = 0.0
    return Load(not_available, on_disk, *_disk_traffic(proc), *_network_traffic(proc))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


def _disk_traffic(proc: Path) -> tuple[float, float, float, float]:
    """Bytes read and written, and the number of reads and writes, of whole disks."""
    disks = [line.split() for line in _lines(proc / "diskstats")]
    disks = [words for words in disks if len(words) > 9 and _is_whole_disk(words[2])]
    reads, sectors_read, writes, sectors_written = (sum(int(words[at]) for words in disks) for at in (3, 5, 7, 9))
    return float(sectors_read * SECTOR), float(sectors_written * SECTOR), float(reads), float(writes)


def _is_whole_disk(name: str) -> bool:
    ends_like_a_partition = name[-1:].isdigit() and not name.startswith(("nvme", "mmcblk", "dm-", "md", "sr"))
    return not name.startswith(("loop", "ram")) and not ends_like_a_partition and "p" not in name[4:]


def _network_traffic(proc: Path) -> tuple[float, float]:
    """Bytes in and out of all interfaces but the loopback."""
    bytes_in = bytes_out = 0
    for line in _lines(proc / "net" / "dev"):
        name, colon, counters = line.partition(":")
        words = counters.split()
        if colon and name.strip() != "lo" and len(words) > 8:
            bytes_in, bytes_out = bytes_in + int(words[0]), bytes_out + int(words[8])
    return float(bytes_in), float(bytes_out)
