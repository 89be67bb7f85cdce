"""Data that Batch put into the working directory, brought to where it was asked for.

Batch writes a task's files below its working directory alone; a directory elsewhere on the node is reached by a move.
"""

from __future__ import annotations

from batchtrain.launchers import shell
from batchtrain.launchers.preparation import Moved, path_word


def moves(wanted: tuple[Moved, ...]) -> str:
    """The lines that do it; each user of the node may read what was moved."""
    if not wanted:
        return ""
    return shell.block("Input data, to where it belongs:", *(_move(item) for item in wanted))


def _move(item: Moved) -> str:
    source, target = shell.word(item.source), path_word(item.destination)
    return (
        f"[ ! -d {source} ] || {{ chmod -R a+rX {source} && mkdir -p {target} && cp -a {source}/. {target}/"
        f" && rm -rf {source}; }} || exit 1"
    )
