"""What a restarted emulator knows."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from batchtrain.emulator import jobs, node_reports, pools, recovery, reports, scheduler, tasks
from batchtrain.emulator.interface import Exit
from batchtrain.emulator.store import SCHEMA_VERSION, Store
from batchtrain.emulator.world import Change, World
from tests.emulation import Stage, document, everything
from tests.unit.emulator.test_preparation import prepared

Restart = Callable[[Stage], Stage]


class Unstored(Stage):
    """Its changes are the test's to store."""

    def commit(self) -> list[Change]:
        return []


def test_only_the_user_can_read_the_database(path: Path) -> None:
    path.touch(0o644)  # of an earlier version
    with contextlib.closing(Store(path)) as store:
        store.commit([], 1)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("world.sqlite3", "world.sqlite3-wal", "world.sqlite3-shm"), 0o600)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "world.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with contextlib.closing(Store(path)) as store:
        yield store


@pytest.fixture
def restart(path: Path) -> Iterator[Restart]:
    """Gives another stage with what the first one stored, woken up."""
    with contextlib.ExitStack() as opened:

        def again(stage: Stage) -> Stage:
            stage.commit()
            with contextlib.closing(Store(path)) as store:
                store.clear()
                store.commit(everything(stage.world), stage.world.last_seq)
            store = opened.enter_context(contextlib.closing(Store(path)))
            other = Stage()
            other.now, other.stored = stage.now, dict(stage.stored)
            other.world.shelf.archive = store
            other.world.restore(store.load())
            other.world.last_seq = store.last_seq()
            recovery.recover(other.world, other.now)
            return other

        yield again


def test_pools_jobs_and_finished_tasks_are_as_they_were(stage: Stage, restart: Restart) -> None:
    task = stage.run_task()
    stage.exits(task, 3)
    other = restart(stage)
    for operation, path in ((pools.get_pool, ["pool"]), (jobs.get_job, ["job"]), (tasks.get_task, ["job", "task"])):
        assert document(other.do(operation, *path)) == document(stage.do(operation, *path))
    assert other.world.jobs["job"].counts == stage.world.jobs["job"].counts


def test_nodes_boot_again_and_start_tasks_run_again(stage: Stage, restart: Restart) -> None:
    (node,) = stage.pool(1, startTask={"commandLine": "prepare"})
    node_reports.start_task_ended(stage.world, node.id, 1, Exit(0), stage.now)
    other = restart(stage)
    assert other.boot() == [scheduler.RunStartTask("pool", node.id)]
    assert other.nodes()[0].address == node.address


def test_a_running_task_is_requeued_once_and_its_old_run_is_stale(stage: Stage, restart: Restart) -> None:
    stage.gang_pool(2)
    stage.gang(2)
    stage.settle()
    other = restart(stage)
    task = other.world.jobs["job"].tasks["task"]
    assert (task.state, task.requeues, task.last_requeue) == ("active", 1, other.now)
    due = other.boot()
    assert due == [scheduler.RunCoordination(task, 2, number) for number in range(2)]


def test_a_task_that_was_to_end_ends(stage: Stage, restart: Restart) -> None:
    task = stage.run_task()
    reports.application_ended(stage.world, task, 1, Exit(4), stage.now)
    found = restart(stage).world.jobs["job"].tasks["task"]
    assert (found.state, found.exit_code, found.requeues) == ("completed", 4, 0)


def test_a_job_in_passage_arrives_and_a_deleting_pool_goes(stage: Stage, restart: Restart) -> None:
    stage.run_task()
    (node,) = stage.nodes()
    stage.do(jobs.terminate_job, "job")
    stage.do(pools.delete_pool, "pool")
    other = restart(stage)
    assert scheduler.RemoveNode("pool", node.id) in other.settle()
    assert other.world.jobs["job"].record.state == "completed"


def test_dependencies_are_remembered(stage: Stage, restart: Restart) -> None:
    stage.pool_and_job(usesTaskDependencies=True)
    first = stage.run_task("a")
    stage.exits(first)
    for number in range(2):
        stage.task(f"b{number}", dependsOn={"taskIds": ["a"] if number else ["never"]})
    other = restart(stage)
    other.boot()
    assert [other.world.jobs["job"].tasks[name].state for name in ("b0", "b1")] == ["active", "running"]


def test_numbers_are_never_given_twice(stage: Stage, restart: Restart) -> None:
    stage.pool(1)
    stage.task()
    last = stage.world.last_seq
    stage.do(jobs.delete_job, "job")
    stage.settle()
    assert restart(stage).world.new_seq() == last + 1


def test_a_database_that_can_shrink_is_not_rewritten(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            Store(path).close()
    assert caplog.messages == []


def test_deleted_records_stay_deleted(store: Store) -> None:
    stage = Unstored()
    stage.job()
    stage.task("a")
    store.commit(stage.world.take_changes(), 9)
    stage.do(tasks.delete_task, "job", "a")
    kept = stage.task("b")
    store.commit(stage.world.take_changes(), 9)
    assert [change.key for change in store.load()] == ["job", str(kept.seq)]
    stage.do(jobs.delete_job, "job")
    stage.settle()
    store.commit(stage.world.take_changes(), 9)
    assert list(store.load()) == []


def test_no_row_of_a_deleted_job_stays(store: Store, path: Path) -> None:
    stage = Unstored()
    stage.pool_and_job(usesTaskDependencies=True, jobPreparationTask={"commandLine": "x"})
    first = stage.run_task("a")
    prepared(stage, stage.nodes()[0])
    stage.exits(first)
    stage.do(tasks.delete_task, "job", "a")
    store.commit(stage.world.take_changes(), 9)
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert {kind for (kind,) in database.execute("SELECT kind FROM record")} >= {"job", "jobnode", "met"}
        stage.do(jobs.delete_job, "job")
        stage.end_scopes()
        store.commit(stage.world.take_changes(), 9)
        kinds = {kind for (kind,) in database.execute("SELECT kind FROM record")}
        assert (kinds, [*database.execute("SELECT * FROM task")]) == ({"pool", "node"}, [])


def test_tasks_of_the_first_schema_move_into_their_table(stage: Stage, path: Path) -> None:
    task = stage.task("Old")
    with contextlib.closing(Store(path)) as store:
        store.commit([change for change in everything(stage.world) if change.kind != "task"], stage.world.last_seq)
        store.note("schema", "1")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        row = (str(task.job), msgspec.msgpack.encode(task))
        database.execute("INSERT INTO record VALUES ('task', ?, 'old', ?)", row)
        database.execute("DROP TABLE task")
    with contextlib.closing(Store(path)) as store:
        again = World()
        again.shelf.archive = store
        assert again.restore(store.load()) == []
        assert msgspec.to_builtins(again.jobs["job"].tasks["old"]) == msgspec.to_builtins(task)
    with contextlib.closing(Store(path)) as store:  # no second move
        assert store.meta("schema", "") == str(SCHEMA_VERSION)


def test_changes_that_could_not_be_stored_go_with_the_next() -> None:
    stage = Unstored()
    stage.job()
    changes = stage.world.take_changes()
    stage.do(jobs.update_job, "job", body={"priority": 5})
    stage.world.put_back(changes)
    (change,) = stage.world.take_changes()
    assert change.record is stage.world.jobs["job"].record


def test_subtasks_of_a_run_that_was_ending_are_over(stage: Stage, restart: Restart) -> None:
    stage.gang_pool(2)
    task = stage.gang(2)
    stage.settle()
    for number in range(2):
        stage.coordinated(task, number)
    stage.settle()
    reports.application_ended(stage.world, task, 1, Exit(0), stage.now)
    stage.settle()
    other = restart(stage)
    (subtask,) = document(other.do(tasks.list_subtasks, "job", "task"))["value"]
    assert (subtask["state"], "endTime" in subtask) == ("completed", True)


def test_a_task_written_in_the_commit_that_deletes_its_job_is_gone_too(store: Store) -> None:
    stage = Unstored()
    stage.task()
    stage.do(jobs.delete_job, "job")
    stage.settle()
    store.commit(stage.world.take_changes(), 9)
    assert list(store.load()) == []


def filled(store: Store) -> None:
    """Many tasks of one job."""
    task = Stage().run_task()
    store.commit([Change("task", str(task.job), str(number), task) for number in range(20_000)], 1)


def sizes(path: Path) -> int:
    """Of the database with its journal."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def test_space_of_deleted_records_goes_back_to_the_disk(store: Store, path: Path) -> None:
    filled(store)
    full, steps = sizes(path), 1
    store.clear()
    while store.give_back():
        steps += 1
    assert steps > 2
    assert sizes(path) < full / 4
    assert not store.has_deleted


def test_a_database_of_an_earlier_version_is_rewritten_once_and_keeps_its_records(path: Path) -> None:
    with contextlib.closing(Store(path)) as store:
        filled(store)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA auto_vacuum = 0", "VACUUM"):
            old.execute(statement)
        old.execute("DELETE FROM task WHERE seq != 7")
    before = sizes(path)
    with contextlib.closing(Store(path)) as store:
        assert [change.key for change in store.load()] == ["7"]
    assert sizes(path) < before / 10
    with contextlib.closing(sqlite3.connect(path)) as again:
        assert again.execute("PRAGMA auto_vacuum").fetchone() == (2,)
