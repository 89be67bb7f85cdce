"""What a person wrote about signing in, and the way that is chosen for it; nobody is asked for a token."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest
from azure import identity
from azure.core.credentials import AccessToken

from batchtrain.config.types import Aad, BatchCredentials, Credentials, Secret, TokenCache
from batchtrain.errors import UsageError
from batchtrain.service import connect, entra
from batchtrain.service.entra import SignIn, sign_in_of

SECRET = Secret("s3cret")
APP: dict[str, Any] = {"directory_id": "tenant", "application_id": "app"}
URL = "https://mine.westeurope.batch.azure.com"


@pytest.mark.parametrize(
    ("aad", "general", "mode", "client"),
    [
        (None, None, "default", None),
        (Aad(), None, "default", None),
        (Aad(**APP, auth_key=SECRET), None, "client secret", "app"),
        (Aad(**APP, rsa_private_key_pem="app.pem"), None, "certificate", "app"),
        (Aad(user="me@example.com"), None, "device code", None),
        (Aad(application_id="managed"), None, "default", "managed"),
        (Aad(user="me@example.com"), Aad(**APP, auth_key=SECRET), "device code", None),  # a section's own wins whole
        (Aad(endpoint="https://batch.chinacloudapi.cn/"), Aad(**APP, auth_key=SECRET), "client secret", "app"),
    ],
)
def test_what_is_written_chooses_how_to_sign_in(
    aad: Aad | None, general: Aad | None, mode: str, client: str | None
) -> None:
    chosen = sign_in_of(aad, general)
    assert (chosen.mode, chosen.client) == (mode, client)
    assert chosen.tenant == ("tenant" if client == "app" else None)


def test_a_password_is_not_used_and_the_person_is_told() -> None:
    chosen = sign_in_of(Aad(user="me@example.com", password=Secret("hunter2")))
    assert (chosen.mode, chosen.note) == ("device code", entra.PASSWORD_NOTE)
    assert "hunter2" not in repr(tuple(chosen))
    assert sign_in_of(Aad(user="me@example.com")).note == ""


@pytest.mark.parametrize(
    ("aad", "said"),
    [
        (Aad(auth_key=SECRET), "a service principal's secret and no directory_id and no application_id"),
        (Aad(application_id="app", auth_key=SECRET), "and no directory_id"),
        (Aad(**APP, auth_key=SECRET, rsa_private_key_pem="app.pem"), "both an auth_key and an rsa_private_key_pem"),
    ],
)
def test_what_cannot_sign_in_is_said_without_the_secret(aad: Aad, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        sign_in_of(aad)
    assert "s3cret" not in str(raised.value)


def test_a_secret_is_never_shown() -> None:
    assert "s3cret" not in repr(sign_in_of(Aad(**APP, auth_key=SECRET)))
    assert "s3cret" not in repr(connect.account(URL, general=Aad(**APP, auth_key=SECRET)))


OWN = Aad(authority_url="https://login.example.com/", endpoint="https://batch.example.com", user="me")


@pytest.mark.parametrize(
    ("endpoint", "own", "authority", "resource"),
    [
        (URL, None, "login.microsoftonline.com", "https://batch.core.windows.net/"),
        ("https://a.usgovvirginia.batch.usgovcloudapi.net", None, "login.microsoftonline.us",
         "https://batch.core.usgovcloudapi.net/"),
        ("https://a.chinaeast2.batch.chinacloudapi.cn", None, "login.chinacloudapi.cn",
         "https://batch.chinacloudapi.cn/"),
        (URL, OWN, "login.example.com", "https://batch.example.com/"),
    ],
)  # fmt: skip
def test_the_endpoint_s_cloud_or_what_is_written_says_where_to_sign_in_and_for_what(
    endpoint: str, own: Aad | None, authority: str, resource: str
) -> None:
    account = connect.account(endpoint, own=own)
    assert (account.sign_in.authority, account.resource) == (authority, resource)


def test_batch_s_scope_keeps_the_resource_s_slash() -> None:
    """The service refuses tokens for `https://batch.core.windows.net` (azure-sdk-for-net issue 8026)."""
    assert entra.scope_of(entra.PUBLIC.batch) == "https://batch.core.windows.net//.default"


def test_a_sign_in_is_kept_under_its_name_unless_switched_off() -> None:
    kept = sign_in_of(Aad(user="me", token_cache=TokenCache(filename="work")))
    not_kept = sign_in_of(Aad(user="me", token_cache=TokenCache(enabled=False)))
    assert (kept.cache, not_kept.cache) == ("work", None)


def test_a_section_s_own_cache_wins_over_the_general_one() -> None:
    general = Aad(user="me", token_cache=TokenCache(filename="all"))
    own = Aad(token_cache=TokenCache(filename="batch"))
    assert [sign_in_of(one, general).cache for one in (None, Aad(endpoint="https://x"), own)] == ["all", "all", "batch"]


def test_the_key_wins_over_signing_in() -> None:
    account = connect.account(URL, "mine", Secret("a2V5"), general=Aad(**APP, auth_key=SECRET))
    assert (account.key, account.sign_in) == (Secret("a2V5"), SignIn("default"))


def test_the_environment_s_account_signs_in_as_the_files_say() -> None:
    credentials = Credentials(aad=Aad(**APP, auth_key=SECRET))
    account = connect.account_of(credentials, {"AZURE_BATCH_ENDPOINT": URL})
    assert account is not None
    assert account.sign_in.mode == "client secret"


def test_nothing_said_is_no_account() -> None:
    assert connect.account_of(None, {}) is None


def test_certificates_to_trust_must_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"BATCHTRAIN_CA is .*gone"):
        connect.account_of(None, {"AZURE_BATCH_ENDPOINT": URL, "BATCHTRAIN_CA": str(tmp_path / "gone")})


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.pem cannot be used .* it must be a PEM file with the private key"):
        entra.credential(sign_in_of(Aad(**APP, rsa_private_key_pem=str(tmp_path / "gone.pem"))))


@pytest.mark.parametrize(
    ("aad", "kind"),
    [
        (None, "DefaultAzureCredential"),
        (Aad(**APP, auth_key=SECRET), "ClientSecretCredential"),
    ],
)
def test_each_way_is_a_credential_of_azure_identity(aad: Aad | None, kind: str) -> None:
    assert type(entra.credential(sign_in_of(aad))).__name__ == kind


def test_what_the_sdk_logs_is_not_printed_beside_our_sentence() -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("azure").handlers)


class Device:
    """Stands for azure-identity's device code: notes what it was made with, and how often a person was asked."""

    asked = 0
    made: ClassVar[list[dict[str, Any]]] = []
    no_key_ring = False

    def __init__(self, **options: Any) -> None:
        type(self).made.append(options)
        self.options = options

    def authenticate(self, *, scopes: list[str]) -> Any:
        if self.no_key_ring and "cache_persistence_options" in self.options:
            raise ValueError("no place to keep it encrypted")
        type(self).asked += 1
        return identity.AuthenticationRecord("tenant", "app", "login.microsoftonline.com", "home", "me@example.com")

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken("token", 1)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Device]:
    fresh = type("Fresh", (Device,), {"made": [], "asked": 0})
    monkeypatch.setattr(identity, "DeviceCodeCredential", fresh)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return fresh


def test_a_person_is_asked_once_and_known_by_the_next_command(device: type[Device], tmp_path: Path) -> None:
    for _ in range(2):  # two commands
        entra.credential(sign_in_of(Aad(user="me@example.com"))).get_token("scope")
    assert device.asked == 1
    assert device.made[1]["authentication_record"].username == "me@example.com"
    kept = tmp_path / "batchtrain" / "sign-in-batchtrain.json"
    assert "token" not in kept.read_text()
    assert kept.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("no_key_ring", [True, False])
def test_nothing_is_kept_without_a_key_ring_or_with_a_cache_that_is_switched_off(
    no_key_ring: bool, device: type[Device], tmp_path: Path
) -> None:
    device.no_key_ring = no_key_ring
    entra.credential(sign_in_of(Aad(user="me", token_cache=TokenCache(enabled=no_key_ring)))).get_token("scope")
    assert "cache_persistence_options" not in device.made[-1]
    assert list(tmp_path.iterdir()) == []


def test_the_code_is_shown_with_where_to_enter_it(device: type[Device], capsys: pytest.CaptureFixture[str]) -> None:
    entra.credential(sign_in_of(Aad(user="me@example.com", password=Secret("hunter2"))))
    device.made[0]["prompt_callback"]("https://microsoft.com/devicelogin", "ABC123", None)
    said = capsys.readouterr().err
    assert "sign in as me@example.com: open https://microsoft.com/devicelogin and enter the code ABC123" in said
    assert entra.PASSWORD_NOTE in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("endpoint", "authority"),
    [
        ("https://mine.vault.usgovcloudapi.net/secrets/key", "login.microsoftonline.us"),
        ("https://mine.vault.azure.cn/secrets/key", "login.chinacloudapi.cn"),
        ("https://mine.vault.azure.net/secrets/key", "login.microsoftonline.com"),
    ],
)
def test_a_vault_is_signed_in_to_in_its_own_cloud_and_storage_in_that_of_the_batch_account(
    endpoint: str, authority: str
) -> None:
    assert sign_in_of(None, None, endpoint=endpoint).authority == authority
    known = Credentials(batch=BatchCredentials(account_service_url="https://a.chinaeast.batch.chinacloudapi.cn"))
    assert entra.storage_sign_in(known).authority == "login.chinacloudapi.cn"
