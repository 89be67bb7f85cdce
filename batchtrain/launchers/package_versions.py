"""The step of a task that lists the package versions of its environment, while its program starts."""

from __future__ import annotations

from batchtrain import runtime
from batchtrain.launchers import python
from batchtrain.launchers.launch import File, Step

_FILE = File(".batchtrain/package_versions.py", runtime.read("package_versions.py"))
_TO = '"$AZ_BATCH_TASK_DIR/.batchtrain-packages.json"'


def step(command: str, inside: str = "") -> Step:
    """Runs in the background, with the Python of the command. inside: the words before a command in an image."""
    interpreter = python.interpreter(command)
    words = (inside, interpreter if interpreter and "'" not in interpreter else "python3")
    program = f'-s "$AZ_BATCH_TASK_SHARED_DIR/{_FILE.name}" {_TO}'
    return Step(files=(_FILE,), before=f"({' '.join(filter(None, words))} {program} </dev/null >/dev/null 2>&1 &); ")
