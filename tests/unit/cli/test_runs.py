"""Runs beside one another on a terminal."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from batchtrain.cli import connecting
from batchtrain.cli.run import _hint
from batchtrain.cli.runs import around, beside
from batchtrain.errors import NoAccount, NotFound
from batchtrain.records import Metric, Task
from batchtrain.runs import directory
from batchtrain.runs.directory import Cost, RunRecord
from tests.unit.cli.conftest import Run

COMMAND = (
    "python -u $AZ_BATCH_TASK_SHARED_DIR/train.py --epochs {} --batch 64 --output $AZ_BATCH_TASK_WORKING_DIR/output"
)


def test_a_long_value_shows_the_words_that_differ() -> None:
    assert around([COMMAND.format(10), COMMAND.format(3)]) == ["… --epochs 10 …", "… --epochs 3 …"]


def test_a_word_that_only_one_of_three_lacks_is_shown() -> None:
    values = [COMMAND.format("10 --fast"), COMMAND.format("10"), COMMAND.format("10 --fast")]
    assert [("--fast" in value) for value in around(values)] == [True, False, True]


def test_three_runs_have_one_line_for_each_property() -> None:
    rows = [("job_specifications[0].tasks[0].command", [f"python train.py --rate {n} --more words" for n in range(3)])]
    lines = list(beside(["A", "B", "C"], rows, 80))
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[0].endswith(".tasks[0].command")
    assert [line.strip() for line in beside(["A", "B", "C"], rows, 40)].count("A  python train.py --rate 0 --more") == 1


@pytest.mark.parametrize("room", [80, 40])
def test_no_word_of_a_comparison_is_broken(room: int) -> None:
    name = "job_specifications[0].tasks[0].multi_instance.mpi.processes_per_node"
    values = ["a few words " * 6, "others"]
    lines = list(beside(["A", "B"], [(name, values)], room))
    assert max(map(len, lines)) <= room
    assert {word for line in lines for word in line.split()} >= {"few", "words", "others", "A", "B"}
    assert name in "".join(lines)


def test_long_values_are_compared() -> None:
    """Pair by pair would take minutes."""
    long = "a " * 8000
    assert around([f"{long}--rate 1 {long}", f"{long}--rate 2 --fast {long}"]) == [
        "… --rate 1 …",
        "… --rate 2 --fast …",
    ]


def recorded(root: Path, job: str, days_ago: float = 0.0, **fields: Any) -> str:
    """The name of a new run directory."""
    started = datetime.now(timezone.utc) - timedelta(days=days_ago)
    run = directory.make(root / "runs", job, started)
    cost = Cost(currency="USD", region="westeurope", dedicated=1.0, spot=None, hour=2.0, run=3.0)
    values = {"state": "completed", "ended": started, "cost": cost, "endpoint": "https://a.westeurope.batch.azure.com"}
    run.write(RunRecord(id=run.name, started=started, job=job, **(values | fields)))
    return run.name


def listed(batchtrain: Run, *words: str) -> list[str]:
    return [row["run"] for row in json.loads(batchtrain("runs", "list", "-o", "json", *words).stdout)]


def test_runs_are_selected_by_tag_job_state_and_time(batchtrain: Run, tmp_path: Path) -> None:
    old, failed, new = recorded(tmp_path, "a", 40), recorded(tmp_path, "a", 2, state="failed"), recorded(tmp_path, "b")
    batchtrain("runs", "label", new, "--tag", "paper")
    assert listed(batchtrain) == [old, failed, new]
    assert listed(batchtrain, "--job", "a") == [old, failed]
    assert listed(batchtrain, "--state", "failed") == [failed]
    assert listed(batchtrain, "--since", "30d") == [failed, new]
    assert listed(batchtrain, "--tag", "paper") == [new]


def test_runs_are_sorted_by_a_metric_and_a_value_that_is_not_finite_is_last(batchtrain: Run, tmp_path: Path) -> None:
    summaries = ({"loss": Metric(0.5, 0.5)}, {"loss": Metric(None, 0.1)}, {"loss": Metric(0.2, 0.2)}, {})
    names = [recorded(tmp_path, f"j{n}", 4 - n, summary=summary) for n, summary in enumerate(summaries)]
    assert listed(batchtrain, "--sort", "loss") == [names[2], names[0], names[1]]
    assert "no metric" not in batchtrain("runs", "list", "--sort", "rloss", code=2).stdout


def test_labels_are_added_removed_and_kept_apart_from_the_record(batchtrain: Run, tmp_path: Path) -> None:
    name = recorded(tmp_path, "a")
    record = (tmp_path / "runs" / name / "run.json").read_bytes()
    batchtrain("runs", "label", name, "--tag", "lr", "--tag", "paper", "--note", "the best so far")
    batchtrain("runs", "label", name, "--untag", "lr")
    assert json.loads(batchtrain("runs", "label", name, "-o", "json").stdout) == {
        "tags": ["paper"],
        "note": "the best so far",
    }
    assert (tmp_path / "runs" / name / "run.json").read_bytes() == record
    assert "has no tag `lr`" in batchtrain("runs", "label", name, "--untag", "lr", code=2).stderr


def test_damaged_labels_hide_no_run(batchtrain: Run, tmp_path: Path) -> None:
    names = [recorded(tmp_path, "a"), recorded(tmp_path, "b")]
    (tmp_path / "runs" / names[0] / "labels.json").write_text("{")
    assert listed(batchtrain) == names
    assert "labels.json" in batchtrain("runs", "show", names[0]).stderr


@pytest.mark.parametrize("tag", ["", " ", "a,b", "a\nb", "x" * 65])
def test_a_tag_that_a_list_cannot_show_is_refused(batchtrain: Run, tmp_path: Path, tag: str) -> None:
    assert "is no tag" in batchtrain("runs", "label", recorded(tmp_path, "a"), "--tag", tag, code=2).stderr


def test_costs_are_summed_by_user_without_the_emulator(batchtrain: Run, tmp_path: Path) -> None:
    for user, endpoint in (("ada", ""), ("bob", ""), ("ada", "http://127.0.0.1:1234")):
        recorded(tmp_path, "a", user=user, **({"endpoint": endpoint} if endpoint else {}))
    recorded(tmp_path, "a", 40, user="ada")
    rows = json.loads(batchtrain("runs", "cost", "--by", "user", "-o", "json").stdout)
    assert [(row["group"], row["runs"], row["cost"]) for row in rows] == [
        ("ada", 1, "3.00 USD"),
        ("bob", 1, "3.00 USD"),
        ("all", 2, "6.00 USD"),
    ]


def test_two_runs_stand_beside_each_other_where_their_values_can_be_broken() -> None:
    lines = list(beside(["A", "B"], [("command", ["python train.py --rate 0.1 --more " * 4, "true"])], 100))
    assert [line.split()[0] for line in lines[:2]] == ["A", "command"]
    assert all(len(line) <= 100 for line in lines)
    assert " ".join(" ".join(lines).split()).count("--more") == 4


@pytest.mark.parametrize("verb", ["fetch", "stop", "attach"])
def test_a_run_of_the_emulator_needs_no_local(
    verb: str, batchtrain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path, "j", endpoint="http://127.0.0.1:1234", account="batchtrain")
    targets: list[bool | None] = []

    def connect(*, local: bool | None, **_: Any) -> None:
        targets.append(local)
        raise NotFound("the emulator was asked") if local else NoAccount

    monkeypatch.setattr(connecting.client, "connect", connect)
    assert "the emulator was asked" in batchtrain("runs", verb, "latest", code=3).stderr
    assert targets == [None, True]


def test_a_run_of_another_account_is_named(batchtrain: Run, tmp_path: Path) -> None:
    recorded(tmp_path, "j", endpoint="http://127.0.0.1:1234", account="batchtrain")
    variables = {
        "AZURE_BATCH_ACCOUNT": "b", "AZURE_BATCH_ENDPOINT": "https://b.westeurope.batch.azure.com",
        "AZURE_BATCH_ACCESS_KEY": "aaaa",
    }  # fmt: skip
    refused = batchtrain("runs", "fetch", "latest", code=2, environment=variables).stderr
    assert "is of the embedded Azure Batch, not of account b at https://b.westeurope" in refused
    assert "add --local" in refused
    recorded(tmp_path, "j", account="a")
    refused = batchtrain("runs", "fetch", "latest", code=2).stderr
    assert "is of account a at https://a.westeurope.batch.azure.com, and no account is chosen" in refused


def test_a_sweep_ends_with_the_command_that_lists_its_tasks(batchtrain: Run, tmp_path: Path) -> None:
    summary = {"t0/loss": Metric(0.5, 0.5), "t1/loss": Metric(0.25, 0.25)}
    name = recorded(tmp_path, "j", endpoint="http://127.0.0.1:1234", summary=summary)
    run = directory.find(tmp_path / "runs", name)
    assert _hint([run], "run again") == "  keep the pool next: run again"
    run.write_tasks([Task(f"t{number}", "completed", parameters={"lr": number}) for number in range(2)])
    assert _hint([run], "run again") == f"  the tasks, the best first: batchtrain jobs sweep {name} --metric loss"
    assert "there are t0/loss, t1/loss" in batchtrain("runs", "list", "--sort", "speed", code=2).stderr
    for number in range(2):
        directory.replace(run.metrics_file(f"t{number}"), b'{"loss": %d}\n' % -number)
    rows = batchtrain("jobs", "sweep", name, "--metric", "loss").stdout.splitlines()
    assert [row.split()[:2] for row in rows] == [["task", "loss"], ["t1", "-1"], ["t0", "0"]]
    assert batchtrain("jobs", "sweep", name[-4:], "--metric", "loss").stdout.splitlines() == rows
    assert "nowhere to run" in batchtrain("jobs", "sweep", "other", "--metric", "loss", code=2).stderr
