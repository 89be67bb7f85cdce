"""A few nodes of one pool on this machine, for as long as a test lasts."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from batchtrain.emulator.interface import Exit, NodeSpec, NodeUp, Run
from batchtrain.emulator.machine.process import open_machine

TASK = "workitems/job/job-1/task"
SCOPE = "job/task/0"


class Nodes:
    """`a`, `b`, … on 127.0.77.2, 127.0.77.3, …; their host names are `host-a`, `host-b`, … At first there is `a`."""

    def __init__(self, data_dir: Path, **images: Path) -> None:
        self.data_dir = data_dir
        self.images = {name: str(prefix) for name, prefix in images.items()}
        self.up: dict[str, NodeUp] = {}
        self.lost: asyncio.Queue[str] = asyncio.Queue()

    async def __aenter__(self) -> Nodes:
        self.machine = await open_machine(self.data_dir, self.images.get)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.machine.close)
            await self.boot("a")
            self.close = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close.aclose()

    async def boot(self, name: str, gpus: int = 0) -> NodeUp:
        spec = NodeSpec("pool", name, address(name), f"host-{name}", "STANDARD_NC24R", gpus)
        self.up[name] = await self.machine.boot(spec, self.lost.put_nowait)
        return self.up[name]

    async def run(self, name: str, command: str, image: str | None = None, **environment: str) -> Exit:
        return await self.machine.run(name, Run(SCOPE, TASK, command, environment, image=image))

    async def output(self, name: str, command: str, image: str | None = None, **environment: str) -> str:
        """What a command that succeeds prints."""
        before = self.file(name, "stdout.txt").stat().st_size if self.file(name, "stdout.txt").exists() else 0
        ended = await self.run(name, command, image, **environment)
        assert ended == Exit(0), (ended, self.file(name, "stderr.txt").read_text())
        return self.file(name, "stdout.txt").read_text()[before:]

    def file(self, name: str, path: str) -> Path:
        return self.up[name].root / TASK / path


def address(name: str) -> str:
    return f"127.0.77.{2 + ord(name) - ord('a')}"


def alive(marker: str) -> list[int]:
    """The living processes of this machine that have a variable's `NAME=value` in their environment."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _has(entry, marker)]


def _has(process: Path, marker: str) -> bool:
    with contextlib.suppress(OSError):
        return marker.encode() in (process / "environ").read_bytes().split(b"\0")
    return False
