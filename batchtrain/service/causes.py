"""The cause of a task's failure: the end of the process that failed first, what it printed, and its exception. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from batchtrain.records.rank_end import ENDED_EARLY, STALLED, RankEnd

TAG = "batchtrain: "
"""The beginning of each line that batchtrain itself prints on a node."""
_RANK = r"(?:\[rank(?P<rank>\d+)\]: ?)?(?P<text>.*)$"
PREFIX = re.compile(rf"^(?:\[\d+:(?P<label>[^\]]+)\] )?{_RANK}")
"""The prefix of a rank's line, from the node launcher and from PyTorch."""
_OF_PYTORCH = re.compile(_RANK)
TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(
    r'\s+File "(?:[^"]*/workitems/[^/"]+/[^/"]+/[^/"]+/(?!\.batchtrain/)(?:wd/)?|(?![/<]))(?P<file>[^"]+)", line'
    r" (?P<line>\d+)"
)
"""A line of a traceback in a file where the task starts, or in another one of its directory, but not batchtrain's."""
_ANY_FRAME = re.compile(r'\s+File "[^"]+", line \d+')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
"""The beginnings of lines between the tracebacks of one failure."""
_HARMLESS = ("Exception ignored", "Error in atexit")
"""The beginnings of lines before the traceback of an exception that ends no process."""
_OF_TORCHRUN = "torch.distributed.elastic.multiprocessing."
"""The module of the exceptions by which torchrun reports the end of a rank."""
_GOES_ON = re.compile(r"NCCL error in|error stack:$")
"""The first line of an exception whose message is on the lines after it."""
LAUNCHER = re.compile(r"\[(?:mpiexec@|proxy:)|=   |={10}")
"""A line that mpiexec of MPICH and Intel MPI prints after a rank has failed."""
_OUR_SCRIPT = re.compile(r"\S*/\.batchtrain/(?!launch\.sh|coordinate\.sh)[^\s:]+\.sh: (?!.*\bexec: )")
"""What a shell says of a script of batchtrain. The scripts launch.sh and coordinate.sh contain the user's commands, and
any script may execute one."""
LOST = re.compile(
    r"NCCL.*(?:remote process exited|Connection closed by remote peer)|ncclRemoteError|NCCL communicator was aborted"
    r"|Connection (?:closed|reset) by (?:remote )?peer|[Ff]ailed to recv, got 0 bytes|MPIX?_ERR_PROC_FAILED"
    r"|Horovod has been shut down|another task died"
)
"""A process has lost another one. Sources: ProcessGroupNCCL.cpp and Utils.hpp of PyTorch, pair.cc of gloo, mpi.h of
Open MPI and MPICH, operations.cc of Horovod, client.h of JAX."""
NOT_JOINED = re.compile(
    r"Timed out after \d+ seconds waiting for clients\. (?P<name>\d+/\d+) clients joined"
    r"|Timed out initializing process group in store based barrier .*"
    r"(?:worker_count|num_workers_joined)=(?P<other>\d+)"
)
"""Not all processes have joined the process group. Sources: TCPStore.cpp and distributed_c10d.py of PyTorch."""
WAITED = re.compile(
    r"Watchdog caught collective operation timeout|collective operation timeout|DistStoreError"
    r"|gloo.*(?:[Tt]imed out|[Tt]imeout)|connectFullMesh failed|failed to pass monitoredBarrier"
    r"|Horovod has timed out|Stalled ranks"
)
"""A process has waited too long for others."""
UNREACHED = re.compile(
    r"client socket has timed out(?: after \S+ while trying to connect to \(?(?P<name>[^\s,)]+(?:, |:)\d+))?"
    r"|client socket has failed to connect to any network address of \((?P<other>[^\s,)]+, \d+)"
    r"|TCP client failed to connect/validate to host (?P<third>\S+) - timed out"
    r"|connect\(\) timed out\. Original timeout was|connection to the C10d store has failed"
)
"""The store of PyTorch's process group does not answer a process. Sources: socket.cpp, TCPStore.cpp and
c10d_rendezvous_backend.py; Utils.hpp before PyTorch 1.11."""
LONGEST = 200
"""Characters of an exception's line that are shown."""
LONGEST_MESSAGE = 12
"""Lines of an exception's message that tell whether it is a consequence."""


class Cause(NamedTuple):
    """Why a task failed, as far as it is known."""

    end: RankEnd = RankEnd()
    """The end of the process that failed first."""
    exception: str = ""
    """The last line of its traceback, such as `ValueError: no such file`."""
    raised: str = ""
    """The innermost line of that traceback in a file of the task's directory, such as `train.py:208`."""
    is_consequence: bool = False
    """Whether the exception says that the process lost others, or waited too long for them."""
    consequence: str = ""
    """How another process then failed, such as `rank 0: RuntimeError: Connection reset by peer`."""


class _Raised(NamedTuple):
    """An exception that ended a traceback."""

    text: str
    place: str
    is_consequence: bool
    is_chained: bool
    """Whether it was raised because of the exception before, or while that was handled."""
    is_last: bool
    """Whether no line follows."""


def cause(lines: Sequence[str], end: RankEnd) -> Cause:
    """The cause of a failure. lines: the task's stderr."""
    reason = _of_process(lines, end)
    if end.early is None or not _misses_another(reason, lines):
        return reason
    name, _ = failure_of_another(lines, end)
    if name and name != end.early.process:
        return reason
    early = _of_process(lines, end.early)
    early = Cause(end.early) if early.is_consequence else early
    return early._replace(consequence=f"{end.process}: {reason.exception or end.words}")


def _of_process(lines: Sequence[str], end: RankEnd) -> Cause:
    if end.cause and end.cause != ENDED_EARLY:  # it needs no exception
        return Cause(end)
    labelled, recorded, loose = _sorted(lines, end)
    exception = _last(_exceptions(labelled), is_mixed=False) or _last(_exceptions(recorded), is_mixed=end.rank is None)
    if not (exception or recorded):
        exception = _last(_exceptions(loose), is_mixed=bool(end.process))
    recorded_error = end.error.message.partition("\n")[0]
    raised = exception or _Raised(recorded_error, "", is_consequence(recorded_error), is_chained=False, is_last=True)
    return Cause(end, _cut(raised.text), raised.place, raised.is_consequence)


def _misses_another(reason: Cause, lines: Iterable[str]) -> bool:
    """Whether a process failed because it lost others, or waited for them."""
    own_lines = () if reason.exception else lines_of(lines, reason.end)
    return reason.is_consequence or reason.end.cause == STALLED or any(map(is_consequence, own_lines))


def failure_of_another(lines: Iterable[str], end: RankEnd) -> tuple[str, Cause]:
    """The name of a process whose lines end with an exception that is no consequence, although another one ended first,
    and that exception; both are empty without one."""
    of_process = dict[str, list[str]]()
    for line in lines:
        match = PREFIX.match(line)
        assert match is not None  # it matches every line
        name = f"rank {match['rank']}" if match["rank"] else match["label"]
        if name is not None:
            of_process.setdefault(f"rank {name}" if name.isdecimal() else name, []).append(match["text"])
    for name, texts in of_process.items():
        raised = _last(_exceptions(texts), is_mixed=False)
        if name != end.process and raised and raised.is_last and not raised.is_consequence:
            return name, Cause(RankEnd(name), _cut(raised.text), raised.place)
    return "", Cause()


def lines_of(lines: Iterable[str], end: RankEnd) -> tuple[str, ...]:
    """The lines of the process that failed first, without prefixes and without those of batchtrain.

    The node launcher, PyTorch and the record of the end say which these are. Without any of them, as for an MPI whose
    ranks keep no logs, each line may be its own.
    """
    labelled, recorded, loose = _sorted(lines, end)
    printed = set(recorded)
    own_lines = (*(line for line in labelled if line not in printed), *recorded)
    return tuple(line for line in own_lines or loose if not line.startswith(TAG))


def lines_of_no_process(lines: Iterable[str], end: RankEnd) -> tuple[str, ...]:
    """The lines without the name of a process."""
    return tuple(_sorted(lines, end)[2])


def is_consequence(text: str) -> bool:
    """Whether a message says that a process lost others, or waited too long for them."""
    return any(pattern.search(text) for pattern in (NOT_JOINED, LOST, WAITED, UNREACHED))


def of_the_program(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines that neither the launcher of the MPI nor a script of batchtrain printed."""
    return tuple(line for line in lines if not (LAUNCHER.match(line) or _OUR_SCRIPT.match(line)))


def admissible(lines: Iterable[str]) -> Iterator[str]:
    """The lines that can prove a cause: not the program's source, which tracebacks quote, and not what a shell says of
    a script of batchtrain."""
    is_quoted = False
    for line in lines:
        match = PREFIX.match(line)
        assert match is not None  # it matches every line
        text = match["text"].removeprefix(TAG)
        if not (is_quoted and text.startswith("    ")) and not _OUR_SCRIPT.match(text):
            yield line
        is_quoted = _ANY_FRAME.match(text) is not None


def _sorted(lines: Iterable[str], end: RankEnd) -> tuple[list[str], list[str], list[str]]:
    """Without prefixes: the lines that have the name of the process, those of its record, and those without a name. All
    are without a name if no process is known."""
    labelled, recorded, loose = list[str](), list[str](), list[str]()
    names = {end.process, "" if end.rank is None else str(end.rank)} - {""}
    for line in lines:
        match = PREFIX.match(line)
        assert match is not None  # it matches every line
        name = match["rank"] or match["label"]
        if name in names:
            labelled.append(match["text"])
        elif name is None or not end.process:
            loose.append(match["text"])
    for line in end.lines:
        match = _OF_PYTORCH.match(line)
        assert match is not None  # it matches every line
        if match["rank"] is None or end.rank in (None, int(match["rank"])):
            recorded.append(match["text"])
    return labelled, recorded, loose


def _last(exceptions: Iterable[_Raised], *, is_mixed: bool) -> _Raised | None:
    """The exception that ended the process. is_mixed: the lines may be of several processes, so it is the last one that
    is no consequence, if there is any."""
    chains = list[list[_Raised]]()
    for raised in exceptions:
        if chains and raised.is_chained:
            chains[-1].append(raised)
        else:
            chains.append([raised])
    failures = [_of_chain(chain) for chain in chains]
    own = [failure for failure in failures if is_mixed and not failure.is_consequence]
    return next(reversed(own or failures), None)


def _of_chain(chain: Sequence[_Raised]) -> _Raised:
    """The last exception of a chain that began with a consequence; of any other chain, the last that is none."""
    if chain[0].is_consequence:
        return chain[-1]._replace(is_consequence=True)
    return next(raised for raised in reversed(chain) if not raised.is_consequence)


def _exceptions(lines: Sequence[str]) -> Iterator[_Raised]:
    """The exceptions whose tracebacks the lines have. After a failure, batchtrain reports it; tracebacks that follow
    are those of other processes, which lost this one."""
    position, inside, before, chained, any_found = "", False, "", False, False
    for number, line in enumerate(lines):
        text = line.rstrip()
        if line.startswith(TAG):
            if any_found:
                break
        elif text.endswith(TRACEBACK):
            inside, position = not before.startswith(_HARMLESS), ""
        elif (frame := FRAME.match(text)) and (inside or text == frame[0]):  # a SyntaxError of a script has no heading
            inside, position = True, f"{frame['file']}:{frame['line']}"
        elif inside and text and not text.startswith((" ", "\t")):
            inside = False
            if not text.startswith(_OF_TORCHRUN):
                message = lines[number : number + LONGEST_MESSAGE] if _GOES_ON.search(text) else (text,)
                is_last = not any(after.strip() for after in lines[number + 1 :])
                yield _Raised(text, position, any(map(is_consequence, message)), chained, is_last)
                any_found, chained = True, False
        chained = chained or text.startswith(_CHAINED)
        before = text or before


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
