"""lines.sh passes on what the ranks of a node print and measure."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from batchtrain import runtime
from tests.waiting import until

pytestmark = pytest.mark.process


def passed_on(node: Path, files: dict[str, str], **environment: str) -> list[dict[str, Any]]:
    """What it prints of a node with these files until its stdin ends."""
    home = node / "a task" / ".batchtrain"
    (home / "ranks").mkdir(parents=True)
    for name, data in {"lines.sh": runtime.read("lines.sh"), "lines.awk": runtime.read("lines.awk")}.items():
        (home / name).write_bytes(data)
    for name, text in files.items():
        path = node / "a task" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        ["bash", str(home / "lines.sh"), "n1", "2"],
        input=b"",
        capture_output=True,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "AZ_BATCH_TASK_WORKING_DIR": str(node / "a task/wd"),
            **environment,
        },
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


MEASURED = {".batchtrain/ranks/4.stdout.lines": "", "wd/ranks/rank-4.metrics.jsonl": '{"step": 1, "loss": 0.5}\n'}


@pytest.mark.parametrize("compat", ["", "4.2"])
def test_lines_have_their_node_and_attempt(compat: str, tmp_path: Path) -> None:
    printed = '{"rank": 4, "line": "a"}\n{"rank": 4, "line": "no e'
    lines = passed_on(tmp_path, {**MEASURED, ".batchtrain/ranks/4.stdout.lines": printed}, BASH_COMPAT=compat)
    assert lines[0] == {"node": "n1", "attempt": 2, "rank": 4, "line": "a"}
    assert [line.get("line") for line in lines if "rank" in line] == ["a", '{"step": 1, "loss": 0.5}']


def test_a_rank_that_prints_nothing_has_what_it_measures(tmp_path: Path) -> None:
    lines = [line for line in passed_on(tmp_path, MEASURED) if "rank" in line]
    assert [(line["rank"], line["file"], line["attempt"]) for line in lines] == [(4, "metrics", 2)]


def test_a_file_of_an_attempt_before_is_not_passed_on(tmp_path: Path) -> None:
    files = {**MEASURED, "wd/ranks/rank-9.metrics.jsonl": '{"step": 1, "loss": 9}\n'}
    assert {line["rank"] for line in passed_on(tmp_path, files) if "rank" in line} == {4}


def test_a_node_whose_ranks_keep_no_lines_says_nothing(tmp_path: Path) -> None:
    assert passed_on(tmp_path, {"wd/ranks/rank-4.metrics.jsonl": '{"loss": 1}\n'}) == []


def test_the_primary_notes_from_where_on_the_output_of_its_task_is_new(tmp_path: Path) -> None:
    home = tmp_path / ".batchtrain"
    (home / "ranks").mkdir(parents=True)
    (home / "ranks/0.stdout.lines").touch()
    (home / "lines.sh").write_bytes(runtime.read("lines.sh"))
    output, records = tmp_path / "stdout.txt", tmp_path / "stream.jsonl"
    with output.open("ab", buffering=0) as stdout, records.open("wb") as stream:
        script = f'exec 7>&{stdout.fileno()}; exec bash "$0" n0 1 8>/dev/null'
        words = ["bash", "-c", script, str(home / "lines.sh")]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=stream, pass_fds=[stdout.fileno()])
        stdout.write(b"step 1\n")
        until(lambda: marks(records) == [0])
        stdout.write(b"step 2\n")
        until(lambda: marks(records) == [0, 7])
        process.communicate()


def marks(records: Path) -> list[int]:
    every = [json.loads(line) for line in records.read_text().splitlines()]
    return [record["at"] for record in every if record.get("file") == "stdout"]
