"""An Azure Batch for the tests of any project: a service in this process, whose account is empty again at will.

`with emulated_batch() as service: ...`; under pytest the fixtures of `batchtrain.pytest_plugin` give the same.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from batchtrain.emulator import images, server, steering, wire
from batchtrain.emulator.server import Emulator, Hint, Settings, Status

if TYPE_CHECKING:
    from azure.batch import BatchClient
    from azure.batch.aio import BatchClient as AsyncBatchClient

C = TypeVar("C")

__all__ = ["SIMULATED", "BatchService", "Clock", "Faults", "emulated_batch"]

SIMULATED = {"name": "batchtrain-nodes", "value": "simulated"}
"""Metadata of a pool whose nodes run nothing and only keep time: `sleep 3600; exit 3` ends an hour later with 3."""
POLLING_SECONDS = 0.05
"""How often the clients made here ask whether something has ended; the SDK's own 5 s are for a distant service."""


@contextmanager
def emulated_batch(data_dir: Path | None = None, account: str = "batchtrain") -> Iterator[BatchService]:
    """A service for as long as the block runs; without `data_dir` nothing of it stays. Raises server.StartFailed."""
    with ExitStack() as stack:
        home = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="batch-"))) / "account"
        running = stack.enter_context(Emulator(Settings(home, port=0, account=account)))
        service = BatchService(running.status)
        stack.callback(service.close)
        yield service


class BatchService:
    """A running service: where it is, clients of it, and what a test may do to it."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self.clock, self.faults = Clock(status), Faults(status)
        self._stack = ExitStack()

    @property
    def endpoint(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return self.status.endpoint

    @property
    def account(self) -> str:
        return self.status.account

    @property
    def key(self) -> str:
        """The account's shared key, base64."""
        return self.status.key

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that `az batch` reads, and many programs with it."""
        return self.status.environment

    @functools.cached_property
    def client(self) -> BatchClient:
        """A client of the official SDK, made at first use and closed with the service."""
        return self._stack.enter_context(self.connect())

    def connect(self, **options: Any) -> BatchClient:
        """A client of one's own; `options` are the SDK's. Its pollers ask every POLLING_SECONDS."""
        from azure.batch import BatchClient
        from azure.core.credentials import AzureNamedKeyCredential

        return _quick(BatchClient(self.endpoint, AzureNamedKeyCredential(self.account, self.key), **options))

    def connect_async(self, **options: Any) -> AsyncBatchClient:
        """The same for async programs; the SDK needs aiohttp for it."""
        from azure.batch.aio import BatchClient
        from azure.core.credentials import AzureNamedKeyCredential

        return _quick(BatchClient(self.endpoint, AzureNamedKeyCredential(self.account, self.key), **options))

    def hints(self) -> tuple[Hint, ...]:
        """Why tasks stay active, which the service itself never says."""
        return server.hints(self.status.data_dir)

    def map_image(self, image: str, prefix: Path) -> None:
        """Let a local environment stand for a container image, until the next reset."""
        images.map_image(self.status.data_dir, image, prefix)

    def reset(self) -> None:
        """An empty account, no faults, and the clock runs as the machine's again."""
        server.reset(self.status.data_dir)
        (self.status.data_dir / images.FILE).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the client, if one was made."""
        self._stack.close()


class Clock:
    """The account's time: with it go wall clocks, retention, schedules and simulated nodes."""

    def __init__(self, status: Status) -> None:
        self._status = status

    @property
    def now(self) -> datetime:
        return wire.as_datetime(wire.parse_timestamp(steering.clock(self._status)["now"]))

    def stop(self) -> None:
        """From now on time stands still but for `advance`."""
        steering.turn(self._status, "stepped")

    def run(self, times: float = 1.0) -> None:
        """From now on time runs, so many times as fast as the machine's. Raises server.Refused."""
        steering.turn(self._status, "scaled", times)

    def advance(self, by: timedelta, patience: float = 2.0) -> None:
        """Let so much time pass, from one thing that is due to the next; real commands are waited for `patience` s."""
        steering.advance(self._status, by, patience)


class Faults:
    """What can be made to go wrong."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def add(self, kind: str, **more: Any) -> int:
        """A fault, and its number: `add("error", code="TooManyRequests", operation="create_task", count=1)`.

        Kinds and their numbers: `batchtrain.emulator.injection.Injection`. Raises server.Refused.
        """
        return steering.fault(self._status, kind, **more)

    def added(self) -> list[dict[str, Any]]:
        """Those there are, with how often each struck."""
        return steering.faults(self._status)

    def remove(self, number: int | None = None) -> None:
        """One of them, or all."""
        steering.clear_faults(self._status, number)

    def preempt(self, node_id: str, seconds: float | None = None) -> None:
        """Take a spot node away; it comes back after so many seconds of the account's clock, or never."""
        steering.befall(self._status, node_id, "preempt", seconds)

    def lose(self, node_id: str) -> None:
        """Let a node die; it boots again, and its tasks are requeued."""
        steering.befall(self._status, node_id, "lose")

    def break_node(self, node_id: str) -> None:
        """Make a node unusable."""
        steering.befall(self._status, node_id, "break")


def _quick(client: C) -> C:
    """The same client, its pollers in a hurry; who gives `polling_interval` gets it."""
    for name in dir(client):
        if name.startswith("begin_"):
            setattr(client, name, functools.partial(getattr(client, name), polling_interval=POLLING_SECONDS))
    return client
