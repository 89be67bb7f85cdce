"""Moves data from the working directory to the requested place.

Batch downloads the files of a task only below its working directory, so a directory elsewhere on the node needs a move.
"""

from __future__ import annotations

from batchtrain.launchers import shell
from batchtrain.launchers.preparation import Moved, path_word, selection


def moves(wanted: tuple[Moved, ...]) -> str:
    """The lines that move the data; every user of the node may read it."""
    if not wanted:
        return ""
    return shell.block("Input data, to where it belongs:", *(_move(item) for item in wanted))


def _move(moved: Moved) -> str:
    source, target = shell.word(moved.source), path_word(moved.destination)
    act = f"cp -a {source}/. {target}/" if moved.selected is None else selection(moved)
    return (
        f"[ ! -d {source} ] || {{ chmod -R a+rX {source} && mkdir -p {target} && {act} && rm -rf {source}; }} || exit 1"
    )
