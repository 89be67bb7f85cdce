"""The cause is the failure of the process that failed first, whatever its victims print, and in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from batchtrain.frameworks import FRAMEWORKS
from batchtrain.frameworks.mpi import MPIS
from batchtrain.records.rank_end import ENDED_EARLY, RankEnd, first_failure
from batchtrain.service.failed import summary
from tests.unit.diagnosis.test_rules import DUMP, GLOO, WATCHDOG, failed, judged, of_job

FRAME = '  File "/mnt/batch/tasks/workitems/digits/job-1/train/wd/train.py", line 12, in <module>'
LIBRARY = '  File "/opt/site-packages/torch/distributed/distributed_c10d.py", line 5356, in barrier'
HEADING = "Traceback (most recent call last):"
OWN = (HEADING, FRAME, '    raise ValueError("bad data")', "ValueError: bad data")


def traceback(*message: str) -> tuple[str, ...]:
    return (HEADING, LIBRARY, "    work.wait()", *message)


VICTIMS: Mapping[str, tuple[str, ...]] = {
    "gloo, connection": traceback(
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
        " [10.0.0.4]:28575. This is typically caused by a remote worker crashing."
    ),
    "gloo, timeout": traceback(GLOO),
    "NCCL": traceback(
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
        ":2251, remote process exited or there was a network error, NCCL version 2.21.5",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "Last error:",
        "socketProgress: Connection closed by remote peer gpu-0<35574>",
    ),
    "NCCL, watchdog": (WATCHDOG.format(1, 808), DUMP.format(2, 1, 807)),
    "store, lost": traceback(
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote"
        " server shutdown or crash?"
    ),
    "store, timeout": traceback(
        "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to"
        " (10.0.0.4, 29500)."
    ),
    "never joined": traceback(
        "torch.distributed.DistStoreError: Timed out after 5 seconds waiting for clients. 2/3 clients joined."
    ),
    "horovod": traceback(
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on"
        " one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished"
    ),
    "MPICH": (
        "Abort(741958415) on node 1 (rank 1 in comm 0): Fatal error in internal_Barrier: Other MPI error, error stack:",
        "internal_Barrier(84)......: MPI_Barrier(comm=MPI_COMM_WORLD) failed",
        "MPIDU_Sock_wait(2909).....: connection failure (set=0,sock=1,errno=104:Connection reset by peer)",
    ),
    "Open MPI": (
        "[n1:00021] *** An error occurred in MPI_Barrier",
        "[n1:00021] *** MPI_ERR_PROC_FAILED: Process Failure",
        "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD",
    ),
}


def merged(own: tuple[str, ...], victim: tuple[str, ...]) -> tuple[str, ...]:
    """The stderr of an MPI's gang: nothing tells whose a line is, and those of victims come first and last."""
    return (*victim, *own, "batchtrain: rank 2 on node tvm-2 (10.0.0.5) exited with code 1", *victim)


def labelled(own: tuple[str, ...], victim: tuple[str, ...]) -> tuple[str, ...]:
    """The stderr of a gang that batchtrain's own node launcher started."""
    before, after = ([f"[{rank // 2}:{rank}] {line}" for line in victim] for rank in (1, 3))
    return (*before, *(f"[1:2] {line}" for line in own), *after)


def of_torchrun(own: tuple[str, ...], victim: tuple[str, ...]) -> tuple[str, ...]:
    """torchrun prints for all ranks of its node, and a traceback of its own at the end."""
    failed_child = traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
    before = (f"[0:torchrun 0] [rank1]: {line}" for line in victim)
    return (*before, *(f"[1:torchrun 1] {line}" for line in (*own, *failed_child)))


FIRST = RankEnd("rank 2", 2, "tvm-2", exit_code=1)
KEPT = FIRST.__class__("rank 2", 2, "tvm-2", exit_code=1, lines=("step 7 loss 0.5", *OWN))
Stderr = Callable[[tuple[str, ...], tuple[str, ...]], tuple[str, ...]]
ENGINES: Mapping[str, tuple[Stderr, RankEnd]] = {
    **dict.fromkeys(FRAMEWORKS, (labelled, KEPT)),
    **dict.fromkeys(MPIS, (merged, KEPT)),
    "pytorch, of an earlier release": (labelled, FIRST),
    "torchrun": (of_torchrun, KEPT),
    "torchrun, c10d": (of_torchrun, RankEnd("local rank 0", None, "tvm-2", exit_code=1, lines=KEPT.lines)),
    "an MPI whose ranks keep no logs": (merged, FIRST),
    "plain": (merged, RankEnd()),
}


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_exception_of_the_process_that_failed_first_is_the_cause(engine: str, victim: str) -> None:
    stderr, end = ENGINES[engine]
    lines = stderr(OWN, VICTIMS[victim])
    if not end.process:
        lines = (*VICTIMS[victim][:-1], *OWN)  # one process alone, which went on after it had lost another one
    (finding,) = judged(of_job(failed(*lines, end=end))).findings
    assert (finding.rule, finding.cause) == ("exception", "the program raised ValueError: bad data")
    assert finding.evidence == "train.py:12: ValueError: bad data"


@pytest.mark.parametrize("victim", [name for name in VICTIMS if name != "NCCL, watchdog"])  # of rank 1
def test_the_first_to_exit_with_0_is_the_cause_of_its_victims(victim: str) -> None:
    early = RankEnd("rank 2", 2, "tvm-2", exit_code=0, ending="exited with code 0 before the others", cause=ENDED_EARLY)
    end = first_failure((RankEnd("rank 3", 3, "tvm-3", exit_code=1), early))
    diagnosis = judged(of_job(failed(*labelled(("step 7",), VICTIMS[victim]), end=end)))
    (finding,) = diagnosis.findings
    assert (finding.rule, finding.cause) == ("rank-ended-early", "rank 2 exited with code 0 before the others")
    assert (diagnosis.who, finding.evidence[:7]) == ("rank 2 on node tvm-2", "rank 3:")


@pytest.mark.parametrize("victim", [name for name, lines in VICTIMS.items() if lines[0] == HEADING])
def test_a_victim_that_ends_first_is_told_from_the_process_that_it_lost(victim: str) -> None:
    """Two clocks differ, or the process takes longer to end than its victim."""
    lines = labelled(OWN, VICTIMS[victim])
    (finding,) = judged(of_job(failed(*lines, end=RankEnd("rank 3", 3, "tvm-2", exit_code=1)))).findings
    assert (finding.rule, finding.cause) == ("exception", "rank 2 raised ValueError: bad data, and rank 3 lost it")
    went_on = labelled((*OWN, "went on"), VICTIMS[victim])
    assert rules_of(*went_on, end=RankEnd("rank 3", 3)) != ["exception"]


@pytest.mark.parametrize(
    "between",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_the_first_exception_of_a_chain_tells_whether_it_is_a_consequence(between: str) -> None:
    lost = VICTIMS["gloo, connection"]
    assert rules_of(*OWN, "", between, "", *lost) == ["exception"]
    wrapped = traceback("RuntimeError: the training failed")
    assert rules_of(*lost, "", between, "", *wrapped) == ["connection-to-rank-lost"]


@pytest.mark.parametrize(
    "heading", ["Exception ignored in: <function Pool.__del__ at 0x7f>", "Error in atexit._run_exitfuncs:"]
)
def test_an_exception_that_python_ignores_is_not_the_cause(heading: str) -> None:
    late = (heading, HEADING, LIBRARY, "TypeError: 'NoneType' object is not callable")
    assert judged(of_job(failed(*OWN, *late))).findings[0].cause == "the program raised ValueError: bad data"


@pytest.mark.parametrize("exit_code", [1, 134, 139])
def test_an_exception_is_the_cause_although_the_end_of_the_interpreter_aborts(exit_code: int) -> None:
    ended = (*OWN, "terminate called without an active exception")
    assert rules_of(*ended, exit_code=exit_code, end=FIRST) == ["exception"]


def test_a_first_process_without_an_exception_is_not_explained_by_its_victims() -> None:
    lines = labelled(("row 7 is empty",), VICTIMS["gloo, connection"])
    end = RankEnd("rank 2", 2, "tvm-2", exit_code=3)
    (finding,) = judged(of_job(failed(*lines, exit_code=3, end=end))).findings
    assert (finding.rule, finding.evidence) == ("unknown", "row 7 is empty")


def test_a_cell_of_a_list_has_the_last_line_of_the_process_that_failed_first() -> None:
    examined = failed(*merged(("row 7 is empty",), VICTIMS["Open MPI"]), exit_code=3)
    end = RankEnd("rank 2", 2, "tvm-2", exit_code=3, lines=("row 7 is empty",))
    assert summary(examined.task, examined.stderr, end) == "rank 2 on node tvm-2 (10.0.0.5) exited with code 1"
    without_report = tuple(line for line in examined.stderr if not line.startswith("batchtrain: "))
    assert summary(examined.task, without_report, end) == "row 7 is empty"


SCRIPT = "/mnt/batch/tasks/workitems/digits/job-1/train/.batchtrain"


@pytest.mark.parametrize(
    "line",
    [
        f"{SCRIPT}/gang.sh: line 59: {SCRIPT}/node.sh: No such file or directory",
        f"{SCRIPT}/rank.sh: 226: cannot create {SCRIPT}/ranks/3.pid: Permission denied",
        f"{SCRIPT}/lines.sh: line 3: awk: command not found",
    ],
)
def test_a_message_about_a_script_of_batchtrain_proves_nothing(line: str) -> None:
    (finding,) = judged(of_job(failed("row 7 is empty", line, exit_code=3))).findings
    assert (finding.rule, finding.evidence) == ("unknown", "row 7 is empty")
    framed = f'  File "{SCRIPT}/torchrun.py", line 38, in host'
    assert judged(of_job(failed(HEADING, framed, "ValueError: no"))).findings[0].evidence == "ValueError: no"


@pytest.mark.parametrize(
    "line",
    [
        f"{SCRIPT}/launch.sh: line 12: mpirun: command not found",
        f"{SCRIPT}/ranks/3: 1: exec: train: not found",
        f"{SCRIPT}/rank.sh: 226: exec: train: not found",
    ],
)
def test_a_command_of_the_user_that_is_missing_is_still_named(line: str) -> None:
    assert rules_of(line, exit_code=127) == ["missing-command"]


def rules_of(*lines: str, exit_code: int = 1, end: RankEnd = FIRST) -> list[str]:
    return [finding.rule for finding in judged(of_job(failed(*lines, exit_code=exit_code, end=end))).findings]
