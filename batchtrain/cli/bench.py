"""`batchtrain bench FILE`: run a recipe with each combination of settings, and compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from batchtrain import state_files
from batchtrain.catalog.prices import money
from batchtrain.cli import loading
from batchtrain.cli.children import Child, Children, Ended
from batchtrain.cli.connecting import connect
from batchtrain.cli.failures import INTERRUPTED
from batchtrain.cli.hourly_cost import hour_of
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show_rows
from batchtrain.cli.run_directories import runs_root
from batchtrain.config import travel
from batchtrain.config.load import Loaded
from batchtrain.config.source_directory import read_sources
from batchtrain.config.types import Recipe
from batchtrain.errors import BatchtrainError, JobExpired, ServiceError, TaskFailed, TimedOut, Unreachable, UsageError
from batchtrain.records.rates import is_rate
from batchtrain.runs import compare, experiment, scaling_report
from batchtrain.runs.beginnings import training_jobs
from batchtrain.runs.directory import RunDirectory, check, open_private, replace
from batchtrain.runs.experiment import COMMAND, Case, Experiment, cases
from batchtrain.runs.recording import effective
from batchtrain.runs.scaling_report import Measured
from batchtrain.service.files import decoded_lines
from batchtrain.shipped import shipped

STOPS = {2: UsageError, 5: Unreachable, 6: TimedOut}
"""The errors of a run after which no further run begins, by exit code; others of the service are a ServiceError."""


class PlannedRow(NamedTuple):
    """A run that is planned."""

    case: str
    nodes: int
    node_hours: float
    cost: str
    state: str


class Done(msgspec.Struct, frozen=True):
    """A line of done.jsonl: a case that has completed."""

    case: str
    digest: str
    run: str


class Planned(NamedTuple):
    """A run with its recipe, and the digest of all that determines it."""

    case: Case
    directory: Path
    recipe: Recipe
    settings: dict[str, str]
    digest: str

    @property
    def nodes(self) -> int:
        pool = self.recipe.pool
        return pool.vm_count.total if pool else 0


def command(file: Path, recipe: Path | None, parallel: int, minutes: float, only_plan: bool) -> None:
    """Run a recipe with each combination of settings, and report speed-up and efficiency.

    FILE has `recipe`, `matrix`, `command`, `arguments`, `set` and `metric`, or is a config.json of DLBS. Runs follow
    one another; with --parallel, each one has a pool of its own. A second call continues where the first one stopped:
    what has completed, and has not changed since, is not run again.
    """
    experiment, cases = _planned(file, recipe)
    check(runs_root())
    folder = runs_root() / f"bench-{file.stem}"
    run_names = _done(folder)
    rows = [_row(case, minutes, run_names) for case in cases]
    hours = sum(row.node_hours for row in rows if row.state == "to run")
    if only_plan or settings().output == "table":
        show_rows(rows)
    if only_plan:
        return
    todo = [case for case in cases if case.digest not in run_names]
    failed: list[str] = []
    if todo:
        cost = f" ({cost})" if (cost := _total(todo, minutes)) else ""
        say(f"{len(todo)} runs, about {hours:.2f} node hours{cost} at {minutes:g} minutes each")
        confirm(f"Start {len(todo)} runs?")
        failed = _run_all(todo, cases, folder, parallel)
    _report(experiment, cases, folder, file.stem)
    if failed:
        raise TaskFailed(
            f"{len(failed)} of {len(todo)} runs failed: {', '.join(failed)}; the same command runs them again"
        )


# --- what is to run --------------------------------------------------------------------------------------------------


def _planned(file: Path, recipe: Path | None) -> tuple[Experiment, list[Planned]]:
    experiment, base = _read(file, recipe)
    return experiment, [_loaded(base / case.recipe, case) for case in cases(experiment)]


def _read(file: Path, recipe: Path | None) -> tuple[Experiment, Path]:
    """The experiment, and the directory that its recipe is relative to."""
    try:
        data: Any = yaml.safe_load(file.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    if not isinstance(data, dict) or not ({"parameters", "variables"} & data.keys()):
        return experiment.experiment_of(data, str(file)), file.parent
    result, inapplicable = experiment.of_dlbs(data, str(recipe.absolute()) if recipe else "", str(file))
    for name in inapplicable:
        say(f"{file}: not applied: {name}")
    return result, shipped("recipes")


def _loaded(directory: Path, case: Case) -> Planned:
    """The recipe with the settings of a case; values of --set win."""
    values = {**dict(case.settings), **settings().values}
    recipe = _recipe(directory, values)
    if case.arguments and COMMAND not in settings().values:
        text = (recipe.jobs[0].tasks[0].command or "").rstrip()
        values[COMMAND] = f"{text} {case.arguments}"
        recipe = _recipe(directory, values)
    return Planned(case, directory, recipe, values, _digest(recipe))


def _recipe(directory: Path, values: dict[str, str]) -> Recipe:
    options = settings()
    before, options.values = options.values, values
    try:
        config = loading.examined(str(directory), needs=("pool_specification", "job_specifications"))
        return config.recipe  # the warnings of all cases are the same: `config validate` prints them
    finally:
        options.values = before


def _digest(recipe: Recipe) -> str:
    """The same for the same configuration with the same files."""
    recipe_hash = hashlib.sha256(json.dumps(effective(recipe), sort_keys=True).encode())
    for name, files in sorted(read_sources(recipe).items()):
        for path, digest in sorted(travel.digests(files)):
            recipe_hash.update(f"{name}\0{path}\0{digest}\0".encode())
    return recipe_hash.hexdigest()


def _row(case: Planned, minutes: float, run_names: dict[str, str]) -> PlannedRow:
    state = "done" if case.digest in run_names else "to run"
    return PlannedRow(case.case.name, case.nodes, case.nodes * minutes / 60, _total([case], minutes), state)


def _total(cases: list[Planned], minutes: float) -> str:
    """What runs of so many minutes cost; empty if a price is unknown."""
    hours = [hour_of(case.recipe) for case in cases]
    costs = [hour.cost for hour in hours if hour is not None and hour.cost is not None]
    currencies = {hour.price.currency for hour in hours if hour is not None and hour.price is not None}
    if len(costs) < len(cases) or len(currencies) != 1:
        return ""
    return money(sum(costs) * minutes / 60, currencies.pop())


# --- what has run ----------------------------------------------------------------------------------------------------


def _done(folder: Path) -> dict[str, str]:
    """The run directories of the cases that have completed, by digest."""
    with state_files.stream(folder / "done.jsonl", "all cases run again") as file:
        records = tuple(decoded_lines(file.read(), Done))
    return {record.digest: record.run for record in records if (folder.parent / record.run / "run.json").exists()}


def _note_done(folder: Path, case: Planned, run: str) -> None:
    """Append a line, also behind one that a kill has cut off."""
    path = folder / "done.jsonl"
    begin = "\n" if path.exists() and not path.read_bytes().endswith(b"\n") else ""
    line = msgspec.json.encode(Done(case.case.name, case.digest, run)).decode()
    with open_private(path, "ab") as file:
        file.write(f"{begin}{line}\n".encode())


# --- the runs --------------------------------------------------------------------------------------------------------


def _run_all(todo: list[Planned], cases: list[Planned], folder: Path, parallel: int) -> list[str]:
    """Run each case in a process of its own. Returns the names of those whose task failed; another error ends all."""
    connect(Loaded(todo[0].recipe, ()))  # a wrong account is one error; a started emulator stays for all
    numbers = {case.digest: number for number, case in enumerate(cases, 1)}
    children = {_child(case, folder, numbers[case.digest] if parallel > 1 else 0): case for case in todo}
    messages: dict[Child, str] = {}
    failed: list[str] = []
    with Children(parallel) as running:
        for news in running.run(list(children)):
            if isinstance(news, Ended):
                if not _completed(news, children[news.child], folder, messages.get(news.child, "")):
                    failed.append(news.child.name)
            elif message := _message(news.text):
                messages[news.child] = message
            else:
                say(f"[{news.child.name}] {news.text}")
    return failed


def _child(case: Planned, folder: Path, number: int) -> Child:
    """`batchtrain run` of a case. number: ends the ids of its pool and its jobs, which run beside others."""
    options, values = settings(), dict(case.settings)
    if number and case.recipe.pool is not None:
        values["pool_specification.id"] = f"{case.recipe.pool.id}-{number}"
    for index, job in enumerate(case.recipe.jobs if number else ()):
        values[f"job_specifications[{index}].id"] = f"{job.id}-{number}"
    words = ["run", str(case.directory), "-o", "json", "--runs-dir", str(folder.parent)]
    words += ["--local"] if options.local else []
    words += ["--batch-account", options.batch_account] if options.batch_account else []
    words += ["--fresh"] if training_jobs(case.recipe) else []  # a case measures a whole training
    words += [word for name in options.ignore for word in ("--ignore", name)]
    words += [word for part, file in options.files.items() for word in (f"--{part}", file)]
    words += [word for path, text in values.items() for word in ("--set", f"{path}={text}")]
    return Child(case.case.name, tuple(words))


def _message(line: str) -> str:
    """The message of the error document that a run prints at its end; empty for any other line."""
    if not line.startswith('{"code": '):
        return ""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, KeyError):
        return ""


def _completed(end: Ended, case: Planned, folder: Path, message: str) -> bool:
    """Notes a run that completed, and says how it ended. Returns False if its tasks failed; any other end raises."""
    name = end.child.name
    if end.code == 0:
        run = Path(json.loads(end.output)[0]["run"]).name
        _note_done(folder, case, run)
        say(f"[{name}] completed: {run}")
        return True
    if end.code in (TaskFailed.exit_code, JobExpired.exit_code):
        say(f"{name} failed: {message}")
        return False
    if end.code == INTERRUPTED:
        raise KeyboardInterrupt
    kind: type[BatchtrainError] = STOPS.get(end.code, ServiceError)
    raise kind(f"{name}: {message}; what has completed is not run again by the next `batchtrain bench`")


# --- the report ------------------------------------------------------------------------------------------------------


def _report(experiment: Experiment, cases: list[Planned], folder: Path, title: str) -> None:
    runs = list(_measured(experiment, cases, folder))
    table = scaling_report.rows(runs)
    show_rows(table, empty="no run has completed")
    if not runs:
        return
    replace(folder / "report.csv", scaling_report.as_csv(table).encode())
    replace(folder / "report.html", scaling_report.as_html(title, experiment.metric, table).encode())
    say(f"report: {folder / 'report.html'} and report.csv")


def _measured(experiment: Experiment, cases: list[Planned], folder: Path) -> Iterator[Measured]:
    run_names = _done(folder)
    for planned_case in cases:
        if planned_case.digest not in run_names:
            continue
        run = RunDirectory(folder.parent / run_names[planned_case.digest])
        record = run.record()
        metric = record.summary.get(experiment.metric)
        series: dict[str, list[float]] = {}
        for _, point in run.points():
            for name, value in point.values.items():
                is_measured = name == experiment.metric or (experiment.metric == "throughput" and is_rate(name))
                if is_measured and value is not None and point.rank in (None, 0):
                    series.setdefault(name, []).append(value)
        values = max(series.values(), key=len, default=[])
        statistics = compare.statistics_of(values)
        rate, cost = metric.last if metric else None, compare.cost(record)
        yield scaling_report.Measured(
            planned_case.case.values, planned_case.nodes, rate, run.name, statistics, record.node_hours, cost
        )
