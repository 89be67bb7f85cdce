"""What a hostile task can put into the container of its run, and what comes home in spite of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchtrain.client import detached_results
from batchtrain.client.client import Client
from batchtrain.errors import NotFound, ResultsLeft, ServiceError
from batchtrain.runs import directory, stored_results
from batchtrain.runs.directory import RunRecord
from batchtrain.runs.recording import Recording
from batchtrain.storage import blob
from batchtrain.storage.blob_requests import Storage
from batchtrain.storage.run_container import container_of, control_of
from tests import examples
from tests.unit.runs import batch_server
from tests.unit.runs.batch_server import START, BatchServer, node, task
from tests.unit.storage import blob_server
from tests.unit.storage.blob_server import BlobServer

NAME = "20261122T120000Z-j-7f3a"
RECORD = {"id": NAME, "state": "detached", "started": START.isoformat(), "job": "j"}
PLAN = {"steps": [{"action": "task.add", "body": {"id": "t", "commandLine": "x"}}]}
"""Of a run of one task."""


class World:
    """A Batch account and a storage account after a detached run of one task."""

    def __init__(self, service: BatchServer, blobs: BlobServer, storage: Storage, root: Path, *, earlier: bool) -> None:
        """earlier: the run of an earlier version, which has everything in the container of its results."""
        self.service, self.blobs, self.storage, self.root = service, blobs, storage, root
        self.client = Client(service.account)
        self.add(task("t"))
        beginning = container_of(NAME) if earlier else control_of(NAME)
        self.blobs.store(f"{beginning}/run/run.json", json.dumps(RECORD).encode())
        self.blobs.store(f"{beginning}/run/config/plan.json", json.dumps(PLAN).encode())
        self.put("tasks/t/stdout.txt", b"step=1 loss=0.5\n")
        self.put("tasks/t/wd/output/model.pt", b"model")

    def add(self, document: dict[str, Any]) -> None:
        self.service.job(document)
        job = self.service.documents["/jobs/j"]
        job |= {"metadata": [{"name": "batchtrain:run", "value": NAME}], "state": "completed"}
        job["executionInfo"]["terminateReason"] = "AllTasksComplete"

    def put(self, name: str, content: bytes) -> None:
        """As a task can."""
        self.blobs.store(f"{container_of(NAME)}/{name}", content)

    def fetch(self) -> Recording:
        return detached_results.fetch(self.client, self.storage, self.root, NAME)


@pytest.fixture(params=[False, True], ids=["two containers", "one container"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    service, blobs = BatchServer(), BlobServer()
    with batch_server.serve(service), blob_server.serve(blobs) as storage:
        yield World(service, blobs, storage, tmp_path / "runs", earlier=request.param)


def content(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lease.json")
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def assert_home(world: World, recording: Recording) -> None:
    """The end of the run is written, and its output, its metrics and its results are here."""
    run = recording.run
    assert run.record().state == "completed"
    assert run.record().summary["loss"].last == 0.5
    assert (run.outputs("t") / "model.pt").read_bytes() == b"model"
    before = content(world.root)
    world.fetch()
    assert content(world.root) == before


@pytest.mark.parametrize("world", [False], ids=["two containers"], indirect=True)
def test_a_task_cannot_change_the_beginning_of_its_run(world: World) -> None:
    expected = world.fetch().run.path
    for name in ("run.json", "config/plan.json", "config/effective.yaml", "source.tar.gz", "report.html", "new"):
        world.put(f"run/{name}", b"hostile")
    world.root = world.root.with_name("other")
    assert content(world.fetch().run.path) == content(expected)


def test_a_detached_run_has_the_hours_of_the_nodes_of_its_pool(world: World) -> None:
    world.service.pool(node("tvm-1"), node("tvm-2", allocated=120))
    assert world.fetch().run.record().node_hours == (300 + 180) / 3600


@pytest.mark.parametrize("world", [False], ids=["two containers"], indirect=True)
def test_a_detached_run_without_its_pool_has_at_least_the_hours_of_its_tasks(world: World) -> None:
    world.add({**task("t"), "multiInstanceSettings": {"numberOfInstances": 90}})
    recording = world.fetch()
    record = recording.run.record()
    assert (record.node_hours, record.is_node_hours_least) == (1.0, True)
    assert "at least 1.00 node hours" in recording.conclusion()


NAMES_THAT_LEAD_OUT = (
    "/abs/run.json", "../../../run.json", "..", "a\\..\\..\\b", "logs/../../x", "x/" * 400 + "y", "n" * 1000,
    "RUN.JSON", "run.json/x", "config",
)  # fmt: skip


@pytest.mark.parametrize(
    "top",
    ["run", "tasks/t/wd/output", "tasks/t/.batchtrain-nodes", "tasks/t/.batchtrain-nodes/n1", "live/t", "live/t/1"],
)
def test_no_name_of_a_blob_leads_out_of_the_run_directory(world: World, top: str) -> None:
    for name in NAMES_THAT_LEAD_OUT:
        world.put(f"{top}/{name}", b"hostile")
    recording = world.fetch()
    assert_home(world, recording)
    assert {path.name for path in world.root.parent.iterdir()} == {"runs"}
    assert {path.name for path in world.root.iterdir()} == {".gitignore", NAME}


@pytest.mark.parametrize(
    "name",
    ["live/t/abc/stdout.txt", "live/t/9/model.pt", "live/t/stdout.txt", "live/t/-1/stdout.txt", "live/t/" + "9" * 900],
)
def test_a_blob_that_is_no_output_is_named_and_passed_over(world: World, name: str) -> None:
    world.put(name, b"hostile")
    recording = world.fetch()
    assert recording.conclusion().count(f"{name} was not fetched: its name is not that of an output of a gang") == 1
    assert_home(world, recording)


def test_the_output_of_more_attempts_than_a_task_can_have_had_is_passed_over(world: World) -> None:
    for start in range(1, 300):
        world.put(f"live/t/{start}/stdout.txt", b"x")
    recording = world.fetch()
    assert "it is of too many attempts" in recording.conclusion()
    assert len(list((recording.run.path / "logs/t").glob("attempt-*"))) == 100
    assert_home(world, recording)


DEEP = b"[" * 100_000
CONTENTS = [
    b"\xff\xfe", DEEP, b'{"a":' * 100_000, b"[]", b"null", b"1", b"9" * 5_000, b'{"process": 5}', b"{}", b"",
    b'{"event": "began", "attempt": 1, "time": "2026-11-22T12:00:00"}',
    b'{"event": "ended", "attempt": 1, "time": "9999-12-31T23:59:59.9Z"}',
    b'{"event": "began", "attempt": 99, "time": "2026-11-22T12:00:00Z", "stdout": -5, "stderr": 99999999999}',
    b'{"rank": 1e99, "time": 0, "file": "stdout", "text": "x", "attempt": 4611686018427387904}',
    b'{"step": 1' + b"0" * 400 + b', "other": 1.5}',
    b"Epoch " + b"9" * 4_000 + b" loss: 0.1\n", b"[" + b"9" * 5_000 + b":0] x",
    b"".join(b"Epoch[1] Batch [%d" % step + b"0" * 400 + b"] Speed: 1 samples/sec acc=0.5\n" for step in (1, 2)),
    "[\u00b2:0] x".encode(),
    b'{"steps": [{"action": 5}]}', b'{"run": 5}',
]  # fmt: skip


HOSTILE_FILES = (
    "tasks/t/stdout.txt", "tasks/t/stderr.txt", "tasks/t/wd/ranks/ends.jsonl", "tasks/t/wd/ranks/attempts.jsonl",
    "tasks/t/wd/ranks/stream.jsonl", "tasks/t/wd/ranks/0.stdout.txt", "tasks/t/wd/ranks/0.metrics.jsonl",
    "tasks/t/wd/ranks/attempt-99999999999999999999/0.metrics.jsonl", "tasks/t/wd/ranks/\u00b2.metrics.jsonl",
    "tasks/t/wd/.batchtrain-lineage.json", "tasks/t/wd/.batchtrain-packages.json", "run/config/plan.json",
    "run/config/effective.yaml", "run/tasks.jsonl", "run/attempts.jsonl", "run/files.jsonl", "run/nodes.json",
    "run/fabric.json", "run/events.jsonl", "run/metrics/t.jsonl", "run/lease.json",
)  # fmt: skip


@pytest.mark.property
@pytest.mark.parametrize("world", [True], ids=["one container"], indirect=True)
@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_whatever_a_file_contains_the_rest_comes_home(world: World, name: str) -> None:
    """In one container, a task can write all of them."""
    for number, content in enumerate(examples.some(CONTENTS, HOSTILE_FILES.index(name))):
        exit_code = (0, 3)[number % 2]
        world.add(task("t", exit_code=exit_code))
        world.put(name, content + b"\n")
        world.root = world.root.with_name(f"runs-{number}")
        recording = world.fetch()
        assert recording.run.record().state == ("failed" if exit_code else "completed")
        assert (recording.run.outputs("t") / "model.pt").read_bytes() == b"model"


def test_files_of_other_nodes_are_below_the_numbers_of_their_nodes(world: World) -> None:
    nodes = [{"nodeInfo": {"nodeId": name, "poolId": "p"}} for name in ("tvm-5", "tvm-2")]
    gang = {"multiInstanceSettings": {"numberOfInstances": 5}}
    world.add({**task("t", BATCHTRAIN_FETCH='{"every_node": true}'), **gang})
    world.service.documents["/jobs/j/tasks/t/subtasksinfo"] = {"value": nodes}
    for name in ("tvm-2/.a/state", "tvm-5/output/x", "tvm-9/x", "tvm-2/ranks/0.stdout.txt", "10.0.0.7.missing"):
        world.put(f"tasks/t/.batchtrain-nodes/{name}", name.encode())
    recording = world.fetch()
    missing = (
        "what the program created on node 10.0.0.7 was not fetched: the node did not send all of it to the primary"
    )
    assert missing in recording.conclusion()
    assert content(recording.run.outputs("t")) == {
        "model.pt": b"model",
        "n1/x": b"tvm-5/output/x",
        "n2/.a/state": b"tvm-2/.a/state",
        "tvm-9/x": b"tvm-9/x",
    }
    assert_home(world, recording)


def test_a_file_with_another_md5_is_named_and_the_rest_comes_home(world: World) -> None:
    for name, md5 in (("other", bytes(16)), ("short", b"x"), ("none", b"")):
        world.put(f"tasks/t/wd/output/{name}", b"x")
        world.blobs.md5[f"{container_of(NAME)}/tasks/t/wd/output/{name}"] = md5
    recording = world.fetch()
    assert "wd/output/other was not fetched: its bytes have another MD5" in recording.conclusion()
    assert sorted(path.name for path in recording.run.outputs("t").iterdir()) == ["model.pt", "none", "short"]
    assert_home(world, recording)


def test_a_fault_of_this_machine_leaves_the_run_to_a_later_fetch(world: World) -> None:
    world.fetch()
    run = world.root / NAME
    (run / "run.json").write_bytes(json.dumps(RECORD).encode())
    (run / "outputs/t/model.pt").unlink()
    (run / "outputs/t/model.pt").mkdir()
    with pytest.raises(ResultsLeft, match=r"model\.pt: Is a directory"):
        world.fetch()
    assert json.loads((run / "run.json").read_bytes())["state"] == "detached"
    (run / "outputs/t/model.pt").rmdir()
    assert_home(world, world.fetch())


def test_a_fault_of_this_machine_at_the_beginning_of_a_run_is_mended_by_the_next_fetch(world: World) -> None:
    plan = world.root / NAME / "config/plan.json"
    plan.mkdir(parents=True)
    with pytest.raises(ServiceError, match=r"the beginning of run .* cannot be fetched: .*plan\.json: Is a directory"):
        world.fetch()
    plan.rmdir()
    assert world.fetch().run.record().results == "complete"


@pytest.mark.parametrize("world", [False], ids=["two containers"], indirect=True)
def test_a_job_that_was_added_in_part_has_no_container_of_results_and_its_run_ends(world: World) -> None:
    world.blobs.blobs = {n: data for n, data in world.blobs.blobs.items() if not n.startswith(f"{container_of(NAME)}/")}
    job = world.service.documents["/jobs/j"]
    job["executionInfo"]["terminateReason"] = "MaxWallClockTimeExpiry"
    job["onAllTasksComplete"] = "terminatejob"  # of a whole job: somebody has deleted the results
    with pytest.raises(NotFound, match="ContainerNotFound"):
        world.fetch()
    job["onAllTasksComplete"] = "noaction"
    assert world.fetch().run.tasks()[0].id == "t"


def test_a_task_of_which_nothing_was_uploaded_makes_the_results_partial(world: World) -> None:
    world.add(task("u"))
    recording = world.fetch()
    assert recording.run.record().results == "partial"
    assert "what task u wrote was not fetched: the service uploaded nothing" in recording.conclusion()


def test_a_run_that_was_not_detached_and_has_ended_names_its_results(world: World, tmp_path: Path) -> None:
    run = directory.make(tmp_path, "j", START)
    run.write(RunRecord(id=run.name, job="j", started=START, state="interrupted"))
    with pytest.raises(NotFound, match=f"has ended; its results are in {run.path}"):
        stored_results.begin(world.storage, tmp_path, run.name)


def test_results_of_any_size_wait_until_they_are_asked_for(world: World) -> None:
    settings = {"results": {"max_size": "1k"}}
    world.add(task("t", BATCHTRAIN_FETCH=json.dumps(settings)))
    world.put("tasks/t/wd/output/large.bin", bytes(2000))
    recording = world.fetch()
    reason = f"`results.max_size` is 1k; `batchtrain runs fetch {NAME} --all` fetches it"
    assert f"wd/output/large.bin was not fetched: {reason}" in recording.conclusion()
    assert recording.run.record().results == "partial"
    assert_home(world, recording)
    everything = detached_results.fetch(world.client, world.storage, world.root, NAME, everything=True)
    assert (everything.run.outputs("t") / "large.bin").stat().st_size == 2000
    assert everything.run.record().results == "complete"


def test_the_source_does_not_count_as_created_and_a_changed_file_of_it_comes(world: World) -> None:
    world.add(task("t", BATCHTRAIN_FETCH=json.dumps({"results": {"max_created_size": "1k"}})))
    world.put("tasks/t/wd/.batchtrain-linked", b"")
    same, changed = bytes(4000), b"changed"
    sources = [
        {"name": name, "folder": name, "files": [{"name": "data", "size": 4000, "mode": 420, "sha256": digest}]}
        for name, digest in (("src", hashlib.sha256(same).hexdigest()), ("other", "0"))
    ]
    sources[0]["files"] += [{"name": "config", "size": 2, "mode": 420, "sha256": "1"}]  # type: ignore[operator]
    world.put("tasks/t/wd/data", same)
    world.put("tasks/t/wd/config", changed)
    run = world.fetch().run
    (run.path / "source.json").write_text(json.dumps({"kept": False, "sources": sources}))
    recording = world.fetch()
    outputs = {path.name for path in run.outputs("t").iterdir() if path.is_file()}
    assert outputs == {"model.pt", "config"}
    assert recording.run.record().results == "complete"


def test_a_blob_that_a_service_lists_twice_comes_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    below = blob.below
    monkeypatch.setattr(blob, "below", lambda *place: (item for item in below(*place) for _ in range(2)))
    assert_home(world, world.fetch())
