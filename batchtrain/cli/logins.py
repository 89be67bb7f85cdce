"""`batchtrain pool ssh`, `pool forward`, `jobs exec` and `jobs stacks`: commands on nodes and in running tasks."""

from __future__ import annotations

import shlex
from typing import NoReturn

import click

from batchtrain.cli import loading
from batchtrain.cli.connecting import connect
from batchtrain.cli.help import Command
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows, write
from batchtrain.client.client import Client
from batchtrain.config.types import Recipe
from batchtrain.errors import UsageError
from batchtrain.records.stacks import in_words
from batchtrain.service.connect import Account


def ssh(pool_id: str | None, node: str, words: tuple[str, ...]) -> None:
    """Run COMMAND on a node, or open a shell, with the login of the pool (`ssh` in pool.yaml).

    NODE is an id, a short id or a number (n0 or 0), as `pool show` and the live block have them. A COMMAND of one word
    is a line for the shell. Options of batchtrain come before NODE. The exit code is that of COMMAND; 255: ssh failed.
    """
    line = _line(("pool", "ssh", *(("--pool-id", pool_id) if pool_id else ())), node, words)
    client, pool, recipe = _pool(pool_id)
    _end(client.pools.ssh(pool, node, line, recipe=recipe))


def forward(pool_id: str | None, node: str, port: int, local_port: int | None) -> None:
    """Forward a port of this machine (127.0.0.1) to PORT of a node until Ctrl-C."""
    client, pool, recipe = _pool(pool_id)

    def ready(local_port: int) -> None:
        show(
            {"address": "127.0.0.1", "port": local_port, "node": node, "node_port": port},
            f"127.0.0.1:{local_port} leads to port {port} of node {node}; Ctrl-C ends it",
        )

    client.pools.forward(pool, node, port, local_port=local_port, recipe=recipe, ready=ready)


def exec_(task_id: str | None, job_id: str, words: tuple[str, ...]) -> None:
    """Run COMMAND in a running task: in its directory, with its environment, as its user, and in its container.

    It runs on the node of the task's primary, with the login of the pool (`ssh` in pool.yaml). A COMMAND of one word is
    a line for the shell. Options of batchtrain come before JOB_ID. The exit code is that of COMMAND; 255: ssh failed.
    """
    line = _line(("jobs", "exec", *(("--task", task_id) if task_id else ())), job_id, words)
    if not line:
        raise UsageError(f"give a command after the job {job_id}, such as `ls -l`")
    client, recipe = _client()
    _end(client.jobs.handle(job_id).exec(line, task_id, recipe=recipe))


def stacks_(task_id: str | None, job_id: str, task: str | None) -> None:
    """Show where the Python processes of a running task are: the calls of their main threads, the last call first.

    Ranks at the same place are one group; those that differ from most come first. Each node of the task is asked, with
    the login of the pool (`ssh` in pool.yaml). py-spy reads a process that has it on its PATH. Otherwise, the ranks of
    a gang write their calls themselves. -o json has all threads.
    """
    client, recipe = _client()
    rows, problems = client.jobs.handle(job_id).stacks(task_id or task, recipe=recipe)
    for problem in problems:
        say(problem, "warning")
    if settings().output != "table":
        show_rows(rows)
        return
    write(in_words(rows))


def _line(before: tuple[str, ...], name: str, words: tuple[str, ...]) -> str:
    """The user's command. Raises UsageError for an option in its place: no program begins with a dash.

    before: the command of batchtrain, with what was given before the name.
    """
    if words and words[0].startswith("-") and words[0] != "--":
        command, end = click.get_current_context().command, 0
        assert isinstance(command, Command)
        while end < len(words) and words[end].startswith("-") and words[end] != "--":
            end += 1 + (words[end] in command.valued)
        again = shlex.join(("batchtrain", *before, *words[:end], name, *words[end:]))
        raise UsageError(f"options of batchtrain come before {name}: `{again}`")
    words = words[1:] if words[:1] == ("--",) else words
    return words[0] if len(words) == 1 else shlex.join(words)


def _pool(pool_id: str | None) -> tuple[Client, str, Recipe | None]:
    if pool_id is None:
        config = loading.load(needs=("pool_specification",), checks=False)
        assert config.recipe.pool is not None
        return connect(config), config.recipe.pool.id, config.recipe
    client, recipe = _client()
    return client, pool_id, recipe


def _client() -> tuple[Client, Recipe | None]:
    client = connect()
    return client, login_files(client.account)


def login_files(account: Account) -> Recipe | None:
    """The files with the login of the pool; None for the emulator, which needs none."""
    return None if account.emulated else loading.load(needs=("pool_specification",), checks=False).recipe


def _end(code: int) -> NoReturn:
    raise SystemExit(code)
