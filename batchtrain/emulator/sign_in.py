"""Sign-in as with Microsoft Entra ID: discovery documents, tokens for an application, and managed identities; pure.

Sources: learn v2-oauth2-client-creds-grant-flow and reference-aadsts-error-codes; the sources of msal 1.39 and
azure-identity 1.27.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from batchtrain.emulator import identity, tokens, wire
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Reply

RESOURCES = (*tokens.BATCH, *tokens.MANAGEMENT, "https://storage.azure.com", "https://vault.azure.net")
"""What tokens can be for."""
TENANTS = (tokens.TENANT, "common", "organizations")
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
IMDS_PATH = "/metadata/identity/oauth2/token"


class Refusal(NamedTuple):
    """An error of the sign-in service."""

    error: str
    number: int
    text: str
    status: int = 400


NOT_SUPPORTED = Refusal("unsupported_grant_type", 70003, "The app requested an unsupported grant type.")
NO_APPLICATION = Refusal("unauthorized_client", 700016, "Application with identifier '{}' was not found in the tenant.")
WRONG_SECRET = Refusal("invalid_client", 7000215, "Invalid client secret provided.", 401)
NO_CREDENTIAL = Refusal("invalid_client", 7000216, "client_assertion or client_secret is required.", 401)
NO_FEDERATION = Refusal("invalid_client", 700213, "No matching federated identity record found for the assertion.", 401)
WRONG_SCOPE = Refusal("invalid_scope", 70011, "The provided value for scope {} is not valid; it ends in /.default.")
NO_RESOURCE = Refusal("invalid_resource", 500011, "The resource principal named {} was not found in the tenant.")
NO_TENANT = Refusal("invalid_request", 90002, "Tenant '{}' not found.")


def is_path(raw_path: str) -> bool:
    """Whether a path belongs to the sign-in service: it begins with a tenant."""
    tenant, _, rest = raw_path.lstrip("/").partition("/")
    return rest.startswith(("oauth2/", "v2.0/", "discovery/")) and bool(tenant)


def answer(verb: str, raw_path: str, body: bytes, base: str, account: str, key: str, now: int) -> Reply:
    """Carry out a request to the sign-in service. Raises Fault for a path that it does not have."""
    tenant, _, rest = raw_path.lstrip("/").partition("/")
    if tenant.lower() not in TENANTS:
        return _refused(NO_TENANT, tenant, now)
    directory = f"{base}/{tokens.TENANT}"
    if (verb, rest) == ("GET", "v2.0/.well-known/openid-configuration"):
        configuration = {
            "token_endpoint": f"{directory}/oauth2/v2.0/token",
            "authorization_endpoint": f"{directory}/oauth2/v2.0/authorize",
            "issuer": f"{directory}/v2.0",
            "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
            "response_types_supported": ["token"],
        }
        return Reply(200, configuration)
    if (verb, rest) == ("GET", "discovery/instance"):
        url = f"{directory}/v2.0/.well-known/openid-configuration"
        return Reply(200, {"tenant_discovery_endpoint": url, "api-version": "1.1", "metadata": []})
    if (verb, rest) == ("POST", "oauth2/v2.0/token"):
        return _token(dict(parse_qsl(body.decode(errors="replace"))), account, key, now)
    raise Fault("ResourceNotFound")


def _token(form: Mapping[str, str], account: str, key: str, now: int) -> Reply:
    if form.get("grant_type") != "client_credentials":
        return _refused(NOT_SUPPORTED, "", now)
    if form.get("client_id", "").lower() != identity.CLIENT:
        return _refused(NO_APPLICATION, form.get("client_id", ""), now)
    if refusal := _credential_fault(form, account, key, now):
        return _refused(refusal, "", now)
    scope = form.get("scope", "")
    if not scope.endswith("/.default"):
        return _refused(WRONG_SCOPE, scope, now)
    resource = scope.removesuffix("/.default")
    if resource.rstrip("/") not in RESOURCES:
        return _refused(NO_RESOURCE, resource, now)
    document = {
        "token_type": "Bearer",
        "expires_in": tokens.LIFE_SECONDS,
        "ext_expires_in": tokens.LIFE_SECONDS,
        "access_token": tokens.issue(key, account, resource, now),
    }
    return Reply(200, document, {"Cache-Control": "no-store"})


def _credential_fault(form: Mapping[str, str], account: str, key: str, now: int) -> Refusal | None:
    """Why the secret or the assertion of the application is refused; None if it is right."""
    if "client_secret" in form:
        right = hmac.compare_digest(form["client_secret"].encode(), identity.secret(key).encode())
        return None if right else WRONG_SECRET
    if form.get("client_assertion_type") != ASSERTION or "client_assertion" not in form:
        return NO_CREDENTIAL
    try:
        bearer = {"authorization": f"Bearer {form['client_assertion']}"}
        tokens.check(account, key, "POST", bearer, (identity.FEDERATED,), now)
    except Fault:
        return NO_FEDERATION
    return None


def _refused(refusal: Refusal, value: str, now: int) -> Reply:
    ids = {"trace_id": tokens.guid(f"trace {now}"), "correlation_id": tokens.guid(f"correlation {now}")}
    moment = wire.timestamp(now).replace("T", " ").partition(".")[0].rstrip("Z") + "Z"
    text = f"AADSTS{refusal.number}: {refusal.text.format(value)}"
    text += f" Trace ID: {ids['trace_id']} Correlation ID: {ids['correlation_id']} Timestamp: {moment}"
    document = {"error": refusal.error, "error_description": text, "error_codes": [refusal.number], "timestamp": moment}
    return Reply(refusal.status, {**document, **ids})


def of_program(headers: Mapping[str, str], query: Mapping[str, str], account: str, key: str, now: int) -> Reply:
    """A token for the requested resource, as Azure App Service gives it to its programs. Raises Fault if the header is
    missing or wrong."""
    if not hmac.compare_digest(headers.get("x-identity-header", "").encode(), identity.header(key).encode()):
        raise Fault("AuthenticationFailed", AuthenticationErrorDetail="X-IDENTITY-HEADER is not that of the identity.")
    resource = query.get("resource", "")
    if not resource:
        raise Fault("MissingRequiredQueryParameter", QueryParameterName="resource")
    document = {
        "access_token": tokens.issue(key, account, resource, now),
        "client_id": account,
        "expires_on": str(tokens.seconds(now) + tokens.LIFE_SECONDS),
        "resource": resource,
        "token_type": "Bearer",
    }
    return Reply(200, document, {"Cache-Control": "no-store"})


def of_node(
    raw_path: str, headers: Mapping[str, str], query: Mapping[str, str], account: str, key: str, now: int
) -> Reply:
    """The answer of the instance metadata service of a node to a request for a token."""
    pool_id, _, rest = raw_path.removeprefix(identity.NODES).partition("/")
    secret, _, path = rest.partition("/")
    if f"/{path}" != IMDS_PATH or not hmac.compare_digest(secret.encode(), identity.node_secret(key, pool_id).encode()):
        raise Fault("ResourceNotFound")
    if headers.get("metadata", "").lower() != "true":
        return Reply(400, {"error": "invalid_request", "error_description": "Required metadata header not specified"})
    resource = query.get("resource", "")
    if not resource or resource.rstrip("/") not in RESOURCES:
        text = f"AADSTS500011: The resource principal named {resource} was not found."
        return Reply(400, {"error": "invalid_resource", "error_description": text})
    document = {
        "access_token": tokens.issue(key, account, resource, now),
        "client_id": query.get("client_id", identity.CLIENT),
        "expires_in": str(tokens.LIFE_SECONDS),
        "expires_on": str(tokens.seconds(now) + tokens.LIFE_SECONDS),
        "ext_expires_in": str(tokens.LIFE_SECONDS),
        "not_before": str(tokens.seconds(now)),
        "resource": resource,
        "token_type": "Bearer",
    }
    return Reply(200, document)
