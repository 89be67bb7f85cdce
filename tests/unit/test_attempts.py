"""The attempts of a task, from what the runtime recorded, what a client saw, and the nodes of the pool."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from batchtrain.records import Attempt, AttemptEvent, Node, Task
from batchtrain.records.attempt import attempts_of, lost_node, with_reasons

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def began(attempt: int, seconds: float, **more: Any) -> AttemptEvent:
    return AttemptEvent("began", attempt, at(seconds), **{"node": f"n{attempt}", "dedicated": False, **more})


def ended(attempt: int, seconds: float, code: int | None = None) -> AttemptEvent:
    return AttemptEvent("ended", attempt, at(seconds), exit_code=code)


def task(state: str = "completed", code: int | None = 0, **more: Any) -> Task:
    result = {None: "", 0: "success"}.get(code, "failure")
    return Task("t", state, result, exit_code=code, node="n9", seconds=5.0, started=at(100), **more)


def reasons(*attempts: Attempt) -> list[str]:
    return [attempt.reason for attempt in attempts]


def test_a_task_that_ran_once_has_one_attempt_with_the_services_times() -> None:
    assert attempts_of(task(), (), (), {}) == (
        Attempt("t", 1, ("n9",), at(100), at(105), "completed", exit_code=0),
    )  # fmt: skip


def test_the_runtimes_records_on_a_volume_have_all_attempts() -> None:
    hosts = {"node": "n1", "address": "10.0.0.4", "hosts": ("10.0.0.5", "10.0.0.4")}
    announced = AttemptEvent("preempted", 1, at(4), node="n5")
    events = [began(1, 0, **hosts), announced, began(2, 10, checkpoint="step-30"), ended(2, 20, 7), began(3, 30)]
    known = attempts_of(task(retries=1, requeues=1), (), events, {"10.0.0.5": "n5"})
    assert reasons(*known) == ["preempted", "exit code", "completed"]
    assert (known[0].nodes, known[0].lost, known[0].ended) == (("n1", "n5"), "n5", None)
    assert (known[1].checkpoint, known[1].exit_code, known[1].seconds) == ("step-30", 7, 10)


def test_a_runtime_that_counts_anew_on_each_node_has_the_last_attempts() -> None:
    known = attempts_of(task(requeues=2), (), [began(1, 90, node="n9")], {})
    assert reasons(*known) == ["requeued", "requeued", "completed"]
    assert [attempt.nodes for attempt in known] == [(), (), ("n9",)]


def test_the_records_before_the_current_run_has_begun_are_of_the_one_before() -> None:
    known = attempts_of(task("running", None, retries=1), (), [began(1, 0), ended(1, 5, 3)], {})
    assert (known[0].exit_code, known[0].reason, known[1].reason, known[1].exit_code) == (3, "exit code", "", None)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [({"retries": 1}, "exit code"), ({"requeues": 1}, "requeued"), ({"retries": 1, "requeues": 1}, "unknown")],
)
def test_what_nobody_saw_is_unknown_unless_the_services_counts_prove_it(counts: dict[str, int], reason: str) -> None:
    first, *_ = attempts_of(task(**counts), (), (), {})
    assert (first.reason, first.nodes, first.started, first.exit_code) == (reason, (), None, None)


def test_what_a_client_saw_and_what_the_runtime_recorded_are_one_attempt() -> None:
    seen = Attempt("t", 1, ("n1",), at(1), at(9), "node lost", "n1")
    (first, _) = attempts_of(task(requeues=1), [seen], [began(1, 2, checkpoint="step-4"), began(2, 20)], {})
    assert (first.started, first.ended, first.reason, first.checkpoint) == (at(1), at(9), "node lost", "step-4")
    announced = AttemptEvent("preempted", 1, at(4), node="n1")
    (first, _) = attempts_of(task(requeues=1), [seen], [began(1, 2), announced, began(2, 20)], {})
    assert (first.reason, first.lost) == ("preempted", "n1")


def test_a_reactivated_task_has_more_attempts_than_the_service_counts_but_none_that_it_cannot_have_had() -> None:
    events = [began(1, 0), ended(1, 5, 3), began(2, 90)]
    known = attempts_of(task(), (), events, {})
    assert (len(known), known[0].exit_code, known[1].reason) == (2, 3, "completed")
    known = attempts_of(task(retries=1), (), [*events, began(300_000, 95)], {})
    assert [(attempt.number, attempt.nodes) for attempt in known] == [(1, ("n1",)), (2, ("n2",))]


def test_node_hours_are_those_of_all_nodes_also_of_a_gang_of_which_only_the_primary_is_known() -> None:
    assert Attempt("t", 1, ("a", "b"), at(0), at(1800)).node_hours == 1.0
    assert Attempt("t", 1, ("a",), at(0), at(1800), instances=2).node_hours == 1.0
    assert Attempt("t", 1, ("a", "b"), at(0)).node_hours is None


RUN = Attempt("t", 1, ("n1",), at(0), reason="requeued", dedicated=True)


@pytest.mark.parametrize(
    ("nodes", "reason", "lost"),
    [
        ([Node("n1", "preempted", dedicated=False, since=at(5))], "preempted", "n1"),
        ([Node("n1", "unknown", since=at(5))], "node lost", "n1"),
        ([Node("n1", "idle", since=at(9), booted=at(8))], "node lost", "n1"),
        ([Node("n1", "starting", since=at(9), booted=at(-9)), Node("n2", "idle")], "node lost", "n1"),
        ([Node("n1", "idle"), Node("n2", "starting", allocated=at(5), since=at(5))], "requeued", ""),  # it is new
        ([Node("n1", "idle"), Node("n2", "idle", allocated=at(5), booted=at(6))], "requeued", ""),
        ([Node("n1", "idle"), Node("n2", "idle", allocated=at(-5), booted=at(6))], "node lost", "n2"),
        ([Node("n1", "idle", since=at(9), booted=at(-9))], "requeued", ""),
        ([Node("n2", "idle", since=at(-9), booted=at(-9))], "node lost", "n1"),  # it is not listed any more
        ([Node("n1", "idle"), Node("n2", "preempted", allocated=at(-9), since=at(5))], "preempted", "n2"),
        ([Node("n1", "idle"), Node("n2", "preempted", allocated=at(-9), since=at(-5))], "requeued", ""),
        ([], "requeued", ""),
    ],
)
def test_the_nodes_prove_why_the_service_ended_an_attempt(nodes: list[Node], reason: str, lost: str) -> None:
    assert lost_node(RUN, nodes) == {"reason": reason, "lost": lost}
    (judged,) = with_reasons([RUN], nodes)
    assert (judged.reason, judged.lost) == (reason, lost)


def test_nodes_tell_nothing_about_an_attempt_of_which_nothing_is_known() -> None:
    unknown = Attempt("t", 1, reason="requeued")
    assert with_reasons([unknown], [Node("n2", "preempted", dedicated=False, since=at(5))]) == (unknown,)
