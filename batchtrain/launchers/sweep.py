"""The module `batchtrain_sweep`, which comes with a task whose command names it."""

from __future__ import annotations

from batchtrain import runtime
from batchtrain.launchers import steps
from batchtrain.launchers.launch import File, Launch

NAME = "batchtrain_sweep"
MODULE = File(f".batchtrain/python/{NAME}.py", runtime.SWEEP_MODULE)


def wanted(command: str | None) -> bool:
    """Whether a command uses the module."""
    return NAME in (command or "")


def around(launch: Launch, command: str | None) -> Launch:
    """The launch with the module on the path of Python, if the command uses it."""
    if not wanted(command):
        return launch
    return launch._replace(application=f"{steps.PYTHON_PATH}\n\n{launch.application}", files=(*launch.files, MODULE))
