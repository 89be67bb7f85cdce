"""From a recipe to requests: one claim a test, values in and values out."""

from __future__ import annotations

import io
import random
import tarfile
import time
from typing import Any

import msgspec
import pytest

from batchtrain.config import ids, travel
from batchtrain.config.travel import Source
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import File
from batchtrain.plan import payload, plan_jobs, plan_recipe, wire_times
from batchtrain.plan.judgement import judge
from batchtrain.plan.step import Step
from batchtrain.plan.task_stream import TaskStream
from tests.unit.plan import pools
from tests.unit.plan.jobs import IMAGE, STORAGE, archive_of, plan, recipe, sent_task

GANG: dict[str, Any] = {"multi_instance": {"num_instances": 2, "mpi": {"runtime": "mpich"}}}


def prepared(*lines: str) -> dict[str, Any]:
    """The start task of a pool with the user's own lines."""
    task: dict[str, Any] = pools.sent({"additional_node_prep": {"commands": {"pre": lines}}})["startTask"]
    return task


def test_a_pool_is_one_request_with_its_node_agent() -> None:
    sent = pools.sent({"inter_node_communication_enabled": True})
    assert sent["virtualMachineConfiguration"]["nodeAgentSKUId"] == "batch.node.ubuntu 24.04"
    assert sent["enableInterNodeCommunication"] is True
    assert (sent["targetDedicatedNodes"], sent["targetLowPriorityNodes"]) == (2, 0)


def test_images_make_a_container_pool_that_prefetches_them() -> None:
    images = {"docker_images": ["a/b:1"]}
    machine = pools.sent(resources=images)["virtualMachineConfiguration"]
    assert machine["containerConfiguration"] == {"type": "dockerCompatible", "containerImageNames": ["a/b:1"]}
    assert [item.value for item in pools.plan(resources=images).implicit if item.what == "native"] == ["true"]


def test_node_preparation_runs_as_root() -> None:
    task = prepared("apt update")
    assert task["userIdentity"] == {"autoUser": {"scope": "pool", "elevationLevel": "admin"}}
    assert task["waitForSuccess"] is True


def test_each_line_of_node_preparation_runs_by_itself() -> None:
    lines = ("echo 'one' # a comment", "exit 4")
    task = prepared(*lines)
    assert task["environmentSettings"][-1]["value"] == "\n".join(lines)
    assert "'one'" not in task["commandLine"]


def test_launches_of_two_jobs_have_different_names() -> None:
    plain = recipe()
    jobs = (plain.jobs[0], msgspec.structs.replace(plain.jobs[0], id="k"))
    plan = plan_jobs(msgspec.structs.replace(plain, jobs=jobs))
    assert [name for name, _ in plan.launch] == ["j/task-00000", "k/task-00000"]


def test_completion_is_asked_for_only_after_the_tasks() -> None:
    assert [step.action for step in plan({"auto_complete": True}).steps] == ["job.add", "task.add", "job.complete"]


def test_more_than_a_hundred_tasks_are_one_stream() -> None:
    made = plan({"tasks": [{"command": "echo hello"}] * 250})
    [stream] = [step.body for step in made.steps if step.action == "task.add"]
    assert isinstance(stream, TaskStream)
    assert stream.count == len(list(stream.documents())) == 250


def test_the_files_of_a_task_are_unpacked_by_its_coordination_command() -> None:
    sources = {"src": Source((File("train.py", b"print(1)", 0o755),))}
    sent = sent_task(plan(task={**GANG, "source": "src"}, sources=sources))
    with archive_of(sent) as tar:
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


def test_files_that_do_not_fit_into_a_request_are_refused() -> None:
    most = payload.LIMIT // 4 * 3  # base64
    assert len(payload.inside_request(bytes(most), "j/t").environment) == payload.LIMIT // payload.CHUNK
    said = r"^j/t: its files and commands have 480 KiB when packed, and 480 KiB fit into .*storage_account_settings"
    with pytest.raises(PlanError, match=said):
        payload.inside_request(bytes(most + 1), "j/t")


def test_no_chunk_is_longer_than_a_variable_may_be() -> None:
    carrier = payload.inside_request(random.Random(0).randbytes(150_000), "j/t")
    assert len(carrier.environment) == 7
    assert max(len(item.value) for item in carrier.environment) <= payload.CHUNK


def test_a_source_file_may_not_take_the_place_of_the_tasks_own() -> None:
    with pytest.raises(PlanError, match=r"`stdout\.txt` of it would replace files"):
        plan(task={**GANG, "source": "s"}, sources={"s": Source((File("stdout.txt", b""),))})


def test_files_travel_through_storage_where_an_account_is_configured() -> None:
    sources = {"s": Source((File("t.py", b""),))}
    made = plan(task={**GANG, "source": "s"}, sources=sources, settings={"storage_account_settings": "data"}, **STORAGE)
    [file] = sent_task(made)["multiInstanceSettings"]["commonResourceFiles"]
    assert [step.action for step in made.steps] == ["job.add", "blob.upload", "task.add"]
    assert file["httpUrl"].startswith("{{sas:data/batchtrain-files/")
    assert "environmentSettings" not in sent_task(made)


def test_a_plain_command_goes_to_bash_as_it_is() -> None:
    sent = sent_task(plan(task={"command": 'echo "$HOME" && exit 3'}))
    assert sent["commandLine"] == "/bin/bash -c 'echo \"$HOME\" && exit 3'"


def test_a_command_with_single_quotes_travels_as_a_file() -> None:
    made = plan(task={"command": "echo 'a b'"})
    assert "'a b'" not in sent_task(made)["commandLine"]
    assert "echo 'a b'" in dict(made.launch)["task-00000"]


@pytest.mark.parametrize(
    ("span", "iso"),
    [("00:06:00", "PT6M"), ("1.02:00:00", "P1DT2H"), ("00:00:00", "PT0S"), ("99:99:99", "P4DT4H40M39S")],
)
def test_a_span_is_written_as_the_service_normalises_it(span: str, iso: str) -> None:
    assert wire_times.duration(span) == iso


def test_generated_task_ids_skip_existing_ids() -> None:
    rule = recipe().settings.autogenerated_task_id
    assert list(ids.given([None, "task-00001", None], rule)) == ["task-00000", "task-00001", "task-00002"]


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
