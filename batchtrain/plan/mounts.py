"""From shared volumes to the file systems that Batch mounts on each node; the start task mounts all others."""

from __future__ import annotations

from batchtrain.config.types import GONE_DRIVERS, Recipe, SharedDataVolume
from batchtrain.errors import PlanError
from batchtrain.launchers.preparation import Fstab
from batchtrain.plan import inputs, wire

ROOT = "$AZ_BATCH_NODE_MOUNTS_DIR"
_OLDER_OPTIONS = {"filemode": "file_mode", "dirmode": "dir_mode"}
_SECRET_OPTIONS = ("username", "user", "password", "pass")


def host_path(alias: str, volume: SharedDataVolume) -> str:
    """Where a volume is on each node, with a variable of Batch in it; empty for one that is not mounted."""
    return "" if volume.volume_driver in GONE_DRIVERS else f"{ROOT}/{alias}"


def mounts(recipe: Recipe) -> tuple[tuple[wire.Mount, ...], tuple[Fstab, ...]]:
    """Every shared volume of config.yaml, each at its alias: what Batch mounts, and what the start task does.

    Raises PlanError for a volume that lacks its source.
    """
    by_batch, by_start_task = [], []
    for alias, volume in recipe.resources.volumes.shared_data_volumes.items():
        if volume.volume_driver in GONE_DRIVERS:
            continue
        entry = volume.fstab_entry
        if entry is not None and not volume.batch_driver:
            line = Fstab(alias, entry.fs_spec, entry.fs_vfstype, entry.fs_mntops, entry.fs_freq, entry.fs_passno)
            by_start_task.append(line)
        else:
            by_batch.append(_mount(recipe, alias, volume))
    return tuple(by_batch), tuple(by_start_task)


def _mount(recipe: Recipe, alias: str, volume: SharedDataVolume) -> wire.Mount:
    match volume.volume_driver:
        case "azureblob":
            return wire.Mount(azure_blob_file_system_configuration=_blob(recipe, alias, volume))
        case "azurefile":
            return wire.Mount(azure_file_share_configuration=_share(recipe, alias, volume))
        case "nfs":
            return _nfs(alias, _needed(alias, volume.source, "source"), volume.mount_options)
        case "cifs":
            return _cifs(recipe, alias, _needed(alias, volume.source, "source"), volume.mount_options)
    entry = volume.fstab_entry
    if entry is None:
        raise PlanError(f"the volume `{alias}` (custom_linux_mount) has no `fstab_entry`")
    options = tuple(part for part in entry.fs_mntops.split(",") if part and part != "defaults")
    if volume.batch_driver == "cifs":
        return _cifs(recipe, alias, entry.fs_spec, options)
    has_version = any(option.startswith(("vers=", "nfsvers=")) for option in options)
    older = {"nfs3": ("vers=3",), "nfs4": ("vers=4",)}.get(entry.fs_vfstype, ())
    return _nfs(alias, entry.fs_spec, options if has_version else options + older)


def _blob(recipe: Recipe, alias: str, volume: SharedDataVolume) -> wire.BlobMount:
    link = _needed(alias, volume.storage_account_settings, "storage_account_settings")
    return wire.BlobMount(
        account_name=_account(recipe, link),
        container_name=_needed(alias, volume.azure_blob_container_name, "azure_blob_container_name"),
        relative_mount_path=alias,
        account_key=None if volume.identity else wire.later("storage", f"{link}:key"),
        blobfuse_options=" ".join(volume.mount_options) or None,
        identity_reference=inputs.identity(volume.identity),
    )


def _share(recipe: Recipe, alias: str, volume: SharedDataVolume) -> wire.FileShareMount:
    link = _needed(alias, volume.storage_account_settings, "storage_account_settings")
    share = _needed(alias, volume.azure_file_share_name, "azure_file_share_name")
    account = recipe.credentials.storage.get(link)
    open_url = wire.Template(wire.Placeholder("storage", f"{link}:files"), f"/{share}")
    url = open_url if account is None else f"{account.files_url}/{share}"
    return wire.FileShareMount(
        account_name=_account(recipe, link),
        account_key=wire.later("storage", f"{link}:key"),
        azure_file_url=url,
        relative_mount_path=alias,
        mount_options=mount_options(tuple(map(_file_option, volume.mount_options))),
    )


def _file_option(option: str) -> str:
    """An option of mount.cifs; the Docker driver of Batch Shipyard 2 called two of them by other names."""
    name, equals, value = option.partition("=")
    return f"{_OLDER_OPTIONS.get(name, name)}{equals}{value}"


def _nfs(alias: str, source: str, options: tuple[str, ...]) -> wire.Mount:
    mount = wire.NfsMount(source=source, relative_mount_path=alias, mount_options=mount_options(options))
    return wire.Mount(nfs_mount_configuration=mount)


def _cifs(recipe: Recipe, alias: str, source: str, options: tuple[str, ...]) -> wire.Mount:
    login = recipe.credentials.shares.get(alias)
    values = dict(option.split("=", 1) for option in options if "=" in option)
    user = (login.username if login else None) or values.get("username") or values.get("user")
    public_options = tuple(option for option in options if option.split("=", 1)[0] not in _SECRET_OPTIONS)
    mount = wire.CifsMount(
        username=user or wire.later("share", f"{alias}:username"),
        source=source,
        relative_mount_path=alias,
        password=wire.later("share", f"{alias}:password"),
        mount_options=mount_options(public_options),
    )
    return wire.Mount(cifs_mount_configuration=mount)


def mount_options(options: tuple[str, ...]) -> str | None:
    """Options as the mount command takes them: names and values behind one `-o`, switches as they are."""
    switches = [option for option in options if option.startswith("-")]
    values = [option for option in options if not option.startswith("-")]
    return " ".join((*switches, *(("-o", ",".join(values)) if values else ()))) or None


def _account(recipe: Recipe, link: str) -> wire.Text:
    entry = recipe.credentials.storage.get(link)
    return entry.account if entry else wire.later("storage", f"{link}:account")


def _needed(alias: str, value: str | None, name: str) -> str:
    if not value:
        raise PlanError(f"the volume `{alias}` needs `{name}`")
    return value
