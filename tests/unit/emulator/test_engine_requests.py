"""Requests to a Docker Engine over a real socket, the networks that are asked of it, and its output streams."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.machine import engine_network
from batchtrain.emulator.machine.container_output import CHUNK, REMEMBERED, Copy
from batchtrain.emulator.machine.docker_engine import Engine, EngineError, find
from batchtrain.emulator.machine.rooted_path import RootedPath


class Served:
    """An engine on a socket: gives its answers in turn, and keeps the requests."""

    def __init__(self, folder: Path, *answers: bytes) -> None:
        self.path, self.answers, self.requests = folder / "engine", list(answers), list[bytes]()

    def ask(self, work: Callable[[Engine], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            async with await asyncio.start_unix_server(self._answer, self.path):
                return await work(Engine(self.path))

        return asyncio.run(whole())

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        self.requests.append(head + await reader.readexactly(length))
        writer.write(self.answers.pop(0))
        writer.close()


def answer(body: object, status: int = 200) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.0 {status} X\r\nA: b\r\n\r\n".encode() + data


def test_a_request_has_its_query_its_headers_and_its_body(tmp_path: Path) -> None:
    served = Served(tmp_path, answer({"Id": "c1"}, 201))

    async def work(engine: Engine) -> Any:
        return await engine.ask("POST", "/a b/c:1", {"x": 1}, query={"name": "n m"}, headers={"X-Login": "l"})

    assert served.ask(work) == {"Id": "c1"}
    head, _, body = served.requests[0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /a%20b/c:1?name=n+m HTTP/1.0", b"Host: docker", b"Content-Length: 8", b"Content-Type: application/json",
        b"X-Login: l",
    ]  # fmt: skip
    assert json.loads(body) == {"x": 1}


def test_an_archive_is_sent_as_it_is(tmp_path: Path) -> None:
    served = Served(tmp_path, answer(b""))
    assert served.ask(lambda engine: engine.ask("PUT", "/build", b"tar")) is None
    assert b"Content-Type: application/x-tar" in served.requests[0]
    assert served.requests[0].endswith(b"\r\n\r\ntar")


@pytest.mark.parametrize(("body", "decoded"), [(b" \n", None), (b"OK", {"message": "OK"}), (b"[1]", [1])])
def test_an_answer_is_json_a_text_or_nothing(tmp_path: Path, body: bytes, decoded: object) -> None:
    assert Served(tmp_path, answer(body)).ask(lambda engine: engine.ask("GET", "/x")) == decoded


@pytest.mark.parametrize(
    ("given", "status", "says"),
    [
        (answer({"message": " no such image\n"}, 404), 404, "no such image"),
        (answer([], 400), 400, "HTTP status 400"),
        (answer({}, 500), 500, "HTTP status 500"),
        (b"HTTP/1.0", 0, "broke off"),
        (b"nonsense\r\n\r\n", 0, "broke off"),
    ],
)
def test_a_refusal_of_the_engine_has_its_status_and_reason(
    tmp_path: Path, given: bytes, status: int, says: str
) -> None:
    with pytest.raises(EngineError, match=says) as refusal:
        Served(tmp_path, given).ask(lambda engine: engine.ask("GET", "/x"))
    assert refusal.value.status == status


def test_the_last_success_is_399(tmp_path: Path) -> None:
    assert Served(tmp_path, answer({"a": 1}, 399)).ask(lambda engine: engine.ask("GET", "/x")) == {"a": 1}


async def test_an_engine_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine"))
        listener.listen()
        with pytest.raises(EngineError, match="did not answer within 0 s"):
            await Engine(tmp_path / "engine").ask("GET", "/x", patience=0.0)


def test_an_engine_without_a_socket_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot connect to") as refusal:
        asyncio.run(Engine(tmp_path / "none").ask("GET", "/x"))
    assert refusal.value.status == 0


@pytest.mark.parametrize(("rest", "broken"), [(b"", False), (b"{", True)])
def test_a_stream_has_an_object_in_each_line_until_it_ends(tmp_path: Path, rest: bytes, broken: bool) -> None:
    lines: list[dict[str, Any]] = []

    async def work(engine: Engine) -> None:
        async for line in engine.lines("GET", "/events", query={"type": "container"}):
            lines.append(line)  # noqa: PERF401 - those before an error count, too

    served = Served(tmp_path, answer(b'{"a": 1}\n\n{"b": 2}\n' + rest))
    if broken:
        with pytest.raises(EngineError, match="broke off"):
            served.ask(work)
    else:
        served.ask(work)
    assert lines == [{"a": 1}, {"b": 2}]


def test_an_engine_is_found_if_it_answers(tmp_path: Path) -> None:
    variables = {"DOCKER_HOST": f"unix://{tmp_path}/engine"}
    engine, shown = Served(tmp_path, answer(b"OK")).ask(lambda _: find(variables))
    assert engine.socket == tmp_path / "engine"
    assert str(tmp_path) in shown
    engine, reason = Served(tmp_path, answer({"message": "starting"}, 503)).ask(lambda _: find(variables))
    assert engine is None
    assert "starting" in reason
    assert asyncio.run(find({"DOCKER_HOST": "tcp://10.0.0.1:2375"}))[0] is None


# --- networks -------------------------------------------------------------------------------------------------------


def made(tmp_path: Path, first: int, *answers: bytes) -> tuple[str, list[dict[str, Any]]]:
    """The range of a new network, and the bodies of the requests for it."""
    served = Served(tmp_path, *answers)
    subnet = served.ask(lambda engine: engine_network.make(engine, "net", tmp_path, first))
    return subnet, [json.loads(request.partition(b"\r\n\r\n")[2]) for request in served.requests[1:]]


@pytest.fixture
def no_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_network, "routes", lambda: [IPv4Network("10.9.1.0/24")])


@pytest.mark.usefixtures("no_routes")
def test_a_network_avoids_those_of_the_engine_and_of_the_machine(tmp_path: Path) -> None:
    networks = [
        {"IPAM": {"Config": [{"Subnet": "10.7.128.0/17"}, {"Subnet": "fd00::/64"}, {}]}},
        {"IPAM": {"Config": None}},
        {"IPAM": None},
        {"IPAM": {"Config": [{"Subnet": "10.8.0.0/16"}]}},
    ]
    subnet, (body,) = made(tmp_path, 7, answer(networks), answer({"Id": "n"}, 201))
    assert subnet == "10.10.0.0/16"
    assert body["IPAM"] == {"Config": [{"Subnet": subnet}]}
    assert body["Name"] == "net"
    assert str(tmp_path) in body["Labels"].values()


def test_the_routes_of_the_machine_are_read_without_the_default_one(tmp_path: Path) -> None:
    table = tmp_path / "route"
    rows = ("eth0 00000000 010011AC 0003 0 0 0 00000000", "eth0 000011AC 00000000 0001 0 0 0 0000FFFF",
            "tun0 0100080A 00000000 0001 0 0 0 FFFFFFFF")  # fmt: skip
    table.write_text("Iface Destination Gateway Flags RefCnt Use Metric Mask\n" + "\n".join(rows) + "\n")
    assert list(engine_network.routes(table)) == [IPv4Network("172.17.0.0/16"), IPv4Network("10.8.0.1/32")]
    assert list(engine_network.routes(tmp_path / "none")) == []


@pytest.mark.usefixtures("no_routes")
def test_the_numbers_of_networks_go_on_after_255(tmp_path: Path) -> None:
    networks = [{"IPAM": {"Config": [{"Subnet": "10.255.0.0/16"}]}}]
    assert made(tmp_path, 255, answer(networks), answer({}))[0] == "10.0.0.0/16"


@pytest.mark.usefixtures("no_routes")
def test_a_network_that_another_emulator_took_first_is_passed_over(tmp_path: Path) -> None:
    overlap = answer({"message": "Pool overlaps with other one on this address space"}, 403)
    assert made(tmp_path, 1, answer([]), overlap, answer({}))[0] == "10.2.0.0/16"
    with pytest.raises(EngineError, match="no driver"):
        made(tmp_path, 1, answer([]), answer({"message": "no driver"}, 500))


@pytest.mark.usefixtures("no_routes")
def test_only_some_networks_are_tried(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no free part among 64"):
        made(tmp_path, 1, answer([{"IPAM": {"Config": [{"Subnet": "10.0.0.0/8"}]}}]))


# --- output ---------------------------------------------------------------------------------------------------------


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def copied(node: Path, data: bytes, *, framed: bool) -> tuple[bytes, bytes, bytes]:
    """What is in stdout.txt and stderr.txt after a stream, and what the copy remembers of stdout."""
    (node / "run").mkdir(exist_ok=True)

    async def whole() -> bytes:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        copy = Copy(reader, writer, RootedPath(node), "run", frames=framed)
        await asyncio.get_running_loop().sock_sendall(theirs, data)
        theirs.close()
        await copy.drained(10.0)
        assert copy.task.done()
        return copy.last

    last = asyncio.run(whole())
    return (node / "run/stdout.txt").read_bytes(), (node / "run/stderr.txt").read_bytes(), last


LONG = b"x" * (CHUNK + 7)


@pytest.mark.parametrize(
    ("data", "framed", "files"),
    [
        (frame(1, b"out") + frame(2, b"error") + frame(1, b"") + frame(0, b"put"), True,
         (b"output", b"error", b"output")),
        (frame(1, LONG) + frame(2, b"e"), True, (LONG, b"e", b"x" * REMEMBERED)),
        (frame(2, b"text"), False, (frame(2, b"text"), b"", frame(2, b"text"))),
    ],
    ids=["frames", "a frame longer than one read", "a terminal"],
)  # fmt: skip
def test_the_stream_of_an_engine_goes_to_its_files_and_that_of_a_second_command_after_it(
    tmp_path: Path, data: bytes, *, framed: bool, files: tuple[bytes, bytes, bytes]
) -> None:
    assert copied(tmp_path, data, framed=framed) == files
    out, error, last = copied(tmp_path, frame(1, b"c") + frame(2, b"d"), framed=True)
    assert (out, error, last) == (files[0] + b"c", files[1] + b"d", b"c")


def test_a_stream_that_breaks_off_leaves_what_came(tmp_path: Path) -> None:
    assert copied(tmp_path, frame(1, b"whole") + frame(1, b"parted")[:-2], framed=True)[0] == b"wholepart"
    assert copied(tmp_path, frame(1, b"")[:5], framed=True)[0] == b"wholepart"


async def test_without_a_directory_nothing_is_copied(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    with theirs, pytest.raises(OSError, match="No such file"):
        Copy(reader, writer, RootedPath(tmp_path), "none", frames=True)
    assert writer.is_closing()
