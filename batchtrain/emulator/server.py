"""Starts, finds and stops an emulator: in the foreground, as a process of its own, or in a thread of a test."""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import fcntl
import gc
import hashlib
import json
import logging
import os
import resource
import secrets
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from email.utils import formatdate
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from batchtrain.emulator import images, wire
from batchtrain.emulator.machine.types import Machine
from batchtrain.version import __version__

if TYPE_CHECKING:
    from http.client import HTTPConnection

LOOPBACK = ("127.0.0.1", "localhost")
LOG, STATUS_FILE, KEY_FILE, LOCK_FILE, DATABASE = "emulator.log", "emulator.json", "key", "lock", "world.sqlite3"
OURS = {LOG, STATUS_FILE, KEY_FILE, LOCK_FILE, DATABASE, images.FILE}
"""Any of these makes a directory an emulator's."""
LOG_TAIL = 20
ANSWER_SECONDS = 5.0
CONNECTIONS = 65_536
GARBAGE = (10_000, 10, 100)
"""Python looks for garbage this seldom: with a million tasks in memory its usual rounds took a third of the time."""
CLOCK_SECONDS = 600.0
"""A clock that goes on by weeks may have much to do on its way."""

logger = logging.getLogger("batchtrain.emulator")

OpenMachine = Callable[[Path], Awaitable[Machine]]


class Settings(NamedTuple):
    """Where an emulator keeps everything and where it listens; port 0 takes any free one."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 10010
    account: str = "batchtrain"
    certificate: Path | None = None
    """A PEM file: with it the emulator speaks https."""
    private_key: Path | None = None
    token_key: Path | None = None
    """A file with the key of the bearer tokens that are accepted beside signatures; needs https."""
    quotas: Mapping[str, int] = {}
    """What the account may have at most, by the names of QUOTAS."""


QUOTAS = ("pools", "dedicated-cores", "low-priority-cores", "active-jobs", "nodes")
"""`active-jobs` counts jobs that are not completed and active job schedules together; all but `nodes` (256) are without
limit unless one is given."""


class Status(NamedTuple):
    """A running emulator."""

    endpoint: str
    account: str
    key: str
    pid: int
    data_dir: Path
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """The account in the variables that `az batch` reads, and many programs with it."""
        return {
            "AZURE_BATCH_ACCOUNT": self.account,
            "AZURE_BATCH_ACCESS_KEY": self.key,
            "AZURE_BATCH_ENDPOINT": self.endpoint,
        }


class Hint(NamedTuple):
    """Why a job's task (or all that wait, with an empty `task_id`) stays active."""

    job_id: str
    task_id: str
    text: str


class StartFailed(Exception):
    """The emulator did not start; the message says why and, where there is one, ends with its log."""


class PortTaken(StartFailed):
    """Another program listens there."""


class AlreadyRunning(StartFailed):
    """Another emulator has this data directory."""


class NotRunning(Exception):
    """No emulator answers for this data directory."""


class Refused(OSError):
    """The emulator does not do what it was asked; the message says why."""


# In the foreground ---------------------------------------------------------------------------------------------------


def serve(settings: Settings, ready: Callable[[Status], None] = lambda status: None) -> None:
    """Run until SIGTERM or SIGINT; returns when every node is down. Raises StartFailed."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    gc.set_threshold(*GARBAGE)
    _allow_connections()

    def up(status: Status) -> None:
        gc.freeze()
        ready(status)

    asyncio.run(_serve(settings, up, _Stop(signals=True)))


def _allow_connections() -> None:
    """As many open files as there may be: a connection is one, and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, CONNECTIONS)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Stop:
    """Asks the server to end, from a signal, a request or another thread."""

    def __init__(self, *, signals: bool) -> None:
        self.signals = signals
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: Callable[[], None] = lambda: None

    def attach(self, end: Callable[[], None]) -> None:
        self._loop, self._end = asyncio.get_running_loop(), end
        if self.signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, end)

    def __call__(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._end)


async def _serve(
    settings: Settings,
    ready: Callable[[Status], None],
    stop: _Stop,
    open_machine: OpenMachine | None = None,
) -> None:
    """The whole life of a server, everything closed again at its end."""
    # Not at the top of the file: whoever only asks for a status or stops an emulator needs none of these.
    from batchtrain.emulator.alarms import Alarms
    from batchtrain.emulator.clock import Clock
    from batchtrain.emulator.control import Identity
    from batchtrain.emulator.drive import Driver
    from batchtrain.emulator.http import Application
    from batchtrain.emulator.machine.routing import RoutingMachine
    from batchtrain.emulator.machine.simulated import SimulatedMachine
    from batchtrain.emulator.store import Store, UnknownSchema

    data_dir = settings.data_dir.absolute()
    _make_directory(data_dir)
    token_key = _token_key(settings)
    _check_files(settings)
    with _locked(data_dir), _listen(settings) as listener:
        endpoint = f"{'https' if settings.certificate else 'http'}://{settings.host}:{listener.getsockname()[1]}"
        with _writing(data_dir):
            key = _key(data_dir)
            try:
                store = Store(data_dir / DATABASE)
            except UnknownSchema as error:
                raise StartFailed(str(error)) from error
        alarms = Alarms(Clock(clock, _reading(store)))
        machine = RoutingMachine(await (open_machine or _process_machine)(data_dir), SimulatedMachine(alarms, data_dir))
        world = _world(settings, endpoint, store.meta("seed", secrets.token_hex(16)))
        driver = Driver(world, store, machine, alarms)
        try:
            with _writing(data_dir):
                driver.wake()
            status = Status(endpoint, settings.account, key, os.getpid(), data_dir, data_dir / LOG)
            identity = Identity(__version__, os.getpid(), settings.account)
            application = Application(driver, identity, key, stop, token_key)
            said = partial(_announce, status, ready, settings.certificate, own=stop.signals)
            await _run_http(application, listener, stop, said, settings)
        finally:
            try:
                await driver.stop()
            finally:
                (data_dir / STATUS_FILE).unlink(missing_ok=True)


def _make_directory(data_dir: Path) -> None:
    """Make the data directory, for its owner alone. One that holds only others' files is refused as it is."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = {path.name for path in data_dir.iterdir()}
    if not found:
        data_dir.chmod(0o700)
    elif not found & OURS:
        raise StartFailed(f"{data_dir} holds files that are not an emulator's: give it a directory of its own")


@contextlib.contextmanager
def _writing(data_dir: Path) -> Iterator[None]:
    """A disk that is full, or cannot be written, is said in one sentence."""
    import sqlite3  # slow to import, as above

    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StartFailed(f"{data_dir} cannot be written ({reason}): make room, or give another directory") from error


def clock() -> int:
    """The present time in ticks."""
    return wire.from_unix_ns(time.time_ns())


def _world(settings: Settings, endpoint: str, seed: str) -> Any:
    from batchtrain.catalog import sizes
    from batchtrain.emulator.machine import load, packages
    from batchtrain.emulator.world import Quotas, Size, World

    data_dir = settings.data_dir.absolute()

    def size_of(vm_size: str) -> Size:
        found = sizes.find(vm_size)
        return Size(found.cores, found.gpus) if found else Size()

    return World(
        settings.account,
        endpoint,
        seed,
        network(settings.data_dir),
        size_of,
        Quotas(**{name.replace("-", "_"): most for name, most in settings.quotas.items()}),
        lambda: packages.found(data_dir),
        load.Gauge(data_dir),
    )


def quotas_of(texts: Iterable[str]) -> dict[str, int]:
    """`NAME=NUMBER` of each. Raises ValueError."""
    found = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in QUOTAS or not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise ValueError(f"a quota is NAME=NUMBER with a NAME of {', '.join(QUOTAS)}, not `{text}`")
        found[name] = int(number)
    return found


def network(data_dir: Path) -> int:
    """The second octet of its nodes' addresses: each data directory has its own, as far as 254 of them go."""
    digest = hashlib.sha256(str(data_dir.absolute()).encode()).digest()
    return 1 + int.from_bytes(digest[:4], "big") % 254


def _reading(store: Any) -> Any:
    """How the account's clock stood when the emulator was last up."""
    from batchtrain.emulator.clock import Reading

    noted = store.meta("clock", "")
    return Reading(*json.loads(noted)) if noted else None


async def _process_machine(data_dir: Path) -> Machine:
    from batchtrain.emulator.machine.process import open_machine

    return await open_machine(data_dir, lambda image: images.prefix_of(data_dir, image))


def _check_files(settings: Settings) -> None:
    if bool(settings.certificate) != bool(settings.private_key):
        raise StartFailed("https needs both a certificate and its private key")
    missing = [str(file) for file in (settings.certificate, settings.private_key) if file and not file.is_file()]
    if missing:
        raise StartFailed(f"there is no file {' and no '.join(missing)}")


def _token_key(settings: Settings) -> str:
    """The key of the tokens that are accepted; empty where none are."""
    if settings.token_key is None:
        return ""
    if settings.certificate is None:
        raise StartFailed("bearer tokens are accepted over https only: give a certificate and its private key")
    key = settings.token_key.read_text(encoding="utf-8").strip()
    if not key:
        raise StartFailed(f"{settings.token_key} holds no key")
    return key


async def _run_http(
    application: Any, listener: socket.socket, stop: _Stop, ready: Callable[[], None], settings: Settings
) -> None:
    import uvicorn

    from batchtrain.emulator.connections import Connection

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the signals are ours: after an orderly stop the exit status is 0

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    config = uvicorn.Config(
        application,
        http=Connection.of(application.connections),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=2,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
    )
    server = Server(config)

    def end() -> None:
        server.should_exit = True

    stop.attach(end)
    await server.serve([listener])


def _announce(status: Status, ready: Callable[[Status], None], certificate: Path | None, *, own: bool) -> None:
    document = {"pid": status.pid, "endpoint": status.endpoint, "account": status.account, "version": __version__,
                "ownProcess": own, "certificate": str(certificate.absolute()) if certificate else ""}  # fmt: skip
    images.write_atomically(status.data_dir / STATUS_FILE, json.dumps(document) + "\n")
    logger.info("listening at %s, account %s, data in %s", status.endpoint, status.account, status.data_dir)
    ready(status)


@contextlib.contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    """One emulator a data directory; the lock goes with the process, however it ends."""
    with (data_dir / LOCK_FILE).open("w") as file:
        if not _try_lock(file):
            raise AlreadyRunning(f"another emulator is running on {data_dir}")
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _listen(settings: Settings) -> Iterator[socket.socket]:
    if settings.host not in LOOPBACK:
        raise StartFailed(f"the emulator runs other people's commands: it listens on 127.0.0.1, not {settings.host}")
    # The protocol is named because asyncio sets TCP_NODELAY only then; without, every answer waits 40 ms for an ACK.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", settings.port))
        except OSError as error:
            message = f"port {settings.port} of {settings.host} cannot be used: {error.strerror}"
            raise PortTaken(f"{message}; choose another, or 0 for any free one") from error
        yield listener


def _key(data_dir: Path) -> str:
    """The account's key, made at the first start and readable by its owner alone."""
    path = data_dir / KEY_FILE
    if not path.exists():
        images.write_atomically(path, base64.b64encode(secrets.token_bytes(64)).decode() + "\n", 0o600)
    return path.read_text(encoding="ascii").strip()


# As a process of its own ---------------------------------------------------------------------------------------------


def spawn(settings: Settings, timeout: float = 20.0) -> Status:
    """Start an emulator that outlives its starter and wait until it answers. Raises StartFailed."""
    data_dir = settings.data_dir.absolute()
    _make_directory(data_dir)
    reader, writer = os.pipe()
    try:
        pid = _start_process(settings, data_dir, writer)
    finally:
        os.close(writer)
    try:
        answer = _first_line(reader, timeout)
    finally:
        os.close(reader)
    if answer.get("endpoint"):
        return Status(answer["endpoint"], settings.account, _key(data_dir), pid, data_dir, data_dir / LOG)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _reap(pid, wait=True)
    if "error" in answer:
        raise _ERRORS.get(answer["error"], StartFailed)(answer["message"])
    reason = answer.get("message") or f"the emulator did not answer within {timeout:g} s"
    raise StartFailed(f"{reason}\n{_tail(data_dir / LOG)}".rstrip())


_ERRORS = {"PortTaken": PortTaken, "AlreadyRunning": AlreadyRunning}


READY_FD = 3
TLS_OPTIONS = ("--certificate", "--private-key", "--token-key")


def _start_process(settings: Settings, data_dir: Path, ready: int) -> int:
    """A session of its own, its output in the log, one pipe to say that it is up."""
    command = [sys.executable, "-m", "batchtrain.emulator", "--data-dir", str(data_dir), "--host", settings.host,
               "--port", str(settings.port), "--account", settings.account, "--ready-fd", str(READY_FD)]  # fmt: skip
    for option, file in zip(TLS_OPTIONS, settings[4:7], strict=True):
        command += [option, str(file.absolute())] if file else []
    for name, most in settings.quotas.items():
        command += ["--quota", f"{name}={most}"]
    log = os.open(data_dir / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return os.posix_spawn(
            sys.executable,
            command,
            _importable(dict(os.environ)),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, ready, READY_FD),
            ],
            setsid=True,
        )
    finally:
        os.close(log)


def _importable(environment: dict[str, str]) -> dict[str, str]:
    """The child must find this very package, installed or not."""
    here = str(Path(__file__).parents[2])
    known = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{here}{os.pathsep}{known}" if known else here}


def _first_line(reader: int, timeout: float) -> dict[str, str]:
    """What the child says of its start; nothing when it died in silence or took too long."""
    text = b""
    end = time.monotonic() + timeout
    while not text.endswith(b"\n"):
        if not select.select([reader], [], [], max(end - time.monotonic(), 0))[0]:
            return {}
        part = os.read(reader, 65_536)
        if not part:
            return {"message": "the emulator ended while it started"}
        text += part
    answer: dict[str, str] = json.loads(text)
    return answer


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL:])
    return ""


def _reap(pid: int, *, wait: bool = False) -> None:
    """If it was our child, leave no zombie."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0 if wait else os.WNOHANG)


def status(data_dir: Path) -> Status | None:
    """The emulator of a data directory, if one answers there; a number that another process took over does not."""
    data_dir = data_dir.absolute()
    try:
        noted = json.loads((data_dir / STATUS_FILE).read_text(encoding="utf-8"))
        key = (data_dir / KEY_FILE).read_text(encoding="ascii").strip()
        answer = _request("GET", noted["endpoint"], "/_emulator/health", certificate=noted.get("certificate", ""))
    except (OSError, ValueError, KeyError):
        return None
    if answer.get("pid") != noted["pid"]:
        return None
    return Status(noted["endpoint"], noted["account"], key, noted["pid"], data_dir, data_dir / LOG)


def stop(data_dir: Path, timeout: float = 15.0) -> bool:
    """End the emulator of a data directory and all its nodes; False when none was running."""
    running = status(data_dir)
    if running is None:
        return False
    own = _is_own_process(running.data_dir)
    ask("POST", running, "stop")
    with (running.data_dir / LOCK_FILE).open("w") as file:
        end = time.monotonic() + timeout
        while not _try_lock(file):
            if time.monotonic() > end:
                os.kill(running.pid, signal.SIGKILL)  # its nodes see their sockets end, and go too
            time.sleep(0.02)
    while own and _lives(running.pid):  # the lock goes a little before the process: threads may still be at work
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)
        time.sleep(0.02)
    _reap(running.pid)
    return True


def _is_own_process(data_dir: Path) -> bool:
    """Whether the emulator is all that its process does, and not a thread of a test."""
    try:
        return bool(json.loads((data_dir / STATUS_FILE).read_text(encoding="utf-8")).get("ownProcess"))
    except (OSError, ValueError):
        return False


def _lives(pid: int) -> bool:
    """Whether a process still runs; one that nobody has reaped yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def reset(data_dir: Path) -> None:
    """Delete every pool, job and node. Raises NotRunning."""
    ask("POST", at(data_dir), "reset")


def hints(data_dir: Path) -> tuple[Hint, ...]:
    """Why tasks stay active. Raises NotRunning."""
    answer = ask("GET", at(data_dir), "hints")
    return tuple(Hint(one["jobId"], one["taskId"], one["text"]) for one in answer["value"])


def at(data_dir: Path) -> Status:
    """The emulator of a data directory. Raises NotRunning."""
    running = status(data_dir)
    if running is None:
        raise NotRunning(f"no emulator is running on {data_dir}")
    return running


def ask(verb: str, to: Status, path: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
    """One signed request to an emulator's own paths (`clock`, `faults`, …). Raises Refused, OSError."""
    full = f"/_emulator/{path}"
    body = b"" if document is None else json.dumps(document).encode()
    headers = {"ocp-date": formatdate(usegmt=True)}
    if verb != "GET":
        headers["content-length"] = str(len(body))
    headers["authorization"] = wire.authorization(to.account, to.key, verb, full, "", headers)
    noted = json.loads((to.data_dir / STATUS_FILE).read_text(encoding="utf-8"))
    slow = CLOCK_SECONDS if path == "clock" else ANSWER_SECONDS
    return _request(verb, to.endpoint, full, headers, body, noted.get("certificate", ""), slow)


def _request(
    verb: str,
    endpoint: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    certificate: str = "",
    timeout: float = ANSWER_SECONDS,
) -> dict[str, Any]:
    from http.client import HTTPException  # slow to import, and no server needs it

    connection = _connection(endpoint, certificate, timeout)
    try:
        connection.request(verb, path, body=body or None, headers=headers or {})
        response = connection.getresponse()
        answer = response.read()
    except HTTPException as error:
        raise OSError(f"{endpoint} does not speak HTTP") from error
    finally:
        connection.close()
    found: dict[str, Any] = json.loads(answer) if answer else {}
    if response.status >= 400:
        reasons = [item["value"] for item in found.get("values") or () if item.get("key") == "Reason"]
        raise Refused(reasons[0] if reasons else f"{verb} {path}: {response.status}")
    return found


def _connection(endpoint: str, certificate: str, timeout: float) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection  # see above

    where = urlsplit(endpoint)
    host = where.hostname or ""
    if not certificate:
        return HTTPConnection(host, where.port, timeout=timeout)
    import ssl

    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the file may hold no more than the emulator's own
    return HTTPSConnection(host, where.port, timeout=timeout, context=context)


# In a thread ---------------------------------------------------------------------------------------------------------


class Emulator:
    """An emulator in a thread of this process: `with Emulator(Settings(tmp_path, port=0)) as emulator: ...`."""

    def __init__(self, settings: Settings, open_machine: OpenMachine | None = None) -> None:
        self.settings = settings
        self._open_machine = open_machine
        self._stop = _Stop(signals=False)
        self._up = threading.Event()
        self._status: Status | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="emulator", daemon=True)

    @property
    def status(self) -> Status:
        """Where it is; only while it runs."""
        assert self._status is not None, "the emulator is not running"
        return self._status

    @property
    def endpoint(self) -> str:
        return self.status.endpoint

    @property
    def account(self) -> str:
        return self.status.account

    @property
    def key(self) -> str:
        return self.status.key

    def __enter__(self) -> Emulator:
        self._thread.start()
        self._up.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(_serve(self.settings, self._ready, self._stop, self._open_machine))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._error = error
        finally:
            self._up.set()

    def _ready(self, status: Status) -> None:
        self._status = status
        self._up.set()


# python -m batchtrain.emulator ---------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """The command line; with --ready-fd, one JSON line there says how the start went."""
    parser = argparse.ArgumentParser(prog="python -m batchtrain.emulator", description="Azure Batch on this machine.")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=10010)
    parser.add_argument("--account", default="batchtrain")
    for option in TLS_OPTIONS:
        parser.add_argument(option, type=Path, metavar="FILE", help=_TLS_HELP[option])
    parser.add_argument("--quota", action="append", default=[], metavar="NAME=N", help=f"one of {', '.join(QUOTAS)}")
    parser.add_argument("--ready-fd", type=int, default=-1, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    try:
        quotas = quotas_of(given.quota)
    except ValueError as error:
        parser.error(str(error))
    settings = Settings(given.data_dir, given.host, given.port, given.account, given.certificate, given.private_key,
                        given.token_key, quotas)  # fmt: skip
    say = _sayer(given.ready_fd)
    try:
        serve(settings, lambda status: say({"endpoint": status.endpoint}))
    except StartFailed as error:
        say({"error": type(error).__name__, "message": str(error)})
        print(error, file=sys.stderr)
        return 1
    return 0


_TLS_HELP = {
    "--certificate": "PEM file; with it and --private-key the emulator speaks https",
    "--private-key": "PEM file of the certificate's key",
    "--token-key": "file with the key of bearer tokens to accept",
}


def _sayer(descriptor: int) -> Callable[[dict[str, str]], None]:
    def say(answer: dict[str, str]) -> None:
        if descriptor >= 0:
            os.write(descriptor, (json.dumps(answer) + "\n").encode())
            os.close(descriptor)
        elif "endpoint" in answer:
            print(f"listening at {answer['endpoint']}", file=sys.stderr)

    return say
