"""Where a run is: which candidate of its pool comes next, and what becomes of its jobs there. Pure.

`PLACE_RULES` is the table of the search, and `NODE_RULES` that of the nodes while a job is followed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from batchtrain.life.decision_table import Row, first
from batchtrain.life.seen import LOST
from batchtrain.records import Node, Pool


class SeenPlace(NamedTuple):
    """A run among the candidates of its pool."""

    untried: int
    """The candidates that were not tried since the pool last had its nodes."""
    pool: Literal["", "ready", "lacking", "lost", "ended"] = ""
    """At the candidate of now: not there; with all nodes; it did not get its nodes; it lost some for too long; it ended
    with the run that added it."""
    jobs: Literal["", "added", "over"] = ""
    """`added`: some of them, too. `over`: their tasks have ended."""
    wants_jobs: bool = True


PlaceAct = Literal["withdraw", "discard", "forget", "give up", "create", "add", "follow"]
PlaceRule = Row[SeenPlace, PlaceAct]


def decide(seen: SeenPlace) -> PlaceRule | None:
    """The first rule that applies; None if there is nothing more to do."""
    return first(PLACE_RULES, seen)


# fmt: off
PLACE_RULES: tuple[PlaceRule, ...] = (
    PlaceRule("jobs-without-nodes", "the pool of added jobs has lost its nodes, or has ended",
        lambda seen: seen.jobs == "added" and seen.pool in ("lost", "ended"),
        "withdraw", "deletes the jobs, whose checkpoints are in storage"),
    PlaceRule("candidate-without-nodes", "the pool did not get its nodes in its patience, or lost some for as long",
        lambda seen: seen.pool in ("lacking", "lost"), "discard", "deletes what was allocated"),
    PlaceRule("pool-ended", "the pool ended with the run that added it", lambda seen: seen.pool == "ended",
        "forget", "creates it again at the same candidate"),
    PlaceRule("no-candidate-left", "every candidate was tried", lambda seen: not seen.pool and not seen.untried,
        "give up", "fails with exit code 4, and the reason of each candidate"),
    PlaceRule("no-pool", "there is no pool", lambda seen: not seen.pool,
        "create", "creates it at the next candidate, or uses the existing one"),
    PlaceRule("no-jobs", "the pool has its nodes", lambda seen: seen.wants_jobs and not seen.jobs,
        "add", "adds the jobs"),
    PlaceRule("jobs-run", "the jobs were added", lambda seen: seen.jobs == "added",
        "follow", "follows them to their end"),
)
# fmt: on
"""In the order in which they apply."""


class SeenLoss(NamedTuple):
    """The nodes of a pool whose job is followed."""

    pool: Pool
    nodes: tuple[Node, ...]
    missing: float | None = None
    """The seconds without some nodes; None if the pool had all of them at the last look."""
    patience: float | None = None
    """The seconds that it has to get its nodes back; None if the job is not moved."""
    faulty: int = 0
    """The nodes whose preflight found faults, and that are to be replaced."""
    replaced: int = 0
    """How many nodes this job has replaced."""
    most: int = 0
    """How many it may replace."""

    @property
    def usable(self) -> int:
        """The nodes that run tasks, or will."""
        return sum(node.state not in LOST for node in self.nodes)


NodeRule = Row[SeenLoss, Literal["fail", "replace", "move", "wait"]]


def decide_nodes(seen: SeenLoss) -> NodeRule | None:
    """The first rule that applies; None if no node is missing or faulty."""
    return first(NODE_RULES, seen)


# fmt: off
NODE_RULES: tuple[NodeRule, ...] = (
    NodeRule("replaced-too-often", "the preflight found faults, and the job has replaced as many nodes as its pool has",
        lambda seen: bool(seen.faulty) and seen.replaced + seen.faulty > seen.most,
        "fail", "lets the gang fail with what its preflight found"),
    NodeRule("faulty-nodes", "the preflight of a gang found faults, and the pool has `on_bad_node: replace`",
        lambda seen: bool(seen.faulty), "replace", "removes the nodes, and waits for others"),
    NodeRule("nodes-lost", "nodes were missing for as long as the `patience` of the candidates, with `recover`",
        lambda seen: seen.patience is not None and seen.usable < seen.pool.target
        and seen.missing is not None and seen.missing >= seen.patience,
        "move", "moves the job to the next candidate"),
    NodeRule("nodes-missing", "nodes are missing, and the pool has time to get them back",
        lambda seen: seen.patience is not None and seen.usable < seen.pool.target,
        "wait", "waits, and says when the job moves"),
)
# fmt: on
"""In the order in which they apply."""
