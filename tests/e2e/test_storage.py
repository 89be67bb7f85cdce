"""A task's files through storage: a real Azurite, the real blob SDK, a link that only reads, on both nodes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.interface import StorageAccount
from tests.azurite import credentials

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.mpi, pytest.mark.process]


@pytest.fixture
def recipe(azurite: StorageAccount, tmp_path: Path) -> Path:
    """The MPICH recipe with a storage account, and more source than a request could carry."""
    place = Path(shutil.copytree(ROOT / "recipes" / "mpi4py-MPICH", tmp_path / "recipe"))
    config = place / "config" / "config.yaml"
    config.write_text(
        config.read_text(encoding="utf-8") + "batchtrain: {storage_account_settings: link}\n", encoding="utf-8"
    )
    (place / "config" / "credentials.yaml").write_text(credentials(azurite), encoding="utf-8")
    (place / "src" / "large.bin").write_bytes(os.urandom(400_000))
    return place


def test_every_instance_gets_files_too_large_for_a_request(recipe: Path, trained: Any) -> None:
    command = "job_specifications[0].tasks[0].command=wc -c $AZ_BATCH_TASK_SHARED_DIR/large.bin"
    done = trained("run", str(recipe), "--local", "--set", command)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["400000"] * 4
