"""Files in which batchtrain keeps its state may hold anything. A state that counts is refused with exit code 4, its
path and the command that resets it. One that can be made again is ignored. Neither is ever a traceback."""

from __future__ import annotations

import math
import os
import re
import sqlite3
import subprocess
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure import identity
from click.testing import CliRunner

from batchtrain import state_files
from batchtrain.catalog.offer import Catalog
from batchtrain.cli.app import root
from batchtrain.config import catalog_file, projects, user_settings
from batchtrain.emulator import account_key, mapped_images, own_catalog, server
from batchtrain.emulator.local_service import emulator_faults
from batchtrain.emulator.machine import mounted_containers
from batchtrain.emulator.server import DATABASE, KEPT_FILE, KEY_FILE, LOCK_FILE, LOG, STATUS_FILE, Settings
from batchtrain.emulator.serving import Emulator
from batchtrain.errors import BatchtrainError, DamagedState
from batchtrain.records import RanksRecord
from batchtrain.runs import compare, finished, lease, report, source_copy
from batchtrain.runs.continuations import continuations
from batchtrain.runs.directory import RunDirectory, RunRecord, runs
from batchtrain.service import entra
from batchtrain.service.partial_files import PartialFile
from tests.emulation import FakeMachine

DIRECTORY, UNREADABLE = b"<a directory>", b"<unreadable>"
SHAPES = {
    "list": b"[1, 2]",
    "null": b"null",
    "number": b"7",
    "text": b'"text"',
    "fields": b'{"endpoint": [1], "id": {}, "state": [5], "a": [1], "size": "x"}',
    "truncated": b'{"id": "a", "sta',
    "binary": bytes(range(256)),
    "deep": b"[" * 100_000,
    "not-utf-8": b'{"id": "\xff", "endpoint": "\xff"}',
    "directory": DIRECTORY,
    "unreadable": UNREADABLE,
}
RUN = "20261122T111502Z-digits-7f3a"


def started(home: Path) -> object:
    with emulator_faults(), Emulator(Settings(home, port=0), FakeMachine.open) as emulator:
        return emulator.status


def run_in(home: Path) -> RunDirectory:
    run = RunDirectory(home / RUN)
    run.path.mkdir(exist_ok=True)
    return run


def recorded(home: Path) -> RunDirectory:
    run = run_in(home)
    run.write(RunRecord(id=RUN, state="completed", started=datetime(2026, 11, 22, tzinfo=timezone.utc), job="digits"))
    return run


class State(NamedTuple):
    """A file, and what reads it."""

    path: str
    read: Callable[[Path], Any]
    without: Any = None
    """What is read without the file."""


REFUSED = {
    "status of an emulator": State(STATUS_FILE, server.status),
    "key": State(KEY_FILE, lambda home: bool(account_key.ensure(home / KEY_FILE)), True),
    "mapped images": State(mapped_images.FILE, mapped_images.list_images, {}),
    "own sizes": State(own_catalog.SIZES, own_catalog.check),
    "own images": State(own_catalog.IMAGES, own_catalog.check),
    "project": State(projects.FILE, lambda home: projects.project_of(str(home)).copied),
    "settings of the user": State(
        "batchtrain/settings.yaml", lambda home: user_settings.load({"XDG_CONFIG_HOME": str(home)}),
        user_settings.UserSettings()),
    "run": State(f"{RUN}/run.json", lambda home: [run.record() for run in runs(home)], []),
    "nodes of a run": State(f"{RUN}/nodes.json", lambda home: recorded(home).nodes(), ()),
    "fabric check of a run": State(f"{RUN}/fabric.json", lambda home: recorded(home).fabric()),
    "source of a run": State(f"{RUN}/{source_copy.RECORD}", lambda home: source_copy.read(recorded(home))),
}  # fmt: skip
"""States that count."""
IGNORED = {
    "plan of a run": State(f"{RUN}/config/plan.json", lambda home: finished._planned_tasks(recorded(home)), math.inf),
    "lease": State(f"{RUN}/{lease.FILE}", lambda home: lease.holder(recorded(home).path), "none"),
    "ranks": State(f"{RUN}/metrics/t.ranks.json", lambda home: recorded(home).ranks("t"), RanksRecord()),
    "lineage": State(f"{RUN}/logs/t/lineage.json", lambda home: continuations(recorded(home)), {}),
    "packages": State(f"{RUN}/logs/t/packages.json", lambda home: compare._packages(recorded(home)), {}),
    "sign-in": State("sign-in.json", lambda home: entra._of_file(home / "sign-in.json", identity)),
    "ranges of a download": State(".x.ranges", lambda home: PartialFile(home, home / "x").resumed("1"), {}),
    "copies of a container": State(
        "storage/mounted/c.json", lambda home: mounted_containers.MountedContainer(home, home / "c", "c")._pairs, {}),
}  # fmt: skip
"""States that are made again."""
LINES = {
    "tasks": State(f"{RUN}/tasks.jsonl", lambda home: recorded(home).tasks(), ()),
    "attempts": State(f"{RUN}/attempts.jsonl", lambda home: recorded(home).attempts(), ()),
    "files": State(f"{RUN}/files.jsonl", lambda home: recorded(home).files(), ()),
    "events": State(f"{RUN}/events.jsonl", lambda home: recorded(home).events(), ()),
    "metrics": State(f"{RUN}/metrics/t.jsonl", lambda home: list(recorded(home).points()), []),
    "columns": State(f"{RUN}/metrics/t.jsonl", lambda home: recorded(home).metrics().task, []),
    "curves": State(f"{RUN}/metrics/t.jsonl", lambda home: report.points(recorded(home), "t"), {}),
}
"""Files of lines: one that cannot be read is left out."""


def put(path: Path, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a shape to a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if SHAPES[shape] is DIRECTORY:
        path.mkdir()
        (path / "file").touch()
        return
    path.write_bytes(SHAPES[shape])
    if SHAPES[shape] is UNREADABLE:  # a mode would not keep root from reading it
        path.write_bytes(b"{}")
        opened = os.open

        def denied(name: Any, *rest: Any, **more: Any) -> int:
            if str(name) == str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return opened(name, *rest, **more)

        monkeypatch.setattr(os, "open", denied)


def reset_by_its_message(read: Callable[[Path], Any], home: Path, path: Path) -> None:
    """A state is refused with exit code 4 and its path; the command of the message resets it."""
    with pytest.raises(BatchtrainError) as raised:
        read(home)
    assert raised.value.exit_code == 4
    assert str(path) in str(raised.value)
    commands = re.findall(r"`((?:mv|rm|mkdir) [^`]*)`", str(raised.value))
    assert commands
    subprocess.run(commands[-1], shell=True, check=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", REFUSED)
def test_a_damaged_state_is_refused_with_the_command_that_resets_it(
    name: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (name, shape) == ("key", "null"):
        pytest.skip("`null` is a key in base64")
    state = REFUSED[name]
    tmp_path.chmod(0o700)
    with monkeypatch.context() as patch:
        put(tmp_path / state.path, shape, patch)
        reset_by_its_message(state.read, tmp_path, tmp_path / state.path)
    assert state.read(tmp_path) == state.without


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", IGNORED)
def test_a_damaged_state_that_can_be_made_again_is_ignored(
    name: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "file").touch()
    put(tmp_path / IGNORED[name].path, shape, monkeypatch)
    assert IGNORED[name].read(tmp_path) == IGNORED[name].without


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LINES)
def test_a_damaged_line_is_left_out_and_a_damaged_file_of_lines_is_refused(
    name: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = LINES[name]
    with monkeypatch.context() as patch:
        put(tmp_path / state.path, shape, patch)
        if SHAPES[shape] in (DIRECTORY, UNREADABLE):
            reset_by_its_message(state.read, tmp_path, tmp_path / state.path)
        else:
            assert state.read(tmp_path) == state.without
    assert state.read(tmp_path) == state.without


@pytest.mark.parametrize("name", LINES)
def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "MOST_LINE", 1 << 10)
    path = tmp_path / LINES[name].path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"0" * (1 << 12))
    reset_by_its_message(LINES[name].read, tmp_path, path)


@pytest.mark.parametrize("name", [LOCK_FILE, KEPT_FILE, KEY_FILE, DATABASE, mapped_images.LOCK_FILE, LOG, "accounts"])
def test_an_emulator_with_a_directory_or_a_file_in_place_of_its_own_is_reset_by_its_message(
    name: str, tmp_path: Path
) -> None:
    home = tmp_path / "emulator"
    started(home)
    (home / name).unlink(missing_ok=True)
    readers: dict[str, Callable[[Path], Any]] = {
        LOG: lambda home: server.spawn(Settings(home, port=0)),
        "accounts": lambda home: started(home / "accounts" / "other"),
        mapped_images.LOCK_FILE: lambda home: mapped_images.unmap(home, "x"),
    }
    if name == "accounts":
        (home / name).write_text("[1, 2]")
    else:
        (home / name).mkdir()
    reset_by_its_message(readers.get(name, started), home, home / name)
    started(home)


@pytest.mark.parametrize("statement", [
    "UPDATE meta SET value = 'rubbish' WHERE name = 'schema'",
    "UPDATE meta SET value = '[1, 2]' WHERE name = 'schema'",
    "INSERT OR REPLACE INTO meta VALUES ('last_seq', 'rubbish')",
    "INSERT OR REPLACE INTO meta VALUES ('clock', '[1, 2]')",
    "INSERT OR REPLACE INTO meta VALUES ('clock', 'rubbish')",
    "INSERT INTO record VALUES ('pool', '', 'p', 'rubbish')",
    "INSERT INTO record VALUES ('node', 'no-such-pool', 'n', x'80')",
    "DROP TABLE record; CREATE TABLE record (other TEXT)",
    "DROP TABLE meta; CREATE TABLE meta (other TEXT)",
])  # fmt: skip
def test_a_database_with_rubbish_in_it_is_reset_by_its_message(statement: str, tmp_path: Path) -> None:
    home = tmp_path / "emulator"
    started(home)
    with sqlite3.connect(home / DATABASE) as database:
        database.executescript(statement)
    database.close()
    reset_by_its_message(started, home, home / DATABASE)
    started(home)


@pytest.mark.parametrize("size", [20, 100, 4096, 6000])
def test_a_truncated_database_is_reset_by_its_message(size: int, tmp_path: Path) -> None:
    home = tmp_path / "emulator"
    started(home)
    os.truncate(home / DATABASE, size)
    reset_by_its_message(started, home, home / DATABASE)
    started(home)


def test_an_emulator_stops_although_the_record_of_another_account_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "emulator"
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_DIR", str(home))
    with Emulator(Settings(home, port=0), FakeMachine.open):
        put(home / "accounts" / "other" / STATUS_FILE, "list", monkeypatch)
        stopped = CliRunner().invoke(root, ["emulator", "stop"])
        assert isinstance(stopped.exception, DamagedState)
        assert server.status(home) is None


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in ("fields", "not-utf-8")])
def test_a_damaged_catalog_of_the_user_is_refused_and_made_anew(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(home: Path) -> Catalog:
        return catalog_file.load(None, {"XDG_CONFIG_HOME": str(home)})

    path = tmp_path / "batchtrain" / "catalog.yaml"
    with monkeypatch.context() as patch:
        put(path, shape, patch)
        if SHAPES[shape] is DIRECTORY:  # no catalog
            assert read(tmp_path) == Catalog()
        else:
            reset_by_its_message(read, tmp_path, path)
    assert read(tmp_path) == Catalog()
