"""A verification whose pools fail: each costs its own observations, and its failure is an observation itself."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.catalog.offer import Catalog
from batchtrain.client.operations import Operations
from batchtrain.client.run import Outcome
from batchtrain.config.types import Secret
from batchtrain.errors import LimitReached, QuotaReached, ServiceError, Unreachable
from batchtrain.records import Table
from batchtrain.records.events import JobAdding, Leftover, NodeRebooted, RunRecorded
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.recording import Origin
from batchtrain.service.connect import Account
from batchtrain.verify import verification
from batchtrain.verify.probe import DIFFERS, HOLDS, NOT_ASKED
from batchtrain.verify.probes import AREAS
from batchtrain.verify.report_page import page
from batchtrain.verify.shared_pools import work_of
from batchtrain.verify.verification import Report, Settings, Verification


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this machine is an hour ahead of the service's, which is asked nothing."""
    monkeypatch.setattr(verification.read, "clock_skew", lambda client: 3600.0)


SHARED = ("host", "container")


def report(
    tmp_path: Path, image: str | None = "image", budget: float | None = None, kinds: tuple[str, ...] = SHARED
) -> Report:
    size = Catalog().size("Standard_D4s_v5")
    assert size is not None
    account = Account("https://name.westeurope.batch.azure.com", "name", Secret("a2V5"))
    works = [work for work in work_of(size, 2, AREAS, None, image=image) if work.kind.name in kinds]
    settings = Settings(2, image, budget, "no image: give --image", {"spot-bill": True})
    origin = Origin(tmp_path)
    return Verification(Operations(account), works, settings, lambda event: None, origin).report(size, AREAS)


def answer(report: Report, probe: str) -> tuple[str, str]:
    return next((row.judgement, row.detail) for row in report.judgements if row.probe == probe)


def failing(*_: Any, **options: Any) -> Outcome:
    raise QuotaReached("no cores are left", operation="add pool", code="AccountCoreQuotaReached")


def test_a_pool_that_is_refused_costs_its_own_observations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "run", failing)
    seen = report(tmp_path)
    assert answer(seen, "allocation") == (DIFFERS, '"AccountCoreQuotaReached"')
    assert answer(seen, "clocks") == (NOT_ASKED, "pool verify-host-d4s-v5: no cores are left")
    assert answer(seen, "fraction")[0] == NOT_ASKED
    assert answer(seen, "spot-bill") == (HOLDS, "")
    assert seen.count(HOLDS) == 1


@pytest.mark.parametrize(
    ("code", "is_rebooted", "judgement"),
    [
        ("NodeStateUnusable", True, HOLDS),
        ("OperationInvalidForCurrentState", False, DIFFERS),
        ("AccountCoreQuotaReached", False, NOT_ASKED),
    ],
)
def test_the_reboot_of_an_unusable_node_is_an_observation(
    code: str, is_rebooted: bool, judgement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, tell: Any, **options: Any) -> Outcome:
        if is_rebooted:
            tell(NodeRebooted("p", "rebooted"))
        raise ServiceError("a node is unusable: ContainerInvalidImage", code=code)

    monkeypatch.setattr(verification, "run", run)
    seen = report(tmp_path, kinds=("image",))
    assert answer(seen, "unusable-reboot")[0] == judgement
    if is_rebooted:
        assert answer(seen, "unusable-image")[0] == HOLDS


def test_without_an_image_its_probes_are_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "run", failing)
    seen = report(tmp_path, image=None)
    assert answer(seen, "container-sshd") == (NOT_ASKED, "no image: give --image")
    assert answer(seen, "image-built") == (NOT_ASKED, "no image: give --image")


def test_what_could_not_be_deleted_is_in_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ServiceError("pool verify could not be deleted; delete by: batchtrain pool del verify")
    runs = (RunDirectory(tmp_path / "run"),)
    monkeypatch.setattr(verification, "run", lambda *_, **options: Outcome(Table(), None, problem, runs))
    assert report(tmp_path).leftovers == (str(problem), str(problem))


def test_what_a_failed_pool_leaves_is_the_first_section_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "pool verify was not deleted (in use); delete it: batchtrain pool del verify"

    def leaving(*_: Any, **options: Any) -> Outcome:
        options["tell"](Leftover("pool verify", text))
        return failing()

    monkeypatch.setattr(verification, "run", leaving)
    seen = report(tmp_path)
    assert seen.leftovers == (text, text)
    lines = page(seen).splitlines()
    assert next(line for line in lines if line.startswith("## ")) == "## Not deleted"
    assert f"- {text}" in lines


def test_every_pool_is_expendable_and_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[SimpleNamespace] = []

    def run(client: Any, recipe: Any, **options: Any) -> Outcome:
        calls.append(SimpleNamespace(recipe=recipe, **options))
        return failing()

    monkeypatch.setattr(verification, "run", run)
    report(tmp_path)
    for call in calls:
        assert call.intent.is_expendable
        assert call.limits.seconds == 3600
        (text,) = re.findall(r'time\(\) < time\("(.*)"\)', call.recipe.pool.autoscale.formula)
        left = datetime.fromisoformat(text.replace("Z", "+00:00")) - datetime.now(timezone.utc)
        assert abs(left) < timedelta(minutes=5), "an hour from now, by the clock of the service"


def test_the_page_shows_differences_first_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "run", failing)
    lines = page(report(tmp_path)).splitlines()
    assert lines[0].startswith("# Standard_D4s_v5 in westeurope, ")
    assert [line for line in lines if line.startswith("## ")] == ["## Differs", "## Could not be asked", "## Holds"]
    assert '| first-failures | allocation | "AccountCoreQuotaReached" | batchtrain/plan/pool.py' in "\n".join(lines)


def test_an_error_that_says_nothing_about_azure_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: Any, **options: Any) -> Outcome:
        raise Unreachable("the account does not answer", operation="add pool")

    monkeypatch.setattr(verification, "run", unreachable)
    assert answer(report(tmp_path), "allocation") == (NOT_ASKED, "the account does not answer")


def test_an_unusable_node_is_judged_by_its_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unusable(*_: Any, **options: Any) -> Outcome:
        text = "node n of pool verify is unusable: ContainerInvalidImage: no such tag"
        raise ServiceError(text, operation="start node", code="NodeStateUnusable")

    monkeypatch.setattr(verification, "run", unusable)
    assert answer(report(tmp_path), "image-built")[0] == DIFFERS


def test_a_failure_after_the_nodes_are_ready_is_none_of_the_allocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: Any, **options: Any) -> Outcome:
        options["tell"](JobAdding("job", "adding job"))
        raise ServiceError("the job is refused", operation="add job")

    monkeypatch.setattr(verification, "run", late)
    seen = report(tmp_path)
    assert answer(seen, "allocation") == (HOLDS, "")
    assert answer(seen, "clocks") == (NOT_ASKED, "pool verify-host-d4s-v5: the job is refused")


def test_a_node_whose_observations_are_missing_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run" / "outputs" / "host" / "n0"
    folder.mkdir(parents=True)
    (folder / "observed-node.json").write_text('{"python": {"version": [3, 12], "venv": true}}', encoding="utf-8")
    runs = (RunDirectory(tmp_path / "run"),)
    monkeypatch.setattr(verification, "run", lambda *_, **options: Outcome(Table(), runs=runs))
    assert answer(report(tmp_path), "node-python") == (NOT_ASKED, "n1: its observations were not fetched")


def test_at_the_limit_of_time_the_fetched_observations_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = '{"python": {"version": [3, 12], "venv": true}}'
    for node, text in (("n0", python), ("n1", '{"python": {"ver')):
        folder = tmp_path / "run" / "outputs" / "host" / node
        folder.mkdir(parents=True)
        (folder / "observed-node.json").write_text(text, encoding="utf-8")
    admin = tmp_path / "run" / "outputs" / "admin" / "n0"
    admin.mkdir(parents=True)
    (admin / "observed-task.json").write_text('{"metadata": {"events": true, "name": "x"}}', encoding="utf-8")

    def limited(*_: Any, **options: Any) -> Outcome:
        options["tell"](RunRecorded("verify", run="run"))
        raise LimitReached("the time is over")

    monkeypatch.setattr(verification, "run", limited)
    seen = report(tmp_path)
    assert seen.observations["admin"]["nodes"]["n0"]["metadata"]["events"] is True
    assert answer(seen, "node-python") == (NOT_ASKED, "n1: its file is not whole")
    assert answer(seen, "fraction") == (NOT_ASKED, "pool verify-host-d4s-v5: the time is over")
