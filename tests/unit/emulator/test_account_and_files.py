"""What the account has beside pools and tasks (quotas, usage, applications), and how files come and go: by values."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from batchtrain.catalog.sizes import key
from batchtrain.emulator import (
    applications,
    jobs,
    mounts,
    node_reports,
    nodes,
    pools,
    scheduler,
    statistics,
    task_environment,
    tasks,
    usage,
    wire,
)
from batchtrain.emulator.autoscale_samples import Load
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.interface import Download, Mount, NodeUnfit, Package, Upload
from batchtrain.emulator.machine import host_load, output_files, packages
from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.emulator.scheduler import RunApplication
from batchtrain.emulator.world import Application, Quotas
from tests.emulation import POOL, Stage, document

CONTAINER = "https://x/out?sig=hush"


# Quotas --------------------------------------------------------------------------------------------------------------


def test_the_account_has_so_many_pools(stage: Stage) -> None:
    stage.world.quotas = Quotas(pools=1)
    stage.do(pools.create_pool, body=POOL)
    assert stage.refusal(pools.create_pool, body={**POOL, "id": "other"}).code == "PoolQuotaReached"


QUOTA, SPOT_QUOTA = "AccountCoreQuotaReached", "AccountLowPriorityCoreQuotaReached"


@pytest.mark.parametrize(
    ("quotas", "capacity", "kind", "nodes", "expected"),
    [
        (Quotas(dedicated_cores=5), None, "targetDedicatedNodes", 2, QUOTA),
        (Quotas(low_priority_cores=5), None, "targetLowPriorityNodes", 2, SPOT_QUOTA),
        (Quotas(nodes=2), None, "targetDedicatedNodes", 2, QUOTA),
        (Quotas(), 1, "targetDedicatedNodes", 1, "AllocationFailed"),
        (Quotas(), 1, "targetLowPriorityNodes", 1, "AllocationFailed"),
        (Quotas(dedicated_cores=0), 0, "targetDedicatedNodes", 0, QUOTA),
    ],
)
def test_a_resize_past_a_quota_or_the_capacity_of_a_size_gives_what_fits_and_says_so(
    stage: Stage, quotas: Quotas, capacity: int | None, kind: str, nodes: int, expected: str
) -> None:
    stage.world.quotas = quotas
    stage.world.capacity = {} if capacity is None else {key(POOL["vmSize"]): capacity}
    assert len(stage.pool(0, **{kind: 10**9})) == nodes
    found = document(stage.do(pools.get_pool, "pool"))
    assert (found["allocationState"], found["resizeErrors"][0]["code"]) == ("steady", expected)


@pytest.mark.parametrize(("capacity", "boots"), [(0, 0), (1, 1), (2, 2)])
def test_as_many_preempted_nodes_come_back_as_there_is_capacity(stage: Stage, capacity: int, boots: int) -> None:
    for node in stage.pool(0, targetLowPriorityNodes=2):
        node.state, node.phase, node.not_before = "preempted", "down", 0
    stage.world.capacity = {key(POOL["vmSize"]): capacity}
    due = scheduler.pool_due(stage.world, stage.world.pool("pool"))
    assert sum(isinstance(effect, scheduler.BootNode) for effect in due) == boots


def test_a_quota_of_one_kind_does_not_keep_the_other(stage: Stage) -> None:
    stage.world.quotas = Quotas(dedicated_cores=0)
    assert [node.dedicated for node in stage.pool(1, targetLowPriorityNodes=2)] == [False, False]


def test_the_account_has_so_many_active_jobs(stage: Stage) -> None:
    stage.world.quotas = Quotas(active_jobs=1)
    stage.pool_and_job(0)
    other = {"id": "other", "poolInfo": {"poolId": "pool"}}
    assert stage.refusal(jobs.create_job, body=other).code == "ActiveJobAndScheduleQuotaReached"
    stage.do(jobs.terminate_job, "job", body={})
    stage.settle()
    assert stage.do(jobs.create_job, body=other).status == 201


# Usage ---------------------------------------------------------------------------------------------------------------


def test_nodes_use_core_hours_by_half_hours(stage: Stage) -> None:
    stage.pool(2)
    stage.later(5400)
    found = document(stage.do(usage.list_usage, starttime="2026-11-21T10:00:00Z"))["value"]
    hours = {row["startTime"][11:16]: row["totalCoreHours"] for row in found}
    assert hours == {"10:00": 2.0, "10:30": 2.0, "11:00": 2.0}


def test_usage_outlives_nodes_and_pools(stage: Stage) -> None:
    (node,) = stage.pool(1)
    stage.later(900)
    stage.do(pools.delete_pool, "pool")
    stage.settle()
    node_reports.node_removed(stage.world, node.id, stage.now)
    stage.settle()
    stage.later(3600)
    (row,) = document(stage.do(usage.list_usage, starttime="2026-11-21T10:00:00Z"))["value"]
    assert (row["poolId"], row["vmSize"], row["totalCoreHours"]) == ("pool", "standard_d2_v3", 0.5)


def test_a_deallocated_node_uses_nothing(stage: Stage) -> None:
    (node,) = stage.pool(1)
    stage.later(900)
    stage.take_down(node, nodes.deallocate_node)
    stage.later(86_400)
    stage.do(nodes.start_node, "pool", node.id)
    stage.boot()
    stage.later(900)
    found = document(stage.do(usage.list_usage, starttime="2026-11-21T10:00:00Z"))["value"]
    assert sum(row["totalCoreHours"] for row in found) == 1.0


def test_without_times_the_usage_is_that_of_the_last_half_hour(stage: Stage) -> None:
    stage.pool(1)
    stage.later(2 * 3600)
    (row,) = document(stage.do(usage.list_usage, filter="poolId eq 'pool'"))["value"]
    assert (row["startTime"], row["endTime"]) == ("2026-11-21T11:30:00Z", "2026-11-21T12:00:00Z")


def test_a_pools_statistics_come_when_they_are_asked_for(stage: Stage) -> None:
    stage.pool(2, targetLowPriorityNodes=1)
    stage.later(900)
    assert "stats" not in document(stage.do(pools.get_pool, "pool"))
    found = document(stage.do(pools.get_pool, "pool", expand="stats"))["stats"]
    assert found["usageStats"]["dedicatedCoreTime"] == "PT1H"


def test_the_load_of_the_machine_is_that_of_a_pools_nodes(stage: Stage) -> None:
    gib = 2**30
    stage.world.load = lambda: Load(1 * gib, 2 * gib, 3 * gib, 4 * gib, 5, 6, 7 * gib, 8 * gib)
    stage.pool(1, taskSlotsPerNode=4)
    stage.run_task()
    shown = document(stage.do(usage.of_account))["resourceStats"]
    assert {name: value for name, value in shown.items() if not name.endswith("Time")} == {
        "avgCPUPercentage": 25.0, "avgMemoryGiB": 1, "peakMemoryGiB": 1, "avgDiskGiB": 2, "peakDiskGiB": 2,
        "diskReadIOps": 5, "diskWriteIOps": 6, "diskReadGiB": 3, "diskWriteGiB": 4, "networkReadGiB": 7,
        "networkWriteGiB": 8,
    }  # fmt: skip


@pytest.mark.parametrize("operation", [usage.of_account, statistics.of_account])
def test_an_account_without_pools_and_jobs_has_statistics_of_now(stage: Stage, operation: Any) -> None:
    shown = document(stage.do(operation))
    assert shown["startTime"] == shown["lastUpdateTime"] == wire.timestamp(stage.now)


def test_the_times_of_tasks_are_added_up(stage: Stage) -> None:
    stage.pool(1)
    first, second = stage.task("a", constraints={"maxTaskRetryCount": 1}), stage.task("b")
    stage.settle()
    for task, code in ((first, 1), (second, 0), (first, 1)):
        stage.later(60)
        stage.exits(task, code)
    stage.run_task("c")
    stage.later(30)
    of_account, of_job = (
        document(stage.do(statistics.of_account)), document(stage.do(jobs.get_job, "job", expand="stats"))["stats"],
    )  # fmt: skip
    counted = {"numSucceededTasks": "1", "numFailedTasks": "1", "numTaskRetries": "1"}
    times = {"wallClockTime": "PT2M30S", "waitTime": "PT3M"}
    for shown in (of_account, of_job):
        assert {name: shown[name] for name in (*counted, *times)} == {**counted, **times}
    for operation, path in ((tasks.get_task, ("job", "a")), (jobs.get_job, ("job",))):
        assert "stats" not in document(stage.do(operation, *path))
    of_task = document(stage.do(tasks.get_task, "job", "a", expand="stats"))["stats"]
    assert (of_task["wallClockTime"], of_task["waitTime"]) == ("PT1M", "PT2M")


@pytest.mark.parametrize("query", [{"starttime": "soon"}, {"starttime": "2026-11-21", "endtime": "2026-11-20"}])
def test_times_of_usage_that_cannot_be_are_refused(stage: Stage, query: dict[str, str]) -> None:
    assert stage.refusal(usage.list_usage, **query).code == "InvalidQueryParameterValue"


# Applications --------------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(stage: Stage) -> Stage:
    offered = (Application("blender", ("2.7", "2.8"), "2.8"), Application("ffmpeg-x", ("4",), ""))
    stage.world.applications = lambda: offered
    return stage


def test_applications_are_listed_and_found(shop: Stage) -> None:
    listed = document(shop.do(applications.list_applications))["value"]
    assert [(one["id"], one["versions"]) for one in listed] == [("blender", ["2.7", "2.8"]), ("ffmpeg-x", ["4"])]
    assert document(shop.do(applications.get_application, "Blender"))["displayName"] == "blender"
    assert shop.refusal(applications.get_application, "word").code == "ApplicationNotFound"


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        ([{"applicationId": "word"}], "InvalidApplicationPackageReferences"),
        ([{"applicationId": "blender", "version": "9"}], "InvalidApplicationPackageReferences"),
        ([{"applicationId": "ffmpeg-x"}], "InvalidApplicationPackageReferences"),
        ([{"applicationId": "blender"}, {"applicationId": "Blender"}], "InvalidPropertyValue"),
        ([{"applicationId": "blender", "version": str(one)} for one in range(11)], "InvalidPropertyValue"),
    ],
)
def test_references_to_missing_packages_are_refused(shop: Stage, references: list[Any], expected: str) -> None:
    assert shop.refusal(pools.create_pool, body={**POOL, "applicationPackageReferences": references}).code == expected
    shop.pool(1)
    shop.job()
    body = {"id": "t", "commandLine": "true", "applicationPackageReferences": references}
    if references != [{"applicationId": "ffmpeg-x"}]:  # it has no default version yet
        assert shop.refusal(tasks.create_task, "job", body=body).code == expected


def test_a_task_whose_application_has_no_default_version_fails_before_it_is_processed(shop: Stage) -> None:
    """azure-rest-api-specs, BatchApplicationPackageReference/version."""
    shop.pool(1)
    shop.job(onTaskFailure="performexitoptionsjobaction")
    conditions = {"preProcessingError": {"jobAction": "terminate"}}
    task = shop.task(applicationPackageReferences=[{"applicationId": "ffmpeg-x"}], exitConditions=conditions)
    shop.settle()
    assert task.failure is not None
    assert (task.state, task.exit_code, task.failure["code"]) == ("completed", None, "ApplicationPackageError")
    assert shop.world.job("job").record.state == "completed"


def test_an_application_can_be_referred_to_by_its_resource_id(shop: Stage) -> None:
    """azure-rest-api-specs, BatchApplicationPackageReference/applicationId."""
    account = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Batch/batchAccounts/a"
    (node,) = shop.pool(1, applicationPackageReferences=[{"applicationId": f"{account}/applications/blender"}])
    spec = task_environment.node_spec(shop.world, shop.world.pool("pool"), node)
    assert spec.packages == (Package("blender", "2.8"),)


def test_a_pools_packages_are_unpacked_at_boot_and_named_in_the_environment(shop: Stage) -> None:
    (node,) = shop.pool(1, applicationPackageReferences=[{"applicationId": "blender"}])
    entry = shop.world.pool("pool")
    assert task_environment.node_spec(shop.world, entry, node).packages == (Package("blender", "2.8"),)
    references = [{"applicationId": "ffmpeg-x", "version": "4"}, {"applicationId": "Blender", "version": "2.7"}]
    run = _run(shop, applicationPackageReferences=references)
    assert run.packages == (Package("ffmpeg-x", "4"), Package("blender", "2.7"))
    variables = {"blender": "blender/2.8", "Blender_2_7": "blender/2.7", "blender_2_7": "blender/2.7",
                 "ffmpeg_x_4": "ffmpeg-x/4"}  # fmt: skip
    for name, path in variables.items():
        assert run.environment[f"AZ_BATCH_APP_PACKAGE_{name}"] == f"/mnt/applications/{path}"


def test_a_package_that_was_deleted_is_still_named_for_the_node(shop: Stage) -> None:
    (node,) = shop.pool(1, applicationPackageReferences=[{"applicationId": "blender", "version": "2.7"}])
    shop.world.applications = tuple
    spec = task_environment.node_spec(shop.world, shop.world.pool("pool"), node)
    assert spec.packages == (Package("blender", "2.7"),)


def test_a_package_is_unpacked_once_with_its_programs_executable(tmp_path: Path) -> None:
    source = _zip(tmp_path / "data" / "applications" / "tool" / "1.0.zip")
    (tmp_path / "node").mkdir()
    packages.install(tmp_path / "data", RootedPath(tmp_path / "node"), Package("tool", "1.0"))
    program = tmp_path / "node" / "applications" / "tool" / "1.0" / "bin" / "tool"
    assert program.stat().st_mode & 0o111
    source.unlink()
    packages.install(tmp_path / "data", RootedPath(tmp_path / "node"), Package("tool", "1.0"))


@pytest.mark.parametrize("content", [b"no zip", None])
def test_a_package_that_cannot_be_unpacked_leaves_nothing(tmp_path: Path, content: bytes | None) -> None:
    folder = tmp_path / "data" / "applications" / "tool"
    folder.mkdir(parents=True)
    (tmp_path / "node").mkdir()
    if content is not None:
        (folder / "1.zip").write_bytes(content)
    with pytest.raises(NodeUnfit) as refusal:
        packages.install(tmp_path / "data", RootedPath(tmp_path / "node"), Package("tool", "1"))
    assert refusal.value.code == "ApplicationPackageError"
    assert not list((tmp_path / "node" / "applications" / "tool").iterdir())


def test_a_folder_of_zip_files_is_the_list_of_applications(tmp_path: Path) -> None:
    assert packages.installed(tmp_path) == ()
    for name in ("a/1.zip", "a/2.zip", "b/1.0.zip", "b/readme.txt", ".hidden/1.zip"):
        _zip(tmp_path / "applications" / name)
    (tmp_path / "applications" / "a" / "default").write_text("2\n")
    (tmp_path / "applications" / "empty").mkdir()
    found = {one.id: one for one in packages.installed(tmp_path)}
    assert found["a"] == Application("a", ("1", "2"), "2")
    assert found["b"] == Application("b", ("1.0",), "1.0")
    assert found["empty"].versions == ()


# Mounts --------------------------------------------------------------------------------------------------------------

BLOB = {"accountName": "acc", "containerName": "data", "sasKey": "hush", "relativeMountPath": "blobs"}
NFS = {"source": "10.0.0.9:/export/../home", "relativeMountPath": "nfs/home"}
SHARE_URL = "https://acc.file.core.windows.net/share"
SHARE = {"accountName": "acc", "accountKey": "hush", "azureFileUrl": SHARE_URL, "relativeMountPath": "share"}
CIFS = {"source": "//server/folder", "username": "me", "password": "hush", "relativeMountPath": "cifs"}


def test_a_directory_stands_for_each_mounted_file_system(stage: Stage) -> None:
    wanted = [
        {"azureBlobFileSystemConfiguration": BLOB},
        {"nfsMountConfiguration": NFS},
        {"azureFileShareConfiguration": SHARE},
        {"cifsMountConfiguration": CIFS},
    ]
    (node,) = stage.pool(1, mountConfiguration=wanted)
    assert task_environment.node_spec(stage.world, stage.world.pool("pool"), node).mounts == (
        Mount("blobs", "mounts/blob/acc/data"),
        Mount("nfs/home", "mounts/nfs/10.0.0.9/export/__/home"),
        Mount("share", "mounts/files/acc/share"),
        Mount("cifs", "mounts/cifs/server/folder"),
    )
    assert "hush" not in str(stage.do(pools.get_pool, "pool").document)


def test_no_source_leads_out_of_the_mounts() -> None:
    place = mounts.directory("nfsMountConfiguration", {"source": "..:/.././/x"})
    assert place == "mounts/nfs/__/__/_/x"


# Accounts of a pool --------------------------------------------------------------------------------------------------


def test_a_start_task_runs_as_one_of_its_pools_accounts(stage: Stage) -> None:
    start = {"commandLine": "x", "userIdentity": {"username": "boss"}}
    assert stage.refusal(pools.create_pool, body={**POOL, "startTask": start}).code == "InvalidPropertyValue"
    accounts = [{"name": "boss", "password": "x", "elevationLevel": "admin"}]
    (node,) = stage.pool(1, startTask=start, userAccounts=accounts)
    assert task_environment.start_run(stage.world, stage.world.pool("pool"), node).elevated


# Files in ------------------------------------------------------------------------------------------------------------


def test_resource_files_come_one_by_one_or_by_container(stage: Stage) -> None:
    stage.pool_and_job()
    files = [
        {"httpUrl": "http://x/a", "filePath": "a", "fileMode": "0600"},
        {"storageContainerUrl": "http://x/in", "blobPrefix": "b/", "filePath": "to"},
        {"storageContainerUrl": "http://x/all"},
    ]
    assert _run(stage, resourceFiles=files).downloads == (
        Download("http://x/a", "a", "0600"),
        Download("http://x/in", "to", container=True, prefix="b/"),
        Download("http://x/all", "", container=True),
    )


def test_a_refusal_of_a_url_does_not_say_its_signature(stage: Stage) -> None:
    with pytest.raises(Fault) as refusal:
        stage.pool(1, startTask={"commandLine": "x", "resourceFiles": [{"storageContainerUrl": "x?sig=hush"}]})
    assert "hush" not in str(refusal.value.details)


# Files out -----------------------------------------------------------------------------------------------------------


def output(pattern: str = "*.txt", condition: str = "taskCompletion", **container: object) -> dict[str, object]:
    destination = {"container": {"containerUrl": CONTAINER, **container}}
    return {"filePattern": pattern, "destination": destination, "uploadOptions": {"uploadCondition": condition}}


def test_output_files_are_the_primarys_own(stage: Stage) -> None:
    stage.pool_and_job()
    header = {"name": "Content-Type", "value": "text/plain"}
    run = _run(stage, outputFiles=[output(path="p", uploadHeaders=[header])])
    assert run.uploads == (Upload("*.txt", CONTAINER, "p", "taskcompletion", (("Content-Type", "text/plain"),)),)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (output(" "), "InvalidPropertyValue"),
        (output(condition="always"), "InvalidPropertyValue"),
        (output(containerUrl="out"), "InvalidPropertyValue"),
        (output(identityReference={"resourceId": "x"}), "NotImplementedByEmulator"),
        ({**output(), "destination": {}}, "MissingRequiredProperty"),
    ],
)
def test_output_files_that_cannot_be_are_refused(stage: Stage, file: object, expected: str) -> None:
    stage.pool_and_job(0)
    body = {"id": "t", "commandLine": "x", "outputFiles": [file]}
    assert stage.refusal(tasks.create_task, "job", body=body).code == expected


@pytest.mark.parametrize(
    ("pattern", "path", "names"),
    [
        ("*.txt", "", {"a.txt", "b.txt"}),
        ("*.txt", "logs/", {"logs/a.txt", "logs/b.txt"}),
        ("[!a].txt", "", {"b.txt"}),
        ("?.txt", "", {"a.txt", "b.txt"}),
        ("**/*.png", "", {"deep/er/c.png", "d.png"}),
        ("deep/**/*.png", "img", {"img/er/c.png"}),
        (".*.txt", "", {".h.txt"}),
        ("a.txt", "", {"a.txt"}),
        ("a.txt", "x/y", {"x/y"}),
        ("deep/er/c.png", "", {"c.png"}),
        ("../std*.txt", "std", {"std/stdout.txt"}),
        ("../stdout.txt", "", {"stdout.txt"}),
        ("$AZ_BATCH_TASK_DIR/stdout.txt", "", {"stdout.txt"}),
        ("${AZ_BATCH_TASK_DIR}/wd/?.txt", "", {"a.txt", "b.txt"}),
        ("nothing", "", set()),
        ("/etc/passwd", "", set()),
        ("../../../../../outside", "", set()),
        ("leads-out", "", set()),
        ("deep", "", set()),
    ],
)
def test_a_pattern_means_these_files_under_these_names(
    tmp_path: Path, pattern: str, path: str, names: set[str]
) -> None:
    root = tmp_path / "node"
    directory = root / "workitems" / "job" / "job-1" / "task"
    for name in ("wd/a.txt", "wd/b.txt", "wd/.h.txt", "wd/deep/er/c.png", "wd/d.png", "stdout.txt"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
    (tmp_path / "outside").touch()
    (directory / "wd" / "leads-out").symlink_to(tmp_path / "outside")
    inside = "/mnt/tasks"
    variables = {"AZ_BATCH_TASK_DIR": f"{inside}/workitems/job/job-1/task"}
    node = RootedPath(root, {inside: root})
    place = output_files.Source(node, inside, "workitems/job/job-1/task", variables)
    found = output_files.matching(Upload(pattern, CONTAINER, path), place)
    assert {name for _, name in found} == names


# The machine's numbers -----------------------------------------------------------------------------------------------


def test_the_machines_numbers_are_read_once_in_half_a_minute(tmp_path: Path) -> None:
    moments = iter([0.0, 0.0, 29.0, 31.0, 31.0])
    gauge = host_load.Gauge(tmp_path, lambda: next(moments))
    first = gauge()
    assert first.memory > 0 and first.disk > 0
    assert gauge() is first
    assert gauge() is not first


def test_numbers_that_the_kernel_does_not_tell_are_0(tmp_path: Path) -> None:
    found = host_load.read(tmp_path / "nowhere", tmp_path)
    assert found == type(found)()


def test_disks_count_once_and_the_loopback_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    disks = ("8 0 sda", "8 1 sda1", "259 0 nvme0n1", "259 1 nvme0n1p1", "7 0 loop0")
    (tmp_path / "diskstats").write_text("".join(f"{disk} 1 0 2 0 3 0 4 0\n" for disk in disks))
    (tmp_path / "net" / "dev").write_text("head\n lo: 9 0 0 0 0 0 0 0 9 0\n eth0: 5 0 0 0 0 0 0 0 7 0\n")
    (tmp_path / "meminfo").write_text("MemTotal: 10 kB\nMemAvailable: 4 kB\n")
    found = host_load.read(tmp_path / "nowhere", tmp_path)
    assert found == (6144, 0, 2 * 2 * 512, 2 * 4 * 512, 2, 6, 5, 7)


# Support -------------------------------------------------------------------------------------------------------------


def _run(stage: Stage, **more: object) -> Any:
    task = stage.task(**more)
    (effect,) = stage.settle()
    assert isinstance(effect, RunApplication)
    return task_environment.application_run(stage.world, stage.world.jobs["job"], task)


def _zip(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("bin/tool")
        entry.external_attr = 0o755 << 16
        archive.writestr(entry, "#!/bin/sh\necho tool\n")
    return path
