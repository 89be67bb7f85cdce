"""`batchtrain check`: whether nodes are as fast as they should be."""

from __future__ import annotations

import difflib
import re
import shutil
from pathlib import Path

from msgspec.structs import replace

from batchtrain import state_files
from batchtrain.catalog import sizes
from batchtrain.catalog.fabric_marks import METRICS, Mark, is_published
from batchtrain.cli import loading, shipped_recipes
from batchtrain.cli.connecting import connect
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.run import carried_out
from batchtrain.cli.run_directories import origin
from batchtrain.client.run import Outcome
from batchtrain.config.load import Loaded, load_credentials
from batchtrain.config.types import Pool, Recipe
from batchtrain.errors import Differs, UsageError, shortened
from batchtrain.records import FabricCheck, FabricMeasurement
from batchtrain.records.fabric_check import judge
from batchtrain.runs.report import html

RECIPES = {False: "Fabric-Checks-OpenMPI", True: "Fabric-Checks-NCCL"}
"""The recipe that measures, by whether the size has GPUs of NVIDIA."""
MOST_SLOW = 10
_MARK = re.compile(
    r"(?P<metric>\w+)=(?P<expected>{0})(?::(?P<warn>{0})(?::(?P<report>{0}))?)?".format(r"\d+(?:\.\d+)?")
)


def fabric(
    directory: str | None,
    size: str | None,
    nodes: int | None,
    marks: tuple[str, ...],
    keep: bool,
    timeout: float | None,
) -> None:
    """Measure the network between all nodes of a pool and between each two, and compare it with what Azure expects.

    The pool is that of DIR: it is used and kept if it exists. Else it is created, and deleted after the check. --size
    takes a pool for this check alone. The exit code is 11 if a value is a fault, which Azure repairs if you report it.
    """
    overrides = tuple(map(_mark, marks))
    config, pool = _loaded(directory, size, nodes)
    _refuse_single_node(pool, directory)
    options = settings()
    changes = f"checking {pool.vm_count.total} nodes of {pool.vm_size}"
    client = connect(config, changes=changes, ends_it=True, creates=True)
    reuse = size is None and client.pools.stands(pool.id)
    if not is_published(pool.vm_size):
        say(f"Azure publishes no marks for {pool.vm_size}{_comparison(pool, overrides)}", "warning")
    checks: dict[Path, FabricCheck] = {}

    def report(outcome: Outcome) -> None:
        for run in outcome.runs:
            for path in run.path.glob("outputs/*/fabric.json"):
                if measured := state_files.cached(path, FabricMeasurement):
                    checks[run.path] = judge(pool.vm_size, measured, overrides)
                    run.write_fabric(checks[run.path])
                    run.replace(run.report, html(run).encode())

    how = {"timeout": timeout}
    carried_out(client, config.recipe, origin(), report, keep=keep, reuse=reuse, how=how)
    if not checks:
        raise UsageError("the check wrote no fabric.json; `batchtrain runs show` shows what its task printed")
    ((run_path, check),) = checks.items()
    if options.output == "table":
        _print(check)
    else:
        show(check)
    if check.verdict == "fault":
        raise Differs(_fault(check, pool.id if reuse or keep else None, run_path))


def _fault(check: FabricCheck, pool_id: str | None, run_path: Path) -> str:
    """What missed its limit, and the next step. pool_id: the pool of the check, if it still exists."""
    metrics = ", ".join(row.metric for row in check.judged if row.verdict == "fault")
    verb = "miss" if "," in metrics else "misses"
    where = f" (slow: {', '.join(map(shortened, check.slow_nodes))})" if check.slow_nodes else ""
    step = "check again on other nodes"
    if pool_id and check.slow_nodes:
        nodes = " ".join(check.slow_nodes)
        step = f"reboot with `batchtrain pool reboot {pool_id} {nodes}`, and check again"
    report = f"if it stays, report it to Azure with the node ids in {run_path / 'fabric.json'}"
    return f"{metrics} {verb} the limit of {check.vm_size}{where}; {step}; {report}"


def _refuse_single_node(pool: Pool, directory: str | None) -> None:
    """A single node has no network to measure, and only the recipe for GPUs of NVIDIA measures the node itself."""
    if pool.vm_count.total < 2 and not _has_nvidia(pool.vm_size):
        solution = f"set `vm_count` of pool {pool.id}" if directory else "give --nodes 2"
        raise UsageError(f"a network needs 2 nodes; {solution}")


def _comparison(pool: Pool, overrides: tuple[Mark, ...]) -> str:
    """What judges the nodes of a size without published marks."""
    if pool.vm_count.total > 2:
        return ": nodes are only compared with one another"
    if overrides:
        return ": only --mark judges its values"
    return ", and fewer than 3 nodes cannot be compared with one another; give --nodes 3 or --mark"


def _has_nvidia(size: str) -> bool:
    vm = sizes.find(size)
    return vm is not None and vm.gpu_vendor == "nvidia"


def _mark(text: str) -> Mark:
    match = _MARK.fullmatch(text)
    if match is None:
        raise UsageError(f"--mark {text} is not METRIC=EXPECTED[:WARN[:REPORT]], such as pair_gb_per_second=24:20:12")
    metric = match["metric"]
    if metric not in METRICS:
        near = difflib.get_close_matches(metric, METRICS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(METRICS)}"
        raise UsageError(f"--mark {text}: no check measures {metric}; {hint}")
    expected, warn, report = (float(match[name]) if match[name] else None for name in ("expected", "warn", "report"))
    return Mark(metric, expected or 0.0, warn, report, "--mark")


def _loaded(directory: str | None, size: str | None, nodes: int | None) -> tuple[Loaded, Pool]:
    """The recipe of the check, with the pool of a directory or of a size."""
    options = settings()
    if nodes and not size:
        raise UsageError("--nodes is for a pool of its own; give its --size, too")
    if size and directory:
        raise UsageError(f"--size takes a pool for the check alone, and {directory} has one; give one of them")
    if size is not None:
        values = {"pool_specification.vm_size": size, "pool_specification.vm_count.dedicated": str(nodes or 2)}
        recipe = _recipe(size, values)
        if (credentials := load_credentials(options.configdir or ".", options.files)) is not None:
            recipe = replace(recipe, credentials=credentials)
    else:
        base = loading.load(directory, needs=("pool_specification",)).recipe
        assert base.pool is not None
        recipe = _recipe(base.pool.vm_size, {})
        (job,) = recipe.jobs
        (task,) = job.tasks
        assert task.multi_instance is not None
        task = replace(task, multi_instance=replace(task.multi_instance, num_instances=base.pool.vm_count.total))
        recipe = replace(recipe, jobs=(replace(job, tasks=(task,)),), pool=base.pool)
        recipe = replace(recipe, credentials=base.credentials, resources=base.resources)
    assert recipe.pool is not None
    return Loaded(recipe, recipe.warnings), recipe.pool


def _recipe(size: str, values: dict[str, str]) -> Recipe:
    """The shipped recipe for a size; the options of the user win."""
    options = settings()
    before, options.values = options.values, {**values, **options.values}
    before_directory = options.directory
    try:
        return loading.load(str(shipped_recipes.find(RECIPES[_has_nvidia(size)]))).recipe
    finally:
        options.values, options.directory = before, before_directory


def _print(check: FabricCheck) -> None:
    show_rows(check.judged)
    rows = [("GB/s", *(f"n{node}" for node in range(len(check.measured.nodes)))), *check.measured.matrix()]
    width = max(len(cell) for row in rows for cell in row) + 2
    if check.measured.pairs:
        print()
        if width * len(rows) <= shutil.get_terminal_size().columns:
            print("\n".join("".join(cell.rjust(width) for cell in row) for row in rows))
        else:
            slowest = sorted(check.measured.pairs, key=lambda pair: pair.rate)[:MOST_SLOW]
            print("slowest pairs (the report of the run has all):")
            print("\n".join(f"  n{pair.first}-n{pair.second} {pair.rate:.3g} GB/s" for pair in slowest))
    for name in check.slow_nodes:
        say(f"node {name} is slower than the others, with each of them", "failure")
    if check.verdict in _SUMMARY:
        say(_SUMMARY[check.verdict], "success" if check.verdict == "good" else "warning")


_SUMMARY = {"good": "as fast as Azure expects", "slow": "slower than Azure expects; check it again on other nodes"}
