"""Reading request bodies: lenient in form, exact in what comes out."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable

import pytest

from batchtrain.emulator import models
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.versions import CURRENT
from tests.emulation import POOL


def test_values_are_read_in_the_forms_that_the_service_takes_and_come_out_in_its_own() -> None:
    policy = {"taskSchedulingPolicy": {"nodeFillType": "PACK"}, "resizeTimeout": "PT06M00S"}
    forms = {"targetDedicatedNodes": "2", "enableAutoScale": "False", **policy, "displayName": None}
    read = models.read("BatchPoolCreateOptions", {**POOL, **forms})
    policy = {"taskSchedulingPolicy": {"nodeFillType": "Pack"}, "resizeTimeout": "PT6M"}
    assert read == {**POOL, "targetDedicatedNodes": 2, "enableAutoScale": False, **policy}


def test_a_canonical_document_is_returned_as_it_is() -> None:
    document = {"id": "t", "commandLine": "true", "requiredSlots": 2, "environmentSettings": [{"name": "A"}]}
    assert models.read("BatchTaskCreateOptions", document) is document


@pytest.mark.parametrize("value", [None, True, 1, 1.0, 2**31, "1", "TRUE", "true", "INVALID", "P1D", [], [1.0], {}])
def test_a_body_is_read_as_its_properties_are_by_their_readers(value: object) -> None:
    for revision, model in itertools.product((0, CURRENT), models.fields()):
        shape = models.shapes(revision)[model]
        for name in shape.readers.keys() - shape.moved if not shape.required else ():
            assert outcome(models.read, model, {name: value}, "", revision) == outcome(by_reader, shape, name, value)


def by_reader(shape: models.Shape, name: str, value: object) -> dict[str, object]:
    return {} if value is None else {name: shape.readers[name](value, name)}


def outcome(read: Callable[..., object], *arguments: object) -> str:
    """What is read or refused, with the kind of each number."""
    try:
        return repr(read(*arguments))
    except Fault as fault:
        return f"{fault} {fault.details} {fault.property_path}"


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"nonsense": None}, "nonsense"),
        ({"Priority": 1}, "Priority"),
        ({"constraints": {"maxTaskRetryCounts": 1}}, "constraints/maxTaskRetryCounts"),
        ({"commonEnvironmentSettings": [{"name": "A"}, {"nam": "B"}]}, "commonEnvironmentSettings[1]/nam"),
        ({"jobManagerTask": {"id": "m", "enviromentSettings": []}}, "jobManagerTask/enviromentSettings"),
    ],
)
def test_a_property_that_does_not_exist_is_refused_at_any_depth(document: dict[str, object], place: str) -> None:
    with pytest.raises(Fault, match=f"InvalidRequestBody: .*'{re.escape(place)}' does not exist") as refusal:
        models.read("BatchJobCreateOptions", document)
    assert refusal.value.details["PropertyName"] == place


@pytest.mark.parametrize("name", models.RETIRED)
def test_a_retired_property_is_refused_also_where_it_never_was(name: str) -> None:
    for revision, model in itertools.product(range(CURRENT + 1), models.fields()):
        with contextlib.suppress(Fault):
            models.read(model, {name: 1}, revision=revision)
    with pytest.raises(Fault, match="does not exist") as refusal:
        models.read("BatchJobCreateOptions", {name: 1})
    assert refusal.value.details["Reason"].endswith(models.RETIRED[name])


def test_an_annotation_that_the_sdk_sends_back_says_nothing() -> None:
    read = models.read("BatchTaskReplaceOptions", {"odata.metadata": "x", "constraints": {"odata.type": "y"}})
    assert read == {"constraints": {}}


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(Fault) as refusal:
        models.read("BatchTaskConstraints", {"maxTaskRetryCounts": 1})
    assert refusal.value.details["Reason"].endswith("Is 'maxTaskRetryCount' meant?")


@pytest.mark.parametrize("name", ["certificateReferences", "cloudServiceConfiguration", "applicationLicenses"])
def test_a_retired_property_is_refused(name: str) -> None:
    assert name not in models.read("BatchPoolCreateOptions", {**POOL, name: []}, revision=19)
    with pytest.raises(Fault, match="InvalidPropertyValue") as refusal:
        models.read("BatchPoolCreateOptions", {**POOL, name: [{"thumbprint": "ab"}]}, revision=19)
    assert refusal.value.details["PropertyName"] == name
    with pytest.raises(Fault, match="InvalidRequestBody") as unknown:
        models.read("BatchPoolCreateOptions", {**POOL, name: []})
    assert "retired" in refusal.value.details["Reason"] and "retired" in unknown.value.details["Reason"]


@pytest.mark.parametrize(
    ("document", "code", "place"),
    [
        ({"commandLine": None}, "MissingRequiredProperty", "commandLine"),
        ({"commandLine": 5}, "InvalidRequestBody", "commandLine"),
        ({"requiredSlots": "two"}, "InvalidRequestBody", "requiredSlots"),
        ({"requiredSlots": 1.5}, "InvalidRequestBody", "requiredSlots"),
        ({"requiredSlots": True}, "InvalidRequestBody", "requiredSlots"),
        ({"requiredSlots": 2**70}, "InvalidRequestBody", "requiredSlots"),
        ({"requiredSlots": str(2**31)}, "InvalidRequestBody", "requiredSlots"),
        ({"constraints": 1}, "InvalidRequestBody", "constraints"),
        ({"environmentSettings": {}}, "InvalidRequestBody", "environmentSettings"),
        ({"environmentSettings": [{"name": "A"}, {}]}, "MissingRequiredProperty", "environmentSettings[1]/name"),
    ],
)
def test_a_wrong_property_is_named(document: dict[str, object], code: str, place: str) -> None:
    with pytest.raises(Fault) as refusal:
        models.read("BatchTaskCreateOptions", {"id": "t", "commandLine": "x", **document})
    assert (refusal.value.code, refusal.value.details["PropertyName"]) == (code, place)


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff\xfe", b"nan"])
def test_a_body_that_is_no_json_object_is_400_and_an_empty_one_is_an_empty_object(body: bytes) -> None:
    assert models.decode(b"") == {}
    with pytest.raises(Fault, match="InvalidRequestBody"):
        models.decode(body)


# Older service versions


def test_what_an_older_version_gives_elsewhere_is_read_where_it_is_now() -> None:
    disk = models.read("DataDisk", {"lun": 1, "diskSizeGB": 4, "storageAccountType": "Premium_LRS"}, revision=20)
    assert disk == {"lun": 1, "diskSizeGB": 4, "managedDisk": {"storageAccountType": "premium_lrs"}}
    address = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/a"
    network = models.read("NetworkConfiguration", {"publicIPs": [address]}, revision=10)
    assert network == {"publicIPAddressConfiguration": {"provision": "usermanaged", "ipAddressIds": [address]}}


@pytest.mark.parametrize(
    ("model", "revision", "current", "shown"),
    [
        ("BatchPool", 11, {"id": "p", "taskSlotsPerNode": 2}, {"id": "p", "maxTasksPerNode": 2}),
        ("BatchPool", 12, {"id": "p", "taskSlotsPerNode": 2}, {"id": "p", "taskSlotsPerNode": 2}),
        ("BatchPool", 21, {"id": "p", "resourceTags": {}}, {"id": "p"}),
        ("BatchTaskCountsResult", 11, {"taskCounts": {"active": 0, "failed": 1}}, {"active": 0, "failed": 1}),
        ("DataDisk", 20, {"managedDisk": {"storageAccountType": "x"}}, {"storageAccountType": "x"}),
        ("BatchPoolNodeCounts", 18, {"dedicated": {"idle": 1, "upgradingOS": 0}}, {"dedicated": {"idle": 1}}),
    ],
)
def test_an_answer_has_the_words_of_its_version(
    model: str, revision: int, current: models.Document, shown: models.Document
) -> None:
    annotated = {"odata.metadata": "m", **current}
    assert models.shown(model, annotated, revision) == {"odata.metadata": "m", **shown}


@pytest.mark.parametrize(("name", "revision"), [("taskSlotsPerNode", 11), ("maxTasksPerNode", 12)])
def test_a_property_of_another_version_is_refused_with_that_version(name: str, revision: int) -> None:
    with pytest.raises(Fault, match="InvalidRequestBody") as refusal:
        models.read("BatchPoolCreateOptions", {**POOL, name: 1}, revision=revision)
    reason = refusal.value.details["Reason"].lower()
    assert "service version 2020-" in reason and ("use taskslotspernode" in reason) == (name == "maxTasksPerNode")


def test_a_task_is_shown_as_it_is_in_the_version_of_the_sdk() -> None:
    """Lists of tasks would otherwise be converted row by row."""
    assert not models.differs("BatchTask", CURRENT)
    assert models.differs("BatchTask", 11)
