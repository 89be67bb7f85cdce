"""What a run leaves behind shows no secret: a marker is in every secret field of its recipe, and all is searched."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchtrain.client import Client
from batchtrain.config.load import examine
from batchtrain.config.types import Secret
from batchtrain.dashboard.reading import DOCUMENTS
from batchtrain.emulator.server import Emulator, Settings
from batchtrain.run import follow
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account
from tests.dashboards import SCRIPT, dashboard
from tests.emulation import FakeMachine
from tests.unit.test_secrets import MARKER, files_of, plant

pytestmark = pytest.mark.process


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(Settings(tmp_path / "data", port=0), FakeMachine.open) as running:
        yield running


def test_nothing_that_a_run_leaves_shows_a_secret(emulator: Emulator, tmp_path: Path) -> None:
    for name in ("recipe", "runs", "saved"):
        (tmp_path / name).mkdir()
    files = files_of(plant(tmp_path / "recipe"))
    recipe = examine(tmp_path / "recipe", files).recipe
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    client.pools.add(recipe, timeout=60)
    origin = Origin(tmp_path / "runs", ("batchtrain", "run", "--set", f"password={MARKER}"), {"p": MARKER}, files)
    told: list[str] = []
    outcome = follow(client, recipe, tell=lambda event: told.append(str(event)), timeout=60, origin=origin)

    recipe.save(tmp_path / "saved")
    words = ["jobs", "diagnose", "j", "--local", "--configdir", str(tmp_path / "recipe"), "--bundle", "b.zip"]
    environment = {**os.environ, "BATCHTRAIN_EMULATOR_DIR": str(tmp_path / "data")}
    done = subprocess.run([SCRIPT, *words], env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    node = client.batch.list_nodes("p").next().id
    names = {"pool": "p", "node": node, "job": "j", "task": "t", "run": outcome.runs[0].name}
    with dashboard(environment, "--local", runs=tmp_path / "runs") as page:
        asked = [f"/api/v1{row.path.format(**names)}?id={names['run']}&id={names['run']}" for row in DOCUMENTS]
        answers = [page.ask(path) for path in asked]
    with zipfile.ZipFile(tmp_path / "b.zip") as parts:
        shown = [parts.read(name) for name in parts.namelist()]
    kept = [path for name in ("runs", "saved") for path in (tmp_path / name).rglob("*") if path.is_file()]
    shown += [path.read_bytes() for path in kept] + [body for *_, body in answers]
    shown += [done.stdout, done.stderr, *(text.encode() for text in told)]

    assert {"run.json", "plan.json", "effective.yaml", "events.jsonl", "report.html", "jobs.yaml"} <= {
        path.name for path in kept
    }
    assert [path for path, (status, *_) in zip(asked, answers, strict=True) if status != 200] == []
    assert [text for text in shown if MARKER.encode() in text] == []
