"""`batchtrain data`: files to a real Azurite and back, and tasks made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchtrain.emulator.interface import StorageAccount
from tests.azurite import credentials

from .conftest import Shell, pool_file

pytestmark = [pytest.mark.slow, pytest.mark.process]

CONFIG = """global_resources:
  volumes:
    shared_data_volumes:
      blobs: {volume_driver: azureblob, storage_account_settings: link, azure_blob_container_name: %(box)s,
              container_path: /data}
      share: {volume_driver: azurefile, storage_account_settings: link, azure_file_share_name: shared,
              container_path: /s}
  files:
    - source: {path: data, include: ["*.txt"]}
      destination: {shared_data_volume: blobs, relative_destination_path: in}
    - source: {path: data}
      destination: {shared_data_volume: share}
"""
POOL = pool_file("files")
JOBS = """job_specifications:
- id: count
  tasks:
  - command: /bin/bash -c "cat {file_name}; echo {{}}"
    task_factory:
      file: {azure_storage: {storage_account_settings: link, remote_path: %(box)s/in}, task_filepath: file_name}
"""


@pytest.fixture
def box(azurite: StorageAccount, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A configuration in the working directory, and the name of its container."""
    name = request.node.name.replace("_", "-")[-40:].strip("-")
    (tmp_path / "data").mkdir()
    for file, text in (("a.txt", "one\n"), ("b.txt", "two\n"), ("c.bin", "three\n")):
        (tmp_path / "data" / file).write_text(text, encoding="utf-8")
    contents = {"config": CONFIG, "pool": POOL, "jobs": JOBS, "credentials": credentials(azurite)}
    for file, text in contents.items():
        (tmp_path / f"{file}.yaml").write_text(text.replace("%(box)s", name), encoding="utf-8")
    return name


def test_ingress_brings_files_and_says_what_it_leaves_out(batchtrain: Shell, box: str, azurite: StorageAccount) -> None:
    first = batchtrain("data", "ingress", "-o", "json")
    assert json.loads(first.stdout) == [
        {"place": f"link/{box}/in", "files": 2, "copied": 2, "unchanged": 0, "failed": 0, "bytes": 8}
    ]
    assert "global_resources.files[1].destination.shared_data_volume: left out" in first.stderr
    assert azurite.key not in first.stdout + first.stderr
    second = batchtrain("data", "ingress", "-o", "json")
    assert json.loads(second.stdout)[0]["copied"] == 0


def test_sync_makes_both_sides_the_same_and_rm_deletes_by_pattern(batchtrain: Shell, box: str) -> None:
    place = f"link/{box}/tree"

    def names() -> list[str]:
        return [row["name"] for row in json.loads(batchtrain("data", "list", place, "-o", "json").stdout)]

    batchtrain("data", "sync", "./data", place)
    (batchtrain.cwd / "data" / "a.txt").rename(batchtrain.cwd / "data" / "a#?%\n\u00fc.txt")
    assert (
        "There is no terminal to ask; add -y" in batchtrain("data", "sync", "./data", place, "--delete", code=2).stderr
    )
    batchtrain("data", "sync", "./data", place, "--delete", "-y")
    assert names() == ["tree/a#?%\n\u00fc.txt", "tree/b.txt", "tree/c.bin"]
    (batchtrain.cwd / "back").mkdir()
    (batchtrain.cwd / "back" / "old").write_text("x")
    batchtrain("data", "sync", place, "./back", "--delete", "-y")
    assert sorted(path.name for path in (batchtrain.cwd / "back").iterdir()) == ["a#?%\n\u00fc.txt", "b.txt", "c.bin"]
    batchtrain("data", "rm", place, "*.txt", "-y")
    assert names() == ["tree/c.bin"]
    assert "no blob to delete" in batchtrain("data", "rm", place, "*.txt", "-y", code=3).stderr
    assert "are both LINK/CONTAINER" in batchtrain("data", "sync", "data", place, code=2).stderr


def test_a_task_for_each_file_finds_its_file(batchtrain: Shell, box: str) -> None:
    batchtrain("data", "ingress")
    (batchtrain.cwd / "config.yaml").unlink()  # the embedded service mounts no volumes
    offline = batchtrain("config", "plan", "-o", "json")
    assert [problem["rule"] for problem in json.loads(offline.stdout)["warnings"]].count("offline-files") == 1
    batchtrain("pool", "add", "--local")
    batchtrain("jobs", "add", "--local")
    batchtrain("jobs", "wait", "--local")
    tasks = json.loads(batchtrain("jobs", "tasks", "--local", "-o", "json").stdout)
    printed = [batchtrain("jobs", "logs", "--local", "--task", task["id"]).stdout for task in tasks]
    assert printed == ["one\n{}\n", "two\n{}\n"]
