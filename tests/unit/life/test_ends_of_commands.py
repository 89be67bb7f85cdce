"""Every end of a command that can be reached, whatever ended its work and whatever happens at each step: a pool, two
jobs, their results, each answer of the service, each signal."""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from batchtrain.client import ending
from batchtrain.client.ending import Ending
from batchtrain.client.interrupts import Interrupts
from batchtrain.errors import NotFound, ServiceError, Unreachable
from batchtrain.life import endings
from batchtrain.life.endings import CAUSES, END_RULES, EndRule, Results, SeenEnd, cause_of
from batchtrain.life.intents import Intent
from batchtrain.plan.marks import Marks
from batchtrain.records.events import Event
from batchtrain.service import register
from batchtrain.service.register import Thing
from tests import examples
from tests.ends import ERRORS, RESULTS, after, beginnings, explored, faults


def test_every_end_of_a_command_names_what_stays_and_deletes_nothing_too_early() -> None:
    states = explored()
    print(f"{len(states):,} states, {len({*beginnings()}):,} beginnings")
    for seen in states:
        rule = endings.decide(seen)
        assert [*faults(seen, rule.act if rule else "")] == [], seen
    tuple(graphlib.TopologicalSorter(states).static_order())  # raises for a step that repeats for ever


@pytest.mark.parametrize("left_out", END_RULES, ids=lambda rule: rule.name)
def test_each_row_is_needed(left_out: EndRule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "END_RULES", tuple(rule for rule in END_RULES if rule is not left_out))
    queue, met = [*beginnings()][::7], set[SeenEnd]()
    while queue:
        if (seen := queue.pop()) not in met:
            met.add(seen)
            rule = endings.decide(seen)
            if any(faults(seen, rule.act if rule else "")):
                return
            queue += after(seen, rule.act) if rule else ()
    raise AssertionError(f"{len(met):,} states without a fault")


def test_each_cause_is_met() -> None:
    assert [cause_of(error) for error in ERRORS] == [*CAUSES]


# --- the ending itself beside the explored states ---------------------------------------------------------------------


class Answers:
    """What happens at each request: the choices of one path, and the number of possibilities at each."""

    def __init__(self, choices: tuple[int, ...]) -> None:
        self.choices, self.counts = choices, list[int]()

    def choose(self, count: int) -> int:
        self.counts.append(count)
        return self.choices[len(self.counts) - 1] if len(self.counts) <= len(self.choices) else 0

    def ask(self, *_: Any, **__: Any) -> Any:
        errors = (None, ServiceError("no"), Unreachable("no answer"), KeyboardInterrupt(), NotFound("gone"))
        if (error := errors[self.choose(len(errors))]) is not None:
            raise error

    @property
    def others(self) -> Iterator[tuple[int, ...]]:
        """The paths that differ first at a later request."""
        for at in range(len(self.choices), len(self.counts)):
            for choice in range(1, self.counts[at]):
                yield (*self.choices, *[0] * (at - len(self.choices)), choice)


class Recording:
    exceeds_limit, missing = False, None

    def __init__(self, answers: Answers, results: Results) -> None:
        self._answers, self._results = answers, results

    @property
    def has_fetched(self) -> bool:
        return self._results != "wanted"

    @property
    def unsaved(self) -> tuple[str, ...]:
        return () if self._results in ("wanted", "here") else ("no space",)

    @property
    def is_on_nodes_alone(self) -> bool:
        return self._results != "in storage"

    def leave(self, _: str) -> None:
        pass

    def fetch(self, *_: Any, **__: Any) -> None:
        self._answers.ask()
        self._results = RESULTS[1 + self._answers.choose(3)]


def followed(seen: SeenEnd, choices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Follow a real ending from a beginning, and hold each of its steps against the explored states."""
    answers = Answers(choices)
    account, jobs = (
        SimpleNamespace(option="", emulated=True),
        SimpleNamespace(handle=lambda _: SimpleNamespace(tasks=())),
    )
    client: Any = SimpleNamespace(account=account, batch=None, jobs=jobs, pace=None)
    registered = register.Register(Marks("run"))
    registered.tasks_added = seen.has_tasks
    for item in seen.things:
        registered.note(Thing(*item.thing), item.state)  # type: ignore[arg-type]
    monkeypatch.setattr(registered, "is_ours", lambda *_: answers.ask() or True)
    monkeypatch.setattr(ending, "stop_tasks", answers.ask)
    monkeypatch.setattr(ending, "leave", lambda *_: answers.choose(2) == 0)
    monkeypatch.setitem(cast("Any", ending.ACTS), "empty", lambda *_: None)
    monkeypatch.setattr(ending, "has_storage", lambda _: seen.is_stored)
    monkeypatch.setattr(ending.deletion, "request", lambda *_: answers.ask() or "")
    monkeypatch.setattr(ending.deletion, "gone", answers.ask)
    recordings: Any = {job.id: Recording(answers, job.results) for job in seen.jobs}
    intent = Intent("x", tuple(sorted(seen.keeps)), is_expendable=seen.is_expendable)
    command = Ending(
        client, registered, list[Event]().append, Interrupts(), intent, recordings,
        ask=lambda _: answers.choose(2) == 0,
    )  # fmt: skip
    command.recipe, command.submitted = SimpleNamespace(jobs=()), seen.is_submitted  # type: ignore[assignment]
    command.ended = {job.id for job in seen.jobs if not job.runs}
    looks, look = list[SeenEnd](), command.look
    monkeypatch.setattr(command, "look", lambda: looks.append(look()) or looks[-1])
    command.end(ERRORS[CAUSES.index(seen.cause)])
    for before, now in itertools.pairwise(looks):
        assert now in explored()[before], f"{endings.decide(before)}\n{before}\n{now}"
    assert looks[0] == seen
    return answers


@pytest.mark.property
def test_each_step_of_a_real_ending_is_one_of_the_explored_states(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    for seen in [*beginnings()][:: 110 // examples.count(10)]:
        queue: list[tuple[int, ...]] = [()]
        while queue:
            choices, count = queue.pop(), count + 1
            with monkeypatch.context() as patched:
                answers = followed(seen, choices, patched)
            queue += answers.others if not any(choices) else ()
    print(f"{count:,} paths")
