"""`batchtrain bench FILE`: run a recipe with each combination of settings, and compare."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from batchtrain.cli.help import Command
from batchtrain.cli.options import common, say, settings, tell
from batchtrain.cli.output import show_rows
from batchtrain.errors import UsageError

if TYPE_CHECKING:
    from batchtrain.config.types import Recipe
    from batchtrain.runs.experiment import Case, Experiment
    from batchtrain.runs.scaling import Measured


class Planned(NamedTuple):
    """A run that is planned."""

    case: str
    nodes: int
    node_hours: float
    state: str


@click.command("bench", cls=Command)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--recipe", type=click.Path(exists=True, path_type=Path), help="The recipe, for a config.json of DLBS.")
@click.option("--minutes", type=float, default=10, show_default=True, help="Expected minutes of a run, for the plan.")
@click.option("--plan", "only_plan", is_flag=True, help="Show the runs and their node hours; start nothing.")
@common
def command(file: Path, recipe: Path | None, minutes: float, only_plan: bool) -> None:
    """Run a recipe with each combination of settings, one after another, and report speed-up and efficiency.

    FILE has `recipe`, `matrix`, `command`, `set` and `metric`, or is a config.json of DLBS. A second call continues
    where the first one stopped: what has completed is not run again.
    """
    from batchtrain.runs.experiment import cases

    experiment, place = _read(file, recipe)
    folder = _folder(file)
    done = _done(folder)
    planned = [(case, _load(place, case)) for case in cases(experiment)]
    rows = [_planned(case, loaded, minutes, case.name in done) for case, loaded in planned]
    hours = sum(row.node_hours for row in rows if row.state == "to run")
    if only_plan or settings().output == "table":
        show_rows(rows)
    if only_plan:
        return
    todo = [(case, loaded) for case, loaded in planned if case.name not in done]
    if todo:
        say(f"{len(todo)} runs, about {hours:.2f} node hours at {minutes:g} minutes each")
        settings().confirm(f"Start {len(todo)} runs?")
    for case, loaded in todo:
        _run(case, loaded, folder)
    _report(experiment, planned, folder, file.stem)


def _read(file: Path, recipe: Path | None) -> tuple[Experiment, Path]:
    """The experiment, and the directory of its recipe."""
    import yaml  # 20 ms, and only here

    from batchtrain.runs import experiment

    try:
        data: Any = yaml.safe_load(file.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    if not isinstance(data, dict) or not ({"parameters", "variables"} & data.keys()):
        found = experiment.experiment_of(data, str(file))
        return found, file.parent / found.recipe
    place = recipe or _recipe_of(data, file)
    loaded = settings().load(str(place))
    text = loaded.recipe.jobs[0].tasks[0].command or ""
    found, left = experiment.of_dlbs(data, text, str(place), str(file))
    for name in left:
        say(f"{file}: not applied: {name}")
    return found, place


def _recipe_of(data: dict[str, Any], file: Path) -> Path:
    from batchtrain.runs.experiment import RECIPES
    from batchtrain.shipped import shipped

    given = data.get("parameters", {}).get("exp.framework", "")
    framework = given.get("val", "") if isinstance(given, dict) else given
    if framework not in RECIPES:
        raise UsageError(f"{file}: exp.framework `{framework}` has no recipe that takes it; name one with --recipe DIR")
    return shipped("recipes") / RECIPES[framework]


def _folder(file: Path) -> Path:
    from batchtrain.runs.directory import check, root_of

    root = root_of(settings().runs_dir, os.environ)
    check(root)
    return root / f"bench-{file.stem}"


def _done(folder: Path) -> dict[str, str]:
    """The run directories of the cases that have completed."""
    path = folder / "done.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # cut off by a kill
            continue
        if (folder.parent / record["run"] / "run.json").exists():
            found[record["case"]] = record["run"]
    return found


def _load(place: Path, case: Case) -> Recipe:
    chosen = settings()
    before, chosen.values = chosen.values, {**dict(case.settings), **chosen.values}
    try:
        found = chosen.examined(str(place), needs=("pool_specification", "job_specifications"))
        return found.recipe  # the warnings of all cases are the same: `config validate` prints them
    finally:
        chosen.values = before


def _planned(case: Case, recipe: Recipe, minutes: float, done: bool) -> Planned:
    nodes = _nodes(recipe)
    return Planned(case.name, nodes, nodes * minutes / 60, "done" if done else "to run")


def _nodes(recipe: Recipe) -> int:
    pool = recipe.pool
    return pool.vm_count.dedicated + pool.vm_count.low_priority if pool else 0


def _run(case: Case, recipe: Recipe, folder: Path) -> None:
    """Run one case. A failure is reported, and the next case follows."""
    from batchtrain.config.load import Loaded
    from batchtrain.run import run
    from batchtrain.runs.recording import Origin

    say(f"run {case.name}")
    client = settings().connect(Loaded(recipe, ()))
    origin = Origin(folder.parent, ("batchtrain", "bench"), dict(case.settings))
    outcome = run(client, recipe, tell=tell, origin=origin)
    if outcome.failure is not None:
        say(f"{case.name} failed: {outcome.failure}; `batchtrain bench` runs it again the next time")
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "done.jsonl").open("a") as file:
        file.write(json.dumps({"case": case.name, "run": outcome.runs[0].name}) + "\n")
    if outcome.standing is not None:
        raise outcome.standing


def _report(experiment: Experiment, planned: list[tuple[Case, Recipe]], folder: Path, title: str) -> None:
    from batchtrain.runs import scaling

    measured = list(_measured(experiment, planned, folder))
    table = scaling.rows(measured)
    show_rows(table, empty="no run has completed")
    if not measured:
        return
    (folder / "report.csv").write_text(scaling.as_csv(table))
    (folder / "report.html").write_text(scaling.as_html(title, experiment.metric, table))
    say(f"report: {folder / 'report.html'} and report.csv")


def _measured(experiment: Experiment, planned: list[tuple[Case, Recipe]], folder: Path) -> Iterator[Measured]:
    from batchtrain.runs import compare, scaling
    from batchtrain.runs.directory import RunDirectory
    from batchtrain.runs.summary import OWN_RATES, TOTAL_RATES

    done = _done(folder)
    wanted = {experiment.metric, *(TOTAL_RATES + OWN_RATES if experiment.metric == "throughput" else ())}
    for case, recipe in planned:
        if case.name not in done:
            continue
        run = RunDirectory(folder.parent / done[case.name])
        metric = run.record().summary.get(experiment.metric)
        series: dict[str, list[float]] = {}
        for _, point in run.points():
            for name, value in point.values.items():
                if name in wanted and value is not None and point.rank in (None, 0):
                    series.setdefault(name, []).append(value)
        values = max(series.values(), key=len, default=[])
        yield scaling.Measured(
            case.values, _nodes(recipe), metric.last if metric else None, run.name, compare.statistics_of(values)
        )
