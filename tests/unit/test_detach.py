"""`run --detach`: its wall clock, what it uploads, and what is refused before anything is created."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Prices
from batchtrain.cli import detached
from batchtrain.client import account_runs, controller, detach, detached_results
from batchtrain.client import job as client_job
from batchtrain.client.account_runs import AccountRuns
from batchtrain.client.limits import Limits
from batchtrain.config.task_results import MOST_TASKS
from batchtrain.config.types import (
    Autoscale,
    Credentials,
    Recipe,
    Secret,
    Settings,
    StorageCredentials,
    VmCount,
    VmSizes,
)
from batchtrain.emulator.machine.output_files import _fits
from batchtrain.errors import NotFound, PlanError, TaskFailed, UsageError
from batchtrain.life.endings import cause_of
from batchtrain.plan import Plan, outputs, plan_jobs, wire
from batchtrain.plan.types import Facts
from batchtrain.records import Failure, Job, Task
from batchtrain.records.failure import TASK_ENDED
from batchtrain.runs import compare, directory, finished, stored_results
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.recording import Origin
from batchtrain.service import job_actions, read, submit, watch
from tests.unit.plan.jobs import recipe
from tests.unit.test_max_price import Account, Case

DAY = 86400.0
KEYED = StorageCredentials(account="a", account_key=Secret("k"))
KEYLESS = StorageCredentials(account="a")


def of(job: dict[str, Any] | None = None, pool: dict[str, Any] | None = None, days: int | None = None) -> Recipe:
    made = recipe(job or {})
    assert made.pool is not None
    settings = Settings(generated_sas_expiry_days=days)
    return replace(made, pool=replace(made.pool, **(pool or {})), settings=settings)


def stored(*links: str, account: StorageCredentials = KEYED) -> Recipe:
    return replace(of(), credentials=Credentials(storage=dict.fromkeys(links, account)))


@pytest.mark.parametrize(
    ("limits", "job", "seconds"),
    [
        (Limits(), {}, DAY),
        (Limits(seconds=1800), {}, 1800),
        (Limits(seconds=1800), {"max_wall_time": "00:10:00"}, 600),
        (Limits(price=12), {}, 3600),
        (Limits(price=12, seconds=60), {}, 60),
    ],
)
def test_the_wall_clock_is_the_shortest_of_the_limits(limits: Limits, job: dict[str, Any], seconds: float) -> None:
    assert detach.wall_seconds(of(job).jobs[0], limits, 6.0, 2) == seconds


def test_the_wall_clock_counts_the_most_nodes_that_a_formula_requests() -> None:
    prices = Catalog(prices=(Prices("west", "EUR", {"STANDARD_D4S_V5": 0.25}),))
    made = replace(of(pool={"autoscale": Autoscale(formula="$TargetDedicatedNodes = 50;")}), catalog=prices)
    assert detach._hour(made, Limits(price=1), None) == 12.5
    assert detach._hour(made, Limits(), None) == 0


def test_a_wall_clock_in_which_no_node_starts_is_refused() -> None:
    made = of()
    with pytest.raises(UsageError, match="nodes need minutes to start"):
        detach.wall_seconds(made.jobs[0], Limits(seconds=59), 0.0)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (of(pool={"identities": ("/subscriptions/s",)}), "Azure sets them through Resource Manager.*pool add --idle"),
        (of(pool={"on_bad_node": "replace"}), "no client would replace a node"),
        (of(pool={"vm_sizes": VmSizes(alternatives=("STANDARD_D4S_V5",))}), "several sizes.*pool add --idle"),
        (of({"recurrence": {"schedule": {"recurrence_interval": "01:00:00"}}}), "a job schedule has no end"),
        (of({"auto_pool": {"keep_alive": True}}), "keeps its pool alive"),
        (of({"tasks": [{"command": "a", "task_factory": {"repeat": 3}}]}), "task_factory"),
        (replace(of(), pool=None), "makes its pool from pool.yaml and its job from jobs.yaml; see x"),
        (replace(of(), jobs=()), "makes its pool from pool.yaml and its job from jobs.yaml; see x"),
    ],
)
def test_what_the_service_cannot_end_or_keep_is_refused(made: Recipe, reason: str) -> None:
    with pytest.raises((UsageError, PlanError), match=reason):
        detach.refuse_unfit(made)


def test_the_results_need_one_storage_account() -> None:
    with pytest.raises(UsageError, match=r"needs a storage account.*credentials\.yaml"):
        detach.storage_link(of(), emulated=False)
    with pytest.raises(UsageError, match=r"several storage accounts \(a, b\)"):
        detach.storage_link(stored("a", "b"), emulated=False)
    assert detach.storage_link(stored("a"), emulated=False) == "a"


@pytest.mark.parametrize(
    ("days", "account", "seconds", "reason"),
    [
        (2, KEYED, 1.5 * DAY, "expires after 2 days.*generated_sas_expiry_days: 3"),
        (None, KEYLESS, 6.5 * DAY, "Entra ID signs it.*expires after 7 days.*--max-duration"),
    ],
)
def test_a_link_that_expires_before_the_last_upload_is_refused(
    days: int | None, account: StorageCredentials, seconds: float, reason: str
) -> None:
    made = replace(of(days=days), credentials=Credentials(storage={"a": account}))
    long, short = (replace(made, jobs=(detach.bounded(made.jobs[0], limit),)) for limit in (seconds, DAY))
    with pytest.raises(UsageError, match=reason):
        detach.refuse_short_links(long, "a")
    detach.refuse_short_links(short, "a")


@pytest.mark.parametrize(
    ("include", "path", "is_uploaded"),
    [
        (None, "model", True),
        (None, "a b/c d", True),
        (None, ".hidden/x/state", True),
        (None, "x/.hidden/.more/y/.state", True),
        (["output"], "output/.hidden/.state", True),
        (["*.json"], ".state.json", True),
        (["**/*.json"], ".hidden/state.json", True),
        (["output"], "model", False),
    ],
)
def test_one_pattern_uploads_each_result_whatever_names_begin_with_a_dot(
    include: list[str] | None, path: str, is_uploaded: bool
) -> None:
    made = of({"tasks": [{"id": "t", "command": "a", "results": {"include": include}}]}).jobs[0]
    [task] = made.tasks
    patterns = [file.file_pattern for file in outputs.left(of(), "link/box", task, "t", 1)]
    matches = [pattern for pattern in patterns if _fits(path.split("/"), pattern.split("/"))]
    assert len(matches) == int(is_uploaded), matches


@pytest.mark.parametrize("tasks", [1, MOST_TASKS + 1])
def test_a_task_among_whose_inputs_its_results_lie_uploads_the_named_ones_and_says_so(tasks: int) -> None:
    fields: dict[str, Any] = {} if tasks > 1 else {"resource_files": [{"file_path": "a", "blob_source": "https://x/a"}]}
    job = of({"tasks": [{"id": f"t{number}", "command": "a", **fields} for number in range(tasks)]}).jobs[0]
    patterns = [file.file_pattern for file in outputs.left(of(), "link/box", job.tasks[0], "t0", tasks)]
    assert "output/**/*" in patterns and "**/*" not in patterns
    assert any("task j/t0 uploads only `output`" in text for text in detach.remarks(replace(of(), jobs=(job,)), {}))


def test_a_task_uploads_what_run_would_fetch_into_the_container_of_the_run() -> None:
    made = detach.bounded(
        of({"tasks": [{"id": "t", "command": "a", "results": {"include": ["m", "x/**"]}}]}).jobs[0], 60
    )
    plan = plan_jobs(replace(of(), jobs=(made,)), Facts(results="link/box"))
    [body] = [step.document for step in plan.steps if step.action == "task.add"]
    places = {file["filePattern"]: file["destination"]["container"] for file in body["outputFiles"]}
    assert {pattern: place["path"] for pattern, place in places.items() if ".*" not in pattern} == {
        "../std*.txt": "tasks/t",
        "ranks/**/*": "tasks/t/wd/ranks",
        ".batchtrain-lineage.json": "tasks/t/wd/.batchtrain-lineage.json",
        ".batchtrain-packages.json": "tasks/t/wd/.batchtrain-packages.json",
        "m": "tasks/t/wd/m",
        "m/**/*": "tasks/t/wd/m",
        "x/**/*": "tasks/t/wd/x",
    }
    assert {place["containerUrl"] for place in places.values()} == {"{{sas:link/box?put&days=30}}"}
    [job] = [step.document for step in plan.steps if step.action == "job.add"]
    assert job["constraints"]["maxWallClockTime"] == "PT1M"
    assert job["poolInfo"]["autoPoolSpecification"]["poolLifetimeOption"] == "job"
    assert plan.steps[-1].document == {"onAllTasksComplete": "terminatejob", "constraints": job["constraints"]}


def test_the_manager_of_a_job_uploads_its_output_as_every_task_does() -> None:
    made = of({"job_manager": {"command": "a"}, "tasks": [{"id": "t", "command": "a"}]})
    for results, paths in (("link/box", {"tasks/jobmanager", "tasks/jobmanager/wd"}), ("", set[str]())):
        plan = plan_jobs(made, Facts(results=results))
        [job] = [step.document for step in plan.steps if step.action == "job.add"]
        files = job["jobManagerTask"].get("outputFiles", [])
        assert paths <= {file["destination"]["container"]["path"] for file in files}
        assert {file["filePattern"] for file in files} >= ({"../std*.txt", "**/*"} if results else set())


@pytest.mark.parametrize(
    ("error", "state"),
    [(KeyboardInterrupt(), "interrupted"), (NotFound("no storage account"), "failed"), (OSError("no disk"), "failed")],
)
def test_a_run_whose_command_ends_before_its_last_request_has_its_end(
    error: BaseException, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []

    def put_run(*_: Any) -> None:
        raise error

    recording = SimpleNamespace(
        run=RunDirectory(tmp_path), detach=lambda: states.append("detached"), end=lambda state, _: states.append(state)
    )
    monkeypatch.setattr(detach, "begin", lambda *_, **__: recording)
    monkeypatch.setattr(detach, "registered", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(detach, "put_run", put_run)
    monkeypatch.setattr(detach, "refuse_existing", lambda *_, **__: {})
    with pytest.raises(type(error)):
        detach.detach(without_service(), stored("link"), tell=lambda _: None, origin=Origin(tmp_path))
    assert states == ["detached", state]


def without_service() -> Any:
    return SimpleNamespace(
        with_storage=lambda recipe: recipe,
        account=SimpleNamespace(region="", emulated=False),
        batch=None,
        foresee=lambda *_, **__: SimpleNamespace(jobs=(), sources=(), blobs=()),
        register=lambda *_: None,
        storage=lambda _: lambda link: None,
    )


def test_the_job_of_an_earlier_run_is_replaced_before_a_detached_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(detach, "refuse_existing", lambda *_, **__: {"j": None})
    monkeypatch.setattr(detach, "replace_job", lambda _, job, *__: steps.append(f"replace {job}"))
    monkeypatch.setattr(detach, "_detached", lambda *_: steps.append("begin"))
    detach.detach(without_service(), stored("link"), tell=lambda _: None, origin=Origin(tmp_path))
    assert steps == ["replace j", "begin"]


def sent(plan: Plan) -> Iterator[Plan]:
    """Each request of a plan, with its tasks one by one."""
    for step in plan.steps:
        body = wire.filled(step.body, lambda _: "https://account/box?sig=s")
        bodies = body.get("value", [body])
        yield from (Plan((step._replace(body=body),)) for body in bodies)


@pytest.mark.parametrize(("count", "minutes"), [(1, 10), (2, 10), (3, 10), (4, 60)])
def test_a_command_that_is_killed_between_two_requests_leaves_no_node_after_ten_minutes(
    count: int, minutes: int
) -> None:
    made = of({"tasks": [{"id": name, "command": "a"} for name in ("t0", "t1")]}, {"vm_count": VmCount(dedicated=1)})
    made = replace(made, jobs=(detach.bounded(made.jobs[0], 3600),))
    requests = [*sent(plan_jobs(made, Facts(results="link/box")))]
    assert len(requests) == 4
    account = Account(Case(made, 1.0, "detached", 30, [1440, 1440], 1, {}))
    for request in requests[:count]:
        account.add(request)
    assert max(account.steps(86400)) <= minutes * 60
    assert not account.pools
    assert account.stage.world.jobs[made.jobs[0].id].record.reason == "MaxWallClockTimeExpiry"


@pytest.mark.parametrize(
    ("gang", "results", "uploads"),
    [({"jax": {}}, "link/box", True), ({"jax": {}}, "", False), ({"mpi": {"runtime": "mpich"}}, "link/box", False)],
)
def test_the_launcher_of_a_detached_gang_uploads_its_output_and_keeps_that_of_other_nodes(
    gang: dict[str, Any], results: str, uploads: bool
) -> None:
    image = {"docker_image": "a"} if "mpi" in gang else {}
    task = {"id": "t", "command": "a", "multi_instance": {"num_instances": 2, **gang}, **image}
    made = of({"tasks": [task]}, {"inter_node_communication_enabled": True, "vm_count": VmCount(dedicated=2)})
    plan = plan_jobs(replace(made, jobs=(detach.bounded(made.jobs[0], 60),)), Facts(results=results))
    [body] = [step.document for step in plan.steps if step.action == "task.add"]
    variables = {item["name"]: item.get("value") for item in body.get("environmentSettings", ())}
    assert variables.get("BATCHTRAIN_RESULTS_TOKEN") == ("{{sas:link/box?put&days=30}}" if uploads else None)


ALL_OF = {"from": "all", "include": ["a b/*.pt", "x"]}
NO_RESULTS = "collect '' '' '!' './ranks/*' './.batchtrain*' './.cache/*' '*/__pycache__/*'"


@pytest.mark.parametrize(
    ("task", "collected"),
    [
        ({"multi_instance": {"num_instances": 2}}, NO_RESULTS),
        ({"multi_instance": {"num_instances": 2}, "results": {"include": ["x"]}}, ""),
        ({"multi_instance": {"num_instances": 2, "jax": {}}}, ""),
        ({"multi_instance": {"num_instances": 2, "jax": {}}, "results": ALL_OF}, "collect '' 'a b' x '!'"),
        (
            {
                "multi_instance": {"num_instances": 2},
                "resource_files": [{"file_path": "y", "blob_source": "https://x/y"}],
            },
            "",
        ),
        ({}, ""),
    ],
)
def test_the_results_of_other_nodes_are_brought_to_the_primary(task: dict[str, Any], collected: str) -> None:
    made = of({"tasks": [{"id": "t", "command": "a", **task}]}, {"inter_node_communication_enabled": True})
    recipe = replace(made, jobs=(detach.bounded(made.jobs[0], 60),))
    for results in ("link/box", ""):
        plan = plan_jobs(recipe, Facts(results=results))
        [body] = [step.document for step in plan.steps if step.action == "task.add"]
        text, has = "".join(text for _, text in plan.launch), bool(collected and results)
        assert [item["filePattern"] for item in body.get("outputFiles", ())].count("../.batchtrain-nodes/**/*") == has
        assert (" collect " in text and collected in text) == has
        assert ("prepare.sh" in body["commandLine"]) == has


# --- whose job it is ------------------------------------------------------------------------------------------------


def test_the_job_of_another_run_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_runs, "read_marks", lambda client, thing: SimpleNamespace(run="B"))
    monkeypatch.setattr(controller, "end", lambda client, job, run: None)
    client: Any = SimpleNamespace(batch=None)
    connect: Any = lambda: None  # noqa: E731
    with pytest.raises(NotFound, match="job train of this account is not that of run A"):
        AccountRuns(client, Path(), connect).stop("A", "train")


def stopped(monkeypatch: pytest.MonkeyPatch, root: Path, state: str, *, is_gone: bool) -> directory.RunDirectory:
    """The directory of a run in this state after `stop`. is_gone: whether its job is."""

    def read_marks(client: Any, thing: Any) -> Any:
        if is_gone:
            raise NotFound("job j is gone", code="JobNotFound")
        return SimpleNamespace(run=run.name)

    run = directory.make(root, "j", datetime(2026, 11, 22, tzinfo=timezone.utc))
    run.write(
        directory.RunRecord(id=run.name, job="j", started=datetime(2026, 11, 22, tzinfo=timezone.utc), state=state)
    )
    monkeypatch.setattr(account_runs, "read_marks", read_marks)
    monkeypatch.setattr(controller, "end", lambda client, job, run: None)
    monkeypatch.setattr(read, "job", lambda *_: SimpleNamespace(is_over=False))
    monkeypatch.setattr(submit, "terminate", lambda *_: None)
    client: Any = SimpleNamespace(batch=None)
    connect: Any = lambda: None  # noqa: E731
    AccountRuns(client, root, connect).stop(run.name, "j")
    return run


def test_a_stop_of_a_run_that_has_ended_names_its_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=f"has ended; its results are in {tmp_path}"):
        stopped(monkeypatch, tmp_path, "completed", is_gone=True)
    with pytest.raises(NotFound, match="job j is gone"):
        stopped(monkeypatch, tmp_path, "detached", is_gone=True)


def test_a_stopped_run_is_listed_as_stopped_before_its_results_are_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = stopped(monkeypatch, tmp_path, "detached", is_gone=False).record()
    assert (record.state, compare.state_of(record)) == ("detached", "stopped")


def test_a_fetch_waits_until_the_service_has_uploaded_what_a_stopped_run_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = list[object]()
    monkeypatch.setattr(account_runs, "_left", lambda *_: None)
    monkeypatch.setattr(job_actions, "until", lambda _, job, states, *__: steps.append((job, *states)))
    monkeypatch.setattr(detached_results, "fetch", lambda *_, **__: steps.append("fetch"))
    client: Any = SimpleNamespace(batch=None, pace=None, jobs=SimpleNamespace(state=lambda _: "terminating"))
    connect: Any = lambda: None  # noqa: E731
    AccountRuns(client, Path(), connect).fetch("A", "train", tell=lambda _: None)
    assert steps == [("train", "completed"), "fetch"]


def test_a_follower_waits_for_a_job_that_its_controller_moves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = []

    def tasks_ended(*_: Any, **__: Any) -> None:
        looks.append("look")
        if len(looks) < 3:
            raise NotFound("job train is gone", code="JobNotFound")

    run = SimpleNamespace(tasks=lambda: ())
    for module, name in ((stored_results, "begin"), (detached_results, "fetch")):
        monkeypatch.setattr(module, name, lambda *_: run)
    monkeypatch.setattr(watch, "tasks_ended", tasks_ended)
    monkeypatch.setattr(watch, "show_nodes", lambda *_: None)
    monkeypatch.setattr(read, "job", lambda *_: SimpleNamespace(pool="p"))
    monkeypatch.setattr(account_runs, "check", lambda *_: None)
    monkeypatch.setattr(read, "job_document", lambda *_: {"state": "active"})
    monkeypatch.setattr(job_actions, "until", lambda *_: looks.append("end"))
    monkeypatch.setattr(controller, "moves", lambda *_: len(looks) < 3)
    job = SimpleNamespace(id="train", reason_to_wait=lambda: None)
    client: Any = SimpleNamespace(batch=None, pace=watch.Pace(0, 0), jobs=SimpleNamespace(handle=lambda _: job))
    storage: Any = None
    texts = list[str]()
    tell = lambda event: texts.append(event.text)  # noqa: E731
    runs = AccountRuns(client, tmp_path, lambda: storage)
    runs.attach("A", "train", tell=tell, timeout=60)
    assert texts == [f"job train {account_runs.INCOMPLETE}"]
    assert looks == ["look", "look", "look", "end"]
    monkeypatch.setattr(controller, "moves", lambda *_: False)
    looks.clear()
    with pytest.raises(NotFound, match="job train is gone"):
        runs.attach("A", "train", tell=lambda _: None, timeout=60)


ONE = {"action": "task.add", "body": {"id": "t", "commandLine": "true"}}
TWO = {"action": "task.add", "body": {"value": [{"id": "a"}, {"id": "b"}]}}
STREAM = {"action": "task.add", "body": {"template": "t"}}
MANAGED = {"action": "job.add", "body": {"id": "job", "jobManagerTask": {"id": "manager"}}}


@pytest.mark.parametrize(
    ("reason", "steps", "count", "is_complete"),
    [
        ("AllTasksComplete", [TWO], 0, True),
        ("MaxWallClockTimeExpiry", [ONE], 0, False),
        ("MaxWallClockTimeExpiry", [ONE], 1, True),
        ("MaxWallClockTimeExpiry", [TWO, ONE], 2, False),
        ("MaxWallClockTimeExpiry", [TWO, ONE], 3, True),
        ("MaxWallClockTimeExpiry", [STREAM], 9, False),
        ("UserTerminate", [MANAGED, ONE], 1, False),
        ("UserTerminate", [MANAGED, ONE], 2, True),
    ],
)
def test_a_job_that_ended_before_all_its_tasks_were_added_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, steps: list[Any], count: int, is_complete: bool
) -> None:
    monkeypatch.setattr(read, "job", lambda batch, job_id, select: Job("job", reason=reason))
    run = RunDirectory(tmp_path)
    run.config.mkdir()
    (run.config / "plan.json").write_bytes(msgspec.json.encode({"steps": steps}))
    tasks = [Task(f"t{number}", "completed", "success", exit_code=0) for number in range(count)]
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))
    failure = finished.failure_of(cast("Any", None), run, "job")
    assert (failure is None) == is_complete


DONE, FAILED = Task("a", "completed", "success", exit_code=0), Task("b", "completed", "failure", exit_code=1)
CUT = Task("c", "completed", "failure", failure=Failure(TASK_ENDED))


@pytest.mark.parametrize(
    ("reason", "tasks", "cause", "exit_code"),
    [
        ("UserTerminate", [DONE, CUT], "stopped", 130),
        ("UserTerminate", [FAILED, CUT], "stopped", 130),
        ("UserTerminate", [DONE, Task("d", "active")], "stopped", 130),
        ("too expensive", [CUT], "stopped", 130),
        ("UserTerminate", [DONE, FAILED], "refused", 10),
        ("MaxWallClockTimeExpiry", [DONE, CUT], "limit", 7),
        ("MaxWallClockTimeExpiry", [DONE, FAILED], "refused", 10),
        ("AllTasksComplete", [CUT], "refused", 10),
        ("UserTerminate", [DONE], "done", 0),
    ],
)
def test_a_job_that_was_ended_before_its_tasks_had_is_no_failure_of_its_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, tasks: list[Task], cause: str, exit_code: int
) -> None:
    monkeypatch.setattr(
        read, "job", lambda _, __, select: Job("job", reason=reason, wall_clock=9 if "constraints" in select else None)
    )
    monkeypatch.setattr(client_job.Job, "failure_of", lambda *_: TaskFailed("a task"))
    monkeypatch.setattr(client_job.Job, "_examined", lambda *_, **__: SimpleNamespace(first=None))
    monkeypatch.setattr(client_job.Job, "reason_to_wait", lambda _: None)
    run = RunDirectory(tmp_path)
    run.config.mkdir()
    (run.config / "plan.json").write_bytes(msgspec.json.encode({"steps": [ONE] * len(tasks)}))
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))
    client: Any = SimpleNamespace(batch=None)
    for failure in (finished.failure_of(client.batch, run, "job"), client_job.Job(client, "job").first_failure(tasks)):
        assert (cause_of(failure).name, getattr(failure, "exit_code", 0)) == (cause, exit_code)
        finding = failure.finding if failure is not None else None
        assert finding is None or "limit of run time (9 s)" in finding.cause


@pytest.mark.parametrize("wall_clock", [1e300, 8.64e10 * 100, 3600.0 * 24 * 365 * 8000])
def test_the_question_whether_a_run_continues_is_asked_whatever_the_service_claims(
    wall_clock: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        read, "job", lambda *_: Job(id="j", created=datetime(2026, 11, 22, tzinfo=timezone.utc), wall_clock=wall_clock)
    )
    run = SimpleNamespace(record=lambda: SimpleNamespace(cost=None))
    assert detached._cost(cast("Any", run), cast("Any", SimpleNamespace(batch=None)), "j") == "its nodes"
