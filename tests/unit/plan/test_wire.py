"""Our request bodies against the SDK's models of the same JSON: the names, what is required, the kind of each value."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from azure.batch import models
from azure.batch._utils.model_base import Model

from batchtrain.plan import wire
from tests import judge

BODIES: dict[type[wire.Wire], type[Model]] = {
    wire.ContainerConfiguration: models.BatchContainerConfiguration,
    wire.InboundNatPool: models.BatchInboundNatPool,
    wire.Mount: models.MountConfiguration,
    wire.StartTask: models.BatchStartTask,
    wire.JobCreate: models.BatchJobCreateOptions,
    wire.JobPatch: models.BatchJobUpdateOptions,
    wire.JobScheduleCreate: models.BatchJobScheduleCreateOptions,
    wire.TaskCreate: models.BatchTaskCreateOptions,
    wire.TaskCollection: models.BatchTaskGroup,
    wire.NodeUserCreate: models.BatchNodeUserCreateOptions,
}
"""Parts of a pool's request, and whole requests; everything else is met inside them."""


def pairs() -> dict[tuple[type[wire.Wire], type[Model]], str]:
    """Each of our structs with the model of the same JSON, and one path where both stand."""
    found: dict[tuple[type[wire.Wire], type[Model]], str] = {}
    waiting = [(ours, theirs, ours.__name__) for ours, theirs in BODIES.items()]
    while waiting:
        ours, theirs, path = waiting.pop()
        if (ours, theirs) in found:
            continue
        found[ours, theirs] = path
        for field in msgspec.structs.fields(ours):
            for inner in structs_in(field.type):
                model = judge.below(theirs, (field.encode_name,))
                if model is not None:
                    waiting.append((inner, model, f"{path}.{field.encode_name}"))
    return found


def structs_in(kind: Any) -> Iterator[type[wire.Wire]]:
    if judge.is_class(kind, wire.Wire):
        yield kind
    for part in typing.get_args(kind):
        yield from structs_in(part)


PAIRS = pairs()
NAMED = {path: pair for pair, path in PAIRS.items()}


@pytest.mark.parametrize("path", NAMED)
def test_the_sdk_knows_every_name(path: str) -> None:
    ours, theirs = NAMED[path]
    names = {field.encode_name for field in msgspec.structs.fields(ours)}
    assert names - set(judge.fields(theirs)) == set()


@pytest.mark.parametrize("path", NAMED)
def test_what_the_service_requires_is_required_here(path: str) -> None:
    ours, theirs = NAMED[path]
    lost = judge.required(theirs) - {field.encode_name for field in msgspec.structs.fields(ours) if field.required}
    assert lost == set()


@pytest.mark.parametrize("path", NAMED)
def test_values_are_of_the_same_kind(path: str) -> None:
    ours, theirs = NAMED[path]
    known = judge.fields(theirs)
    both = [(field, known[field.encode_name]) for field in msgspec.structs.fields(ours) if field.encode_name in known]
    assert [
        f"{field.name}: {kind(field.type)} / {kind(hint)}" for field, hint in both if kind(field.type) != kind(hint)
    ] == []


def test_every_struct_is_met_in_a_request() -> None:
    everything = {value for value in vars(wire).values() if isinstance(value, type) and issubclass(value, wire.Wire)}
    assert everything - {ours for ours, _ in PAIRS} - {wire.Wire} == set()


def kind(hint: Any) -> str:
    """What stands in the JSON: text for enums, spans and moments."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return kind(next(part for part in typing.get_args(hint) if part is not type(None)))
    if origin in (list, tuple):
        return f"list of {kind(typing.get_args(hint)[0])}"
    if origin is dict:
        return "object" if typing.get_args(hint)[1] is Any else "mapping"
    if isinstance(hint, type) and issubclass(hint, (wire.Wire, Model)):
        return "object"
    return {bool: "boolean", int: "number"}.get(hint, "text")


def test_settings_of_a_vault_are_equal_if_their_secret_and_their_own_values_are() -> None:
    own = (wire.Environment(name="A", value="1"),)
    settings = wire.VaultSettings("https://v/s", own)
    assert settings == wire.VaultSettings("https://v/s", own)
    assert hash(settings) == hash(wire.VaultSettings("https://v/s", own))
    assert settings not in (
        wire.VaultSettings("https://v/t", own),
        wire.VaultSettings("https://v/s", ()),
        "https://v/s",
    )
