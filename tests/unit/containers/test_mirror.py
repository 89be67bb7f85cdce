"""Names in another registry, and sign-ins to it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from batchtrain.config.types import RegistryCredentials, Secret
from batchtrain.containers import mirror
from batchtrain.containers.mirror import PASSWORD, USERNAME, Login
from batchtrain.errors import UsageError

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("image", "to", "copy"),
    [
        ("example/openmpi:digits", "my.azurecr.io", "my.azurecr.io/example/openmpi:digits"),
        ("debian", "my.azurecr.io/base", "my.azurecr.io/base/debian"),
        ("nvcr.io/nvidia/pytorch:26.01-py3", "127.0.0.1:5000", "127.0.0.1:5000/nvidia/pytorch:26.01-py3"),
        (f"docker.io/a/b@{DIGEST}", "my-own.example:443/x/", "my-own.example:443/x/a/b:sha256-abababababab"),
        (f"a/b:1@{DIGEST}", "my.azurecr.io", "my.azurecr.io/a/b:1"),
        ("a/b", "my-account", "my-account/a/b"),
    ],
)
def test_a_copy_keeps_path_and_tag(image: str, to: str, copy: str) -> None:
    assert mirror.copy_of(image, to) == copy


@pytest.mark.parametrize(
    ("image", "to"), [("Upper/Case", "my.azurecr.io"), ("a/b", "my.azurecr.io/UPPER"), ("a b", "x.y")]
)
def test_what_is_no_name_is_refused(image: str, to: str) -> None:
    with pytest.raises(UsageError, match="the name of an image"):
        mirror.copy_of(image, to)


def test_sign_ins_are_those_of_the_file_and_the_environments_for_the_target() -> None:
    known = {
        "hub": RegistryCredentials(username="h", password=Secret("1")),
        "my.azurecr.io": RegistryCredentials(identity="/subscriptions/x"),
    }
    found = mirror.logins(known, {USERNAME: "u", PASSWORD: "2"}, "my.azurecr.io")
    assert found == {"hub": Login("h", Secret("1")), "my.azurecr.io": Login("u", Secret("2"))}


def test_the_files_sign_in_wins_over_the_environments() -> None:
    known = {"my.azurecr.io": RegistryCredentials(username="f", password=Secret("1"))}
    assert mirror.logins(known, {USERNAME: "u", PASSWORD: "2"}, "my.azurecr.io")["my.azurecr.io"].username == "f"


def test_half_a_sign_in_in_the_environment_is_refused() -> None:
    with pytest.raises(UsageError, match="or neither"):
        mirror.logins({}, {USERNAME: "u"}, "my.azurecr.io")


def test_a_password_is_in_no_repr() -> None:
    assert "secret" not in repr(Login("u", Secret("secret")))


def test_sign_ins_are_added_to_dockers_own_settings() -> None:
    own: dict[str, Any] = {"currentContext": "far", "credsStore": "desktop", "auths": {"other": {}}}
    made = mirror.settings(own, {"hub": Login("u", Secret("p:w"))})
    server = "https://index.docker.io/v1/"
    assert made["currentContext"] == "far"
    assert base64.b64decode(made["auths"][server]["auth"]) == b"u:p:w"
    assert made["auths"].keys() == {"other", server}
    assert made["credHelpers"] == {server: ""}, "the store of passwords is not asked about this server"
    assert "credHelpers" not in own
