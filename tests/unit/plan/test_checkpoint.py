"""Where the checkpoints of a task are: the same for the same task of the same project, whatever it runs."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from batchtrain.config.ids import project_id
from batchtrain.config.travel import Source
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import File
from batchtrain.plan import Plan
from batchtrain.plan.lineage import Lineage, Resume
from batchtrain.plan.marks import Marks, marked
from batchtrain.plan.types import Facts
from tests.unit.plan.jobs import plan, sent_job, sent_task

VOLUME = {"resources": {"volumes": {"shared_data_volumes": {"share": {"volume_driver": "nfs", "source": "h:/p"}}}}}
GANG = {"multi_instance": {"num_instances": 2, "pytorch": {}}}
CHECKPOINT = {"checkpoint": {"volume": "share"}}
SOURCE = {"src": Source((File("train.py", b"1"),))}
DIRECTORY = re.compile(
    r'^bt_volume="\$AZ_BATCH_NODE_MOUNTS_DIR"/share$.*?'
    r'^bt_training="\$bt_volume/checkpoints/(\S+)"\n'
    r'^bt_former="(?:\$bt_volume/checkpoints/\$\{AZ_BATCH_JOB_ID//:/_\}/\$AZ_BATCH_TASK_ID/(\w{16}))?"$',
    flags=re.M | re.S,
)
FACTS = re.compile(r"^# ---- \S*batchtrain_lineage.json\n(.*?^\})$", flags=re.M | re.S)
JOB_AND_TASK = "${AZ_BATCH_JOB_ID//:/_}/${AZ_BATCH_TASK_ID}"


def planned(task: dict[str, Any] | None = None, **more: Any) -> Plan:
    return plan(task={**CHECKPOINT, **(task or {})}, **VOLUME, **more)


def directories(made: Plan) -> list[tuple[str, str]]:
    """The directory of each task, and the one of earlier versions."""
    return [pair for _, text in made.launch for pair in DIRECTORY.findall(text)]


def directory(task: dict[str, Any] | None = None, **more: Any) -> str:
    ((path, _),) = directories(planned(task, **more))
    return path


def facts(task: dict[str, Any] | None = None, **more: Any) -> Any:
    """What the node is told about the training."""
    ((_, text),) = planned(task, **more).launch
    (found,) = FACTS.findall(text)
    return msgspec.json.decode(found)


@pytest.mark.parametrize(
    "task",
    [
        {"max_task_retries": 3, "max_wall_time": "01:00:00", "retention_time": "01:00:00"},
        {"display_name": "again", "checkpoint": {"volume": "share", "keep": 5, "reshard": False}},
        {"command": "echo other"},
        {"environment_variables": {"SEED": "2"}},
        {"multi_instance": {"num_instances": 1, "pytorch": {}}},
        {"docker_image": "other"},
        {"source": "src"},
    ],
)
def test_source_command_and_number_of_nodes_do_not_change_the_directory(task: dict[str, Any]) -> None:
    assert directory(task, sources=SOURCE) == f"{project_id('x')}/{JOB_AND_TASK}" == directory(GANG)


def test_another_project_has_another_directory() -> None:
    assert directory(facts=Facts(project="0123456789abcdef")) == f"0123456789abcdef/{JOB_AND_TASK}"


def test_a_key_keeps_trainings_of_one_task_apart() -> None:
    keyed = directory({"checkpoint": {"volume": "share", "key": "lr-0.1"}})
    assert keyed == f"{directory()}@lr-0.1"


SWEEP = {"command": "echo {0}", "task_factory": {"parametric_sweep": {"product": [{"start": 0, "stop": 2, "step": 1}]}}}


def test_each_row_of_a_factory_has_a_directory_of_its_own_which_follows_the_row() -> None:
    first, second = (path for path, _ in directories(planned(SWEEP)))
    assert first != second
    later = {"parametric_sweep": {"product": [{"start": 1, "stop": 2, "step": 1}]}}
    assert directory({**SWEEP, "task_factory": later}) == second  # now the first task, and so with another id


@pytest.mark.parametrize(
    ("task", "former"),
    [
        ({**GANG, "source": "src"}, ["a35a10c7e424d7a8"]),
        ({**GANG, "max_task_retries": 3}, ["3658d8678e85a00c"]),
        (SWEEP, ["e36d4819e9b00fbd", "6c6548d7ccf1f7c5"]),
    ],
    ids=["source", "gang", "factory"],
)
def test_the_directories_of_earlier_versions_are_known(task: dict[str, Any], former: list[str]) -> None:
    """The digests are those that commit 4da8d95 made."""
    assert [name for _, name in directories(planned(task, sources=SOURCE))] == former


@pytest.mark.parametrize("key", [None, "lr-0.1"])
def test_a_newer_project_and_a_task_with_a_key_take_no_directory_of_earlier_versions(key: str | None) -> None:
    task = {"checkpoint": {"volume": "share", "key": key}}
    assert [name for _, name in directories(planned(task, facts=Facts(former=key is not None)))] == [""]


def test_what_is_trained_is_told_without_commands_and_variables() -> None:
    told = facts({**GANG, "command": "train --lr 1", "environment_variables": {"SEED": "7654321"}, "source": "src"},
                 sources=SOURCE)  # fmt: skip
    assert told["files"] == {"train.py": "6b86b273"}
    assert (told["nodes"], told["ranks"], told["reshard"]) == (2, 2, True)
    assert "lr" not in str(told["settings"])
    assert "7654321" not in str(told)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"command": "echo other"}, "command"),
        ({"environment_variables": {"SEED": "2"}}, "environment"),
        ({"docker_image": "other"}, "image"),
    ],
)
def test_what_changed_can_be_told(change: dict[str, Any], setting: str) -> None:
    before, after = facts(GANG)["settings"], facts({**GANG, **change})["settings"]
    assert [name for name in before if before[name] != after[name]] == [setting]


@pytest.mark.parametrize(
    ("block", "ranks"),
    [
        ({"pytorch": {"processes_per_node": 4}}, 8),
        ({"pytorch": {"processes": 6}}, 6),
        ({"mpi": {"runtime": "mpich", "processes_per_node": 2}}, 4),
        ({"mpi": {"runtime": "mpich", "processes_per_node": "nproc"}}, None),
        ({"mpi": {"runtime": "mpich", "options": ["-np 3"]}}, None),
        ({}, None),
    ],
)
def test_the_number_of_ranks_is_told_where_the_plan_knows_it(block: dict[str, Any], ranks: int | None) -> None:
    assert facts({"multi_instance": {"num_instances": 2, **block}})["ranks"] == ranks


def test_a_large_source_is_told_by_one_digest() -> None:
    files = {"src": Source(tuple(File(f"part{number}.py", b"1") for number in range(300)))}
    assert list(facts({"source": "src"}, sources=files)["files"]) == ["the 300 files of `src`"]


def test_a_task_that_succeeded_is_noted_as_finished() -> None:
    assert 'launch.sh" && { bt_python=' in sent_task(planned())["commandLine"]
    assert "finished" not in sent_task(plan(task=GANG))["commandLine"]


LINEAGE = Lineage(frozenset({"j"}), "abc", dirty=True, resume=Resume("earlier", "p/j", "j"))
VALUE = '{"run":"mine","commit":"abc","dirty":true,"resume":{"run":"earlier","training":"p/j"}}'


def test_a_job_with_checkpoints_tells_its_tasks_the_run() -> None:
    job = sent_job(planned(job={"environment_variables": {"A": "1"}}))
    settings = marked("job.add", job, Marks("mine", lineage=LINEAGE))["commonEnvironmentSettings"]
    variables = {item["name"]: item["value"] for item in settings}
    assert variables == {"A": "1", "BATCHTRAIN_RUN": "mine", "BATCHTRAIN_LINEAGE": VALUE}


def test_only_the_job_that_resumes_is_told_the_run_to_continue() -> None:
    lineage = LINEAGE._replace(jobs=frozenset({"j", "k"}))
    assert lineage.value("mine", "j") == VALUE
    assert lineage.value("mine", "k") == '{"run":"mine","commit":"abc","dirty":true}'


def test_a_job_without_checkpoints_is_told_nothing() -> None:
    other = LINEAGE._replace(jobs=frozenset({"other"}))
    for lineage in (None, other):
        sent = marked("job.add", sent_job(plan()), Marks("mine", lineage=lineage))
        assert [item["name"] for item in sent["commonEnvironmentSettings"]] == ["BATCHTRAIN_RUN"]


@pytest.mark.parametrize(
    "task",
    [{}, GANG, {"multi_instance": {"num_instances": 2, "mpi": {"runtime": "mpich"}}}],
    ids=["alone", "gang", "mpi"],
)
def test_every_kind_of_launch_sets_the_directory_and_brings_the_module(task: dict[str, Any]) -> None:
    ((_, text),) = plan(task={**CHECKPOINT, **task}, **VOLUME).launch
    assert len(DIRECTORY.findall(text)) == 1
    assert "export BATCHTRAIN_CHECKPOINT_DIR BATCHTRAIN_CHECKPOINT_KEEP=2" in text
    assert "python/batchtrain_checkpoint.py" in text


def test_a_task_alone_with_checkpoints_runs_our_script() -> None:
    assert "launch.sh" in sent_task(plan(task=CHECKPOINT, **VOLUME))["commandLine"]


def test_a_missing_volume_is_named() -> None:
    with pytest.raises(PlanError, match=r"`checkpoint.volume` is `share`, which is no volume that the pool mounts"):
        plan(task=CHECKPOINT)


@pytest.mark.parametrize("signal", ["", "SIGUSR1"])
def test_the_node_launcher_gets_the_signal_of_a_preemption_or_passes_it_on_by_a_file_alone(signal: str) -> None:
    checkpoint = {"volume": "share", **({"signal": signal} if signal else {})}
    ((_, text),) = plan(task={"checkpoint": checkpoint, **GANG}, **VOLUME).launch
    assert f'"preemption": "{signal}"' in text


def test_a_task_without_checkpoints_is_launched_as_ever() -> None:
    ((_, text),) = plan(task=GANG).launch
    assert "# ---- .batchtrain/preemption.py" not in text
    assert '"preemption"' not in text.partition("# ---- .batchtrain/gang.json")[2]


@pytest.mark.parametrize("task", [{}, {"multi_instance": {"num_instances": 2}}])
def test_a_preemption_is_watched_for_when_the_attempt_that_records_it_is_known(task: dict[str, Any]) -> None:
    ((_, text),) = planned(task).launch
    assert text.index("BATCHTRAIN_CHECKPOINT_DIR=") < text.index("\nbt_begin_attempt") < text.index("/preemption.py")
