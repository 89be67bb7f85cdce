"""The launch of a task with its own launcher, or without any: its command, after pre_execution_command."""

from __future__ import annotations

from batchtrain.frameworks.base import Shape
from batchtrain.launchers import shell, steps
from batchtrain.launchers.launch import Launch


def launch(
    command: str, shape: Shape, *, pre_execution_command: str | None = None, coordination_command: str | None = None
) -> Launch:
    """Runs the command once, on the only node or on the primary, with its text unchanged.

    Between containers whose sshd is ours, a launcher in it (`mpirun`) finds an ssh that takes their port and key.
    """
    by_ssh = shape.instances > 1 and steps.starts_sshd(shape, coordination_command)
    return Launch(
        coordination=steps.coordination(shape, coordination_command),
        application=_application(command, pre_execution_command, _SSH if by_ssh else ""),
        files=(steps.GANG, steps.NODE, *((steps.SSH,) if by_ssh else ())),
        implicit=(*steps.implicit_sshd(shape, coordination_command), *((steps.OWN_SSH,) if by_ssh else ())),
    )


def alone(command: str) -> Launch:
    """The command of a task on one node, without coordination and gang."""
    return Launch(coordination="", application=_application(command, None))


_SSH = shell.block(
    "For a launcher of the command's own, where the image has an ssh:",
    f"! type -P ssh >/dev/null || bt_use_ssh {steps.SSHD_PORT}",
)


def _application(command: str, pre_execution_command: str | None, ssh: str = "") -> str:
    return shell.script(
        steps.SOURCE if pre_execution_command or ssh else "",
        steps.pre_execution(pre_execution_command),
        ssh,
        shell.block("The command:", shell.verbatim(command)),
    )
