"""Runs failing gangs on both engines, and prints as JSON how they end: `python -m tests.failing_gangs FOLDER PREFIX`.

PREFIX is an environment with MPICH. A process of its own runs it, so that a test can give it other scripts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from batchtrain.records import Task
from batchtrain.records.rank_end import RankEnd
from batchtrain.service.failed import failed
from tests.contract import test_mpi_launch as mpis
from tests.contract.gang_of_nodes import gang_of
from tests.contract.test_node_launcher import DEATHS, Nodes

HOW = ("_exit", "raise", "abort", "kill")


def result(code: int | None, ends: str, stderr: str) -> dict[str, Any]:
    """How a gang ended, and what the client makes of it."""
    lines = tuple(stderr.splitlines())
    end = msgspec.json.decode(ends.splitlines()[0], type=RankEnd) if ends else RankEnd()
    error = failed("job", Task("task", "completed", "failure", exit_code=code, node="tvm-0"), lines, end)
    told = {"rank": error.rank, "node": error.node, "code": error.code, "cause": error.cause}
    record = {"process": end.process, "exit_code": end.exit_code, "signal": end.signal_name, "attempt": end.attempt}
    return {"gang": code, **told, **record, "stderr": stderr}


def of_mpi(folder: Path, prefix: Path) -> dict[str, Any]:
    results = {}
    with gang_of(folder, prefix) as gang:
        for how in HOW:
            outcome = mpis.run(gang, "mpich", mpis.program("mpich", how))
            results[f"MPI, {how}"] = result(outcome.code, gang.read(0, "wd/ranks/ends.jsonl"), outcome.stderr)
    return results


def of_frameworks(folder: Path) -> dict[str, Any]:
    results = {}
    for name, (how, _, _) in DEATHS.items():
        (folder / name).mkdir()
        nodes = Nodes(folder / name, 2)
        done = nodes.run(f"[ $RANK != 3 ] || {{ sleep 0.3; {how}; }}; sleep 100000")
        ends = (nodes.wd(0) / "ranks/ends.jsonl").read_text()
        results[f"framework, {name}"] = result(done.code, ends, done.stderr)
    return results


if __name__ == "__main__":
    root = Path(sys.argv[1])
    json.dump({**of_mpi(root / "mpi", Path(sys.argv[2])), **of_frameworks(root)}, sys.stdout)
