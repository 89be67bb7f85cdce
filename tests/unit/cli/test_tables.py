"""Tables on terminals of 80 and 40 columns."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from batchtrain import records
from batchtrain.cli import tables
from batchtrain.cli.documents import escaped
from batchtrain.records import Failure, Job, Node, Pool, Task
from batchtrain.runs.task_files import FileRow

NODE = "tvmps_" + "732a" * 16 + "_d"
FAILURE = Failure("FailureExitCode", "The task exited with an exit code representing a failure")


class Note(NamedTuple):
    name: str
    about: str


ROWS: dict[str, list[Any]] = {
    "tasks": [Task(f"train-{n}", "completed", "failure", 1, NODE, 12.5, FAILURE) for n in range(3)],
    "one task": [Task("train", "completed", "failure", 1, NODE, 12.5, FAILURE)],
    "nodes": [Node(NODE, "idle", "10.0.0.4"), Node(NODE, "starttaskfailed", "10.0.0.5", "exit code 1")],
    "pools": [Pool(f"digits-{n}", "active", "steady", "standard_d4s_v5", 2, 2, 0, 0) for n in range(3)],
    "jobs": [Job(f"digits-{n}", "completed", "digits-mpich", reason="AllTasksComplete") for n in range(2)],
    "sentences": [Note("one", "word " * 40), Note("two", "a few words")],
}


def shown(rows: list[Any], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(tables, "completed", lambda text: text)
    tables.printed(rows)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("kind", ROWS)
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(
    kind: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = shown(ROWS[kind], width, monkeypatch, capsys)
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= width
    values = (str(value) for row in ROWS[kind] for value in records.shown(row).values())
    words = {word for value in values for word in value.replace(NODE, "tvmps_732a…_d").split()}
    table = printed.partition("columns that do not fit")[0]
    heads = {word for name in records.columns(ROWS[kind]) for word in name.split("_")}
    assert [word for word in table.split() if word not in words | heads | {"12.50", "no", "yes"}] == []


def test_what_a_list_leaves_out_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    printed = " ".join(shown(ROWS["pools"], 60, monkeypatch, capsys).split())
    assert printed.endswith("(-o json has everything)")


class Ran(NamedTuple):
    run: str
    started: str
    vm_size: str
    node_hours: str


@pytest.mark.parametrize(("width", "left"), [(58, {"node_hours"}), (48, {"node_hours", "vm_size"})])
def test_constant_columns_are_omitted_first_then_the_vm_size(
    width: int, left: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Ran(f"20261123-digits-{n}", f"2026-11-23 19:0{n}", f"standard_d{n}s_v5", "0.01") for n in (2, 4)]
    printed = " ".join(shown(list(rows), width, monkeypatch, capsys).split())
    names = printed.partition("columns that do not fit: ")[2].partition(" (-o")[0].split(", ")
    assert {name.replace(" ", "_") for name in names} == left


def test_control_characters_of_a_name_do_not_reach_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (_, row) = shown([FileRow("wd/output/a\nb\x1b[2J.pt", 3, None, "n")], 80, monkeypatch, capsys).splitlines()
    assert row.split()[0] == r"wd/output/a\nb\u001b[2J.pt"
    assert r"loss\u001b[2J" in shown([{"loss\x1b[2J": 1.0}], 80, monkeypatch, capsys)


def test_a_document_in_ascii_is_the_same_document() -> None:

    text = '{"a": "…é\U0001f600"}'
    assert escaped(text).isascii()
    assert json.loads(escaped(text)) == json.loads(text)
