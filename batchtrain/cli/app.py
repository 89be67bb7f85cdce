"""The root command: global options, and groups that are imported only when they are named."""

from __future__ import annotations

import importlib
from typing import Any

import click

from batchtrain.cli.help import Group
from batchtrain.cli.options import global_options

GROUPS = {
    "config": "Check, plan and explain configuration files.",
    "pool": "Pools of nodes.",
    "jobs": "Jobs and their tasks.",
    "data": "Upload files to storage, and download them.",
    "recipe": "Recipes that come with batchtrain.",
    "catalog": "VM sizes and images, and replacements for retired ones.",
    "images": "Container images and local environments of recipes.",
    "doctor": "Check account, quota and size before you pay.",
    "check": "Check the network of a pool before you pay for a training.",
    "verify": "Verify what batchtrain assumes about Azure, and write a report.",
    "emulator": "The embedded Azure Batch on this machine.",
    "init": "Write batchtrain.yaml, a recipe in one file, for a script.",
    "run": "Run a script or a recipe from start to end, and clean up.",
    "runs": "List, show, compare and export past runs.",
    "dashboard": "Show pools, jobs, live logs, curves and runs in the browser.",
    "bench": "Run a recipe with each combination of settings, and compare.",
    "help": "Pages of the documentation.",
}
MODULES = {"help": "pages"}
"""Commands whose module has another name."""


class _Lazy(Group):
    """A group whose commands are in modules of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(GROUPS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The entry in a list of commands, which needs no import: name and summary."""
        return click.Command(name, help=GROUPS[name]) if name in GROUPS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the command, to run it or to complete its arguments."""
        name, stand_in, arguments = super().resolve_command(ctx, args)
        return name, member(name) if name and stand_in else None, arguments


def member(name: str) -> click.Command:
    """A group or a command of the root, imported."""
    module: Any = importlib.import_module(f"batchtrain.cli.{MODULES.get(name, name)}")
    command: click.Command = module.command
    return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(package_name="batchtrain", prog_name="batchtrain", message="%(prog)s %(version)s")
def root() -> None:
    """Distributed training on Azure Batch, or on the embedded Azure Batch of this machine (--local)."""


root.params += global_options(variables=True)
