"""From a recipe to requests: one claim a test, values in and values out."""

from __future__ import annotations

import base64
import io
import tarfile
import time
from typing import Any

import msgspec
import pytest

from batchtrain.config import ids, travel
from batchtrain.config.travel import Source
from batchtrain.config.types import Credentials, Job, Recipe, convert
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import File
from batchtrain.plan import Facts, Plan, PoolFacts, payload, plan_jobs, plan_pool, plan_recipe, render, wire_times
from batchtrain.plan.judgement import judge
from batchtrain.plan.render import FILE_MARK
from batchtrain.plan.step import Step
from batchtrain.plan.task_stream import TaskStream

IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}


def recipe(pool: dict[str, Any] | None = None, task: dict[str, Any] | None = None, **more: Any) -> Recipe:
    """A small recipe of two nodes; `pool` and `task` add to it."""
    return convert(
        {
            "directory": "x",
            "pool": {
                "id": "p",
                "vm_configuration": {"platform_image": IMAGE},
                "vm_size": "STANDARD_D4S_V5",
                "vm_count": {"dedicated": 2},
                "inter_node_communication_enabled": True,
                **(pool or {}),
            },
            "jobs": [{"id": "j", "tasks": [{"command": "echo hello", **(task or {})}]}],
            **more,
        },
        Recipe,
    )


def gang(**more: Any) -> dict[str, Any]:
    return {"multi_instance": {"num_instances": 2, "mpi": {"runtime": "mpich"}, **more}}


def body(plan: Plan, action: str) -> dict[str, Any]:
    return next(step.document for step in plan.steps if step.action == action)


def implicit(plan: Plan) -> dict[str, str]:
    return {item.what: item.value for item in plan.implicit}


def launch_of(plan: Plan) -> str:
    """What the nodes run, without the files beside it."""
    return dict(plan.launch)["task-00000"].split(FILE_MARK)[0]


def test_a_pool_is_one_request_with_its_node_agent() -> None:
    sent = body(plan_pool(recipe()), "pool.add")
    assert sent["virtualMachineConfiguration"]["nodeAgentSKUId"] == "batch.node.ubuntu 24.04"
    assert sent["enableInterNodeCommunication"] is True
    assert (sent["targetDedicatedNodes"], sent["targetLowPriorityNodes"]) == (2, 0)


def test_images_make_a_container_pool_that_prefetches_them() -> None:
    plan = plan_pool(recipe(resources={"docker_images": ["a/b:1"]}))
    sent = body(plan, "pool.add")["virtualMachineConfiguration"]["containerConfiguration"]
    assert msgspec.to_builtins(sent) == {"type": "dockerCompatible", "containerImageNames": ("a/b:1",)}
    assert implicit(plan)["native"] == "true"


def test_a_registry_password_is_a_placeholder_in_the_plan() -> None:
    credentials = convert({"docker_registry": {"hub": {"username": "u", "password": "hunter2"}}}, Credentials)
    plan = plan_pool(msgspec.structs.replace(recipe(resources={"docker_images": ["a"]}), credentials=credentials))
    assert "hunter2" not in str(render.as_document(plan))
    assert "{{registry:hub}}" in str(render.as_document(plan))


def test_node_preparation_runs_as_root() -> None:
    sent = body(plan_pool(recipe({"additional_node_prep": {"commands": {"pre": ["apt update"]}}})), "pool.add")
    assert sent["startTask"]["userIdentity"] == {"autoUser": {"scope": "pool", "elevationLevel": "admin"}}
    assert sent["startTask"]["waitForSuccess"] is True


def test_each_line_of_node_preparation_runs_by_itself() -> None:
    lines = ["echo 'one' # a comment", "exit 4"]
    sent = body(plan_pool(recipe({"additional_node_prep": {"commands": {"pre": lines}}})), "pool.add")["startTask"]
    assert sent["environmentSettings"][-1]["value"] == "\n".join(lines)
    assert "'one'" not in sent["commandLine"]


def test_hiding_the_gpus_is_carried_out() -> None:
    task = {"docker_image": "a", "gpus": "disable"}
    sent = body(
        plan_jobs(recipe({"vm_size": "STANDARD_ND96ISR_H100_V5"}, task, resources={"docker_images": ["a"]})), "task.add"
    )
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in sent["environmentSettings"]


def test_launches_of_two_jobs_have_different_names() -> None:
    plain = recipe()
    jobs = (plain.jobs[0], msgspec.structs.replace(plain.jobs[0], id="k"))
    plan = plan_jobs(msgspec.structs.replace(plain, jobs=jobs))
    assert [name for name, _ in plan.launch] == ["j/task-00000", "k/task-00000"]


def test_an_rdma_size_switches_infiniband_on_by_itself() -> None:
    plan = plan_jobs(recipe({"vm_size": "STANDARD_HB120RS_V3"}, gang()))
    assert implicit(plan)["infiniband"] == "true"
    assert "/dev/infiniband" in launch_of(plan)


def test_an_explicit_false_switches_infiniband_off() -> None:
    plan = plan_jobs(recipe({"vm_size": "STANDARD_HB120RS_V3"}, {**gang(), "infiniband": False}))
    assert "infiniband" not in implicit(plan)
    assert "/dev/infiniband" not in launch_of(plan)


def test_a_gpu_size_switches_gpus_on_by_itself() -> None:
    assert implicit(plan_jobs(recipe({"vm_size": "STANDARD_ND96ISR_H100_V5"}, gang())))["gpus"] == "all"


def test_a_host_mpi_runs_as_the_pools_plain_user_and_a_container_as_its_admin() -> None:
    host = body(plan_jobs(recipe(task=gang())), "task.add")
    container = body(
        plan_jobs(recipe(task={**gang(), "docker_image": "a"}, resources={"docker_images": ["a"]})), "task.add"
    )
    assert host["userIdentity"]["autoUser"] == {"scope": "pool", "elevationLevel": "nonadmin"}
    assert container["userIdentity"]["autoUser"] == {"scope": "pool", "elevationLevel": "admin"}


def test_container_settings_carry_the_shared_memory_of_the_job() -> None:
    plain = recipe(task={"docker_image": "a"}, resources={"docker_images": ["a"]})
    jobs = (msgspec.structs.replace(plain.jobs[0], shm_size="256m"),)
    sent = body(plan_jobs(msgspec.structs.replace(plain, jobs=jobs)), "task.add")
    assert sent["containerSettings"] == {
        "imageName": "a",
        "containerRunOptions": "--shm-size=256m",
        "workingDirectory": "taskWorkingDirectory",
    }


def test_a_symbol_is_the_pool_files_count_offline_and_says_so() -> None:
    task = gang()
    task["multi_instance"]["num_instances"] = "pool_current_dedicated"
    plan = plan_jobs(recipe(task=task))
    assert body(plan, "task.add")["multiInstanceSettings"]["numberOfInstances"] == 2
    assert [warning.rule for warning in plan.warnings] == ["offline-count"]


def test_a_symbol_is_the_living_pools_count_when_it_was_seen() -> None:
    task = gang()
    task["multi_instance"]["num_instances"] = "pool_current_dedicated"
    facts = Facts(PoolFacts("p", "standard_d4s_v5", 5, 0, True, 1))
    assert body(plan_jobs(recipe(task=task), facts), "task.add")["multiInstanceSettings"]["numberOfInstances"] == 5


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (PoolFacts("p", "standard_d4s_v5", 2, 0, False, 1), "no inter-node communication"),
        (PoolFacts("p", "standard_d4s_v5", 2, 0, True, 4), "4 task slots a node"),
        (PoolFacts("p", "standard_d4s_v5", 1, 0, True, 1), "need 2 nodes"),
    ],
)
def test_a_task_that_could_never_start_on_the_living_pool_is_refused(facts: PoolFacts, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        plan_jobs(recipe(task=gang()), Facts(facts))


def test_completion_is_asked_for_only_after_the_tasks() -> None:
    plain = recipe()
    jobs = (msgspec.structs.replace(plain.jobs[0], auto_complete=True),)
    plan = plan_jobs(msgspec.structs.replace(plain, jobs=jobs))
    assert [step.action for step in plan.steps] == ["job.add", "task.add", "job.complete"]


def test_more_than_a_hundred_tasks_are_one_stream() -> None:
    plain = recipe()
    tasks = plain.jobs[0].tasks * 250
    jobs = (msgspec.structs.replace(plain.jobs[0], tasks=tasks),)
    plan = plan_jobs(msgspec.structs.replace(plain, jobs=jobs))
    [stream] = [step.body for step in plan.steps if step.action == "task.add"]
    assert isinstance(stream, TaskStream)
    assert stream.count == len(list(stream.documents())) == 250


def test_the_files_of_a_task_are_unpacked_by_its_coordination_command() -> None:
    plan = plan_jobs(
        recipe(task={**gang(), "source": "src"}), sources={"src": Source((File("train.py", b"print(1)", 0o755),))}
    )
    sent = body(plan, "task.add")
    chunks = [item["value"] for item in sent["environmentSettings"] if item["name"].startswith(payload.VARIABLE)]
    packed = base64.b64decode("".join(chunks))
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert {"train.py", ".batchtrain/launch.sh", ".batchtrain/coordinate.sh"} <= set(tar.getnames())
        assert tar.getmember("train.py").mode == 0o755
    assert "base64 -d | tar -xzf -" in sent["multiInstanceSettings"]["coordinationCommandLine"]


def test_an_archive_depends_on_nothing_but_its_files() -> None:
    one, two = File("a", b"1"), File("b", b"2")
    assert travel.archive((one, two)) == travel.archive((two, one))


def test_files_keep_their_time_of_modification_and_those_of_batchtrain_fit_a_zip_archive() -> None:
    archive = travel.archive((File("a", b"1", modified=1_700_000_000), File("b", b"2")))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getmember("a").mtime == 1_700_000_000
        assert time.gmtime(tar.getmember("b").mtime)[0] == 2000


def test_files_too_large_for_a_request_name_the_way_out() -> None:
    import random

    noise = random.Random(0).randbytes(300_000)
    with pytest.raises(PlanError, match="storage_account_settings"):
        plan_jobs(recipe(task={**gang(), "source": "src"}), sources={"src": Source((File("data", noise),))})


def test_files_that_do_not_fit_into_a_request_are_refused() -> None:
    most = payload.LIMIT // 4 * 3  # base64
    assert len(payload.inside_request(bytes(most), "j/t").environment) == payload.LIMIT // payload.CHUNK
    with pytest.raises(PlanError, match=r"^j/t: its files and commands have 480 KiB when packed, and 480 KiB fit into"):
        payload.inside_request(bytes(most + 1), "j/t")


def test_no_chunk_is_longer_than_a_variable_may_be() -> None:
    import random

    carrier = payload.inside_request(random.Random(0).randbytes(150_000), "j/t")
    assert len(carrier.environment) == 7
    assert max(len(item.value) for item in carrier.environment) <= payload.CHUNK


def test_a_source_file_may_not_take_the_place_of_the_tasks_own() -> None:
    with pytest.raises(PlanError, match=r"`stdout\.txt` of it would replace files"):
        plan_jobs(recipe(task={**gang(), "source": "s"}), sources={"s": Source((File("stdout.txt", b""),))})


def test_files_travel_through_storage_where_an_account_is_configured() -> None:
    plan = plan_jobs(
        recipe(
            task={**gang(), "source": "s"},
            settings={"storage_account_settings": "link"},
            credentials={"storage": {"link": {"account": "a", "account_key": "a2V5"}}},
        ),
        sources={"s": Source((File("t.py", b""),))},
    )
    files = body(plan, "task.add")["multiInstanceSettings"]["commonResourceFiles"]
    assert [step.action for step in plan.steps] == ["job.add", "blob.upload", "task.add"]
    assert files[0]["httpUrl"].startswith("{{sas:link/batchtrain-files/")
    assert "environmentSettings" not in body(plan, "task.add")


def test_a_plain_command_goes_to_bash_as_it_is() -> None:
    sent = body(plan_jobs(recipe(task={"command": 'echo "$HOME" && exit 3'})), "task.add")
    assert sent["commandLine"] == "/bin/bash -c 'echo \"$HOME\" && exit 3'"


def test_a_command_with_single_quotes_travels_as_a_file() -> None:
    plan = plan_jobs(recipe(task={"command": "echo 'a b'"}))
    assert "'a b'" not in body(plan, "task.add")["commandLine"]
    assert "echo 'a b'" in dict(plan.launch)["task-00000"]


@pytest.mark.parametrize(
    ("span", "iso"),
    [("00:06:00", "PT6M"), ("1.02:00:00", "P1DT2H"), ("00:00:00", "PT0S"), ("99:99:99", "P4DT4H40M39S")],
)
def test_a_span_is_written_as_the_service_normalises_it(span: str, iso: str) -> None:
    assert wire_times.duration(span) == iso


def test_generated_task_ids_skip_existing_ids() -> None:
    rule = recipe().settings.autogenerated_task_id
    assert list(ids.given([None, "task-00001", None], rule)) == ["task-00000", "task-00001", "task-00002"]


def test_a_stream_of_tasks_is_shown_by_its_number_and_its_largest_body() -> None:
    tasks = [{"command": f"echo {number}"} for number in range(250)]
    whole = msgspec.structs.replace(recipe(), jobs=convert([{"id": "j", "tasks": tasks}], tuple[Job, ...]))
    lines = [line for line in render.as_text(plan_jobs(whole)).splitlines() if line.startswith("POST")]
    assert lines == ["POST /jobs", "POST /jobs/j/addtaskcollection   (250 tasks, the largest of 132 bytes)"]


# --- what the service would refuse ----------------------------------------------------------------------------------

SPANS = [
    {"start": 4, "end": 9, "exit_options": {"dependency_action": "satisfy"}},
    {"start": 9, "end": 12, "exit_options": {"dependency_action": "block"}},
]


def test_a_plan_that_the_service_would_refuse_is_refused_with_the_place_in_the_request() -> None:
    refused = recipe(task={"id": "t", "exit_conditions": {"exit_code_ranges": SPANS}})
    with pytest.raises(PlanError, match=r"t/exitConditions/exitCodeRanges\[1\]/start.* \(9\).*overlap"):
        plan_recipe(refused)


def test_the_pool_of_an_automatic_pool_is_judged_too() -> None:
    machine = {"imageReference": dict(IMAGE), "nodeAgentSKUId": "batch.node.el 9", "windowsConfiguration": {}}
    pool = {"vmSize": "standard_d2s_v5", "virtualMachineConfiguration": machine}
    job = {"id": "j", "poolInfo": {"autoPoolSpecification": {"poolLifetimeOption": "job", "pool": pool}}}
    with pytest.raises(PlanError, match="poolInfo/autoPoolSpecification/pool/virtualMachineConfiguration/windowsConf"):
        judge([Step("job.add", "j", job)])


@pytest.mark.parametrize(
    ("action", "change", "path"),
    [
        ("job.add", {"priority": 1001}, "priority"),
        ("job.add", {"jobReleaseTask": {"commandLine": "x"}}, "jobPreparationTask"),
        ("task.add", {"commandLine": " "}, "t/commandLine"),
        ("task.add", {"resourceFiles": [{"httpUrl": "https://h/f", "filePath": "f" * 700}] * 60}, "t/resourceFiles"),
        ("task.add", {"dependsOn": {"taskIds": ["a"]}}, "t/dependsOn"),
    ],
)
def test_a_plan_is_judged_by_every_rule_of_the_emulator(action: str, change: dict[str, Any], path: str) -> None:
    least = {"job.add": {"id": "j", "poolInfo": {"poolId": "p"}}, "task.add": {"id": "t", "commandLine": "x"}}
    with pytest.raises(PlanError, match=f"`{path}`"):
        judge([Step(action, "j", {**least[action], **change})])  # type: ignore[arg-type]
