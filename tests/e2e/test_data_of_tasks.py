"""Data of tasks through the emulator's own storage: files go up, down to nodes, and results come back."""

from __future__ import annotations

import io
import zipfile

import pytest

from tests import azurite

from .conftest import Shell, pool_file

pytestmark = [pytest.mark.slow, pytest.mark.process]

CONFIG = """global_resources:
  files:
    - source: {path: tree, include: ["*.txt", "*.bin"], exclude: ["*/no.txt"]}
      destination:
        storage_account_settings: link
        data_transfer: {remote_path: box/sets, blobxfer_extra_options: --strip-components 0}
"""
POOL = pool_file(
    "data",
    "input_data:",
    "  azure_storage:",
    "  - {storage_account_settings: link, remote_path: box/sets, local_path: $AZ_BATCH_NODE_SHARED_DIR/pool}",
)
JOBS = """job_specifications:
- id: data
  input_data:
    azure_storage:
    - storage_account_settings: link
      remote_path: box/sets/tree
      local_path: $AZ_BATCH_NODE_SHARED_DIR/job
      include: ["*.txt"]
      exclude: ["deep/*"]
  tasks:
  - id: makes
    input_data:
      azure_storage:
      - storage_account_settings: link
        remote_path: box/sets
        local_path: in
        exclude: ["*.bin"]
        blobxfer_extra_options: --strip-components 2
    application_packages: [{id: solver}]
    resource_files:
    - {auto_storage_container_name: box, blob_prefix: sets/tree/deep, file_path: auto}
    command: >-
      /bin/bash -c 'find in auto -type f | sort; cd $AZ_BATCH_NODE_SHARED_DIR; find pool job -type f | sort;
      $AZ_BATCH_APP_PACKAGE_solver/run; cd - >/dev/null; mkdir out; echo result >out/a.log; echo no >out/b.tmp'
    output_data:
      azure_storage:
      - {storage_account_settings: link, remote_path: results/good, local_path: out, include: ["*.log"]}
      - {storage_account_settings: link, remote_path: results/bad, local_path: out, condition: taskfailure}
  - id: reads
    depends_on: [makes]
    input_data:
      azure_storage: [{storage_account_settings: link, remote_path: results/good}]
    command: cat good/a.log
"""
PRINTED = """auto/sets/tree/deep/b.txt
in/a.txt
in/deep/b.txt
job/sets/tree/a.txt
pool/sets/tree/a.txt
pool/sets/tree/c d.bin
pool/sets/tree/deep/b.txt
solved
"""


def test_data_reach_every_place_that_the_configuration_names(batchtrain: Shell) -> None:
    azurite.require()
    tree = batchtrain.cwd / "tree"
    (tree / "deep").mkdir(parents=True)
    for name in ("a.txt", "c d.bin", "e.log", "deep/b.txt", "deep/no.txt"):
        (tree / name).write_text(f"{name}\n", encoding="utf-8")
    for name, text in (("config", CONFIG), ("pool", POOL), ("jobs", JOBS)):
        (batchtrain.cwd / f"{name}.yaml").write_text(text, encoding="utf-8")
    batchtrain("data", "ingress", "--local")
    packages = batchtrain.home / "applications" / "solver"
    packages.mkdir(parents=True)
    (packages / "1.0.zip").write_bytes(package())
    batchtrain("pool", "add", "--local")
    batchtrain("jobs", "add", "--local")
    batchtrain("jobs", "wait", "--local")
    assert batchtrain("jobs", "logs", "--local", "--task", "makes").stdout == PRINTED
    assert batchtrain("jobs", "logs", "--local", "--task", "reads").stdout == "result\n"
    listed = batchtrain("data", "list", "link/results", "--local", "-o", "json").stdout
    assert "good/a.log" in listed
    assert "b.tmp" not in listed


def package() -> bytes:
    """An application package with one program."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        program = zipfile.ZipInfo("run")
        program.external_attr = 0o755 << 16
        archive.writestr(program, "#!/bin/sh\necho solved\n")
    return content.getvalue()
