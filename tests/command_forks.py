"""Runs of the command line in forks of a process that has imported all of it.

Most of what a short command costs is its imports, and the tests that only CI runs start more than a thousand. The tests
that run by default start the installed command, as a user does.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[1]
OWN_START = ("PYTHON", "LANG", "LC_", "LD_")
"""Beginnings of the names of variables that Python reads at its start: a command with such a variable is no fork."""
WINGS = (
    "catalog", "cli", "client", "config", "containers", "diagnosis", "display", "emulator", "frameworks",
    "launchers", "metrics", "plan", "records", "runs", "service", "storage",
)  # fmt: skip
LONGEST = 1 << 20


class Request(NamedTuple):
    """A command: its words with the program, its environment and its directory."""

    words: list[str]
    environment: dict[str, str]
    cwd: str


class Forks:
    """The client of a process that forks a child for each command."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, kind, LONGEST)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.command_forks", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def run(self, request: Request, timeout: float) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises TimeoutExpired with what it printed, and kills it."""
        ours, theirs = socket.socketpair()
        with ours, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            with theirs:
                fds = [out.fileno(), err.fileno(), theirs.fileno()]
                socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            with ours.makefile() as answers:
                process = int(answers.readline())
                ours.settimeout(timeout)
                code = None
                try:
                    code = int(answers.readline())
                except TimeoutError:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
            for file in (out, err):
                file.seek(0)
            if code is None:
                raise subprocess.TimeoutExpired(request.words, timeout, out.read(), err.read())
            return subprocess.CompletedProcess(request.words, code, out.read(), err.read())

    def close(self) -> None:
        """End the process. Commands that still run go on."""
        self._socket.close()
        self._server.wait()


def fits(environment: Mapping[str, str]) -> bool:
    """Whether a command with these variables, beside those of this process, may be a fork."""
    return not any(name.startswith(OWN_START) for name in environment)


def serve(server: socket.socket) -> Request:
    """Fork for each request; returns in the child that is to run it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        content, fds, _, _ = socket.recv_fds(server, LONGEST, 3)
        if not content:
            sys.exit()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            _fork_command(fds[2])
            for number, fd in enumerate(fds[:2], 1):
                os.dup2(fd, number)
                os.close(fd)
            return Request(*json.loads(content))
        for fd in fds:
            os.close(fd)


def _fork_command(status: int) -> None:
    """Returns in the child. The parent says its process id and, at its end, its exit code."""
    if child := os.fork():
        os.write(status, f"{child}\n".encode())
        _, ending = os.waitpid(child, 0)
        os.write(status, f"{os.waitstatus_to_exitcode(ending)}\n".encode())
        os._exit(0)
    os.close(status)


def become(request: Request) -> None:
    """What a start of the program would have set."""
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.cwd)
    sys.argv, sys.path[0] = request.words, str(Path(request.words[0]).parent)
    sys.modules["__main__"].__package__ = None  # click would name it
    sys.stdout = open(1, "w")  # noqa: SIM115 - a descriptor, for the whole process
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1)  # noqa: SIM115


def import_all() -> None:
    """Import what commands import. What needs a package that is not installed stays out."""
    for wing in WINGS:
        package = importlib.import_module(f"batchtrain.{wing}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                with suppress(ImportError):
                    importlib.import_module(found.name)


def run_command() -> NoReturn:
    """Run the command line, and end as Python does, but without taking a thousand modules apart."""
    from batchtrain.cli.__main__ import main

    code: object = None
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as Python reports it
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    connection = socket.socket(fileno=int(sys.argv[1]))
    import_all()
    gc.freeze()  # a collection in a child would copy the memory of all objects
    become(serve(connection))
    run_command()
