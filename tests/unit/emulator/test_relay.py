"""The relay of a node copies in both directions, each until its end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from batchtrain.emulator.machine import relay

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    """What the relay of port 4711 connects."""
    with ExitStack() as stack:
        near, inside, far, outside = (stack.enter_context(end) for pair in range(2) for end in socket.socketpair())

        def connect(address: tuple[str, int]) -> socket.socket:
            if address != ("127.0.0.1", 4711):
                raise ConnectionRefusedError(111, "Connection refused")
            return outside

        monkeypatch.setattr(socket, "socket", lambda fileno: {0: inside}[fileno])
        monkeypatch.setattr(socket, "create_connection", connect)
        yield near, far


def test_each_side_receives_what_the_other_sends_until_both_have_ended(ends: Ends) -> None:
    near, far = ends
    thread = threading.Thread(target=relay.main, args=(4711,))
    thread.start()
    near.sendall(b"question")
    near.shutdown(socket.SHUT_WR)
    assert far.recv(100) == b"question"
    assert far.recv(100) == b""
    far.sendall(b"answer")
    assert near.recv(100) == b"answer"
    far.shutdown(socket.SHUT_WR)
    thread.join()
    assert near.recv(100) == b""


def test_a_side_that_is_gone_ends_the_other(ends: Ends) -> None:
    near, far = ends
    thread = threading.Thread(target=relay.main, args=(4711,))
    thread.start()
    far.close()
    near.sendall(b"to nobody")
    near.shutdown(socket.SHUT_WR)
    thread.join()


def test_a_port_on_which_nobody_listens_is_named(ends: Ends) -> None:
    with pytest.raises(SystemExit, match="port 22 of the node: Connection refused"):
        relay.main(22)
