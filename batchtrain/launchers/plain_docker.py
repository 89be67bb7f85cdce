"""A task in a container of the node's own Docker Engine, which Batch knows nothing of: the texts that the host runs.

What is run inside, and how a gang is launched there, is the other launchers' matter; here its container is started,
entered and removed. `runtime/docker.sh` has the functions.
"""

from __future__ import annotations

from typing import NamedTuple

from batchtrain import runtime
from batchtrain.launchers import shell
from batchtrain.launchers.types import File, Launch

DOCKER = File(".batchtrain/docker.sh", runtime.DOCKER)
COORDINATE = ".batchtrain/inside-coordinate.sh"
LAUNCH = ".batchtrain/inside-launch.sh"
_SHARED = "$AZ_BATCH_TASK_SHARED_DIR"
_SOURCE = f'source "{_SHARED}/{DOCKER.name}" || exit 1'


class Container(NamedTuple):
    """How one task's container is run."""

    image: str
    copy: str = ""
    """The image's name in a second registry, for when its own does not give it."""
    options: tuple[str, ...] = ()
    """Words for `docker run`, as a shell takes them: variables of the node in them are expanded there."""
    directory: str = "$AZ_BATCH_TASK_WORKING_DIR"
    """Where commands start; empty for the image's own."""
    own: tuple[str, ...] = ()
    """Variables that the task or its job sets, which reach the container whatever they are called."""


def alone(container: Container, command: str, *, as_it_is: bool) -> Launch:
    """A task on one node.

    as_it_is: the command's words are the container's own, as `docker run` takes them (an entry point's, an image
    without bash); otherwise it is a text for bash.
    """
    inside = shell.verbatim(command.strip()) if as_it_is else f"/bin/bash -c {shell.word(command.strip())}"
    text = shell.script(
        _begin(container),
        _find_image(container),
        shell.block(
            "The container, until it ends; it goes with this shell:",
            shell.continued(
                "bt_run", _directory(container), *container.options, f"{_image(container)} {inside}".rstrip()
            ),
        ),
    )
    return Launch(coordination="", application=text, files=(DOCKER,))


def gang(container: Container, inside: Launch) -> Launch:
    """A multi-instance task: `inside` is what its containers run, on every node and on the primary."""
    return inside._replace(
        coordination=_coordination(container),
        application=_application(container),
        files=(
            *inside.files,
            DOCKER,
            File(COORDINATE, inside.coordination.encode()),
            File(LAUNCH, inside.application.encode()),
        ),
    )


def _begin(container: Container) -> str:
    return shell.block(
        "Runs on the host. What the container sees of this shell's environment:",
        _SOURCE,
        " ".join(("bt_take_environment", *map(shell.word, container.own))),
    )


def _find_image(container: Container) -> str:
    if not container.copy:
        return ""
    names = f"{shell.word(container.image)} {shell.word(container.copy)}"
    return shell.block("The image, by the name it has on this node:", f"bt_image=$(bt_find_image {names}) || exit")


def _image(container: Container) -> str:
    return '"$bt_image"' if container.copy else shell.word(container.image)


def _directory(container: Container) -> str:
    return f'--workdir "{container.directory}"' if container.directory else ""


def _coordination(container: Container) -> str:
    return shell.script(
        _begin(container),
        _find_image(container),
        shell.block(
            "This node's container, in which the ranks run; it stays until the primary is done:",
            shell.continued(f"bt_start_gang {_image(container)}", *container.options),
        ),
        shell.block(
            "The coordination command, inside:",
            " ".join(filter(None, ("bt_coordinate", f'"{_SHARED}/{COORDINATE}"', _directory(container)))),
        ),
    )


def _application(container: Container) -> str:
    return shell.script(
        _begin(container),
        shell.block(
            "The launch, inside the primary's container; when it has ended, the containers of all nodes go:",
            " ".join(filter(None, ("bt_enter_gang", f'"{_SHARED}/{LAUNCH}"', _directory(container)))),
        ),
    )
