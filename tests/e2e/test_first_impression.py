"""What a newcomer sees: the first command's screen, help and completion, and errors for people and for programs."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest

from .conftest import SCRIPT, pool_file

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
COMMAND = "job_specifications[0].tasks[0].command"
TRAIN = "$AZ_BATCH_TASK_SHARED_DIR/train.py"

pytestmark = pytest.mark.process


def on_screen(shell: Any, *arguments: str) -> tuple[list[str], int]:
    """stdout and stderr as a terminal shows them, one after the other as they come, and the exit code."""
    done = subprocess.run(
        [str(SCRIPT), *arguments], cwd=shell.cwd, env={**shell.environment, "PATH": f"{SCRIPT.parent}:/usr/bin:/bin"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.stdout.splitlines(), done.returncode


@pytest.mark.mpi
def test_the_first_command_fits_a_screen_and_ends_with_the_next_command(trained: Any) -> None:
    trained.cwd = RECIPES.parent
    lines, code = on_screen(trained, "run", "recipes/mpi4py-MPICH", "--local")
    text = "\n".join(lines)
    assert code == 0, text
    results = next(line for line in lines if line.startswith("results: "))
    assert max(len(line) for line in lines if line != results and not line.startswith("  model ")) <= 80
    between = [line for line in lines if ": steady, 1 idle, 1 starting of 2" in line]  # on a machine that is busy
    assert len(lines) - len(between) <= 30
    assert "pool digits-mpich: 2 nodes of STANDARD_D4DS_V5" in lines
    assert len(re.findall(r"^node tvmps_[0-9a-f]{4}…_d is ready \(\d of 2\)$", text, flags=re.M)) == 2
    assert len(re.findall(r"^epoch \d+ loss [\d.]+ accuracy [\d.]+$", text, flags=re.M)) == 10
    assert lines[-1] == "  keep the pool next: batchtrain run recipes/mpi4py-MPICH --reuse --local"
    assert re.match(r"results: \S+/runs/\S+", results)
    assert re.search(r"^digits succeeded after \d+ s\n  loss +[\d.]+\n  (test_)?accuracy ", text, flags=re.M)


@pytest.mark.mpi
def test_ranks_use_no_interface_that_may_go_away(trained: Any) -> None:
    """A container network that came and went beside a training took MPICH's connections with it."""
    told = "job_specifications[0].tasks[0].environment_variables.FI_LOG_LEVEL=info"
    lines, code = on_screen(trained, "run", str(RECIPES / "mpi4py-MPICH"), "--local", "--set", told)
    assert code == 0
    assert {re.sub(".*Opened fabric: ", "", line) for line in lines if "Opened fabric" in line} == {"127.0.0.1/32"}


@pytest.mark.mpi
def test_a_failed_rank_is_told_with_its_exception_and_where_the_rest_is(trained: Any) -> None:
    failing = f"{COMMAND}=python -m mpi4py {TRAIN} --fail-rank 3 --fail-by raise"
    lines, code = on_screen(trained, "run", str(RECIPES / "mpi4py-MPICH"), "--local", "--set", failing)
    assert code == 10
    (failure,) = (number for number, line in enumerate(lines) if line.startswith("batchtrain: task"))
    assert re.fullmatch(
        r"batchtrain: task digits/train failed: rank 3 on node tvmps_[0-9a-f]{4}…_d: RuntimeError: rank 3 was told to"
        r" fail \(exited with code 1 through MPI_Abort\)",
        lines[failure],
    )
    assert re.fullmatch(
        r"raised at .*recipes/mpi4py-MPICH/src/train.py:\d+; its output is above,"
        r" and in \S+/runs/\S+",
        lines[failure + 1],
    )
    assert lines[failure + 2].startswith("cause  the program raised RuntimeError: rank 3 was told to fail")
    assert lines[-1].startswith("next   ")
    assert [line for line in lines if "killed by signal" in line] == []


def test_an_error_is_one_document_for_a_program(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    found = json.loads(batchtrain("jobs", "show", "nosuch", "--local", "-o", "json", code=3).stderr)
    assert (found["code"], found["exit_code"]) == ("JobNotFound", 3)
    assert "batchtrain jobs list --local`" in found["message"]
    assert json.loads(batchtrain("jobs", "lst", "-o", "json", code=2).stderr)["code"] == "UsageError"


def test_a_failed_task_is_one_document_at_the_end(batchtrain: Any, tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(pool_file("p"))
    program = "import nosuch"
    (tmp_path / "jobs.yaml").write_text(
        f"job_specifications: [{{id: j, tasks: [{{id: t, command: \"python3 -c '{program}'\"}}]}}]\n"
    )
    printed, narrated = batchtrain.start("run", "--local", "-o", "json").communicate(timeout=60)
    assert [task["exit_code"] for task in json.loads(printed)] == [1]
    found = json.loads(narrated.splitlines()[-1])
    assert (found["code"], found["task"], found["task_exit_code"], found["exit_code"]) == ("TaskFailed", "j/t", 1, 10)
    assert found["cause"] == "ModuleNotFoundError: No module named 'nosuch'"
    assert re.fullmatch(r"tvmps_[0-9a-f]{64}_d", found["node"])


def test_a_terminal_that_knows_ascii_only_is_no_bug(batchtrain: Any) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    assert "\\u2026" in batchtrain("recipe", "show", "JAX", environment=ascii_only).stdout
    listed = json.loads(batchtrain("recipe", "show", "JAX", "-o", "json", environment=ascii_only).stdout)
    assert "…" in listed["readme"]


def test_a_full_disk_behind_stdout_is_said(batchtrain: Any) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(SCRIPT), "recipe", "list"], env=batchtrain.environment, stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("batchtrain: No space left on device")
    assert "Traceback" not in done.stderr


def test_a_failed_tasks_logs_are_shown_with_the_word_that_it_failed(batchtrain: Any, tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(pool_file("p"))
    (tmp_path / "jobs.yaml").write_text("job_specifications: [{id: j, tasks: [{id: t, command: echo a; exit 3}]}]\n")
    ran = batchtrain("run", "--local", "--keep", code=10)
    assert "left as they are: job j, pool p" in ran.stderr
    assert "its last lines" not in ran.stderr  # they were shown as they came
    for more in ((), ("--follow",)):
        shown = batchtrain("jobs", "logs", "j", "--local", *more)
        assert shown.stdout == "a\n"
        assert "task j/t failed with exit code 3; `" in shown.stderr
        assert "batchtrain jobs logs j --task t --file stderr.txt --local` shows why" in shown.stderr


def test_the_emulators_status_has_names_as_all_documents_have(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    status = json.loads(batchtrain("emulator", "status", "-o", "json").stdout)
    assert {"data_dir", "up_seconds", "active_tasks", "clock"} <= set(status)
    assert [name for name in (*status, *status["clock"]) if name != name.lower()] == []


@pytest.mark.slow
def test_a_run_opens_its_page_in_a_dashboard_that_outlives_it(tmp_path: Path, batchtrain: Any) -> None:
    (tmp_path / "pool.yaml").write_text(pool_file("one"))
    task = {"id": "train", "command": "echo hello"}
    jobs = {"job_specifications": [{"id": "digits", "auto_complete": True, "tasks": [task]}]}
    (tmp_path / "jobs.yaml").write_text(json.dumps(jobs))
    browser_ = tmp_path / "browser"
    browser_.write_text(f'#!/bin/sh\nfile="$1"; cp "${{file#file://}}" {tmp_path}/opened\n')
    browser_.chmod(0o700)
    ran = batchtrain("run", str(tmp_path), "--local", "--dashboard", environment={"BROWSER": f"{browser_} %s"})
    (link,) = re.findall(r"^watch it at (\S+)$", ran.stderr, flags=re.M)
    url, name, token = re.fullmatch(r"(http://[^/]+)/runs/([^#]+)#token=(.+)", link).groups()  # type: ignore[union-attr]
    try:
        assert link in (tmp_path / "opened").read_text()
        headers = {"Authorization": f"Bearer {token}"}
        with urlopen(Request(f"{url}/api/v1/runs/{name}", headers=headers)) as answer:
            assert json.load(answer)["state"] == "completed"
        second = batchtrain("run", str(tmp_path), "--local")
        assert f"watch it at {url}/runs/" in second.stderr and token not in second.stderr
    finally:
        port = int(url.rpartition(":")[2])
        (process,) = (row for row in psutil.process_iter() if listens(row, port))
        process.send_signal(2)
        process.wait()


def listens(process: psutil.Process, port: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(row.laddr.port == port and row.status == "LISTEN" for row in process.net_connections("tcp"))
    return False
