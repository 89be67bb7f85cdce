"""Every body we plan, judged by the SDK's own models: no unknown key at any depth, no value of a wrong type."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.config.load import load
from batchtrain.config.source_directory import read_sources
from batchtrain.plan import plan_recipe
from tests import judge

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(path.parent.name for path in (ROOT / "recipes").glob("*/config"))


@pytest.mark.parametrize("name", RECIPES)
def test_the_sdk_takes_every_request_of_a_recipes_plan(name: str) -> None:
    recipe = load(ROOT / "recipes" / name).recipe
    steps = plan_recipe(recipe, sources=read_sources(recipe)).steps
    assert {step.action for step in steps} <= set(judge.MODELS)
    assert [flaw for step in steps for flaw in judge.flaws(step.action, step.document)] == []


POOL = {"id": "a", "vmSize": "s", "startTask": {"commandLine": "x"}}


def test_a_wrong_key_would_be_found() -> None:
    body = {**POOL, "startTask": {"commandLine": "x", "userIdentity": {"autoUser": {"scpe": "pool"}}}}
    assert judge.flaws("pool.add", body) == [
        ".startTask.userIdentity.autoUser.scpe: AutoUserSpecification knows no such key"
    ]


def test_a_wrong_type_would_be_found() -> None:
    assert judge.flaws("pool.add", {**POOL, "taskSlotsPerNode": "4"}) == [".taskSlotsPerNode: '4' is not int"]


def test_a_word_that_the_service_does_not_know_would_be_found() -> None:
    (flaw,) = judge.flaws("pool.add", {**POOL, "taskSchedulingPolicy": {"nodeFillType": "heap"}})
    assert flaw.startswith(".taskSchedulingPolicy.nodeFillType: 'heap' is not one of")


def test_a_missing_key_would_be_found() -> None:
    assert judge.flaws("pool.add", {"id": "a"}) == [".vmSize: BatchPoolCreateOptions cannot do without it"]


def test_a_span_that_is_none_would_be_found() -> None:
    assert judge.flaws("pool.add", {**POOL, "resizeTimeout": "00:15:00"}) == [
        ".resizeTimeout: '00:15:00' is not timedelta"
    ]
