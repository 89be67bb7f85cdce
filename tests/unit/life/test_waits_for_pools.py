"""The table of waits for pools, in every small world: each row is needed for what a user may expect of a wait."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from batchtrain.life import pools
from batchtrain.life.pools import POOL_RULES, PoolRule, SeenNodes
from batchtrain.life.seen import NEVER_READY, READY
from batchtrain.records import Failure, Node, Pool

ERROR = Failure(code="AllocationFailed", message="No capacity.")
STATES = ("idle", "starting", "unusable", "starttaskfailed")
NODES = [states for count in range(4) for states in itertools.combinations_with_replacement(STATES, count)]


def worlds() -> Iterator[SeenNodes]:
    """A pool that is to have two nodes, in each state that a wait may see."""
    for allocation, states, error, may_come, patience, reboots, formula in itertools.product(
        ("resizing", "steady"), NODES, (Failure(), ERROR), (True, False), (None, 0.0, 9.0), (True, False), (True, False)
    ):
        nodes = tuple(Node(f"n{number}", state) for number, state in enumerate(states))
        pool = Pool("p", "active", allocation, target_dedicated=2, autoscale=formula)
        rebooted = frozenset(node.id for node in nodes if reboots and patience is None)
        seen = SeenNodes(pool, nodes, error, may_come, patience, rebooted)
        if patience is None or not seen.is_allocated:
            yield seen


def faults(seen: SeenNodes, rule: PoolRule | None) -> Iterator[str]:
    """What is wrong with a decision."""
    act, is_steady = rule.act if rule else "ready", seen.pool.allocation == "steady"
    is_whole = is_steady and len(seen.nodes) >= 2 and all(node.state in READY for node in seen.nodes)
    lasts = seen.error and seen.may_come and seen.patience
    is_broken = any(node.state in NEVER_READY and node.id not in seen.rebooted for node in seen.nodes)
    if act == "ready" and not is_whole:
        yield "a pool is used before its nodes take tasks"
    if act != "ready" and is_whole and not seen.error:
        yield "a ready pool is awaited"
    if act != "end" and ((seen.error and not lasts) or seen.patience == 0 or (is_broken and seen.patience is None)):
        yield "a wait lasts that nothing can end well"
    if act == "end" and not seen.error and not is_broken and seen.patience != 0:
        yield "a wait ends that may end well"
    if (act == "request") != (is_steady and bool(seen.patience) and not seen.pool.autoscale) and act != "end":
        yield "nodes are requested again where it cannot help, or not where it may"


def test_no_wait_for_a_pool_lasts_in_vain_or_ends_too_early() -> None:
    seen = list(worlds())
    print(f"{len(seen):,} worlds of a pool")
    assert [fault for world in seen for fault in faults(world, pools.decide(world))] == []


@pytest.mark.parametrize("left_out", POOL_RULES, ids=lambda rule: rule.name)
def test_each_row_is_needed(left_out: PoolRule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "POOL_RULES", tuple(rule for rule in POOL_RULES if rule is not left_out))
    assert any(list(faults(world, pools.decide(world))) for world in worlds())
