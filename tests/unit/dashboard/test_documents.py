"""The documents of the API, read from a Batch service: which requests are sent, and what is made of the answers."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.client.job import Job
from batchtrain.dashboard import connection, reading
from batchtrain.dashboard.app import _span
from batchtrain.dashboard.budget import Budget
from batchtrain.dashboard.connection import Connection
from batchtrain.dashboard.output import Numbered, Output, part
from batchtrain.dashboard.tasks import SAMPLES
from batchtrain.diagnosis.output_rules import matches
from batchtrain.errors import UsageError
from batchtrain.metrics.stream import OWN, RECORDS
from batchtrain.records import Failure, Task
from batchtrain.records.failure import EXIT_CODE
from tests.unit.dashboard.asking import BEARER, FAR, NEAR, Client, Service, dashboard
from tests.unit.diagnosis.test_rules import LINES as LINES_WITH_CAUSES

TASK = "/jobs/j/tasks/t"
STDOUT = f"{TASK}/files/stdout.txt"


@pytest.fixture
def client(service: Service, tmp_path: Path) -> Iterator[Client]:
    with dashboard(tmp_path, NEAR) as client:
        yield client


def jobs(service: Service, *rows: Mapping[str, Any]) -> None:
    """The jobs of the account, each created an hour after the one before; a task of each has succeeded."""
    listed = [
        {"id": f"j{at:03}", "state": "active", "creationTime": f"2026-11-{1 + at // 24:02}T{at % 24:02}:00:00Z", **row}
        for at, row in enumerate(rows)
    ]
    service.documents["/jobs"] = listed
    for row in listed:
        service.documents[f"/jobs/{row['id']}"] = row
        service.documents[f"/jobs/{row['id']}/taskcounts"] = {
            "taskCounts": {"active": 0, "running": 0, "succeeded": 1, "failed": 0}
        }


# --- pools and nodes ------------------------------------------------------------------------------------------------


def test_a_pool_of_the_list_has_the_states_of_its_own_nodes(client: Client, service: Service) -> None:
    service.documents["/pools"] = [{"id": "p"}, {"id": "empty"}]
    service.documents["/nodecounts"] = [
        {"poolId": "p", "dedicated": {"idle": 2, "total": 2}, "lowPriority": {"idle": 1}}
    ]
    assert [(row["id"], row["node_states"]) for row in client.get("/pools")] == [("p", {"idle": 3}), ("empty", {})]


def test_a_pool_has_a_price_on_azure_and_none_on_the_emulator(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tmp_path / "catalog.yaml"
    prices = "{region: westeurope, currency: USD, read: 2026-11-01, dedicated: {standard_d2_v3: 0.12}}"
    catalog.write_text(f"prices: [{prices}]\n")
    monkeypatch.setenv("BATCHTRAIN_CATALOG", str(catalog))
    service.documents["/pools/p"] = {"id": "p", "vmSize": "standard_d2_v3"}
    for account, amount in ((FAR, 0.12), (NEAR, None)):
        with dashboard(tmp_path, account) as client:
            price = client.get("/pools/p")["price"]
            assert (price and price["dedicated"]) == amount
    catalog.write_text("prices: no list\n")
    with dashboard(tmp_path, FAR) as client:
        assert client.get("/pools/p")["price"] is None


def test_the_hours_of_a_node_are_counted_by_the_minute_and_never_below_zero(client: Client, service: Service) -> None:
    now = datetime.now(timezone.utc)
    service.documents["/pools/p/nodes"] = [
        {"id": "old", "allocationTime": (now - timedelta(hours=2, seconds=2)).isoformat()},
        {"id": "clock-behind", "allocationTime": (now + timedelta(hours=1)).isoformat()},
        {"id": "new"},
    ]
    assert [row["node_hours"] for row in client.get("/pools/p/nodes")] == [2.0, 0.0, None]


def test_the_request_of_a_pool_has_no_secrets(client: Client, service: Service) -> None:
    service.documents["/pools/p"] = {"id": "p", "startTask": {"commandLine": "curl 'https://x/y?sig=abcdef123'"}}
    document = client.get("/pools/p/plan")
    assert document["id"] == "p" and "abcdef123" not in str(document)


# --- jobs -----------------------------------------------------------------------------------------------------------


def test_the_newest_job_is_first_and_one_without_a_time_is_last(client: Client, service: Service) -> None:
    jobs(service, {}, {"creationTime": None}, {})
    assert [row["id"] for row in client.get("/jobs")] == ["j002", "j000", "j001"]


def test_jobs_are_filtered_by_the_beginning_of_their_name_and_by_state(client: Client, service: Service) -> None:
    jobs(service, {"id": "a1"}, {"id": "a2", "state": "completed"}, {"id": "b"})
    assert [row["id"] for row in client.get("/jobs?prefix=a")] == ["a2", "a1"]
    assert [row["id"] for row in client.get("/jobs?prefix=a&state=completed")] == ["a2"]


@pytest.mark.parametrize(("number", "linked"), [(3, False), (4, True)])
def test_only_a_list_that_goes_on_has_a_link_to_its_next_page(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch, number: int, linked: bool
) -> None:
    monkeypatch.setattr(reading, "ROWS", 3)
    jobs(service, *[{}] * number)
    answer = client("GET", "/api/v1/jobs?prefix=j", **BEARER)
    assert [row["id"] for row in answer.document] == [f"j{at:03}" for at in reversed(range(number - 3, number))]
    assert answer.headers.get("link") == ('</api/v1/jobs?prefix=j&skip=3>; rel="next"' if linked else None)
    assert [row["id"] for row in client.get("/jobs?prefix=j&skip=3")] == ["j000"] * linked


def test_on_azure_only_five_jobs_are_counted_those_that_run_first(service: Service, tmp_path: Path) -> None:
    jobs(service, {}, *[{"state": "completed"}] * 6)
    with dashboard(tmp_path, FAR) as client:
        rows = client.get("/jobs")
    assert [row["id"] for row in rows if row["succeeded"]] == ["j006", "j005", "j004", "j003", "j000"]


def test_on_the_emulator_more_jobs_are_counted(client: Client, service: Service) -> None:
    jobs(service, *[{}] * 51)
    assert sum(row["succeeded"] or 0 for row in client.get("/jobs")) == 50


def test_the_overview_has_pools_the_newest_jobs_and_the_newest_runs(client: Client, service: Service) -> None:
    service.documents |= {"/pools": [{"id": "p"}], "/nodecounts": []}
    jobs(service, *[{}] * 21)
    overview = client.get("/overview")
    assert ([row["id"] for row in overview["pools"]], overview["runs"]) == (["p"], [])
    assert (len(overview["jobs"]), overview["jobs"][0]["id"]) == (20, "j020")


def test_the_plan_of_a_job_has_its_first_tasks_and_tells_whether_there_are_more(
    client: Client, service: Service
) -> None:
    more = {"odata.nextLink": "https://x/jobs/j000/tasks?$skiptoken=s"}
    jobs(service, {})
    service.documents["/jobs/j000/tasks"] = lambda query: {"value": [{"id": "t"}], **more}
    service.documents["/jobs/j000/tasks/t"] = {"id": "t", "commandLine": "echo 'https://x/y?sig=abcdef123'"}
    document = client.get("/jobs/j000/plan")
    assert (document["job"]["id"], document["tasks"][0]["id"], document["more"]) == ("j000", "t", True)
    assert "abcdef123" not in str(document)
    more.clear()
    assert client.get("/jobs/j000/plan")["more"] is False


# --- the tasks of a job ---------------------------------------------------------------------------------------------


class Tasks:
    """Tasks by state. The token of a page is the number of its first task."""

    def __init__(self, **states: int) -> None:
        self._ids = {state: [f"{state}{at}" for at in range(number)] for state, number in states.items()}

    def __call__(self, query: Mapping[str, str]) -> dict[str, Any]:
        where = query["$filter"]
        state = next(
            name for text, name in (("'failure'", "failed"), ("'running'", "running"), ("", "good")) if text in where
        )
        start, most = int(query.get("$skiptoken", 0)), int(query["maxresults"])
        ids = self._ids[state]
        page: dict[str, Any] = {"value": [{"id": task_id} for task_id in ids[start : start + most]]}
        if start + most < len(ids):
            page["odata.nextLink"] = f"https://x/jobs/j/tasks?$skiptoken={start + most}"
        return page


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
def test_pages_of_tasks_have_each_task_once_and_the_failed_ones_first(
    client: Client, service: Service, limit: int
) -> None:
    service.documents["/jobs/j/tasks"] = Tasks(failed=2, running=1, good=3)
    ids: list[str] = []
    route = f"/api/v1/jobs/j/tasks?limit={limit}"
    while route:
        answer = client("GET", route, **BEARER)
        assert 0 < len(answer.document) <= limit or ids
        ids += [row["id"] for row in answer.document]
        link = re.fullmatch(r'<(.+)>; rel="next"', answer.headers.get("link", ""))
        route = link[1] if link else ""
    assert ids == ["failed0", "failed1", "running0", "good0", "good1", "good2"]


def test_tasks_of_one_state_are_asked_for_by_its_filter_and_prefix_alone(client: Client, service: Service) -> None:
    service.documents["/jobs/j/tasks"] = Tasks(failed=1, running=1, good=1)
    assert [row["id"] for row in client.get("/jobs/j/tasks?state=failed&prefix=it's")] == ["failed0"]
    [asked] = service.asked
    assert asked.query["$filter"] == "(executionInfo/result eq 'failure') and startswith(id,'it''s')"
    assert asked.query["maxresults"] == str(reading.ROWS)
    assert client("GET", "/api/v1/jobs/j/tasks?state=none", **BEARER).status == 400


@pytest.mark.parametrize(
    ("path", "limit", "status"),
    [
        *(("/jobs/j/tasks", limit, 400) for limit in ("0", "201", "-1", "abc")),
        *(("/jobs/j/tasks", limit, 200) for limit in ("1", "200")),
        *((f"{TASK}/logs", limit, 200) for limit in ("1", "4194304")),
        (f"{TASK}/logs", "4194305", 400),
    ],
)
def test_the_limit_of_a_page_of_tasks_and_of_a_log_has_bounds(
    client: Client, service: Service, path: str, limit: str, status: int
) -> None:
    service.documents["/jobs/j/tasks"] = []
    service.files[STDOUT] = b"[0:0] one\n"
    assert client("GET", f"/api/v1{path}?limit={limit}", **BEARER).status == status


@pytest.mark.parametrize(
    ("text", "number"), [("", None), ("0", 0), ("9" * 18, 10**18 - 1), ("9" * 19, UsageError), ("²", UsageError)]
)
def test_a_number_of_a_query_is_plain_digits(text: str, number: Any) -> None:
    asked = reading.Asked({}, {"n": [text]})
    if number is UsageError:
        with pytest.raises(UsageError, match="whole number"):
            asked.number("n")
    else:
        assert asked.number("n") == number


# --- one task -------------------------------------------------------------------------------------------------------


def failed_task(service: Service, **info: Any) -> None:
    """A task of two nodes that failed with a traceback."""
    ended = {"startTime": "2026-11-22T11:15:02Z", "endTime": "2026-11-22T11:15:04Z", "retryCount": 0, "requeueCount": 0}
    service.documents[TASK] = {
        "id": "t",
        "state": "completed",
        "commandLine": "python train.py",
        "executionInfo": {**ended, "exitCode": 1, "result": "failure", **info},
        "nodeInfo": {"nodeId": "n-a", "poolId": "p"},
        "multiInstanceSettings": {"numberOfInstances": 2, "coordinationCommandLine": "true"},
    }
    service.documents[f"{TASK}/subtasksinfo"] = [{"id": 1, "nodeInfo": {"nodeId": "n-b", "poolId": "p"}}]
    service.files[f"{TASK}/files/stderr.txt"] = b"Traceback (most recent call last):\nValueError: too small\n"
    service.files[STDOUT] = b""


def test_a_failed_task_has_its_cause_and_its_nodes_in_order(client: Client, service: Service) -> None:
    failed_task(service)
    document = client.get(TASK)
    assert document["nodes"] == [{"name": "n0", "id": "n-a", "pool": "p"}, {"name": "n1", "id": "n-b", "pool": "p"}]
    cause = document["cause"]
    assert (cause["exit_code"], cause["exception"], cause["node"]) == (1, "ValueError: too small", "n-a")


@pytest.mark.parametrize("rule", LINES_WITH_CAUSES)
def test_the_cause_of_a_line_is_on_the_page_in_a_notebook_and_in_the_terminal(
    client: Client, service: Service, rule: str
) -> None:
    failed_task(service)
    service.files[f"{TASK}/files/stderr.txt"] = f"starting\n{LINES_WITH_CAUSES[rule]}\n".encode()
    cause = next(matches([LINES_WITH_CAUSES[rule]])).cause
    assert any(cause in line for line in client.get(TASK)["cause"]["card"])
    jobs(service, {"id": "j", "state": "active"})
    service.documents["/jobs/j/tasks"] = [service.documents[TASK]]
    diagnosis = client.connection.client.jobs.handle("j").diagnose()
    assert html.escape(cause) in diagnosis._repr_html_()
    assert any(cause in line for line in diagnosis.rows())


def test_the_causes_of_the_last_failures_are_kept_and_no_others(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_REASONS", 2)
    asked = list[str]()
    monkeypatch.setattr(Job, "reason_of", lambda _, task: asked.append(task.id) or "a cause")
    failure = Failure(EXIT_CODE, "The task exited with an exit code representing a failure")
    tasks = [Task(name, "completed", "failure", exit_code=1, failure=failure) for name in ("a", "b", "c")]
    for rows in (tasks[:2], tasks[:2], tasks, tasks[1:], tasks[:1]):
        assert {str(task.failure) for task in client.connection.explained("j", rows)} == {"a cause"}
    assert asked == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    ("info", "told"),
    [({"exitCode": 0, "result": "success"}, False), ({"exitCode": 3, "result": None}, True), ({"exitCode": 0}, True)],
)
def test_a_cause_is_told_of_a_result_of_failure_or_an_exit_code(
    client: Client, service: Service, info: dict[str, Any], told: bool
) -> None:
    failed_task(service, **info)
    if info.get("result", "") is None:
        del service.documents[TASK]["executionInfo"]["result"]
    assert (client.get(TASK)["cause"] is not None) is told


def test_the_requests_for_a_cause_count_in_the_budget_when_it_is_read(service: Service, tmp_path: Path) -> None:
    failed_task(service)
    budget = Budget(lambda: 0.0, burst=100.0)
    with dashboard(tmp_path, FAR, budget=budget) as client:
        client.get(TASK)
        assert budget._left == 100.0 - len(service.asked) and len(service.asked) > 3
        before = budget._left
        client.get(TASK)
        assert budget._left == before - 1


def test_a_running_task_has_no_cause_and_a_waiting_one_no_nodes(client: Client, service: Service) -> None:
    failed_task(service)
    service.documents[TASK]["state"] = "running"
    assert client.get(TASK)["cause"] is None
    service.documents[TASK] = {"id": "t", "state": "active"}
    assert client.get(TASK)["nodes"] == []


def test_a_task_of_one_node_needs_no_request_for_its_nodes(client: Client, service: Service) -> None:
    info = {"startTime": "2026-11-22T11:15:02Z"}
    node = {"nodeId": "n-a", "poolId": "p"}
    service.documents[TASK] = {"id": "t", "state": "running", "executionInfo": info, "nodeInfo": node}
    assert client.get(TASK)["nodes"] == [{"name": "n0", "id": "n-a", "pool": "p"}]
    assert len(service.asked) == 1


def test_what_only_changes_with_the_run_of_a_task_is_read_once_for_each(client: Client, service: Service) -> None:
    failed_task(service)
    document, before = client.get(TASK), len(service.asked)
    assert client.get(TASK) == document
    assert len(service.asked) == before + 1
    service.documents[TASK]["executionInfo"]["startTime"] = "2026-11-22T11:15:03Z"
    client.get(TASK)
    assert len(service.asked) > before + 2


def test_the_files_of_an_ended_task_are_read_less_often(client: Client, service: Service) -> None:
    failed_task(service, exitCode=0, result="success")
    output = client.connection.outputs("j", "t").output("stdout.txt")
    service.documents[TASK]["state"] = "running"
    client.get(TASK)
    assert output.seconds == 5.0
    service.documents[TASK]["state"] = "completed"
    client.get(TASK)
    assert output.seconds == 60.0


def test_the_files_of_a_task_have_their_size_and_time(client: Client, service: Service) -> None:
    time = "2026-11-22T11:15:02Z"
    properties = {"contentLength": "7", "lastModified": time}
    service.documents[f"{TASK}/files"] = [{"name": "wd", "isDirectory": True}, {"name": "a", "properties": properties}]
    assert client.get(f"{TASK}/files") == [{"path": "a", "size": 7, "modified": time}]


# --- the log of a task ----------------------------------------------------------------------------------------------

LINES = b"[0:0] one\n[0:1] two\n[0:0] six\n"  # lines of ten bytes


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("", 0, 30),
        ("limit=20", 20, 30),  # the tenth byte ends a line that began before
        ("limit=25", 10, 30),
        ("limit=30", 0, 30),
        ("end=20", 0, 20),
        ("end=25", 0, 20),
        ("end=20&limit=15", 10, 20),
        ("start=10", 10, 30),
        ("start=15", 15, 30),
        ("start=0&limit=15", 0, 10),
        ("start=10&end=25", 10, 20),
        ("start=40", 30, 30),
        ("end=0", 0, 0),
        ("end=99", 0, 30),
    ],
)
def test_a_part_of_a_log_is_cut_at_lines(client: Client, service: Service, query: str, start: int, end: int) -> None:
    service.files[STDOUT] = LINES
    part = client.get(f"{TASK}/logs?{query}")
    assert part == {"file": "stdout.txt", "size": 30, "start": start, "end": end, "text": LINES[start:end].decode()}


def test_the_lines_of_one_rank_are_shown_alone_and_another_file_may_be_read(client: Client, service: Service) -> None:
    service.files |= {STDOUT: LINES, f"{TASK}/files/wd/a b.txt": b"text\n"}
    assert client.get(f"{TASK}/logs?rank=0")["text"] == "[0:0] one\n[0:0] six\n"
    assert client.get(f"{TASK}/logs?file=wd/a%20b.txt")["text"] == "text\n"


def test_a_log_of_no_bytes_is_refused() -> None:
    with pytest.raises(UsageError, match="`limit`"):
        part(lambda: 1, lambda *_: b"", "stdout.txt", start=None, end=None, limit=0)


# --- the numbers of a task ------------------------------------------------------------------------------------------


def running(service: Service, metrics: str = "[]") -> None:
    """The task runs, with `metrics` of the user."""
    variables = [{"name": "BATCHTRAIN_FETCH", "value": f'{{"metrics": {metrics}}}'}]
    service.documents[TASK] = {"id": "t", "state": "running", "environmentSettings": variables}


def test_curves_come_from_the_output_and_from_the_metrics_files(client: Client, service: Service) -> None:
    running(service)
    service.files[STDOUT] = b"[0:1] epoch 1 loss 0.5 accuracy 0.75\n"
    service.files[f"{TASK}/files/{OWN}"] = b'{"step": 1, "loss": 0.25}\n'
    service.files[f"{TASK}/files/{SAMPLES}"] = b'{"step": 1, "cpu_percent": 50}\n'
    metrics = client.get(f"{TASK}/metrics")
    values = {name: {key: curve["value"] for key, curve in curves.items()} for name, curves in metrics.items()}
    assert values == {"loss": {"0": [0.25]}, "accuracy": {"1": [0.75]}, "cpu_percent": {"": [50.0]}}
    assert f"{TASK}/files" not in [asked.path for asked in service.asked]  # no list of very many files


def test_curves_and_ranks_of_a_gang_come_from_its_records_and_not_from_its_merged_output(
    client: Client, service: Service
) -> None:
    running(service)
    service.files[STDOUT] = b"[0:1] epoch 1 loss 0.epoch 1 loss 0.5\n"
    service.files[f"{TASK}/files/{RECORDS}"] = b"".join(
        b'{"time": 5, "rank": %d, "node": "n%d", "file": "stdout", "line": "epoch 1 loss 0.%d"}\n' % (rank, rank, rank)
        for rank in (1, 2)
    )
    for _ in range(2):
        metrics = client.get(f"{TASK}/metrics")
        assert {key: curve["value"] for key, curve in metrics["loss"].items()} == {"1": [0.1], "2": [0.2]}
        assert client.get(f"{TASK}/logs")["size"] == len(service.files[STDOUT])
        ranks = client.get(f"{TASK}/ranks")
        assert [(row["rank"], row["node"], row["lines"]) for row in ranks["rows"]] == [(1, "n1", 1), (2, "n2", 1)]


def test_the_log_of_a_gang_that_is_written_anew_does_not_forget_its_numbers(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(service)
    service.files[f"{TASK}/files/{RECORDS}"] = b'{"time": 5, "rank": 0, "file": "stdout", "line": "epoch 1 loss 2"}\n'
    service.files[STDOUT] = b"a long first try\n"
    outputs = Connection(NEAR, tmp_path).outputs("j", "t")
    outputs.metrics().read()
    log = outputs.output("stdout.txt")
    log.read()
    service.files[STDOUT] = b"again\n"
    monkeypatch.setattr(log, "_every", 0)
    log.read()
    assert outputs.numbers.metrics()["loss"]["0"]["value"] == [2.0]


def test_a_task_of_a_later_job_of_the_same_id_has_its_own_numbers_alone(client: Client, service: Service) -> None:
    running(service)
    for created, rank in (("2026-11-22T11:15:02Z", "1"), ("2026-11-22T11:16:02Z", "2")):
        service.documents[TASK]["creationTime"] = created
        service.files[STDOUT] = f"[0:{rank}] epoch 1 loss 0.5\n".encode()
        client.get(TASK)
        assert list(client.get(f"{TASK}/metrics")["loss"]) == [rank]


@pytest.mark.parametrize(("account", "pause"), [(NEAR, 2.0), (FAR, 30.0)])
def test_files_that_a_task_does_not_have_are_asked_for_only_now_and_then(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: Any, pause: float
) -> None:
    now = [100.0]
    monkeypatch.setattr("batchtrain.dashboard.tasks.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("batchtrain.dashboard.output.time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 0.0))
    running(service)
    service.files[STDOUT] = b"hello\n"
    metrics = Connection(account, tmp_path).outputs("j", "t").metrics()
    assert metrics.read() == 5  # three files that it does not have; the size and the bytes of the output
    requests = []
    for _ in range(3):
        now[0] += pause / 3 + 0.01
        requests.append(metrics.read())
    assert requests == [2, 1, 4]  # at the first read without news, the size too
    service.files[f"{TASK}/files/{OWN}"] = b'{"step": 1, "loss": 0.25}\n'
    now[0] += pause
    assert metrics.read() == 5
    now[0] += pause / 2
    assert metrics.read() == 3  # the file is there now, and its size


@pytest.mark.parametrize(("info", "condition"), [({"exitCode": 1, "result": "failure"}, "stands"), ({}, "ended")])
def test_the_ranks_of_a_task_that_has_ended_are_judged_at_its_end(
    client: Client, service: Service, info: dict[str, Any], condition: str
) -> None:
    failed_task(service, **(info or {"exitCode": 0, "result": "success"}))
    service.files[f"{TASK}/files/{RECORDS}"] = b"".join(
        b'{"time": %d, "rank": %d, "file": "stdout", "line": "step %d loss 1"}\n' % (time, rank, step)
        for time, rank, step in ((5, 0, 1), (5, 1, 1), (90, 0, 2))
    )
    client.get(TASK)
    document = client.get(f"{TASK}/ranks")
    other = "ended" if condition == "ended" else ""
    assert [(row["rank"], row["condition"]) for row in document["rows"]] == [(1, condition), (0, other)]
    assert document["end"] == document["rows"][1]["at"]


# --- topics ---------------------------------------------------------------------------------------------------------


def test_a_log_is_followed_by_its_bytes_and_curves_and_ranks_by_their_numbers(client: Client) -> None:
    outputs = client.connection.outputs("j", "t")
    watch = lambda name: reading.topic(client.connection, f"{TASK}/{name}")  # noqa: E731
    assert watch("logs") is outputs.output("stdout.txt")
    assert watch("logs?file=stderr.txt") is outputs.output("stderr.txt") is not outputs.output("stdout.txt")
    metrics, ranks = watch("metrics"), watch("ranks")
    assert isinstance(metrics, Numbered) and isinstance(ranks, Numbered)
    assert (metrics._read, ranks._read) == (outputs.numbers.metrics, outputs.ranks_document)


def test_names_of_a_watched_path_are_unquoted_and_comparing_runs_is_no_name() -> None:
    document, asked = reading.matched("/jobs/a%2Fb/tasks/t?prefix=x%20y")
    names = {"job": "a/b", "task": "t"}
    assert (document.path, asked.names, asked.word("prefix")) == ("/jobs/{job}/tasks/{task}", names, "x y")
    assert reading.matched("/runs/compare?id=a&id=b")[0].path == "/runs/compare"


def test_a_watched_list_has_its_rows_and_its_next_page(client: Client, service: Service) -> None:
    jobs(service, {})
    topic = reading.topic(client.connection, "/jobs")
    assert topic.read() == 6
    news = topic.since("")
    assert news is not None and b'"rows":[{' in news.body and b'"next":""' in news.body


@pytest.mark.parametrize(("path", "remote"), [("/runs", False), ("/account", False), ("/jobs", True)])
def test_only_what_the_account_is_asked_for_is_remote(client: Client, path: str, remote: bool) -> None:
    assert reading.topic(client.connection, path).remote is remote


@pytest.mark.parametrize(("account", "every"), [(NEAR, 0.05), (FAR, 4.0)])
def test_a_file_is_read_at_most_so_often(service: Service, tmp_path: Path, account: Any, every: float) -> None:
    output = Connection(account, tmp_path).outputs("j", "t").output("stdout.txt")
    assert isinstance(output, Output) and output._every == every


def test_the_errors_of_a_task_and_its_other_files_are_read_less_often_than_its_output(client: Client) -> None:
    outputs = client.connection.outputs("j", "t")
    assert [outputs.output(path).seconds for path in ("stdout.txt", "stderr.txt", "wd/x")] == [5.0, 10.0, 15.0]


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "span"),
    [
        ("", (0, 10)), ("bytes=0-", (0, 10)), ("bytes=2-4", (2, 5)), ("bytes=2-2", (2, 3)), ("bytes=9-99", (9, 10)),
        ("bytes=10-", None), ("bytes=5-4", None), ("bytes=-3", (7, 10)), ("bytes=-99", (0, 10)),
        ("bytes=1-2,4-5", (1, 3)), (" bytes=1-2 ", (1, 3)), ("bytes=-", (0, 10)), ("lines=1-2", (0, 10)),
    ],
)  # fmt: skip
def test_a_range_names_bytes_of_the_file(header: str, span: tuple[int, int] | None) -> None:
    assert _span(header, 10) == span


def test_a_whole_file_is_sent_in_blocks_that_the_budget_counts(service: Service, tmp_path: Path) -> None:
    budget = Budget(lambda: 0.0, per_minute=60, burst=10)
    content = bytes(range(256)) * 4096 + b"the end"
    service.files[f"{TASK}/files/wd/model.bin"] = content
    with dashboard(tmp_path, NEAR, budget=budget) as client:
        answer = client("GET", f"/api/v1{TASK}/file?path=wd/model.bin", **BEARER)
    assert (answer.status, answer.body == content) == (200, True)
    assert [asked.headers.get("ocp-range") for asked in service.asked[1:]] == [
        "bytes=0-1048575",
        "bytes=1048576-1048582",
    ]
    assert budget._left == 10 - 3  # its size, and two blocks
    names = ("content-length", "content-disposition", "accept-ranges", "content-type", "content-range")
    assert [answer.headers.get(name) for name in names] == [
        str(len(content)), "attachment; filename*=UTF-8''model.bin", "bytes", "text/plain; charset=utf-8", None,
    ]  # fmt: skip


def test_a_range_of_a_file_tells_its_place_and_one_after_its_end_is_416(client: Client, service: Service) -> None:
    service.files[f"{TASK}/files/f"] = b"0123456789"
    answer = client("GET", f"/api/v1{TASK}/file?path=f", range="bytes=2-4", **BEARER)
    assert (answer.status, answer.body, answer.headers["content-range"]) == (206, b"234", "bytes 2-4/10")
    assert answer.headers["content-length"] == "3"
    after = client("GET", f"/api/v1{TASK}/file?path=f", range="bytes=10-", **BEARER)
    assert (after.status, after.document) == (416, {"error": "the file has 10 bytes"})
    assert after.headers["content-range"] == "bytes */10"
    service.asked.clear()
    head = client("HEAD", f"/api/v1{TASK}/file?path=f", **BEARER)
    assert (head.status, head.headers["content-length"], head.body) == (200, "10", b"")
    assert [asked.method for asked in service.asked] == ["HEAD"], "it reads none of the file"


def test_an_attachment_has_the_last_part_of_its_path_quoted(client: Client, service: Service) -> None:
    service.files[f'{TASK}/files/wd/a"b\né.txt'] = b"x"
    answer = client("GET", f"/api/v1{TASK}/file?path=wd/a%22b%0A%C3%A9.txt", **BEARER)
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a%22b%0A%C3%A9.txt"


def test_the_times_of_the_output_of_a_gang_are_read_from_what_its_node_notes(client: Client, service: Service) -> None:
    lines = ('{"file": "stdout", "at": 0, "time": 5}', '{"rank": 1, "file": "stdout", "at": 3, "time": 7}')
    service.files["/jobs/j/tasks/t/files/wd/ranks/stream.jsonl"] = "".join(f"{line}\n" for line in lines).encode()
    assert client.get("/jobs/j/tasks/t/times") == {"at": [0], "time": [5.0]}
    assert client.get("/jobs/j/tasks/t/times?file=wd/ranks/rank-1.stdout.txt") == {"at": [3], "time": [7.0]}
    assert client.get("/jobs/j/tasks/t/times?file=wd/model.txt") == {"at": [], "time": []}
