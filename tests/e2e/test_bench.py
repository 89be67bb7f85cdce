"""`batchtrain bench`: real trainings on 1, 2 and 4 nodes, their scaling table, and a second call that continues."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.endings import POOL

RECIPE = Path(__file__).resolve().parents[2] / "recipes/mpi4py-MPICH"
EXPERIMENT = {
    "recipe": str(RECIPE),
    "command": "python -u $AZ_BATCH_TASK_SHARED_DIR/train.py --epochs 4 --batch {batch}",
    "set": {"job_specifications[0].tasks[0].multi_instance.mpi.processes_per_node": 1},
    "matrix": {"nodes": [1, 2, 4], "batch": [64]},
}

pytestmark = [pytest.mark.mpi, pytest.mark.process]


@pytest.mark.slow
def test_bench_of_1_2_and_4_nodes_has_a_scaling_table_and_continues(trained: Any, tmp_path: Path) -> None:
    file = tmp_path / "scaling.yaml"
    file.write_text(json.dumps(EXPERIMENT))
    command = ("bench", str(file), "--local", "-y", "-o", "json")
    rows = json.loads(trained(*command, "--parallel", "2").stdout)
    weak = [row for row in rows if row["scaling"] == "weak"]
    assert [row["nodes"] for row in weak] == [1, 2, 4]
    for row in weak:
        assert row["speedup"] == pytest.approx(row["rate"] / weak[0]["rate"])
        assert row["efficiency"] == pytest.approx(100 * row["speedup"] / row["nodes"])
        assert row["p95"] >= row["median"] > 0 and row["deviation"] >= 0
    runs = [json.loads((tmp_path / "runs" / row["run"] / "run.json").read_text()) for row in weak]
    assert [run["nodes"] for run in runs] == [1, 2, 4]
    assert len({run["pool"] for run in runs}) == 3

    folder = tmp_path / "runs/bench-scaling"
    assert [row["nodes"] for row in csv.DictReader((folder / "report.csv").open()) if row["scaling"] == "weak"] == [
        "1", "2", "4",
    ]  # fmt: skip
    assert "<svg" in (folder / "report.html").read_text()

    done = folder / "done.jsonl"
    done.write_text("".join(done.read_text().splitlines(keepends=True)[:2]) + '{"case": "cut o')
    again = trained(*command)
    assert "1 runs, about" in again.stderr
    assert len(json.loads(again.stdout)) == len(rows)
    assert "runs, about" not in trained(*command).stderr


def test_a_bench_whose_runs_failed_ends_with_the_code_of_a_failed_task(batchtrain: Any, tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    jobs = "job_specifications: [{id: j, tasks: [{id: t, command: 'exit 3'}]}]\n"
    (tmp_path / "jobs.yaml").write_text(jobs)
    (tmp_path / "e.yaml").write_text("recipe: .\nmatrix: {nodes: [1]}\ncommand: '[ {nodes} = 2 ]'\n")
    done = batchtrain("bench", str(tmp_path / "e.yaml"), "--local", "-y", code=10)
    assert "1 of 1 runs failed: " in done.stderr
