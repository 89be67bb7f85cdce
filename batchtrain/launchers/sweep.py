"""The module `batchtrain_sweep`, which comes with a task whose command names it."""

from __future__ import annotations

from batchtrain import runtime
from batchtrain.launchers import steps
from batchtrain.launchers.launch import File, Step

NAME = "batchtrain_sweep"
STEP = Step(steps.PYTHON_PATH, (File(f".batchtrain/python/{NAME}.py", runtime.read("batchtrain_sweep.py")),))


def wanted(command: str | None) -> bool:
    """Whether a command uses the module."""
    return NAME in (command or "")
