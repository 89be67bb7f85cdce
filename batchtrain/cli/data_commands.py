"""The commands of `batchtrain data`: their parameters, and the function of each."""

from __future__ import annotations

from pathlib import Path

import click
from click import argument, option

from batchtrain.cli.help import Action, Table
from batchtrain.cli.parameters import directory

COMMANDS: Table = {
    "get": Action(
        "data.get",
        argument("address", metavar="LINK/CONTAINER/PATH"),
        argument("destination", default=".", type=click.Path(path_type=Path)),
    ),
    "ingress": Action("data.ingress", directory),
    "list": Action("data.list_", argument("address", metavar="LINK/CONTAINER[/PATH]")),
    "rm": Action(
        "data.rm",
        argument("address", metavar="LINK/CONTAINER[/PATH]"),
        argument("patterns", metavar="[PATTERN]...", nargs=-1),
    ),
    "sync": Action(
        "data.sync",
        argument("source", metavar="SOURCE"),
        argument("destination", metavar="DESTINATION"),
        option("--delete", is_flag=True, help="Also delete at DESTINATION what SOURCE does not have."),
    ),
}
