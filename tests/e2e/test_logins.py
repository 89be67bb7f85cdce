"""Commands in running tasks and on nodes, and forwarded ports: on the emulator, and by the `ssh` that Azure needs."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import dashboards
from tests.browsers import browser
from tests.waiting import GUARD, until

from .conftest import Shell, pool_file

POOL = pool_file("p", "max_tasks_per_node: 2", "ssh: {username: al}")
SERVER = """\
import socket
server = socket.create_server(("127.0.0.1", 0))
open("port", "w").write(str(server.getsockname()[1]))
while True:
    connection, _ = server.accept()
    question = b""
    while data := connection.recv(9):
        question += data
    connection.sendall(b"you said " + question)
    connection.close()
"""
JOBS = """\
job_specifications:
- id: j
  tasks:
  - id: server
    source: src
    environment_variables: {MINE: 'of the task'}
    command: 'python3 $AZ_BATCH_TASK_SHARED_DIR/server.py'
  - {id: done, command: 'true'}
"""
pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def running(batchtrain: Shell, tmp_path: Path) -> Shell:
    """The command line with a task that runs a server on a port, and writes its number to a file."""
    recipe = tmp_path / "recipe"
    (recipe / "src").mkdir(parents=True)
    (recipe / "src/server.py").write_text(SERVER, encoding="utf-8")
    (recipe / "pool.yaml").write_text(POOL, encoding="utf-8")
    (recipe / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    batchtrain.environment.update(BATCHTRAIN_LOCAL="1", BATCHTRAIN_CONFIGDIR=str(recipe))
    batchtrain("pool", "add")
    batchtrain("jobs", "add")
    until(lambda: "port" in batchtrain("jobs", "files", "j", "server").stdout)
    until(lambda: json.loads(batchtrain("jobs", "tasks", "j", "--state", "completed", "-o", "json").stdout))
    return batchtrain


def node_of(shell: Shell) -> str:
    (node,) = json.loads(shell("pool", "show", "-o", "json").stdout)["nodes"]
    return str(node["id"])


def test_a_command_runs_in_the_directory_and_with_the_environment_of_a_task(running: Shell) -> None:
    assert "port" in running("jobs", "exec", "j", "--", "ls", "-a").stdout.split()
    line = 'echo "$AZ_BATCH_TASK_ID: $MINE: $(basename $PWD)"; exit 7'
    assert running("jobs", "exec", "--task", "server", "j", line, code=7).stdout == "server: of the task: wd\n"
    assert running("jobs", "exec", "j", "printf", "%s|", "a b", "$c").stdout == "a b|$c|"


def test_a_task_that_does_not_run_and_a_missing_command_are_refused(running: Shell) -> None:
    refused = running("jobs", "exec", "--task", "done", "j", "ls", code=2).stderr
    assert "task j/done is completed, not running" in refused
    assert "jobs files j done" in refused
    assert "give a command after the job j" in running("jobs", "exec", "j", "--", code=2).stderr


def test_a_command_runs_on_a_node(running: Shell) -> None:
    node = node_of(running)
    assert running("pool", "ssh", node, "echo $HOME; exit 3", code=3).stdout.endswith("/home/_azbatch\n")
    assert running("pool", "ssh", "--pool-id", "p", node, "--", "echo", "-n", "it's").stdout == "it's"
    assert "pool p has no node `other`" in running("pool", "ssh", "other", code=3).stderr


def test_a_port_of_a_node_is_forwarded_until_ctrl_c(running: Shell) -> None:
    port = running("jobs", "exec", "j", "cat", "port").stdout
    process = running.start("pool", "forward", node_of(running), port, "--local-port", "0", "-o", "jsonl")
    assert process.stdout is not None
    opened = json.loads(process.stdout.readline())
    for question in (b"one", b"two"):
        with socket.create_connection((opened["address"], opened["port"])) as connection:
            connection.sendall(question)
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answer:
                assert answer.read() == b"you said " + question
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    taken = running("pool", "forward", node_of(running), port, code=2).stderr
    assert f"port {port} of this machine: " in taken
    assert "--local-port 0" in taken


HANGS = """\
import os, time

def wait_for_data():
    open("stands", "w").close()
    time.sleep(86400)

def train():
    print("step 1/10 loss 1", flush=True)
    if "1" in (os.environ.get("RANK"), os.environ.get("PMI_RANK")):
        wait_for_data()
    time.sleep(86400)

train()
"""
GANG_POOL = POOL.replace("{dedicated: 1}", "{dedicated: 2}").replace(
    "max_tasks_per_node: 2", "inter_node_communication_enabled: true"
)
GANG = """\
job_specifications:
- id: gang
  tasks:
  - id: train
    source: src
    multi_instance: {num_instances: 2, BLOCK, pre_execution_command: 'PATH=MPI/bin:$PATH'}
    command: 'PYTHON $AZ_BATCH_TASK_SHARED_DIR/train.py'
"""


PYTORCH = "pytorch: {processes_per_node: 1}"


def hang(batchtrain: Shell, recipe: Path, block: str, mpi: str) -> None:
    """Start a gang whose rank 1 stands in a function."""
    (recipe / "src").mkdir(parents=True)
    (recipe / "src/train.py").write_text(HANGS, encoding="utf-8")
    (recipe / "pool.yaml").write_text(GANG_POOL, encoding="utf-8")
    jobs = GANG.replace("BLOCK", block).replace("PYTHON", sys.executable).replace("MPI", mpi)
    (recipe / "jobs.yaml").write_text(jobs, encoding="utf-8")
    batchtrain.environment.update(BATCHTRAIN_LOCAL="1", BATCHTRAIN_CONFIGDIR=str(recipe))
    batchtrain("pool", "add")
    batchtrain("jobs", "add")
    until(lambda: list(batchtrain.home.rglob("gang/*/train/wd/stands")))


@pytest.mark.browser
def test_a_button_of_the_page_shows_where_a_hung_rank_stands(batchtrain: Shell, tmp_path: Path) -> None:
    hang(batchtrain, tmp_path / "recipe", PYTORCH, "/nowhere")
    with dashboards.dashboard(batchtrain.environment, "--local", runs=tmp_path) as running, browser() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(GUARD * 1000)
        page.goto(running.link)
        page.wait_for_selector("main[data-ready]")
        page.goto(f"{running.url}/jobs/gang/tasks/train?view=ranks")
        page.click("button >> text=Show stacks")
        shown = page.inner_text(".document pre")
    assert re.search(r"^rank 1:.*\n  wait_for_data \(", shown, re.M), shown


@pytest.mark.parametrize("block", [PYTORCH, "mpi: {runtime: mpich, processes_per_node: 1}"])
def test_the_stacks_of_a_hung_rank_name_its_function(
    block: str, batchtrain: Shell, mpi_environment: Callable[[str], Path], tmp_path: Path
) -> None:
    hang(batchtrain, tmp_path / "recipe", block, str(mpi_environment("mpich")))
    printed = batchtrain("jobs", "stacks", "gang").stdout
    groups = printed.split("\nrank ")
    assert len(groups) == 2, printed
    (hung,) = [group for group in groups if group.removeprefix("rank ").startswith("1:")]
    assert hung.splitlines()[1].startswith("  wait_for_data (")
    assert "wait_for_data" not in printed.replace(hung, "")
    rows = json.loads(batchtrain("jobs", "stacks", "gang", "-o", "json").stdout)
    assert [(row["rank"], row["node"]) for row in rows] == [("0", "n0"), ("1", "n1")]
