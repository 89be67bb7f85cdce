"""Rules about features that need Linux nodes: launches and the placement of files are shell scripts."""

from __future__ import annotations

from batchtrain.config import task_paths
from batchtrain.config.check.subject import Subject
from batchtrain.config.check.table import BOTH, ERROR, POOL, Found, Rule


def _gangs(subject: Subject) -> Found:
    if subject.windows:
        for path, _, _, gang in subject.gangs:
            for where in [(*path, *gang.path(name)) for name, _ in gang.launches] or [path]:
                yield where, "the launch is a Linux shell script, but the nodes run Windows"


def _sources(subject: Subject) -> Found:
    if subject.windows:
        for path, _, task in subject.tasks:
            if task.source is not None:
                message = "it is unpacked by a Linux shell, but the nodes run Windows; use `resource_files`"
                yield (*path, "source"), message


def _directories(subject: Subject) -> Found:
    for path, blobs in subject.inputs if subject.windows else ():
        if blobs.is_file_share:
            continue
        if path[0] != POOL[0] and task_paths.beyond(blobs.local_path):
            message = "on Windows nodes data must be below the working directory; give a relative path"
            yield (*path, "local_path"), message
        if task_paths.filtered(blobs.include, blobs.exclude, blobs.blobxfer_extra_options):
            message = (
                "a Linux shell filters and renames files, but the nodes run Windows; use only `include` patterns that"
                " end with `*`"
            )
            yield path, message


RULES = (
    Rule("windows-mpi", ERROR, BOTH, "Gangs are launched on Linux nodes.", "launchers: bash text", _gangs),
    Rule("windows-source", ERROR, BOTH, "A task's own files are unpacked on Linux nodes.", "launchers: bash text",
         _sources),
    Rule("windows-input", ERROR, BOTH, "On Windows nodes, data is brought to the working directory.",
         "azure-batch 15.1, ResourceFile.filePath; launchers: bash text", _directories),
)  # fmt: skip
