"""The commands of `batchtrain pool`: their parameters, and the function of each."""

from __future__ import annotations

from click import UNPROCESSED, Choice, IntRange, Path, argument, option

from batchtrain.cli.help import Action, Doors, Table
from batchtrain.cli.parameters import WORDS_LAST, bundle, directory, idle, ids, timeout
from batchtrain.service.deadlines import POOL_SECONDS

_pool_id = argument("pool_id", required=False, shell_complete=ids("pools"))
_that_pool = argument("pool_id", shell_complete=ids("pools"))
_pool_of_node = option("--pool-id", metavar="ID", help="The pool of the node. Default: the one of pool.yaml.")

COMMANDS: Table = {
    "add": Action(
        "pool.add",
        directory,
        option("--no-wait", is_flag=True, help="Do not wait until the nodes are ready."),
        timeout(POOL_SECONDS),
        idle,
    ),
    "autoscale": Doors(
        "Autoscale formulas of pools.",
        {
            "evaluate": Action(
                "pool.evaluate",
                argument("formula", required=False),
                option(
                    "--sample",
                    "given",
                    multiple=True,
                    metavar="NAME=N,…",
                    help="Samples of a metric, the last one current.",
                ),
                option(
                    "--samples", "file", type=Path(dir_okay=False), help="JSON file: name -> numbers or [time, number]."
                ),
                option("--now", metavar="TIME", help="The time, such as 2027-01-31T09:00:00Z. Default: now."),
                option("--dedicated", type=int, default=0, help="Current number of dedicated nodes."),
                option("--low-priority", type=int, default=0, help="Current number of low-priority nodes."),
                option("--seed", type=int, default=0, help="Of rand()."),
            ),
        },
    ),
    "del": Action(
        "pool.del_", _pool_id, option("--no-wait", is_flag=True, help="Do not wait until the deletion has finished.")
    ),
    "diagnose": Action("diagnose.of_pool", _pool_id, bundle),
    "files": Action("pool.files", _that_pool, argument("node")),
    "forward": Action(
        "logins.forward",
        _pool_of_node,
        argument("node"),
        argument("port", type=IntRange(1, 65535)),
        option("--local-port", type=IntRange(0, 65535), metavar="N", help="Port here. Default: PORT; 0: a free one."),
    ),
    "get": Action(
        "pool.get",
        _that_pool,
        argument("node"),
        argument("patterns", metavar="PATTERN...", nargs=-1, required=True),
        option("-d", "--directory", default=".", show_default=True, help="Where to put the files."),
    ),
    "list": Action("pool.list_"),
    "login": Action("pool.login", directory),
    "reboot": Action("pool.reboot", _that_pool, argument("node_ids", nargs=-1, required=True)),
    "resize": Action(
        "pool.resize",
        _pool_id,
        option("--dedicated", type=IntRange(0), metavar="N", help="Number of dedicated nodes."),
        option("--spot", type=IntRange(0), metavar="N", help="Number of spot nodes."),
        option(
            "--leaving",
            type=Choice(["requeue", "terminate", "taskcompletion"]),
            default="requeue",
            show_default=True,
            help="What happens to the tasks of removed nodes.",
        ),
        option("--no-wait", is_flag=True, help="Do not wait until the nodes are ready."),
        timeout(POOL_SECONDS),
    ),
    "show": Action("pool.show_", _pool_id),
    "ssh": Action(
        "logins.ssh",
        _pool_of_node,
        argument("node"),
        argument("words", metavar="[COMMAND]...", nargs=-1, type=UNPROCESSED),
        context_settings=WORDS_LAST,
    ),
    "wait": Action("pool.wait", _pool_id, timeout(POOL_SECONDS)),
    "watch": Action("pool.watch", _pool_id),
}
