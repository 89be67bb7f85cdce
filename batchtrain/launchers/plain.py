"""The launch of a task with its own launcher, or without any: its command, after pre_execution_command."""

from __future__ import annotations

from batchtrain.frameworks.base import Shape
from batchtrain.launchers import shell, steps
from batchtrain.launchers.launch import Setup, Step


def launch(command: str, shape: Shape, setup: Setup) -> tuple[Step, ...]:
    """Runs the command once, on the only node or on the primary, with its text unchanged.

    Between containers whose sshd is ours, a launcher in it (`mpirun`) finds an ssh that takes their port and key.
    """
    by_ssh = shape.instances > 1 and steps.starts_sshd(shape, setup.coordination_command)
    return (
        *steps.coordination(shape, setup.coordination_command),
        steps.passes_on(setup.preemption),
        Step(steps.SOURCE if setup.pre_execution_command or by_ssh else "", (steps.NODE,)),
        steps.pre_execution(setup.pre_execution_command),
        *((_SSH,) if by_ssh else ()),
        alone(command),
    )


_SSH = Step(
    shell.block(
        "For a launcher of the command's own, where the image has an ssh:",
        f"! type -P ssh >/dev/null || bt_use_ssh {steps.SSHD_PORT}",
    ),
    (steps.SSH,),
    (steps.OWN_SSH,),
)


def alone(command: str) -> Step:
    """The command of a task on one node, without coordination and gang."""
    return Step(shell.block("The command:", shell.verbatim(command)))
