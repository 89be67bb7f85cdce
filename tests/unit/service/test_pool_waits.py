"""Waits for pools, and for a job that does not end: what is requested, reported and raised, answer by answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from azure.batch import BatchClient
from msgspec.structs import replace

from batchtrain.errors import NotFound, QuotaReached, ServiceError, TimedOut
from batchtrain.records import Node, Pool
from batchtrain.records.events import Event, NodesSeen, PoolWaits, TasksWait
from batchtrain.service import deletion, read, watch
from batchtrain.service.register import Thing
from batchtrain.service.watch import MOST_REBOOTS, Deadline, Pace, Reboots
from tests.unit.service.test_retry import EMPTY, Service, refusal

AT_ONCE = Pace(0.0, 0.0)
NO_POOL = refusal("PoolNotFound", 404)


def pool(allocation: str = "steady", dedicated: int = 1, spot: int = 1, **more: Any) -> tuple[int, Any]:
    targets = {"targetDedicatedNodes": dedicated, "targetLowPriorityNodes": spot}
    return 200, {"id": "p", "state": "active", "allocationState": allocation, "vmSize": "d2", **targets, **more}


def nodes(*states: str, **more: Any) -> tuple[int, Any]:
    return 200, {"value": [{"id": f"n{number}", "state": state, **more} for number, state in enumerate(states)]}


def file(content: bytes) -> tuple[tuple[int, Any, Mapping[str, str]], tuple[int, Any]]:
    """The answers to a look at a file and to a read of it."""
    return (200, None, {"Content-Length": str(len(content))}), (200, content)


# --- until a pool is ready ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allocation", "states"),
    [
        ("resizing", ("idle", "running")),
        ("steady", ("idle",)),
        ("steady", ()),
        ("steady", ("idle", "starting")),
        ("steady", ("waitingforstarttask", "running")),
    ],
)
def test_a_pool_is_not_ready_before_it_is_steady_and_has_its_target_of_nodes_that_accept_tasks(
    allocation: str, states: tuple[str, ...]
) -> None:
    service = Service(pool(allocation), nodes(*states), pool(), nodes("idle", "running", "idle"))
    ready = watch.pool_ready(service.client, "p", 60, AT_ONCE)
    assert [node.state for node in ready] == ["idle", "running", "idle"]
    assert service.asked == ["GET /pools/p", "GET /pools/p/nodes"] * 2


def test_a_state_of_a_pool_is_reported_once_and_its_nodes_at_each_look() -> None:
    waiting = (pool("resizing"), nodes("starting", "idle", "idle"))
    service, events = Service(*waiting, *waiting, pool(), nodes("idle", "idle")), list[Event]()
    watch.pool_ready(service.client, "p", 60, AT_ONCE, events.append)
    assert [(event.kind, event.subject, event.text) for event in events] == [
        ("nodes.seen", "p", ""),
        ("pool.wait", "p", "pool p: resizing, 2 idle, 1 starting of 2"),
        ("nodes.seen", "p", ""),
        ("nodes.seen", "p", ""),
    ]
    looked = events[0]
    assert isinstance(looked, NodesSeen)
    assert (looked.target, [node.id for node in looked.nodes]) == (2, ["n0", "n1", "n2"])


def test_a_pool_that_is_not_ready_in_time_ends_the_wait_with_its_last_state() -> None:
    service = Service(pool("resizing"), nodes())
    with pytest.raises(TimedOut, match=r"waiting for pool p to be ready .* last seen: resizing, no nodes yet of 2"):
        watch.pool_ready(service.client, "p", 0, AT_ONCE)


def test_the_looks_at_a_pool_become_rarer(pauses: list[float]) -> None:
    waiting = (pool("resizing"), nodes())
    watch.pool_ready(Service(*waiting * 4, pool(), nodes("idle", "idle")).client, "p", 60, Pace(1.0, 3.0, 2.0))
    assert pauses == [1.0, 2.0, 3.0, 3.0]


def test_a_pool_that_gets_no_nodes_because_of_the_quota_is_an_error_with_the_reason() -> None:
    errors = [{"code": "AccountCoreQuotaReached", "message": "The account: 4 cores."}]
    service = Service(pool(resizeErrors=errors), nodes())
    with pytest.raises(QuotaReached, match="allocate the nodes of pool p: The account: 4 cores"):
        watch.pool_ready(service.client, "p", 60, AT_ONCE)
    assert service.asked == ["GET /pools/p", "GET /pools/p/nodes"]


def test_resize_errors_of_an_earlier_resize_do_not_end_the_wait() -> None:
    errors = [{"code": "AllocationTimedout", "message": "Too slow."}]
    service = Service(pool("resizing", resizeErrors=errors), nodes(), pool(), nodes("idle", "idle"))
    assert len(watch.pool_ready(service.client, "p", 60, AT_ONCE)) == 2


def test_a_failed_start_task_is_an_error_with_its_exit_code_and_the_last_lines_of_its_stderr() -> None:
    node = nodes("idle", "starttaskfailed", startTaskInfo={"state": "completed", "exitCode": 3, "retryCount": 0})
    text = b"".join(b"line %d\n" % number for number in range(50))
    service = Service(pool(), node, *file(text))
    with pytest.raises(ServiceError) as caught:
        watch.pool_ready(service.client, "p", 60, AT_ONCE)
    first, *lines = str(caught.value).splitlines()
    assert first == "the start task failed on node n1 of pool p (exit code 3); its last lines:"
    assert lines == [f"  line {number}" for number in range(10, 50)]
    assert caught.value.code == "StartTaskFailed"
    assert service.asked[2:] == [f"{method} /pools/p/nodes/n1/files/startup%2Fstderr.txt" for method in ("HEAD", "GET")]


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ([(200, None, {"Content-Length": "0"})], "(its stderr is empty)"),
        ([refusal("FileNotFound", 404)], "(its stderr cannot be read: look at startup/stderr.txt of node n0: "),
    ],
)
def test_a_failed_start_task_without_stderr_is_still_named(answers: list[Any], line: str) -> None:
    with pytest.raises(ServiceError) as caught:
        watch.pool_ready(Service(pool(), nodes("starttaskfailed"), *answers).client, "p", 60, AT_ONCE)
    assert str(caught.value).splitlines()[1].startswith(f"  {line}")


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ((), "no reason given"),
        ((("A", "first"), ("B", "second")), "A: first; B: second"),
    ],
)
def test_an_unusable_node_is_an_error_with_its_reasons(errors: tuple[tuple[str, str], ...], reason: str) -> None:
    node = nodes("unusable", errors=[{"code": code, "message": message} for code, message in errors])
    with pytest.raises(ServiceError, match=f"node n0 of pool p is unusable: {reason}$") as caught:
        watch.pool_ready(Service(pool(), node).client, "p", 60, AT_ONCE)
    assert caught.value.code == "NodeStateUnusable"


def test_a_broken_node_that_is_mended_does_not_end_the_wait() -> None:
    service = Service(pool(), nodes("idle", "unusable"), pool(), nodes("idle", "idle"))
    mended: list[str] = []

    def mend(_: Pool, node: Node) -> bool:
        mended.append(node.id)
        return True

    watch.pool_ready(service.client, "p", 60, AT_ONCE, mend=mend)
    assert mended == ["n1"]


# --- reboots --------------------------------------------------------------------------------------------------------

UNUSABLE, STANDING = Node("n", "unusable", ""), Pool("p")


def test_a_broken_node_is_rebooted_a_few_times_and_each_time_is_reported() -> None:
    service, reported = Service(*[pool(), (202, None)] * (MOST_REBOOTS + 1)), list[str]()
    reboots = Reboots(service.client, frozenset({"unusable"}), reported.append)
    assert [reboots.mend(STANDING, UNUSABLE) for _ in range(MOST_REBOOTS + 1)] == [True] * MOST_REBOOTS + [False]
    assert service.asked == ["GET /pools/p", "POST /pools/p/nodes/n/reboot"] * MOST_REBOOTS
    assert [reported[0], reported[-1]] == [
        f"node n is unusable; reboot {number} of {MOST_REBOOTS}" for number in (1, MOST_REBOOTS)
    ]
    assert reboots.mend(STANDING, replace(UNUSABLE, id="other"))


@pytest.mark.parametrize(
    ("state", "code", "mended", "requests"),
    [
        ("starttaskfailed", "", False, 0),
        ("unusable", "NodeBeingRebooted", True, 2),
        ("unusable", "NodeNotFound", False, 2),
    ],
)
def test_no_node_in_another_state_is_rebooted_and_a_refusal_counts_only_if_another_reboot_is_running(
    state: str, code: str, mended: bool, requests: int
) -> None:
    service, reported = Service(pool(), refusal(code)), list[str]()
    reboots = Reboots(service.client, frozenset({state}), reported.append)
    assert (reboots.mend(STANDING, UNUSABLE), reported, len(service.asked)) == (mended, [], requests)


def created(day: int, state: str = "resizing") -> tuple[int, Any]:
    return pool(state, creationTime=f"2026-01-0{day}T00:00:00Z")


@pytest.mark.parametrize(
    ("wait", "answers"),
    [
        (lambda c: watch.pool_steady(c, "p", 60, AT_ONCE, lambda _: None), [created(1), created(2, "steady")]),
        (lambda c: watch.pool_ready(c, "p", 60, AT_ONCE), [created(1), nodes(), created(2, "steady")]),
        (
            lambda c: watch.pool_ready(
                c, "p", 60, AT_ONCE, mend=Reboots(c, frozenset({"unusable"}), lambda _: None).mend
            ),
            [created(1), nodes("unusable"), created(2)],
        ),
    ],
)
def test_a_wait_for_a_pool_ends_when_another_pool_has_its_id(
    wait: Callable[[BatchClient], object], answers: list[Any]
) -> None:
    with pytest.raises(NotFound, match="pool p was replaced by a new one"):
        wait(Service(*answers).client)


# --- other waits for pools ------------------------------------------------------------------------------------------


def test_a_pool_that_stopped_growing_is_returned_with_its_counts_which_end_a_wait_for_it(pauses: list[float]) -> None:
    growing = pool("resizing", currentDedicatedNodes=3, currentLowPriorityNodes=4)
    service = Service(growing, pool("steady", currentDedicatedNodes=3))
    assert watch.pool_steady(service.client, "p", 60, Pace(1.0, 5.0), lambda _: None).dedicated == 3
    assert pauses == [1.0]
    with pytest.raises(TimedOut, match=r"pool p to stop growing .* last seen: allocation resizing, 3\+4 nodes"):
        watch.pool_steady(Service(growing).client, "p", 0, AT_ONCE, lambda _: None)


@pytest.mark.parametrize(("pace", "pause"), [(Pace(1, 5, request=2.5), 5), (Pace(1, 5, request=7), 14)])
def test_a_watched_pool_is_reported_when_it_changes_and_when_it_is_gone(
    pace: Pace, pause: float, pauses: list[float]
) -> None:
    service = Service(pool(), nodes("idle"), pool(), nodes("idle"), pool(), nodes("idle", "idle"), NO_POOL)
    events: list[Event] = []
    watch.pool_states(service.client, "p", pace, events.append)
    assert [event.text for event in events if event.text] == [
        "pool p: steady, 1 idle of 2",
        "pool p: steady, 2 idle of 2",
        "pool p is gone",
    ]
    assert [event.kind for event in events if event.text] == ["pool.seen", "pool.seen", "pool.gone"]
    assert {event.subject for event in events} == {"p"}
    assert pauses == [pause] * 3


def test_a_pool_that_never_was_is_not_gone() -> None:
    events: list[Event] = []
    with pytest.raises(NotFound, match="there is no pool p"):
        watch.pool_states(Service(NO_POOL).client, "p", AT_ONCE, events.append)
    assert events == []


def test_the_nodes_of_a_pool_are_shown() -> None:
    events: list[Event] = []
    watch.show_nodes(Service(pool(), nodes("idle")).client, "p", events.append)
    assert [event.kind for event in events] == ["nodes.seen"]


JOB = Thing("job", "j")


@pytest.mark.parametrize(
    "last", [refusal("JobNotFound", 404), (200, {"id": "j", "creationTime": "2026-01-02T00:00:00Z"})]
)
def test_a_deletion_is_waited_for_until_no_object_or_another_one_has_the_id(last: Any, pauses: list[float]) -> None:
    first = (200, {"id": "j", "creationTime": "2026-01-01T00:00:00Z", "state": "deleting"})
    deletion.gone(Service(first, first, last).client, JOB, Pace(1.0, 5.0, 2.0), None, 60)
    assert pauses == [1.0, 2.0]
    with pytest.raises(TimedOut, match="waiting for job j to be gone took longer than 0 s"):
        deletion.gone(Service(first).client, JOB, AT_ONCE, None, 0)


# --- tasks of a job that do not end ---------------------------------------------------------------------------------

RUNNING = (200, {"value": [{"id": "t", "state": "running"}]})


def job(state: str, **more: Any) -> tuple[int, Any]:
    return 200, {"id": "j", "state": state, "poolInfo": {}, **more}


def wait(service: Service, seconds: float = 3600, pace: Pace = AT_ONCE) -> int:
    """How often the tasks are shown until the wait ends."""
    shown: list[object] = []

    def show(seen: object) -> int:
        shown.append(seen)
        return 0

    deadline = Deadline(seconds, watch.tasks_of("j"), clock=service.policy.clock)
    watch.tasks_ended(service.client, "j", deadline, pace, show)
    return len(shown)


def test_a_wait_for_tasks_ends_when_another_job_has_the_id() -> None:
    first, second = (job("active", creationTime=f"2026-01-0{day}T00:00:00Z") for day in (1, 2))
    with pytest.raises(NotFound, match="job j was replaced by a new one"):
        wait(Service(*[RUNNING] * 8, first, *[RUNNING] * 8, second))


@pytest.mark.parametrize("found", [[], [job("active", poolInfo={"poolId": "p"}), NO_POOL]])
def test_active_tasks_of_a_terminated_job_are_not_waited_for_also_if_it_ends_while_its_pool_is_read(
    found: list[Any],
) -> None:
    service = Service(*[RUNNING] * 8, *found, job("completed"), RUNNING)
    assert wait(service) == 9
    assert service.asked[-2:] == ["GET /jobs/j", "GET /jobs/j/tasks"]


def test_tasks_of_a_job_whose_pool_is_deleted_are_not_waited_for() -> None:
    service = Service(*[RUNNING] * 8, job("active", poolInfo={"poolId": "p"}), NO_POOL, job("active"))
    with pytest.raises(NotFound, match="pool p of job j does not exist, so its tasks cannot run") as caught:
        wait(service)
    assert caught.value.code == "PoolNotFound"
    assert "jobs del" not in str(caught.value), "a run deletes its job itself"


@pytest.mark.parametrize("found", [[job("active", poolInfo={"poolId": "p"}), pool()], [job("disabled")]])
def test_tasks_of_a_job_with_a_pool_or_an_auto_pool_are_waited_for(found: list[Any]) -> None:
    ended = (200, {"value": [{"id": "t", "state": "completed"}]})
    assert wait(Service(*[RUNNING] * 8, *found, ended)) == 9


def test_what_keeps_tasks_waiting_for_a_user_is_told_when_it_begins_and_when_it_ends() -> None:
    active, ended = ((200, {"value": [{"id": "t", "state": state}]}) for state in ("active", "completed"))
    disabled = [*[active] * 8, job("disabled"), active]
    service, events = Service(*disabled * 2, *[RUNNING] * 8, job("active"), ended), list[Event]()
    deadline = Deadline(3600, watch.tasks_of("j"), events.append, clock=service.policy.clock)
    watch.tasks_ended(service.client, "j", deadline, AT_ONCE)
    findings = [event.finding for event in events if isinstance(event, TasksWait)]
    assert [finding and finding.rule for finding in findings] == ["job-disabled", None]


def test_each_request_of_a_wait_for_tasks_lengthens_the_pause_after_it() -> None:
    service = Service(*[RUNNING] * 4, job("active"), RUNNING, (200, {"value": []}))
    wait(service, pace=Pace(1.0, 1.0, request=10.0, turns=2))
    assert service.time.pauses == [10, 1, 10, 1, 10, 1, 10, 10, 10, 1]


def test_a_confirmation_that_all_tasks_ended_is_a_request_too() -> None:
    many = (200, {"value": [{"id": f"t{number}", "state": "completed"} for number in range(21)]})
    late = (200, {"taskCounts": {"active": 0, "succeeded": 21}})
    service = Service(many, late, RUNNING, RUNNING, (200, EMPTY), many, late)
    assert wait(service, pace=Pace(1.0, 1.0, request=10.0, turns=3)) == 4, "the last is what the tasks ended with"
    assert service.time.pauses == [30, 10]
    assert service.queries[2] == {"$filter": "state ne 'completed'", "$select": "id", "maxresults": "1"}


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ([(200, {"value": [{"id": "a", "state": "completed"}, {"id": "b", "state": "running"}]})],
         "1 of 2 tasks open, b is running"),
        ([(200, {"value": [{"id": f"t{number}", "state": "active"} for number in range(21)]}),
          (200, {"taskCounts": {"active": 3000, "failed": 2}})],
         "3,000 of 3,002 tasks open (3,000 active, 2 failed)"),
    ],
)  # fmt: skip
def test_the_end_of_a_wait_for_tasks_names_an_open_task_or_the_counts(answers: list[Any], state: str) -> None:
    with pytest.raises(TimedOut) as caught:
        wait(Service(*answers), 0)
    assert str(caught.value) == f"waiting for the tasks of job j took longer than 0 s; last seen: {state}"


# --- until a candidate of a pool has its nodes ----------------------------------------------------------------------

FAILED = {"resizeErrors": [{"code": "AllocationFailed", "message": "No capacity."}]}
EVERY_SECOND = Pace(1.0, 1.0, 1.0)
READY = (pool(), nodes("idle", "idle"))


def place(service: Service, patience: float, pace: Pace = EVERY_SECOND) -> None:
    watch.pool_ready(service.client, "p", 60, pace, before=read.LONG_AGO, patience=patience)


def test_a_broken_node_ends_the_wait_for_a_candidate_once_it_has_its_nodes() -> None:
    service = Service(pool("resizing"), nodes("unusable"), pool(), nodes("unusable", "creating"))
    with pytest.raises(ServiceError, match="node n0 of pool p is unusable"):
        place(service, 10, AT_ONCE)
    assert service.asked == ["GET /pools/p", "GET /pools/p/nodes"] * 2


def test_a_wait_for_the_nodes_of_a_pool_tells_each_new_state_once(pauses: list[float]) -> None:
    service = Service(*(pool("resizing"), nodes("starting")) * 2, *(pool(**FAILED), nodes("idle")) * 2, *READY)
    events: list[Event] = []
    watch.pool_ready(service.client, "p", 60, EVERY_SECOND, events.append, before=read.LONG_AGO, patience=10)
    texts = [event.text for event in events if isinstance(event, PoolWaits)]
    assert len(texts) == 2
    assert texts[1].endswith(" (AllocationFailed)")
    assert all(text.startswith("pool p: ") for text in texts)


def test_an_error_that_no_waiting_mends_ends_the_wait_for_nodes_at_once() -> None:
    errors = [{"code": "AccountCoreQuotaReached", "message": "No cores."}]
    with pytest.raises(QuotaReached, match="No cores"):
        place(Service(pool(resizeErrors=errors), nodes()), 10)


def test_a_region_without_nodes_is_awaited_until_the_patience_is_over(pauses: list[float]) -> None:
    with pytest.raises(ServiceError, match="No capacity") as caught:
        place(Service(*(pool(**FAILED), nodes("idle")) * 4), 3)
    assert (caught.value.code, pauses) == ("AllocationFailed", [1.0, 1.0, 1.0])


def test_nodes_that_the_region_did_not_have_are_requested_again(pauses: list[float]) -> None:
    service = Service(*(pool(**FAILED), nodes()) * (watch.AGAIN + 1), pool(), (202, None), *READY)
    place(service, 60)
    assert service.asked.count("POST /pools/p/resize") == 1


def test_the_patience_ends_with_the_last_node_that_is_allocated(pauses: list[float]) -> None:
    starting = (pool(), nodes("starting", "creating"))
    place(Service(pool("resizing"), nodes("starting"), *starting * 5, *READY), 2)
    assert len(pauses) == 6


def test_a_pool_that_is_still_resizing_after_the_patience_has_no_nodes(pauses: list[float]) -> None:
    with pytest.raises(ServiceError, match="it has 1 of 2 nodes") as caught:
        place(Service(*(pool("resizing"), nodes("creating")) * 3), 2)
    assert caught.value.code == "AllocationTimedOut"
