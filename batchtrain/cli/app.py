"""Every command, and the function that it calls; the function's module is imported only then."""

from __future__ import annotations

import click

from batchtrain.cli.help import Door, Doors
from batchtrain.cli.options import global_options


class _Jobs(Doors):
    """Takes `jobs tasks term JOB` for `jobs task term JOB`; `jobs tasks term` lists the tasks of a job `term`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        match args:
            case ["tasks", verb, job_id, *_] if verb in TASK.doors and not job_id.startswith("-"):
                args = ["task", *args[1:]]
        return super().resolve_command(ctx, args)


CONFIG = Doors(
    "Check, plan and explain configuration files; offline, and without credentials.",
    {
        "checks": "config.checks",
        "explain": "plan_reasons.explain",
        "get": "config.get",
        "migrate": "config.migrate",
        "import": "config.import_",
        "plan": "plan.plan",
        "schema": "config.schema",
        "set": "config.set_",
        "show": "config.show_merged",
        "validate": "validate.validate",
    },
)
POOL = Doors(
    "Pools of nodes.",
    {
        "add": "pool.add",
        "autoscale": Doors("Autoscale formulas of pools.", {"evaluate": "pool.evaluate"}),
        "del": "pool.del_",
        "diagnose": "diagnose.of_pool",
        "files": "pool.files",
        "forward": "logins.forward",
        "get": "pool.get",
        "list": "pool.list_",
        "login": "pool.login",
        "reboot": "pool.reboot",
        "resize": "pool.resize",
        "show": "pool.show_",
        "ssh": "logins.ssh",
        "wait": "pool.wait",
        "watch": "pool.watch",
    },
)
TASK = Doors(
    "Single tasks of a job: terminate, delete and reactivate. `jobs tasks` lists them.",
    {
        "del": "job_operations.del_",
        "reactivate": "job_operations.reactivate",
        "term": "job_operations.term",
    },
)
JOBS = _Jobs(
    "Jobs and their tasks.",
    {
        "add": "jobs.add",
        "del": "jobs.del_",
        "diagnose": "diagnose.of_job",
        "disable": "jobs.disable",
        "enable": "jobs.enable",
        "exec": "logins.exec_",
        "fetch": "job_files.fetch",
        "files": "job_files.files",
        "gc": "job_operations.gc",
        "get": "job_files.get",
        "list": "jobs.list_",
        "logs": "jobs.logs",
        "migrate": "job_operations.migrate",
        "resubmit": "job_operations.resubmit",
        "show": "jobs.show_",
        "stacks": "logins.stacks_",
        "stats": "job_operations.stats",
        "sweep": "job_operations.sweep",
        "task": TASK,
        "tasks": "job_tasks.tasks",
        "tensorboard": "job_files.tensorboard",
        "term": "jobs.term",
        "wait": "jobs.wait",
        "watch": "jobs.watch",
    },
)
DATA = Doors(
    "Upload files to storage, download them, and delete them.\n\n"
    "Files are copied several at once. An interrupted command continues where it stopped when it is run again. A file "
    "or blob that is the same already is skipped: as many bytes with the same MD5, or, without an MD5, not older.",
    {
        "get": "data.get",
        "ingress": "data.ingress",
        "list": "data.list_",
        "rm": "data.rm",
        "sync": "data.sync",
    },
)
RECIPE = Doors(
    "Recipes that come with batchtrain.",
    {
        "list": "recipe.list_",
        "new": "recipe.new",
        "show": "recipe.show_",
    },
)
CATALOG = Doors(
    "VM sizes and images; `catalog.yaml` adds to them or corrects them.",
    {
        "images": "catalog.images",
        "refresh": "catalog_refresh.refresh",
        "sizes": "catalog.sizes",
    },
)
IMAGES = Doors(
    "Container images, with the `docker` command of this machine, and environments of recipes.",
    {
        "build": "images.build",
        "check": "images.check",
        "env": "images.env",
        "environments": "images.environments",
        "list": "images.list_",
        "load": "images.load",
        "mirror": "images.mirror",
        "prune": "images.prune",
        "save": "images.save",
    },
)
FAULT = Doors(
    "Inject faults: refused requests, lost answers, failing nodes and allocations.",
    {
        "add": "emulator.add_fault",
        "clear": "emulator.clear_faults",
        "list": "emulator.list_faults",
        "node": "emulator.befall",
    },
)


def _require_linux() -> None:
    from batchtrain.client.local import require_linux

    require_linux()


EMULATOR = Doors(
    "The embedded Azure Batch of this machine.",
    {
        "capacity": "emulator.capacity",
        "clock": "emulator.clock",
        "diagnose": "diagnose.of_emulator",
        "env": "emulator.env",
        "fault": FAULT,
        "images": Doors(
            "Local environments used in place of container images.",
            {
                "list": "emulator.list_",
                "map": "emulator.map_",
                "unmap": "emulator.unmap",
            },
        ),
        "reset": "emulator.reset",
        "start": "emulator.start",
        "status": "emulator.status",
        "stop": "emulator.stop",
        "token": "emulator.token",
    },
    callback=_require_linux,
)
RUNS = Doors(
    "Runs: their records on this machine, which need no account, and the detached runs of an account.",
    {
        "attach": "detached.attach",
        "clean": "runs_of_account.clean",
        "compare": "runs.compare_",
        "cost": "runs_of_account.cost",
        "export": "runs.export",
        "fetch": "detached.fetch",
        "label": "runs.label",
        "list": "runs.list_",
        "restore": "runs.restore_",
        "show": "runs.show_",
        "stop": "detached.stop",
    },
)
CHECK = Doors("Check the network of a pool before you pay for a training.", {"fabric": "check.fabric"})


root = Doors(
    "Distributed training on Azure Batch, or on the embedded Azure Batch of this machine (--local).",
    {
        "config": Door(CONFIG, "Check, plan and explain configuration files."),
        "pool": POOL,
        "jobs": JOBS,
        "data": Door(DATA, "Upload files to storage, and download them."),
        "recipe": RECIPE,
        "catalog": Door(CATALOG, "VM sizes and images, and replacements for retired ones."),
        "images": Door(IMAGES, "Container images and local environments of recipes."),
        "doctor": Door("doctor.command", "Check account, quota and size before you pay."),
        "check": CHECK,
        "verify": Door("verify.command", "Verify what batchtrain assumes about Azure, and write a report."),
        "emulator": Door(EMULATOR, "The embedded Azure Batch on this machine."),
        "init": Door("init.command", "Write batchtrain.yaml, a recipe in one file, for a script."),
        "run": Door("run.command", "Run a script or a recipe from start to end, and clean up."),
        "runs": Door(RUNS, "List, show, compare and export past runs."),
        "dashboard": Door("dashboard.command", "Show pools, jobs, live logs, curves and runs in the browser."),
        "bench": Door("bench.command", "Run a recipe with each combination of settings, and compare."),
        "help": Door("pages.command", "Pages of the documentation."),
    },
    context_settings={"help_option_names": ["-h", "--help"]},
)
click.version_option(package_name="batchtrain", prog_name="batchtrain", message="%(prog)s %(version)s")(root)
root.params += global_options(variables=True)
