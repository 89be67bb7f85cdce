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

PRICES = "prices:\n- region: westeurope\n  currency: USD\n  dedicated: {Standard_D4s_v5: 0.23}\n"
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


def test_on_an_account_a_difference_has_an_exit_code_and_names_the_code(batchtrain: Any, tmp_path: Path) -> None:
    """The emulator as an account: its nodes have no sshd, which is not excused there."""
    batchtrain("emulator", "start", "--port", "0")
    lines = batchtrain("emulator", "env").stdout.splitlines()
    account = dict(line.removeprefix("export ").split("=", 1) for line in lines if "AZURE_BATCH" in line)
    (tmp_path / "catalog.yaml").write_text(PRICES, encoding="utf-8")
    done = batchtrain("verify", "--only", "frameworks", "-y", code=11, environment=account)
    assert "an assumption differs: ssh-ports; the report names the code that depends on it" in done.stderr
    row = next(line for line in done.stdout.splitlines() if " ssh-ports " in line)
    assert row.split()[2] == DIFFERS
    assert row.endswith("batchtrain/runtime/preflight.sh")
    assert json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout) == []
