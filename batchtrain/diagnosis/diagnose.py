"""Reads what a diagnosis needs: a job, its first failed or waiting tasks, its pool, and the end of their output."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timezone

from azure.batch import BatchClient

from batchtrain.config.travel import LeftOut
from batchtrain.diagnosis.evidence import Evidence, ExaminedNode, ExaminedTask
from batchtrain.diagnosis.finding import Diagnosis
from batchtrain.diagnosis.findings import judged
from batchtrain.errors import BatchtrainError, Finding, NotFound
from batchtrain.life import rules
from batchtrain.life.seen import Seen
from batchtrain.metrics.stream import RECORDS, Line
from batchtrain.records import Attempt, Job, Node, Pool, Task
from batchtrain.records.attempt import attempts_of, number_of, with_reasons
from batchtrain.records.rank_end import ENDS, RankEnd, first_failure
from batchtrain.service import observe, read
from batchtrain.service.attempts import events_of
from batchtrain.service.causes import cause
from batchtrain.service.downloads import Tree, node_tree, task_tree
from batchtrain.service.files import end_of, last_lines, records
from batchtrain.service.tasks import FAILED

TASKS = 20
"""Tasks that are examined: the first failed tasks, otherwise some that wait or run."""
NODES = 5
"""Nodes whose start task's output is read."""
LINES = 2000
EARLY = 1 << 16
"""Bytes of the records of a gang in which the warnings of its launch are: its ranks print after them."""
NOT_ENDED = "state eq 'active' or state eq 'running'"
LATEST = datetime.max.replace(tzinfo=timezone.utc)


def job(
    client: BatchClient,
    job_id: str,
    task_id: str | None = None,
    hints: tuple[str, ...] = (),
    logs: str = "",
    seen: tuple[Attempt, ...] = (),
    left_out: tuple[LeftOut, ...] = (),
) -> Diagnosis:
    """The diagnosis of a job, or of one of its tasks. Raises NotFound. Changes nothing.

    hints: why its tasks wait, as far as the emulator knows it. logs: the directory of this machine that keeps the
    output of its tasks. seen: the attempts of its tasks that a run directory has. left_out: the files of its
    sources that were not sent. At most 20 tasks and 5 nodes are examined.
    """
    unread: list[str] = []
    job = read.counted_job(client, job_id, read.EXAMINED_JOB)
    pool = read.pool_or_none(client, job.pool, read.EXAMINED_POOL) if job.pool else None
    nodes = _nodes(client, pool, unread) if pool else ()
    recent = [attempt for attempt in seen if not (job.created and attempt.started) or attempt.started >= job.created]
    seen_nodes = tuple(examined_node.node for examined_node in nodes)
    tasks = _tasks(client, job_id, task_id, unread, seen_nodes, recent)
    active = observe.tasks_of(client, Seen(job, pool, seen_nodes), job.counts).seen if job.active else None
    steps = rules.reasons(active) if active else ()
    waits = (step.finding for step in steps if task_id in (None, step.task))
    why = tuple(itertools.islice(waits, TASKS))
    return judged(Evidence(job, pool, tasks, nodes, logs, why, hints, unread=tuple(unread), left_out=left_out))


def task(client: BatchClient, job_id: str, task_id: str) -> tuple[ExaminedTask, Finding | None]:
    """A task, and the cause of its failure as far as itself and its output tell it. Raises NotFound."""
    (examined_task,) = _tasks(client, job_id, task_id, [])
    return examined_task, judged(Evidence(Job(job_id, ""), tasks=(examined_task,))).first


def pool(client: BatchClient, pool_id: str) -> Diagnosis:
    """The diagnosis of a pool. Raises NotFound. Changes nothing."""
    unread: list[str] = []
    pool = read.pool(client, pool_id, read.EXAMINED_POOL)
    nodes = _nodes(client, pool, unread)
    return judged(Evidence(pool=pool, nodes=nodes, unread=tuple(unread)))


# --- tasks ----------------------------------------------------------------------------------------------------------


def _tasks(
    client: BatchClient,
    job_id: str,
    task_id: str | None,
    unread: list[str],
    nodes: Sequence[Node] = (),
    history: Sequence[Attempt] = (),
) -> tuple[ExaminedTask, ...]:
    if task_id is not None:
        tasks = [read.task(client, job_id, task_id, read.EXAMINED_TASK)]
    else:
        tasks = _first(client, job_id, FAILED) or _first(client, job_id, NOT_ENDED)
    tasks.sort(key=lambda task: task.ended or LATEST)
    return tuple(_examined(client, job_id, task, unread, nodes, history) for task in tasks)


def _first(client: BatchClient, job_id: str, where: str) -> list[Task]:
    return list(read.tasks(client, job_id, where=where, select=read.EXAMINED_TASK, limit=TASKS))


def _examined(
    client: BatchClient, job_id: str, task: Task, unread: list[str], nodes: Sequence[Node], history: Sequence[Attempt]
) -> ExaminedTask:
    tree = task_tree(job_id, task.id)
    names = ("stderr.txt", "stdout.txt") if task.result == "failure" else ()
    stderr, stdout = (_lines(client, tree, name, unread) for name in names) if names else ((), ())
    is_failed_gang = names and task.request.instances is not None
    ends = records(client, job_id, task.id, ENDS, RankEnd) if is_failed_gang else ()
    attempts: tuple[Attempt, ...] = ()
    if number_of(task) > 1:
        events = events_of(client, job_id, task.id)
        of_task = [attempt for attempt in history if attempt.task == task.id]
        attempts = with_reasons(attempts_of(task, of_task, events, {node.address: node.id for node in nodes}), nodes)
    warnings: tuple[str, ...] = ()
    if task.request.instances is not None and task.started:
        lines = records(client, job_id, task.id, RECORDS, Line, EARLY)
        warnings = tuple(dict.fromkeys(line.warning for line in lines if line.warning))
    return ExaminedTask(task, cause(stderr, first_failure(ends)), stderr, stdout, attempts, warnings, ends)


def _lines(client: BatchClient, tree: Tree, path: str, unread: list[str]) -> tuple[str, ...]:
    """The last lines of a file; none if it is not there, which is usual for a task that did not start."""
    try:
        content = end_of(client, tree, path)
    except NotFound:
        return ()
    except BatchtrainError as error:
        unread.append(str(error))
        return ()
    return last_lines(content, LINES)


# --- pool and nodes -------------------------------------------------------------------------------------------------


def _nodes(client: BatchClient, pool: Pool, unread: list[str]) -> tuple[ExaminedNode, ...]:
    nodes = read.nodes(client, pool.id, read.LOST_NODE)
    failed, rows = [node.id for node in nodes if node.state == "starttaskfailed"][:NODES], []
    for node in nodes:
        tree, names = node_tree(pool.id, node.id), ("stdout", "stderr") if node.id in failed else ()
        lines = [line for name in names for line in _lines(client, tree, f"startup/{name}.txt", unread)]
        rows.append(ExaminedNode(node, tuple(lines)))
    return tuple(rows)
