"""What several kinds of document are checked for; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from batchtrain.emulator.faults import Fault, invalid_property, not_implemented

Document = dict[str, Any]

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_id(document: Document) -> str:
    """The id of a new pool, job or task."""
    if not ID.fullmatch(document["id"]):
        raise invalid_property("id", document["id"], "An id has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -.")
    return str(document["id"])


def refuse_unimplemented(document: Document, table: Mapping[str, str]) -> None:
    """Raise Fault 501 for a property we would otherwise pass over in silence."""
    for name, what in table.items():
        if document.get(name):
            raise not_implemented(f"{what} ({name})")


def scrub_registry(document: Document) -> None:
    """Passwords are never echoed."""
    document.get("containerSettings", {}).get("registry", {}).pop("password", None)


def check_resource_files(files: list[Document], place: str) -> None:
    """Exactly one source each; only httpUrl is one the emulator can fetch from."""
    sources = ("httpUrl", "storageContainerUrl", "autoStorageContainerName")
    for index, file in enumerate(files):
        given = [name for name in sources if file.get(name)]
        if len(given) != 1:
            raise invalid_property(f"{place}[{index}]", given, f"Exactly one of {', '.join(sources)} is needed.")
        if given != ["httpUrl"]:
            raise not_implemented(f"resource files from {given[0]} ({place})")
        if not file.get("filePath"):
            raise Fault("MissingRequiredProperty", PropertyName=f"{place}[{index}]/filePath")
