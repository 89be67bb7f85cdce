"""The commands of `batchtrain runs`: their parameters, and the function of each."""

from __future__ import annotations

from pathlib import Path

import click
from click import Choice, argument, option

from batchtrain.cli.help import Action, Table
from batchtrain.cli.parameters import directories, duration, ranks, since, timeout
from batchtrain.service.deadlines import JOB_SECONDS

NEWEST = 50
"""Runs that `runs list` shows on a terminal without --all."""
_run = argument("run", default="latest")
_link = option("--link", help="Storage account of the run. Default: the one of credentials.yaml.")

COMMANDS: Table = {
    "attach": Action("detached.attach", _run, _link, ranks, timeout(JOB_SECONDS, "Maximum seconds to follow.")),
    "clean": Action(
        "runs_of_account.clean",
        option("--all-users", is_flag=True, help="Also what the runs of other users left."),
        option("--older-than", callback=duration, metavar="TIME", help="Only what is older, such as 12h or 1d."),
        option("--elsewhere", is_flag=True, help="Also delete what belongs to runs that are not known here."),
    ),
    "compare": Action("runs.compare_", argument("names", nargs=-1, required=True, metavar="RUN RUN...")),
    "cost": Action(
        "runs_of_account.cost",
        option("--by", type=Choice(["tag", "user", "job", "size"]), default="job", show_default=True),
        option("--since", callback=since, default="30d", show_default=True, metavar="TIME"),
        option("--account", is_flag=True, help="Also the pools of the account whose runs are not recorded here."),
    ),
    "export": Action(
        "runs.export",
        _run,
        option("--csv", "form", flag_value="csv", default=True, help="One line per value, on stdout. The default."),
        option("--dlbs", "form", flag_value="dlbs", help="rank_N.log files for the log parser of DLBS."),
        option("--tensorboard", "form", flag_value="tensorboard", help="Event files for TensorBoard."),
        option(
            "-d", "--directory", type=click.Path(path_type=Path), help="Directory to write to. Default: in the run."
        ),
    ),
    "fetch": Action(
        "detached.fetch",
        _run,
        _link,
        option("--all", "everything", is_flag=True, help="Also results that are larger than `results.max_size`."),
    ),
    "label": Action(
        "runs.label",
        _run,
        option("--tag", "tags", multiple=True, metavar="TAG", help="Add a tag. May be repeated."),
        option("--untag", "untags", multiple=True, metavar="TAG", help="Remove a tag. May be repeated."),
        option("--note", help="Replace the note; an empty text removes it."),
    ),
    "list": Action(
        "runs.list_",
        option("--account", is_flag=True, help="The runs of all users and machines whose jobs the account still has."),
        option("--tag", metavar="TAG", help="Only runs with this tag."),
        option("--job", metavar="JOB", help="Only runs of this job."),
        option("--state", metavar="STATE", help="Only runs in this state, such as failed, running or succeeded."),
        option("--since", callback=since, metavar="TIME", help="Only runs that began since: 30d, 2027-01-31."),
        option("--sort", metavar="METRIC", help="The best last value of this metric first."),
        option("--all", "lists_all", is_flag=True, help=f"All runs. A terminal shows the newest {NEWEST}."),
    ),
    "restore": Action(
        "runs.restore_", argument("run"), argument("directory", metavar="DIR", shell_complete=directories)
    ),
    "show": Action("runs.show_", _run),
    "stop": Action("detached.stop", _run),
}
