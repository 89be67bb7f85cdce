"""What a plan leaves open is filled when it is sent: values in, values out; files only below a test's own directory."""

from __future__ import annotations

import re
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from batchtrain.client.late_values import Placeholders
from batchtrain.config.types import Recipe, Secret, StorageCredentials, convert
from batchtrain.errors import UsageError
from batchtrain.plan.wire import Placeholder
from batchtrain.storage import blob

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
STORAGE = {"s": {"account": "acct", "account_key": "a2V5"}}


def values(directory: Path, credentials: dict[str, Any] | None = None, **more: Any) -> Placeholders:
    told = {"directory": str(directory), "credentials": credentials or {}, **more}
    return Placeholders(convert(told, Recipe), now=lambda: NOW, directory=directory)


def pool(**more: Any) -> dict[str, Any]:
    return {"id": "p", "vm_size": "s", "vm_configuration": {}, **more}


@pytest.mark.parametrize(
    ("name", "credentials", "value"),
    [
        ("registry:r.io:5000", {"docker_registry": {"r.io:5000": {"password": "x"}}}, "x"),
        ("singularity:r.io", {"singularity_registry": {"r.io": {"username": "u", "password": "x"}}}, "x"),
        ("storage:s:key", {"storage": STORAGE}, "a2V5"),
        ("storage:s:account", {"storage": STORAGE}, "acct"),
        ("storage:s:files", {"storage": STORAGE}, "https://acct.file.core.windows.net"),
        ("user:al:password", {"user_accounts": {"al": {"password": "x"}}}, "x"),
        ("share:v:password", {"shares": {"v": {"password": "x"}}}, "x"),
        ("share:v:username", {"shares": {"v": {"username": "al"}}}, "al"),
        ("management:subscription_id", {"management": {"subscription_id": "u"}}, "u"),
        ("management:resource_group", {"batch": {"resource_group": "g"}}, "g"),
    ],
)
def test_a_value_comes_from_credentials(tmp_path: Path, name: str, credentials: dict[str, Any], value: str) -> None:
    assert filled(values(tmp_path, credentials), name) == value


KEY_OF_AL = {"user_accounts": {"al": {"ssh_private_key": "al.key"}}}


@pytest.mark.parametrize(
    ("name", "credentials", "message"),
    [
        ("registry:r.io", {}, "the registry `r.io` has no password; write `docker_registry.r.io` in"),
        ("singularity:r.io", {}, "the registry `r.io` has no user name; write `singularity_registry.r.io` in"),
        (
            "singularity:r.io", {"singularity_registry": {"r.io": {"username": "u"}}},
            "the registry `r.io` has no password; write `singularity_registry.r.io` in"),
        ("storage:s:key", {}, "no storage account called `s`"),
        (
            "storage:s:key", {"storage": {"s": {"account": "a"}}},
            "the storage account `s` has no key; write `storage.s`"),
        ("sas:s/c?days=1", {}, "no storage account called `s`"),
        ("user:al:password", {}, "the user `al` has no password; write `user_accounts.al` in"),
        ("user:al:ssh_private_key", {}, "the user `al` has no private key; write `user_accounts.al` in"),
        ("user:al:ssh_private_key", KEY_OF_AL, "`user_accounts.al.ssh_private_key` names al.key, which is not a file"),
        ("share:v:password", {}, "the share `v` has no password; write `shares.v` in"),
        ("share:v:username", {}, "the share `v` has no username; write `shares.v` in"),
        ("management:subscription_id", {}, "given only by name; write `management.subscription_id` in"),
        ("management:resource_group", {}, "given only by name; write `batch.resource_group` in"),
        ("ssh:none.pub", {}, "`ssh.ssh_public_key` names none.pub, which is not a file"),
        ("file:none.asc", {}, "`signing_key.file` names none.asc, which is not a file"),
    ],
)  # fmt: skip
def test_what_nobody_said_is_refused_with_its_place(
    tmp_path: Path, name: str, credentials: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        filled(values(tmp_path, credentials), name)


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [("al.key", "user:al:ssh_private_key", "ssh-rsa AAAA me\n"), ("me.pub", "ssh:me.pub", "ssh-rsa AAAA me")],
)
def test_a_key_is_read_beside_the_recipe(tmp_path: Path, file: str, name: str, value: str) -> None:
    (tmp_path / file).write_text("ssh-rsa AAAA me\n")
    assert filled(values(tmp_path, KEY_OF_AL), name) == value


@pytest.mark.parametrize(("option", "rights"), [("", "rl"), ("write", "racwl"), ("put", "acw"), ("days=2", "rl")])
def test_a_link_to_a_container_has_the_rights_of_its_option(
    tmp_path: Path, option: str, rights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[str]()
    monkeypatch.setattr(blob, "make_container", lambda storage, container: made.append(container))
    assert permission(filled(values(tmp_path, {"storage": STORAGE}), f"sas:s/c?{option}"))["sp"] == rights
    assert made == (["c"] if "w" in rights else [])


@pytest.mark.parametrize(
    ("volume", "login"),
    [
        ({"volume_driver": "azurefile", "mount_options": ["user=al", "pass=x"]}, ("al", "x")),
        ({"volume_driver": "azurefile", "mount_options": ["username=al", "password=x=y", "ro"]}, ("al", "x=y")),
        ({"volume_driver": "custom_linux_mount", "fstab_entry": {
            "fs_spec": "//s/x", "fs_vfstype": "cifs", "fs_mntops": "ro,username=al,password=a=b"}}, ("al", "a=b")),
    ],
)  # fmt: skip
def test_a_login_in_mount_options_has_either_name(
    tmp_path: Path, volume: dict[str, Any], login: tuple[str, str]
) -> None:
    found = values(tmp_path, resources={"volumes": {"shared_data_volumes": {"v": volume}}})
    assert (filled(found, "share:v:username"), filled(found, "share:v:password")) == login


def test_the_password_of_a_desktop_login_may_stand_in_the_pool_file(tmp_path: Path) -> None:
    found = values(tmp_path, pool=pool(rdp={"username": "al", "password": "x"}))
    assert filled(found, "user:al:password") == "x"


def test_the_accounts_own_storage_replaces_one_without_credentials(tmp_path: Path) -> None:
    own = StorageCredentials(account="own", account_key=Secret("a2V5"))
    recipe = convert({"directory": str(tmp_path), "credentials": {"storage": STORAGE}}, Recipe)
    known = Placeholders(recipe, own=lambda: own)
    assert (filled(known, "storage:other:account"), filled(known, "storage:s:account")) == ("own", "acct")


def test_a_login_ends_so_many_days_from_the_sending(tmp_path: Path) -> None:
    assert filled(values(tmp_path), "expires:P30D") == "2026-12-21T12:00:00Z"


def filled(known: Placeholders, name: str) -> str:
    kind, _, rest = name.partition(":")
    value = known.fill(Placeholder(kind, rest))
    return value.reveal() if isinstance(value, Secret) else value


def permission(link: str) -> dict[str, str]:
    return {name: found[0] for name, found in parse_qs(urlsplit(link).query).items()}


def test_a_link_to_a_container_reads_and_lists_for_the_days_it_says_and_one_to_a_blob_reads_it_alone(
    tmp_path: Path,
) -> None:
    link, of_a_blob = (
        filled(values(tmp_path, {"storage": STORAGE}), f"sas:s/c{path}?days=3") for path in ("", "/x.tar.gz")
    )
    known = permission(link)
    assert link.startswith("https://acct.blob.core.windows.net/c?")
    assert known["sp"] == "rl"
    left = datetime.fromisoformat(known["se"].replace("Z", "+00:00")) - datetime.now(timezone.utc)
    assert -(-left // timedelta(days=1)) == 3
    assert (permission(of_a_blob)["sp"], permission(of_a_blob)["sr"]) == ("r", "b")


def test_a_key_pair_is_made_for_the_person_alone(tmp_path: Path) -> None:
    found = values(tmp_path, pool=pool(ssh={"username": "al", "generated_file_export_path": "keys"}))
    assert filled(found, "ssh:").startswith("ssh-ed25519 ")
    private = tmp_path / "keys" / "id_ed25519_batchtrain"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(private.with_name(f"{private.name}.pub").stat().st_mode) == 0o644
    assert private.read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----")


def test_a_key_pair_that_is_there_is_used_again(tmp_path: Path) -> None:
    made = filled(values(tmp_path), "ssh:")
    (tmp_path / "id_ed25519_batchtrain.pub").unlink()
    before = (tmp_path / "id_ed25519_batchtrain").read_bytes()
    assert filled(values(tmp_path), "ssh:").split()[:2] == made.split()[:2]
    assert (tmp_path / "id_ed25519_batchtrain").read_bytes() == before
