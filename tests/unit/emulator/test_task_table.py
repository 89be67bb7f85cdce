"""Which tasks are in memory, and how lists of tasks are filtered without reading them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest

from batchtrain.emulator import columns, documents, query, tasks
from batchtrain.emulator.records import TaskFacts
from batchtrain.emulator.world import World
from tests.emulation import BASE, Kept, document

FILTERS = (
    "state eq 'active'",
    "state ne 'active'",
    "state eq 'completed' and executionInfo/result eq 'failure'",
    "executionInfo/result ne 'success'",
    "executionInfo/result eq null",
    "executionInfo/exitCode gt 0",
    "executionInfo/exitCode le 0",
    "executionInfo/exitCode ne 3",
    "executionInfo/exitCode eq null or executionInfo/exitCode eq 3",
    "executionInfo/exitCode lt null",
    "executionInfo/startTime ne null",
    "executionInfo/startTime lt DateTime'2026-11-21T10:00:10Z'",
    "executionInfo/endTime ge DateTime'2026-11-21T10:00:10Z'",
    "creationTime le DateTime'2026-11-21T10:00:05Z'",
    "lastModifiedTime gt DateTime'2026-11-21T10:00:05Z'",
    "stateTransitionTime gt DateTime'2026-11-21T10:00:10Z' and state ne 'completed'",
    "stateTransitionTime ge DateTime'2026-11-21T10:00:10Z' or id eq 'T1'",
    "id ge 't2' and (state eq 'active' or state eq 'running')",
    "startswith(id, 't1')",
    "startswith(id, 't1') and state eq 'completed'",
    "id ne null and id lt 't3'",
    "id eq null",
)


def a_job(path: Path) -> Kept:
    made = Kept(path / "world.sqlite3")
    made.pool(1, taskSlotsPerNode=2)
    made.job()
    return made


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Kept]:
    made = a_job(tmp_path)
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Forty tasks in every state, some of them deleted; only to be read."""
    chance = random.Random(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BLOCK", 8)
        made = a_job(tmp_path_factory.mktemp("busy"))
        for number in range(40):
            made.later(0.5)
            made.task(f"{'T' if number % 7 == 1 else 't'}{number}")
            made.settle()
            for task in tuple(made.world.jobs["job"].running.values()):
                if chance.random() < 0.4:
                    made.exits(task, chance.choice((0, 0, 3)))
            if chance.random() < 0.1:
                made.do(tasks.delete_task, "job", f"t{number // 2}")
                made.end_scopes()
        yield made
        made.store.close()


def in_memory(stage: Kept) -> list[str]:
    return [task.id for task in stage.world.shelf.tasks.values()]


def test_only_tasks_that_something_acts_on_stay_in_memory(stage: Kept) -> None:
    for name in "abcd":
        stage.task(name)
    assert in_memory(stage) == ["a", "b", "c", "d"]
    stage.settle()
    assert [task.id for task in stage.world.jobs["job"].running.values()] == ["a", "b"]
    assert in_memory(stage) == []
    assert stage.world.jobs["job"].tasks["d"].state == "active"
    assert in_memory(stage) == ["d"]


def test_a_task_under_way_stays_the_same_object(stage: Kept) -> None:
    task = stage.run_task()
    assert stage.world.jobs["job"].tasks["task"] is task


def test_a_change_that_is_not_stored_yet_keeps_its_task_in_memory(stage: Kept) -> None:
    stage.disable_node(stage.nodes()[0])
    task = stage.task()
    stage.world.take_touched(stage.now)
    stage.world.save_task(task)
    stage.world.take_touched(stage.now)
    stage.world.rest(most=0)
    assert stage.world.jobs["job"].tasks["task"] is task
    stage.commit()
    stage.world.rest(most=0)
    assert stage.world.jobs["job"].tasks["task"] is not task


def test_each_block_knows_the_latest_change_of_its_own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "BLOCK", 2)
    table = columns.Columns()
    for number, moment in enumerate((5, 3, 9, 1, 7), 1):
        table.add(TaskFacts(id=str(number), seq=number, state="active", state_time=moment, job=1))
    assert list(table.latest) == [5, 9, 7]
    table.change(TaskFacts(id="4", seq=4, state="running", state_time=11, job=1))
    assert list(table.latest) == [5, 11, 7]


def test_the_tasks_used_last_stay_in_memory(stage: Kept) -> None:
    stage.disable_node(stage.nodes()[0])
    for name in "abcd":
        stage.task(name)
    stage.settle()
    for name in "cdab":
        stage.world.jobs["job"].tasks[name]
    stage.world.rest(most=2)
    assert in_memory(stage) == ["a", "b"]


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_accepts_the_same_tasks_in_the_columns_as_in_the_answers(busy: Kept, text: str) -> None:
    entry = busy.world.jobs["job"]
    condition = query.parse_filter(text, query.FILTERS["tasks"])
    whole = [documents.task_document_of(entry, task, BASE) for task in entry.tasks.values()]
    assert len(whole) > 30
    listed = document(busy.do(tasks.list_tasks, "job", filter=text))["value"]
    assert [task["id"] for task in listed] == sorted(task["id"] for task in whole if condition(task))


def test_every_property_that_tasks_are_filtered_by_has_a_column() -> None:
    known = {*columns.NUMBERS, *columns.WORDS, "id"}
    assert {query.ALIASES.get(name, name) for name in query.FILTERS["tasks"].operators} == known


@pytest.mark.parametrize("select", ["id,state,stateTransitionTime", "id,executionInfo", "id,commandLine", ""])
def test_pages_follow_each_other_without_a_gap(busy: Kept, select: str) -> None:
    token, ids = "", []
    while True:
        page = document(busy.do(tasks.list_tasks, "job", maxresults="7", skiptoken=token, select=select))
        ids += [task["id"] for task in page["value"]]
        if "odata.nextLink" not in page:
            break
        token = unquote(page["odata.nextLink"].rpartition("skiptoken=")[2])
    assert ids == sorted(task.id for task in busy.world.jobs["job"].tasks.values())


def test_a_list_continues_by_ids_when_a_task_with_a_lower_id_was_added_meanwhile(stage: Kept) -> None:
    for task_id in ("b", "c", "d", "e"):
        stage.task(task_id)
    page = document(stage.do(tasks.list_tasks, "job", maxresults="2"))
    assert [task["id"] for task in page["value"]] == ["b", "c"]
    token = unquote(page["odata.nextLink"].rpartition("skiptoken=")[2])
    for task_id in ("a", "cc"):
        stage.task(task_id)
    rest = document(stage.do(tasks.list_tasks, "job", skiptoken=token))["value"]
    assert [task["id"] for task in rest] == ["cc", "d", "e"]


def test_what_changed_is_looked_for_only_where_something_changed(busy: Kept) -> None:
    columns_ = busy.world.jobs["job"].tasks.columns
    assert list(columns_.latest) == [max(columns_.state_time[at : at + 8]) for at in range(0, len(columns_.seqs), 8)]


@pytest.mark.parametrize("whole_job", [False, True])
def test_a_deleted_task_does_not_stay_in_memory(stage: Kept, whole_job: bool) -> None:
    stage.disable_node(stage.nodes()[0])
    stage.task("a")
    assert in_memory(stage) == ["a"]
    if whole_job:
        stage.world.jobs["job"].tasks.clear()
    else:
        stage.do(tasks.delete_task, "job", "a")
    assert in_memory(stage) == []


def test_deleted_tasks_leave_no_gap_when_most_are_gone(stage: Kept) -> None:
    stage.disable_node(stage.nodes()[0])
    for number in range(100):
        stage.task(f"t{number}")
    stage.settle()
    for number in range(80):
        stage.do(tasks.delete_task, "job", f"t{number}")
    stage.settle()
    table = stage.world.jobs["job"].tasks
    assert len(table.columns.seqs) < 50
    assert [task.id for task in table.values()] == [f"t{number}" for number in range(80, 100)]


def test_a_database_of_tasks_is_read_back_without_their_records(stage: Kept) -> None:
    for number in range(5):
        stage.task(f"t{number}")
    stage.settle()
    before = [msgspec.to_builtins(task) for task in stage.world.jobs["job"].tasks.values()]
    again = World()
    again.shelf.archive = stage.store
    again.restore(stage.store.load())
    assert not again.shelf.tasks
    assert [msgspec.to_builtins(task) for task in again.jobs["job"].tasks.values()] == before
