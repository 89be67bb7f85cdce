"""The commands of `batchtrain emulator`: their parameters, and the function of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click import Choice, IntRange, argument, option

from batchtrain.cli.help import Action, Doors, Table, late_callback
from batchtrain.cli.parameters import FINITE, POSITIVE, bundle, data_dir

ACCOUNT, DEFAULT_ACCOUNT = "batchtrain.account", "batchtrain"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_data_dir_only = data_dir(callback=late_callback("emulator.directory_of_account"))


def _account(*, as_parameter: bool) -> Callable[[Any], Any]:
    return option(
        "--account",
        default=DEFAULT_ACCOUNT,
        show_default=True,
        metavar="NAME",
        is_eager=True,
        expose_value=as_parameter,
        callback=_note_account,
        help="Name of the account. Each has its own endpoint, pools, quotas and capacity.",
    )


def _note_account(ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    ctx.meta[ACCOUNT] = value
    return value


def _data_dir(function: Any) -> Any:
    return _account(as_parameter=False)(_data_dir_only(function))


FAULTS: Table = {
    "add": Action(
        "emulator.add_fault",
        argument("kind"),
        _data_dir,
        option("--operation", metavar="NAME", help="Only operations with this name, such as create_task or list_*."),
        option("--resource", metavar="PATH", help="Only paths that match, such as pools/POOL/nodes/* or jobs/JOB*."),
        option("--rate", type=FINITE, metavar="SHARE", help="Probability of the fault, 0 to 1. Default: 1."),
        option("--count", type=int, metavar="N", help="Occur at most N times. Default: until it is cleared."),
        option("--seed", type=int, metavar="N", help="Random seed, for a reproducible run."),
        option("--code", metavar="CODE", help="Error code of the service (error, allocation-refused)."),
        option("--retry-after", type=FINITE, metavar="SECONDS", help="Retry-After of the answer (error)."),
        option("--seconds", type=FINITE, metavar="SECONDS", help="Delay or clock difference (latency, skew, …-slow)."),
        option(
            "--fraction", type=FINITE, metavar="SHARE", help="Share that is delivered (allocation-partial, truncate)."
        ),
        option("--exit-code", type=int, metavar="N", help="Exit code (start-task-fails)."),
        paragraphs=".emulator.injection.EXPLANATION",
    ),
    "clear": Action("emulator.clear_faults", argument("number", type=int, required=False), _data_dir),
    "list": Action("emulator.list_faults", _data_dir),
    "node": Action(
        "emulator.befall",
        argument("node"),
        argument("act", type=Choice(["preempt", "lose", "break"])),
        _data_dir,
        option(
            "--seconds",
            type=FINITE,
            help="Time until a preempted node comes back. Default: 10; 300 with `--pace azure`.",
        ),
        option("--notice", type=FINITE, help="Seconds between the notice to the node and its preemption. Default: 0."),
    ),
}
IMAGES: Table = {
    "list": Action("emulator.list_", _data_dir),
    "map": Action(
        "emulator.map_",
        argument("image"),
        argument("prefix"),
        option(
            "--entrypoint",
            default="",
            metavar="CMD",
            help="Entry point: the program that gets the command line of a task as its arguments, as in Docker.",
        ),
        option(
            "--path",
            "paths",
            multiple=True,
            metavar="PATH=DIR",
            help="Show the local directory DIR, read-only, at PATH of the image, such as /opt/intel. Repeat for more.",
        ),
        _data_dir,
    ),
    "unmap": Action("emulator.unmap", argument("image"), _data_dir),
}
COMMANDS: Table = {
    "capacity": Action("emulator.capacity", argument("limits", nargs=-1, metavar="[NAME=N]..."), _data_dir),
    "clock": Action(
        "emulator.clock",
        _data_dir,
        option("--advance", "span", metavar="SPAN", help="Advance the clock by [d.]HH:MM:SS, from event to event."),
        option("--scale", type=POSITIVE, metavar="N", help="Run the clock N times as fast."),
        option("--step", is_flag=True, help="Stop the clock; only --advance moves it."),
        option("--real", is_flag=True, help="Run the clock as fast as that of the machine, from its present time on."),
    ),
    "diagnose": Action("diagnose.of_emulator", data_dir(), bundle),
    "env": Action(
        "emulator.env",
        _data_dir,
        option(
            "--entra",
            is_flag=True,
            help="Also print the tenant, the application with its secret, a file with a federated token, and the"
            " authority.",
        ),
    ),
    "fault": Doors("Inject faults: refused requests, lost answers, failing nodes and allocations.", FAULTS),
    "images": Doors("Local environments used in place of container images.", IMAGES),
    "reset": Action("emulator.reset", _data_dir),
    "start": Action(
        "emulator.start",
        _account(as_parameter=True),
        _data_dir_only,
        option("--port", type=IntRange(0, 65535), help="Port; 0: any free port. Default: 10010, and 0 with --account."),
        option("--nodes-max", type=IntRange(0, 65535), metavar="N", help="Limit of nodes of all pools (256)."),
        option(
            "--quota",
            "quotas",
            multiple=True,
            metavar="NAME=N",
            help="Quota of the account; NAME is pools, dedicated-cores, low-priority-cores or active-jobs.",
        ),
        option("--host", default="127.0.0.1", show_default=True, help="Loopback address to listen on."),
        option(
            "--https", is_flag=True, help="Use https; `emulator env` prints the certificate that clients must trust."
        ),
        option(
            "--name",
            "names",
            multiple=True,
            metavar="HOST",
            help="Additional host name for the certificate, such as NAME.REGION.batch.azure.com (with --https).",
        ),
        option(
            "--pace",
            type=Choice(["instant", "azure"]),
            default="instant",
            show_default=True,
            help="Duration of allocations and removals of nodes, by the clock of the emulator.",
        ),
        option(
            "--allocation",
            type=Choice(["BatchService", "UserSubscription"]),
            default="BatchService",
            show_default=True,
            help="Pool allocation mode of the account. With UserSubscription, it accepts tokens only.",
        ),
        option("--certificate", type=_FILE, metavar="FILE", help="PEM file of a certificate of your own, for https."),
        option("--private-key", type=_FILE, metavar="FILE", help="PEM file of its key."),
        option("--foreground", is_flag=True, help="Run in the foreground until Ctrl-C."),
    ),
    "status": Action("emulator.status", _data_dir),
    "stop": Action("emulator.stop", _data_dir),
    "token": Action(
        "emulator.token",
        _data_dir,
        option(
            "--resource",
            default="https://batch.core.windows.net/",
            show_default=True,
            metavar="URL",
            help="Audience of the token.",
        ),
        option("--minutes", type=IntRange(1, 1440), default=60, show_default=True, help="Lifetime of the token."),
    ),
}
