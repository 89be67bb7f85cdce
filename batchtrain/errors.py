"""Every error of batchtrain, grouped by what the user does next; each has its exit code."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import ClassVar, NamedTuple


class Problem(NamedTuple):
    """One problem of a configuration, with its position."""

    rule: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    path: str = ""
    level: str = "error"
    hint: str = ""
    end_line: int = 0
    end_column: int = 0
    """One past the last character of the problem."""
    fix: str = ""
    """The replacement for the text from `line:column` to `end_line:end_column`, if there is exactly one."""
    see: str = ""
    """The page of the documentation."""
    source: str = ""
    """The line of the problem; empty if the line may contain a secret."""

    @property
    def location(self) -> str:
        """`file:line:column`, as far as each is known."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)

    @property
    def document(self) -> dict[str, str | int]:
        """As a document: unknown values are omitted; the keys for the end are those of editors."""
        document = {_EDITORS.get(name, name): value for name, value in self._asdict().items() if value}
        document.pop("source", None)
        return document

    def __str__(self) -> str:
        head = f"{self.location}: " if self.location else ""
        path = f"{self.path}: " if self.path else ""
        tail = f" {self.hint}" if self.hint else ""
        return printable(f"{head}{self.level}: {path}{self.message}{tail} [{self.rule}]")

    def rendered(self, *, color: bool = False) -> str:
        """The message, the line with a caret under the problem, and the page of the documentation."""
        lines = [_painted(str(self), self.level) if color else str(self)]
        if self.source.strip():
            lines += _excerpt(self, color)
        if self.see:
            lines.append(f"{' ' * len(str(self.line or ''))}  = see `batchtrain help {topic_of(self.see)}`")
        return "\n".join(lines)


def topic_of(page: str) -> str:
    """The topic of the page for `batchtrain help`: config#vm_size for docs/reference/config.md#vm_size."""
    path, hash_, anchor = page.partition("#")
    return path.rpartition("/")[2].removesuffix(".md") + hash_ + anchor


_EDITORS = {"end_line": "endLine", "end_column": "endColumn"}


# --- a line with a caret --------------------------------------------------------------------------------------------

WIDEST = 100
"""The maximum number of columns of a source line that are shown."""
_COLORS = {"error": "31", "warning": "33", "info": "36"}
_ESCAPES = {"\t": "    ", "\n": "\\n", "\r": "\\r"}


def printable(text: str) -> str:
    """The text without control characters that move a terminal's cursor or change the writing direction."""
    if text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines, whose tabs stay."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.splitlines())


_NODE = re.compile(r"\b(tvm(?:ps)?_[0-9a-f]{4})[0-9a-f]{60}(_[a-z])\b")


def shortened(text: str) -> str:
    """The text with every 64-digit node id shortened in the middle: `tvmps_732a…_d`."""
    return _NODE.sub(r"\1…\2", text)


def nodes_called(name: str, ids: Iterable[str], *, by_number: bool = True) -> list[str]:
    """The ids that a name matches: itself, those that it abbreviates, or its number in their order (`n0` or `0`)."""
    node_ids = list(ids)
    matches = [full for full in node_ids if name in (full, shortened(full))]
    if matches or not by_number:
        return matches
    return [full for number, full in enumerate(node_ids) if name in (f"n{number}", f"{number}")]


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `1,000 nodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _excerpt(problem: Problem, color: bool) -> list[str]:
    start = max(problem.column - 1, 0)
    same_line = problem.end_line == problem.line and problem.end_column > problem.column
    before, marked_text, after = _cut(problem.source, start, problem.end_column - 1 if same_line else start + 1)
    number = str(problem.line)
    carets = " " * width_of(before) + "^" * max(width_of(marked_text), 1)
    if color:
        carets = f"\x1b[{_COLORS.get(problem.level, '31')}m{carets}\x1b[0m"
    return [f" {number} | {before}{marked_text}{after}".rstrip(), f" {' ' * len(number)} | {carets}"]


def _cut(line: str, start: int, end: int) -> tuple[str, str, str]:
    """The text before, in and after the mark; of a long line only the part near the mark."""
    before, marked_text, after = (printable(part) for part in (line[:start], line[start:end], line[end:][:WIDEST]))
    if len(marked_text) > WIDEST * 2 // 3:
        marked_text, after = marked_text[: WIDEST * 2 // 3 - 1] + "…", ""
    room = max(WIDEST - len(marked_text), 0)
    if len(before) > room * 2 // 3:
        before = "…" + before[len(before) - room * 2 // 3 + 1 :]
    room -= len(before)
    if len(after) > room:
        after = after[: max(room - 1, 0)] + "…"
    return before, marked_text, after


def width_of(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # 0.1 MB, which no server needs

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _painted(sentence: str, level: str) -> str:
    before, mark, after = sentence.partition(f"{level}: ")
    return f"{before}\x1b[1;{_COLORS.get(level, '31')}m{mark.rstrip()}\x1b[0m {after}" if mark else sentence


_NUMBERS = re.compile(r"\b(?:0x)?[0-9a-fA-F]{8,}\b|(?<!code )(?<!signal )(?<![\d])\d+(?:[.,:]\d+)*")
"""Numbers and ids within a cause, but exit codes."""


class Finding(NamedTuple):
    """One cause of a failure that a rule recognised."""

    rule: str
    """The name of the rule; `unknown` if no rule fits."""
    subject: str
    """What it is about: `task train`, `node tvmps_…`, `pool gpu`, `job digits`."""
    cause: str
    evidence: str
    """The line of output or the service's message that proves it."""
    next_step: str
    later_step: str = ""
    """The next step once the pool is deleted; empty if it is the same."""

    @property
    def kind(self) -> tuple[str, str]:
        """What equal findings share: the rule, and the cause without its numbers and ids; if no rule fits, the line."""
        return self.rule, _NUMBERS.sub("#", f"{self.cause} {self.evidence}" if self.rule == "unknown" else self.cause)

    @property
    def headline(self) -> str:
        """The cause with the name of its rule, if one fits."""
        return self.cause if self.rule == "unknown" else f"{self.cause} [{self.rule}]"

    def after_deletion(self) -> Finding:
        """The finding once the pool is deleted."""
        return self._replace(next_step=self.later_step or self.next_step, later_step="")

    def card(self) -> list[str]:
        """The finding as lines, without control characters of the tasks' output."""
        label = "last " if self.rule == "unknown" else "proof"
        proof = [f"{label}  {self.evidence}"] if self.evidence not in self.cause else []
        rows = (f"cause  {self.headline}", f"where  {self.subject}", *proof, f"next   {self.next_step}")
        return [shortened(printable(row)) for row in rows]


class BatchtrainError(Exception):
    """The base class of errors that the user can fix. Every other exception is a bug of batchtrain (exit code 1)."""

    exit_code: ClassVar[int] = 1
    finding: Finding | None = None
    """The cause with the next step, if the task or the pool was examined while it existed."""
    is_explained = False
    """Whether the message has the finding, too; set on errors that leave a call of the Python API."""

    @property
    def _text(self) -> str:
        rows = self.finding.card() if self.is_explained and self.finding else ()
        return "\n".join((super().__str__(), *rows))

    def __str__(self) -> str:
        """The message; its commands reach the account of the client whose call failed."""
        text = self._text
        option = _option(self) if "batchtrain " in text else ""
        return _completed(text, option, in_cell=False) if option else text

    def _render_traceback_(self) -> list[str]:
        """IPython calls it in place of a traceback of all frames."""
        return short_traceback(self, _completed(self._text, _option(self), in_cell=True))


def _completed(text: str, option: str, *, in_cell: bool) -> str:
    from batchtrain import hints  # only for an error of a call

    return hints.for_cell(text, option) if in_cell else hints.pasted(text, option, "", "batchtrain")


def short_traceback(error: BaseException, text: str) -> list[str]:
    """An error as a notebook shows it: its name, what happened, and the user's line that met it."""
    name = type(error).__name__
    lines = [f"\x1b[1;31m{name}\x1b[0m: {chr(10).join(map(printable, text.splitlines()))}"]
    return [*lines, *_users_line(error)]


def _option(error: BaseException) -> str:
    """The options with which a command reaches the account at which a call of a client failed; empty without a client.
    A run may try several accounts: the innermost call has that one."""
    options: dict[str, str] = {}
    for frame, _ in _frames(error):
        for name in ("self", "client"):
            owner = frame.f_locals.get(name)
            if option := getattr(getattr(getattr(owner, "_client", owner), "account", None), "option", ""):
                options[name] = options["innermost"] = option
    return options["innermost"] if "self" in options else ""


def _users_line(error: BaseException) -> list[str]:
    """The last line before the first of batchtrain's own."""
    frames = [(frame.f_code.co_filename, number) for frame, number in _frames(error)]
    own_frame = next((at for at, (file, _) in enumerate(frames) if file.startswith(_PACKAGE)), len(frames))
    if own_frame == 0:
        return []
    file, number = frames[own_frame - 1]
    return ["", f"\x1b[2mline {number}:\x1b[0m {linecache.getline(file, number).strip()}"]


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames of an error's traceback with their lines. The module `traceback` takes 4 ms to import."""
    entry = error.__traceback__
    while entry is not None:
        yield entry.tb_frame, entry.tb_lineno
        entry = entry.tb_next


_PACKAGE = __file__.removesuffix("errors.py")


class UsageError(BatchtrainError):
    """The command or the call is malformed, or a precondition that the caller controls is missing."""

    exit_code = 2


class DamagedState(UsageError):
    """A file in which batchtrain keeps its state has the wrong shape. The message has its path, and the command that
    resets it."""

    exit_code = 4


class NoAccount(UsageError):
    """Nothing says where to run: no account is configured, and the emulator is not chosen."""

    def __init__(self) -> None:
        super().__init__(
            "nowhere to run: add --local (in Python `local=True`; or BATCHTRAIN_LOCAL=1) for the embedded Azure Batch"
            " on this machine, or set AZURE_BATCH_ACCOUNT and AZURE_BATCH_ENDPOINT, and AZURE_BATCH_ACCESS_KEY unless"
            " Entra ID signs in (or write a credentials.yaml) for an account"
        )


class ConfigError(BatchtrainError):
    """The configuration is wrong; `problems` holds every problem of every file, with its position."""

    exit_code = 2

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problem.rendered() for problem in problems))


class PlanError(BatchtrainError):
    """The configuration is well formed but can never work; the message gives the reason and the solution."""

    exit_code = 2


class ServiceError(BatchtrainError):
    """The service answered with an error. `operation` is the request, `code` the service's own error code, `request_id`
    the id that Azure support needs, `property_name` the property of the request that it refuses."""

    exit_code = 4

    def __init__(
        self, message: str, *, operation: str = "", code: str = "", request_id: str = "", property_name: str = ""
    ) -> None:
        self.operation, self.code, self.request_id, self.property_name = operation, code, request_id, property_name
        super().__init__(message)


class NotFound(ServiceError):
    """The named object does not exist."""

    exit_code = 3


class AlreadyExists(ServiceError):
    """The object to create exists already."""


class NotAllowed(ServiceError):
    """The sign-in failed, or the account lacks the permission."""


class QuotaReached(ServiceError):
    """A quota of the account or the region is reached."""


class NoCapacity(ServiceError):
    """No candidate of a pool has its nodes; the message names each with its reason."""


class NodesLost(ServiceError):
    """The pool of a running job has not got its nodes back."""


class ReplacementFailed(ServiceError):
    """A pool got no node in place of one that was removed, so the gang that waits for it cannot start."""


class CannotRun(ServiceError):
    """The open tasks of a job can never start on its pool. `code` is the name of the rule that says so."""


class Unreachable(ServiceError):
    """The service does not answer, or its answer is not the API's (code `InvalidAnswer`)."""

    exit_code = 5


class Refused(NamedTuple):
    """A task that was not added, with the service's error code and reason."""

    task: str
    code: str
    reason: str


class TasksRefused(ServiceError):
    """Some tasks of a job were not added. `added` counts those that exist now, `total` those of the plan (None:
    unknown)."""

    def __init__(
        self, message: str, *, refused: tuple[Refused, ...], added: int, total: int | None, operation: str
    ) -> None:
        self.refused, self.added, self.total = refused, added, total
        super().__init__(message, operation=operation, code=refused[0].code if refused else "")


class TimedOut(BatchtrainError):
    """A wait reached its deadline; the message names what it waited for."""

    exit_code = 6


class WaitOver(TimedOut):
    """The tasks of a job waited for something that did not come, for as long as its rule allows."""


class LimitReached(BatchtrainError):
    """A run has cost or lasted as much as it may: its results were fetched, and what it created was deleted, unless
    results could not be fetched: then it is kept, and the last lines of `run` name it. Or a command would exceed the
    budget, and did nothing."""

    exit_code = 7


class Terminated(KeyboardInterrupt):
    """SIGTERM ended a command."""


class TerminalClosed(KeyboardInterrupt):
    """The terminal of a command was closed (SIGHUP)."""


class ResultsLeft(BatchtrainError):
    """Results are not on this machine. Those that are still on a node keep their job and their pool; those of a node
    that is gone are lost. The message gives the reason."""

    exit_code = 8


class Differs(BatchtrainError):
    """The existing object differs from the plan; the message shows the difference and the solution. `tasks` are the ids
    of the job's tasks that differ."""

    exit_code = 11

    def __init__(self, message: str, *, tasks: tuple[str, ...] = ()) -> None:
        self.tasks = tasks
        super().__init__(message)


class TaskFailed(BatchtrainError):
    """A task failed: the failed rank and its node, the exit code, the exception, and the last lines. What else went
    wrong in its run, such as results that are not here, is the `__cause__`.

    `raised` is the position of the exception in the task's directory, such as `train.py:208`.
    """

    exit_code = 10

    def __init__(
        self,
        message: str,
        *,
        task: str = "",
        rank: int | None = None,
        node: str = "",
        code: int | None = None,
        cause: str = "",
        raised: str = "",
        lines: tuple[str, ...] = (),
    ) -> None:
        self.raised = raised
        self.task, self.rank, self.node, self.code, self.cause, self.lines = task, rank, node, code, cause, lines
        super().__init__(message)


class JobExpired(TaskFailed, LimitReached):
    """A job reached its `max_wall_time`, or a detached run its `--max-duration`, before its tasks had ended."""

    exit_code = LimitReached.exit_code


class JobStopped(TaskFailed):
    """A user terminated a job before its tasks had ended, so that they neither succeeded nor failed."""

    exit_code = 130


# --- results of checks ----------------------------------------------------------------------------------------------

OK, WARN, FAIL, NOT_CHECKED = "ok", "warn", "fail", "not checked"


class Check(NamedTuple):
    """One row of `doctor` and of `images check`: a check and its result."""

    check: str
    result: str
    """OK, WARN, FAIL or NOT_CHECKED."""
    found: str
    next_step: str = ""
