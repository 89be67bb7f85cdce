"""The output of a task as it grows: each byte once, whatever it contains."""

from __future__ import annotations

import json

from batchtrain.dashboard.output import AT_MOST, KEPT, MOST_POINTS, Numbers, Output, columns, thinned
from batchtrain.errors import NotFound, ServiceError


class File:
    """A file of a task, as the service gives it."""

    def __init__(self, content: bytes | None = b"") -> None:
        self.content = content

    def size(self) -> int:
        if self.content is None:
            raise NotFound("no file", code="FileNotFound")
        return len(self.content)

    def read(self, start: int, end: int) -> bytes:
        if self.content is None:
            raise NotFound("no file", code="FileNotFound")
        if start >= len(self.content):
            raise ServiceError("nothing more", code="InvalidRange")
        return self.content[start:end]


def output(file: File) -> Output:
    return Output(file.size, file.read, 5.0)


def text_of(followed: Output, position: str) -> tuple[str, str]:
    """The text after a position in all messages, and the position after it."""
    text = ""
    while (news := followed.since(position)) is not None:
        body = json.loads(news.body)
        if not body["text"] and news.position == position:
            break
        text, position = text + body["text"], news.position
        if not body["text"]:
            break
    return text, position


def test_each_byte_comes_once_to_a_viewer_who_comes_back() -> None:
    file = File(b"one\n")
    followed = output(file)
    followed.read()
    first, position = text_of(followed, "")
    file.content = b"one\ntwo\nthree"
    followed.read()
    second, position = text_of(followed, position)
    assert (first, second, followed.since(position)) == ("one\n", "two\nthree", None)


def test_a_character_that_is_cut_comes_whole() -> None:
    file = File("é".encode()[:1])
    followed = output(file)
    followed.read()
    _, position = text_of(followed, "")
    file.content = "é!".encode()
    followed.read()
    assert text_of(followed, position)[0] == "é!"


def test_binary_output_is_text_with_marks() -> None:
    followed = output(File(b"\xff\x00\xfe\n"))
    followed.read()
    assert text_of(followed, "")[0] == "\ufffd\x00\ufffd\n"


def test_a_file_that_does_not_exist_yet_is_no_error() -> None:
    file = File(None)
    followed = output(file)
    followed.read()
    assert followed.since("") is None
    file.content = b"begun\n"
    followed.read()
    assert text_of(followed, "")[0] == "begun\n"


def test_a_task_that_runs_again_begins_anew() -> None:
    file = File(b"a long first try\n")
    followed = output(file)
    followed.read()
    _, position = text_of(followed, "")
    file.content = b"again\n"
    for _ in range(12):
        followed.read()
    news = followed.since(position)
    assert news is not None and json.loads(news.body)["again"]
    assert text_of(followed, news.position)[0] == "again\n"


def test_a_viewer_who_is_far_behind_learns_how_much_is_not_shown() -> None:
    file = File(b"x" * 10)
    followed = output(file)
    followed.read()
    _, position = text_of(followed, "")
    file.content = b"x" * (10 + KEPT + 1000)
    followed.read()
    news = followed.since(position)
    assert news is not None
    body = json.loads(news.body)
    assert (body["skipped"], body["start"], len(body["text"])) == (1000, 1010, AT_MOST)


def test_a_new_viewer_of_a_long_file_gets_its_last_whole_lines() -> None:
    followed = output(File(b"".join(b"line %06d\n" % number for number in range(100_000))))
    followed.read()
    news = followed.since("")
    assert news is not None
    body = json.loads(news.body)
    assert body["text"].startswith("line ") and body["text"].endswith("line 099999\n")


def test_curves_and_ranks_come_from_the_lines() -> None:
    numbers = Numbers()
    numbers.take(["[1:3] epoch 1 loss 0.5", "[1:3] epoch 2 loss 0.4", "[0:0] hello", "no prefix"])
    assert numbers.metrics()["loss"]["3"]["value"] == [0.5, 0.4]
    assert [(row["rank"], row["node"], row["lines"], row["last"]) for row in numbers.ranks()] == [
        (0, "0", 1, "hello"),
        (3, "1", 2, "epoch 2 loss 0.4"),
    ]


def test_a_metrics_file_has_the_rank_of_its_name() -> None:
    numbers = Numbers()
    numbers.take_json(2, ['{"step": 1, "loss": 0.5}', "no json", "[1]", ""])
    assert numbers.metrics()["loss"]["2"]["step"] == [1]


def test_a_long_curve_keeps_its_ends_and_its_peaks() -> None:
    values = [(float(step), float(step), 0.0) for step in range(100_000)]
    values[54_321] = (54_321.0, 54_321.0, 9.0)
    kept = thinned(values, MOST_POINTS)
    assert len(kept) <= MOST_POINTS and kept[0] == values[0] and kept[-1] == values[-1]
    assert max(columns(values)["value"]) == 9.0  # type: ignore[type-var]


def test_a_file_that_another_topic_read_just_now_is_not_read_again() -> None:
    file = File(b"first\n")
    shared = Output(file.size, file.read, 5.0, every=600.0)
    assert shared.read() > 0
    assert shared.read() == 0
