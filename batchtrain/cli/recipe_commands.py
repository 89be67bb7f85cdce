"""The commands of `batchtrain recipe`: their parameters, and the function of each."""

from __future__ import annotations

from click import argument

from batchtrain.cli.help import Action, Table
from batchtrain.cli.parameters import directories, recipes

_name = argument("name", shell_complete=recipes)
COMMANDS: Table = {
    "list": Action("recipe.list_"),
    "new": Action(
        "recipe.new", _name, argument("directory", metavar="[DIR]", required=False, shell_complete=directories)
    ),
    "show": Action("recipe.show_", _name),
}
