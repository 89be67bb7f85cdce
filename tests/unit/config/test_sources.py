"""What of a `source` directory travels, and what is said of one that cannot; on the disk."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.client.planning import left_out_by_git
from batchtrain.config import source_directory, travel
from batchtrain.config.load import Examined, examine
from batchtrain.config.travel import LargeSource
from batchtrain.config.types import Credentials, Recipe, StorageCredentials
from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import File
from batchtrain.plan import plan_recipe
from batchtrain.plan.types import Plan
from tests.properties import BASE

GANGS = (None, {"num_instances": 2, "mxnet": {}}, {"num_instances": 2, "mpi": {"runtime": "mpich"}})
STORAGE = {"batchtrain": {"storage_account_settings": "link"}}


def recipe(directory: Path, name: str = "src") -> Recipe:
    jobs = [{"id": "j", "tasks": [{"command": "x", "source": name}]}]
    return msgspec.convert({"directory": str(directory), "jobs": jobs}, Recipe)


def names(directory: Path) -> list[str]:
    return [file.name for file in source_directory.read_sources(recipe(directory))["src"].files]


def left_out(directory: Path) -> str:
    return travel.listed(source_directory.read_sources(recipe(directory))["src"].left_out)


def examined(directory: Path, more: Mapping[str, Any] = {}, silent: Sequence[str] = (), **task: Any) -> Examined:
    """The files of a directory with one task."""
    job = {"id": "j", "tasks": [{"command": "echo hello", "source": "src", **task}]}
    data = {**BASE, **more, "job_specifications": [job]}
    return examine(directory, {str(directory / "all.json"): msgspec.json.encode(data)}, ignore=silent)


def planned(found: Examined) -> Plan:
    return plan_recipe(found.recipe, sources=source_directory.read_sources(found.recipe))


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def told(directory: Path, more: Mapping[str, Any] = {}, **task: Any) -> list[tuple[str, str]]:
    """The errors of a directory's files with one task, and proof that the plan knows as much."""
    found = examined(directory, more, **task)
    if found.valid:
        planned(found)
    return [(one.rule, one.message) for one in found.problems if one.level == "error"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "src").mkdir()
    yield tmp_path
    subprocess.run(["rm", "-rf", str(tmp_path / "src")], check=True)  # shutil.rmtree recurses, and it may be deep


@pytest.mark.parametrize(
    "name",
    [".env", ".env.local", ".envrc", "key.pem", "id_rsa", "id_ed25519_sk.pub", "credentials.yaml", ".aws/config"],
)
def test_files_that_often_hold_secrets_stay_at_home_unless_they_are_named(name: str, home: Path) -> None:
    write(home / "src", {"train.py": "", name: ""})
    assert names(home) == ["train.py"]
    top = name.split("/")[0]
    assert left_out(home) == f"1 by the default rules ({top}{'/' if top != name else ''})"
    write(home / "src", {".batchtrainignore": f"!{top}\n"})
    assert names(home) == sorted(["train.py", name])


def test_a_link_to_a_directory_is_left_out_with_mention(home: Path) -> None:
    write(home, {"src/train.py": "", "common/a.py": ""})
    (home / "src/common").symlink_to("../common")
    (home / "src/.venv").symlink_to("../common")
    assert names(home) == ["train.py"]
    assert left_out(home) == "1 by the rule that links to directories are not followed (common/)"


def test_similar_names_travel_and_caches_stay_without_mention(home: Path) -> None:
    write(home / "src", dict.fromkeys(("id_mapping.py", "credentials.py", "x.pyc", "__pycache__/y", ".git/config"), ""))
    assert (names(home), left_out(home)) == (["credentials.py", "id_mapping.py"], "")


def test_what_the_ignore_file_names_stays_at_home(home: Path) -> None:
    write(home / "src", dict.fromkeys(("train.py", "a.log", "keep.log", "data/x.bin", "deep/data/y.bin", "out/z"), "x"))
    write(home / "src", {".batchtrainignore": "# comment\n*.log\n!keep.log\n/data/\nout\n"})
    assert names(home) == ["deep/data/y.bin", "keep.log", "train.py"]
    assert left_out(home) == "3 by .batchtrainignore (a.log, data/, out/)"


def test_the_ignore_file_wins_over_git_and_the_plan_says_who_left_out_what(home: Path) -> None:
    write(home / "src", dict.fromkeys(("train.py", ".env", "data/x", "a.log", "b.log", "c.log", "d.log"), "x"))
    write(home / "src", {".gitignore": "data/\n*.log\n", ".batchtrainignore": "!data/\n/a.log\n"})
    assert names(home) == [".gitignore", "data/x", "train.py"]
    told = str(planned(examined(home)))
    assert (
        "  source src = 3 files   because the rest is left out: 1 by .batchtrainignore (a.log),"
        " 3 by .gitignore (b.log, c.log, d.log), 1 by the default rules (.env)\n"
    ) in told


def test_a_run_says_at_its_start_what_git_ignores_but_not_a_directory_that_ignores_itself(home: Path) -> None:
    write(home / "src", dict.fromkeys(("train.py", "a.log", "data/x", "runs/latest", "runs/r/x"), "x"))
    write(home / "src", {".gitignore": "data/\n", ".batchtrainignore": "*.log\n", "runs/.gitignore": "*\n"})
    (event,) = left_out_by_git(source_directory.read_sources(examined(home).recipe))
    assert event.text == ("source src: not sent: 1 by .gitignore (data/); `!NAME` in its .batchtrainignore sends one")


IGNORES = ("*", "!*/", "!*.py", "*.log", "!keep.log", "data/", "/data", "data/*", "!data/keep.log", "b", "b/**", "**/c")


@pytest.mark.parametrize("seed", range(20))
def test_gitignore_files_count_as_in_git(seed: int, home: Path) -> None:
    dice = random.Random(seed)
    folders = ("", "data/", "b/", "b/c/", "data/b/")
    write(home / "src", {f"{folder}{name}": "" for folder in folders for name in ("a.py", "x.log", "keep.log", "c2")})
    for place in ("", "src/", *(f"src/{folder}" for folder in folders[1:])):
        lines = dice.sample(IGNORES[not place :], dice.randrange(3))
        write(home, {f"{place}.gitignore": "\n".join(lines)})
    subprocess.run(["git", "init", "-q"], cwd=home, check=True)
    words = ["git", "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=home / "src", check=True, capture_output=True, text=True).stdout.split()
    write(home / "src", {".batchtrainignore": "!/a.py"})  # so that there is always a file
    assert names(home) == sorted({*listed, "a.py"})


def test_a_source_that_git_ignores_travels_because_it_is_named(home: Path) -> None:
    write(home, {".gitignore": "src/\n*.log\n", "src/train.py": "", "src/a.log": ""})
    (home / ".git").mkdir()
    assert names(home) == ["train.py"]


def test_the_ignore_files_above_the_repository_do_not_count(home: Path) -> None:
    write(home, {".gitignore": "*\n", "src/train.py": "", "src/.git": ""})
    assert names(home) == ["train.py"]


def test_a_directory_that_is_left_out_is_not_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "src", {".gitignore": "data/\n", "train.py": "", "data/deep/x": ""})
    scanned, scandir = [], os.scandir
    monkeypatch.setattr(source_directory.os, "scandir", lambda path: scanned.append(path) or scandir(path))
    assert names(home) == [".gitignore", "train.py"]
    assert scanned == [home / "src"]


def test_a_command_that_names_a_file_that_stays_at_home_is_warned_about(home: Path) -> None:
    run = {"src/runs/r/run.json": "", "src/runs/r/config/a": "", "src/runs/r/outputs/best.pt": ""}
    write(home, {"src/.batchtrainignore": "data/\n", "src/data/a.csv": "", "src/b.csv": "", "src/.env": "", **run})
    words = "./runs/r/outputs/best.pt --data='data/a.csv' b.csv .env data/new.csv runs/r/other ../src/.env"
    named = [problem.message for problem in examined(home, command=f"program {words}").problems]
    assert sorted(text.split("; copy")[0] for text in named) == [
        "`.env` is not sent to the task: it is left out of the `source` by the default rules",
        "`data/a.csv` is not sent to the task: it is left out of the `source` by .batchtrainignore",
        "`runs/r/outputs/best.pt` is not sent to the task: it is left out of the `source` by the rule that results of"
        " earlier runs are not sent",
    ]


def test_a_command_that_names_a_directory_that_stays_at_home_is_warned_about(home: Path) -> None:
    write(home, {"src/.batchtrainignore": "data/\n", "src/.gitignore": "out/\n", "src/data/a.csv": "", "src/out/a": ""})
    (home / "large").mkdir()
    (home / "src" / "linked").symlink_to(home / "large")
    named = [problem.message for problem in examined(home, command="program data/ --x=linked out lib").problems]
    unless = "; unless the program makes it, copy it to another place in the source, or send it with `input_data`"
    assert sorted(text.rstrip(".") for text in named) == [
        f"`data/` is not sent to the task: it is left out of the `source` by .batchtrainignore{unless}",
        f"`linked/` is not sent to the task: it is left out of the `source` by the rule that links to directories are"
        f" not followed{unless}",
    ]


def test_an_ignore_file_that_is_no_text_is_refused(home: Path) -> None:
    (home / "src" / "train.py").write_text("x")
    (home / "src" / ".batchtrainignore").write_bytes(b"\xff\xfe")
    [(rule, message)] = told(home)
    assert rule == "source-unreadable"
    assert "`.batchtrainignore` has a line that is no rule of gitignore" in message


def test_a_program_stays_executable(home: Path) -> None:
    (home / "src" / "run").write_text("x", encoding="utf-8")
    (home / "src" / "run").chmod(0o755)
    [file] = source_directory.read_sources(recipe(home))["src"].files
    assert isinstance(file, File) and file.mode == 0o755


def test_an_empty_directory_is_refused(home: Path) -> None:
    (home / "src" / "__pycache__").mkdir()
    write(home / "src", {".env": ""})
    [(rule, message)] = told(home)
    assert rule == "source-empty" and "(left out: 1 by the default rules (.env))" in message
    with pytest.raises(PlanError, match="has no file for the task"):
        source_directory.read_sources(recipe(home))


def test_a_file_in_the_place_of_one_of_the_service_is_refused(home: Path) -> None:
    write(home / "src", {"train.py": "", "wd/a": ""})
    assert [rule for rule, _ in told(home)] == ["source-reserved"]


@pytest.mark.parametrize("name", [" ", "nowhere", "x" * 300, "x/" * 3000, "\0"])
def test_a_name_that_is_no_directory_is_refused(name: str, home: Path) -> None:
    assert [rule for rule, _ in told(home, source=name)] == ["source-missing"]
    with pytest.raises(PlanError):
        source_directory.read_sources(recipe(home, name))


def test_an_unreadable_file_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "src" / "a.py").touch()

    def denied(_: str) -> None:
        raise PermissionError(13, "Permission denied", "src/a.py")

    monkeypatch.setattr(source_directory.os, "scandir", denied)
    assert told(home) == [("source-unreadable", "`src/a.py` cannot be read: Permission denied.")]


@contextlib.contextmanager
def deep(directory: Path, levels: int, name: str) -> Iterator[None]:
    """Nested so deep that its path may be longer than a path can be, and gone again: pytest's own clean-up recurses."""
    handle = os.open(directory, os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=handle)
        below = os.open(name, os.O_DIRECTORY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(os.open("end.py", os.O_CREAT, dir_fd=handle))
    os.close(handle)
    try:
        yield
    finally:
        RootedPath(directory).remove(name)
        assert not (directory / name).exists()


def test_a_source_nested_1500_deep_travels(home: Path) -> None:
    with deep(home / "src", 1500, "d"):
        assert told(home) == []
        assert names(home) == ["d/" * 1500 + "end.py"]


def test_a_source_deeper_than_a_path_can_be_is_refused(home: Path) -> None:
    with deep(home / "src", 1500, "deep"):
        [(rule, message)] = told(home)
    assert rule == "source-unreadable"
    assert "File name too long" in message


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("gang", GANGS)
def test_a_source_fits_into_a_request_up_to_a_size_and_not_beyond(gang: Any, home: Path) -> None:
    """Whatever is launched: what the rule lets pass, the plan does too."""
    file, more = home / "src" / "data", {"multi_instance": gang} if gang else {}
    file.write_bytes(noise(195_000))
    assert told(home, **more) == []
    file.write_bytes(noise(400 * 1024))
    [(rule, message)] = told(home, **more)
    assert rule == "source-size"
    assert "data (400 KiB)" in message
    for way_out in (".batchtrainignore", "storage_account_settings", "resource_files", "container image"):
        assert way_out in message


def test_the_plan_refuses_a_large_source_too(home: Path) -> None:
    (home / "src" / "data").write_bytes(noise(400 * 1024))
    with pytest.raises(PlanError, match="when packed"):
        planned(examined(home, silent=["source-size"]))


def test_a_source_that_packs_well_or_goes_through_storage_may_be_large(home: Path) -> None:
    (home / "src" / "data").write_bytes(bytes(8 * 2**20))
    assert told(home) == []
    (home / "src" / "data").write_bytes(noise(400 * 1024))
    assert told(home, STORAGE) == []


def test_a_data_directory_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "src" / "a").write_bytes(bytes(1000))
    (home / "src" / "b").write_bytes(bytes(1000))
    monkeypatch.setattr(source_directory, "MOST_BYTES", 1999)
    [(rule, message)] = told(home)
    assert rule == "source-size" and ".batchtrainignore" in message
    assert told(home, STORAGE) == []
    monkeypatch.setattr(source_directory, "MOST_BYTES", 2000)
    assert told(home) == []
    monkeypatch.setattr(source_directory, "MOST_FILES", 1)
    assert told(home)[0][0] == "source-size"


def test_the_largest_entries_of_a_source_are_named_with_the_line_that_leaves_one_out() -> None:
    files = [("a", 3000), ("set/x", 2000), ("set/deep/y", 2000), ("b", 10), ("c", 20)]
    message = travel.larger(files)
    assert "the largest entries are set/ (4 KiB), a (3 KiB), c (0 KiB). " in message
    assert "write `/set/` into `.batchtrainignore`" in message


def test_small_files_of_a_large_source_travel_apart_so_that_an_edit_sends_no_data(home: Path) -> None:
    (home / "src" / "data").write_bytes(noise(2 * 2**20))
    (home / "src" / "train.py").write_text("1\n", encoding="utf-8")
    credentials = Credentials(storage={"mine": StorageCredentials(account="acct")})
    with_storage = msgspec.structs.replace(recipe(home), credentials=credentials)
    before = source_directory.read_sources(with_storage)["src"]
    (home / "src" / "train.py").write_text("2\n", encoding="utf-8")
    after = source_directory.read_sources(with_storage)["src"]
    assert isinstance(before, LargeSource) and isinstance(after, LargeSource)
    assert [file.name for file in after.archived] == ["data"]
    assert [file.data for file in after.others if file.name == "train.py"] == [b"2\n"]
    assert before.digest == after.digest


def test_a_merge_tasks_source_travels_too(home: Path) -> None:
    (home / "src" / "a.py").touch()
    job = {"id": "j", "tasks": [{"command": "x"}], "merge_task": {"command": "x", "source": "src"}}
    made = msgspec.convert({"directory": str(home), "jobs": [job]}, Recipe)
    assert list(source_directory.read_sources(made)) == ["src"]


@pytest.mark.parametrize("gang", GANGS[:2])
def test_a_command_as_long_as_the_rule_lets_pass_is_planned(gang: Any, home: Path) -> None:
    """Twice, with a source as large as may be: noise that hardly packs."""
    (home / "src" / "data").write_bytes(noise(195_000))
    words = noise(33_000).hex()[:65_000]
    more = {"multi_instance": {**gang, "pre_execution_command": f": {words[::-1]}"}} if gang else {}
    assert told(home, command=f"echo '{words}'", **more) == []


def test_scripts_with_the_line_ends_of_windows_are_found(tmp_path: Path) -> None:
    write(tmp_path / "src", {"a.sh": "#!/bin/sh\necho\r\n", "b.sh": "echo\n", "run": "#!/bin/sh\r\n", "data": "a\r\n"})
    write(tmp_path / "src", {"train.py": "x = 1\r\n", "tool.py": "#!/usr/bin/env python3\r\nx = 1\r\n"})
    for name in ("run", "tool.py", "data"):
        (tmp_path / "src" / name).chmod(0o755)
    assert source_directory.surveys(recipe(tmp_path))["src"].line_ends == ("a.sh", "run", "tool.py")


def test_python_files_that_do_not_compile_are_found_with_their_lines(tmp_path: Path) -> None:
    bad = "x = 1\ndef f(:\n"
    write(tmp_path / "src", {"train.py": bad, "lib/model.py": bad, "fine.py": "'\\d'\n", "notes.txt": bad})
    command = "python $AZ_BATCH_TASK_SHARED_DIR/train.py"
    assert told(tmp_path, command=command)[0][0] == "script-syntax"
    survey = source_directory.surveys(recipe(tmp_path))["src"]
    errors = [(name, reason.partition(": ")[0]) for name, reason in survey.syntax_errors]
    assert errors == [("lib/model.py", "line 2"), ("train.py", "line 2")]


def test_a_path_of_files_to_upload_that_does_not_exist_is_found_from_the_directory_of_the_files(tmp_path: Path) -> None:
    destination = {"storage_account_settings": "s", "data_transfer": {"remote_path": "c"}}
    files = [{"source": {"path": path}, "destination": destination} for path in ("src", "../data", str(tmp_path))]
    write(tmp_path / "src", {"a": "x"})
    uploads = msgspec.convert({"directory": str(tmp_path), "resources": {"files": files}}, Recipe)
    surveys = source_directory.surveys(uploads)
    assert {name: survey.absent for name, survey in surveys.items()} == {"../data": str(tmp_path.parent / "data")}
