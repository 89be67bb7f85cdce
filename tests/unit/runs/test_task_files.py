"""The files of tasks and nodes for the user: lists, copies, and files that are read from their node on demand."""

from __future__ import annotations

import io
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from batchtrain.errors import NotFound, ServiceError, UsageError
from batchtrain.runs import task_files
from batchtrain.runs.recording import Progress
from batchtrain.runs.task_files import FileRow, GotRow, RemoteFile, Service, TaskFiles, get_node_files, node_files
from batchtrain.service import downloads
from batchtrain.service.retry import NEAR

from .batch_server import START, BatchServer, serve, task

SECOND = "workitems/j/job-1/t"
"""The directory of the task on its second node."""


@pytest.fixture
def server() -> BatchServer:
    """The account of a gang with two nodes."""
    made = BatchServer()
    made.job({**task("t"), "multiInstanceSettings": {"numberOfInstances": 2}})
    second = {"nodeInfo": {"nodeId": "tvm-2", "poolId": "p", "taskRootDirectory": SECOND}}
    made.documents["/jobs/j/tasks/t/subtasksinfo"] = {"value": [second]}
    made.files["/jobs/j/tasks/t"] = {"stdout.txt": b"out", "wd/output/model.pt": b"weights", ".batchtrain/pipe": b""}
    made.files["/pools/p/nodes/tvm-2"] = {f"{SECOND}/wd/output/model.pt": b"others", "startup/stdout.txt": b"start"}
    return made


@pytest.fixture
def service(server: BatchServer) -> Iterator[Service]:
    with serve(server) as client:
        yield Service(client, NEAR)


@pytest.fixture
def files(service: Service) -> TaskFiles:
    return TaskFiles(service, "j", "t")


# --- which files ----------------------------------------------------------------------------------------------------


def row(path: str, content: bytes, node: str) -> FileRow:
    return FileRow(path, len(content), START, node)


FIRST = {"stdout.txt": b"out", "wd/output/model.pt": b"weights", ".batchtrain/pipe": b""}
OF_FIRST = [row(path, content, "tvm-1") for path, content in FIRST.items()]
OF_SECOND = [row("wd/output/model.pt", b"others", "tvm-2")]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ({}, OF_FIRST),
        ({"node": "n1"}, OF_SECOND),
        ({"node": "tvm-2"}, OF_SECOND),
        ({"all_nodes": True}, OF_FIRST + OF_SECOND),
    ],
)
def test_the_files_of_a_gang_are_those_of_its_primary_unless_other_nodes_are_named(
    files: TaskFiles, where: Any, rows: list[FileRow]
) -> None:
    assert repr(files) == "TaskFiles('j', 't')"
    assert list(files.files(**where)) == rows


@pytest.mark.parametrize("node", ["n2", "tvm"])
def test_a_node_on_which_the_task_did_not_run_is_refused_with_those_of_the_task(files: TaskFiles, node: str) -> None:
    with pytest.raises(UsageError, match=rf"`{node}`; its nodes are n0 \(tvm-1\), n1 \(tvm-2\)"):
        files.files(node=node)


def test_a_task_that_has_not_run_has_no_files(server: BatchServer, files: TaskFiles) -> None:
    server.documents["/jobs/j/tasks/t"] = {"id": "t", "state": "active"}
    with pytest.raises(NotFound, match="task j/t has not run yet"):
        files.files()


def test_the_files_of_a_node_are_listed_and_fetched_by_their_paths(service: Service, tmp_path: Path) -> None:
    paths = [f"{SECOND}/wd/output/model.pt", "startup/stdout.txt"]
    assert [(file.path, file.node) for file in node_files(service, "p", "tvm-2")] == [(path, "tvm-2") for path in paths]
    (got,) = get_node_files(service, "p", "tvm-2", ("startup/*",), tmp_path, task_files.QUIET)
    assert (got.local, Path(got.local).read_bytes()) == (str(tmp_path / "startup/stdout.txt"), b"start")
    with pytest.raises(NotFound, match="node tvm-2 has no file `a` or `b`; `batchtrain pool files p tvm-2` lists"):
        get_node_files(service, "p", "tvm-2", ("a", "b"), tmp_path, task_files.QUIET)


# --- copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "where", "local"),
    [
        ((), {}, {"stdout.txt": b"out", "output/model.pt": b"weights"}),
        (("output",), {}, {"output/model.pt": b"weights"}),
        (("wd/output/*.pt",), {"node": "n1"}, {"output/model.pt": b"others"}),
        (("output",), {"all_nodes": True}, {"n0/output/model.pt": b"weights", "n1/output/model.pt": b"others"}),
    ],
)
def test_files_that_match_are_fetched_without_the_name_of_the_working_directory(
    files: TaskFiles, tmp_path: Path, patterns: tuple[str, ...], where: Any, local: dict[str, bytes]
) -> None:
    rows = list(files.get(*patterns, directory=tmp_path, **where))
    found = {path.relative_to(tmp_path).as_posix(): path for path in tmp_path.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == local
    assert {file.local: (file.size, file.sha256, file.note) for file in rows} == {
        str(tmp_path / name): (len(content), sha256(content).hexdigest(), "") for name, content in local.items()
    }


def test_a_file_that_was_fetched_before_is_not_fetched_again(
    server: BatchServer, files: TaskFiles, tmp_path: Path
) -> None:
    begun: list[tuple[int, int]] = []
    moved: list[int] = []
    progress = Progress(lambda count, size: begun.append((count, size)), moved.append)
    for _ in range(2):
        (file,) = files.get("stdout.txt", directory=tmp_path, progress=progress)
    assert file == GotRow("stdout.txt", 3, str(tmp_path / "stdout.txt"), "", "unchanged")
    assert (begun, sum(moved)) == ([(1, 3), (1, 3)], 3)
    assert server.asked.count("GET /jobs/j/tasks/t/files/stdout.txt") == 1


def test_a_pattern_that_matches_nothing_is_an_error(files: TaskFiles, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="task j/t has no file `a` or `b`; `batchtrain jobs files j t") as raised:
        files.get("a", "b", directory=tmp_path)
    assert raised.value.code == "FileNotFound"


def test_files_that_were_not_fetched_are_counted_with_an_example(
    server: BatchServer, files: TaskFiles, tmp_path: Path
) -> None:
    server.status["/jobs/j/tasks/t/files/stdout.txt"] = 403
    with pytest.raises(ServiceError, match=r"1 of 2 files were not fetched to .*, such as stdout\.txt: "):
        files.get(directory=tmp_path)
    assert (tmp_path / "output/model.pt").read_bytes() == b"weights"


# --- files that are read on demand ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "where", "content"),
    [
        ("stdout.txt", {}, b"out"),
        ("output/model.pt", {}, b"weights"),
        ("wd/output/model.pt", {"node": "n1"}, b"others"),
    ],
)
def test_a_file_is_opened_by_its_path_in_the_task_or_in_its_working_directory(
    files: TaskFiles, path: str, where: Any, content: bytes
) -> None:
    with files.open(path, **where) as file:
        assert file.read() == content


def test_a_file_that_is_not_there_cannot_be_opened(files: TaskFiles) -> None:
    with pytest.raises(NotFound):
        files.open("nothing")


def test_an_open_file_reads_from_any_position_as_a_local_one_does(server: BatchServer, service: Service) -> None:
    content = bytes(range(100))
    server.files["/jobs/j/tasks/t"]["data"] = content
    tree = downloads.task_tree("j", "t")
    remote, local = RemoteFile(service, tree, downloads.size_of(service.batch, tree, "data")), io.BytesIO(content)
    assert (remote.name, remote.readable(), remote.seekable()) == ("data", True, True)
    for offset, whence, size in [(0, 0, 10), (5, 1, 10), (-3, 2, 10), (90, 0, 10), (0, 0, 0), (200, 0, 1), (-1, 2, -1)]:
        assert remote.seek(offset, whence) == local.seek(offset, whence)
        assert remote.read(size) == local.read(size)
        assert remote.tell() == local.tell()
    assert remote.seek(-500, io.SEEK_CUR) == 0
