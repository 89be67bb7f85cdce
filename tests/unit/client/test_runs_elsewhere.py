"""Runs that continue without their command, as files to read. BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from batchtrain.client import account_runs, controller, detach
from batchtrain.client.controller_program import Controller, Requests
from batchtrain.client.limits import Limits
from batchtrain.config.types import Credentials, Recipe, Secret, StorageCredentials
from batchtrain.records.events import Stdout
from batchtrain.storage.run_container import container_of
from tests.unit.client.account import Site
from tests.unit.client.test_runs import interrupt, of
from tests.unit.storage import blob_server
from tests.unit.storage.blob_server import BlobServer


class Store:
    """A storage account, and recipes that name it."""

    def __init__(self, blobs: BlobServer, endpoint: str) -> None:
        self.blobs = blobs
        account = StorageCredentials(account="account", account_key=Secret("a2V5"), endpoint=endpoint)
        self.credentials = Credentials(storage={"data": account})

    def of(self, command: str = "print hello", name: str = "j", **more: Any) -> Recipe:
        return replace(of(command, name, **more), credentials=self.credentials)


@pytest.fixture
def store(site: Site) -> Iterator[Store]:
    blobs = BlobServer()
    with blob_server.serve(blobs) as storage:
        store = Store(blobs, storage.url)
        site.client.credentials = store.credentials
        yield store


def uploaded(site: Site, store: Store) -> None:
    """The service uploads what the tasks of the newest run have written."""
    uploaded_of(store, max(row.run for row in site.client.account_runs()))


def uploaded_of(store: Store, run: str) -> None:
    top = f"{container_of(run)}/tasks/task-00000"
    store.blobs.store(f"{top}/stdout.txt", b"step=1 loss=0.5\nthe end\n")
    store.blobs.store(f"{top}/wd/output/model.pt", b"model")


def detached(site: Site, made: Recipe, **options: Any) -> str:
    runs = detach.detach(site.client, made, tell=site.tell, origin=site.origin, **options)
    return ", ".join(f"{run.job} for {run.seconds:g}" for run in runs)


def test_a_detached_run_is_followed_stopped_and_fetched(site: Site, store: Store) -> None:
    root = site.root / "runs"
    site.step("run --detach", detached, site, store.of("wait"))
    uploaded(site, store)
    site.step("run --detach again", detached, site, store.of("wait"))
    site.step("runs list --account", lambda: [(row.job, row.state, row.reason) for row in site.client.account_runs()])
    site.step("runs fetch", lambda: site.client.fetch_run("latest", runs_dir=root).record.state)
    site.steps = {"GET /jobs/j/tasks": site.finish}
    site.step("runs attach", lambda: site.client.attach("latest", tell=site.tell, runs_dir=root).record.state)
    site.step("runs attach again", lambda: site.client.attach("latest", tell=site.tell, runs_dir=root).record.state)
    site.step("run --detach of one that is to be stopped", detached, site, store.of("wait", name="k"))
    uploaded(site, store)
    site.step("runs stop", site.client.stop_run, "latest", runs_dir=root)
    site.step("runs stop again", site.client.stop_run, "latest", runs_dir=root)
    site.step("runs fetch", lambda: site.client.fetch_run("latest", runs_dir=root).record.state)
    site.assert_as_written()


def test_a_run_is_found_by_a_part_of_its_name_on_any_machine(site: Site, store: Store) -> None:
    elsewhere = site.root / "elsewhere"
    here, there = (account_runs.of(site.client, root) for root in (site.root / "runs", elsewhere))
    site.step("run --detach", detached, site, store.of("exit 3", name="a"))
    uploaded(site, store)
    site.step("run --detach", detached, site, store.of("wait", name="b"))
    first, second = (row.run for row in there.listed())
    assert there.find("latest") == (second, "b")
    assert there.find(first[-4:]) == there.find(first) == (first, "a")
    assert here.find(first) == (first, "a")
    site.step("what both are called", there.find, "20")
    site.step("what none is called", there.find, "x")
    site.step("the job of another run", account_runs.check, site.client, first, "b")
    site.step("runs attach", lambda: site.client.attach(first, tell=site.tell, runs_dir=elsewhere).record.state)
    site.client.jobs.handle("b").delete(tell=lambda _: None)
    uploaded_of(store, second)
    site.step("runs fetch of a job that is gone", site.client.fetch_run, second, runs_dir=site.root / "runs")
    site.client.credentials = Credentials(storage=dict.fromkeys(("data", "other"), store.credentials.storage["data"]))
    site.step("runs fetch from one of two accounts", site.client.fetch_run, first, runs_dir=elsewhere)
    site.step("runs fetch by link", lambda: site.client.fetch_run(first, link="data", runs_dir=elsewhere).record.state)
    site.client.credentials = Credentials()
    site.step("runs fetch without an account", site.client.fetch_run, first, runs_dir=elsewhere)
    site.assert_as_written()


def test_what_a_detached_run_may_cost_bounds_its_time(site: Site, store: Store) -> None:
    site.step("run --max-price", detached, site, store.of(name="a"), limits=Limits(price=3))
    site.step("run --max-duration", detached, site, store.of(name="b"), limits=Limits(seconds=3600))
    site.step("run for too short a time", detached, site, store.of(name="c"), limits=Limits(seconds=30))
    site.step("run of what no client replaces", detached, site, store.of(name="e", pool={"on_bad_node": "replace"}))
    site.steps = {"job.add": interrupt}
    site.step("run until Ctrl-C", detached, site, store.of(name="d"))
    site.step("its record", lambda: [row.job for row in site.client.account_runs()])
    site.assert_as_written()


def test_a_run_that_was_left_is_followed_and_fetched_on_its_machine(site: Site, store: Store) -> None:
    root = site.root / "runs"

    def left(name: str) -> None:
        site.steps = {"tasks.seen": interrupt}
        site.run("run until Ctrl-C, which continues", of("wait", name), ask=lambda _: True)

    left("j")
    site.step("runs fetch", lambda: site.client.fetch_run("latest", runs_dir=root).record.state)
    site.steps = {"GET /jobs/j/tasks": site.finish}
    site.step("runs attach", lambda: site.client.attach("latest", tell=site.tell, runs_dir=root).record.state)
    left("k")
    site.finish()
    site.step("runs fetch", lambda: site.client.fetch_run("latest", runs_dir=root).record.state)
    left("l")
    site.step("runs stop", site.client.stop_run, "latest", runs_dir=root)
    site.assert_as_written()


def test_a_controller_is_added_beside_a_detached_run_and_ends_with_it(
    site: Site, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_package", lambda: b"program")
    site.client.account = site.client.account._replace(emulated=True)
    moves = {"alternatives": [{"vm_size": "STANDARD_D2S_V5"}], "recover": True, "patience": "6m"}
    site.step("run --detach --controller", detached, site, store.of("wait", pool={"candidates": moves}),
              limits=Limits(seconds=3600), has_controller=True)  # fmt: skip
    site.step(
        "its requests", lambda: sorted(name.partition("/")[2] for name in store.blobs.blobs if "controller" in name)
    )
    site.step("run it again", detached, site, store.of("wait", pool={"candidates": moves}), has_controller=True)
    site.step("all jobs", lambda: [(row.id, row.state) for row in site.client.jobs.list()])
    site.step("runs stop", site.client.stop_run, "latest", runs_dir=site.root / "runs")
    site.step("its files", lambda: [name for name in store.blobs.blobs if name.endswith("requests.json")])
    site.assert_as_written()


def test_a_controller_moves_the_job_of_a_run_that_loses_its_nodes(
    site: Site, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_package", lambda: b"program")
    site.client.account = site.client.account._replace(emulated=True)
    moves = {"alternatives": [{"vm_size": "STANDARD_D2S_V5"}], "recover": True, "patience": "0s"}
    detached(site, store.of("wait", pool={"candidates": moves}), has_controller=True)
    [content] = [content for name, content in store.blobs.blobs.items() if name.endswith("requests.json")]
    requests = msgspec.json.decode(content, type=Requests)

    def control() -> None:
        Controller(site.client, requests, "j-controller", site.tell).control()

    def lose() -> None:
        [pool] = [pool for pool in site.driver.world.pools.values() if pool.record.id != "j-controller"]
        site.inside.run(site.driver.befall(next(iter(pool.nodes)), "break"))
        site.steps = {"POST /jobs/j/tasks": end}

    def end() -> None:
        site.steps = {"GET /jobs/j/tasks": site.finish}

    assert not controller.moves(site.client, "j", requests.marks.run)
    site.driver.world.jobs["j-controller"].record.state = "active"
    assert controller.moves(site.client, "j", requests.marks.run)
    assert not controller.moves(site.client, "j", "another run")
    site.steps = {"GET /jobs/j/tasks": lose}
    site.step("control", control)
    site.step("control again", control)
    site.step("its candidate", lambda: [step.vm_size for step in site.client.pools.list()])
    site.assert_as_written()


def test_the_output_of_a_job_that_was_moved_is_shown_from_its_beginning(
    site: Site, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    detached(site, store.of("print first"))
    uploaded(site, store)
    looks = list[str]()

    def moved(client: object, job: object, *, tell: Any, comes_back: Any, **_: object) -> None:
        tell(Stdout("task-00000", "printed before the move"))
        assert comes_back() is True
        tell(Stdout("task-00000", "step=1 loss=0.5"))
        looks.append("followed")

    monkeypatch.setattr(account_runs, "watch_job", moved)
    monkeypatch.setattr(controller, "moves", lambda *_: True)
    site.step(
        "runs attach", lambda: site.client.attach("latest", tell=site.tell, runs_dir=site.root / "runs").record.state
    )
    assert looks == ["followed"]
    site.assert_as_written()


def test_the_output_of_several_tasks_has_their_names(site: Site, store: Store) -> None:
    tasks = [{"id": name, "command": "print hello"} for name in ("a", "b")]
    detached(site, store.of(tasks=tasks))
    [run] = site.client.account_runs()
    for task in tasks:
        store.blobs.store(f"{container_of(run.run)}/tasks/{task['id']}/stdout.txt", b"hello\n")
    root = site.root / "runs"
    site.step("runs attach", lambda: site.client.attach("latest", tell=site.tell, runs_dir=root).record.state)
    site.assert_as_written()
