"""The body of an answer: the limits within which it is read, its decoding, and how an answer is quoted that is not the
API's. Every client of a service uses this: Batch, `Rest`, sign-in and Blob storage."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
from azure.core.exceptions import AzureError, DecodeError, IncompleteReadError

from batchtrain import foreign

Document = TypeVar("Document")
Value = TypeVar("Value")

MOST_PAGES = 100_000
"""Of one list; the services put 1,000 things and more on a page."""
PAGE_BYTES = 64 << 20
"""The largest page, decompressed. Files are streams, which have no such limit."""
ERROR_BYTES = 1 << 16
"""How much of the body of an error is read."""
DEPTH = 64
"""The deepest nesting of a document."""
SILENT_SECONDS = 60.0
"""A connection is lost after so many seconds without a byte."""
QUOTED = 200
"""Printable bytes of an invalid answer that its error quotes."""
_NESTED = frozenset({dict, list, tuple})
SIGN_IN: ContextVar[InvalidAnswer | None] = ContextVar("SIGN_IN", default=None)
"""The last invalid answer of a sign-in service: a chain of credentials drops the cause of its error."""


class InvalidAnswer(Exception):
    """An answer that is not the API's: a page of a proxy, a document of another form, or more than a page may have."""

    def __init__(self, why: str, url: str = "", body: bytes = b"") -> None:
        super().__init__(why)
        self.why, self.url, self.quote = why, shown_url(url), quoted(body)


# --- reading --------------------------------------------------------------------------------------------------------


def receive(response: Any, *, streamed: bool) -> None:
    """Read the body of an answer of an SDK's pipeline. streamed: the caller reads it, unless it is an error.

    Raises InvalidAnswer for a redirect, too: no API that batchtrain uses has any, and no request is sent elsewhere.
    """
    url, status, headers = response.request.url, response.status_code, response.headers
    refuse_redirect(status, headers.get("Location", ""), url)
    if status >= 400:
        content = _of_error(response)
    elif not is_size(headers.get("Content-Length", "0")):
        raise InvalidAnswer(f"its Content-Length is {headers['Content-Length'][:QUOTED]!r}", url)
    elif streamed:
        return
    else:
        content = _of_success(response)
    response._content = content  # the SDK's only way to give a body to an answer


def refuse_redirect(status: int, location: str, url: str) -> None:
    """Raise InvalidAnswer for a redirect."""
    if 300 <= status < 400:
        raise InvalidAnswer(f"it redirects to {quoted(shown_url(location).encode()) or 'nothing'}", url)


def whole(pieces: Iterable[bytes], url: str) -> bytes:
    """The body in these pieces. Raises InvalidAnswer as soon as it is larger than a page may be."""
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > PAGE_BYTES:
            raise InvalidAnswer(f"it is larger than {PAGE_BYTES >> 20} MiB", url, bytes(content[: 8 * QUOTED]))
    return bytes(content)


def beginning(pieces: Iterable[bytes]) -> bytes:
    """The first bytes of the body of an error."""
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) >= ERROR_BYTES:
            break
    return bytes(content[:ERROR_BYTES])


def _of_success(response: Any) -> bytes:
    try:
        return whole(response.iter_bytes(), response.request.url)
    except DecodeError as error:
        if isinstance(error, IncompleteReadError):
            raise
        encoding = response.headers.get("Content-Encoding", "")
        raise InvalidAnswer(f"its content is not {encoding[:QUOTED]}", response.request.url) from error
    finally:
        response.close()


def _of_error(response: Any) -> bytes:
    """The document of an error; nothing without one, because then only its status counts."""
    try:
        content = beginning(response.iter_bytes())
        decoded(content, Any)
    except (AzureError, InvalidAnswer, ValueError):
        return b""
    finally:
        response.close()
    return content


# --- decoding -------------------------------------------------------------------------------------------------------


def decoded(body: bytes, kind: type[Document], url: str = "") -> Document:
    """The document in a body. Raises InvalidAnswer."""
    try:
        document = msgspec.json.decode(body.removeprefix(codecs.BOM_UTF8), type=kind)
    except foreign.UNREADABLE as error:
        why = str(error) if body.strip() else "it is empty"
        raise InvalidAnswer(why, url, body) from error
    if _is_too_deep(document):
        raise InvalidAnswer(f"it is nested more than {DEPTH} levels deep", url, body)
    return document


def read_as(read: Callable[[Document], Value], body: bytes, kind: type[Document], url: str) -> Value:
    """What `read` makes of the document in a body; it raises ValidationError for one of another form. Raises
    InvalidAnswer."""
    document = decoded(body, kind, url)
    try:
        return read(document)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(str(error), url, body) from error
    except InvalidAnswer as error:  # a link
        raise InvalidAnswer(error.why, url, body) from error


@contextmanager
def unquoted() -> Iterator[None]:
    """Quote no answer of this block, because it may have a secret."""
    try:
        yield
    except InvalidAnswer as error:
        error.quote = ""
        raise


def _is_too_deep(document: Any) -> bool:
    """Whether the untyped parts of a document are nested too deeply. Typed ones cannot be: msgspec skips the rest."""
    level = [(document.value,) if hasattr(document, "value") else document]  # a page, or a document
    for _ in range(DEPTH):
        level = [
            item
            for part in level
            if type(part) in _NESTED
            for item in (part.values() if type(part) is dict else part)
            if type(item) in _NESTED
        ]
        if not level:
            return False
    return True


def quoted(body: bytes) -> str:
    """The first printable bytes of a body, on one line."""
    text = body[: 8 * QUOTED].decode(errors="ignore")
    line = "".join(" " if letter.isspace() else letter for letter in text if letter.isspace() or letter.isprintable())
    return line.strip().encode()[:QUOTED].decode(errors="ignore")


def shown_url(url: str) -> str:
    """A URL without its login, query and fragment, which may be secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


# --- parts ----------------------------------------------------------------------------------------------------------


def at(document: Mapping[str, Any], path: str) -> Any:
    """A property of a document; None if it is not there. Raises ValidationError if a part of the path is no object."""
    value: Any = document
    for key in path.split("/"):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise msgspec.ValidationError(f"Expected `object`, got `{type(value).__name__}` - at `$.{path}`")
        value = value.get(key)
    return value


def rows(value: Any) -> tuple[dict[str, Any], ...]:
    """The objects of a list; none without one. Raises ValidationError."""
    return msgspec.convert(value or (), tuple[dict[str, Any], ...])


def next_page(url: str, link: str, earlier: set[str]) -> str:
    """The URL of the page after the one at `url`; empty after the last. earlier: the links that were followed.

    Raises InvalidAnswer for a link to another origin, which must not get the signature of a request, and as `follow`
    does.
    """
    if not link:
        return ""
    try:
        following = urljoin(url, link)
        same = origin(following) == origin(url)
    except ValueError:  # a malformed host or port
        same = False
    if not same:
        host = shown_url(link).removeprefix("https://").partition("/")[0]
        raise InvalidAnswer(f"its next page is on another host, {quoted(host.encode())}")
    follow(following, earlier)
    return following


def follow(link: str, earlier: set[str]) -> None:
    """Note the link of a next page. Raises InvalidAnswer for a list that would have no end: for a link that was
    followed before, and after MOST_PAGES."""
    if link in earlier:
        raise InvalidAnswer("its next page is one that was read before")
    if len(earlier) >= MOST_PAGES:
        raise InvalidAnswer(f"its list has more than {MOST_PAGES:,} pages")
    earlier.add(link)


def origin(url: str) -> tuple[str, str]:
    """Scheme, and host with port; the port of the scheme may be written or not. Raises ValueError."""
    parts = urlsplit(url)
    default = {"https": ":443", "http": ":80"}.get(parts.scheme, "")
    return parts.scheme, parts.netloc.lower().removesuffix(default)


def http_date(text: str | None) -> datetime | None:
    """A date of a header; None if there is none, or one without a time zone."""
    try:
        date = parsedate_to_datetime(text or "")
    except (TypeError, ValueError, OverflowError):
        return None
    return date if date.tzinfo is not None else None


def is_size(text: str) -> bool:
    """Whether a text is a number of bytes."""
    return text.isascii() and text.isdigit() and len(text) <= 18
