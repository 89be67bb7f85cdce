"""Recorded runs on which all views are compared: what their tasks printed, through the code that records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import msgspec

from batchtrain.metrics.stream import MetricStream
from batchtrain.records import Attempt, Task
from batchtrain.records.events import MetricsSeen
from batchtrain.records.failure import EXIT_CODE, Failure
from batchtrain.records.rank_end import RankEnd
from batchtrain.runs import directory, lease, report
from batchtrain.runs.directory import RunDirectory, RunFailure, RunRecord
from batchtrain.runs.numbers import Recorded
from batchtrain.runs.recording import joined

START = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)
SECONDS = 60.0
"""Each run lasts so long. Its lines come in equal pauses."""


END = START + timedelta(seconds=SECONDS)


class Story(NamedTuple):
    """What a run did: by task, the lines of each of its attempts."""

    tasks: Mapping[str, Sequence[Sequence[str]]]
    state: str = "completed"
    failed: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    """The tasks that never started."""
    failure: RunFailure | None = None
    ends: Sequence[RankEnd] = ()
    silence: float = 0.0
    """Seconds without a line before its end."""


def _steps(count: int, text: str = "loss {loss:.4f}", start: int = 1, rank: str = "") -> list[str]:
    return [f"{rank}step {n}/{count} {text.format(loss=2 / (1 + n), n=n)}" for n in range(start, count + 1)]


def _gang(ranks: int, count: int, silent: int | None = None, until: int = 0) -> list[str]:
    """Lines of all ranks in turn. silent: a rank that prints up to a step only; the others print one more."""
    last = count if silent is None else until + 1
    return [
        f"[{rank // 2}:{rank}] step {n}/{count} loss {2 / (1 + n):.4f}"
        for n in range(1, last + 1)
        for rank in range(ranks)
        if rank != silent or n <= until
    ]


NAN = [*_steps(60)[:15], *(f"step {n}/60 loss nan" for n in range(16, 61))]
PREEMPTED = ([f"epoch {e} step {n} loss {1 / (1 + 10 * e + n):.4f}" for e, n in pairs] for pairs in (
    [(e, n) for e in (0, 1) for n in range(10)][:16],
    [(e, n) for e in (1, 2) for n in range(10)][:15],
    [(e, n) for e in (2, 3) for n in range(10)],
))  # fmt: skip
MANY = " ".join(f"m{number}={number}" for number in range(45))
LAYERS = ", ".join(f'"layer_{number:02}/grad_norm": {number}.5' for number in range(40))
RAISED = RunFailure("task train failed: rank 2 on n1 exited with code 7", task="train", rank=2, node="n1", code=7)
ENDS = (
    RankEnd("rank 2", 2, exit_code=7),
    *(RankEnd(f"rank {rank}", rank, signal=15, signal_name="SIGTERM", by_launcher=True) for rank in (0, 1, 3)),
)
STOPPED = RunFailure("stopped by the user while rank 3 stood still for 84 s", cause="stopped")

STORIES: Mapping[str, Story] = {
    "healthy": Story({"train": [_gang(4, 20)]}),
    "nan": Story({"train": [NAN]}),
    "hung": Story({"train": [_gang(4, 40, silent=3, until=12)]}, "running"),
    "failed": Story(
        {"train": [_gang(4, 40, silent=2, until=8)]}, "failed", frozenset({"train"}), failure=RAISED, ends=ENDS
    ),
    "preempted": Story({"train": list(PREEMPTED)}),
    "sweep": Story(
        {f"task-{n:05}": [[f"step 1/1 loss {1 + n / 1000:.4f}"]] for n in range(500)},
        "failed", frozenset(f"task-{n:05}" for n in range(7, 500, 50)),
    ),
    "stopped": Story({"train": [_gang(4, 40, silent=3, until=12)]}, "interrupted", failure=STOPPED, silence=80),
    "waits": Story({"good": [_steps(5)], "bad": [_steps(2)], "after": [[""]]}, "failed", frozenset({"bad"}),
                   frozenset({"after"})),
    "same-id": Story({"train": [_steps(5)]}),
    "many-metrics": Story({"train": [[f"step {n} {MANY}" for n in (1, 2, 3)]]}),
    "layers": Story({"train": [[f'{{"step": {n}, {LAYERS}}}' for n in (1, 2)]]}),
    "one-sample": Story({"train": [["step 1 loss 0.5 tokens_per_second 1000"]]}),
    "silent": Story({"train": [["hello"]]}),
}  # fmt: skip


def recorded(root: Path, name: str) -> RunDirectory:
    """The directory of a run of STORIES."""
    story = STORIES[name]
    run = directory.make(root, name, START)
    numbers = Recorded(run, lambda task: (), clock=START.timestamp)
    tasks, attempts = list[Task](), list[Attempt]()
    for task, printed in story.tasks.items():
        for event, attempt in events(story, task):
            numbers.see(event, attempt)
        has_failed = task in story.failed
        failure = Failure(EXIT_CODE, "the task exited with an exit code") if has_failed else Failure()
        code, result = (7, "failure") if has_failed else (0, "success")
        ended = Task(task, "completed", result, code, "node", SECONDS, failure, started=START)
        is_running, open_task = story.state == "running", Task(task, "running", node="node", started=START)
        tasks.append(Task(task, "active") if task in story.waiting else open_task if is_running else ended)
        if len(printed) > 1:
            attempts += _attempts(task, len(printed))
    metrics = numbers.end({})
    run.write_tasks(tasks)
    run.write_attempts(attempts)
    if story.ends:
        folder = run.logs("train") / "ranks"
        folder.mkdir(parents=True)
        (folder / "ends.jsonl").write_bytes(b"".join(msgspec.json.encode(end) + b"\n" for end in story.ends))
    is_by_task, summary = joined(metrics)
    is_over = story.state != "running"
    ended = END + timedelta(seconds=story.silence) if is_over else None
    run.write(
        RunRecord(
            id=run.name, state=story.state, started=START, ended=ended, job=name, nodes=2, vm_size="Standard_NC4as",
            summary=summary if is_over else {}, failure=story.failure, is_by_task=is_by_task,
        )
    )  # fmt: skip
    if not is_over:
        lease.take(run.path)  # without that of a living process it would be lost
    run.replace(run.report, report.html(run).encode())
    return run


def events(story: Story, task: str, stream: MetricStream | None = None) -> list[tuple[MetricsSeen, int]]:
    """What the client tells of a task, each with its attempt. stream: reads its lines."""
    stream, told = stream or MetricStream(), list[tuple[MetricsSeen, int]]()
    for attempt, lines in enumerate(story.tasks[task], 1):
        for number, line in enumerate(lines):
            at = START.timestamp() + SECONDS * (attempt - 1 + (number + 1) / len(lines)) / len(story.tasks[task])
            points = stream.output([line], at)
            told.append((stream.event("j", task, points), attempt))
    told.append((stream.event("j", task, ended=True), len(story.tasks[task])))
    return told


def _attempts(task: str, count: int) -> list[Attempt]:
    times = [START + timedelta(seconds=SECONDS * number / count) for number in range(count + 1)]
    reasons = (*["preempted"] * (count - 1), "completed")
    return [
        Attempt(task, number, (f"node{number}",), started, ended, reason)  # type: ignore[arg-type]  # a tuple of literals
        for number, (started, ended, reason) in enumerate(zip(times, times[1:], reasons, strict=False), 1)
    ]
