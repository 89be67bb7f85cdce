"""The door for names from outside: of a container, a node, a run directory of another user. Pure.

`LocalNames` makes them relative paths. A `Folder` (`batchtrain/service/local_files.py`) writes the bytes: it stays
below its directory and follows no link there. Downloads and `RunDirectory` use it.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
import unicodedata
from collections.abc import Callable

LONGEST = 255
"""Most bytes of one name, as file systems take them."""
LONGEST_PATH = 2_000
"""Most bytes of a path: systems take 4,096, together with the directory in which it is."""

WINDOWS = sys.platform == "win32"
ENCODING = sys.getfilesystemencoding()
_DEVICE = re.compile(r"(con|prn|aux|nul|com[\d¹²³]|lpt[\d¹²³]|conin\$|conout\$) *(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for devices, with any suffix."""
_UNUSUAL = re.compile(r"[^ -\[\]-~]")
"""A character beside those of ASCII that every file system takes, and the backslash."""


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


def safe_name(text: str) -> str:
    """A text as one name."""
    return safe_path(text.replace("/", "%2F"))


def _safe_name(name: str, windows: bool, encoding: str) -> str:
    if name in ("", ".", ".."):
        return "_" * max(len(name), 1)
    plain_name = _UNUSUAL.sub(lambda match: match[0] if _is_plain(match[0], encoding) else _escaped(match[0]), name)
    plain_name = re.sub(r"^\.(?=.*\.(part|ranges)$)", "%2E", plain_name, flags=re.S | re.I)  # of partial files
    if windows:
        plain_name = re.sub(r'[<>:"|?*]|[. ]$', lambda match: _escaped(match[0]), plain_name)
        plain_name = f"_{plain_name}" if _DEVICE.fullmatch(plain_name) else plain_name
    return plain_name if _fits(plain_name) else _cut(plain_name, digest(name))


def _fits(name: str) -> bool:
    return len(name.encode("utf-8", "surrogateescape")) <= LONGEST


def _cut(name: str, text: str) -> str:
    """The beginning of a long name, and its digest."""
    name_bytes = name.encode("utf-8", "surrogateescape")[: LONGEST - 9]
    return f"{name_bytes.decode('utf-8', 'ignore')}~{text}"


def _is_plain(character: str, encoding: str) -> bool:
    try:
        return character != "\\" and unicodedata.category(character) != "Cc" and bool(character.encode(encoding))
    except UnicodeEncodeError:
        return False


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def digest(text: str) -> str:
    """Eight hex digits that distinguish texts."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def names_of_data() -> Callable[[str], str]:
    """The local names of the paths of a set of data, which stay as they are on a system that takes any name."""
    return LocalNames().of if sys.platform in ("win32", "darwin") else str


class LocalNames:
    """Gives each remote path a unique local path. What would become the same file as another path, or a directory in
    place of a file, gets a digest. It keeps some bytes for each path, not the path."""

    def __init__(self) -> None:
        self._owners: dict[bytes, bytes] = {}
        """Whose each local path is, by their keys."""

    def of(self, path: str, preferred_name: str | None = None) -> str:
        """The local path of a remote one. preferred_name: the preferred name, if it differs from the path."""
        *folders, name = safe_path(path if preferred_name is None else preferred_name).split("/")
        local, key = "", b""
        for folder in folders:
            local, key = self._free(local, key, folder, f"{local}{folder}", _FOLDER)
            local += "/"
        return self._free(local, key, name, path, _key(path))[0]

    def _free(self, above: str, key: bytes, name: str, path: str, owner: bytes) -> tuple[str, bytes]:
        """A name in a directory that no other owner has, as a path with its key."""
        for number in itertools.count():
            free_name = _with_digest(name, digest(f"{path}{chr(0) * (number - 1)}")) if number else name
            own_key = _key(_folded(free_name), key)
            if self._owners.setdefault(own_key, owner) == owner:
                return f"{above}{free_name}", own_key
        raise AssertionError("unreachable")


_FOLDER = b""
"""The owner of a directory: any path below it."""


def _key(text: str, above: bytes = b"") -> bytes:
    return hashlib.blake2b(above + text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _with_digest(name: str, text: str) -> str:
    head, dot, tail = name.rpartition(".")
    longer = f"{head}~{text}.{tail}" if dot and head else f"{name}~{text}"
    return longer if _fits(longer) else _cut(name, text)


def _folded(name: str) -> str:
    """The same for names that some file system takes for one."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
