"""What Batch itself brings to a node: environment settings, files by URL, blobs of storage containers, packages.

Pools and tasks share it. A plan holds no secret: a link to storage is a placeholder until the request is sent.
"""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.config import task_paths
from batchtrain.config.link_life import days_of
from batchtrain.config.types import ApplicationPackage, Recipe, ResourceFile, StorageCredentials, StorageInput
from batchtrain.launchers.preparation import Moved, Selected
from batchtrain.plan import wire


class Fetched(NamedTuple):
    """Blobs that Batch downloads, and what the node does with them then."""

    files: tuple[wire.ResourceFile, ...]
    moved: Moved | None = None
    """None where Batch itself brings them where they belong."""


def environment(
    values: dict[str, str], more: tuple[wire.Environment, ...] = (), *, vault_id: str | None = None
) -> wire.Settings:
    """Environment settings in the order they were written, then ours; with those of a Key Vault secret."""
    settings = tuple(wire.Environment(name=name, value=value) for name, value in values.items()) + more
    return wire.VaultSettings(vault_id, settings) if vault_id else settings


def resource_files(files: tuple[ResourceFile, ...]) -> tuple[wire.ResourceFile, ...]:
    """Files by URL, and whole containers."""
    return tuple(
        wire.ResourceFile(
            http_url=wire.later("sas", file.blob) if isinstance(file, ListedFile) else file.blob_source,
            storage_container_url=file.storage_container_url,
            auto_storage_container_name=file.auto_storage_container_name,
            blob_prefix=file.blob_prefix or None,
            file_path=file.file_path,
            file_mode=file.file_mode,
            identity_reference=identity(file.identity),
        )
        for file in files
    )


class ListedFile(ResourceFile, frozen=True, kw_only=True):
    """A blob that a file factory listed; its link is made when the request is sent."""

    blob: str
    """`link/container/name`, and the days that the link is good."""


def identity(resource_id: str | None) -> wire.IdentityReference | None:
    """A reference to a managed identity of the pool."""
    return wire.IdentityReference(resource_id=resource_id) if resource_id else None


def packages(references: tuple[ApplicationPackage, ...]) -> tuple[wire.ApplicationPackage, ...]:
    """The references of a request to application packages of the account."""
    return tuple(wire.ApplicationPackage(application_id=package.id, version=package.version) for package in references)


def container_url(account: StorageCredentials, container: str) -> str:
    """A container's own URL, which permits nothing."""
    endpoint = account.endpoint
    return f"{endpoint.rstrip('/') if '://' in endpoint else f'https://{account.account}.blob.{endpoint}'}/{container}"


def container_link(recipe: Recipe, link: str, container: str, *, write: bool = False) -> wire.Template:
    """The placeholder of a container's URL: read and list, or with `write` for results too."""
    return wire.later("sas", f"{link}/{container}?{'write&' if write else ''}days={days_of(recipe, link)}")


def results_link(recipe: Recipe, link: str, container: str) -> wire.Template:
    """The placeholder of a container's URL that only writes."""
    return wire.later("sas", f"{link}/{container}?put&days={days_of(recipe, link)}")


def fetched(recipe: Recipe, data: tuple[StorageInput, ...], own_directory: str) -> tuple[Fetched, ...]:
    """The blobs that a node fetches. Batch filters only by prefix: the text of a pattern before its first wildcard.

    Blobs keep their names below the directory. Blobs for an absolute path, or one with a variable, go below
    `own_directory` first, as do blobs that the node must filter or rename. File shares are left out; a check reports
    them.
    """
    return tuple(
        _input(recipe, item, f"{own_directory}/{number}") for number, item in enumerate(data) if not item.is_file_share
    )


def moves(downloads: tuple[Fetched, ...]) -> tuple[Moved, ...]:
    """The downloads that the node itself moves to where Batch cannot write."""
    return tuple(blobs.moved for blobs in downloads if blobs.moved is not None)


def _input(recipe: Recipe, item: StorageInput, staging: str) -> Fetched:
    include, exclude = (tuple(name.removeprefix("./") for name in names) for names in (item.include, item.exclude))
    container, _, path = item.remote_path.strip("/").partition("/")
    target, patterns = task_paths.beyond(item.local_path), None
    if task_paths.filtered(include, exclude, item.blobxfer_extra_options):  # what prefixes alone do not say
        patterns = Selected(path, include, exclude, task_paths.strips(item.blobxfer_extra_options) or 0)
    directory = task_paths.below(item.local_path).strip("/").removeprefix("./")
    move = Moved(staging, target or directory or ".", patterns) if target or patterns else None
    below = staging if move else directory
    url = container_link(recipe, item.storage_account_settings, container)
    files = tuple(
        wire.ResourceFile(storage_container_url=url, blob_prefix=prefix or None, file_path=below or None)
        for prefix in _prefixes(path, include)
    )
    return Fetched(files, move)


def _prefixes(path: str, include: tuple[str, ...]) -> tuple[str, ...]:
    """What the blobs' names begin with, one for each pattern; no prefix that another one covers."""
    base = f"{path}/" if path and include else path
    prefixes = sorted({base + task_paths.WILD.split(pattern, maxsplit=1)[0] for pattern in include or ("",)})
    return tuple(
        prefix for prefix in prefixes if not any(prefix != other and prefix.startswith(other) for other in prefixes)
    )
