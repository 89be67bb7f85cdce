"""The file for metrics and the samples of the node, of a task on one node, in a real shell."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from batchtrain.launchers import plain, steps
from batchtrain.launchers.launch import rendered

COMMAND = """\
echo '{"step": 1, "loss": 0.5}' >>"$BATCHTRAIN_METRICS"
until [ -s ranks/node.metrics.jsonl ]; do sleep 0.05; done
exit 3
"""


def test_a_task_on_one_node_has_a_file_for_metrics_and_its_node_is_sampled(tmp_path: Path) -> None:
    launch = rendered((steps.RECORDED, steps.MEASURED, plain.alone(COMMAND)))
    (working := tmp_path / "wd/ranks").mkdir(parents=True)
    (working / "rank-0.metrics.jsonl").write_text("of an earlier try")
    for file in launch.files:
        (tmp_path / file.name).parent.mkdir(exist_ok=True)
        (tmp_path / file.name).write_bytes(file.data)
    environment = os.environ | {
        "AZ_BATCH_TASK_SHARED_DIR": str(tmp_path), "AZ_BATCH_TASK_WORKING_DIR": str(tmp_path / "wd"),
        "AZ_BATCH_NODE_ID": "tvm-1", "BATCHTRAIN_SAMPLE_SECONDS": "1",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", launch.application], cwd=tmp_path / "wd", env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")
    assert (working / "rank-0.metrics.jsonl").read_text() == '{"step": 1, "loss": 0.5}\n'
    sample = json.loads((working / "node.metrics.jsonl").read_text().splitlines()[0])
    assert sample["node"] == "tvm-1" and "cpu_percent" in sample
