"""The controller of a detached run: what it costs, what it runs, and what is refused before anything is created."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from batchtrain.catalog.prices import Prices
from batchtrain.client import controller, controller_program
from batchtrain.client.controller_program import Controller, Requests
from batchtrain.client.detach import bounded
from batchtrain.client.operations import Operations
from batchtrain.config.types import Alternative, Candidates, Recipe
from batchtrain.errors import UsageError
from batchtrain.plan import plan_jobs, plan_pool
from batchtrain.plan.marks import Marks
from batchtrain.plan.types import Facts, Plan
from batchtrain.service.connect import Account
from tests.unit.plan.jobs import recipe
from tests.unit.runs import batch_server
from tests.unit.runs.batch_server import START, BatchServer

IDENTITY = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
AZURE = Account("https://a.westeurope.batch.azure.com", "a")
DIGEST = "0" * 64
PRICES = Prices("westeurope", "USD", {"STANDARD_D2AS_V5": 0.1, "STANDARD_D2LS_V5": 0.2})


def of(**candidates: Any) -> Recipe:
    made = recipe({})
    assert made.pool is not None
    options = Candidates(**{"alternatives": (Alternative(vm_size="STANDARD_D8S_V5"),), "recover": True, **candidates})
    return replace(made, pool=replace(made.pool, candidates=options), catalog=made.catalog._replace(prices=(PRICES,)))


def foresee(made: Recipe, account: Account = AZURE) -> controller.Overseer:
    client: Any = SimpleNamespace(account=account)
    return controller.foresee(client, made)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (recipe({}), "write `candidates` with `recover: true` in pool.yaml"),
        (of(recover=False), "write `candidates` with `recover: true` in pool.yaml"),
        (of(alternatives=(Alternative(account="west"),)), r"candidates name others \(west\)"),
        (of(), "write its resource id as `candidates.controller_identity`"),
    ],
)
def test_what_cannot_be_moved_is_refused_with_the_way_out(made: Recipe, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        foresee(made)


def test_the_emulator_needs_no_identity() -> None:
    assert foresee(of(), AZURE._replace(emulated=True)).pool.identities == ()


def test_its_node_has_the_cheapest_size_whose_price_is_reported() -> None:
    made = of(controller_identity=IDENTITY)
    overseer = foresee(made)
    assert overseer.pool.vm_size == "STANDARD_D2AS_V5"
    assert "1 node hours of STANDARD_D2AS_V5 (1 dedicated, 0 spot)" in overseer.remark(made, "westeurope")
    assert "0.1" in overseer.remark(made, "westeurope")


def test_its_pool_has_the_identity_and_no_node_when_nothing_runs() -> None:
    made = of(controller_identity=IDENTITY)
    steps = plan_pool(replace(made, pool=foresee(made).pool)).steps
    identity, grows = steps[-2:]
    assert identity.document == {"identities": [IDENTITY]}
    assert "$TargetDedicatedNodes = busy > 0 ? 1 : 0;" in grows.document["autoScaleFormula"]


def test_its_task_on_azure_installs_what_batchtrain_requires_and_not_batchtrain() -> None:
    made = of(controller_identity=IDENTITY)
    there = foresee(made).recipe_of(made, 3600, "20261126T000000Z-job-0000", "link", DIGEST, emulated=False)
    [job] = there.jobs
    line = str(job.tasks[0].command)
    assert "venv/bin/pip install --quiet" in line
    assert "azure-batch<16,>=15.1" in line
    assert " batchtrain" not in line.partition("pip install")[2].partition("&&")[0]
    [addition] = [step for step in plan_jobs(there, Facts()).steps if step.action == "job.add"]
    assert addition.document["constraints"]["maxWallClockTime"] == "PT1H"


@pytest.mark.parametrize("emulated", [True, False])
def test_a_program_with_another_digest_is_not_unpacked_or_started(tmp_path: Path, emulated: bool) -> None:
    made = of(controller_identity=IDENTITY)
    digest = hashlib.sha256(b"the program").hexdigest()
    [job] = foresee(made).recipe_of(made, 3600, "20261126T000000Z-job-0000", "link", digest, emulated=emulated).jobs
    (tmp_path / "controller").mkdir()
    (tmp_path / controller.PACKAGE).write_bytes(b"hostile")
    ended = subprocess.run(
        ["bash", "-c", str(job.tasks[0].command)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "controller/batchtrain.zip: FAILED" in ended.stdout
    assert [path.name for path in tmp_path.rglob("*")] == ["controller", "batchtrain.zip"]


def test_the_job_of_a_run_has_a_pool_of_its_own_at_each_candidate() -> None:
    made = of(controller_identity=IDENTITY)
    sizes = []
    for option in foresee(made).options:
        plan = plan_jobs(replace(option.recipe, jobs=(bounded(made.jobs[0], 60),)), Facts())
        [addition] = [step for step in plan.steps if step.action == "job.add"]
        sizes.append(addition.document["poolInfo"]["autoPoolSpecification"]["pool"]["vmSize"])
    assert sizes == [made.pool.vm_size if made.pool else "", "STANDARD_D8S_V5"]


# --- what its program does ------------------------------------------------------------------------------------------

ADDITION = ("job.add", "j", {"id": "j", "constraints": {"maxWallClockTime": "PT10M"}})
COMPLETION = ("job.complete", "j", {"onAllTasksComplete": "terminatejob", "constraints": {"maxWallClockTime": "PT1H"}})
CONTROLS = Requests(
    job="j",
    marks=Marks("A"),
    patience=1.0,
    candidates=("first", "second"),
    requests=((ADDITION, COMPLETION), (ADDITION, COMPLETION)),
)


class Added(Exception):
    """The request that adds the job is not sent here."""


@pytest.fixture
def world() -> Iterator[BatchServer]:
    """The job of a controller, which has added run A's job at its first candidate and is to move it to the second."""
    service = BatchServer()
    with batch_server.serve(service):
        service.job(job_id="j-controller", ended=None)
        service.documents["/jobs/j-controller"] |= {
            "constraints": {"maxWallClockTime": "PT1H"},
            "metadata": [{"name": controller_program.CANDIDATE, "value": "1"}],
        }
        service.job(ended=None)
        service.documents["/jobs/j"]["metadata"] = [{"name": "batchtrain:run", "value": "A"}]
        yield service


def control(service: BatchServer) -> None:
    Controller(Operations(service.account), CONTROLS, "j-controller", lambda event: None).control()


def test_a_job_whose_addition_was_cut_short_is_added_again_at_its_candidate(
    world: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[str]()
    world.documents["/jobs/j-controller"]["metadata"] = []

    def delete(controller: Controller) -> None:
        steps.append("delete")
        controller._has_deleted = True
        del world.documents["/jobs/j"]

    def add(_: Controller) -> None:
        raise Added

    monkeypatch.setattr(Controller, "_delete", delete)
    monkeypatch.setattr(Controller, "_add", add)
    monkeypatch.setattr(controller_program.job_actions, "is_whole", lambda _: False)
    with pytest.raises(Added):
        control(world)
    assert steps == ["delete"]


def test_the_job_of_another_run_is_not_moved(world: BatchServer) -> None:
    world.documents["/jobs/j"]["metadata"] = [{"name": "batchtrain:run", "value": "B"}]
    control(world)
    assert {request.split()[0] for request in world.asked} == {"GET"}


@pytest.mark.parametrize(
    ("minutes", "at_first", "limit"), [(5, "PT10M", "PT55M"), (45, "PT10M", "PT15M"), (55, "PT5M", "PT5M")]
)
def test_a_job_that_is_moved_gets_the_rest_of_its_time(
    world: BatchServer, monkeypatch: pytest.MonkeyPatch, minutes: int, at_first: str, limit: str
) -> None:
    plans: list[Plan] = []

    def submit(_: object, plan: Plan, *arguments: Any, **options: Any) -> Iterator[Any]:
        plans.append(plan)
        raise Added

    monkeypatch.setattr(controller_program, "now", lambda: START + timedelta(minutes=minutes))
    monkeypatch.setattr(controller_program.submit, "submit", submit)
    with pytest.raises(Added):
        control(world)
    [[addition, completion]] = [plan.steps for plan in plans]
    assert addition.document["constraints"] == {"maxWallClockTime": at_first}
    assert completion.document["constraints"] == {"maxWallClockTime": limit}
    assert addition.document["metadata"] == [{"name": controller_program.CANDIDATE, "value": "1"}]
