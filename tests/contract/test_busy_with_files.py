"""While the service walks or deletes many files, it answers everything else. Each walk is held by an event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient

from batchtrain.emulator import files, server
from batchtrain.emulator.machine import process, rooted_path
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests.contract.conftest import connect, idle, job, pool

pytestmark = pytest.mark.process


class Gate:
    """Holds every call of a function until it is opened."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        self.reached.set()
        assert self.opened.wait(60)
        return self._call(*arguments, **more)


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "data", port=0)) as running:
        yield running


def directory(emulator: Emulator, client: BatchClient, count: int = 3) -> Path:
    """A node's `shared` with that many files."""
    client.create_pool(pool())
    node = idle(client)[0]
    folder = emulator.status.data_dir / "nodes" / "pool" / str(node.id) / "shared"
    for number in range(count):
        (folder / f"{number:05}").touch()
    return folder


def list_files(client: BatchClient, node: str) -> int:
    return len(list(client.list_node_files("pool", node, recursive=True)))


def delete_directory(client: BatchClient, node: str) -> None:
    client.delete_node_file("pool", node, "shared", recursive=True)


def delete_pool(client: BatchClient, node: str) -> None:
    client.begin_delete_pool("pool", polling_interval=0.01).result()


@pytest.mark.parametrize(
    ("place", "name", "work"),
    [
        (files, "_row", list_files),
        (rooted_path, "_remove", delete_directory),
        (process, "_delete", delete_pool),
    ],
    ids=["list", "delete-directory", "delete-pool"],
)
def test_other_requests_are_answered_meanwhile(
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    work: Callable[[BatchClient, str], Any],
) -> None:
    with connect(emulator) as client, connect(emulator) as other, ThreadPoolExecutor() as threads:
        node = directory(emulator, client).parent.name
        gate = Gate(getattr(place, name))
        monkeypatch.setattr(place, name, gate)
        working: Future[Any] = threads.submit(work, client, node)
        try:
            assert gate.reached.wait(60)
            other.create_job(job())
            assert other.get_job("job").state == "active"
            assert server.status(emulator.status.data_dir) is not None
            assert not working.done()
        finally:
            gate.opened.set()
        working.result()
