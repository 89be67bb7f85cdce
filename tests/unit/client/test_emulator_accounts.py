"""The accounts of the emulator: where they are, what they are asked for, and what is kept there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from batchtrain.catalog.offer import Catalog
from batchtrain.client import identities, local, target_account
from batchtrain.client.late_values import Placeholders
from batchtrain.client.session import Session
from batchtrain.config.types import Credentials, Recipe, Secret, StorageCredentials
from batchtrain.emulator import local_service, mapped_images
from batchtrain.emulator.interface import StorageAccount, StorageMissing
from batchtrain.emulator.server import Settings, Status
from batchtrain.errors import NotFound, Unreachable, UsageError
from batchtrain.plan import Plan
from batchtrain.plan.step import Step
from batchtrain.plan.wire import Placeholder
from batchtrain.service import arm
from batchtrain.service.connect import Account
from tests.unit.plan.jobs import recipe
from tests.unit.storage import blob_server
from tests.unit.storage.blob_server import BlobServer

AZURE = Account("https://a.westeurope.batch.azure.com", "a", Secret("a2V5"))


class Emulator:
    """What is asked of the emulator, and its answers by path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self.home, self.asked = home, list[tuple[Any, ...]]()
        self.answers: dict[str, Any] = {"status": {"quotas": {"pools": 3}}}
        self.status: Status | None = Status(
            "http://127.0.0.1:9", "batchtrain", "a2V5", 1, home, home / "log", "no namespaces", "a remedy", "a loss",
            "ca",
        )  # fmt: skip
        monkeypatch.setattr(local.server, "status", lambda home: self.status)
        for name in ("at", "ask", "ensure", "storage", "lost"):
            monkeypatch.setattr(local.server, name, getattr(self, name))
        self.account = AZURE._replace(emulated=True, home=str(home))

    def at(self, home: Path) -> Path:
        return home

    def ask(self, verb: str, to: Path, path: str, *, content: Any = b"") -> Any:
        data = content if isinstance(content, bytes) else content.read()
        self.asked.append((verb, to, path, data))
        answer = self.answers[path]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ensure(self, settings: Settings) -> tuple[Status | None, bool]:
        self.asked.append((settings.data_dir, settings.account, settings.port))
        return self.status, True

    def storage(self, to: Path) -> StorageAccount:
        self.asked.append((to, "storage"))
        return StorageAccount("own", "a2V5", "http://127.0.0.1:8/own")

    def lost(self, home: Path, endpoint: str) -> str:
        return f"{endpoint} of {home.name} is gone"


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Emulator:
    return Emulator(monkeypatch, tmp_path / "home")


def test_an_account_of_the_emulator_is_what_the_emulator_says_that_it_is(emulator: Emulator) -> None:
    account = local.emulated({"BATCHTRAIN_EMULATOR_DIR": str(emulator.home)})
    assert emulator.asked == [(emulator.home, Settings(emulator.home).account, 0)]
    assert emulator.home in local_service._USED
    assert (account.endpoint, account.name, account.emulated, account.started, account.home) == (
        "http://127.0.0.1:9", "batchtrain", True, True, str(emulator.home),
    )  # fmt: skip
    assert (account.plain_nodes, account.plain_nodes_remedy, account.data_loss, account.ca) == (
        "no namespaces", "a remedy", "a loss", "ca",
    )  # fmt: skip
    assert account.lost is not None and account.lost() == "http://127.0.0.1:9 of home is gone"
    assert account.token is not None and account.token[:2] == ("batchtrain", Secret("a2V5"))
    running = local.running(str(emulator.home))
    assert running is not None and running.started is False
    emulator.status = None
    assert local.running(str(emulator.home)) is None


def test_each_name_is_an_account_of_its_own(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_DIR", str(emulator.home))
    own = mapped_images.account_dir(emulator.home, "west")
    account = target_account.where(local=True, credentials=None, environment=os.environ, label="west")
    assert (account.label, account.home) == ("west", str(own))
    assert emulator.asked == [(own, "west", 0)]
    assert local_service.emulator_directory() == emulator.home
    assert local_service.emulator_directory({}) != emulator.home
    for name in ("We", "ab", "a-b"):
        with pytest.raises(UsageError, match="is no name of a Batch account"):
            local_service.account_dir(emulator.home, name)


def test_an_account_of_the_credentials_is_used_by_its_name() -> None:
    batch = {"account_service_url": "https://b.west.batch.azure.com", "account": "b", "account_key": "a2V5"}
    made = recipe(credentials={"batch_accounts": {"other": batch}}).credentials
    account = target_account.where(local=False, credentials=made, environment={}, label="other")
    assert (account.name, account.label) == ("b", "other")
    with pytest.raises(UsageError, match="third"):
        target_account.where(local=False, credentials=made, environment={}, label="third")


def test_the_quotas_are_those_that_the_emulator_tells(emulator: Emulator) -> None:
    assert local.emulator_quotas(emulator.account) == {"pools": 3}
    assert emulator.asked == [("GET", emulator.home, "status", b"")]
    assert local.emulator_quotas(AZURE) == {}


def test_the_storage_of_the_emulator_is_installed_and_started_once(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = list[tuple[object, object]]()
    monkeypatch.setattr(local.azurite, "find_node", lambda: "node")
    monkeypatch.setattr(local.azurite, "install", lambda node, say: installed.append((node, say)))
    session = Session(emulator.account)
    account = StorageCredentials(account="own", account_key=Secret("a2V5"), endpoint="http://127.0.0.1:8/own")
    assert session.own_storage() == session.own_storage() == account
    assert installed == [("node", session.say)]
    assert emulator.asked == [(emulator.home, "storage")]

    def missing(*_: object) -> None:
        raise StorageMissing("no Node.js")

    monkeypatch.setattr(local.azurite, "install", missing)
    with pytest.raises(UsageError, match=r"no Node\.js"):
        local.storage(emulator.account, print)


class Values(NamedTuple):
    """The values of a recipe with a storage account."""

    uploads: list[tuple[str, object]]

    def upload(self, path: str, data: object) -> bool:
        self.uploads.append((path, data))
        return False

    def fill(self, placeholder: Placeholder) -> str:
        return f"{placeholder.kind} of storage"


def test_a_file_of_a_task_is_kept_by_the_emulator_and_any_other_by_storage(emulator: Emulator) -> None:
    uploads = list[tuple[str, object]]()
    values: Any = Values(uploads)
    kept = local.Kept(values, emulator.account)
    emulator.answers["blob_store/j/a.tar"] = {"url": "http://127.0.0.1:9/a"}
    assert kept.upload("_local/j/a.tar", b"content") is True
    assert emulator.asked == [("PUT", emulator.home, "blob_store/j/a.tar", b"content")]
    assert kept.upload("data/box/a.tar", b"other") is False
    assert uploads == [("data/box/a.tar", b"other")]
    assert kept.fill(Placeholder("sas", "_local/j/a.tar?days=2")) == "http://127.0.0.1:9/a"
    assert kept.fill(Placeholder("sas", "data/box/a.tar")) == "sas of storage"
    assert kept.fill(Placeholder("user", "_local/j/a.tar")) == "user of storage"
    emulator.answers["blob_store/j/b.tar"] = OSError("broken pipe")
    with pytest.raises(Unreachable, match="did not accept the file: broken pipe"):
        kept.upload("_local/j/b.tar", b"content")


def test_a_blob_is_uploaded_unless_it_is_there(tmp_path: Path) -> None:
    blobs = BlobServer()
    with blob_server.serve(blobs) as storage:
        account = StorageCredentials(account="account", account_key=Secret("a2V5"), endpoint=storage.url)
        values = Placeholders(Recipe(directory=".", credentials=Credentials(storage={"data": account})))
        assert values.upload("data/box/name", b"content") is True
        assert values.upload("data/box/name", b"content") is False
        assert blobs.blobs == {"name": b"content"}


def test_this_environment_stands_for_an_image_on_the_emulator_alone(emulator: Emulator) -> None:
    assert local.own_environment(AZURE) is None
    assert local.own_environment(emulator.account._replace(home="")) is None
    assert local.own_environment(emulator.account) == local.OWN_IMAGE
    assert mapped_images.prefix_of(emulator.home, local.OWN_IMAGE) == sys.prefix


def test_the_emulator_learns_an_image_whose_agent_only_the_recipe_names(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = list[tuple[Any, ...]]()
    monkeypatch.setattr(local.own_catalog, "add", lambda *arguments: added.append(arguments))
    own = {"publisher": "Me", "offer": "Mine", "sku": "1", "node_agent": "batch.node.ubuntu 24.04"}
    made = recipe(pool={"vm_configuration": {"platform_image": own}})
    for account in (AZURE, emulator.account._replace(home="")):
        local.add_catalog(made, account)
    local.add_catalog(recipe(), emulator.account)
    assert added == []
    local.add_catalog(made, emulator.account)
    [(home, sizes, [image])] = added
    assert (home, sizes) == (emulator.home, made.catalog.own_sizes)
    assert (image.publisher, image.offer, image.sku, image.os) == ("me", "mine", "1", "linux")
    size = replace(recipe(), catalog=Catalog(own_sizes=tuple(Catalog().sizes[:1])))
    local.add_catalog(size, emulator.account)
    assert added[1] == (emulator.home, size.catalog.own_sizes, ())


# --- managed identities ----------------------------------------------------------------------------------------------

STEP = Step("pool.identity", "p", {"identities": ["/subscriptions/s/i"]})


def test_the_emulator_sets_no_identities(emulator: Emulator) -> None:
    assert "without managed identities" in identities.identify(STEP, recipe(), emulator.account).text


def test_identities_are_set_on_the_account_that_the_signed_in_user_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[Any, ...]]()
    monkeypatch.setattr(arm, "reach", lambda credentials, environment, endpoint: ("rest", endpoint))
    monkeypatch.setattr(arm, "account", lambda *arguments: asked.append(arguments) or "seen")
    monkeypatch.setattr(arm, "set_pool_identity", lambda *arguments: asked.append(arguments))
    rest = ("rest", AZURE.endpoint)
    text = identities.identify(STEP, recipe(), AZURE).text
    assert text == "pool p has 1 managed identities"
    assert asked == [(rest, AZURE.endpoint, None), (rest, "seen", "p", ["/subscriptions/s/i"])]
    asked.clear()
    managed = recipe(credentials={"management": {"subscription_id": "u"}})
    identities.identify(STEP, managed, AZURE)
    assert asked[0] == (rest, AZURE.endpoint, "u")
    monkeypatch.setattr(arm, "account", lambda *_: None)
    with pytest.raises(NotFound, match="needs the role Reader"):
        identities.identify(STEP, recipe(), AZURE)


def test_files_that_travel_through_storage_are_uploaded_by_their_step(tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs/a").write_bytes(b"a")
    blobs = BlobServer()
    with blob_server.serve(blobs) as storage:
        account = StorageCredentials(account="account", account_key=Secret("a2V5"), endpoint=storage.url)
        made = replace(recipe(directory=str(tmp_path)), credentials=Credentials(storage={"data": account}))
        events = list[str]()
        step = Step("files.upload", "data/box/in", {"source": "inputs"})
        Session(AZURE).carry_out(Plan((step,)), made, lambda event: events.append(event.text))
    assert blobs.blobs == {"in/a": b"a"}
    assert events == ["1 files to data/box/in: 1 copied"]
