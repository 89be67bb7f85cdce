"""`batchtrain pool`: pools of nodes."""

from __future__ import annotations

from datetime import datetime, timezone

from msgspec.structs import replace

from batchtrain import formula as language
from batchtrain.cli import live, loading, samples
from batchtrain.cli.connecting import connect, registered, waiting
from batchtrain.cli.documents import plain
from batchtrain.cli.event_lines import tell
from batchtrain.cli.messages import say
from batchtrain.cli.options import OF_FILE, settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.progress import bar
from batchtrain.client.operations import Operations
from batchtrain.config.load import Loaded
from batchtrain.errors import UsageError, counted
from batchtrain.plan.idling import costs_while_idle, with_idle_timeout
from batchtrain.records import Pool, node_hours
from batchtrain.service import read
from batchtrain.service.watch import pool_states


def add(directory: str | None, no_wait: bool, timeout: float, idle: str | None) -> None:
    """Create the pool of pool.yaml and wait until its nodes are ready for tasks.

    With --idle an autoscale formula removes all nodes after a time without a task; a new task brings them back.
    """
    config = loading.load(directory, needs=("pool_specification",))
    if idle is not None:
        config = config._replace(recipe=with_idle_timeout(config.recipe, idle))
    assert config.recipe.pool is not None
    client = connect(config, changes=f"adding pool {config.recipe.pool.id}", creates=True)
    with live.block(client.account, config.recipe) as block, registered(client, config.recipe, block) as ending:

        def on_move(session: Operations) -> None:
            ending.client = session

        pool = client.pools.add(
            config.recipe, wait=not no_wait, timeout=timeout, tell=block, register=ending.register, on_move=on_move
        )
    show(pool, _size(pool))
    if remark := costs_while_idle(config.recipe.pool):
        say(remark)


def _size(pool: Pool) -> str:
    return f"pool {pool.id} has {counted(pool.nodes, 'node')} ({pool.allocation})"


def wait(pool_id: str | None, timeout: float) -> None:
    """Wait until the nodes of a pool (by default the one of pool.yaml) are ready for tasks."""
    name, config = named(pool_id)
    client = connect(config)
    with waiting("pool", name, client):
        nodes = client.pools.wait(name, timeout=timeout, tell=tell, recipe=config.recipe if config else None)
    show_rows(nodes, empty="no nodes")


def watch(pool_id: str | None) -> None:
    """Watch the nodes of a pool (by default the one of pool.yaml) until it is gone. Ctrl-C ends only the watching."""
    name, config = named(pool_id)
    client = connect(config)
    with live.block(client.account, None, f"pool {name}") as block:
        pool_states(client.batch, name, client.pace, block)


def list_() -> None:
    """List the pools, with the paid hours of their current nodes."""

    client = connect()
    show_rows(read.with_node_hours(client.batch, client.pools.list(), datetime.now(timezone.utc)), empty="no pools")


def show_(pool_id: str | None) -> None:
    """Show a pool and its nodes (by default the one of pool.yaml)."""

    name, config = named(pool_id)
    client = connect(config)
    nodes = client.pools.nodes(name)
    pool = replace(client.pools.get(name), node_hours=node_hours(nodes, datetime.now(timezone.utc)))
    rule, reason = client.pools.reason_to_wait(pool, nodes), client.pools.refused(pool)
    cause = f"{reason.text} ({reason.proof})" if reason else rule.when if rule else ""
    if settings().output == "table":
        show_rows([pool])
        print()
        show_rows(nodes, empty="no nodes")
        if rule is not None:
            say(f"{cause} [{rule.name}]{f'; {reason.next_step}' if reason else ''}")
    else:
        step = {"next_step": reason.next_step} if reason else {}
        waits = {"rule": rule.name, "cause": cause, **step} if rule is not None else None
        show({**plain(pool), "nodes": plain(nodes), "waits": waits})


def resize(
    pool_id: str | None, dedicated: int | None, spot: int | None, leaving: str, no_wait: bool, timeout: float
) -> None:
    """Change the number of nodes of a pool (by default the one of pool.yaml).

    New nodes get the login of `ssh` or `rdp` if the files of the pool are known: give --configdir, or omit POOL_ID.
    """
    if dedicated is None and spot is None:
        raise UsageError("give the number of nodes: --dedicated N, --spot N or both")
    name, config = named(pool_id)
    client = connect(config, changes=f"resizing pool {name}")
    if config is None and settings().configdir:  # its files, if they describe this pool
        config = loading.load(needs=("pool_specification",), checks=False)
    recipe = config.recipe if config and config.recipe.pool and config.recipe.pool.id == name else None
    with waiting("pool", name, client):
        pool = client.pools.resize(
            name,
            dedicated=dedicated,
            spot=spot,
            leaving=leaving,
            wait=not no_wait,
            timeout=timeout,
            tell=tell,
            recipe=recipe,
        )
    show(pool, _size(pool))


def reboot(pool_id: str, node_ids: tuple[str, ...]) -> None:
    """Reboot nodes of a pool (`.` for the one of pool.yaml); their tasks are requeued. NODE_IDS may be short, as in
    `pool show`."""
    name, config = named(pool_id)
    client = connect(config, changes=f"rebooting {', '.join(node_ids)} of pool {name}")
    full_ids = client.pools.node_ids(name, node_ids, by_number=False)
    client.pools.reboot(name, full_ids)
    show({"rebooting": full_ids}, f"rebooting {', '.join(node_ids)}")


def login(directory: str | None) -> None:
    """Create the login of `ssh` or `rdp` on every current node, and show how to use it."""
    config = loading.load(directory, needs=("pool_specification",))
    assert config.recipe.pool is not None
    client = connect(config, changes=f"creating the login of pool {config.recipe.pool.id}")
    client.pools.log_in(config.recipe, tell=tell)


def del_(pool_id: str | None, no_wait: bool) -> None:
    """Delete a pool with its nodes (by default the one of pool.yaml)."""
    name, config = named(pool_id)
    question = f"Delete pool {name} with all its nodes"
    client = connect(config, changes=f"deleting pool {name}", question=question)
    client.pools.delete(name, wait=not no_wait)
    show({"deleted": name}, f"deleted pool {name}")


def evaluate(
    formula: str | None,
    given: tuple[str, ...],
    file: str | None,
    now: str | None,
    dedicated: int,
    low_priority: int,
    seed: int,
) -> None:
    """Evaluate FORMULA without an account: a recipe's directory (by default the current one), a file or the text.

    Samples are 30 seconds apart: --sample 'PendingTasks=0,4,8' means 0 a minute ago and 8 now.
    """
    text = samples.text_of(formula or settings().configdir or ".")
    moment = samples.moment(now)
    measured = samples.gathered(given, file, moment)
    samples.current({"$CurrentDedicatedNodes": dedicated, "$CurrentLowPriorityNodes": low_priority}, measured, moment)
    state = language.Seen(moment, measured, dedicated, low_priority, seed)
    try:
        result = language.evaluate(text, state)
    except language.FormulaError as error:
        raise UsageError(f"the formula: {error}") from None
    document = {
        "targetDedicatedNodes": result.dedicated,
        "targetLowPriorityNodes": result.low_priority,
        "nodeDeallocationOption": result.option,
        "variables": dict(result.variables),
    }
    show(document, str(result).replace(";", "\n"))


def named(pool_id: str | None) -> tuple[str, Loaded | None]:
    """The pool to use: the named one; without a name, or with `.`, the one of pool.yaml, with its files."""
    if pool_id and pool_id != OF_FILE:
        return pool_id, None
    config = loading.load(needs=("pool_specification",), checks=False)
    assert config.recipe.pool is not None
    return config.recipe.pool.id, config


def files(pool_id: str, node: str) -> None:
    """List the files of a node of a pool (`.` for the one of pool.yaml)."""
    name, config = named(pool_id)
    show_rows(connect(config).pools.files(name, node), empty="no files")


def get(pool_id: str, node: str, patterns: tuple[str, ...], directory: str) -> None:
    """Download files of a node of a pool (`.` for the one of pool.yaml), such as `startup/**`, byte for byte."""
    name, config = named(pool_id)
    pools = connect(config).pools
    with bar() as progress:
        rows = pools.get_files(name, node, *patterns, directory=directory, progress=progress)
    show_rows(rows)
