"""Every property that the SDK's models can send, each with a documented value: found by looking into the models.

A case is a request body in which one property is set beside the least that the request needs.
"""

from __future__ import annotations

import copy
import datetime
import enum
import functools
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from azure.batch import models
from azure.batch._utils.model_base import Model

from batchtrain.emulator.routes import ROUTES
from tests import judge
from tests.emulation import POOL

Body = dict[str, Any]

RESOURCE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
MODELS: Mapping[str, str] = {
    "BatchTaskReplaceOptions": "BatchTask",
    "BatchJobReplaceOptions": "BatchJob",
    "BatchJobScheduleReplaceOptions": "BatchJobSchedule",
}
"""The SDK's name of a body's model, where it is that of the answer."""
PRIVATE = (
    "BatchJobTerminateOptions",
    "BatchNodeDeallocateOptions",
    "BatchNodeRebootOptions",
    "BatchNodeReimageOptions",
)
"""Models that the SDK keeps to itself."""

TEXTS: Mapping[str, str] = {
    "commandLine": "exit 0",
    "coordinationCommandLine": "exit 0",
    "autoScaleFormula": "$TargetDedicatedNodes = 0;",
    "httpUrl": "http://127.0.0.1:1/file?sig=s",
    "storageContainerUrl": "http://127.0.0.1:1/container?sig=s",
    "containerUrl": "http://127.0.0.1:1/container?sig=s",
    "azureFileUrl": "https://account.file.core.windows.net/share",
    "fileMode": "0770",
    "filePattern": "*.txt",
    "relativeMountPath": "data",
    "applicationId": "app",
    "affinityId": "TVM:tvmps_1_d",
    "sourceAddressPrefix": "*",
    "vmSize": "standard_d2_v3",
    "virtualMachineImageId": f"{RESOURCE}/galleries/g/images/i",
    "ipAddressIds": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/a",
    "sharedGalleryImageId": "/sharedGalleries/g/images/i/versions/1.0.0",
    "communityGalleryImageId": "/communityGalleries/g/images/i/versions/1.0.0",
    "subnetId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s",
    "keyUrl": "https://vault.vault.azure.net/keys/key/version",
    "autoPoolIdPrefix": "auto",
    "publisher": "microsoft-dsvm",
    "offer": "ubuntu-hpc",
    "sku": "2204",
    "nodeAgentSKUId": "batch.node.ubuntu 22.04",
    "username": "ann",
    "inVMAccessControlProfileReferenceId": f"{RESOURCE}/galleries/g/inVMAccessControlProfiles/p/versions/1",
    "resourceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i",
}
NUMBERS: Mapping[str, int] = {
    "backendPort": 8080,
    "frontendPortRangeStart": 20000,
    "frontendPortRangeEnd": 20100,
    "diskSizeGB": 64,
    "priority": 200,
    "uid": 2000,
    "gid": 2000,
    "maxBatchInstancePercent": 20,
    "maxUnhealthyInstancePercent": 20,
    "maxUnhealthyUpgradedInstancePercent": 20,
}
"""Documented values of properties that take no other; 1 for other numbers."""
CHOICES: Mapping[tuple[str, str], str] = {
    ("ServiceArtifactReference", "id"): f"{RESOURCE}/galleries/g/serviceArtifacts/a/vmArtifactsProfiles/p",
    ("DiskEncryptionSetParameters", "id"): f"{RESOURCE}/diskEncryptionSets/s",
    ("BatchAutoPoolSpecification", "poolLifetimeOption"): "job",
    ("BatchJobCreateOptions", "onTaskFailure"): "performexitoptionsjobaction",
}
"""Values where the first of an enum cannot stand alone, or is the default; and ids of resources."""
ON_WINDOWS: Body = {
    "imageReference": {"publisher": "microsoftwindowsserver", "offer": "windowsserver", "sku": "2022-datacenter"},
    "nodeAgentSKUId": "batch.node.windows amd64",
}
NO_FILE: Body = {"httpUrl": None, "filePath": None}
BESIDE: Mapping[tuple[str, str], Body] = {
    ("VirtualMachineConfiguration", "windowsConfiguration"): ON_WINDOWS,
    ("BatchPoolCreateOptions", "autoScaleFormula"): {"enableAutoScale": True},
    ("BatchPoolCreateOptions", "enableAutoScale"): {"autoScaleFormula": "$TargetDedicatedNodes = 0;"},
    ("BatchPoolCreateOptions", "autoScaleEvaluationInterval"): {
        "enableAutoScale": True,
        "autoScaleFormula": "$TargetDedicatedNodes = 0;",
    },
    ("BatchPoolEnableAutoScaleOptions", "autoScaleEvaluationInterval"): {
        "autoScaleFormula": "$TargetDedicatedNodes = 0;"
    },
    ("BatchPoolResizeOptions", "resizeTimeout"): {"targetDedicatedNodes": 0},
    ("BatchPoolResizeOptions", "nodeDeallocationOption"): {"targetDedicatedNodes": 0},
    ("ResourceFile", "storageContainerUrl"): NO_FILE,
    ("ResourceFile", "autoStorageContainerName"): NO_FILE,
    ("ResourceFile", "blobPrefix"): {**NO_FILE, "storageContainerUrl": TEXTS["storageContainerUrl"]},
    ("MountConfiguration", "azureBlobFileSystemConfiguration"): {"nfsMountConfiguration": None},
    ("MountConfiguration", "cifsMountConfiguration"): {"nfsMountConfiguration": None},
    ("MountConfiguration", "azureFileShareConfiguration"): {"nfsMountConfiguration": None},
    ("LinuxUserConfiguration", "uid"): {"gid": 2000},
    ("LinuxUserConfiguration", "gid"): {"uid": 2000},
    ("BatchTaskDependencies", "taskIdRanges"): {"taskIds": ["1"]},
    ("BatchPoolInfo", "poolId"): {"poolId": "pool"},
    ("AzureBlobFileSystemConfiguration", "sasKey"): {"accountKey": None},
    ("AzureBlobFileSystemConfiguration", "identityReference"): {"accountKey": None},
    ("BatchPoolInfo", "autoPoolSpecification"): {"poolId": None},
    ("DiskEncryptionConfiguration", "customerManagedKey"): {"targets": ["osdisk"]},
    ("SecurityProfile", "uefiSettings"): {"securityType": "trustedLaunch"},
    ("UserIdentity", "username"): {"autoUser": None},
    ("BatchPublicIpAddressConfiguration", "ipAddressIds"): {"provision": "usermanaged"},
    ("BatchVmImageReference", "virtualMachineImageId"): {"publisher": None, "offer": None, "sku": None},
    ("BatchVmImageReference", "sharedGalleryImageId"): {"publisher": None, "offer": None, "sku": None},
    ("BatchVmImageReference", "communityGalleryImageId"): {"publisher": None, "offer": None, "sku": None},
}
"""What goes with a property in its own object; None takes away."""
SAME: Mapping[str, str] = {"BatchPoolSpecification": "BatchPoolCreateOptions"}
"""Models whose properties go with others as those of another model do."""
AUTO_POOL: Body = {name: value for name, value in POOL.items() if name != "id"}
LEAST: Mapping[str, Body] = {
    "BatchPoolCreateOptions": POOL,
    "BatchPoolSpecification": AUTO_POOL,
    "VirtualMachineConfiguration": POOL["virtualMachineConfiguration"],  # type: ignore[dict-item]
    "BatchVmImageReference": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"},
    "BatchPoolInfo": {"poolId": "pool"},
    "ResourceFile": {"httpUrl": TEXTS["httpUrl"], "filePath": "file"},
    "MountConfiguration": {"nfsMountConfiguration": {"source": "nfs", "relativeMountPath": "data"}},
    "BatchNodeIdentityReference": {"resourceId": TEXTS["resourceId"]},
    "BatchAutoPoolSpecification": {"poolLifetimeOption": "job", "pool": AUTO_POOL},
    "AzureBlobFileSystemConfiguration": {
        "accountName": "a",
        "containerName": "c",
        "relativeMountPath": "data",
        "accountKey": "a2V5",
    },
    "OutputFileDestination": {"container": {"containerUrl": TEXTS["containerUrl"]}},
    "UserIdentity": {"autoUser": {}},
    "LinuxUserConfiguration": {},
    "BatchVmDiskSecurityProfile": {"securityEncryptionType": "VMGuestStateOnly"},
    "ExitOptions": {},
    "BatchTaskDependencies": {},
}
"""The least that an object needs where the models do not say so."""
FURTHER_UP: Mapping[str, Body] = {
    "startTask/userIdentity/username": {"userAccounts": [{"name": "ann", "password": "p"}]},
    "userAccounts/windowsUserConfiguration": {"virtualMachineConfiguration": ON_WINDOWS},
    "osDisk/managedDisk/securityProfile": {"securityProfile": {"securityType": "confidentialvm"}},
    "upgradePolicy/rollingUpgradePolicy/enableCrossZoneUpgrade": {
        "virtualMachineConfiguration": {
            **POOL["virtualMachineConfiguration"],  # type: ignore[dict-item]
            "nodePlacementConfiguration": {"policy": "zonal"},
        }
    },
    "jobReleaseTask": {"jobPreparationTask": {"commandLine": "exit 0"}},
}
"""What goes with the properties below a path, beside its first step."""


class Case(NamedTuple):
    """One property of one request."""

    operation: str
    model: str
    name: str
    path: tuple[str, ...]
    body: Body

    def __str__(self) -> str:
        return f"{self.operation} {'/'.join(self.path)}"


def cases() -> Iterator[Case]:
    """Every property of every operation with a body, at every depth."""
    for route in ROUTES:
        if route.body:
            root = sdk_model(route.body)
            for path, owner in paths(root, ()):
                yield Case(route.name, owner.__name__, path[-1], path, body(root, path))


def sdk_model(name: str) -> type[Model]:
    """The SDK's model of a request body."""
    home = models._models if name in PRIVATE else models
    return typing.cast(type[Model], getattr(home, MODELS.get(name, name)))


@functools.cache
def writable(model: type[Model]) -> dict[str, Any]:
    """The properties that a client can send, and the type of each."""
    shown = {value._rest_name_input or name for name, value in vars_of(model) if value._visibility == ["read"]}
    return {name: hint for name, hint in judge.fields(model).items() if name not in shown}


def vars_of(model: type[Model]) -> Iterator[tuple[str, Any]]:
    for parent in model.__mro__:
        yield from ((name, value) for name, value in vars(parent).items() if hasattr(value, "_rest_name_input"))


def paths(model: type[Model], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], type[Model]]]:
    """Each property below a model by its path, with the model that has it."""
    for name, hint in writable(model).items():
        yield (*above, name), model
        for inner in judge.models_in(hint):
            yield from paths(inner, (*above, name))


def body(root: type[Model], path: tuple[str, ...]) -> Body:
    """The least request with the property at a path."""
    whole = here = least(root)
    model = root
    for step in path[:-1]:
        hint = writable(model)[step]
        (inner,) = judge.models_in(hint)
        below = here.get(step)
        if below is None or below == []:
            below = here[step] = [least(inner)] if is_list(hint) else least(inner)
        _add(here, beside(model, step))
        here, model = (below[0] if isinstance(below, list) else below), inner
    here[path[-1]] = value(writable(model)[path[-1]], model.__name__, path[-1])
    _add(here, beside(model, path[-1]))
    for start, more in FURTHER_UP.items():
        if f"{start}/" in f"{'/'.join(path)}/":
            _add_above(root, whole, path, start.split("/")[0], more)
    return whole


def beside(model: type[Model], name: str) -> Body:
    return BESIDE.get((SAME.get(model.__name__, model.__name__), name), {})


def _add(document: Body, more: Body) -> None:
    for name, item in copy.deepcopy(more).items():
        if item is None:
            document.pop(name, None)
        else:
            document[name] = item


def _add_above(model: type[Model], document: Any, path: tuple[str, ...], first: str, more: Body) -> None:
    """Add to the object that has `first` what its model knows."""
    for step in path:
        if step == first:
            _add(document, {name: item for name, item in more.items() if name in writable(model)})
            return
        document = document[step][0] if isinstance(document[step], list) else document[step]
        (model,) = judge.models_in(writable(model)[step])


def least(model: type[Model]) -> Body:
    """An object with what it must have."""
    if model.__name__ in LEAST:
        return copy.deepcopy(LEAST[model.__name__])
    hints = writable(model)
    return {name: value(hints[name], model.__name__, name) for name in sorted(judge.required(model) & hints.keys())}


def is_list(hint: Any) -> bool:
    return typing.get_origin(hint) is list or any(is_list(part) for part in typing.get_args(hint))


def value(hint: Any, model: str, name: str) -> Any:
    """A documented value of a property."""
    if is_list(hint):
        item = next(part for part in _parts(hint) if typing.get_origin(part) is list)
        return [value(typing.get_args(item)[0], model, name)]
    if inner := judge.models_in(hint):
        return least(inner[0])
    kinds = _parts(hint)
    if (model, name) in CHOICES:
        return CHOICES[model, name]
    if enums := [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, enum.Enum)]:
        return next(iter(enums[0])).value
    return _scalar(kinds, name)


def _scalar(kinds: list[Any], name: str) -> Any:
    if bool in kinds:
        return True
    if int in kinds:
        return NUMBERS.get(name, 1)
    if datetime.timedelta in kinds:
        return "PT10M"
    if datetime.datetime in kinds:
        return "2990-01-01T00:00:00Z"
    if str in kinds:
        return TEXTS.get(name, "1")
    return {"a": "b"}


def _parts(hint: Any) -> list[Any]:
    args = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) in (list, dict) or not args:
        return [hint]
    return [part for arg in args for part in _parts(arg)]
