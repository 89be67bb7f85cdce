"""What leaves a run directory for other programs and for a terminal: no text is a formula or controls a terminal, and a
reader gets the values that were recorded."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from batchtrain.cli import documents
from batchtrain.cli.app import root
from batchtrain.metrics.extract import Extractor, Pattern
from batchtrain.metrics.point import MOST_NAME, of_json
from batchtrain.records import Metric, Task
from batchtrain.runs import export
from batchtrain.runs.directory import EventRecord, RunDirectory, RunFailure
from batchtrain.runs.finished import Run, Runs
from batchtrain.runtime import batchtrain_sweep

from .batch_server import START
from .made import made

TEXTS = (
    "=cmd|' /C calc'!A0", "+1+1", "-1+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "'=1", "'quoted", "'\"",
    '"=1"', "a,b", "a\nb", "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202egnp", "loss", "Größe ✓", "a\tb", "\x7f",
)  # fmt: skip
CONTROLS = frozenset(map(chr, (*range(9), *range(11, 32), *range(127, 160), 0x202E)))


def read_back(cell: str) -> str:
    """As docs/how-to/numbers-and-bench.md says."""
    return str(json.loads(cell[1:])) if cell.startswith("'\"") else cell.removeprefix("'")


def is_safe(cell: str) -> bool:
    return not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝")) and not CONTROLS & set(cell)


def run_with(tmp_path: Path, line: dict[str, Any], **fields: Any) -> RunDirectory:
    run = made(tmp_path, "job", **fields)
    run.replace(run.metrics_file("train"), msgspec.json.encode(line) + b"\n")
    return run


@pytest.mark.parametrize("text", TEXTS)
def test_a_name_in_csv_is_no_formula_and_a_reader_gets_it_back(text: str, tmp_path: Path) -> None:
    file = io.StringIO()
    export.write_csv(run_with(tmp_path, {"t": 1.5, "step": -3, "node": text, text: -0.25}), file)
    (heads, row) = csv.reader(io.StringIO(file.getvalue()))
    values = dict(zip(heads, row, strict=True))
    assert is_safe(values["node"]) and is_safe(values["metric"])
    assert (read_back(values["node"]), read_back(values["metric"])) == (text, text)
    assert (values["t"], values["step"], values["value"]) == ("1.5", "-3", "-0.25")


@pytest.mark.parametrize("text", TEXTS)
def test_every_table_in_csv_has_the_same_cells(text: str, tmp_path: Path) -> None:
    printed = documents._csv([{"name": text, text: ["x", text], "number": -1.5, "text": "-1.5"}])
    heads, row = csv.reader(io.StringIO(printed))
    assert is_safe(heads[1]) and is_safe(row[1]) and (is_safe(row[0]) or text == "-1")
    assert [read_back(heads[1]), read_back(row[0]), json.loads(read_back(row[1]))] == [text, text, ["x", text]]
    assert row[2:] == ["-1.5", "-1.5"]
    batchtrain_sweep.write_csv([batchtrain_sweep.Row(text, {text: text}, -0.5)], text, str(tmp_path / "sweep.csv"))
    heads, row = csv.reader(io.StringIO((tmp_path / "sweep.csv").read_text(encoding="utf-8")))
    assert all(map(is_safe, (*heads, row[0], row[2])))
    assert [read_back(row[0]), row[1], read_back(row[2])] == [text, "-0.5", text]


def hostile(tmp_path: Path, text: str) -> RunDirectory:
    failure = RunFailure(message=text, task=text, node=text, cause=text)
    fields = {"state": text, "vm_size": text, "pool": text, "warnings": (text,), "settings": {text: text}}
    summary = {text: Metric(0.5, 0.25, 3, text)}
    run = run_with(tmp_path, {"step": 1, text: 0.5}, failure=failure, summary=summary, **fields)
    run.replace(
        run.metrics_file("train"), b"".join(msgspec.json.encode({"step": n, text: 0.5}) + b"\n" for n in (1, 2))
    )
    run.write_tasks([Task("train", text, node=text)])
    run.add_event(EventRecord(START, text, text, text))
    return run


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "yaml", "csv"])
@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b31m", "\u202egnp", "\r=1", "\x07"])
def test_no_view_of_a_run_controls_a_terminal(text: str, form: str, tmp_path: Path) -> None:
    first, second = hostile(tmp_path, text), hostile(tmp_path, f"{text}2")
    for words in (["list"], ["show", first.name, "-v"], ["compare", first.name, second.name], ["export", first.name]):
        shown = CliRunner().invoke(root, ["runs", *words, "--runs-dir", str(tmp_path), "-o", form])
        assert shown.exit_code == 0, shown.output
        assert not CONTROLS & set(shown.stdout + shown.stderr), words
    every = Run(first), Run(first).plot(), Runs(tmp_path).list(), Runs(tmp_path).compare(first.name, second.name)
    assert not CONTROLS & set("".join(map(repr, every)))


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_document_keeps_its_values(text: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    documents._document({"json": documents._json, "yaml": documents._yaml}[form]([{text: text}]))
    printed = capsys.readouterr().out
    assert not CONTROLS & set(printed)
    assert yaml.safe_load(printed) == [{text: text}]


def test_the_files_of_other_programs_have_no_escapes_in_their_names(tmp_path: Path) -> None:
    run = hostile(tmp_path / "runs", "\x1b[2J")
    run.replace(run.logs("train") / "stdout.txt", "__a\x9b31mb__=1\n__c\x1b]0;d\x07__=2\n".encode())
    (file,) = export.write_dlbs(run, tmp_path / "dlbs")
    assert not CONTROLS & set(file.read_text(encoding="utf-8"))
    assert export.write_tensorboard(run, tmp_path / "tensorboard") == 2


# --- the length of a name -------------------------------------------------------------------------------------------

LONG = "x" * 100_000


def test_a_long_name_of_a_metric_is_cut_where_it_is_made() -> None:
    of_file = of_json(json.dumps({LONG: 1.0, LONG + "y": 2.0, "node": LONG}))
    printed = list(Extractor([Pattern(LONG, r"loss=(\S+)")]).line(None, "loss=1"))
    assert of_file is not None
    names = [*of_file.values, of_file.node, *printed[0].values]
    assert {len(name) for name in names} == {MOST_NAME}
    assert len(set(names)) == 2, "names that differ stay different"
    assert list(of_json('{"loss": 1}').values) == ["loss"]  # type: ignore[union-attr]  # it has a number


def test_a_long_name_in_the_record_of_another_user_is_cut(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"step": 1, LONG: 0.5}, summary={LONG: Metric(1.0, 1.0)})
    assert [len(name) for name in run.metrics().values] == [MOST_NAME]
    assert [len(name) for _, point in run.points() for name in point.values] == [MOST_NAME]
    listed = CliRunner().invoke(root, ["runs", "list", "--runs-dir", str(tmp_path)], catch_exceptions=False)
    assert max(map(len, listed.stdout.splitlines())) < 600


@pytest.mark.parametrize("form", ["--dlbs", "--tensorboard"])
def test_an_export_into_a_run_directory_follows_no_link(form: str, tmp_path: Path) -> None:
    run = run_with(tmp_path / "runs", {"loss": 1.0})
    run.replace(run.logs("train") / "stdout.txt", b"__a__=1\n")
    (tmp_path / "home").mkdir()
    (run.path / "export").symlink_to(tmp_path / "home")
    result = CliRunner().invoke(root, ["runs", "export", str(run.path), form])
    assert "`export` is a link" in str(result.exception)
    assert not list((tmp_path / "home").iterdir())
