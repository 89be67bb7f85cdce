"""The page about the options of other launchers."""

from __future__ import annotations

import re

import pytest

from batchtrain.config.types import Task
from batchtrain.frameworks import FRAMEWORKS
from batchtrain.frameworks.launcher_options import LAUNCHERS
from batchtrain.frameworks.mpi import MpiBlock

BLOCKS = {
    "torchrun": "pytorch", "accelerate launch": "accelerate", "deepspeed": "deepspeed", "horovodrun": "horovod",
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_property_that_replaces_an_option_exists(name: str) -> None:
    block = FRAMEWORKS[BLOCKS[name]] if name in BLOCKS else MpiBlock
    fields = {*block.__struct_fields__, *Task.__struct_fields__}
    options = LAUNCHERS[name].options
    properties = {word for option in options for word in re.findall(r"`([a-z_]+): ", option.becomes)}
    assert properties <= fields
