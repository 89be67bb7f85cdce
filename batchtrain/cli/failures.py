"""Reports a failed command: one message on the terminal or one JSON document, and the exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import click

from batchtrain.cli.messages import TONES, colored, pasted
from batchtrain.cli.options import Settings, global_options
from batchtrain.cli.wrapping import broken, terminal_width, wrapped
from batchtrain.config.masking import masked_document, masked_text, secrets_in
from batchtrain.display.terminal import plain_text
from batchtrain.errors import (
    BatchtrainError,
    ConfigError,
    Differs,
    ServiceError,
    TaskFailed,
    TasksRefused,
    counted,
    printable_lines,
    shortened,
)

INTERRUPTED = 130
OF_THE_MACHINE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})
"""Errors of the operating system that batchtrain cannot prevent; Python does not always name the file."""

OF_A_NODE = re.compile(r'"[^"]*/workitems/[^/"]+/[^/"]+/(?=[^/"]+/)')
"""The prefix of the task's directory in a traceback: a path that exists only on the node."""


def report(error: BaseException, options: Settings) -> int:
    """Print the failure to stderr, without secrets; returns the exit code."""
    if isinstance(error, click.UsageError):
        _read_anyway(options)
    secrets = secrets_in(options.recipe, options.values)
    if debugging() and isinstance(error, Exception) and not isinstance(error, click.ClickException):
        print(masked_text(printable_lines("".join(traceback.format_exception(error))), secrets), file=sys.stderr)
    message, code = message_of(error)
    message = pasted(message, options)
    if options.output == "table":
        for part in _for_people(error, message, options):
            print(masked_text(part, secrets), file=sys.stderr)
    else:
        print(json.dumps(masked_document(document_of(error, message, code), secrets)), file=sys.stderr)
    return code


def message_of(error: BaseException) -> tuple[str, int]:
    """The message for the terminal, and the exit code."""
    if isinstance(error, ConfigError):
        count = sum(problem.level == "error" for problem in error.problems)
        return f"{counted(count, 'error')} in the configuration", error.exit_code
    if isinstance(error, BatchtrainError):
        return str(error), error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message().removesuffix(".") + _help_of(error), 2
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return "interrupted", INTERRUPTED
    if isinstance(error, OSError) and (message := _of_the_machine(error)):
        return message, 2
    return f"this is a bug in batchtrain, please report it: {type(error).__name__}: {error} (--debug shows where)", 1


def _help_of(error: click.ClickException) -> str:
    """The command that lists the valid values."""
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return ""
    command = error.ctx.command
    has_program = any(parameter.name == "arguments" for parameter in command.params)
    if isinstance(error, click.NoSuchOption) and has_program and error.ctx.info_name in sys.argv:
        return f"; the arguments of your program come after `--`: `{_separated(error.ctx, command)}`"
    if isinstance(error, click.NoSuchOption) and error.option_name == "--data-dir":
        return "; BATCHTRAIN_EMULATOR_DIR names the data directory of the emulator for all commands"
    return f"; `{error.ctx.command_path} --help` shows the usage."


def _separated(ctx: click.Context, command: click.Command) -> str:
    """The command line with the options that the command does not have, and what follows each of them, after `--`."""
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    before, behind, words = list[str](), list[str](), sys.argv[1:]
    words.remove(str(ctx.info_name))
    part = before
    for word in words:
        if word.startswith("-"):
            part = before if word.partition("=")[0] in names else behind
        (before if word.endswith(".py") else part).append(word)
    return f"{ctx.command_path} {shlex.join((*before, '--', *behind))}"


def _of_the_machine(error: OSError) -> str:
    """The message of an operating system error; empty if the error is a bug of batchtrain."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):  # copytree: several errors
        _, target, reason = error.args[0][0]
        return f"{target}: {str(reason).rpartition('] ')[2]}"
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if error.errno in OF_THE_MACHINE:
        return f"{error.strerror}: free the resource, and run the command again"
    return ""


def _for_people(error: BaseException, message: str, flags: Settings) -> Iterator[str]:
    if isinstance(error, ConfigError):
        for problem in error.problems:
            sentence, *tail = problem.rendered(color=colored(sys.stderr)).split("\n")
            lines = [line if "|" in line else pasted(line, flags) for line in tail]
            yield broken("\n".join((pasted(sentence, flags), *lines)), sys.stderr)
    text = _wrapped(f"batchtrain: {shortened(printable_lines(message))}")  # a service may have written parts of it
    yield f"\x1b[{TONES['failure']}m{text}\x1b[0m" if colored(sys.stderr) else text
    if isinstance(error, TaskFailed) and flags.rest:
        yield _wrapped(pasted(flags.rest, flags))
    elif isinstance(error, TaskFailed):
        if error.lines:
            last_lines = (OF_A_NODE.sub('"…/', shortened(plain_text(line))) for line in error.lines)
            yield from ("its last lines:", *(f"  {line}" for line in last_lines))
        if error.task:  # not of several runs
            job, _, task = error.task.partition("/")
            command = f"`batchtrain jobs logs {job} --task {task} --file stderr.txt`"
            yield _wrapped(pasted(f"the rest: {command}", flags))
    if isinstance(error, BatchtrainError) and error.finding:
        for row in error.finding.card():
            yield _wrapped(pasted(row, flags))
    if isinstance(error, TaskFailed) and error.__cause__ is not None:
        also, _ = message_of(error.__cause__)
        yield _wrapped(pasted(f"batchtrain: {printable_lines(also)}", flags))


def _wrapped(text: str) -> str:
    return wrapped(printable_lines(text), terminal_width(sys.stderr))


def document_of(error: BaseException, message: str, code: int) -> dict[str, Any]:
    """The message as a document."""
    document: dict[str, Any] = {"code": _code(error), "message": message, "exit_code": code}
    if isinstance(error, ConfigError):
        document["problems"] = [problem.document for problem in error.problems]
    if isinstance(error, ServiceError):
        document |= {"operation": error.operation, "request_id": error.request_id}
    if isinstance(error, TasksRefused):
        document |= {"added": error.added, "total": error.total, "refused": [task._asdict() for task in error.refused]}
    if isinstance(error, Differs) and error.tasks:
        document["tasks"] = list(error.tasks)
    if isinstance(error, TaskFailed):
        facts = {"task": error.task, "rank": error.rank, "node": error.node, "task_exit_code": error.code}
        document |= {**facts, "cause": error.cause, "raised": error.raised, "lines": list(error.lines)}
        if error.__cause__ is not None:
            document["problem"] = document_of(error.__cause__, *message_of(error.__cause__))
    if isinstance(error, BatchtrainError) and error.finding:
        document["finding"] = error.finding._asdict()
    if isinstance(error, OSError) and error.filename is not None:
        document["place"] = os.fsdecode(error.filename)
    return {name: value for name, value in document.items() if value not in ("", None)}


def _code(error: BaseException) -> str:
    """The error code of the service if there is one, otherwise the name of the error."""
    if isinstance(error, ServiceError) and error.code:
        return error.code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return "Interrupted"
    if isinstance(error, (BatchtrainError, click.ClickException, OSError)):
        return type(error).__name__
    return "Bug"


def _read_anyway(options: Settings) -> None:
    """Read the global options of a command line that failed before they were read, so that the message has the format
    and the target that the user chose."""
    lenient = {"ignore_unknown_options": True, "allow_extra_args": True}
    options_of_all = list[click.Parameter](global_options(variables=True))
    reader = click.Command("", params=options_of_all, context_settings=lenient, add_help_option=False)
    reader.make_context("", sys.argv[1:], obj=options, resilient_parsing=True)


def debugging() -> bool:
    """Whether `--debug` or its variable asks for tracebacks."""
    return "--debug" in sys.argv or os.environ.get("BATCHTRAIN_DEBUG", "") not in ("", "0")
