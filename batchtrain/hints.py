"""Completes the commands inside messages so that they can be pasted: the program as it was called, and the target."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

COMMAND = r"`batchtrain (?P<quoted>[a-z][^`]*)`|\bbatchtrain (?P<bare>[a-z]+ [^`\n·;,()]*[^`\n·;,() ])(?= ·|[;,)\n]|$)"
"""A command between backticks, or up to the end of the clause."""
WHOLE = r"(?P<before>  (?:[a-z ]+: )?)batchtrain (?P<words>[a-z]+ .*)"
"""An indented line that is a command, optionally after its purpose."""
ASKING = (
    r"(?:pool (?!autoscale)|jobs (?!sweep \d{8}T))[a-z]|(?:run|doctor|runs (?:attach|fetch|stop))\b"
    r"|config plan\b.* --diff\b|runs list .*--account\b"
)
"""Commands that contact a service and need its target options."""
READING = r"(?:data|images (?!env|build|list|save|load)) ?[a-z]|config show$"
"""Commands that read credentials.yaml."""
OF_FILES = (
    r"(?:run|doctor|pool (?!list)[a-z]+|jobs (?!list|show|sweep)[a-z]+)"
    r"(?: --file (?:'[^']*'|\S+)| -\S+(?: [A-Z]+| \d{8}T\S+)?)*|pool [a-z]+ \. .*"
)
"""Commands without a name or a directory, or with `.` for the pool, which read the files of the command that is
running."""
WORDS_LAST = r"(?P<verb>pool ssh|jobs exec)\b"
"""Commands whose last words belong to the user's command, so that options stand before them."""
DOING = frozenset(
    {"pool", "jobs", "run", "runs", "doctor", "config", "data", "images", "recipe", "catalog", "emulator", "help"}
)
"""The first words of commands that are not between backticks; other words belong to a sentence about batchtrain."""


CALLS = {
    "run --reuse": "client.run(recipe, reuse=True)",
    "run --resume RUN": "client.run(recipe, resume=RUN)",
    "jobs add": "client.jobs.add_all(recipe)",
    "jobs add --recreate": "client.jobs.add_all(recipe, recreate=True)",
    "config plan --diff": "client.compare(recipe)",
    "pool login": "client.pools.log_in(recipe)",
}
"""Calls of the Python API in place of commands that read the recipe's files; a recipe in Python has none."""


def pasted(
    text: str, target: str, directory: str, name: str = "", script: tuple[str, str] = ("", ""), values: str = ""
) -> str:
    """A message whose commands name the target of the command that is running, and the program.

    target: the options that reach the same account (` --local`). directory: the options that read the same credentials.
    name: the program; by default as it was called. script: the script with its options (`train.py --nodes 2`) that
    `run` got, and its arguments (` -- --epochs 3`). values: the values of the command line (` --set a.b=1`).
    """
    if "batchtrain " not in text:
        return text
    name = name or program()

    def completed(words: str) -> str:
        if re.match(ASKING, words):
            of_files = re.fullmatch(OF_FILES, words) is not None
            of_script = bool(script[0]) and words.startswith("run -")
            words = f"run {script[0]}{words.removeprefix('run')}{script[1]}" if of_script else words
            words = _with(words, values) if of_files else words
            words = _with(words, target or directory)
            words = _with(words, directory) if of_files and not of_script else words
        elif re.match(READING, words):
            words = _with(words, directory)
        return f"{name} {words}"

    def replaced(match: re.Match[str]) -> str:
        if words := match["quoted"]:
            return f"`{completed(words)}`"
        return completed(match["bare"]) if match["bare"].split()[0] in DOING else match[0]

    def line(text: str) -> str:
        command = re.fullmatch(WHOLE, text) if text.startswith("  ") else None
        if command and command["words"].split()[0] in DOING:
            return command["before"] + completed(command["words"])
        return re.sub(COMMAND, replaced, text)

    return "\n".join(map(line, text.split("\n")))


def _with(words: str, option: str) -> str:
    parts = words.split()
    if not option or option.split()[0] in parts or "--help" in parts:
        return words
    verb = re.match(WORDS_LAST, words)
    if verb:
        return f"{verb['verb']}{option}{words[verb.end() :]}"
    before, dashes, arguments = words.partition(" -- ")  # what follows is for the script
    return f"{before}{option}{dashes}{arguments}"


CALLS_WITH_NAMES = (
    (r"jobs list", "client.jobs.list()"),
    (r"jobs show (\S+)", 'client.jobs.get("{0}")'),
    (r"jobs tasks (\S+)", 'client.jobs.get("{0}").tasks'),
    (r"jobs wait (\S+)", 'client.jobs.get("{0}").wait()'),
    (r"jobs del (\S+)", 'client.jobs.get("{0}").delete()'),
    (r"jobs fetch (\S+)", 'client.jobs.get("{0}").result()'),
    (r"jobs diagnose (\S+)", 'client.jobs.get("{0}").diagnose()'),
    (r"pool list", "client.pools.list()"),
    (r"pool show (\S+)", 'client.pools.get("{0}")'),
    (r"pool del (\S+)", 'client.pools.delete("{0}")'),
)
"""Commands about things of the account, with the calls that do the same."""
_COMMAND_OF_ACCOUNT = r"`batchtrain ([^`]+)`"


def _called(match: re.Match[str]) -> str:
    for pattern, call in CALLS_WITH_NAMES:
        if command := re.fullmatch(pattern, match[1]):
            return f"`{call.format(*command.groups())}`"
    return match[0]


def for_cell(text: str, target: str) -> str:
    """A message whose commands are calls of the Python API, or run in a cell of a notebook.

    target: the options that reach the same account.
    """
    for command, call in CALLS.items():
        text = text.replace(f"`batchtrain {command}`", f"`{call}`")
    text = re.sub(_COMMAND_OF_ACCOUNT, _called, text)
    program = "batchtrain" if shutil.which("batchtrain") else f"{shlex.quote(sys.executable)} -m batchtrain.cli"
    return pasted(text, target, "", f"!{program}")


def program() -> str:
    """The command that starts this program: `batchtrain` if it is on PATH, otherwise the path that was used."""
    path = Path(sys.argv[0])
    if path.parts[-3:] == ("batchtrain", "cli", "__main__.py"):
        return f"{shlex.quote(sys.executable)} -m batchtrain.cli"
    if path.name != "batchtrain" or "/" not in sys.argv[0]:
        return "batchtrain"
    program = shutil.which("batchtrain")
    if program and Path(program).resolve() == path.resolve():
        return "batchtrain"
    return shlex.quote(sys.argv[0])
