"""Real gangs whose last rank raises an exception after the others have lost it: the cause is that exception."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.diagnosis.evidence import Evidence, ExaminedTask
from batchtrain.diagnosis.findings import judged
from batchtrain.errors import Finding
from batchtrain.frameworks.base import Shape
from batchtrain.launchers.launch import File, Launch
from batchtrain.records import Failure, Job, Task
from batchtrain.records.failure import EXIT_CODE
from batchtrain.records.rank_end import RankEnd
from batchtrain.service.causes import cause
from tests import examples
from tests.contract.gang_of_nodes import Gang, Outcome, gang_of, gang_with_python
from tests.contract.test_mpi_launch import RUNTIMES, VARIABLES
from tests.launching import launched

pytestmark = [pytest.mark.mpi, pytest.mark.process]

PROGRAM = b"""
import os, socket, sys, time, traceback

if "RANK" in os.environ:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
else:
    from mpi4py import MPI
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
address = os.environ["AZ_BATCH_HOST_LIST"].split(",")[-1], int(sys.argv[1])

def lose_the_last_rank():
    while True:
        try:
            connection = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    try:
        if not connection.recv(1):
            raise ConnectionResetError(104, "Connection reset by peer")
    except OSError:
        traceback.print_exc()
    sys.stderr.flush()
    connection.sendall(b"x")
    time.sleep(100000)

if rank != size - 1:
    lose_the_last_rank()
server = socket.create_server(address)
connections = [server.accept()[0] for _ in range(size - 1)]
for connection in connections:
    connection.shutdown(socket.SHUT_WR)
for connection in connections:
    connection.recv(1)
raise ValueError("bad data")
"""
ALONE = b"""
import traceback
try:
    raise ConnectionResetError(104, "Connection reset by peer")
except OSError:
    traceback.print_exc()
raise ValueError("bad data")
"""
LINE = PROGRAM.decode().splitlines().index('raise ValueError("bad data")') + 1


def with_program(launch: Launch, program: bytes = PROGRAM) -> Launch:
    return launch._replace(files=(*launch.files, File("program.py", program)))


def command(gang: Gang) -> str:
    with socket.create_server((gang.addresses[-1], 0)) as server:
        return f'python3 -u "$AZ_BATCH_TASK_SHARED_DIR/program.py" {server.getsockname()[1]}'


def diagnosed(outcome: Outcome, ends: str) -> Finding:
    """The first cause, as the client finds it."""
    end = msgspec.json.decode(ends.splitlines()[0], type=RankEnd) if ends else RankEnd()
    stderr, stdout = tuple(outcome.stderr.splitlines()), tuple(outcome.stdout.splitlines())
    failure = Failure(EXIT_CODE, "The task exited with an exit code representing a failure")
    task = Task("task", "completed", "failure", exit_code=outcome.code, node="tvm-0", failure=failure)
    evidence = Evidence(Job("job", "active", failed=1), tasks=(ExaminedTask(task, cause(stderr, end), stderr, stdout),))
    return judged(evidence).findings[0]


def check(gang: Gang, outcome: Outcome) -> None:
    ends = gang.read(0, "wd/ranks/ends.jsonl")
    first: dict[str, Any] = json.loads(ends.splitlines()[0])
    assert (first["rank"], first["node"]) == (3, "tvm-1"), outcome.stderr
    assert "ValueError: bad data" in first["lines"]
    assert not any("Connection reset" in line for line in first["lines"])
    finding = diagnosed(outcome, ends)
    assert (finding.rule, finding.evidence) == ("exception", f"program.py:{LINE}: ValueError: bad data")
    assert gang.left() == []


@pytest.mark.parametrize("name", examples.first(RUNTIMES))
@pytest.mark.parametrize("rank_logs", [True, False])
def test_the_exception_of_the_first_rank_is_the_cause_under_an_mpi(
    name: str, rank_logs: bool, tmp_path: Path, mpi_environment: Callable[[str], Path]
) -> None:
    with gang_of(tmp_path, mpi_environment(name)) as gang:
        launch = launched("mpi", command(gang), runtime=RUNTIMES[name], processes_per_node=2, rank_logs=rank_logs)
        variables = {variable: value.format(gang.prefix) for variable, value in VARIABLES[name].items()}
        check(gang, gang.launch(with_program(launch), variables))


@pytest.fixture
def python_nodes(tmp_path: Path) -> AbstractContextManager[Gang]:
    return gang_with_python(tmp_path)


def test_the_exception_of_the_first_rank_is_the_cause_under_the_node_launcher(
    python_nodes: AbstractContextManager[Gang],
) -> None:
    with python_nodes as gang:
        launch = launched("pytorch", command(gang), processes_per_node=2)
        check(gang, gang.launch(with_program(launch)))


def test_an_exception_is_the_cause_in_a_gang_without_a_launch_block(python_nodes: AbstractContextManager[Gang]) -> None:
    with python_nodes as gang:
        launch = launched("plain", 'python3 "$AZ_BATCH_TASK_SHARED_DIR/program.py"', Shape(2))
        outcome = gang.launch(with_program(launch, ALONE))
        assert ".batchtrain/" not in outcome.stderr
        assert diagnosed(outcome, "").cause == "the program raised ValueError: bad data"
