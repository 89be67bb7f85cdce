"""`batchtrain verify --local`: the emulator answers every probe that needs no hardware, and nothing is left."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from batchtrain.verify.probe import DIFFERS, HOLDS, NOT_ASKED
from batchtrain.verify.probes import AREAS
from tests.waiting import until

pytestmark = pytest.mark.process

ANSWERS = (HOLDS, DIFFERS, NOT_ASKED)
PROBES = {probe.name: probe for area in AREAS for probe in area.probes}


def test_only_listed_probes_are_not_asked_and_nothing_is_left(batchtrain: Any, tmp_path: Path) -> None:
    done = batchtrain("verify", "--local", "--report", "reports", "-o", "json")
    (report,) = json.loads(done.stdout)
    named = {word: [row["probe"] for row in report["judgements"] if row["judgement"] == word] for word in ANSWERS}
    assert set(named[NOT_ASKED]) == {name for name, probe in PROBES.items() if probe.not_local}
    assert named[DIFFERS] == []
    assert sum(map(len, named.values())) == len(PROBES)
    assert json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout) == []
    assert json.loads(batchtrain("jobs", "list", "--local", "-o", "json").stdout) == []
    page, document = sorted((tmp_path / "reports").iterdir(), key=lambda path: path.suffix, reverse=True)
    assert json.loads(document.read_bytes()) == report
    assert f"{len(named[HOLDS])} holds, 0 differs, {len(named[NOT_ASKED])} could not be asked" in page.read_text()


def test_ctrl_c_leaves_nothing(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    process = batchtrain.start("verify", "--local")
    until(lambda: json.loads(batchtrain("jobs", "list", "--local", "-o", "json").stdout))
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout) == []
