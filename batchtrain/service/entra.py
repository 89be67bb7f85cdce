"""Sign-in with Microsoft Entra ID: the user's settings become a SignIn, and that becomes a credential.

Reads no YAML. Only `credential` imports `azure.identity`, which takes 0.17 s. azure-identity takes any JSON for an
answer of a sign-in service, so `SignInTransport` checks it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from azure.core.credentials import AccessToken, TokenCredential
from azure.core.exceptions import ClientAuthenticationError, ServiceResponseError
from azure.core.pipeline.transport import HttpTransport

from batchtrain import state_files
from batchtrain.config.types import Aad, Credentials, Secret, TokenCache
from batchtrain.errors import UsageError, printable
from batchtrain.service import answer_body, retry
from batchtrain.service.answer_body import InvalidAnswer, origin

if TYPE_CHECKING:
    from azure.identity import AuthenticationRecord


class Cloud(NamedTuple):
    """One of Azure's clouds: its sign-in service and the audiences of its tokens."""

    name: str
    authority: str
    """Host of the sign-in service."""
    domain: str
    """The suffix of Batch accounts' host names."""
    batch: str
    """The audience of tokens for Batch; its trailing slash is part of it."""
    management: str
    """Azure Resource Manager."""
    vault: str
    """The suffix of key vaults' host names."""
    older_authorities: tuple[str, ...] = ()


# Sources: azure-cli's cloud table (batch_resource_id, resource_manager), azure-identity's AzureAuthorityHosts.
PUBLIC = Cloud("public", "login.microsoftonline.com", "batch.azure.com", "https://batch.core.windows.net/",
               "https://management.azure.com", "vault.azure.net", ("login.windows.net",))  # fmt: skip
CLOUDS = (
    PUBLIC,
    Cloud("US Government", "login.microsoftonline.us", "batch.usgovcloudapi.net",
          "https://batch.core.usgovcloudapi.net/", "https://management.usgovcloudapi.net", "vault.usgovcloudapi.net",
          ("login-us.microsoftonline.com",)),
    Cloud("China", "login.chinacloudapi.cn", "batch.chinacloudapi.cn", "https://batch.chinacloudapi.cn/",
          "https://management.chinacloudapi.cn", "vault.azure.cn", ("login.partner.microsoftonline.cn",)),
)  # fmt: skip

AUTHORITIES = frozenset(host for cloud in CLOUDS for host in (cloud.authority, *cloud.older_authorities))

SECRET, CERTIFICATE, DEVICE_CODE, DEFAULT = "client secret", "certificate", "device code", "default"
PASSWORD_NOTE = (
    "the password in credentials.yaml is not used: Entra ID refuses passwords where it asks for a second factor"
)


class SignIn(NamedTuple):
    """How to get a token. The secret is never shown."""

    mode: str
    """client secret, certificate, device code or default (environment, managed identity, `az login`, …)."""
    authority: str = PUBLIC.authority
    tenant: str | None = None
    client: str | None = None
    """A service principal's id; in the default mode, a user-assigned managed identity's."""
    secret: Secret | None = None
    certificate: str | None = None
    """Path of a PEM file with the private key and its certificate."""
    user: str | None = None
    cache: str | None = None
    """The name under which the user's sign-in is kept between commands; None if it is not kept."""
    note: str = ""
    """A warning for the user who signs in."""


def cloud_of(authority: str | None, endpoint: str = "") -> Cloud:
    """The cloud of a sign-in service's URL, otherwise of a Batch account's or key vault's URL, otherwise the public
    one."""
    host, domain = _host(authority or ""), _host(endpoint)
    for cloud in CLOUDS:
        if host in (cloud.authority, *cloud.older_authorities):
            return cloud
    if host:
        return PUBLIC
    return next((cloud for cloud in CLOUDS if domain.endswith((f".{cloud.domain}", f".{cloud.vault}"))), PUBLIC)


def storage_sign_in(credentials: Credentials) -> SignIn:
    """How to sign in to the storage accounts of the files, in the cloud of their Batch account. Raises UsageError."""
    endpoint = (credentials.batch.account_service_url if credentials.batch else None) or ""
    return sign_in_of(credentials.storage_aad, credentials.aad, endpoint=endpoint)


def scope_of(resource: str) -> str:
    """The scope of tokens for a resource. Batch's has a double slash, because its audience ends with one."""
    return f"{resource}/.default"


def sign_in_of(specific: Aad | None, general: Aad | None = None, *, endpoint: str = "") -> SignIn:
    """The sign-in of a section's own `aad` block, otherwise the general one. Raises UsageError for an invalid one: a
    secret without its application, or two secrets."""
    is_identity = specific is not None and any(
        (specific.directory_id, specific.application_id, specific.auth_key, specific.rsa_private_key_pem, specific.user)
    )  # and not only a place or what to keep
    block = (specific if is_identity else general or specific) or Aad()
    cache = specific.token_cache if specific is not None and specific.token_cache != TokenCache() else block.token_cache
    authority = _host(block.authority_url or "") or cloud_of(None, endpoint).authority
    who = SignIn(DEFAULT, authority, block.directory_id, block.application_id)
    if block.auth_key and block.rsa_private_key_pem:
        raise UsageError("`aad` has both an auth_key and an rsa_private_key_pem; keep one of them")
    if block.auth_key or block.rsa_private_key_pem:
        missing = [name for name in ("directory_id", "application_id") if not getattr(block, name)]
        if missing:
            raise UsageError(f"`aad` has a service principal's secret and no {' and no '.join(missing)}")
        if block.auth_key:
            return who._replace(mode=SECRET, secret=block.auth_key)
        return who._replace(mode=CERTIFICATE, certificate=block.rsa_private_key_pem)
    if block.user:
        note = PASSWORD_NOTE if block.password else ""
        name = (cache.filename or "batchtrain") if cache.enabled else None
        return who._replace(mode=DEVICE_CODE, user=block.user, cache=name, note=note)
    return who


def _host(url: str) -> str:
    """The host of a URL, with its port where it has one."""
    return urlsplit(url if "://" in url else f"https://{url}").netloc.lower() if url else ""


# --- answers of sign-in services --------------------------------------------------------------------------------------

Text = Annotated[str, msgspec.Meta(pattern="^[!-~]+$")]
"""A text that may stand in a header or a URL."""
Seconds = Annotated[int, msgspec.Meta(ge=0, lt=2**40)] | Annotated[str, msgspec.Meta(pattern="^[0-9]{1,12}$")]
Moment = Annotated[int, msgspec.Meta(ge=0, lt=2**40)] | Annotated[str, msgspec.Meta(pattern="^[0-9/: +APM-]{1,30}$")]
"""Seconds since 1970; of App Service also a date."""


class _Group(msgspec.Struct):
    aliases: tuple[str, ...]


class _Answer(msgspec.Struct):
    """What azure-identity and MSAL read of a token, of a device code, and of the endpoints of a sign-in service."""

    access_token: Text | None = None
    refresh_token: Text | None = None
    token_type: Text | None = None
    expires_in: Seconds | None = None
    expires_on: Moment | None = None
    refresh_in: Seconds | None = None
    interval: Seconds | None = None
    device_code: str | None = None
    user_code: str | None = None
    verification_uri: str | None = None
    message: str | None = None
    issuer: str | None = None
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    tenant_discovery_endpoint: str | None = None
    metadata: tuple[_Group, ...] | None = None
    error: str | dict[str, Any] | None = None
    error_description: str | None = None

    def check(self, url: str) -> None:
        """Raise InvalidAnswer for an answer of another service, and for endpoints outside of this host and the clouds:
        they would get the secret."""
        if self == _Answer():
            raise InvalidAnswer("it has no token, no endpoint and no error", url)
        hosts = {origin(url)[1], *AUTHORITIES}
        endpoints = (self.token_endpoint, self.device_authorization_endpoint, self.tenant_discovery_endpoint)
        if not all(_is_of(endpoint, hosts) for endpoint in endpoints if endpoint):
            raise InvalidAnswer("an endpoint of it is on another host", url)


def _is_of(url: str, hosts: Collection[str]) -> bool:
    try:
        scheme, host = origin(url)
    except ValueError:
        return False
    return scheme == "https" and host in hosts


class SignInTransport(HttpTransport[Any, Any]):
    """Sends the requests of azure-identity, and checks the answers."""

    def __init__(self, ca: str | None) -> None:
        limits = {"connection_timeout": retry.FAR.connect, "read_timeout": answer_body.SILENT_SECONDS}
        self._transport = retry.transport(**limits, connection_verify=ca or True)

    def open(self) -> None:
        self._transport.open()

    def close(self) -> None:
        self._transport.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, request: Any, **options: Any) -> Any:
        """The answer to a request. Raises InvalidAnswer, which is also noted in SIGN_IN."""
        response = self._transport.send(request, **{**options, "stream": True})
        try:
            with answer_body.unquoted():
                answer_body.receive(response, streamed=False)
                self._check(response, request.url)
        except InvalidAnswer as error:
            answer_body.SIGN_IN.set(error)
            raise
        return response

    def _check(self, response: Any, url: str) -> None:
        """Raise an error for an answer that azure-identity would not understand. An error of Entra ID counts by its
        status: one from 500 on is no answer, which is repeated. Those of a virtual machine have rules of their own."""
        status, of_machine = f"{response.status_code} {response.reason}", url.startswith("http:")
        if response.status_code >= 500 and not of_machine:
            raise ServiceResponseError(f"it answers {status}")
        try:
            answer_body.decoded(response.content, _Answer, url).check(url)
        except InvalidAnswer as error:
            if response.status_code < 400:
                raise
            response._content = b""  # as in `receive`
            if not of_machine:
                refusal = ClientAuthenticationError(status, response)
                vars(refusal).update(signing_in=True)  # for the message
                raise refusal from error


# --- from a SignIn to a credential ----------------------------------------------------------------------------------


def credential(sign_in: SignIn, *, ca: str | None = None) -> TokenCredential:
    """The credential of azure-identity; `ca` as in Account. Raises UsageError for an unreadable certificate."""
    from azure import identity  # a slow import (0.17 s), needed only for a sign-in

    # The retry policy of the request repeats failed connections, so azure-identity does not.
    options: dict[str, Any] = {"authority": f"https://{sign_in.authority}", "retry_connect": 0}
    if sign_in.authority not in AUTHORITIES:
        options["disable_instance_discovery"] = True  # the public cloud's list does not have it
    options["transport"] = SignInTransport(ca)
    match sign_in.mode:
        case "client secret":
            secret = sign_in.secret.reveal() if sign_in.secret else ""
            return identity.ClientSecretCredential(str(sign_in.tenant), str(sign_in.client), secret, **options)
        case "certificate":
            try:
                return identity.CertificateCredential(
                    str(sign_in.tenant), str(sign_in.client), certificate_path=sign_in.certificate, **options
                )
            except (OSError, ValueError) as error:
                message = f"the certificate {sign_in.certificate} cannot be used ({error}); it must be a PEM file"
                raise UsageError(f"{message} with the private key and its certificate") from None
        case "device code":
            return _Remembered(sign_in, options, identity)
        case _:
            return identity.DefaultAzureCredential(managed_identity_client_id=sign_in.client, **options)


class _Remembered:
    """A device code's credential that keeps the user's sign-in between commands if this machine can. azure-identity
    keeps the tokens, encrypted; this file keeps only who signed in, which is not secret."""

    def __init__(self, sign_in: SignIn, options: Mapping[str, Any], identity: Any) -> None:
        """identity: the module of azure-identity."""
        self._sign_in, self._record = sign_in, None
        names = {"tenant_id": sign_in.tenant, "client_id": sign_in.client}
        all_options: dict[str, Any] = {**options, "prompt_callback": self._prompt}
        all_options |= {name: value for name, value in names.items() if value}
        if sign_in.cache:
            all_options["cache_persistence_options"] = identity.TokenCachePersistenceOptions(name=sign_in.cache)
            state_home = os.environ.get("XDG_STATE_HOME", "")
            base = Path(state_home) if state_home.startswith("/") else Path.home() / ".local" / "state"
            name = "".join(character if character.isalnum() else "-" for character in sign_in.cache)
            self._record = base / "batchtrain" / f"sign-in-{name}.json"
            if sign_in_record := _of_file(self._record, identity):
                all_options["authentication_record"] = sign_in_record
        self._known, self._make = all_options, identity.DeviceCodeCredential
        self._inner = self._make(**all_options)

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """A token for the scopes; asks the user once."""
        if self._record is not None and "authentication_record" not in self._known:
            self._ask(self._record, scopes)
        token: AccessToken = self._inner.get_token(*scopes, **options)
        return token

    def _ask(self, record: Path, scopes: tuple[str, ...]) -> None:
        try:
            signed_in = self._inner.authenticate(scopes=list(scopes))
        except (ImportError, ValueError):  # this machine cannot keep tokens encrypted: the sign-in is not kept
            self._record = None
            self._inner = self._make(**{k: v for k, v in self._known.items() if k != "cache_persistence_options"})
            return
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.write_text(signed_in.serialize(), encoding="utf-8")
        self._known["authentication_record"] = signed_in

    def _prompt(self, url: str, code: str, _expires: object) -> None:
        if self._sign_in.note:
            print(self._sign_in.note, file=sys.stderr)
        text = f"sign in as {self._sign_in.user}: open {url} and enter the code {code}"
        print(printable(text), file=sys.stderr, flush=True)


def _of_file(path: Path, identity: Any) -> AuthenticationRecord | None:
    """The sign-in of the last command; None if there is none, or if it cannot be read: then the user signs in again."""
    record: AuthenticationRecord | None = None
    if document := state_files.cached(path, dict[str, str]):
        with contextlib.suppress(ValueError, KeyError):
            record = identity.AuthenticationRecord.deserialize(json.dumps(document))
    return record
