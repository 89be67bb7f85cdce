"""A plain function runs as a gang on the emulator."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SCRIPT = """\
import json, os
import numpy as np
import batchtrain as bt
from near import double

def train(data, fail=None):
    rank = int(os.environ["RANK"])
    print(f"hello of rank {rank}")
    if rank == fail:
        raise ValueError("no")
    return {"rank": rank, "world": int(os.environ["WORLD_SIZE"]), "sum": data.sum(), "double": double(rank)}

gang = bt.gang(nodes=2, processes_per_node=2, local=True)(train)
returned = gang(np.ones(3))
try:
    gang(np.ones(3), fail=2)
except bt.TaskFailed as error:
    failed = [error.rank, str(error).splitlines()[0], repr(error.__cause__)]
print(json.dumps([returned, list(returned.result.logs(rank=3)), failed]))
"""


@pytest.mark.process
def test_a_function_runs_on_every_rank_and_its_values_and_exception_come_back(batchtrain: Any) -> None:
    (batchtrain.cwd / "near.py").write_text("def double(x): return 2 * x\n")
    (batchtrain.cwd / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=batchtrain.cwd,
        env=batchtrain.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    returned, logs, failed = json.loads(done.stdout)
    assert returned == [{"rank": rank, "world": 4, "sum": 3.0, "double": 2 * rank} for rank in range(4)]
    assert logs == ["hello of rank 3"]
    assert failed == [2, "rank 2 raised ValueError: no", "ValueError('no')"]


OTHER_PYTHON = """\
import sys
import batchtrain as bt

def version():
    import sys
    return list(sys.version_info[:2])

image = sys.argv[1]
assert bt.gang(image=image, client=bt.connect(local=True, display=True))(version)() == (list(sys.version_info[:2]),)
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("image", ["example/mpich:digits", "own:1"])
def test_an_environment_of_another_python_is_said_before_anything_starts(batchtrain: Any, image: str) -> None:
    prefix = batchtrain.cwd / "other"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python3").write_text("#!/bin/sh\necho 2.7\n")
    (prefix / "bin" / "python3").chmod(0o755)
    batchtrain("emulator", "images", "map", image, str(prefix))
    (batchtrain.cwd / "script.py").write_text(OTHER_PYTHON)
    done = subprocess.run(
        [sys.executable, "script.py", image],
        cwd=batchtrain.cwd,
        env=batchtrain.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if image == "own:1":
        assert f"of own:1 has Python 2.7, and this is Python {own}, which a function needs: make one" in done.stderr
        assert "batchtrain emulator images map own:1 PREFIX" in done.stderr
        assert "pool" not in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert f"{image}-python{own}" in batchtrain("emulator", "images", "list").stdout
