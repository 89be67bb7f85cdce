"""The process of an emulator, or its thread of a test: opens the machine and the store, and answers requests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import resource
import secrets
import shlex
import signal
import socket
import sqlite3
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec
import uvicorn

from batchtrain import state_files
from batchtrain.connections import Connection
from batchtrain.emulator import account_key, identity, logfile, mapped_images, own_catalog, server, trust
from batchtrain.emulator.alarms import Alarms
from batchtrain.emulator.blob_store import BlobStore
from batchtrain.emulator.clock import Clock, Reading
from batchtrain.emulator.control import Identity
from batchtrain.emulator.drive import Driver
from batchtrain.emulator.http import Application
from batchtrain.emulator.interface import Machine, StorageAccount
from batchtrain.emulator.machine import host_load, packages
from batchtrain.emulator.machine.process import open_machine
from batchtrain.emulator.machine.routing import RoutingMachine
from batchtrain.emulator.machine.simulated import SimulatedMachine
from batchtrain.emulator.pace import PACES
from batchtrain.emulator.package_files import PackageFolder
from batchtrain.emulator.server import Settings, StartFailed, Status, StatusRecord
from batchtrain.emulator.store import Store, UnknownSchema
from batchtrain.emulator.world import Quotas, World
from batchtrain.errors import DamagedState
from batchtrain.version import __version__

LOG_SECONDS = 60.0
TICKS = 10
"""Ticks of the HTTP server, of 0.1 s each, between two looks at the data directory."""
GARBAGE = (10_000, 10, 100)
"""Python's garbage collection thresholds. With a million tasks in memory, the default took a third of the time."""
logger = logging.getLogger("batchtrain.emulator")
OpenMachine = Callable[[Path], Awaitable[Machine]]


def serve(settings: Settings, ready: Callable[[Status], None] = lambda status: None) -> None:
    """Run until SIGTERM or SIGINT. Returns when every node is down. Raises StartFailed."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    gc.set_threshold(*GARBAGE)
    _allow_connections()

    def up(status: Status) -> None:
        gc.freeze()
        _bound(logfile.Bounded(status.log))
        ready(status)

    asyncio.run(_serve(settings, up, _Stop(signals=True)))


def _bound(log: logfile.Bounded) -> None:
    """Keep the log below its limit: checked at each logged line, and regularly for what other processes write to it."""
    if log.is_written:
        logging.getLogger().addHandler(log)
        loop = asyncio.get_running_loop()

        def look() -> None:
            log.cut()
            loop.call_later(LOG_SECONDS, look)

        look()


def _allow_connections() -> None:
    """Raise the limit of open files: each connection needs one, and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = server.CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, server.CONNECTIONS)
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
            with contextlib.suppress(RuntimeError):  # the loop has already ended
                self._loop.call_soon_threadsafe(self._end)


async def _serve(
    settings: Settings, ready: Callable[[Status], None], stop: _Stop, open_machine: OpenMachine | None = None
) -> None:
    """Serve until the end, and close everything that was opened."""
    data_dir, original = settings.data_dir.absolute(), settings
    server.make_directory(data_dir)
    _check_files(settings)
    with _locked(data_dir) as lock, _listen(settings) as listener:
        with _opening(data_dir):
            if data_loss := _data_loss(data_dir):
                logger.warning("%s", data_loss)
            own_catalog.check(data_dir)
            mapped_images.list_images(data_dir)
            settings, key = _with_certificates(settings), account_key.ensure(data_dir / server.KEY_FILE)
            (data_dir / server.KEPT_FILE).unlink(missing_ok=True)  # of an emulator that was killed
            try:
                store = Store(data_dir / server.DATABASE)
            except UnknownSchema as error:
                raise StartFailed(f"{error}, or {_anew(data_dir)}") from error
            reading, seed = store.meta("clock", ""), store.meta("seed", secrets.token_hex(16))
            last_reading = msgspec.json.decode(reading, type=Reading) if reading else None
        endpoint = f"{settings.base}:{listener.getsockname()[1]}"
        alarms = Alarms(Clock(server.clock, last_reading))
        machine = RoutingMachine(await (open_machine or _process_machine)(data_dir), SimulatedMachine(alarms, data_dir))
        world = _world(settings, endpoint, seed)
        world.identity_authority = partial(identity.node_authority, endpoint, key)
        driver = Driver(world, store, machine, alarms, BlobStore(data_dir, key))
        try:
            with _opening(data_dir):
                driver.recover()
            status = Status(endpoint, settings.account, key, os.getpid(), data_dir, data_dir / server.LOG,
                            machine.plain_nodes, machine.plain_nodes_remedy, data_loss, _trusted(settings))  # fmt: skip
            process = Identity(__version__, os.getpid(), settings.account, _host(settings, endpoint))
            application = Application(driver, process, key, stop)
            announce = partial(_announce, status, original, ready, alone=stop.signals)
            await _run_http(application, listener, stop, announce, settings, partial(_is_gone, lock))
        finally:
            try:
                await driver.stop()
            finally:
                for name in (server.STATUS_FILE, server.KEPT_FILE):
                    (data_dir / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _opening(data_dir: Path) -> Iterator[None]:
    """Report a full or read-only disk, or a damaged database, in one sentence."""
    database = data_dir / server.DATABASE
    with server.writing(data_dir):
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StartFailed(f"{database} cannot be used ({error}): make room, or {_anew(data_dir)}") from error
        except (sqlite3.DatabaseError, ValueError, LookupError, TypeError) as error:
            raise StartFailed(
                f"{database} is damaged ({error}), so its pools and jobs cannot be read: put a copy back in its place,"
                f" or {_anew(data_dir)}"
            ) from error


def _anew(data_dir: Path) -> str:
    """The last way out: the command that puts the database aside."""
    database, aside = shlex.quote(str(data_dir / server.DATABASE)), shlex.quote(str(data_dir / "damaged"))
    return f"start without its pools and jobs after `mkdir -p {aside} && mv {database}* {aside}`"


def _data_loss(data_dir: Path) -> str:
    """What is missing of the database of an earlier start, and the next step."""
    database, log = data_dir / server.DATABASE, data_dir / f"{server.DATABASE}-wal"
    if not (data_dir / server.KEY_FILE).exists():  # the first start
        return ""
    if not database.exists() or database.stat().st_size < 2:  # SQLite takes one byte for an empty database
        what = "is empty" if database.exists() else "is missing"
        return f"{database} {what}: all pools and jobs of earlier starts are gone; if you have a copy, put it back"
    if (data_dir / server.STATUS_FILE).exists() and not log.exists():
        return (
            f"{log} is missing, which had the last changes before the emulator was killed: pools, jobs and tasks may be"
            " missing or be as they were before; if you have a copy of it, put it back, otherwise create them anew"
        )
    return ""


def _world(settings: Settings, endpoint: str, seed: str) -> Any:
    data_dir = settings.data_dir.absolute()
    return World(
        settings.account,
        endpoint,
        seed,
        server.network(data_dir),
        lambda vm_size: own_catalog.size_of(data_dir, vm_size),
        lambda: own_catalog.images(data_dir),
        Quotas(**{name.replace("-", "_"): most for name, most in settings.quotas.items()}),
        lambda: packages.installed(data_dir),
        host_load.Gauge(data_dir),
        PACES[settings.pace],
        settings.allocation,
        PackageFolder(data_dir),
    )


async def _process_machine(data_dir: Path) -> Machine:
    machine = await open_machine(data_dir, lambda image: mapped_images.prefix_of(data_dir, image))
    main = mapped_images.main_dir(data_dir)
    if main != data_dir:
        machine.share_storage(partial(_storage_of, main))
    return machine


def _storage_of(main: Path) -> StorageAccount:
    """The storage that the first account of an emulator runs; starts its emulator if it is not running."""
    running, _ = server.ensure(Settings(main, port=0))
    return server.storage(running)


def _check_files(settings: Settings) -> None:
    if bool(settings.certificate) != bool(settings.private_key):
        raise StartFailed("https needs both a certificate and its private key")
    missing = [str(file) for file in (settings.certificate, settings.private_key) if file and not file.is_file()]
    if missing:
        raise StartFailed(f"there is no file {' and no '.join(missing)}")
    if settings.certificate:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.private_key)
        except OSError as error:
            files = f"{settings.certificate} and {settings.private_key}"
            raise StartFailed(f"{files} are not a certificate and its key in PEM: {error}") from None


def _with_certificates(settings: Settings) -> Settings:
    """The same settings, with a certificate of the emulator's own if https was requested without a certificate."""
    if not settings.https or settings.certificate:
        return settings
    from batchtrain.emulator import certificates  # slow to import, and only https needs it

    host = trust.checked(settings.host)
    now = datetime.now(timezone.utc)
    files = certificates.ensure(settings.data_dir.absolute(), (host, *settings.names), os.environ, now)
    return settings._replace(certificate=files.certificate, private_key=files.private_key)


def _trusted(settings: Settings) -> str:
    """The file that clients must trust: the emulator's own authority, or the given certificate."""
    files = trust.of(settings.data_dir.absolute())
    if settings.certificate == files.certificate:
        return str(files.ca)
    return str(settings.certificate.absolute()) if settings.certificate else ""


def _host(settings: Settings, endpoint: str) -> str:
    """The account's host name for Azure Resource Manager: its own name if it has one."""
    where = urlsplit(endpoint)
    own_names = (name for name in settings.names if name.startswith(f"{settings.account}.") and "*" not in name)
    host = next(own_names, None)
    return where.netloc if host is None else host if where.port == 443 else f"{host}:{where.port}"


async def _run_http(
    application: Any,
    listener: socket.socket,
    stop: _Stop,
    ready: Callable[[], None],
    settings: Settings,
    is_gone: Callable[[], bool],
) -> None:
    """Answer requests until the end. is_gone: whether the data directory was deleted, which ends the emulator too."""

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the signals are ours: the exit status of an orderly stop is 0

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

        async def on_tick(self, counter: int) -> bool:
            return await super().on_tick(counter) or (counter % TICKS == 0 and is_gone())

    config = uvicorn.Config(
        application,
        http=Connection.of(application.connections),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,  # an injected skew changes it
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


def _announce(status: Status, original: Settings, ready: Callable[[Status], None], *, alone: bool) -> None:
    facts = status.certificate, status.data_loss, status.plain_nodes, status.plain_nodes_remedy
    settings = server.plain(original)
    record = StatusRecord(status.endpoint, status.account, status.pid, __version__, alone, *facts, settings=settings)
    state_files.write_atomically(status.data_dir / server.STATUS_FILE, msgspec.json.encode(record) + b"\n")
    logger.info("listening at %s, account %s, data in %s", status.endpoint, status.account, status.data_dir)
    ready(status)


@contextlib.contextmanager
def _locked(data_dir: Path) -> Iterator[IO[str]]:
    """The lock of a data directory, which has one emulator. It is released when the process ends in any way."""
    with state_files.lock_file(data_dir / server.LOCK_FILE) as file:
        for _ in range(server.LOCK_TRIES):  # a client that checks whether an emulator runs has it for a moment
            if server.try_lock(file):
                break
            time.sleep(server.LOCK_PAUSE)
        else:
            end = f"fuser -k {shlex.quote(str(data_dir / server.LOCK_FILE))}"
            raise server.AlreadyRunning(f"another emulator is running on {data_dir}; `{end}` ends it")
        yield file


def _is_gone(lock: IO[str]) -> bool:
    """Whether the locked file was deleted with its data directory, or replaced: no client finds this emulator then."""
    try:
        is_gone = not os.path.samestat(os.fstat(lock.fileno()), Path(lock.name).stat())
    except (FileNotFoundError, NotADirectoryError):
        is_gone = True
    if is_gone:
        logger.error("%s was deleted, so the emulator ends", lock.name)
    return is_gone


@contextlib.contextmanager
def _listen(settings: Settings) -> Iterator[socket.socket]:
    if not trust.loopback(settings.host):
        raise StartFailed(
            f"the emulator runs other people's commands: it listens on loopback addresses only, not on {settings.host};"
            " give an address of 127.0.0.0/8, ::1 or localhost"
        )
    address = "127.0.0.1" if settings.host == "localhost" else settings.host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only then; without, every answer waits 40 ms for an ACK.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        former = 0
        if settings.port == 0:  # the port of an emulator that was killed, which its clients still use
            with contextlib.suppress(FileNotFoundError, ValueError):
                former = urlsplit(server.noted(settings.data_dir).endpoint).port or 0
        try:
            _bind(listener, address, former or settings.port, settings.port)
        except OSError as error:
            message = f"port {settings.port} of {settings.host} cannot be used: {error.strerror}"
            raise server.PortTaken(f"{message}; choose another, or 0 for any free one") from error
        yield listener


def _bind(listener: socket.socket, address: str, port: int, otherwise: int) -> None:
    try:
        listener.bind((address, port))
    except OSError:
        if port == otherwise:
            raise
        listener.bind((address, otherwise))


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
        """Its status; only while it runs."""
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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


def main(encoded: str) -> int:
    """The process that `spawn` starts with its settings. One line of JSON at READY_FD reports the start."""
    settings = msgspec.json.decode(encoded, type=Settings, dec_hook=lambda _, path: Path(path))
    try:
        serve(settings, lambda status: _say({"endpoint": status.endpoint}))
    except (StartFailed, DamagedState) as error:
        _say({"error": type(error).__name__, "message": str(error)})
        print(error, file=sys.stderr)
        return 1
    return 0


def _say(answer: dict[str, str]) -> None:
    os.write(server.READY_FD, (json.dumps(answer) + "\n").encode())
    os.close(server.READY_FD)
