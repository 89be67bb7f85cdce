"""Reading request bodies: lenient in form, exact in what comes out."""

from __future__ import annotations

import pytest

from batchtrain.emulator import models
from batchtrain.emulator.faults import Fault
from tests.emulation import POOL


def test_numbers_and_truth_values_may_be_strings() -> None:
    read = models.read("BatchPoolCreateOptions", {**POOL, "targetDedicatedNodes": "2", "enableAutoScale": "False"})
    assert (read["targetDedicatedNodes"], read["enableAutoScale"]) == (2, False)


def test_enum_values_take_any_case_and_come_out_in_the_service_s() -> None:
    policy = {"taskSchedulingPolicy": {"nodeFillType": "PACK"}}
    assert models.read("BatchPoolCreateOptions", {**POOL, **policy})["taskSchedulingPolicy"]["nodeFillType"] == "Pack"


def test_unknown_properties_and_nulls_are_dropped() -> None:
    read = models.read(
        "BatchJobCreateOptions", {"id": "j", "poolInfo": {"poolId": "p", "x": 1}, "y": 2, "priority": None}
    )
    assert read == {"id": "j", "poolInfo": {"poolId": "p"}}


@pytest.mark.parametrize("name", ["certificateReferences", "cloudServiceConfiguration"])
def test_what_was_retired_is_refused_where_an_old_client_asks_for_it(name: str) -> None:
    assert name not in models.read("BatchPoolCreateOptions", {**POOL, name: []})
    with pytest.raises(Fault, match="InvalidPropertyValue") as refusal:
        models.read("BatchPoolCreateOptions", {**POOL, name: [{"thumbprint": "ab"}]})
    assert refusal.value.details["PropertyName"] == name
    assert "retired" in refusal.value.details["Reason"]


def test_durations_are_normalised() -> None:
    assert models.read("BatchTaskConstraints", {"maxWallClockTime": "PT06M00S"}) == {"maxWallClockTime": "PT6M"}


@pytest.mark.parametrize(
    ("document", "code", "place"),
    [
        ({"id": "t"}, "MissingRequiredProperty", "commandLine"),
        ({"id": "t", "commandLine": 5}, "InvalidPropertyValue", "commandLine"),
        ({"id": "t", "commandLine": "x", "requiredSlots": "two"}, "InvalidPropertyValue", "requiredSlots"),
        ({"id": "t", "commandLine": "x", "requiredSlots": 1.5}, "InvalidPropertyValue", "requiredSlots"),
        ({"id": "t", "commandLine": "x", "requiredSlots": True}, "InvalidPropertyValue", "requiredSlots"),
        ({"id": "t", "commandLine": "x", "requiredSlots": 2**70}, "InvalidPropertyValue", "requiredSlots"),
        ({"id": "t", "commandLine": "x", "requiredSlots": str(2**31)}, "InvalidPropertyValue", "requiredSlots"),
        ({"id": "t", "commandLine": "x", "constraints": 1}, "InvalidRequestBody", "constraints"),
        ({"id": "t", "commandLine": "x", "environmentSettings": {}}, "InvalidPropertyValue", "environmentSettings"),
        (
            {"id": "t", "commandLine": "x", "environmentSettings": [{"name": "A"}, {"value": "B"}]},
            "MissingRequiredProperty",
            "environmentSettings[1]/name",
        ),
    ],
)
def test_a_wrong_property_is_named(document: dict[str, object], code: str, place: str) -> None:
    with pytest.raises(Fault) as refusal:
        models.read("BatchTaskCreateOptions", document)
    assert (refusal.value.code, refusal.value.details["PropertyName"]) == (code, place)


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff\xfe", b"nan"])
def test_a_body_that_is_no_json_object_is_400(body: bytes) -> None:
    with pytest.raises(Fault, match="InvalidRequestBody"):
        models.decode(body)


def test_an_empty_body_is_an_empty_object() -> None:
    assert models.decode(b"") == {}
