"""The only talk to Blob storage: put a task's archive there, and give out links that read it."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta, timezone

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.storage.blob import BlobSasPermissions, BlobServiceClient, generate_blob_sas

from batchtrain.config.types import StorageCredentials
from batchtrain.errors import NotAllowed, Unreachable, UsageError

LINK_DAYS = 7  # a task may wait long for its nodes, and be retried


def connect(link: str, credentials: StorageCredentials) -> BlobServiceClient:
    """A client of the account behind a storage link. Raises UsageError without a key."""
    if not credentials.account_key:
        raise UsageError(f"the storage account `{link}` has no account_key in credentials.yaml")
    endpoint = credentials.endpoint
    url = endpoint if "://" in endpoint else f"https://{credentials.account}.blob.{endpoint}"
    return BlobServiceClient(
        url, credential={"account_name": credentials.account, "account_key": credentials.account_key}, retry_total=3
    )


def upload(client: BlobServiceClient, container: str, name: str, data: bytes) -> None:
    """Put bytes under a name; what stands there under the same name stays (names are by content)."""
    try:
        place = client.get_container_client(container)
        with contextlib.suppress(ResourceExistsError):
            place.create_container()
        blob = place.get_blob_client(name)
        if not blob.exists():
            blob.upload_blob(data, overwrite=True)
    except AzureError as error:
        raise _fault(f"upload {container}/{name}", error) from error


def link(client: BlobServiceClient, credentials: StorageCredentials, container: str, name: str) -> str:
    """A URL that reads one blob for a week."""
    now = datetime.now(timezone.utc)
    token = generate_blob_sas(
        account_name=credentials.account,
        container_name=container,
        blob_name=name,
        account_key=credentials.account_key,
        permission=BlobSasPermissions(read=True),
        start=now - timedelta(minutes=15),  # clocks differ
        expiry=now + timedelta(days=LINK_DAYS),
    )
    return f"{client.url.rstrip('/')}/{container}/{name}?{token}"


def _fault(operation: str, error: AzureError) -> NotAllowed | Unreachable:
    status = getattr(error, "status_code", None)
    first = str(error).strip().splitlines()[0]
    if status in (401, 403):
        return NotAllowed(f"{operation}: the storage account refused: {first}", operation=operation)
    return Unreachable(f"{operation}: {first}", operation=operation)
