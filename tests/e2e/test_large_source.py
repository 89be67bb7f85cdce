"""A `source` that does not fit into a request trains with `--local` without storage, and leaves nothing behind."""

from __future__ import annotations

import random
import shutil
import zlib
from pathlib import Path

import pytest

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
