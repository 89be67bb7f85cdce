"""Starts, finds, asks and stops the process of an emulator."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import select
import shlex
import signal
import ssl
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from email.utils import formatdate
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import IO, Annotated, Any, BinaryIO, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from batchtrain import state_files
from batchtrain.emulator import account_key, identity, mapped_images, own_catalog, trust, wire
from batchtrain.emulator.interface import StorageAccount
from batchtrain.errors import DamagedState

LOG, STATUS_FILE, KEY_FILE, LOCK_FILE, DATABASE = "emulator.log", "emulator.json", "key", "lock", "world.sqlite3"
KEPT_FILE = "kept"
"""Exists while the user wants an emulator that a command started for itself to continue."""
ENVIRONMENTS = "environments"
"""What `batchtrain images env` makes, also before the first start."""
OURS = {LOG, STATUS_FILE, KEY_FILE, LOCK_FILE, DATABASE, ENVIRONMENTS, own_catalog.SIZES, own_catalog.IMAGES}
OURS |= {mapped_images.FILE, mapped_images.LOCK_FILE, mapped_images.ACCOUNTS}
"""Each of these files shows that a directory is an emulator's."""
LOG_TAIL = 20
LOCK_TRIES, LOCK_PAUSE = 5, 0.02
ANSWER_SECONDS = 5.0
"""Seconds for one answer, after which the question is repeated."""
BUSY_SECONDS = 60.0
"""Seconds for which a service that runs but does not answer is asked again."""
START_SECONDS = 20.0
CONNECTIONS = 65_536
SLOW_SECONDS = 600.0
"""Seconds for an advance of the clock by weeks, which may handle many events, or for the installation of storage."""
MOST_ANSWER = 64 << 20
"""Bytes of an answer that are read: another program may have the port."""


class Settings(NamedTuple):
    """Where an emulator keeps its data and listens; port 0 takes any free port."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 10010
    account: str = "batchtrain"
    certificate: Path | None = None
    """A PEM file: with it the emulator uses https."""
    private_key: Path | None = None
    quotas: Mapping[str, int] = {}
    """The quotas of the account, by the names of QUOTAS."""
    https: bool = False
    """Use https with a certificate of the emulator's own authority."""
    names: tuple[str, ...] = ()
    """More host names of that certificate, such as NAME.REGION.batch.azure.com."""
    pace: str = "instant"
    """How long nodes take to boot and to leave, by the names of `pace.PACES`."""
    allocation: str = "BatchService"
    """BatchService or UserSubscription: whose subscription has the nodes."""

    @property
    def base(self) -> str:
        """The endpoint without its port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}"


QUOTAS = ("pools", "dedicated-cores", "low-priority-cores", "active-jobs", "nodes")
"""`active-jobs` counts uncompleted jobs and active job schedules. Only `nodes` has a default limit: 256."""


class Status(NamedTuple):
    """A running emulator."""

    endpoint: str
    account: str
    key: str
    pid: int
    data_dir: Path
    log: Path
    plain_nodes: str = ""
    """Why its nodes are plain processes of this machine; empty if they are not."""
    plain_nodes_remedy: str = ""
    """How to change that."""
    data_loss: str = ""
    """What of its database was missing at its start, and the next step; empty if nothing."""
    certificate: str = ""
    """A file of certificates that clients must trust; empty over http."""

    def __repr__(self) -> str:
        return f"Status(endpoint={self.endpoint!r}, account={self.account!r}, pid={self.pid}, data_dir={self.data_dir})"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the account for `az batch` and other programs, which then also trust the emulator."""
        files = trust.of(self.data_dir)
        variables = files.variables if self.certificate == str(files.ca) else {}
        hosts = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(",")
        direct_hosts = ",".join(dict.fromkeys(host for host in (*hosts, "127.0.0.1", "localhost") if host))
        return {
            "AZURE_BATCH_ACCOUNT": self.account,
            "AZURE_BATCH_ACCESS_KEY": self.key,
            "AZURE_BATCH_ENDPOINT": self.endpoint,
            **identity.variables(self.endpoint, self.key),
            **variables,
            **dict.fromkeys(("NO_PROXY", "no_proxy"), direct_hosts),
        }


class StatusRecord(msgspec.Struct, frozen=True, rename="camel"):
    """emulator.json: what an emulator records at its start. Without an endpoint it names no emulator."""

    endpoint: str = ""
    account: str = ""
    pid: Annotated[int, msgspec.Meta(ge=1)] = 1
    version: str = ""
    own_process: bool = False
    """Whether it is a process of its own, not a thread of a test."""
    certificate: str = ""
    data_loss: str = ""
    plain_nodes: str = ""
    plain_nodes_remedy: str = ""
    settings: dict[str, Any] = {}


class Hint(NamedTuple):
    """Why a job's task (or all waiting tasks, if `task_id` is empty) stays active."""

    job_id: str
    task_id: str
    text: str


class StartFailed(Exception):
    """The emulator did not start. The message has the reason, and the end of its log if there is one."""


class Unsafe(StartFailed):
    """Other users own the data directory or can change it."""


class PortTaken(StartFailed):
    """Another program listens on the port."""


class AlreadyRunning(StartFailed):
    """Another emulator uses this data directory."""


class NotRunning(Exception):
    """No emulator answers for this data directory."""


class Busy(Exception):
    """The emulator runs and has not answered for a long time."""


class Refused(OSError):
    """The emulator refuses the request; the message has the reason."""


# In the foreground ---------------------------------------------------------------------------------------------------


def make_directory(data_dir: Path) -> None:
    """Make the data directory, readable by its owner only. A directory with other programs' files is refused."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        _check_kind(error)
        raise
    _check_owner(data_dir)
    names = {path.name for path in data_dir.iterdir()}
    if names and not names & OURS:
        raise StartFailed(f"{data_dir} holds files that are not an emulator's: give it a directory of its own")
    if names:
        _check_writers(data_dir)
    data_dir.chmod(0o700)


def _check_owner(data_dir: Path) -> None:
    if (owner := data_dir.stat().st_uid) != os.getuid():
        raise Unsafe(
            f"{data_dir} belongs to user {owner}, and you are user {os.getuid()}: give a directory of your own,"
            " with --data-dir or BATCHTRAIN_EMULATOR_DIR"
        )


def _check_writers(data_dir: Path) -> None:
    mode = data_dir.stat().st_mode
    if writers := "every user" if mode & stat.S_IWOTH else "its group" if mode & stat.S_IWGRP else "":
        raise Unsafe(
            f"{data_dir} can be changed by {writers}, so nothing in it can be trusted:"
            f" look through its files, then `chmod -R go-w {shlex.quote(str(data_dir))}`, or give another directory"
        )


@contextlib.contextmanager
def writing(data_dir: Path) -> Iterator[None]:
    """Report a full or read-only disk in one sentence."""
    try:
        yield
    except OSError as error:
        _check_kind(error)
        raise StartFailed(
            f"{data_dir} cannot be written ({error.strerror}): make room, or give another directory"
        ) from error


def _check_kind(error: OSError) -> None:
    """Raise DamagedState if something else, such as a directory, has the path of a file, or a file that of a
    directory."""
    if isinstance(error, (IsADirectoryError, NotADirectoryError, FileExistsError)):
        path = Path(error.filename)
        path = next(path for path in (path, *path.parents) if os.path.lexists(path))
        raise state_files.damaged(path, error, "the next start makes it anew") from None


def clock() -> int:
    """The current time in ticks."""
    return wire.from_unix_ns(time.time_ns())


def quotas_of(texts: Iterable[str]) -> dict[str, int]:
    """The quotas of `NAME=NUMBER` texts. Raises ValueError."""
    quotas = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in QUOTAS or not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise ValueError(f"a quota is NAME=NUMBER with a NAME of {', '.join(QUOTAS)}, not `{text}`")
        quotas[name] = int(number)
    return quotas


def network(data_dir: Path) -> int:
    """The second octet of its nodes' addresses. Each data directory has its own, up to 254 of them."""
    digest = hashlib.sha256(str(data_dir.absolute()).encode()).digest()
    return 1 + int.from_bytes(digest[:4], "big") % 254


def storage(to: Status) -> StorageAccount:
    """The storage of an emulator, which starts at its first use. Raises Refused if there is none on this machine."""
    return StorageAccount(**ask("POST", to, "storage"))


def plain(settings: Settings) -> dict[str, Any]:
    """Settings as JSON has them, with absolute paths."""
    pairs = {name: value.absolute() if isinstance(value, Path) else value for name, value in settings._asdict().items()}
    document: dict[str, Any] = json.loads(msgspec.json.encode(pairs, enc_hook=str))
    return document


def _is_locked(data_dir: Path) -> bool:
    """Whether an emulator runs on a data directory, in any state."""
    try:
        with (data_dir / LOCK_FILE).open("r") as file:
            return not try_lock(file)
    except OSError:  # there is no file, or something else that cannot be locked
        return False


def lost(data_dir: Path, endpoint: str) -> str:
    """Why nothing will answer at the endpoint of an emulator; empty while it runs, or starts again."""
    if not data_dir.exists():
        return f"the emulator has ended, because its data directory {data_dir} was deleted"
    recorded = _record(data_dir).endpoint
    if not _is_locked(data_dir):
        return f"the emulator on {data_dir} has ended; `batchtrain emulator start` starts it with its pools and jobs"
    return f"the emulator on {data_dir} is now at {recorded}" if recorded not in ("", endpoint) else ""


def try_lock(file: IO[str]) -> bool:
    """Lock a file. Returns False if another process has locked it."""
    return state_files.lock(file, wait=False) is not False


# As a process of its own ---------------------------------------------------------------------------------------------


def ensure(settings: Settings) -> tuple[Status, bool]:
    """The emulator of a data directory, and whether it had to be started. Waits for one that is starting or ending.
    Raises StartFailed, Busy."""
    end = time.monotonic() + START_SECONDS
    while True:
        if running := status(settings.data_dir):
            return running, False
        try:
            return spawn(settings), True
        except AlreadyRunning:
            if time.monotonic() > end:
                raise
            time.sleep(LOCK_PAUSE)


def spawn(settings: Settings, timeout: float = START_SECONDS) -> Status:
    """Start an emulator that outlives this process, and wait until it answers. Raises StartFailed."""
    data_dir = settings.data_dir.absolute()
    make_directory(data_dir)
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
        return noted(data_dir)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _reap(pid, wait=True)
    if "error" in answer:
        raise _ERRORS.get(answer["error"], StartFailed)(answer["message"])
    reasons = [answer.get("message") or f"the emulator did not answer within {timeout:g} s"]
    with contextlib.suppress(OSError):
        reasons += (data_dir / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL:]
    raise StartFailed("\n".join(reasons).rstrip())


_ERRORS = {"PortTaken": PortTaken, "AlreadyRunning": AlreadyRunning, "DamagedState": DamagedState}
READY_FD = 3


def _start_process(settings: Settings, data_dir: Path, ready: int) -> int:
    """A session of its own with its output in the log, and one pipe that reports the start."""
    certificate, private_key = (file and file.absolute() for file in (settings.certificate, settings.private_key))
    process_settings = settings._replace(data_dir=data_dir, certificate=certificate, private_key=private_key)
    settings_json = msgspec.json.encode(process_settings, enc_hook=str).decode()
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
    package_root = str(Path(__file__).parents[2])  # the child must import this package, installed or not
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (package_root, environment.get("PYTHONPATH"))))
    with writing(data_dir):
        log = os.open(data_dir / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "batchtrain.emulator", settings_json],
            environment,
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


SECRETS = ("AZURE_BATCH_ACCESS_KEY", "AZURE_CLIENT_SECRET", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING",
           "IDENTITY_HEADER")  # fmt: skip
"""Variables that the emulator does not use, and that a task of a plain process node could read in /proc."""


def _first_line(reader: int, timeout: float) -> dict[str, str]:
    """The child's report of its start; empty if it died without one or took too long."""
    text = b""
    end = time.monotonic() + timeout
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while not text.endswith(b"\n"):
        if not poll.poll(1000 * max(end - time.monotonic(), 0)):
            return {}
        part = os.read(reader, 65_536)
        if not part:
            return {"message": "the emulator ended while it started"}
        text += part
    answer: dict[str, str] = json.loads(text)
    return answer


def _reap(pid: int, *, wait: bool = False) -> None:
    """Reap the process if it is our child."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0 if wait else os.WNOHANG)


def status(data_dir: Path) -> Status | None:
    """The emulator of a data directory, if it answers and proves that it has the account's key. Raises Unsafe, Busy if
    it runs and does not answer, and DamagedState."""
    data_dir = data_dir.absolute()
    try:
        record = noted(data_dir)
    except FileNotFoundError:
        return None
    _check_owner(data_dir)
    _check_writers(data_dir)
    challenge = secrets.token_hex(16)
    try:
        answer = _answered(record, f"/_emulator/health?challenge={challenge}")
    except (OSError, ValueError):
        return None
    proof = wire.proof(record.key, record.endpoint, challenge)
    has_key = hmac.compare_digest(str(answer.get("proof", "")).encode(), proof.encode())
    return record if has_key and answer.get("pid") == record.pid else None


def differences(running: Status, settings: Settings) -> tuple[str, ...]:
    """The differences between an emulator and the settings; settings with their default value are ignored."""
    recorded_settings = {**_record(running.data_dir).settings, "port": urlsplit(running.endpoint).port}
    usual = plain(Settings(settings.data_dir, port=0 if settings.port == 0 else 10010))
    return tuple(
        f"{name.replace('_', '-')} is {_word(recorded_settings.get(name))}, not {_word(value)}"
        for name, value in plain(settings).items()
        if value not in (usual[name], recorded_settings.get(name))
    )


def _word(value: Any) -> str:
    """A setting's value in a message."""
    if isinstance(value, dict):
        return " ".join(f"{name}={most}" for name, most in value.items()) or "not set"
    if isinstance(value, list):
        return " ".join(value) or "not set"
    return {None: "not set", True: "on", False: "off"}.get(value, str(value))


def keep(data_dir: Path) -> None:
    """Let an emulator continue after the command that started it for itself has ended."""
    (data_dir / KEPT_FILE).touch(mode=0o600)


def is_kept(data_dir: Path) -> bool:
    return (data_dir / KEPT_FILE).exists()


def _record(data_dir: Path) -> StatusRecord:
    """emulator.json; empty if there is none. Raises DamagedState."""
    loss = "the next start writes it anew"
    return state_files.read(data_dir / STATUS_FILE, StatusRecord, loss) or StatusRecord()


def noted(data_dir: Path) -> Status:
    """What an emulator recorded at its start. Raises FileNotFoundError without a record or a key, and DamagedState."""
    record = _record(data_dir)
    if not record.endpoint:
        raise FileNotFoundError(data_dir / STATUS_FILE)
    texts = record.plain_nodes, record.plain_nodes_remedy, record.data_loss, record.certificate
    key = account_key.read(data_dir / KEY_FILE)
    return Status(record.endpoint, record.account, key, record.pid, data_dir, data_dir / LOG, *texts)


def _answered(to: Status, path: str) -> dict[str, Any]:
    """The answer to a question, repeated while the emulator runs. Raises Busy, OSError, ValueError."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        with contextlib.suppress(TimeoutError):
            return _request("GET", to.endpoint, path, certificate=to.certificate)
        if not _is_locked(to.data_dir):
            raise ConnectionError(f"no emulator lives on {to.data_dir}")
        if time.monotonic() > end:
            raise _busy(to)


def _busy(emulator: Status) -> Busy:
    return Busy(
        f"the emulator on {emulator.data_dir} (process {emulator.pid}) has not answered for {BUSY_SECONDS:g} s, but it"
        f" lives: try again, look into {emulator.log}, or end it with `batchtrain emulator stop`"
    )


def stop(data_dir: Path, timeout: float = 15.0) -> bool:
    """End the emulator of a data directory and all its nodes. Returns False if none was running. Raises Unsafe."""
    data_dir = data_dir.absolute()
    own_process = _record(data_dir).own_process
    try:
        running = status(data_dir)
        if running is None:
            return False
        ask("POST", running, "stop")
    except Busy:
        running, timeout = noted(data_dir), 0.0
    with state_files.lock_file(running.data_dir / LOCK_FILE) as file:
        end = time.monotonic() + timeout
        # A process releases the lock a little before it ends, and a new emulator may take it at once.
        while _lives(running.pid) if own_process else not try_lock(file):
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(running.pid, signal.SIGKILL)  # its nodes notice the closed sockets and also end
            time.sleep(0.02)
    _reap(running.pid)
    return True


def _lives(pid: int) -> bool:
    """Whether a process is alive; a zombie is not."""
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
    return tuple(Hint(hint["jobId"], hint["taskId"], hint["text"]) for hint in answer["value"])


def at(data_dir: Path) -> Status:
    """The emulator of a data directory. Raises NotRunning."""
    if running := status(data_dir):
        return running
    raise NotRunning(f"no emulator is running on {data_dir}")


def ask(
    verb: str, to: Status, path: str, document: dict[str, Any] | None = None, content: bytes | BinaryIO = b""
) -> dict[str, Any]:
    """One signed request to an emulator's own paths (`clock`, `faults`, …). Raises Refused, DamagedState, Busy,
    OSError."""
    body = content if document is None else json.dumps(document).encode()
    slow = SLOW_SECONDS if path in ("clock", "storage") else BUSY_SECONDS
    try:
        return signed(verb, to, f"/_emulator/{quote(path)}", body=body, timeout=slow)
    except TimeoutError:
        raise _busy(to) from None


def signed(
    verb: str, to: Status, path: str, query: str = "", *, body: bytes | BinaryIO = b"", timeout: float = ANSWER_SECONDS
) -> dict[str, Any]:
    """A signed request without the SDK, which takes 0.25 s to import. Raises Refused, OSError."""
    headers = {"ocp-date": formatdate(usegmt=True)}
    if verb != "GET":
        headers["content-length"] = str(len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size)
    headers["authorization"] = wire.authorization(to.account, to.key, verb, path, query, headers)
    target = f"{path}?{query}" if query else path
    return _request(verb, to.endpoint, target, headers, body, to.certificate, timeout)


def _request(
    verb: str,
    endpoint: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes | BinaryIO = b"",
    certificate: str = "",
    timeout: float = ANSWER_SECONDS,
) -> dict[str, Any]:
    connection = _connection(endpoint, certificate, timeout)
    try:
        connection.request(verb, path, body=body or None, headers=headers or {})
        response = connection.getresponse()
        document = msgspec.json.decode(response.read(MOST_ANSWER) or b"{}", type=dict[str, Any])
    except HTTPException as error:
        raise OSError(f"{endpoint} does not speak HTTP") from error
    except (ValueError, RecursionError) as error:
        raise OSError(f"{endpoint} does not answer as an emulator") from error
    finally:
        connection.close()
    if response.status >= 400:
        values = {item["key"]: item["value"] for item in document.get("values") or ()}
        kind = DamagedState if "DamagedState" in values else Refused
        raise kind(values.get("Reason", f"{verb} {path}: {response.status}"))
    return document


def _connection(endpoint: str, certificate: str, timeout: float) -> HTTPConnection:
    where = urlsplit(endpoint)
    host = where.hostname or ""
    if not certificate:
        return HTTPConnection(host, where.port, timeout=timeout)
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the file may contain only the emulator's own fields
    return HTTPSConnection(host, where.port, timeout=timeout, context=context)
