"""What ended a task, read from its stderr: the rank that failed, and the exception it failed with. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

REPORT = re.compile(
    r"(?:.*\] )?batchtrain: (?P<who>[a-z][a-z ]*?(?: (?P<number>\d+))?) on node (?P<node>\S+) \([^)]*\)"
    r" (?P<ending>exited with code|was killed by signal) (?P<value>\d+)(?P<more>.*)"
)
"""What rank.sh, gang.sh and the node launcher print when a process of a gang fails."""
PREFIX = re.compile(r"^(?:\[\d+:(?P<label>[^\]]+)\] )?(?:\[rank(?P<rank>\d+)\]: ?)?(?P<text>.*)$")
"""What the node launcher, and below it PyTorch, put before a line of a rank."""
TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'\s+File "[^"]*/workitems/[^/"]+/[^/"]+/[^/"]+/(?P<file>[^"]+)", line (?P<line>\d+)')
"""A line of a traceback in a file of the task's directory."""
LONGEST = 200
"""Characters of an exception's line that are shown."""


class Cause(NamedTuple):
    """Why a task failed; what the task's stderr does not tell is empty."""

    who: str = ""
    """The process that failed, as `rank 3`."""
    rank: int | None = None
    node: str = ""
    ending: str = ""
    """How it ended, as `exited with code 7`."""
    signal: int | None = None
    exception: str = ""
    """The last line of its traceback, as `ValueError: no such file`."""
    raised: str = ""
    """The innermost line of that traceback in a file of the task's directory, as `train.py:208`."""


def cause(lines: Sequence[str], exit_code: int | None) -> Cause:
    """The failure that a task's stderr tells of.

    Several processes may report a failure. The one that the task's exit code belongs to is the cause; the others are
    consequences of it, or how the same process went on to die.
    """
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


def _code(report: re.Match[str]) -> int:
    """A process's end as shells give it."""
    return int(report["value"]) + (128 if "signal" in report["ending"] else 0)


def _of(lines: Iterable[str], who: str, number: str | None) -> Iterator[str]:
    """The lines of one process, without what stands before them; a line that names no process may be anybody's."""
    for line in lines:
        match = PREFIX.match(line)
        assert match is not None  # it matches every line
        name = match["rank"] or match["label"]
        if name is None or name in (who, number):
            yield match["text"]


def _exception(lines: Iterable[str]) -> tuple[str, str]:
    """The line that ends the last traceback, and where in the task's directory that was raised."""
    found, raised, inner, inside = "", "", "", False
    for line in lines:
        text = line.rstrip()
        if text.endswith(TRACEBACK):
            inside, inner = True, ""
        elif inside and (frame := FRAME.match(text)):
            inner = f"{frame['file']}:{frame['line']}"
        elif inside and text and not text.startswith((" ", "\t")):
            found, raised, inside = text, inner, False
    return (found if len(found) <= LONGEST else found[: LONGEST - 1] + "…"), raised
