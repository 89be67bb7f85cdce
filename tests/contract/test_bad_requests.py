"""Bytes that no client of good will sends, over real connections: refused in the service's own words, or not at all.

What is wrong with a request's content alone is in `test_raw_requests.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil
import pytest

from batchtrain.emulator import server, wire
from batchtrain.emulator.server import Settings, Status
from batchtrain.emulator.serving import Emulator
from tests.contract.conftest import completed, connect, eventually, idle, job, pool, task
from tests.emulation import POOL

pytestmark = pytest.mark.process

VERSION = "api-version=2025-06-01"
PATIENCE = 180.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.content)["code"])

    @property
    def reason(self) -> str:
        """What the refusal says of its cause."""
        return " ".join(one["value"] for one in json.loads(self.content).get("values", []))


def request(
    status: Status | Emulator, verb: str, path: str, body: bytes = b"", query: str = VERSION, **headers: str
) -> bytes:
    """A signed request as it goes over the wire; `headers` (`_` for `-`) are signed too, an empty one is left out."""
    given = {"host": urlsplit(status.endpoint).netloc, "ocp-date": wire.http_date(server.clock())}
    given |= {"content-length": str(len(body))} if verb != "GET" else {}
    given |= {"content-type": "application/json"} if body else {}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    given = {name: value for name, value in given.items() if value}
    given.setdefault("authorization", wire.authorization(status.account, status.key, verb, path, query, given))
    lines = [f"{verb} {path}?{query} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


@contextlib.contextmanager
def connection(status: Status | Emulator) -> Iterator[socket.socket]:
    where = urlsplit(status.endpoint)
    with socket.create_connection((where.hostname, where.port), PATIENCE) as made:
        yield made


def ask(status: Status | Emulator, verb: str, path: str, body: bytes = b"", **more: Any) -> Answer:
    with connection(status) as line:
        line.sendall(request(status, verb, path, body, **more))
        return answer(line)


def answer(line: socket.socket) -> Answer:
    """The next answer; raises EOFError when the connection ends before it."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += part(line)
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    while len(rest) < int(headers.get("content-length", "0")):
        rest += part(line)
    return Answer(int(first.split()[1]), headers, rest)


def part(line: socket.socket) -> bytes:
    """One byte at a time in the head of an answer, so that nothing of the next is taken."""
    if not (got := line.recv(1)):
        raise EOFError
    return got


def refused(found: Answer, status: int, code: str) -> bool:
    assert (found.status, found.code) == (status, code), found
    assert b"Traceback" not in found.content and found.headers["request-id"]
    return True


# What is asked -------------------------------------------------------------------------------------------------------


def test_a_body_in_chunks_is_taken(emulator: Emulator) -> None:
    body = json.dumps(POOL).encode()
    with connection(emulator) as line:
        kind = {"transfer_encoding": "chunked", "content_type": "application/json"}
        line.sendall(request(emulator, "POST", "/pools", content_length="", **kind))
        for byte in body:
            line.sendall(b"1\r\n" + bytes([byte]) + b"\r\n")
        line.sendall(b"0\r\n\r\n")
        assert answer(line).status == 201


@pytest.mark.parametrize(
    "noise",
    [
        b"\r\n\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET /pools HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /pools HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"POST /pools HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 200_000,
        b"GET /pools HTTP/1.1\r\n" + b"x: y\r\n" * 40_000,
        os.urandom(4096) + b"\r\n\r\n",
    ],
    ids=["empty lines", "version", "tls", "length", "two lengths", "chunk", "path", "headers", "noise"],
)
def test_what_is_no_http_ends_its_connection_and_harms_no_other(emulator: Emulator, noise: bytes) -> None:
    with connection(emulator) as line, contextlib.suppress(ConnectionError, EOFError):
        line.sendall(noise)
        with contextlib.suppress(OSError):  # it may have been ended already
            line.shutdown(socket.SHUT_WR)
        assert answer(line).status < 500
    assert ask(emulator, "GET", "/pools").status == 200


# How it is asked -----------------------------------------------------------------------------------------------------


def test_requests_in_one_piece_are_answered_in_their_order(emulator: Emulator) -> None:
    made = request(emulator, "POST", "/pools", json.dumps(POOL).encode())
    looked = [request(emulator, "GET", path) for path in ("/pools/pool", "/pools/other", "/pools/pool")]
    with connection(emulator) as line:
        line.sendall(b"".join([made, *looked]))
        assert [answer(line).status for _ in range(4)] == [201, 200, 404, 200]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    server.stop(tmp_path / "data")


IDLE = 10_000


@pytest.mark.slow
def test_ten_thousand_connections_that_say_nothing_keep_nobody_out(data_dir: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < IDLE + 500:
        pytest.skip(f"this machine lets a process have {hard} open files, and {IDLE} connections need more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, IDLE + 500), hard))
    running = server.spawn(Settings(data_dir, port=0))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(IDLE):
                stack.enter_context(connection(running))
            assert ask(running, "GET", "/pools").status == 200
            assert psutil.Process(running.pid).memory_info().rss < 500e6
        assert ask(running, "GET", "/pools").status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Disks and directories -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(place: Path, size: str = "1m") -> Iterator[Path]:
    """A disk of one megabyte, mounted there; a skip where this machine does not let us."""
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("a small disk cannot be mounted here; it takes root's rights")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Nothing is left of a disk."""
    for size in (65_536, 1024, 1):
        with contextlib.suppress(OSError), (place / "ballast").open("ab", buffering=0) as file:
            while True:
                file.write(b"x" * size)


def test_a_full_disk_is_said_and_what_was_acknowledged_is_there_once_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        data = disk / "data"
        try:
            running = server.spawn(Settings(data, port=0))
            assert ask(running, "POST", "/jobs", b'{"id": "job", "poolInfo": {"poolId": "pool"}}').status == 201
            acknowledged, found = [], Answer(201, {}, b"")
            while found.status == 201:
                number = len(acknowledged)
                padding = "x" * 20_000
                body = {
                    "id": f"t{number}",
                    "commandLine": "true",
                    "environmentSettings": [{"name": "A", "value": padding}],
                }
                found = ask(running, "POST", "/jobs/job/tasks", json.dumps(body).encode())
                acknowledged += [f"t{number}"] if found.status == 201 else []
            assert refused(found, 503, "ServerBusy") and "full" in found.reason
            assert ask(running, "GET", "/jobs/job").status == 200  # what is known can be read
            assert "Traceback" not in (data / "emulator.log").read_text()
            os.kill(running.pid, 9)
            os.waitpid(running.pid, 0)
            subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
            again = server.spawn(Settings(data, port=0))
            with connect(again) as client:
                assert {one.id for one in client.list_tasks("job")} >= set(acknowledged)
        finally:
            server.stop(data)


def test_an_emulator_that_cannot_write_at_all_says_so_in_one_message(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        fill(disk)
        with pytest.raises(server.StartFailed, match=r"cannot be written.*make room") as failure:
            server.spawn(Settings(disk / "data", port=0))
        assert "Traceback" not in str(failure.value)


def test_a_full_node_fails_its_tasks_and_not_the_emulator(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    with small_disk(data_dir / "nodes") as disk:
        (data_dir / "lock").touch()
        running = server.spawn(Settings(data_dir, port=0))
        try:
            with connect(running) as client:
                client.create_pool(pool())
                client.create_job(job())
                idle(client)
                fill(disk)
                client.create_task("job", task())
                found = completed(client).execution_info
                assert found.result == "failure" and found.failure_info.message
                (disk / "ballast").unlink()
                client.create_task("job", task("after", "/bin/sh -c 'echo room'"))
                assert completed(client, "after").execution_info.exit_code == 0
            assert "Traceback" not in (data_dir / "emulator.log").read_text()
        finally:
            server.stop(data_dir)


def test_an_emulator_whose_data_directory_is_deleted_still_ends(data_dir: Path, tmp_path: Path) -> None:
    running = server.spawn(Settings(data_dir, port=0))
    with connect(running) as client:
        client.create_pool(pool(nodes=2))
        client.create_job(job())
        client.create_task("job", task(command="sleep 1000"))
        eventually(lambda: client.get_task("job", "task").state == "running")
    data_dir.rename(tmp_path / "moved")
    subprocess.run(["rm", "-rf", str(tmp_path / "moved")], check=False)
    os.kill(running.pid, 15)
    eventually(lambda: os.waitpid(running.pid, os.WNOHANG)[0] == running.pid)
