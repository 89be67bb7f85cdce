"""`batchtrain pool ssh`, `pool forward` and `jobs exec`: commands on nodes and in running tasks."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING, NoReturn

import click

from batchtrain.cli.completion import ids
from batchtrain.cli.help import Command
from batchtrain.cli.options import settings
from batchtrain.cli.output import show
from batchtrain.errors import UsageError

if TYPE_CHECKING:
    from batchtrain.client.client import Client
    from batchtrain.config.types import Recipe

_pool_id = click.option("--pool-id", metavar="ID", help="The pool of the node. Default: the one of pool.yaml.")
WORDS_LAST = {"allow_interspersed_args": False}
"""Everything after the first argument belongs to the command of the user."""


@click.command(cls=Command, context_settings=WORDS_LAST)
@_pool_id
@click.argument("node")
@click.argument("words", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
def ssh(pool_id: str | None, node: str, words: tuple[str, ...]) -> None:
    """Run COMMAND on a node, or open a shell, with the login of the pool (`ssh` in pool.yaml).

    NODE is an id or a short id, as `pool show` prints it. A COMMAND of one word is a line for the shell. Options of
    batchtrain come before NODE. The exit code is that of COMMAND; 255: ssh failed.
    """
    line = _line("pool ssh", node, words)
    client, pool, recipe = _pool(pool_id)
    _end(client.pools.ssh(pool, node, line, recipe=recipe))


@click.command(cls=Command)
@_pool_id
@click.argument("node")
@click.argument("port", type=click.IntRange(1, 65535))
@click.option(
    "--local-port", type=click.IntRange(0, 65535), metavar="N", help="Port here. Default: PORT; 0: a free one."
)
def forward(pool_id: str | None, node: str, port: int, local_port: int | None) -> None:
    """Forward a port of this machine (127.0.0.1) to PORT of a node until Ctrl-C."""
    client, pool, recipe = _pool(pool_id)

    def ready(local_port: int) -> None:
        show(
            {"address": "127.0.0.1", "port": local_port, "node": node, "node_port": port},
            f"127.0.0.1:{local_port} leads to port {port} of node {node}; Ctrl-C ends it",
        )

    client.pools.forward(pool, node, port, local_port=local_port, recipe=recipe, ready=ready)


@click.command("exec", cls=Command, context_settings=WORDS_LAST)
@click.option("--task", "task_id", help="The task. Default: the first that runs.")
@click.argument("job_id", shell_complete=ids("jobs"))
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(task_id: str | None, job_id: str, words: tuple[str, ...]) -> None:
    """Run COMMAND in a running task: in its directory, with its environment, as its user, and in its container.

    It runs on the node of the task's primary, with the login of the pool (`ssh` in pool.yaml). A COMMAND of one word is
    a line for the shell. Options of batchtrain come before JOB_ID. The exit code is that of COMMAND; 255: ssh failed.
    """
    line = _line("jobs exec", job_id, words)
    if not line:
        raise UsageError(f"give a command after the job {job_id}, such as `ls -l`")
    client, recipe = _client()
    _end(client.jobs.handle(job_id).exec(line, task_id, recipe=recipe))


def _line(verb: str, name: str, words: tuple[str, ...]) -> str:
    """The user's command. Raises UsageError for an option in its place: no program begins with a dash."""
    if words and words[0].startswith("-") and words[0] != "--":
        options = itertools.takewhile(lambda word: word.startswith("-"), words)
        end = words.index("--") if "--" in words else len(tuple(options))
        again = shlex.join(("batchtrain", *verb.split(), *words[:end], name, *words[end:]))
        raise UsageError(f"options of batchtrain come before {name}: `{again}`")
    words = words[1:] if words[:1] == ("--",) else words
    return words[0] if len(words) == 1 else shlex.join(words)


def _pool(pool_id: str | None) -> tuple[Client, str, Recipe | None]:
    if pool_id is None:
        config = settings().load(needs=("pool_specification",))
        assert config.recipe.pool is not None
        return settings().connect(config), config.recipe.pool.id, config.recipe
    client, recipe = _client()
    return client, pool_id, recipe


def _client() -> tuple[Client, Recipe | None]:
    """The client and, except on the emulator, the files with the login of the pool."""
    client = settings().connect()
    if client.account.emulated:
        return client, None
    return client, settings().load(needs=("pool_specification",)).recipe


def _end(code: int) -> NoReturn:
    raise SystemExit(code)
