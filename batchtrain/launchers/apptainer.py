"""Apptainer (formerly Singularity): the script that runs a command inside an image, on the node where it starts.

The same script precedes the command of a task and every rank of an MPI launch. So each node looks up its own
directories, and the command needs no second quoting. The pool brings the image to the node.
"""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.launchers import shell
from batchtrain.launchers.launch import File
from batchtrain.launchers.preparation import image_path, path_word

NAME = ".batchtrain/apptainer.sh"
CALL = f'sh "$AZ_BATCH_TASK_SHARED_DIR/{NAME}"'
"""The words before a command that runs inside the image."""


class Apptainer(NamedTuple):
    """How to run the image of one task."""

    image: str
    """URI (docker, library, oras, shub), or the path of a file on the node."""
    verb: str = "exec"
    """`exec` runs the command; `run` passes it to the run script of the image."""
    gpus: str = ""
    """`--nv` for NVIDIA's, `--rocm` for AMD's; empty without."""
    binds: tuple[str, ...] = ()
    """`host:inside[:ro]`; variables in them are expanded on the node."""
    scratch: tuple[str, ...] = ()
    """Directories inside that are writable and end with the task."""
    options: tuple[str, ...] = ()
    """The user's own options, as written."""
    descriptions: str = ""
    """A folder of the node that is bound if it exists (NCCL's description of the GPUs); empty for none."""


def script(options: Apptainer) -> File:
    """The file that travels with the task."""
    folder = options.descriptions
    described = f"described=; [ ! -d {folder} ] || described={folder}"
    text = shell.script(
        "#!/bin/sh",
        shell.block(
            f"Runs its arguments inside the image {options.image}.",
            "runtime=$(command -v apptainer || command -v singularity) || {",
            "  echo 'batchtrain: neither apptainer nor singularity is on the PATH of this node; list the image in"
            " global_resources.singularity_images, and the pool installs it' >&2",
            "  exit 127",
            "}",
        ),
        _image(options.image),
        shell.block("NCCL's description of the GPUs:", described) if folder else "",
        "exec "
        + shell.continued(
            f'"$runtime" {options.verb}',
            '--bind "$AZ_BATCH_NODE_ROOT_DIR"',
            options.gpus,
            *(f"--bind {path_word(bind)}" for bind in options.binds),
            '${described:+--bind "$described:$described:ro"}' if folder else "",
            *(f"--scratch {path_word(directory)}" for directory in options.scratch),
            " ".join(options.options),
            '"$image" "$@"',
        ),
    )
    return File(NAME, text.encode(), 0o755)


def around(command: str, options: Apptainer) -> str:
    """A task's command inside the image. A command of more than simple words needs a shell there, too."""
    if options.verb == "run" or shell.is_simple(command) or not command.strip():
        return f"{CALL} {command}".rstrip()
    return f"{CALL} /bin/sh -c {shell.word(command)}"


def _image(image: str) -> str:
    if image.startswith(("/", "$", "./")):
        return shell.block("The image is a file of the node:", f"image={path_word(image)}")
    return shell.block(
        "The image as the start task fetched it; from its registry where it did not:",
        f"image={path_word(image_path(image))}",
        f'[ -r "$image" ] || image={shell.word(image)}',
    )
