"""Where the checkpoints of a task are: the same for the same training, another directory for another one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from batchtrain.config.travel import Source
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import File
from tests.unit.plan.jobs import plan, sent_task

VOLUME = {"resources": {"volumes": {"shared_data_volumes": {"share": {"volume_driver": "nfs", "source": "h:/p"}}}}}
GANG = {"multi_instance": {"num_instances": 2, "pytorch": {}}}
CHECKPOINT = {"checkpoint": {"volume": "share"}}
DIRECTORY = re.compile(
    r'^bt_volume="\$AZ_BATCH_NODE_MOUNTS_DIR"/share$.*?'
    r'^BATCHTRAIN_CHECKPOINT_DIR="\$bt_volume/checkpoints/\$\{AZ_BATCH_JOB_ID//:/_\}/\$AZ_BATCH_TASK_ID/(\w{16})"$',
    flags=re.M | re.S,
)


def directory(task: dict[str, Any] | None = None, **more: Any) -> str:
    """The digest in the path."""
    ((_, text),) = plan(task={**CHECKPOINT, **GANG, **(task or {})}, **VOLUME, **more).launch
    (found,) = DIRECTORY.findall(text)
    return str(found)


@pytest.mark.parametrize(
    "task",
    [
        {"max_task_retries": 3, "max_wall_time": "01:00:00", "retention_time": "01:00:00"},
        {"display_name": "again", "checkpoint": {"volume": "share", "keep": 5}},
        {"id": "other"},
    ],
)
def test_the_directory_stays_where_only_limits_and_names_change(task: dict[str, Any]) -> None:
    assert directory(task) == directory()


@pytest.mark.parametrize(
    "task",
    [
        {"command": "echo other"},
        {"environment_variables": {"SEED": "2"}},
        {"multi_instance": {"num_instances": 1, "pytorch": {}}},
        {"docker_image": "other"},
    ],
)
def test_another_training_has_another_directory(task: dict[str, Any]) -> None:
    assert directory(task) != directory()


def test_another_program_has_another_directory() -> None:
    found = {directory({"source": "src"}, sources={"src": Source((File("train.py", text),))}) for text in (b"1", b"2")}
    assert len(found) == 2


def test_a_variable_of_the_job_is_part_of_the_training() -> None:
    assert directory(job={"environment_variables": {"SEED": "2"}}) != directory()


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


SIGNAL = {"checkpoint": {"volume": "share", "signal": "SIGUSR1"}}


def test_the_node_launcher_gets_the_signal_of_a_preemption() -> None:
    ((_, text),) = plan(task={**SIGNAL, **GANG}, **VOLUME).launch
    assert '"preemption": "SIGUSR1"' in text


def test_without_a_signal_a_preemption_is_passed_on_by_a_file_alone() -> None:
    ((_, text),) = plan(task={**CHECKPOINT, **GANG}, **VOLUME).launch
    assert '"preemption": ""' in text


def test_a_task_alone_watches_for_a_preemption_in_the_background() -> None:
    ((_, text),) = plan(task=SIGNAL, **VOLUME).launch
    assert '"$BATCHTRAIN_PREEMPTION" $$ SIGUSR1 </dev/null >/dev/null 2>&1 &)' in text


def test_the_ranks_of_an_mpi_get_the_signal_of_a_preemption() -> None:
    gang = {"multi_instance": {"num_instances": 2, "mpi": {"runtime": "mpich"}}}
    ((_, text),) = plan(task={**SIGNAL, **gang}, **VOLUME).launch
    assert "export BATCHTRAIN_PREEMPTION_SIGNAL=SIGUSR1" in text
    assert "# ---- .batchtrain/preemption.py" in text
    assert 'preemption.py" "$BATCHTRAIN_PREEMPTION" $$ SIGUSR1' not in text.partition("# ---- .batchtrain/rank.sh")[0]


def test_a_task_without_checkpoints_is_launched_as_ever() -> None:
    ((_, text),) = plan(task=GANG).launch
    assert "# ---- .batchtrain/preemption.py" not in text
    assert '"preemption"' not in text.partition("# ---- .batchtrain/gang.json")[2]
