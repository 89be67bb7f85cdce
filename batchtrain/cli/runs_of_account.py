"""`batchtrain runs cost` and `runs clean`: what runs cost, and what they left in the account."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from batchtrain.cli.connecting import connect
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show_rows
from batchtrain.cli.run_directories import runs_root
from batchtrain.client import account_runs
from batchtrain.config import catalog_file
from batchtrain.runs import leftovers, spending, spent
from batchtrain.runs.lease import user
from batchtrain.runs.recording import now
from batchtrain.runs.spending import By


def cost(by: By, since: datetime, account: bool) -> None:
    """What the runs of this directory have cost since a time, by the prices of the catalogue.

    A run that has not ended counts with an hour of all its nodes for each hour until now. With --account, a pool of a
    run that is not recorded here counts with the nodes that it has. Pools that were deleted without a run directory
    here are not counted, and runs on the emulator cost nothing.
    """
    end = now()
    runs = spent.of_runs(runs_root(), end, since)
    expenses = list(runs.expenses)
    if account:
        catalog = catalog_file.load(Path(settings().configdir or "."))
        client = connect()
        expenses += spent.of_account(client.batch, client.account, catalog, runs.counted_until, end, since)
    nothing = f"no runs with costs since {since:%Y-%m-%d %H:%M} UTC in {runs_root()}"
    show_rows(spending.rows(expenses, by) if expenses else (), empty=nothing)


def clean(all_users: bool, older_than: float | None, elsewhere: bool) -> None:
    """List the pools and jobs that runs left in the account, and delete them after a question.

    What a living run of this directory uses is left out: a run that a process records, whose tasks have not all ended,
    or, detached, whose job is not over; and so is a pool on which any other job is not over. What belongs to a run of
    another directory or machine is listed, and stays without --elsewhere: that run may be alive. The column `results`
    says whether the results of a job are in its run directory.
    """
    client = connect()
    catalog = catalog_file.load(Path(settings().configdir or "."))
    mine = None if all_users else user()
    things = leftovers.leftovers(
        client.batch, client.account, runs_root(), catalog, now(), user=mine, older_than=older_than or 0.0
    )
    show_rows([item.row for item in things], empty="nothing was left")
    others = 0 if elsewhere else sum(item.elsewhere for item in things)
    if others:
        runs = f"runs that are not in {runs_root()}"
        say(f"{others} of them belong to {runs} and may be alive; --elsewhere deletes them too")
    things = tuple(item for item in things if elsewhere or not item.elsewhere)
    if not things:
        return
    unsaved_count = sum(item.row.results == "not here" for item in things)
    warning = f" ({unsaved_count} with results that are not on this machine)" if unsaved_count else ""
    confirm(f"Delete {'it' if len(things) == 1 else f'all {len(things)}'}{warning}?")
    failure = None
    for item, text, error in leftovers.delete(client.batch, things):
        failure = error or failure
        say(text)
        if item.is_controller:
            account_runs.forget_requests(client, item.marks.run)
    if failure is not None:
        raise failure
