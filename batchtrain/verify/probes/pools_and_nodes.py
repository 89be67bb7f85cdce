"""Pools and nodes."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from batchtrain.verify.probe import NVIDIA, V100, Area, Probe, by_hand
from batchtrain.verify.readings import LINK, listed, some
from batchtrain.verify.reasons import (
    NO_AZURE_LINUX,
    NO_ENGINE,
    NO_GPU,
    NO_INSTALLERS,
    NO_LOGIN,
    NO_MANAGEMENT,
    NO_SPOT,
    NO_UNUSABLE,
    NO_VOLUME,
    NO_WINDOWS,
)
from batchtrain.verify.recorded_answers import file, gpus, response

PROBES = (
    by_hand(
        "ed25519-login",
        "An `ssh` login works with an Ed25519 key",
        "OpenSSH; the service asks for OpenSSH's encoding only",
        "`pool add` with `ssh: {username: me}`, then the `ssh` line that it prints",
        code="batchtrain/client/logins.py",
        not_local=NO_LOGIN,
    ),
    by_hand(
        "port-rules",
        (
            "Of the rules of a port, the one with the lowest priority number wins, starting at 150. A last rule `deny"
            " *` blocks all other addresses"
        ),
        "documentation (pool-endpoint-configuration)",
        "`remote_access_control: {allow: [MY.IP/32], deny: ['*']}`, from two machines",
        code="batchtrain/plan/network.py",
        not_local=NO_LOGIN,
    ),
    by_hand(
        "identity-before-pool",
        (
            "A pool with `identities` can be created without nodes although its body names an identity that it does "
            "not have yet"
        ),
        "memory; the service may refuse it",
        "`pool add` with `identities` and a registry with `identity`",
        code="batchtrain/client/identities.py",
        not_local=NO_MANAGEMENT,
    ),
    Probe(
        "empty-pool",
        "A pool without nodes becomes `steady` within minutes, so that it can be resized after its identities are set",
        "recordings",
        "as above",
        "service/empty-pool",
        lambda value: value == "steady",
        right="steady",
        wrong="resizing",
        unread=response(403, "AuthorizationFailure"),
        code="batchtrain/client/identities.py batchtrain/client/pools.py",
        shape=str,
    ),
    by_hand(
        "mount-options",
        (
            "`mountOptions` of NFS, CIFS and file shares are options of the mount command (`-o a,b`); "
            "`blobfuseOptions` are options of blobfuse"
        ),
        "documentation (virtual-file-mount)",
        "`mount` as a task, beside the log files in `$AZ_BATCH_NODE_MOUNTS_DIR`",
        code="batchtrain/plan/mounts.py",
        not_local=NO_VOLUME,
    ),
    by_hand(
        "entry-point",
        (
            'A task with a container may have the command line `""`: it then runs the entry point and the command of '
            "the image"
        ),
        "documentation (batch-docker-container-workloads)",
        "a task with `docker_image: hello-world` and no `command`: its stdout",
        code="batchtrain/plan/container.py",
        not_local=NO_ENGINE,
    ),
    Probe(
        "visible-gpus",
        (
            "`NVIDIA_VISIBLE_DEVICES` among a task's variables limits the GPUs in its container, although the service"
            " requests all of them from the engine (`gpus: 2`, `gpus: disable`)"
        ),
        "NVIDIA Container Toolkit; not documented for Batch",
        "`nvidia-smi -L` with `gpus: 1` on `Standard_NC48ads_A100_v4`",
        "inside/nodes/gpus",
        lambda value: value["code"] == 0 and value["count"] == 1,
        right=gpus(count=1),
        wrong=gpus(),
        unread={"code": 0},
        code="batchtrain/plan/container.py",
        needs=NVIDIA,
        not_local=NO_GPU,
    ),
    Probe(
        "split-options",
        "The run options are split as a shell splits them: `-v '/mnt/my scratch:/scratch'` is two words",
        "memory",
        "a volume whose `host_path` has a space, `ls` in the container",
        "options/nodes/option_mount",
        bool,
        right=True,
        wrong=False,
        unread={"unread": "OSError"},
        code="batchtrain/plan/container.py",
        shape=bool,
    ),
    Probe(
        "azure-linux-agent",
        "The node agent of Azure Linux 3 (`azure-hpc:azurelinux-hpc:3`) has a name that no public page documents",
        "Azure/Batch #188",
        "`az batch pool supported-images list --filter \"imageReference/publisher eq 'azure-hpc'\"`",
        "service/agents",
        bool,
        right=["batch.node.azurelinux 3"],
        wrong=[],
        unread={"unread": "Unreachable"},
        code="batchtrain/catalog/vm_images.py",
        shape=list[str],
        not_local=NO_AZURE_LINUX,
    ),
    Probe(
        "v100-image",
        (
            "`Standard_ND40rs_v2` needs an image with `v100` in its name; the driver in the other images does not "
            "support that GPU"
        ),
        "azhpc-images README",
        "`nvidia-smi` on it with `ubuntu-hpc:2404`",
        "host/nodes/gpus",
        lambda value: value["code"] != 0,
        right=gpus(code=9, count=0),
        wrong=gpus(),
        unread={"count": 0},
        code="batchtrain/catalog/vm_images.py",
        needs=V100,
        not_local=NO_GPU,
    ),
    Probe(
        "start-task-mounts",
        "The start task sees `AZ_BATCH_NODE_MOUNTS_DIR`",
        "documentation; memory",
        "a `custom_linux_mount` of lustre, `ls` in a container",
        "admin/nodes/start_task",
        lambda value: "AZ_BATCH_NODE_MOUNTS_DIR" in value["variables"],
        right={"variables": ["AZ_BATCH_NODE_MOUNTS_DIR", "AZ_BATCH_POOL_ID"]},
        wrong={"variables": ["AZ_BATCH_POOL_ID"]},
        unread={},
        code="batchtrain/launchers/preparation.py batchtrain/plan/mounts.py",
    ),
    by_hand(
        "docker-group",
        "A name in the line of the group `docker` also applies to a user that is created later",
        "group(5)",
        "`ssh: {allow_docker_access: true}`, then `docker ps` over ssh",
        code="batchtrain/launchers/preparation.py",
        not_local=NO_ENGINE,
    ),
    by_hand(
        "start-task-continues",
        (
            "The processes of a start task without `waitForSuccess` (`block_until_all_global_resources_loaded: "
            "false`) continue while tasks run"
        ),
        "SDK: wait_for_success",
        "`docker images` as a task of a pool with a large image",
        code="batchtrain/plan/start_task.py",
        not_local=NO_ENGINE,
    ),
    by_hand(
        "installers",
        (
            "Apptainer comes from `ppa:apptainer/ppa` or EPEL, Kata Containers 3.2 as "
            "`kata-static-3.2.0-amd64.tar.xz`; a driver's `.run` installs with `--silent` beside `gcc`, `make`, "
            "`dkms` and the kernel's headers"
        ),
        "their documentation, memory",
        "`startup/stderr.txt` on a node of the pool",
        code="batchtrain/launchers/preparation.py",
        not_local=NO_INSTALLERS,
    ),
    by_hand(
        "apptainer-fingerprint",
        "`apptainer verify --local --json` prints the fingerprint of the key under `Fingerprint`",
        "Apptainer's documentation",
        "`apptainer verify --local --json IMAGE.sif`",
        code="batchtrain/launchers/preparation.py",
        not_local=NO_INSTALLERS,
    ),
    by_hand(
        "windows-preparation",
        '`cmd.exe /d /s /c "%BATCHTRAIN_PREPARATION%"` runs lines joined with `&&`',
        "documentation of cmd",
        "`additional_node_prep` on Windows Server 2022",
        code="batchtrain/launchers/preparation.py",
        not_local=NO_WINDOWS,
    ),
    by_hand(
        "requeued-gang",
        "Removing the node of a subtask (`removenodes` with `requeue`) requeues the whole multi-instance task, without"
        " a retry",
        "none; documented for the loss of a node",
        "`on_bad_node: replace` and a node with a fault, `jobs show`",
        code="batchtrain/client/replacing.py",
        not_local=NO_UNUSABLE,
    ),
    by_hand(
        "unusable-reboot",
        "A node in state `unusable` can be rebooted",
        "Batch Shipyard did this",
        "`attempt_recovery_on_unusable: true`; `az batch node reboot`",
        code="batchtrain/client/pools.py",
        not_local=NO_UNUSABLE,
    ),
    Probe(
        "remote-login",
        "`remoteloginsettings` of a pool without NAT rules returns the address of the node and port 22 or 3389",
        "none; pools of older service versions mapped these ports",
        "`az batch node remote-login-settings show --pool-id POOL --node-id NODE`",
        "service/login",
        lambda value: bool(ip_address(value["address"])) and value["port"] in (22, 3389),
        right={"address": "20.1.2.3", "port": 22},
        wrong={"address": "20.1.2.3", "port": 50000},
        unread={"address": "", "port": 22},
        code="batchtrain/client/logins.py batchtrain/service/read.py",
    ),
    by_hand(
        "exec-login",
        (
            "`jobs exec`: the login of the pool may use `sudo` without a password, and the environment of the task is"
            " in `/proc/PID/environ` of its first process. In a container task, `docker exec` finds its container by "
            "the id of the task"
        ),
        "none; tested with processes on the emulator",
        "`batchtrain jobs exec JOB env` during a task on the node, and in a container",
        code="batchtrain/client/logins.py",
        not_local=NO_LOGIN,
    ),
    Probe(
        "stranger",
        "A task whose user is no account of the pool is accepted, and fails when a node would start it",
        "none",
        '`az batch task create` with `"userIdentity": {"username": "stranger"}`, then `az batch task show`',
        "service/stranger",
        lambda value: value["status"] == 201 and value["failed"] is True,
        right={"status": 201, "failed": True},
        wrong={"status": 400, "failed": False},
        unread={"status": 201, "state": "active"},
        code="batchtrain/emulator/tasks.py",
    ),
    Probe(
        "links-in-lists",
        "A list of files shows a link with the size of its target, or with the mode of a link (`0o120777`)",
        "none",
        "`ln -s ../a/b output/b; ln -s /etc/passwd output/c` in a task, then `batchtrain jobs files JOB`",
        "service/files",
        lambda value: value["link"]["size"] == 10 or value["link"]["mode"] == LINK,
        right={"link": file()},
        wrong={"link": file(6)},
        unread={"target": file()},
        code="batchtrain/service/downloads.py",
        shape=dict[str, dict[str, Any]],
    ),
    Probe(
        "names-in-bytes",
        "`url` in a list of files has the exact bytes of a name that is not UTF-8",
        "none",
        "`touch $'output/\\\\xff'` in a task, then `batchtrain jobs fetch JOB`",
        "service/files",
        lambda value: any(file["url"].upper().endswith("%FF") for file in listed(value)),
        right={"�": file(url="%FF")},
        wrong={"�": file(url="%EF%BF%BD")},
        unread={},
        code="batchtrain/service/downloads.py",
        shape=dict[str, dict[str, Any]],
    ),
    Probe(
        "content-type",
        "A body without `Content-Type` is refused with 400 `MissingRequiredHeader`",
        "documentation of status codes",
        (
            "`curl -X POST -H 'Content-Type:' -H 'Authorization: Bearer TOKEN' -d '{}' "
            "'https://NAME.REGION.batch.azure.com/pools?api-version=2025-06-01'`"
        ),
        "service/no-content-type",
        lambda value: value["status"] == 400 and value["code"] == "MissingRequiredHeader",
        right=response(400, "MissingRequiredHeader"),
        wrong=response(415, "UnsupportedMediaType"),
        unread={"status": 400},
        code="batchtrain/service/requests.py batchtrain/emulator/http.py",
    ),
    Probe(
        "next-version",
        "The service accepts API 2026-10-01 with `hardwareProfile`; azure-batch 15.1 has no such property",
        "azure-rest-api-specs",
        "`pool add` with `vm_sizes`, then with `hyper_threading: false`, then with `zones: {}`",
        "service/hardware",
        lambda value: value["status"] == 201,
        right=response(201),
        wrong=response(400, "InvalidQueryParameterValue"),
        unread={"code": ""},
        code="batchtrain/plan/wire/pool.py",
    ),
    Probe(
        "size-mix",
        "The sizes of a mix need the same number of vCPUs, of one family or of several",
        "azure-rest-api-specs, whose two planes differ",
        "`pool add` with `vm_size: STANDARD_D4S_V5` and `vm_sizes: {alternatives: [STANDARD_D4AS_V5]}`",
        "service/mix",
        lambda value: value[0]["status"] == 201 and value[1]["status"] == 400,
        right=[response(201), response(400, "InvalidPropertyValue")],
        wrong=[response(400, "InvalidPropertyValue"), response(400, "InvalidPropertyValue")],
        unread=[],
        code="batchtrain/plan/pool.py batchtrain/catalog/meaning.py",
        shape=list[dict[str, Any]],
    ),
    by_hand(
        "spot-targets",
        "Spot nodes of accounts of both allocation modes come from `targetLowPriorityNodes`",
        "Azure/Batch #196; learn batch-spot-vms",
        "`pool add` with `vm_count: {low_priority: 1}` in an account of each mode",
        code="batchtrain/plan/pool.py",
        not_local=NO_SPOT,
    ),
    Probe(
        "node-python",
        "The start task of a script without a registry: `microsoft-dsvm:ubuntu-hpc:2404` has a `python3` with `venv`",
        "Azure Batch: files and directories; tested with the emulator",
        "`batchtrain run train.py --nodes 2` on an account, with a script that imports torch",
        "host/nodes/python",
        lambda value: value["venv"] is True and value["version"] >= [3, 6],
        right={"version": [3, 12], "venv": True},
        wrong={"version": [3, 12], "venv": False},
        unread={"version": [3, 12]},
        code="batchtrain/scripts/on_nodes.py",
    ),
    Probe(
        "source-links",
        (
            "A listing of a node shows a link to a file (`link_source`) as the file with its time, or not at all; "
            "both keep files of the source out of the results"
        ),
        "tested with the emulator",
        "`batchtrain run train.py`: `outputs/` has no `train.py`",
        "service/files",
        lambda value: value["target"]["size"] == value.get("link", value["target"])["size"],
        right={"link": file(), "target": file()},
        wrong={"link": file(6), "target": file()},
        unread={},
        code="batchtrain/runs/results.py batchtrain/service/downloads.py",
        shape=dict[str, dict[str, Any]],
    ),
    by_hand(
        "start-task-volumes",
        "Tasks in containers see the file systems that the start task mounts below `AZ_BATCH_NODE_MOUNTS_DIR`",
        "documentation; memory",
        "a `custom_linux_mount` of lustre, `ls` in a container",
        code="batchtrain/launchers/preparation.py",
        not_local=NO_VOLUME,
    ),
    Probe(
        "directory-links",
        "A list of files shows a link to a directory with its content, or with the mode of a link (`0o120777`)",
        "none",
        "`ln -s /etc output/d` in a task, then `batchtrain jobs files JOB`",
        "service/files",
        lambda value: value["target"]["size"] == 10 and value.get("folder", {"mode": LINK})["mode"] == LINK,
        right={"target": file(), "folder": file(3, LINK)},
        wrong={"target": file(), "folder": file(4096)},
        unread={},
        code="batchtrain/service/downloads.py",
        shape=dict[str, dict[str, Any]],
    ),
    Probe(
        "zones",
        "The service accepts API 2026-10-01 with `placement` and `resiliencyPolicy`",
        "azure-rest-api-specs",
        "`pool add` with `zones: {}`",
        "service/zones",
        lambda value: value["status"] == 201,
        right=response(201),
        wrong=response(400, "InvalidPropertyValue"),
        unread={"code": ""},
        code="batchtrain/plan/pool.py batchtrain/plan/wire/pool.py",
    ),
    Probe(
        "shared-directory",
        "An ordinary task may read what the start task writes to `AZ_BATCH_NODE_SHARED_DIR`",
        "Azure Batch: files and directories; tested with the emulator",
        "`batchtrain run train.py --nodes 2` on an account",
        "host/nodes/start_task",
        lambda value: "AZ_BATCH_NODE_ID" in some(value["variables"], "variable"),
        right={"variables": ["AZ_BATCH_NODE_ID"]},
        wrong={"variables": ["HOME"]},
        unread={"variables": []},
        code="batchtrain/scripts/on_nodes.py",
    ),
)

AREA = Area(
    "pools",
    "Pools and nodes",
    (
        "Tested: every request body against the models of the SDK; the text of the start task in a real bash with "
        "replacements for `docker`, `apptainer`, `apt-get`, `mount` and the installer of the driver; reboots on the "
        "emulator."
    ),
    PROBES,
)
