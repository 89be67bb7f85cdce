"""`batchtrain pool`: pools of nodes."""

from __future__ import annotations

import click

from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common, settings, tell
from batchtrain.cli.output import show, show_rows

POOL_SECONDS = 3600.0


@click.group(cls=Group)
def command() -> None:
    """Pools of nodes."""


@command.command(cls=Command)
@click.option("--no-wait", is_flag=True, help="Do not wait until the nodes take tasks.")
@click.option("--timeout", type=float, default=POOL_SECONDS, show_default=True, help="Seconds to wait at most.")
@common
def add(no_wait: bool, timeout: float) -> None:
    """Make the pool of pool.yaml and wait until its nodes take tasks."""
    loaded = settings().load(needs=("pool_specification",))
    assert loaded.recipe.pool is not None
    client = settings().connect(loaded, changes=f"adding pool {loaded.recipe.pool.id}")
    seen = client.pools.add(loaded.recipe, wait=not no_wait, timeout=timeout, tell=tell)
    show(seen, f"pool {seen.id} has {seen.dedicated + seen.spot} nodes ({seen.allocation})")


@command.command("list", cls=Command)
@common
def list_() -> None:
    """List the pools."""
    show_rows(settings().connect().pools.list(), empty="no pools")


@command.command("show", cls=Command)
@click.argument("pool_id", required=False)
@common
def show_(pool_id: str | None) -> None:
    """Show a pool and its nodes (by default the one of pool.yaml)."""
    from batchtrain.cli.output import plain

    name = pool_id or _own()
    client = settings().connect()
    seen, nodes = client.pools.get(name), client.pools.nodes(name)
    if settings().output == "table":
        show_rows([seen])
        show_rows(nodes, empty="no nodes")
    else:
        show({**plain(seen), "nodes": plain(nodes)})


@command.command("del", cls=Command)
@click.argument("pool_id", required=False)
@click.option("--no-wait", is_flag=True, help="Do not wait until it is gone.")
@common
def del_(pool_id: str | None, no_wait: bool) -> None:
    """Delete a pool with its nodes (by default the one of pool.yaml)."""
    name = pool_id or _own()
    client = settings().connect(changes=f"deleting pool {name}")
    settings().confirm(f"Delete pool {name} with all its nodes?")
    client.pools.delete(name, wait=not no_wait)
    show({"deleted": name}, f"deleted pool {name}")


def _own() -> str:
    pool = settings().load(needs=("pool_specification",)).recipe.pool
    assert pool is not None
    return pool.id
