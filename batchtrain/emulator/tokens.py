"""Access tokens in place of Microsoft Entra ID's, and how a request was signed; pure.

A token is a JSON Web Token (HS256). Its key is derived from the account's key, so there is only one secret to keep.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from batchtrain.emulator import wire
from batchtrain.emulator.faults import Fault, NeedsToken

SHARED_KEY, TOKEN = "SharedKey", "AAD"
"""How a request was signed, as in an account's `allowedAuthenticationModes`."""
READ, WRITE = "read", "write"
"""The permissions of a token: reading (GET and HEAD), or everything. They replace the roles of Entra ID's tokens."""
BATCH = ("https://batch.core.windows.net",)
MANAGEMENT = ("https://management.azure.com", "https://management.core.windows.net")
"""Audiences of tokens, without the trailing slash that some clients send."""
TENANT = "00000000-0000-0000-0000-000000000001"
LIFE_SECONDS, OWN_LIFE_SECONDS = 3600, 60
"""The lifetime of a token that is given out, and of one that batchtrain issues to itself for its next request."""
LEEWAY_SECONDS = 300
"""How far a token's times may be off: the default of Microsoft's library. Azure's value is not documented."""
_PURPOSE = b"key of access tokens"
_HEADER = {"typ": "JWT", "alg": "HS256"}


def signed_by(
    account: str, key: str, method: str, raw_path: str, query: str, headers: Mapping[str, str], now: int
) -> str:
    """How a request to Batch was signed: SHARED_KEY or TOKEN. Raises Fault for an invalid signature."""
    if headers.get("authorization", "").startswith("Bearer "):
        check(account, key, method, headers, BATCH, now)
        return TOKEN
    wire.authenticate(account, key, method, raw_path, query, headers, now)
    return SHARED_KEY


def issue(key: str, account: str, resource: str, now: int, life: int = LIFE_SECONDS, allows: str = WRITE) -> str:
    """A token for a resource such as `https://batch.core.windows.net/`. now: ticks. life: seconds."""
    begins = seconds(now)
    claims = {"aud": resource, "iss": f"https://sts.windows.net/{TENANT}/", "iat": begins, "nbf": begins,
              "exp": begins + life, "tid": TENANT, "oid": account, "sub": account, "allows": allows}  # fmt: skip
    body = f"{_encoded(_HEADER)}.{_encoded(claims)}"
    return f"{body}.{_signature(key, body)}"


def check(
    account: str, key: str, method: str, headers: Mapping[str, str], audiences: tuple[str, ...], now: int
) -> None:
    """Raise NeedsToken unless the request has a valid token, and Fault 403 unless the token allows the request."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    body, _, signature = token.strip().rpartition(".")
    if scheme != "Bearer" or not body:
        raise NeedsToken("The request carries neither a shared-key signature nor an access token.")
    if not hmac.compare_digest(_signature(key, body).encode(), signature.encode()):
        raise NeedsToken("The access token was not issued by this emulator.")
    part = body.partition(".")[2]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    begins = max(claims["nbf"], claims["iat"])
    if claims["exp"] + LEEWAY_SECONDS <= seconds(now):
        raise NeedsToken(f"The access token expired at {_timestamp(claims['exp'])}.")
    if begins - LEEWAY_SECONDS > seconds(now):
        raise NeedsToken(f"The access token is not valid before {_timestamp(begins)}.")
    if claims["aud"].rstrip("/") not in audiences:
        raise NeedsToken(f"The access token is for {claims['aud']}, not for {audiences[0]}/.")
    if claims["oid"] != account:
        raise Fault("AuthorizationFailure", Reason=f"The token is for account {claims['oid']}.")
    if claims["allows"] != WRITE and method not in ("GET", "HEAD"):
        raise Fault("AuthorizationFailure", Reason="The token allows reading only.")


def _timestamp(unix: int) -> str:
    return wire.timestamp(wire.from_unix_ns(unix * 10**9))


def seconds(ticks: int) -> int:
    """Ticks as seconds since 1970, the unit of tokens."""
    return (ticks - wire.UNIX_EPOCH) // wire.SECOND


def digest(text: str) -> str:
    """Sixteen hexadecimal digits that stand for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16].upper()


def guid(text: str) -> str:
    """A GUID that stands for a text."""
    digits = hashlib.sha256(text.encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def derived(key: str, purpose: bytes) -> bytes:
    """A key for one purpose. It does not reveal the account's key."""
    return hmac.new(base64.b64decode(key), purpose, hashlib.sha256).digest()


def _signature(key: str, body: str) -> str:
    return _text(hmac.new(derived(key, _PURPOSE), body.encode(), hashlib.sha256).digest())


def _encoded(part: Mapping[str, object]) -> str:
    return _text(json.dumps(part, separators=(",", ":")).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
