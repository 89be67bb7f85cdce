"""Programs that print a table: a header, and then rows."""

from __future__ import annotations

import re

from batchtrain.metrics.point import finite
from batchtrain.metrics.programs.base import NUMBER, Source, Table
from batchtrain.records import Point

_NCCL_ROW = re.compile(r"^ *(\d+) +(\d+) +(\w+) +(\w+) +(-?\d+)((?: +\S+){8})")
_OSU_HEADER = re.compile(r"^# OSU (?:MPI )?(.+?) Test")
_NUMBERS = re.compile(rf"^\s*(\d+)((?:\s+{NUMBER})+)\s*$")
_IMB_NAMES = {"usec": "us", "Mbytes/sec": "mb_per_second", "Msg/sec": "messages_per_second"}


def _nccl_header(source: Source, line: str) -> Source | None:
    return source._replace(table="nccl") if line.lstrip().startswith("#") and "algbw" in line else None


def _nccl_row(source: Source, line: str) -> Point | None:
    match = _NCCL_ROW.match(line)
    return Point({"busbw": finite(match[6].split()[2])}, step=int(match[1])) if match else None


def _osu_header(source: Source, line: str) -> Source | None:
    if match := _OSU_HEADER.match(line):
        return source._replace(table=f"osu_{match[1].lower().replace(' ', '_')}", columns=())
    if source.table.startswith("osu_") and line.startswith("# Size"):
        return source._replace(columns=tuple(re.split(r"\s{2,}", line[2:].strip())[1:]))
    return None


def _osu_row(source: Source, line: str) -> Point | None:
    """`Latency (us)` of osu_latency is `osu_latency_us`; further columns keep their names."""
    match = _NUMBERS.match(line)
    if not match:
        return None
    values = {}
    # a wide table has more columns than names
    for name, text in zip(source.columns or (source.table,), match[2].split(), strict=False):
        words = re.sub(r"[^a-z0-9]+", "_", name.lower().replace("/", "_per_")).strip("_").split("_")
        values["_".join(dict.fromkeys((*source.table.split("_"), *words)))] = finite(text)
    return Point(values, step=int(match[1]))


def _imb_header(source: Source, line: str) -> Source | None:
    if match := re.match(r"#\s*Benchmarking (\w+)", line):
        return source._replace(table=f"imb_{match[1].lower()}", columns=())
    if source.table.startswith("imb_") and line.lstrip().startswith("#bytes"):
        return source._replace(columns=tuple(line.split()[1:]))
    return None


def _imb_row(source: Source, line: str) -> Point | None:
    """`t_avg[usec]` of Allreduce is `imb_allreduce_avg_us`, `Mbytes/sec` is `imb_pingpong_mb_per_second`."""
    match = _NUMBERS.match(line)
    values = {}
    for column, text in zip(source.columns, match[2].split() if match else (), strict=False):
        time = re.fullmatch(r"t(?:_(\w+))?\[(\w+)\]", column)
        kind, unit = (time[1], time[2]) if time else ("", column)
        if not column.startswith("#"):
            values["_".join(filter(None, (source.table, kind, _IMB_NAMES.get(unit, unit))))] = finite(text)
    return Point(values, step=int(match[1])) if match and values else None


def _ray_header(source: Source, line: str) -> Source | None:
    cells = _boxed(line)
    if cells[:2] != ["Trial name", "status"] or "iter" not in cells:
        return None
    return source._replace(table="ray", columns=tuple(cells))


def _ray_row(source: Source, line: str) -> Point | None:
    """The columns after `iter`: those before it are parameters."""
    cells = _boxed(line, least=1)
    if len(cells) != len(source.columns):
        return None
    at = source.columns.index("iter")
    names = (re.sub(r"\W+", "_", name).strip("_") for name in source.columns[at + 1 :])
    values = {name: finite(text) for name, text in zip(names, cells[at + 1 :], strict=True)}
    return Point(values, step=int(cells[at])) if cells[at].isdigit() else None


def _boxed(line: str, least: int = 2) -> list[str]:
    """The cells of a row in a box, which are `least` spaces apart."""
    return re.split(rf"\s{{{least},}}", line.strip("│| \t")) if line.startswith(("│", "|")) else []


def _lm_eval_header(source: Source, line: str) -> Source | None:
    cells = _cells(line)
    if cells[:1] == ["Tasks"] and "Metric" in cells and "Value" in cells:
        return source._replace(table="lm_eval", columns=tuple(cells), label="")
    return source._replace(label=cells[0]) if source.table == "lm_eval" and cells and cells[0] else None


def _lm_eval_row(source: Source, line: str) -> Point | None:
    """`hellaswag/acc`, and with another filter than none `gsm8k/exact_match,strict-match`."""
    cells = _cells(line)
    row = dict(zip(source.columns, cells, strict=False))
    if len(cells) != len(source.columns) or not re.fullmatch(NUMBER, row["Value"]):
        return None
    filter_name = row.get("Filter", "none")
    name = f"{source.label}/{row['Metric']}" + (f",{filter_name}" if filter_name != "none" else "")
    return Point({name: finite(row["Value"])})


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []


TABLES = (
    Table("nccl", _nccl_header, _nccl_row),
    Table("osu_", _osu_header, _osu_row),
    Table("imb_", _imb_header, _imb_row),
    Table("ray", _ray_header, _ray_row),
    Table("lm_eval", _lm_eval_header, _lm_eval_row),
)
"""A table is known by how the name begins that its header gives to the source."""
