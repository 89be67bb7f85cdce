"""`batchtrain runs`: the records of past runs: list, show, compare, restore, export."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from pathlib import Path

from batchtrain.cli.documents import plain
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows, write
from batchtrain.cli.run_directories import runs_root
from batchtrain.cli.runs_commands import NEWEST
from batchtrain.errors import BatchtrainError, UsageError, printable, printable_lines
from batchtrain.runs import compare, restore
from batchtrain.runs import export as exporting
from batchtrain.runs.continuations import continuation_rows
from batchtrain.runs.directory import Labels, RunDirectory, RunRecord, checked_tags, find, runs
from batchtrain.runs.so_far import so_far
from batchtrain.runs.source_copy import equal
from batchtrain.service.connect import loopback

MOST_METRICS = 20
"""Metrics that `runs show` shows on a terminal; those that matter are first."""
WIDEST = 40
"""Characters of a value in `runs compare`; a longer one has only the words that differ."""
NARROWEST = 12
"""Columns of a value of a run beside the others; with less room, each value has a line."""
LONGEST = 4 * WIDEST
"""Most characters of the words that differ."""
MOST_PAIRS = 100_000
"""Pairs of words of two values that are compared."""


def _run(name: str) -> RunDirectory:
    return find(runs_root(), name)


def _record_or_none(run: RunDirectory) -> RunRecord | None:
    try:
        return run.record()
    except UsageError as error:
        say(f"{error}; it is not in the list")
        return None


def _labels_of(run: RunDirectory) -> Labels:
    """Damaged labels hide no run."""
    try:
        return run.labels()
    except BatchtrainError as error:
        say(f"{error}; its tags and its note are not shown")
        return Labels()


def list_(
    account: bool,
    tag: str | None,
    job: str | None,
    state: str | None,
    since: datetime | None,
    sort: str | None,
    lists_all: bool,
) -> None:
    """List the runs, the oldest first, with their main results."""
    if account:
        from batchtrain.cli import detached  # the SDK

        detached.list_account()
        return
    every = [(run, record, _labels_of(run)) for run in runs(runs_root()) if (record := _record_or_none(run))]
    matches = [
        compare.Listed(*so_far(run, record), labels)
        for run, record, labels in every
        if (tag is None or tag in labels.tags)
        and job in (None, record.job)
        and state in (None, record.state, compare.state_of(record))
        and (since is None or record.started >= since)
    ]
    if sort is not None:
        matches = compare.by_metric(matches, sort)
    hidden = (
        0 if lists_all or settings().output != "table" or not sys.stdout.isatty() else max(len(matches) - NEWEST, 0)
    )
    page = matches[:NEWEST] if sort is not None and hidden else matches[hidden:]
    rows = [compare.row(run.record, run.labels, run.progress) for run in page]
    show_rows(rows, empty=f"no {'such ' if every else ''}runs in {runs_root()}")
    if hidden:
        say(f"{hidden:,} more; --all lists them")


def label(run: str, tags: tuple[str, ...], untags: tuple[str, ...], note: str | None) -> None:
    """Print or change the tags and the note of a run, also while it runs. `runs list` and `runs cost` select by tag."""
    directory = _run(run)
    labels = directory.labels()
    if unknown_tags := [tag for tag in untags if tag not in labels.tags]:
        raise UsageError(
            f"run {directory.name} has no tag `{unknown_tags[0]}`; its tags: {', '.join(labels.tags) or 'none'}"
        )
    if tags or untags or note is not None:
        new_tags = (tag for tag in (*labels.tags, *checked_tags(tags)) if tag not in untags)
        labels = Labels(tuple(dict.fromkeys(new_tags)), labels.note if note is None else note.strip())
        directory.write_labels(labels)
    show(labels, str(labels) or "no tags and no note")


def show_(run: str) -> None:
    """Show a run, its metrics (last and best value, throughput after warm-up), the attempts of tasks that ran more than
    once, and how long each phase took.

    RUN is a name, its beginning or end, a path, or `latest`.
    """
    directory = _run(run)
    record, progress = so_far(directory, directory.record())
    attempts = compare.attempt_rows(record, directory.attempts())
    if settings().output != "table":
        show({**plain(record), **({"attempts": plain(attempts)} if attempts else {})})
        return
    show_rows([compare.row(record, _labels_of(directory), progress)])
    print()
    metrics = compare.metric_rows(record)
    most = MOST_METRICS if sys.stdout.isatty() else len(metrics)
    show_rows(metrics[:most], empty="no metrics")
    if len(metrics) > most:
        say(f"{len(metrics) - most:,} more of {len(metrics):,} metrics; -o json has all")
    if command := compare.sweep_command(directory, record):
        say(f"`{command}` lists the tasks, the best first")
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
        say("\n".join((f"{record.state}: {record.failure.message}", *record.failure.card)), "failure")
    for text in record.warnings:
        say(f"warning: {text}", "warning")


def compare_(names: tuple[str, ...]) -> None:
    """Compare runs: the settings and packages that differ, the phases, the last and best values of their metrics, and
    how their sources differ."""
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
    """A column for each run. If the columns do not fit the room, names and values of two runs are broken within their
    columns, and those of more runs are cut; with less room, each value has a line. -o json has all of them."""
    lines = [["", *labels], *([name, *values] for name, values in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if room is not None and sum(widths) + 2 * len(labels) > room:
        name_width = min(widths[0], room // 3)
        cell_width = (room - name_width) // len(labels) - 2
        if len(labels) == 2 and cell_width >= WIDEST:
            yield from _broken(lines, [name_width, cell_width, cell_width])
            return
        if len(labels) > 2 and cell_width >= NARROWEST:
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


def _broken(lines: list[list[str]], widths: list[int]) -> Iterator[str]:
    """Each line with its cells broken within their widths."""
    for line in lines:
        cells = [textwrap.wrap(cell, width) for cell, width in zip(line, widths, strict=True)]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            yield "  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()


def _cut(text: str, width: int) -> str:
    """A text without its middle, if it is too long."""
    return text if len(text) <= width else f"{text[: (width - 1) // 2]}…{text[-(width // 2) :]}"


def restore_(run: str, directory: str) -> None:
    """Write a recipe that runs RUN again to a new directory: its settings and the copy of its source.

    The recipe is a project of its own: it does not continue the checkpoints of the run. Secrets are in no run
    directory; the command names where they are missing.
    """
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


def export(run: str, form: str, directory: Path | None) -> None:
    """Export the metrics of a run for another program."""
    run_directory = _run(run)
    if form == "csv":
        exporting.write_csv(run_directory, sys.stdout)
        return
    target = directory or run_directory.path / "export" / form
    if form == "dlbs":
        files = exporting.write_dlbs(run_directory, target)
        show({"written": plain(tuple(files))}, f"wrote {', '.join(file.name for file in files)} to {target}")
        return
    count = exporting.write_tensorboard(run_directory, target)
    show({"written": str(target), "values": count}, f"wrote {count} values to {target}")
