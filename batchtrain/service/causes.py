"""The cause of a task's failure: the end of the rank that failed first, and its exception in stderr. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from batchtrain.records.rank_end import RankEnd

TAG = "batchtrain: "
"""The beginning of each line that batchtrain itself prints on a node."""
PREFIX = re.compile(r"^(?:\[\d+:(?P<label>[^\]]+)\] )?(?:\[rank(?P<rank>\d+)\]: ?)?(?P<text>.*)$")
"""The prefix of a rank's line, from the node launcher and from PyTorch."""
TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'\s+File "[^"]*/workitems/[^/"]+/[^/"]+/[^/"]+/(?P<file>[^"]+)", line (?P<line>\d+)')
"""A line of a traceback in a file of the task's directory."""
_ANY_FRAME = re.compile(r'\s+File "[^"]+", line \d+')
LAUNCHER = re.compile(r"\[(?:mpiexec@|proxy:)|=   |={10}")
"""A line that mpiexec of MPICH and Intel MPI prints after a rank has failed."""
LONGEST = 200
"""Characters of an exception's line that are shown."""


class Cause(NamedTuple):
    """Why a task failed, as far as it is known."""

    end: RankEnd = RankEnd()
    """The end of the process that failed first."""
    exception: str = ""
    """The last line of its traceback, such as `ValueError: no such file`."""
    raised: str = ""
    """The innermost line of that traceback in a file of the task's directory, such as `train.py:208`."""


def cause(lines: Sequence[str], end: RankEnd) -> Cause:
    """The cause of a failure. lines: the task's stderr."""
    exception, location = _exception(_of(lines, end.process))
    return Cause(end, exception or _cut(end.error.message.partition("\n")[0]), location)


def lines_of(lines: Iterable[str], process: str) -> Iterator[str]:
    """The lines of a process without their prefixes, and without those of batchtrain."""
    return (line for line in _of(lines, process) if not line.startswith(TAG))


def of_the_program(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines that the launcher of the MPI did not print."""
    return tuple(line for line in lines if not LAUNCHER.match(line))


def without_source(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the program's source that tracebacks quote: it proves nothing."""
    is_quoted = False
    for line in lines:
        match = PREFIX.match(line)
        assert match is not None  # it matches every line
        text = match["text"].removeprefix(TAG)
        if not (is_quoted and text.startswith("    ")):
            yield line
        is_quoted = _ANY_FRAME.match(text) is not None


def _of(lines: Iterable[str], process: str) -> Iterator[str]:
    """The lines of one process without their prefixes; lines without a process may belong to any."""
    number = process.rpartition(" ")[2]
    for line in lines:
        match = PREFIX.match(line)
        assert match is not None  # it matches every line
        name = match["rank"] or match["label"]
        if name is None or not process or name in (process, number):
            yield match["text"]


def _exception(lines: Iterable[str]) -> tuple[str, str]:
    """The last line of the last traceback, and the place in the task's directory where it was raised. After a failure,
    batchtrain reports it; tracebacks that follow are those of other processes, which lost this one."""
    last, location, inner, inside = "", "", "", False
    for line in lines:
        text = line.rstrip()
        if line.startswith(TAG):
            if last:
                break
        elif text.endswith(TRACEBACK):
            inside, inner = True, ""
        elif (frame := FRAME.match(text)) and (inside or text == frame[0]):  # a SyntaxError of a script has no heading
            inside, inner = True, f"{frame['file']}:{frame['line']}"
        elif inside and text and not text.startswith((" ", "\t")):
            last, location, inside = text, inner, False
    return _cut(last), location


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
