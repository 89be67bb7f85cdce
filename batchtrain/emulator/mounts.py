"""File systems that a pool mounts: their settings, and the local directory in place of each; pure.

The emulator mounts no remote file system. It uses one directory for each file system, which all nodes that mount it
share, whatever their pool is. The directory of a container of the account's own storage holds the files of that
container.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from batchtrain.catalog.meaning import FILE_SYSTEMS
from batchtrain.emulator.interface import STORAGE_ACCOUNT, Mount
from batchtrain.emulator.records import Document

SOURCES = {
    "azureBlobFileSystemConfiguration": ("blob", "accountName", "containerName"),
    "azureFileShareConfiguration": ("files", "accountName", "azureFileUrl"),
    "nfsMountConfiguration": ("nfs", "source"),
    "cifsMountConfiguration": ("cifs", "source"),
}
"""Kind of file system -> the folder in its place, and the properties that name it."""


def of_pool(spec: Document) -> tuple[Mount, ...]:
    """Each mount's path below `fsmounts`, and its directory below the data directory."""
    mounts = []
    for configuration in spec.get("mountConfiguration", []):
        for kind, settings in configuration.items():
            is_own_storage = kind == FILE_SYSTEMS[0] and settings["accountName"] == STORAGE_ACCOUNT
            container = settings["containerName"] if is_own_storage else ""
            mounts.append(Mount(settings["relativeMountPath"], directory(kind, settings), container))
    return tuple(mounts)


def directory(kind: str, settings: Document) -> str:
    """A path below the data directory: `mounts/KIND/...`, the same for the same source."""
    folder, *names = SOURCES[kind]
    parts = (urlsplit(settings[name]).path if name.endswith("Url") else settings[name] for name in names)
    words = (re.sub(r"[^A-Za-z0-9_.\-$]", "_", word) for part in parts for word in re.split(r"[/\\:]+", part) if word)
    # Dots alone would lead outside.
    return "/".join(["mounts", folder, *(word.replace(".", "_") if set(word) <= {"."} else word for word in words)])
