"""Checkpoints and preemption."""

from __future__ import annotations

from batchtrain.verify.probe import Area, Probe, by_hand
from batchtrain.verify.reasons import NO_METADATA, NO_PREEMPTION, NO_VOLUME, NO_VOLUME_POOL

PROBES = (
    by_hand("volume-directory", "The user of a task (`pool`, `nonadmin`) may create directories on a mounted volume",
        "documentation of virtual file mounts", "`mkdir $AZ_BATCH_NODE_MOUNTS_DIR/ALIAS/x` as a task, for each driver",
        code="batchtrain/plan/mounts.py", why=NO_VOLUME_POOL, not_local=NO_VOLUME),
    by_hand("volume-visible",
        "A file that another node wrote is visible before the manifest is written. `--attr-timeout=0 "
        "--entry-timeout=0` in `mount_options` may be needed with blobfuse", "blobfuse2's documentation",
        "the recipe PyTorch-Language-Model with an `azureblob` volume",
        code="batchtrain/runtime/batchtrain_checkpoint.py", why=NO_VOLUME_POOL, not_local=NO_VOLUME),
    by_hand("volume-rename",
        "A mounted volume renames a directory, and appends a line to a file that another node wrote "
        "(`lineage.jsonl`). Without that, checkpoints of versions before 2026-11 are not found, or a run does not say "
        "what it continues", "documentation of Azure Files and blobfuse2",
        "two runs of the recipe PyTorch-Language-Model with each driver; the second says `continues from`",
        code="batchtrain/runtime/batchtrain_lineage.py", why=NO_VOLUME_POOL, not_local=NO_VOLUME),
    Probe("metadata",
        "A Batch node answers `http://169.254.169.254/metadata/scheduledevents` and `/metadata/instance/compute/name`",
        "documentation (scheduled events of Linux VMs)",
        "`curl -H Metadata:true 'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01'` on a spot "
        "node",
        "admin/nodes/metadata", lambda value: value["events"] is True and bool(value["name"]),
        right={"events": True, "name": "azbatch-1_0"}, wrong={"events": False, "name": "azbatch-1_0"},
        unread={"unread": "HTTPError: HTTP Error 403: Forbidden"}, code="batchtrain/runtime/preemption.py",
        not_local=NO_METADATA),
    by_hand("preemption-notice", "Azure announces a preemption at least 30 s before",
        "documentation (scheduled events)", "the times in `BATCHTRAIN_PREEMPTION` beside the end of the node",
        code="batchtrain/runtime/preemption.py", why=NO_PREEMPTION, not_local=NO_METADATA),
    by_hand("preempt-event",
        "`Resources` of a `Preempt` event has the name that `/metadata/instance/compute/name` gives",
        "documentation (scheduled events of Linux VMs)",
        "`curl -H Metadata:true 'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01'` on a spot "
        "node that is preempted", code="batchtrain/runtime/preemption.py", why=NO_PREEMPTION, not_local=NO_METADATA),
)  # fmt: skip

AREA = Area(
    "checkpoints",
    "Checkpoints and preemption",
    (
        "Tested: volumes as local directories, nodes that are preempted on the emulator, and its announcement in the "
        "format of the Instance Metadata Service."
    ),
    PROBES,
)
