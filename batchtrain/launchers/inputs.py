"""Data that Batch put into the working directory, brought to where it was asked for.

Batch writes a task's files below its working directory alone; a directory elsewhere on the node is reached by a move.
"""

from __future__ import annotations

from batchtrain.launchers import shell
from batchtrain.launchers.preparation import Moved, path_word, selection


def moves(wanted: tuple[Moved, ...]) -> str:
    """The lines that do it; each user of the node may read what was moved."""
    if not wanted:
        return ""
    return shell.block("Input data, to where it belongs:", *(_move(item) for item in wanted))


def _move(one: Moved) -> str:
    source, place = shell.word(one.source), path_word(one.destination)
    act = f"cp -a {source}/. {place}/" if one.selected is None else selection(one)
    return (
        f"[ ! -d {source} ] || {{ chmod -R a+rX {source} && mkdir -p {place} && {act} && rm -rf {source}; }} || exit 1"
    )
