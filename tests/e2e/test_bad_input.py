"""What a person gets for bad input: one clear message, the right exit code, nothing left running."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import SCRIPT, pool_file

POOL = pool_file("p")
JOBS = """\
job_specifications:
- id: j
  auto_complete: true
  tasks:
  - id: t
    command: echo hello
"""

pytestmark = pytest.mark.process


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A one-line recipe on one node."""
    place = tmp_path / "recipe"
    place.mkdir()
    (place / "pool.yaml").write_text(POOL, encoding="utf-8")
    (place / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    return place


def command(recipe: Path, text: str) -> str:
    (recipe / "jobs.yaml").write_text(JOBS.replace("echo hello", text), encoding="utf-8")
    return str(recipe)


def unread(shell: Any, *words: str) -> subprocess.CompletedProcess[str]:
    """A command whose stdout is a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [SCRIPT, *words], cwd=shell.cwd, env=shell.environment, stdout=writer, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    finally:
        os.close(writer)


def test_a_run_whose_output_nobody_reads_goes_on_to_its_own_result(recipe: Path, batchtrain: Any) -> None:
    done = unread(batchtrain, "run", command(recipe, "echo one; echo two; exit 3"), "--local")
    assert done.returncode == 10, done.stderr
    assert "deleted job j, pool p" in done.stderr


def test_a_command_whose_output_nobody_reads_ends_in_silence_as_by_the_signal(batchtrain: Any) -> None:
    done = unread(batchtrain, "config", "checks")
    assert (done.stderr, done.returncode) == ("", 141)


@pytest.mark.slow
def test_the_account_comes_from_the_same_directory_as_the_id(recipe: Path, batchtrain: Any) -> None:
    (recipe / "credentials.yaml").write_text(
        "credentials: {batch: {account_service_url: 'http://127.0.0.1:9', account: mine, account_key: a2V5}}\n",
        encoding="utf-8",
    )
    batchtrain.cwd = recipe
    other = {"AZURE_BATCH_ENDPOINT": "http://127.0.0.1:10", "AZURE_BATCH_ACCESS_KEY": "a2V5"}
    assert "on account mine" in batchtrain("pool", "del", "-y", code=5, environment=other).stderr
    assert "on account mine" in batchtrain("pool", "del", "p", "-y", code=5, environment=other).stderr


@pytest.mark.slow
def test_a_job_that_a_user_ended_before_its_tasks_is_no_success(recipe: Path, batchtrain: Any) -> None:
    jobs = (
        JOBS.replace("auto_complete: true", "auto_complete: false")
        + "  - {id: u, command: sleep 60, depends_on: [t]}\n"
    )
    (recipe / "jobs.yaml").write_text(jobs.replace("echo hello", "sleep 60"), encoding="utf-8")
    batchtrain("emulator", "start", "--port", "0")
    batchtrain("pool", "add", "--configdir", str(recipe), "--local")
    batchtrain("jobs", "add", "--configdir", str(recipe), "--local")
    batchtrain("jobs", "term", "j", "--local", "-y")
    told = batchtrain("jobs", "wait", "j", "--local", code=130).stderr
    assert "task j/t was terminated" in told and "job j was terminated by a user" in told


@pytest.mark.parametrize("closed", ["stdin", "stdout"])
def test_a_closed_stream_is_no_bug(closed: str, batchtrain: Any) -> None:
    redirect = {"stdin": "<&-", "stdout": ">&-"}[closed]
    done = subprocess.run(
        ["bash", "-c", f"{SCRIPT} config checks {redirect}"],
        env=batchtrain.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


def test_a_library_of_notebooks_does_not_slow_validation(recipe: Path, tmp_path: Path, batchtrain: Any) -> None:
    """jsonschema imports `rfc3987_syntax` for a format that no schema of ours has, and takes a second for it."""
    (recipe / "pool.yaml").write_text(POOL.replace("vm_size", "vm_sise"), encoding="utf-8")
    (tmp_path / "rfc3987_syntax.py").write_text("raise SystemExit('imported')")
    path = {"PYTHONPATH": str(tmp_path)}
    assert "imported" not in batchtrain("config", "validate", str(recipe), code=2, environment=path).stderr


@pytest.mark.parametrize(("variables", "painted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_that_want_it(
    variables: dict[str, str], painted: bool, recipe: Path, batchtrain: Any
) -> None:
    (recipe / "pool.yaml").write_text(POOL.replace("vm_size", "vm_sise"), encoding="utf-8")
    ours, theirs = pty.openpty()
    environment = {**batchtrain.environment, "TERM": "xterm", **variables}
    environment.pop("NO_COLOR", None) if not variables else None
    process = subprocess.Popen([str(SCRIPT), "config", "validate", str(recipe)], stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # how a terminal says that the other side is gone
        pass
    os.close(ours)
    assert process.wait() == 2
    assert (b"\x1b[" in said) is painted
