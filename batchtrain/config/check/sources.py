"""Rules about the files of a task: its `source`, the script its command starts, the length of its commands."""

from __future__ import annotations

import posixpath
import re
from functools import partial
from itertools import islice

from batchtrain.config import factories, schema, travel
from batchtrain.config.check.subject import LONGEST_READ, Subject, command_of
from batchtrain.config.check.table import BOTH, CREDENTIALS, ERROR, JOBS, POOL, SETTINGS, WARNING, Found, Rule
from batchtrain.config.patterns import late
from batchtrain.config.types import Job, Task
from batchtrain.launchers import shell

MOST_NAMES = 10
MOST_WORDS = 50
"""Maximum number of words of a command in which its script is searched."""
_ASSIGNED = re.compile(r"\w+=\S*")
_RUNS = re.compile(r"exec|time|nohup|env")
_INTERPRETER = re.compile(r"(?:/[\w./-]*/)?(?:python[\d.]*|bash|sh)")
_SCRIPT = late(
    r"(?:\$(?P<variable>AZ_BATCH_TASK_(?:SHARED|WORKING)_DIR)/|\$\{(?P<braced>AZ_BATCH_TASK_(?:SHARED|WORKING)_DIR)\}/"
    r"|(?P<here>\./)?)(?P<path>[\w.+-][\w./+-]*\.(?:py|sh))"
)
"""A script below one of the task's own directories; the group `variable` or `braced` says which."""
_OWN = re.compile(r"AZ_BATCH_TASK_(?:SHARED|WORKING)_DIR")


def _breaking(rule: str, subject: Subject) -> Found:
    return (((*path, "source"), survey.message) for path, _, survey in subject.surveyed if survey.rule == rule)


def _size(subject: Subject) -> Found:
    yield from (((*path, "source"), survey.too_large) for path, _, survey in subject.surveyed if survey.too_large)
    yield from _breaking("source-size", subject)


# --- the script -----------------------------------------------------------------------------------------------------


def _scripts(subject: Subject) -> Found:
    if subject.windows:
        return
    for path, job, task in subject.tasks:
        command, is_elsewhere = command_of(task), _starts_elsewhere(job, task)
        if (".py" not in command and ".sh" not in command) or (is_elsewhere and not _OWN.search(command)):
            continue
        script = script_of(command)
        if script is None or (is_elsewhere and not (script["variable"] or script["braced"])):
            continue
        if wrong := _unsupplied(subject, task, script):
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
    elif words and "/" not in words[0]:
        return None  # the shell looks for it on PATH
    return _SCRIPT.fullmatch(words[0]) if words else None


def _unsupplied(subject: Subject, task: Task, script: re.Match[str]) -> str:
    """Why the command cannot find a script; empty if it may find it."""
    name = posixpath.normpath(script["path"])
    if name.startswith("..") or _brings_more(task):
        return ""
    if task.source is None:
        return f"`{name}` is not sent to the task: it has no `source`; name the directory of `{name}`"
    survey = subject.sources.get(task.source)
    if survey is None or survey.rule:
        return ""
    if name not in survey.names:
        near = [other for other in survey.names if posixpath.basename(other) == posixpath.basename(name)]
        instead = f"; write `{near[0]}`" if len(near) == 1 else ""
        return f"`{name}` is not in the `source` {task.source}, which has {_listed(survey.names)}{instead}"
    return ""


def _unsent(subject: Subject) -> Found:
    for path, task, survey in subject.surveyed:
        paths = travel.paths_in(command_of(task)) if survey.unsent and not _brings_more(task) else frozenset[str]()
        for name in sorted(name for name in survey.unsent if name.removesuffix("/") in paths):
            resume = "; `--resume RUN` continues the checkpoints of a run" if task.checkpoint else ""
            unless = "unless the program makes it, " if name.endswith("/") else ""
            yield (
                (*path, "command"),
                f"`{name}` is not sent to the task: it is left out of the `source` by {survey.unsent[name]}; {unless}"
                f"copy it to another place in the source, or send it with `input_data`{resume}",
            )


def _twice(subject: Subject) -> Found:
    for path, task, survey in subject.surveyed:
        gang, names = task.multi_instance, frozenset(survey.names)
        lists = {(*path, "resource_files"): task.resource_files}
        lists |= {(*path, "multi_instance", "resource_files"): gang.resource_files} if gang else {}
        for where, files in lists.items():
            for number, file in enumerate(files):
                if (name := posixpath.normpath(file.file_path or "")) in names:
                    yield (
                        (*where, number, "file_path"),
                        f"`{name}` is also a file of the `source` {task.source}, and both lie where the command starts;"
                        f" rename one of them, or write `/{name}` into the `.batchtrainignore` of the source",
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


def _starts_elsewhere(job: Job, task: Task) -> bool:
    """Whether the command starts among the files of its image, or in an image without files of a source."""
    has_image = task.docker_image is not None or task.singularity_image is not None
    return has_image and (task.source is None or (task.default_working_dir or job.default_working_dir) == "container")


def _listed(names: tuple[str, ...]) -> str:
    text = ", ".join(f"`{name}`" for name in names[:MOST_NAMES])
    return f"{text} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else text


def _script_syntax(subject: Subject) -> Found:
    for path, task, survey in subject.surveyed:
        for name, reason in survey.syntax_errors:
            if _names(command_of(task), name):
                yield (*path, "command"), _cannot_compile(name, reason)


def _source_syntax(subject: Subject) -> Found:
    reported: set[str] = set()
    for path, task, survey in subject.surveyed:
        for name, reason in survey.syntax_errors:
            if f"{task.source}/{name}" not in reported and not _names(command_of(task), name):
                reported.add(f"{task.source}/{name}")
                yield (*path, "source"), _cannot_compile(name, reason)


def _line_ends(subject: Subject) -> Found:
    for path, _, survey in subject.surveyed:
        if survey.line_ends:
            yield (
                (*path, "source"),
                f"the line ends of {_listed(survey.line_ends)} are those of Windows (CR LF), which Linux reads as part"
                " of the last word of a line; convert the file (`dos2unix`, or `*.sh text eol=lf` in .gitattributes)",
            )
    commands = () if subject.windows else (*_job_commands(subject), *_task_commands(subject))
    for path, command in commands:
        if "\r\n" in command:
            yield path, "its line ends are those of Windows (CR LF); write `\\n` alone"


def _names(command: str, file: str) -> bool:
    """Whether a command names a file of the source."""
    return re.search(rf"(?<![\w.-]){re.escape(file)}(?![\w.-])", command) is not None


def _cannot_compile(name: str, reason: str) -> str:
    return f"`{name}` of the `source` does not compile, {reason}; if the nodes have a newer Python, silence this check"


# --- tasks made of files --------------------------------------------------------------------------------------------


def _factories(subject: Subject) -> Found:
    for path, task, survey in subject.surveyed:
        factory = task.task_factory
        selection = factory.file.source if factory and factory.file else None
        if selection is None or survey.rule:
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
    Rule("source-size", ERROR, (*SETTINGS, *CREDENTIALS, *JOBS), "A task's source fits into a request.",
         "Azure Batch: 413 RequestBodyTooLarge (1 MB)", _size),
    Rule("source-script", ERROR, BOTH, "The script that a command starts is sent to the node.", _TRAVELS, _scripts),
    Rule("source-left-out", WARNING, JOBS, "A file of the source that a command names is sent to the node.", _TRAVELS,
         _unsent),
    Rule("script-syntax", ERROR, JOBS, "A Python file that a command names compiles.", "Python: compile()",
         _script_syntax),
    Rule("source-syntax", WARNING, JOBS, "The other Python files of a source compile.", "Python: compile()",
         _source_syntax),
    Rule("script-launcher", ERROR, JOBS, "A bare script leaves it to batchtrain to start its processes. A launcher that"
         " it starts under a condition is a warning.", "batchtrain: a bare script is a recipe"),
    Rule("script-package", WARNING, JOBS, "A package brings each module that a bare script imports.",
         "batchtrain: a bare script is a recipe"),
    Rule("script-alone", WARNING, JOBS, "The processes of a bare script share the work.",
         "batchtrain: a bare script is a recipe"),
    Rule("script-line-ends", ERROR, BOTH, "Scripts have the line ends of Linux.", "POSIX: Shell Command Language;"
         " execve(2): interpreter scripts", _line_ends),
    Rule("source-twice", ERROR, JOBS, "No file of the source has the name of a resource file.", _TRAVELS, _twice),
    Rule("factory-source", ERROR, JOBS, "A factory of files finds some in its task's source.", _TRAVELS, _factories),
    Rule("command-quotes", ERROR, BOTH, "Each quote of a command is closed.", "POSIX: Quoting", _quotes),
    Rule("command-length", ERROR, (*SETTINGS, *CREDENTIALS, *JOBS), "A command fits into a request.",
         "execve(2): MAX_ARG_STRLEN; Azure Batch: 413 RequestBodyTooLarge (1 MB)", _lengths),
)  # fmt: skip
