"""Forwarded TCP connections: to a node's backend ports, and out of a node's own network to the service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from batchtrain.emulator.interface import Forward
from batchtrain.emulator.machine.agent import enter_network

logger = logging.getLogger("batchtrain.emulator.machine")

CHUNK = 1 << 16


class Way(NamedTuple):
    """Connections to `address` and `port` in a network are forwarded to `to`, as this process reaches it."""

    address: str
    port: int
    to: tuple[str, int]


def ways(address: str, forwards: Iterable[Forward], service: tuple[str, int] | None = None) -> tuple[Way, ...]:
    """The connections of a node. service: the address of the service on this machine, which a node with its own network
    reaches under the same address; None for a node in the network of the machine."""
    inbound = tuple(Way(address, forward.frontend, (address, forward.backend)) for forward in forwards)
    return inbound + ((Way(*service, service),) if service else ())


class PortForwards:
    """The forwarded connections of one node, open while it is up."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._talks: set[asyncio.Task[None]] = set()

    async def open(self, ways: Iterable[Way], network: str = "") -> None:
        """Listen in a network namespace, or in the machine's. A port that is in use is skipped, with a warning."""
        for way in ways:
            talk = partial(self._talk, *way.to)
            try:
                self._servers.append(await asyncio.start_server(talk, sock=_listen(network, way.address, way.port)))
            except OSError as error:
                logger.warning("%s:%s does not lead to the node: %s", way.address, way.port, error.strerror)

    def close(self) -> None:
        """Stop listening, and close the forwarded connections."""
        for server in self._servers:
            server.close()
        for talk in self._talks:
            talk.cancel()
        self._servers = []

    async def _talk(self, address: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy in both directions until both sides are closed, or one is gone."""
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            # The port is closed, one side is gone, or the node ends.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                there_reader, there_writer = await asyncio.open_connection(address, port)
                with contextlib.closing(there_writer):
                    await asyncio.gather(_carry(reader, there_writer), _carry(there_reader, writer))
        finally:
            self._talks.discard(task)
            with contextlib.suppress(OSError):
                writer.close()


def _listen(network: str, address: str, port: int) -> socket.socket:
    """A thread for each call: a socket stays in the network of its thread, which cannot leave one it entered."""
    if not network:
        return socket.create_server((address, port))

    def there() -> socket.socket:
        enter_network(network)
        return socket.create_server((address, port))

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(there).result()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
