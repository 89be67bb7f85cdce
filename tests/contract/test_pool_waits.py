"""Pools made and waited for through the client: broken nodes that are rebooted, and what a pool needs besides Batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.client.client import Client
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator.interface import Exit, Run
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import ServiceError, UsageError
from batchtrain.records import Node
from batchtrain.records.events import Event
from batchtrain.service import watch
from batchtrain.service.connect import Account
from tests.emulation import FakeMachine
from tests.waiting import GUARD

pytestmark = pytest.mark.process


class Moody(FakeMachine):
    """Nodes whose start task fails so many times before it succeeds."""

    failures = 0

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.tries: Counter[str] = Counter()

    @classmethod
    async def open(cls, data_dir: Path) -> Moody:
        return cls(data_dir)

    async def run(self, node_id: str, run: Run) -> Exit:
        await super().run(node_id, run._replace(command_line="exit 0"))
        self.tries[node_id] += 1
        return Exit(1 if self.tries[node_id] <= self.failures else 0)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Emulator(Settings(tmp_path / "data", port=0), Moody.open) as running:
        yield Client(Account(running.endpoint, running.account, Secret(running.key), emulated=True))


def recipe(**pool: Any) -> Recipe:
    told = {
        "id": "p",
        "vm_size": "STANDARD_D2S_V5",
        "vm_count": {"dedicated": 2},
        "vm_configuration": {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}},
        "additional_node_prep": {"commands": {"pre": ["true"]}},
        **pool,
    }
    return msgspec.convert({"directory": "x", "pool": told}, Recipe)


def test_nodes_whose_start_task_failed_are_rebooted_where_the_file_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Moody, "failures", 2)
    said: list[Event] = []
    seen = client.pools.add(recipe(reboot_on_start_task_failed=True), timeout=GUARD, tell=said.append)
    assert seen.dedicated == 2
    reboots = [event.text.split("; ")[1] for event in said if event.kind == "node.reboot"]
    assert sorted(reboots) == ["reboot 1 of 5", "reboot 1 of 5", "reboot 2 of 5", "reboot 2 of 5"]


def test_a_node_is_rebooted_five_times_and_then_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moody, "failures", 99)
    said: list[Event] = []
    told = recipe(reboot_on_start_task_failed=True, vm_count={"dedicated": 1})
    with pytest.raises(ServiceError, match="the start task failed"):
        client.pools.add(told, timeout=GUARD, tell=said.append)
    assert [event.text.split("; ")[1] for event in said if event.kind == "node.reboot"][-1] == "reboot 5 of 5"


def test_nodes_are_not_rebooted_where_nothing_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moody, "failures", 1)
    with pytest.raises(ServiceError, match="the start task failed"):
        client.pools.add(recipe(attempt_recovery_on_unusable=True), timeout=GUARD)


def test_a_node_that_cannot_be_rebooted_is_left_as_it_is(client: Client) -> None:
    told = recipe()
    client.pools.add(told, timeout=GUARD)
    reboots = watch.Reboots(client.batch, "p", frozenset({"unusable"}), lambda text: None)
    assert not reboots.mend(Node("nowhere", "unusable", ""))
    assert not reboots.mend(Node("nowhere", "idle", ""))


def test_a_pool_with_a_login_is_made_on_the_embedded_service_too(client: Client) -> None:
    said: list[Event] = []
    told = recipe(ssh={"username": "al"})
    client.pools.add(told, timeout=GUARD, tell=said.append)
    login = "no login is created: the nodes of the emulator are this machine"
    assert [event.text for event in said if event.kind == "node.user"] == [login]


def test_the_nodes_of_a_pool_that_is_resized_get_its_login_too(client: Client) -> None:
    told, said = recipe(ssh={"username": "al"}), list[Event]()
    client.pools.add(told, timeout=GUARD)
    client.pools.resize("p", dedicated=3, timeout=GUARD, tell=said.append, recipe=told)
    assert [event.kind for event in said].count("node.user") == 1


def test_a_pool_with_identities_is_made_in_steps_and_goes_without_them_on_the_embedded_service(client: Client) -> None:
    said: list[Event] = []
    seen = client.pools.add(recipe(identities=["/i"]), timeout=GUARD, tell=said.append)
    assert seen.dedicated == 2
    assert [event.kind for event in said if event.kind not in ("pool.wait", "nodes.seen")] == [
        "pool.adding",
        "pool.add",
        "pool.identity",
        "pool.resize",
        "node.ready",
        "node.ready",
    ]


def test_identities_that_nobody_could_set_are_refused_before_anything_is_made(client: Client) -> None:
    keyed = Client(client.account._replace(emulated=False))
    with pytest.raises(UsageError, match="takes no account key"):
        keyed.pools.add(recipe(identities=["/i"]), timeout=GUARD)
    assert client.pools.list() == ()
