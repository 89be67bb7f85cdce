"""Checks that several kinds of documents share; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from batchtrain.emulator.faults import Fault, invalid_property, not_implemented
from batchtrain.emulator.records import Document

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
SOURCES = ("httpUrl", "storageContainerUrl", "autoStorageContainerName")
_MODE = re.compile(r"(0o?)?[0-7]{1,4}")


def check_content_type(headers: Mapping[str, str]) -> None:
    """Check that the body is JSON and declared as JSON. Raises Fault 400."""
    content_type = headers.get("content-type", "")
    if not content_type:
        raise Fault("MissingRequiredHeader", HeaderName="Content-Type")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Fault("InvalidHeaderValue", HeaderName="Content-Type", HeaderValue=content_type)


def check_id(document: Document, path: str = "id") -> str:
    """The id of a new pool, job, job schedule or task."""
    if not ID.fullmatch(document["id"]):
        raise invalid_property(path, document["id"], "An id has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -.")
    return str(document["id"])


def check_retries(count: int, path: str = "constraints/maxTaskRetryCount") -> None:
    """Check a number of retries. Raises Fault 400."""
    if count < -1:
        raise invalid_property(path, count, "The least value is -1, for no limit.")


def check_command(document: Document, path: str = "") -> None:
    """Check the command of a task and the files that it reads, and remove its passwords, which answers never contain.
    path: ends with `/`. Raises Fault 400."""
    if not document["commandLine"].strip() and "containerSettings" not in document:
        raise invalid_property(f"{path}commandLine", "", "The command line cannot be empty.")
    check_resource_files(document.get("resourceFiles", []), f"{path}resourceFiles")
    document.get("containerSettings", {}).get("registry", {}).pop("password", None)


def passwords(registries: list[Document]) -> dict[str, str]:
    """Registry passwords by server, taken before they are replaced. An auto pool's are not stored."""
    with_password = (registry for registry in registries if registry.get("password", "*") != "*")
    return {registry.get("registryServer", ""): registry["password"] for registry in with_password}


def check_resource_files(files: list[Document], path: str) -> None:
    """Check that each resource file has exactly one source and the properties that belong to it. Raises Fault 400."""
    for number, file in enumerate(files):
        where = f"{path}[{number}]"
        sources = [name for name in SOURCES if file.get(name)]
        if len(sources) != 1:
            raise invalid_property(where, sources, f"Exactly one of {', '.join(SOURCES)} is needed.")
        refuse_identity(file, where)
        if sources == ["httpUrl"] and not file.get("filePath"):
            raise Fault("MissingRequiredProperty", PropertyName=f"{where}/filePath")
        if sources == ["httpUrl"] and "blobPrefix" in file:
            raise invalid_property(f"{where}/blobPrefix", file["blobPrefix"], "A prefix goes with a container only.")
        if sources != ["autoStorageContainerName"]:
            check_url(file[sources[0]], f"{where}/{sources[0]}")
        if not _MODE.fullmatch(file.get("fileMode", "0770")):
            raise invalid_property(f"{where}/fileMode", file["fileMode"], "A mode is an octal number such as 0770.")


def check_output_files(files: list[Document], path: str) -> None:
    """Check that each output file has a pattern and a container. Raises Fault 400."""
    for index, file in enumerate(files):
        container = file["destination"].get("container")
        if container is None:
            raise Fault("MissingRequiredProperty", PropertyName=f"{path}[{index}]/destination/container")
        if not file["filePattern"].strip():
            raise invalid_property(f"{path}[{index}]/filePattern", "", "The pattern cannot be empty.")
        refuse_identity(container, f"{path}[{index}]/destination/container")
        check_url(container["containerUrl"], f"{path}[{index}]/destination/container/containerUrl")


def check_url(url: str, path: str) -> None:
    """The URL without its query, which may hold a signature."""
    try:
        where = urlsplit(url)
        valid = where.scheme.lower() in ("http", "https") and bool(where.hostname)
    except ValueError:
        valid = False
    if not valid:
        raise invalid_property(path, url.partition("?")[0], "An http or https URL is needed.")


def refuse_identity(document: Document, path: str) -> None:
    """Refuse managed identities for reading and writing. Raises Fault 501."""
    if "identityReference" in document:
        raise not_implemented(f"managed identities ({path}/identityReference): use a URL with a signature")


MOST_NAME = 20


def check_accounts(accounts: list[Document]) -> None:
    """Check a pool's user accounts. Raises Fault 400."""
    names: set[str] = set()
    for index, account in enumerate(accounts):
        name, path = account["name"], f"userAccounts[{index}]"
        if not 1 <= len(name) <= MOST_NAME or name in names:
            reason = f"A user account's name has 1 to {MOST_NAME} characters and is given once."
            raise invalid_property(f"{path}/name", name, reason)
        names.add(name)
        linux = account.get("linuxUserConfiguration", {})
        if ("uid" in linux) != ("gid" in linux):
            reason = "uid and gid are given together or not at all."
            raise invalid_property(f"{path}/linuxUserConfiguration", linux.get("uid", linux.get("gid")), reason)


def check_identity(document: Document, path: str, names: list[str] | None = None) -> None:
    """Check who runs a command: an automatic user, or one of the pool's accounts if their names are known. Raises Fault
    400."""
    identity = document.get("userIdentity")
    if identity is None:
        return
    if ("username" in identity) == ("autoUser" in identity):
        raise invalid_property(path, identity.get("username"), "Either username or autoUser is given.")
    if names is not None and "username" in identity and identity["username"] not in names:
        raise invalid_property(f"{path}/username", identity["username"], "The pool has no user account of this name.")
