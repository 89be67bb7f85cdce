"""What the Python processes of a running task do now, on all its nodes."""

from __future__ import annotations

import functools
import shlex
from concurrent.futures import ThreadPoolExecutor

import msgspec
from azure.batch import BatchClient

from batchtrain import foreign
from batchtrain.client import logins
from batchtrain.config.types import Recipe
from batchtrain.errors import BatchtrainError, UsageError
from batchtrain.records import TaskNode
from batchtrain.records.stacks import Stack
from batchtrain.runtime import LAUNCH
from batchtrain.service import read
from batchtrain.service.connect import Account

AT_ONCE, SECONDS = 16, 60.0
"""Nodes that are asked at a time, and the time in which each answers."""
COMMAND = shlex.join(["python3", "-I", "-S", "-c", LAUNCH["launch/stacks.py"].decode(), "AZ_BATCH_TASK_DIR"])


def stacks(
    account: Account, batch: BatchClient, job_id: str, task_id: str, recipe: Recipe | None
) -> tuple[list[Stack], list[str]]:
    """The processes by rank, and why nodes did not answer. Raises UsageError if none did."""
    nodes = read.task_nodes(batch, job_id, task_id)
    ask = functools.partial(_of_node, account, batch, recipe)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(ask, (f"n{number}" for number in range(len(nodes))), nodes))
    problems = [answer for answer in answers if isinstance(answer, str)]
    if len(problems) == len(nodes):
        raise UsageError("; ".join(problems) or f"task {job_id}/{task_id} runs on no node")
    rows = [stack for answer in answers if not isinstance(answer, str) for stack in answer]
    return sorted(rows, key=lambda stack: (len(stack.rank), stack.rank, stack.pid)), problems


def _of_node(
    account: Account, batch: BatchClient, recipe: Recipe | None, name: str, node: TaskNode
) -> list[Stack] | str:
    try:
        target = logins.login(account, batch, node.pool, node.node, recipe)
        lines = logins.output(target, logins.inside(node.directory, COMMAND), SECONDS).splitlines()
    except BatchtrainError as error:
        return f"node {name}: {error}"
    rows = (foreign.read(line, Stack) for line in lines)
    return [msgspec.structs.replace(row, node=name) for row in rows if row]
