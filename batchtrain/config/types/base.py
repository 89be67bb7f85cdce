"""The parts of every type of the language: blocks, the sentence of a property, and shared types of texts and
numbers."""

import re
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from batchtrain.catalog import api_versions, meaning
from batchtrain.frameworks import base
from batchtrain.frameworks.base import Block as Block
from batchtrain.frameworks.base import Text as Text

MOST_NODES = 100_000  # far above every quota
ID = r"^[A-Za-z0-9_-]{1,64}$(?!\n)"  # `$` alone would let a newline stand at the end
TASK_ID = r"^([A-Za-z0-9_-]{1,64}|[A-Za-z0-9_-]{0,64}\{.{1,900})$(?!\n)"
"""An id, or with braces the ids of a factory."""
LINK = r"^[A-Za-z0-9]+$(?!\n)"
SPAN = r"^([0-9]{1,6}\.)?[0-9]{1,3}:[0-9]{1,2}:[0-9]{1,2}$(?!\n)"
DURATION = r"^(?=[0-9])([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$(?!\n)"
"""A time such as `30m` or `1h30m`; `batchtrain.config.times.duration` reads it."""
GPU_BELOW = f"^[0-9]{{1,2}}% for {DURATION.removeprefix('^')}"
"""Such as `5% for 30m`."""
IGNORED = "batchtrain: warning `gone`"
"""The wire field of a property that has no effect."""
TASK_FILES = "batchtrain: error `task-file-input`"


Id = Annotated[str, Meta(pattern=ID)]
TaskId = Annotated[str, Meta(pattern=TASK_ID)]
Span = Annotated[str, Meta(pattern=SPAN)]
Duration = Annotated[str, Meta(pattern=DURATION)]
Retries = Annotated[int, Meta(ge=-1)]
DisplayName = Annotated[str, Meta(min_length=1, max_length=meaning.LONGEST_DISPLAY_NAME)]
Slots = Annotated[int, Meta(ge=1, le=meaning.MOST_SLOTS)]
CheckpointKey = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$(?!\n)")]
Size = Annotated[str, Meta(pattern=r"^[0-9]{1,12}[kmgtKMGT]?$(?!\n)")]
Percentage = Annotated[float, Meta(ge=0, le=100)]
Share = Annotated[int, Meta(ge=meaning.SHARES[0], le=meaning.SHARES[-1])]
Port = Annotated[int, Meta(ge=1, le=65535)]
Path = tuple[str | int, ...]


def says(description: str, wire: str = "", **more: Any) -> Meta:
    """`frameworks.base.says`, also with the version of the API that the field needs, if it is not the current one."""
    version = api_versions.newer(wire)
    return base.says(f"{description} Needs API {version}." if version else description, wire, **more)


copies = partial(says, copied=True)
"""`says` of a property that is the field's value as it is; a block is an object there, even if nothing in it is set."""

_STEP = re.compile(r"""\[?"([^"]*)"\]?|\[?'([^']*)'\]?|\[([0-9]{1,6})\]|([^.\[\]"']+)""")


def read_path(name: str) -> Path:
    """The steps of a path in a text, such as that of `--set`. Quotes keep a name with dots together."""
    parts = _STEP.findall(name)
    return tuple(int(number) if number else double or single or word for double, single, number, word in parts)


def whole_number(value: object) -> int | None:
    """The value of a number or of its text. Returns None for other texts and for numbers above 9 digits."""
    return int(str(value)) if re.fullmatch(r"[0-9]{1,9}", str(value)) else None


def seconds_of(span: str) -> int:
    """`[days.]HH:MM:SS` in seconds."""
    days, _, clock = span.rpartition(".")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def span_of(seconds: float) -> str:
    """A time as it is written in a file: `DAYS.HH:MM:SS`, without fractions of a second."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24}.{hours % 24:02}:{minutes:02}:{rest:02}"


def bytes_of(size: str) -> int:
    """`10g` in bytes."""
    unit = "kmgt".find(size[-1].lower()) + 1
    return int(size[:-1] if unit else size) << (10 * unit)


# Tables of properties: the formatter would spread a row over up to nine lines.
# fmt: off


class ResourceFile(Block, frozen=True, kw_only=True):
    """A file, or the blobs of a container, that Batch downloads to the node. Give exactly one source."""

    file_path: Annotated[Text | None, says(
        "Path on the node, relative to the directory of the files. For a container: a directory.", "*.filePath")] = None
    blob_source: Annotated[Text | None, says("HTTP(S) URL of the file.", "*.httpUrl")] = None
    storage_container_url: Annotated[Text | None, says(
        "URL of a blob container to download, with a SAS or an `identity`.", "*.storageContainerUrl")] = None
    auto_storage_container_name: Annotated[Text | None, says(
        "Container in the storage account of the Batch account.", "*.autoStorageContainerName")] = None
    blob_prefix: Annotated[str | None, says("Prefix of the blobs to download.", "*.blobPrefix")] = None
    file_mode: Annotated[Text | None, says(
        "Octal mode of the file. Default of the service: 0770.", "*.fileMode", example="0755")] = None
    identity: Annotated[Text | None, says(
        "Resource id of the managed identity that may read it.", "*.identityReference.resourceId")] = None


class ApplicationPackage(Block, frozen=True, kw_only=True):
    """An application of the Batch account, which Batch installs on the node."""

    id: Annotated[Text, says("Id of the application.", "*.applicationId")]
    version: Annotated[Text | None, says(
        "Version of the application. Default: that of the account.", "*.version")] = None


class AzureBatchInput(Block, frozen=True, kw_only=True):
    """Files of another task, from the node where it ran."""

    job_id: Annotated[Text, says("Job of the task.", TASK_FILES)]
    task_id: Annotated[Text, says("The task.", TASK_FILES)]
    include: Annotated[tuple[Text, ...], says("Patterns of files to include.", TASK_FILES)] = ()
    exclude: Annotated[tuple[Text, ...], says("Patterns of files to exclude.", TASK_FILES)] = ()
    destination: Annotated[Text | None, says("Directory on the node.", TASK_FILES)] = None


FileShare = Annotated[bool, says(
    "The path is in a file share. Not supported: mount the share as a volume.", "batchtrain: error `file-share`")]


class StorageInput(Block, frozen=True, kw_only=True):
    """Blobs that are downloaded before the command starts."""

    storage_account_settings: Annotated[Text, says(
        "Name of the storage account in credentials.yaml.", "*.storageContainerUrl")]
    remote_path: Annotated[Text, says(
        "Container and prefix of the blobs' names: `container/prefix`.", "*.storageContainerUrl")]
    local_path: Annotated[Text | None, says("Directory on the node.", "*.filePath")] = None
    is_file_share: FileShare = False
    include: Annotated[tuple[Text, ...], says(
        "Patterns of files to include. The text before the first wildcard limits the listing.", "*.blobPrefix")] = ()
    exclude: Annotated[tuple[Text, ...], says("Patterns of files to exclude.", "*.commandLine")] = ()
    blobxfer_extra_options: Annotated[str | None, says(
        "Only `--strip-components N`: remove N leading directories from the names of the blobs.",
        "*.commandLine")] = None


class InputData(Block, frozen=True, kw_only=True):
    """Data that a node downloads."""

    azure_batch: Annotated[tuple[AzureBatchInput, ...], says("Files of other tasks, from their nodes.")] = ()
    azure_storage: Annotated[tuple[StorageInput, ...], says("Blobs of storage accounts.")] = ()
