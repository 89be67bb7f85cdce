"""Every way of a run among the candidates of its pool, and every state of its nodes while a job is followed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from batchtrain.client.operations import Operations
from batchtrain.client.placement import Placement
from batchtrain.config.candidates import ordered
from batchtrain.config.types import Pool as PoolSettings
from batchtrain.config.types import Recipe, Secret, convert
from batchtrain.errors import NoCapacity, NodesLost, ServiceError
from batchtrain.life import placing
from batchtrain.life.placing import NODE_RULES, PLACE_RULES, NodeRule, PlaceRule, SeenLoss, SeenPlace
from batchtrain.life.seen import LOST
from batchtrain.plan.marks import Marks
from batchtrain.records import Node, Pool
from batchtrain.service import faults
from batchtrain.service.connect import Account
from batchtrain.service.register import Register, Thing

MOST = 2
"""The candidates."""


def _created(seen: SeenPlace) -> Iterator[SeenPlace]:
    yield seen._replace(untried=MOST, pool="ready")
    yield from (seen._replace(untried=seen.untried - 1, pool=pool) for pool in ("lacking", "ended"))


AFTER: Mapping[str, Callable[[SeenPlace], Iterator[SeenPlace]]] = {
    "create": _created,
    "add": lambda seen: iter((seen._replace(jobs="added"), seen._replace(jobs="added", pool="ended"))),
    "follow": lambda seen: iter((seen._replace(jobs="over"), seen._replace(pool="lost"))),
    "withdraw": lambda seen: iter((seen._replace(jobs=""),)),
    "discard": lambda seen: iter((seen._replace(pool=""),)),
    "forget": lambda seen: iter((seen._replace(pool="", untried=min(seen.untried + 1, MOST)),)),
    "give up": lambda seen: iter(()),
}


def faults_of(seen: SeenPlace, act: str) -> Iterator[str]:
    """What is wrong with a step; an empty one is the end."""
    if act == "create" and (seen.pool or seen.jobs or not seen.untried):
        yield "a pool is created while another one, or jobs, are there"
    if act in ("add", "follow") and seen.pool != "ready":
        yield "jobs are where no nodes are"
    if act == "add" and (seen.jobs or not seen.wants_jobs):
        yield "jobs are added twice, or are not wanted"
    if act in ("discard", "forget") and (seen.jobs or seen.pool not in ("lacking", "lost", "ended")):
        yield "a pool goes that jobs need"
    if act == "give up" and (seen.untried or seen.pool or seen.jobs):
        yield "a search ends before all was tried, or leaves something"
    if not act and (seen.pool != "ready" or (seen.wants_jobs and seen.jobs != "over")):
        yield "a run ends before its jobs are over"


def explored() -> Iterator[tuple[SeenPlace, PlaceRule | None]]:
    """Every state that can be reached, with what is decided there. None has more tries than candidates."""
    queue, met = [SeenPlace(MOST), SeenPlace(MOST, wants_jobs=False)], set[SeenPlace]()
    while queue:
        if (seen := queue.pop()) not in met:
            met.add(seen)
            rule = placing.decide(seen)
            assert seen.untried <= MOST
            yield seen, rule
            queue += AFTER[rule.act](seen) if rule else ()


def test_a_run_leaves_nothing_at_a_candidate_and_tries_all_of_them() -> None:
    states = [*explored()]
    print(f"{len(states)} states of a search")
    assert [fault for seen, rule in states for fault in faults_of(seen, rule.act if rule else "")] == []


@pytest.mark.parametrize("left_out", PLACE_RULES, ids=lambda rule: rule.name)
def test_each_row_of_the_search_is_needed(left_out: PlaceRule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "PLACE_RULES", tuple(rule for rule in PLACE_RULES if rule is not left_out))
    assert any(any(faults_of(seen, rule.act if rule else "")) for seen, rule in explored())


class Way:
    """A real search, whose steps end as a path of choices says."""

    def __init__(self, choices: tuple[int, ...]) -> None:
        self._choices, self.register = iter(choices), Register(Marks("run"))

    def choose(self, *errors: ServiceError | None) -> None:
        if (error := errors[next(self._choices, 0) % len(errors)]) is not None:
            raise error

    def create(self, *_: Any) -> Pool:
        assert self.register.things() == ()
        self.register.note(Thing("pool", "p"), "shared")
        self.choose(None, faults.failure("x", "AllocationFailed", "No."), ENDED)
        return Pool("p")

    def add(self) -> None:
        self.choose(None, ENDED)

    def follow(self) -> None:
        self.choose(None, NodesLost("lost"))

    def withdraw(self) -> None:
        pass


ENDED = ServiceError("gone", code="PoolNotFound")
POOL: dict[str, Any] = {
    "id": "p",
    "vm_size": "STANDARD_D2S_V5",
    "vm_configuration": {"platform_image": {"publisher": "p", "offer": "o", "sku": "s"}},
    "vm_count": {"dedicated": 1},
    "candidates": {"alternatives": [{"vm_size": "STANDARD_D4S_V5"}]},
}


def test_each_step_of_a_real_search_is_one_of_the_explored_states(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ordered(Recipe(directory=".", pool=convert(POOL, PoolSettings)))
    client, states = Operations(Account("http://127.0.0.1:1", "a", Secret("a2V5"))), dict(explored())
    looks, decide = list[SeenPlace](), placing.decide
    monkeypatch.setattr(placing, "decide", lambda seen: (looks.append(seen), decide(seen))[1])
    for choices in itertools.product(range(3), repeat=5):
        way = Way(choices)
        looks.clear()
        with contextlib.suppress(NoCapacity):
            Placement(client, options, way.create, way.register, lambda _: None, way).find()
        for before, now in itertools.pairwise(looks):
            rule = states[before]
            assert rule is not None and now in AFTER[rule.act](before), (rule, before, now)


# --- the nodes of a followed job --------------------------------------------------------------------------------------


def losses() -> Iterator[SeenLoss]:
    """A pool that is to have two nodes, in each state that a look may see."""
    states = ("idle", "starting", *sorted(LOST)[:2])
    nodes = [item for count in range(3) for item in itertools.combinations_with_replacement(states, count)]
    for names, missing, patience, faulty, replaced in itertools.product(
        nodes, (None, 0.0, 9.0, 10.0), (None, 10.0), (0, 1, 2), (0, 1, 2)
    ):
        records = tuple(Node(f"n{number}", name) for number, name in enumerate(names))
        usable = sum(name not in LOST for name in names)
        if faulty <= len(names) and (missing is None) == (patience is None or usable >= MOST):
            yield SeenLoss(Pool("p", target_dedicated=MOST), records, missing, patience, faulty, replaced, most=MOST)


def faults_of_nodes(seen: SeenLoss, act: str) -> Iterator[str]:
    """What is wrong with a decision."""
    usable = sum(node.state not in LOST for node in seen.nodes)
    is_short = usable < MOST and seen.patience is not None
    if (act == "replace") != (0 < seen.faulty <= MOST - seen.replaced):
        yield "a faulty node is not replaced, or more than the pool has are"
    if act == "replace" and seen.replaced + seen.faulty > MOST:
        yield "nodes are replaced for ever"
    if not seen.faulty and (act == "move") != (is_short and (seen.missing or 0) >= 10):
        yield "a job moves too early, or never"
    if not seen.faulty and act == "" and is_short:
        yield "nodes are missing without a word"
    if act == "wait" and not is_short:
        yield "a wait for nodes that are there"


def test_nodes_are_replaced_within_their_limit_and_lost_after_their_patience() -> None:
    seen = [*losses()]
    print(f"{len(seen)} states of nodes")
    rules = ((loss, placing.decide_nodes(loss)) for loss in seen)
    assert [fault for loss, rule in rules for fault in faults_of_nodes(loss, rule.act if rule else "")] == []


@pytest.mark.parametrize("left_out", NODE_RULES, ids=lambda rule: rule.name)
def test_each_row_of_the_nodes_is_needed(left_out: NodeRule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "NODE_RULES", tuple(rule for rule in NODE_RULES if rule is not left_out))
    rules = ((loss, placing.decide_nodes(loss)) for loss in losses())
    assert any(any(faults_of_nodes(loss, rule.act if rule else "")) for loss, rule in rules)
