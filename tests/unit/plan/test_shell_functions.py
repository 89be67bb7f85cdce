"""Where a command can call a function of login shells, and what is planned for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchtrain.plan import plan_pool
from tests.unit.plan.jobs import bodies, plan, recipe, said, sent_task

CALL = "module load mpi/hpcx && ./train"
LOADED = "declare -F module"
GANG: dict[str, Any] = {"num_instances": 2}


@pytest.mark.parametrize(
    "task",
    [
        {"command": CALL},
        {"command": CALL, "docker_image": "example.org/a"},
        {"command": "bash -c 'module load a'", "docker_image": "example.org/a"},
        {"command": CALL, "singularity_image": "docker://example.org/a"},
        {"command": CALL, "multi_instance": GANG},
        {"command": CALL, "multi_instance": {**GANG, "mpi": {"runtime": "openmpi"}}},
        {"command": CALL, "multi_instance": {**GANG, "pytorch": {}}},
        {"command": CALL, "multi_instance": {**GANG, "pytorch": {}}, "singularity_image": "docker://example.org/a"},
        {"command": "./train", "multi_instance": {**GANG, "mpi": {"runtime": "mpich"}, "pre_execution_command": CALL}},
        {"command": "./train", "multi_instance": {**GANG, "pytorch": {}, "pre_execution_command": CALL}},
        {"command": "./train", "multi_instance": {**GANG, "coordination_command": CALL}},
        {"command": CALL + " {0}", "task_factory": {"parametric_sweep": {"product": [{"start": 0, "stop": 2}]}}},
    ],
)
def test_a_task_loads_the_functions_that_its_texts_call(task: dict[str, Any]) -> None:
    made = plan(task=task)
    sent = json.dumps(sent_task(made)) if "multi_instance" not in task else ""
    assert LOADED in sent + "".join(text for _, text in made.launch)
    assert [what for what, _, _ in said(made, "shell-functions")][:1] == ["module"]


@pytest.mark.parametrize("part", ["job_preparation", "job_release", "job_manager"])
def test_the_tasks_of_a_job_do_so_too(part: str) -> None:
    job = {"job_preparation": {"command": "true"}, part: {"command": CALL}}  # a release task needs a preparation
    assert LOADED in json.dumps(bodies(plan(job), "job.add"))


def test_the_start_task_does_so_too() -> None:
    made = plan_pool(recipe(pool={"additional_node_prep": {"commands": {"pre": [CALL]}}}))
    assert LOADED in json.dumps(bodies(made, "pool.add"))


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --module load",
        "echo module load",
        "./module load x",
        "module",
        "conda run -n x python a.py",
        "echo 'conda activate'",
        "az ml job list",
        "spack install x",
    ],
)
def test_other_commands_stay_as_they_are(command: str) -> None:
    assert LOADED not in json.dumps(sent_task(plan(task={"command": command})))
    assert not said(plan(task={"command": command}), "shell-functions")


def test_a_task_with_an_apptainer_image_loads_the_function_in_the_image_alone() -> None:
    ((_, text),) = plan(task={"command": CALL, "singularity_image": "docker://example.org/a"}).launch
    assert text.count("for bt_file in") == 1


def test_nothing_is_said_of_a_function_where_no_shell_of_ours_runs() -> None:
    task = {"command": CALL, "docker_image": "example.org/a", "entrypoint": "/init"}
    made = plan(task=task)
    assert LOADED not in json.dumps(sent_task(made))
    assert not said(made, "shell-functions")
