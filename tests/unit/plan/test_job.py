"""Jobs: each property of jobs.yaml is seen in the request; one claim a test."""

from __future__ import annotations

import pytest

from batchtrain.errors import PlanError
from batchtrain.launchers.rules import RULES
from batchtrain.plan import plan_jobs, plan_recipe
from tests import judge
from tests.unit.plan.jobs import STORAGE, bodies, plan, recipe, said, sent_job, sent_task
from tests.unit.plan.pools import WINDOWS

SUBNET = "/subscriptions/u/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s"


def test_a_job_request_has_the_properties_of_the_job() -> None:
    sent = sent_job(
        plan(
            {
                "display_name": "Nightly",
                "priority": 7,
                "allow_task_preemption": True,
                "max_parallel_tasks": 3,
                "max_wall_time": "1.00:00:00",
                "max_task_retries": 2,
                "metadata": {"team": "speech"},
                "environment_variables": {"A": "1"},
                "network": {"subnet_id": SUBNET, "skip_withdraw": True},
            }
        )
    )
    assert sent == {
        "id": "j",
        "poolInfo": {"poolId": "p"},
        "displayName": "Nightly",
        "priority": 7,
        "allowTaskPreemption": True,
        "maxParallelTasks": 3,
        "constraints": {"maxWallClockTime": "P1D", "maxTaskRetryCount": 2},
        "metadata": [{"name": "team", "value": "speech"}],
        "commonEnvironmentSettings": [{"name": "A", "value": "1"}],
        "networkConfiguration": {"subnetId": SUBNET, "skipWithdrawFromVNet": True},
        "usesTaskDependencies": False,
    }


def test_a_key_vault_mapping_is_named_and_not_read() -> None:
    sent = sent_job(plan({"environment_variables_keyvault_secret_id": "https://v/secrets/e"}))
    assert sent["commonEnvironmentSettings"] == [{"name": "{{keyvault:https://v/secrets/e}}"}]


def test_a_task_whose_request_is_too_large_is_refused() -> None:
    variables = {f"V{number}": "x" * 30_000 for number in range(34)}
    with pytest.raises(PlanError, match=r"has 1,0\d\d,\d{3} bytes, and the service takes 1,000,000"):
        plan(task={"environment_variables": variables})


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_task_whose_end_ends_the_job_switches_that_on() -> None:
    made = plan(task={"exit_conditions": {"default": {"exit_options": {"job_action": "terminate"}}}})
    assert sent_job(made)["onTaskFailure"] == "performexitoptionsjobaction"
    assert said(made, "job-action") == [("on_task_failure", "performexitoptionsjobaction", "job_specifications[0]")]


def test_what_a_task_without_exit_conditions_leaves_alone_stays_alone_beside_one_that_ends_the_job() -> None:
    ending = {
        "command": "x",
        "exit_conditions": {"exit_codes": [{"code": 3, "exit_options": {"job_action": "disable"}}]},
    }
    tasks = bodies(plan({"tasks": [{"command": "y"}, ending]}), "task.add")
    assert tasks[0]["exitConditions"] == {"default": {"jobAction": "none"}}
    assert tasks[1]["exitConditions"] == {
        "exitCodes": [{"code": 3, "exitOptions": {"jobAction": "disable"}}],
        "default": {"jobAction": "none"},
    }


def test_a_job_action_of_none_asks_for_nothing() -> None:
    made = plan(task={"exit_conditions": {"default": {"exit_options": {"job_action": "none"}}}})
    assert "onTaskFailure" not in sent_job(made)
    assert "exitConditions" not in sent_task(made)


def test_an_explicit_mode_is_carried_and_fills_nothing_in() -> None:
    made = plan({"on_task_failure": "performexitoptionsjobaction"})
    assert sent_job(made)["onTaskFailure"] == "performexitoptionsjobaction"
    assert "exitConditions" not in sent_task(made)


def test_every_kind_of_exit_condition_is_carried() -> None:
    block = {"exit_options": {"dependency_action": "satisfy"}}
    sent = sent_task(
        plan(
            {
                "exit_conditions": {
                    "default": block,
                    "exit_codes": [{"code": 2, **block}],
                    "exit_code_ranges": [{"start": 4, "end": 9, **block}],
                    "pre_processing_error": block,
                    "file_upload_error": block,
                }
            }
        )
    )["exitConditions"]
    satisfied = {"dependencyAction": "satisfy"}
    assert sent == {
        "exitCodes": [{"code": 2, "exitOptions": satisfied}],
        "exitCodeRanges": [{"start": 4, "end": 9, "exitOptions": satisfied}],
        "preProcessingError": satisfied,
        "fileUploadError": satisfied,
        "default": satisfied,
    }


# --- dependencies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [{"depends_on": ["a"]}, {"depends_on_range": [1, 4]}])
def test_a_dependency_switches_dependencies_on(task: dict[str, object]) -> None:
    made = plan(task=task)
    assert sent_job(made)["usesTaskDependencies"] is True
    assert said(made, "task-dependencies")


def test_an_action_for_dependent_tasks_switches_dependencies_on() -> None:
    made = plan(task={"exit_conditions": {"default": {"exit_options": {"dependency_action": "satisfy"}}}})
    assert sent_job(made)["usesTaskDependencies"] is True
    assert said(made, "task-dependencies")


def test_dependencies_can_be_forced_on_for_tasks_added_later() -> None:
    assert sent_job(plan({"force_enable_task_dependencies": True}))["usesTaskDependencies"] is True


def test_the_merge_task_comes_after_every_other_task() -> None:
    made = plan({"tasks": [{"command": "a"}, {"id": "b", "command": "b"}], "merge_task": {"command": "c"}})
    assert bodies(made, "task.add")[-1]["dependsOn"] == {"taskIds": ["task-00000", "b"]}
    assert said(made, "merge-task") == [("depends_on", "all 2 tasks", "job_specifications[0].merge_task")]


def test_a_merge_task_after_too_many_ids_depends_on_ranges_of_numbers() -> None:
    numbers = {"prefix": "", "zfill_width": 0}
    made = plan(
        {
            "tasks": [{"task_factory": {"repeat": 20_000}, "command": "a"}, {"id": "20001", "command": "b"}],
            "merge_task": {"command": "c"},
            "autogenerated_task_id": numbers,
        }
    )
    assert bodies(made, "task.add")[-1]["dependsOn"] == {
        "taskIdRanges": [{"start": 0, "end": 19_999}, {"start": 20_001, "end": 20_001}]
    }


def test_a_merge_task_after_too_many_names_says_how_to_number_them() -> None:
    rule = {"prefix": "mine-", "zfill_width": 5}
    tasks = [{"task_factory": {"repeat": 20_000, "autogenerated_task_id": rule}, "command": "a"}]
    with pytest.raises(PlanError, match="autogenerated_task_id"):
        plan({"tasks": tasks, "merge_task": {"command": "c"}})


def test_generated_ids_become_numbers_if_a_merge_task_waits_for_too_many() -> None:
    tasks = [{"id": "sweep", "task_factory": {"repeat": 20_000}, "command": "a"}, {"command": "b"}]
    made = plan({"tasks": tasks, "merge_task": {"command": "c"}})
    first, *_, merge = bodies(made, "task.add")
    assert first["id"] == "0"
    assert merge["dependsOn"] == {"taskIdRanges": [{"start": 0, "end": 20_000}]}
    assert "dependency-numbers" in [item.rule for item in made.implicit]


@pytest.mark.parametrize("count", [3, 300])
def test_a_task_waits_for_all_tasks_of_a_factory_by_its_id(count: int) -> None:
    tasks = [
        {"id": "sweep", "task_factory": {"repeat": count}, "command": "a"},
        {"id": "b", "command": "b", "depends_on": ["sweep"]},
    ]
    names = [f"sweep-{number:05d}" for number in range(count)]
    assert bodies(plan({"tasks": tasks}), "task.add")[-1]["dependsOn"] == {"taskIds": names}


# --- preparation, release, manager ----------------------------------------------------------------------------------


def test_preparation_and_release_run_as_the_pools_administrator() -> None:
    made = plan(
        {
            "job_preparation": {
                "command": "mkdir /data",
                "environment_variables": {"A": "1"},
                "resource_files": [{"file_path": "f", "blob_source": "https://h/f"}],
                "max_task_retries": 2,
                "max_wall_time": "00:05:00",
                "wait_for_success": False,
                "rerun_on_node_reboot": False,
            },
            "job_release": {"command": "rm -r /data", "max_wall_time": "00:10:00", "retention_time": "01:00:00"},
        }
    )
    admin = {"autoUser": {"scope": "pool", "elevationLevel": "admin"}}
    assert sent_job(made)["jobPreparationTask"] == {
        "commandLine": "/bin/bash -c 'mkdir /data'",
        "environmentSettings": [{"name": "A", "value": "1"}],
        "resourceFiles": [{"filePath": "f", "httpUrl": "https://h/f"}],
        "constraints": {"maxTaskRetryCount": 2, "maxWallClockTime": "PT5M"},
        "waitForSuccess": False,
        "rerunOnNodeRebootAfterSuccess": False,
        "userIdentity": admin,
    }
    assert sent_job(made)["jobReleaseTask"] == {
        "commandLine": "/bin/bash -c 'rm -r /data'",
        "maxWallClockTime": "PT10M",
        "retentionTime": "PT1H",
        "userIdentity": admin,
    }
    assert [where for _, _, where in said(made, "user-identity")][:2] == [
        "job_specifications[0].job_preparation",
        "job_specifications[0].job_release",
    ]


def test_a_preparation_with_quotes_travels_in_a_variable() -> None:
    sent = sent_job(plan({"job_preparation": {"command": "echo 'a b'"}}))["jobPreparationTask"]
    assert "a b" not in sent["commandLine"]
    assert sent["environmentSettings"] == [{"name": "BATCHTRAIN_COMMAND", "value": "echo 'a b'"}]


def test_a_preparation_can_run_in_a_container() -> None:
    sent = sent_job(plan({"job_preparation": {"command": "x", "docker_image": "a/b"}}))["jobPreparationTask"]
    assert sent["containerSettings"] == {"imageName": "a/b", "workingDirectory": "taskWorkingDirectory"}


def test_input_data_alone_makes_a_preparation_task() -> None:
    inputs = {"azure_storage": [{"storage_account_settings": "data", "remote_path": "c/mnist", "local_path": "in"}]}
    made = plan({"input_data": inputs}, **STORAGE)
    assert sent_job(made)["jobPreparationTask"]["resourceFiles"] == [
        {"storageContainerUrl": "{{sas:data/c?days=30}}", "blobPrefix": "mnist", "filePath": "in"}
    ]
    assert said(made, "prep-for-input") == [("job_preparation", "made", "job_specifications[0].input_data")]


def test_input_data_for_a_place_outside_the_working_directory_is_moved_there() -> None:
    inputs = {
        "azure_storage": [
            {"storage_account_settings": "data", "remote_path": "c", "local_path": "$AZ_BATCH_NODE_SHARED_DIR/in"}
        ]
    }
    sent = sent_job(plan({"input_data": inputs}, **STORAGE))["jobPreparationTask"]
    [file], [text] = sent["resourceFiles"], [item["value"] for item in sent["environmentSettings"]]
    assert file["filePath"] == ".batchtrain-input/0"
    assert 'cp -a .batchtrain-input/0/. "${AZ_BATCH_NODE_SHARED_DIR}"/in/' in text


def test_input_data_of_a_windows_job_stays_below_the_working_directory() -> None:
    pool = {"vm_configuration": {"platform_image": WINDOWS}, "inter_node_communication_enabled": False}
    data = {"storage_account_settings": "data", "remote_path": "c"}
    inside = plan({"input_data": {"azure_storage": [{**data, "local_path": "in"}]}}, pool=pool, **STORAGE)
    assert sent_job(inside)["jobPreparationTask"]["commandLine"] == 'cmd.exe /d /s /c "ver"'
    outside = {"azure_storage": [{**data, "local_path": "$AZ_BATCH_NODE_SHARED_DIR/in"}]}
    with pytest.raises(PlanError, match="on Windows nodes, data goes below the working directory"):
        plan({"input_data": outside}, pool=pool, **STORAGE)


def test_a_job_manager_leads_the_job() -> None:
    led = {"command": "python lead.py", "id": "lead", "docker_image": "a/b", "kill_job_on_completion": False}
    sent = sent_job(plan({"job_manager": {**led, "run_exclusive": False, "allow_low_priority_node": False}}))
    assert sent["jobManagerTask"] == {
        "id": "lead",
        "commandLine": "/bin/bash -c 'python lead.py'",
        "containerSettings": {"imageName": "a/b", "workingDirectory": "taskWorkingDirectory"},
        "killJobOnCompletion": False,
        "runExclusive": False,
        "allowLowPriorityNode": False,
        "userIdentity": {"autoUser": {"scope": "pool", "elevationLevel": "admin"}},
    }


# --- a pool of its own ----------------------------------------------------------------------------------------------


def test_an_auto_pool_is_described_in_the_job() -> None:
    made = plan({"auto_pool": {"keep_alive": True}}, pool={"id": "a-name-of-more-than-twenty-letters"})
    info = sent_job(made)["poolInfo"]["autoPoolSpecification"]
    assert (info["poolLifetimeOption"], info["keepAlive"]) == ("job", True)
    assert info["autoPoolIdPrefix"] == "a-name-of-more-than-"
    assert info["pool"]["vmSize"] == "STANDARD_D4S_V5"


def test_a_job_with_a_pool_of_its_own_needs_no_other() -> None:
    own = recipe({"auto_pool": {}})
    assert not own.needs_pool
    assert [step.action for step in plan_recipe(own).steps] == ["job.add", "task.add"]


def test_a_symbol_is_the_pool_files_count_for_a_pool_that_is_still_to_be_made() -> None:
    gang = {"multi_instance": {"num_instances": "pool_current_dedicated", "mpi": {"runtime": "mpich"}}}
    made = plan({"auto_pool": {}}, gang)
    assert sent_task(made)["multiInstanceSettings"]["numberOfInstances"] == 2
    assert made.warnings == ()


def test_the_lifetime_of_a_schedule_is_for_a_schedule() -> None:
    with pytest.raises(PlanError, match="is for a job with `recurrence`"):
        plan({"auto_pool": {"pool_lifetime": "job_schedule"}})


# --- all of it ------------------------------------------------------------------------------------------------------


def test_an_expanded_factory_has_a_task_for_each_value() -> None:
    made = plan(
        task={"command": "echo {0}", "task_factory": {"parametric_sweep": {"product": [{"start": 0, "stop": 3}]}}}
    )
    assert [task["commandLine"] for task in bodies(made, "task.add")] == [
        f"/bin/bash -c 'echo {number}'" for number in range(3)
    ]
    assert {item.where for item in made.implicit if "tasks" in item.where} == {"job_specifications[0].tasks[0]"}


def test_the_sdk_takes_a_job_that_says_everything() -> None:
    made = plan(
        {
            "auto_pool": {},
            "job_preparation": {"command": "a"},
            "job_release": {"command": "b"},
            "job_manager": {"command": "c"},
            "network": {"subnet_id": SUBNET},
            "metadata": {"a": "b"},
            "auto_complete": True,
        }
    )
    for step in made.steps:
        assert judge.flaws(step.action, step.document) == []


def test_each_decision_names_a_rule_and_a_place() -> None:
    made = plan(
        {"auto_pool": {}, "merge_task": {"command": "x"}},
        {"docker_image": "a"},
        {"vm_size": "STANDARD_ND96ISR_H100_V5"},
    )
    assert made.implicit
    assert all(item.rule in RULES and item.where for item in made.implicit)


def test_a_plan_depends_on_its_recipe_alone() -> None:
    known = recipe({"merge_task": {"command": "x"}}, {"command": "echo 'a'"})
    assert plan_jobs(known) == plan_jobs(known)


@pytest.mark.parametrize("part", ["merge_task", "job_preparation", "job_release", "job_manager"])
def test_an_image_of_any_part_of_a_job_makes_its_pool_one_for_containers(part: str) -> None:
    preparation = {"job_preparation": {"command": "x"}}
    made = plan_recipe(recipe({**preparation, part: {"command": "x", "docker_image": "a/b"}}))
    [pool] = bodies(made, "pool.add")
    assert pool["virtualMachineConfiguration"]["containerConfiguration"]["type"] == "dockerCompatible"


def test_a_decision_for_the_merge_task_names_its_place() -> None:
    made = plan({"merge_task": {"command": "x", "docker_image": "a"}}, {"docker_image": "a"})
    places = {item.where for item in made.implicit}
    assert {"job_specifications[0].tasks[0]", "job_specifications[0].merge_task"} <= places
