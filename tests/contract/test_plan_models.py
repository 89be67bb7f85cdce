"""Every body we plan, judged by the SDK's own models: no unknown key at any depth, no value of a wrong type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.batch import models
from azure.batch._utils.model_base import Model

from batchtrain.config.load import load
from batchtrain.plan import plan_jobs, plan_pool, render
from batchtrain.storage.source import read_sources

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(path.parent.name for path in (ROOT / "recipes").glob("*/config"))
MODELS: dict[str, type[Model]] = {
    "pool.add": models.BatchPoolCreateOptions,
    "job.add": models.BatchJobCreateOptions,
    "task.add": models.BatchTaskCreateOptions,
    "job.complete": models.BatchJobUpdateOptions,
}


def unknown(model: Any, body: Any, path: str = "") -> Iterator[str]:
    """Keys of `body` that the model does not have, at any depth."""
    if isinstance(model, list):
        for number, (inner, part) in enumerate(zip(model, body, strict=True)):
            yield from unknown(inner, part, f"{path}[{number}]")
    if not isinstance(model, Model):
        return
    fields = {field._rest_name: name for name, field in model._attr_to_rest_field.items()}
    for key, value in body.items():
        if key not in fields:
            yield f"{path}.{key}"
        else:
            yield from unknown(getattr(model, fields[key]), value, f"{path}.{key}")


@pytest.mark.parametrize("name", RECIPES)
def test_the_sdk_knows_every_key_of_a_recipes_plan(name: str) -> None:
    recipe = load(ROOT / "recipes" / name).recipe
    steps = plan_pool(recipe).steps + plan_jobs(recipe, sources=read_sources(recipe)).steps
    assert {step.action for step in steps} == set(MODELS)
    for step in steps:
        body = render.body_of(step)
        assert list(unknown(MODELS[step.action](body), body)) == []


def test_a_wrong_key_would_be_found() -> None:
    body = {"id": "a", "startTask": {"commandLine": "x", "userIdentity": {"autoUser": {"scpe": "pool"}}}}
    assert list(unknown(models.BatchPoolCreateOptions(body), body)) == [".startTask.userIdentity.autoUser.scpe"]
