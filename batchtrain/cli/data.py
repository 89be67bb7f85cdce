"""`batchtrain data`: upload files to storage, and download them."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from batchtrain.cli import options
from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common, say, settings
from batchtrain.cli.output import show, show_rows
from batchtrain.errors import NotFound, UsageError

if TYPE_CHECKING:
    from batchtrain.config.load import Loaded
    from batchtrain.config.types import Credentials
    from batchtrain.storage.blob import Connect
    from batchtrain.storage.ingress import Progress


@click.group(cls=Group)
def command() -> None:
    """Upload files to storage, and download them."""


@command.command(cls=Command)
@options.directory
@common
def ingress(directory: str | None) -> None:
    """Upload `global_resources.files` to storage.

    A file is skipped if the container has a blob with its name, size and MD5.
    """
    from batchtrain.plan import ingress as planning
    from batchtrain.storage import ingress as carrying

    loaded = settings().load(directory)
    recipe = loaded.recipe
    todo = planning.plan(recipe)
    for entry in planning.left_out(recipe):
        say(f"{entry.path}: left out: {entry.reason}")
    if not todo.steps:
        raise UsageError("nothing in `global_resources.files` goes to a container")
    connect = _accounts(recipe.credentials, loaded)
    show_rows(carrying.carry_out(todo, recipe, connect, _tell))


@command.command("list", cls=Command)
@click.argument("place", metavar="LINK/CONTAINER[/PATH]")
@common
def list_(place: str) -> None:
    """List what a container holds, at PATH and below it."""
    from batchtrain.storage import blob

    link, container, path = blob.place_of(place)
    connect = _accounts(_credentials())

    class Row(NamedTuple):
        name: str
        size: int
        changed: datetime

    rows = (Row(found.name, found.size, found.changed) for found in blob.below(connect(link), container, path))
    show_rows(tuple(rows), empty=f"nothing at {place}")


@command.command(cls=Command)
@click.argument("place", metavar="LINK/CONTAINER/PATH")
@click.argument("destination", default=".", type=click.Path(path_type=Path))
@common
def get(place: str, destination: Path) -> None:
    """Download a blob, or the directory PATH with its contents, to DESTINATION.

    A blob becomes the file DESTINATION, or a file in DESTINATION if that is a directory.
    """
    from batchtrain.storage import blob

    link, container, path = blob.place_of(place)
    client = _accounts(_credentials())(link)
    found = list(blob.below(client, container, path))
    if not found:
        raise NotFound(f"{place} is not there; `batchtrain data list {link}/{container}` shows what is")
    wanted = [(one.name, _target(one.name, path.rstrip("/"), destination)) for one in found]
    total = 0
    for number, (name, target) in enumerate(wanted, 1):
        total += blob.fetch(client, container, name, target)
        if sys.stderr.isatty() or settings().verbose:
            say(f"{number} of {len(wanted)}: {target}")
    show({"files": len(wanted), "bytes": total}, f"{len(wanted)} files, {total} bytes to {destination}")


def _target(name: str, path: str, destination: Path) -> Path:
    """Where a blob goes. Raises UsageError for a name that would leave the destination."""
    if name == path:
        return destination / Path(name).name if destination.is_dir() else destination
    below = Path(name[len(path) :].lstrip("/") if path else name)
    if below.is_absolute() or ".." in below.parts or not below.parts:
        raise UsageError(f"the blob {name} would be written outside of {destination}; get it by itself")
    return destination / below


def _credentials() -> Credentials:
    from batchtrain.config.load import load_credentials
    from batchtrain.config.types import Credentials

    directory = settings().configdir or "."
    found = load_credentials(directory, settings().files)
    if found is None and settings().local:
        return Credentials()
    if found is None:
        raise UsageError(f"{directory} has no credentials.yaml, so no storage account is known; see --configdir")
    return found


def _accounts(credentials: Credentials, loaded: Loaded | None = None) -> Connect:
    """Clients by link; with --local, the emulator's account for links without one."""
    from batchtrain.service import entra, vault
    from batchtrain.service.connect import CA_VARIABLE
    from batchtrain.storage import blob

    ca = os.environ.get(CA_VARIABLE)
    known = vault.resolved(credentials, ca=ca)
    own = settings().connect(loaded).own_storage if settings().local else None
    return blob.accounts(known, lambda: entra.credential(entra.storage_sign_in(known), ca=ca), own)


def _tell(progress: Progress) -> None:
    """One line per file on a terminal, otherwise one line per hundred files."""
    every = 1 if sys.stderr.isatty() or settings().verbose else 100
    if progress.done % every == 0 or progress.done == progress.of:
        what = "sent" if progress.sent else "unchanged"
        count = f"{progress.done} of {progress.of} to {progress.place}"
        say(f"{count}: {what} {progress.name}, {progress.bytes} bytes so far")
