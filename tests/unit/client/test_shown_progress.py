"""Whose progress a method of the client shows."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.client import shown_progress
from batchtrain.client.client import Client
from batchtrain.client.job import Job
from batchtrain.client.jobs import Jobs
from batchtrain.client.pools import Pools
from batchtrain.client.shown_progress import SHOW, Tell, displayed
from batchtrain.errors import Finding, TaskFailed
from batchtrain.records.events import Event
from tests.unit.plan.jobs import recipe


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The views that were shown, with their account, recipe and name."""
    views = list[tuple[Any, ...]]()

    @contextlib.contextmanager
    def shown(make: Callable[[], object], *how: object, **options: object) -> Iterator[Callable[[Event], None]]:
        make()
        views.append((*how, options))
        yield lambda event: None

    monkeypatch.setattr(shown_progress, "wanted", lambda display: display)
    monkeypatch.setattr(shown_progress, "shown", shown)
    monkeypatch.setattr(shown_progress, "view_of", lambda *view, recent: views.append(view))
    return views


class Owner:
    """A method that shows its progress, as those of the client do."""

    def __init__(self, display: bool = True, **names: object) -> None:
        self.account, self.display = SimpleNamespace(option=" --local"), display
        vars(self).update(names)
        self.told = list[object]()

    @displayed("interrupted", quiet=True)
    def work(self, *_: object, tell: Tell = SHOW, **__: object) -> str:
        self.told.append(tell)
        return "done"


MADE = recipe()


@pytest.mark.parametrize(
    ("owner", "arguments", "options", "view"),
    [
        (Owner(), ("p",), {}, (None, "p")),
        (Owner(), (MADE,), {}, (MADE, "")),
        (Owner(id="j"), (), {}, (None, "j")),
        (Owner(), (), {"recipe": MADE}, (MADE, "")),
    ],
)
def test_it_is_that_of_the_first_argument_else_of_the_owner(
    owner: Owner, arguments: tuple[object, ...], options: dict[str, Any], view: tuple[object, str], views: list[Any]
) -> None:
    assert owner.work(*arguments, **options) == "done"
    assert views == [(owner.account, *view), ("interrupted", " --local", {"quiet": True})]
    assert owner.told != [SHOW]


def test_none_is_shown_where_the_caller_takes_it_or_nobody_looks(views: list[Any]) -> None:
    owner, hidden = Owner(), Owner(display=False)
    owner.work(tell=print)
    owner.work(tell=None)
    hidden.work()
    assert (owner.told, hidden.told, views) == ([print, None], [SHOW], [])


@pytest.mark.parametrize("kind", [Client, Job, Jobs, Pools])
def test_every_call_takes_none_in_place_of_who_is_told(kind: type) -> None:
    calls = [inspect.unwrap(call) for name, call in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"]
    tells = [call.__globals__[call.__annotations__["tell"]] for call in calls if "tell" in call.__annotations__]
    assert tells == [Tell] * len(tells) != []  # mypy holds what they call to the same


def test_that_of_a_job_is_shown_as_its_client_says(views: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Owner(batch=None, pace=None)
    monkeypatch.setattr("batchtrain.client.job.until_ended", lambda *_: None)
    Job(client, "j").wait(check=False)
    assert views[0] == (client.account, None, "j")


NEXT = "`batchtrain jobs logs digits --task train` shows the rest"


class Failing(Owner):
    """A method whose error has its cause, which another one calls and records."""

    record = ""

    @displayed("interrupted")
    def fails(self, *, tell: Tell = SHOW) -> None:
        error = TaskFailed("task digits/train failed")
        error.finding = Finding("import-error", "task train", "module torch is missing", "No module", NEXT)
        raise error

    @displayed("interrupted")
    def runs(self, *, tell: Tell = SHOW) -> None:
        try:
            self.fails(tell=tell)
        except TaskFailed as error:
            self.record = str(error)
            raise


@pytest.mark.parametrize("explains", [True, False])
def test_an_error_that_leaves_a_call_says_its_cause_and_the_next_step_and_its_record_does_not(explains: bool) -> None:
    owner = Failing(display=False, explains=explains)
    with pytest.raises(TaskFailed) as failure:
        owner.runs()
    assert owner.record == "task digits/train failed"
    rows = str(failure.value).splitlines()[1:]
    expected = ["cause  module torch is missing [import-error]", "where  task train", "proof  No module"]
    assert (rows[:3], [row.partition(" ")[0] for row in rows[3:]]) == ((expected, ["next"]) if explains else ([], []))
    assert not explains or "`batchtrain jobs logs digits --task train --local`" in rows[3]
