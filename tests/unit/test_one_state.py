"""All views say the same about the same recorded runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from unittest.mock import Mock

import msgspec
import pytest

from batchtrain import markup
from batchtrain.cli.run import failed_tasks
from batchtrain.dashboard import recorded as page
from batchtrain.display.live_view import View
from batchtrain.errors import NotFound
from batchtrain.metrics.stream import MetricStream
from batchtrain.metrics.summary import Summary
from batchtrain.records import Counts, Table
from batchtrain.records.events import RanksFailed, TasksSeen
from batchtrain.records.metric import MAIN
from batchtrain.runs import compare, outcome, report, sweep
from batchtrain.runs import so_far as newest
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.finished import Comparison, Run
from batchtrain.service.connect import Account
from batchtrain.service.failed import explained
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
        view.note(TasksSeen("j", counts=Counts.of(recorded.run.tasks())), START.timestamp() + SECONDS)
        if story.ends:
            view.note(RanksFailed("train", ends=tuple(story.ends)), START.timestamp() + SECONDS)
        later = START.timestamp() + SECONDS + 60 * (story.state == "running")
        lines = ["".join(text for text, _ in line) for line in view.lines(width, later)]
        return "\n".join([*lines, view.outcome])

    return read


def plain(recorded: Recorded) -> str:
    """The lines of a run without a terminal, and how it ended."""
    story, record = STORIES[recorded.name], recorded.run.record()
    lines = [event.text for task in story.tasks for event, _ in recorded_runs.events(story, task)]
    return "\n".join(filter(None, [*lines, record.failure.message if record.failure else ""]))


def end_of_run(recorded: Recorded) -> str:
    """The last lines of `run` and `runs attach`."""
    record, tasks = recorded.run.record(), recorded.run.tasks()
    attempts = max((attempt.number for attempt in recorded.run.attempts()), default=1)
    facts = outcome.lines(outcome.facts(record, tasks))
    return "\n".join([*failed_tasks(tasks), outcome.title(record, attempts), *facts])


def task_states(recorded: Recorded) -> str:
    """What `jobs show` and `jobs wait` print of the tasks of a job."""
    return str(Table(explained(recorded.run.tasks(), lambda task: task.failure.message)))


def so_far(recorded: Recorded) -> str:
    """How far `jobs show` says that the tasks of a job are; `jobs wait` does the same each minute."""
    story, now, sentences = STORIES[recorded.name], START.timestamp() + SECONDS + 60, list[str]()
    for task in itertools.islice(story.tasks, 4):
        stream, summary = MetricStream(), Summary()
        for event, _ in recorded_runs.events(story, task, stream):
            for point in event.points:
                summary.add(point)
        record = next(record for record in recorded.run.each_task() if record.id == task)
        sentences.append(sweep.so_far("j", record, stream, summary.metrics(), story.tasks[task][-1][-1], now))
    return "\n".join(sentences)


def sweep_rows(recorded: Recorded) -> str:
    """`jobs sweep` of a job that is gone."""
    account, job, patch = Account("", ""), recorded.run.record().job, pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(sweep.read, "job_or_none", lambda *_: None)
        try:
            rows = sweep.sweep(Mock(), account, recorded.run.path.parent, job, "loss", Mock())
        except NotFound as error:
            return str(error)
    return "\n".join(map(str, sweep.flat(rows, "loss")))


def run_list(recorded: Recorded) -> str:
    """A row of `runs list` and `runs show`."""
    record, progress = newest.so_far(recorded.run, recorded.run.record())
    return str(compare.row(record, progress=progress))


def text_of(html: str) -> str:
    return re.sub(r"<(style|script)\b.*?</\1>|<[^>]+>", " ", html, flags=re.DOTALL)


VIEWS: Mapping[str, Callable[[Recorded], str]] = {
    "block at 80": block(80),
    "block at 40": block(40),
    "plain lines": plain,
    "end of run": end_of_run,
    "jobs show": lambda recorded: f"{task_states(recorded)}\n{so_far(recorded)}",
    "jobs wait": lambda recorded: f"{so_far(recorded)}\n{task_states(recorded)}",
    "jobs sweep": sweep_rows,
    "list": run_list,
    "show": lambda recorded: f"{compare.diverged(recorded.run.record())} {compare.metric_rows(recorded.run.record())}",
    "compare": lambda recorded: repr(Comparison([Run(recorded.run), Run(recorded.run)])),
    "notebook": lambda recorded: text_of(Run(recorded.run)._repr_html_()),
    "page": lambda recorded: msgspec.json.encode(page.shown(recorded.run.path.parent, recorded.run.name)).decode(),
    "compare of the page": lambda recorded: str(
        page.compared(recorded.run.path.parent, [recorded.run.name, recorded.run.name])["rows"]
    ),
    "list of the page": lambda recorded: str(page._row(page._listed(recorded.run))),
    "report": lambda recorded: text_of(report.html(recorded.run)),
}
"""What each view says of a run."""
EXPECTED: Mapping[str, Mapping[str, str]] = {
    "nan": {
        "block at 80": "loss NaN", "block at 40": "loss NaN", "plain lines": "loss is NaN since step 16",
        "end of run": r"^nan succeeded, diverged after 60 s\n  loss  NaN since step 16 \(best 0\.125\)$",
        "jobs show": "loss NaN since step 16", "jobs wait": "loss NaN since step 16",
        "jobs sweep": "succeeded, diverged", "list": "succeeded, diverged.*loss NaN since step 16",
        "show": "loss is NaN since step 16", "compare": "NaN since step 16", "notebook": "succeeded, diverged",
        "page": r'succeeded, diverged.*"name":"loss","text":"NaN since step 16 \(best 0\.125\)","diverged":true',
        "list of the page": "succeeded, diverged.*loss NaN since step 16",
        "report": "loss is NaN since step 16",
        "compare of the page": r"NaN since step 16.*'diverged': \(True, True\)",
    },
    "sweep": {
        "block at 80": "500/500  100 %.*10 failed", "list": r"500 tasks, best last loss 1\W",
        "list of the page": "failed",
        "page": r'"id":"task-00007".*"task_count":500,"next":200',
        "report": r"task-00007\s+●\s+failed.*300 more of 500", "end of run": (
            r"task-00007 ended with exit code 7\n.*\nsweep failed after 60 s\n"
            r"  tasks  490 succeeded, 10 failed\n  loss   best 1 of 500 tasks: task-00000$"
        ),
        "jobs sweep": r"task-00000.*task-00007', 'loss': 1\.007, 'state': 'failed'.*task-00499",
    },
    "hung": {"block at 80": "1 stopped, 3 waiting", "block at 40": "1 stopped, 3 waiting"} | dict.fromkeys(
        ("list", "list of the page", "page"), "step 12/40, loss 0.1429"
    ) | dict.fromkeys(
        ("jobs show", "jobs wait"),
        r"running for 2 min, step 12/40, .*rank 3 stood still for 64 s, and ranks 0, 1, 2 wait"
        r" \(`batchtrain jobs stacks j train` .*, rank 2",
    ),
    "failed": dict.fromkeys(("report", "page", "plain lines"), "rank 2 on n1 exited with code 7") | {
        "block at 80": r"exited with code 7.*ended by the launcher \(SIGTERM\)", "jobs sweep": "'failed'",
        "jobs show": "failure +7",
    },
    "stopped": {
        "list": "interrupted", "page": "rank 3 stood still for 84 s", "report": "rank 3 stood still for 84 s",
        "notebook": "rank 3 stood still for 84 s", "plain lines": "rank 3 stood still for 84 s",
        "end of run": "^stopped interrupted after 2 min",
    },
    "waits": dict.fromkeys(("jobs show", "jobs wait"), r"bad +completed +failure +7.*after +active") | {
        "block at 80": "2/3.*1 waiting  1 failed", "block at 40": "1 failed",
        "end of run": (
            r"^task bad ended with exit code 7\ntask after is still active\nwaits failed after 60 s\n"
            r"  tasks +1 active, 1 succeeded, 1 failed\n"
        ),
        "page": '"name":"tasks","text":"1 active, 1 succeeded, 1 failed"', "report": r"after\s+●\s+active",
        "notebook": r"after\s+●\s+active",
    },
    "healthy": {"end of run": r"^healthy succeeded after 60 s\n  loss  0\.09520*$"},
    "preempted": {"end of run": r"^preempted succeeded after 60 s, 3 attempts\n  loss  0\.025$"},
    "many-metrics": {"end of run": r"m5    5\n  more  39 metrics$"},
    "one-sample": {"end of run": r"loss        0\.5\n  throughput  1000 tokens/s$",
        "block at 80": "1,000 tokens/s", "show": "throughput.*1000.*tokens/s"},
    "silent": {"list": "succeeded", "notebook": "succeeded"},
    "layers": dict.fromkeys(("list", "list of the page"), "layer_00/grad_norm") | {"show": "layer_39/grad_norm"},
}  # fmt: skip
NEVER: Mapping[str, str] = {
    "layers": r"\d tasks",
    "waits": "[23] succeeded|after ended",
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


@pytest.mark.parametrize(
    ("state", "tone"),
    [
        ("completed", "done"), ("succeeded", "good"), ("running", "run"), ("interrupted", "warn"),
        ("stopped", "warn"), ("failed", "bad"),
    ],
)  # fmt: skip
def test_a_state_has_one_tone_in_all_views_and_is_bad_once_a_value_is_not_finite(state: str, tone: str) -> None:
    for has_diverged, expected in ((False, tone), (True, "bad")):
        assert markup.TONES[markup.in_words(state, has_diverged=has_diverged)] == expected
    words = markup.in_words(state, has_diverged=True)
    assert f"color:{markup.RED}" in markup.badge(words)
    assert f"color:{markup.RED}" not in markup.badge(f"not {words}")


def test_the_usual_metrics_have_one_order_in_all_views() -> None:
    view = View("t", "pool", START.timestamp(), ranks=1, many=False)
    view.values.update({name: {"": 0.5} for name in ("a", *reversed(MAIN))})
    assert view.names == compare.by_meaning(view.values) == [*MAIN, "a"]


def test_each_view_has_a_row_in_the_table() -> None:
    assert {view for row in EXPECTED.values() for view in row} == set(VIEWS)


def test_the_ranks_of_a_run_are_those_of_the_page(recorded: Recorded) -> None:
    expected = {"failed": {2: "failed"}, "hung": {3: "stands"}, "stopped": {3: "stands"}}.get(recorded.name, {})
    document = page.ranks(recorded.run.path.parent, recorded.run.name, next(iter(STORIES[recorded.name].tasks)))
    marked = {row["rank"]: row["condition"] for row in document["rows"] if row["condition"] in ("failed", "stands")}
    assert marked == expected
    ends = {end.rank: end.words for end in STORIES[recorded.name].ends}
    assert {row["rank"]: row["words"] for row in document["rows"] if row["rank"] in ends} == ends
