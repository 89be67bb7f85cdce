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
PLACE = "mountConfiguration"
KINDS = (
    "azureBlobFileSystemConfiguration",
    "nfsMountConfiguration",
    "cifsMountConfiguration",
    "azureFileShareConfiguration",
)
SECRETS = ("accountKey", "sasKey", "password")


def check(configurations: list[Document]) -> None:
    """One file system each, at a path of its own. Raises Fault 400."""
    if len(configurations) > MOST:
        raise invalid_property(PLACE, len(configurations), f"A pool mounts at most {MOST} file systems.")
    seen: set[str] = set()
    for index, configuration in enumerate(configurations):
        place = f"{PLACE}[{index}]"
        given = [kind for kind in KINDS if kind in configuration]
        if len(given) != 1:
            raise invalid_property(place, given, f"Exactly one of {', '.join(KINDS)} is needed.")
        settings = configuration[given[0]]
        path = settings["relativeMountPath"]
        if not path or any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
            raise invalid_property(
                f"{place}/relativeMountPath", path, "The path must be relative and lead nowhere else."
            )
        if any(f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/") for other in seen):
            raise invalid_property(f"{place}/relativeMountPath", path, "Another file system is mounted there.")
        seen.add(path)
        if given[0] == KINDS[0]:
            _check_blob(settings, place)


def _check_blob(settings: Document, place: str) -> None:
    keys = [name for name in ("accountKey", "sasKey", "identityReference") if settings.get(name)]
    if len(keys) != 1:
        raise invalid_property(place, keys, "Exactly one of accountKey, sasKey and identityReference is needed.")


def scrub(configurations: list[Document]) -> None:
    """Remove the keys, which answers never contain; the emulator does not need them."""
    for configuration in configurations:
        for settings in configuration.values():
            for name in SECRETS:
                settings.pop(name, None)


def of_pool(spec: Document) -> tuple[Mount, ...]:
    """Each mount's path below `fsmounts`, and its directory below the data directory."""
    found = []
    for configuration in spec.get("mountConfiguration", []):
        for kind, settings in configuration.items():
            own = kind == KINDS[0] and settings["accountName"] == STORAGE_ACCOUNT
            container = settings["containerName"] if own else ""
            found.append(Mount(settings["relativeMountPath"], place(kind, settings), container))
    return tuple(found)


def place(kind: str, settings: Document) -> str:
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
    words = (_word(word) for part in parts for word in re.split(r"[/\\:]+", part))
    return "/".join(["mounts", *(word for word in words if word)])


def _word(text: str) -> str:
    """One component of a path; dots alone would lead outside."""
    word = re.sub(r"[^A-Za-z0-9_.\-$]", "_", text)
    return word.replace(".", "_") if set(word) <= {"."} else word
