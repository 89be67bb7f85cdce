"""A recipe as a notebook shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from batchtrain import markup
from batchtrain.config.masking import Written, masked_text, secrets_in
from batchtrain.config.task_resources import instances
from batchtrain.config.types.pool import Pool
from batchtrain.errors import Problem

SHOWN, LONGEST = 10, 160
"""Tasks of a job, and characters of a command."""
HEADS = ("job", "task", "nodes", "launch", "image", "command")


def card(directory: str, recipe: Written, warnings: Iterable[Problem]) -> str:
    """Its pool, its tasks and its warnings, without secrets."""
    texts = tuple(map(str, warnings))
    return markup.card(
        markup.head(f"recipe {directory.removesuffix('/config')}", note=_nodes(recipe.pool)),
        markup.table(HEADS, _rows(recipe)),
        markup.fold(f"{len(texts)} warnings", markup.pre("\n".join(texts))) if texts else "",
    )


def _rows(recipe: Written) -> Iterator[tuple[str, ...]]:
    """Each task in a line."""
    secrets = secrets_in(recipe)
    for job in recipe.jobs:
        for task in job.tasks[:SHOWN]:
            gang = task.multi_instance
            nodes = str(instances(str(gang.num_instances), recipe.pool) or gang.num_instances) if gang else ""
            default_id = "factory" if task.task_factory is not None else ""
            command = masked_text(task.command or "", secrets)
            yield (
                job.id, task.id or default_id, nodes, next((name for name, _ in gang.launches), "") if gang else "",
                task.docker_image or task.singularity_image or "",
                command if len(command) <= LONGEST else f"{command[:LONGEST]}…",
            )  # fmt: skip
        if len(job.tasks) > SHOWN:
            yield (job.id, f"and {len(job.tasks) - SHOWN:,} more tasks", "", "", "", "")


def _nodes(pool: Pool | None) -> str:
    """A pool in a sentence."""
    if pool is None:
        return "no pool"
    count = pool.vm_count
    spot = f", {count.low_priority} of them spot" if count.low_priority else ""
    return f"pool {pool.id}: {count.total} × {pool.vm_size}{spot}"
