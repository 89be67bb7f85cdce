"""Numbers in the output of a training: loss, accuracy, rates and results, as the program prints them. Pure.

Each entry of `PROGRAMS` reads the lines of one program. docs/reference/metrics.md lists the names and units.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

RATE = 5000
"""Up to this number of lines per second, all lines are read; of more lines, a decreasing share."""
FINAL = ("total images/sec", "__results.", "Total img/sec", "Avg bus bandwidth", "test accuracy")
"""Texts of lines that are always read: they come once, at the end."""
COUNTERS = {"step": "step", "global_step": "step", "iteration": "step", "batch": "step", "epoch": "epoch"}
"""Keys of a JSON line that give its position, with the name of the counter."""
UNITS = {
    "images_per_second": "images/s",
    "total_images_per_second": "images/s",
    "samples_per_second": "samples/s",
    "total_samples_per_second": "samples/s",
    "results.throughput": "images/s",
    "results.time": "ms",
    "error_percent": "%",
    "acc1": "%",
    "acc5": "%",
    "step_ms": "ms",
    "time_cost": "s",
    "batch_seconds": "s",
    "busbw": "GB/s",
    "average_busbw": "GB/s",
    "cpu_percent": "%",
    "gpu_percent": "%",
    "memory_gib": "GiB",
    "gpu_memory_gib": "GiB",
    "network_in_mb": "MB/s",
    "network_out_mb": "MB/s",
}

PREFIX = re.compile(r"^\[(\d+):(\d+|[A-Za-z]+(?: \d+)?)\] |^\[\d+,(\d+)\]<std(?:out|err)>: ?")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")
_NUMBER = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|NaN|inf|Infinity)"


class Point(NamedTuple):
    """The values of one moment. A value that is NaN or infinite is None."""

    values: dict[str, float | None]
    rank: int | None = None
    step: int | None = None
    epoch: float | None = None
    t: float | None = None
    node: str = ""
    attempt: int = 1

    def line(self, now: float) -> dict[str, Any]:
        """The object of a line of metrics/TASK.jsonl."""
        fields = {"t": round(now if self.t is None else self.t, 3), "rank": self.rank, "node": self.node or None}
        fields.update(attempt=self.attempt if self.attempt > 1 else None, step=self.step, epoch=self.epoch)
        values = {name: value for name, value in self.values.items() if name != "attempt"}  # a program may print it
        return {name: value for name, value in fields.items() if value is not None} | values


class Source(NamedTuple):
    """The state of the output of one rank: its epoch, and the table that it prints."""

    epoch: int | None = None
    table: str = ""
    columns: tuple[str, ...] = ()


class Program(NamedTuple):
    """How to read the lines of one program."""

    name: str
    needle: str
    """A text that each of these lines contains; searching for it is faster than the pattern."""
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str], Source], Point | None]


class Pattern(NamedTuple):
    """A pattern of the user. The group `value`, or else the first group, is the value; `step` and `epoch` are optional
    groups."""

    name: str
    pattern: str
    unit: str = ""


class Extractor:
    """Reads the lines of one task as they come."""

    def __init__(self, patterns: Iterable[Pattern] = ()) -> None:
        self.skipped = 0
        """Lines that were not read because too many came at once."""
        self._own = tuple(_program_of(pattern) for pattern in patterns)
        self._sources: dict[int | None, Source] = {}
        self._second, self._count = 0, 0

    def feed(self, lines: Sequence[str], now: float) -> Iterator[Point]:
        """The numbers in lines that came at a time (in seconds). A line with absurd numbers or depths has none."""
        if int(now) != self._second:
            self._second, self._count = int(now), 0
        for line in self._read(lines):
            with contextlib.suppress(ValueError, RecursionError):
                yield from self._line(line)

    def _read(self, lines: Sequence[str]) -> Iterator[str]:
        """The lines to read: of each RATE lines of a second a smaller part, taken without looking at the others."""
        at = 0
        while at < len(lines):
            number = self._count + 1
            every = number // RATE + 1
            part = lines[at : at + every * RATE - number]
            chosen = part[-number % every :: every]
            if every > 1 and _has_final("\n".join(part)):
                chosen = [line for n, line in enumerate(part, number) if n % every == 0 or _has_final(line)]
            at, self._count = at + len(part), self._count + len(part)
            self.skipped += len(part) - len(chosen)
            yield from chosen

    def _line(self, text: str) -> Iterator[Point]:
        rank, line = split(text)
        if not line:
            return
        source = self._sources.get(rank, Source())
        self._sources[rank] = changed = _state(source, line)
        for program in (*self._own, *PROGRAMS):
            if program.needle in line and (match := program.pattern.search(line)):
                point = program.read(match, changed)
                if point is not None and point.values:
                    yield point._replace(rank=rank if point.rank is None else point.rank)
                if program not in self._own:
                    return
        yield from (point._replace(rank=rank) for point in _row(changed, line))


def _has_final(text: str) -> bool:
    return any(final in text for final in FINAL)


def split(text: str) -> tuple[int | None, str]:
    """The rank of a line, and the line as its process printed it. A line that was redrawn has its last state."""
    match = PREFIX.match(text) if text.startswith("[") else None
    line = text[match.end() :] if match else text
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    if "\x1b" in line or "\b" in line:
        line = _ESCAPES.sub("", line).replace("\b", "")
    return (number_of(match[2] or match[3]) if match else None), line.rstrip("\n")


def number_of(role: str) -> int | None:
    """The number of a rank, or of a role such as `worker 1`."""
    digits = role.rpartition(" ")[2]
    return int(digits) if digits.isdigit() else None


def of_json(line: str | bytes) -> Point | None:
    """A line of $BATCHTRAIN_METRICS. Raises ValueError if it is not a JSON object with a number."""
    if not line.strip():
        return None
    try:
        document = msgspec.json.decode(line)
    except msgspec.DecodeError:
        document = json.loads(line)  # Python writes NaN and Infinity, which are not valid JSON
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return _point(document)


def _point(document: Mapping[str, Any]) -> Point:
    fields: dict[str, Any] = {}
    values: dict[str, float | None] = {}
    for name, value in document.items():
        counter = COUNTERS.get(name, name if name in ("t", "rank", "node", "attempt") else "")
        if counter and _fits(counter, value):
            fields[counter] = int(value) if counter in ("step", "rank", "attempt") else value
        elif value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            values[name] = None if value is None else finite(value)
    if not values:
        raise ValueError("it has no number")
    return Point(values, **fields)


def _fits(counter: str, value: Any) -> bool:
    if counter == "node":
        return isinstance(value, str)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and finite(value) is not None


def finite(value: float | str) -> float | None:
    """A number; None for NaN, an infinite value, and a text that is not a number."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


# --- the user's patterns ---------------------------------------------------------------------------------------------


def _program_of(own: Pattern) -> Program:
    compiled = re.compile(own.pattern)
    names = compiled.groupindex

    def read(match: re.Match[str], source: Source) -> Point | None:
        value = match["value" if "value" in names else 1]
        if value is None or not re.fullmatch(_NUMBER, value):
            return None
        step, epoch = (finite(match[name] or "") if name in names else None for name in ("step", "epoch"))
        return Point({own.name: finite(value)}, step=None if step is None else int(step), epoch=epoch)

    return Program("metrics", "", compiled, read)


# --- tables: a header, then rows -------------------------------------------------------------------------------------

_NCCL_ROW = re.compile(r"^ *(\d+) +(\d+) +(\w+) +(\w+) +(-?\d+)((?: +\S+){8})")
_OSU_HEADER = re.compile(r"^# OSU (?:MPI )?(.+?) Test")
_OSU_ROW = re.compile(r"^(\d+)((?:\s+[\d.]+)+)\s*$")


def _state(source: Source, line: str) -> Source:
    """The state after a line."""
    if line.startswith("Epoch ") and (match := re.match(r"Epoch (\d+)/\d+", line)):
        return source._replace(epoch=int(match[1]))
    if not line.lstrip().startswith("#"):
        return source
    if match := _OSU_HEADER.match(line):
        return source._replace(table=f"osu_{match[1].lower().replace(' ', '_')}", columns=())
    if source.table.startswith("osu_") and line.startswith("# Size"):
        return source._replace(columns=tuple(re.split(r"\s{2,}", line[2:].strip())[1:]))
    if "algbw" in line:
        return source._replace(table="nccl")
    return source


def _row(source: Source, line: str) -> Iterator[Point]:
    if not source.table or not line.lstrip()[:1].isdigit():
        return
    if source.table == "nccl":
        if match := _NCCL_ROW.match(line):
            yield Point({"busbw": finite(match[6].split()[2])}, step=int(match[1]))
    elif match := _OSU_ROW.match(line):
        columns = source.columns or (source.table,)
        pairs = zip(columns, match[2].split(), strict=False)  # a wide table has more columns than names
        values = {_column(source.table, name): finite(text) for name, text in pairs}
        yield Point(values, step=int(match[1]))


def _column(table: str, name: str) -> str:
    """`Latency (us)` of osu_latency: `osu_latency_us`; further columns keep their names."""
    words = re.sub(r"[^a-z0-9]+", "_", name.lower().replace("/", "_per_")).strip("_")
    return "_".join(dict.fromkeys((*table.split("_"), *words.split("_"))))


# --- one entry per program -------------------------------------------------------------------------------------------


def _pairs(text: str, form: str = r"([A-Za-z_][\w./-]*)(?:=|: )") -> dict[str, float | None]:
    return {_plain(name): finite(value) for name, value in re.findall(rf"{form}({_NUMBER})(?![\w.])", text)}


def _plain(name: str) -> str:
    return name.lower().replace("@", "").replace(" ", "_")


def _dlbs(match: re.Match[str], source: Source) -> Point | None:
    name = match[1].strip()
    if not name.startswith("results."):
        return None  # parameters, not results
    try:
        value = json.loads(match[2])
    except ValueError:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return Point({name: finite(value)})


def _mxnet(match: re.Match[str], source: Source) -> Point:
    return Point({"samples_per_second": finite(match[3]), **_pairs(match[4])}, epoch=int(match[1]), step=int(match[2]))


def _mxnet_end(match: re.Match[str], source: Source) -> Point:
    name = "time_cost" if match[4] else f"{'validation_' if match[2] == 'Validation' else ''}{_plain(match[3])}"
    return Point({name: finite(match[5])}, epoch=int(match[1]))


def _tf_step(match: re.Match[str], source: Source) -> Point:
    values = {"images_per_second": finite(match[2]), "loss": finite(match[5])}
    if match[6]:
        values |= {"acc1": finite(match[6]), "acc5": finite(match[7])}
    return Point(values, step=int(match[1]))


def _cntk(match: re.Match[str], source: Source) -> Point:
    values = {"loss": finite(match[3]), "total_samples_per_second": finite(match[8])}
    if match[5]:
        values["error_percent" if match[6] else "error"] = finite(match[5])
    return Point(values, epoch=int(match[1]))


def _torch(match: re.Match[str], source: Source) -> Point:
    """`value (mean so far)`: takes the value, as for the other programs."""
    test = match[1] is None
    pairs = re.findall(rf"(\S+)\s+({_NUMBER}) \(\s*{_NUMBER}\)", match[4])
    names = {"time": "batch_seconds", "data": "data_seconds"}
    values = {names.get(_plain(name), _plain(name)): finite(value) for name, value in pairs}
    values = {f"test_{name}" if test else name: value for name, value in values.items()}
    return Point(values, epoch=None if test else int(match[1]), step=int(match[2]))


def _horovod(match: re.Match[str], source: Source) -> Point:
    name = "total_images_per_second" if match[2] else "images_per_second"
    return Point({name: finite(match[3])}, step=int(match[1]) if match[1] else None)


def _keras(match: re.Match[str], source: Source) -> Point | None:
    """Reads only the last line of an epoch: the program redraws the others."""
    if match[1] != match[2]:
        return None
    factor = {"us": 0.001, "ms": 1.0, "s": 1000.0}[match[4]]
    return Point({"step_ms": float(match[3]) * factor, **_pairs(match[5])}, epoch=source.epoch)


def _mpi_bench(match: re.Match[str], source: Source) -> Point:
    name = match[1].lower()
    values = zip((f"{name}_avg_us", f"{name}_min_us", f"{name}_max_us"), match.groups()[2:], strict=True)
    return Point({key: finite(value) for key, value in values}, step=int(match[2]))


def _json_line(match: re.Match[str], source: Source) -> Point | None:
    """Reads a JSON object or a Python dict with a step or an epoch; other objects are not metrics."""
    text = match[1]
    if not any(f'"{name}"' in text or f"'{name}'" in text for name in COUNTERS):
        return None
    try:
        return of_json(text)
    except ValueError:
        pairs = dict(re.findall(rf"'([\w./-]+)': '?({_NUMBER})'?(?=[,}}])", text))
    counters = {COUNTERS[name]: finite(pairs.pop(name)) for name in tuple(pairs) if name in COUNTERS}
    step = counters.get("step")
    return Point(
        {name: finite(value) for name, value in pairs.items()},
        step=None if step is None else int(step),
        epoch=counters.get("epoch"),
    )


def _recipe(match: re.Match[str], source: Source) -> Point | None:
    return Point(_pairs(match[2], r"(\w+) "), epoch=int(match[1]))


def _steps(match: re.Match[str], source: Source) -> Point:
    """Reads pairs of names and values, and a rate: `step 3/10 loss 0.31 lr=0.1 300 images/sec`."""
    values = {name: finite(value) for name, value in re.findall(rf"([A-Za-z_]\w*)[ =:]+({_NUMBER})(?![\w.])", match[2])}
    values |= {
        f"{unit}_per_second": finite(rate) for rate, unit in re.findall(rf"({_NUMBER}) (\w+)/s(?:ec)?\b", match[2])
    }
    return Point(values, step=int(match[1]))


def _one(name: str) -> Callable[[re.Match[str], Source], Point]:
    return lambda match, source: Point({name: finite(match[1])})


def _program(name: str, needle: str, pattern: str, read: Callable[[re.Match[str], Source], Point | None]) -> Program:
    return Program(name, needle, re.compile(pattern), read)


PROGRAMS = (
    _program("dlbs", "__", r"^[ \t]*__(.+?)__[ \t]*=(.+)", _dlbs),
    _program(
        "mxnet", "samples/sec",
        r"Epoch\[(\d+)\] Batch \[(?:\d+-)?(\d+)\]\s+Speed: (\S+) samples/sec((?:\s+[^\s=]+=\S+)*)", _mxnet,
    ),
    _program(
        "mxnet epoch", "Epoch[", r"Epoch\[(\d+)\] (?:(Train|Validation)-(\S+?)=|(Time cost)=)(\S+)", _mxnet_end,
    ),
    _program(
        "tf_cnn_benchmarks total", "total images/sec", r"^total images/sec: (\S+)", _one("total_images_per_second"),
    ),
    _program(
        "tf_cnn_benchmarks", "images/sec",
        r"^(\d+)\s+images/sec: (\S+)(?: \+/- (\S+) \(jitter = ([^)]+)\))?\s+(\S+)(?:\s+(\S+)\s+(\S+))?$", _tf_step,
    ),
    _program(
        "cntk", "Finished Epoch[",
        r"^Finished Epoch\[ *(\d+) of (\d+)\]: (?:\[\w+\] )?loss = (\S+) \* (\d+)"
        r"(?:, metric = ([^%\s]+)(%?) \* \d+)? (\S+)s \( *(\S+) samples",
        _cntk,
    ),
    _program(
        "cntk evaluation", "Finished Evaluation",
        r"^Finished Evaluation \[\d+\]: Minibatch\[1-\d+\]: metric = ([^%\s]+)(%?) \* \d+",
        lambda match, source: Point({f"test_error{'_percent' * bool(match[2])}": finite(match[1])}),
    ),
    _program(
        "pytorch imagenet", "Time", r"^(?:Epoch: \[(\d+)\]|Test: )\[ *(\d+)/ *(\d+)\]\s+(.*)", _torch,
    ),
    _program(
        "pytorch imagenet test", "Acc@1", r"^ \* +Acc@1 (\S+) Acc@5 (\S+)",
        lambda match, source: Point({"test_acc1": finite(match[1]), "test_acc5": finite(match[2])}),
    ),
    _program(
        "horovod", "mg/sec", r"^(?:Iter #(\d+)|Img/sec per \w+|Total img/sec on (\d+) \w+\(s\)): (\S+)(?: \+-(\S+))?",
        _horovod,
    ),
    _program("keras", "/s", r"^\s*(\d+)/(\d+) .*?\d+s(?: -)? (\d+)(us|ms|s)/(?:step|sample)(.*)", _keras),
    _program("nccl-tests", "Avg bus bandwidth", r"^# Avg bus bandwidth +: (\S+)", _one("average_busbw")),
    _program(
        "mpiBench", "Bytes:",
        r"^(\w+)\s+Bytes:\s+(\d+)\s+Iters:\s+\d+\s+Avg:\s+(\S+)\s+Min:\s+(\S+)\s+Max:\s+(\S+)", _mpi_bench,
    ),
    _program("recipes", "epoch ", rf"^epoch (\d+)((?: (?!of |rank )\w+ {_NUMBER})+)$", _recipe),
    _program("recipes test", "test accuracy", r"^test accuracy (\S+)", _one("test_accuracy")),
    _program("steps", "step ", rf"^step (\d+)(?: ?/ ?\d+)?[ ,:]((?:.*\s)?\w+[ =:]+{_NUMBER}.*)$", _steps),
    _program("json", "{", r"^\s*(\{.*\})\s*$", _json_line),
)  # fmt: skip
