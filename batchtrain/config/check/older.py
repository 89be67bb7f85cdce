"""Rules about deprecated behaviour: removed properties, and properties that the planner handles differently."""

from __future__ import annotations

from typing import Any

import msgspec

from batchtrain.config import task_paths
from batchtrain.config.check.subject import Path, Subject
from batchtrain.config.check.table import (
    BOTH,
    CREDENTIALS,
    ERROR,
    GLOBAL,
    INFO,
    JOBS,
    POOL,
    REPLICATION,
    SETTINGS,
    WARNING,
    Found,
    Rule,
)
from batchtrain.config.schema import FIELDS
from batchtrain.config.types import GONE, Branch, DataTransfer, Gone, StorageInput, StorageOutput

EVERYTHING = (*CREDENTIALS, *SETTINGS, *GLOBAL, *REPLICATION, *POOL, *JOBS)
_TRANSFERS = tuple(
    (name, getattr(DataTransfer(), name))
    for name in (
        "method", "ssh_private_key", "scp_ssh_extra_options", "rsync_extra_options", "split_files_megabytes",
        "max_parallel_transfers_per_node",
    )
)  # fmt: skip


# --- properties that are gone ---------------------------------------------------------------------------------------


def _gone(subject: Subject) -> Found:
    for name, branch in _TREE.below.items():
        yield from _walk(getattr(subject.recipe, FIELDS[name]), (name,), branch)


_TREE: Branch[Gone] = Branch(GONE)
"""The patterns as one tree, so that many tasks are traversed once."""


def _walk(value: Any, path: Path, branch: Branch[Gone]) -> Found:
    for rule in branch.rules:
        if value is rule.only if rule.only is not None else _holds(value):
            yield path, f"this is ignored: {rule.instead}"
        return
    if not value and not isinstance(value, msgspec.Struct):
        return
    for step, below in branch.below.items():
        if step == "*":
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _walk(item, (*path, key), below)
            continue
        item = getattr(value, step)
        if item is not None and item != ():
            yield from _walk(item, (*path, step), below)


def _holds(value: Any) -> bool:
    """Whether any value in it is not absent, false, zero or empty."""
    if isinstance(value, msgspec.Struct):
        return any(_holds(getattr(value, name)) for name in value.__struct_fields__)
    return bool(value)


# --- what is done otherwise -----------------------------------------------------------------------------------------


def _file_shares(subject: Subject) -> Found:
    for path, transfer in subject.transfers:
        if transfer.is_file_share:
            yield (*path, "is_file_share"), _OUT if _uploads(path) else _IN
    for path, _, task in subject.tasks:
        storage = task.task_factory and task.task_factory.file and task.task_factory.file.azure_storage
        if storage and storage.is_file_share:
            message = "tasks are created from the blobs of a container; put the files there"
            yield (*path, "task_factory", "file", "azure_storage", "is_file_share"), message


_IN = "Batch downloads blobs, not files of a share; mount the share as a volume with driver `azurefile`"
_OUT = (
    "Batch uploads to a container, not to a share; mount the share as a volume with driver `azurefile`, to which the"
    " command writes, or remove this to upload to the container of `remote_path`"
)


def _uploads(path: Path) -> bool:
    """Whether it is the path of a transfer of `output_data`."""
    return path[-3] == "output_data"


def _filters(subject: Subject) -> Found:
    for path, transfer in subject.transfers:
        if transfer.exclude and _uploads(path):
            message = "Batch uploads every file of the patterns, and cannot exclude any; narrow `include` instead"
            yield (*path, "exclude"), message


def _task_files(subject: Subject) -> Found:
    for path, data in subject.input_data:
        for number, files in enumerate(data.azure_batch):
            yield (
                (*path, "azure_batch", number),
                f"the files of task `{files.task_id}` cannot be fetched from its node, because Azure Batch gives a task"
                " no credential for its file API any more, and the account key is not sent to nodes; have that task"
                " upload them with `output_data`, and read them here with `azure_storage`",
            )


def _copies(subject: Subject) -> Found:
    for number, files in enumerate(subject.recipe.resources.files):
        transfer = files.destination.data_transfer
        if names := [name for name, usual in _TRANSFERS if getattr(transfer, name) != usual]:
            yield (
                ("global_resources", "files", number, "destination", "data_transfer", names[0]),
                "files are not copied to the nodes' own disks; they go to storage with `batchtrain data ingress`, and"
                f" nodes read them by `input_data` or a volume; remove {', '.join(f'`{name}`' for name in names)}",
            )


def _transfer_options(subject: Subject) -> Found:
    items = [(path, transfer.blobxfer_extra_options, _strips(path, transfer)) for path, transfer in subject.transfers]
    for number, files in enumerate(subject.recipe.resources.files):
        options = files.destination.data_transfer.blobxfer_extra_options
        items.append((("global_resources", "files", number, "destination", "data_transfer"), options, True))
    for path, options, strips in items:
        if extra := " ".join((task_paths.STRIPS.sub("", options or "") if strips else options or "").split()):
            only = "; only `--strip-components` is" if strips else ", or not with these patterns"
            yield (*path, "blobxfer_extra_options"), f"`{extra}` is not supported{only}: remove it"


def _strips(path: Path, transfer: StorageInput | StorageOutput) -> bool:
    """Whether `--strip-components` has its old effect: an output then has no directories below those of its
    patterns."""
    if not _uploads(path) or not transfer.blobxfer_extra_options:
        return True
    flat = bool(transfer.include) and not any("/" in pattern or "**" in pattern for pattern in transfer.include)
    return flat and task_paths.strips(transfer.blobxfer_extra_options) != 0


def _ofa(subject: Subject) -> Found:
    for gang in subject.gangs:
        mpi = gang.options.mpi
        if mpi is not None and mpi.runtime == "intelmpi-ofa":
            yield (
                (*gang.path, "mpi", "runtime"),
                "Intel MPI has had no OFA since 2019; this needs 2018 or earlier in the image, else write `intelmpi`",
            )


_GONE = "Azure Batch: migration guides; ADRs"
_SHIPYARD = "Batch Shipyard 3.9.1, and what Azure Batch does instead"
_LOADER = "batchtrain.config.load"
_PLANNER = "batchtrain.plan"

RULES = (
    Rule("gone", WARNING, EVERYTHING, "A property has an effect.", _GONE, _gone, apart=True),
    Rule("file-share", ERROR, BOTH, "Files are transferred as blobs, not through a file share.",
         "azure-batch 15.1, ResourceFile, OutputFile", _file_shares),
    Rule("filter-approximate", ERROR, BOTH, "A file filter has an exact equivalent in Batch.",
         "azure-batch 15.1, OutputFile.filePattern", _filters),
    Rule("task-file-input", ERROR, BOTH, "Files of other tasks are passed through storage.", _SHIPYARD, _task_files),
    Rule("transfer-options", ERROR, (*GLOBAL, *POOL, *JOBS), "The options of a transfer are supported.", _SHIPYARD,
         _transfer_options, apart=True),
    Rule("mpi-ofa", WARNING, JOBS, "The MPI supports the requested fabric.", "Intel MPI 2019: release notes", _ofa),
    Rule("copy-to-nodes", ERROR, GLOBAL, "Files are copied to the nodes through storage.", _SHIPYARD, _copies),
    Rule("renamed", WARNING, EVERYTHING, "A property has its current name.", _LOADER),
    Rule("elsewhere", WARNING, (), "A file or section belongs to the configuration language.", _LOADER),
    Rule("variable-unset", WARNING, BOTH, "An environment variable in the files has a value.", _LOADER),
    Rule("placeholder", WARNING, CREDENTIALS, "Placeholders such as `<job id>` are replaced.", _LOADER),
    Rule("offline-count", INFO, BOTH, "The number of nodes is known without the existing pool.", _PLANNER),
    Rule("password-on-nodes", WARNING, (*CREDENTIALS, *GLOBAL), "Passwords are not readable by other users.", _PLANNER),
    Rule("offline-files", INFO, JOBS, "The files from which tasks are made are known.", _PLANNER),
    Rule("offline-custom", INFO, JOBS, "The tasks of a custom factory are known.", _PLANNER),
    Rule("uneven-zip", WARNING, JOBS, "The lists of a `zip` are equally long.", _PLANNER),
)  # fmt: skip
