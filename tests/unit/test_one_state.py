"""All views say the same about the same recorded runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import pytest

from batchtrain.dashboard import recorded as page
from batchtrain.display.live_view import View
from batchtrain.records import Counts
from batchtrain.records.events import TasksSeen
from batchtrain.runs import compare, report
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.finished import Comparison, Run
from tests import recorded_runs
from tests.recorded_runs import SECONDS, START, STORIES


class Recorded(NamedTuple):
    """A run, as a view finds it."""

    name: str
    run: RunDirectory


@pytest.fixture(scope="module", params=STORIES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(request.param, recorded_runs.recorded(tmp_path_factory.mktemp("runs"), request.param))


def block(width: int) -> Callable[[Recorded], str]:
    """The live block at the end of the run, and its outcome."""

    def read(recorded: Recorded) -> str:
        story, view = STORIES[recorded.name], View("t", "pool", START.timestamp(), ranks=4, many=False)
        for task in story.tasks:
            for event, _ in recorded_runs.events(story, task):
                view.note(event, START.timestamp() + SECONDS)
        failed = len(story.failed)
        view.note(TasksSeen("j", counts=Counts(0, 0, len(story.tasks) - failed, failed)), START.timestamp() + SECONDS)
        later = START.timestamp() + SECONDS + 60 * (story.state == "running")
        lines = ["".join(text for text, _ in line) for line in view.lines(width, later)]
        return "\n".join([*lines, view.outcome])

    return read


def text_of(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


VIEWS: Mapping[str, Callable[[Recorded], str]] = {
    "block at 80": block(80),
    "block at 40": block(40),
    "list": lambda recorded: str(compare.row(recorded.run.record())),
    "show": lambda recorded: f"{compare.diverged(recorded.run.record())} {compare.metric_rows(recorded.run.record())}",
    "compare": lambda recorded: repr(Comparison([Run(recorded.run), Run(recorded.run)])),
    "notebook": lambda recorded: text_of(Run(recorded.run)._repr_html_()),
    "page": lambda recorded: msgspec.json.encode(page.shown(recorded.run.path.parent, recorded.run.name)).decode(),
    "list of the page": lambda recorded: str(page._row(recorded.run)),
    "report": lambda recorded: text_of(report.html(recorded.run)),
}
"""What each view says of a run."""
EXPECTED: Mapping[str, Mapping[str, str]] = {
    "nan": {
        "block at 80": "loss NaN", "block at 40": "loss NaN", "list": "completed, diverged.*loss NaN since step 16",
        "show": "loss is NaN since step 16", "compare": "NaN since step 16", "notebook": "completed, diverged",
        "page": "succeeded, diverged", "list of the page": "succeeded, diverged.*loss NaN since step 16",
        "report": "loss is NaN since step 16",
    },
    "sweep": {
        "block at 80": "500/500  100 %.*10 failed", "list": r"500 tasks, best loss 1\W", "list of the page": "failed",
        "page": r'"id":"task-00007".*"task_count":500,"next":200',
        "report": r"task-00007\s+●\s+failed.*300 more of 500",
    },
    "hung": {"block at 80": "1 stopped, 3 waiting", "block at 40": "1 stopped, 3 waiting"},
    "failed": {"report": "rank 2 on n1 exited with code 7", "page": "rank 2 on n1 exited with code 7"},
    "stopped": {
        "list": "interrupted", "page": "rank 3 stood still for 84 s", "report": "rank 3 stood still for 84 s",
        "notebook": "rank 3 stood still for 84 s",
    },
    "one-sample": {"block at 80": "1,000 tokens/s", "show": "throughput.*1000.*tokens/s"},
    "silent": {"list": "completed", "notebook": "completed"},
    "layers": dict.fromkeys(("list", "list of the page"), "layer_00/grad_norm") | {"show": "layer_39/grad_norm"},
}  # fmt: skip
NEVER: Mapping[str, str] = {
    "layers": r"\d tasks",
    "silent": "NaN",
    "stopped": "KeyboardInterrupt",
    "healthy": ", diverged|NaN",
    "preempted": ", diverged|NaN",
}
"""What no view says."""


def test_each_view_says_what_a_run_did(recorded: Recorded) -> None:
    texts = {view: read(recorded) for view, read in VIEWS.items()}
    wrong = {
        view: texts[view]
        for view, pattern in EXPECTED.get(recorded.name, {}).items()
        if not re.search(pattern, texts[view], re.DOTALL)
    }
    assert wrong == {}
    if recorded.name in NEVER:
        assert [view for view, text in texts.items() if re.search(NEVER[recorded.name], text)] == []


def test_the_ranks_of_a_run_are_those_of_the_page(recorded: Recorded) -> None:
    expected = {"failed": {2: "failed"}, "stopped": {3: "stands"}}.get(recorded.name, {})
    document = page.ranks(recorded.run.path.parent, recorded.run.name, next(iter(STORIES[recorded.name].tasks)))
    marked = {row["rank"]: row["condition"] for row in document["rows"] if row["condition"] in ("failed", "stands")}
    assert marked == expected
