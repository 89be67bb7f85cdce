"""The tree of commands. The table of a group and the function of a command are imported when they are needed."""

from __future__ import annotations

import sys

import click

from batchtrain.cli.help import Door, Doors, late_bound
from batchtrain.cli.options import Settings, global_options, values_of_variable
from batchtrain.cli.streams import nobody_reads

UNREAD = 141
"""The exit code if the reader of the output is gone, as for a program that SIGPIPE ends."""


class _Jobs(Doors):
    """Takes `jobs tasks term JOB` for `jobs task term JOB`; `jobs tasks term` lists the tasks of a job `term`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        match args, self.doors["task"]:
            case ["tasks", verb, job_id, *_], Doors(doors=verbs) if verb in verbs and not job_id.startswith("-"):
                args = ["task", *args[1:]]
        return super().resolve_command(ctx, args)


CONFIG = Doors(
    "Check, plan and explain configuration files; offline, and without credentials.", "config_commands.COMMANDS"
)
DATA = Doors(
    "Upload files to storage, download them, and delete them.\n\n"
    "Files are copied several at once. An interrupted command continues where it stopped when it is run again. A file "
    "or blob that is the same already is skipped: as many bytes with the same MD5, or, without an MD5, not older.",
    "data_commands.COMMANDS",
)
CATALOG = Doors("VM sizes and images; `catalog.yaml` adds to them or corrects them.", "catalog_commands.COMMANDS")
IMAGES = Doors(
    "Container images, with the `docker` command of this machine, and environments of recipes.",
    "images_commands.COMMANDS",
)
EMULATOR = Doors(
    "The embedded Azure Batch of this machine.",
    "emulator_commands.COMMANDS",
    callback=None if sys.platform == "linux" else late_bound(".emulator.local_service.require_linux"),
)
RUNS = Doors(
    "Runs: their records on this machine, which need no account, and the detached runs of an account.",
    "runs_commands.COMMANDS",
)

root = Doors(
    "Distributed training on Azure Batch, or on the embedded Azure Batch of this machine (--local).",
    {
        "config": Door(CONFIG, "Check, plan and explain configuration files."),
        "pool": Doors("Pools of nodes.", "pool_commands.COMMANDS"),
        "jobs": _Jobs("Jobs and their tasks.", "jobs_commands.COMMANDS"),
        "data": Door(DATA, "Upload files to storage, and download them."),
        "recipe": Doors("Recipes that come with batchtrain.", "recipe_commands.COMMANDS"),
        "catalog": Door(CATALOG, "VM sizes and images, and replacements for retired ones."),
        "images": Door(IMAGES, "Container images and local environments of recipes."),
        "doctor": Door("single_commands.DOCTOR", "Check account, quota and size before you pay."),
        "check": Doors("Check the network of a pool before you pay for a training.", "single_commands.CHECKS"),
        "verify": Door("single_commands.VERIFY", "Verify what batchtrain assumes about Azure, and write a report."),
        "emulator": Door(EMULATOR, "The embedded Azure Batch on this machine."),
        "init": Door("single_commands.INIT", "Write batchtrain.yaml, a recipe in one file, for a script."),
        "run": Door("single_commands.RUN", "Run a script or a recipe from start to end, and clean up."),
        "runs": Door(RUNS, "List, show, compare and export past runs."),
        "dashboard": Door("single_commands.DASHBOARD", "Show pools, jobs, live logs, curves and runs in the browser."),
        "bench": Door("single_commands.BENCH", "Run a recipe with each combination of settings, and compare."),
        "help": Door("single_commands.HELP", "Pages of the documentation."),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
click.version_option(package_name="batchtrain", prog_name="batchtrain", message="%(prog)s %(version)s")(root)
root.params += global_options(variables=True)


def run() -> int:
    """Run the command of `sys.argv`; returns its exit code."""
    options = Settings()
    try:
        options.values.update(values_of_variable())
        result = root.main(standalone_mode=False, obj=options)
        print(end="", flush=True)  # reports a full disk behind stdout here, and not when Python ends
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as empty:
        print(empty.format_message(), file=sys.stderr)
        return 2
    except SystemExit:  # from click: a completion, or a broken pipe
        if nobody_reads():
            return UNREAD
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost handler: every exception becomes one message
        if isinstance(error, BrokenPipeError) and nobody_reads():
            return UNREAD
        from batchtrain.cli import failures  # needed only by a command that failed

        return failures.report(error, options)
