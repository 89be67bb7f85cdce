"""Plans the upload of `global_resources.files` from this machine to storage; reads no file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from batchtrain.config import task_paths
from batchtrain.config.types import Files, Recipe
from batchtrain.errors import PlanError
from batchtrain.plan.step import Action, Step
from batchtrain.plan.types import Plan

ACTION: Action = "files.upload"
"""Action of a step that brings files of this machine to a container; its body says which."""

FILE_SHARE = (
    "file shares are not written from here: use `az storage file upload-batch`, or a container and a volume of"
    " `volume_driver: azureblob`"
)
TO_NODES = (
    "files are not copied to the nodes' own disks: bring them to a container (`storage_account_settings` with"
    " `data_transfer.remote_path`) and from there with `input_data`, or mount the container"
)


class LeftOut(NamedTuple):
    """An entry that is not uploaded: its path, and what works instead."""

    path: str
    reason: str


def plan(recipe: Recipe) -> Plan:
    """An upload for each entry that goes to a container; those that go elsewhere are in `left_out`.

    Raises PlanError for an incomplete destination.
    """
    steps = []
    for number, files in enumerate(recipe.resources.files):
        target = _destination(recipe, f"global_resources.files[{number}]", files)
        if isinstance(target, str):
            source = files.source
            strip = task_paths.strips(files.destination.data_transfer.blobxfer_extra_options)
            body = {"source": source.path, "include": list(source.include), "exclude": list(source.exclude)}
            steps.append(Step(ACTION, target, {**body, **({} if strip is None else {"strip": strip})}))
    return Plan(steps=tuple(steps))


def left_out(recipe: Recipe) -> Iterator[LeftOut]:
    """The entries that `plan` does not upload."""
    for number, files in enumerate(recipe.resources.files):
        target = _destination(recipe, f"global_resources.files[{number}]", files)
        if isinstance(target, LeftOut):
            yield target


def _destination(recipe: Recipe, path: str, files: Files) -> str | LeftOut:
    """`link/container/path`, or the reason why nothing is uploaded."""
    to = files.destination
    where = "/".join(part.strip("/") for part in (to.data_transfer.remote_path, to.relative_destination_path) if part)
    if to.storage_account_settings:
        if to.data_transfer.is_file_share:
            return LeftOut(f"{path}.destination.data_transfer.is_file_share", FILE_SHARE)
        if not where.strip("/"):
            message = "`data_transfer.remote_path` must say to which container, as `container/path`"
            raise PlanError(f"{path}.destination: {message}")
        return f"{to.storage_account_settings}/{where}"
    if to.shared_data_volume:
        return _volume(recipe, path, to.shared_data_volume, where)
    return LeftOut(f"{path}.destination", TO_NODES)


def _volume(recipe: Recipe, path: str, alias: str, below: str) -> str | LeftOut:
    at = f"{path}.destination.shared_data_volume"
    volume = recipe.resources.volumes.shared_data_volumes.get(alias)
    if volume is None:
        names = ", ".join(recipe.resources.volumes.shared_data_volumes) or "none"
        raise PlanError(f"{at}: there is no volume `{alias}` (known: {names})")
    if volume.volume_driver == "azurefile":
        return LeftOut(at, FILE_SHARE)
    if volume.volume_driver != "azureblob":
        return LeftOut(at, TO_NODES)
    if not volume.storage_account_settings or not volume.azure_blob_container_name:
        missing = "`storage_account_settings` and `azure_blob_container_name`"
        raise PlanError(f"{at}: the volume `{alias}` needs {missing}")
    return "/".join(filter(None, (volume.storage_account_settings, volume.azure_blob_container_name, below)))
