"""Resource files: an http(s) GET into a node's directory, with Batch's words for what goes wrong."""

from __future__ import annotations

import contextlib
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

from batchtrain.emulator.machine.types import Download

CHUNK = 1 << 16
TIMEOUT_SECONDS = 60.0
STATUS_CODES = {401: "BlobAccessDenied", 403: "BlobAccessDenied", 404: "BlobNotFound", 409: "BlobAccessDenied"}
"""HTTP status to failure code; 409 is how storage refuses anonymous reads of a private account."""


class DownloadError(Exception):
    """A run that cannot start; `code` is Batch's failure code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def fetch(item: Download, directory: Path, root: Path, called_off: Callable[[], bool]) -> None:
    """Download one file to `directory/item.path`, which must lie below `root`, links followed. Blocks.

    Once `called_off()` it leaves no file behind, and ends with the next bytes that come, or that do not.
    """
    path = directory / item.path
    if not item.path or not path.resolve().is_relative_to(root.resolve()) or path.is_symlink():
        raise DownloadError("ResourceFileWriteFailed", f"{item.path}: leads out of the node's directory")
    with _open(item) as body:
        try:
            _store(body, path, int(item.mode, 8) & 0o7777, called_off)
        except (urllib.error.URLError, TimeoutError, ConnectionError, HTTPException) as error:
            raise DownloadError("BlobDownloadMiscError", f"{_shown(item.url)}: {error}") from None
        except (OSError, ValueError) as error:
            raise DownloadError("ResourceFileWriteFailed", f"{item.path}: {error}") from None


def _open(item: Download) -> HTTPResponse:
    if urlsplit(item.url).scheme not in ("http", "https"):
        raise DownloadError("BlobDownloadMiscError", f"{_shown(item.url)}: only http and https are downloaded")
    try:
        body: HTTPResponse = _opener(item.url).open(item.url, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        code = STATUS_CODES.get(error.code, "BlobDownloadMiscError")
        raise DownloadError(code, f"{_shown(item.url)}: HTTP {error.code} {error.reason}") from None
    except (OSError, ValueError, HTTPException) as error:
        raise DownloadError("BlobDownloadMiscError", f"{_shown(item.url)}: {error}") from None
    return body


def _opener(url: str) -> urllib.request.OpenerDirector:
    """A proxy of the environment's is no way to a server on this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener()


def _store(body: HTTPResponse, path: Path, mode: int, called_off: Callable[[], bool]) -> None:
    """Written aside and renamed: a task sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, aside = tempfile.mkstemp(dir=path.parent, prefix=".download-")
    try:
        with open(fd, "wb") as file:
            while not called_off() and (chunk := body.read(CHUNK)):
                file.write(chunk)
            if called_off():
                raise ConnectionError("called off")
            if body.length:  # what is left to come; read() says nothing of a connection that was cut
                raise ConnectionError(f"the connection was closed {body.length} bytes early")
            os.fchmod(file.fileno(), mode)
        Path(aside).rename(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(aside).unlink()
        raise


def _shown(url: str) -> str:
    """Without its query, which may hold a signature."""
    return urlsplit(url)._replace(query="").geturl()
