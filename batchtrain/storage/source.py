"""Lists the blobs of file factories, which create one task per blob; the planner needs the names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from batchtrain.config.factories import FEW_TASKS
from batchtrain.config.types import Recipe
from batchtrain.errors import NotFound
from batchtrain.plan.factory import place_of
from batchtrain.storage import blob
from batchtrain.storage.blob import Connect, Stored


def read_listings(recipe: Recipe, connect: Connect) -> dict[str, Iterable[str]]:
    """The blobs that the recipe's file factories are about, for `Facts.listings`. More than a few are listed, page by
    page, when they are iterated. Raises ServiceError."""
    factories = (task.task_factory for job in recipe.jobs for task in job.tasks if task.task_factory)
    storages = [factory.file.azure_storage for factory in factories if factory.file is not None]
    places = {place_of(storage) for storage in storages if storage is not None and not storage.is_file_share}
    listings: dict[str, Iterable[str]] = {}
    for listing in sorted(places):
        names = _Names(listing, connect)
        head = tuple(islice(names, FEW_TASKS + 1))
        listings[listing] = names if len(head) > FEW_TASKS else head
    return listings


def blobs_of(source: str, connect: Connect) -> Iterator[Stored]:
    """The blobs of `LINK/CONTAINER/PREFIX`, page by page. Raises ServiceError."""
    link, container, path = blob.place_of(source)
    yield from blob.stored(connect(link), container, path)


def is_empty(container: str, connect: Connect) -> bool:
    """Whether `LINK/CONTAINER` has no blob, or does not exist. Raises ServiceError."""
    try:
        return next(blobs_of(container, connect), None) is None
    except NotFound:
        return True


class _Names:
    """The names of blobs, listed anew by each iteration."""

    def __init__(self, listing: str, connect: Connect) -> None:
        self._listing, self._connect = listing, connect

    def __iter__(self) -> Iterator[str]:
        return (item.name for item in blobs_of(self._listing, self._connect))
