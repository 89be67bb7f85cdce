"""Which checkpoints a run continues, and what it says about the run that wrote them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchtrain.runtime import batchtrain_checkpoint, batchtrain_lineage

FILES = (Path(batchtrain_lineage.__file__), Path(batchtrain_checkpoint.__file__))
FACTS: dict[str, Any] = {
    "files": {"train.py": "1"}, "settings": {"command": "c", "image": "", "environment": "e"},
    "nodes": 2, "ranks": 4, "reshard": True, "results": 1000,
}  # fmt: skip
STEP = "import batchtrain_checkpoint as c; c.complete(c.begin({}))"


def names(directory: str | Path) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


class Node:
    """A shared volume, and the directory of the task on a node."""

    def __init__(self, home: Path) -> None:
        self.home, self.volume = home, home / "volume" / "checkpoints"
        self.python = home / "task" / "python"
        self.python.mkdir(parents=True)
        for file in FILES:
            (self.python / file.name).write_bytes(file.read_bytes())
        self.directory, self.said, self.code = "", list[str](), 0

    def run(self, name: str, *steps: int, task: str = "p/job/train", finish: bool = False, **more: Any) -> Node:
        """A run that writes checkpoints. more: what the run is told, or what it trains."""
        isolated = ["-I", "-S", *more.pop("python", ())]
        environment_more = more.pop("environment", {})
        told = {name_: more.pop(name_) for name_ in ("fresh", "resume", "commit", "dirty") if name_ in more}
        former = more.pop("former", "")
        facts = json.dumps({**FACTS, **more}, ensure_ascii=False)
        (self.python / "batchtrain_lineage.json").write_text(facts, encoding="utf-8")
        environment = {
            **os.environ, "AZ_BATCH_TASK_DIR": str(self.home / "task"), "PYTHONPATH": str(self.python),
            "AZ_BATCH_TASK_WORKING_DIR": str(self.home / "task" / "wd"), **environment_more,
            "BATCHTRAIN_LINEAGE": json.dumps({"run": name, **told}),
        }  # fmt: skip
        command = [sys.executable, *isolated, str(self.python / "batchtrain_lineage.py")]
        places = [str(self.volume / task), *([str(self.volume / former)] if former else [])]
        begun = subprocess.run([*command, "begin", *places], env=environment, capture_output=True, text=True)
        self.code, self.directory = begun.returncode, begun.stdout.strip()
        self.said = [line.removeprefix("batchtrain: ") for line in begun.stderr.splitlines()]
        environment["BATCHTRAIN_CHECKPOINT_DIR"] = self.directory
        for step in steps:
            subprocess.run([sys.executable, "-c", STEP.format(step)], env=environment, check=True)
        self.finished = functools.partial(
            subprocess.run, [*command, "finished"], env=environment, check=True, capture_output=True, text=True
        )
        if finish:
            said = self.said
            self.finish()
            self.said = said + self.said
        return self

    def finish(self) -> None:
        """The task has ended with success."""
        self.said = self.finished().stderr.splitlines()

    @property
    def results(self) -> Path:
        return self.home / "task" / "wd" / "output"

    @property
    def steps(self) -> list[str]:
        return names(self.directory)

    @property
    def record(self) -> dict[str, Any]:
        """What the client fetches."""
        record: dict[str, Any] = json.loads((self.home / "task" / ".batchtrain-lineage.json").read_text())
        return record


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    yield Node(tmp_path)


def test_the_first_run_begins_in_an_empty_directory_and_says_nothing(node: Node) -> None:
    assert node.run("a").said == []
    assert node.steps == []


def test_a_run_continues_the_run_before_and_says_its_step_and_commit(node: Node) -> None:
    node.run("a", 10, 20, commit="0123456789abcdef", dirty=True)
    node.run("b", commit="fedcba9876543210")
    assert node.steps == ["step-10", "step-20"]
    assert node.said == [
        "continues from step 20 of run a (commit 0123456789ab, with uncommitted changes)",
        "changed since then: nothing",
    ]
    assert node.record["continues"]["run"] == "a"


def test_the_run_that_wrote_the_checkpoint_is_named_and_not_one_that_only_read_it(node: Node) -> None:
    node.run("a", 10)
    node.run("b")
    assert node.run("c").said[0] == "continues from step 10 of run a"


def test_what_changed_in_between_is_named(node: Node) -> None:
    node.run("a", 1)
    node.run("b", files={"train.py": "2", "new.py": "1"}, settings={**FACTS["settings"], "command": "other"})
    assert node.said[1] == "changed since then: new.py, train.py, command"


def test_many_changed_files_are_counted(node: Node) -> None:
    node.run("a", 1)
    node.run("b", files={"train.py": "1", **{f"f{number}.py": "1" for number in range(9)}})
    assert node.said[1] == "changed since then: f0.py, f1.py, f2.py, f3.py, f4.py, and 4 more files"


def test_a_retry_continues_its_own_run_without_a_word(node: Node) -> None:
    node.run("a", 1, fresh=True)
    first = node.directory
    assert node.run("a", 2, fresh=True).directory == first
    assert (node.said, node.steps) == ([], ["step-1", "step-2"])


def test_a_fresh_run_begins_anew_and_keeps_the_checkpoints_before(node: Node) -> None:
    before = node.run("a", 1).directory
    assert node.run("b", fresh=True).said == ["starts anew, as --fresh says; the checkpoints before are kept in line 1"]
    assert (node.steps, names(before)) == ([], ["step-1"])
    assert node.run("c", 5).steps == ["step-5"]  # and the next run continues the fresh one
    assert node.run("d").said[0] == "continues from step 5 of run c"


def test_the_run_after_a_finished_one_says_so_and_how_to_start_anew(node: Node) -> None:
    node.run("a", 10, finish=True)
    assert node.run("b").said[2:] == ["that run had finished the training; `batchtrain run` with --fresh starts anew"]
    assert node.record["continues"]["finished"]


def test_files_of_the_program_itself_are_continued_by_name_and_become_results(node: Node) -> None:
    node.run("a")
    (Path(node.directory) / "best").mkdir()
    (Path(node.directory) / "best" / "snap.pt").write_text("1")
    node.finish()
    assert names(node.results / "best") == ["snap.pt"]
    assert node.run("b", files={"train.py": "2"}).said == [
        "continues with best/snap.pt of run a, as far as the program reads it",
        "changed since then: train.py",
        "that run had finished the training; `batchtrain run` with --fresh starts anew",
    ]
    assert node.record["continues"]["step"] is None
    node.finish()
    text = "this run has changed nothing in its checkpoints (best/snap.pt): it trained nothing, or it did not save"
    assert node.said[-1].startswith(f"batchtrain: {text}")
    (Path(node.directory) / "last.pt").touch()
    node.finish()
    assert node.said == []
    assert node.run("c", fresh=True).said == ["starts anew, as --fresh says; the checkpoints before are kept in line 1"]


def test_what_is_no_file_stops_neither_a_run_nor_its_results(node: Node) -> None:
    node.run("a")
    (Path(node.directory) / "latest").symlink_to("gone")
    os.mkfifo(Path(node.directory) / "pipe")
    (Path(node.directory) / "snap.pt").write_text("1")
    node.finish()
    assert names(node.results) == ["snap.pt"]
    assert node.run("b").said[0] == "continues with snap.pt of run a, as far as the program reads it"


def test_the_last_checkpoint_of_a_task_without_results_becomes_its_result(node: Node) -> None:
    node.run("a", 1, 2, finish=True)
    assert names(node.results) == ["step-2"]
    assert names(node.results / "step-2") == ["manifest.json"]


def test_a_task_with_results_gets_no_checkpoint(node: Node) -> None:
    node.results.mkdir(parents=True)
    (node.results / "model").touch()
    node.run("a", 1, finish=True)
    assert names(node.results) == ["model"]


def test_a_checkpoint_that_is_larger_than_the_results_may_be_stays_on_the_volume(node: Node) -> None:
    node.run("a", 1, finish=True, results=10)
    assert not node.results.exists()
    assert f"{node.directory}/step-1, is larger than `results.max_size`: it stays there" in node.said[-1]


def test_a_run_that_trained_on_has_not_finished_again(node: Node) -> None:
    node.run("a", 10, finish=True)
    node.run("b", 20)
    assert len(node.run("c").said) == 2


def test_only_the_run_that_is_continued_can_have_finished_the_training(node: Node) -> None:
    node.run("a", 10, finish=True)
    node.run("b", 10, fresh=True)
    assert len(node.run("c").said) == 2


def test_another_project_job_or_task_has_checkpoints_of_its_own(node: Node) -> None:
    node.run("a", 10)
    for task in ("q/job/train", "p/other/train", "p/job/other", "p/job/train@key"):
        assert node.run("b", task=task).steps == []
        assert node.said == []


def test_resume_copies_the_newest_checkpoint_of_a_run_of_another_project(node: Node) -> None:
    source = node.run("a", 10, 20).directory
    (Path(source) / "step-20" / "weights").write_text("20")
    node.run("mine", 99, task="q/job/train")
    node.run("b", task="q/job/train", resume={"run": "a", "training": "p/job"})
    assert node.steps == ["step-20"]
    assert (Path(node.directory) / "step-20" / "weights").read_text() == "20"
    assert node.said[0] == "continues from step 20 of run a"
    assert names(source) == ["step-10", "step-20"]


def test_resume_takes_the_line_of_its_run(node: Node) -> None:
    node.run("a", 10)
    node.run("b", 3, fresh=True)
    assert node.run("c", resume={"run": "a", "training": "p/job"}).steps == ["step-10"]


def test_resume_takes_what_its_run_wrote_and_not_the_run_after_it(node: Node) -> None:
    node.run("a", 10)
    kept = Path(node.directory) / "step-10"
    node.run("b", 300)
    assert kept.is_dir()
    assert node.run("c", resume={"run": "a", "training": "p/job"}).steps == ["step-10"]
    shutil.rmtree(kept)
    node.run("d", resume={"run": "a", "training": "p/job"})
    assert (node.code, names(str(node.volume / "p/job/train"))) == (1, ["1", "2", "lineage.jsonl"])
    assert "no checkpoint of run a is kept in" in node.said[0]
    assert "(there: step 300 of b)" in node.said[0]


def test_a_run_that_never_began_cannot_be_resumed(node: Node) -> None:
    node.run("a", 10)
    node.run("b", resume={"run": "never", "training": "p/job"})
    assert node.code == 1
    assert "run never began no training in" in node.said[0]
    assert "(runs that did: a)" in node.said[0]


def test_a_checkpoint_that_names_no_run_is_that_of_the_only_one(node: Node) -> None:
    manifest = Path(node.run("a", 10).directory) / "step-10/manifest.json"
    manifest.write_text('{"version": 1, "files": {}}')
    assert node.run("b", resume={"run": "a", "training": "p/job"}, task="q/job/train").steps == ["step-10"]
    node.run("c")
    assert node.run("d", resume={"run": "a", "training": "p/job"}, task="q/job/train").code == 1


def test_a_copy_that_failed_leaves_no_line(node: Node) -> None:
    source = Path(node.run("a", 10).directory) / "step-10"
    (source / "link").symlink_to("nowhere")  # cannot be copied
    node.run("mine", 5, task="q/job/train")
    assert node.run("b", resume={"run": "a", "training": "p/job"}, task="q/job/train").code == 1
    assert names(str(node.volume / "q/job/train")) == ["1", "lineage.jsonl"]
    assert node.run("c", task="q/job/train").said[0] == "continues from step 5 of run mine"


def test_a_fresh_run_that_could_not_be_noted_leaves_no_line(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Path(node.run("a", 10).directory).parent
    monkeypatch.setenv("BATCHTRAIN_CHECKPOINT_DIR", "")

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(batchtrain_lineage, "append", full)
    with pytest.raises(OSError, match="no space left"):
        batchtrain_lineage.begin(str(training), "", {"run": "b", "fresh": True}, FACTS, 1.0)
    assert node.run("c").said[0] == "continues from step 10 of run a"


def test_a_last_line_without_a_checkpoint_is_said_with_the_way_to_those_before(node: Node) -> None:
    node.run("a", 10)
    node.run("b", fresh=True)
    assert node.run("c").said == [
        "starts at the beginning: line 2 has no checkpoint yet",
        "line 1 has step 10 of run a; `batchtrain run` with --resume a continues it",
    ]
    (node.volume / "p/job/train/1/step-10/manifest.json").write_text('{"version": 1, "files": {}}')
    assert node.run("d").said[1] == (
        "line 1 has step 10 of an earlier run; the next run continues it if you delete the directory of line 2"
    )


def test_resume_follows_the_row_of_a_factory_and_not_the_number_of_its_task(node: Node) -> None:
    node.run("a", 1, task="p/job/task-0.aaaa")
    node.run("a", 2, task="p/job/task-1.bbbb")
    resume = {"run": "a", "training": "p/job"}
    assert node.run("b", task="q/job/task-0.bbbb", resume=resume).steps == ["step-2"]
    node.run("b", task="q/job/task-1.cccc", resume=resume)
    assert node.code == 1
    assert "no checkpoint of task task-1, row cccc of its factory," in node.said[0]


def test_names_of_files_are_read_in_the_c_locale(node: Node) -> None:
    c_locale: dict[str, Any] = {"python": ("-X", "utf8=0"), "environment": {"LC_ALL": "C"}}
    node.run("a", 1, files={"größe.py": "1"}, **c_locale)
    assert node.run("b", files={"größe.py": "1"}, **c_locale).said[1] == "changed since then: nothing"


def test_resume_finds_the_task_under_another_key(node: Node) -> None:
    node.run("a", 10, task="p/job/train@old")
    assert node.run("b", task="p/job/train@new", resume={"run": "a", "training": "p/job"}).steps == ["step-10"]


def test_resume_copies_what_a_program_keeps_without_the_contract_unless_a_later_run_continued_it(node: Node) -> None:
    first = node.run("a").directory
    Path(first, "snapshots").mkdir()
    Path(first, "snapshots", "last.pt").write_text("of a")
    resume = {"run": "a", "training": "p/job"}
    again = node.run("b", task="q/job/train", resume=resume)
    assert Path(again.directory, "snapshots", "last.pt").read_text() == "of a"
    assert again.said[0] == "continues with snapshots/last.pt of run a, as far as the program reads it"
    node.run("c")
    assert node.run("d", task="q/job/train", resume=resume).code == 1
    assert "may be those of run c, which continued run a. Leave out --resume to continue with them" in node.said[0]


def test_resume_without_a_checkpoint_is_refused_and_changes_nothing(node: Node) -> None:
    node.run("b", resume={"run": "a", "training": "p/elsewhere"})
    assert node.code == 1
    assert "run a left no checkpoint of task train on this volume" in node.said[0]
    assert not (node.volume / "p/elsewhere").exists()


def test_another_number_of_ranks_is_said(node: Node) -> None:
    node.run("a", 1)
    assert node.run("b", ranks=8, nodes=4).said[1:] == [
        "8 ranks instead of 4 ranks: the program must be able to read checkpoints of another number"
    ]


def test_nodes_are_counted_where_the_ranks_are_not_known(node: Node) -> None:
    node.run("a", 1, ranks=None)
    assert node.run("b", ranks=None, nodes=1).said[1].startswith("1 node instead of 2 nodes:")


def test_another_number_of_ranks_is_refused_for_a_program_that_cannot_read_it(node: Node) -> None:
    node.run("a", 1)
    node.run("b", ranks=8, reshard=False)
    assert node.code == 1
    assert node.said == [
        "`checkpoint`: the checkpoint of step 1 is of 4 ranks, and this run has 8 ranks: `checkpoint.reshard: false`"
        " refuses it. Run on as many ranks as before, or start anew with --fresh"
    ]
    assert node.run("c", reshard=False).code == 0
    assert node.run("d", ranks=8, reshard=False, fresh=True).code == 0


def test_checkpoints_of_an_earlier_version_are_found_once(node: Node) -> None:
    node.run("old", 7, task="job/train")
    (node.volume / "job/train/1").rename(node.volume / "job/train/0123456789abcdef")
    (node.volume / "job/train/0123456789abcdef/step-7/manifest.json").write_text('{"version": 1, "files": {}}')
    assert node.run("a", former="job/train/0123456789abcdef").steps == ["step-7"]
    assert node.said == ["continues from step 7 of an earlier run"]
    assert not (node.volume / "job/train/0123456789abcdef").exists()
    assert node.run("b", former="job/train/0123456789abcdef", fresh=True).steps == []


def test_a_record_that_was_written_in_part_is_left_out(node: Node) -> None:
    node.run("a", 1)
    with (node.volume / "p/job/train/lineage.jsonl").open("a") as file:
        file.write('{"run": "b", "li')
    node.run("c", 2)
    assert node.run("d").said[0] == "continues from step 2 of run c"


def test_a_volume_that_cannot_be_written_is_named(node: Node) -> None:
    node.volume.mkdir(parents=True)
    (node.volume / "p").write_text("")
    assert node.run("a").code == 1
    assert "`checkpoint`: " in node.said[0]
