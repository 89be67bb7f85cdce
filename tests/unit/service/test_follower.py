"""The growing output of a task is followed through retries and requeues."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.service import files
from batchtrain.service.files import Follower

LONG = "".join(f"step {number}\n" for number in range(40))


class File:
    """The content of stdout.txt, which a test replaces."""

    content = b""

    def read(self, client: Any, job_id: str, task_id: str, path: str, start: int = 0) -> bytes:
        return self.content[start:]


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> File:
    made = File()
    monkeypatch.setattr(files, "task_file", made.read)
    return made


@pytest.fixture
def follower() -> Follower:
    return Follower(None, "j", "t", "stdout.txt")  # type: ignore[arg-type]


def after(follower: Follower, file: File, text: str, node: str = "n0") -> list[str]:
    file.content = text.encode()
    return follower.new_lines(node)


def test_only_complete_lines_are_given_and_each_once(follower: Follower, file: File) -> None:
    assert after(follower, file, LONG + "grö") == LONG.splitlines()
    assert after(follower, file, LONG + "größe\n") == ["größe"]
    assert after(follower, file, LONG + "größe\nend") == []
    assert follower.new_lines("n0", last=True) == ["end"]


def test_a_retry_on_another_node_is_read_from_its_beginning_even_if_it_is_longer(
    follower: Follower, file: File
) -> None:
    after(follower, file, "one\n")
    assert after(follower, file, "one\ntwo\n", node="n1") == ["one", "two"]


@pytest.mark.parametrize("again", ["other\n", "other\n" * 100, ""], ids=["shorter", "longer", "empty"])
def test_a_file_that_is_written_anew_on_the_same_node_is_read_from_its_beginning(
    follower: Follower, file: File, again: str
) -> None:
    after(follower, file, LONG)
    assert after(follower, file, again) == again.splitlines()
    assert after(follower, file, again + "more\n") == ["more"]


def test_a_retry_that_appends_to_the_file_repeats_nothing(follower: Follower, file: File) -> None:
    after(follower, file, LONG)
    assert after(follower, file, LONG + LONG) == LONG.splitlines()
