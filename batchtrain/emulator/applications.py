"""Applications, whose packages are zip files in the data directory, and the references of pools and tasks to them;
pure."""

from __future__ import annotations

import re

from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.interface import Package
from batchtrain.emulator.query import by_id, listing
from batchtrain.emulator.records import Document
from batchtrain.emulator.reply import Call, Reply, element
from batchtrain.emulator.world import Application, World

PROPERTY = "applicationPackageReferences"
_RESOURCE = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Batch/batchAccounts/[^/]+/applications/([^/]+)",
    re.IGNORECASE,
)


def list_applications(world: World, call: Call) -> Reply:
    return listing(call, "listapplicationsummariesresponses", by_id(world.applications(), _document, "id"))


def get_application(world: World, call: Call) -> Reply:
    if (application := find(world, call.path[0])) is None:
        raise Fault("ApplicationNotFound")
    return element("getapplicationsummaryresponse", call.base, _document(application))


def _document(application: Application) -> Document:
    return {"id": application.id, "displayName": application.id, "versions": list(application.versions)}


def find(world: World, application_id: str) -> Application | None:
    """The application of an id, ignoring case. Returns None if there is none."""
    key = application_id.lower()
    return next((application for application in world.applications() if application.id.lower() == key), None)


def id_of(reference: Document) -> str:
    """The id of a reference's application, which can be given as its resource id."""
    text: str = reference["applicationId"]
    return match[1] if (match := _RESOURCE.fullmatch(text)) else text


def check_references(world: World, references: list[Document], *, of_task: bool = False) -> None:
    """Check that every reference names an existing package. A task without a version can be added before its
    application has a default version. Raises Fault 400 or 409."""
    ids = [(id_of(item).lower(), item.get("version", "")) for item in references]
    for index, name in enumerate(ids):
        if name in ids[:index]:
            raise invalid_property(PROPERTY, references[index]["applicationId"], "The package is referred to twice.")
    for reference in references:
        waits = of_task and "version" not in reference and find(world, id_of(reference)) is not None
        if not waits and not resolve(world, reference):
            name, version = reference["applicationId"], reference.get("version", "its default version")
            raise Fault("InvalidApplicationPackageReferences", **{name: f"{version} does not exist."})


def resolve(world: World, reference: Document) -> Package | None:
    """The package that a reference currently means."""
    application = find(world, id_of(reference))
    version = reference.get("version") or (application.default if application else "")
    return Package(application.id, version) if application and version in application.versions else None


def without_default(world: World, references: list[Document]) -> str:
    """The first application that is referred to without a version and has no default version; empty if none."""
    return next((id_of(item) for item in references if "version" not in item and not resolve(world, item)), "")


def packages(world: World, references: list[Document]) -> tuple[Package, ...]:
    """The packages that references mean. A deleted package is kept in the list; the node then reports it as missing."""
    resolutions = (
        resolve(world, reference) or Package(id_of(reference), reference.get("version", "")) for reference in references
    )
    return tuple(dict.fromkeys(resolutions))


def environment(world: World, references: list[Document], root: str) -> dict[str, str]:
    """AZ_BATCH_APP_PACKAGE_ID_VERSION of each package (ID alone without a version), as written and in lower case."""
    variables = {}
    for reference, package in zip(references, (packages(world, [item])[0] for item in references), strict=True):
        words = [id_of(reference), *([reference["version"]] if reference.get("version") else [])]
        name = re.sub(r"[.\-#]", "_", "_".join(words))
        for spelling in (name, name.lower()):
            variables[f"AZ_BATCH_APP_PACKAGE_{spelling}"] = f"{root}/{package.directory}"
    return variables
