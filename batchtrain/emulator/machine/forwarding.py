"""Inbound endpoints: connections to a node's frontend ports go on to its backend ports. TCP only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial

from batchtrain.emulator.machine.types import Forward

logger = logging.getLogger("batchtrain.emulator.machine")

CHUNK = 1 << 16


class Door:
    """The frontend ports of one node, open while it is up."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._talks: set[asyncio.Task[None]] = set()

    async def open(self, address: str, forwards: tuple[Forward, ...]) -> None:
        """Listen; a port that another program has is passed over, with a warning."""
        for forward in forwards:
            talk = partial(self._talk, address, forward.backend)
            try:
                self._servers.append(await asyncio.start_server(talk, address, forward.frontend))
            except OSError as error:
                logger.warning("%s:%s does not lead to the node: %s", address, forward.frontend, error.strerror)

    def close(self) -> None:
        """Listen no more, and end what goes on."""
        for server in self._servers:
            server.close()
        for talk in self._talks:
            talk.cancel()
        self._servers = []

    async def _talk(self, address: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry both ways until both sides have said all, or one is gone."""
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            there_reader, there_writer = await asyncio.open_connection(address, port)
            try:
                await asyncio.gather(_carry(reader, there_writer), _carry(there_reader, writer))
            finally:
                there_writer.close()
        except OSError:  # nobody listens there, or one side went away
            pass
        except asyncio.CancelledError:  # the node goes
            pass
        finally:
            self._talks.discard(task)
            with contextlib.suppress(OSError):
                writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
