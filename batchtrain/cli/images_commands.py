"""The commands of `batchtrain images`: their parameters, and the function of each."""

from __future__ import annotations

from click import Choice, argument, option

from batchtrain.cli.help import Action, Table
from batchtrain.cli.parameters import data_dir, duration, recipes

_architecture = option(
    "--architecture", default="amd64", show_default=True, help="Architecture of the nodes, such as amd64 or arm64."
)

COMMANDS: Table = {
    "build": Action(
        "images.build",
        argument("name", metavar="NAME|RECIPE|DIRECTORY"),
        option(
            "--on", default="", help="The base, listed by `images list --bases`. Default: cpu, or that of the recipe."
        ),
        option("--base", default="", metavar="IMAGE", help="An image to use instead of the base."),
        option(
            "--tag",
            default="",
            metavar="IMAGE",
            help="Name of the image. Default: batchtrain/NAME:ON, or that of the recipe.",
        ),
        option("--build-arg", "arguments", multiple=True, metavar="A=B", help="A build argument for every build."),
        option("--network", default="", metavar="NET", help="Network of the build commands, such as host."),
        option("--pull", is_flag=True, help="Pull the base again."),
        option("--push", is_flag=True, help="Push the image to the registry of its name."),
    ),
    "check": Action(
        "images.check",
        argument("names", nargs=-1, required=True, metavar="IMAGE..."),
        option(
            "--for",
            "purpose",
            type=Choice(["any", "mpi", "framework", "single"]),
            default="any",
            show_default=True,
            help="Purpose of the image: a gang launched by mpirun, by a framework block or by either; or a"
            " single task.",
        ),
        option("--layers", is_flag=True, help="Read every layer, to find private keys that a later layer deletes."),
        option("--no-pull", is_flag=True, help="Do not pull images."),
        _architecture,
    ),
    "env": Action(
        "images.env",
        argument("name", metavar="[RECIPE|DIRECTORY]", required=False, shell_complete=recipes),
        option("--dry-run", is_flag=True, help="Only print what would be installed."),
        data_dir(),
    ),
    "environments": Action("images.environments"),
    "list": Action(
        "images.list_", option("--bases", is_flag=True, help="List the bases for --on instead of the images.")
    ),
    "load": Action("images.load", argument("source", metavar="FILE|storage:LINK/CONTAINER/PATH")),
    "mirror": Action(
        "images.mirror",
        argument("names", nargs=-1, metavar="[IMAGE...]"),
        option(
            "--to",
            "target",
            metavar="SERVER[/PATH]",
            help="The target registry. Default: `fallback_registry` of config.yaml.",
        ),
        _architecture,
    ),
    "prune": Action(
        "images.prune",
        option(
            "--older-than",
            "age",
            callback=duration,
            default="30d",
            show_default=True,
            metavar="TIME",
            help="Time since the last use.",
        ),
    ),
    "save": Action(
        "images.save",
        argument("names", nargs=-1, required=True, metavar="IMAGE..."),
        argument("target", metavar="FILE|storage:LINK/CONTAINER/PATH"),
    ),
}
