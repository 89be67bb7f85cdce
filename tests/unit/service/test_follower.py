"""The growing output of a task is followed through retries and requeues."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import pytest
from azure.batch import BatchClient

from batchtrain import state_files
from batchtrain.errors import NotFound, ServiceError, Unreachable
from batchtrain.service import downloads, files
from batchtrain.service.downloads import task_tree
from batchtrain.service.files import Follower
from tests.unit.service.test_retry import Service, refusal

LONG = "".join(f"step {number}\n" for number in range(40))


class File:
    """The content of stdout.txt, which a test replaces."""

    content = b""

    def __init__(self) -> None:
        self.bodies: list[int] = []
        """The bytes of each answer."""
        self.fault: ServiceError | None = None

    def read(self, client: Any, tree: downloads.Tree, path: str, start: int, end: int) -> bytes:
        if self.fault and self.bodies:
            fault, self.fault = self.fault, None
            raise fault
        if start >= len(self.content):
            raise ServiceError("past the end", code="InvalidRange")
        self.bodies.append(len(self.content[start:end]))
        return self.content[start:end]


CLIENT = cast("BatchClient", None)
RANGE = 1 << 16
"""The bytes of a range in these tests."""


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> File:
    made = File()
    monkeypatch.setattr(downloads, "read", made.read)
    monkeypatch.setattr(files, "RANGE", RANGE)
    monkeypatch.setattr(files.block, "__defaults__", (RANGE,))
    return made


@pytest.fixture
def follower() -> Follower:
    return Follower(CLIENT, "j", "t", "stdout.txt")


def after(follower: Follower, file: File, text: str, node: str = "n0") -> list[str]:
    file.content = text.encode()
    return list(follower.new_lines(node))


def test_only_complete_lines_are_given_and_each_once(follower: Follower, file: File) -> None:
    assert after(follower, file, LONG + "grö") == LONG.splitlines()
    assert after(follower, file, LONG + "größe\n") == ["größe"]
    assert after(follower, file, LONG + "größe\nend") == []
    assert list(follower.new_lines("n0", last=True)) == ["end"]


@pytest.mark.parametrize(
    ("node", "again", "lines"),
    [
        ("n1", LONG + "two\n", [*LONG.splitlines(), "two"]),
        ("n0", "other\n", ["other"]),
        ("n0", "other\n" * 100, ["other"] * 100),
        ("n0", "", []),
        ("n0", LONG + LONG, LONG.splitlines()),
    ],
    ids=["another node", "shorter", "longer", "empty", "appended"],
)
def test_a_retry_is_read_from_its_beginning_unless_it_appends_to_the_file(
    follower: Follower, file: File, node: str, again: str, lines: list[str]
) -> None:
    after(follower, file, LONG)
    assert after(follower, file, again, node) == lines
    assert after(follower, file, again + "more\n", node) == ["more"]


@cache
def large() -> bytes:
    """A file of several ranges."""
    return b"".join(b"line %d \xc3\xb6\n" % number for number in range(RANGE // 6))


def _read(file: File, follower: Follower) -> list[str]:
    return list(files.lines_of(files.blocks(CLIENT, task_tree("j", "t"), "stdout.txt")))


def _followed(file: File, follower: Follower) -> list[str]:
    return list(follower.new_lines("n0", last=True))


@pytest.mark.parametrize("read", [_read, _followed])
def test_a_large_file_comes_in_ranges_and_no_answer_is_larger_than_one(
    file: File, follower: Follower, read: Callable[[File, Follower], list[str]]
) -> None:
    file.content = large()
    assert read(file, follower) == large().decode().splitlines()
    assert max(file.bodies) <= RANGE + files.COMPARED
    assert len(file.bodies) == len(large()) // RANGE + 1


def test_the_bytes_of_a_large_file_are_those_of_its_ranges(file: File) -> None:
    file.content = large()[: 2 * RANGE]
    content = list(files.blocks(CLIENT, task_tree("j", "t"), "stdout.txt"))
    assert [len(block) for block in content] == [RANGE, RANGE]
    assert b"".join(content) == file.content


@pytest.mark.parametrize("fault", [Unreachable("no answer"), NotFound("gone", code="FileNotFound")])
def test_a_fault_between_two_ranges_loses_and_repeats_no_line(
    file: File, follower: Follower, fault: ServiceError
) -> None:
    file.content, file.fault = large(), fault
    lines: list[str] = []
    try:
        lines.extend(follower.new_lines("n0"))
    except Unreachable:
        assert not isinstance(fault, NotFound)
    lines += follower.new_lines("n0", last=True)
    assert lines == large().decode().splitlines()


@pytest.mark.parametrize("text", ["a\r\nb\r\n", "a\x0cb\u2028c", "\n\n", "a\r" * 5, "", "no end"])
def test_lines_of_blocks_are_those_of_the_whole_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE", 1)
    assert list(files.lines_of(iter([text.encode()]))) == text.splitlines()


def test_a_line_longer_than_many_pieces_is_one_line(
    follower: Follower, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE", 3)
    assert after(follower, file, "a\n" + "b" * 100) == ["a"]
    assert after(follower, file, "a\n" + "b" * 100 + "c\nd") == ["b" * 100 + "c"]
    assert list(follower.new_lines("n0", last=True)) == ["d"]
    assert list(files.lines_of(iter([b"a\n" + b"b" * 100 + b"\nc"]))) == ["a", "b" * 100, "c"]


# --- the end of a file ----------------------------------------------------------------------------------------------

TREE = task_tree("j", "t")


@pytest.mark.parametrize(
    ("length", "size", "span"), [(10, 4, "bytes=6-9"), (4, 4, "bytes=0-3"), (3, 4, "bytes=0-2"), (1, 4, "bytes=0-0")]
)
def test_the_end_of_a_file_is_read_without_what_is_before_it(length: int, size: int, span: str) -> None:
    service = Service((200, None, {"Content-Length": str(length)}), (200, b"text"))
    assert files.end_of(service.client, TREE, "f", size) == b"text"
    assert [request.headers.get("ocp-range") for request in service.transport.requests] == [None, span]


def test_an_empty_file_is_not_read_and_a_directory_has_no_end() -> None:
    service = Service((200, None, {"Content-Length": "0"}))
    assert files.end_of(service.client, TREE, "f") == b""
    assert service.asked == ["HEAD /jobs/j/tasks/t/files/f"]
    with pytest.raises(NotFound, match="d of task j/t is a directory"):
        files.end_of(Service((200, None, {"ocp-batch-file-isdirectory": "True"})).client, TREE, "d")


def test_the_stderr_of_a_task_that_never_ran_has_no_lines() -> None:
    assert files.stderr_end(Service(refusal("TaskFilesUnavailable", 404)).client, "j", "t") == ()
    service = Service((200, None, {"Content-Length": "4"}), (200, b"a\nb\n"))
    assert files.stderr_end(service.client, "j", "t") == ("a", "b")
    assert service.asked[0] == "HEAD /jobs/j/tasks/t/files/stderr.txt"


@pytest.mark.parametrize(
    ("answer", "rank"),
    [
        ((200, b'{"process": "rank 3", "rank": 3, "exit_code": 7, "more": 1}\n{"process": "rank 0"}\n'), 3),
        ((200, b'{"process": "rank 3", "ra'), None),
        ((200, b'{"process": 3}\n'), None),
        (refusal("FileNotFound", 404), None),
    ],
)
def test_the_first_line_of_the_ends_of_a_gang_is_that_of_the_rank_that_failed_first(
    answer: Any, rank: int | None
) -> None:
    service = Service(answer)
    assert files.first_end(service.client, "j", "t").rank == rank
    assert service.asked == ["GET /jobs/j/tasks/t/files/wd%2Franks%2Fends.jsonl"]


@pytest.mark.parametrize("code", ["FileNotFound", "TaskFilesUnavailable", "OperationInvalidForCurrentState"])
def test_a_file_that_is_not_there_yet_has_no_lines(code: str, follower: Follower, file: File) -> None:
    kind = NotFound if code == "FileNotFound" else ServiceError
    file.fault, file.content = kind("not yet", code=code), b"a\n"
    file.bodies.append(0)
    assert list(follower.new_lines("n0")) == []
    assert (follower.missing is None) == (kind is ServiceError)
    assert list(follower.new_lines("n0")) == ["a"]
    assert follower.missing is None


@pytest.mark.parametrize("error", [NotFound("x", code="NodeNotFound"), ServiceError("x", code="Other")])
def test_another_fault_ends_the_reading_of_a_file(error: ServiceError, follower: Follower, file: File) -> None:
    file.fault = error
    file.bodies.append(0)
    with pytest.raises(ServiceError) as caught:
        list(follower.new_lines("n0"))
    assert caught.value is error


def test_a_file_without_line_ends_comes_in_parts(
    follower: Follower, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE", 8)
    monkeypatch.setattr(state_files, "MOST_LINE", 16)
    text = "".join(map(chr, range(65, 115)))
    parts = after(follower, file, text)
    assert len(parts) > 1
    assert "".join((*parts, *follower.new_lines("n0", last=True))) == text
    parts = list(files.lines_of(iter([text.encode()])))
    assert max(map(len, parts)) <= 32
    assert "".join(parts) == text


def test_a_line_without_an_end_is_given_as_soon_as_it_is_too_long(
    follower: Follower, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "MOST_LINE", 4)
    assert after(follower, file, "abc") == []
    assert after(follower, file, "abcd") == ["abcd"]
    assert after(follower, file, "abcdefg") == []
    assert after(follower, file, "abcdefgh") == ["efgh"]
