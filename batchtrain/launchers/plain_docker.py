"""A task in a container of the node's own Docker Engine, unknown to Batch: the texts that the host runs.

The other launchers decide what runs inside and how a gang is launched there. This file starts, enters and removes the
container. `runtime/docker.sh` has the functions.
"""

from __future__ import annotations

from typing import NamedTuple

from batchtrain import runtime
from batchtrain.launchers import shell
from batchtrain.launchers.launch import File, Launch

DOCKER = File(".batchtrain/docker.sh", runtime.DOCKER)
COORDINATE = ".batchtrain/inside-coordinate.sh"
LAUNCH = ".batchtrain/inside-launch.sh"
_SHARED = "$AZ_BATCH_TASK_SHARED_DIR"
_SOURCE = f'source "{_SHARED}/{DOCKER.name}" || exit 1'


class Container(NamedTuple):
    """How to run the container of one task."""

    image: str
    copy: str = ""
    """The name of the image in a second registry, used if the first fails."""
    options: tuple[str, ...] = ()
    """Words for `docker run`, as a shell expands them: variables of the node are expanded there."""
    directory: str = "$AZ_BATCH_TASK_WORKING_DIR"
    """The working directory of commands; empty for that of the image."""
    own: tuple[str, ...] = ()
    """Variables that the task or its job sets; the container gets them, whatever their names are."""


def alone(container: Container, command: str, *, as_it_is: bool) -> Launch:
    """A task on one node.

    as_it_is: the command's words are the container's own, as `docker run` takes them (an entry point's, an image
    without bash); otherwise it is text for bash.
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
