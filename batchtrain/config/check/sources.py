"""Rules about the files of a task: its `source`, the script its command starts, the length of its commands."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice

from batchtrain.config import factories, schema, travel
from batchtrain.config.check.subject import LONGEST_READ, Path, Subject, command_of
from batchtrain.config.check.table import BOTH, CREDENTIALS, ERROR, JOBS, POOL, SETTINGS, WARNING, Found, Rule
from batchtrain.config.travel import Survey
from batchtrain.config.types import Job, Task
from batchtrain.launchers import shell

MOST_NAMES = 10
MOST_WORDS = 50
"""Maximum number of words of a command in which its script is searched."""
_ASSIGNED = re.compile(r"\w+=\S*")
_RUNS = re.compile(r"exec|time|nohup|env")
_INTERPRETER = re.compile(r"(?:/[\w./-]*/)?(?:python[\d.]*|bash|sh)")
_SCRIPT = re.compile(
    r"(?:\$(?P<variable>AZ_BATCH_TASK_(?:SHARED|WORKING)_DIR)/|\$\{(?P<braced>AZ_BATCH_TASK_(?:SHARED|WORKING)_DIR)\}/"
    r"|(?P<here>\./)?)(?P<path>[\w.+-][\w./+-]*\.(?:py|sh))"
)
"""A script below one of the task's own directories; the group `variable` or `braced` says which."""
SHARED = "AZ_BATCH_TASK_SHARED_DIR"
_OWN = re.compile(r"AZ_BATCH_TASK_(?:SHARED|WORKING)_DIR")


def _breaking(rule: str, subject: Subject) -> Found:
    return ((path, survey.message) for path, survey in subject.brought if survey.rule == rule)


def _size(subject: Subject) -> Found:
    return ((path, survey.too_large) for path, survey in subject.brought if survey.too_large)


# --- the script -----------------------------------------------------------------------------------------------------


def _scripts(subject: Subject) -> Found:
    if subject.windows:
        return
    for path, _, task in subject.tasks:
        command = command_of(task)
        if (".py" not in command and ".sh" not in command) or (_has_image(task) and not _OWN.search(command)):
            continue
        script = script_of(command)
        if script is not None and (wrong := _unsupplied(subject, task, script)):
            yield (*path, "command"), wrong


def script_of(command: str) -> re.Match[str] | None:
    """The script in a directory of the task that a command certainly starts first; None for any other command."""
    words = [word.strip("\"'") for word, _ in islice(shell.first_words(command), MOST_WORDS)]
    while words and (_ASSIGNED.fullmatch(words[0]) or _RUNS.fullmatch(words[0])):
        words = words[1:]
    if words and _INTERPRETER.fullmatch(words[0]):
        words = words[1:]
        while words and words[0] in ("-u", "-O", "-B", "-E", "-e", "-x"):
            words = words[1:]
    return _SCRIPT.fullmatch(words[0]) if words else None


def _unsupplied(subject: Subject, task: Task, script: re.Match[str]) -> str:
    """Why the command cannot find a script; empty if it may find it."""
    name = posixpath.normpath(script["path"])
    root = script["variable"] or script["braced"] or ""
    if name.startswith("..") or _brings_more(task) or (not root and _has_image(task)):
        return ""
    if task.source is None:
        return f"`{name}` is not sent to the task: it has no `source`; name the directory of `{name}`"
    survey = subject.sources.get(task.source)
    if survey is None or survey.rule:
        return ""
    if name not in survey.names:
        near = [other for other in survey.names if posixpath.basename(other) == posixpath.basename(name)]
        instead = f"; write `${SHARED}/{near[0]}`" if len(near) == 1 else ""
        return f"`{name}` is not in the `source` {task.source}, which has {_listed(survey.names)}{instead}"
    if root == SHARED or task.link_source:
        return ""
    start = "" if root else ", in which a command starts"
    return (
        f"`{name}` of the `source` lies in ${SHARED}, not in $AZ_BATCH_TASK_WORKING_DIR{start}; write"
        f" `${SHARED}/{name}`"
    )


def _relative(subject: Subject) -> Found:
    """Warns where `_scripts` cannot be certain: in containers, in later commands, behind launchers."""
    if subject.windows:
        return
    for path, job, task in subject.tasks:
        survey = subject.sources.get(task.source or "")
        command = command_of(task)
        if survey is None or survey.rule or not re.search(r"\.(py|sh)\b", command) or _may_start_elsewhere(job, task):
            continue
        script = script_of(command)
        if script is not None and not _has_image(task) and _unsupplied(subject, task, script):
            continue  # `source-script` reports it
        names = (posixpath.normpath(match[1]) for match in _RELATIVE.finditer(command))
        name = next((name for name in names if name in survey.names), None)
        if name is not None:
            yield (
                (*path, "command"),
                f"`{name}` of the `source` lies in ${SHARED}, but the command starts in $AZ_BATCH_TASK_WORKING_DIR;"
                f" write `${SHARED}/{name}`",
            )


_RELATIVE = re.compile(r"(?<![^\s\"'=(;&|])(?:\./)?(\w[\w./+-]*\.(?:py|sh))(?![^\s\"');&|<>])")
_MOVES = re.compile(r"(?<![\w./-])(?:cd|pushd|cp|ln|mv|rsync|tar|unzip|git|curl|wget|--chdir|--wdir|-wdir)(?![\w./-])")
"""A word that changes the directory of a command, or brings files to it."""


def _may_start_elsewhere(job: Job, task: Task) -> bool:
    """Whether the command may run in another directory than the working directory, or find other files there."""
    gang, factory, blobs = task.multi_instance, task.task_factory, task.input_data.azure_storage
    before = f"{gang.pre_execution_command} {gang.coordination_command}" if gang is not None else ""
    return bool(
        task.link_source
        or task.resource_files
        or task.input_data.azure_batch
        or any(not item.local_path for item in blobs)
        or (factory is not None and factory.file is not None)
        or (gang is not None and gang.resource_files)
        or (task.docker_image and (task.default_working_dir or job.default_working_dir) == "container")
        or _MOVES.search(f"{before} {command_of(task)}")
    )


def _brings_more(task: Task) -> bool:
    """Whether files may also come from elsewhere than the source, or the command runs in another directory."""
    gang, factory = task.multi_instance, task.task_factory
    return bool(
        task.resource_files
        or task.input_data != type(task.input_data)()
        or (factory is not None and factory.file is not None)
        or (gang is not None and (gang.resource_files or gang.coordination_command or gang.pre_execution_command))
    )


def _has_image(task: Task) -> bool:
    return task.docker_image is not None or task.singularity_image is not None


def _listed(names: tuple[str, ...]) -> str:
    text = ", ".join(f"`{name}`" for name in names[:MOST_NAMES])
    return f"{text} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else text


def _script_syntax(subject: Subject) -> Found:
    for path, task, survey in _surveyed(subject):
        command = command_of(task)
        for name, reason in survey.syntax_errors:
            if _names(command, name):
                yield (*path, "command"), _cannot_compile(name, reason)


def _source_syntax(subject: Subject) -> Found:
    reported: set[str] = set()
    for path, task, survey in _surveyed(subject):
        command = command_of(task)
        for name, reason in survey.syntax_errors:
            if f"{task.source}/{name}" not in reported and not _names(command, name):
                reported.add(f"{task.source}/{name}")
                yield (*path, "source"), _cannot_compile(name, reason)


def _surveyed(subject: Subject) -> Iterator[tuple[Path, Task, Survey]]:
    """The tasks with a Python file in their source that does not compile."""
    for path, _, task in subject.tasks:
        survey = subject.sources.get(task.source or "")
        if survey is not None and survey.syntax_errors:
            yield path, task, survey


def _names(command: str, file: str) -> bool:
    """Whether a command names a file of the source."""
    return re.search(rf"(?<![\w.-]){re.escape(file)}(?![\w.-])", command) is not None


def _cannot_compile(name: str, reason: str) -> str:
    return f"`{name}` of the `source` does not compile, {reason}; if the nodes have a newer Python, silence this check"


# --- tasks made of files --------------------------------------------------------------------------------------------


def _factories(subject: Subject) -> Found:
    for path, _, task in subject.tasks:
        factory, survey = task.task_factory, subject.sources.get(task.source or "")
        selection = factory.file.source if factory and factory.file else None
        if selection is None or survey is None or survey.rule:
            continue
        names, where = factories.in_source(selection, survey.names), (*path, "task_factory", "file", "source")
        if not names:
            content = _listed(survey.names)
            yield where, f"no file of `{task.source}` fits `path`, `include` and `exclude`; it has {content}"
        for name in (name for name in names if "{" in name or "}" in name):
            yield where, f"the file `{name}` has braces in its name, which no placeholder can carry; rename it"


# --- commands -------------------------------------------------------------------------------------------------------


def _quotes(subject: Subject) -> Found:
    if subject.windows:
        return
    prep = subject.pool.additional_node_prep.commands
    lists = {"pre": prep.pre, "post": prep.post}
    of_pool = (((*POOL, "additional_node_prep", "commands", name), "\n".join(lists[name])) for name in lists)
    for path, command in (*of_pool, *_job_commands(subject), *_task_commands(subject)):
        if len(command) <= LONGEST_READ and (rest := shell.open_quote(command)):
            text = schema.shortened(rest.partition("\n")[0])
            yield path, f"the quote at `{text}` is never closed; close it, or write `\\{rest[0]}` for the character"


def _lengths(subject: Subject) -> Found:
    through_storage = travel.through_storage(subject.recipe)  # a task's commands travel with its files
    for path, command in (*_job_commands(subject), *(() if through_storage else _task_commands(subject))):
        if wrong := travel.overlong(command):
            yield path, wrong


def _job_commands(subject: Subject) -> Found:
    """The commands of preparation, release and manager of jobs."""
    for path, job in subject.jobs:
        for name, part in job.parts:
            yield (*path, name, "command"), part.command or ""


def _task_commands(subject: Subject) -> Found:
    """The commands of tasks, and of their gangs before the launch."""
    for path, _, task in subject.tasks:
        yield (*path, "command"), task.command or ""
    for path, _, _, gang in subject.gangs:
        for name in ("coordination_command", "pre_execution_command"):
            yield (*path, name), getattr(gang, name) or ""


_TRAVELS = "batchtrain: a task's files travel with its request"

RULES = (
    Rule("source-missing", ERROR, JOBS, "A task's source is a directory.", _TRAVELS,
         partial(_breaking, "source-missing")),
    Rule("source-unreadable", ERROR, JOBS, "A task's source can be read.", _TRAVELS,
         partial(_breaking, "source-unreadable")),
    Rule("source-empty", ERROR, JOBS, "A task's source has a file.", _TRAVELS, partial(_breaking, "source-empty")),
    Rule("source-reserved", ERROR, JOBS, "No file of the source has the name of a file that Batch writes.",
         "Azure Batch: files and directories of a task", partial(_breaking, "source-reserved")),
    Rule("source-huge", ERROR, JOBS, "The source of a task is a program without data.", _TRAVELS,
         partial(_breaking, "source-huge")),
    Rule("source-size", ERROR, (*SETTINGS, *CREDENTIALS, *JOBS), "A task's source fits into a request.",
         "Azure Batch: 413 RequestBodyTooLarge (1 MB)", _size),
    Rule("source-script", ERROR, BOTH, "The script that a command starts is sent to the node.", _TRAVELS, _scripts),
    Rule("script-syntax", ERROR, JOBS, "A Python file that a command names compiles.", "Python: compile()",
         _script_syntax),
    Rule("source-syntax", WARNING, JOBS, "The other Python files of a source compile.", "Python: compile()",
         _source_syntax),
    Rule("source-relative", WARNING, BOTH, "A command names a script of its source with its directory.",
         _TRAVELS, _relative),
    Rule("factory-source", ERROR, JOBS, "A factory of files finds some in its task's source.", _TRAVELS, _factories),
    Rule("command-quotes", ERROR, BOTH, "Each quote of a command is closed.", "POSIX: Quoting", _quotes),
    Rule("command-length", ERROR, (*SETTINGS, *CREDENTIALS, *JOBS), "A command fits into a request.",
         "execve(2): MAX_ARG_STRLEN; Azure Batch: 413 RequestBodyTooLarge (1 MB)", _lengths),
)  # fmt: skip
