"""One YAML file as data with places."""

from typing import Any

import pytest

from batchtrain.config.document import parse


def read(text: str, name: str = "x.yaml") -> Any:
    document, problems = parse(name, text.encode())
    assert problems == ()
    return document.data


def test_scalars_stay_the_text_that_was_written() -> None:
    assert read("a: yes\nb: 7.10\nc: 012\nd: 1:30\n") == {"a": "yes", "b": "7.10", "c": "012", "d": "1:30"}


def test_a_plain_null_counts_as_absent_and_a_quoted_one_is_text() -> None:
    assert read("a: null\nb: ~\nc:\nd: 'null'\n") == {"d": "null"}


def test_a_duplicate_key_is_a_problem_at_its_second_place() -> None:
    _, problems = parse("x.yaml", b"a: 1\nb: 2\na: 3\n")
    assert [(p.rule, p.line, p.column) for p in problems] == [("duplicate-key", 3, 1)]


def test_places_count_from_one_and_tell_keys_from_values() -> None:
    document, _ = parse("x.yaml", b"a:\n  - b: 5\n")
    assert document.position(("a", 0, "b"))[:4] == (2, 8, 2, 9)
    assert document.position(("a", 0, "b"), key=True)[:4] == (2, 5, 2, 6)


def test_the_position_of_a_missing_value_is_the_key_of_its_nearest_parent() -> None:
    document, _ = parse("x.yaml", b"x: 1\nabc:\n  b: 1\n")
    place = document.position(("abc", "c", "d"))
    assert place[:4] == (2, 1, 2, 4)
    assert not place.exact


@pytest.mark.parametrize(
    ("text", "line", "advice"),
    [
        ("x: 1\na: [1, 2\nb: 3\n", 2, "a `[` is not closed"),
        ("x: 1\na: {\n", 2, ""),
        ('x: 1\na: "b\nc: 3\n', 2, "a quote is not closed"),
        ("x:\n- id\n  tasks: 3\n", 2, "a key needs `: `"),
        ("x: 1\n  y: 2\n", 2, "needs quotes"),
    ],
)
def test_a_syntax_error_has_the_place_where_the_mistake_is(text: str, line: int, advice: str) -> None:
    _, problems = parse("x.yaml", text.encode())
    assert [(p.rule, p.line) for p in problems] == [("syntax", line)]
    assert advice in problems[0].message


@pytest.mark.parametrize("comment", ["// sizes", "/* sizes */"])
@pytest.mark.parametrize("place", ['{c}\n{{"a": 1}}', '{{{c}\n "a": 1}}', '{{"a": 1, {c}\n "b": 2}}'])
def test_a_comment_of_another_language_in_json_is_named(comment: str, place: str) -> None:
    text = place.format(c=comment)
    (problem,) = parse("pool.json", text.encode())[1]
    line = text[: text.index(comment)].count("\n") + 1
    assert (problem.line, f"`{comment[:2]}` is not a comment" in problem.message) == (line, True)


@pytest.mark.parametrize("value", ["//server/share", "/* */", r"say \"// x"])
def test_what_a_text_of_broken_json_begins_with_is_no_comment(value: str) -> None:
    (problem,) = parse("pool.json", f'{{"a": {{"source": "{value}" "x": 5}}}}'.encode())[1]
    assert "comment" not in problem.message


LAUGHS = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))])
REFUSED = {
    "bytes that are not UTF-8": (b"a: 1\nb: \xff\n", ("encoding", 2)),
    "an empty file": (b"# nothing\n", ("empty-file", 1)),
    "a billion laughs": (LAUGHS.encode(), ("aliases", 12)),
    "an alias inside of its anchor": (b"a: &a {b: *a}\n", ("aliases", 1)),
    "an unknown tag": (b"a: !secret x\n", ("tag", 1)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_data_is_a_problem_with_its_line(kind: str) -> None:
    content, problem = REFUSED[kind]
    _, problems = parse("x.yaml", content)
    assert [(p.rule, p.line) for p in problems] == [problem]


def test_an_alias_shares_its_anchor() -> None:
    data = read("a: &a [x]\nb: *a\n")
    assert data["a"] is data["b"]


@pytest.mark.parametrize("text", ["[" * 600, "[" * 50_000, "- " * 50_000, "{a: " * 300])
def test_deep_nesting_is_refused_before_it_can_crash_the_parser(text: str) -> None:
    _, problems = parse("x.yaml", text.encode())
    assert [p.rule for p in problems] == ["syntax"]


def test_brackets_in_text_are_not_nesting() -> None:
    assert read("a: '" + "[" * 300 + "'") == {"a": "[" * 300}


def test_json_may_write_characters_as_surrogate_pairs() -> None:
    assert read('{"a": "\\ud83d\\ude00"}', "x.json") == {"a": "\U0001f600"}


def test_a_merge_key_fills_in_missing_keys() -> None:
    assert read("base: &b {x: 1, y: 2}\nmine: {<<: *b, y: 3}\n")["mine"] == {"x": "1", "y": "3"}


def test_json_may_be_indented_with_tabs() -> None:
    assert read('{\n\t"a": {\n\t\t"b": 1\n\t}\n}', "x.json") == {"a": {"b": "1"}}
