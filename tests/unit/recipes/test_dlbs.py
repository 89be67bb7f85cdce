"""The benchmarks' own reader of DLBS's parameters, and the result lines that they print for it."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[3] / "recipes" / "MXNet-Benchmark" / "src" / "dlbs.py"))
OPTIONS = {"exp.dtype": "--dtype", "exp.num_batches": "--num-batches"}

take: Callable[[list[str], dict[str, str]], tuple[dict[str, Any], list[str]]] = SCRIPT["take"]
report: Callable[[dict[str, Any], dict[str, Any]], None] = SCRIPT["report"]


def test_a_parameter_becomes_the_programs_option_and_is_kept() -> None:
    parameters, words = take(['-Pexp.dtype="float16"', "-Pexp.node_id=3", "--lr", "1"], OPTIONS)
    assert parameters == {"exp.dtype": "float16", "exp.node_id": 3}
    assert words == ["--dtype=float16", "--lr", "1"]


def test_a_file_of_dlbs_gives_its_parameters_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    described = {"val": 100, "type": "int", "desc": "Batches."}
    file.write_text(json.dumps({"parameters": {"exp.num_batches": described, "exp.dtype": "float32"}}))
    parameters, words = take(["--config", str(file), '-Pexp.dtype="float16"'], OPTIONS)
    assert parameters == {"exp.num_batches": 100, "exp.dtype": "float16"}
    assert words == ["--num-batches=100", "--dtype=float16"]


def test_an_expression_is_refused_for_dlbs_alone_evaluates_it(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"parameters": {"exp.log_file": "${BENCH}/x.log"}}))
    with pytest.raises(SystemExit, match=r"exp.log_file is an expression that only DLBS evaluates; write its value"):
        take(["--config", str(file)], OPTIONS)


def test_a_string_without_quotes_is_refused_with_the_right_spelling() -> None:
    with pytest.raises(SystemExit, match="not JSON.*-Pexp.dtype='\"float16\"'"):
        take(["-Pexp.dtype=float16"], OPTIONS)


def test_results_are_lines_of_json_also_in_the_log_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "logs" / "rank_0.log"
    report({"exp.log_file": str(log), "exp.dtype": "float16"}, {"exp.dtype": "float32", "results.time": 1.5})
    lines = capsys.readouterr().out.splitlines()
    assert log.read_text().splitlines() == lines
    assert '__exp.dtype__="float32"' in lines
    assert "__results.time__=1.5" in lines
    assert not [line for line in lines if "float16" in line]
