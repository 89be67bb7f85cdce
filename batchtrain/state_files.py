"""Reads and writes the files in which batchtrain keeps its state. Anything may be in them: a kill, a full disk, another
program or another user may have written them."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, TextIO

import msgspec

from batchtrain import foreign
from batchtrain.errors import DamagedState
from batchtrain.foreign import Kind

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

UNREADABLE = (OSError, *foreign.UNREADABLE)
"""What reading and decoding a file raises."""
MOST_BYTES = 1 << 30
"""A larger file is no state of batchtrain."""
MOST_LINE = 64 << 20
"""A longer line is read as several, so that a file without line ends fits into memory."""
_OPTIONS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class _Lines(io.BufferedReader):
    """A file of which no line is longer than MOST_LINE."""

    refusal: DamagedState | None = None
    """Is raised for a longer line; without it, the line is cut."""

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(MOST_LINE)
        if len(line) == MOST_LINE and self.refusal is not None:
            raise self.refusal
        return line


def opened(path: Path, refusal: DamagedState | None = None) -> BinaryIO:
    """Open a regular file for reading. Never waits for the writer of a pipe. refusal: the error of a line of more than
    MOST_LINE bytes; without it, the line is cut. Raises OSError."""
    descriptor = os.open(path, _OPTIONS)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if status.st_size < MOST_LINE:
        return open(descriptor, "rb")  # reads lines in half the time
    file = _Lines(io.FileIO(descriptor))
    file.refusal = refusal
    return file


def pieces(file: TextIO, most: int = MOST_LINE) -> Iterator[str]:
    """The lines of a text. One of more than `most` characters comes as several."""
    return iter(lambda: file.readline(most), "")


def content(path: Path) -> bytes:
    """The bytes of a regular file. Raises OSError."""
    with opened(path) as file:
        return file.read(min(os.fstat(file.fileno()).st_size, MOST_BYTES))


def stream(path: Path, loss: str) -> BinaryIO:
    """Open a regular file for reading; empty if there is no file. Raises DamagedState."""
    too_long = OSError(errno.EFBIG, f"it has a line of more than {MOST_LINE >> 20} MiB")
    try:
        return opened(path, damaged(path, too_long, loss))
    except (FileNotFoundError, NotADirectoryError):
        return io.BytesIO()
    except OSError as error:
        raise damaged(path, error, loss) from None


def read(path: Path, kind: type[Kind], loss: str) -> Kind | None:
    """A file of JSON as a type; None if there is no file. loss: what a reset loses. Raises DamagedState."""
    try:
        return msgspec.json.decode(content(path), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UNREADABLE as error:
        raise damaged(path, error, loss) from None


def cached(path: Path, kind: type[Kind]) -> Kind | None:
    """A file of JSON that can be made anew, as a type; None if it is missing or damaged."""
    with contextlib.suppress(OSError):
        return foreign.read(content(path), kind)
    return None


def write_atomically(path: Path, content: str | bytes, mode: int = 0o600, *, is_durable: bool = False) -> None:
    """Replace a file by rename, so that it is never incomplete; a link is replaced itself. is_durable: what stands
    there outlives a crash of the machine."""
    import tempfile  # 4 ms, and only to write

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            if is_durable:
                stream.flush()
                os.fsync(handle)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replace(path: Path, content: bytes) -> None:
    """Replace a file of the user, which keeps its mode; follows a link. Only the user can read a new file."""
    target = path.resolve()
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
    write_atomically(target, content, mode, is_durable=True)


def lock_file(path: Path) -> IO[str]:
    """Open a lock file, which is made if it is missing. Raises DamagedState if something else has its path."""
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        if os.path.lexists(path):
            raise damaged(path, error, "the lock is made again") from None
        raise


def lock(file: int | IO[str], *, shared: bool = False, wait: bool = True) -> bool | None:
    """Lock an open file until it is closed: False if another process has locked it and the call does not wait, None on
    systems and file systems without locks."""
    if fcntl is None:
        return None  # type: ignore[unreachable]  # on Windows
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, how if wait else how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def damaged(path: Path, error: Exception, loss: str) -> DamagedState:
    """The error about a file that cannot be read. loss: what a reset loses."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    aside = f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.damaged')}"
    return DamagedState(f"{path} cannot be read: {reason}; mend it, or reset it with `{aside}`: {loss}")
