"""What the runs of this machine, and the pools of the account that no run here explains, have cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from azure.batch import BatchClient

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Price
from batchtrain.plan.marks import marks_of
from batchtrain.records import Node, Pool, node_cost, node_hours
from batchtrain.runs import directory, spending
from batchtrain.runs.spending import Expense
from batchtrain.service import read
from batchtrain.service.connect import Account, loopback

Times = Mapping[tuple[str, str], datetime]
"""By the endpoint of an account and a pool: until when the cost of its nodes is counted."""


class Runs(NamedTuple):
    """What the runs of a directory have cost, and until when the nodes of each pool are counted in it."""

    expenses: tuple[Expense, ...]
    counted_until: Times


def of_runs(root: Path, now: datetime, since: datetime | None = None) -> Runs:
    """What the runs that are recorded below `root` have cost since a time. Each has the cost of all nodes of its pool,
    so that time of a pool with several runs counts once, for the run that began first. A run on the emulator costs
    nothing and is left out, and so is one that cannot be read."""
    expenses, counted = list[Expense](), dict[tuple[str, str], datetime]()
    records = [
        (record, (run.labels_or_none() or directory.Labels()).tags)
        for run in directory.runs(root)
        if (record := run.record_or_none())
    ]
    for record, tags in sorted(records, key=lambda item: item[0].started):
        end, pool = record.ended or now, (record.endpoint, record.pool)
        if loopback(record.endpoint) or (since is not None and end < since):
            continue
        begin = max(filter(None, (record.started, since, counted.get(pool))))
        expense = spending.of_run(record, tags, now).since(begin, record.started, end)
        expenses.append(expense)
        if expense.cost is not None and record.pool:
            counted[pool] = max(end, begin)
    return Runs(tuple(expenses), counted)


def of_account(
    client: BatchClient,
    account: Account,
    catalog: Catalog,
    counted_until: Times,
    now: datetime,
    since: datetime | None = None,
) -> Iterator[Expense]:
    """What the pools of the account with the mark of a run have cost since a time, and since they are not counted in
    runs: by the nodes that they have. What they had before is not known, nor are pools that were deleted."""
    for pool in read.pools(client, read.MARKED_POOL):
        marks, counted = marks_of(pool.metadata), counted_until.get((account.endpoint, pool.id))
        if not marks.run or counted == now:
            continue
        begin = max(filter(None, (since, counted)), default=None)
        nodes = read.nodes_or_none(client, pool.id)
        if nodes is not None:  # it was not deleted meanwhile
            price = catalog.price(pool.vm_size, account.region or "")
            yield _of_nodes(pool, nodes, price, now, begin)._replace(user=marks.user)


def of_month(client: BatchClient, account: Account, catalog: Catalog, root: Path, now: datetime) -> Iterator[Expense]:
    """What the runs below `root` and the pools of the account have cost in this month."""
    begin = datetime(now.year, now.month, day=1, tzinfo=now.tzinfo)
    runs = of_runs(root, now, begin)
    yield from runs.expenses
    yield from of_account(client, account, catalog, runs.counted_until, now, begin)


def _of_nodes(pool: Pool, nodes: Sequence[Node], price: Price | None, now: datetime, since: datetime | None) -> Expense:
    cost = node_cost(nodes, price, now, since=since) if price is not None else None
    return Expense(
        tags=(),
        user="",
        job=f"pool {pool.id}",
        size=pool.vm_size,
        node_hours=node_hours(nodes, now, since=since),
        cost=cost,
        currency=price.currency if price is not None else "",
        why_unknown="" if cost is not None else f"{spending.UNPRICED} of {pool.vm_size}",
    )
