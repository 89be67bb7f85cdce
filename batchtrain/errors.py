"""Every error a user can meet, cut by what the reader does next; each knows its exit code."""

from __future__ import annotations

from typing import ClassVar, NamedTuple


class Problem(NamedTuple):
    """One thing wrong (or worth saying) in a configuration, with its place."""

    rule: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    path: str = ""
    level: str = "error"
    hint: str = ""

    @property
    def place(self) -> str:
        """`file:line:column`, as far as each is known."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)

    @property
    def document(self) -> dict[str, str | int]:
        """For machines: what is not known is left out."""
        return {name: value for name, value in self._asdict().items() if value}

    def __str__(self) -> str:
        head = f"{self.place}: " if self.place else ""
        path = f"{self.path}: " if self.path else ""
        tail = f" {self.hint}" if self.hint else ""
        return f"{head}{self.level}: {path}{self.message}{tail} [{self.rule}]"


class BatchtrainError(Exception):
    """The base: something a person can act on. Anything else that escapes is our bug (exit code 1)."""

    exit_code: ClassVar[int] = 1


class UsageError(BatchtrainError):
    """The command or the call was not well formed, or a precondition the caller controls is missing."""

    exit_code = 2


class ConfigError(BatchtrainError):
    """The configuration is wrong; `problems` holds every problem of every file, each with its place."""

    exit_code = 2

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class PlanError(BatchtrainError):
    """The configuration is well formed but can never work; the message gives the reason and the way out."""

    exit_code = 2


class ServiceError(BatchtrainError):
    """The service answered with an error.

    `operation` is what was asked, `code` the service's own error code, `request_id` what support asks for.
    """

    exit_code = 4

    def __init__(self, message: str, *, operation: str = "", code: str = "", request_id: str = "") -> None:
        self.operation, self.code, self.request_id = operation, code, request_id
        super().__init__(message)


class NotFound(ServiceError):
    """What was named is not there."""

    exit_code = 3


class AlreadyExists(ServiceError):
    """What was to be created is there already."""


class NotAllowed(ServiceError):
    """Signing in failed, or the account may not do this."""


class QuotaReached(ServiceError):
    """A quota of the account or the region stands in the way."""


class Unreachable(ServiceError):
    """The service does not answer."""

    exit_code = 5


class TimedOut(BatchtrainError):
    """A wait reached its deadline; the message says what was waited for."""

    exit_code = 6


class TaskFailed(BatchtrainError):
    """A task ended in failure: which, where, with what exit code, and its last lines."""

    exit_code = 10

    def __init__(
        self, message: str, *, task: str = "", node: str = "", code: int | None = None, lines: tuple[str, ...] = ()
    ) -> None:
        self.task, self.node, self.code, self.lines = task, node, code, lines
        super().__init__(message)
