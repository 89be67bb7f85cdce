"""The progress lines of frameworks: MXNet, CNTK, Keras, PyTorch's ImageNet example."""

from __future__ import annotations

import re

from batchtrain.metrics.point import finite
from batchtrain.metrics.programs.base import NUMBER, Program, Source, pairs, plain
from batchtrain.records import Point


def _mxnet(match: re.Match[str], source: Source) -> Point:
    return Point({"samples_per_second": finite(match[3]), **pairs(match[4])}, epoch=int(match[1]), step=int(match[2]))


def _mxnet_end(match: re.Match[str], source: Source) -> Point:
    name = "time_cost" if match[4] else f"{'validation_' if match[2] == 'Validation' else ''}{plain(match[3])}"
    return Point({name: finite(match[5])}, epoch=int(match[1]))


def _cntk(match: re.Match[str], source: Source) -> Point:
    values = {"loss": finite(match[3]), "total_samples_per_second": finite(match[8])}
    if match[5]:
        values["error_percent" if match[6] else "error"] = finite(match[5])
    return Point(values, epoch=int(match[1]))


def _torch(match: re.Match[str], source: Source) -> Point:
    """`value (mean so far)`: takes the value, as for the other programs."""
    test = match[1] is None
    value_pairs = re.findall(rf"(?<!\S)(\S+?):?\s+({NUMBER}) \(\s*{NUMBER}\)", match[4])
    names = {"time": "batch_seconds", "data": "data_seconds"}
    values = {names.get(plain(name), plain(name)): finite(value) for name, value in value_pairs}
    values = {f"test_{name}" if test else name: value for name, value in values.items()}
    return Point(values, epoch=None if test else int(match[1]), step=int(match[2]))


def _timm(match: re.Match[str], source: Source) -> Point:
    """`Time: 0.345s,  741.21/s`: of one update, and the images of all ranks."""
    values = {plain(name): finite(value) for name, value in re.findall(rf"\b(Loss|LR): +({NUMBER})", match[3])}
    values |= {"batch_seconds": finite(match[4]), "total_images_per_second": finite(match[5])}
    return Point(values, epoch=int(match[1]), step=int(match[2]))


def _keras(match: re.Match[str], source: Source) -> Point | None:
    """Reads only the last line of an epoch: the program redraws the others. One of another number of steps is of
    `evaluate` or, without a metric, of `predict`."""
    if match[1] != match[2]:
        return None
    factor = {"us": 0.001, "ms": 1.0, "s": 1000.0}[match[5]]
    values = pairs(f"{match[3]}{match[6]}")
    if source.steps not in (0, int(match[2])):
        return Point({f"test_{name}": value for name, value in values.items()})
    return Point({"step_ms": float(match[4]) * factor, **values}, epoch=source.epoch)


PROGRAMS = (
    Program(
        "mxnet", "samples/sec",
        r"Epoch\[(\d+)\] Batch \[(?:\d+-)?(\d+)\]\s+Speed: (\S+) samples/sec((?:\s+[^\s=]+=\S+)*)", _mxnet,
    ),
    Program(
        "mxnet epoch", "Epoch[", r"Epoch\[(\d+)\] (?:(Train|Validation)-(\S+?)=|(Time cost)=)(\S+)", _mxnet_end,
    ),
    Program(
        "cntk", "Finished Epoch[",
        r"^Finished Epoch\[ *(\d+) of (\d+)\]: (?:\[\w+\] )?loss = (\S+) \* (\d+)"
        r"(?:, metric = ([^%\s]+)(%?) \* \d+)? (\S+)s \( *(\S+) samples",
        _cntk,
    ),
    Program(
        "cntk evaluation", "Finished Evaluation",
        r"^Finished Evaluation \[\d+\]: Minibatch\[1-\d+\]: metric = ([^%\s]+)(%?) \* \d+",
        lambda match, source: Point({f"test_error{'_percent' * bool(match[2])}": finite(match[1])}),
    ),
    Program("pytorch imagenet", "Time", r"^(?:Epoch: \[(\d+)\]|Test: )\[ *(\d+)/ *(\d+)\]\s+(.*)", _torch),
    Program(
        "timm", "Train: ",
        rf"^Train: (\d+) \[ *(\d+)/\d+ \( *\d+%\)\] +(.*?Time: ({NUMBER})s, +({NUMBER})/s.*)", _timm,
    ),
    Program(
        "pytorch imagenet test", "Acc@1", r"^ \* +Acc@1 (\S+) Acc@5 (\S+)",
        lambda match, source: Point({"test_acc1": finite(match[1]), "test_acc5": finite(match[2])}),
    ),
    Program(
        "keras", "/s",
        r"^\s*(\d+)/(\d+) .{0,200}?(?<!\d)\d+s((?: -.{0,2000}?)?) (\d+)(us|ms|s)/(?:step|sample)(.*)", _keras,
    ),
)  # fmt: skip
