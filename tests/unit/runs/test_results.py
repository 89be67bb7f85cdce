"""Which files of a task come home, and where they are put."""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from batchtrain.config.types import FetchSettings, Results
from batchtrain.records import File, TaskNode
from batchtrain.runs import results as results_module
from batchtrain.runs.directory import FileRecord, RunDirectory
from batchtrain.runs.results import Brought, Fetcher, FetchTask, Part, parts, result_of, select, selects, size, there
from batchtrain.service import downloads
from batchtrain.service.downloads import Wanted, node_tree, task_tree

from .batch_server import START, BatchServer, task

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
        (PRIMARY, "wd/ranks/ends.jsonl", "logs/train/ranks/ends.jsonl"),
        (PRIMARY, ".batchtrain-lineage.json", "logs/train/lineage.json"),
        (PRIMARY, ".batchtrain-packages.json", "logs/train/packages.json"),
        (SECOND, "wd/ranks/rank-12.stdout.txt", "logs/train/ranks/12.stdout.txt"),
        (SECOND, "wd/ranks/ps-0.stdout.txt", "logs/train/ranks/ps-0.stdout.txt"),
        (SECOND, "wd/ranks/rank-1.metrics.jsonl", "metrics/train/1.jsonl"),
        (PRIMARY, "wd/output/model.pt", "outputs/train/model.pt"),
        (PRIMARY, "output/model.pt", ""),
        (PRIMARY, "wd/data/train.npz", "outputs/train/data/train.npz"),
        (PRIMARY, "wd/.hidden/a b", "outputs/train/.hidden/a b"),
        (PRIMARY, "wd/a/__pycache__/b.pyc", ""),
        (PRIMARY, "wd/.cache/hub/model.bin", ""),
        (PRIMARY, "wd/.batchtrain-linked", ""),
        (PRIMARY, "wd/ranks/node.txt", ""),
        (SECOND, "wd/output/model.pt", ""),
        (SECOND, "stdout.txt", ""),
    ],
)
def test_where_a_file_belongs(part: Part, path: str, where: str) -> None:
    result = result_of("train", FetchSettings(), part, path)
    assert (result.target if result else "") == where


def test_results_of_all_nodes_have_a_directory_each() -> None:
    everywhere = FetchSettings(results=Results(from_="all", include=("*.pt",), exclude=("old*",)))
    found = [result_of("train", everywhere, part, "wd/model.pt") for part in (PRIMARY, SECOND)]
    assert [result and result.target for result in found] == ["outputs/train/n0/model.pt", "outputs/train/n1/model.pt"]
    assert result_of("train", everywhere, PRIMARY, "wd/old.pt") is None


def test_results_beyond_their_size_stay_and_logs_have_no_limit() -> None:
    sizes = {"wd/output/a": 600, "wd/output/b": 600, "wd/output/c": 400, "stdout.txt": 10**6}
    files = [(PRIMARY, File(path, size)) for path, size in sizes.items()]
    chosen = select("train", FetchSettings(results=Results(max_size="1k")), files)
    assert [file.path for _, file, _ in chosen.files] == ["wd/output/a", "wd/output/c", "stdout.txt"]
    assert [file.path for _, file, _ in chosen.over] == ["wd/output/b"]
    assert select("train", FetchSettings(results=Results(max_size="1k")), files, everything=True).over == ()


LINK_TIME = datetime(2026, 11, 28, tzinfo=timezone.utc)
EARLIER, LATER = LINK_TIME - timedelta(seconds=1), LINK_TIME + timedelta(seconds=1)
SOURCE = [File(name, 10, EARLIER) for name in ("train.py", "config.json", "data/a.npz", "large.bin")]


@pytest.mark.parametrize(
    ("file", "comes"),
    [
        (File("wd/train.py", 10, EARLIER), False),
        (File("wd/data/a.npz", 9, EARLIER, link=True), False),
        (File("wd/config.json", 10, LATER), True),
        (File("wd/large.bin", 11, EARLIER), True),
        (File("wd/unpacked with its old time", 10, EARLIER), True),
        (File("wd/data/new.npz", 10, LATER), True),
        (File("wd/latest", 10, LATER, link=True), False),
        (File("wd/output/latest", 10, LATER, link=True), True),
    ],
)
def test_a_file_of_the_source_is_a_result_once_the_program_has_changed_it(file: File, comes: bool) -> None:
    files = [*SOURCE, File("wd/.batchtrain-linked", 0, LINK_TIME), file]
    chosen = select("train", FetchSettings(), [(part, file) for part in (PRIMARY, SECOND) for file in files])
    assert [(part.name, fetched.path) for part, fetched, _ in chosen.files] == ([("n0", file.path)] if comes else [])


@pytest.mark.parametrize(
    ("settings", "comes"),
    [
        (FetchSettings(), ["n0/model", "n0/output/a"]),
        (FetchSettings(every_node=True), ["n0/model", "n0/output/a", "n1/model", "n1/output/a"]),
        (FetchSettings(every_node=True, results=Results(from_="primary")), ["n0/model", "n0/output/a"]),
        (FetchSettings(results=Results(from_="all")), ["n0/model", "n0/output/a", "n1/model", "n1/output/a"]),
        (FetchSettings(results=Results(include=("output",))), ["n0/output/a"]),
        (FetchSettings(results=Results(include=())), []),
        (FetchSettings(results=Results(exclude=("mod*",))), ["n0/output/a"]),
        (FetchSettings(inputs=("model",)), ["n0/output/a"]),
    ],
)
def test_what_the_program_created_comes_unless_the_settings_name_the_results(
    settings: FetchSettings, comes: list[str]
) -> None:
    files = [(part, File(f"wd/{name}", 1)) for part in (PRIMARY, SECOND) for name in ("model", "output/a")]
    chosen = select("train", settings, files).files
    assert [f"{part.name}/{file.path.removeprefix('wd/')}" for part, file, _ in chosen] == comes


def test_the_limit_of_created_files_holds_for_all_tasks_of_a_run(service: BatchServer) -> None:
    for name in "abc":
        service.job(task(name))
        service.files[f"/jobs/j/tasks/{name}"] = {"wd/model": bytes(600), "wd/output/x": bytes(600)}
    tasks = [FetchTask(name, FetchSettings(results=Results(max_created_size="1200"))) for name in "abc"]
    results = list(fetcher(service).bring(tasks))
    [over] = [result for result in results if result.is_too_large]
    assert (over.again, over.record.path, over.record.size) == (True, "wd/model", 600)
    assert "`results.max_created_size` is 1200 for the whole run" in over.record.reason
    assert "`batchtrain jobs fetch j --all` fetches it" in over.record.reason
    assert len([result for result in results if result.record.fetched]) == 5


def test_no_remote_name_leaves_the_run_directory() -> None:
    files = [(PRIMARY, File(path, 1)) for path in ("wd/output/../../../../etc/x", "wd/output//abs", "wd/output/..")]
    names = [name for _, _, name in select("train", FetchSettings(), files).files]
    assert len(set(names)) == 3
    assert not [name for name in names if ".." in name.split("/") or name.startswith("/")]


def test_two_files_that_would_have_one_name_keep_apart() -> None:
    files = [(PRIMARY, File(path, 1)) for path in ("wd/output/model.pt", "wd/model.pt")]
    names = [name for _, _, name in select("train", FetchSettings(), files).files]
    assert names[0] == "outputs/train/model.pt"
    assert len(set(names)) == 2


# --- bringing -------------------------------------------------------------------------------------------------------


@pytest.fixture
def service(service: BatchServer) -> BatchServer:
    service.job(task("train"))
    return service


PLACES = (TaskNode("tvm-1", "p", "workitems/j/job-1/train"), TaskNode("tvm-2", "p", "workitems/j/job-1/train"))


def fetcher(service: BatchServer, **options: Any) -> Fetcher:
    return Fetcher(service.client, RunDirectory(service.root), "j", **{"free": lambda directory: 1 << 40, **options})


def brought(service: BatchServer, results: Results | None = None, **options: Any) -> list[Brought]:
    return list(fetcher(service, **options).bring([FetchTask("train", FetchSettings(results=results))]))


def test_the_files_of_the_primary_are_those_of_the_task_and_others_those_of_their_node() -> None:
    primary, second = parts("j", "train", PLACES)
    assert (primary.name, primary.node, primary.tree) == ("n0", "tvm-1", task_tree("j", "train"))
    assert (second.name, second.node) == ("n1", "tvm-2")
    assert second.tree == node_tree("p", "tvm-2", "workitems/j/job-1/train")


def test_a_fetched_file_is_recorded_with_its_size_time_and_digest(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"abc"}
    (result,) = brought(service)
    assert result == Brought(
        FileRecord(
            task="train", path="wd/output/a", node="tvm-1", size=3, time=START, fetched="outputs/train/a",
            sha256=hashlib.sha256(b"abc").hexdigest(),
        )
    )  # fmt: skip
    assert (service.root / "outputs/train/a").read_bytes() == b"abc"


def test_a_file_that_was_fetched_before_is_not_fetched_again_unless_it_changed(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"abc", "wd/output/b": b"x"}
    brought(service)
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"abc", "wd/output/b": b"xyz"}
    service.asked.clear()
    results = brought(service)
    assert [(result.record.fetched, result.again) for result in results] == [
        ("outputs/train/a", False), ("outputs/train/b", False),
    ]  # fmt: skip
    assert [asked for asked in service.asked if "output" in asked] == ["GET /jobs/j/tasks/train/files/wd/output/b"]
    assert (service.root / "outputs/train/b").read_bytes() == b"xyz"


def test_the_files_of_other_nodes_are_fetched_if_one_is_gone(service: BatchServer) -> None:
    top = "workitems/j/job-1/train"
    service.job({**task("train"), "multiInstanceSettings": {"numberOfInstances": 2, "coordinationCommandLine": "x"}})
    service.documents["/jobs/j/tasks/train/subtasksinfo"] = {"value": [task("1", "tvm-2") | {"nodeInfo": {
        "nodeId": "tvm-2", "poolId": "p", "taskRootDirectory": top}}]}  # fmt: skip
    service.files["/pools/p/nodes/tvm-2"] = {f"{top}/wd/output/a": b"abc", "workitems/other/b": b"x"}
    del service.files["/jobs/j/tasks/train"]
    lost, fetched = brought(service, Results(from_="all"))
    assert (lost.record.node, lost.record.path, lost.record.fetched, lost.again) == ("tvm-1", "", "", False)
    assert lost.record.reason.startswith("list the files of task j/train: ")
    assert (fetched.record.node, fetched.record.fetched) == ("tvm-2", "outputs/train/n1/a")


def test_a_file_that_is_gone_when_it_is_fetched_has_a_reason(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"abc"}

    def lose(files: int, size: int) -> None:
        service.files["/jobs/j/tasks/train"].clear()

    (result,) = brought(service, begin=lose)
    assert (result.record.fetched, result.record.sha256, result.record.size, result.again) == ("", "", 3, False)
    assert result.record.reason.startswith("fetch files of task j/train: ")


def test_a_node_that_refuses_is_asked_again_later(service: BatchServer) -> None:
    service.status["/jobs/j/tasks/train/files"] = 403
    (result,) = brought(service)
    assert (result.record.node, result.again) == ("tvm-1", True)


def test_nothing_is_fetched_of_a_task_whose_files_do_not_fit_on_the_disk(service: BatchServer) -> None:
    service.job(task("train"), task("small"))
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"x" * 600, "wd/output/b": b"x" * 600}
    service.files["/jobs/j/tasks/small"] = {"wd/output/c": b"x" * 500}
    small_disk = fetcher(service, free=lambda directory: 1024)
    done = [result for name in ("train", "small") for result in small_disk.bring([FetchTask(name, FetchSettings())])]
    why = (
        f"the disk of {service.root} has 1.0 KiB free, and the files of task train need 1.2 KiB: free some space and"
        " fetch them again"
    )
    missing = {result.record.path: (result.record.reason, result.again) for result in done if not result.record.fetched}
    assert missing == {"wd/output/a": (why, True), "wd/output/b": (why, True)}
    assert [path.name for path in service.root.rglob("*") if path.is_file()] == ["c"]


def test_files_that_are_being_fetched_take_the_room_of_others(tmp_path: Path) -> None:
    room = results_module._Room(tmp_path, lambda directory: 1000)
    first, second = (Wanted(task_tree("j", name), File("a", 600), tmp_path / name) for name in "ab")
    assert room.reserve("a", [first]) == ""
    assert "has 400 bytes free, and the files of task b need 600 bytes" in room.reserve("b", [second])
    room.release(first)
    assert room.reserve("b", [second]) == ""


def test_what_has_come_of_a_large_file_is_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "RANGE", 1 << 16)
    first, second = (Wanted(task_tree("j", name), File("a", 1 << 20), tmp_path / name) for name in "ab")
    free = [1 << 21]
    room = results_module._Room(tmp_path, lambda directory: free[0])
    assert room.reserve("a", [first]) == ""
    downloads.partial(first.target)[0].write_bytes(b"x" * (1 << 19))
    free[0] -= 1 << 19
    assert room.reserve("b", [second]) == ""


def test_the_results_of_many_tasks_come_from_one_list_for_each_node(service: BatchServer) -> None:
    names = [f"t{number}" for number in range(30)]
    service.job(*(task(name, f"tvm-{number % 2}") for number, name in enumerate(names)))
    for node in (0, 1):
        service.files[f"/pools/p/nodes/tvm-{node}"] = {
            f"workitems/j/job-1/{name}/{path}": name.encode()
            for name in names[node::2]
            for path in ("stdout.txt", "wd/output/model.pt", "wd/ranks/other")
        }
    done = list(fetcher(service).bring([], [FetchTask(name, FetchSettings(), logs=False) for name in names]))
    assert sorted(result.record.fetched for result in done) == sorted(f"outputs/{name}/model.pt" for name in names)
    assert {name: (service.root / f"outputs/{name}/model.pt").read_text() for name in names} == {n: n for n in names}
    assert sorted(asked for asked in service.asked if not asked.endswith("model.pt")) == [
        "GET /jobs/j/tasks", "GET /pools/p/nodes/tvm-0/files", "GET /pools/p/nodes/tvm-1/files",
    ]  # fmt: skip


def test_each_of_many_tasks_on_a_node_that_is_gone_is_named(service: BatchServer) -> None:
    service.job(task("a"), task("b"))
    done = list(fetcher(service).bring([], [FetchTask(name, FetchSettings()) for name in "ab"]))
    assert [(result.record.task, result.record.path, result.again) for result in done] == [
        ("a", "", False), ("b", "", False),
    ]  # fmt: skip


def test_a_task_that_was_deleted_does_not_stop_the_others(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"abc"}
    tasks = [FetchTask("gone", FetchSettings()), FetchTask("train", FetchSettings())]
    done = fetcher(service).bring(tasks)
    assert sorted(result.record.fetched for result in done) == ["", "outputs/train/a"]


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
    assert there(tmp_path, tmp_path / "a", File("a", size, modified)) is same
    assert not there(tmp_path, tmp_path / "none", File("a", size, modified))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"), (2048 << 30, "2048.0 GiB"),
    ],
)  # fmt: skip
def test_a_size_is_in_the_largest_unit_that_fits(number: int, text: str) -> None:
    assert size(number) == text
