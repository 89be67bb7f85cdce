"""The names of the blobs that tasks are made of, which file factories need before a recipe is planned."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from batchtrain.config.factories import MOST_TASKS
from batchtrain.config.types import Recipe
from batchtrain.plan.factory import place_of

if TYPE_CHECKING:
    from batchtrain.storage.blob import Connect


def read_listings(recipe: Recipe, connect: Connect) -> dict[str, tuple[str, ...]]:
    """The blobs that the recipe's file factories are about, for `Facts.listings`. Raises ServiceError."""
    factories = (task.task_factory for job in recipe.jobs for task in job.tasks if task.task_factory)
    storages = [factory.file.azure_storage for factory in factories if factory.file is not None]
    wanted = {place_of(storage) for storage in storages if not storage.is_file_share}
    if not wanted:
        return {}
    from batchtrain.storage import blob  # only for tasks that are made of files

    listed = {}
    for place in sorted(wanted):
        link, container, path = blob.place_of(place)
        names = islice((found.name for found in blob.stored(connect(link), container, path)), MOST_TASKS + 1)
        listed[place] = tuple(names)
    return listed
