"""What a user does with a recipe: verbs one after the other."""

from __future__ import annotations

from tests.simulation.commands import (
    cli_changes,
    cli_data_get,
    cli_data_ingress,
    cli_data_rm,
    cli_jobs_enable,
    cli_jobs_follow,
    cli_jobs_recreate,
    cli_looks,
    cli_run_keep,
    cli_run_max_duration,
    cli_run_max_price,
    cli_runs_clean,
    cli_runs_restore,
    detach_controller,
    run_candidates,
    wait_detached,
)
from tests.simulation.mistakes import mistakes
from tests.simulation.programs import fetch_left, pool_add_candidates, pool_of_secrets, pool_resize, run_left, wait_left
from tests.simulation.workload import (
    MANY,
    Verb,
    Work,
    cli_data_down,
    cli_data_up,
    cli_jobs_add,
    cli_jobs_del,
    cli_jobs_fetch,
    cli_jobs_resubmit,
    cli_jobs_wait,
    cli_pool_add,
    cli_pool_del,
    cli_run,
    cli_run_detach,
    cli_run_reuse,
    cli_runs_attach,
    cli_runs_fetch,
    cli_runs_stop,
    fetch,
    fetch_from_lost_nodes,
    jobs_add,
    jobs_del,
    jobs_del_by_two,
    later,
    pool_add,
    pool_del,
    pool_del_by_two,
    requeue,
    run,
    run_by_two,
    run_reuse,
    schedule,
    terminate,
    wait,
)

STORIES: tuple[tuple[Verb, ...], ...] = (
    (run,),
    (run, run),
    (cli_run,),
    (cli_run, cli_run),
    (run_by_two, run_by_two),
    (run_reuse, run_reuse, jobs_del, pool_del),
    (cli_run_reuse, cli_run_reuse, cli_jobs_del, cli_pool_del),
    (cli_data_up, cli_data_down, cli_data_up, cli_data_down),
    (pool_add, jobs_add, wait, fetch, jobs_del, pool_del_by_two),
    (cli_pool_add, cli_jobs_add, cli_jobs_wait, cli_jobs_fetch, cli_jobs_del, cli_pool_del),
    (pool_add, jobs_add, jobs_add, requeue, wait, fetch, terminate, jobs_del, pool_del),
    (pool_add, jobs_add, cli_jobs_resubmit, cli_jobs_wait, terminate, fetch, jobs_del_by_two, pool_del_by_two),
    (pool_add, jobs_add, wait, requeue, fetch_from_lost_nodes, jobs_del, pool_del),
    (pool_add, schedule, pool_del),
)
STORIES_OF_MANY: tuple[tuple[Verb, ...], ...] = (
    (pool_add, jobs_add, jobs_add, wait, jobs_del, pool_del),
    (pool_add, jobs_add, wait, terminate, jobs_del_by_two, pool_del_by_two),
    (cli_pool_add, cli_jobs_add, cli_jobs_add, wait, cli_jobs_del, cli_pool_del),
)
"""Of a recipe with many tasks."""
DETACHED: tuple[tuple[Verb, ...], ...] = (
    (cli_run_detach, cli_runs_attach, cli_runs_fetch, cli_jobs_del),
    (cli_run_detach, later, cli_runs_attach),
    (cli_run_detach, later, cli_runs_fetch, later, cli_runs_stop, cli_runs_fetch),
    (cli_run_detach, later, cli_runs_stop, later, cli_runs_fetch),
) * 2
"""Of a recipe that a run without a client can have."""
FURTHER: tuple[tuple[Verb, ...], ...] = (
    (pool_add, jobs_add, cli_looks, wait, cli_looks, fetch, cli_looks,
     jobs_del, pool_del),
    (cli_pool_add, cli_jobs_add, cli_changes, cli_looks, cli_changes, cli_jobs_enable, cli_looks,
     cli_jobs_fetch, cli_jobs_del, cli_pool_del),
    (cli_pool_add, cli_jobs_follow, cli_looks, cli_jobs_recreate, cli_jobs_wait, cli_looks,
     cli_jobs_fetch, cli_jobs_del, cli_pool_del),
    (cli_run_keep, cli_looks, cli_runs_restore, cli_runs_clean),
    (cli_run, cli_looks, cli_looks, cli_runs_restore, cli_runs_clean),
    (cli_run_max_price, cli_looks, cli_runs_clean),
    (cli_run_max_duration, cli_runs_clean),
)  # fmt: skip
"""Stories of all recipes with few tasks."""
PROGRAMS: tuple[tuple[Verb, ...], ...] = (
    (cli_data_ingress, mistakes, cli_data_get, pool_of_secrets, cli_data_rm),
    (mistakes, run_left, fetch_left, wait_left, cli_looks, cli_runs_restore, cli_runs_clean),
    (pool_add_candidates, jobs_add, pool_resize, mistakes, wait, cli_looks, fetch, jobs_del, pool_del),
)
"""Stories of the Python API, of recipes with few tasks."""
MOVING: tuple[tuple[Verb, ...], ...] = (
    (run_candidates, cli_looks, cli_runs_restore, cli_runs_clean),
    (detach_controller, later, wait_detached, later, cli_runs_stop, wait_detached, cli_looks),
    (detach_controller, cli_runs_attach, wait_detached),
)
"""Stories of recipes whose job may move to another pool."""
ALL = (*STORIES, *STORIES_OF_MANY, *DETACHED, *FURTHER, *PROGRAMS, *MOVING)


def stories(work: Work) -> tuple[tuple[Verb, ...], ...]:
    """What a user may do with a recipe."""
    if work.total == MANY:
        return (*STORIES_OF_MANY, PROGRAMS[0])
    if "factory" in work.features:
        return (*STORIES, *PROGRAMS[:1] * 2)
    can_move = "gang" not in work.features
    return (*STORIES, *DETACHED, *FURTHER, *PROGRAMS * 2, *(MOVING * 3 if can_move else ()))
