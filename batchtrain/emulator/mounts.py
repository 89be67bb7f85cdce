"""File systems that a pool mounts: their settings, and the local directory in place of each; pure.

The emulator mounts no remote file system. It uses one directory for each file system, which all nodes that mount it
share, whatever their pool is. The directory of a container of the account's own storage holds the files of that
container.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.interface import STORAGE_ACCOUNT, Mount
from batchtrain.emulator.records import Document

MOST = 10
PROPERTY = "mountConfiguration"
KINDS = (
    "azureBlobFileSystemConfiguration",
    "nfsMountConfiguration",
    "cifsMountConfiguration",
    "azureFileShareConfiguration",
)
SECRETS = ("accountKey", "sasKey", "password")


def check(configurations: list[Document]) -> None:
    """Check that each entry has one file system at its own path. Raises Fault 400."""
    if len(configurations) > MOST:
        raise invalid_property(PROPERTY, len(configurations), f"A pool mounts at most {MOST} file systems.")
    paths: set[str] = set()
    for index, configuration in enumerate(configurations):
        path = f"{PROPERTY}[{index}]"
        kinds = [kind for kind in KINDS if kind in configuration]
        if len(kinds) != 1:
            raise invalid_property(path, kinds, f"Exactly one of {', '.join(KINDS)} is needed.")
        settings = configuration[kinds[0]]
        relative = settings["relativeMountPath"]
        where = f"{path}/relativeMountPath"
        if not relative or any(part in ("", ".", "..") for part in relative.split("/")) or "\0" in relative:
            raise invalid_property(where, relative, "The path must be relative and lead nowhere else.")
        if any(f"{relative}/".startswith(f"{other}/") or f"{other}/".startswith(f"{relative}/") for other in paths):
            raise invalid_property(where, relative, "Another file system is mounted there.")
        paths.add(relative)
        if kinds[0] == KINDS[0]:
            keys = [name for name in ("accountKey", "sasKey", "identityReference") if settings.get(name)]
            if len(keys) != 1:
                raise invalid_property(path, keys, "Exactly one of accountKey, sasKey and identityReference is needed.")


def scrub(configurations: list[Document]) -> None:
    """Remove the keys, which answers never contain; the emulator does not need them."""
    for configuration in configurations:
        for settings in configuration.values():
            for name in SECRETS:
                settings.pop(name, None)


def of_pool(spec: Document) -> tuple[Mount, ...]:
    """Each mount's path below `fsmounts`, and its directory below the data directory."""
    mounts = []
    for configuration in spec.get("mountConfiguration", []):
        for kind, settings in configuration.items():
            is_own_storage = kind == KINDS[0] and settings["accountName"] == STORAGE_ACCOUNT
            container = settings["containerName"] if is_own_storage else ""
            mounts.append(Mount(settings["relativeMountPath"], directory(kind, settings), container))
    return tuple(mounts)


def directory(kind: str, settings: Document) -> str:
    """A path below the data directory: `mounts/KIND/...`, the same for the same source."""
    match kind:
        case "azureBlobFileSystemConfiguration":
            parts = ["blob", settings["accountName"], settings["containerName"]]
        case "azureFileShareConfiguration":
            parts = ["files", settings["accountName"], urlsplit(settings["azureFileUrl"]).path]
        case "nfsMountConfiguration":
            parts = ["nfs", settings["source"]]
        case "cifsMountConfiguration":
            parts = ["cifs", settings["source"]]
        case _:
            raise Fault("InvalidRequestBody", PropertyName=kind)
    words = (re.sub(r"[^A-Za-z0-9_.\-$]", "_", word) for part in parts for word in re.split(r"[/\\:]+", part) if word)
    # Dots alone would lead outside.
    return "/".join(["mounts", *(word.replace(".", "_") if set(word) <= {"."} else word for word in words)])
