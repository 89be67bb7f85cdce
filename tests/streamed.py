"""A program whose ranks print as programs do that a merged output cannot hold, and what its stream must have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from batchtrain.metrics.stream import MetricStream

ROWS, REPEATED = 300, 30_000
MIB = 1 << 20
PROGRAM = f"""
import json, os, sys
rank = int(next(os.environ[name] for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "RANK") if name in os.environ))
for step in range(1, {ROWS} + 1):
    sys.stdout.write("iter %d/{ROWS}: train loss %.4f\\n" % (step, 1 / step + rank))
    sys.stdout.flush()
with open(os.environ["BATCHTRAIN_METRICS"], "a") as file:
    for step in (1, 2, 3):
        file.write(json.dumps({{"step": step, "speed": step + rank, "note": 'a "quoted" \\\\ text'}}) + "\\n")
if rank == 1:
    sys.stdout.write("DEBUG 1 is repeated\\n" * {REPEATED})
if rank == 2:
    for _ in range(4):
        sys.stdout.write(("x" * 1023 + "\\n") * 1024)
sys.stderr.write("step 7: loss 0.25\\n")
"""
"""Four ranks: 300 rows each, values of their own, a line that is repeated, some MiB, and at last a value on stderr."""


def check(stream: str, printed: Callable[[int, str], str]) -> None:
    """Raise AssertionError unless the records have all that the four ranks measured, in the second attempt. printed:
    returns the beginning of what a rank printed."""
    lines = [line for line in stream.splitlines() if '"attempt": 2' in line]
    records = [json.loads(line) for line in lines]
    of_ranks = [record for record in records if "line" in record]
    assert {(record["rank"], record["node"], record["attempt"]) for record in of_ranks} == {
        (0, "n0", 2), (1, "n0", 2), (2, "n1", 2), (3, "n1", 2),
    }  # fmt: skip
    output = {(rank, file): printed(rank, file) for rank in range(4) for file in ("stdout", "stderr")}
    for record in of_ranks:
        if record["file"] != "metrics" and record["at"] < MIB:
            rest = output[record["rank"], record["file"]][record["at"] :]
            assert rest.startswith(f"{record['line']}\n")
    repeated = sum("DEBUG" in record["line"] for record in of_ranks)
    skipped = sum(record.get("skipped", 0) for record in records)
    assert repeated < REPEATED and repeated + skipped >= REPEATED
    points = MetricStream().records(lines, 1.0).points
    for rank in range(4):
        steps = [point.step for point in points if point.rank == rank and "train_loss" in point.values]
        assert steps == list(range(1, ROWS + 1))
    names = Counter(name for point in points for name in point.values)
    assert names == {"train_loss": 4 * ROWS, "speed": 12, "loss": 4}
