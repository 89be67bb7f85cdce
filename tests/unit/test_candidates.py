"""The search for nodes: which errors end it, which go on, and what is left of a candidate without nodes."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.client.candidates import place
from batchtrain.client.operations import Operations
from batchtrain.config.candidates import Candidate, candidates_of
from batchtrain.config.types import Pool as PoolSettings
from batchtrain.config.types import Recipe, Secret, convert
from batchtrain.errors import NoCapacity, ServiceError, TimedOut, Unreachable
from batchtrain.plan.marks import Marks
from batchtrain.records import Pool
from batchtrain.records.events import CandidateTried, Event
from batchtrain.service import faults
from batchtrain.service.connect import Account
from batchtrain.service.register import Register

SIZES = ("STANDARD_D2S_V5", "STANDARD_D4S_V5", "STANDARD_D8S_V5")
CLIENT = Operations(Account("http://127.0.0.1:1", "a", Secret("a2V5")))


def options() -> tuple[Candidate, ...]:
    pool: dict[str, Any] = {
        "id": "p",
        "vm_size": SIZES[0],
        "vm_count": {"dedicated": 1},
        "vm_configuration": {"platform_image": {"publisher": "p", "offer": "o", "sku": "s"}},
        "candidates": {"alternatives": [{"vm_size": size} for size in SIZES[1:]]},
    }
    return candidates_of(Recipe(directory=".", pool=convert(pool, PoolSettings)))


def tried(*outcomes: Exception | None) -> tuple[list[str], list[CandidateTried]]:
    """The sizes that were tried, and what was told, if the attempts end so."""
    sizes: list[str] = []
    events: list[Event] = []
    answers = iter(outcomes)

    def create(_: Operations, candidate: Candidate) -> Pool:
        sizes.append(candidate.pool.vm_size)
        if error := next(answers):
            raise error
        return Pool("p")

    try:
        place(CLIENT, options(), create, Register(Marks("run")), events.append)
    finally:
        attempts = [event for event in events if isinstance(event, CandidateTried)]
    return sizes, attempts


def lacking(code: str) -> ServiceError:
    return faults.failure("allocate the nodes of pool p", code, "No nodes.")


@pytest.mark.parametrize("code", ["AccountCoreQuotaReached", "AllocationFailed", "PoolQuotaReached", "SkuNotAvailable"])
def test_the_next_candidate_is_tried_after_an_error_about_nodes(code: str) -> None:
    sizes, attempts = tried(lacking(code), None)
    assert sizes == list(SIZES[:2])
    assert [event.attempt and event.attempt.code for event in attempts] == [code, ""]


def test_a_size_that_the_service_refuses_is_passed_over() -> None:
    refused = ServiceError("no such size", code="InvalidPropertyValue", property_name="vmSize")
    assert tried(refused, None)[0] == list(SIZES[:2])


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("no answer"),
        TimedOut("too slow"),
        ServiceError("the start task failed", code="StartTaskFailed"),
        ServiceError("wrong", code="InvalidPropertyValue", property_name="vmSizes"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_says_nothing_about_nodes_ends_the_search(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        tried(error, None)


def test_a_search_without_nodes_names_each_candidate_with_its_reason() -> None:
    with pytest.raises(NoCapacity) as caught:
        tried(lacking("AccountCoreQuotaReached"), lacking("AllocationFailed"), lacking("AllocationFailed"))
    assert "none of 3 candidates has nodes" in str(caught.value)
    assert "1 dedicated STANDARD_D2S_V5: AccountCoreQuotaReached" in str(caught.value)


def test_an_attempt_is_a_line_with_its_candidate_its_time_and_its_reason() -> None:
    _, [first, second] = tried(lacking("AllocationFailed"), None)
    assert first.text.startswith("candidate 1 of 3, 1 dedicated STANDARD_D2S_V5, has no nodes after 0 s: ")
    assert "No nodes. (AllocationFailed)" in first.text
    assert second.text == "candidate 2 of 3, 1 dedicated STANDARD_D4S_V5, has the nodes"
