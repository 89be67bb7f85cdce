"""The cases of `bench`: what makes one done, what an axis changes, and child processes that end with the command."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import click
import pytest

from batchtrain.cli import bench
from batchtrain.cli.children import Child, Children, Ended, Line
from batchtrain.cli.options import Settings
from batchtrain.errors import UsageError
from batchtrain.runs.experiment import cases, experiment_of

POOL = {
    "id": "p",
    "vm_size": "STANDARD_D2S_V5",
    "vm_count": {"dedicated": 1},
    "vm_configuration": {"platform_image": {"publisher": "almalinux", "offer": "almalinux-x86_64", "sku": "8-gen2"}},
}


def write(folder: Path, command: str = "python $AZ_BATCH_TASK_SHARED_DIR/train.py") -> None:
    (folder / "src").mkdir(parents=True)
    (folder / "src/train.py").write_text("print(1)")
    job = {"id": "j", "auto_complete": True, "tasks": [{"id": "t", "command": command, "source": "src"}]}
    (folder / "pool.yaml").write_text(json.dumps({"pool_specification": POOL}))
    (folder / "jobs.yaml").write_text(json.dumps({"job_specifications": [job]}))


@pytest.fixture
def planned(tmp_path: Path):  # type: ignore[no-untyped-def]  # a function of any experiment
    def plan(**experiment: object) -> list[bench.Planned]:
        (tmp_path / "e.yaml").write_text(json.dumps({"matrix": {"nodes": [1]}, **experiment}))
        with click.Context(click.Command("bench"), obj=Settings()):
            return bench._planned(tmp_path / "e.yaml", None)[1]

    return plan


def test_a_case_is_another_one_if_anything_that_runs_has_changed(planned, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path / "r")

    def digest(**experiment: object) -> str:
        (found,) = planned(recipe="r", **experiment)
        return str(found.digest)

    first = digest()
    assert digest(metric="loss") == first
    others = {digest(command="true"), digest(set={"pool_specification.vm_size": "STANDARD_D4S_V5"})}
    (tmp_path / "r/src/train.py").write_text("print(2)")
    others.add(digest())
    assert len(others | {first}) == 4


def test_a_case_runs_on_the_account_of_the_command(planned, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path / "r")
    (case,) = planned(recipe="r")
    with click.Context(click.Command("bench"), obj=Settings(batch_account="gpu")):
        words = bench._child(case, tmp_path, 0).words
    assert words[words.index("--batch-account") + 1] == "gpu"


def test_framework_and_model_are_axes_of_a_matrix(planned, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path / "mx", "mx-train")
    write(tmp_path / "tf", "tf-train\n")
    matrix = {"framework": ["mx", "tf"], "model": ["alexnet", "vgg16"]}
    found = planned(recipe="{framework}", arguments="--model {model}", matrix=matrix)
    commands = [one.recipe.jobs[0].tasks[0].command for one in found]
    assert commands == [f"{file}-train --model {model}" for file in ("mx", "tf") for model in ("alexnet", "vgg16")]


def test_a_line_that_was_cut_off_does_not_swallow_the_next_one(planned, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path / "r")
    (one,) = planned(recipe="r")
    folder = tmp_path / "runs/bench-e"
    folder.mkdir(parents=True)
    (folder / "done.jsonl").write_text('{"case": "nodes=1", "dig')
    (tmp_path / "runs/a").mkdir()
    (tmp_path / "runs/a/run.json").touch()
    bench._note_done(folder, one, "a")
    assert bench._done(folder) == {one.digest: "a"}


def test_a_framework_without_a_recipe_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"variables": {"exp.framework": ["caffe2"]}}))
    with (
        click.Context(click.Command("bench"), obj=Settings()),
        pytest.raises(UsageError, match="`caffe2` has no recipe"),
    ):
        bench._planned(file, None)


@pytest.mark.parametrize("code", [10, 7])
def test_a_run_that_failed_or_reached_the_limit_of_its_job_stops_no_further_run(tmp_path: Path, code: int) -> None:
    case: Any = None  # only of a run that completed
    assert not bench._completed(Ended(Child("a", ()), code, ""), case, tmp_path, "why")


def test_lines_and_ends_of_children_come_in_their_order() -> None:
    children = [Child("a", ("--version",)), Child("b", ("nonsense",))]
    with Children(2) as running:
        news = list(running.run(children))
    ends = {one.child.name: one for one in news if isinstance(one, Ended)}
    assert (ends["a"].code, ends["b"].code) == (0, 2)
    assert ends["a"].output.startswith("batchtrain ")
    assert {one.child.name for one in news if isinstance(one, Line)} == {"b"}


def test_ctrl_c_ends_the_children_and_starts_no_further_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that waits is interrupted as soon as it says that it runs."""
    monkeypatch.setattr("batchtrain.cli.children.sys.executable", "/bin/sh")
    program = "trap 'exit 130' INT; echo runs >&2; while :; do sleep 0.02; done"
    children = [Child("waits", (program,)), Child("next", (program,))]
    monkeypatch.setattr("batchtrain.cli.children.PROGRAM", ("-c",))
    ended: list[str] = []
    with pytest.raises(KeyboardInterrupt), Children(1) as running:
        for news in running.run(children):
            ended.append(news.child.name)
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(60)
    assert ended == ["waits"]


def test_the_cases_of_an_experiment_have_their_own_recipe() -> None:
    found = cases(experiment_of({"recipe": "r-{f}", "matrix": {"f": ["a", "b"]}}, "e.yaml"))
    assert [case.recipe for case in found] == ["r-a", "r-b"]
