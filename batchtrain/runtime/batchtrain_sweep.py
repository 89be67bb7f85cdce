"""The results of a sweep: the parameters and a metric of each task, best first.

    python:  import batchtrain_sweep as sweep
             rows = sweep.results("results", "accuracy")             best first; rows without a value are last
             rows[0].value, rows[0].parameters["lr"]
             sweep.write_csv(rows, "accuracy", "output/sweep.csv")

    shell:   python3 -m batchtrain_sweep DIRECTORY --metric NAME [--max | --min] [--most N] [--csv FILE]

A result is a file `result.json`, such as {"parameters": {"lr": 0.1}, "accuracy": 0.97}, in a directory of its own below
DIRECTORY: on one node, tasks write below AZ_BATCH_NODE_SHARED_DIR; on several, they upload it by `output_data`, and the
merge task downloads all by `input_data`. The lowest value is the best of a loss, an error or a time, and otherwise the
highest.

Standard library, Python 3.6 or later.
"""

import argparse
import csv
import json
import math
import os
import sys
from typing import Any, Dict, List, NamedTuple, Optional

RESULT = "result.json"
MARKED = ("'", "=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How formulas of spreadsheets begin, also in their full width, and the mark of such a text."""
LOWER_IS_BETTER = ("loss", "error", "time", "latency", "perplexity", "mse", "mae", "_ms", "_us", "seconds")


class Row(NamedTuple):
    """One task: the path of its directory, its parameters, and the metric (None if it has none)."""

    task: str
    parameters: Dict[str, Any]
    value: Optional[float]


def results(directory: str, metric: str, highest: Optional[bool] = None) -> List[Row]:
    """Every result below a directory, best first. Raises ValueError that names a file which is no result."""
    if highest is None:
        highest = not lower_is_better(metric)
    sign = -1 if highest else 1
    rows = [
        _read(os.path.join(folder, RESULT), os.path.relpath(folder, directory), metric)
        for folder, _, names in os.walk(directory)
        if RESULT in names
    ]
    return sorted(rows, key=lambda row: (math.inf if row.value is None else sign * row.value, row.task))


def lower_is_better(metric: str) -> bool:
    """Whether the best value of a metric is the lowest, by its name."""
    return any(word in metric.lower() for word in LOWER_IS_BETTER)


def csv_cell(value: Any) -> Any:
    """A value as a cell of CSV. A text that a spreadsheet would run as a formula gets a `'` before it, and so does one
    that begins with a `'`; one that could control a terminal is JSON behind a `'`. Numbers stay numbers."""
    if not isinstance(value, str):
        return value
    if value[:1] in ("\t", "\n") or not value.replace("\n", "").replace("\t", "").isprintable():
        return "'" + json.dumps(value)
    return "'" + value if value.startswith(MARKED) else value


def write_csv(rows: List[Row], metric: str, path: str) -> None:
    """A table with a column for each parameter. The directory of the file is made."""
    names = list(dict.fromkeys(name for row in rows for name in row.parameters))
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(map(csv_cell, ["task", metric, *names]))
        for row in rows:
            table.writerow(map(csv_cell, [row.task, row.value, *(row.parameters.get(name) for name in names)]))


def _read(path: str, task: str, metric: str) -> Row:
    try:
        with open(path) as file:
            result = json.load(file)
        parameters, value = dict(result.get("parameters") or {}), result.get(metric)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no result of a task: {error}") from None
    known = isinstance(value, (int, float)) and math.isfinite(value)
    return Row(task, parameters, float(value) if known else None)


def main(arguments: "list[str]") -> int:
    """The shell's way in."""
    options = argparse.ArgumentParser(prog="batchtrain_sweep", description="Names the best tasks of a sweep.")
    options.add_argument("directory", help="has a result.json in a directory for each task")
    options.add_argument("--metric", required=True, help="the number in result.json that is compared")
    options.add_argument("--max", dest="highest", action="store_true", default=None, help="the highest value is best")
    options.add_argument("--min", dest="highest", action="store_false", help="the lowest value is best")
    options.add_argument("--most", type=int, default=5, help="number of results to print")
    options.add_argument("--csv", help="the file for the table of all results")
    given = options.parse_args(arguments)
    try:
        rows = results(given.directory, given.metric, given.highest)
    except ValueError as error:
        print(f"batchtrain_sweep: {error}", file=sys.stderr)
        return 1
    if not rows or rows[0].value is None:
        lacks = f"no {RESULT} below it has a number `{given.metric}`" if rows else f"there is no {RESULT} below it"
        print(f"batchtrain_sweep: {given.directory}: {lacks}", file=sys.stderr)
        return 1
    if given.csv:
        write_csv(rows, given.metric, given.csv)
    print(f"{len(rows)} results")
    for row in rows[: given.most]:
        print(f"{'-' if row.value is None else format(row.value, '.6g')} {json.dumps(row.parameters)}")
    print(f"best {json.dumps(rows[0].parameters)} {given.metric} {rows[0].value:.6g}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
