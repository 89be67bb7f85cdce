"""Which dashboard shows the runs of a directory: a file with its address, without a token."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from batchtrain.runs.directory import replace

HOST = "127.0.0.1"
FILE = ".dashboard"


class Note:
    """Tells commands that record runs in a directory where they are shown: a file with the address, without a token."""

    def __init__(self, runs: Path, url: str) -> None:
        self._path, self._url = runs / FILE, url
        self._written = False

    def write(self) -> None:
        """Write it once the directory exists."""
        if not self._written and self._path.parent.is_dir():
            with suppress(OSError):
                replace(self._path, self._url.encode())
            self._written = True

    def erase(self) -> None:
        """Remove it, unless another dashboard has replaced it."""
        with suppress(OSError):
            if self._path.read_text(encoding="utf-8") == self._url:
                self._path.unlink()


def address_of(runs: Path) -> str:
    """The address of a dashboard that shows the runs of a directory; empty if none answers."""
    try:
        url = (runs / FILE).read_text(encoding="utf-8")
        parts = urlsplit(url)
        if parts.hostname != HOST:
            return ""
        socket.create_connection((HOST, parts.port or 0), timeout=1).close()
    except (OSError, ValueError):
        return ""
    return url
