"""The root command: global options, and groups that are imported only when they are named."""

from __future__ import annotations

import importlib
from typing import Any

import click

from batchtrain.cli.help import Group
from batchtrain.cli.options import common_with_variables

GROUPS = {
    "config": "Check, plan and explain configuration files.",
    "pool": "Pools of nodes.",
    "jobs": "Jobs and their tasks.",
    "data": "Files of this machine to storage, and back.",
    "recipe": "Recipes that come with batchtrain.",
    "catalog": "VM sizes and images, and what replaces those gone.",
    "images": "Container images: build, check, mirror, save, load.",
    "doctor": "Check account, quota and size before you pay.",
    "emulator": "The embedded Azure Batch on this machine.",
    "run": "Run a recipe from nothing to its end, and clean up.",
}


class _Lazy(Group):
    """A group whose members live in modules of their names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(GROUPS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in GROUPS:
            return None
        if ctx.resilient_parsing or _wants_root_help():
            return click.Command(name, help=GROUPS[name])  # for the list: no import
        module: Any = importlib.import_module(f"batchtrain.cli.{name}")
        command: click.Command = module.command
        return command


def _wants_root_help() -> bool:
    import sys

    return all(word.startswith("-") for word in sys.argv[1:])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(package_name="batchtrain", prog_name="batchtrain", message="%(prog)s %(version)s")
@common_with_variables
def root() -> None:
    """Distributed training on Azure Batch, or on the embedded Azure Batch of this machine (--local)."""
