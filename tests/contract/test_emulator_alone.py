"""The emulator without the rest of batchtrain: `catalog`, `formula` and `connections` suffice for the official SDK."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

PARTS = (
    "emulator", "catalog", "__init__.py", "errors.py", "foreign.py", "formula.py", "connections.py", "state_files.py",
    "version.py",
)  # fmt: skip
"""`catalog` and `state_files` import `errors`, and `state_files` imports `foreign`; `__init__` and `version` are the
package itself."""
PROJECT = """
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"
[project]
name = "batchtrain"
version = "0"
[tool.hatch.build.targets.wheel]
packages = ["batchtrain"]
"""
PROGRAM = """
import sys, time
from azure.batch import models
import batchtrain
from batchtrain.emulator.testing import emulated_batch

image = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204"}
machine = {"imageReference": image, "nodeAgentSKUId": "batch.node.ubuntu 22.04"}
with emulated_batch() as service:
    client = service.client
    client.create_pool({"id": "pool", "vmSize": "standard_d2_v3", "virtualMachineConfiguration": machine,
                        "targetDedicatedNodes": 1})
    client.create_job({"id": "job", "poolInfo": {"poolId": "pool"}})
    client.create_task("job", {"id": "task", "commandLine": "/bin/sh -c 'echo $((6 * 7))'"})
    while client.get_task("job", "task").state != "completed":
        time.sleep(0.05)
    print(batchtrain.__file__, b"".join(client.download_task_file("job", "task", "stdout.txt")).decode().strip())
"""


def test_a_wheel_of_the_emulator_alone_runs_a_task_of_the_official_sdk(root: Path, tmp_path: Path) -> None:
    source, dist, home = tmp_path / "source", tmp_path / "dist", tmp_path / "home"
    for part in PARTS:
        path, copy = root / "batchtrain" / part, source / "batchtrain" / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    (source / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", dist, source], check=True)
    (wheel,) = dist.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", home, wheel], check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(home)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(home / "batchtrain/__init__.py"), "42"]
