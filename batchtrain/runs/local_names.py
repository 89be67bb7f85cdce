"""Converts names of remote files to names on this machine. Pure."""

from __future__ import annotations

import hashlib
import re
import sys

LONGEST = 240
"""Most bytes of one name: file systems take 255, and a partial file needs a suffix."""


WINDOWS = sys.platform == "win32"
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for devices, with any suffix."""


def safe_path(path: str, *, windows: bool = WINDOWS) -> str:
    """A remote path as a relative path that stays inside its directory.

    Empty, `.` and `..` parts become `_`; control characters are written as `%0A`; a long name is cut and gets a digest.
    windows: also change what only Windows refuses.
    """
    return "/".join(_safe_name(part, windows) for part in path.split("/"))


def _safe_name(name: str, windows: bool) -> str:
    if name in ("", ".", ".."):
        return "_" * max(len(name), 1)
    shown = "".join(character if _is_plain(character) else _escaped(character) for character in name)
    if windows:
        shown = re.sub(r'[<>:"|?*]|[. ]$', lambda match: _escaped(match[0]), shown)
        shown = f"_{shown}" if _DEVICE.fullmatch(shown) else shown
    encoded = shown.encode("utf-8", "surrogateescape")
    if len(encoded) <= LONGEST:
        return shown
    cut = encoded[: LONGEST - 9].decode("utf-8", "ignore")
    return f"{cut}~{digest(name)}"


def _is_plain(character: str) -> bool:
    return character != "\\" and (character >= " " and character != "\x7f") and not "\ud800" <= character <= "\udfff"


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def digest(text: str) -> str:
    """Eight hex digits that distinguish texts."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


class LocalNames:
    """Gives each remote path a unique local path: two that would become the same file get digests."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def of(self, path: str, wanted: str | None = None) -> str:
        """The local path of a remote one. wanted: the preferred name, if it differs from the path."""
        local = safe_path(path if wanted is None else wanted)
        if self._taken.setdefault(local.casefold(), path) != path:
            head, dot, tail = local.rpartition(".")
            local = f"{head}~{digest(path)}.{tail}" if dot and "/" not in tail and head else f"{local}~{digest(path)}"
            self._taken[local.casefold()] = path
        return local
