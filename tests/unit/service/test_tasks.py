"""Tasks are counted and filtered by the service; a large job is never listed while it is watched."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise
from operator import sub
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest
from azure.batch import BatchClient
from azure.core.rest import HttpRequest

from batchtrain.config.types import FetchSettings
from batchtrain.errors import NotFound, TimedOut, UsageError
from batchtrain.metrics.stream import OWN, RECORDS, Batch, MetricStream
from batchtrain.records import Counts, Point, Task, TaskNode, TaskRequest
from batchtrain.records.events import Event, FailuresSeen, MetricsSeen, RanksFailed, Stdout, StillWaiting, TasksSeen
from batchtrain.records.rank_end import RankEnd
from batchtrain.runs import log_follower, sweep
from batchtrain.runs.log_follower import AGAIN_LOOKS, EXPLAINED, FIRST, OUTPUT, Follow
from batchtrain.service import files, read, retry, tasks, watch
from batchtrain.service.answers import TaskAnswer
from batchtrain.service.requests import Creation
from batchtrain.service.tasks import FEW, Glance
from batchtrain.service.watch import Deadline
from tests.unit.service.test_retry import Time

NOW = datetime(2026, 11, 23, 12, 0, 0, tzinfo=timezone.utc)


class Answer:
    """An answer of the service."""

    headers: Mapping[str, str] = {}
    json: Callable[[], Any]

    request = HttpRequest("GET", "http://h/jobs/j/tasks")

    def __init__(self, document: Any) -> None:
        self.content = msgspec.json.encode(document)

    def raise_for_status(self) -> None:
        pass


class Service:
    """A job whose tasks end one per listing; its counts may be late by some answers."""

    def __init__(self, count: int, *, ended: int = 0, failed: int = 0, late: int = 0) -> None:
        self.count, self.ended, self.failed, self.late = count, ended, failed, late
        self.queries: list[dict[str, str]] = []
        self.counted = 0

    def send_request(self, request: Any, **_: Any) -> Answer:
        parts = urlsplit(request.url)
        if parts.path.endswith("/taskcounts"):
            self.counted += 1
            open_tasks = 0 if self.late else self.count - self.ended
            self.late = max(self.late - 1, 0)
            counts = {"active": open_tasks, "succeeded": self.count - open_tasks - self.failed, "failed": self.failed}
            return Answer({"taskCounts": counts})
        if parts.path == "/jobs/j":
            self.counted += 1
            return Answer({"id": "j", "state": "active"})
        assert parts.path == "/jobs/j/tasks"
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.queries.append(query)
        return Answer(self.page(query))

    def page(self, query: dict[str, str]) -> dict[str, Any]:
        start, size = int(query.get("$skiptoken", 0)), int(query["maxresults"])
        found = islice(self.matching(query.get("$filter", "")), start, None)
        page: dict[str, Any] = {"value": list(islice(found, size))}
        if next(found, None) is not None:
            more = urlencode({**query, "$skiptoken": start + size})
            page["odata.nextLink"] = f"http://h/jobs/j/tasks?{more}"
        return page

    def matching(self, where: str) -> Iterator[dict[str, Any]]:
        for number in range(self.count):
            done, failed = number < self.ended, number < self.failed
            if (where == tasks.OPEN and done) or (where == tasks.FAILED and not failed):
                continue
            result = {"executionInfo": {"result": "Failure" if failed else "Success", "exitCode": 3 * failed}}
            yield {"id": f"t{number}", "state": "completed" if done else "active", **(result if done else {})}


def client(service: Service) -> Any:
    return service


def deadline(time: Time, seconds: float = 3600) -> Deadline:
    return Deadline(seconds, "x", clock=retry.Clock(time.now, time.sleep))


def test_a_small_job_is_seen_with_one_request_and_a_large_one_with_two_whatever_its_size() -> None:
    service = Service(FEW, ended=3, failed=1)
    seen = tasks.glance(client(service), "j")
    assert (seen.whole, seen.counts, service.counted) == (True, Counts(FEW - 3, 0, 2, 1), 0)
    assert len(seen.first) == FEW
    service = Service(100_000, ended=5, failed=2)
    seen = tasks.glance(client(service), "j")
    assert (seen.whole, seen.requests, len(seen.first), seen.counts.total) == (False, 2, FEW, 100_000)
    assert len(service.queries) == 1


def test_a_list_follows_its_pages_and_ends_at_its_limit() -> None:
    assert [task.id for task in read.tasks(client(Service(2500)), "j")] == [f"t{number}" for number in range(2500)]
    service = Service(2500)
    assert len(list(read.tasks(client(service), "j", limit=7))) == 7
    assert [query["maxresults"] for query in service.queries] == ["7"]


class Changes(Service):
    """A job that was created a day ago, whose task N changed its state N + 1 minutes ago."""

    def send_request(self, request: Any, **options: Any) -> Answer:
        if urlsplit(request.url).path.endswith("/tasks"):
            return super().send_request(request, **options)
        answer = Answer({"id": "j", "creationTime": "2026-11-22T12:00:00.1234567Z"})
        answer.headers = {"Date": "Mon, 23 Nov 2026 12:00:00 GMT"}
        answer.json = lambda: msgspec.json.decode(answer.content)
        return answer

    def matching(self, where: str) -> Iterator[dict[str, Any]]:
        since = re.search("stateTransitionTime gt DateTime'(.*)'", where)
        for number in range(self.count):
            time = f"{NOW - timedelta(minutes=number + 1):%Y-%m-%dT%H:%M:%SZ}"
            if (since is None or time > since[1]) and (tasks.FAILED not in where or number % 100 == 0):
                yield {"id": f"t{number}", "stateTransitionTime": time}


@pytest.mark.parametrize(
    ("count", "where", "found", "pages"),
    [
        (3, "", [2, 1, 0], 5),  # the first page; changes of 1, 8, 64 and 512 seconds
        (3, tasks.FAILED, [200, 100, 0], 1),  # one page has all of them
        (1400, "", [*range(1399, -1, -1)], 9),  # even 32,768 seconds are too few, so all pages are read
    ],
)
def test_the_last_changes_of_a_large_job_are_found_without_listing_it(
    count: int, where: str, found: list[int], pages: int
) -> None:
    service = Changes(1400)
    assert [task.id for task in tasks.last(client(service), "j", count, where)] == [f"t{number}" for number in found]
    assert len(service.queries) == pages


@pytest.mark.parametrize(("age", "count"), [(None, 0), (1.0, 0), (1.5, 1), (8.0, 1), (8.5, 2)])
def test_no_moment_is_as_old_as_the_job(age: float | None, count: int) -> None:
    created = datetime(2026, 11, 23, tzinfo=timezone.utc)
    assert len(list(tasks._moments(Creation(created, age)))) == count
    assert list(tasks._moments(Creation(None, age))) == []


def test_a_state_and_a_time_filter_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "PAGE", 2)
    service = Changes(1400)
    assert [task.id for task in tasks.last(client(service), "j", 2, tasks.FAILED)] == ["t100", "t0"]
    assert service.queries[-1]["$filter"].startswith(f"({tasks.FAILED}) and stateTransitionTime gt")


def test_a_wait_does_not_end_while_a_list_disagrees_with_the_counts() -> None:
    service, time = Service(1000, ended=998, late=100), Time()

    def end_later(seen: Glance) -> int:
        service.ended = 1000 if len(time.pauses) > 5 else 998
        return 0

    watch.tasks_ended(client(service), "j", deadline(time), watch.NEAR, end_later)
    assert len(time.pauses) == 6


def test_a_wait_on_azure_sends_at_most_25_requests_a_minute_however_many_it_shows() -> None:
    service, time = Service(100_000), Time()
    shown = 0

    def show(seen: Glance) -> int:
        nonlocal shown
        shown += 8
        return 8

    with pytest.raises(TimedOut):
        watch.tasks_ended(client(service), "j", deadline(time, 500), watch.FAR, show)
    assert 160 < shown + service.counted + len(service.queries) <= 500 / 60 * watch.PER_MINUTE + watch.PER_MINUTE


class Timed(Service):
    """Keeps when each request came."""

    def __init__(self, count: int, time: Time) -> None:
        super().__init__(count)
        self.time, self.at = time, list[float]()

    def send_request(self, request: Any, **options: Any) -> Answer:
        self.at.append(self.time.seconds)
        return (
            Answer({"id": "j", "state": "active"}) if request.url.endswith("/jobs/j") else super().send_request(request)
        )


@pytest.mark.parametrize("looks", [(4, 2, 3, 2), (11, 8), (14, 12)])
def test_no_minute_of_a_wait_on_azure_has_more_than_25_requests(looks: tuple[int, ...]) -> None:
    time = Time()
    service, costs = Timed(100_000, time), itertools.chain(looks, itertools.cycle(looks[-2:]))

    def show(seen: Glance) -> int:
        cost = next(costs)
        service.at.extend([time.seconds] * cost)
        return cost

    with pytest.raises(TimedOut):
        watch.tasks_ended(client(service), "j", deadline(time, 500), watch.FAR, show)
    whole_minutes = [start for start in service.at if start + 60 < 500]  # the end of a wait shortens its last pause
    assert max(sum(start <= at < start + 60 for at in service.at) for start in whole_minutes) <= watch.PER_MINUTE
    assert len(service.at) >= 500 / 60 * watch.PER_MINUTE / 2, "it waits longer than it must"


class Blocked(Timed):
    """A job whose first task failed, and all others depend on it."""

    def matching(self, where: str) -> Iterator[dict[str, Any]]:
        yield from (row | {"dependsOn": {"taskIds": ["t0"]}} for row in super().matching(where))


def test_a_large_job_behind_a_failed_task_ends_with_at_most_25_requests_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read, "PAGE", 100)
    time = Time()
    service = Blocked(20 * read.PAGE, time)
    service.ended = service.failed = 1
    watch.tasks_ended(client(service), "j", deadline(time, 500), watch.FAR)
    assert max(sum(start <= at < start + 60 for at in service.at) for start in service.at) <= watch.PER_MINUTE


class Running(Service):
    """A job with one task, which runs."""

    def send_request(self, request: Any, **options: Any) -> Answer:
        if urlsplit(request.url).path == "/jobs/j/tasks/t":
            self.counted += 1
            return Answer({"id": "t"})
        return super().send_request(request, **options)

    def matching(self, where: str) -> Iterator[dict[str, Any]]:
        yield {"id": "t", "state": "running"}


def test_a_run_on_azure_reads_stdout_every_5_s_stderr_every_10_s_and_sends_at_most_25_requests_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service, time, job = Running(1), Time(), SimpleNamespace(id="j")
    reads: dict[str, list[float]] = {name: [] for name in (*OUTPUT, RECORDS, OWN)}
    printed = {"stdout.txt": "hello"}

    def followers(name: str) -> Any:
        lines = iter((printed[name],)) if name in printed else iter(())
        return SimpleNamespace(new_lines=lambda node, last: reads[name].append(time.seconds) or lines)

    monkeypatch.setattr(files, "Follower", lambda client, job, task, name: followers(name))
    follow = Follow(client(service), job, lambda event: None, turns=watch.FAR.turns)  # type: ignore[arg-type]
    with pytest.raises(TimedOut):
        watch.tasks_ended(client(service), "j", deadline(time, 600), watch.FAR, follow.look)
    pauses = {name: max(after - before for before, after in pairwise(times)) for name, times in reads.items()}
    assert pauses["stdout.txt"] <= 10 and statistics.median(map(sub, reads["stdout.txt"][1:], reads["stdout.txt"])) == 5
    assert sum(map(len, reads.values())) + len(service.queries) + service.counted <= 250
    assert max(len(reads[name]) for name in (RECORDS, OWN)) <= 2 + len(reads["stdout.txt"]) / AGAIN_LOOKS


def test_a_wait_says_each_minute_how_far_a_task_that_prints_is(monkeypatch: pytest.MonkeyPatch) -> None:
    service, time, events = Running(1), Time(), list[Event]()
    lines = (f"step {number}/40 loss 0.5" for number in range(1, 41))

    def follower(client: Any, job: str, task: str, name: str) -> Any:
        return SimpleNamespace(new_lines=lambda node, last: [next(lines)] if name == "stdout.txt" else [])

    monkeypatch.setattr(files, "Follower", follower)
    wait = Deadline(130, "the tasks of job j", events.append, clock=retry.Clock(time.now, time.sleep))
    follow = Follow(client(service), SimpleNamespace(id="j"), wait.tell, output=False)  # type: ignore[arg-type]
    wait.progress = follow.progress
    with pytest.raises(TimedOut, match=r"last seen: .*; t: step \d+/40, loss 0\.5, it printed `step \d+/40 loss 0\.5`"):
        watch.tasks_ended(client(service), "j", wait, watch.FAR, follow.look)
    sentences = [event.text for event in events if isinstance(event, StillWaiting)]
    assert len(sentences) == 2
    assert all("1 of 1 tasks open; t: step " in sentence for sentence in sentences), "the task is named once"


def test_a_run_on_azure_sees_what_512_ranks_measure_with_at_most_25_requests_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service, time, job = Running(1), Time(), SimpleNamespace(id="j")
    records, steps, requests = bytearray(), 0, 0
    seen: list[MetricsSeen] = []

    def block(client: Any, tree: str, path: str, start: int, size: int) -> bytes:
        nonlocal requests, steps
        requests += 1
        if path == OWN or (path == RECORDS and time.seconds < 20):
            raise NotFound("no file", code="FileNotFound")
        while path == RECORDS and steps < time.seconds / 10:
            for rank in range(512):
                line = {"time": steps * 10, "rank": rank, "node": f"n{rank // 8}", "file": "stdout"}
                records.extend(msgspec.json.encode(line | {"line": f"step {steps} loss {rank}"}) + b"\n")
            steps += 1
        content = records if path == RECORDS else b"step 1 loss 9\n" * int(time.seconds)
        return bytes(content[start : start + size])

    monkeypatch.setattr(files, "block", block)
    tell = lambda event: seen.append(event) if isinstance(event, MetricsSeen) else None  # noqa: E731
    follow = Follow(client(service), job, tell, turns=watch.FAR.turns)  # type: ignore[arg-type]
    with pytest.raises(TimedOut):
        watch.tasks_ended(client(service), "j", deadline(time, 300), watch.FAR, follow.look)
    assert requests + len(service.queries) + service.counted <= 125
    again = next(number for number, event in enumerate(seen) if event.again)
    points = [(point.rank, point.step, point.values) for event in seen[again:] for point in event.points]
    assert points == [(rank, step, {"loss": float(rank)}) for step in range(steps) for rank in range(512)]
    assert steps > 25
    assert [(rank.number, rank.step) for rank in seen[-1].ranks] == [(rank, steps - 1) for rank in range(512)]


def test_the_ranks_that_failed_are_told_when_their_task_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Event] = []
    job, service = SimpleNamespace(id="j"), cast("BatchClient", None)
    ends = (RankEnd("rank 2", 2, exit_code=1), RankEnd("rank 0", 0, exit_code=1))
    silent = SimpleNamespace(
        measure=lambda *_, last: 0, new_stall=lambda _: "", new_lines=lambda *_, last: (), end=lambda: None
    )
    monkeypatch.setattr(log_follower, "_FollowedTask", lambda *_: silent)
    monkeypatch.setattr(files, "records", asked_for("j", "b", value=ends))
    follow = Follow(service, job, said.append)  # type: ignore[arg-type]
    for task in (Task("a", "running"), Task("a", "completed", "success", 0), Task("b", "completed", "failure", 1)):
        follow.show_ended([task])
        follow.show_ended([task])
    assert [(event.subject, event.ends) for event in said if isinstance(event, RanksFailed)] == [("b", ends)]


@pytest.mark.parametrize(
    ("news", "progress"),
    [
        (Batch((), hidden=frozenset({"loss"})), "t: rate 2"),
        (Batch((), again=True), "t: it has printed nothing yet"),
        (Batch((Point({"loss": 0.5}, rank=3),)), "t: loss 1, rate 2"),
        (Batch((Point({"loss": 0.5}, rank=0),)), "t: loss 0.5, rate 2"),
    ],
)
def test_the_progress_of_a_task_has_the_values_of_its_lowest_rank_that_still_count(news: Batch, progress: str) -> None:
    task = Task("t", "running")
    followed = log_follower._FollowedTask(cast("BatchClient", None), "j", task, lambda _: None)
    followed._stream = MetricStream()
    for batch in (Batch((Point({"loss": 1.0, "rate": 2.0}, rank=1),)), news):
        followed._see(batch)
    assert followed.progress(0.0) == progress


def test_ranks_that_stand_still_are_told_once_when_it_is_noticed() -> None:
    followed = log_follower._FollowedTask(cast("BatchClient", None), "j", Task("t", "running"), lambda _: None)
    assert followed.new_stall(1.0) == ""
    followed._stream = stream = MetricStream()
    for start in (1000.0, 2000.0):
        stream.output(["[0:0] step 3/9 loss 1", "[0:1] step 2/9 loss 1"], start)
        assert followed.new_stall(start + 10) == ""
        assert "rank 1 stood still for 31 s, and rank 0 waits" in followed.new_stall(start + 31)
        assert followed.new_stall(start + 40) == ""
        stream.output(["[0:0] step 4/9 loss 1", "[0:1] step 4/9 loss 1"], start + 50)
        assert followed.new_stall(start + 51) == ""


class Job:
    """A job whose failed tasks are listed."""

    id = "j"

    def __init__(self, failed: int, causes: int) -> None:
        self.failed, self.causes = failed, causes

    def iter_tasks(self, state: str, *, limit: int) -> Iterator[Any]:
        assert state == "failed"
        for number in range(min(self.failed, limit)):
            yield Task(f"t{number}", "completed", "failure", exit_code=number % self.causes)

    def failure_of(self, task: Any) -> str:
        return f"why {task.id} failed"


def shown(failed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, causes: int = 1, **options: bool) -> list[Event]:
    said: list[Event] = []
    job: Any = Job(0, causes)
    monkeypatch.setattr(read, "job", asked_for("j", value=SimpleNamespace(pool="p")))
    service: Any = None
    follow = Follow(service, job, said.append, **options)
    monkeypatch.setattr(Follow, "_show", lambda self, task, named: said.append(Stdout(task.id, "")) or 1)
    for count in failed:
        job.failed = count
        follow.look(tasks.glance(client(Service(100, ended=50, failed=count)), "j"))
    return [event for event in said if event.kind != "tasks.seen"]


def grouped(said: list[Event]) -> list[tuple[str, int, str, str]]:
    """The causes of the last event about failures."""
    rows = [event.failed_by for event in said if isinstance(event, FailuresSeen)][-1]
    return [tuple(row) for row in rows]


def test_of_a_large_job_the_first_tasks_and_an_example_of_each_cause_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    said = shown((0,), monkeypatch)
    assert said[0].text.startswith(f"job j has 100 tasks: the output of the first {FIRST} and an example of each cause")
    assert [event.subject for event in said if event.kind == "stdout"] == [f"t{number}" for number in range(FIRST)]
    said = shown((6, 9), monkeypatch, causes=2)
    assert [event.text for event in said if event.kind == "task.failed"] == ["why t0 failed", "why t1 failed"]
    assert grouped(said) == [
        ("exit code 0", 5, "t0", "why t0 failed"),
        ("exit code 1", 4, "t1", "why t1 failed"),
    ]


def test_the_pool_of_a_large_job_is_read_once_and_told_with_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Event] = []
    follow = Follow(cast("BatchClient", None), cast("Any", Job(0, 1)), said.append, output=False)
    monkeypatch.setattr(read, "job", asked_for("j", value=SimpleNamespace(pool="p")))
    glances = [tasks.glance(client(Service(count, ended=ended)), "j") for count, ended in ((20, 0), (21, 1), (21, 2))]
    assert [follow.look(glance) for glance in (*glances[:1], *glances)][2:] == [1, 0]
    seen = [(event.pool, event.counts) for event in said if isinstance(event, TasksSeen)]
    assert seen == [("", glances[0].counts), ("p", glances[1].counts), ("p", glances[2].counts)]


def test_of_many_causes_few_examples_are_read_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    said = shown((30,), monkeypatch, causes=EXPLAINED + 3)
    assert sum(event.kind == "task.failed" for event in said) == EXPLAINED
    assert len(grouped(said)) == EXPLAINED + 3
    without_output = shown((6,), monkeypatch, output=False)
    assert [event.kind for event in without_output] == ["task.failed", "failures.seen"]


def test_of_a_small_job_each_further_failure_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Event] = []
    job = Job(2, 1)
    follow = Follow(cast("BatchClient", None), cast("Any", job), said.append)
    requests = [follow._show_failed(2, few=True), follow._show_failed(2, few=True)]
    job.failed = 3
    requests.append(follow._show_failed(3, few=True))
    assert [event.text for event in said if event.kind == "task.failed"] == [
        "why t0 failed",
        "task j/t1 did not succeed either (exit code 0)",
        "task j/t2 did not succeed either (exit code 0)",
    ]
    assert requests == [3, 0, 1]


def asked_for(*ids: str, value: Any) -> Callable[..., Any]:
    """A question about these ids, and its answer."""

    def answer(client: Any, *others: str) -> Any:
        assert (client, others[: len(ids)]) == (None, ids)
        return value

    return answer


def rank_output(
    monkeypatch: pytest.MonkeyPatch, contents: Mapping[str, tuple[str, ...]], instances: int | None
) -> list[str]:
    """What is shown of ranks 0 and 3 of a task, of files with these lines."""

    def follower(_: Any, job: str, task: str, path: str, tree: Any = None) -> Any:
        lines = iter(contents.get(f"{tree.name}: {path}" if tree else path, ()))
        missing = None if lines.__length_hint__() else NotFound("no file")
        return SimpleNamespace(new_lines=lambda node, last=False: list(lines), missing=missing)

    places = (TaskNode("tvm-0", "p"), TaskNode("tvm-1", "p", "workitems/j/job-1/t"))
    monkeypatch.setattr(files, "Follower", follower)
    monkeypatch.setattr(read, "fetch_settings", asked_for("j", "t", value=FetchSettings()))
    task = Task("t", "running", request=TaskRequest(instances=instances))
    monkeypatch.setattr(read, "task", asked_for("j", "t", value=task))
    monkeypatch.setattr(read, "task_nodes", asked_for("j", "t", value=places))
    said: list[Event] = []
    follow = Follow(cast("BatchClient", None), SimpleNamespace(id="j"), said.append, ranks=(0, 3))  # type: ignore[arg-type]
    follow.show_ended([Task("t", "completed", "success", 0)])
    return [event.text for event in said if isinstance(event, Stdout)]


MERGED = ("batchtrain: two nodes", "from 0", "from 3", "from 1")
STARTED = tuple(f'{{"rank": {rank}, "node": "{node}", "time": 1}}' for rank, node in ((0, "n0"), (1, "n0"), (3, "n1")))


def test_chosen_ranks_of_a_plain_mpi_are_read_from_their_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"wd/ranks/rank-0.stdout.txt": ("from 0",), "node tvm-1: wd/ranks/rank-3.stdout.txt": ("from 3",)}
    contents = {"stdout.txt": MERGED, RECORDS: STARTED, **own}
    assert rank_output(monkeypatch, contents, 2) == ["t: [0:0] from 0", "t: [1:3] from 3"]


@pytest.mark.parametrize("instances", [None, 2])
def test_without_files_of_ranks_the_merged_output_is_shown(
    monkeypatch: pytest.MonkeyPatch, instances: int | None
) -> None:
    assert rank_output(monkeypatch, {"stdout.txt": MERGED}, instances) == [f"t: {line}" for line in MERGED]


def test_the_filter_of_an_unknown_state_names_the_states() -> None:
    assert tasks.filter_of("") == ""
    assert tasks.filter_of("failed") == "executionInfo/result eq 'failure'"
    with pytest.raises(UsageError, match=r"`done` is not a state of a task; the states are active, running, completed"):
        tasks.filter_of("done")


def test_tasks_share_equal_texts() -> None:
    run = {"result": "Failure", "failureInfo": {"code": "DiskFull", "message": "No space."}}
    document = {"id": "t", "state": "completed", "executionInfo": run, "nodeInfo": {"nodeId": "tvm-1"}}
    one, other = (msgspec.json.decode(msgspec.json.encode(document), type=TaskAnswer).record for _ in range(2))
    names = ("state", "result", "node", "failure", "request")
    assert [name for name in names if getattr(one, name) is not getattr(other, name)] == []


@pytest.mark.parametrize(
    ("state", "text"), [("running", "it has printed nothing yet"), ("completed", "it printed nothing")]
)
def test_a_task_without_output_says_whether_some_may_come(state: str, text: str) -> None:
    assert sweep.so_far("j", Task("t", state), MetricStream(), {}, "", 0.0) == f"t: {text}"
