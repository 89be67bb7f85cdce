"""How a pool ends that several runs use: who counts as a user, what is deleted, and what is left to the others."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import batchtrain
from batchtrain.client.jobs import Jobs
from batchtrain.client.placement import discard
from batchtrain.errors import NotFound
from batchtrain.plan.marks import ENDS_WITH, LAST_USER, USED_BY, Marks, values_of
from batchtrain.records.events import Event
from batchtrain.service import pool_users
from batchtrain.service.register import Register, Thing
from tests.unit.service.test_retry import Service, refusal

PACKAGE = Path(batchtrain.__file__).parent
DONE, CHANGED = (200, None), refusal("ConditionNotMet", 412)
DELETED = (202, None)
OWN = {"name": "mine", "value": "1"}


def pool(ends_with: str = "a", etag: str = "0x1", state: str = "active") -> Any:
    """The pool p, which the run a added."""
    return 200, {"id": "p", "eTag": etag, "state": state, "metadata": [OWN, *Marks("a", ends_with=ends_with).metadata]}


def job(run: str, state: str = "active", ends_with: str = "", pool_id: str = "p") -> Any:
    metadata = Marks(run, ends_with=ends_with).metadata
    info = {"poolInfo": {"poolId": pool_id}, "creationTime": "2026-11-22T12:00:00Z"}
    return {"id": f"job-{run}", "state": state, "metadata": metadata, **info}


def jobs(*documents: Any) -> Any:
    return 200, {"value": list(documents)}


USER = job("b", ends_with="b")


@pytest.mark.parametrize(
    ("document", "uses"),
    [
        (job("b"), True),
        (job(""), True),
        (job("b", "disabled"), True),
        (job("b", "completed"), False),
        (job("b", "completed", ends_with="b"), True),  # its results are fetched, and its run deletes it then
        (job("b", "deleting", ends_with="b"), False),
        (job("b", pool_id="q"), False),
        (job("a"), False),
    ],
)
def test_a_job_on_a_pool_uses_it_until_it_is_over(document: Any, uses: bool) -> None:
    users = pool_users.users(Service(jobs(document)).client, "P", {"a"})
    assert [user.job for user in users] == [document["id"]] * uses


ENDS: dict[str, tuple[list[Any], str, list[str], list[str]]] = {
    "its only user": ([pool(), jobs(), DELETED], "a", ["DELETE"], []),
    "handed over": ([pool(), jobs(USER), DONE, pool(LAST_USER), jobs(USER)], "a", ["PATCH"], ["b"]),
    "handed over while its last user ended": (
        [pool(), jobs(USER), DONE, pool(LAST_USER), jobs(), DELETED], "a", ["PATCH", "DELETE"], []),
    "used meanwhile": ([pool(), jobs(), CHANGED, pool(LAST_USER), jobs(USER)], "a", ["DELETE"], ["b"]),
    "deleted meanwhile": ([pool(), jobs(), refusal("PoolBeingDeleted")], "a", ["DELETE"], []),
    "changed and deleted meanwhile": ([pool(), jobs(), CHANGED, pool(state="deleting")], "a", ["DELETE"], []),
    "that is being deleted": ([pool(state="deleting")], "b", [], []),
    "by a user, before it is handed over": ([pool(), jobs()], "b", [], ["a"]),
    "by its last user": ([pool(LAST_USER), jobs(), DELETED], "b", ["DELETE"], []),
    "by a user before the last": ([pool(LAST_USER), jobs(job("c"))], "b", [], ["c"]),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "run", "changes", "others"), ENDS.values(), ids=ENDS)
def test_a_pool_goes_with_its_last_user(answers: list[Any], run: str, changes: list[str], others: list[str]) -> None:
    service = Service(*answers)
    assert [user.run for user in pool_users.end(service.client, "p", {run})] == others
    sent = [(method, headers) for method, _, headers in service.transport.sent if method != "GET"]
    assert [method for method, _ in sent] == changes
    assert {headers["If-Match"] for _, headers in sent} <= {'"0x1"'}
    assert len(service.asked) == len(answers)


@pytest.mark.parametrize(
    ("answers", "changes"),
    [
        ([pool(), DONE], 1),
        ([pool(), CHANGED, pool(), DONE], 2),
        ([pool(), CHANGED, pool(LAST_USER)], 1),
        ([pool("")], 0),
    ],
)
def test_a_pool_that_ends_with_its_run_is_handed_over_once(answers: Any, changes: int) -> None:
    service = Service(*answers)
    pool_users.hand_over(service.client, "p")
    bodies = [values_of(body["metadata"]) for body in service.bodies if body]
    assert len(service.asked) == len(answers)
    assert [body[ENDS_WITH] for body in bodies] == [LAST_USER] * changes


def test_the_other_metadata_of_a_pool_stays() -> None:
    service = Service(pool(), DONE)
    pool_users.join(service.client, "p", "b")
    values = values_of(service.bodies[-1]["metadata"])
    assert (values["mine"], values[ENDS_WITH], values[USED_BY]) == ("1", "a", "b")


@pytest.mark.parametrize(
    ("answers", "requests"),
    [([pool(""), DONE], 1), ([pool(), refusal("AuthorizationFailure", 403)], 2), ([pool(), CHANGED, pool(), DONE], 4)],
    ids=["that no run deletes", "that the identity may not change", "that has changed"],
)
def test_a_run_joins_a_pool(answers: Any, requests: int) -> None:
    service = Service(*answers)
    pool_users.join(service.client, "p", "b")
    assert len(service.asked) == requests


def test_a_run_does_not_join_a_pool_that_is_being_deleted() -> None:
    with pytest.raises(NotFound) as caught:
        pool_users.join(Service(pool(state="deleting")).client, "p", "b")
    assert caught.value.code in pool_users.POOL_GONE


@pytest.mark.parametrize(
    ("user", "end"),
    [(USER, "run b uses it; it is deleted when its last user ends"), (job(""), "batchtrain pool del p --local")],
)
def test_a_pool_that_stays_says_who_uses_it_and_how_it_ends(user: Any, end: str) -> None:
    users = pool_users.users(Service(jobs(user)).client, "p")
    assert pool_users.stays("p", users, " --local").endswith(end)


# --- who asks -------------------------------------------------------------------------------------------------------


def test_only_the_command_of_a_user_deletes_a_pool_without_asking_who_uses_it() -> None:
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    named_pool = 'request_named(self._client.batch, Thing("pool"'
    requests = ("delete_version(", "delete_version,", "delete_meant(", named_pool)
    assert [sorted(path for path, text in texts.items() if request in text) for request in requests] == [
        ["service/submit.py"],
        ["service/pool_users.py", "service/submit.py"],
        ["service/deletion.py", "service/submit.py"],
        ["client/pools.py"],
    ]


def test_the_pool_of_a_failed_candidate_stays_under_another_run() -> None:
    register, said = Register(Marks("a")), list[Event]()
    register.note(Thing("pool", "p"), "ours")
    service = Service(pool(), pool(), jobs(USER), DONE, pool(LAST_USER), jobs(USER))
    client: Any = SimpleNamespace(batch=service.client, account=SimpleNamespace(option=""))
    discard(client, "p", register, said.append)
    assert [event.text for event in said] == ["pool p stays: run b uses it; it is deleted when its last user ends"]
    assert not [request for request in service.transport.requests if request.method == "DELETE"]
    assert register.things() == ()


def test_a_completed_job_whose_run_fetches_its_results_is_not_tidied_up() -> None:
    documents = (job("b", "completed", ends_with="b"), job("a", "completed"), job("", "completed"))
    client: Any = SimpleNamespace(batch=Service(jobs(*documents)).client)
    ended = Jobs(client).ended_before(datetime(2026, 11, 29, tzinfo=timezone.utc))
    assert [job.id for job in ended] == ["job-a", "job-"]
