"""Recorded runs on the dashboard: their list, their files, their curves, and their comparison."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from batchtrain.dashboard import recorded
from batchtrain.errors import NotFound
from batchtrain.records import Attempt, FabricMeasurement, NodePair
from batchtrain.records.fabric_check import judge
from batchtrain.runs.directory import Labels, RunDirectory
from tests import dashboards, recorded_runs
from tests.unit.dashboard.asking import BEARER, Client, dashboard

FIRST, SECOND, THIRD = "20261122T111502Z-digits-7f3a", "20261122T131502Z-digits-1c2e", "20261122T151502Z-digits-aa01"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    root.mkdir()
    dashboards.record_three(root)
    return root


def change(run: Path, **fields: Any) -> None:
    """Change fields of a record."""
    path = run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_the_newest_run_is_first_and_one_that_cannot_be_read_is_left_out(client: Client, runs: Path) -> None:
    (runs / SECOND / "run.json").write_text("{")
    assert [row["id"] for row in client.get("/runs")] == [THIRD, FIRST]


def test_a_record_is_read_again_only_when_it_has_changed(client: Client, runs: Path) -> None:
    path = runs / FIRST / "run.json"
    assert client.get("/runs")[-1]["nodes"] == 2
    before = path.stat().st_mtime_ns
    change(runs / FIRST, nodes=3)
    os.utime(path, ns=(before, before))
    assert client.get("/runs")[-1]["nodes"] == 2
    os.utime(path, ns=(before, before + 1))
    assert client.get("/runs")[-1]["nodes"] == 3


def test_no_run_is_hidden_behind_one_that_cannot_be_read(
    client: Client, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "ROWS", 1)
    (runs / THIRD / "run.json").write_text("{")
    answer = client("GET", "/api/v1/runs", **BEARER)
    assert [row["id"] for row in answer.document] == [SECOND]
    assert answer.headers["link"] == '</api/v1/runs?skip=1>; rel="next"'
    assert recorded.newest(runs, "digits") == SECOND


@pytest.mark.parametrize(("number", "linked"), [(1, True), (3, False), (4, False)])
def test_a_page_of_runs_has_a_link_to_the_next(
    client: Client, monkeypatch: pytest.MonkeyPatch, number: int, linked: bool
) -> None:
    monkeypatch.setattr(recorded, "ROWS", number)
    answer = client("GET", "/api/v1/runs", **BEARER)
    assert len(answer.document) == min(number, 3)
    assert answer.headers.get("link") == (f'</api/v1/runs?skip={number}>; rel="next"' if linked else None)
    rest = client.get(f"/runs?skip={number}")
    assert [row["id"] for row in answer.document + rest][:2] == [THIRD, SECOND][: len(answer.document + rest)]


def test_a_run_has_its_record_tasks_events_and_files(client: Client) -> None:
    document = client.get(f"/runs/{THIRD}")
    assert (document["id"], document["seconds"], document["settings"]) == (THIRD, 68.0, {"learning_rate": "1.0"})
    assert [task["id"] for task in document["tasks"]] == ["train"]
    assert document["events"][0]["text"] == "pool cpu is created"
    assert [file["path"] for file in document["files"]] == [
        "outputs/train/model.txt", "metrics/train.jsonl", "events.jsonl", "run.json", "tasks.jsonl",
        "logs/train/stdout.txt",
    ]  # fmt: skip
    assert document["files"][0]["size"] == len("weights\n") * 200
    assert document["card"] == []


def test_the_attempts_of_tasks_that_ran_again_are_shown_and_no_others(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = (Attempt("once", 1), Attempt("twice", 1), Attempt("twice", 2))
    monkeypatch.setattr(RunDirectory, "attempts", lambda _: attempts)
    rows = client.get(f"/runs/{THIRD}")["attempts"]
    assert [row["task"] for row in rows] == ["twice", "twice"]


def test_a_run_has_the_candidates_that_were_tried(client: Client, runs: Path) -> None:
    tried = {"account": "a", "vm_size": "B", "began": "2026-11-22T11:15:02Z", "ended": "2026-11-22T11:15:04Z"}
    change(runs / FIRST, candidates=[{"candidate": "2 dedicated A", "code": "AllocationFailed", **tried},
                                     {"candidate": "2 spot B", **tried}])  # fmt: skip
    assert client.get(f"/runs/{FIRST}")["candidates"] == [
        {"candidate": "2 dedicated A", "seconds": 2.0, "result": "AllocationFailed"},
        {"candidate": "2 spot B", "seconds": 2.0, "result": "it had the nodes"},
    ]


def test_a_fabric_check_has_its_values_and_the_matrix_of_pairs(client: Client, runs: Path) -> None:
    assert client.get(f"/runs/{THIRD}")["fabric"] is None
    pairs = (NodePair(0, 1, 24.0), NodePair(0, 2, 11.0), NodePair(1, 2, 11.5))
    measured = FabricMeasurement(("a", "b", "c"), {"pair_gb_per_second": 11.0}, pairs)
    RunDirectory(runs / THIRD).write_fabric(judge("Standard_HB120rs_v3", measured))
    document = client.get(f"/runs/{THIRD}")["fabric"]
    assert (document["rows"][0]["verdict"], document["slow_nodes"]) == ("fault", ["c"])
    assert document["matrix"][2] == ["n2", "11", "11.5", ""]


def test_of_many_events_and_files_the_last_and_the_first_are_shown(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "MOST_EVENTS", 2)
    monkeypatch.setattr(recorded, "MOST_FILES", 1)
    document = client.get(f"/runs/{FIRST}")
    assert [event["text"] for event in document["events"]] == ["task train is added", "3 files fetched"]
    assert [file["path"] for file in document["files"]] == ["outputs/train/model.txt"]


@pytest.mark.parametrize(
    "name", ["none", "x" * 300, "a\0b", "..", ".hidden", f"../runs/{FIRST}", FIRST[:8], "latest-none"]
)
def test_only_the_whole_name_of_a_run_below_the_directory_is_one(runs: Path, name: str) -> None:
    (runs / ".hidden").mkdir()
    (runs / ".hidden" / "run.json").write_text("{}")
    (runs.parent / "run.json").write_text("{}")
    with pytest.raises(NotFound, match="runs list"):
        recorded.shown(runs, name)


def test_a_file_of_a_run_is_an_attachment_of_text(client: Client) -> None:
    answer = client("GET", f"/api/v1/runs/{FIRST}/file?path=outputs/train/model.txt", **BEARER)
    assert (answer.status, answer.body) == (200, b"weights\n" * 200)
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''model.txt"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "path", ["", ".", "logs", "../secret", f"../{SECOND}/run.json", "/etc/passwd", "link", "none", "%00"]
)
def test_no_path_and_no_link_leads_out_of_a_run(client: Client, runs: Path, path: str) -> None:
    (runs / "secret").write_text("secret")
    (runs / FIRST / "link").symlink_to(runs / "secret")
    (runs / FIRST / "logs" / "link").symlink_to(runs / FIRST / "run.json")
    assert client("GET", f"/api/v1/runs/{FIRST}/file?path={path}", **BEARER).status == 404
    assert "logs/link" not in [file["path"] for file in client.get(f"/runs/{FIRST}")["files"]]


def test_curves_have_a_key_for_each_task_and_rank_or_node(client: Client, runs: Path) -> None:
    points = [
        {"t": 5.0, "rank": 0, "step": 1, "loss": 0.5},
        {"t": 6.0, "rank": 0, "epoch": 2.0, "loss": 0.25},
        {"rank": 1, "step": 1, "loss": None},
        {"node": "n0", "step": 3, "cpu_percent": 50.0},
        {"step": 4, "test_accuracy": 0.9},
    ]
    (runs / FIRST / "metrics/train.jsonl").write_text("".join(f"{json.dumps(point)}\n" for point in points))
    assert client.get(f"/runs/{FIRST}/curves") == {
        "loss": {
            "train 0": {"step": [1, 1], "t": [5.0, 6.0], "value": [0.5, 0.25], "epoch": [None, 2.0]},
            "train 1": {"step": [], "t": [], "value": [], "undefined": [[1, 0.0]], "diverged": True},
        },
        "cpu_percent": {"train n0": {"step": [None], "t": [0.0], "value": [50.0], "system": True}},
        "test_accuracy": {"train": {"step": [4], "t": [0.0], "value": [0.9]}},
    }


def test_the_curves_of_several_tasks_have_places_the_failed_first_then_the_best(tmp_path: Path) -> None:
    run = recorded_runs.recorded(tmp_path, "sweep")
    lines = recorded.curves(tmp_path, run.name)["loss"]
    first = sorted(lines, key=lambda key: lines[key]["place"])[:12]
    assert first == [*(f"task-{number:05}" for number in range(7, 500, 50)), "task-00000", "task-00001"]


def test_runs_are_compared_in_the_given_order_by_what_differs(client: Client, runs: Path) -> None:
    extra = {"t": 1.0, "rank": 1, "step": 1, "loss": 7.0}
    with (runs / FIRST / "metrics/train.jsonl").open("a") as file:
        file.write(json.dumps(extra) + "\n")
    document = client.get(f"/runs/compare?id={SECOND}&id={FIRST}")
    assert [run["id"] for run in document["runs"]] == [SECOND, FIRST]
    assert {row["name"]: row["values"] for row in document["rows"]}["learning_rate"] == ["0.01", "0.1"]
    assert list(document["curves"]["loss"]) == [SECOND, FIRST]
    assert len(document["curves"]["loss"][FIRST]["value"]) == 60  # of the first rank


@pytest.mark.parametrize(
    ("job", "time", "run"),
    [
        ("digits", "2026-11-22T11:15:02Z", THIRD),
        ("digits", "2026-11-22T11:16:10Z", THIRD),
        ("digits", "2026-11-22T11:15:01Z", ""),
        ("digits", "2026-11-22T11:16:11Z", SECOND),
        ("other", "2026-11-22T11:15:30Z", ""),
        ("digits", "", ""),
    ],
)
def test_a_job_belongs_to_the_newest_run_during_which_it_was_created(runs: Path, job: str, time: str, run: str) -> None:
    change(runs / SECOND, started="2026-11-22T11:16:00Z", ended=None)  # it still runs
    created = datetime.fromisoformat(time.replace("Z", "+00:00")).astimezone(timezone.utc) if time else None
    assert recorded.of_job(runs, job, created) == run


def test_the_runs_of_a_list_have_their_labels_and_are_found_by_them(client: Client, runs: Path) -> None:
    RunDirectory(runs / FIRST).write_labels(Labels(("paper",), "final figures"))
    assert client.get("/runs")[-1]["labels"] == "paper; final figures"
    for text, count in (("PAPER figures", 1), ("paper failed", 0), ("digits", 3)):
        assert len(client.get(f"/runs?text={quote(text)}")) == count
    assert client.get(f"/runs/{FIRST}")["labels"] == "paper; final figures"


def test_runs_are_sorted_by_the_best_last_value_of_a_metric(client: Client) -> None:
    assert [row["id"] for row in client.get("/runs?sort=loss")] == [FIRST, SECOND, THIRD]
    assert client.get("/runs")[0]["metrics"] == ["loss", "accuracy"]
    refused = client("GET", "/api/v1/runs?sort=bleu", **BEARER)
    assert (refused.status, "no run has a metric `bleu`" in refused.document["error"]) == (400, True)


@pytest.mark.parametrize(("tags", "status"), [("paper, final", 202), ("x" * 65, 400)])
def test_the_page_changes_the_tags_and_the_note_of_a_run(runs: Path, tags: str, status: int) -> None:
    body = json.dumps({"tags": tags, "note": " figures "}).encode()
    with dashboard(runs, changes=True) as client:
        assert client("POST", f"/api/v1/runs/{FIRST}/labels", body, **BEARER).status == status
        found = client.get(f"/runs/{FIRST}")
    assert (found["tags"], found["note"]) == (("paper, final", "figures") if status == 202 else ("", ""))
