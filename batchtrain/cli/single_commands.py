"""The commands without a group."""

from __future__ import annotations

from pathlib import Path

import click
from click import IntRange, argument, option

from batchtrain.cli.help import Action, Table, late_bound
from batchtrain.cli.parameters import FINITE, POSITIVE, SCRIPT, directories, directory, duration, idle, ranks, seconds

SIZE = "Standard_D4s_v5"
"""The size without --size."""
IMAGE = "openmpi:digits"
"""The image of the containers: it has Python, an sshd and an MPI."""

DOCTOR = Action("doctor.command", directory)
VERIFY = Action(
    "verify.command",
    option(
        "--size", "sizes", multiple=True, metavar="SIZE", help=f"VM size of the pools; repeatable. Default: {SIZE}."
    ),
    option("--nodes", type=IntRange(2, 64), default=2, show_default=True, help="Nodes of each pool."),
    option("--only", "names", multiple=True, metavar="AREA", help="Only the probes of this area; repeatable."),
    option(
        "--budget",
        type=POSITIVE,
        default=20,
        show_default=True,
        metavar="AMOUNT",
        help="The most that the nodes may cost; the service removes them before.",
    ),
    option("--plan", "only_plan", is_flag=True, help="Show the pools, minutes and price; send nothing."),
    option("--image", help=f"Image of the containers. Default: {IMAGE} of your registry."),
    option(
        "--answers",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="JSON with your answers to the probes by hand: true or false, by probe.",
    ),
    option(
        "--report",
        "folder",
        type=click.Path(file_okay=False, path_type=Path),
        default="verified",
        show_default=True,
        metavar="DIR",
        help="Where the reports are written.",
    ),
)
INIT = Action(
    "init.command",
    argument("script", metavar="[SCRIPT]", required=False),
    option("--image", is_flag=True, help="Name an image, also without a registry and without --local."),
    *SCRIPT,
)
RUN = Action(
    "run.command",
    argument("directory", metavar="[DIR|SCRIPT]", required=False, shell_complete=directories),
    *SCRIPT,
    option(
        "--timeout",
        type=float,
        callback=seconds,
        help="Maximum seconds for each wait. Default: the tasks' wall-clock limits and an hour; else 24 hours.",
    ),
    option(
        "--detach",
        is_flag=True,
        help="Return after the job is added: the service ends it, deletes its pool, and uploads its results to"
        " storage.",
    ),
    option(
        "--controller",
        is_flag=True,
        help="With --detach: a job on a small node moves the job if its pool loses nodes (`candidates.recover`).",
    ),
    option("--keep", is_flag=True, help="Keep the pool and the jobs. Results are always kept, in the run directory."),
    option("--reuse", is_flag=True, help="Use the existing pool, or create it, and keep it for the next run."),
    idle,
    option(
        "--max-price",
        type=POSITIVE,
        metavar="AMOUNT",
        help="End the run when its nodes have cost this, by the prices of the catalogue. The emulator counts the same.",
    ),
    option("--max-duration", callback=duration, metavar="TIME", help="End the run after this time, such as 90m or 2h."),
    ranks,
    option("--fresh", is_flag=True, help="Start anew, although there are checkpoints. They are kept."),
    option("--dashboard", is_flag=True, help="Open the page of the run in the browser."),
    option("--resume", metavar="RUN", help="Continue the checkpoints of this run, also of another project."),
    option("--tag", "tags", multiple=True, metavar="TAG", help="A tag for `runs list` and `runs cost`; repeatable."),
    option("--note", default="", help="A remark for `runs list`."),
)
DASHBOARD = Action(
    "dashboard.command",
    option("--port", type=IntRange(0, 65535), help="Port on 127.0.0.1; 0 for any. Default: 8265, else any."),
    option("--no-open", is_flag=True, help="Do not open the browser; print the link."),
    option(
        "--allow-changes",
        is_flag=True,
        help="Allow to resize and delete pools, reboot nodes, run failed tasks again, label runs, and disable, enable,"
        " terminate and delete jobs.",
    ),
    option(
        "--allow-host", "hosts", multiple=True, metavar="NAME", help="Accept requests for this host name, from a proxy."
    ),
    option("--until-idle", type=FINITE, hidden=True, help="End when no page was open for so many seconds."),
)
BENCH = Action(
    "bench.command",
    argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    option("--recipe", type=click.Path(exists=True, path_type=Path), help="The recipe, for a config.json of DLBS."),
    option("--parallel", type=IntRange(1, 64), default=1, show_default=True, help="Runs at a time."),
    option("--minutes", type=FINITE, default=10, show_default=True, help="Expected minutes of a run, for the plan."),
    option("--plan", "only_plan", is_flag=True, help="Show the runs and their node hours; start nothing."),
)
HELP = Action(
    "pages.command", argument("topic", metavar="[TOPIC]", required=False, shell_complete=late_bound("pages.topics"))
)
CHECKS: Table = {
    "fabric": Action(
        "check.fabric",
        directory,
        option("--size", help="The VM size of a pool for this check alone."),
        option("--nodes", type=IntRange(1), help="Its number of nodes. Default: 2."),
        option(
            "--mark", "marks", multiple=True, metavar="METRIC=EXPECTED[:WARN[:REPORT]]", help="In place of Azure's."
        ),
        option("--keep", is_flag=True, help="Keep a pool that this command creates."),
        option("--timeout", type=float, callback=seconds, help="Maximum seconds for each wait."),
    ),
}
