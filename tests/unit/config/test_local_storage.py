"""With --local, storage links mean the storage of this machine, and no account of credentials.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchtrain.client.client import Client
from batchtrain.config.check.storage import read_places
from batchtrain.config.load import load
from batchtrain.config.local_storage import without_accounts
from batchtrain.config.types import Recipe, Secret, convert
from batchtrain.errors import NotFound, UsageError
from batchtrain.service.connect import Account
from batchtrain.storage import blob

STORAGE = {"link": {"account": "prod", "account_key": "a2V5"}}
IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}
FILES = {
    "credentials.yaml": "credentials: {storage: {link: {account: prod, account_key: a2V5}}}",
    "pool.yaml": "pool_specification: {id: p, vm_size: STANDARD_D2S_V5, vm_configuration: {platform_image:"
    " {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}, vm_count: {dedicated: 1}}",
}


def blobs(path: str) -> dict[str, Any]:
    return {"azure_storage": [{"storage_account_settings": "link", "remote_path": path}]}


def recipe(*tasks: dict[str, Any], **more: Any) -> Recipe:
    jobs = [{"id": "j", "tasks": [{"command": "true", **task} for task in tasks]}]
    return convert({"directory": ".", "credentials": {"storage": STORAGE}, "jobs": jobs, **more}, Recipe)


@pytest.mark.parametrize(("real", "links"), [(False, []), (True, ["link"])])
def test_a_recipe_for_the_emulator_has_only_the_accounts_that_were_asked_for(
    tmp_path: Path, real: bool, links: list[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    loaded = load(tmp_path, local=True, real_storage=real).recipe
    assert [*loaded.credentials.storage] == links
    assert loaded.replaced_accounts == ({} if real else {"link": "prod"})


def test_only_what_the_recipe_does_not_upload_itself_must_have_blobs() -> None:
    writes = {"output_data": blobs("made")}, {"output_data": blobs("given/out")}
    reads = [{"input_data": blobs(path)} for path in ("made/in", "given/x", "given/y/")]
    file = {"azure_storage": {"storage_account_settings": "link", "remote_path": "files/x"}}
    factory = {"task_factory": {"file": {**file, "task_filepath": "file_name"}}}
    places = read_places(recipe(*writes, *reads, factory))
    assert places == ("link/given/x", "link/given/y", "link/files/x")


def session(monkeypatch: pytest.MonkeyPatch) -> tuple[Client, list[str]]:
    """A client of an emulator whose storage has nothing, and what it says."""

    def nothing(*_: object) -> Any:
        raise NotFound("no container")

    monkeypatch.setattr(blob, "stored", nothing)
    client, said = Client(Account("http://127.0.0.1:1", "a", Secret("a2V5"), emulated=True, home="/x")), list[str]()
    monkeypatch.setattr(client, "own_storage", lambda: convert(STORAGE, dict[str, Any])["link"])
    client.say = said.append
    return client, said


def test_a_container_that_is_read_and_empty_here_is_named_with_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    client, said = session(monkeypatch)
    monkeypatch.setattr(client, "_values", lambda _: type("Values", (), {"connect": staticmethod(lambda link: link)}))
    for _ in range(2):
        with pytest.raises(UsageError, match=r"data sync ./DIR link/data/x --local`, or use the account prod"):
            client.foresee(recipe({"input_data": blobs("data/x")}))
    assert said == [
        "storage: `link` means the storage of this machine; `--real-storage` (`real_storage`) uses the account prod"
    ]


@pytest.mark.parametrize(
    ("transfers", "message"), [(True, "planned"), (False, "bring the files with `batchtrain data ingress . --local`")]
)
def test_what_files_upload_is_there_if_the_pool_transfers_them(
    monkeypatch: pytest.MonkeyPatch, transfers: bool, message: str
) -> None:
    def planned(*_: object, **__: object) -> Any:
        raise UsageError("planned")

    client, _ = session(monkeypatch)
    monkeypatch.setattr("batchtrain.client.session.foresee", planned)
    monkeypatch.setattr(client, "_values", lambda _: type("Values", (), {"connect": staticmethod(lambda link: link)}))
    to = {"storage_account_settings": "link", "data_transfer": {"remote_path": "data/case"}}
    resources = {"files": [{"source": {"path": "case"}, "destination": to}]}
    pool = {"id": "p", "vm_size": "STANDARD_D2S_V5", "vm_configuration": {"platform_image": IMAGE},
            "vm_count": {"dedicated": 1}, "transfer_files_on_pool_creation": transfers}  # fmt: skip
    with pytest.raises(UsageError, match=message):
        client.foresee(recipe({"input_data": blobs("data/case")}, resources=resources, pool=pool))


def test_a_session_of_the_emulator_replaces_accounts_unless_it_is_told_to_use_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, said = session(monkeypatch)
    given = recipe({"input_data": blobs("data")})
    assert client.with_storage(given) == without_accounts(given)
    client.real_storage = True
    assert client.with_storage(given) is given
    client.tell_storage(given, ["link", "other"])
    assert said == ["storage: `link` means the account prod: inputs are read there, and `output_data` is written there"]
