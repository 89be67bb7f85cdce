"""The output of a task as it grows: each byte once, whatever it contains."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from batchtrain.dashboard.figures import Numbers
from batchtrain.dashboard.output import (
    AT_MOST,
    BLOCK,
    KEPT,
    LONGEST_LINE,
    Numbered,
    Output,
    part,
)
from batchtrain.errors import NotFound, ServiceError
from batchtrain.metrics.stream import Batch
from batchtrain.records import Point
from batchtrain.runs.curves import MOST_POINTS, columns, thinned


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


def output(file: File, *takers: Callable[..., object], **how: Any) -> Output:
    """The output of a task, which was read once."""
    followed = Output(file.size, file.read, 5.0, *takers, **how)
    followed.read()
    return followed


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


def test_each_byte_comes_once_to_a_viewer_who_comes_back_and_a_character_that_is_cut_whole() -> None:
    file = File(b"one\n")
    followed = output(file)
    first, position = text_of(followed, "")
    file.content = b"one\ntwo\nthree" + "é".encode()[:1]
    followed.read()
    second, position = text_of(followed, position)
    file.content = "one\ntwo\nthreeé!".encode()
    followed.read()
    third, position = text_of(followed, position)
    assert (first, second, third, followed.since(position)) == ("one\n", "two\nthree", "é!", None)


def test_binary_output_is_text_with_marks() -> None:
    followed = output(File(b"\xff\x00\xfe\n"))
    assert text_of(followed, "")[0] == "\ufffd\x00\ufffd\n"


def test_a_file_that_does_not_exist_yet_is_no_error() -> None:
    file = File(None)
    followed = output(file)
    assert followed.since("") is None
    file.content = b"begun\n"
    followed.read()
    assert text_of(followed, "")[0] == "begun\n"


def test_a_task_that_runs_again_begins_anew() -> None:
    file = File(b"a long first try\n")
    followed = output(file)
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
    _, position = text_of(followed, "")
    file.content = b"x" * (10 + KEPT + 1000)
    followed.read()
    news = followed.since(position)
    assert news is not None
    body = json.loads(news.body)
    assert (body["skipped"], body["start"], len(body["text"])) == (1000, 1010, AT_MOST)


def test_a_new_viewer_of_a_long_file_gets_its_last_whole_lines() -> None:
    followed = output(File(b"".join(b"line %06d\n" % number for number in range(100_000))))
    news = followed.since("")
    assert news is not None
    body = json.loads(news.body)
    assert body["text"].startswith("line ") and body["text"].endswith("line 099999\n")


def test_curves_and_ranks_come_from_the_lines() -> None:
    numbers = Numbers()
    numbers.take_output(["[1:3] epoch 1 loss 0.5", "[1:3] epoch 2 loss 0.4", "[0:0] hello", "no prefix"])
    assert numbers.metrics()["loss"]["3"]["value"] == [0.5, 0.4]
    assert [(row["rank"], row["node"], row["lines"], row["last"]) for row in numbers.ranks()["rows"]] == [
        (0, "n0", 1, "hello"),
        (3, "n1", 2, "epoch 2 loss 0.4"),
    ]


def test_a_point_has_the_rank_of_its_file_and_without_a_time_that_of_its_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.time", lambda: 5.0)
    numbers = Numbers()
    numbers.take_own(2, ['{"step": 1, "loss": 0.5}', "no json", "[1]", ""])
    assert numbers.metrics()["loss"] == {"2": {"step": [1], "t": [5.0], "value": [0.5]}}


def test_a_long_curve_keeps_its_ends_and_its_peaks() -> None:
    values: list[Any] = [(float(step), float(step), 0.0, None) for step in range(100_000)]
    values[54_321] = (54_321.0, 54_321.0, 9.0, None)
    kept = thinned(values, MOST_POINTS)
    assert len(kept) <= MOST_POINTS and kept[0] == values[0] and kept[-1] == values[-1]
    assert max(columns(values)["value"]) == 9.0


def test_a_file_that_another_topic_read_just_now_is_not_read_again() -> None:
    file = File(b"first\n")
    shared = Output(file.size, file.read, 5.0, every=600.0)
    assert shared.read() > 0
    assert shared.read() == 0


# --- how a file is read ---------------------------------------------------------------------------------------------


def test_the_requests_of_a_read_are_counted() -> None:
    file = File(b"one\n")
    followed = Output(file.size, file.read, 5.0)
    assert followed.read() == 2  # its size, and its bytes
    assert followed.read() == 2  # nothing, and its size
    assert followed.read() == 1
    file.content = b"x" * (BLOCK + 10)
    assert followed.read() == 2  # two blocks
    assert Output(File(None).size, file.read, 5.0).read() == 1


def test_a_file_of_exactly_one_block_needs_another_request_to_know_its_end() -> None:
    file = File(b"")
    followed = output(file)
    file.content = b"x" * BLOCK
    assert followed.read() == 3  # the block, nothing, and the size
    assert followed.read() == 1


def test_the_size_is_compared_at_the_first_and_each_tenth_read_without_news() -> None:
    file = File(b"one\n")
    followed = output(file)
    assert [followed.read() for _ in range(20)] == [2, *[1] * 8, 2, *[1] * 9, 2]
    file.content = b"one\ntwo\n"
    followed.read()
    assert [followed.read() for _ in range(10)] == [2, *[1] * 8, 2]


def test_a_retry_that_prints_more_than_the_try_before_begins_anew() -> None:
    lines: list[str] = []
    file = File(b"a first try\n")
    followed = output(file, lines.extend, lines.clear)
    file.content = b"again\n"
    followed.read()
    file.content = b"again\nand further than the first\n"
    followed.read()
    assert lines == ["again", "and further than the first"]


def test_a_bar_that_is_redrawn_belongs_to_its_rank() -> None:
    content = b"[1,0]<stdout>:10%\r90%\n[1,1]<stdout>:x\n"
    shown = part(lambda: len(content), lambda start, end: content[start:end], "stdout.txt", start=0, end=None,
                 limit=100, rank=0)  # fmt: skip
    assert shown["text"] == "[1,0]<stdout>:10%\r90%\n"


def test_a_file_that_has_grown_is_not_begun_anew_when_its_size_is_compared() -> None:
    forgotten: list[bool] = []
    file = File(b"one\n")
    followed = output(file, forget=lambda: forgotten.append(True))
    forgotten.clear()
    for _ in range(30):
        followed.read()
    assert forgotten == [] and text_of(followed, "")[0] == "one\n"


def test_a_task_whose_directory_is_gone_begins_anew_and_its_numbers_too() -> None:
    lines: list[str] = []
    file = File(b"first\n")
    followed = output(file, lines.extend, lines.clear)
    assert lines == ["first"]
    file.content = None
    assert followed.read() == 1
    assert followed.since("6") is None
    file.content = b"second\n"
    followed.read()
    assert lines == ["second"]


@pytest.mark.parametrize("code", ["TaskFilesUnavailable", "OperationInvalidForCurrentState", "FileNotFound"])
def test_a_task_that_has_not_started_is_no_error(code: str) -> None:
    def size() -> int:
        raise ServiceError("not yet", code=code)

    assert Output(size, File().read, 5.0).read() == 1


@pytest.mark.parametrize("error", [ServiceError("no", code="ServerBusy"), NotFound("no node", code="NodeNotFound")])
def test_other_errors_of_a_read_are_errors(error: ServiceError) -> None:
    def fail(*_: int) -> Any:
        raise error

    with pytest.raises(ServiceError):
        Output(fail, File().read, 5.0).read()
    with pytest.raises(ServiceError):
        Output(lambda: 1, fail, 5.0).read()


def test_a_line_is_taken_when_it_is_whole_and_only_once() -> None:
    lines: list[str] = []
    file = File(b"one\ntw")
    followed = output(file, lines.extend)
    assert lines == ["one"]
    file.content = b"one\ntwo\nthree \xff\n"
    followed.read()
    followed.read()
    assert lines == ["one", "two", "three \ufffd"]


def test_of_an_endless_line_only_the_end_is_kept() -> None:
    lines: list[str] = []
    file = File(b"a" + b"b" * LONGEST_LINE)
    followed = output(file, lines.extend)
    file.content = b"a" + b"b" * LONGEST_LINE + b"\n"
    followed.read()
    assert lines == ["b" * LONGEST_LINE]


def test_numbers_are_searched_in_more_of_a_long_file_than_a_viewer_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchtrain.dashboard.output.HISTORY", 30)
    monkeypatch.setattr("batchtrain.dashboard.output.FIRST", 15)
    lines: list[str] = []
    file = File(b"".join(b"line %04d\n" % number for number in range(9)))
    followed = output(file, lines.extend)
    assert lines == ["line 0006", "line 0007", "line 0008"]
    assert message(followed, "")["text"] == "line 0008\n"
    plain = output(file)
    assert message(plain, "") == {"start": 80, "end": 90, "text": "line 0008\n", "skipped": 0}


# --- what a viewer gets ---------------------------------------------------------------------------------------------


def message(followed: Output, position: str) -> Any:
    """The body of the message after a position."""
    news = followed.since(position)
    assert news is not None
    return json.loads(news.body)


def test_a_viewer_at_the_end_gets_nothing_and_one_beyond_it_begins_again() -> None:
    followed = output(File(b"one\n"))
    assert followed.since("4") is None
    assert message(followed, "5") == {"start": 0, "end": 0, "text": "", "again": True}
    assert message(followed, "0") == {"start": 0, "end": 4, "text": "one\n", "skipped": 0}
    news = followed.since("0")
    assert news is not None and news.position == "4"
    empty = output(File(b""))
    assert message(empty, "") == {"start": 0, "end": 0, "text": "", "skipped": 0}
    assert empty.since("0") is None


@pytest.mark.parametrize("character", ["é", "߿", "ࠀ", "€", "😀", "\U0010ffff"])
def test_a_character_is_never_cut_wherever_the_bytes_end(character: str) -> None:
    whole = f"a{character}".encode()
    for cut in range(2, len(whole)):
        followed = output(File(whole[:cut]))
        assert message(followed, "")["text"] == "a"
    followed = output(File(whole))
    assert message(followed, "")["text"] == f"a{character}"


@pytest.mark.parametrize("content", [b"a\xc1", b"a\xf5", b"a\x80\x80\x80\x80", b"a\xbf", b"\x80"])
def test_bytes_that_begin_no_character_do_not_wait_for_a_rest(content: bytes) -> None:
    followed = output(File(content))
    assert message(followed, "")["end"] == len(content)


# --- numbers --------------------------------------------------------------------------------------------------------


def point(**fields: Any) -> str:
    return json.dumps(fields)


def test_a_point_has_its_own_rank_step_and_time_if_it_names_them() -> None:
    numbers = Numbers()
    numbers.take_own(2, [point(rank=5, step=1, epoch=9, t=7.0, loss=0.5), point(epoch=2, t=8.0, loss=0.25)])
    assert numbers.metrics()["loss"] == {
        "5": {"step": [1], "t": [7.0], "value": [0.5], "epoch": [9]},
        "2": {"step": [2], "t": [8.0], "value": [0.25], "epoch": [2]},
    }


def test_a_point_without_a_rank_belongs_to_its_node_or_to_the_task() -> None:
    numbers = Numbers()
    numbers.take_own(None, [point(node="n1", step=1, cpu=0.5), point(step=1, loss=0.5), point(step=2, loss=None)])
    assert {name: list(curves) for name, curves in numbers.metrics().items()} == {"cpu": ["n1"], "loss": [""]}


def test_there_are_at_most_so_many_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchtrain.dashboard.figures.MOST_SERIES", 2)
    numbers = Numbers()
    numbers.take_own(0, [point(step=1, a=1), point(step=1, b=1), point(step=1, c=1), point(step=2, a=2)])
    assert {name: curves["0"]["value"] for name, curves in numbers.metrics().items()} == {"a": [1, 2], "b": [1]}


def test_a_curve_that_grows_is_thinned_when_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchtrain.dashboard.figures.KEPT_POINTS", 10)
    numbers = Numbers()
    numbers.take_own(0, [point(step=step, loss=step) for step in range(10)])
    assert len(numbers.metrics()["loss"]["0"]["step"]) == 10
    numbers.take_own(0, [point(step=10, loss=10)])
    steps = numbers.metrics()["loss"]["0"]["step"]
    assert len(steps) <= 5 and (steps[0], steps[-1]) == (0, 10)


def test_a_long_name_and_a_long_line_are_cut() -> None:
    numbers = Numbers()
    numbers.take_own(0, [point(step=1, **{"n" * 200: 1.0})])
    numbers.take_output(["[0:0] " + "x" * 400])
    assert [len(name) for name in numbers.metrics()] == [100]
    assert len(numbers.ranks()["rows"][0]["last"]) == 300


@pytest.mark.parametrize(("line", "node"), [("[12:3] x", "n12"), ("[1,3]<stdout>:x", "")])
def test_a_rank_has_the_node_of_its_prefix_if_it_has_one(line: str, node: str) -> None:
    numbers = Numbers()
    numbers.take_output([line])
    assert [(row["rank"], row["node"], row["last"]) for row in numbers.ranks()["rows"]] == [(3, node, "x")]


def test_an_output_that_begins_anew_is_forgotten_unless_the_records_of_a_gang_are_read() -> None:
    record = '{"time": 5, "rank": 1, "node": "n1", "file": "stdout", "line": "epoch 1 loss 0.5"}'
    for take, kept in ((Numbers.take_output, set[str]()), (Numbers.take_records, {"loss"})):
        numbers = Numbers()
        take(numbers, [record if kept else "[0:0] epoch 1 loss 0.5"])
        assert set(numbers.metrics()) == {"loss"} and numbers.ranks()["rows"]
        numbers.forget_output()
        assert set(numbers.metrics()) == kept
        numbers.forget()
        assert (numbers.ranks()["rows"], numbers.metrics()) == ([], {})


def test_what_the_program_measures_itself_replaces_what_it_printed() -> None:
    def take(*names: str, **how: Any) -> list[str]:
        numbers._take(Batch(tuple(Point(values={name: 1.0}) for name in names), **how), 0.0)
        return sorted(numbers.metrics())

    numbers = Numbers()
    assert take("loss", "accuracy", "n" * 100) == ["accuracy", "loss", "n" * 100]
    assert take("rate", hidden=frozenset({"loss", "n" * 120, "other"})) == ["accuracy", "rate"]
    assert take("lr", again=True) == ["lr"]


def test_a_curve_of_few_points_keeps_its_ends_and_one_of_none_has_empty_columns() -> None:
    values = [(float(step), 0.0, float(step)) for step in range(5)]
    assert thinned(values, 2) == [values[0], values[1], values[3], values[4]]
    assert columns([]) == {"step": [], "t": [], "value": []}


@pytest.mark.parametrize("number", [6, 7, 9, 100])
def test_each_part_of_a_thinned_curve_keeps_its_lowest_and_its_highest_in_order(number: int) -> None:
    values = [(float(step), 0.0, float((step * 7) % number)) for step in range(number)]
    assert thinned(values, number) == values
    kept = thinned(values, 6)
    inner = values[1:-1]
    assert kept == sorted(kept) and len(kept) <= 6 and (kept[0], kept[-1]) == (values[0], values[-1])
    half = len(inner) // 2
    for rows in (inner[:half], inner[half:]):
        assert {min(row[2] for row in rows), max(row[2] for row in rows)} <= {row[2] for row in kept}


def test_a_numbered_topic_tells_only_what_has_changed_and_what_it_cost() -> None:
    values = [1]
    topic = Numbered(lambda: 3, lambda: values, 5.0)
    assert topic.since("") is None
    assert topic.read() == 3
    news = topic.since("")
    assert news is not None and news.body == b"[1]"
    topic.read()
    assert topic.since(news.position) is None
    values.append(2)
    topic.read()
    assert topic.since(news.position) is not None
