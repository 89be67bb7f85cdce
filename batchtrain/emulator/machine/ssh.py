"""The `ssh` of an emulated node: "logs in" to another node of the same pool through that node's own socket.

Started as `python -I -S ssh.py PEERS ARGUMENTS...`; it imports as little of the standard library as possible, because
every rank of an mpirun waits for it. PEERS is the folder with one socket per live node, named by address, and a link to
it by host name. The command gets this process's stdin, stdout and stderr themselves and nothing of its environment.
"""

# ruff: noqa: PTH115, PTH119, PERF203
# (pathlib alone would take longer to import than this program runs)

from __future__ import annotations

import _socket  # the imports of `socket` (enum, selectors) double the start-up time of this program
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

VALUE_OPTIONS = frozenset("bceilmopBDEFIJLOPQRSwW")
"""Options of OpenSSH's client that take an argument, glued (`-p23`) or as the next word."""
FORWARD_OPTIONS = frozenset("LRDWNOQ")
"""Options that need the real protocol: refused instead of ignored."""

SHELL = 'exec "${SHELL:-/bin/sh}"'
USAGE = "usage: ssh [options] [user@]host [command [argument ...]]"


class Usage(Exception):
    """A command line that ssh refuses."""


class Request:
    """The content of a command line."""

    __slots__ = ("background", "command", "flags", "host", "no_stdin", "port")

    def __init__(self, host: str, port: str, command: str, flags: frozenset[str]) -> None:
        self.host = host
        self.port = port
        self.command = command
        self.flags = flags
        self.background = "f" in flags
        self.no_stdin = "n" in flags or "f" in flags


def parse(arguments: list[str]) -> Request:
    """Parse a command line as OpenSSH's client does.

    Options come before the host and once more after it, up to the first word that is not an option; `--` ends them each
    time. The remaining words, joined by spaces, are the command.
    """
    flags: dict[str, str] = {}
    words = _options(arguments, flags)
    if not words:
        if "V" in flags:
            return Request("", "", "", frozenset(flags))
        raise Usage(USAGE)
    destination = words[0].removeprefix("ssh://")  # `host`, `user@host` or `ssh://[user@]host[:port]`
    host, port = destination.rpartition("@")[2], ""
    if destination != words[0]:
        host, _, port = host.rstrip("/").partition(":")
    words = _options(words[1:], flags)
    return Request(host, flags.get("p") or port or "22", " ".join(words), frozenset(flags))


def _options(words: list[str], flags: dict[str, str]) -> list[str]:
    """Move leading options into `flags`. Returns the rest."""
    words = list(words)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        _cluster(word[1:], words, flags)
    return words


def _cluster(letters: str, words: list[str], flags: dict[str, str]) -> None:
    """One word of options, e.g. `xnp23`: flags up to one that takes a value, which is the rest or the next word."""
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter not in VALUE_OPTIONS:
            flags[letter] = ""
            continue
        if not letters and not words:
            raise Usage(f"option requires an argument -- {letter}\n{USAGE}")
        value = letters or words.pop(0)
        flags[letter] = value
        if letter == "o" and value.replace("=", " ").split()[:1] in (["Port"], ["port"]):
            flags.setdefault("p", value.replace("=", " ").split()[-1])
        return


def own_address(peers: str) -> str:
    """The address of the calling node: by its host name or, if nodes share one, by its directory."""
    marker = os.path.basename(os.environ.get("BATCHTRAIN_EMULATED_NODE", ""))
    for name in (os.uname().nodename.lower(), f"@{marker}"):
        try:
            return os.readlink(f"{peers}/{name}")
        except OSError:
            continue
    return "127.0.0.1"


def main(peers: str, arguments: list[str]) -> int:
    """Run one command line. Returns the exit status of the remote command, or 255 as ssh does."""
    try:
        request = parse(arguments)
    except Usage as error:
        return _fail(str(error))
    if "V" in request.flags:
        print("OpenSSH stand-in of an emulated Azure Batch node", file=sys.stderr)
        return 0
    if forwards := sorted(request.flags & FORWARD_OPTIONS):
        return _fail(
            f"ssh: -{forwards[0]} does not exist on an emulated node: ssh only runs commands on nodes of the pool"
        )
    if (plain := os.environ.get("BATCHTRAIN_EMULATED_PLAIN")) and starts_open_mpi(request.command):
        return _fail(
            "ssh: Open MPI cannot run across the nodes of this emulator, because they share one host name: they are"
            f" plain processes of this machine ({plain})"
        )
    return _log_in(peers, request)


def starts_open_mpi(command: str) -> bool:
    """Whether a command is Open MPI's daemon (`orted` before 5.0), which hangs if another one has its host name."""
    return any(os.path.basename(word) in ("orted", "prted") for word in command.replace(";", " ").split())


def _on_a_terminal(command: str) -> str:
    """The command on a terminal of its own, so that Ctrl-C ends it and not this program."""
    words = (
        f"import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn({['/bin/sh', '-c', command or SHELL]!r})))"
    )
    program = words.replace("'", "'\\''")
    return f"exec '{sys.executable}' -I -S -c '{program}'"


def _log_in(peers: str, request: Request) -> int:
    client = own_address(peers)
    host = request.host.lower().rstrip(".")
    name = client if host in ("localhost", "127.0.0.1", "::1") else host
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        # Through the folder's descriptor: a unix address has at most 107 bytes, and a data directory may be longer.
        folder = os.open(peers, os.O_PATH | os.O_DIRECTORY)
        connection.connect(f"/proc/self/fd/{folder}/{name.replace('/', '_')}")
    except FileNotFoundError:
        if host.replace(".", "").isdigit():
            return _fail(f"ssh: connect to host {request.host} port {request.port}: No route to host")
        return _fail(f"ssh: Could not resolve hostname {request.host}: Name or service not known")
    except OSError:
        return _fail(f"ssh: connect to host {request.host} port {request.port}: Connection refused")
    stdio = _stdio(request)
    command = _on_a_terminal(request.command) if "t" in request.flags and os.isatty(stdio[0]) else request.command
    body = os.fsencode(f"{client}\0{40000 + os.getpid() % 20000}\0{command}")
    data = len(body).to_bytes(4, "big") + body
    rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in stdio)
    try:
        count = connection.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        if count < len(data):  # an empty command is sent, too; it fails if a quick session is already over
            connection.sendall(data[count:])
        if request.background and os.fork() != 0:
            return 0
        status = connection.recv(1)
    except OSError:
        status = b""
    if not status:
        return _fail(f"Connection to {request.host} closed by remote host.")
    return status[0]


def _stdio(request: Request) -> tuple[int, int, int]:
    """The three descriptors to pass on; a closed one becomes /dev/null, which takes the lowest free number: its own."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    return (os.open(os.devnull, os.O_RDONLY) if request.no_stdin else 0, 1, 2)


def _fail(message: str) -> int:
    print(message, file=sys.stderr, flush=True)
    return 255


def _exit(status: int) -> NoReturn:
    sys.stderr.flush()
    os._exit(status)  # skips the clean-up of the interpreter, a few milliseconds of every login


if __name__ == "__main__":
    try:
        _exit(main(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        _exit(255)
