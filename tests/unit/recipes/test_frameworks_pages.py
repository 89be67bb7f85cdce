"""The pages about frameworks say what the tests run, what the loader takes and what the checks are called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from batchtrain.config.check import RULES
from batchtrain.config.types import MultiInstance
from batchtrain.frameworks import FRAMEWORKS
from tests import frameworks_page
from tests.e2e import test_frameworks as tested

ROOT = Path(__file__).parents[3]
HOW_TO = (ROOT / "docs" / "how-to" / "train-with-your-framework.md").read_text(encoding="utf-8")


BLOCKS: list[dict[str, Any]] = [
    yaml.safe_load(text)["multi_instance"] for text in re.findall(r"^```yaml\n(.*?)^```", HOW_TO, flags=re.M | re.S)
]


def test_the_how_to_has_a_block_for_each_framework_and_for_mpi() -> None:
    assert {name for block in BLOCKS for name in block} - {"num_instances"} == {*FRAMEWORKS, "mpi"}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: next(name for name in block if name != "num_instances"))
def test_a_block_of_the_how_to_can_be_loaded(block: dict[str, Any]) -> None:
    assert len(msgspec.convert(block, MultiInstance).launches) == 1


def test_every_rule_that_the_how_to_names_is_one() -> None:
    refused = re.findall(r"^- (?:Refused|Warning) \(`([\w-]+)`\)", HOW_TO, flags=re.M)
    listed = re.findall(r"^\| `([\w-]+)` \| ", HOW_TO.partition("| rule |")[2], flags=re.M)
    assert len(refused) > 8
    assert len(listed) > 5
    assert {*refused, *listed} <= {rule.name for rule in RULES}


def test_every_recipe_of_the_tests_is_named_by_the_how_to() -> None:
    named = {case.recipe for case in (*tested.MODES.values(), *tested.MORE_MODES.values(), *tested.ON_GPUS)}
    short = {name for name in named if f"`{name}`" not in HOW_TO}
    assert short == {"TensorFlow-Distributed-GPU", "CNTK-GPU-OpenMPI"}  # there with their family's name
