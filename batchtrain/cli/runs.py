"""`batchtrain runs`: the records of past runs: list, show, compare, export."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common, say, settings
from batchtrain.cli.output import plain, show, show_rows
from batchtrain.errors import UsageError

if TYPE_CHECKING:
    from batchtrain.runs.directory import RunDirectory, RunRecord


WIDEST = 40
"""Characters of a value in `runs compare`."""


@click.group(cls=Group)
def command() -> None:
    """The records of past runs: numbers, logs and files. No account is needed."""


def _root() -> Path:
    from batchtrain.runs.directory import root_of

    return root_of(settings().runs_dir, os.environ)


def _run(name: str) -> RunDirectory:
    from batchtrain.runs.directory import find

    return find(_root(), name)


def _record_or_none(run: RunDirectory) -> RunRecord | None:
    try:
        return run.record()
    except UsageError as error:
        say(f"{error}; it is not in the list")
        return None


@command.command("list", cls=Command)
@common
def list_() -> None:
    """List the runs, the oldest first, with their main results."""
    from batchtrain.runs import compare
    from batchtrain.runs.directory import runs

    records = [_record_or_none(run) for run in runs(_root())]
    rows = [compare.row(record) for record in records if record]
    show_rows(rows, empty=f"no runs in {_root()}")


@command.command("show", cls=Command)
@click.argument("run", default="latest")
@common
def show_(run: str) -> None:
    """Show a run, its metrics (last and best value, throughput after warm-up), and how long each phase took.

    RUN is a name, its beginning or end, a path, or `latest`.
    """
    from batchtrain.runs import compare

    directory = _run(run)
    record = directory.record()
    if settings().output != "table":
        show(record)
        return
    show_rows([compare.row(record)])
    print()
    show_rows(compare.metric_rows(record), empty="no metrics")
    if record.phases:
        print()
        show_rows(compare.phase_rows(record))
    if settings().verbose:
        for text, at in compare.events(directory):
            print(f"{at:8.1f} s  {text}")
    if record.failure:
        say("\n".join((f"failed: {record.failure.message}", *record.failure.card)))


@command.command("compare", cls=Command)
@click.argument("names", nargs=-1, required=True, metavar="RUN RUN...")
@common
def compare_(names: tuple[str, ...]) -> None:
    """Compare runs: the settings that differ, the phases, and the last and best values of their metrics."""
    from batchtrain.runs import compare

    if len(names) < 2:
        raise UsageError("name at least two runs; `batchtrain runs list` lists them")
    records = [_run(name).record() for name in names]
    rows = compare.compare(records)
    if settings().output != "table":
        ids = [record.id for record in records]
        show_rows([{"name": row.name, **dict(zip(ids, row.values, strict=True))} for row in rows])
        return
    heads = ("", *(record.id for record in records))
    lines = [heads, *(tuple(map(_shortened, (row.name, *row.values))) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(heads))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _shortened(text: str) -> str:
    """A long value with its beginning and end; -o json has all of it."""
    return text if len(text) <= WIDEST else f"{text[: WIDEST // 2]}…{text[1 - WIDEST // 2 :]}"


@command.command(cls=Command)
@click.argument("run", default="latest")
@click.option("--csv", "form", flag_value="csv", default=True, help="One line per value, on stdout. The default.")
@click.option("--dlbs", "form", flag_value="dlbs", help="rank_N.log files for the log parser of DLBS.")
@click.option("--tensorboard", "form", flag_value="tensorboard", help="Event files for TensorBoard.")
@click.option("-d", "--directory", type=click.Path(path_type=Path), help="Directory to write to. Default: in the run.")
@common
def export(run: str, form: str, directory: Path | None) -> None:
    """Export the metrics of a run for another program."""
    from batchtrain.runs import export

    recorded = _run(run)
    if form == "csv":
        export.write_csv(recorded, sys.stdout)
        return
    target = directory or recorded.path / "export" / form
    if form == "dlbs":
        written = export.write_dlbs(recorded, target)
        show({"written": plain(tuple(written))}, f"wrote {', '.join(file.name for file in written)} to {target}")
        return
    count = export.write_tensorboard(recorded, target)
    show({"written": str(target), "values": count}, f"wrote {count} values to {target}")
