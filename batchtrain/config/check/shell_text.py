"""Rules about who reads the shell text of a file: texts that no shell reads here, and texts that two shells read."""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.config.check.storage import VOLUMES, resource_files
from batchtrain.config.check.subject import Path, Subject
from batchtrain.config.check.table import ALL, CREDENTIALS, ERROR, JOBS, WARNING, Found, Rule
from batchtrain.config.patterns import late
from batchtrain.frameworks.mpi import MPIS

_SHELL = late(
    r"(?P<command>\$\(|`)|(?P<home>(?:^|(?<=[\s=:,]))~(?=/|:|$))|\$(?:\{(?P<braces>[^}]*)\}|(?P<name>[A-Za-z_]\w*))"
)
"""A command's output, the home directory, or a variable."""
_SYSTEM_CONTAINER = late(r"(?:^|(?<=/))\$(?=(?:root|web|logs)(?:[/?]|$))")
_OF_BATCH = late(r"AZ_BATCH_\w+")
_MOUNTED = late(
    r"(?:/mnt(?:/resource)?/batch/tasks|\$\{?AZ_BATCH_NODE_ROOT_DIR\}?)/mounts/(?P<name>(?:azfile|azblob)-[\w-]+)"
)
"""Where Batch Shipyard mounted a volume on the node."""


def _unread(subject: Subject) -> Found:
    for path, text, way in _texts(subject):
        matches = ((match, match["braces"] or match["name"] or "") for match in _SHELL.finditer(text))
        match = next((match for match, name in matches if way != _OPTIONS or not _OF_BATCH.fullmatch(name)), None)
        if match is None:
            continue
        variable = match["braces"] or match["name"]
        if match["command"]:
            part = "the output of a command"
        else:
            part = "the home directory" if match["home"] else f"the variable `{variable}`"
        yield path, f"`{text}` has {part}, but no shell reads this property; {way}"


_OPTIONS = "write the path itself, which may begin with a variable of Batch such as $AZ_BATCH_TASK_WORKING_DIR"
_VALUE = "write the value itself"


def _texts(subject: Subject) -> Iterator[tuple[Path, str, str]]:
    """The texts that Batch takes as they are, and what to write in them."""
    for path, _, task in subject.tasks:
        for number, option in enumerate(task.additional_docker_run_options):
            yield (*path, "additional_docker_run_options", number), option, _OPTIONS
    for path, job in subject.jobs:
        for name, part in job.parts:
            for number, option in enumerate(part.additional_docker_run_options):
                yield (*path, name, "additional_docker_run_options", number), option, _OPTIONS
    volumes = subject.recipe.resources.volumes
    for alias, volume in volumes.data_volumes.items():
        yield (*VOLUMES, "data_volumes", alias, "host_path"), volume.host_path or "", _OPTIONS
        yield (*VOLUMES, "data_volumes", alias, "container_path"), volume.container_path or "", _OPTIONS
    for alias, shared in volumes.shared_data_volumes.items():
        path = (*VOLUMES, "shared_data_volumes", alias)
        yield (*path, "container_path"), shared.container_path or "", _OPTIONS
        for number, option in enumerate(shared.mount_options):
            yield (*path, "mount_options", number), option, _VALUE
        if shared.fstab_entry is not None:
            yield (*path, "fstab_entry", "fs_mntops"), shared.fstab_entry.fs_mntops, _VALUE
    for path, transfer in subject.transfers:
        yield (*path, "remote_path"), _SYSTEM_CONTAINER.sub("", transfer.remote_path), _VALUE
    for path, file in resource_files(subject):
        for name in ("file_path", "blob_source", "storage_container_url", "blob_prefix"):
            yield (*path, name), _SYSTEM_CONTAINER.sub("", getattr(file, name) or ""), _VALUE


def _mounts_of_shipyard(subject: Subject) -> Found:
    """Commands that name the place of a volume on Batch Shipyard's nodes."""
    volumes = subject.recipe.resources.volumes.shared_data_volumes
    accounts = subject.recipe.credentials.storage
    aliases = {}
    for alias, volume in volumes.items():
        link = volume.storage_account_settings or ""
        account = accounts[link].account if link in accounts else link
        aliases[f"azfile-{account}-{volume.azure_file_share_name}"] = alias
        aliases[f"azblob-{account}-{volume.azure_blob_container_name}"] = alias
    for path, text in subject.commands:
        if (match := _MOUNTED.search(text)) is not None:
            alias = aliases.get(match["name"], "ALIAS")
            mount = f"$AZ_BATCH_NODE_MOUNTS_DIR/{alias}"
            yield path, f"`{match[0]}` is where Batch Shipyard mounted a volume; here it is `{mount}`"


_OF_ANOTHER_SHELL = late(r'(?:^|[\s;&|(/])(?:ba|da|k|z)?sh[ \t]+(?:-\w+[ \t]+)*-\w*c[ \t]+"((?:[^"\\]|\\.)*)"')
_READ = late(r"(?<!\\)\$\{?([A-Za-z_]\w*|[0-9#@*?!$])")
_SET = late(r"\b(?:for|read(?:[ \t]+-\w+)*)[ \t]+(\w+)|(?:^|[\s;&|(])(\w+)=")
_OF_RANKS = frozenset(name for mpi in MPIS.values() for name in (*mpi.rank, *mpi.ranks, *mpi.sizes))


def _read_twice(subject: Subject) -> Found:
    """Commands whose shell has its text in double quotes, and in it what only that shell, or a rank, knows."""
    for path, _, task in subject.tasks:
        if task.docker_image is not None and task.multi_instance is None:
            continue  # Batch itself starts the words of such a command
        for text in _OF_ANOTHER_SHELL.findall(task.command or ""):
            names = {name for pair in _SET.findall(text) for name in pair} | _OF_RANKS
            name = next((name for name in _READ.findall(text) if name in names or not name.isidentifier()), None)
            if name is not None:
                yield (
                    (*path, "command"),
                    f"the shell that starts the command replaces `${name}` in the double quotes, where it has no value"
                    " yet; write the text in single quotes",
                )


RULES = (
    Rule("shell-twice", WARNING, JOBS, "A text in double quotes has no variables of the shell inside it.",
         "bash: Double Quotes; the launch runs the command in a shell", _read_twice),
    Rule("shell-text", ERROR, ALL, "A property that no shell reads has no shell text.",
         "Batch Shipyard: its task runner evaluated these texts; azure-batch 15.1, BatchTaskContainerSettings",
         _unread),
    Rule("mount-path", ERROR, (*ALL, *CREDENTIALS), "A command names a volume where Batch mounts it.",
         "Azure Batch: virtual-file-mount; Batch Shipyard: settings.py, azure_file_host_mount_path",
         _mounts_of_shipyard),
)  # fmt: skip
