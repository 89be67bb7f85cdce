"""What attempt.sh records of the attempts of a task, in a real shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain import runtime
from batchtrain.records import AttemptEvent, Task
from batchtrain.records.attempt import attempts_of

pytestmark = pytest.mark.process
BEGIN = 'source "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/attempt.sh"; bt_begin_attempt; '


class Node:
    """A node with the directory of a task."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root / name, name
        (self.root / ".batchtrain").mkdir(parents=True)
        (self.root / "wd").mkdir()
        (self.root / ".batchtrain/attempt.sh").write_bytes(runtime.read("attempt.sh"))

    def environment(self, **variables: str) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin", "AZ_BATCH_TASK_SHARED_DIR": str(self.root), "AZ_BATCH_TASK_DIR": str(self.root),
            "AZ_BATCH_TASK_WORKING_DIR": str(self.root / "wd"), "AZ_BATCH_NODE_ID": self.name,
            "AZ_BATCH_JOB_ID": "schedule:job-1", "AZ_BATCH_NODE_IS_DEDICATED": "false", "BATCHTRAIN_RUN": "run",
            **variables,
        }  # fmt: skip

    def run(self, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment(**variables)
        return subprocess.run(["bash", "-c", BEGIN + text], env=environment, capture_output=True, text=True)

    @property
    def records(self) -> list[dict[str, Any]]:
        path = self.root / "wd/ranks/attempts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def node(tmp_path: Path) -> Callable[[str], Node]:
    return lambda name: Node(tmp_path, name)


def test_attempts_on_one_node_are_counted_with_their_ends(node: Callable[[str], Node]) -> None:
    one = node("n0")
    first = one.run(
        'echo "[$BATCHTRAIN_ATTEMPT]"; exit 3',
        AZ_BATCH_HOST_LIST="10.0.0.4,10.0.0.5",
        AZ_BATCH_MASTER_NODE="10.0.0.5:6000",
    )
    (one.root / "stdout.txt").write_text(first.stdout)
    second = one.run('echo "[$BATCHTRAIN_ATTEMPT]"')
    assert (first.returncode, first.stdout, first.stderr) == (3, "[1]\n", "")
    assert (second.returncode, second.stdout, second.stderr) == (0, "[2]\n", "")
    events = [msgspec.convert(record, AttemptEvent) for record in one.records]
    assert [(event.event, event.attempt, event.exit_code) for event in events] == [
        ("began", 1, None), ("ended", 1, 3), ("began", 2, None), ("ended", 2, None),
    ]  # fmt: skip
    assert (events[0].hosts, events[0].address) == (("10.0.0.4", "10.0.0.5"), "10.0.0.5")
    assert (events[0].node, events[0].dedicated, events[0].stdout, events[2].stdout) == ("n0", False, 0, 4)
    assert [event.time for event in events] == sorted(event.time for event in events)


def test_the_options_of_the_user_s_text_do_not_change_its_code(node: Callable[[str], Node]) -> None:
    one = node("n0")
    assert one.run("set -eu; exit 42").returncode == 42
    assert one.records[-1]["exit_code"] == 42


def test_a_lost_attempt_is_known_on_the_next_node_through_the_volume(
    node: Callable[[str], Node], tmp_path: Path
) -> None:
    volume = tmp_path / "volume/checkpoints"
    lost, one = node("n0"), node("n1")
    (volume / "step-9").mkdir(parents=True)
    lost.run("kill -KILL $$", BATCHTRAIN_CHECKPOINT_DIR=str(volume))
    (volume / "step-20").mkdir()
    for step in (9, 20):
        (volume / f"step-{step}/manifest.json").write_text('{"files": {}}')
    one.run(":", BATCHTRAIN_CHECKPOINT_DIR=str(volume))
    assert [(record["event"], record["attempt"], record.get("node")) for record in one.records] == [
        ("began", 1, "n0"), ("began", 2, "n1"), ("ended", 2, None),
    ]  # fmt: skip
    assert [record["checkpoint"] for record in one.records if record["event"] == "began"] == ["", "step-20"]
    task = Task("t", "completed", "success", exit_code=0, requeues=1)
    first, second = attempts_of(task, (), (msgspec.convert(record, AttemptEvent) for record in one.records), {})
    assert (first.reason, first.ended, second.checkpoint, second.nodes) == ("requeued", None, "step-20", ("n1",))


def test_another_run_of_the_job_begins_with_the_first_attempt(node: Callable[[str], Node], tmp_path: Path) -> None:
    one, volume = node("n0"), str(tmp_path / "volume")
    one.run("exit 1", BATCHTRAIN_CHECKPOINT_DIR=volume)
    assert one.run("echo $BATCHTRAIN_ATTEMPT", BATCHTRAIN_CHECKPOINT_DIR=volume, BATCHTRAIN_RUN="b").stdout == "1\n"


def test_what_the_ranks_measured_before_a_failure_is_kept(node: Callable[[str], Node], tmp_path: Path) -> None:
    volume = str(tmp_path / "volume")
    lost, one = node("n0"), node("n1")
    lost.run(
        "echo '{}' >$AZ_BATCH_TASK_WORKING_DIR/ranks/rank-0.metrics.jsonl; exit 1", BATCHTRAIN_CHECKPOINT_DIR=volume
    )
    one.run("exit 1", BATCHTRAIN_CHECKPOINT_DIR=volume)
    assert (one.root / "wd/ranks/attempt-1/rank-0.metrics.jsonl").read_text() == "{}\n"


def test_the_signal_that_ends_the_task_ends_the_attempt(node: Callable[[str], Node]) -> None:
    one = node("n0")
    process = subprocess.Popen(
        ["bash", "-c", BEGIN + "sleep 1000 & echo $!; wait"],
        env=one.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
    assert (one.records[-1]["event"], one.records[-1]["exit_code"]) == ("ended", None)
    os.kill(child, signal.SIGKILL)


def test_a_store_that_cannot_be_written_ends_nothing(node: Callable[[str], Node], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = node("n0").run("echo $BATCHTRAIN_ATTEMPT; exit 4", BATCHTRAIN_CHECKPOINT_DIR=str(tmp_path / "file/below"))
    assert (done.stdout, done.returncode) == ("1\n", 4)
