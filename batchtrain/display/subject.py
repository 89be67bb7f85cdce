"""The view of what is about to run: a recipe, or a job or pool whose recipe is not at hand."""

from __future__ import annotations

import time
from datetime import datetime

from batchtrain.config.types import Recipe
from batchtrain.display.live_view import RECENT, View
from batchtrain.plan.cost import price_of
from batchtrain.service.connect import Account

SHOWN_RANKS = 4
"""Rows for ranks, if nothing tells how many there are."""


def view_of(
    account: Account, recipe: Recipe | None, title: str = "", *, recent: int = RECENT, began: datetime | None = None
) -> View:
    """The view of a recipe's pool and jobs. Without a recipe the ranks show themselves by their lines.

    recent: the number of values of a metric for its curve.
    """
    target = "emulator" if account.emulated else f"Azure {account.name}"
    ranks, price, many = SHOWN_RANKS, None, False
    if recipe is not None:
        pool, jobs, ranks = recipe.pool, recipe.jobs, _ranks(recipe)
        many = any(task.task_factory for job in jobs for task in job.tasks) or sum(len(job.tasks) for job in jobs) > 1
        title = " ".join(job.id for job in jobs[:2]) or (pool.id if pool else "")
        target = f"pool {pool.id} · {target}" if pool and jobs else target
        price = price_of(recipe, account.region)
    return View(
        title,
        target,
        began.timestamp() if began else time.time(),
        ranks=ranks,
        many=many,
        emulated=account.emulated,
        recent=recent,
        price=price,
        joins=recipe is None,
    )


def _ranks(recipe: Recipe) -> int:
    """The ranks of the only gang of a recipe; 0 if there is none, or if only the nodes know."""
    gangs = [task.multi_instance for job in recipe.jobs for task in job.tasks if task.multi_instance]
    if len(gangs) != 1:
        return 0
    count = recipe.pool.vm_count.total if recipe.pool else 0
    nodes = int(gangs[0].num_instances) if str(gangs[0].num_instances).isdigit() else count
    each = next((block.processes_per_node or getattr(block, "each", 1) for _, block in gangs[0].launches), 1)
    if each == "auto":  # one per GPU
        size = recipe.catalog.size(recipe.pool.vm_size) if recipe.pool else None
        return nodes * (size.gpus or 1) if size else 0
    return nodes * (int(each) if str(each).isdigit() else 1)
