"""What a new `run` does with the lost runs of its directory: it ends some, and names the others."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from batchtrain.client import leaving, orphans
from batchtrain.client.orphans import Orphan
from batchtrain.config.types import Secret
from batchtrain.errors import AlreadyExists, ResultsLeft
from batchtrain.plan.marks import Marks
from batchtrain.records import Task
from batchtrain.records.events import Event, Results
from batchtrain.runs import directory, lease
from batchtrain.runs.directory import Cost, RunRecord
from batchtrain.service.connect import Account

START = datetime(2026, 11, 28, 10, 5, tzinfo=timezone.utc)
HERE = Account("https://acct.westeurope.batch.azure.com", "acct", Secret("a2V5"))
COST = Cost(currency="EUR", region="westeurope", dedicated=0.25, spot=None, hour=0.5)


def lost(root: Path, job: str, **fields: Any) -> str:
    """A run of this host that lost its process."""
    run = directory.make(root, job, START)
    place = {"account": HERE.name, "endpoint": HERE.endpoint, "cost": COST, "pool": f"p-{job}"}
    run.write(RunRecord(**{"id": run.name, "job": job, "started": START, "state": "running", **place, **fields}))
    held = lease.take(run.path)
    assert held is not None
    held.release()
    return run.name


class World:
    """A client of an account whose jobs are over, but for some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *open_jobs: str) -> None:
        self.client: Any = SimpleNamespace(account=HERE)
        self.open_jobs, self.ended, self.asked, self.said = open_jobs, list[str](), list[str](), list[Event]()
        self.unsaved: set[str] = set()
        monkeypatch.setattr(orphans, "_is_open", self._is_open)
        monkeypatch.setattr(orphans, "end", self._end)

    def _is_open(self, _: Any, orphan: Orphan) -> bool:
        self.asked.append(orphan.record.job)
        return orphan.record.job in self.open_jobs

    def _end(self, _: Any, met: list[Orphan], *__: Any, **___: Any) -> list[Any]:
        if self.unsaved.intersection(orphan.record.job for orphan in met):
            raise ResultsLeft("its results are on a node")
        self.ended += [orphan.record.job for orphan in met]
        return [SimpleNamespace(outcome=lambda: Results("j", "results: there")) for _ in met]

    def adopt(self, root: Path, **needs: Any) -> str:
        orphans.adopt(self.client, root, self.said.append, **needs)
        return "\n".join(event.text for event in self.said if event.kind == "standing")


def test_each_lost_run_whose_tasks_have_ended_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, names = World(monkeypatch), ["a", "b", "c", "d", "e"]
    for name in names:
        lost(tmp_path, name)
    assert world.adopt(tmp_path, pool_id="p", job_ids=["j"]) == ""
    assert sorted(world.ended) == names


def test_without_a_lost_run_the_service_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for state in ("completed", "failed", "detached"):
        lost(tmp_path, "j", state=state)
    assert (world.adopt(tmp_path), world.asked, world.ended) == ("", [], [])


@pytest.mark.parametrize(
    ("fields", "host", "end"),
    [
        ({}, "", "and still runs (FACTS); `batchtrain jobs wait j` waits for it and ends it"),
        ({"account": "other"}, "", "in account other (FACTS); with its credentials, `jobs wait j` ends it"),
        ({"account": "local", "endpoint": "http://127.0.0.1:9"}, "", "`jobs wait j --local` ends it"),
        ({}, "far", "on host far (FACTS); there, `batchtrain jobs wait j` ends it"),
    ],
    ids=["its tasks run", "of another account", "of the emulator", "of another host"],
)
def test_a_run_that_is_not_ended_is_a_line_with_its_age_price_and_command(
    fields: dict[str, Any], host: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, name = World(monkeypatch, "j"), lost(tmp_path, "j", **fields)
    if host:
        record = lease.LeaseRecord(host, 1)
        (tmp_path / name / lease.FILE).write_bytes(msgspec.json.encode(record))
        monkeypatch.setattr(lease, "STALE_SECONDS", -1.0)
    text = world.adopt(tmp_path)
    assert text.startswith(f"run {name} lost its process ")
    assert text.endswith(end.replace("FACTS", "job j since 2026-11-28 10:05 UTC, 0.50 EUR an hour"))
    assert (text.count("\n"), world.ended) == (0, [])


def test_many_runs_that_are_not_ended_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"j{number}" for number in range(orphans.SHOWN + 2)]
    world = World(monkeypatch, *names)
    for name in names:
        lost(tmp_path, name)
    lines = world.adopt(tmp_path).splitlines()
    assert len(lines) == orphans.SHOWN + 1
    assert lines[-1] == "and 2 more runs without a process; `batchtrain runs list` names them"


def test_a_lost_run_that_cannot_be_ended_prevents_only_a_run_that_needs_its_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch)
    lost(tmp_path, "bad")
    lost(tmp_path, "good")
    world.unsaved = {"bad"}
    assert "could not be ended: its results are on a node" in world.adopt(tmp_path, pool_id="p")
    assert world.ended == ["good"]
    with pytest.raises(ResultsLeft):
        world.adopt(tmp_path, pool_id="p-bad")


@pytest.mark.parametrize(
    ("needs", "is_refused"),
    [
        ({"job_ids": ["j"]}, True),
        ({"job_ids": ["j"], "reuse": True}, True),
        ({"pool_id": "p-j"}, True),
        ({"pool_id": "p-j", "reuse": True}, False),
        ({"pool_id": "p", "job_ids": ["k"]}, False),
    ],
)
def test_a_lost_run_whose_tasks_run_is_refused_only_in_the_way(
    needs: dict[str, Any], is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, "j")
    lost(tmp_path, "j")
    if is_refused:
        with pytest.raises(AlreadyExists, match="`batchtrain jobs wait j`"):
            world.adopt(tmp_path, **needs)
    else:
        assert "still runs" in world.adopt(tmp_path, **needs)


def test_an_adopted_run_ended_with_the_last_of_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = lost(tmp_path, "a", state="lost")
    (orphan,) = orphans.lost_runs(tmp_path)
    times = {"a": 60.0, "b": 90.0, "c": None}
    orphan.run.write_tasks(Task(id, "completed", started=START, seconds=seconds) for id, seconds in times.items())
    ends: list[Any] = []
    recording = SimpleNamespace(has_fetched=True, unsaved=(), failure=None, end=lambda *end: ends.append(end))
    monkeypatch.setattr(orphans, "_recording", lambda *_: recording)
    monkeypatch.setattr(orphans, "_fetch", lambda *_: None)
    monkeypatch.setattr(orphans, "marks_or_none", lambda *_: Marks(""))
    orphans.end(SimpleNamespace(account=HERE, batch=None), [orphan], lambda event: None)  # type: ignore[arg-type]
    assert (orphan.run.name, ends) == (name, [("completed", None, START + timedelta(seconds=90))])


class Fetched:
    """What was recorded of a lost run whose results were fetched, or not."""

    has_fetched, is_on_nodes_alone, exceeds_limit = True, True, False

    failure = None

    def __init__(self, unsaved: tuple[str, ...], released: list[str], job_id: str) -> None:
        self.unsaved, self._released, self._job_id = unsaved, released, job_id

    def release(self) -> None:
        self._released.append(self._job_id)


def test_no_lost_run_is_deleted_while_results_of_one_are_on_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, said = list[str](), list[Event]()
    client: Any = SimpleNamespace(account=HERE, batch=None)

    def recording(_: Any, orphan: Orphan) -> Fetched:
        job_id = orphan.record.job
        return Fetched(("model.pt: no space",) if job_id == "b" else (), released, job_id)

    runs = {job: lost(tmp_path, job) for job in ("a", "b", "c")}
    monkeypatch.setattr(orphans, "_recording", recording)
    monkeypatch.setattr(orphans, "_fetch", lambda *_: None)
    monkeypatch.setattr(orphans, "marks_or_none", lambda _, thing: Marks(runs[thing.id.removeprefix("p-")]))
    emptied = list[str]()
    monkeypatch.setattr(leaving, "_own_pool_of", lambda *_: "")
    monkeypatch.setattr(leaving, "_empty_later", lambda _, pool: emptied.append(pool))
    with pytest.raises(ResultsLeft, match=r"job b: model\.pt: no space; `batchtrain jobs fetch b` tries again"):
        orphans.end(client, tuple(orphans.lost_runs(tmp_path)), said.append)
    assert (sorted(released), emptied) == (["a", "b", "c"], ["p-a", "p-b", "p-c"])
    kept = said[-1].text
    assert "pool p-b, 0.50 EUR an hour" in kept and "for 30 min at most after the last task" in kept
    assert "delete: batchtrain jobs del b" in kept and "delete: batchtrain pool del p-b" in kept
