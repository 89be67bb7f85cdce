"""A task with a framework's block, from its configuration to the request: its launch, what is said and refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchtrain.config.travel import Source
from batchtrain.errors import PlanError
from batchtrain.frameworks import FRAMEWORKS
from batchtrain.launchers.launch import File
from batchtrain.plan import Plan
from tests.unit.plan.jobs import H100, bodies, plan

IMAGE = "example/torch:1"


def gang(name: str = "pytorch", /, **options: Any) -> dict[str, Any]:
    return {"id": "t", "command": "python $AZ_BATCH_TASK_SHARED_DIR/train.py", "multi_instance": {
        "num_instances": 2, name: options}}  # fmt: skip


def spec(made: Plan) -> Any:
    """gang.json, out of the text that people read."""
    [(_, text)] = made.launch
    return json.JSONDecoder().raw_decode(text[text.index('{\n  "version"') :])[0]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_block_is_launched_as_its_framework(name: str) -> None:
    assert spec(plan(task=gang(name)))["framework"] == name


def test_two_blocks_are_refused_by_name() -> None:
    both = gang()
    both["multi_instance"]["jax"] = {}
    with pytest.raises(PlanError, match=r"j/t: multi_instance has `pytorch` and `jax`"):
        plan(task=both)


def test_what_a_launcher_refuses_names_the_task() -> None:
    with pytest.raises(PlanError, match=r"^j/t: 3 processes do not divide among 2 nodes"):
        plan(task=gang(processes=3))


def test_a_gang_without_a_block_is_its_command_alone() -> None:
    assert "gang.json" not in plan(task={"command": "x", "multi_instance": {"num_instances": 2}}).launch[0][1]


@pytest.mark.parametrize("owner", ["task", "job"])
def test_a_variable_that_is_set_is_no_decision(owner: str) -> None:
    mine = {"environment_variables": {"NCCL_DEBUG": "INFO"}}
    made = plan(job=mine if owner == "job" else {}, task=gang() | (mine if owner == "task" else {}), pool=H100)
    assert "NCCL_DEBUG" not in spec(made)["environment"]
    assert "NCCL_DEBUG" not in [item.what for item in made.implicit]


def test_gpus_that_are_switched_off_leave_nothing_to_tell_nccl() -> None:
    assert spec(plan(task=gang() | {"gpus": "disable"}, pool=H100))["rdma"] is False


def test_a_containers_memory_grows_with_the_processes_of_the_block() -> None:
    task = gang(processes_per_node=24) | {"docker_image": IMAGE}
    [sent] = bodies(plan(task=task, resources={"docker_images": [IMAGE]}), "task.add")
    assert "--shm-size=1536m" in sent["containerSettings"]["containerRunOptions"]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (b"model = nn.DataParallel(model)", True),
        (b"model = DataParallel(model) if one else DistributedDataParallel(model)", False),
        (b"strategy = tf.distribute.MirroredStrategy()", True),
        (b"strategy = tf.distribute.MultiWorkerMirroredStrategy()", False),
    ],
)
def test_a_program_for_one_node_is_warned_of_on_several(program: bytes, told: bool) -> None:
    sources = {"src": Source((File("train.py", program), File("other.py", b"nn.DataParallel(x)")))}
    made = plan(task=gang() | {"source": "src"}, sources=sources)
    assert [note.rule for note in made.warnings if note.rule == "one-node-strategy"] == ["one-node-strategy"] * told


def warned(made: Plan, rule: str) -> list[tuple[str | None, str]]:
    return [(note.path, note.message) for note in made.warnings if note.rule == rule]


def test_a_misspelt_name_in_leave_unset_gets_a_suggestion() -> None:
    names = ["NCCL_DEBG", "NCCL_TOPO_FILE", "BATCHTRAIN_RANK", "MASTER_PORT"]
    [(path, text)] = warned(plan(task=gang(leave_unset=names)), "leave-unset")
    assert path == "job_specifications[0].tasks[0].multi_instance.pytorch.leave_unset"
    assert "`NCCL_DEBG`" in text
    assert "did you mean `NCCL_DEBUG`?" in text


def test_a_name_that_is_like_no_other_leads_to_the_list() -> None:
    [(_, text)] = warned(plan(task=gang("mxnet", leave_unset=["MY_OWN_THING"])), "leave-unset")
    assert "config explain" in text


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("pytorch", {}, True),
        ("pytorch", {"interface": "ib0"}, False),
        ("pytorch", {"backend": "mpi"}, False),
        ("horovod", {"over": "mpi"}, False),
        ("mxnet", {}, True),
    ],
)
def test_unused_infiniband_is_reported(name: str, options: dict[str, Any], told: bool) -> None:
    hb = {"vm_size": "STANDARD_HB120RS_V3"}
    assert bool(warned(plan(task=gang(name, **options), pool=hb), "infiniband-idle")) is told
    assert bool(warned(plan(task=gang(name, **options), pool=H100), "infiniband-idle")) is (name == "mxnet")
    assert warned(plan(task=gang(name, **options) | {"infiniband": False}, pool=hb), "infiniband-idle") == []


@pytest.mark.parametrize(
    ("block", "variables", "mounted"),
    [
        ({}, {"NCCL_TOPO_FILE": "/own/topo.xml"}, False),
        ({}, {"NCCL_TOPO_FILE": ""}, False),
        ({"leave_unset": ["NCCL_TOPO_FILE"]}, {}, False),
        ({}, {"NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml"}, True),
    ],
)
def test_the_folder_is_not_mounted_over_the_images_where_nothing_in_it_is_read(
    block: dict[str, Any], variables: dict[str, str], mounted: bool
) -> None:
    task = gang(**block) | {"docker_image": IMAGE, "environment_variables": variables}
    [sent] = bodies(plan(task=task, pool=H100, resources={"docker_images": [IMAGE]}), "task.add")
    assert ("/opt/microsoft" in sent["containerSettings"]["containerRunOptions"]) is mounted


def test_a_folder_that_is_mounted_already_is_not_mounted_twice() -> None:
    task = gang() | {"docker_image": IMAGE, "additional_docker_run_options": ["-v /x:/opt/microsoft"]}
    [sent] = bodies(plan(task=task, pool=H100, resources={"docker_images": [IMAGE]}), "task.add")
    assert sent["containerSettings"]["containerRunOptions"].count("/opt/microsoft") == 1
