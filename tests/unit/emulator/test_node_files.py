"""Files of nodes and tasks: what is shown, and that nothing outside a node's directory ever is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchtrain.emulator import files, routes, tasks
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.reply import Reply
from tests.emulation import Stage, call, document

TASK = "workitems/job/job-1/task"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A task on a node whose directory is real; beside the directory lies a secret."""
    stage = Stage()
    (node,) = stage.pool(1)
    node.root = str(tmp_path / "node")
    stage.world.save_node(node)
    stage.run_task()
    work = tmp_path / "node" / TASK / "wd"
    work.mkdir(parents=True)
    (work.parent / "stdout.txt").write_text("0123456789")
    (work / "a b.txt").write_text("x")
    (tmp_path / "secret").write_text("secret")
    return stage


def read(stage: Stage, name: str, **headers: str) -> bytes:
    reply = files.of_task(files.read)(stage.world, call("job", "task", name, headers=headers_of(headers)))
    assert reply.status == 200 and reply.content is not None
    with reply.content.file as file:
        file.seek(reply.content.start)
        return file.read(reply.content.length)


def headers_of(given: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in given.items()}


def names(reply: Reply) -> list[str]:
    return [one["name"] for one in document(reply)["value"]]


def test_a_list_shows_the_top_or_with_recursive_all(stage: Stage) -> None:
    assert names(stage.do(files.of_task(files.list_), "job", "task")) == ["stdout.txt", "wd"]
    recursive = stage.do(files.of_task(files.list_), "job", "task", recursive="true")
    assert names(recursive) == ["stdout.txt", "wd", "wd/a b.txt"]


def test_a_file_s_length_is_a_string_and_a_directory_has_no_properties(stage: Stage) -> None:
    file, directory = document(stage.do(files.of_task(files.list_), "job", "task"))["value"]
    assert (file["properties"]["contentLength"], file["properties"]["fileMode"]) == ("10", "0o100644")
    assert (directory["isDirectory"], "properties" in directory) == (True, False)


def test_lists_are_filtered_and_paged(stage: Stage) -> None:
    found = stage.do(files.of_task(files.list_), "job", "task", recursive="true", filter="startswith(name, 'wd/')")
    assert names(found) == ["wd/a b.txt"]
    first = stage.do(files.of_task(files.list_), "job", "task", maxresults="1")
    assert names(first) == ["stdout.txt"]
    assert names(stage.do(files.of_task(files.list_), "job", "task", maxresults="1", skiptoken="stdout.txt")) == ["wd"]


def test_the_next_page_of_a_list_goes_on_with_its_walk(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[object] = []
    begin = files._walk
    monkeypatch.setattr(files, "_walk", lambda *of, **more: starts.append(of) or begin(*of, **more))
    token, shown = {}, list[str]()
    for _ in range(2):
        shown += names(stage.do(files.of_task(files.list_), "job", "task", maxresults="1", **token))
        token = {"skiptoken": shown[-1]}
    assert (len(set(shown)), len(starts)) == (2, 1)


def test_the_node_s_files_hold_the_task_s(stage: Stage) -> None:
    node = stage.nodes()[0]
    reply = stage.do(files.of_node(files.head), "pool", node.id, f"{TASK}/stdout.txt")
    assert reply.headers["Content-Length"] == "10"
    assert reply.headers["ocp-batch-file-isdirectory"] == "False"


@pytest.mark.parametrize(
    ("span", "content"),
    [("bytes=0-3", b"0123"), ("bytes=8-100", b"89"), ("bytes=4-", b"456789"), ("bytes=-2", b"89"), ("", b"0123456789")],
)
def test_a_range_is_a_slice(stage: Stage, span: str, content: bytes) -> None:
    assert read(stage, "stdout.txt", ocp_range=span) == content


@pytest.mark.parametrize("span", ["bytes=10-", "bytes=10-12", "bytes=5-4"])
def test_a_range_past_the_end_is_416(stage: Stage, span: str) -> None:
    with pytest.raises(Fault) as refusal:
        read(stage, "stdout.txt", ocp_range=span)
    assert (refusal.value.status, refusal.value.code) == (416, "InvalidRange")


@pytest.mark.parametrize("span", ["lines=1-2", "bytes=x-y", "bytes=-", "bytes", "bytes=\u00b2-"])
def test_a_malformed_range_is_400(stage: Stage, span: str) -> None:
    with pytest.raises(Fault, match="InvalidHeaderValue"):
        read(stage, "stdout.txt", ocp_range=span)


@pytest.mark.parametrize(
    "name",
    ["nothing", "", ".", "..", "../..", "wd/../stdout.txt", "../../../../../secret", "/etc/passwd", "wd//x", "a\0b"],
)
def test_names_that_lead_nowhere_or_elsewhere_are_404(stage: Stage, name: str) -> None:
    with pytest.raises(Fault, match="FileNotFound"):
        read(stage, name)
    assert stage.refusal(files.of_task(files.delete), "job", "task", name).code == "FileNotFound"


def test_a_directory_or_a_pipe_cannot_be_read_and_blocks_no_request(stage: Stage, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "node" / TASK / "wd" / "pipe")
    for name in ("wd", "wd/pipe"):
        with pytest.raises(Fault, match="FileNotFound"):
            read(stage, name)


def test_a_link_out_of_the_node_is_not_followed_listed_or_deleted_through(stage: Stage, tmp_path: Path) -> None:
    work = tmp_path / "node" / TASK / "wd"
    (work / "link").symlink_to(tmp_path / "secret")
    (work / "up").symlink_to(tmp_path)
    for name in ("wd/link", "wd/up/secret", "wd/up"):
        with pytest.raises(Fault, match="FileNotFound"):
            read(stage, name)
    assert stage.refusal(files.of_task(files.delete), "job", "task", "wd/up/secret").code == "FileNotFound"
    listed = {
        item["name"]: item
        for item in document(stage.do(files.of_task(files.list_), "job", "task", recursive="true"))["value"]
    }
    assert list(listed) == ["stdout.txt", "wd", "wd/a b.txt", "wd/link", "wd/up"]
    assert {listed[name]["properties"]["fileMode"] for name in ("wd/link", "wd/up")} == {"0o120777"}
    stage.do(files.of_task(files.delete), "job", "task", "wd", recursive="true")
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_link_to_a_directory_of_the_task_is_listed_as_that_directory(stage: Stage, tmp_path: Path) -> None:
    work = tmp_path / "node" / TASK / "wd"
    (work / "ckpt/step100").mkdir(parents=True)
    (work / "ckpt/step100/model.pt").write_text("model")
    (work / "best").symlink_to("ckpt/step100")
    listed = names(stage.do(files.of_task(files.list_), "job", "task", recursive="true"))
    assert [name for name in listed if "best" in name] == ["wd/best", "wd/best/model.pt"]
    assert read(stage, "wd/best/model.pt") == b"model"


def test_a_name_that_is_not_utf_8_is_read_by_its_url(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "node" / TASK / "wd" / os.fsdecode(b"\xff\xfebad")).write_text("x")
    item = document(stage.do(files.of_task(files.list_), "job", "task", recursive="true"))["value"][-1]
    assert item["name"] == "wd/\ufffd\ufffdbad"
    assert item["url"].endswith("/files/wd/%FF%FEbad")
    _, path = routes.find("GET", "/jobs/job/tasks/task/files/wd%2F%FF%FEbad")
    assert read(stage, path[-1]) == b"x"


def test_a_directory_is_deleted_with_recursive_only(stage: Stage) -> None:
    assert stage.refusal(files.of_task(files.delete), "job", "task", "wd").code == "OperationInvalidForCurrentState"
    stage.do(files.of_task(files.delete), "job", "task", "wd", recursive="true")
    assert names(stage.do(files.of_task(files.list_), "job", "task")) == ["stdout.txt"]


def test_a_task_that_waits_or_was_withdrawn_has_no_files(stage: Stage) -> None:
    stage.task("waits")
    refusal = stage.refusal(files.of_task(files.list_), "job", "waits")
    assert refusal.code == "OperationInvalidForCurrentState"
    assert refusal.details["Reason"].endswith("cannot be accessed as the task state is still active")
    stage.do(tasks.terminate_task, "job", "waits")
    assert stage.refusal(files.of_task(files.list_), "job", "waits").code == "TaskFilesUnavailable"


def test_a_task_s_directory_that_became_a_link_out_of_the_node_is_not_listed(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "node" / TASK).rename(tmp_path / "node" / "moved")
    (tmp_path / "node" / TASK).symlink_to(tmp_path)
    assert stage.refusal(files.of_task(files.list_), "job", "task").code == "FileNotFound"
