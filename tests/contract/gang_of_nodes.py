"""Real nodes of the emulator's machine, on which a `Launch` runs as the plan has it run: files, coordinate, launch."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from batchtrain.emulator.interface import NodeSpec, Run
from batchtrain.emulator.machine.process import ProcessMachine, open_machine
from batchtrain.launchers.launch import Launch
from tests.waiting import until

Value = TypeVar("Value")

TASK = "workitems/job/job-1/task"
IMAGE = "test/image"
_pools = itertools.count(1)


class Outcome(NamedTuple):
    """How a launch ended on the primary."""

    code: int | None
    stdout: str
    stderr: str
    seconds: float
    ended: float
    """time.time() at its end."""


class Gang:
    """Booted nodes; the primary is not the first of AZ_BATCH_HOST_LIST, as the service promises no order."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, machine: ProcessMachine, prefix: Path, addresses: list[str]
    ) -> None:
        self._loop = loop
        self.machine = machine
        self.prefix = prefix
        self.addresses = addresses
        self.roots: list[Path] = []
        self.environments: list[dict[str, str]] = []

    @property
    def names(self) -> list[str]:
        """Node ids, the primary's first."""
        return [f"tvm-{number}" for number in range(len(self.addresses))]

    async def boot(self) -> None:
        """Bring the nodes up, with what Batch tells a task on each."""
        pool = f"pool{next(_pools)}"
        hosts = ",".join(reversed(self.addresses))
        for name, address in zip(self.names, self.addresses, strict=True):
            up = await self.machine.boot(
                NodeSpec(pool, name, address, f"host-{name}", "STANDARD_D2_V3"), lambda _: None
            )
            self.roots.append(up.root)
            self.environments.append({
                "AZ_BATCH_NODE_ID": name,
                "AZ_BATCH_POOL_ID": pool,
                "AZ_BATCH_NODE_ROOT_DIR": up.root_inside,
                "AZ_BATCH_TASK_DIR": f"{up.root_inside}/{TASK}",
                "AZ_BATCH_TASK_SHARED_DIR": f"{up.root_inside}/{TASK}",
                "AZ_BATCH_TASK_WORKING_DIR": f"{up.root_inside}/{TASK}/wd",
                "AZ_BATCH_HOST_LIST": hosts,
                "AZ_BATCH_MASTER_NODE": f"{self.addresses[0]}:6000",
                "AZ_BATCH_IS_CURRENT_NODE_MASTER": "true" if name == "tvm-0" else "false",
            })  # fmt: skip

    def launch(self, launch: Launch, environment: Mapping[str, str] | None = None) -> Outcome:
        """Coordinate on every node, then run the application on the primary to its end."""
        return self.wait(self.run(launch, environment or {}))

    def wait(self, what: Coroutine[Any, Any, Value]) -> Value:
        """Run something asynchronous of this gang's."""
        return self._loop.run_until_complete(what)

    async def run(self, launch: Launch, environment: Mapping[str, str]) -> Outcome:
        """As `launch`, for what has something to do meanwhile."""
        for root in self.roots:
            _lay(root / TASK, launch)
            for name in ("stdout.txt", "stderr.txt"):
                (root / TASK / name).write_text("")
        done = await asyncio.gather(*(self._bash(index, "coordinate.sh", {}) for index in range(len(self.addresses))))
        assert [code for code, _, _ in done] == [0] * len(done), self.read(0, "stderr.txt")
        code, start, end = await self._bash(0, "launch.sh", environment)
        return Outcome(code, self.read(0, "stdout.txt"), self.read(0, "stderr.txt"), end - start, end)

    async def _bash(self, index: int, name: str, more: Mapping[str, str]) -> tuple[int | None, float, float]:
        start = time.time()
        run = Run(
            scope="task",
            directory=TASK,
            command_line=f"/bin/bash {self.environments[index]['AZ_BATCH_TASK_DIR']}/.batchtrain/{name}",
            environment={**self.environments[index], **more},
            image=IMAGE,
        )
        exit_ = await self.machine.run(self.names[index], run)
        assert exit_.failure is None, exit_.message
        return exit_.code, start, time.time()

    def read(self, index: int, name: str) -> str:
        """A file of a node's task directory."""
        return (self.roots[index] / TASK / name).read_text(errors="replace")

    def printed(self) -> str:
        """The primary's stdout so far."""
        path = self.roots[0] / TASK / "stdout.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def terminate(self, pid: int) -> None:
        """End one process as Batch ends a task: SIGTERM."""
        os.kill(pid, signal.SIGTERM)

    def kill(self, pid: int) -> None:
        """SIGKILL, for one that may have gone meanwhile."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def left(self) -> list[tuple[int, str]]:
        """What is still there after a launch and is not about to exit, as a shell's last child may be."""
        with suppress(AssertionError):
            until(lambda: not self.processes())
        return self.processes()

    def processes(self) -> list[tuple[int, str]]:
        """Every process that a command of the gang's left, as (pid, command line)."""
        marks = [
            f"BATCHTRAIN_EMULATED_NODE={environment['AZ_BATCH_NODE_ROOT_DIR']}" for environment in self.environments
        ]
        return [(pid, line) for pid, variables, line in _all_processes() if any(mark in variables for mark in marks)]


@contextmanager
def gang_of(data_dir: Path, prefix: Path, instances: int = 2) -> Iterator[Gang]:
    """`instances` nodes on addresses of this process's own, with `prefix` as the image; all is gone at the end."""
    loop = asyncio.new_event_loop()
    image: Callable[[str], str | None] = lambda name: str(prefix) if name == IMAGE else None  # noqa: E731
    machine = loop.run_until_complete(open_machine(data_dir, image))
    third = os.getpid() % 250
    gang = Gang(loop, machine, prefix, [f"127.77.{third}.{number + 2}" for number in range(instances)])
    try:
        gang.wait(gang.boot())
        yield gang
    finally:
        loop.run_until_complete(machine.close())
        loop.close()


def gang_with_python(folder: Path) -> AbstractContextManager[Gang]:
    """Two nodes whose image has this Python and nothing else."""
    (folder / "image/bin").mkdir(parents=True)
    (folder / "image/bin/python3").symlink_to(sys.executable)
    return gang_of(folder / "data", folder / "image")


def _lay(directory: Path, launch: Launch) -> None:
    texts = {".batchtrain/launch.sh": launch.application, ".batchtrain/coordinate.sh": launch.coordination}
    files = [(name, text.encode(), 0o644) for name, text in texts.items()]
    for name, data, mode, *_ in [*files, *launch.files]:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)


def _all_processes() -> Iterator[tuple[int, list[str], str]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if line:
            yield int(folder.name), variables, line
