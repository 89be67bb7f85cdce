"""What runs left in an account: which things it is, what a row says of each, and what is deleted."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Prices
from batchtrain.plan.marks import Marks
from batchtrain.runs import lease, leftovers
from batchtrain.runs.leftovers import Leftover
from batchtrain.service.connect import Account

from .batch_server import START, BatchServer, moment
from .made import made

PRICES = Prices("westeurope", "EUR", {"Standard_D4s_v5": 0.2}, {"Standard_D4s_v5": 0.05})
NOW = START + timedelta(hours=3)


def thing(name: str, run: str = "gone", user: str = "me", created: float | None = 0, **more: Any) -> dict[str, Any]:
    """The document of a pool, a job or a job schedule."""
    age: dict[str, Any] = {} if created is None else {"creationTime": moment(created)}
    return {"id": name, "state": "active", "metadata": Marks(run, user, "host").metadata, **age, **more}


@pytest.fixture
def service(service: BatchServer) -> BatchServer:
    for path in ("/pools", "/jobs", "/jobschedules"):
        service.documents[path] = {"value": []}
    return service


def left(service: BatchServer, **options: Any) -> tuple[Leftover, ...]:
    account: Account = service.account._replace(endpoint="https://acct.westeurope.batch.azure.com")
    catalog = Catalog(prices=(PRICES,))
    return leftovers.leftovers(service.client, account, service.root, catalog, NOW, **options)


def run_of(root: Path, state: str, **fields: Any) -> str:
    """The name of a run on this machine."""
    return made(root, state=state, **fields).name


def test_jobs_come_before_schedules_and_pools_and_what_carries_no_mark_is_left_out(service: BatchServer) -> None:
    service.documents["/pools"] = {"value": [thing("p"), {"id": "mine", "creationTime": moment(0)}]}
    service.documents["/jobschedules"] = {"value": [thing("s")]}
    service.documents["/jobs"] = {"value": [thing("j")]}
    found = left(service)
    assert [(item.thing.kind, item.thing.id) for item in found] == [("job", "j"), ("job schedule", "s"), ("pool", "p")]
    assert {item.marks for item in found} == {Marks("gone", "me", "host")}


def test_a_controller_is_known_by_its_metadata_and_not_by_its_id(service: BatchServer) -> None:
    controller = thing("other")
    controller["metadata"] = [*controller["metadata"], {"name": "batchtrain:controls", "value": "gone"}]
    service.documents["/jobs"] = {"value": [thing("my-controller"), controller]}
    assert [item.is_controller for item in left(service)] == [False, True]


@pytest.mark.parametrize(
    ("dedicated", "spot", "size", "hour"),
    [(2, 4, "standard_d4s_v5", "0.60 EUR"), (0, 0, "standard_d4s_v5", "0.00 EUR"), (1, 0, "standard_d64s_v5", "")],
)
def test_a_pool_has_the_cost_of_an_hour_of_its_nodes(
    service: BatchServer, dedicated: int, spot: int, size: str, hour: str
) -> None:
    nodes = {"currentDedicatedNodes": dedicated, "currentLowPriorityNodes": spot, "vmSize": size}
    service.documents["/pools"] = {"value": [thing("p", created=3600, **nodes)]}
    (item,) = left(service)
    assert item.row == ("pool", "p", "active", "gone", "me", "host", "2 h 0 min", dedicated + spot, hour, "")


@pytest.mark.parametrize(("results", "shown"), [("complete", "here"), ("partial", "not here")])
def test_a_job_says_whether_its_results_are_on_this_machine(service: BatchServer, results: str, shown: str) -> None:
    name = run_of(service.root, "completed", results=results)
    service.documents["/jobs"] = {"value": [thing("j", name), thing("k")]}
    here, elsewhere = left(service)
    assert (here.row.results, here.elsewhere, here.row.nodes, here.row.hour) == (shown, False, None, "")
    assert (elsewhere.row.results, elsewhere.elsewhere) == ("not here", True)


@pytest.mark.parametrize("state", ["running", "detached"])
def test_what_a_run_that_a_process_of_this_machine_records_uses_is_not_left(service: BatchServer, state: str) -> None:
    name = run_of(service.root, state)
    service.documents["/jobs"] = {"value": [thing("j", name, state="completed")]}
    held = lease.take(service.root / name)
    assert held is not None
    assert left(service) == ()
    held.release()
    assert len(left(service)) == 1, "the process that recorded it is gone"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["old", "other", "new", "unknown"]),
        ({"user": "me"}, ["old", "new", "unknown"]),
        ({"older_than": 3600}, ["old", "other"]),
        ({"older_than": 3601}, ["other"]),
        ({"older_than": 1}, ["old", "other", "new"]),
    ],
)
def test_things_are_chosen_by_their_user_and_age(
    service: BatchServer, options: dict[str, Any], names: list[str]
) -> None:
    now: datetime = NOW
    old, new = (now - START).total_seconds() - 3600, (now - START).total_seconds() - 5
    service.documents["/jobs"] = {
        "value": [thing("old", created=old), thing("other", user="you"), thing("new", created=new),
                  thing("unknown", created=None)]
    }  # fmt: skip
    assert [item.thing.id for item in left(service, **options)] == names


def test_each_thing_is_deleted_unless_it_is_gone_replaced_or_refused(service: BatchServer) -> None:
    service.documents["/jobs"] = {"value": [thing(name) for name in ("j", "gone", "replaced", "refused")]}
    service.documents["/jobschedules"] = {"value": [thing("s")]}
    service.documents["/pools"] = {"value": [thing("p")]}
    things = left(service)
    kept = {
        "/jobs/j": thing("j"), "/jobs/replaced": thing("replaced", "another"), "/jobs/refused": thing("refused"),
        "/jobschedules/s": thing("s"), "/pools/p": thing("p"),
    }  # fmt: skip
    service.documents.update(kept)
    service.status["/jobs/refused"] = 403
    results = {item.thing.id: error for item, _, error in leftovers.delete(service.client, things)}
    assert [name for name, error in results.items() if error is None] == ["j", "s", "p"]
    assert list(results) == ["j", "refused", "s", "p"]
    assert kept.keys() & service.documents.keys() == {"/jobs/replaced", "/jobs/refused"}


@pytest.mark.parametrize(
    ("record", "job", "task", "is_left"),
    [
        ("detached", "active", "completed", False),
        ("detached", "completed", "completed", True),
        ("running", "active", "running", False),  # lost: its process is gone, and its tasks run
        ("running", "active", "completed", True),
        ("running", "disabled", "active", False),
        ("running", "active", "behind a failed one", True),
        ("running", "completed", "active", True),
        ("interrupted", "active", "running", False),
        ("completed", "active", "completed", True),
    ],
)
def test_what_a_run_uses_is_left_once_its_job_on_the_service_has_ended(
    service: BatchServer, record: str, job: str, task: str, is_left: bool
) -> None:
    name = run_of(service.root, record)
    service.documents["/jobs"] = {"value": [thing("j", name, state=job)]}
    service.documents["/pools"] = {"value": [thing("p", name)]}
    tasks: list[Any] = [] if task == "completed" else [{"id": "t", "state": task}]  # the service filters them
    if task == "behind a failed one":
        failed = {"id": "f", "state": "completed", "executionInfo": {"result": "failure", "exitCode": 1}}
        tasks = [{"id": "t", "state": "active", "dependsOn": {"taskIds": ["f"]}}, failed]
    service.documents["/jobs/j/tasks"] = {"value": tasks}
    service.documents["/jobs/j"] = thing("j", name, state=job)
    name_of_count = "running" if task == "running" else "active"
    service.documents["/jobs/j/taskcounts"] = {"taskCounts": {name_of_count: 1}}
    assert [item.thing.id for item in left(service)] == (["j", "p"] if is_left else [])


@pytest.mark.parametrize(
    ("user", "is_left", "is_elsewhere"),
    [
        ({"state": "completed"}, True, False),
        ({"state": "active", "metadata": []}, False, False),
        ({"state": "active"}, True, True),  # it is listed, too
        ({"state": "active", "metadata": Marks("other", "you").metadata}, False, False),
    ],
    ids=["over", "of another program", "of another directory", "of another user"],
)
def test_a_pool_on_which_a_job_is_not_over_is_not_left(
    service: BatchServer, user: Any, is_left: bool, is_elsewhere: bool
) -> None:
    service.documents["/jobs"] = {"value": [thing("k", poolInfo={"poolId": "p"}) | user]}
    service.documents["/pools"] = {"value": [thing("p", run_of(service.root, "completed"))]}
    pools = [item for item in left(service, user="me") if item.thing.kind == "pool"]
    assert [item.elsewhere for item in pools] == [is_elsewhere] * is_left
