"""An Azure Batch for the tests of any project: a service in this process with an account that can be reset.

`with emulated_batch() as service: ...`; under pytest, use the fixtures of `batchtrain.pytest_plugin`.
"""

from __future__ import annotations

import functools
import inspect
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from azure.batch import BatchClient
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.pipeline import transport
from azure.storage.blob import BlobServiceClient

from batchtrain.emulator import injection, mapped_images, server, steering, wire
from batchtrain.emulator.interface import StorageAccount
from batchtrain.emulator.machine import azurite
from batchtrain.emulator.machine.azurite import FOLDER as STORAGE
from batchtrain.emulator.machine.storage_links import container_url
from batchtrain.emulator.server import Hint, Settings, Status
from batchtrain.emulator.serving import Emulator

if TYPE_CHECKING:
    from azure.batch.aio import BatchClient as AsyncBatchClient

C = TypeVar("C")

__all__ = ["SIMULATED", "BatchService", "Clock", "Faults", "emulated_batch"]

SIMULATED = {"name": "batchtrain-nodes", "value": "simulated"}
"""Metadata of a pool with simulated nodes, which only keep time: `sleep 3600; exit 3` ends after an hour with 3."""
POLLING_SECONDS = 0.05
"""The polling interval of the clients made here; the SDK's default of 5 s is for a remote service."""


@contextmanager
def emulated_batch(data_dir: Path | None = None, account: str = "batchtrain") -> Iterator[BatchService]:
    """A service for the duration of the block; without `data_dir` no data is kept. Raises server.StartFailed."""
    with ExitStack() as stack:
        home = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="batch-"))) / "account"
        running = stack.enter_context(Emulator(Settings(home, port=0, account=account)))
        service = BatchService(running.status)
        stack.callback(service.close)
        yield service


class BatchService:
    """A running service: its endpoint, its clients, and the controls for tests."""

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
        """The variables that `az batch` and many other programs read. Starts the storage if it is installed: else, its
        first use installs it, and its variable is left out here."""
        if azurite.needed():
            return self.status.environment
        return {**self.status.environment, azurite.VARIABLE: self.storage_connection_string}

    @functools.cached_property
    def client(self) -> BatchClient:
        """A client of the official SDK, made at first use and closed with the service."""
        return self._stack.enter_context(self.connect())

    @functools.cached_property
    def storage(self) -> BlobServiceClient:
        """A client of the account's blob storage, which starts at its first use (Azurite, installed by npm). Raises
        server.Refused if this machine cannot run it."""
        return self._stack.enter_context(BlobServiceClient.from_connection_string(self.storage_connection_string))

    @property
    def storage_connection_string(self) -> str:
        """For programs that connect to the blob storage themselves; it contains the key."""
        return self._storage_account.connection_string

    def container(self, name: str) -> str:
        """The URL of a container of the storage with a SAS, as output files and resource files take it; it is created
        unless it exists."""
        container = self.storage.get_container_client(name)
        if not container.exists():
            container.create_container()
        return container_url(self._storage_account, name)

    @functools.cached_property
    def _storage_account(self) -> StorageAccount:
        return server.storage(self.status)

    def connect(self, **options: Any) -> BatchClient:
        """A new client; `options` are those of the SDK. Its pollers ask every POLLING_SECONDS."""
        options.setdefault("transport", transport.RequestsTransport(use_env_settings=False))  # no proxy
        return _quick(BatchClient(self.endpoint, AzureNamedKeyCredential(self.account, self.key), **options))

    def connect_async(self, **options: Any) -> AsyncBatchClient:
        """The same for async programs. Raises ImportError without aiohttp."""
        from azure.batch import aio

        try:
            options.setdefault("transport", transport.AioHttpTransport(use_env_settings=False))  # no proxy
        except ImportError as error:
            raise ImportError("the async client of the SDK needs aiohttp: `pip install aiohttp`") from error
        return _quick(aio.BatchClient(self.endpoint, AzureNamedKeyCredential(self.account, self.key), **options))

    def hints(self) -> tuple[Hint, ...]:
        """Why tasks stay active; Azure does not report it."""
        return server.hints(self.status.data_dir)

    def map_image(self, image: str, prefix: Path) -> None:
        """Use a local environment in place of a container image until the next reset."""
        mapped_images.map_image(self.status.data_dir, image, prefix)

    def reset(self) -> None:
        """Reset: an empty account, no faults, the clock of the machine, and neither files on mounts nor containers."""
        server.reset(self.status.data_dir)
        shutil.rmtree(self.status.data_dir / "mounts", ignore_errors=True)
        if (self.status.data_dir / STORAGE).exists():  # it has been used
            for container in self.storage.list_containers():
                self.storage.delete_container(container)
        (self.status.data_dir / mapped_images.FILE).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the client, if one was made."""
        self._stack.close()


class Clock:
    """The clock of the account; wall-clock limits, retention, schedules and simulated nodes follow it."""

    def __init__(self, status: Status) -> None:
        self._status = status

    @property
    def now(self) -> datetime:
        return wire.as_datetime(wire.parse_timestamp(steering.clock(self._status)["now"]))

    def stop(self) -> None:
        """Stop the clock; only `advance` moves it."""
        steering.turn(self._status, "stepped")

    def run(self, times: float = 1.0) -> None:
        """Run the clock at a multiple of the machine's speed. Raises server.Refused."""
        steering.turn(self._status, "scaled", times)

    def advance(self, by: timedelta | float, patience: float = 2.0) -> None:
        """Advance the clock by a time or by seconds, from event to event; waits up to `patience` s for real commands.
        Raises ValueError for a time that is negative or none."""
        if not isinstance(by, (timedelta, int, float)):
            raise ValueError(f"give a timedelta, or a number of seconds, not {by!r}")
        span = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if span < timedelta():
            raise ValueError(f"the clock never goes back: give a time of 0 or more, not {by!r}")
        steering.advance(self._status, span, patience)


class Faults:
    """Fault injection."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def add(self, kind: str, **more: Any) -> int:
        """Inject a fault and return its number: `add("error", code="TooManyRequests", operation="create_task",
        count=1)`.

        Raises server.Refused.
        """
        return steering.fault(self._status, kind, **more)

    add.__doc__ = "\n\n".join((inspect.cleandoc(add.__doc__ or ""), *map(textwrap.fill, injection.EXPLANATION)))

    def added(self) -> list[dict[str, Any]]:
        """The injected faults, with the number of occurrences of each."""
        return steering.faults(self._status)

    def remove(self, number: int | None = None) -> None:
        """Remove one fault, or all."""
        steering.clear_faults(self._status, number)

    def preempt(self, node_id: str, seconds: float | None = None, notice: float | None = None) -> None:
        """Preempt a spot node; it comes back after some seconds of the account's clock (default: 10). notice: seconds
        between the notice to its processes and the preemption.
        """
        steering.befall(self._status, node_id, "preempt", seconds, notice)

    def lose(self, node_id: str) -> None:
        """Fail a node; it reboots, and its tasks are requeued."""
        steering.befall(self._status, node_id, "lose")

    def break_node(self, node_id: str) -> None:
        """Make a node unusable."""
        steering.befall(self._status, node_id, "break")


def _quick(client: C) -> C:
    """The same client with fast pollers; an explicit `polling_interval` is used."""
    for name in dir(client):
        if name.startswith("begin_"):
            setattr(client, name, functools.partial(getattr(client, name), polling_interval=POLLING_SECONDS))
    return client
