"""Moves data from the working directory to the requested place.

Batch downloads the files of a task only below its working directory, so a directory elsewhere on the node needs a move.
"""

from __future__ import annotations

from batchtrain.launchers import shell
from batchtrain.launchers.preparation import Moved, path_word, selection


def moves(items: tuple[Moved, ...]) -> str:
    """The lines that move the data; every user of the node may read it."""
    if not items:
        return ""
    return shell.block("Input data, to where it belongs:", *(_move(item) for item in items))


def _move(item: Moved) -> str:
    source, target = shell.word(item.source), path_word(item.destination)
    act = f"cp -a {source}/. {target}/" if item.selected is None else selection(item)
    return (
        f"[ ! -d {source} ] || {{ chmod -R a+rX {source} && mkdir -p {target} && {act} && rm -rf {source}; }} || exit 1"
    )
