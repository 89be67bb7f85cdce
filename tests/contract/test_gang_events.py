"""What gang.sh does with the events of a gang, by itself; test_mpi_launch.py has the whole of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from batchtrain import runtime

pytestmark = pytest.mark.process

# Hundreds of events, and a time that runs out again and again while they are read.
READ = """
. ./gang.sh
exec 9<> <(:)
{ for ((each = 1; each <= 400; each++)); do sleep "0.00$((RANDOM % 6))"; echo "ended $each" >&9; done; } &
seen=0 late=0
while [ "$seen" -lt 400 ]; do
  if bt_next_event 0.0025; then
    seen=$((seen + 1))
    [ "$event $code" = "ended $seen $seen" ] || { echo "event $seen was read as $event" && exit 1; }
  else
    late=$((late + 1))
  fi
done
wait
[ "$late" -gt 50 ] || echo "the time ran out $late times only"
jobs -r
"""


def test_no_event_is_lost_when_the_time_runs_out_just_then(tmp_path: Path) -> None:
    (tmp_path / "gang.sh").write_bytes(runtime.GANG)
    done = subprocess.run(
        ["bash", "-c", READ], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "AZ_BATCH_TASK_SHARED_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
