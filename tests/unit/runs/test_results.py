"""Which files of a task come home, and where they are put."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient

from batchtrain.config.types import Results
from batchtrain.records.seen import PlaceSeen
from batchtrain.runs.directory import FileRecord, RunDirectory
from batchtrain.runs.results import Brought, Part, bring, destination, parts, select, selects, there
from batchtrain.service.downloads import FileSeen, node_tree, task_tree

from .batch_server import START, BatchServer, serve, task

PRIMARY = Part("n0", "tvm-1", task_tree("j", "train"))
SECOND = Part("n1", "tvm-2", node_tree("p", "tvm-2", "workitems/j/job-1/train"))


@pytest.mark.parametrize(
    ("pattern", "path", "means"),
    [
        ("output/**", "output/a/b", True),
        ("output", "output/a/b", True),
        ("output", "outputs/a", False),
        ("*.pt", "model.pt", True),
        ("*.pt", "a/model.pt", False),
        ("**/*.pt", "a/b/model.pt", True),
        ("**/*.pt", "model.pt", True),
        ("model?.pt", "model1.pt", True),
        ("model[0-3].pt", "model2.pt", True),
        ("model[!0-3].pt", "model2.pt", False),
        ("a+b(1).txt", "a+b(1).txt", True),
        ("*", "a\nb", True),
        ("./output/", "output/x", True),
        ("a[", "a[", True),
    ],
)
def test_what_a_pattern_means(pattern: str, path: str, means: bool) -> None:
    assert selects((pattern,), path) is means


@pytest.mark.parametrize(
    ("part", "path", "where"),
    [
        (PRIMARY, "stdout.txt", "logs/train/stdout.txt"),
        (PRIMARY, "wd/ranks/rank-0.stderr.txt", "logs/train/ranks/0.stderr.txt"),
        (SECOND, "wd/ranks/rank-12.stdout.txt", "logs/train/ranks/12.stdout.txt"),
        (SECOND, "wd/ranks/ps-0.stdout.txt", "logs/train/ranks/ps-0.stdout.txt"),
        (SECOND, "wd/ranks/rank-1.metrics.jsonl", "metrics/train/1.jsonl"),
        (PRIMARY, "wd/output/model.pt", "outputs/train/model.pt"),
        (PRIMARY, "output/model.pt", ""),
        (PRIMARY, "wd/data/train.npz", ""),
        (SECOND, "wd/output/model.pt", ""),
        (SECOND, "stdout.txt", ""),
    ],
)
def test_where_a_file_belongs(part: Part, path: str, where: str) -> None:
    assert destination("train", Results(), part, path) == where


def test_results_of_all_nodes_have_a_directory_each() -> None:
    everywhere = Results(from_="all", include=("*.pt",), exclude=("old*",))
    found = [destination("train", everywhere, part, "wd/model.pt") for part in (PRIMARY, SECOND)]
    assert found == ["outputs/train/n0/model.pt", "outputs/train/n1/model.pt"]
    assert destination("train", everywhere, PRIMARY, "wd/old.pt") == ""


def test_results_beyond_their_size_stay_and_logs_have_no_limit() -> None:
    sizes = {"wd/output/a": 600, "wd/output/b": 600, "wd/output/c": 400, "stdout.txt": 10**6}
    files = [(PRIMARY, FileSeen(path, size)) for path, size in sizes.items()]
    chosen = select("train", Results(max_size="1k"), files)
    assert [file.path for _, file, _ in chosen.wanted] == ["wd/output/a", "wd/output/c", "stdout.txt"]
    assert [file.path for _, file in chosen.over] == ["wd/output/b"]
    assert select("train", Results(max_size="1k"), files, everything=True).over == ()


def test_no_remote_name_leaves_the_run_directory() -> None:
    files = [(PRIMARY, FileSeen(path, 1)) for path in ("wd/output/../../../../etc/x", "wd/output//abs", "wd/output/..")]
    names = [name for _, _, name in select("train", Results(), files).wanted]
    assert len(set(names)) == 3
    assert not [name for name in names if ".." in name.split("/") or name.startswith("/")]


def test_two_files_that_would_have_one_name_keep_apart() -> None:
    results = Results(include=("**",))
    files = [(PRIMARY, FileSeen(path, 1)) for path in ("wd/output/model.pt", "wd/model.pt")]
    names = [name for _, _, name in select("train", results, files).wanted]
    assert names[0] == "outputs/train/model.pt"
    assert len(set(names)) == 2


# --- bringing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def service() -> BatchServer:
    server = BatchServer()
    server.job(task("train"))
    return server


@pytest.fixture
def client(service: BatchServer) -> Iterator[BatchClient]:
    with serve(service) as connected:
        yield connected


PLACES = (PlaceSeen("tvm-1", "p", "workitems/j/job-1/train"), PlaceSeen("tvm-2", "p", "workitems/j/job-1/train"))


def brought(client: BatchClient, root: Path, results: Results | None = None, **options: Any) -> list[Brought]:
    places = options.pop("places", PLACES[:1])
    return list(bring(client, RunDirectory(root), "j", "train", places, results or Results(), **options))


def test_the_files_of_the_primary_are_those_of_the_task_and_others_those_of_their_node() -> None:
    primary, second = parts("j", "train", PLACES)
    assert (primary.name, primary.node, primary.tree) == ("n0", "tvm-1", task_tree("j", "train"))
    assert (second.name, second.node) == ("n1", "tvm-2")
    assert second.tree == node_tree("p", "tvm-2", "workitems/j/job-1/train")


def test_a_fetched_file_is_recorded_with_its_size_time_and_digest(
    client: BatchClient, service: BatchServer, tmp_path: Path
) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"abc"}
    (result,) = brought(client, tmp_path)
    assert result == Brought(
        FileRecord(
            task="train", path="wd/output/a", node="tvm-1", size=3, time=START, fetched="outputs/train/a",
            sha256=hashlib.sha256(b"abc").hexdigest(),
        )
    )  # fmt: skip
    assert (tmp_path / "outputs/train/a").read_bytes() == b"abc"


def test_a_file_that_was_fetched_before_is_not_fetched_again_unless_it_changed(
    client: BatchClient, service: BatchServer, tmp_path: Path
) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"abc", "wd/output/b": b"x"}
    brought(client, tmp_path)
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"abc", "wd/output/b": b"xyz"}
    service.asked.clear()
    results = brought(client, tmp_path)
    assert [(result.record.fetched, result.again) for result in results] == [
        ("outputs/train/a", False), ("outputs/train/b", False),
    ]  # fmt: skip
    assert [asked for asked in service.asked if "output" in asked] == ["GET /jobs/j/tasks/train/files/wd/output/b"]
    assert (tmp_path / "outputs/train/b").read_bytes() == b"xyz"


def test_the_files_of_other_nodes_are_fetched_if_one_is_gone(
    client: BatchClient, service: BatchServer, tmp_path: Path
) -> None:
    top = "workitems/j/job-1/train"
    service.files["/pools/p/nodes/tvm-2"] = {f"{top}/wd/output/a": b"abc", "workitems/other/b": b"x"}
    del service.files["/jobs/j/tasks/train"]
    lost, fetched = brought(client, tmp_path, Results(from_="all"), places=PLACES)
    assert (lost.record.node, lost.record.path, lost.record.fetched, lost.again) == ("tvm-1", "", "", False)
    assert lost.record.reason.startswith("list the files of task j/train: ")
    assert (fetched.record.node, fetched.record.fetched) == ("tvm-2", "outputs/train/n1/a")


def test_a_file_that_is_gone_when_it_is_fetched_has_a_reason(
    client: BatchClient, service: BatchServer, tmp_path: Path
) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"abc"}

    def lose(files: int, size: int) -> None:
        service.files["/jobs/j/tasks/train"].clear()

    (result,) = brought(client, tmp_path, begin=lose)
    assert (result.record.fetched, result.record.sha256, result.record.size, result.again) == ("", "", 3, False)
    assert result.record.reason.startswith("fetch files of task j/train: ")


def test_a_node_that_refuses_is_asked_again_later(client: BatchClient, service: BatchServer, tmp_path: Path) -> None:
    service.status["/jobs/j/tasks/train/files"] = 403
    (result,) = brought(client, tmp_path)
    assert (result.record.node, result.again) == ("tvm-1", True)


MOMENT = datetime(2026, 11, 22, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("size", "seconds", "same"),
    [(3, 0.0, True), (3, 0.0005, True), (3, 0.01, False), (3, -0.01, False), (4, 0.0, False), (3, None, False)],
)
def test_a_file_is_there_if_it_has_the_size_and_the_time_of_the_remote_one(
    tmp_path: Path, size: int, seconds: float | None, same: bool
) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.utime(tmp_path / "a", (MOMENT.timestamp(), MOMENT.timestamp()))
    modified = None if seconds is None else MOMENT + timedelta(seconds=seconds)
    assert there(tmp_path / "a", FileSeen("a", size, modified)) is same
    assert not there(tmp_path / "none", FileSeen("a", size, modified))
