"""The line of a task that lists the package versions of its environment, while its program starts."""

from __future__ import annotations

from batchtrain import runtime
from batchtrain.launchers import python
from batchtrain.launchers.launch import File

FILE = File(".batchtrain/package_versions.py", runtime.PACKAGES)
_TO = '"$AZ_BATCH_TASK_DIR/.batchtrain-packages.json"'


def line(command: str, inside: str = "") -> str:
    """Runs in the background, with the Python of the command. inside: the words before a command in an image."""
    interpreter = python.interpreter(command)
    words = (inside, interpreter if interpreter and "'" not in interpreter else "python3")
    program = f'-s "$AZ_BATCH_TASK_SHARED_DIR/{FILE.name}" {_TO}'
    return f"({' '.join(filter(None, words))} {program} </dev/null >/dev/null 2>&1 &)"
