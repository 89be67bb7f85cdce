"""Converts names of remote files to names on this machine. Pure."""

from __future__ import annotations

import hashlib
import re
import sys
import unicodedata

LONGEST = 240
"""Most bytes of one name: file systems take 255, and a partial file needs a suffix."""
LONGEST_PATH = 2_000
"""Most bytes of a path: systems take 4,096, together with the directory in which it is."""

WINDOWS = sys.platform == "win32"
ENCODING = sys.getfilesystemencoding()
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for devices, with any suffix."""


def safe_path(path: str, *, windows: bool = WINDOWS, encoding: str = ENCODING) -> str:
    """A remote path as a relative path that stays inside its directory.

    Empty, `.` and `..` parts become `_`. Control characters, and characters that the file system cannot encode, are
    written as `%0A`. A long name is cut and gets a digest; so do the directories of a long path. windows: also change
    what only Windows refuses.
    """
    names = [_safe_name(part, windows, encoding) for part in path.split("/")]
    if len("/".join(names).encode()) > LONGEST_PATH:
        names[2:-1] = [f"~{digest(path)}"]
    return "/".join(names)


def _safe_name(name: str, windows: bool, encoding: str) -> str:
    if name in ("", ".", ".."):
        return "_" * max(len(name), 1)
    plain_name = "".join(character if _is_plain(character, encoding) else _escaped(character) for character in name)
    plain_name = re.sub(r"^\.(?=.*\.(part|ranges)$)", "%2E", plain_name, flags=re.S)  # the names of partial files
    if windows:
        plain_name = re.sub(r'[<>:"|?*]|[. ]$', lambda match: _escaped(match[0]), plain_name)
        plain_name = f"_{plain_name}" if _DEVICE.fullmatch(plain_name) else plain_name
    name_bytes = plain_name.encode("utf-8", "surrogateescape")
    if len(name_bytes) <= LONGEST:
        return plain_name
    cut = name_bytes[: LONGEST - 9].decode("utf-8", "ignore")
    return f"{cut}~{digest(name)}"


def _is_plain(character: str, encoding: str) -> bool:
    try:
        return character != "\\" and character >= " " and character != "\x7f" and bool(character.encode(encoding))
    except UnicodeEncodeError:
        return False


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def digest(text: str) -> str:
    """Eight hex digits that distinguish texts."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


class LocalNames:
    """Gives each remote path a unique local path: two that would become the same file get digests."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def of(self, path: str, preferred_name: str | None = None) -> str:
        """The local path of a remote one. preferred_name: the preferred name, if it differs from the path."""
        local = safe_path(path if preferred_name is None else preferred_name)
        if self._taken.setdefault(_folded(local), path) != path:
            head, dot, tail = local.rpartition(".")
            local = f"{head}~{digest(path)}.{tail}" if dot and "/" not in tail and head else f"{local}~{digest(path)}"
            self._taken[_folded(local)] = path
        return local


def _folded(path: str) -> str:
    """The same for paths that some file system takes for one file."""
    return unicodedata.normalize("NFC", path.casefold())
