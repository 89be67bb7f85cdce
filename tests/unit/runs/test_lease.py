"""Which process records a run: a living one, one that was killed, one of another host, and no process."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from batchtrain.config.types.settings import Settings
from batchtrain.runs import lease
from batchtrain.runs.lease import ATTEMPTS, EVERY_SECONDS, FILE, STALE_SECONDS, Holder, LeaseRecord
from tests.unit.service.test_local_files import lowest_free
from tests.unit.service.test_retry import Time

TAKES = """
import pathlib, sys
from batchtrain.config.types.settings import Settings
from batchtrain.runs import lease
held = lease.take(pathlib.Path(sys.argv[1]))
print("taken" if held else "not taken", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def other_process(run: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lease of a run until it ends."""
    command = [sys.executable, "-c", TAKES, str(run)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "taken\n"
            yield process
        finally:
            process.kill()


def write(run: Path, *, host: str, age: float = 0.0) -> None:
    """The lease of a process that has no lock; age: of its file, in seconds."""
    (run / FILE).write_bytes(msgspec.json.encode(LeaseRecord(host, 1)))
    time = lease.time.time() - age
    os.utime(run / FILE, (time, time))


def taken(run: Path) -> lease.Lease:
    """The lease of a run, which this process takes."""
    held = lease.take(run)
    assert held is not None
    return held


def recorded(run: Path) -> LeaseRecord:
    """What the file of a lease says."""
    record = lease.read(run)
    assert record is not None
    return record


# --- a process of this host -----------------------------------------------------------------------------------------


def test_a_lease_is_taken_once_at_a_time(tmp_path: Path) -> None:
    held = taken(tmp_path)
    assert lease.take(tmp_path) is None
    held.release()
    assert lease.take(tmp_path) is not None


def test_a_lease_of_another_living_process_is_not_taken(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        assert lease.take(tmp_path) is None
        assert lease.holder(tmp_path) == "process"
        assert recorded(tmp_path).process == process.pid


def test_a_run_whose_process_was_killed_is_lost_and_its_lease_can_be_taken(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        process.kill()
        process.wait()
    assert lease.holder(tmp_path) == "lost"
    assert lease.take(tmp_path) is not None
    assert (lease.holder(tmp_path), recorded(tmp_path).process) == ("process", os.getpid())


def test_a_lock_decides_about_a_process_of_this_host_however_old_the_file_is(tmp_path: Path) -> None:
    assert lease.take(tmp_path) is not None
    os.utime(tmp_path / FILE, (0, 0))
    assert lease.holder(tmp_path) == "process"


def test_a_lease_that_was_released_says_that_its_process_is_gone(tmp_path: Path) -> None:
    held = taken(tmp_path)
    held.release()
    assert lease.holder(tmp_path) == "lost"


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    with other_process(tmp_path):
        before = (tmp_path / FILE).read_bytes(), (tmp_path / FILE).stat().st_mtime_ns
        lease.holder(tmp_path)
        assert ((tmp_path / FILE).read_bytes(), (tmp_path / FILE).stat().st_mtime_ns) == before


def test_the_kinds_that_are_kept_are_read_again(tmp_path: Path) -> None:
    assert lease.take(tmp_path, ("job", "pool")) is not None
    assert recorded(tmp_path).kept_kinds == ("job", "pool")


def test_a_new_lease_replaces_the_whole_text_of_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(msgspec.json.encode(LeaseRecord("h" * 500, 1, ("pool",))))
    assert lease.take(tmp_path) is not None
    record = recorded(tmp_path)
    assert (record.host, record.kept_kinds) == (platform.node(), ("pool",))
    assert lease.take(tmp_path, ()) is None, "this process has it"


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"host":1}'])
def test_without_a_readable_lease_nobody_records_a_run(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    assert (lease.read(tmp_path), lease.holder(tmp_path)) == (None, "none")


# --- another host, and files without locks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "holder"), [(0.0, "other host"), (STALE_SECONDS - 1, "other host"), (STALE_SECONDS, "lost")]
)
def test_the_time_of_the_file_decides_about_a_process_of_another_host(
    tmp_path: Path, age: float, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease.time, "time", lambda: 1_800_000_000.0)
    write(tmp_path, host="another.example", age=age)
    assert lease.holder(tmp_path) == holder


def test_a_lock_of_this_host_says_nothing_about_a_process_of_another_host(tmp_path: Path) -> None:
    taken(tmp_path)
    write(tmp_path, host="another.example", age=STALE_SECONDS + 60)
    assert lease.holder(tmp_path) == "lost"


def _no_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.fixture(params=["no locks", "no module"])
def unlocked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, and a system without flock."""
    if request.param == "no locks":
        monkeypatch.setattr("fcntl.flock", _no_locks)
    else:
        monkeypatch.setattr("batchtrain.state_files.fcntl", None)


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize(("age", "holder"), [(0.0, "process"), (STALE_SECONDS + 60, "lost")])
def test_without_locks_the_time_of_the_file_decides(tmp_path: Path, age: float, holder: Holder) -> None:
    held = taken(tmp_path)
    time = lease.time.time() - age
    os.utime(tmp_path / FILE, (time, time))
    assert lease.holder(tmp_path) == holder
    held.release()


# --- the time of the file -------------------------------------------------------------------------------------------


def test_a_lease_is_touched_again_only_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time()
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=clock.now))
    assert lease.take(tmp_path) is not None
    touched = []
    for seconds in (EVERY_SECONDS - 1, 1.0, 1.0, EVERY_SECONDS - 1):
        clock.sleep(seconds)
        os.utime(tmp_path / FILE, (0, 0))
        lease.touch()
        touched.append((tmp_path / FILE).stat().st_mtime > 0)
    assert touched == [False, True, False, True]


def test_a_lease_whose_file_was_deleted_is_touched_and_released_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = taken(tmp_path)
    (tmp_path / FILE).unlink()
    monkeypatch.setattr(lease, "EVERY_SECONDS", 0.0)
    lease.touch()
    held.release()


@pytest.mark.parametrize(("owner_metadata", "user"), [(True, "ann"), (False, "")])
def test_a_run_is_marked_with_its_user_and_host_if_the_configuration_allows_it(
    owner_metadata: bool, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease.getpass, "getuser", lambda: "ann")
    marks = lease.marks_here(Settings(owner_metadata=owner_metadata), "r")
    assert (marks.run, marks.user, marks.host) == ("r", user, platform.node() if owner_metadata else "")


def test_a_lease_that_is_locked_is_tried_a_few_times_and_only_the_user_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    before = lowest_free()
    monkeypatch.setattr(lease, "_lock", lambda _: len(pauses) > ATTEMPTS)
    monkeypatch.setattr(lease.time, "sleep", pauses.append)
    assert lease.take(tmp_path) is None
    assert len(pauses) == ATTEMPTS
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert lowest_free() == before


def test_a_lease_that_is_looked_at_or_released_leaves_nothing_open(tmp_path: Path) -> None:
    before = lowest_free()
    held = lease.take(tmp_path)
    assert held is not None and lease.holder(tmp_path) == "process"
    held.release()
    assert lowest_free() == before


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease.getpass, "getuser", lambda: (_ for _ in ()).throw(KeyError("no such user")))
    assert lease.user() == str(os.getuid())
