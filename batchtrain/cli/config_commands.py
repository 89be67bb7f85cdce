"""The commands of `batchtrain config`: their parameters, and the function of each."""

from __future__ import annotations

from click import Choice, Path, argument, option

from batchtrain.cli.help import Action, Table
from batchtrain.cli.parameters import directory
from batchtrain.errors import Differs

COMMANDS: Table = {
    "checks": Action("config.checks"),
    "explain": Action("plan_reasons.explain", argument("path", required=False), directory),
    "get": Action("config.get", argument("name", required=False)),
    "migrate": Action(
        "config.migrate",
        directory,
        option("--write", is_flag=True, help="Change the files. Without it, the changes are only shown."),
    ),
    "import": Action(
        "config.import_",
        argument("files", metavar="FILE...", nargs=-1, required=True, type=Path(exists=True, dir_okay=False)),
        option("--to", metavar="DIR", default=".", help="Directory of the recipe. Default: the working directory."),
    ),
    "plan": Action(
        "plan.plan",
        directory,
        option("--diff", is_flag=True, help="Compare the plan with the existing pool and jobs. Nothing is changed."),
        option(
            "--exit-code",
            is_flag=True,
            help=f"With --diff: exit with {Differs.exit_code} if something differs from the plan.",
        ),
    ),
    "schema": Action("config.schema", argument("name", type=Choice(["credentials", "config", "pool", "jobs"]))),
    "set": Action("config.set_", argument("name"), argument("value")),
    "show": Action(
        "config.show_merged",
        directory,
        option("--origin", is_flag=True, help="Show the origin of each value."),
        option("--no-defaults", is_flag=True, help="Omit defaults."),
    ),
    "validate": Action(
        "validate.validate",
        directory,
        option("--fix", is_flag=True, help="Fix problems that have exactly one solution. Comments are kept."),
    ),
}
