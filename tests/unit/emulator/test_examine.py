"""What `emulator diagnose` says of an emulator and of this machine."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import pytest

from batchtrain.emulator import examine, server, steering
from batchtrain.emulator.examine import TAIL, Row
from batchtrain.emulator.server import Hint, Status

GIB = 1 << 30
Usage = namedtuple("Usage", "free")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a disk and without programs, where no emulator runs."""
    monkeypatch.setattr("batchtrain.emulator.examine.shutil.disk_usage", lambda path: Usage(5 * GIB))
    monkeypatch.setattr("batchtrain.emulator.examine.shutil.which", lambda name: None)
    monkeypatch.setattr(server, "status", lambda data_dir: None)


def running(monkeypatch: pytest.MonkeyPatch, *hints: Hint, plain: tuple[str, ...] = ()) -> None:
    status = Status("http://127.0.0.1:10010", "acct", "key", 42, Path("d"), Path("d/emulator.log"), *plain)
    monkeypatch.setattr(server, "status", lambda data_dir: status)
    monkeypatch.setattr(server, "hints", lambda data_dir: hints)
    monkeypatch.setattr(steering, "account", lambda status: {"pools": 3})


def rows(data_dir: Path) -> dict[str, Row]:
    return {row.check: row for row in examine.examine(data_dir).rows}


def test_an_emulator_that_does_not_run_is_told_how_to_start(tmp_path: Path) -> None:
    examined = examine.examine(tmp_path)
    assert [row.check for row in examined.rows] == ["running", "directory", "containers", "storage", "log"]
    assert not examined.rows[0].good and "`batchtrain emulator start`" in examined.rows[0].next_step
    assert (examined.log, examined.status) == ("", {})


def test_a_running_emulator_has_its_address_its_counts_and_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(monkeypatch)
    examined = examine.examine(tmp_path)
    assert examined.status == {"pools": 3}
    assert all(row.good for row in examined.rows)
    assert examined.rows[0].fact == "http://127.0.0.1:10010, process 42, account acct"
    assert rows(tmp_path)["isolation of nodes"].fact == "each node has its own namespaces"


def test_nodes_that_are_plain_processes_say_why_and_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, plain=("the kernel forbids it", "set a sysctl"))
    fact = "nodes are plain processes: the kernel forbids it"
    assert rows(tmp_path)["isolation of nodes"] == Row("isolation of nodes", False, fact, "set a sysctl")


def test_tasks_that_wait_for_nothing_are_counted_and_the_first_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(monkeypatch, Hint("j", "a", "no pool"), Hint("k", "b", "no node"))
    fact = "2 tasks wait; j/a: no pool"
    assert rows(tmp_path)["waiting tasks"] == Row("waiting tasks", False, fact, "`batchtrain jobs diagnose j --local`")


@pytest.mark.parametrize(
    ("free", "good", "fact"), [(GIB, True, "1.0 GiB"), (GIB - 1, False, "1.0 GiB"), (0, False, "0.0 GiB")]
)
def test_little_space_is_no_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, good: bool, fact: str
) -> None:
    monkeypatch.setattr(
        "batchtrain.emulator.examine.shutil.disk_usage", lambda path: Usage(free) if path == tmp_path else None
    )
    later = tmp_path / "not" / "yet"
    row = Row("directory", good, f"{fact} are free for {later}", "" if good else "free some space")
    assert rows(later)["directory"] == row


def test_a_directory_that_cannot_be_written_is_no_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchtrain.emulator.examine.os.access", lambda path, mode: False)
    row = rows(tmp_path)["directory"]
    assert (row.good, row.fact, row.next_step) == (
        False, f"{tmp_path} cannot be written", "set BATCHTRAIN_EMULATOR_DIR",
    )  # fmt: skip


def test_a_missing_program_is_no_error_and_says_what_is_used_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "batchtrain.emulator.examine.shutil.which", lambda name: "/bin/node" if name == "node" else None
    )
    docker, node = rows(tmp_path)["containers"], rows(tmp_path)["storage"]
    assert docker[:3] == ("containers", True, "there is no docker") and "emulator images map" in docker.next_step
    assert node == Row("storage", True, "node is /bin/node")


def test_the_end_of_the_log_is_read_and_its_last_problem_is_named(tmp_path: Path) -> None:
    fine = "2026-11-24 12:00:00 INFO an ERROR in a text"
    (tmp_path / "emulator.log").write_text("x" * TAIL + f"\n{fine}\n2026-11-24 12:00:01 WARNING a\n"
                                           "2026-11-24 12:00:02 ERROR b\n")  # fmt: skip
    examined = examine.examine(tmp_path)
    assert len(examined.log) == TAIL
    assert examined.rows[-1][:3] == (
        "log", False, "2 warnings and errors; the last: 2026-11-24 12:00:02 ERROR b",
    )  # fmt: skip
    (tmp_path / "emulator.log").write_text(fine)
    assert rows(tmp_path)["log"] == Row("log", True, "no warning and no error")
