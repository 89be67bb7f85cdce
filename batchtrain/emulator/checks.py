"""Checks that several kinds of documents share; pure."""

from __future__ import annotations

from collections.abc import Mapping

from batchtrain.catalog import meaning
from batchtrain.emulator.faults import Fault, check, invalid_property
from batchtrain.emulator.records import Document


def check_content_type(headers: Mapping[str, str]) -> None:
    """Check that the body is JSON and declared as JSON. Raises Fault 400."""
    content_type = headers.get("content-type", "")
    if not content_type:
        raise Fault("MissingRequiredHeader", HeaderName="Content-Type")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Fault("InvalidHeaderValue", HeaderName="Content-Type", HeaderValue=content_type)


def check_id(document: Document) -> str:
    """The id of a new pool, job, job schedule or task. Raises Fault 400."""
    check(meaning.identifier(document))
    return str(document["id"])


def passwords(registries: list[Document]) -> dict[str, str]:
    """Registry passwords by server, taken before they are replaced. An auto pool's are not stored."""
    with_password = (registry for registry in registries if registry.get("password", "*") != "*")
    return {registry.get("registryServer", ""): registry["password"] for registry in with_password}


def check_user(document: Document, path: str, names: list[str]) -> None:
    """Check that an account of the pool runs a command, if not an automatic user. Raises Fault 400."""
    name = document.get("userIdentity", {}).get("username")
    if name is not None and name not in names:
        raise invalid_property(f"{path}/username", name, "The pool has no user account of this name.")
