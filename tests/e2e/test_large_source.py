"""A `source` that does not fit into a request trains with `--local` without storage, and leaves nothing behind."""

from __future__ import annotations

import random
import shutil
import zlib
from pathlib import Path

import pytest

from batchtrain.emulator import server
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


@pytest.mark.slow
def test_a_task_on_one_node_with_two_megabytes_of_source_runs_after_a_restart_too(
    batchtrain: Shell, tmp_path: Path
) -> None:
    """A job keeps its files while it stands, and finds them where the emulator listens now."""
    recipe = tmp_path / "recipe"
    (recipe / "src").mkdir(parents=True)
    (recipe / "src" / "weights.bin").write_bytes(NOISE)
    (recipe / "pool.yaml").write_text(
        "pool_specification:\n  id: p\n  vm_size: STANDARD_D2S_V5\n  vm_count: {dedicated: 1}\n  vm_configuration:\n"
        "    platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}\n",
        encoding="utf-8",
    )
    (recipe / "jobs.yaml").write_text(
        "job_specifications:\n- id: J-1\n  tasks:\n"
        "  - {id: t, source: src, command: 'wc -c < $AZ_BATCH_TASK_SHARED_DIR/weights.bin'}\n",
        encoding="utf-8",
    )
    batchtrain("emulator", "start", "--port", "0")
    batchtrain("pool", "add", str(recipe), "--local", "--no-wait")
    batchtrain("pool", "resize", "p", "--dedicated", "0", "--local")
    batchtrain("jobs", "add", str(recipe), "--local")
    before = server.at(batchtrain.home).endpoint
    batchtrain("emulator", "stop")
    batchtrain("emulator", "start", "--port", "0")
    assert server.at(batchtrain.home).endpoint != before
    batchtrain("pool", "resize", "p", "--dedicated", "1", "--local")
    batchtrain("jobs", "wait", "J-1", "--local")
    assert batchtrain("jobs", "logs", "J-1", "--local").stdout.split() == [str(len(NOISE))]
    assert [folder.name for folder in (batchtrain.home / "blob_store").iterdir()] == ["j-1"]
    batchtrain("jobs", "del", "J-1", "--local", "-y")
    until(lambda: not list((batchtrain.home / "blob_store").iterdir()))
