"""Rules about data: storage links, volumes, resource files, inputs, outputs, and files to upload."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from batchtrain.catalog.meaning import MOST_FILES
from batchtrain.config.check.subject import Path, Subject
from batchtrain.config.check.table import (
    ALL,
    BOTH,
    CREDENTIALS,
    ERROR,
    GLOBAL,
    JOBS,
    POOL,
    SETTINGS,
    WARNING,
    Found,
    Rule,
)
from batchtrain.config.local_storage import overlaps
from batchtrain.config.types import (
    GONE_DRIVERS,
    DataVolume,
    FileFactoryStorage,
    Job,
    Recipe,
    ResourceFile,
    SharedDataVolume,
    StorageInput,
    StorageOutput,
    Task,
    TaskSettings,
)

VOLUMES: Path = ("global_resources", "volumes")
FILES: Path = ("global_resources", "files")
MOST_MOUNTS = 10
SCRATCH = "auto_scratch"
"""Where Batch Shipyard mounted BeeOND, in a task's directory."""
NEEDED = {
    "azureblob": ("storage_account_settings", "azure_blob_container_name"),
    "azurefile": ("storage_account_settings", "azure_file_share_name"),
    "nfs": ("source",),
    "cifs": ("source",),
    "custom_linux_mount": ("fstab_entry",),
}
SOURCE = {"nfs": (r"[^\s:/]+:/\S*", "server:/path"), "cifs": (r"//[^\s/]+/\S+", "//server/share")}
# Azure Storage: Naming and referencing containers; a share has the same rule.
CONTAINER = r"[a-z0-9](?!.*--)[a-z0-9-]{1,61}[a-z0-9]|\$(root|web|logs)"
BIND_OPTIONS = frozenset({
    "ro", "rw", "z", "Z", "shared", "rshared", "slave", "rslave", "private", "rprivate", "nocopy", "cached",
    "delegated", "consistent",
})  # fmt: skip
LINUX_PATH, WINDOWS_PATH = r"(?:/|\$\w+|\$\{\w+\})[^:]*", r"[A-Za-z]:[\\/].*"
OCTAL = r"(0o)?[0-7]{1,5}"
FILE_SOURCES = ("blob_source", "storage_container_url", "auto_storage_container_name")


# --- links ----------------------------------------------------------------------------------------------------------


def links_of(recipe: Recipe) -> Iterator[str]:
    """Every storage link that a recipe reads or writes, except that of sources."""
    return (link for _, link in _links(Subject(recipe)))


def read_places(recipe: Recipe) -> tuple[str, ...]:
    """`link/container/path` of everything that nodes download, except what the tasks themselves upload."""
    subject = Subject(recipe)
    factories = (task.task_factory and task.task_factory.file for _, _, task in subject.tasks)
    of_factories = (factory.azure_storage for factory in factories if factory and factory.azure_storage)
    downloads: list[StorageInput | FileFactoryStorage] = [*(blobs for _, blobs in subject.inputs), *of_factories]
    reads = dict.fromkeys(_place(transfer) for transfer in downloads if not transfer.is_file_share)
    writes = {_place(transfer) for _, transfer in subject.outputs}
    return tuple(prefix for prefix in reads if not overlaps(prefix, writes))


def _place(transfer: StorageInput | StorageOutput | FileFactoryStorage) -> str:
    """What begins the names of a transfer's blobs, up to a value of a task factory."""
    return f"{transfer.storage_account_settings}/{transfer.remote_path.strip('/').partition('{')[0]}"


def _links(subject: Subject) -> Iterator[tuple[Path, str]]:
    """As `links_of`, each with its path."""
    recipe = subject.recipe
    for alias, volume in recipe.resources.volumes.shared_data_volumes.items():
        if volume.storage_account_settings:
            yield (*VOLUMES, "shared_data_volumes", alias, "storage_account_settings"), volume.storage_account_settings
    for number, files in enumerate(recipe.resources.files):
        if files.destination.storage_account_settings:
            path = (*FILES, number, "destination", "storage_account_settings")
            yield path, files.destination.storage_account_settings
    for path, transfer in subject.transfers:
        yield (*path, "storage_account_settings"), transfer.storage_account_settings
    for path, _, task in subject.tasks:
        blobs = task.task_factory and task.task_factory.file and task.task_factory.file.azure_storage
        if blobs:
            where = (*path, "task_factory", "file", "azure_storage", "storage_account_settings")
            yield where, blobs.storage_account_settings


def _unknown_links(subject: Subject) -> Found:
    accounts, through = subject.recipe.credentials.storage, subject.recipe.settings.storage_account_settings
    links = [(("batchtrain", "storage_account_settings"), through), *_links(subject)]
    for path, link in links if accounts else ():
        if link and link not in accounts:
            yield path, f"credentials.yaml has no storage account `{link}`{subject.nearest(link, accounts)}"


def _missing_links(subject: Subject) -> Found:
    if subject.recipe.credentials.storage:
        return
    links: set[str] = set()
    for path, link in _links(subject):
        if link not in links:
            yield path, f"credentials.yaml has no storage account `{link}`; it is needed when this is sent"
        links.add(link)
    through = subject.recipe.settings.storage_account_settings
    if through and through not in links and any(task.source for _, _, task in subject.tasks):
        message = f"credentials.yaml has no storage account `{through}`; the tasks' files travel inside the requests"
        yield ("batchtrain", "storage_account_settings"), message


# --- volumes --------------------------------------------------------------------------------------------------------


def _unknown_volumes(subject: Subject) -> Found:
    volumes = subject.recipe.resources.volumes
    aliases_by_kind = {name: frozenset(getattr(volumes, name)) for name in ("data_volumes", "shared_data_volumes")}
    for path, owner in subject.owners:
        for name, aliases in aliases_by_kind.items():
            for number, alias in enumerate(getattr(owner, name)):
                if alias not in aliases:
                    yield (*path, name, number), _no_volume(subject, alias, name)
    for number, files in enumerate(subject.recipe.resources.files):
        volume = files.destination.shared_data_volume
        if volume is not None and volume not in volumes.shared_data_volumes:
            path = (*FILES, number, "destination", "shared_data_volume")
            yield path, _no_volume(subject, volume, "shared_data_volumes")


def _no_volume(subject: Subject, alias: str, name: str) -> str:
    volumes = subject.recipe.resources.volumes
    other = "shared_data_volumes" if name == "data_volumes" else "data_volumes"
    if alias in getattr(volumes, other):
        return f"`{alias}` is one of `{other}`; list it there"
    return f"`global_resources.volumes.{name}` has no `{alias}`{subject.nearest(alias, getattr(volumes, name))}"


def _volume_fields(subject: Subject) -> Found:
    owners = [owner for _, owner in subject.owners if _has_container(owner)]
    aliases = {alias for owner in owners for alias in (*owner.data_volumes, *owner.shared_data_volumes)}
    for alias, volume in subject.recipe.resources.volumes.shared_data_volumes.items():
        path = (*VOLUMES, "shared_data_volumes", alias)
        for name in NEEDED.get(volume.volume_driver, ()):
            if not getattr(volume, name):
                yield path, f"a volume with driver `{volume.volume_driver}` needs `{name}`"
        if not volume.container_path and alias in aliases and volume.volume_driver not in GONE_DRIVERS:
            yield path, "containers mount this volume, so it needs a `container_path`"
        shape, words = SOURCE.get(volume.volume_driver, ("", ""))
        if shape and volume.source and not re.fullmatch(shape, volume.source):
            yield (*path, "source"), f"`{volume.source}` is not written as `{words}`"
    for alias, data in subject.recipe.resources.volumes.data_volumes.items():
        if not data.container_path and alias in aliases:
            yield (*VOLUMES, "data_volumes", alias), "containers mount this volume, so it needs a `container_path`"


def _has_container(owner: TaskSettings) -> bool:
    tasks = (*owner.tasks, owner.merge_task) if isinstance(owner, Job) else (owner,)
    return any(isinstance(task, Task) and (task.docker_image or task.singularity_image) for task in tasks)


def _volumes_on_host(subject: Subject) -> Found:
    volumes = subject.recipe.resources.volumes
    for path, owner in subject.owners:
        for at, alias, inside in () if _has_container(owner) else _mounted(subject, path, owner):
            is_data = at[-2] == "data_volumes"
            on_node = volumes.data_volumes[alias].host_path if is_data else f"$AZ_BATCH_NODE_MOUNTS_DIR/{alias}"
            if inside != on_node and (is_data or volumes.shared_data_volumes[alias].volume_driver not in GONE_DRIVERS):
                where = f"the volume is `{on_node}`; name that in the command" if on_node else "no such volume exists"
                yield at, f"`{inside}` is a path in a container, and this runs on the node itself, where {where}"


def _volume_driver(subject: Subject) -> Found:
    for alias, volume in subject.recipe.resources.volumes.shared_data_volumes.items():
        if volume.volume_driver in GONE_DRIVERS:
            yield (
                (*VOLUMES, "shared_data_volumes", alias, "volume_driver"),
                f"`{volume.volume_driver}` file systems are not supported, so the volume is not mounted; use"
                " `azurefile`, `nfs` or `azureblob`",
            )


def _volume_gone(subject: Subject) -> Found:
    """Commands that name a path of a volume that is no longer mounted."""
    volumes = subject.recipe.resources.volumes.shared_data_volumes
    gone_paths = [
        (volume.container_path.rstrip("/"), f"volume `{alias}` ({volume.volume_driver})")
        for alias, volume in volumes.items()
        if volume.volume_driver in GONE_DRIVERS and volume.container_path
    ]
    scratch = (SCRATCH, "BeeOND file system (`auto_scratch`)")
    has_scratch = {(*path,): subject.pool.per_job_auto_scratch or job.auto_scratch for path, job in subject.jobs}
    if not gone_paths and not any(has_scratch.values()):
        return
    for where, text in subject.commands:
        for gone_path, name in (*gone_paths, *((scratch,) if has_scratch[where[:2]] else ())):
            if re.search(rf"{re.escape(gone_path)}(?![\w.-])", text):
                message = f"the command names `{gone_path}` of the {name}, which is not mounted any more;"
                yield where, f"{message} use a volume with driver `azurefile`, `nfs` or `azureblob`"


def _mounts(subject: Subject) -> Found:
    volumes = subject.recipe.resources.volumes.shared_data_volumes
    count = sum(bool(volume.batch_driver) for volume in volumes.values())
    if count > MOST_MOUNTS:
        yield (*VOLUMES, "shared_data_volumes"), f"there are {count}, a node mounts at most {MOST_MOUNTS}"


def _windows_mounts(subject: Subject) -> Found:
    for alias, volume in subject.recipe.resources.volumes.shared_data_volumes.items():
        if subject.windows and volume.volume_driver in ("azureblob", "nfs", "custom_linux_mount"):
            yield (
                (*VOLUMES, "shared_data_volumes", alias, "volume_driver"),
                f"`{volume.volume_driver}` can only be mounted by Linux nodes; Windows nodes mount `azurefile` and"
                " `cifs`",
            )


def _share_logins(subject: Subject) -> Found:
    for alias, volume in subject.recipe.resources.volumes.shared_data_volumes.items():
        secret = subject.recipe.credentials.shares.get(alias)
        has_password = secret is not None and bool(secret.password or secret.password_keyvault_secret_id)
        if volume.batch_driver == "cifs" and not has_password:
            message = f"credentials.yaml has no login for this share (`shares.{alias}`, with username and password)"
            yield (*VOLUMES, "shared_data_volumes", alias), message


def _volume_names(subject: Subject) -> Found:
    for alias, volume in subject.recipe.resources.volumes.shared_data_volumes.items():
        for name in ("azure_blob_container_name", "azure_file_share_name"):
            value = getattr(volume, name)
            if value and not re.fullmatch(CONTAINER, value):
                yield (*VOLUMES, "shared_data_volumes", alias, name), _NO_CONTAINER.format(value)
    for path, transfer in subject.transfers:
        container = transfer.remote_path.strip("/").split("/", 1)[0]
        if not (re.fullmatch(CONTAINER, container) or set(container) & set("${}<>")):
            yield (*path, "remote_path"), _NO_CONTAINER.format(container)


_NO_CONTAINER = "`{}` is not a container name: use 3 to 63 lower-case letters, digits and single `-`"


def _bind_options(subject: Subject) -> Found:
    for path, volume in _volumes(subject):
        for word in (volume.bind_options or "").split(","):
            if volume.bind_options and word not in BIND_OPTIONS:
                yield (*path, "bind_options"), f"`{word}` is not a bind option; write `ro` or `rw`"


def _volumes(subject: Subject) -> Iterator[tuple[Path, DataVolume | SharedDataVolume]]:
    for name in ("data_volumes", "shared_data_volumes"):
        for alias, volume in getattr(subject.recipe.resources.volumes, name).items():
            yield (*VOLUMES, name, alias), volume


def _volume_paths(subject: Subject) -> Found:
    absolute = WINDOWS_PATH if subject.windows else LINUX_PATH
    for path, volume in _volumes(subject):
        inside = volume.container_path
        if not inside or re.fullmatch(absolute, inside):
            continue
        if not subject.windows and ":" in inside:
            yield (*path, "container_path"), f"`{inside}` has a `:`; write options such as `ro` in `bind_options`"
        else:
            example = "C:\\data" if subject.windows else "/data"
            yield (*path, "container_path"), f"`{inside}` is not an absolute path; write one such as `{example}`"


def _volumes_meet(subject: Subject) -> Found:
    """Two volumes at one path of a container; a conflict of the job's mounts is reported once, not for each task."""
    jobs = {path[:2]: job for path, job in subject.jobs}
    for path, owner in subject.owners:
        if not owner.data_volumes and not owner.shared_data_volumes:
            continue
        alias_by_path: dict[str, str] = {}
        of_job = _mounted(subject, path[:2], jobs[path[:2]]) if len(path) > 2 else ()
        for at, alias, inside in (*of_job, *_mounted(subject, path, owner)):
            other = alias_by_path.setdefault(inside.rstrip("/") or "/", alias)
            if other != alias and at[: len(path)] == path:
                yield at, f"`{alias}` and `{other}` are both mounted at `{inside}`; give one another `container_path`"


def _mounted(subject: Subject, path: Path, owner: TaskSettings) -> Iterator[tuple[Path, str, str]]:
    """The mounts of a job or a task: the path in the files, the alias, and the path in the containers."""
    for name in ("data_volumes", "shared_data_volumes"):
        volumes = getattr(subject.recipe.resources.volumes, name)
        for number, alias in enumerate(getattr(owner, name)):
            volume = volumes.get(alias)
            inside = volume and (volume.container_path or getattr(volume, "host_path", None))
            if inside:
                yield (*path, name, number), alias, inside


def _checkpoint_volumes(subject: Subject) -> Found:
    """The volume is mounted by the pool, and a container sees where."""
    volumes = subject.recipe.resources.volumes.shared_data_volumes
    for path, job, task in subject.tasks:
        if task.checkpoint is None:
            continue
        where, alias = (*path, "checkpoint", "volume"), task.checkpoint.volume
        if subject.windows:
            yield where, "checkpoints are prepared by a Linux shell, but the nodes run Windows"
        elif alias not in volumes:
            yield where, _no_volume(subject, alias, "shared_data_volumes")
        elif volumes[alias].volume_driver in GONE_DRIVERS:
            yield where, f"`{alias}` ({volumes[alias].volume_driver}) is not mounted; use another driver"
        elif task.docker_image and not _sees_mounts(job, task):
            message = "the container does not see the volumes of the node; add `{source: VfsMounts}` to `bind_mounts`"
            yield where, message


def _sees_mounts(job: Job, task: Task) -> bool:
    if task.bind_mounts:
        return any(mount.source == "VfsMounts" and not mount.read_only for mount in task.bind_mounts)
    only = task.restrict_default_bind_mounts
    return not (job.restrict_default_bind_mounts if only is None else only)


# --- resource files -------------------------------------------------------------------------------------------------


def resource_files(subject: Subject) -> Iterator[tuple[Path, ResourceFile]]:
    owners: list[tuple[Path, Any]] = [(POOL, subject.pool)]
    owners += (((*path, name), part) for path, job in subject.jobs for name, part in job.parts)
    for path, _, task in subject.tasks:
        owners += [(path, task), ((*path, "multi_instance"), task.multi_instance)]
    for path, owner in owners:
        for number, file in enumerate(owner.resource_files if owner is not None else ()):
            yield (*path, "resource_files", number), file


def _file_sums(subject: Subject) -> Found:
    sums: Counter[Path] = Counter()
    for path, file in resource_files(subject):
        sums[path[:-1]] += sum(len(value) for value in msgspec.structs.astuple(file) if isinstance(value, str))
    for path, characters in sums.items():
        if characters > MOST_FILES:
            yield (
                path,
                (
                    f"the list has {characters} characters, and Azure Batch takes {MOST_FILES}: give a container"
                    " (`storage_container_url`), or one archive"
                ),
            )


def _file_sources(subject: Subject) -> Found:
    for path, file in resource_files(subject):
        sources = [name for name in FILE_SOURCES if getattr(file, name)]
        if len(sources) != 1:
            what = "no source is given" if not sources else " and ".join(f"`{name}`" for name in sources) + " are given"
            yield path, f"{what}; a resource file has one of {', '.join(f'`{name}`' for name in FILE_SOURCES)}"
            continue
        if sources == ["blob_source"] and not file.file_path:
            yield path, "a file by URL needs a `file_path`"
        if sources == ["blob_source"] and file.blob_prefix:
            yield (*path, "blob_prefix"), "a prefix selects blobs of a container; a file by URL has none"


def _file_urls(subject: Subject) -> Found:
    for path, file in resource_files(subject):
        for name in ("blob_source", "storage_container_url"):
            url = getattr(file, name)
            is_completed = "{" in (url or "") and "tasks" in path  # by a factory
            if url and not re.match(r"https?://[^/\s]+", url) and not is_completed:
                yield (*path, name), "this is not an http(s) URL"


def _file_modes(subject: Subject) -> Found:
    for path, file in resource_files(subject):
        if file.file_mode is not None and not re.fullmatch(OCTAL, file.file_mode):
            yield (*path, "file_mode"), f"`{file.file_mode}` is not an octal mode, such as `0755`"


# --- files to bring to storage --------------------------------------------------------------------------------------


def _destination(subject: Subject) -> Found:
    for number, files in enumerate(subject.recipe.resources.files):
        path = (*FILES, number, "destination")
        targets = (files.destination.shared_data_volume, files.destination.storage_account_settings)
        if all(targets):
            yield (*path, "shared_data_volume"), "`storage_account_settings` is set too; keep one of them"
        elif not any(targets) and files.destination.data_transfer.method is None:
            yield path, "add `storage_account_settings`, or a `shared_data_volume` that is in storage"
        if files.destination.storage_account_settings and not files.destination.data_transfer.remote_path:
            yield path, "a storage account needs `data_transfer.remote_path`: the container, then the path in it"


def _absent(subject: Subject) -> Found:
    for number, files in enumerate(subject.recipe.resources.files):
        survey = subject.sources.get(files.source.path)
        if survey is not None and survey.absent:
            yield (
                (*FILES, number, "source", "path"),
                f"{survey.absent} does not exist on this machine; a relative path starts at the directory of this file,"
                " where Batch Shipyard began at the working directory",
            )


_LINKS = "Batch Shipyard: storage account links"
_MOUNT = "azure-batch 15.1, MountConfiguration"
_FILE = "azure-batch 15.1, ResourceFile"

RULES = (
    Rule("storage-link", WARNING, (*SETTINGS, *CREDENTIALS, *ALL), "Storage accounts that are used have credentials.",
         _LINKS, _missing_links),
    Rule("storage-link-unknown", ERROR, (*SETTINGS, *CREDENTIALS, *ALL), "A storage link is listed in the credentials.",
         _LINKS, _unknown_links),
    Rule("volume-unknown", ERROR, (*GLOBAL, *JOBS), "A volume that is used is defined.",
         "Batch Shipyard: volume aliases", _unknown_volumes),
    Rule("checkpoint-volume", ERROR, (*GLOBAL, *POOL, *JOBS), "Checkpoints are on a volume that every node mounts.",
         "azure-batch 15.1, MountConfiguration", _checkpoint_volumes),
    Rule("volume-fields", ERROR, (*GLOBAL, *JOBS), "A volume has what its driver needs.", _MOUNT, _volume_fields),
    Rule("volume-on-host", WARNING, (*GLOBAL, *JOBS), "A `container_path` is used in a container.",
         "docker run --volume", _volumes_on_host),
    Rule("volume-driver", WARNING, GLOBAL, "The file system of a volume is one that Batch can mount.", _MOUNT,
         _volume_driver),
    Rule("volume-gone", ERROR, (*GLOBAL, *POOL, *JOBS), "A command names no path of a volume that is not mounted.",
         "Batch Shipyard: GlusterFS and BeeOND volumes", _volume_gone),
    Rule("volume-limit", ERROR, GLOBAL, f"A node mounts at most {MOST_MOUNTS} file systems.",
         "Azure Batch: virtual-file-mount", _mounts),
    Rule("volume-system", ERROR, (*GLOBAL, *POOL), "The operating system of the nodes can mount a volume.",
         "azure-batch 15.1, AzureBlobFileSystemConfiguration; virtual-file-mount", _windows_mounts),
    Rule("volume-bind-options", ERROR, GLOBAL, "The mount options of a volume are known.",
         "docker run --volume", _bind_options),
    Rule("volume-path", ERROR, (*GLOBAL, *POOL), "The path of a volume in a container is absolute.",
         "docker run --volume", _volume_paths),
    Rule("volumes-meet", ERROR, (*GLOBAL, *JOBS), "The volumes of a container have different paths.",
         "docker run --volume: Duplicate mount point", _volumes_meet),
    Rule("share-login", WARNING, (*GLOBAL, *CREDENTIALS), "A CIFS share has a login.",
         "azure-batch 15.1, CifsMountConfiguration", _share_logins),
    Rule("container-name", ERROR, ALL, "Names of storage containers and shares are valid.",
         "Azure Storage: Naming and referencing containers", _volume_names),
    Rule("resource-file-source", ERROR, BOTH, "A resource file has exactly one source.", _FILE, _file_sources),
    Rule("resource-file-sum", ERROR, BOTH, "The resource files of a task are few enough for its list.",
         "Azure Batch: 413 RequestEntityTooLarge", _file_sums),
    Rule("resource-file-url", ERROR, BOTH, "The URL of a resource file is http or https.", f"{_FILE}.httpUrl",
         _file_urls),
    Rule("file-mode", ERROR, BOTH, "The mode of a file is octal.", f"{_FILE}.fileMode", _file_modes),
    Rule("files-destination", ERROR, GLOBAL, "A file to upload has exactly one destination.",
         "Batch Shipyard: `files[].destination`", _destination),
    Rule("files-absent", WARNING, GLOBAL, "A file to upload exists on this machine.",
         "Batch Shipyard: `files[].source.path`", _absent),
)  # fmt: skip
