"""Data of tasks through the emulator's own storage: files go up, down to nodes, and results come back."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import datetime, timedelta, timezone

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas

from batchtrain.emulator.interface import STORAGE_ACCOUNT
from tests import azurite

from .conftest import Shell

pytestmark = [pytest.mark.slow, pytest.mark.process]

CONFIG = """global_resources:
  files:
    - source: {path: tree, include: ["*.txt", "*.bin"], exclude: ["*/no.txt"]}
      destination:
        storage_account_settings: link
        data_transfer: {remote_path: box/sets, blobxfer_extra_options: --strip-components 0}
"""
POOL = """pool_specification:
  id: data
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: "2404"}}
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
  input_data:
    azure_storage:
    - {storage_account_settings: link, remote_path: box/sets, local_path: $AZ_BATCH_NODE_SHARED_DIR/pool}
"""
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


FORMS = """job_specifications:
- id: forms
  tasks:
  - id: reads
    resource_files:
    - {{blob_source: "{box}/sets/a.txt?{read}", file_path: one.txt}}
    - {{storage_container_url: "{box}?{read}", blob_prefix: sets/deep, file_path: all}}
    command: /bin/sh -c 'cat one.txt; find all -type f'
  - id: fails
    command: /bin/sh -c 'mkdir out; echo why >out/trace.log; exit 3'
    output_data:
      azure_storage:
      - {{storage_account_settings: link, remote_path: results/good, local_path: out, condition: tasksuccess}}
      - {{storage_account_settings: link, remote_path: results/bad, local_path: out, condition: taskfailure}}
  - id: gang
    multi_instance: {{num_instances: 2}}
    command: /bin/sh -c 'mkdir out; echo model >out/model.pt'
    output_data:
      azure_storage: [{{storage_account_settings: link, remote_path: results/gang, local_path: out}}]
  - id: expired
    resource_files: [{{blob_source: "{box}/sets/a.txt?{expired}", file_path: one.txt}}]
    command: cat one.txt
"""


def test_files_by_url_come_and_a_failed_task_and_a_gang_send_theirs(batchtrain: Shell) -> None:
    azurite.require()
    (batchtrain.cwd / "tree" / "deep").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt"):
        (batchtrain.cwd / "tree" / name).write_text(f"{name}\n", encoding="utf-8")
    pool = POOL.partition("  input_data")[0].replace("1}", "2}") + "  inter_node_communication_enabled: true\n"
    for name, text in (("config", CONFIG.replace("components 0", "components 1")), ("pool", pool)):
        (batchtrain.cwd / f"{name}.yaml").write_text(text, encoding="utf-8")
    batchtrain("data", "ingress", "--local")
    jobs = FORMS.format(box=box_url(batchtrain), read=sas(batchtrain, 1), expired=sas(batchtrain, -1))
    (batchtrain.cwd / "jobs.yaml").write_text(jobs, encoding="utf-8")
    batchtrain("pool", "add", "--local")
    batchtrain("jobs", "add", "--local")
    batchtrain("jobs", "wait", "--local", code=10)
    assert batchtrain("jobs", "logs", "--local", "--task", "reads").stdout == "a.txt\nall/sets/deep/b.txt\n"
    sent = json.loads(batchtrain("data", "list", "link/results", "--local", "-o", "json").stdout)
    assert sorted(row["name"] for row in sent) == ["bad/trace.log", "gang/model.pt"]
    refused = batchtrain("jobs", "diagnose", "forms", "expired", "--local").stdout
    assert "cause  the storage refuses an input file [input-refused]" in refused
    assert "BlobAccessDenied" in refused and "/box/sets/a.txt" in refused
    assert "a SAS may have expired" in " ".join(refused.split())
    assert "sig=" not in refused


def box_url(batchtrain: Shell) -> str:
    """The container `box` in the emulator's storage."""
    port = (batchtrain.home / "storage" / "port").read_text(encoding="ascii").strip()
    return f"http://127.0.0.1:{port}/{STORAGE_ACCOUNT}/box"


def sas(batchtrain: Shell, hours: int) -> str:
    """A signature that permits to read and list the container `box`, and that ends in some hours."""
    key = (batchtrain.home / "storage" / "key").read_text(encoding="ascii").strip()
    end = datetime.now(timezone.utc) + timedelta(hours=hours)
    permission = ContainerSasPermissions(read=True, list=True)
    token: str = generate_container_sas(STORAGE_ACCOUNT, "box", account_key=key, permission=permission, expiry=end)
    return token


def package() -> bytes:
    """An application package with one program."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        program = zipfile.ZipInfo("run")
        program.external_attr = 0o755 << 16
        archive.writestr(program, "#!/bin/sh\necho solved\n")
    return content.getvalue()
