"""Sign-in as with Microsoft Entra ID: discovery documents, tokens for an application, and managed identities of nodes;
pure. The account has one application, with a secret and federated credentials.

Sources: learn v2-oauth2-client-creds-grant-flow and reference-aadsts-error-codes; the sources of msal 1.39 and
azure-identity 1.27.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from batchtrain.emulator import tokens, wire
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Reply

CLIENT = "00000000-0000-0000-0000-000000000002"
"""The id of the application."""
RESOURCES = (*tokens.BATCH, *tokens.MANAGEMENT, "https://storage.azure.com", "https://vault.azure.net")
"""What tokens can be for."""
TENANTS = (tokens.TENANT, "common", "organizations")
FEDERATED = "api://AzureADTokenExchange"
"""The audience of a federated assertion."""
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
NODES = "/_emulator/imds/"
"""The prefix of the managed identity endpoint of a pool's nodes: `POOL/SECRET/metadata/identity/oauth2/token`."""
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


def answer(verb: str, raw_path: str, body: bytes, account: str, key: str, base: str, now: int) -> Reply:
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


def variables(endpoint: str, key: str, token_file: str) -> dict[str, str]:
    """The variables with which azure-identity signs in as the application."""
    return {
        "AZURE_TENANT_ID": tokens.TENANT,
        "AZURE_CLIENT_ID": CLIENT,
        "AZURE_CLIENT_SECRET": secret(key),
        "AZURE_FEDERATED_TOKEN_FILE": token_file,
        "AZURE_AUTHORITY_HOST": endpoint,
    }


def secret(key: str) -> str:
    """The secret of the application."""
    return tokens.derived(key, b"secret of the application").hex()


def assertion(key: str, account: str, now: int) -> str:
    """The content of the file of a federated token."""
    return tokens.issue(key, account, FEDERATED, now, 86_400)


def _token(form: Mapping[str, str], account: str, key: str, now: int) -> Reply:
    if form.get("grant_type") != "client_credentials":
        return _refused(NOT_SUPPORTED, "", now)
    if form.get("client_id", "").lower() != CLIENT:
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
        right = hmac.compare_digest(form["client_secret"].encode(), secret(key).encode())
        return None if right else WRONG_SECRET
    if form.get("client_assertion_type") != ASSERTION or "client_assertion" not in form:
        return NO_CREDENTIAL
    try:
        tokens.check(account, key, "POST", {"authorization": f"Bearer {form['client_assertion']}"}, (FEDERATED,), now)
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


def node_authority(endpoint: str, key: str, pool_id: str) -> str:
    """AZURE_POD_IDENTITY_AUTHORITY_HOST of the tasks of a pool that has identities."""
    return f"{endpoint}{NODES}{pool_id.lower()}/{_node_secret(key, pool_id)}"


def _node_secret(key: str, pool_id: str) -> str:
    return tokens.derived(key, f"managed identity of pool {pool_id.lower()}".encode()).hex()


def of_node(
    raw_path: str, headers: Mapping[str, str], query: Mapping[str, str], account: str, key: str, now: int
) -> Reply:
    """The answer of the instance metadata service of a node to a request for a token."""
    pool_id, _, rest = raw_path.removeprefix(NODES).partition("/")
    node_secret, _, path = rest.partition("/")
    if not hmac.compare_digest(node_secret.encode(), _node_secret(key, pool_id).encode()) or f"/{path}" != IMDS_PATH:
        raise Fault("ResourceNotFound")
    if headers.get("metadata", "").lower() != "true":
        return Reply(400, {"error": "invalid_request", "error_description": "Required metadata header not specified"})
    resource = query.get("resource", "")
    if not resource or resource.rstrip("/") not in RESOURCES:
        text = f"AADSTS500011: The resource principal named {resource} was not found."
        return Reply(400, {"error": "invalid_resource", "error_description": text})
    document = {
        "access_token": tokens.issue(key, account, resource, now),
        "client_id": query.get("client_id", CLIENT),
        "expires_in": str(tokens.LIFE_SECONDS),
        "expires_on": str(tokens.seconds(now) + tokens.LIFE_SECONDS),
        "ext_expires_in": str(tokens.LIFE_SECONDS),
        "not_before": str(tokens.seconds(now)),
        "resource": resource,
        "token_type": "Bearer",
    }
    return Reply(200, document)
