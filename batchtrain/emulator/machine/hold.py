"""A program that only waits and so keeps a container running. It is stored as bytes, because an image may contain no
program for that.

As process 1 of a container it lets the kernel reap orphans (SIGCHLD ignored), ignores SIGTERM, and ends by SIGKILL.
"""

from __future__ import annotations

import io
import platform
import struct
import tarfile
from pathlib import Path

NAME = "hold"
_LOAD_AT = 0x400000
_HEADERS = 64 + 56
_IGNORE = struct.pack("<4Q", 1, 0, 0, 0)
"""The kernel's `struct sigaction` of SIG_IGN."""


def program_path(data_dir: Path) -> Path:
    """The path of the program for containers of tasks in a data directory."""
    return data_dir / "docker" / NAME


def program(architecture: str = "") -> bytes:
    """An ELF file for a machine, named as by `uname -m` (default: this one). Raises KeyError for an unsupported one."""
    number, code = _CODE[architecture or platform.machine()]
    body = code + bytes(-len(code) % 8) + _IGNORE
    size = _HEADERS + len(body)
    entry = _LOAD_AT + _HEADERS
    magic = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = magic + struct.pack("<HHIQQQIHHHHHH", 2, number, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _LOAD_AT, _LOAD_AT, size, size, 0x1000)
    return header + segment + body


_X86_64 = bytes.fromhex(
    "b80d000000"  # mov  eax, 13        rt_sigaction
    "bf11000000"  # mov  edi, 17        SIGCHLD
    "488d3517000000"  # lea  rsi, [rip+23]  the struct behind the code
    "31d2"  # xor  edx, edx
    "41ba08000000"  # mov  r10d, 8
    "0f05"  # syscall
    "b822000000"  # mov  eax, 34        pause
    "0f05"  # syscall
    "ebf7"  # jmp  to the last mov
)


def _aarch64() -> bytes:
    def move(register: int, value: int) -> int:
        return 0xD2800000 | value << 5 | register

    call = 0xD4000001  # svc 0
    behind = 14 * 4  # the struct: behind 13 instructions and 4 bytes that align it
    words = [
        move(8, 134),  # rt_sigaction
        move(0, 17),  # SIGCHLD
        0x10000001 | (behind - 2 * 4) // 4 << 5,  # adr x1, the struct
        move(2, 0),
        move(3, 8),
        call,
        move(8, 73),  # ppoll(NULL, 0, NULL, NULL)
        move(0, 0),
        move(1, 0),
        move(2, 0),
        move(3, 0),
        call,
        0x14000000 | -6 & 0x3FFFFFF,  # b  to `ppoll`
    ]
    return struct.pack(f"<{len(words)}I", *words)


_CODE = {"x86_64": (62, _X86_64), "aarch64": (183, _aarch64())}
MACHINES = tuple(_CODE)


def fits() -> bool:
    """Whether this machine is supported."""
    return platform.machine() in _CODE


def image() -> bytes:
    """A tar archive with the program as its only file: the root of an image."""
    data = program()
    entry = tarfile.TarInfo(NAME)
    entry.size, entry.mode = len(data), 0o755
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(entry, io.BytesIO(data))
    return archive.getvalue()
