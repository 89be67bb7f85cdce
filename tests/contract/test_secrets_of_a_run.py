"""What a run leaves behind shows no secret: a marker is in every secret field of its recipe, and all is searched."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from batchtrain.client.client import Client
from batchtrain.client.run import follow
from batchtrain.config.load import examine
from batchtrain.config.types import Secret
from batchtrain.dashboard.reading import DOCUMENTS
from batchtrain.emulator.server import Emulator, Settings
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account
from tests.dashboards import SCRIPT, dashboard
from tests.emulation import FakeMachine
from tests.unit.test_secrets import MARKER, MARKERS, files_of, plant

pytestmark = pytest.mark.process


class Left(NamedTuple):
    """What a run left: its files, and the texts that were shown of it by their origin."""

    place: Path
    shown: dict[str, bytes]

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.place / "runs").rglob("*") if not path.is_symlink())


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    place, umask = tmp_path_factory.mktemp("left"), os.umask(0)
    try:
        with Emulator(Settings(place / "data", port=0), FakeMachine.open) as running:
            yield Left(place, _shown(running, place))
    finally:
        os.umask(umask)


def _shown(emulator: Emulator, place: Path) -> dict[str, bytes]:
    (place / "recipe").mkdir()
    files = files_of(plant(place / "recipe"))
    recipe = examine(place / "recipe", files).recipe
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    client.pools.add(recipe, timeout=60)
    values = {".".join(map(str, path)): marker for path, marker in MARKERS.items()}
    words = ("batchtrain", "run", *(word for path, text in values.items() for word in ("--set", f"{path}={text}")))
    told: list[str] = []
    origin = Origin(place / "runs", words, values, files)
    outcome = follow(client, recipe, tell=lambda event: told.append(str(event)), timeout=60, origin=origin)
    run = outcome.runs[0].name
    recipe.save(place / "saved")

    environment = {**os.environ, "BATCHTRAIN_EMULATOR_DIR": str(place / "data")}

    def printed(words: str) -> bytes:
        done = subprocess.run([SCRIPT, *words.split()], env=environment, cwd=place, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    shown = {
        words: printed(words)
        for words in (
            f"runs show {run}",
            f"runs show {run} -o json",
            f"runs compare {run} {run}",
            f"runs export {run} --csv",
            f"runs export {run} --tensorboard",
            "jobs diagnose j --local --configdir recipe --bundle b.zip",
        )
    }
    with zipfile.ZipFile(place / "b.zip") as parts:
        shown |= {f"b.zip: {name}": parts.read(name) for name in parts.namelist()}
    names = {"pool": "p", "node": client.batch.list_nodes("p").next().id, "job": "j", "task": "t", "run": run}
    with dashboard(environment, "--local", runs=place / "runs") as page:
        for row in DOCUMENTS:
            status, *_, body = page.ask(f"/api/v1{row.path.format(**names)}?id={run}&id={run}")
            assert status == 200, row.path
            shown[row.path] = body
    return {**shown, "events": "\n".join(told).encode()}


@pytest.mark.slow
def test_a_run_and_its_views_show_no_secret(left: Left) -> None:
    files = {str(path.relative_to(left.place)): path.read_bytes() for path in left.files if path.is_file()}
    assert {"run.json", "plan.json", "effective.yaml", "events.jsonl", "report.html", "jobs.json"} <= {
        Path(name).name for name in files
    }
    assert [name for name, text in (left.shown | files).items() if MARKER.encode() in text] == []


def test_a_run_can_be_read_by_its_user_only(left: Left) -> None:
    modes = {path: path.stat().st_mode & 0o777 for path in left.files}
    assert [path for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)] == []
