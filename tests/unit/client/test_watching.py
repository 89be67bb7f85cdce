"""What a wait for tasks looks at in each turn, and how many requests it tells the pace of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.client import watching
from batchtrain.client.watching import until_ended
from batchtrain.life.intents import WAIT_QUIETLY, WATCH, Intent
from batchtrain.service import watch
from batchtrain.service.watch import Pace


class Nodes:
    """The nodes of a job: three requests at each look."""

    moves = True

    def note(self, event: object) -> None:
        pass

    def look(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("intent", "nodes", "requests", "moves"), [(WATCH, Nodes(), 15, True), (WATCH, None, 12, False),
    (WAIT_QUIETLY, Nodes(), 13, True), (WAIT_QUIETLY, None, 10, False)],
)  # fmt: skip
def test_each_look_tells_the_pace_all_of_its_requests(
    intent: Intent, nodes: Nodes | None, requests: int, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[tuple[int, bool]]()

    def tasks_ended(batch: object, job_id: str, deadline: object, pace: object, look: Any, *, moves: bool) -> None:
        seen.append((look("glance"), moves))

    monkeypatch.setattr(watch, "tasks_ended", tasks_ended)
    monkeypatch.setattr(watching.Follow, "look", lambda *_: 2)
    client: Any = SimpleNamespace(batch=None, pace=Pace(0, 0))
    job: Any = SimpleNamespace(id="j")
    deadline = watch.Deadline(60, "the end", lambda _: None)
    until_ended(client, job, intent, deadline, nodes=nodes, count_nodes=lambda: 10)
    assert seen == [(requests, moves)]
