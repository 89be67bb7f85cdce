"""Launches of every kind, from as few words as a test needs."""

from __future__ import annotations

import json
from typing import Any

from batchtrain.frameworks import FRAMEWORKS
from batchtrain.frameworks.base import Shape
from batchtrain.frameworks.mpi import MpiBlock
from batchtrain.launchers import mpi, node_launcher, plain
from batchtrain.launchers.launch import Launch, MpiLaunch, Setup, rendered

TWO = Shape(2)


def launched(block: str, command: str = "python t.py", shape: Shape = TWO, **values: Any) -> Launch:
    """The launch with a block, from the block's properties and what else decides about it; `plain` is one without."""
    setup = Setup(**{name: values.pop(name) for name in Setup._fields if name in values})
    if block == "plain":
        return rendered(plain.launch(command, shape, setup))
    if block != "mpi":
        return rendered(node_launcher.launch(FRAMEWORKS[block](**values), setup, command, shape))
    rest = {name: values.pop(name) for name in MpiLaunch._fields if name in values}
    return rendered(mpi.launch(MpiLaunch(MpiBlock(**values), setup, **rest), command, shape))


def spec(launch: Launch) -> Any:
    """What gang.json says."""
    [found] = [file.data for file in launch.files if file.name == node_launcher.SPEC]
    return json.loads(found)
