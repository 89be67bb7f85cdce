"""What a person gets for bad input: one clear message, the right exit code, nothing left running."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from batchtrain.plan import Plan, Step
from tests.submitting import carry_out
from tests.waiting import GUARD, until

from .conftest import SCRIPT, left_running

POOL = """\
pool_specification:
  id: p
  vm_configuration:
    platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
"""
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


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("pool.yaml", "", "pool.yaml:1:1: error: the file is empty"),
        ("pool.yaml", POOL + "  vm_count: [\n", "YAML cannot be read"),
        ("pool.yaml", POOL.replace("vm_size", "vm_sise"), "pool.yaml:5:3: error: .*Did you mean `vm_size`"),
        ("pool.yaml", POOL.replace("dedicated: 1", "dedicated: one"), "pool.yaml:6:25: error: .*not a whole number"),
        ("pool.yaml", POOL + "  id: q\n", "pool.yaml:7:3: error: `id` is set twice, first in line 2"),
        ("pool.yaml", POOL.replace("D2S_V5", "D2S_V55"), "not in the catalogue; did you mean Standard_D2"),
        ("pool.yaml", re.sub(r"vm_configuration:\n.*", "vm_configuration: {}", POOL), "no image is named"),
        ("jobs.yaml", JOBS + "    multi_instance: {num_instances: lots}\n", "`lots` is not a number of instances"),
    ],
)
def test_a_configuration_error_has_its_place_and_reason(
    file: str, content: str, message: str, recipe: Path, batchtrain: Any
) -> None:
    (recipe / file).write_text(content, encoding="utf-8")
    done = batchtrain("config", "validate", str(recipe), code=2)
    assert re.search(message, done.stderr), done.stderr


def test_a_missing_file_is_named(recipe: Path, batchtrain: Any) -> None:
    (recipe / "jobs.yaml").unlink()
    assert (
        "a jobs.yaml with `job_specifications` is missing"
        in batchtrain("jobs", "add", str(recipe), "--local", code=2).stderr
    )


def test_a_pool_alone_is_valid_and_the_files_that_were_read_are_named(recipe: Path, batchtrain: Any) -> None:
    (recipe / "jobs.yaml").unlink()
    assert "is valid (pool.yaml)" in batchtrain("config", "validate", str(recipe)).stdout.replace("config.yaml, ", "")


def test_problems_are_json_on_request(recipe: Path, batchtrain: Any) -> None:
    (recipe / "pool.yaml").write_text(POOL.replace("vm_size", "vm_sise"), encoding="utf-8")
    found = json.loads(batchtrain("config", "validate", str(recipe), "-o", "json", code=2).stdout)
    assert found["valid"] is False
    assert {problem["rule"] for problem in found["problems"]} == {"unknown-key"}


def test_nowhere_to_run_names_both_next_commands(recipe: Path, batchtrain: Any) -> None:
    said = batchtrain("run", str(recipe), code=2).stderr
    assert "--local" in said
    assert "AZURE_BATCH_ACCOUNT" in said


def test_a_typed_command_that_is_not_there_is_a_usage_error(batchtrain: Any) -> None:
    assert "No such command 'pol'" in batchtrain("pol", "list", code=2).stderr


def test_a_taken_port_is_said(batchtrain: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = batchtrain("emulator", "start", "--port", str(port), code=2).stderr
    assert str(port) in said
    assert not left_running(batchtrain.home)


def test_a_wrong_key_is_refused_with_the_next_step(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    status = json.loads(batchtrain("emulator", "status", "-o", "json").stdout)
    wrong = {
        "AZURE_BATCH_ACCOUNT": status["account"],
        "AZURE_BATCH_ENDPOINT": status["endpoint"],
        "AZURE_BATCH_ACCESS_KEY": base64.b64encode(b"wrong").decode(),
    }
    said = batchtrain("pool", "list", environment=wrong, code=4).stderr
    assert "AuthenticationFailed" in said
    assert "check the account's name and key" in said


def test_a_service_that_is_not_there_is_unreachable(batchtrain: Any) -> None:
    nobody = {
        "AZURE_BATCH_ACCOUNT": "a",
        "AZURE_BATCH_ENDPOINT": "http://127.0.0.1:9",
        "AZURE_BATCH_ACCESS_KEY": base64.b64encode(b"x").decode(),
    }
    assert "does not answer" in batchtrain("pool", "list", environment=nobody, code=5).stderr


def test_what_is_not_there_has_its_own_exit_code(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    assert "JobNotFound" in batchtrain("jobs", "show", "nothing", "--local", code=3).stderr


def test_a_failed_task_is_exit_code_ten(recipe: Path, batchtrain: Any) -> None:
    said = batchtrain("run", command(recipe, "echo broken >&2; exit 3"), "--local", code=10).stderr
    assert "task j/t failed on node" in said
    assert "exit code 3" in said
    assert "broken" in said
    assert not left_running(batchtrain.home)


@pytest.mark.slow
def test_a_run_that_is_too_long_leaves_all_as_it_is_and_says_how_to_go_on(recipe: Path, batchtrain: Any) -> None:
    said = batchtrain("run", command(recipe, "sleep 30"), "--local", "--timeout", "1", code=6).stderr
    assert "waiting for the tasks of job j took longer than 1 s" in said
    assert re.search(r"wait: \S*batchtrain jobs wait j --local\n", said)
    assert json.loads(batchtrain("jobs", "show", "j", "--local", "-o", "json").stdout)["running"] == 1
    for words in re.findall(r"delete: \S*batchtrain (.*)", said):
        batchtrain(*words.split(), "-y")
    assert json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout) == []


@pytest.mark.slow
def test_a_key_that_is_refused_while_a_run_is_followed_ends_it_with_one_sentence_and_deletes_nothing(
    recipe: Path, batchtrain: Any
) -> None:
    batchtrain("emulator", "start", "--port", "0")
    running = batchtrain.start("run", command(recipe, "echo begun; sleep 1d"), "--local")
    assert running.stdout.readline() == "begun\n"
    batchtrain("emulator", "fault", "add", "skew", "--seconds", "86400")  # every signature is refused
    _, said = running.communicate(timeout=GUARD)
    assert running.returncode == 4, said
    assert "Traceback" not in said
    assert " ".join(said.split()).count("(AuthenticationFailed)") == 1
    assert "left as they are: job j, pool p" in said and "deleted" not in said
    batchtrain("emulator", "fault", "clear")
    assert json.loads(batchtrain("jobs", "show", "j", "--local", "-o", "json").stdout)["running"] == 1


def test_a_failed_start_task_shows_its_last_lines(recipe: Path, batchtrain: Any) -> None:
    prep = "  additional_node_prep: {commands: {pre: ['echo this broke >&2', 'exit 4']}}\n"
    (recipe / "pool.yaml").write_text(POOL + prep, encoding="utf-8")
    said = batchtrain("run", str(recipe), "--local", code=4).stderr
    assert "the start task failed on node" in said
    assert "this broke" in said


@pytest.mark.slow
def test_a_job_that_is_there_already_is_refused_with_the_way_out(recipe: Path, batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    batchtrain("pool", "add", "--configdir", str(recipe), "--local")
    batchtrain("jobs", "add", "--configdir", str(recipe), "--local")
    said = batchtrain("jobs", "add", "--configdir", str(recipe), "--local", code=4).stderr
    assert "job j is completed, and takes no more tasks" in said
    assert "--recreate" in said


def test_an_image_that_nothing_stands_for_is_refused_before_the_pool_is_made(recipe: Path, batchtrain: Any) -> None:
    (recipe / "config.yaml").write_text("global_resources: {docker_images: [a/b:1]}\n", encoding="utf-8")
    (recipe / "jobs.yaml").write_text(JOBS + "    docker_image: a/b:1\n", encoding="utf-8")
    said = batchtrain("run", str(recipe), "--local", code=2).stderr
    assert "emulator images map a/b:1 PREFIX" in said
    assert "added pool" not in said


@pytest.mark.slow
def test_deleting_without_a_terminal_needs_a_yes(recipe: Path, batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    batchtrain("pool", "add", "--configdir", str(recipe), "--local")
    assert "add -y" in batchtrain("pool", "del", "p", "--local", code=2).stderr
    batchtrain("pool", "del", "p", "--local", "-y")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_deletes_what_it_made(number: int, recipe: Path, batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    process = batchtrain.start("run", command(recipe, "echo started; sleep 60"), "--local")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "deleted pool p" in said
    assert not left_running(batchtrain.home)
    assert json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout) == []


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
    assert "deleted pool p" in done.stderr


def test_a_command_whose_output_nobody_reads_ends_in_silence_as_by_the_signal(batchtrain: Any) -> None:
    done = unread(batchtrain, "config", "checks")
    assert (done.stderr, done.returncode) == ("", 141)


@pytest.mark.slow
def test_a_service_that_goes_mid_wait_is_waited_for_until_the_deadline(recipe: Path, batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    pid = json.loads(batchtrain("emulator", "status", "-o", "json").stdout)["pid"]
    process = batchtrain.start("run", command(recipe, "echo started; sleep 60"), "--local", "--timeout", "10")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    os.kill(pid, signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 5, said
    assert "Traceback" not in said
    assert re.search(r"wait: \S*batchtrain jobs wait j --local\n", said)
    assert re.search(r"delete: \S*batchtrain pool del p --local\n", said)
    until(lambda: not left_running(batchtrain.home))


@pytest.mark.slow
def test_a_run_whose_own_emulator_dies_starts_no_other(recipe: Path, batchtrain: Any) -> None:
    process = batchtrain.start("run", command(recipe, "echo started; sleep 60"), "--local", "--timeout", "10")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    os.kill(json.loads((batchtrain.home / "emulator.json").read_text(encoding="utf-8"))["pid"], signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 5, said
    assert "batchtrain pool del p --local" in said
    batchtrain("emulator", "status", code=3)


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
def test_a_files_absence_is_not_silence(recipe: Path, batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    batchtrain("pool", "add", "--configdir", str(recipe), "--local")
    batchtrain("jobs", "add", "--configdir", str(recipe), "--local")
    batchtrain("jobs", "wait", "j", "--local")
    for words in (["nojob", "--task", "t"], ["j", "--task", "nosuch"], ["j", "--file", "nosuch.txt"]):
        batchtrain("jobs", "logs", *words, "--local", code=3)
        batchtrain("jobs", "logs", *words, "--local", "-f", code=3)


@pytest.mark.slow
def test_a_job_that_was_ended_before_its_tasks_ran_is_a_failure(recipe: Path, batchtrain: Any) -> None:
    jobs = (
        JOBS.replace("auto_complete: true", "auto_complete: false")
        + "  - {id: u, command: sleep 60, depends_on: [t]}\n"
    )
    (recipe / "jobs.yaml").write_text(jobs.replace("echo hello", "sleep 60"), encoding="utf-8")
    batchtrain("emulator", "start", "--port", "0")
    batchtrain("pool", "add", "--configdir", str(recipe), "--local")
    batchtrain("jobs", "add", "--configdir", str(recipe), "--local")
    batchtrain("jobs", "term", "j", "--local", "-y")
    assert "task j/" in batchtrain("jobs", "wait", "j", "--local", code=10).stderr


def test_a_document_on_stdout_is_a_document_also_when_a_task_failed(recipe: Path, batchtrain: Any) -> None:
    done = batchtrain("run", command(recipe, "echo hello; exit 3"), "--local", "-o", "json", code=10)
    assert [task["exit_code"] for task in json.loads(done.stdout)] == [3]
    assert "hello" in done.stderr


def test_an_option_wins_over_its_variable_wherever_it_stands(recipe: Path, batchtrain: Any) -> None:
    variables = {"BATCHTRAIN_OUTPUT": "yaml", "BATCHTRAIN_CONFIGDIR": "/nonexistent"}
    before = batchtrain("-o", "json", "--configdir", str(recipe), "config", "validate", environment=variables)
    after = batchtrain("config", "validate", "-o", "json", "--configdir", str(recipe), environment=variables)
    assert json.loads(before.stdout) == json.loads(after.stdout)


@pytest.mark.slow
def test_an_id_is_never_a_path(recipe: Path, batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    batchtrain("pool", "add", "--configdir", str(recipe), "--local")
    batchtrain("jobs", "add", "--configdir", str(recipe), "--local")
    batchtrain("jobs", "del", "j/tasks/t", "--local", "-y", code=3)
    assert len(json.loads(batchtrain("jobs", "tasks", "j", "--local", "-o", "json").stdout)) == 1


def test_the_services_reason_for_a_refusal_is_shown(batchtrain: Any) -> None:
    batchtrain("emulator", "start", "--port", "0")
    status = json.loads(batchtrain("emulator", "status", "-o", "json").stdout)
    from batchtrain.config.types import Secret
    from batchtrain.service import connect

    client = connect.connect(connect.account(status["endpoint"], status["account"], Secret(status["key"])))
    with pytest.raises(Exception, match="PropertyName: "):
        list(carry_out(client, Plan((Step("pool.add", "not valid", {"id": "not valid", "vmSize": "x"}),))))


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
