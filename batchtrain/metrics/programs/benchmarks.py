"""The result lines of benchmark programs."""

from __future__ import annotations

import json
import re

from batchtrain.metrics.point import finite
from batchtrain.metrics.programs.base import NUMBER, Program, Source, one
from batchtrain.records import Point


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


def _tf_step(match: re.Match[str], source: Source) -> Point:
    values = {"images_per_second": finite(match[2]), "loss": finite(match[5])}
    if match[6]:
        values |= {"acc1": finite(match[6]), "acc5": finite(match[7])}
    return Point(values, step=int(match[1]))


def _horovod(match: re.Match[str], source: Source) -> Point:
    name = "total_images_per_second" if match[2] else "images_per_second"
    return Point({name: finite(match[3])}, step=int(match[1]) if match[1] else None)


def _mpi_bench(match: re.Match[str], source: Source) -> Point:
    name = match[1].lower()
    values = zip((f"{name}_avg_us", f"{name}_min_us", f"{name}_max_us"), match.groups()[2:], strict=True)
    return Point({key: finite(value) for key, value in values}, step=int(match[2]))


def _vllm_throughput(match: re.Match[str], source: Source) -> Point:
    rates = re.findall(rf"(?<![\d.,])({NUMBER}) ([a-z ]+)/s", match[1])
    return Point({f"{unit.replace(' ', '_')}_per_second": finite(rate) for rate, unit in rates})


PROGRAMS = (
    Program("dlbs", "__", r"^[ \t]*__(.+?)__[ \t]*=(.+)", _dlbs),
    Program(
        "tf_cnn_benchmarks total", "total images/sec", r"^total images/sec: (\S+)", one("total_images_per_second"),
    ),
    Program(
        "tf_cnn_benchmarks", "images/sec",
        r"^(\d+)\s+images/sec: (\S+)(?: \+/- (\S+) \(jitter = ([^)]+)\))?\s+(\S+)(?:\s+(\S+)\s+(\S+))?$", _tf_step,
    ),
    Program(
        "horovod", "mg/sec", r"^(?:Iter #(\d+)|Img/sec per \w+|Total img/sec on (\d+) \w+\(s\)): (\S+)(?: \+-(\S+))?",
        _horovod,
    ),
    Program("nccl-tests", "Avg bus bandwidth", r"^# Avg bus bandwidth +: (\S+)", one("average_busbw")),
    Program(
        "mpiBench", "Bytes:",
        r"^(\w+)\s+Bytes:\s+(\d+)\s+Iters:\s+\d+\s+Avg:\s+(\S+)\s+Min:\s+(\S+)\s+Max:\s+(\S+)", _mpi_bench,
    ),
    Program(
        "HPL", "W", rf"^W[RC]\w{{6,}}\s+(\d+)\s+\d+\s+\d+\s+\d+\s+({NUMBER})\s+({NUMBER})\s*$",
        lambda match, source: Point({"gflops": finite(match[3]), "seconds": finite(match[2])}, step=int(match[1])),
    ),
    Program("HPCG", "HPCG result is VALID", rf"GFLOP/s rating of=({NUMBER})", one("gflops")),
    Program("vLLM throughput", "Throughput:", r"^Throughput: (.*/s.*)", _vllm_throughput),
    Program(
        "vLLM latency", " (ms):", rf"^(Mean|Median|P[\d.]+) (TTFT|TPOT|ITL|E2EL) \(ms\): +({NUMBER})",
        lambda match, source: Point({f"{match[1]}_{match[2]}_ms".lower(): finite(match[3])}),
    ),
)  # fmt: skip
