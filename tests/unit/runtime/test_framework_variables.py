"""What a block says it sets is what the node launcher sets, name by name."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from batchtrain.frameworks import FRAMEWORKS
from batchtrain.frameworks.base import Shape
from batchtrain.launchers import node_launcher as node_launch
from batchtrain.runtime.launch.environment import defaults_of, environment_of
from batchtrain.runtime.launch.frameworks import load
from batchtrain.runtime.launch.placing import plan
from batchtrain.runtime.launch.spec import Gang, Spec
from tests.launching import launched
from tests.unit.runtime.gangs import nodes

EVERYTHING: dict[str, dict[str, Any]] = {
    "mxnet": {"interface": "eth0", "verbose": 1},
    "accelerate": {"mixed_precision": "bf16", "gradient_accumulation_steps": 2},
}
"""Properties without which a block leaves some of its variables out."""
GENERAL = re.compile(
    "BATCHTRAIN_.*|AZ_BATCH_HOST_LIST|AZ_BATCHAI_MPI_MASTER_NODE|AZUREML_CR_NODE_RANK|CUDA_VISIBLE_DEVICES"
)


def gangs(name: str) -> list[Gang]:
    """The block's gang on nodes without GPUs, and on nodes with one."""
    made = launched(name, shape=Shape(2), **EVERYTHING.get(name, {}))
    [text] = [file.data for file in made.files if file.name == node_launch.SPEC]
    spec = Spec(json.loads(text) | {"environment": {}, "rdma_environment": {}})
    facts: list[dict[str, Any]] = [{}, {"gpus": ["0"], "real_gpus": True}]
    return [plan(spec, nodes([1, 1], **more), load(name)) for more in facts]


def names(name: str, keeps: bool) -> set[str]:
    """What the node launcher sets for the framework: without a word of the user's (keeps), or whatever there is."""
    tell = defaults_of if keeps else environment_of
    found = {told for gang in gangs(name) for process in gang.processes for told in tell(gang, process)}
    return {told for told in found if not GENERAL.fullmatch(told)}


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_sets_the_variables_that_its_block_names(name: str, keeps: bool) -> None:
    said = {one for variable in FRAMEWORKS[name].variables if variable.keeps is keeps for one in variable.names}
    assert {one for one in said if not GENERAL.fullmatch(one)} == names(name, keeps)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_no_recipe_may_set_what_each_process_is_given(name: str) -> None:
    assert names(name, keeps=False) <= set(FRAMEWORKS[name].why_reserved())


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_ranks_and_sizes_of_a_framework_are_among_its_variables(name: str) -> None:
    block = FRAMEWORKS[name]
    assert {*block.ranks, *block.sizes} <= {one for variable in block.variables for one in variable.names}
