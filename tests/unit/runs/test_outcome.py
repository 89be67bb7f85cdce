"""The facts at the end of a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from batchtrain.records import Metric, Task
from batchtrain.runs import compare, outcome
from batchtrain.runs.directory import FileRecord, RunRecord
from tests.recorded_runs import START


def swept(*losses: float) -> tuple[RunRecord, list[Task]]:
    """A sweep with a loss for each task; its merge task, without parameters, has the best of all."""
    names = [f"train-{number:05}" for number in range(len(losses))]
    summary = {f"{name}/loss": Metric(loss, loss) for name, loss in zip(names, losses, strict=True)}
    tasks = [Task(name, "completed", parameters={"lr": number}) for number, name in enumerate(names)]
    record = RunRecord(
        id="r", state="completed", started=START, job="j", summary={**summary, "merge/loss": Metric(0, 0)}
    )
    return record, [*tasks, Task("merge", "completed")]


def models(*tasks: str) -> list[FileRecord]:
    """The model of each of these tasks, the first one the largest, and a smaller model beside it."""
    return [
        FileRecord(task=task, path=name, size=size - number, fetched=f"outputs/{task}/{name}")
        for number, task in enumerate(tasks)
        for name, size in (("early.pt", 50), ("model.pt", 100))
    ]


@pytest.mark.parametrize(
    ("losses", "tasks", "model"),
    [
        ((0.5, 0.1, 0.3), (0, 1, 2), "/r/outputs/train-00001/model.pt (of train-00001, the best loss)"),
        ((0.1, 0.5), (1, 0), "/r/outputs/train-00000/model.pt (of train-00000, the best loss)"),
        ((0.1, 0.1), (1, 0), "/r/outputs/train-00000/model.pt (of train-00000, the best loss)"),
        ((0.5, 0.1), (1,), "/r/outputs/train-00001/model.pt"),
        ((0.5, 0.1), (0,), "/r/outputs/train-00000/model.pt (the best loss is of train-00001, which has none)"),
        ((0.5, 0.3, 0.1), (0, 1), "2 tasks have one in /r/outputs; the best loss is of train-00002, which has none"),
    ],
)
def test_the_model_of_a_sweep_is_that_of_its_best_task(
    losses: tuple[float, ...], tasks: tuple[int, ...], model: str
) -> None:
    record, every = swept(*losses)
    files = models(*(f"train-{number:05}" for number in tasks))
    facts = {fact.name: fact.text for fact in outcome.facts(record, every, files, Path("/r"))}
    assert facts["model"] == model
    best = losses.index(min(losses))
    shared = "; 2 tasks share it" if losses.count(min(losses)) == 2 else ""
    assert facts["loss"] == f"best {min(losses)} of {len(losses)} tasks: train-{best:05}, lr={best}{shared}"


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay"])
def test_a_parameter_that_the_tasks_print_does_not_rank_them(name: str) -> None:
    record, tasks = swept(0.5, 0.1)
    diverged = {"train-00001/loss": Metric(None, 0.1, since="epoch 4")}
    printed = {f"train-{number:05}/{name}": Metric(number, number) for number in range(2)}
    record = msgspec.structs.replace(record, summary=record.summary | diverged | printed, parameters=("weight-decay",))
    facts = {fact.name: fact.text for fact in outcome.facts(record, tasks, models("train-00000", "train-00001"))}
    assert facts["loss"] == "best 0.5 of 2 tasks: train-00000, lr=0"
    assert facts["model"] == "outputs/train-00000/model.pt (of train-00000, the best loss)"
    without_loss = {key: metric for key, metric in record.summary.items() if not key.endswith("loss")}
    for summary in (without_loss, printed | {key: Metric(None, 0.1) for key in record.summary if key.endswith("loss")}):
        assert compare.best_of_tasks(msgspec.structs.replace(record, summary=summary), least=2) is None


def test_no_model_is_named_if_no_metric_says_which_task_is_the_best() -> None:
    record = RunRecord(id="r", state="completed", started=START, job="j")
    facts = {fact.name: fact.text for fact in outcome.facts(record, (), models("a", "b"))}
    assert facts["model"] == "2 tasks have one in outputs; no metric says which is the best"


def test_the_row_of_a_run_with_two_tasks_has_the_best_value() -> None:
    record, _ = swept(0.5)
    assert compare.row(record).results == "2 tasks, best last loss 0"
