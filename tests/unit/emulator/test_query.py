"""The lists' query language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from batchtrain.emulator import query
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.query import Row
from tests.emulation import BASE, call, document

TASK = {
    "id": "task's",
    "state": "completed",
    "executionInfo": {"exitCode": 7, "startTime": "2026-11-21T10:00:00.5Z"},
    "priority": 3,
    "enabled": True,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("state eq 'completed'", True),
        ("state ne 'completed'", False),
        ("id eq 'task''s'", True),
        ("startswith(id, 'task')", True),
        ("startswith(id,'x')", False),
        ("executionInfo/exitCode gt 6 and executionInfo/exitCode le 7", True),
        ("executionInfo/exitCode eq 7.0", True),
        ("executionInfo/exitCode lt 7 or state eq 'completed'", True),
        ("executionInfo/startTime ge DateTime'2026-11-21T10:00:00Z'", True),
        ("executionInfo/startTime lt datetime'2026-11-21T10:00:00Z'", False),
        ("state eq 'active' and priority eq 1 or priority eq 3", True),
        ("state eq 'active' and (priority eq 1 or priority eq 3)", False),
        ("enabled eq true", True),
        ("nodeInfo/nodeId eq 'n'", False),
        ("nodeInfo/nodeId ne 'n'", True),
        ("executionInfo/exitCode eq '7'", False),
        ("executionInfo gt 5", False),
        ("id gt DateTime'2020-01-01'", False),
    ],
)
def test_a_filter_holds_or_not(text: str, holds: bool) -> None:
    assert query.parse_filter(text)(TASK) is holds


@pytest.mark.parametrize(
    "text",
    ["state", "state eq", "state is 'x'", "eq 'x'", "(state eq 'x'", "state eq 'x", "startswith(state)", "a eq 1 b",
     "state eq DateTime'soon'", "a eq " + "9" * 5000, "(" * 60 + "a eq 1" + ")" * 60, "state eq 'x' and"],
)  # fmt: skip
def test_what_is_no_filter_is_400(text: str) -> None:
    with pytest.raises(Fault) as refusal:
        query.parse_filter(text)
    assert (refusal.value.status, refusal.value.code) == (400, "InvalidQueryParameterValue")


def test_a_property_the_list_cannot_be_filtered_by_is_400() -> None:
    with pytest.raises(Fault, match="InvalidQueryParameterValue"):
        page(filter="State eq 'active'")


def numbers(token: str) -> Iterator[Row]:
    for number in range(int(token or 0) + 1, 8):
        yield Row(str(number), {"id": str(number), "taskSlotsPerNode": number % 2, "extra": "x"})


def page(**asked: str) -> dict[str, Any]:
    return document(query.listing(call(**asked), "pools", numbers))


def test_a_page_s_link_is_absolute_and_carries_the_whole_question() -> None:
    first = page(filter="taskSlotsPerNode eq 1", select="id", maxresults="2")
    assert first["value"] == [{"id": "1"}, {"id": "3"}]
    question = "$filter=taskSlotsPerNode%20eq%201&$select=id&maxresults=2"
    assert first["odata.nextLink"] == f"{BASE}/pools?{question}&$skiptoken=3"


def test_the_last_page_has_no_link() -> None:
    last = page(filter="taskSlotsPerNode eq 1", maxresults="2", skiptoken="3")
    assert [one["id"] for one in last["value"]] == ["5", "7"]
    assert "odata.nextLink" not in last


@pytest.mark.parametrize("size", ["0", "-1", "1001", "many", "\u00b2", "9" * 5000])
def test_a_page_has_one_to_a_thousand_entries(size: str) -> None:
    with pytest.raises(Fault, match="InvalidQueryParameterValue"):
        page(maxresults=size)


@pytest.mark.parametrize("select", ["id,taskSlotsPerNode", "id, taskSlotsPerNode", "taskSlotsPerNode,id/x"])
def test_select_keeps_only_what_it_names(select: str) -> None:
    assert page(select=select, maxresults="1")["value"] == [{"id": "1", "taskSlotsPerNode": 1}]


@pytest.mark.parametrize("token", ["\u00b2", "9" * 5000, "x"])
def test_a_token_that_was_never_given_is_400(token: str) -> None:
    with pytest.raises(Fault, match="InvalidQueryParameterValue"):
        query.number(token)
