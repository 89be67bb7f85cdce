"""The commands of `batchtrain jobs`: their parameters, and the function of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click import UNPROCESSED, Choice, IntRange, argument, option

from batchtrain.cli.help import Action, Doors, Table, late_callback
from batchtrain.cli.parameters import WORDS_LAST, bundle, directory, ids, ranks, since, timeout
from batchtrain.service.deadlines import GONE_SECONDS, JOB_SECONDS, POOL_SECONDS

STATES = ("active", "running", "completed", "succeeded", "failed")
SCREEN = 1000
"""Tasks that a terminal shows by default."""
_numbers = late_callback("event_lines.numbers")
_job_id = argument("job_id", shell_complete=ids("jobs"))
_job_or_recipe = argument("job_id", required=False, shell_complete=ids("jobs"))
_task = argument("task", required=False)
_task_ids = argument("task_ids", metavar="[TASK]...", nargs=-1)
_first_running = option("--task", "task_id", help="The task. Default: the first that runs.")
_node = option("--node", metavar="NODE", help="Another node of the task: its id, or n1 for the second.")
_all_nodes = option("--all-nodes", is_flag=True, help="All nodes of the task.")
_running = option(
    "--running",
    type=Choice(["requeue", "terminate", "wait"]),
    default="requeue",
    show_default=True,
    help="What happens to running tasks.",
)


def _in_state(*states: str) -> Callable[[Any], Any]:
    return option("--state", type=Choice(states), help="All tasks in this state.")


COMMANDS: Table = {
    "add": Action(
        "jobs.add",
        directory,
        timeout(POOL_SECONDS, "Seconds to wait while the pool grows."),
        ranks,
        option(
            "-f", "--follow", is_flag=True, help="Show the output until the tasks have ended, and fetch the results."
        ),
        option("--recreate", is_flag=True, help="Delete the jobs first, if they exist."),
        option("--fail-fast", is_flag=True, help="Stop at the first refused task instead of adding the others."),
    ),
    "del": Action(
        "jobs.del_",
        _job_or_recipe,
        option("--no-wait", is_flag=True, help="Do not wait until the deletion has finished."),
    ),
    "diagnose": Action("diagnose.of_job", _job_or_recipe, argument("task_id", required=False), bundle),
    "disable": Action("jobs.disable", _job_or_recipe, _running),
    "enable": Action("jobs.enable", _job_or_recipe),
    "exec": Action(
        "logins.exec_",
        _first_running,
        _job_id,
        argument("words", metavar="COMMAND...", nargs=-1, required=True, type=UNPROCESSED),
        context_settings=WORDS_LAST,
    ),
    "fetch": Action(
        "job_files.fetch",
        _job_or_recipe,
        option("--all", "everything", is_flag=True, help="Also results that are larger than the limits of `results`."),
    ),
    "files": Action("job_files.files", _job_id, argument("task_id", required=False), _node, _all_nodes),
    "gc": Action(
        "job_operations.gc",
        option(
            "--older-than",
            "age",
            metavar="AGE",
            required=True,
            callback=late_callback("job_operations.age_of"),
            help="Since their end: 12h, 7d, 4w.",
        ),
        option("--dry-run", is_flag=True, help="Only list the jobs."),
        option("--no-wait", is_flag=True, help="Do not wait until the deletions have finished."),
    ),
    "get": Action(
        "job_files.get",
        _job_id,
        argument("words", metavar="[TASK] [PATTERN]...", nargs=-1),
        option("-d", "--directory", help="Where to put the files. Default: a directory named after the job."),
        _node,
        _all_nodes,
    ),
    "list": Action(
        "jobs.list_", option("--schedules", is_flag=True, help="List the job schedules instead of the jobs.")
    ),
    "logs": Action(
        "jobs.logs",
        _job_or_recipe,
        _task,
        option("--task", "task_id", help="The same as TASK. Default: the first task of the job."),
        option("--file", default="stdout.txt", show_default=True, help="The file, as `wd/train.log`."),
        option("-f", "--follow", is_flag=True, help="Follow the output until the task has ended."),
        option(
            "--rank", "ranks", callback=_numbers, metavar="N,N", help="Only lines of these ranks, such as 0,3 or 0-7."
        ),
        option("--node", "nodes", callback=_numbers, metavar="N,N", help="Only lines of these nodes, such as n1."),
        option(
            "--grep",
            "pattern",
            callback=late_callback("jobs.regular_expression"),
            metavar="REGEX",
            help="Only lines that match.",
        ),
        option("--since", callback=since, metavar="TIME", help="Only from then on: 10m ago, or 2027-01-31T09:00Z."),
        option(
            "--json", "as_json", is_flag=True, help="A JSON document for each line, with `rank` and `node`; -o jsonl."
        ),
        timeout(JOB_SECONDS, "Maximum seconds to follow."),
    ),
    "migrate": Action(
        "job_operations.migrate",
        _job_id,
        argument("pool_id", shell_complete=ids("pools")),
        _running,
        timeout(GONE_SECONDS),
    ),
    "resubmit": Action("job_operations.resubmit", _job_id, option("--failed", is_flag=True, help="The failed tasks.")),
    "show": Action("jobs.show_", _job_or_recipe),
    "stacks": Action("logins.stacks_", _first_running, _job_id, _task),
    "stats": Action("job_operations.stats", _job_id),
    "sweep": Action(
        "job_operations.sweep",
        _job_id,
        option("--metric", default="", metavar="NAME", help="A metric that the tasks print or write."),
        option("--max/--min", "highest", default=None, help="Whether the highest or the lowest value is the best."),
    ),
    "task": Doors(
        "Single tasks of a job: terminate, delete and reactivate. `jobs tasks` lists them.",
        {
            "del": Action("job_operations.del_", _job_id, _task_ids, _in_state(*STATES)),
            "reactivate": Action("job_operations.reactivate", _job_id, _task_ids, _in_state("failed")),
            "term": Action("job_operations.term", _job_id, _task_ids, _in_state("active", "running")),
        },
    ),
    "tasks": Action(
        "job_tasks.tasks",
        _job_or_recipe,
        option("--state", type=Choice(STATES), help="Only the tasks in this state."),
        option("--tail", type=IntRange(min=1), metavar="N", help="Only the N tasks whose state changed last."),
        option(
            "--limit",
            type=IntRange(min=1),
            metavar="N",
            help=f"At most N tasks. Default: all; {SCREEN} of them on a terminal.",
        ),
    ),
    "tensorboard": Action(
        "job_files.tensorboard",
        _job_or_recipe,
        option("--port", type=IntRange(1, 65535), default=6006, show_default=True, help="Port on 127.0.0.1."),
    ),
    "term": Action("jobs.term", _job_or_recipe),
    "wait": Action("jobs.wait", _job_or_recipe, timeout(JOB_SECONDS)),
    "watch": Action("jobs.watch", _job_or_recipe, ranks, timeout(JOB_SECONDS, "Maximum seconds to watch.")),
}
