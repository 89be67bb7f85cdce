"""A job whose addition was interrupted at any moment is continued: it ends with exactly the tasks of its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.cli.failures import document_of
from batchtrain.client.client import Client
from batchtrain.config.types import Job, Recipe, Secret
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import Differs, NotFound, TasksRefused
from batchtrain.plan.marks import DIGEST
from batchtrain.plan.task_stream import TaskDocument
from batchtrain.records.events import Event
from batchtrain.service import job_addition, read, standing, submission
from batchtrain.service.connect import Account

pytestmark = pytest.mark.process
TOKEN = "0123456789abcdef"


@pytest.fixture
def client(emulator: Emulator) -> Client:
    made = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    made.pools.add(recipe(), wait=False)
    return made


def recipe(count: int = 3, command: str = "train", **job: Any) -> Recipe:
    tasks = [
        {"id": f"t{number}", "command": f"{command} {number}", "environment_variables": {"API_TOKEN": TOKEN, "A": "1"}}
        for number in range(count)
    ]
    image = {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}}
    pool = {"id": "p", "vm_size": "STANDARD_D2S_V5", "vm_count": {"dedicated": 0}, "vm_configuration": image}
    return msgspec.convert({"directory": "x", "pool": pool, "jobs": [{"id": "j", "tasks": tasks, **job}]}, Recipe)


def sweep(count: int) -> Recipe:
    """The same with tasks of a factory."""
    factory = {"parametric_sweep": {"product": [{"start": 0, "stop": count, "step": 1}]}}
    told = recipe(1)
    task = {"command": "train --seed {}", "environment_variables": {"API_TOKEN": TOKEN}, "task_factory": factory}
    return msgspec.structs.replace(told, jobs=(msgspec.convert({"id": "j", "tasks": [task]}, Job),))


def listing(count: int, **others: str) -> Recipe:
    """The same with a row for each task; others: the values that take the place of some."""
    rows = [{"v": others.get(f"v{number}", f"v{number}")} for number in range(count)]
    task = {"command": "train {v}", "task_factory": {"list": rows}}
    return msgspec.structs.replace(recipe(1), jobs=(msgspec.convert({"id": "j", "tasks": [task]}, Job),))


def names(client: Client) -> list[str]:
    return sorted(task.id for task in client.jobs.get("j").tasks)


def planned(count: int) -> list[str]:
    return sorted(f"t{number}" for number in range(count))


def add(client: Client, told: Recipe, **options: Any) -> list[Event]:
    events: list[Event] = []
    client.jobs.add(told, tell=events.append, **options)
    return events


class Killed(Exception):
    """The client ends here."""


def killed_after(monkeypatch: pytest.MonkeyPatch, collections: int) -> None:
    """The client ends before it sends its next collection."""
    post, sent = submission.Submission._post, [0]

    def counted(self: submission.Submission, collection: submission.Collection) -> Any:
        sent[0] += 1
        if sent[0] > collections:
            raise Killed
        return post(self, collection)

    monkeypatch.setattr(submission.Submission, "_post", counted)


def test_a_job_that_was_interrupted_is_continued(client: Client) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        killed_after(patch, 2)
        add(client, recipe(950))
    assert 0 < len(names(client)) < 950
    assert "existed already" in add(client, recipe(950))[-1].text
    assert names(client) == planned(950)


def test_a_malformed_task_is_refused_and_the_others_stand(client: Client) -> None:
    add(client, recipe(1))
    malformed = TaskDocument("bad", b'{"id":"bad","commandLine":5}')
    others = [TaskDocument(name, b'{"id":"%s","commandLine":"true"}' % name.encode()) for name in ("a", "b", "c")]
    sent = submission.Submission(client.batch, "j")
    assert not list(sent.add([*others, malformed]))
    assert [(refused.task, refused.code) for refused in sent.refused] == [("bad", "InvalidRequestBody")]
    assert names(client) == ["a", "b", "c", "t0"]


MERGE = {"merge_task": {"id": "all", "command": "merge"}}
FAILS = "raise ValueError('no more')"


@pytest.mark.parametrize(
    ("bad", "task_id", "job"), [(FAILS, None, {}), (FAILS, "c-{0}", MERGE), ("yield ()", "c-{0}", {})]
)
def test_a_custom_factory_beside_another_task_adds_every_task_before_its_failure(
    bad: str, task_id: str | None, job: dict[str, Any], client: Client, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(f"def generate():\n    yield from range(150)\n    {bad}\n", encoding="utf-8")
    many = {"id": task_id, "command": "train {0}", "task_factory": {"custom": {"module": "mine"}}}
    jobs = (msgspec.convert({"id": "j", "tasks": [many, {"command": "one"}], **job}, Job),)
    with pytest.raises(TasksRefused, match=r"150 of 15[1-3] tasks stand, 0 were refused") as caught:
        add(client, msgspec.structs.replace(recipe(1), directory=str(tmp_path), jobs=jobs))
    assert (caught.value.exit_code, caught.value.added, len(names(client))) == (4, 150, 150)


def unlisted(client: Client, told: Recipe) -> bool:
    """Whether adding the job again lists no tasks."""
    with pytest.MonkeyPatch.context() as patch:
        lists: list[str] = []
        patch.setattr(job_addition, "listed", lambda client, name: lists.append(name) or standing.listed(client, name))
        add(client, told)
    return not lists


def test_a_deleted_task_of_a_complete_job_is_added_again(client: Client) -> None:
    add(client, sweep(1500))
    client.jobs.handle("j").delete_tasks("task-00007")
    assert add(client, sweep(1500))[-1].text == "added 1 task; 1,499 existed already"
    assert unlisted(client, sweep(1500))


def test_a_change_in_the_middle_of_the_values_of_a_complete_job_is_found(client: Client) -> None:
    add(client, listing(1500))
    with pytest.raises(Differs, match="1 of its tasks differ from the plan: task-00700"):
        add(client, listing(1500, v700="w700"))
    assert unlisted(client, listing(1500))


def test_all_tasks_that_differ_are_in_the_error_and_its_document_and_the_first_20_in_its_message(
    client: Client,
) -> None:
    add(client, recipe(30))
    with pytest.raises(Differs, match=r"30 of its tasks differ from the plan: t0, .*, t19 and 10 more;") as caught:
        add(client, recipe(30, command="other"))
    assert caught.value.tasks == tuple(f"t{number}" for number in range(30))
    assert document_of(caught.value, "", 11)["tasks"] == list(caught.value.tasks)


def test_recreating_a_job_deletes_nothing_that_it_cannot_add_again(client: Client) -> None:
    add(client, recipe())
    pool = recipe().pool
    assert pool is not None
    other = msgspec.structs.replace(recipe(), pool=msgspec.structs.replace(pool, id="missing"))
    with pytest.raises(NotFound):
        client.jobs.add_all(other, recreate=True)
    assert names(client) == planned(3)


def test_a_job_that_was_added_again_is_not_deleted_in_place_of_the_completed_one(client: Client) -> None:
    add(client, recipe())
    client.jobs.handle("j").terminate()
    seen = client.jobs.list()
    client.jobs.add_all(recipe(), recreate=True)
    said: list[Event] = []
    assert not client.jobs.delete_seen(seen, tell=said.append)
    assert [event.text for event in said] == ["job j was added again meanwhile, and is kept"]
    assert names(client) == planned(3)
    assert [job.id for job in client.jobs.delete_seen(client.jobs.list())] == ["j"]


def test_recreating_a_job_replaces_its_tasks(client: Client) -> None:
    add(client, recipe(3))
    client.jobs.add_all(recipe(2, command="other"), recreate=True)
    assert names(client) == planned(2)


def test_a_secret_of_an_environment_variable_changes_no_digest(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    add(client, recipe())
    (digest,) = (item.value for item in client.batch.get_job("j").metadata or () if item.name == DIGEST)
    monkeypatch.setattr("tests.contract.test_continued_jobs.TOKEN", "another-secret-now")
    assert add(client, recipe())[-1].text == "added 0 tasks; 3 existed already"
    assert len(digest) == 32


def test_jobs_that_complete_by_themselves_do_so_only_when_every_task_stands(client: Client) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        killed_after(patch, 1)
        add(client, recipe(300, auto_complete=True))
    assert client.batch.get_job("j").all_tasks_complete_mode == "noaction"
    add(client, recipe(300, auto_complete=True))
    assert names(client) == planned(300)
    assert client.batch.get_job("j").all_tasks_complete_mode == "terminatejob"


def test_the_tasks_of_a_large_job_whose_state_changed_last_are_found_by_their_times(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "PAGE", 10)
    add(client, sweep(50))
    job = client.jobs.get("j")
    for name in ("task-00007", "task-00003"):
        job.terminate_tasks(name)
    assert [task.id for task in job.last_tasks(2)] == ["task-00007", "task-00003"]
    assert [task.id for task in job.last_tasks(5, "completed")] == ["task-00007", "task-00003"]
    assert len(job.last_tasks(20, "active")) == 20
    assert not job.last_tasks(2, "running")
