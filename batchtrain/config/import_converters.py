"""What carries the values of a request where the language has another shape; see `imported`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from batchtrain.config.templates import Unknown

Document = dict[str, Any]
Path = tuple[str | int, ...]
POOL: Path = ("pool_specification",)
JOB: Path = ("job_specifications", 0)
REASONS: Mapping[str, str] = {
    "applicationpackagereferences": "a recipe brings programs by `source`, an image or `resource_files`",
    "applicationpackages": "a recipe brings programs by `source`, an image or `resource_files`",
    "filegroup": "it is the container fgrp-NAME of the account's storage; read it by `input_data`",
    "certificatereferences": "Azure retired certificates in February 2024; read secrets from Key Vault",
    "certificates": "Azure retired certificates in February 2024; read secrets from Key Vault",
    "cloudserviceconfiguration": "Azure retired Cloud Services in February 2024; choose a `platform_image`",
    "applicationlicenses": "Azure retired application licenses in February 2024",
    "authenticationtokensettings": "Azure retired authentication tokens of tasks in September 2024",
    "targetnodecommunicationmode": "Azure uses simplified node communication for every pool",
    "password": "write it in credentials.yaml",
    "accountkey": "write it as `storage.NAME.account_key` in credentials.yaml",
    "saskey": "write the account's key as `storage.NAME.account_key` in credentials.yaml",
    "sshprivatekey": "write it in credentials.yaml",
}  # fmt: skip
"""Property -> why it is not carried, and what to do."""


class Recipe(Protocol):
    """The sections that grow with each value."""

    sections: Document
    inside: Path
    """The path in the document before those that a converter names."""

    def walk(self, kind: str, root: Path, value: Any, path: Path = ()) -> None: ...

    def put(self, target: Path, value: Any) -> None: ...

    def leave(self, path: Path, reason: str) -> None: ...


Converter = Callable[[Recipe, str, Path, Path, Any], None]


def _place(kind: str, root: Path, path: Path, name: str) -> Path:
    """Where a property of a command stands: of the task, of a special task of the job, or of the pool."""
    block = {"jobmanagertask": "job_manager", "jobpreparationtask": "job_preparation", "jobreleasetask": "job_release"}
    inner = block.get(str(path[0]).lower()) if kind == "job" else None
    return (*root, *([inner] if inner else []), name)


_OURS = ("batchtrain:", "BATCHTRAIN_")
"""How the names begin by which batchtrain knows what it added."""


def _pairs(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    """Names and values as a mapping."""
    name = "metadata" if str(path[-1]).lower() == "metadata" else "environment_variables"
    start = ("additional_node_prep",) if kind == "pool" and name != "metadata" else ()
    target = (*root, *start, name) if start else _place(kind, root, path, name)
    for index, pair in enumerate(value):
        if pair["name"].startswith(_OURS):
            recipe.leave((*path, index), "batchtrain writes it anew for each run")
        elif isinstance(pair.get("value"), Unknown):
            recipe.walk(kind, root, pair["value"], (*path, index, "value"))
        else:
            recipe.put((*target, pair["name"]), pair.get("value", ""))


FILE_NAMES: Mapping[str, str] = {
    "httpurl": "blob_source", "blobsource": "blob_source", "storagecontainerurl": "storage_container_url",
    "autostoragecontainername": "auto_storage_container_name", "blobprefix": "blob_prefix", "filepath": "file_path",
    "filemode": "file_mode",
}  # fmt: skip


def _files(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    is_common = str(path[-1]).lower() == "commonresourcefiles"
    target = (*root, "multi_instance", "resource_files") if is_common else _place(kind, root, path, "resource_files")
    for index, file in enumerate(value):
        for name, item in file.items():
            if name.lower() == "identityreference" and not isinstance(item, Unknown):
                recipe.put((*target, index, "identity"), item.get("resourceId", ""))
            elif name.lower() in FILE_NAMES and not isinstance(item, Unknown):
                address, _, query = str(item).partition("?")
                recipe.put((*target, index, FILE_NAMES[name.lower()]), address if "sig=" in query else item)
                if "sig=" in query:
                    recipe.leave((*path, index, name), "its signature is a secret; read the container by `input_data`")
            else:
                recipe.walk(kind, root, item, (*path, index, name))


def _outputs(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    """Uploads to a container: its link is signed anew for each run."""
    target = _place(kind, root, path, "output_data")
    for index, file in enumerate(value):
        at, container = (*target, "azure_storage", index), file.get("destination", {}).get("container", {})
        url = container.get("containerUrl", "")
        if isinstance(url, Unknown) or not urlsplit(url).netloc:
            recipe.leave((*path, index, "destination"), "it needs the URL of a container")
            continue
        link, name = _container(url)
        recipe.put((*at, "storage_account_settings"), link)
        recipe.put((*at, "remote_path"), "/".join(filter(None, (name, container.get("path", "")))))
        recipe.put((*at, "include"), [file.get("filePattern", "**/*")])
        if identity := container.get("identityReference"):
            recipe.put((*at, "identity"), identity["resourceId"])
        for header in container.get("uploadHeaders") or ():
            recipe.put((*at, "upload_headers", header["name"]), header.get("value", ""))
        recipe.put((*at, "condition"), file.get("uploadOptions", {}).get("uploadCondition", "tasksuccess"))
        if urlsplit(url).query:
            where = (*path, index, "destination", "container", "containerUrl")
            recipe.leave(where, f"batchtrain signs its own links; write `storage.{link}` in credentials.yaml")


def _container(url: str) -> tuple[str, str]:
    """The storage account and the container of a URL."""
    parts = urlsplit(url)
    return re.sub(r"[^A-Za-z0-9]", "", parts.netloc.partition(".")[0]), parts.path.strip("/")


def _identity(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    user = {name.lower(): item for name, item in value.items()}
    auto = user.get("autouser") or {}
    if kind == "pool":
        if str(auto.get("elevationLevel", "")).lower() != "admin":
            recipe.leave(path, "the shell of `additional_node_prep` runs the command as root")
        return
    target = _place(kind, root, path, "user_identity")
    if user.get("username"):
        recipe.put((*target, "username"), user["username"])
    for name, word in (("scope", "scope"), ("elevationLevel", "elevation_level")):
        if auto.get(name) is not None:
            recipe.put((*target, "auto_user", word), auto[name])


def _run_options(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    try:
        recipe.put(_place(kind, root, path, "additional_docker_run_options"), shlex.split(value))
    except ValueError as error:
        recipe.leave(path, f"its words cannot be told apart ({error})")


def _dependencies(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    recipe.put((*root, "depends_on"), [str(task_id) for task_id in value.get("taskIds") or ()])
    spans = value.get("taskIdRanges") or []
    if spans:
        recipe.put((*root, "depends_on_range"), [spans[0]["start"], spans[0]["end"]])
    for index in range(1, len(spans)):
        recipe.leave((*path, "taskIdRanges", index), "a task of a recipe has one range; list the ids in `depends_on`")


def _conditions(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    """Exit conditions, whose options are a mapping of their own in the language."""
    names = {"exitCodes": "exit_codes", "exitCodeRanges": "exit_code_ranges", "default": "default",
             "preProcessingError": "pre_processing_error", "fileUploadError": "file_upload_error"}  # fmt: skip
    for name, condition in value.items():
        target = (*root, "exit_conditions", names.get(name, name))
        for index, item in enumerate(condition if isinstance(condition, list) else [condition]):
            at = (*target, index) if isinstance(condition, list) else target
            for word in ("code", "start", "end"):
                if word in item:
                    recipe.put((*at, word), item[word])
            for action, word in (("jobAction", "job_action"), ("dependencyAction", "dependency_action")):
                if action in item.get("exitOptions", item):
                    recipe.put((*at, "exit_options", word), item.get("exitOptions", item)[action])


def _directory(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    is_image = str(value).lower() == "containerimagedefault"
    recipe.put(_place(kind, root, path, "default_working_dir"), "container" if is_image else "batch")


def _completion(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    recipe.put((*root, "auto_complete"), str(value).lower() == "terminatejob")


def _pool_info(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    pool, auto = recipe.sections.get("pool_specification", {}), value.get("autoPoolSpecification")
    if auto is None:
        if pool and pool.get("id") != value.get("poolId"):
            recipe.leave((*path, "poolId"), f"the job of a recipe runs in its own pool, {pool.get('id')}")
        return
    recipe.put((*root, "auto_pool", "pool_lifetime"), auto.get("poolLifetimeOption", "job"))
    if "keepAlive" in auto:
        recipe.put((*root, "auto_pool", "keep_alive"), auto["keepAlive"])
    if pool:
        recipe.leave((*path, "autoPoolSpecification", "pool"), f"the pool of the recipe is {pool.get('id')}")
    else:
        recipe.inside = (*path, "autoPoolSpecification", "pool")
        recipe.walk("pool", POOL, {"id": auto.get("autoPoolIdPrefix") or "auto", **auto.get("pool", {})})
        recipe.inside = ()


IMAGES = {"virtualmachineimageid": ("custom_image", "arm_image_id"), "id": ("custom_image", "arm_image_id"),
          "sharedgalleryimageid": ("shared_gallery_image", "id"),
          "communitygalleryimageid": ("community_gallery_image", "id")}  # fmt: skip


def _machine(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    """The image with its agent and containers, which are one mapping of the language; then all others."""
    machine = {name.lower(): item for name, item in value.items()}
    image = {name.lower(): item for name, item in machine.pop("imagereference", {}).items() if item is not None}
    block, ids = "platform_image", [name for name in IMAGES if name in image]
    at: Path = (*root, "vm_configuration")
    if ids:
        block, word = IMAGES[ids[0]]
        image = {word: image[ids[0]]}
    image.pop("exactversion", None)
    image |= {"license_type": machine.pop("licensetype", None), "node_agent": machine.pop("nodeagentskuid", None)}
    for name, item in image.items():
        if isinstance(item, Unknown):
            recipe.walk(kind, root, item, (*path, "imageReference", name))
        elif item is not None:
            recipe.put((*at, block, name), item)
    containers = machine.pop("containerconfiguration", None) or {}
    recipe.put((*at, block, "native"), bool(containers))
    for index, name in enumerate(containers.get("containerImageNames") or ()):
        if isinstance(name, Unknown):
            recipe.walk(kind, root, name, (*path, "containerConfiguration", "containerImageNames", index))
        else:
            recipe.sections.setdefault("global_resources", {}).setdefault("docker_images", []).append(name)
    for index, registry in enumerate(containers.get("containerRegistries") or ()):
        server = registry.get("registryServer", "docker.io")
        recipe.sections.setdefault("global_resources", {}).setdefault("additional_registries", {}).setdefault(
            "docker", []
        ).append(server)
        where = (*path, "containerConfiguration", "containerRegistries", index)
        recipe.leave(where, f"write its login as `docker_registry.{server}` in credentials.yaml")
    names_as_given = {name.lower(): name for name in value}
    for name, item in machine.items():
        recipe.walk(kind, root, item, (*path, names_as_given[name]))


MOUNTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "azureblobfilesystemconfiguration": ("azureblob", {
        "accountName": "storage_account_settings", "containerName": "azure_blob_container_name"}),
    "azurefileshareconfiguration": ("azurefile", {"accountName": "storage_account_settings"}),
    "nfsmountconfiguration": ("nfs", {"source": "source"}),
    "cifsmountconfiguration": ("cifs", {"source": "source"}),
}  # fmt: skip
"""Kind of a mount -> the driver of the volume, and its properties."""


def _mounts(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    for index, mount in enumerate(value):
        (name, settings), *_ = [(name, item) for name, item in mount.items() if item]
        driver, names = MOUNTS[name.lower()]
        alias = re.sub(r"[^A-Za-z0-9_-]", "_", settings.get("relativeMountPath", f"volume{index}"))
        at: Path = ("global_resources", "volumes", "shared_data_volumes", alias)
        recipe.put((*at, "volume_driver"), driver)
        for property_name, word in names.items():
            recipe.put((*at, word), settings.get(property_name, ""))
        if driver == "azurefile":
            recipe.put((*at, "azure_file_share_name"), _container(settings.get("azureFileUrl", ""))[1])
        if identity := settings.get("identityReference"):
            recipe.put((*at, "identity"), identity["resourceId"])
            _identities(recipe, kind, root, (*path, index), [identity["resourceId"]])
        if options := settings.get("blobfuseOptions"):
            recipe.put((*at, "mount_options"), [options])
        elif options := settings.get("mountOptions"):
            recipe.put((*at, "mount_options"), _mount_options(options))
        for secret in ("accountKey", "sasKey", "password", "username", "userName"):
            if settings.get(secret):
                where = (*path, index, name, secret)
                reason = REASONS.get(secret.lower(), f"write it as `shares.{alias}.username` in credentials.yaml")
                recipe.leave(where, reason.replace("NAME", settings.get("accountName", alias)))


def _mount_options(text: str) -> list[str]:
    """The values behind `-o`, and switches as they are."""
    words = text.split()
    options: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if word != "-o":
            options += word.split(",") if before == "-o" else [word]
    return options


def _identities(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    """Identities of the nodes, to which those that they use belong."""
    resource_ids = list(recipe.sections.get(str(root[0]), {}).get("identities", ()))
    for index, resource_id in enumerate(value):
        if isinstance(resource_id, Unknown):
            recipe.walk(kind, root, resource_id, (*path, index))
        elif resource_id not in resource_ids:
            resource_ids.append(resource_id)
    if resource_ids:
        recipe.put((*root, "identities"), resource_ids)


def _start(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    """The command of a start task, as a line of the shell that prepares nodes."""
    recipe.put((*root, "additional_node_prep", "commands", "pre"), [value])


def _ports(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    """NAT pools, whose two ends of a range are one pair of the language."""
    for index, nat_pool in enumerate(value):
        ends = {name: nat_pool.get(name) for name in ("frontendPortRangeStart", "frontendPortRangeEnd")}
        recipe.put((*root, "network", "inbound_nat_pools", index, "frontend_port_range"), list(ends.values()))
        for name, item in nat_pool.items():
            if name not in ends:
                recipe.walk(kind, root, item, (*path, index, name))


def _elevated(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    """`runElevated`, from before 2017."""
    if kind != "pool" and value:
        recipe.put((*_place(kind, root, path, "user_identity"), "auto_user", "elevation_level"), "admin")


def _communication(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    enabled = str(value).lower() in ("enabled", "true")
    recipe.put((*root, "inter_node_communication_enabled"), enabled)


def _factory(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    """The tasks of a template of `az batch`: a list, or one command for each number."""
    if merge := value.get("mergeTask"):
        recipe.leave((*path, "mergeTask"), f"write it as `merge_task` of the job: {merge.get('commandLine', '')}")
    factory, first = str(value["type"]).lower(), len(recipe.sections["job_specifications"][0].get("tasks", ()))
    if factory == "taskcollection":
        for number, task in enumerate(value["tasks"]):
            recipe.inside = (*path, "tasks", number)
            recipe.walk("task", (*root, "tasks", first + number), task)
    elif factory == "parametricsweep":
        steps = [_steps(numbers) for numbers in value["parameterSets"]]
        recipe.put((*root, "tasks", first, "task_factory", "parametric_sweep", "product"), steps)
        recipe.inside = (*path, "repeatTask")
        recipe.walk("task", (*root, "tasks", first), value["repeatTask"])
    else:
        recipe.leave(path, "write a `task_factory` with `file`, which makes a task of each file of a container")
    recipe.inside = ()


def _steps(numbers: Document) -> Document:
    """A range whose end is one of its values, as one that ends before."""
    step = int(numbers.get("step", 1))
    return {"start": int(numbers["start"]), "stop": int(numbers["end"]) + (1 if step > 0 else -1), "step": step}


def _registry(recipe: Recipe, kind: str, root: Path, path: Path, value: Any) -> None:
    server = value.get("registryServer", "docker.io")
    recipe.put((*root, "container_registry"), server)
    recipe.leave(path, f"write its login as `docker_registry.{server}` in credentials.yaml")


CONVERTERS: Mapping[str, Converter] = {
    "metadata": _pairs,
    "environmentsettings": _pairs,
    "commonenvironmentsettings": _pairs,
    "resourcefiles": _files,
    "commonresourcefiles": _files,
    "outputfiles": _outputs,
    "useridentity": _identity,
    "containerrunoptions": _run_options,
    "dependson": _dependencies,
    "exitconditions": _conditions,
    "onalltaskscomplete": _completion,
    "workingdirectory": _directory,
    "poolinfo": _pool_info,
    "virtualmachineconfiguration": _machine,
    "mountconfiguration": _mounts,
    "starttask.commandline": _start,
    "inboundnatpools": _ports,
    "registry": _registry,
    "runelevated": _elevated,
    "internodecommunication": _communication,
    "taskfactory": _factory,
    "maxtaskspernode": lambda recipe, kind, root, path, value: recipe.put((*root, "task_slots_per_node"), value),
    "targetdedicated": lambda recipe, kind, root, path, value: recipe.put((*root, "vm_count", "dedicated"), value),
    "identities": _identities,
}
"""Name of a property of a request, or its path -> what carries it where the language has another shape."""
