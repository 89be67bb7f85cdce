"""A plain function runs as a gang on the emulator."""

from __future__ import annotations

import json
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
    done = batchtrain.python("script.py")
    assert done.returncode == 0, done.stderr
    returned, logs, failed = json.loads(done.stdout)
    assert returned == [{"rank": rank, "world": 4, "sum": 3.0, "double": 2 * rank} for rank in range(4)]
    assert logs == ["hello of rank 3"]
    assert failed == [2, "rank 2 raised ValueError: no", "ValueError('no')"]
