"""The emulator as a server: its data directory, its settings, its start and its end, without a process of its own."""

from __future__ import annotations

import fcntl
import gc
import json
import logging
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from batchtrain import state_files
from batchtrain.emulator import server, serving, trust
from batchtrain.emulator.server import (
    AlreadyRunning,
    Busy,
    NotRunning,
    PortTaken,
    Refused,
    Settings,
    StartFailed,
    Status,
    Unsafe,
)
from batchtrain.emulator.serving import Emulator
from batchtrain.emulator.store import Store
from tests.emulation import POOL, FakeMachine


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def running(data_dir: Path) -> Iterator[Status]:
    """An emulator in a thread, whose nodes are directories."""
    with Emulator(Settings(data_dir, port=0), FakeMachine.open) as emulator:
        yield emulator.status


def start(settings: Settings) -> Status:
    """Start it and end it."""
    with Emulator(settings, FakeMachine.open) as emulator:
        return emulator.status


RECORD = '{"endpoint": "http://127.0.0.1:1", "account": "acct", "pid": 1}'


# --- settings and status --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "base"),
    [
        (Settings(Path("d")), "http://127.0.0.1"),
        (Settings(Path("d"), host="::1"), "http://[::1]"),
        (Settings(Path("d"), host="localhost", certificate=Path("c")), "https://localhost"),
    ],
)
def test_the_endpoint_names_the_protocol_and_the_host(settings: Settings, base: str) -> None:
    assert settings.base == base


def test_the_environment_has_what_clients_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", "example.com,,127.0.0.1")
    plain = Status("http://127.0.0.1:1", "acct", "c2VjcmV0", 7, tmp_path, tmp_path / "log")
    expected = {
        "AZURE_BATCH_ACCOUNT": "acct", "AZURE_BATCH_ACCESS_KEY": "c2VjcmV0",
        "AZURE_BATCH_ENDPOINT": "http://127.0.0.1:1", "IDENTITY_ENDPOINT": "http://127.0.0.1:1/_emulator/identity",
        "NO_PROXY": "example.com,127.0.0.1,localhost", "no_proxy": "example.com,127.0.0.1,localhost",
    }  # fmt: skip
    assert expected.items() <= plain.environment.items()
    files = trust.of(tmp_path)
    assert plain._replace(certificate=str(files.ca)).environment["SSL_CERT_FILE"] == str(files.bundle)
    assert "SSL_CERT_FILE" not in {**plain.environment, **plain._replace(certificate="/mine.pem").environment}
    assert "c2VjcmV0" not in repr(plain)
    monkeypatch.setenv("no_proxy", "lower")
    assert plain.environment["NO_PROXY"] == "lower,127.0.0.1,localhost", "the variable in lower case comes first"


def test_the_account_has_the_quotas_of_the_settings(data_dir: Path) -> None:
    quotas = server.quotas_of(["pools=1", "dedicated-cores=4", "active-jobs=2", "nodes=10"])
    with Emulator(Settings(data_dir, port=0, quotas=quotas), FakeMachine.open) as emulator:
        shown = server.ask("GET", emulator.status, "status")["quotas"]
    assert shown == {"pools": 1, "dedicated_cores": 4, "active_jobs": 2, "nodes": 10}


def test_quotas_are_names_with_numbers() -> None:
    assert server.quotas_of(["pools=3", "dedicated-cores=999999999"]) == {"pools": 3, "dedicated-cores": 999_999_999}
    for text in ("pool=3", "pools=x", "pools=", "pools", "pools=-1", "pools=1000000000", "pools=\u0663"):
        with pytest.raises(ValueError, match="a quota is NAME=NUMBER"):
            server.quotas_of([text])


def test_data_directories_have_networks_of_their_own(tmp_path: Path) -> None:
    networks = {server.network(tmp_path / str(number)) for number in range(3000)}
    assert networks == set(range(1, 255))


def test_the_differences_to_a_running_emulator_are_named(running: Status, data_dir: Path) -> None:
    usual = Settings(data_dir, port=0)
    port = int(running.endpoint.rpartition(":")[2])
    assert server.differences(running, usual) == ()
    assert server.differences(running, Settings(data_dir)) == (), "a default is no wish"
    assert server.differences(running, usual._replace(port=port)) == ()
    assert server.differences(running, usual._replace(port=2, account="mine")) == (
        f"port is {port}, not 2", "account is batchtrain, not mine",
    )  # fmt: skip
    wishes = usual._replace(quotas={"pools": 3}, names=("a.b", "c.d"), https=True, certificate=Path("/c"))
    assert server.differences(running, wishes) == (
        "certificate is not set, not /c", "quotas is not set, not pools=3", "https is off, not on",
        "names is not set, not a.b c.d",
    )  # fmt: skip


# --- the data directory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [False, True])
def test_a_new_or_empty_directory_and_its_key_are_for_their_owner_alone_and_the_key_stays(
    data_dir: Path, *, exists: bool
) -> None:
    if exists:
        data_dir.mkdir()
        data_dir.chmod(0o777)
    first = start(Settings(data_dir, port=0))
    assert data_dir.stat().st_mode & 0o777 == 0o700
    assert (data_dir / "key").stat().st_mode & 0o777 == 0o600
    (data_dir / "key").chmod(0o644)
    assert start(Settings(data_dir, port=0)).key == first.key
    assert (data_dir / "key").stat().st_mode & 0o777 == 0o600
    assert len(first.key) == 88, "64 random bytes"


def test_a_directory_of_other_files_is_refused_and_left_as_it_is(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o755)
    (data_dir / "thesis.tex").touch()
    with pytest.raises(StartFailed, match="holds files that are not an emulator's: give it a directory of its own"):
        start(Settings(data_dir, port=0))
    assert [path.name for path in data_dir.iterdir()] == ["thesis.tex"]
    assert data_dir.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("mode", "writers"), [(0o702, "every user"), (0o722, "every user"), (0o720, "its group")])
def test_a_directory_that_others_can_change_is_refused(data_dir: Path, mode: int, writers: str) -> None:
    start(Settings(data_dir, port=0))
    (data_dir / "emulator.json").write_text(RECORD)
    data_dir.chmod(mode)
    for use in (lambda: start(Settings(data_dir, port=0)), lambda: server.status(data_dir)):
        with pytest.raises(Unsafe, match=f"can be changed by {writers}.*chmod -R go-w"):
            use()


def test_a_directory_of_another_user_is_refused(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(Settings(data_dir, port=0))
    (data_dir / "emulator.json").write_text(RECORD)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    for use in (lambda: start(Settings(data_dir, port=0)), lambda: server.status(data_dir)):
        with pytest.raises(Unsafe, match=r"and you are user 4711: .*BATCHTRAIN_EMULATOR_DIR"):
            use()


def damage_a_record(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("UPDATE record SET data = x'ff'")


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"no database" * 1000), damage_a_record])
def test_a_damaged_database_is_named_with_the_command_after_which_it_starts(
    data_dir: Path, damage: Callable[[Path], object]
) -> None:
    with Emulator(Settings(data_dir, port=0), FakeMachine.open) as emulator:
        server_post(emulator.status, "/pools", "api-version=2024-07-01.20.0", msgspec.json.encode(POOL))
    damage(data_dir / "world.sqlite3")
    with pytest.raises(StartFailed, match=r"world.sqlite3 is damaged .*jobs cannot be read") as failure:
        start(Settings(data_dir, port=0))
    subprocess.run(str(failure.value).partition("after `")[2].rstrip("`"), shell=True, check=True)
    start(Settings(data_dir, port=0))
    assert (data_dir / "damaged/world.sqlite3").exists()


def test_a_database_of_a_later_version_is_refused(data_dir: Path) -> None:
    start(Settings(data_dir, port=0))
    with sqlite3.connect(data_dir / "world.sqlite3") as database:
        database.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
    before = (data_dir / "world.sqlite3").read_bytes()
    with pytest.raises(StartFailed, match=r"has schema 99.*another data directory"):
        start(Settings(data_dir, port=0))
    assert (data_dir / "world.sqlite3").read_bytes() == before


def test_a_directory_that_cannot_be_written_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(state_files, "write_atomically", Mock(side_effect=full))
    with pytest.raises(StartFailed, match=r"cannot be written \(No space left on device\): make room"):
        start(Settings(data_dir, port=0))


@pytest.mark.parametrize(("change", "words"), [("", "is missing"), ("touch", "is empty"), ("write", "is empty")])
def test_a_database_that_is_gone_is_told_once(
    data_dir: Path, change: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert start(Settings(data_dir, port=0)).data_loss == ""
    database = data_dir / "world.sqlite3"
    database.unlink()
    if change:
        database.write_text("x" if change == "write" else "")
    data_loss = start(Settings(data_dir, port=0)).data_loss
    assert f"world.sqlite3 {words}: all pools and jobs" in data_loss
    assert data_loss in caplog.messages
    assert start(Settings(data_dir, port=0)).data_loss == ""


def test_the_last_changes_of_an_emulator_that_was_killed_are_told_if_they_are_missing(data_dir: Path) -> None:
    start(Settings(data_dir, port=0))
    (data_dir / "emulator.json").write_text("{}")
    (data_dir / "world.sqlite3-wal").touch()
    assert start(Settings(data_dir, port=0)).data_loss == ""
    (data_dir / "emulator.json").write_text("{}")
    assert "world.sqlite3-wal is missing" in start(Settings(data_dir, port=0)).data_loss


def test_the_clock_of_the_account_goes_on_where_it_was(data_dir: Path) -> None:
    with Emulator(Settings(data_dir, port=0), FakeMachine.open) as emulator:
        server.ask("POST", emulator.status, "clock", {"advance": "P30D"})
        before = server.ask("GET", emulator.status, "clock")["now"]
    with Emulator(Settings(data_dir, port=0), FakeMachine.open) as emulator:
        assert server.ask("GET", emulator.status, "clock")["now"] >= before


# --- its address ----------------------------------------------------------------------------------------------------


def test_only_addresses_of_this_machine_are_listened_on(data_dir: Path) -> None:
    with pytest.raises(StartFailed, match="it listens on loopback addresses only, not on 0"):
        start(Settings(data_dir, port=0, host="0.0.0.0"))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "::1"])
def test_every_loopback_address_can_be_listened_on(data_dir: Path, host: str) -> None:
    with Emulator(Settings(data_dir, port=0, host=host), FakeMachine.open) as emulator:
        assert server.status(data_dir) == emulator.status


def test_a_port_that_is_taken_is_told(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} of 127.0.0.1 cannot be used: .*; choose another"):
            start(Settings(data_dir, port=port))


def test_an_emulator_that_was_killed_comes_back_on_its_port_if_it_is_free(data_dir: Path) -> None:
    start(Settings(data_dir, port=0))
    with socket.create_server(("127.0.0.1", 0)) as other:
        endpoint = f"http://127.0.0.1:{other.getsockname()[1]}"
        record = json.dumps({"endpoint": endpoint, "account": "batchtrain", "pid": 1})
        (data_dir / "emulator.json").write_text(record)
        assert start(Settings(data_dir, port=0)).endpoint != endpoint
    (data_dir / "emulator.json").write_text(record)
    assert start(Settings(data_dir, port=0)).endpoint == endpoint


def test_https_needs_both_files_and_both_must_be_readable(data_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "c").touch()
    https = Settings(data_dir, port=0, certificate=tmp_path / "c")
    for key, words in (
        (None, "https needs both a certificate and its private key"),
        (tmp_path / "none", f"there is no file {tmp_path}/none$"),
        (tmp_path / "c", "/c and .*/c are not a certificate and its key in PEM"),
    ):
        with pytest.raises(StartFailed, match=words):
            start(https._replace(private_key=key))


def test_https_with_a_certificate_of_its_own_authority_is_trusted_by_its_status(data_dir: Path) -> None:
    with Emulator(Settings(data_dir, port=0, https=True), FakeMachine.open) as emulator:
        status = emulator.status
        assert status.endpoint.startswith("https://127.0.0.1:")
        assert status.certificate == str(trust.of(data_dir).ca)
        assert server.status(data_dir) == status
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{status.endpoint}/_emulator/health", timeout=30)


@pytest.mark.parametrize(
    ("names", "host"),
    [
        ((), "127.0.0.1:5"),
        (("other.batch.azure.com",), "127.0.0.1:5"),
        (("batchtrain.*",), "127.0.0.1:5"),
        (("x", "batchtrain.here.batch.azure.com"), "batchtrain.here.batch.azure.com:5"),
    ],
)
def test_the_account_has_its_own_host_name_if_the_certificate_has_it(names: tuple[str, ...], host: str) -> None:
    settings = Settings(Path("d"), names=names)
    assert serving._host(settings, "https://127.0.0.1:5") == host
    assert serving._host(settings, "https://127.0.0.1:443") == host.replace(":5", ":443" if "127" in host else "")


# --- running --------------------------------------------------------------------------------------------------------


def test_an_emulator_is_found_by_its_directory_until_it_ends(data_dir: Path) -> None:
    with pytest.raises(NotRunning, match=f"no emulator is running on {data_dir}"):
        server.at(data_dir)
    with Emulator(Settings(data_dir, port=0), FakeMachine.open) as emulator:
        assert server.at(data_dir) == emulator.status
        assert emulator.status.pid == os.getpid()
        assert (emulator.endpoint, emulator.account, emulator.key) == emulator.status[:3]
        assert server._is_locked(data_dir)
        assert emulator.key not in (data_dir / "emulator.json").read_text()
    assert server.status(data_dir) is None
    assert not server._is_locked(data_dir)
    assert not (data_dir / "emulator.json").exists()


def test_two_emulators_never_share_a_data_directory(running: Status, data_dir: Path) -> None:
    with pytest.raises(AlreadyRunning, match=f"another emulator is running on {data_dir}"):
        start(Settings(data_dir, port=0))
    assert server.status(data_dir) == running


def test_an_emulator_that_cannot_prove_its_key_or_has_another_process_is_none(running: Status, data_dir: Path) -> None:
    record = json.loads((data_dir / "emulator.json").read_text())
    relayed = record["endpoint"].replace("127.0.0.1", "localhost")  # its proof is for the endpoint that it was asked at
    for wrong, key in (({"pid": 1}, running.key), ({"endpoint": relayed}, running.key), ({}, "b3RoZXI=")):
        (data_dir / "emulator.json").write_text(json.dumps({**record, **wrong}))
        (data_dir / "key").write_text(f"{key}\n")
        assert server.status(data_dir) is None, (wrong, key)


def test_it_is_kept_until_its_next_start(data_dir: Path) -> None:
    with Emulator(Settings(data_dir, port=0), FakeMachine.open):
        assert not server.is_kept(data_dir)
        server.keep(data_dir)
        assert server.is_kept(data_dir)
        assert (data_dir / server.KEPT_FILE).stat().st_mode & 0o777 == 0o600
    assert not server.is_kept(data_dir)
    server.keep(data_dir)
    with Emulator(Settings(data_dir, port=0), FakeMachine.open):
        assert not server.is_kept(data_dir)


def test_stop_ends_an_emulator_of_a_thread_once(data_dir: Path) -> None:
    emulator = Emulator(Settings(data_dir, port=0), FakeMachine.open)
    with emulator:
        assert server.stop(data_dir)
        assert not server.stop(data_dir)
    assert server.status(data_dir) is None


def test_a_reset_deletes_everything_for_good_and_hints_say_why_tasks_wait(data_dir: Path) -> None:
    query = "api-version=2024-07-01.20.0"
    job = b'{"id": "job", "poolInfo": {"poolId": "pool"}}'
    with Emulator(Settings(data_dir, port=0), FakeMachine.open) as emulator:
        server_post(emulator.status, "/pools", query, msgspec.json.encode(POOL))
        server_post(emulator.status, "/jobs", query, job)
        server_post(emulator.status, "/jobs/job/tasks", query, b'{"id": "task", "commandLine": "true"}')
        assert server.hints(data_dir) == (server.Hint("job", "", "pool pool has no nodes"),)
        server.reset(data_dir)
        assert server.hints(data_dir) == ()
        assert server.signed("GET", emulator.status, "/pools", query)["value"] == []
    with Emulator(Settings(data_dir, port=0), FakeMachine.open) as emulator:
        assert server.signed("GET", emulator.status, "/pools", query)["value"] == []


def server_post(running: Status, path: str, query: str, body: bytes) -> None:
    """A signed request with a body of JSON."""
    from batchtrain.emulator import wire

    headers = {"ocp-date": wire.http_date(server.clock()), "content-type": "application/json; odata=minimalmetadata",
               "content-length": str(len(body))}  # fmt: skip
    headers["authorization"] = wire.authorization(running.account, running.key, "POST", path, query, headers)
    server._request("POST", running.endpoint, f"{path}?{query}", headers, body)


def test_a_refused_request_has_its_reason(running: Status) -> None:
    with pytest.raises(Refused, match="JSON object"):
        server.ask("POST", running, "clock", content=b"[]")
    with pytest.raises(Refused, match=r"GET /pools/none\?api-version=.*: 404"):
        server.signed("GET", running, "/pools/none", "api-version=2024-07-01.20.0")
    with pytest.raises(Refused):
        server.ask("GET", running._replace(key="b3RoZXI="), "hints")


@pytest.fixture
def requests() -> list[bytes]:
    """What the program on the port of an emulator receives."""
    return []


@pytest.fixture
def silent(
    data_dir: Path, requests: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[bytes], Status]]:
    """A program on the port of an emulator that answers every connection with the same bytes, or never."""
    data_dir.mkdir(mode=0o700)
    (data_dir / "key").write_text("c2VjcmV0\n")
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(server._request, "__defaults__", (None, b"", "", 0.05))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def begin(data: bytes) -> Status:
            record = {"endpoint": endpoint, "account": "acct", "pid": 4711}
            (data_dir / "emulator.json").write_text(json.dumps(record))

            def answer() -> None:
                connection = listener.accept()[0]
                requests.append(connection.recv(1 << 16))
                connection.sendall(data)
                connection.close()

            if data:
                threading.Thread(target=answer, daemon=True).start()
            return Status(endpoint, "acct", "c2VjcmV0", 4711, data_dir, data_dir / "emulator.log")

        yield begin


def test_a_program_that_does_not_speak_http_is_no_emulator(silent: Callable[[bytes], Status], data_dir: Path) -> None:
    status = silent(b"SSH-2.0\r\n")
    with pytest.raises(OSError, match="does not speak HTTP"):
        server.signed("GET", status, "/pools", timeout=30.0)
    silent(b"SSH-2.0\r\n")
    assert server.status(data_dir) is None


def test_a_stranger_on_the_port_of_an_emulator_is_not_believed_and_gets_no_signature(
    silent: Callable[[bytes], Status], requests: list[bytes], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._request, "__defaults__", (None, b"", "", 30.0))
    body = b'{"pid": 4711, "account": "acct", "proof": "%s"}' % (b"0" * 64)
    silent(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    assert server.status(data_dir) is None
    (request,) = requests
    assert request.startswith(b"GET /_emulator/health?challenge=")
    assert b"authorization" not in request.lower()


def test_an_emulator_that_is_busy_is_waited_for(
    running: Status, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays, request = [TimeoutError(), TimeoutError()], server._request

    def late(*arguments: Any, **more: Any) -> Any:
        if delays:
            raise delays.pop()
        return request(*arguments, **more)

    monkeypatch.setattr(server, "_request", late)
    assert server.status(data_dir) == running
    assert delays == []


@pytest.mark.parametrize("body", [b"[1]", b"5", b"<html>", b"[" * 100_000, b"\xff", '{"proof": "\u00e9"}'.encode()])
def test_a_program_that_does_not_answer_as_the_emulator_is_none(
    body: bytes, silent: Callable[[bytes], Status], data_dir: Path
) -> None:
    silent(b"HTTP/1.1 200 OK\r\n\r\n" + body)
    assert server.status(data_dir) is None


def test_an_emulator_that_lives_and_does_not_answer_is_busy(
    silent: Callable[[bytes], Status], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = silent(b"")
    assert server.status(data_dir) is None, "no emulator lives there"
    monkeypatch.setattr(server, "BUSY_SECONDS", 0.01)
    with (data_dir / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy, match=r"\(process 4711\) has not answered for 0.01 s, but it lives"):
            server.status(data_dir)
        with pytest.raises(Busy, match="end it with `batchtrain emulator stop`"):
            server.ask("GET", status, "hints")


def test_a_busy_emulator_is_killed_by_stop(
    silent: Callable[[bytes], Status], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent(b"")
    monkeypatch.setattr(server, "BUSY_SECONDS", 0.0)
    killed: list[tuple[int, int]] = []
    with (data_dir / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def kill(pid: int, number: int) -> None:
            killed.append((pid, number))
            fcntl.flock(lock, fcntl.LOCK_UN)

        monkeypatch.setattr(os, "kill", kill)
        assert server.stop(data_dir)
    assert killed == [(4711, signal.SIGKILL)]


def test_the_limit_of_open_files_is_raised_as_far_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, Any] = {}
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.update(set=pair))
    for before, after in (
        ((1024, 4096), (4096, 4096)),
        ((1024, 1_000_000), (65_536, 1_000_000)),
        ((1024, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((65_536, 65_536), None),
    ):
        limits.clear()
        monkeypatch.setattr(resource, "getrlimit", lambda kind, before=before: before)
        serving._allow_connections()
        assert limits.get("set") == after


# --- a process of its own -------------------------------------------------------------------------------------------


class Spawned:
    """Stands for `os.posix_spawn`: what it was given, and what the process reports."""

    def __init__(self, report: str) -> None:
        self.report, self.killed = report, list[tuple[int, int]]()

    def __call__(self, program: str, command: list[str], environment: dict[str, str], **more: Any) -> int:
        self.command, self.environment = command, environment
        opens = {action[2]: action[1] for action in more["file_actions"] if action[0] == os.POSIX_SPAWN_DUP2}
        assert opens[1] == opens[2]
        os.write(opens[1], b"\n".join(b"line %d" % number for number in range(30)) + b"\n")
        os.write(opens[server.READY_FD], self.report.encode())
        return 4711

    def kill(self, pid: int, number: int) -> None:
        self.killed.append((pid, number))


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Spawned]:
    def begin(report: str) -> Spawned:
        process = Spawned(report)
        monkeypatch.setattr(os, "posix_spawn", process)
        monkeypatch.setattr(os, "kill", process.kill)
        return process

    return begin


def test_a_process_gets_absolute_settings_and_no_secrets(
    spawned: Callable[[str], Spawned], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = spawned('{"endpoint": "http://127.0.0.1:5"}\n')
    data_dir.mkdir(mode=0o700)
    (data_dir / "key").write_text("c2VjcmV0\n")
    (data_dir / "emulator.json").write_text('{"endpoint": "http://127.0.0.1:5", "account": "acct", "pid": 4711}')
    monkeypatch.chdir(data_dir.parent)
    monkeypatch.setenv("AZURE_BATCH_ACCESS_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "/more")
    status = server.spawn(Settings(Path("data"), port=5, certificate=Path("c"), quotas={"pools": 2}))
    assert status == Status("http://127.0.0.1:5", "acct", "c2VjcmV0", 4711, data_dir, data_dir / "emulator.log")
    assert process.command[1:3] == ["-m", "batchtrain.emulator"]
    settings = msgspec.json.decode(process.command[3], type=Settings, dec_hook=lambda _, path: Path(path))
    absolute = data_dir.parent / "c"
    assert settings == Settings(data_dir, port=5, certificate=absolute, quotas={"pools": 2})
    assert "AZURE_BATCH_ACCESS_KEY" not in process.environment
    assert process.environment["PYTHONPATH"] == f"{Path(server.__file__).parents[2]}:/more"
    assert process.killed == []
    assert (data_dir / "emulator.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("report", "kind", "message"),
    [
        ('{"error": "PortTaken", "message": "port 5"}\n', PortTaken, "port 5"),
        ('{"error": "AlreadyRunning", "message": "it runs"}\n', AlreadyRunning, "it runs"),
        ('{"error": "Unsafe", "message": "no"}\n', StartFailed, "no"),
        ("", StartFailed, "the emulator ended while it started"),
    ],
)
def test_a_process_that_does_not_start_is_ended_and_its_reason_told(
    spawned: Callable[[str], Spawned], data_dir: Path, report: str, kind: type[StartFailed], message: str
) -> None:
    process = spawned(report)
    with pytest.raises(StartFailed) as failure:
        server.spawn(Settings(data_dir))
    assert type(failure.value) is kind
    first, *log = str(failure.value).splitlines()
    assert first == message
    assert log == ([] if report else [f"line {number}" for number in range(10, 30)])
    assert process.killed == [(4711, signal.SIGKILL)]


def test_a_process_that_reports_nothing_in_time_is_ended(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, spawned: Callable[[str], Spawned]
) -> None:
    process = spawned("")
    spare: list[int] = []

    def start_process(settings: Settings, folder: Path, ready: int) -> int:
        spare.append(os.dup(ready))
        return 4711

    monkeypatch.setattr(server, "_start_process", start_process)
    with pytest.raises(StartFailed, match="the emulator did not answer within 0 s"):
        server.spawn(Settings(data_dir), timeout=0.0)
    assert process.killed == [(4711, signal.SIGKILL)]
    os.close(spare[0])


def test_the_report_of_a_start_may_come_in_parts_and_to_a_process_with_a_thousand_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    low_reader, writer = os.pipe()
    reader = fcntl.fcntl(low_reader, fcntl.F_DUPFD, 1024)
    os.write(writer, b'{"endpoint"')
    timer = threading.Timer(0.01, lambda: os.write(writer, b': "x"}\n'))
    timer.start()
    assert server._first_line(reader, 30.0) == {"endpoint": "x"}
    timer.join()
    for opened in (low_reader, reader, writer):
        os.close(opened)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_emulator_that_runs_is_not_started_again(running: Status, data_dir: Path) -> None:
    assert server.ensure(Settings(data_dir, port=0)) == (running, False)


def test_an_emulator_that_another_process_starts_is_waited_for(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = Status("http://h", "acct", "key", 1, data_dir, data_dir)
    monkeypatch.setattr(server, "spawn", Mock(side_effect=[*[AlreadyRunning("it runs")] * 2, status]))
    assert server.ensure(Settings(data_dir)) == (status, True)
    monkeypatch.setattr(server, "START_SECONDS", -1.0)
    monkeypatch.setattr(server, "spawn", Mock(side_effect=AlreadyRunning("it runs")))
    with pytest.raises(AlreadyRunning):
        server.ensure(Settings(data_dir))


def test_the_process_reports_why_it_does_not_start(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir.mkdir()
    (data_dir / "thesis.tex").touch()
    reader, writer = os.pipe()
    monkeypatch.setattr(server, "READY_FD", writer)
    monkeypatch.setattr(serving, "_allow_connections", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    encoded = msgspec.json.encode(Settings(data_dir, port=0), enc_hook=str).decode()
    assert serving.main(encoded) == 1
    report = json.loads(os.read(reader, 4096))
    os.close(reader)
    assert report["error"] == "StartFailed"
    assert "holds files that are not an emulator's" in report["message"]
    assert "holds files" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "lives"), [("7 (a) b) S 1", True), ("7 (a) Z 1", False), ("7 (a) X 1", False)])
def test_a_zombie_does_not_live(monkeypatch: pytest.MonkeyPatch, text: str, lives: bool) -> None:
    assert not server._lives(1 << 30), "it is gone"
    monkeypatch.setattr(Path, "read_text", lambda path, **_: text)
    assert server._lives(7) is lives


def test_the_seed_of_an_account_stays(data_dir: Path) -> None:
    seeds = []
    for _ in range(2):
        start(Settings(data_dir, port=0))
        with closing(Store(data_dir / "world.sqlite3")) as store:
            seeds.append(store.meta("seed", "other"))
    assert seeds[0] == seeds[1] and len(seeds[0]) == 32
