"""The search for nodes: which errors end it, which go on, and what is left of a candidate without nodes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from batchtrain.client.detach import refuse_unfit
from batchtrain.client.node_watch import NodeWatch
from batchtrain.client.operations import Operations
from batchtrain.client.placement import Placement
from batchtrain.client.planning import refuse_unattended
from batchtrain.config.candidates import Candidate, ordered
from batchtrain.config.types import Alternative, Candidates, Job, Recipe, Secret, Task, convert
from batchtrain.config.types import Pool as PoolSettings
from batchtrain.errors import NoCapacity, NodesLost, PlanError, ServiceError, TimedOut, Unreachable
from batchtrain.plan.marks import Marks
from batchtrain.records import Node, Pool
from batchtrain.records.events import CandidateTried, Event
from batchtrain.service import faults, read
from batchtrain.service.connect import Account
from batchtrain.service.register import Register
from batchtrain.service.watch import Pace

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
    return ordered(Recipe(directory=".", pool=convert(pool, PoolSettings)))


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
        Placement(CLIENT, options(), create, Register(Marks("run")), events.append).find()
    finally:
        attempts = [event for event in events if isinstance(event, CandidateTried)]
    return sizes, attempts


def lacking(code: str) -> ServiceError:
    return faults.failure("allocate the nodes of pool p", code, "No nodes.")


REFUSED_SIZE = ServiceError("no such size", code="InvalidPropertyValue", property_name="vmSize")
LACKING = ("AccountCoreQuotaReached", "AllocationFailed", "PoolQuotaReached", "SkuNotAvailable")


@pytest.mark.parametrize("error", [*map(lacking, LACKING), REFUSED_SIZE], ids=lambda error: error.code)
def test_the_next_candidate_is_tried_after_an_error_about_nodes(error: ServiceError) -> None:
    sizes, attempts = tried(error, None)
    assert sizes == list(SIZES[:2])
    assert [event.attempt and event.attempt.code for event in attempts] == [error.code, ""]


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


def test_a_search_names_each_candidate_with_its_time_and_its_reason() -> None:
    with pytest.raises(NoCapacity) as caught:
        tried(lacking("AccountCoreQuotaReached"), lacking("AllocationFailed"), lacking("AllocationFailed"))
    assert "none of 3 candidates has nodes" in str(caught.value)
    assert "1 dedicated STANDARD_D2S_V5: AccountCoreQuotaReached" in str(caught.value)
    _, [first, second] = tried(lacking("AllocationFailed"), None)
    assert first.text.startswith("candidate 1 of 3, 1 dedicated STANDARD_D2S_V5, has no nodes after 0 s: ")
    assert "No nodes. (AllocationFailed)" in first.text
    assert second.text == "candidate 2 of 3, 1 dedicated STANDARD_D4S_V5, has the nodes"


# --- nodes that do not come back ------------------------------------------------------------------------------------


class Watched:
    """A pool of two nodes, and the time at which it is looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience: float = 20.0) -> None:
        self.seconds, self.states = 0.0, ["idle", "running"]
        self.events: list[Event] = []
        monkeypatch.setattr(read, "pool", lambda *_: Pool("p", target_dedicated=2))
        monkeypatch.setattr(read, "nodes", lambda *_: tuple(map(self._node, self.states)))
        client = Operations(Account("https://a.westus.batch.azure.com", "a", Secret("a2V5")))
        client.pace = Pace(1.0, 1.0)
        self.nodes = NodeWatch(client, "p", self.events.append, lambda: self.seconds, patience=patience)

    def _node(self, state: str) -> Node:
        return Node("n", state=state)

    def look(self, *states: str, after: float = 12.0) -> int:
        self.states, self.seconds = list(states), self.seconds + after
        return self.nodes.look()


def test_a_pool_without_some_nodes_for_as_long_as_the_patience_has_lost_them(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.look("idle", "preempted")
    watched.look("idle", "preempted")
    with pytest.raises(NodesLost, match="pool p has 1 of 2 nodes"):
        watched.look("idle")
    assert [event.text for event in watched.events] == [
        "pool p has 1 of 2 nodes; without them the job moves after 20 s"
    ]


def test_nodes_that_come_back_or_that_nobody_saw_for_a_time_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    for states in (("idle",), ("idle", "starting"), ("idle",), ("idle",)):
        watched.look(*states)
    watched = Watched(monkeypatch)
    watched.look("idle")
    watched.look("idle", after=600.0)
    assert watched.look("idle", "idle") == 2


def test_nodes_are_looked_at_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    assert [watched.look("idle", "idle", after=4.0) for _ in range(4)] == [0, 0, 2, 0]


def test_a_command_that_does_not_follow_the_job_refuses_to_move_it_and_a_detached_run_any_candidates() -> None:
    recipe = options()[0].recipe
    assert recipe.pool is not None
    pools = [
        replace(recipe.pool, candidates=Candidates(alternatives=(Alternative(spot=True),), recover=recover))
        for recover in (True, False)
    ]
    with pytest.raises(PlanError, match=r"`candidates\.recover`, which needs a client that follows the job"):
        refuse_unattended(replace(recipe, pool=pools[0]))
    job = Job(id="j", tasks=(Task(command="true"),))
    with pytest.raises(PlanError, match="has `candidates`, and the service"):
        refuse_unfit(replace(recipe, pool=pools[1], jobs=(job,)))
