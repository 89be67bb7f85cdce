"""A Docker Engine on a socket that gives prepared answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from batchtrain.emulator.machine.docker_engine import Engine


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
