"""Resource files: GETs a file, or a container's blobs, to the directory of a node, with the failure codes of Batch."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from batchtrain.emulator import trust
from batchtrain.emulator.interface import CodedError, Download
from batchtrain.emulator.machine.rooted_path import LeadsOut, RootedPath

CHUNK = 1 << 16
TIMEOUT_SECONDS = 60.0
"""Maximum seconds without data from a server."""
MOST_SECONDS = 3600.0
"""Maximum seconds for one file, even if data keeps coming."""
STATUS_CODES = {401: "BlobAccessDenied", 403: "BlobAccessDenied", 404: "BlobNotFound", 409: "BlobAccessDenied"}
"""HTTP status to failure code; storage refuses anonymous reads of a private account with 409."""
STORAGE_VERSION = "2021-12-02"
"""Version of the storage protocol; Azurite supports it, too."""


class DownloadError(CodedError):
    """A run that cannot start; `code` is the failure code of Batch."""


def fetch(
    item: Download, directory: str, node: RootedPath, called_off: Callable[[], bool], ca: Path | None = None
) -> None:
    """Download to `directory/item.path` of a node: a file, or the blobs of a container. Blocks.

    After `called_off()` returns True, it leaves no file behind and ends with the next data or timeout. `ca`:
    certificates to trust besides the usual ones, if the file exists.
    """
    for blob in blobs_of(item) if item.container else (item,):
        if called_off():
            raise DownloadError("BlobDownloadMiscError", f"{shown(item.url)}: called off")
        _fetch(blob, directory, node, called_off, ca)


def _fetch(item: Download, directory: str, node: RootedPath, called_off: Callable[[], bool], ca: Path | None) -> None:
    if not item.path or item.path.startswith("/"):
        raise DownloadError("ResourceFileWriteFailed", f"{item.path}: leads out of the node's directory")
    end = time.monotonic() + MOST_SECONDS
    with _open(item.url, ca) as body:
        try:
            _store(body, node, f"{directory}/{item.path}", int(item.mode, 8) & 0o7777, called_off, end)
        except TimeoutError as error:
            raise DownloadError("BlobDownloadTimedOut", f"{shown(item.url)}: {error}") from None
        except (urllib.error.URLError, ConnectionError, HTTPException) as error:
            raise DownloadError("BlobDownloadMiscError", f"{shown(item.url)}: {error}") from None
        except LeadsOut:
            raise DownloadError("ResourceFileWriteFailed", f"{item.path}: leads out of the node's directory") from None
        except (OSError, ValueError) as error:
            raise DownloadError("ResourceFileWriteFailed", f"{item.path}: {error}") from None


# A container's blobs -------------------------------------------------------------------------------------------------


def blobs_of(item: Download) -> Iterator[Download]:
    """Each blob of a container whose name begins with the prefix, below the path of the item, by its full name."""
    for name in (blob.name for blob in listed(item)):
        path = f"{item.path.rstrip('/')}/{name}" if item.path else name
        yield Download(blob_url(item.url, name), path, item.mode)


def blob_url(container_url: str, name: str) -> str:
    """The address of a blob in a container whose own address has a signature."""
    where = urlsplit(container_url)
    return where._replace(path=f"{where.path.rstrip('/')}/{quote(name)}").geturl()


class Blob(NamedTuple):
    """An entry in the list of a container."""

    name: str
    etag: str
    changed: str


def listed(item: Download) -> Iterator[Blob]:
    """The list of a container, page by page, without markers of directories (an empty last name)."""
    from xml.etree import ElementTree  # slow to import, and only few tasks list a container

    where, query = urlsplit(item.url), {"restype": "container", "comp": "list"}
    if item.prefix:
        query["prefix"] = item.prefix
    while True:
        page_query = "&".join(filter(None, (where.query, urlencode(query))))
        with _open(where._replace(query=page_query).geturl()) as body:
            try:
                page = ElementTree.fromstring(body.read())
            except (ElementTree.ParseError, OSError, HTTPException) as error:
                message = f"{shown(item.url)}: the list of its blobs cannot be read: {error}"
                raise DownloadError("BlobDownloadMiscError", message) from None
        for blob in page.iterfind("./Blobs/Blob"):
            name = blob.findtext("./Name") or ""
            if name and not name.endswith("/"):
                yield Blob(name, *(blob.findtext(f"./Properties/{key}") or "" for key in ("Etag", "Last-Modified")))
        query["marker"] = page.findtext("./NextMarker") or ""
        if not query["marker"]:
            return


# One answer ----------------------------------------------------------------------------------------------------------


def _open(url: str, ca: Path | None = None) -> HTTPResponse:
    if urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError("BlobDownloadMiscError", f"{shown(url)}: only http and https are downloaded")
    request = urllib.request.Request(url, headers={"x-ms-version": STORAGE_VERSION} if "sig=" in url else {})
    try:
        body: HTTPResponse = opener(url, ca).open(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        code = STATUS_CODES.get(error.code, "BlobDownloadMiscError")
        raise DownloadError(code, f"{shown(url)}: HTTP {error.code} {error.reason}") from None
    except (OSError, ValueError, HTTPException) as error:
        raise DownloadError("BlobDownloadMiscError", f"{shown(url)}: {error}") from None
    return body


def opener(url: str, ca: Path | None = None) -> urllib.request.OpenerDirector:
    """Do not use a proxy of the environment for a server on this machine, which may have a certificate of `ca`."""
    if not trust.loopback(urlsplit(url).hostname or ""):
        return urllib.request.build_opener()
    direct = urllib.request.ProxyHandler({})
    if ca is None or not ca.is_file():
        return urllib.request.build_opener(direct)
    context = ssl.create_default_context()
    context.load_verify_locations(ca)
    return urllib.request.build_opener(direct, urllib.request.HTTPSHandler(context=context))


def _store(
    body: HTTPResponse, node: RootedPath, path: str, mode: int, called_off: Callable[[], bool], end: float
) -> None:
    """A task sees the whole file or none."""
    with node.new(path, mode) as file:
        while not called_off() and (chunk := body.read1(CHUNK)):  # the available data: `read` waits for a whole chunk
            if time.monotonic() > end:
                raise TimeoutError(f"it was not complete after {MOST_SECONDS:g} s")
            file.write(chunk)
        if called_off():
            raise ConnectionError("called off")
        if body.length:  # the missing bytes; read() does not report a closed connection
            raise ConnectionError(f"the connection was closed {body.length} bytes early")


def shown(url: str) -> str:
    """Without its query, which may contain a signature."""
    return urlsplit(url)._replace(query="").geturl()
