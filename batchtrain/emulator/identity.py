"""The identities that programs sign in as: their variables and secrets, all derived from the account's key; pure.

A program on this machine has a managed identity, whose endpoint is that of Azure App Service. The account has one
application, with a secret and federated credentials. Nodes of a pool with identities have those. `sign_in` answers.
"""

from __future__ import annotations

from batchtrain.emulator import tokens

PATH = "/_emulator/identity"
CLIENT = "00000000-0000-0000-0000-000000000002"
"""The id of the application."""
FEDERATED = "api://AzureADTokenExchange"
"""The audience of a federated assertion."""
NODES = "/_emulator/imds/"
"""The prefix of the managed identity endpoint of a pool's nodes: `POOL/SECRET/metadata/identity/oauth2/token`."""


def variables(endpoint: str, key: str) -> dict[str, str]:
    """The variables with which azure-identity and similar libraries use the managed identity of this machine."""
    return {"IDENTITY_ENDPOINT": f"{endpoint}{PATH}", "IDENTITY_HEADER": header(key)}


def header(key: str) -> str:
    """The secret that requests to the managed identity of this machine contain."""
    return tokens.derived(key, b"header of the managed identity").hex()


def application(endpoint: str, key: str, token_file: str) -> dict[str, str]:
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


def node_authority(endpoint: str, key: str, pool_id: str) -> str:
    """AZURE_POD_IDENTITY_AUTHORITY_HOST of the tasks of a pool that has identities."""
    return f"{endpoint}{NODES}{pool_id.lower()}/{node_secret(key, pool_id)}"


def node_secret(key: str, pool_id: str) -> str:
    """The part of the path that only the nodes of the pool know."""
    return tokens.derived(key, f"managed identity of pool {pool_id.lower()}".encode()).hex()
