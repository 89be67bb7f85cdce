"""`batchtrain pool`: pools of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common, seconds, settings, standing, tell
from batchtrain.cli.output import show, show_rows
from batchtrain.errors import UsageError
from batchtrain.service.deadlines import POOL_SECONDS

if TYPE_CHECKING:
    from batchtrain.config.load import Loaded


@click.group(cls=Group)
def command() -> None:
    """Pools of nodes."""


@command.command(cls=Command)
@click.argument("directory", required=False)
@click.option("--no-wait", is_flag=True, help="Do not wait until the nodes take tasks.")
@click.option(
    "--timeout", type=float, callback=seconds, default=POOL_SECONDS, show_default=True, help="Seconds to wait at most."
)
@common
def add(directory: str | None, no_wait: bool, timeout: float) -> None:
    """Make the pool of pool.yaml and wait until its nodes take tasks."""
    loaded = settings().load(directory, needs=("pool_specification",))
    assert loaded.recipe.pool is not None
    client = settings().connect(loaded, changes=f"adding pool {loaded.recipe.pool.id}")
    with standing("pool", loaded.recipe.pool.id, client):
        seen = client.pools.add(loaded.recipe, wait=not no_wait, timeout=timeout, tell=tell)
    show(seen, f"pool {seen.id} has {seen.dedicated + seen.spot} nodes ({seen.allocation})")


@command.command("list", cls=Command)
@common
def list_() -> None:
    """List the pools, with the hours that their present nodes have been paid for."""
    from datetime import datetime, timezone

    from batchtrain.service import look

    client = settings().connect()
    show_rows(look.with_node_hours(client.batch, client.pools.list(), datetime.now(timezone.utc)), empty="no pools")


@command.command("show", cls=Command)
@click.argument("pool_id", required=False)
@common
def show_(pool_id: str | None) -> None:
    """Show a pool and its nodes (by default the one of pool.yaml)."""
    from datetime import datetime, timezone

    from batchtrain.cli.output import plain
    from batchtrain.service.seen import node_hours

    name, loaded = _named(pool_id)
    client = settings().connect(loaded)
    nodes = client.pools.nodes(name)
    seen = client.pools.get(name)._replace(node_hours=node_hours(nodes, datetime.now(timezone.utc)))
    if settings().output == "table":
        show_rows([seen])
        show_rows(nodes, empty="no nodes")
    else:
        show({**plain(seen), "nodes": plain(nodes)})


@command.command(cls=Command)
@click.argument("pool_id", required=False)
@click.option("--dedicated", type=click.IntRange(0), metavar="N", help="Dedicated nodes it shall have.")
@click.option("--spot", type=click.IntRange(0), metavar="N", help="Spot nodes it shall have.")
@click.option(
    "--leaving",
    type=click.Choice(["requeue", "terminate", "taskcompletion"]),
    default="requeue",
    show_default=True,
    help="What becomes of the tasks of nodes that go.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until the nodes take tasks.")
@click.option(
    "--timeout", type=float, callback=seconds, default=POOL_SECONDS, show_default=True, help="Seconds to wait at most."
)
@common
def resize(
    pool_id: str | None, dedicated: int | None, spot: int | None, leaving: str, no_wait: bool, timeout: float
) -> None:
    """Give a pool (by default the one of pool.yaml) another number of nodes."""
    from batchtrain.errors import UsageError

    if dedicated is None and spot is None:
        raise UsageError("say how many nodes: --dedicated N, --spot N or both")
    name, loaded = _named(pool_id)
    client = settings().connect(loaded, changes=f"resizing pool {name}")
    seen = client.pools.resize(
        name, dedicated=dedicated, spot=spot, leaving=leaving, wait=not no_wait, timeout=timeout, tell=tell
    )
    show(seen, f"pool {seen.id} has {seen.dedicated + seen.spot} nodes ({seen.allocation})")


@command.command(cls=Command)
@click.argument("pool_id")
@click.argument("node_ids", nargs=-1, required=True)
@common
def reboot(pool_id: str, node_ids: tuple[str, ...]) -> None:
    """Boot nodes of a pool anew; their tasks go back to the queue."""
    client = settings().connect(changes=f"rebooting {', '.join(node_ids)} of pool {pool_id}")
    client.pools.reboot(pool_id, node_ids)
    show({"rebooting": list(node_ids)}, f"rebooting {', '.join(node_ids)}")


@command.command(cls=Command)
@click.argument("directory", required=False)
@common
def login(directory: str | None) -> None:
    """Make the login of `ssh` or `rdp` on every node there is now, and say how to use it."""
    loaded = settings().load(directory, needs=("pool_specification",))
    assert loaded.recipe.pool is not None
    client = settings().connect(loaded, changes=f"making the login of pool {loaded.recipe.pool.id}")
    client.pools.log_in(loaded.recipe, tell=tell)


@command.command("del", cls=Command)
@click.argument("pool_id", required=False)
@click.option("--no-wait", is_flag=True, help="Do not wait until it is gone.")
@common
def del_(pool_id: str | None, no_wait: bool) -> None:
    """Delete a pool with its nodes (by default the one of pool.yaml)."""
    name, loaded = _named(pool_id)
    client = settings().connect(loaded, changes=f"deleting pool {name}")
    settings().confirm(f"Delete pool {name} with all its nodes?")
    client.pools.delete(name, wait=not no_wait)
    show({"deleted": name}, f"deleted pool {name}")


@command.group(cls=Group)
def autoscale() -> None:
    """Formulas by which pools size themselves."""


@autoscale.command(cls=Command)
@click.argument("formula")
@click.option("--sample", "given", multiple=True, metavar="NAME=N,…", help="A number's samples, the last one of now.")
@click.option(
    "--samples", "file", type=click.Path(dir_okay=False), help="JSON file: name -> numbers or [time, number]."
)
@click.option("--now", metavar="TIME", help="The moment, such as 2027-01-31T09:00:00Z; the present one by default.")
@click.option("--dedicated", type=int, default=0, help="Dedicated nodes that the pool has now.")
@click.option("--low-priority", type=int, default=0, help="Low-priority nodes that the pool has now.")
@click.option("--seed", type=int, default=0, help="Of rand().")
@common
def evaluate(
    formula: str,
    given: tuple[str, ...],
    file: str | None,
    now: str | None,
    dedicated: int,
    low_priority: int,
    seed: int,
) -> None:
    """Evaluate FORMULA, a file or the text itself, without any account.

    Samples are 30 seconds apart: --sample 'PendingTasks=0,4,8' says 0 a minute ago and 8 now.
    """
    from batchtrain import formula as language
    from batchtrain.cli import samples

    text = samples.text_of(formula)
    moment = samples.moment(now)
    seen = language.Seen(moment, samples.gathered(given, file, moment), dedicated, low_priority, seed)
    try:
        result = language.evaluate(text, seen)
    except language.FormulaError as error:
        raise UsageError(f"the formula: {error}") from None
    document = {
        "targetDedicatedNodes": result.dedicated,
        "targetLowPriorityNodes": result.low_priority,
        "nodeDeallocationOption": result.option,
        "variables": dict(result.variables),
    }
    show(document, str(result).replace(";", "\n"))


def _named(pool_id: str | None) -> tuple[str, Loaded | None]:
    """The pool to look at: the one named, else that of pool.yaml, with the files it comes from."""
    if pool_id:
        return pool_id, None
    loaded = settings().load(needs=("pool_specification",))
    assert loaded.recipe.pool is not None
    return loaded.recipe.pool.id, loaded
