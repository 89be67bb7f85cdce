"""What every type of the language is made of: blocks, one sentence a property, shared shapes of text and numbers."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

MOST_NODES = 100_000  # far above every quota
ID = r"^[A-Za-z0-9_-]{1,64}$(?!\n)"  # `$` alone would let a newline stand at the end
LINK = r"^[A-Za-z0-9]+$(?!\n)"
SPAN = r"^([0-9]{1,6}\.)?[0-9]{1,3}:[0-9]{1,2}:[0-9]{1,2}$(?!\n)"


def says(description: str, wire: str = "", *, example: Any = None, **bounds: int) -> Meta:
    """One property's sentence, where it goes, and its bounds.

    wire: the field of the request it becomes, from the request's name down (`pool.vmSize`, `task.requiredSlots`),
    or after `batchtrain:` what we do with it ourselves; empty for a block whose properties say it.
    bounds: `ge`, `le` of numbers, `min_length`, `max_length` of lists and texts.
    """
    known: dict[str, Any] = {"description": description, "extra": {"wire": wire}, **bounds}
    if example is not None:
        known["examples"] = [example]
    return Meta(**known)


Text = Annotated[str, Meta(min_length=1)]
Id = Annotated[str, Meta(pattern=ID)]
Span = Annotated[str, Meta(pattern=SPAN)]
Retries = Annotated[int, Meta(ge=-1)]
Percentage = Annotated[float, Meta(ge=0, le=100)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Path = tuple[str | int, ...]


def whole(value: object) -> int | None:
    """The number that a number or its text stands for; None for anything else (and for what no count can be)."""
    return int(str(value)) if re.fullmatch(r"[0-9]{1,9}", str(value)) else None


def seconds_of(span: str) -> int:
    """`[days.]HH:MM:SS` in seconds."""
    days, _, clock = span.rpartition(".")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the language: immutable, and no unknown keys."""


SECRETS = frozenset({"account_key", "auth_key", "instrumentation_key", "passphrase", "password", "db_password"})
"""Properties whose value is never shown."""


class Secret(Block, frozen=True):
    """A mapping that may hold a secret: it never shows one."""

    def __repr__(self) -> str:
        shown = [
            f"{name}={'***' if name in SECRETS and getattr(self, name) else repr(getattr(self, name))}"
            for name in self.__struct_fields__
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


class ResourceFile(Block, frozen=True, kw_only=True):
    """A file, or the blobs of a container, that Batch itself brings to the node; exactly one source."""

    file_path: Annotated[
        str | None, says("Path on the node, relative to where the files go; a directory for containers.", "*.filePath")
    ] = None
    blob_source: Annotated[str | None, says("HTTP(S) URL the file comes from.", "*.httpUrl")] = None
    storage_container_url: Annotated[
        str | None, says("URL of a blob container to fetch, with its SAS or an `identity`.", "*.storageContainerUrl")
    ] = None
    auto_storage_container_name: Annotated[
        str | None, says("Container in the storage account of the Batch account.", "*.autoStorageContainerName")
    ] = None
    blob_prefix: Annotated[str | None, says("Only the container's blobs that begin so.", "*.blobPrefix")] = None
    file_mode: Annotated[
        str | None, says("Octal mode of the file; the service's default is 0770.", "*.fileMode", example="0755")
    ] = None
    identity: Annotated[
        str | None, says("Resource id of the managed identity that may read it.", "*.identityReference.resourceId")
    ] = None


class ApplicationPackage(Block, frozen=True, kw_only=True):
    """An application of the Batch account, put on the node by Batch."""

    id: Annotated[Text, says("Id of the application.", "*.applicationId")]
    version: Annotated[str | None, says("Its version; the account's default when absent.", "*.version")] = None


class AzureBatchInput(Block, frozen=True, kw_only=True):
    """Files of another task, from the node it ran on."""

    job_id: Annotated[Text, says("Job of the task.", "batchtrain: warning `task-file-input`")]
    task_id: Annotated[Text, says("The task.", "batchtrain: warning `task-file-input`")]
    include: Annotated[tuple[str, ...], says("Patterns to take.", "batchtrain: warning `task-file-input`")] = ()
    exclude: Annotated[tuple[str, ...], says("Patterns to leave out.", "batchtrain: warning `task-file-input`")] = ()
    destination: Annotated[str | None, says("Where to put them.", "batchtrain: warning `task-file-input`")] = None


class StorageInput(Block, frozen=True, kw_only=True):
    """Blobs brought to the node before the command starts."""

    storage_account_settings: Annotated[
        Text, says("Link of the storage account (credentials.yaml).", "*.storageContainerUrl")
    ]
    remote_path: Annotated[
        Text, says("Container, then what the blobs' names begin with: `container/path`.", "*.storageContainerUrl")
    ]
    local_path: Annotated[str | None, says("Directory on the node.", "*.filePath")] = None
    is_file_share: Annotated[
        bool, says("The path is of a file share; mount it as a volume instead.", "batchtrain: warning `file-share`")
    ] = False
    include: Annotated[
        tuple[str, ...], says("Patterns to take; the text before the first wildcard narrows.", "*.blobPrefix")
    ] = ()
    exclude: Annotated[tuple[str, ...], says("Patterns to leave out.", "batchtrain: warning `filter-approximate`")] = ()
    blobxfer_extra_options: Annotated[
        str | None, says("Options of a tool no longer used.", "batchtrain: warning `gone`")
    ] = None


class InputData(Block, frozen=True, kw_only=True):
    """Data brought to a node."""

    azure_batch: Annotated[tuple[AzureBatchInput, ...], says("Files of other tasks, from their nodes.")] = ()
    azure_storage: Annotated[tuple[StorageInput, ...], says("Blobs of storage accounts.")] = ()
