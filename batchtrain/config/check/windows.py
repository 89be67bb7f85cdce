"""Rules about features that need Linux nodes: launches and the placement of files are shell scripts."""

from __future__ import annotations

from batchtrain.config import places
from batchtrain.config.check.subject import Path, Subject
from batchtrain.config.check.table import ERROR, JOBS, POOL, Found, Rule
from batchtrain.config.types import InputData

BOTH = (*POOL, *JOBS)


def _gangs(subject: Subject) -> Found:
    if subject.windows:
        for path, _, _, gang in subject.gangs:
            names = [name for name, _ in gang.launches]
            for where in [(*path, name) for name in names] or [path]:
                yield where, "the launch is a Linux shell script, but the nodes run Windows"


def _sources(subject: Subject) -> Found:
    if subject.windows:
        for path, _, task in subject.tasks:
            if task.source is not None:
                message = "it is unpacked by a Linux shell, but the nodes run Windows; use `resource_files`"
                yield (*path, "source"), message


def _places(subject: Subject) -> Found:
    if subject.windows:
        for path, job in subject.jobs:
            yield from _beyond(path, job.input_data)
        for path, _, task in subject.tasks:
            yield from _beyond(path, task.input_data)


def _beyond(path: Path, data: InputData) -> Found:
    for number, blobs in enumerate(data.azure_storage):
        if not blobs.is_file_share and places.beyond(blobs.local_path):
            message = "on Windows nodes data must be below the working directory; give a relative path"
            yield (*path, "input_data", "azure_storage", number, "local_path"), message


RULES = (
    Rule("windows-mpi", ERROR, BOTH, "Gangs are launched on Linux nodes.", "launchers: bash text", _gangs),
    Rule("windows-source", ERROR, BOTH, "A task's own files are unpacked on Linux nodes.", "launchers: bash text",
         _sources),
    Rule("windows-input", ERROR, BOTH, "On Windows nodes, data is brought to the working directory.",
         "azure-batch 15.1, ResourceFile.filePath; launchers: bash text", _places),
)  # fmt: skip
