"""The launch of a task that brings its own launcher, or needs none: its command, after pre_execution_command."""

from __future__ import annotations

from batchtrain.launchers import shell, steps
from batchtrain.launchers.types import Launch, Shape


def launch(
    command: str,
    shape: Shape,
    *,
    pre_execution_command: str | None = None,
    coordination_command: str | None = None,
) -> Launch:
    """The command once, on the only node or on the primary, its text as it was written."""
    return Launch(
        coordination=steps.coordination(shape, coordination_command),
        application=_application(command, pre_execution_command),
        files=(steps.GANG,),
    )


def alone(command: str) -> Launch:
    """The command of a task that runs on one node: there is nothing to coordinate, and no gang to watch."""
    return Launch(coordination="", application=_application(command, None))


def _application(command: str, pre_execution_command: str | None) -> str:
    return shell.script(
        steps.SOURCE if pre_execution_command else "",
        steps.pre_execution(pre_execution_command),
        shell.block("The command:", shell.verbatim(command)),
    )
