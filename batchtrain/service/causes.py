"""The cause of a task's failure, read from its stderr: the failed rank and its exception. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

REPORT = re.compile(
    r"(?:.*\] )?batchtrain: (?P<who>[a-z][a-z ]*?(?: (?P<number>\d+))?) on node (?P<node>\S+) \([^)]*\)"
    r" (?P<ending>exited with code|was killed by signal) (?P<value>\d+)(?P<more>.*)"
)
"""Lines of rank.sh, gang.sh and the node launcher when a process of a gang fails."""
PREFIX = re.compile(r"^(?:\[\d+:(?P<label>[^\]]+)\] )?(?:\[rank(?P<rank>\d+)\]: ?)?(?P<text>.*)$")
"""The prefix of a rank's line, from the node launcher and from PyTorch."""
TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'\s+File "[^"]*/workitems/[^/"]+/[^/"]+/[^/"]+/(?P<file>[^"]+)", line (?P<line>\d+)')
"""A line of a traceback in a file of the task's directory."""
LAUNCHER = re.compile(r"\[(?:mpiexec@|proxy:)|=   |={10}")
"""A line that mpiexec of MPICH and Intel MPI prints after a rank has failed."""
LONGEST = 200
"""Characters of an exception's line that are shown."""


class Cause(NamedTuple):
    """Why a task failed; fields that stderr does not tell are empty."""

    who: str = ""
    """The failed process, such as `rank 3`."""
    rank: int | None = None
    node: str = ""
    ending: str = ""
    """How it ended, such as `exited with code 7`."""
    signal: int | None = None
    exception: str = ""
    """The last line of its traceback, such as `ValueError: no such file`."""
    raised: str = ""
    """The innermost line of that traceback in a file of the task's directory, such as `train.py:208`."""


def cause(lines: Sequence[str], exit_code: int | None) -> Cause:
    """The failure in a task's stderr. Several processes may report a failure. The one with the task's exit code is the
    cause; the others are its consequences, or later reports of the same process."""
    reports = [(index, match) for index, line in enumerate(lines) if (match := REPORT.match(line))]
    if not reports:
        exception, raised = _exception(lines)
        return Cause(exception=exception, raised=raised)
    index, report = next((report for report in reports if _code(report[1]) == exit_code), reports[0])
    number = int(report["number"]) if report["number"] else None
    exception, raised = _exception(_of(lines[:index], report["who"], report["number"]))
    return Cause(
        who=report["who"],
        rank=number if report["who"].startswith("rank ") else None,
        node=report["node"],
        ending=f"{report['ending']} {report['value']}{report['more']}",
        signal=int(report["value"]) if "signal" in report["ending"] else None,
        exception=exception,
        raised=raised,
    )


def lines_of(lines: Iterable[str], reported: Cause) -> Iterator[str]:
    """The lines of the process that failed, without their prefixes."""
    number = reported.who.rpartition(" ")[2]
    others = (line for line in lines if not REPORT.match(line))
    return _of(others, reported.who, number if number.isdigit() else None)


def of_the_program(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines that the launcher of the MPI did not print."""
    return tuple(line for line in lines if not LAUNCHER.match(line))


def _code(report: re.Match[str]) -> int:
    """The end of a process as shells report it."""
    return int(report["value"]) + (128 if "signal" in report["ending"] else 0)


def _of(lines: Iterable[str], who: str, number: str | None) -> Iterator[str]:
    """The lines of one process without their prefixes; lines without a process may belong to any."""
    for line in lines:
        match = PREFIX.match(line)
        assert match is not None  # it matches every line
        name = match["rank"] or match["label"]
        if name is None or name in (who, number):
            yield match["text"]


def _exception(lines: Iterable[str]) -> tuple[str, str]:
    """The last line of the last traceback, and the place in the task's directory where it was raised."""
    last, raised, inner, inside = "", "", "", False
    for line in lines:
        text = line.rstrip()
        if text.endswith(TRACEBACK):
            inside, inner = True, ""
        elif inside and (frame := FRAME.match(text)):
            inner = f"{frame['file']}:{frame['line']}"
        elif inside and text and not text.startswith((" ", "\t")):
            last, raised, inside = text, inner, False
    return (last if len(last) <= LONGEST else last[: LONGEST - 1] + "…"), raised
