"""`batchtrain data`: files of this machine and of storage containers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from batchtrain.cli import loading
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.progress import bar
from batchtrain.cli.storage_accounts import Remote, accounts, remote
from batchtrain.errors import NotFound, UsageError, counted
from batchtrain.plan import ingress as planning
from batchtrain.runs.local_names import names_of_data
from batchtrain.storage import blob
from batchtrain.storage import ingress as carrying
from batchtrain.storage import sync as transfers
from batchtrain.storage.moving import Progress, Tally, Watcher


def ingress(directory: str | None) -> None:
    """Upload `global_resources.files` to storage.

    A file is skipped if the container has a blob with its name, size and MD5.
    """
    config = loading.load(directory)
    recipe = config.recipe
    todo = planning.plan(recipe)
    for entry in planning.left_out(recipe):
        say(f"{entry.path}: left out: {entry.reason}")
    if not todo.steps:
        raise UsageError("nothing in `global_resources.files` goes to a container")
    connect = accounts(recipe.credentials, (step.subject.partition("/")[0] for step in todo.steps), config)
    with _watcher() as watcher:
        tallies = carrying.carry_out(todo, recipe, connect, watcher)
    _show(tallies)


def list_(address: str) -> None:
    """List what a container holds, at PATH and below it."""
    at = remote(address)

    class Row(NamedTuple):
        name: str
        size: int
        changed: datetime

    rows = (Row(item.name, item.size, item.changed) for item in blob.below(at.storage, at.container, at.path))
    show_rows(tuple(rows), empty=f"nothing at {address}")


def get(address: str, destination: Path) -> None:
    """Download a blob, or the directory PATH with its contents, to DESTINATION.

    A blob becomes the file DESTINATION, or a file in DESTINATION if that is a directory.
    """
    at = remote(address)
    blobs = list(blob.below(at.storage, at.container, at.path))
    if not blobs:
        raise at.not_there(address)
    with _watcher() as watcher:
        tally = transfers.get(
            at.storage, at.container, blobs, at.path.rstrip("/"), destination, names_of_data(), watcher
        )
    _show((tally,))


def rm(address: str, patterns: tuple[str, ...]) -> None:
    """Delete a blob, or what is below the directory PATH.

    A PATTERN is relative to PATH and matches whole names: `*.log`, `run1/*`. Without a PATTERN, everything there is
    deleted.
    """
    at = remote(address)
    base = _base(at.path)
    names = [item.name for item in blob.below(at.storage, at.container, at.path)]
    if patterns:
        names = [name for name in names if name.startswith(base) and carrying.fits(name[len(base) :], patterns)]
    if not names:
        raise NotFound(f"no blob to delete at {address}; `batchtrain data list {at.box}` shows what is there")
    confirm(f"Delete {counted(len(names), 'blob')} at {address}?")
    tally = transfers.remove(at.storage, at.container, names)
    show({"deleted": tally.total.copied}, f"{counted(tally.total.copied, 'blob')} deleted")
    tally.check("deleted from")


def sync(source: str, destination: str, delete: bool) -> None:
    """Make DESTINATION the same as SOURCE: a directory of this machine and LINK/CONTAINER[/PATH], or the reverse.

    A directory of this machine begins with `/`, `./` or `../`, or is `.`. Nothing is deleted after a failed copy.
    """
    if _is_local(source) == _is_local(destination):
        kind = "directories of this machine" if _is_local(source) else "LINK/CONTAINER"
        raise UsageError(
            f"`{source}` and `{destination}` are both {kind}; write one as a directory (`./data`) and the other as"
            " LINK/CONTAINER/PATH"
        )
    if _is_local(source):
        _up(Path(source), remote(destination), delete)
    else:
        _down(remote(source), Path(destination), delete)


def _up(directory: Path, to: Remote, delete: bool) -> None:
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory of this machine")
    files, base = list(carrying.walk(directory)), _base(to.path)
    with _watcher() as watcher:
        tally = carrying.bring(to.storage, to.box, to.path, files, watcher)
    removals: tuple[Tally, ...] = ()
    if delete and not tally.total.failed:
        blobs = blob.stored(to.storage, to.container, base)
        surplus = transfers.surplus_blobs(blobs, base, files)
        if surplus:
            where = f"{to.box}/{to.path}".rstrip("/")
            confirm(f"Delete {counted(len(surplus), 'blob')} of {where} that {directory} does not have?")
            removals = (transfers.remove(to.storage, to.container, surplus),)
    _show((tally,), removals)


def _down(source: Remote, directory: Path, delete: bool) -> None:
    base = _base(source.path)
    blobs = list(blob.stored(source.storage, source.container, base))
    if not blobs:
        raise source.not_there()
    names = names_of_data()
    with _watcher() as watcher:
        tally = transfers.get(source.storage, source.container, blobs, base.rstrip("/"), directory, names, watcher)
    removals: tuple[Tally, ...] = ()
    if delete and not tally.total.failed:
        surplus = transfers.surplus_files(blobs, base.rstrip("/"), directory, names)
        if surplus:
            confirm(f"Delete {counted(len(surplus), 'file')} of {directory} that {source.box} does not have?")
            removals = (transfers.remove_files(directory, surplus),)
    _show((tally,), removals)


def _is_local(address: str) -> bool:
    return address in (".", "..") or address.startswith(("/", "./", "../"))


def _base(path: str) -> str:
    """What the names below a path begin with."""
    return f"{path.rstrip('/')}/" if path else ""


def _show(tallies: Sequence[Tally], removals: Sequence[Tally] = ()) -> None:
    """Print what was copied, and raise what was not."""
    show_rows([tally.total for tally in tallies])
    for tally in removals:
        say(f"deleted {tally.total.copied:,}")
    for tally in tallies:
        tally.check()
    for tally in removals:
        tally.check("deleted from")


@contextlib.contextmanager
def _watcher() -> Iterator[Watcher]:
    """A bar on a terminal, and a line for each hundred files."""
    with bar() as progress:
        yield Watcher(progress.begin, progress.moved, _tell)


def _tell(progress: Progress) -> None:
    every = 1 if settings().verbose else 100
    if progress.done % every == 0 or progress.done == progress.of:
        what = "copied" if progress.copied else "skipped"
        say(f"{progress.done} of {progress.of} to {progress.destination}: {what} {progress.name}")
