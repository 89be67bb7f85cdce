"""Connections that are forwarded to a node and out of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from batchtrain.emulator.interface import Forward
from batchtrain.emulator.machine import forwarding
from batchtrain.emulator.machine.forwarding import PortForwards, Way, ways
from tests.raw_server import free_port
from tests.waiting import reached

HERE = "127.0.0.1"


def test_a_node_has_a_way_for_each_endpoint_and_with_its_own_network_one_to_the_service() -> None:
    inbound = Way("10.7.0.4", 50000, ("10.7.0.4", 22))
    assert ways("10.7.0.4", [Forward(50000, 22)]) == (inbound,)
    service = (HERE, 10010)
    assert ways("10.7.0.4", [Forward(50000, 22)], service) == (inbound, Way(HERE, 10010, service))


@contextlib.asynccontextmanager
async def forwarded(*, backend: bool = True) -> AsyncIterator[tuple[PortForwards, int]]:
    """A port whose connections lead to a server that answers in capital letters when its client has ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    server = await asyncio.start_server(answer, HERE, 0)
    front, forwards = free_port(), PortForwards()
    back = server.sockets[0].getsockname()[1]
    if not backend:
        server.close()
        await server.wait_closed()
    await forwards.open([Way(HERE, front, (HERE, back))])
    try:
        yield forwards, front
    finally:
        forwards.close()
        server.close()


async def test_a_connection_is_carried_in_both_directions_until_both_ends_are_closed() -> None:
    async with forwarded() as (_, front):
        reader, writer = await asyncio.open_connection(HERE, front)
        data = b"word" * forwarding.CHUNK
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == data.upper()
        writer.close()


async def test_a_closed_backend_ends_the_connection() -> None:
    async with forwarded(backend=False) as (_, front):
        reader, writer = await asyncio.open_connection(HERE, front)
        assert await reader.read() == b""
        writer.close()


async def test_the_end_of_a_node_ends_its_connections_and_frees_its_ports() -> None:
    async with forwarded() as (forwards, front):
        reader, writer = await asyncio.open_connection(HERE, front)
        writer.write(b"half")
        await reached(lambda: forwards._talks)
        forwards.close()
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HERE, front)
        socket.create_server((HERE, front)).close()


async def test_a_port_of_another_program_is_told_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async with forwarded() as (forwards, front):
        other = free_port()
        await forwards.open([Way(HERE, front, (HERE, 1)), Way(HERE, other, (HERE, 1))])
        assert f"{HERE}:{front} does not lead to the node: Address already in use" in caplog.text
        _, writer = await asyncio.open_connection(HERE, other)
        writer.close()


def test_a_network_of_a_node_is_entered_by_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[tuple[str, int]] = []
    monkeypatch.setattr(forwarding, "enter_network", lambda path: entered.append((path, threading.get_ident())))
    with forwarding._listen("/run/ns", HERE, 0) as listener:
        assert listener.getsockname()[0] == HERE
    ((path, thread),) = entered
    assert path == "/run/ns"
    assert thread != threading.get_ident()
