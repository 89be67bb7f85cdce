"""Planted failures on a real emulator, each named by `diagnose`."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from .conftest import Shell, pool_file

pytestmark = pytest.mark.process

POOL = pool_file(
    "planted", "task_slots_per_node: 4", "inter_node_communication_enabled: true", vm_count="{dedicated: 2}"
)
COMMANDS = {
    "unknown": "echo bye; exit 3",
    "missing-module": "python3 -c 'import nosuchmodule'",
    "missing-file": "python3 -c 'open(\"data/train.bin\")'",
    "missing-command": "nosuchprogram --train",
    "disk-full": "dd if=/dev/zero of=/dev/full bs=1 count=1",
    "host-out-of-memory": "kill -9 $$",
    "segmentation-fault": "kill -SEGV $$",
    "aborted": "kill -ABRT $$",
    "cuda-out-of-memory": "echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1",
    "exception": "python3 -c '1/0'",
    "permission-denied": "touch locked; chmod 000 locked; ./locked",
}
LIMIT, IMAGE = "wall-clock", "image-not-found"


def _tasks() -> list[dict[str, object]]:
    plain: list[dict[str, object]] = [{"id": name, "command": text} for name, text in COMMANDS.items()]
    return [*plain, {"id": LIMIT, "command": "sleep 1d", "max_wall_time": "00:00:02"}]


def planted(batchtrain: Shell, tmp_path: Path, pool: str, tasks: list[dict[str, object]]) -> str:
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "pool.yaml").write_text(pool, encoding="utf-8")
    job = {"id": "planted", "auto_complete": True, "tasks": tasks}
    (recipe / "jobs.yaml").write_text(json.dumps({"job_specifications": [job]}), encoding="utf-8")
    return str(recipe)


@pytest.mark.slow
def test_every_planted_failure_is_named(batchtrain: Shell, tmp_path: Path) -> None:
    recipe = planted(batchtrain, tmp_path, POOL, _tasks())
    batchtrain("pool", "add", recipe, "--local")
    batchtrain("jobs", "add", recipe, "--local")
    batchtrain("jobs", "wait", "planted", "--local", code=10)
    bundle = tmp_path / "bundle.zip"
    found = json.loads(
        batchtrain("jobs", "diagnose", "planted", "--local", "-o", "json", "--bundle", str(bundle)).stdout
    )
    named = {finding["subject"].removeprefix("task "): finding["rule"] for finding in found["findings"]}
    assert named == {name: name for name in (*COMMANDS, LIMIT)}
    with zipfile.ZipFile(bundle) as parts:
        assert set(parts.namelist()) == {"diagnosis.txt", "diagnosis.json", "versions.txt"}
    refused = batchtrain("jobs", "diagnose", "planted", "--local", "--bundle", str(bundle), code=2)
    assert "exists; name another file" in refused.stderr
    page = batchtrain("jobs", "diagnose", "planted", "disk-full", "--local").stdout
    assert "cause  a disk of the node is full [disk-full]" in page
    assert "No space left on device" in page


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (("allocation-refused", "--code", "AllocationFailed"), "allocation-failed"),
        (("allocation-refused", "--code", "AccountCoreQuotaReached"), "quota-reached"),
        (("start-task-fails",), "start-task-failed"),
    ],
)
def test_the_cause_of_a_failed_pool_is_shown_at_the_end_of_a_run_and_kept(
    batchtrain: Shell, tmp_path: Path, fault: tuple[str, ...], rule: str
) -> None:
    prepared = POOL + "  additional_node_prep: {commands: {pre: ['true']}}\n"
    recipe = planted(batchtrain, tmp_path, prepared, _tasks()[:1])
    batchtrain("emulator", "start", "--port", "0")
    batchtrain("emulator", "fault", "add", *fault)
    ended = batchtrain("run", recipe, "--local", code=4)
    assert re.search(rf"^cause  .*\[{rule}\]$", ended.stderr, re.M), ended.stderr
    assert "batchtrain pool" not in ended.stderr, "the pool is deleted"
    record = json.loads((tmp_path / "runs" / "latest" / "run.json").read_text(encoding="utf-8"))
    assert record["failure"]["finding"]["rule"] == rule
    assert f"[{rule}]" in (tmp_path / "runs" / "latest" / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_cause_of_a_failed_run_is_shown_at_its_end_and_kept_when_the_job_is_gone(
    batchtrain: Shell, tmp_path: Path
) -> None:
    recipe = planted(batchtrain, tmp_path, POOL, [{"id": "full", "command": COMMANDS["disk-full"]}])
    ended = batchtrain("run", recipe, "--local", code=10)
    assert "cause  a disk of the node is full [disk-full]\nwhere  task full" in ended.stderr
    assert "batchtrain pool" not in ended.stderr, "the pool is deleted"
    page = batchtrain("jobs", "diagnose", "planted", "--local").stdout
    assert "the job is gone, and this is from" in page
    assert "cause  a disk of the node is full [disk-full]\nwhere  task full" in page
    assert "disk-full" not in batchtrain("jobs", "diagnose", "planted", "other", "--local").stdout
    assert "disk-full" in (tmp_path / "runs" / "latest" / "report.html").read_text(encoding="utf-8")
