"""The lists' query language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from batchtrain.emulator import models, query, routes
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.query import Row
from batchtrain.emulator.versions import CURRENT
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
def test_an_invalid_filter_is_400(text: str) -> None:
    with pytest.raises(Fault) as refusal:
        query.parse_filter(text)
    assert (refusal.value.status, refusal.value.code) == (400, "InvalidQueryParameterValue")


def test_a_property_the_list_cannot_be_filtered_by_is_400() -> None:
    with pytest.raises(Fault, match="InvalidQueryParameterValue"):
        page(filter="State eq 'active'")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("pools", "taskSlotsPerNode eq 1"),
        ("pools", "allocationState ne 'steady'"),
        ("pools", "state eq 'gone'"),
        ("pools", "enableAutoScale eq 'true'"),
        ("pools", "creationTime lt '2026-01-01'"),
        ("pools", "startswith(vmSize, 'standard')"),
        ("nodes", "id eq 'x'"),
        ("nodes", "startTaskInfo/exitCode eq '1'"),
        ("nodes", "startTaskInfo/retryCount eq 1"),
        ("nodes", "startTaskInfo eq 1"),
        ("tasks", "lastModified lt DateTime'2026-01-01'"),
        ("jobsofschedule", "id eq 'x'"),
        ("files", "name eq 'x'"),
        ("poolusagemetrics", "poolId ne 'x'"),
    ],
)
def test_a_property_operator_or_value_that_the_list_does_not_take_is_400(kind: str, text: str) -> None:
    with pytest.raises(Fault, match="InvalidQueryParameterValue") as refusal:
        query.parse_filter(text, query.FILTERS[kind])
    assert refusal.value.details["QueryParameterName"] == "$filter"


LITERALS = {"time": "DateTime'2026-01-01'", "int": "1", "bool": "true"}


def test_every_documented_pair_of_property_and_operator_is_taken() -> None:
    """The page lists 319 pairs, without those of certificates."""
    pairs = 0
    for filters in query.FILTERS.values():
        for name, operators in filters.operators.items():
            field = models.field_at(filters.model, query.ALIASES.get(name, name))
            assert field is not None, name
            value = LITERALS.get(field.kind) or f"'{next(iter(models.enums().get(field.kind, ('x',))))}'"
            for word in operators:
                text = f"startswith({name}, 'x')" if word == "startswith" else f"{name} {word} {value}"
                query.parse_filter(text, filters)({})
                pairs += 1
    assert pairs == 318  # files of tasks and of nodes are one entry


@pytest.mark.parametrize(
    ("kind", "text", "row"),
    [
        ("nodes", "state eq 'waitingForStartTask'", {"state": "waitingforstarttask"}),
        ("tasks", "lastModifiedTime gt DateTime'2026-01-01'", {"lastModified": "2026-11-21T10:00:00Z"}),
    ],
)
def test_an_enum_value_may_have_any_case_and_a_time_has_the_name_of_the_page(
    kind: str, text: str, row: dict[str, Any]
) -> None:
    assert query.parse_filter(text, query.FILTERS[kind])(row)


def numbers(token: str) -> Iterator[Row]:
    for number in range(int(token or 0) + 1, 8):
        yield Row(str(number), {"id": str(number), "enableAutoScale": bool(number % 2), "extra": "x"})


def page(**asked: str) -> dict[str, Any]:
    return document(query.listing(call(**asked), "pools", numbers))


def test_a_page_s_link_is_absolute_and_carries_the_whole_question_and_the_last_page_has_none() -> None:
    first = page(filter="enableAutoScale eq true", select="id", maxresults="2")
    assert first["value"] == [{"id": "1"}, {"id": "3"}]
    question = "$filter=enableAutoScale%20eq%20true&$select=id&maxresults=2"
    assert first["odata.nextLink"] == f"{BASE}/pools?{question}&$skiptoken=3"
    last = page(filter="enableAutoScale eq true", maxresults="2", skiptoken="3")
    assert ([one["id"] for one in last["value"]], "odata.nextLink" in last) == (["5", "7"], False)


@pytest.mark.parametrize("size", ["0", "-1", "1001", "many", "\u00b2", "9" * 5000])
def test_a_page_has_one_to_a_thousand_entries(size: str) -> None:
    with pytest.raises(Fault, match="InvalidQueryParameterValue"):
        page(maxresults=size)


@pytest.mark.parametrize("select", ["id,enableAutoScale", "id, enableAutoScale", "enableAutoScale,id/x"])
def test_select_keeps_only_what_it_names(select: str) -> None:
    assert page(select=select, maxresults="1")["value"] == [{"id": "1", "enableAutoScale": True}]


@pytest.mark.parametrize("token", ["\u00b2", "9" * 5000, "x"])
def test_a_token_that_was_never_given_is_400(token: str) -> None:
    with pytest.raises(Fault, match="InvalidQueryParameterValue"):
        query.number(token)


# What a request may ask


def asked(operation: str, revision: int = CURRENT, **query_: str) -> dict[str, str]:
    route = next(route for route in routes.ROUTES if route.name == operation)
    names = {name.replace("dollar_", "$"): value for name, value in query_.items()}
    return query.checked(route.query, route.answer, names, revision)


UNSUPPORTED, INVALID = "UnsupportedQueryParameter", "InvalidQueryParameterValue"


@pytest.mark.parametrize(
    ("code", "operation", "parameter", "value"),
    [
        (UNSUPPORTED, "get_pool", "dollar_filter", "id eq 'x'"),
        (UNSUPPORTED, "get_pool", "maxresults", "1"),
        (UNSUPPORTED, "list_nodes", "dollar_expand", "stats"),
        (UNSUPPORTED, "create_pool", "dollar_select", "id"),
        (UNSUPPORTED, "list_pools", "orderby", "id"),
        (UNSUPPORTED, "delete_pool", "force", "true"),
        (INVALID, "list_pools", "dollar_select", "id,nothing"),
        (INVALID, "list_pools", "dollar_select", "id/x"),
        (INVALID, "list_pools", "dollar_select", "maxTasksPerNode"),
        (INVALID, "list_pools", "dollar_expand", "nodes"),
        (INVALID, "list_pools", "timeOut", "soon"),
        (INVALID, "list_pools", "timeOut", "-1"),
        (INVALID, "delete_job", "force", "perhaps"),
        (INVALID, "list_task_files", "recursive", "1"),
    ],
)
def test_a_parameter_that_the_operation_does_not_take_or_of_a_wrong_value_is_400(
    code: str, operation: str, parameter: str, value: str
) -> None:
    with pytest.raises(Fault, match=code) as refusal:
        asked(operation, **{parameter: value})
    assert refusal.value.details["QueryParameterName"] == parameter.replace("dollar_", "$")


def test_names_of_parameters_may_have_any_case_and_empty_ones_say_nothing() -> None:
    assert asked("list_pools", TIMEOUT="30", MaxResults="5", dollar_filter="") == {"timeOut": "30", "maxresults": "5"}


def test_an_old_version_selects_by_its_own_names() -> None:
    assert asked("get_pool", 10, dollar_select="id, maxTasksPerNode") == {"$select": "id,taskSlotsPerNode"}
    with pytest.raises(Fault, match="InvalidQueryParameterValue"):
        asked("get_pool", 10, dollar_select="taskSlotsPerNode")


@pytest.mark.parametrize("select", ["executionInfo/exitCode", "constraints/maxTaskRetryCount, id"])
def test_a_part_of_an_object_can_be_selected(select: str) -> None:
    assert asked("list_tasks", dollar_select=select)["$select"] == select.partition("/")[0] + ",id" * (", id" in select)
