"""Fields of the service's create requests that no property says, and why; a test holds them against the SDK's models.

Written into the reference, so that nobody looks for a property that is not there.
"""

from __future__ import annotations

from typing import NamedTuple


class LeftOut(NamedTuple):
    """Fields, from the request's name down (`*` is one step; what is below belongs to it), and what stands for them."""

    fields: tuple[str, ...]
    reason: str


_OF_A_JOB = ("job.jobManagerTask", "job.jobPreparationTask", "job.jobReleaseTask")
_MACHINE = "pool.virtualMachineConfiguration"

LEFT_OUT = (
    LeftOut(
        (f"{_MACHINE}.extensions.protectedSettings",),
        "Their values are secrets, and a plan holds none: let the extension sign in with an identity of the pool, or"
        " read a Key Vault.",
    ),
    LeftOut(
        (f"{_MACHINE}.dataDisks.managedDisk.securityProfile",),
        "What is encrypted on a confidential VM is its system's disk: `os_disk.security_encryption`.",
    ),
    LeftOut((f"{_MACHINE}.imageReference.exactVersion",), "The service's answer, which it takes from nobody."),
    LeftOut(
        ("pool.startTask.containerSettings", "pool.startTask.userIdentity"),
        "What prepares a node installs and mounts, so it runs on the host, as the administrator.",
    ),
    LeftOut(
        tuple(f"{task}.containerSettings.registry" for task in _OF_A_JOB),
        "The image's server is signed in to with the pool's registries (`docker_registry` in credentials.yaml).",
    ),
    LeftOut(
        tuple(
            f"{task}.containerSettings.{name}"
            for task in _OF_A_JOB
            for name in ("workingDirectory", "containerHostBatchBindMounts")
        ),
        "The command starts in the task's working directory, and sees every directory of Batch's on the node.",
    ),
    LeftOut(
        ("job.jobPreparationTask.id", "job.jobReleaseTask.id"),
        "The service calls them `jobpreparation` and `jobrelease`.",
    ),
    LeftOut(("job.poolInfo.poolId",), "The `id` in pool.yaml."),
    LeftOut(("job.poolInfo.autoPoolSpecification.autoPoolIdPrefix",), "The beginning of the `id` in pool.yaml."),
    LeftOut(("pool.enableAutoScale",), "True where `autoscale` has a formula or a scenario."),
    LeftOut(
        ("pool.networkConfiguration.endpointConfiguration.inboundNATPools.frontendPortRangeEnd",),
        "The second number of `frontend_port_range`.",
    ),
    LeftOut(("node user.isAdmin",), "A login may become root, as Batch Shipyard's could."),
)
