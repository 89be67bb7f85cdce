"""What a run leaves behind shows no secret: a marker is in every secret field of its recipe, or in secrets of many
shapes wherever a user may write one; and all is searched."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from batchtrain.client.client import Client
from batchtrain.client.run import follow
from batchtrain.config.load import examine
from batchtrain.config.types import Secret
from batchtrain.dashboard.reading import DOCUMENTS, TASK
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account
from tests.dashboards import SCRIPT, dashboard
from tests.emulation import FakeMachine
from tests.unit.test_secrets import MARKER, MARKERS, files_of, plant

pytestmark = [pytest.mark.process, pytest.mark.slow]


Z = "zQ81mark"
"""Is in every secret of a recipe whose secrets only their shape marks, and short: none hides the next."""
SHAPED: dict[str, Any] = {
    "global_resources": {"docker_images": ["a"]},
    "pool_specification": {
        "id": "p",
        "display_name": f"pool of --token {Z}0",
        "vm_size": "STANDARD_D2S_V5",
        "vm_count": {"dedicated": 1},
        "inter_node_communication_enabled": True,
        "vm_configuration": {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}},
        "metadata": {"deploy_token": f"{Z}1", "note": f"hf_{Z}{'a1' * 15}"},
        "resource_files": [{"blob_source": f"https://a/b?sv=1&sig={Z}2", "file_path": "b"}],
        "additional_node_prep": {
            "environment_variables": {"BUILD_PWD": f"{Z}3", "STORE": f"AccountName=a;AccountKey={Z}4==;X=y"},
            "commands": {"pre": [f"curl -u me:{Z}5 https://me:{Z}6@example.org"], "post": [f"export A_PASS='{Z}7'"]},
        },
    },
    "job_specifications": [
        {
            "id": "k",
            "tasks": [{"id": "t", "command": ":", "docker_image": "a"}],
            "merge_task": {"command": f"SOME_APIKEY={Z}13 merge"},
        },
        {
            "id": "j",
            "environment_variables": {"DB_CONNECTION_STRING": f"Server=a;Pwd={Z}8", "URL": f"redis://:{Z}9@h"},
            "metadata": {"owner_pat": f"{Z}10"},
            "job_preparation": {"command": f"docker login -u me -p {Z}11 example.org"},
            "job_release": {"command": f"wandb login {Z}12"},
            "tasks": [
                {
                    "id": "t",
                    "docker_image": "a",
                    "environment_variables": {"WANDB_APIKEY": f"{Z}14", "OPTIONS": f"--password={Z}15 --lr 0.1"},
                    "additional_docker_run_options": ["-e", f"GIT_PAT={Z}16", "--label", f"a=xoxb-{Z}a1a1a1"],
                    "command": f"fail --api-key={Z}17 -H 'Authorization: Bearer {Z}18' \"DB_PASS={Z}19\"",
                },
                {
                    "id": "gang",
                    "docker_image": "a",
                    "command": f"export AN_API_KEY='{Z}20 and'\ntrain --secret {Z}21",
                    "multi_instance": {
                        "num_instances": 1,
                        "coordination_command": f"InstrumentationKey={Z}22 coordinate --token {Z}23",
                        "pre_execution_command": f"echo {Z}24 | docker login --password-stdin",
                        "mpi": {"runtime": "mpich", "options": ["-genv", "A_PWD", f"{Z}25", "--api-key", f"{Z}26;x y"]},
                    },
                },
                {
                    "id": None,
                    "task_factory": {"list": [{"lr": "0.1", "api_key": f"{Z}27"}]},
                    "command": f"train {{lr}} --auth-token {Z}28 --key {{api_key}}",
                },
            ],
        },
    ],
}
SETTINGS = {
    "job_specifications[1].environment_variables.EXTRA_PWD": f"{Z}29",
    "pool_specification.additional_node_prep.environment_variables": f"{{A_PASS: {Z}30, B: --token {Z}31}}",
    "job_specifications[1].job_release.command": f"login --password '{Z}32;a'",
}
ARGUMENTS = ("--", "--api-key", f"{Z}33;a b", f"--token={Z}34", f"SOME_PWD={Z}35 a")


def shape(place: Path) -> Path:
    """Write a recipe with secrets that only their shape marks; returns its directory."""
    for name, section in SHAPED.items():
        (place / f"{FILES[name]}.yaml").write_text(f"# password: {Z}36\n{yaml.safe_dump({name: section})}")
    return place


FILES = {"global_resources": "config", "pool_specification": "pool", "job_specifications": "jobs"}


class Case(NamedTuple):
    """A recipe with secrets."""

    write: Callable[[Path], Path]
    marker: str
    settings: Mapping[str, str]
    arguments: tuple[str, ...] = ()


CASES = {
    "by property": Case(plant, MARKER, {".".join(map(str, path)): marker for path, marker in MARKERS.items()}),
    "by shape": Case(shape, Z, SETTINGS, ARGUMENTS),
}


class Left(NamedTuple):
    """What a run left: its files, and the texts that were shown of it by their origin."""

    place: Path
    shown: dict[str, bytes]
    marker: str

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.place / "runs").rglob("*") if not path.is_symlink())


@pytest.fixture(scope="module", params=CASES)
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    place, umask, case = tmp_path_factory.mktemp("left"), os.umask(0), CASES[request.param]
    try:
        with Emulator(Settings(place / "data", port=0), FakeMachine.open) as running:
            yield Left(place, _shown(running, place, case), case.marker)
    finally:
        os.umask(umask)


def _shown(emulator: Emulator, place: Path, case: Case) -> dict[str, bytes]:
    (place / "recipe").mkdir()
    files = files_of(case.write(place / "recipe"))
    recipe = examine(place / "recipe", files, settings=case.settings if case.arguments else {}).recipe
    client = Client(Account(emulator.endpoint, emulator.account, Secret(emulator.key), emulated=True))
    client.pools.add(recipe, timeout=60)
    values = case.settings
    words = (
        "batchtrain",
        "run",
        *(word for path, text in values.items() for word in ("--set", f"{path}={text}")),
        *case.arguments,
    )
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
            assert status == (400 if row.path == f"{TASK}/stacks" else 200), row.path  # the task has ended
            shown[row.path] = body
    return {**shown, "events": "\n".join(told).encode()}


def test_a_run_and_its_views_show_no_secret(left: Left) -> None:
    files = {str(path.relative_to(left.place)): path.read_bytes() for path in left.files if path.is_file()}
    names = {Path(name).name.replace("jobs.yaml", "jobs.json") for name in files}
    assert {"run.json", "plan.json", "effective.yaml", "events.jsonl", "report.html", "jobs.json"} <= names
    assert [
        name for name, text in files.items() if b"BATCHTRAIN_FILES_0" in text and b" characters of" not in text
    ] == []
    assert [name for name, text in (left.shown | files).items() if left.marker.encode() in text] == []


def test_a_run_can_be_read_by_its_user_only(left: Left) -> None:
    modes = {path: path.stat().st_mode & 0o777 for path in left.files}
    assert [path for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)] == []
