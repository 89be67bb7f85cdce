"""What a task measures is the same in its record, the live block, the card of a notebook, the dashboard and a sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient

from batchtrain.config.types import FETCH_VARIABLE
from batchtrain.dashboard.tasks import TaskOutputs
from batchtrain.display.live_view import View
from batchtrain.display.progress import Card
from batchtrain.metrics.stream import OWN, RECORDS
from batchtrain.records import Counts, Point, Task
from batchtrain.records.events import Event, MetricsSeen
from batchtrain.runs import directory, sweep
from batchtrain.runs.directory import RunRecord, points_of
from batchtrain.runs.log_follower import Follow
from batchtrain.runs.recording import Recording
from batchtrain.service import read
from batchtrain.service.tasks import Glance
from tests.unit.runs.batch_server import START, BatchServer, serve, task

METRICS = [{"name": "score", "pattern": r"score is (?P<value>\S+) in round (?P<step>\d+)", "unit": "points"}]
SETTINGS = json.dumps({"metrics": METRICS})
Files = dict[str, bytes]


@pytest.fixture
def service() -> BatchServer:
    server = BatchServer()
    server.job(task("train", BATCHTRAIN_PARAMETERS='{"lr": 0.1}', **{FETCH_VARIABLE: SETTINGS}))
    return server


@pytest.fixture
def client(service: BatchServer) -> Iterator[BatchClient]:
    with serve(service) as connected:
        yield connected


def gang(rounds: int) -> Files:
    """Two ranks, whose lines are glued where their output is merged."""
    text = "the score is {} in round {}"
    lines = [(rank, text.format(10 * rank + number, number)) for number in range(1, rounds + 1) for rank in (0, 1)]
    records = (json.dumps({"time": 5, "rank": rank, "node": f"n{rank}", "line": line}) for rank, line in lines)
    merged = b"[0:1] the score is 99[0:0]  in round 1\n" * rounds
    return {RECORDS: "".join(f"{line}\n" for line in records).encode(), "stdout.txt": merged}


def alone(rounds: int) -> Files:
    """A program that prints."""
    return {"stdout.txt": b"".join(b"the score is %d in round %d\n" % (at, at) for at in range(1, rounds + 1))}


def measuring(rounds: int) -> Files:
    """A program that prints, and also measures what it prints, more exactly."""
    own = b"".join(b'{"step": %d, "score": %d}\n' % (at, at) for at in range(1, rounds + 1))
    return {"stdout.txt": alone(rounds)["stdout.txt"].replace(b"score is ", b"score is 7"), OWN: own}


@pytest.mark.parametrize(
    ("files", "ranks"),
    [(gang, {"0": [1, 2, 3], "1": [11, 12, 13]}), (alone, {"": [1, 2, 3]}), (measuring, {"0": [1, 2, 3]})],
)
def test_a_metric_of_the_user_has_the_same_values_wherever_it_is_seen(
    client: BatchClient,
    service: BatchServer,
    tmp_path: Path,
    files: Callable[[int], Files],
    ranks: dict[str, Sequence[float]],
) -> None:
    run = directory.make(tmp_path, "j", START)
    record = RunRecord(id=run.name, job="j", started=START, endpoint=service.account.endpoint, state="running")
    recorded, view = Recording(client, service.account, run, record), View("j", "here", 0.0, ranks=2)
    card = Card(View("j", "here", 0.0), lambda html, text: None, clock=lambda: 60.0)
    outputs = TaskOutputs(lambda: client, "j", "train", near=True)
    dashboard = outputs.metrics()

    def tell(event: Event) -> None:
        recorded.tell(event)
        view.note(event, 60.0)
        card(event)

    job: Any = type("Job", (), {"id": "j"})
    follow = Follow(client, job, tell)
    for rounds, state in ((1, "running"), (2, "running"), (3, "completed")):
        service.files["/jobs/j/tasks/train"] = files(rounds)
        follow.look(Glance((Task("train", state, node="tvm-1"),), Counts(), 1))
        outputs._asked = float("-inf")
        for file in outputs._files.values():
            file._last = float("-inf")
        dashboard.read()
    recorded.end("completed")

    lowest = next(iter(ranks.values()))
    assert curves(points_of(run.metrics_file("train"))) == ranks
    assert run.record().summary["score"].last == lowest[-1]
    assert {rank: curve["value"] for rank, curve in outputs.numbers.metrics()["score"].items()} == ranks
    shown = view.values["score"]["train"], [value for _, value in view.history["score"]["train"]]
    assert shown == (lowest[-1], lowest)
    assert f"score {lowest[-1]:g}" in card.text()
    rows = sweep.sweep(client, service.account, tmp_path / "none", "j", "score", lambda event: None)
    assert [row.value for row in rows] == [lowest[-1]]


def test_the_numbers_of_a_task_are_not_those_of_an_earlier_job_of_its_id(
    client: BatchClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = TaskOutputs(lambda: client, "j", "train", near=True)
    for second, metric in ((1, "before"), (2, "after")):
        task = Task("train", "active", created=START + timedelta(seconds=second))
        monkeypatch.setattr(read, "masked_task", lambda *_, task=task: task)
        outputs.document()
        outputs.numbers.take_own(None, [f'{{"t": 1, "node": "n0", "{metric}": 1}}'])
    assert list(outputs.numbers.metrics()) == ["after"]


def curves(points: Iterator[Point]) -> dict[str, list[float | None]]:
    """The scores by rank."""
    values: dict[str, list[float | None]] = {}
    for point in points:
        values.setdefault("" if point.rank is None else str(point.rank), []).append(point.values["score"])
    return values


def test_a_task_that_runs_again_on_another_node_shows_no_rank_of_the_node_before(
    client: BatchClient, service: BatchServer
) -> None:
    seen: list[Event] = []
    follow = Follow(client, type("Job", (), {"id": "j"})(), seen.append)
    for node, ranks in (("tvm-1", (0, 1)), ("tvm-2", (0,))):
        records = (json.dumps({"time": 5, "rank": rank, "node": f"n{rank}", "line": "step 1"}) for rank in ranks)
        service.files["/jobs/j/tasks/train"] = {RECORDS: "".join(f"{line}\n" for line in records).encode()}
        follow.look(Glance((Task("train", "running", node=node),), Counts(), 1))
    found = [[rank.number for rank in event.ranks] for event in seen if isinstance(event, MetricsSeen)]
    assert found == [[0, 1], [0]]


def test_the_last_event_of_a_task_says_that_all_its_numbers_were_read(
    client: BatchClient, service: BatchServer
) -> None:
    seen: list[Event] = []
    follow = Follow(client, type("Job", (), {"id": "j"})(), seen.append)
    service.files["/jobs/j/tasks/train"] = {}
    for state in ("running", "completed"):
        follow.look(Glance((Task("train", state, node="tvm-1"),), Counts(), 1))
    assert [event.ended for event in seen if isinstance(event, MetricsSeen)] == [True]
