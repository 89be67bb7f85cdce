"""Applications and their packages as Azure Resource Manager shows and changes them; pure, except for their files."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from batchtrain.emulator import models, tokens, wire
from batchtrain.emulator.applications import find
from batchtrain.emulator.arm_request import Account, Document, Request
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.interface import ALLOW_UPDATES, DEFAULT, DISPLAY_NAME, PackageFiles
from batchtrain.emulator.reply import Reply
from batchtrain.emulator.world import Application, World

UPLOADS = "/_emulator/packages/"
"""The prefix of the links to which clients upload packages."""
LIFE = 4 * 3600 * wire.SECOND
SETTINGS = {"displayName": DISPLAY_NAME, "allowUpdates": ALLOW_UPDATES, "defaultVersion": DEFAULT}
_TYPE = "Microsoft.Batch/batchAccounts/applications"


def list_applications(world: World, account: Account, arm_request: Request, _: str, revision: int) -> Reply:
    """GET applications."""
    return arm_request.page([_application(world, arm_request.path, item) for item in sorted(world.applications())])


def get_application(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    """GET an application. Raises Fault 404."""
    return Reply(200, _application(world, arm_request.path, _application_of(world, name)))


def patch_application(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    """PATCH an application. Raises Fault 404."""
    _application_of(world, name)
    return put_application(world, account, arm_request, name, revision)


def put_application(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    """PUT an application: it is created, or given properties are changed."""
    properties = models.read("ArmApplication", models.decode(arm_request.body)).get("properties", {})
    application = find(world, name)
    if application is None:
        files(world).add(name)
        application = Application(name, ())
    default = properties.get("defaultVersion", "")
    if default and default not in application.versions:
        text = f"The version {default} of {application.id} does not exist or is not active."
        raise Fault("InvalidApplicationPackageReferences", text)
    for name, value in properties.items():
        files(world).set(application.id, SETTINGS[name], str(value))
    return get_application(world, account, arm_request, application.id, revision)


def delete_application(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    """DELETE an application; 409 if it has packages, as in the service."""
    application = find(world, name)
    if application is None:
        return Reply(204)
    if files(world).versions(application.id):
        raise Fault("OperationInvalidForCurrentState", f"The application {application.id} still has packages.")
    files(world).remove(application.id)
    return Reply(200)


def list_packages(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    """GET versions."""
    application = _application_of(world, name)
    versions = files(world).versions(application.id)
    return arm_request.page([_package(arm_request, application.id, *pair) for pair in versions.items()])


def get_package(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    """GET a version. Raises Fault 404."""
    application = _application_of(world, name)
    versions = files(world).versions(application.id)
    if arm_request.version not in versions:
        raise Fault("ResourceNotFound")
    return Reply(200, _package(arm_request, application.id, arm_request.version, versions[arm_request.version]))


def put_package(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    """PUT a version: its document has the link for its content."""
    application = _application_of(world, name)
    is_active = bool(files(world).versions(application.id).get(arm_request.version))
    if is_active and not _is_replaceable(world, application.id):
        text = f"The packages of {application.id} cannot be replaced: its allowUpdates is false."
        raise Fault("OperationInvalidForCurrentState", text)
    files(world).announce(application.id, arm_request.version)
    package = _package(arm_request, application.id, arm_request.version, 0)
    path = f"{application.id}/{arm_request.version}"
    link = f"{arm_request.base}{UPLOADS}{path}?sig={_signature(account.key, path)}"
    package["properties"] |= {"storageUrl": link, "storageUrlExpiry": wire.timestamp(arm_request.now + LIFE)}
    return Reply(200, package)


def activate(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    """POST activate: nodes can have the package from now on. Raises Fault 409 without content."""
    application = _application_of(world, name)
    if not files(world).activate(application.id, arm_request.version, arm_request.now):
        package = f"{application.id} {arm_request.version}"
        text = f"The package {package} has no content: upload a zip file to its storageUrl."
        raise Fault("OperationInvalidForCurrentState", text)
    return get_package(world, account, arm_request, name, revision)


def delete_package(world: World, account: Account, arm_request: Request, name: str, revision: int) -> Reply:
    """DELETE a version; 204 if it does not exist."""
    application = _application_of(world, name)
    if arm_request.version not in files(world).versions(application.id):
        return Reply(204)
    files(world).remove_version(application.id, arm_request.version)
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


def _application_of(world: World, name: str) -> Application:
    if (application := find(world, name)) is None:
        raise Fault("ApplicationNotFound")
    return application


def files(world: World) -> PackageFiles:
    """The files of the applications."""
    if world.package_files is None:
        raise Fault("NotImplementedByEmulator")
    return world.package_files


def _is_replaceable(world: World, application: str) -> bool:
    return files(world).setting(application, ALLOW_UPDATES) != str(False)


def _application(world: World, account_id: str, application: Application) -> Document:
    properties: Document = {"allowUpdates": _is_replaceable(world, application.id)}
    if name := files(world).setting(application.id, DISPLAY_NAME):
        properties["displayName"] = name
    if application.default:
        properties["defaultVersion"] = application.default
    where = f"{account_id}/applications/{application.id}"
    return {"id": where, "name": application.id, "type": _TYPE, "properties": properties}


def _package(arm_request: Request, application: str, version: str, activated: int) -> Document:
    properties = {"state": "Pending"}
    if activated:
        properties = {"state": "Active", "format": "zip", "lastActivationTime": wire.timestamp(activated)}
    where = f"{arm_request.path}/applications/{application}/versions/{version}"
    return {"id": where, "name": version, "type": f"{_TYPE}/versions", "properties": properties}
