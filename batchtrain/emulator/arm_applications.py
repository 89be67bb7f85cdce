"""Applications and their packages as Azure Resource Manager shows and changes them; pure, except for their files."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

from batchtrain.emulator import tokens, wire
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.interface import DEFAULT, DISPLAY_NAME, PackageFiles
from batchtrain.emulator.reply import Reply
from batchtrain.emulator.world import Application, World

Document = dict[str, Any]

UPLOADS = "/_emulator/packages/"
"""The prefix of the links to which clients upload packages."""
LIFE = 4 * 3600 * wire.SECOND
_TYPE = "Microsoft.Batch/batchAccounts/applications"


class ApplicationProperties(msgspec.Struct, frozen=True):
    """What a client sets of an application. Read-only properties are ignored."""

    displayName: str | None = None
    allowUpdates: bool = True
    defaultVersion: str | None = None


class ApplicationBody(msgspec.Struct, frozen=True):
    """The body of a PUT or PATCH."""

    properties: ApplicationProperties = ApplicationProperties()


def list_applications(world: World, account_id: str) -> Reply:
    """GET applications."""
    return Reply(200, {"value": [_application(world, account_id, item) for item in sorted(world.applications())]})


def get_application(world: World, account_id: str, name: str) -> Reply:
    """GET an application. Raises Fault 404."""
    return Reply(200, _application(world, account_id, application_of(world, name)))


def put(world: World, account_id: str, name: str, body: bytes) -> Reply:
    """PUT or PATCH an application: it is created, or given properties are changed."""
    properties = _read(body, ApplicationBody).properties
    application = next((item for item in world.applications() if item.id.lower() == name.lower()), None)
    if application is None:
        files(world).add(name)
        application = Application(name, ())
    if properties.displayName is not None:
        files(world).set(application.id, DISPLAY_NAME, properties.displayName)
    if properties.defaultVersion is not None:
        if properties.defaultVersion and properties.defaultVersion not in application.versions:
            text = f"The version {properties.defaultVersion} of {application.id} does not exist or is not active."
            raise Fault("InvalidApplicationPackageReferences", text)
        files(world).set(application.id, DEFAULT, properties.defaultVersion)
    return get_application(world, account_id, application.id)


def delete(world: World, name: str) -> Reply:
    """DELETE an application; 409 if it has packages, as in the service."""
    application = next((item for item in world.applications() if item.id.lower() == name.lower()), None)
    if application is None:
        return Reply(204)
    if files(world).versions(application.id):
        raise Fault("OperationInvalidForCurrentState", f"The application {application.id} still has packages.")
    files(world).remove(application.id)
    return Reply(200)


# Packages ------------------------------------------------------------------------------------------------------------


def list_packages(world: World, account_id: str, name: str) -> Reply:
    """GET versions."""
    application = application_of(world, name)
    versions = files(world).versions(application.id)
    return Reply(200, {"value": [_package(account_id, application.id, *pair) for pair in versions.items()]})


def get_package(world: World, account_id: str, name: str, version: str) -> Reply:
    """GET a version. Raises Fault 404."""
    application = application_of(world, name)
    versions = files(world).versions(application.id)
    if version not in versions:
        raise Fault("ResourceNotFound")
    return Reply(200, _package(account_id, application.id, version, versions[version]))


def put_package(world: World, account_id: str, name: str, version: str, key: str, base: str, now: int) -> Reply:
    """PUT a version: its document has the link for its content."""
    application = application_of(world, name)
    files(world).announce(application.id, version)
    package = _package(account_id, application.id, version, is_active=False)
    path = f"{application.id}/{version}"
    link = f"{base}{UPLOADS}{path}?sig={_signature(key, path)}"
    package["properties"] |= {"storageUrl": link, "storageUrlExpiry": wire.timestamp(now + LIFE)}
    return Reply(200, package)


def activate(world: World, account_id: str, name: str, version: str) -> Reply:
    """POST activate: nodes can have the package from now on. Raises Fault 409 without content."""
    application = application_of(world, name)
    if not files(world).activate(application.id, version):
        text = f"The package {application.id} {version} has no content: upload a zip file to its storageUrl."
        raise Fault("OperationInvalidForCurrentState", text)
    return get_package(world, account_id, name, version)


def delete_package(world: World, name: str, version: str) -> Reply:
    """DELETE a version; 204 if it does not exist."""
    application = application_of(world, name)
    if version not in files(world).versions(application.id):
        return Reply(204)
    files(world).remove_version(application.id, version)
    return Reply(200)


def package_of_link(raw_path: str, query: Mapping[str, str], key: str) -> tuple[str, str]:
    """The application and version whose content a link receives. Raises Fault 403 for a wrong signature."""
    path = raw_path.removeprefix(UPLOADS)
    if not hmac.compare_digest(_signature(key, path).encode(), query.get("sig", "").encode()):
        raise Fault("AuthorizationFailure")
    application, _, version = path.partition("/")
    return application, version


def _signature(key: str, path: str) -> str:
    return tokens.derived(key, f"content of package {path}".encode()).hex()


def application_of(world: World, name: str) -> Application:
    """The application of a name, ignoring case. Raises Fault 404."""
    for application in world.applications():
        if application.id.lower() == name.lower():
            return application
    raise Fault("ApplicationNotFound")


def files(world: World) -> PackageFiles:
    """The files of the applications."""
    if world.package_files is None:
        raise Fault("NotImplementedByEmulator")
    return world.package_files


def _application(world: World, account_id: str, application: Application) -> Document:
    properties: Document = {"allowUpdates": True}
    if name := files(world).setting(application.id, DISPLAY_NAME):
        properties["displayName"] = name
    if application.default:
        properties["defaultVersion"] = application.default
    where = f"{account_id}/applications/{application.id}"
    return {"id": where, "name": application.id, "type": _TYPE, "properties": properties}


def _package(account_id: str, application: str, version: str, is_active: bool) -> Document:
    properties = {"state": "Active" if is_active else "Pending", **({"format": "zip"} if is_active else {})}
    where = f"{account_id}/applications/{application}/versions/{version}"
    return {"id": where, "name": version, "type": f"{_TYPE}/versions", "properties": properties}


def _read(body: bytes, kind: type[ApplicationBody]) -> ApplicationBody:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise Fault("InvalidRequestBody", f"The specified request body is not valid: {error}.") from None
