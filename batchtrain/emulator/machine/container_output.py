"""Copies the output of a container's command from the engine's stream to the files of the task."""

from __future__ import annotations

import asyncio
import contextlib
import os

from batchtrain.emulator.machine.rooted_path import RootedPath

CHUNK = 1 << 16
STDERR = 2
REMEMBERED = 2000


class Copy:
    """Copies until the stream ends, or until `stop`. A second command of a task appends to the same files."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        node: RootedPath,
        directory: str,
        *,
        frames: bool,
    ) -> None:
        self._reader, self._writer, self._framed = reader, writer, frames
        self._files: dict[int, int] = {}
        try:
            for stream, name in ((1, "stdout.txt"), (STDERR, "stderr.txt")):
                self._files[stream] = node.append(f"{directory}/{name}")
        except OSError:
            self._close()
            raise
        self.last = b""
        """The end of the text on stdout."""
        self.task = asyncio.create_task(self._copy())

    async def drained(self, seconds: float) -> None:
        """Wait until everything is copied, at most this long."""
        await asyncio.wait([self.task], timeout=seconds)

    def stop(self) -> None:
        self.task.cancel()

    async def _copy(self) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await (self._frames() if self._framed else self._plain())
        finally:
            self._close()

    def _close(self) -> None:
        self._writer.close()
        for file in self._files.values():
            os.close(file)

    async def _frames(self) -> None:
        """The frames of the engine: one byte for the stream, three of zero, four of length, then the data."""
        while True:
            head = await self._reader.readexactly(8)
            remaining = int.from_bytes(head[4:], "big")
            while remaining:
                data = await self._reader.read(min(remaining, CHUNK))
                if not data:
                    return
                remaining -= len(data)
                self._write(STDERR if head[0] == STDERR else 1, data)

    async def _plain(self) -> None:
        """With a terminal there is one stream, without frames."""
        while data := await self._reader.read(CHUNK):
            self._write(1, data)

    def _write(self, stream: int, data: bytes) -> None:
        if stream == 1:
            self.last = (self.last + data)[-REMEMBERED:]
        view = memoryview(data)
        while view:
            view = view[os.write(self._files[stream], view) :]
