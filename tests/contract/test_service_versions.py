"""The service versions that are answered, each in its own words; `clients.py` has the clients that ask for them."""

from __future__ import annotations

import json

import pytest

from batchtrain.emulator import models, versions
from batchtrain.emulator.serving import Emulator
from tests.contract.conftest import raw
from tests.emulation import POOL

pytestmark = pytest.mark.process


@pytest.mark.parametrize("version", versions.REVISIONS)
def test_a_service_version_is_understood_and_answered_in_its_own_words(emulator: Emulator, version: str) -> None:
    slots = "taskSlotsPerNode" if versions.REVISIONS[version] >= 12 else "maxTasksPerNode"
    ask = f"api-version={version}"
    assert raw(emulator, "POST", f"/pools?{ask}", json.dumps({**POOL, slots: 2}).encode())[0] == 201
    (listed,) = raw(emulator, "GET", f"/pools?{ask}&$select=id,{slots}")[2]["value"]
    assert listed == {"id": "pool", slots: 2}
    whole = raw(emulator, "GET", f"/pools/pool?{ask}")[2]
    assert {"taskSlotsPerNode", "maxTasksPerNode"} & whole.keys() == {slots}
    shape = models.shapes(versions.REVISIONS[version])["BatchPool"]
    assert whole.keys() - {"odata.metadata"} <= shape.kinds.keys()


def test_the_current_version_shows_nothing_of_former_ones(emulator: Emulator) -> None:
    body = json.dumps({**POOL, "resourceTags": {"a": "b"}, "targetNodeCommunicationMode": "Simplified"}).encode()
    assert raw(emulator, "POST", "/pools?api-version=2023-11-01.18.0", body)[0] == 201
    former = raw(emulator, "GET", "/pools/pool?api-version=2023-11-01.18.0")[2]
    shown = former["resourceTags"], former["targetNodeCommunicationMode"], former["currentNodeCommunicationMode"]
    assert shown == ({"a": "b"}, "simplified", "simplified")
    current = raw(emulator, "GET", "/pools/pool")[2]
    assert not {"resourceTags", "targetNodeCommunicationMode", "certificateReferences"} & current.keys()


def test_a_link_to_the_next_page_stays_in_the_words_of_its_version(emulator: Emulator) -> None:
    ask = "api-version=2019-08-01.10.0"
    for name in ("a", "b"):
        assert raw(emulator, "POST", f"/pools?{ask}", json.dumps({**POOL, "id": name}).encode())[0] == 201
    first = raw(emulator, "GET", f"/pools?{ask}&maxresults=1&$select=id,maxTasksPerNode")[2]
    link = first["odata.nextLink"].removeprefix(emulator.endpoint)
    assert raw(emulator, "GET", link)[2]["value"] == [{"id": "b", "maxTasksPerNode": 1}]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?api-version=", "MissingRequiredQueryParameter"),
        ("?api-version=latest", "InvalidQueryParameterValue"),
        ("?api-version=2025-13-45", "InvalidQueryParameterValue"),
        ("?api-version=2019-06-01.9.0", "InvalidQueryParameterValue"),
        ("?api-version=2026-08-01", "InvalidQueryParameterValue"),
        ("?api-version=2999-01-01", "InvalidQueryParameterValue"),
    ],
)
def test_a_request_without_a_known_service_version_is_refused(emulator: Emulator, query: str, code: str) -> None:
    status, _, document = raw(emulator, "GET", f"/pools{query}")
    assert (status, document["code"]) == (400, code)
    assert document["values"][0] == {"key": "QueryParameterName", "value": "api-version"}
