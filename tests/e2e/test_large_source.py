"""A `source` that does not fit into a request: with `--local` without storage, where it leaves nothing behind; and
through a storage account, a real Azurite."""

from __future__ import annotations

import random
import shutil
import zlib
from pathlib import Path

import pytest

from batchtrain.emulator.interface import StorageAccount
from tests.azurite import credentials
from tests.environments import ROOT
from tests.waiting import until

from .conftest import Shell

pytestmark = pytest.mark.process
NOISE = random.Random(0).randbytes(2 * 2**20)


@pytest.mark.mpi
@pytest.mark.slow
def test_a_gang_with_two_megabytes_of_source_trains(trained: Shell, tmp_path: Path) -> None:
    recipe = Path(shutil.copytree(ROOT / "recipes" / "mpi4py-MPICH", tmp_path / "mine"))
    (recipe / "src" / "weights.bin").write_bytes(NOISE)
    sums = (
        "import os, zlib; print(zlib.crc32(open(os.environ['AZ_BATCH_TASK_SHARED_DIR'] + '/weights.bin', 'rb').read()))"
    )
    command = f'job_specifications[0].tasks[0].command=python -c "{sums}"'
    said = trained("config", "validate", str(recipe), code=2).stderr
    assert "[source-size]" in said
    assert "`--local` (in Python `local=True`) accepts it unchanged" in said
    trained("config", "validate", str(recipe), "--local")
    assert "sas:_local/digits/" in trained("config", "plan", str(recipe), "--local", "-o", "json").stdout
    assert "test accuracy" in trained("run", str(recipe), "--local", "--reuse").stdout
    printed = trained("run", str(recipe), "--local", "--reuse", "--set", command).stdout.splitlines()
    assert printed == [str(zlib.crc32(NOISE))] * 4
    until(lambda: not list((trained.home / "blob_store").iterdir()))


@pytest.fixture
def stored(azurite: StorageAccount, tmp_path: Path) -> Path:
    """The MPICH recipe with a storage account, and more source than a request could carry."""
    place = Path(shutil.copytree(ROOT / "recipes" / "mpi4py-MPICH", tmp_path / "recipe"))
    config = place / "config" / "config.yaml"
    config.write_text(
        config.read_text(encoding="utf-8") + "batchtrain: {storage_account_settings: link}\n", encoding="utf-8"
    )
    (place / "config" / "credentials.yaml").write_text(credentials(azurite), encoding="utf-8")
    (place / "src" / "large.bin").write_bytes(NOISE)
    return place


@pytest.mark.mpi
@pytest.mark.slow
def test_every_instance_gets_files_too_large_for_a_request(stored: Path, trained: Shell) -> None:
    command = "job_specifications[0].tasks[0].command=wc -c $AZ_BATCH_TASK_SHARED_DIR/large.bin"
    done = trained("run", str(stored), "--local", "--set", command)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [str(len(NOISE))] * 4
