"""A training that crashes, is corrected, and continues; and runs that are compared and run again by their copies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .test_checkpoints import recipe

pytestmark = [pytest.mark.process, pytest.mark.slow]
TRAIN = """
import json, os, sys
import batchtrain_checkpoint as checkpoint

path, weight, rate = checkpoint.newest(), 0.0, 0.1
if path is not None:
    weight = json.load(open(os.path.join(path, "weights.json")))
print("begins after step", checkpoint.step_of(path), flush=True)
for step in range(checkpoint.step_of(path) + 1, 9):
    weight -= rate * (weight - 3)
    print("step %d loss %.6f" % (step, (weight - 3) ** 2), flush=True)
    if step == 5:
        sys.exit("a mistake of the program")
    if step % 2 == 0:
        done = checkpoint.begin(step)
        json.dump(weight, open(os.path.join(done, "weights.json"), "w"))
        checkpoint.complete(done)
print("weight %.12f" % weight)
os.makedirs("output", exist_ok=True)
open("output/weight.txt", "w").write("%.12f" % weight)
while not os.path.exists(os.environ["AZ_BATCH_TASK_DIR"] + "/.batchtrain-packages.json"):
    pass
"""
WHOLE = TRAIN.replace("if step == 5:", "if step == -5:  # corrected after the crash")
NODES = {"pool_specification.vm_count": "{dedicated: 1, low_priority: 0}"}


class Training:
    """The recipe of a training, and the runs of it."""

    def __init__(self, batchtrain: Any, directory: str) -> None:
        self.command, self.directory, self.root = batchtrain, directory, batchtrain.cwd / "runs"

    def write(self, script: str) -> None:
        Path(self.directory, "src/train.py").write_text(script)

    def run(self, *options: str, exits: int = 0) -> tuple[Path, str]:
        """The run directory, and what was printed."""
        words = [word for path, value in NODES.items() for word in ("--set", f"{path}={value}")]
        done = self.command("run", self.directory, "--local", *words, *options, code=exits)
        return (self.root / "latest").resolve(), f"{done.stdout}{done.stderr}"


@pytest.fixture
def training(batchtrain: Any, tmp_path: Path) -> Training:
    return Training(batchtrain, recipe(tmp_path, TRAIN, id="train"))


def weight(run: Path) -> str:
    return (run / "outputs/train/weight.txt").read_text()


def test_a_training_that_crashed_continues_after_an_edit_and_says_from_where(training: Training) -> None:
    crashed, _ = training.run(exits=10)
    training.write(WHOLE)
    continued, said = training.run()
    assert "begins after step 4" in said
    assert f"batchtrain: continues from step 4 of run {crashed.name}" in said
    assert "batchtrain: changed since then: train.py" in said
    assert json.loads((continued / "logs/train/lineage.json").read_text())["continues"]["run"] == crashed.name

    _, said = training.run()
    assert "begins after step 8" in said
    assert "that run had finished the training; `batchtrain run` with --fresh starts anew" in said

    fresh, said = training.run("--fresh")
    assert "begins after step 0" in said
    assert weight(fresh) == weight(continued)  # as if it had never crashed

    shown = training.command("runs", "show", continued.name).stdout
    assert re.search(rf"^train +{crashed.name} +4 +train.py$", shown, re.M), shown


def test_a_run_is_compared_with_the_next_one_and_run_again_from_its_copy(training: Training, tmp_path: Path) -> None:
    crashed, _ = training.run(exits=10)
    training.write(WHOLE)
    whole, _ = training.run("--fresh")
    compared = training.command("runs", "compare", crashed.name, whole.name).stdout
    assert "-    if step == 5:\n+    if step == -5:  # corrected after the crash\n" in compared
    packages = json.loads((whole / "logs/train/packages.json").read_text())
    assert re.fullmatch(r"3\.\d+\.\S+", packages["python"])

    training.write("raise SystemExit('this is not the program that ran')")
    again = Training(training.command, str(tmp_path / "again"))
    restored = training.command("runs", "restore", whole.name, again.directory)
    assert f"batchtrain run {again.directory} --local" in restored.stdout
    done = training.command("run", again.directory, "--local")
    assert "begins after step 0" in done.stdout
    assert weight(training.root / "latest") == weight(whole)
    assert training.command("runs", "compare", whole.name, "latest").stdout.count("train.py") == 0
