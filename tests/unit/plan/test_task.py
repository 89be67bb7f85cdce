"""Tasks: each property of a task is seen in its request; one claim a test."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.config.travel import BLOB_STORE, LargeSource
from batchtrain.config.types import Recipe, convert
from batchtrain.errors import PlanError
from batchtrain.plan import Facts, Plan, PoolFacts, plan_jobs
from batchtrain.plan.outputs import relative
from batchtrain.plan.types import OFFLINE
from batchtrain.plan.volumes import Bind
from tests.unit.plan import pools
from tests.unit.plan.jobs import H100, STORAGE, archive_of, plan, said, sent_task

DOCKER = {"docker_image": "a/b"}
SHARED = "--shm-size=1g"
"""What any container gets."""
GANG: dict[str, Any] = {"multi_instance": {"num_instances": 2, "mpi": {"runtime": "mpich"}}}
MI300X = {"vm_size": "STANDARD_ND96ISR_MI300X_V5"}
HB = {"vm_size": "STANDARD_HB120RS_V3"}
TASK = "job_specifications[0].tasks[0]"


def options(*told: dict[str, Any], **more: Any) -> str:
    """The container engine's options of a task, its job's and its pool's properties."""
    job, task, pool = (*told, {}, {}, {})[:3]
    settings: dict[str, str] = sent_task(plan(job, {**DOCKER, **task}, pool, **more))["containerSettings"]
    return settings.get("containerRunOptions", "")


def files_of(sent: dict[str, Any]) -> dict[str, str]:
    """The files that travel inside a request, as text."""
    with archive_of(sent) as tar:
        return {name: tar.extractfile(name).read().decode() for name in tar.getnames()}  # type: ignore[union-attr]


# --- what it says of itself -----------------------------------------------------------------------------------------


def test_retention_is_the_jobs_where_the_task_says_none_and_the_other_limits_are_not() -> None:
    sent = sent_task(plan({"retention_time": "2.00:00:00", "max_wall_time": "01:00:00", "max_task_retries": 1}))
    assert sent["constraints"] == {"retentionTime": "P2D"}


def test_a_gang_takes_one_slot_by_itself() -> None:
    made = plan(task=GANG)
    assert sent_task(made)["requiredSlots"] == 1
    assert said(made, "gang-slot") == [("required_slots", "1", TASK)]


# --- who runs it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "wanted"),
    [
        ({"username": "me"}, {"username": "me"}),
        ({"default_pool_admin": True}, {"autoUser": {"scope": "pool", "elevationLevel": "admin"}}),
        ({"auto_user": {"scope": "task", "elevation_level": "admin"}},
         {"autoUser": {"scope": "task", "elevationLevel": "admin"}}),
    ],
)  # fmt: skip
def test_a_task_runs_as_who_it_says(identity: dict[str, Any], wanted: dict[str, Any]) -> None:
    made = plan(task={"user_identity": identity})
    assert sent_task(made)["userIdentity"] == wanted
    assert not said(made, "user-identity")


def test_a_specific_user_is_the_containers() -> None:
    assert options({"user_identity": {"specific_user": {"uid": 1000, "gid": 100}}}) == f"{SHARED} --user=1000:100"


def test_without_a_word_the_plan_says_who_runs_it_and_why() -> None:
    assert said(plan(), "user-identity") == [("user_identity", "pool, nonadmin", TASK)]
    assert said(plan(task=DOCKER), "user-identity") == [("user_identity", "pool, admin", TASK)]


# --- containers -----------------------------------------------------------------------------------------------------


def test_the_users_options_of_the_engine_come_last() -> None:
    own = {"additional_docker_run_options": ["--cap-add", "SYS_PTRACE"], "entrypoint": "/run me"}
    found = options({}, {"shm_size": "1g", "ports": ["80:8080"], "labels": ["a=b c"], **own})
    assert found == "--shm-size=1g --publish=80:8080 --label='a=b c' --entrypoint='/run me' --cap-add SYS_PTRACE"


DATA_VOLUMES = {
    "scratch": {"container_path": "/scratch"},
    "disk": {"host_path": "/mnt/disk", "container_path": "/disk", "bind_options": "ro"},
}
SHARES = {
    "share": {"volume_driver": "nfs", "source": "h:/p", "container_path": "/share", "bind_options": "ro"},
    "open": {"volume_driver": "nfs", "source": "h:/p", "container_path": "/open"},
}
VOLUMES: dict[str, Any] = {"resources": {"volumes": {"data_volumes": DATA_VOLUMES, "shared_data_volumes": SHARES}}}


def test_volumes_of_the_job_and_of_the_task_are_bound_into_the_container() -> None:
    job = {"data_volumes": ["scratch"], "shared_data_volumes": ["share"]}
    task = {"data_volumes": ["disk", "scratch"], "shared_data_volumes": ["open"]}
    assert options(job, task, **VOLUMES) == (
        f"{SHARED} -v /scratch -v /mnt/disk:/disk:ro -v $AZ_BATCH_NODE_MOUNTS_DIR/share:/share:ro"
        " -v $AZ_BATCH_NODE_MOUNTS_DIR/open:/open"
    )


@pytest.mark.parametrize(
    ("bind", "word"),
    [
        (Bind("/mnt/my scratch", "/scratch"), "'/mnt/my scratch:/scratch'"),
        (Bind("$AZ_BATCH_NODE_MOUNTS_DIR/v", "/my data", "ro"), "$AZ_BATCH_NODE_MOUNTS_DIR/v:'/my data':ro"),
        (Bind("/a", "${HOME}/x;y"), "/a:${HOME}'/x;y'"),
        (Bind("", "/scratch"), "/scratch"),
    ],
)
def test_a_volume_is_one_word_whatever_it_is_called(bind: Bind, word: str) -> None:
    assert bind.quoted == word


def test_a_volume_that_config_yaml_does_not_have_is_named() -> None:
    with pytest.raises(PlanError, match=r"`disc` is none of .*data_volumes` \(scratch, disk\)"):
        options({"data_volumes": ["disc"]}, **VOLUMES)


def test_the_command_can_start_where_the_image_says() -> None:
    made = plan({"default_working_dir": "container"}, DOCKER)
    assert sent_task(made)["containerSettings"]["workingDirectory"] == "containerImageDefault"
    assert not said(made, "working-directory")


def test_a_registry_of_the_task_is_a_placeholder_or_an_identity() -> None:
    known = {"r.io": {"username": "u", "password": "hunter2"}, "i.io": {"identity": "/id"}}
    more: dict[str, Any] = {"credentials": {"docker_registry": known}}
    by_password = sent_task(plan(task={**DOCKER, "container_registry": "r.io"}, **more))["containerSettings"]
    by_identity = sent_task(plan(task={**DOCKER, "container_registry": "i.io"}, **more))["containerSettings"]
    assert by_password["registry"] == {"username": "u", "password": "{{registry:r.io}}", "registryServer": "r.io"}
    assert by_identity["registry"] == {"registryServer": "i.io", "identityReference": {"resourceId": "/id"}}


RANK_FOR_EACH_CORE = {
    "multi_instance": {"num_instances": 2, "mpi": {"runtime": "mpich", "processes_per_node": "nproc"}}
}


@pytest.mark.parametrize(
    ("task", "pool", "wanted"),
    [
        ({}, {}, SHARED),
        ({}, H100, "--shm-size=64g"),
        ({"gpus": "disable"}, H100, SHARED),
        (RANK_FOR_EACH_CORE, {"vm_size": "STANDARD_D32S_V5"}, "--shm-size=2g"),
        ({"shm_size": "2g"}, H100, "--shm-size=2g"),
        ({"shm_size": "8 GiB"}, {}, "--shm-size=8g"),
        ({"shm_size": "8g", "additional_docker_run_options": ["--shm-size", "1g"]}, {}, "--shm-size 1g"),
        ({"additional_docker_run_options": ["--ipc=host"]}, H100, "--ipc=host"),
    ],
)
def test_shared_memory_is_enough_for_what_runs(task: dict[str, Any], pool: dict[str, Any], wanted: str) -> None:
    words = options({}, task, pool).replace("-v /home/_azbatch/.ssh:/home/_azbatch/.ssh:ro", "")
    assert words.replace("-v /opt/microsoft:/opt/microsoft:ro", "").split() == wanted.split()


NC96 = {"vm_size": "STANDARD_NC96ADS_A100_V4"}
TOPOLOGY = {"NCCL_TOPO_FILE": "/opt/microsoft/ncv4/topo.xml", "NCCL_IGNORE_CPU_AFFINITY": "1"}
NO_GRAPH = {"NCCL_GRAPH_FILE": "/dev/null"}


@pytest.mark.parametrize(
    ("task", "added", "mounted"),
    [
        (DOCKER, TOPOLOGY, True),
        ({"singularity_image": "docker://a/b:1"}, TOPOLOGY, False),
        ({**DOCKER, "gpus": "2"}, {}, False),
        ({**DOCKER, "gpus": "disable"}, {}, False),
        ({**DOCKER, "environment_variables": {"NCCL_TOPO_FILE": "/mine"}}, {"NCCL_IGNORE_CPU_AFFINITY": "1"}, False),
        ({}, {}, False),
        ({"environment_variables": {"CUDA_VISIBLE_DEVICES": "0,1"}}, NO_GRAPH, False),
        ({**DOCKER, "multi_instance": {"num_instances": 2, "pytorch": {}}}, {}, True),
        ({**DOCKER, "multi_instance": {"num_instances": 2}}, TOPOLOGY, True),
    ],
)
def test_a_task_without_a_launch_is_told_of_its_gpus_by_its_variables(
    task: dict[str, Any], added: dict[str, str], mounted: bool
) -> None:
    made = plan(task=task, pool=NC96)
    sent = sent_task(made)
    variables = {each["name"]: each["value"] for each in sent.get("environmentSettings", ())}
    own = task.get("environment_variables", {})
    assert {name: value for name, value in variables.items() if "NCCL" in name and name not in own} == added
    run_options = sent.get("containerSettings", {}).get("containerRunOptions", "")
    assert ("-v /opt/microsoft:/opt/microsoft:ro" in run_options) is mounted
    explained = {implicit.what for implicit in made.implicit}
    assert set(added) <= explained


def test_the_jobs_word_on_infiniband_holds() -> None:
    assert "/dev/infiniband" not in options({"infiniband": False}, GANG, HB)


@pytest.mark.parametrize(("gpus", "seen"), [("disable", "void"), ("2", "0,1"), ("device=1,3", "1,3")])
def test_some_gpus_are_chosen_by_the_containers_toolkit(gpus: str, seen: str) -> None:
    sent = sent_task(plan(task={**DOCKER, "gpus": gpus}, pool=H100))
    assert sent["environmentSettings"][0] == {"name": "NVIDIA_VISIBLE_DEVICES", "value": seen}


@pytest.mark.parametrize(
    ("gpus", "environment", "devices"),
    [("all", None, True), ("disable", None, False), ("2", [{"name": "ROCR_VISIBLE_DEVICES", "value": "0,1"}], True)],
)
def test_amd_gpus_are_chosen_in_rocms_words(gpus: str, environment: Any, devices: bool) -> None:
    planned = plan(task={**DOCKER, "gpus": gpus}, pool=MI300X)
    sent = sent_task(planned)
    assert sent.get("environmentSettings") == environment
    assert ("/dev/kfd" in sent["containerSettings"].get("containerRunOptions", "")) is devices
    added = [(item.what, item.value) for item in planned.implicit if item.rule == "rocm-devices"]
    assert added == [("containerRunOptions", "--device=/dev/kfd --device=/dev/dri")] * devices


def test_the_source_of_a_containers_gpus_is_explained() -> None:
    because = {
        name: next(one.because for one in plan(task=DOCKER, pool=pool).implicit if one.rule == "gpus-by-size")
        for name, pool in (("amd", MI300X), ("nvidia", H100))
    }
    assert because["amd"].endswith("the run options contain its devices")
    assert because["nvidia"].endswith("the service adds them itself")


def test_all_gpus_need_no_word() -> None:
    assert "VISIBLE" not in str(sent_task(plan(task={**DOCKER, "gpus": "all"}, pool=H100)))


# --- Apptainer ------------------------------------------------------------------------------------------------------

APPTAINER = {"singularity_image": "docker://a/b:1"}


def test_an_apptainer_task_runs_its_command_inside_the_image() -> None:
    made = plan(task={**APPTAINER, "additional_singularity_options": ["--cleanenv"]}, pool=H100)
    files = files_of(sent_task(made))
    assert 'sh "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/apptainer.sh" echo hello' in files[".batchtrain/launch.sh"]
    assert all(part in files[".batchtrain/apptainer.sh"] for part in ('"$runtime" exec', "--nv", "--cleanenv"))
    assert said(made, "apptainer-gpus") == [("apptainer", "--nv", TASK)]
    assert "containerSettings" not in sent_task(made)


def test_an_apptainer_image_sees_the_volumes() -> None:
    text = files_of(sent_task(plan({"data_volumes": ["disk", "scratch"]}, APPTAINER, **VOLUMES)))
    assert "--bind /mnt/disk:/disk:ro" in text[".batchtrain/apptainer.sh"]
    assert "--scratch /scratch" in text[".batchtrain/apptainer.sh"]


def test_an_image_can_be_run_elevated_by_its_own_script() -> None:
    sent = sent_task(plan(task={**APPTAINER, "singularity_execution": {"cmd": "run", "elevated": True}}))
    assert '"$runtime" run' in files_of(sent)[".batchtrain/apptainer.sh"]
    assert sent["userIdentity"]["autoUser"]["elevationLevel"] == "admin"


# --- data in --------------------------------------------------------------------------------------------------------


def with_inputs(**more: Any) -> Plan:
    return plan(task={"input_data": {"azure_storage": [{"storage_account_settings": "data", **more}]}}, **STORAGE)


@pytest.mark.parametrize("pattern", ["train/*", "./train/*"])
def test_input_data_is_fetched_by_prefix_into_the_working_directory(pattern: str) -> None:
    made = with_inputs(remote_path="c/sets", local_path="$AZ_BATCH_TASK_WORKING_DIR/in", include=[pattern])
    assert sent_task(made)["resourceFiles"] == [
        {"storageContainerUrl": "{{sas:data/c?days=30}}", "blobPrefix": "sets/train/", "filePath": "in"}
    ]


@pytest.mark.parametrize(("stripped", "count"), [({}, 0), ({"blobxfer_extra_options": "--strip-components 2"}, 2)])
def test_input_data_that_a_prefix_cannot_select_is_selected_on_the_node(stripped: dict[str, str], count: int) -> None:
    options = {"include": ["t*/*.bin"], "exclude": ["*x*"], **stripped}
    sent = sent_task(with_inputs(remote_path="c/sets", local_path="in", **options))
    assert sent["resourceFiles"][0].items() >= {"blobPrefix": "sets/t", "filePath": ".batchtrain-input/0"}.items()
    text = files_of(sent)[".batchtrain/launch.sh"]
    assert "case $bt_name in t*/*.bin) ;;" in text
    assert text.count("bt_to=${bt_to#*/}") == count


def test_input_data_for_a_place_elsewhere_is_moved_before_the_command() -> None:
    text = files_of(sent_task(with_inputs(remote_path="c", local_path="/data")))[".batchtrain/launch.sh"]
    assert text.index("cp -a .batchtrain-input/0/. /data/") < text.index("echo hello")


def test_files_through_storage_have_a_link_that_ends() -> None:
    made = plan(
        task={"command": "echo 'a'"},
        settings={"storage_account_settings": "data", "storage_entity_prefix": "ours", "generated_sas_expiry_days": 3},
        **STORAGE,
    )
    [file] = sent_task(made)["resourceFiles"]
    assert file["httpUrl"].startswith("{{sas:data/ours-files/")
    assert file["httpUrl"].endswith(".tar.gz?days=3}}")


def test_a_task_alone_on_its_node_brings_nothing_of_a_gangs() -> None:
    assert set(files_of(sent_task(plan(task={"command": "echo 'a'"})))) == {".batchtrain/launch.sh"}


# --- results out ----------------------------------------------------------------------------------------------------


def outputs(**more: Any) -> list[dict[str, Any]]:
    data = {"azure_storage": [{"storage_account_settings": "data", "remote_path": "c/run", **more}]}
    found: list[dict[str, Any]] = sent_task(plan(task={"output_data": data}, **STORAGE))["outputFiles"]
    return found


def test_each_pattern_is_an_output_of_its_own() -> None:
    more = {"condition": "taskcompletion", "upload_headers": {"Content-Type": "text/plain"}}
    found = outputs(local_path="$AZ_BATCH_TASK_WORKING_DIR/out", include=["*.pt", "log.txt"], **more)
    assert [one["filePattern"] for one in found] == ["out/*.pt", "out/log.txt"]
    assert found[0]["uploadOptions"] == {"uploadCondition": "taskcompletion"}
    headers = [{"name": "Content-Type", "value": "text/plain"}]
    container = {"containerUrl": "{{sas:data/c?write&days=30}}", "path": "run", "uploadHeaders": headers}
    assert found[0]["destination"]["container"] == container


def test_one_file_gets_its_whole_name() -> None:
    [found] = outputs(local_path="wd/model.pt")
    assert found["filePattern"] == "model.pt"
    assert found["destination"]["container"]["path"] == "run/model.pt"


def test_files_of_the_same_name_in_two_directories_are_two_blobs() -> None:
    uploads = outputs(
        local_path=".", include=["rank0/m.json", "rank1/m.json", "rank0/*.log", "./rank1/**/*", "../*.txt"]
    )
    paths = [upload["destination"]["container"]["path"] for upload in uploads]
    assert paths == ["run/rank0/m.json", "run/rank1/m.json", "run/rank0", "run/rank1", "run"]


def test_the_default_output_is_the_whole_directory_of_the_task() -> None:
    [found] = outputs()
    assert found["filePattern"] == "../**/*"


def test_an_identity_writes_to_the_containers_own_url() -> None:
    [found] = outputs(identity="/id")
    assert found["destination"]["container"]["containerUrl"] == "https://acct.blob.core.windows.net/c"
    assert found["destination"]["container"]["identityReference"] == {"resourceId": "/id"}


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (None, ".."),
        ("$AZ_BATCH_TASK_DIR", ".."),
        ("$AZ_BATCH_TASK_DIR/logs/", "../logs"),
        ("${AZ_BATCH_TASK_DIR}/wd/out", "out"),
        ("$AZ_BATCH_TASK_DIR/wd", ""),
        ("$AZ_BATCH_TASK_WORKING_DIR", ""),
        ("${AZ_BATCH_TASK_WORKING_DIR}/a/b", "a/b"),
        ("out/", "out"),
        ("./out", "out"),
        ("wd", ""),
    ],
)
def test_a_place_of_the_task_is_relative_to_its_working_directory(path: str | None, wanted: str) -> None:
    assert relative(path) == wanted


# --- Windows --------------------------------------------------------------------------------------------------------

WINDOWS: dict[str, Any] = {"vm_configuration": {"platform_image": pools.WINDOWS}}


@pytest.mark.parametrize(
    ("command", "line"), [("echo 'a' %PATH%", "echo 'a' %PATH%"), ("echo one\n\necho two\n", "echo one && echo two")]
)
def test_the_lines_of_a_command_on_windows_go_as_one_to_its_own_shell(command: str, line: str) -> None:
    sent = sent_task(plan(task={"command": command}, pool=WINDOWS))
    assert sent["commandLine"] == f'cmd.exe /d /s /c "{line}"'


def test_a_gang_on_windows_is_refused() -> None:
    with pytest.raises(PlanError, match="for Linux nodes"):
        plan(task=GANG, pool=WINDOWS)


def test_containers_on_windows_get_no_option_their_engine_does_not_have() -> None:
    sent = sent_task(plan(task=DOCKER, pool={**WINDOWS, **H100}))
    assert "containerRunOptions" not in sent["containerSettings"]


# --- the number of nodes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instances", "facts", "words"),
    [
        (0, OFFLINE, "`num_instances` is 0"),
        ("pool_specification_vm_count_low_priority", OFFLINE, "`num_instances` is 0"),
        ("pool_current_low_priority", PoolFacts("p", "x", 2, 0, True, 1), "pool p has no low_priority nodes now"),
        (2, PoolFacts("p", "x", 2, 0, False, 1), "pool p has no inter-node communication"),
        (2, PoolFacts("p", "x", 2, 0, True, 2), "pool p has 2 task slots a node"),
        (3, PoolFacts("p", "x", 1, 1, True, 1), "3 instances need 3 nodes, pool p has 2"),
    ],
)
def test_a_gang_that_would_wait_for_ever_is_refused(instances: Any, facts: Any, words: str) -> None:
    known = facts if isinstance(facts, Facts) else Facts(pool=facts)
    with pytest.raises(PlanError, match=words):
        plan(task={"multi_instance": {"num_instances": instances, "pytorch": {}}}, facts=known)


@pytest.mark.parametrize(
    ("instances", "facts", "count"),
    [
        (2, PoolFacts("p", "x", 1, 1, True, 1), 2),
        ("pool_current_dedicated", PoolFacts("p", "x", 7, 0, True, 1), 7),
        ("pool_current_low_priority", PoolFacts("p", "x", 0, 3, True, 1), 3),
        ("pool_current_dedicated", None, 2),
        ("pool_specification_vm_count_dedicated", PoolFacts("p", "x", 5, 0, True, 1), 2),
    ],
)
def test_a_gang_takes_the_nodes_that_it_names(instances: Any, facts: Any, count: int) -> None:
    made = plan(task={"multi_instance": {"num_instances": instances, "pytorch": {}}}, facts=Facts(pool=facts))
    assert sent_task(made)["multiInstanceSettings"]["numberOfInstances"] == count
    warned = [warning.rule for warning in made.warnings if warning.rule == "offline-count"]
    assert bool(warned) == (facts is None)


def test_a_job_without_a_pool_says_where_to_name_it() -> None:
    nowhere = convert({"directory": "x", "jobs": [{"id": "j", "tasks": [{"command": "x"}]}]}, Recipe)
    with pytest.raises(PlanError, match="job j: no pool is named"):
        plan_jobs(nowhere)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"settings": {"storage_account_settings": "data"}, **STORAGE}, "data/batchtrain-files"),
        (STORAGE, "data/batchtrain-files"),
        ({"facts": Facts(blob_store=BLOB_STORE)}, f"{BLOB_STORE}/j"),
    ],
    ids=["named", "the only one", "emulator"],
)
def test_a_large_source_goes_through_the_storage_that_there_is(more: Any, place: str) -> None:
    large = {"src": LargeSource((), 1 << 40, "d" * 64)}
    with pytest.raises(PlanError, match="the source `src` does not fit into a request"):
        plan(task={"source": "src"}, sources=large)
    made = plan(task={"source": "src"}, sources=large, **more)
    assert f"{place}/{'d' * 32}.source.tar.gz" in [upload.path for upload in made.uploads]


# --- what a task says wins over its job -----------------------------------------------------------------------------

ROOT_USER = {"specific_user": {"uid": 1, "gid": 2}}
OTHER_USER = {"specific_user": {"uid": 3, "gid": 4}}
POOL_ADMIN = {"default_pool_admin": True}
LOGIN = {"username": "me"}


@pytest.mark.parametrize(
    ("name", "value", "other"),
    [
        ("shm_size", "2g", "3g"),
        ("user_identity", ROOT_USER, OTHER_USER),
        ("user_identity", LOGIN, POOL_ADMIN),
        ("default_working_dir", "container", "batch"),
        ("restrict_default_bind_mounts", True, False),
        ("retention_time", "2.00:00:00", "3.00:00:00"),
        ("gpus", "0", "all"),
        ("exit_conditions", {"default": {"exit_options": {"dependency_action": "satisfy"}}},
         {"default": {"exit_options": {"dependency_action": "block"}}}),
    ],
)  # fmt: skip
def test_a_task_has_its_own_setting_and_otherwise_that_of_its_job(name: str, value: Any, other: Any) -> None:
    def sent(job: dict[str, Any], task: dict[str, Any]) -> dict[str, Any]:
        return sent_task(plan(job, {**DOCKER, **task}, H100))

    assert sent({name: other}, {name: value}) == sent({}, {name: value}) == sent({name: value}, {})
    assert sent({name: value}, {name: other}) != sent({}, {name: value})
