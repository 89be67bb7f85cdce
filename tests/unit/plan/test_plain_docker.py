"""What a pool with `plain_docker: true`, and its tasks, become. BATCHTRAIN_UPDATE_GOLDEN=1 writes the texts anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from batchtrain.errors import PlanError
from batchtrain.launchers.launch import Implicit
from batchtrain.launchers.rules import RULES
from batchtrain.plan.render import FILE_MARK
from tests.unit.plan import jobs, pools

GOLDEN = Path(__file__).parents[2] / "golden" / "docker"
VM: dict[str, Any] = {"platform_image": jobs.IMAGE, "plain_docker": True}
POOL: dict[str, Any] = {"vm_configuration": VM}
SIZES = {"h100": jobs.H100, "hb": {"vm_size": "STANDARD_HB120RS_V3"}, "cpu": {}}
GANGS = {
    "openmpi": {"num_instances": 2, "mpi": {"runtime": "openmpi", "processes_per_node": 2}},
    "intelmpi": {"num_instances": 2, "mpi": {"runtime": "intelmpi", "processes_per_node": 2}},
    "pytorch": {"num_instances": 2, "pytorch": {}},
    "alone": None,
}
REGISTRY = {"docker_registry": {"reg.example.org:5000": {"username": "me", "password": "s3cret"}}}


def text(size: str, gang: str) -> str:
    """What the hosts run, without the files beside it, and why it is so."""
    command = "python train.py --out $AZ_BATCH_TASK_WORKING_DIR/output"
    task = {"command": command, "docker_image": "a/b:1", "multi_instance": GANGS[gang]}
    made = jobs.plan(task={name: value for name, value in task.items() if value}, pool={**POOL, **SIZES[size]})
    shown = made.launch[0][1].partition(FILE_MARK)[0]
    return shown + "".join(f"#explain# {why(item)}\n" for item in made.implicit if of_docker(item))


def why(item: Implicit) -> str:
    return f"{item.what} {item.value}: {item.because} ({item.rule})"


def of_docker(item: Implicit) -> bool:
    return item.what in ("docker run", "--shm-size", "gpus", "infiniband", "default_working_dir", "user_identity")


@pytest.mark.parametrize("gang", GANGS)
@pytest.mark.parametrize("size", SIZES)
def test_the_whole_text_is_as_it_was_read_last(size: str, gang: str) -> None:
    path, now = GOLDEN / f"{gang}.{size}.sh", text(size, gang)
    if os.environ.get("BATCHTRAIN_UPDATE_GOLDEN"):
        path.write_text(now)
    assert path.read_text() == now


# --- the pool -------------------------------------------------------------------------------------------------------


def prepared(**more: Any) -> dict[str, str]:
    """The settings of the start task."""
    body = pools.sent({**POOL, **more.pop("pool", {})}, resources={"docker_images": ["a/b:1"]}, **more)
    assert "containerConfiguration" not in body["virtualMachineConfiguration"]
    assert body["startTask"]["waitForSuccess"] is True
    return {one["name"]: one["value"] for one in body["startTask"]["environmentSettings"]}


def test_the_start_task_brings_the_engine_before_the_images_and_tasks_wait_for_it() -> None:
    own = prepared()["BATCHTRAIN_NODE_PREPARATION"]
    assert own.index("\nbt_need_engine\n") < own.index("\nbt_pull_soon a/b:1\n")


def test_the_password_of_a_registry_is_a_placeholder_in_a_variable_alone() -> None:
    found = prepared(credentials=REGISTRY)
    assert found["BATCHTRAIN_GIVEN_REGISTRY_0"] == "{{registry:reg.example.org:5000}}"
    assert "bt_sign_in reg.example.org:5000 me BATCHTRAIN_GIVEN_REGISTRY_0" in found["BATCHTRAIN_NODE_PREPARATION"]
    assert "s3cret" not in repr(found)


def test_a_password_that_nodes_are_given_is_said() -> None:
    made = pools.plan(POOL, resources={"docker_images": ["a/b:1"]}, credentials=REGISTRY)
    assert [(one.rule, one.path) for one in made.warnings] == [("password-on-nodes", "global_resources.docker_images")]


def test_nodes_with_gpus_and_a_gang_on_infiniband_are_looked_at() -> None:
    pool = {**jobs.H100, "inter_node_communication_enabled": True}
    gang = [{"id": "j", "tasks": [{"command": "x", "docker_image": "a/b:1", "multi_instance": {"num_instances": 2}}]}]
    own = prepared(pool=pool, jobs=gang)["BATCHTRAIN_NODE_PREPARATION"]
    assert "bt_need_gpus 8 STANDARD_ND96ISR_H100_V5" in own
    assert "bt_need_infiniband STANDARD_ND96ISR_H100_V5" in own


@pytest.mark.parametrize(
    ("pool", "task"),
    [
        ({"inter_node_communication_enabled": False}, {"multi_instance": {"num_instances": 2}}),
        ({}, {"multi_instance": {"num_instances": 2}, "infiniband": False}),
        ({}, {}),
    ],
)
def test_infiniband_that_no_gang_uses_is_not_looked_at(pool: dict[str, Any], task: dict[str, Any]) -> None:
    tasks = [{"id": "j", "tasks": [{"command": "x", "docker_image": "a/b:1", **task}]}]
    own = prepared(pool={**jobs.H100, "inter_node_communication_enabled": True, **pool}, jobs=tasks)
    assert "bt_need_infiniband STANDARD" not in own["BATCHTRAIN_NODE_PREPARATION"]


@pytest.mark.parametrize(("directory", "starts"), [("container", False), ("batch", True)])
def test_a_command_starts_where_its_image_says_if_it_shall(directory: str, starts: bool) -> None:
    task = {"command": "./train", "docker_image": "a/b:1", "default_working_dir": directory}
    made = jobs.plan(task=task, pool=POOL)
    assert ('--workdir "$AZ_BATCH_TASK_WORKING_DIR"' in made.launch[0][1]) == starts


def test_a_pool_without_the_word_stays_native() -> None:
    body = pools.sent(resources={"docker_images": ["a/b:1"]})
    assert body["virtualMachineConfiguration"]["containerConfiguration"]["containerImageNames"] == ["a/b:1"]
    assert "startTask" not in body


@pytest.mark.parametrize(
    ("pool", "more", "says"),
    [
        ({"platform_image": {**jobs.IMAGE, "native": True}}, {}, "two ways to run containers"),
        ({"platform_image": pools.WINDOWS}, {}, "for Linux nodes"),
        ({}, {"credentials": {"docker_registry": {"r.io": {"identity": "/x"}}}}, "managed identity"),
    ],
)
def test_what_batch_alone_could_do_is_refused(pool: dict[str, Any], more: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        pools.plan({"vm_configuration": {**VM, **pool}}, resources={"docker_images": ["a/b:1"]}, **more)


# --- tasks ----------------------------------------------------------------------------------------------------------


def shown(**task: Any) -> str:
    """What the host runs for a task on one node."""
    made = jobs.plan(task={"docker_image": "a/b:1", "command": "x", **task}, pool=POOL)
    return made.launch[0][1].partition(FILE_MARK)[0]


def test_a_task_has_no_settings_of_a_container_and_the_pools_administrator_runs_it() -> None:
    sent = jobs.sent_task(jobs.plan(task={"docker_image": "a/b:1"}, pool=POOL))
    assert "containerSettings" not in sent
    assert sent["userIdentity"] == {"autoUser": {"scope": "pool", "elevationLevel": "admin"}}


def test_words_of_a_command_stay_words_and_other_text_is_bashs() -> None:
    assert """a/b:1 prog 'two words' '$X'""" in shown(command="prog 'two words' '$X'", entrypoint="/e")
    assert """a/b:1 /bin/bash -c 'echo "it'"'"'s" | cat'""" in shown(command="""echo "it's" | cat""")


def test_bind_mounts_are_those_that_are_named() -> None:
    text = shown(bind_mounts=[{"source": "Shared", "read_only": True}])
    assert '-v "$AZ_BATCH_NODE_SHARED_DIR:$AZ_BATCH_NODE_SHARED_DIR:ro"' in text
    assert "NODE_ROOT" not in text


def test_some_gpus_are_chosen_for_the_engine_and_none_are_not_asked_for() -> None:
    pool = {**POOL, **jobs.H100}
    chosen = {
        gpus: jobs.plan(task={"docker_image": "a/b:1", "command": "x", "gpus": gpus}, pool=pool).launch[0][1]
        for gpus in ("all", "2", "disable")
    }
    assert "--gpus=all " in chosen["all"]
    assert """--gpus='"device=0,1"'""" in chosen["2"]
    assert "--gpus=" not in chosen["disable"]


def test_a_persons_own_options_come_last_and_win() -> None:
    text = shown(additional_docker_run_options=["--workdir=/x", "--gpus=1"])
    assert text.index('--workdir "$AZ_BATCH') < text.index("--workdir=/x")


def test_a_gang_of_ones_own_network_does_not_get_the_hosts() -> None:
    gang = {"multi_instance": {"num_instances": 2}, "additional_docker_run_options": ["--network=mine"]}
    assert "--network host" not in shown(**gang)
    assert "--network host" in shown(multi_instance={"num_instances": 2})


@pytest.mark.parametrize("option", ["--name=x", "--name x", "-d", "--rm", "-itd", "-e A=1 -d", "-e A=1 --rm"])
def test_options_that_the_plan_gives_itself_are_refused(option: str) -> None:
    with pytest.raises(PlanError, match="which batchtrain sets; remove it"):
        shown(additional_docker_run_options=[option])


def test_quotes_that_do_not_end_are_refused_with_the_task() -> None:
    with pytest.raises(PlanError, match="j/task-00000: `command` cannot be cut into words"):
        shown(command="prog 'x", entrypoint="/e")


@pytest.mark.parametrize("part", ["job_manager", "job_preparation", "job_release"])
def test_a_jobs_own_tasks_in_containers_are_refused(part: str) -> None:
    more = {"id": "m"} if part == "job_manager" else {}
    with pytest.raises(PlanError, match=f"{part}: `docker_image` needs a pool whose containers Batch runs"):
        jobs.plan({part: {"command": "x", "docker_image": "a/b:1", **more}}, pool=POOL)


def test_each_flag_is_explained_by_a_rule_that_there_is() -> None:
    made = jobs.plan(task={"docker_image": "a/b:1", "multi_instance": GANGS["openmpi"]}, pool={**POOL, **jobs.H100})
    rules = {item.rule for item in made.implicit}
    wanted = {"docker-name", "docker-environment", "docker-mounts", "docker-gpus", "docker-network", "docker-root",
              "docker-waits", "infiniband-container", "shm-size", "pool-key", "working-directory"}  # fmt: skip
    assert wanted <= rules <= set(RULES)


# --- a second registry ----------------------------------------------------------------------------------------------


def test_a_task_and_a_gang_find_their_image_under_either_name_before_its_container() -> None:
    second = {"fallback_registry": "me.azurecr.io/batch/"}
    for name, begins in (("alone", "bt_run"), ("openmpi", "bt_start_gang")):
        task = {"command": "x", "docker_image": "r.io:5000/a/b:1", "multi_instance": GANGS[name]}
        told = {key: value for key, value in task.items() if value}
        shown = jobs.plan(task=told, pool=POOL, settings=second).launch[0][1]
        found = shown.index("bt_image=$(bt_find_image r.io:5000/a/b:1 me.azurecr.io/batch/a/b:1) || exit\n")
        assert found < shown.index(f"\n{begins} ")
        assert '"$bt_image"' in shown[shown.index(f"\n{begins} ") :]


def test_the_start_task_has_both_names_of_an_image() -> None:
    own = prepared(settings={"fallback_registry": "me.azurecr.io/batch"})["BATCHTRAIN_NODE_PREPARATION"]
    assert "\nbt_pull_soon a/b:1 me.azurecr.io/batch/a/b:1\n" in own
