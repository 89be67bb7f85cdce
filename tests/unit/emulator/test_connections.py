"""Connections of clients: which are ended, and which still get their answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchtrain import connections
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests.emulation import FakeMachine

HEALTH = b"GET /_emulator/health?challenge=x HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A new connection to an emulator that soon ends one without a request."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.1)
    with Emulator(Settings(tmp_path / "data", port=0), FakeMachine.open) as emulator:
        port = int(emulator.endpoint.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            yield connection


def answer(client: socket.socket) -> bytes:
    """One whole answer, whose body has a length."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(1 << 16)
        assert part, "the connection was ended"
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += client.recv(1 << 16)
    return head


@pytest.mark.parametrize("part", [b"", HEALTH[:20]])
def test_a_client_that_does_not_complete_its_request_is_ended(client: socket.socket, part: bytes) -> None:
    client.sendall(part)
    assert client.recv(1 << 16) == b""


def test_a_client_between_two_requests_is_not_ended(client: socket.socket) -> None:
    client.sendall(HEALTH)
    assert answer(client).startswith(b"HTTP/1.1 200")
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(30)
    client.sendall(HEALTH)
    assert answer(client).startswith(b"HTTP/1.1 200")


def test_a_client_that_has_stopped_sending_gets_its_answer_or_is_forgotten_in_a_request(client: socket.socket) -> None:
    client.sendall(HEALTH + HEALTH[:20])
    client.shutdown(socket.SHUT_WR)
    assert answer(client).startswith(b"HTTP/1.1 200")
    assert client.recv(1) == b""
