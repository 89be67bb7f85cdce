"""`batchtrain runs`: the records of past runs: list, show, compare, restore, export."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchtrain.cli import detached
from batchtrain.cli.help import Group
from batchtrain.cli.options import directories, duration, say, settings
from batchtrain.cli.output import plain, show, show_rows, write
from batchtrain.errors import UsageError, printable, printable_lines

if TYPE_CHECKING:
    from batchtrain.runs.directory import RunDirectory, RunRecord


WIDEST = 40
"""Characters of a value in `runs compare`; a longer one has only the words that differ."""
NARROWEST = 12
"""Columns of a value of a run beside the others; with less room, each value has a line."""
LONGEST = 4 * WIDEST
"""Most characters of the words that differ."""
MOST_PAIRS = 100_000
"""Pairs of words of two values that are compared."""


@click.group(cls=Group)
def command() -> None:
    """Runs: their records on this machine, which need no account, and the detached runs of an account."""


for detached_command in (detached.attach, detached.fetch, detached.stop):
    command.add_command(detached_command)


def _run(name: str) -> RunDirectory:
    from batchtrain.runs.directory import find

    return find(settings().runs_root, name)


def _record_or_none(run: RunDirectory) -> RunRecord | None:
    try:
        return run.record()
    except UsageError as error:
        say(f"{error}; it is not in the list")
        return None


@command.command("list")
@click.option("--account", is_flag=True, help="The runs of all users and machines whose jobs the account still has.")
def list_(account: bool) -> None:
    """List the runs, the oldest first, with their main results."""
    if account:
        detached.list_account()
        return
    from batchtrain.runs import compare
    from batchtrain.runs.directory import runs

    records = [_record_or_none(run) for run in runs(settings().runs_root)]
    rows = [compare.row(record) for record in records if record]
    show_rows(rows, empty=f"no runs in {settings().runs_root}")


@command.command("show")
@click.argument("run", default="latest")
def show_(run: str) -> None:
    """Show a run, its metrics (last and best value, throughput after warm-up), the attempts of tasks that ran more than
    once, and how long each phase took.

    RUN is a name, its beginning or end, a path, or `latest`.
    """
    from batchtrain.runs import compare
    from batchtrain.runs.continuations import continuation_rows

    directory = _run(run)
    record = directory.record()
    attempts = compare.attempt_rows(record, directory.attempts())
    if settings().output != "table":
        show({**plain(record), **({"attempts": plain(attempts)} if attempts else {})})
        return
    show_rows([compare.row(record)])
    print()
    show_rows(compare.metric_rows(record), empty="no metrics")
    if best := compare.best_of_tasks(record):
        say(f"`batchtrain jobs sweep {record.job} --metric {best.metric}` lists the tasks, the best first")
    if continuations := continuation_rows(directory):
        print()
        show_rows(continuations)
    if record.candidates:
        print()
        show_rows(compare.placement_rows(record))
    if attempts:
        print()
        show_rows(attempts)
    if record.phases:
        print()
        show_rows(compare.phase_rows(record))
    if settings().verbose:
        for text, at in compare.events(directory):
            write(f"{at:8.1f} s  {text}")
    if why := compare.diverged(record):
        say(f"diverged: {why}", "failure")
    if record.failure:
        say("\n".join((f"failed: {record.failure.message}", *record.failure.card)))
    for text in record.warnings:
        say(f"warning: {text}", "warning")


@command.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="RUN RUN...")
def compare_(names: tuple[str, ...]) -> None:
    """Compare runs: the settings and packages that differ, the phases, the last and best values of their metrics, and
    how their sources differ."""
    from batchtrain.runs import compare, restore

    if len(names) < 2:
        raise UsageError("name at least two runs; `batchtrain runs list` lists them")
    directories = [_run(name) for name in names]
    records = [directory.record() for directory in directories]
    rows = compare.compare(directories)
    if settings().output != "table":
        ids = [record.id for record in records]
        show_rows([{"name": row.name, **dict(zip(ids, row.values, strict=True))} for row in rows])
        return
    for label, record in zip(_labels(records), records, strict=True):
        write(f"{label}  {record.id}")
    print()
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print("\n".join(beside(_labels(records), [(printable(row.name), around(row.values)) for row in rows], room)))
    for other in directories[1:]:
        if changed := restore.difference(directories[0], other):
            print(f"\n{printable_lines(changed.expandtabs()) if sys.stdout.isatty() else changed.rstrip()}")


def _labels(records: Sequence[RunRecord]) -> list[str]:
    return [chr(ord("A") + index) if index < 26 else str(index + 1) for index in range(len(records))]


def around(values: Sequence[str]) -> list[str]:
    """Each value; a long one has only the words that differ, each with the word before it. -o json has all of it."""
    texts = [[printable(word) for word in value.split()] for value in values]
    first = texts[0]
    matches = [_matches(first, words) for words in texts]
    common = {index for index in range(len(first)) if all(index in match for match in matches)}
    return [_shortened(words, {match[index] for index in common}) for words, match in zip(texts, matches, strict=True)]


def _matches(first: list[str], words: list[str]) -> dict[int, int]:
    """The positions of the words in `first`, with their positions in `words`."""
    from batchtrain.runs.source_copy import equal  # every command imports this module

    if len(first) * len(words) > MOST_PAIRS:  # it would take minutes: the words at both ends that are the same
        head = equal(first, words)
        tail = equal(first[head:][::-1], words[head:][::-1])
        ends = range(len(first) - tail, len(first))
        return {at: at for at in range(head)} | {at: at + len(words) - len(first) for at in ends}
    blocks = SequenceMatcher(None, first, words, autojunk=False).get_matching_blocks()
    return {block.a + index: block.b + index for block in blocks for index in range(block.size)}


def _shortened(words: list[str], common: set[int]) -> str:
    text = " ".join(words)
    if len(text) <= WIDEST:
        return text
    mask = [index not in common or (index + 1 < len(words) and index + 1 not in common) for index in range(len(words))]
    if not any(mask):
        return f"{text[: WIDEST // 2]}…{text[1 - WIDEST // 2 :]}"
    short = " ".join(word if keep else "…" for word, keep in zip(words, mask, strict=True))
    short = re.sub(r"…( …)+", "…", short)
    return short if len(short) <= LONGEST else f"{short[:LONGEST]}…"


def beside(labels: list[str], rows: list[tuple[str, list[str]]], room: int | None) -> Iterator[str]:
    """A column for each run; a line for each value if the columns do not fit the room. Of more than two runs, long
    names and values are cut first. -o json has all of them."""
    lines = [["", *labels], *([name, *values] for name, values in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if room is not None and len(labels) > 2 and sum(widths) + 2 * len(labels) > room:
        name_width = min(widths[0], room // 3)
        cell_width = (room - name_width) // len(labels) - 2
        if cell_width >= NARROWEST:
            lines = [
                [
                    f"…{line[0][1 - name_width :]}" if len(line[0]) > name_width else line[0],
                    *(_cut(cell, cell_width) for cell in line[1:]),
                ]
                for line in lines
            ]
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            room = None
    if room is None or sum(widths) + 2 * len(labels) <= room:
        for line in lines:
            yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        return
    for name, values in rows:
        name_lines = textwrap.wrap(name.replace(".", " ."), room, break_long_words=False)
        yield from (line.replace(" .", ".") for line in name_lines)
        for label, value in zip(labels, values, strict=True):
            start = f"  {label}  "
            indent = " " * len(start)
            yield from textwrap.wrap(
                start + value, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )


def _cut(text: str, width: int) -> str:
    """A text without its middle, if it is too long."""
    return text if len(text) <= width else f"{text[: (width - 1) // 2]}…{text[-(width // 2) :]}"


@command.command("restore")
@click.argument("run")
@click.argument("directory", metavar="DIR", shell_complete=directories)
def restore_(run: str, directory: str) -> None:
    """Write a recipe that runs RUN again to a new directory: its settings and the copy of its source.

    The recipe is a project of its own: it does not continue the checkpoints of the run. Secrets are in no run
    directory; the command names where they are missing.
    """
    from batchtrain.runs import restore
    from batchtrain.service.connect import loopback

    run_directory = _run(run)
    result = restore.restore(run_directory, Path(directory))
    local = " --local" if loopback(run_directory.record().endpoint) else ""
    lines = [f"the recipe of run {result.run} is in {directory}. Next:"]
    lines.append(f"  batchtrain run {shlex.quote(directory)}{local}")
    for remark in result.remarks:
        say(remark, "warning")
    if result.masked:
        lines[1:1] = [
            "no run directory has secrets, so write them first:",
            *(f"  {masked}" for masked in result.masked),
        ]
    show(result, "\n".join(lines))


@command.command()
@click.option("--all-users", is_flag=True, help="Also what the runs of other users left.")
@click.option("--older-than", callback=duration, metavar="TIME", help="Only what is older, such as 12h or 1d.")
@click.option("--elsewhere", is_flag=True, help="Also delete what belongs to runs that are not known here.")
def clean(all_users: bool, older_than: float | None, elsewhere: bool) -> None:
    """List the pools and jobs that runs left in the account, and delete them after a question.

    What a living run of this directory uses is left out: a run that a process records, whose tasks have not all ended,
    or, detached, whose job is not over; and so is a pool on which any other job is not over. What belongs to a run of
    another directory or machine is listed, and stays without --elsewhere: that run may be alive. The column `results`
    says whether the results of a job are in its run directory.
    """
    from batchtrain.client import account_runs
    from batchtrain.config import catalog_file
    from batchtrain.runs import leftovers
    from batchtrain.runs.lease import user
    from batchtrain.runs.recording import now

    client = settings().connect()
    catalog = catalog_file.load(Path(settings().configdir or "."))
    mine = None if all_users else user()
    things = leftovers.leftovers(
        client.batch, client.account, settings().runs_root, catalog, now(), user=mine, older_than=older_than or 0.0
    )
    show_rows([item.row for item in things], empty="nothing was left")
    others = 0 if elsewhere else sum(item.elsewhere for item in things)
    if others:
        runs = f"runs that are not in {settings().runs_root}"
        say(f"{others} of them belong to {runs} and may be alive; --elsewhere deletes them too")
    things = tuple(item for item in things if elsewhere or not item.elsewhere)
    if not things:
        return
    unsaved_count = sum(item.row.results == "not here" for item in things)
    warning = f" ({unsaved_count} with results that are not on this machine)" if unsaved_count else ""
    settings().confirm(f"Delete {'it' if len(things) == 1 else f'all {len(things)}'}{warning}?")
    failure = None
    for item, text, error in leftovers.delete(client.batch, things):
        failure = error or failure
        say(text)
        if item.is_controller:
            account_runs.forget_requests(client, item.marks.run)
    if failure is not None:
        raise failure


@command.command()
@click.argument("run", default="latest")
@click.option("--csv", "form", flag_value="csv", default=True, help="One line per value, on stdout. The default.")
@click.option("--dlbs", "form", flag_value="dlbs", help="rank_N.log files for the log parser of DLBS.")
@click.option("--tensorboard", "form", flag_value="tensorboard", help="Event files for TensorBoard.")
@click.option("-d", "--directory", type=click.Path(path_type=Path), help="Directory to write to. Default: in the run.")
def export(run: str, form: str, directory: Path | None) -> None:
    """Export the metrics of a run for another program."""
    from batchtrain.runs import export

    run_directory = _run(run)
    if form == "csv":
        export.write_csv(run_directory, sys.stdout)
        return
    target = directory or run_directory.path / "export" / form
    if form == "dlbs":
        files = export.write_dlbs(run_directory, target)
        show({"written": plain(tuple(files))}, f"wrote {', '.join(file.name for file in files)} to {target}")
        return
    count = export.write_tensorboard(run_directory, target)
    show({"written": str(target), "values": count}, f"wrote {count} values to {target}")
