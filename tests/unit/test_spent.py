"""What the account has cost beside the runs that are recorded here, and the budget before a command creates nodes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Hour, Price, Prices
from batchtrain.cli import connecting
from batchtrain.cli.connecting import check_budget
from batchtrain.cli.options import Settings
from batchtrain.client.client import Client
from batchtrain.config import user_settings
from batchtrain.config.types import Recipe
from batchtrain.errors import LimitReached
from batchtrain.plan.marks import Marks
from batchtrain.runs import directory, spent
from batchtrain.runs.directory import Cost, RunRecord
from tests.unit.runs.batch_server import START, BatchServer, moment, serve

CATALOG = Catalog(prices=(Prices("westeurope", "EUR", {"Standard_D4s_v5": 0.25}, {"Standard_D4s_v5": 0.05}),))
ENDPOINT = "https://acct.westeurope.batch.azure.com"
HOUR = timedelta(hours=1)


def account_with_a_pool(run: str) -> BatchServer:
    """A pool of a run, with two dedicated nodes since START."""
    service = BatchServer()
    nodes = [{"id": f"n{n}", "allocationTime": moment(0), "isDedicated": True} for n in "12"]
    service.pool(*nodes, metadata=Marks(run, "ada", "host").metadata)
    service.documents["/pools"] = {"value": [service.documents["/pools/p"]]}
    return service


def recorded(root: Path, began: int, ended: int | None, pool: str = "p", hours: float = 2.0) -> str:
    """The name of a run with an hour of 2 EUR, by the hours at which it began and ended."""
    run = directory.make(root, "j", START + began * HOUR)
    cost = Cost(currency="EUR", region="westeurope", dedicated=1.0, spot=None, hour=2.0, run=hours if ended else None)
    values = {"state": "completed" if ended else "detached", "ended": START + ended * HOUR if ended else None}
    run.write(RunRecord(id=run.name, started=START + began * HOUR, job="j", pool=pool, endpoint=ENDPOINT, nodes=2,
                        node_hours=hours, cost=cost, **values))  # fmt: skip
    return run.name


def test_time_of_a_pool_with_several_runs_counts_once(tmp_path: Path) -> None:
    for began, ended in ((0, 10), (0, 10), (5, 20)):
        recorded(tmp_path, began, ended, hours=2.0 * (ended - began))
    recorded(tmp_path, 0, 1, pool="other", hours=2.0)
    runs = spent.of_runs(tmp_path, START + 30 * HOUR)
    assert sorted(round(expense.cost or 0.0, 6) for expense in runs.expenses) == [0.0, 2.0, 20.0, 20.0]


def test_a_run_that_began_earlier_counts_from_the_given_time_on(tmp_path: Path) -> None:
    recorded(tmp_path, 0, 4, hours=8.0)
    recorded(tmp_path, 0, 1, pool="q")
    (expense,) = spent.of_runs(tmp_path, START + 9 * HOUR, START + 3 * HOUR).expenses
    assert expense.cost == 2.0


@pytest.mark.parametrize(("began", "ended", "costs"), [(0, 3, [0.5]), (0, None, []), (None, None, [2.0])])
def test_the_nodes_of_a_pool_count_from_the_end_of_its_runs(
    tmp_path: Path, began: int | None, ended: int | None, costs: list[float]
) -> None:
    if began is not None:
        recorded(tmp_path, began, ended)
    service, now = account_with_a_pool("r"), START + 4 * HOUR
    account = service.account._replace(endpoint=ENDPOINT)
    with serve(service) as client:
        counted = spent.of_runs(tmp_path, now).counted_until
        pools = list(spent.of_account(client, account, CATALOG, counted, now))
    assert [(pool.user, pool.job, pool.cost) for pool in pools] == [("ada", "pool p", cost) for cost in costs]


def test_a_pool_that_goes_meanwhile_costs_no_error() -> None:
    service = account_with_a_pool("r")
    service.status["/pools/p/nodes"] = 404
    with serve(service) as client:
        assert not list(spent.of_account(client, service.account, CATALOG, {}, START))


@pytest.fixture
def two_hours_of_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Check a recipe whose pool costs 1 EUR an hour; 1 EUR of this month is spent."""
    price = Price("Standard_D4s_v5", "westeurope", "EUR", 0.25, None)
    monkeypatch.setattr(connecting, "hour_of", lambda _: Hour("p", "Standard_D4s_v5", 4, 0, price))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(connecting, "now", lambda: START + timedelta(hours=2))

    def check(month: str, *, strict: bool) -> None:
        if month:
            user_settings.store("budget.month", month)
        service = account_with_a_pool("r")
        account = service.account._replace(endpoint=ENDPOINT)
        with serve(service) as client:
            connection = cast(Client, SimpleNamespace(batch=client, account=account))
            settings = Settings(strict_budget=strict, runs_dir=str(tmp_path / "runs"))
            with click.Context(click.Command("run"), obj=settings):
                check_budget(connection, Recipe(directory="", catalog=CATALOG))

    return check


def test_a_command_that_would_exceed_the_budget_warns(
    two_hours_of_two_nodes: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    two_hours_of_two_nodes("1.5", strict=False)
    assert "the budget of this month is 1.50 EUR: 1.00 EUR are spent" in " ".join(capsys.readouterr().err.split())


def test_a_command_that_would_exceed_the_budget_is_refused_if_that_is_wanted(two_hours_of_two_nodes: Any) -> None:
    with pytest.raises(LimitReached, match="Nothing was created"):
        two_hours_of_two_nodes("1.5", strict=True)


@pytest.mark.parametrize("month", ["", "3"])
def test_what_fits_the_budget_is_not_mentioned(
    two_hours_of_two_nodes: Any, month: str, capsys: pytest.CaptureFixture[str]
) -> None:
    two_hours_of_two_nodes(month, strict=True)
    assert not capsys.readouterr().err
