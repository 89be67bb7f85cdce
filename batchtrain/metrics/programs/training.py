"""The progress lines of trainings: one line with a step or an epoch, and names before numbers.

A name is all words before its number (`train loss 1.9` is `train_loss`); a counter (`iter 35`) is the position and no
metric.
"""

from __future__ import annotations

import functools
import re

from batchtrain.metrics.point import COUNTERS, finite, of_json
from batchtrain.metrics.programs.base import NUMBER, Program, Source, pairs
from batchtrain.records import Point

_COUNTERS = {**COUNTERS, "iter": "step", "iters": "step", "steps": "step", "epochs": "epoch", "micro_step": ""}
"""Words before a number that is a position; an empty one is skipped."""
_LEFT_OUT = frozenset({
    "v_num", "rank", "attempt", "node", "global_batch_size", "consumed_samples", "number_skipped_iterations",
    "number_nan_iterations", "skipped", "num_tokens_seen", "runningavgsamplespersec", "maxmemallocated", "eta",
    "remaining_time",
})  # fmt: skip
"""Numbers that are neither metrics nor positions."""
_RENAMED = {
    "tps": "tokens_per_second",
    "time": "step_time", "dt": "step_time", "iter_time": "step_time", "step_time": "step_time",
    "elapsed_time_per_iteration": "step_time", "train_step_timing_s": "step_time", "memory": "memory_gib",
    "currsamplespersec": "total_samples_per_second", "memallocated": "memory_gib",
}  # fmt: skip
"""The names that programs give to what metrics.md names otherwise."""
_RATED = {"tok": "tokens", "img": "images", "it": "iterations"}
"""What is counted for each second, as programs shorten it."""
_FACTORS = {"ms": 0.001, "us": 1e-6, "GB": 1.0, "MB": 1 / 1024, "MiB": 1 / 1024}
_FILLERS = frozenset({"a", "and", "at", "in", "is", "of", "on", "the", "to", "with"})
_OF_SENTENCES = frozenset({
    "from", "to", "in", "took", "reached", "finished", "completed", "code", "signal", "pid", "port", "line", "top",
})  # fmt: skip
"""A number behind one of these words, without `:` or `=`, belongs to a sentence."""
_WORD = r"(?!(?:nan|NaN|inf|Infinity)\b|(?:cuda|hpu|mps|npu|xla|xpu):\d)[A-Za-z_][\w./@-]*"
_PAIR = re.compile(
    rf"(?<![\w./@-])(?P<names>(?:{_WORD}[ ]+){{0,4}}{_WORD})"
    r"(?P<between>(?:[ ]*\((?P<unit>[\w/]+)\))?(?:[\"']?[ ]*[:=][ ]*|[ ]+)\[?)"
    rf"(?P<value>#?{NUMBER})(?:[ ]?(?P<suffix>(?:ms|us|s|GiB|GB|MiB|MB)\b|%))?"
    r"(?:[ ]*(?:/|of)[ ]*(?P<of>\d+)(?P<share>[ ]?\([\d.]+%\)|=[\d.]+)?)?(?![\w.]|:\d| days?,)"
)
_RATE = re.compile(rf"(?<![\w.,])({NUMBER})([kM]?) ?([A-Za-z]+)/s(?:ec)?\b(?!\"?[ ]*[:=]|[ ]+[\d.])")
"""A number before its unit; behind `samples/sec: ` comes the number of this name."""
_IN_EPOCH = re.compile(r"(?:[Tt]rain(?:ing)? )?[Ee]poch[ :=#]*\[? *\d+\]? *\[ *(\d+) */ *\d+")
"""`Epoch: [0][10/100]`, `Train Epoch: 1 [640/60000 (1%)]`."""
_LEVEL = r"(?:DEBUG|INFO|WARNING|root)\b"
_LOGGER = rf"(?!{_LEVEL})[A-Za-z_][\w.]*"
_LOG_PREFIX = (
    r"(?:\[[^\]]*\]:?\s*|\(?\w+ pid=\d+[^)]*\)\s*|(?:\d{4}-\d\d-\d\d|\d\d/\d\d/\d{4})[ T]\S+\s+|\d\d:\d\d:\d\d\S*\s+"
    rf"|{_LEVEL}(?::{_LOGGER}:)?[:\s]*|[\w.]+:\d+\s+|-\s+(?:{_LOGGER}\s+-\s+)?)*?"
)
"""Each text fits in one way: with two, a long line would take days."""


def _point(text: str) -> Point | None:
    """The counters, the metrics and the rates of a line."""
    values, position = _values(text)
    if not position:
        return None
    step, epoch = position.get("step"), position.get("epoch")
    if step is None and (match := _IN_EPOCH.match(text)):
        step = int(match[1])
    if "/s" in text:
        for number, prefix, unit in _RATE.findall(text):
            values[_rate(unit.lower())] = _scaled(number, prefix)
    return Point(values, step=None if step is None else int(step), epoch=epoch)


def _values(text: str) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """The metrics and the position of a text. Of a counter the first number counts (`step 100, next eval at step 200`),
    of two counters for the same the last (`iter 40 step 10`)."""
    values: dict[str, float | None] = {}
    counters: dict[str, float | None] = {}
    for names, between, bracketed, number, suffix, whole, share in _PAIR.findall(text):
        name, counter, is_sentence = _name(names)
        value, unit = finite(number if number[0] != "#" else number[1:]), suffix or bracketed
        if name in _LEFT_OUT or (is_sentence and between.isspace()):
            continue
        if counter and not unit:
            name = counter
        elif number[0] == "#" or (whole and not share):
            continue  # `GPU #0`, `shard 2/8`
        elif whole and value is not None:
            value = value / int(whole) if int(whole) else None  # `Accuracy: 9913/10000 (99%)`
        else:
            name = _RENAMED.get(name, name)
            if value is not None and name in ("step_time", "memory_gib"):
                value *= _FACTORS.get(unit, 1.0)
        if name not in _COUNTERS:
            values[name] = value
        else:
            counters.setdefault(name, value)
    return values, {_COUNTERS[name]: counters[name] for name in counters if _COUNTERS[name]}


def _rate(unit: str) -> str:
    return f"{_RATED.get(unit, unit)}_per_second"


def _scaled(number: str, prefix: str) -> float | None:
    value = finite(number)
    return None if value is None else value * {"": 1.0, "k": 1e3, "M": 1e6}[prefix]


@functools.lru_cache(maxsize=1000)
def _name(text: str) -> tuple[str, str, bool]:
    """What the words before a number say: the name, the last word if a number behind it is a position, and whether
    they are part of a sentence. A training repeats them with every line."""
    before = text.lower().split()
    words = [word for word in before if word not in _FILLERS] or before
    unit, is_rate, end = words[-1].partition("/s")
    last = _rate(unit) if is_rate and end in ("", "ec") else words[-1]
    name = "_".join((*words[:-1], last)).replace("@", "")
    return name, words[-1] if words[-1] in _COUNTERS else "", before[-1] in _OF_SENTENCES


def _columns(match: re.Match[str], source: Source) -> Point | None:
    """Megatron-LM, NeMo, litgpt: `iteration 100/ 5000 | lm loss: 6.87E+00 | grad norm: 1.2 |`. How many iterations
    were skipped or had no number is a counter."""
    text = re.sub(r"\bloss train: (\S+), val: ", r"train loss: \1, val loss: ", match[0])
    text = re.sub(r"\bnumber of \w+ iterations: *\d+", "", text)
    return _point(text.replace("|", ",").replace("/ ", "/"))


def _bar(match: re.Match[str], source: Source) -> Point | None:
    """A bar of tqdm or Lightning: `Epoch 2: 45%|████ | 9/20 [00:03<00:04, 2.7it/s, v_num=0, loss=0.41]`."""
    values, position = _values(match["rest"])
    if not values:
        return None  # a download or a data set, not a training
    if rate := _scaled(match["rate"] or "", match["prefix"] or ""):
        values["iterations_per_second"] = 1 / rate if match["unit"].startswith("s/") else rate
    epoch = re.search(r"\bepoch (\d+)", match["head"], re.IGNORECASE)
    return Point(values, step=int(match["at"]), epoch=int(epoch[1]) if epoch else position.get("epoch"))


def _deepspeed(match: re.Match[str], source: Source) -> Point | None:
    return _point(match[0].replace("/", ", "))


_DICT_PAIR = re.compile(rf"""['"]([^'"]+)['"]: ?(['"]|np\.\w+\(|)({NUMBER})['")]?(?=\s*[,}}])""")
_OF_TRAINING = ("loss", "eval_", "train_", "accuracy", "reward")


def _json_line(match: re.Match[str], source: Source) -> Point | None:
    """Reads a JSON object or a Python dict (Transformers, whose numbers may be quoted) with a step, an epoch or a name
    of a training; other objects are not metrics."""
    text = match[1]
    if not any(f'"{name}"' in text or f"'{name}'" in text for name in COUNTERS) and not any(
        name in text for name in _OF_TRAINING
    ):
        return None
    try:
        point = of_json(text)
    except ValueError:
        point = None
    pairs_of_text = _DICT_PAIR.findall(text) if text.count("{") == 1 else ()
    numbers = {name: finite(number) for name, quote, number in pairs_of_text if quote or point is None}
    counters = {COUNTERS[name]: numbers.pop(name) for name in tuple(numbers) if name in COUNTERS}
    values = {name: value for name, value in numbers.items() if name not in _LEFT_OUT}
    step, epoch = counters.get("step"), counters.get("epoch")
    before = point or Point({})
    return before._replace(
        values=values | before.values,
        step=before.step if step is None else int(step),
        epoch=before.epoch if epoch is None else epoch,
    )


_SCORE = r"(?:accuracy|acc|auc|auroc|f1|logloss|loss|mae|mse|perplexity|rmse)(?:[ _-]score)?"
"""The names of results. `precision` is also a setting."""

_COUNTER = (
    r"(?=[\[begist])\[?(?:global[ _]|train(?:ing)? )?(?:step|iter(?:ation)?|epoch|batch(?= ))s?[ :=#]*(?:\[ *)?\d+"
)

PROGRAMS = (
    Program(
        "recipes", "epoch ", rf"^epoch (\d+)((?: (?!(?:of|rank|{'|'.join(_COUNTERS)}) )\w+ {NUMBER})+)$",
        lambda match, source: Point(pairs(match[2], r"(\w+) "), epoch=int(match[1])),
    ),
    Program(
        "recipes test", "test accuracy", r"^test accuracy (\S+)",
        lambda match, source: Point({"test_accuracy": finite(match[1])}),
    ),
    Program(
        "PyTorch's MNIST example", "Test set: ", rf"^Test set: Average loss: ({NUMBER}), Accuracy: (\d+)/(\d+)",
        lambda match, source: Point({
            "test_loss": finite(match[1]), "test_accuracy": int(match[2]) / max(int(match[3]), 1),
        }),
    ),
    Program(
        "Lightning checkpoint", ", global step ",
        rf"^Epoch (\d+), global step (\d+): '([^']+)' (?:reached ({NUMBER})|was not in top)",
        lambda match, source: Point(
            {match[3]: finite(match[4])} if match[4] else {}, epoch=int(match[1]), step=int(match[2])
        ),
    ),
    Program(
        "bars", "%|",
        r"^(?P<head>.*?)(?<!\d)\d+%\|[^|]*\| *(?P<at>\d+)/\d+ "
        rf"\[[^,\]]*(?:, *(?P<rate>{NUMBER}|\?) ?(?P<prefix>[kM](?=it/))?(?P<unit>[a-z]+/s|s/[a-z]+))?"
        r"(?P<rest>[^\]]*)\]",
        _bar,
    ),
    Program(
        "Megatron-LM, NeMo, litgpt", " | ",
        r"(?i:\biteration +\d+/ *\d+ \||\bepoch \d+(?:, iteration \d+/\d+)? \|(?= iter | lr)).*", _columns,
    ),
    Program("DeepSpeed step", "step=", r"(?<=\] )step=\d+, skipped=.*", _deepspeed),
    Program("DeepSpeed rate", "/micro_step=", r"epoch=\d+/micro_step=.*", _deepspeed),
    Program(
        "Optuna", "finished with value",
        rf"Trial (\d+) finished with value: ({NUMBER}) .* is trial \d+ with value: ({NUMBER}?)",
        lambda match, source: Point({"value": finite(match[2]), "best_value": finite(match[3])}, step=int(match[1])),
    ),
    Program(
        "XGBoost, LightGBM", "]\t",
        rf"^\[(\d+)\]((?:\t[\w'@. -]+: ?{NUMBER}(?: ?\+ ?{NUMBER})?)+)$",
        lambda match, source: Point(
            {
                name.replace("'s_", "_").replace("-", "_"): value  # `training's_auc`, `train-auc`
                for name, value in pairs(match[2], r"([\w'@. -]+): ?").items()
            },
            step=int(match[1]),
        ),
    ),
    *(
        Program(
            f"steps by {needle}", needle, rf"^{_LOG_PREFIX}((?i:{_COUNTER})[^\d\w].*)$",
            lambda match, source: _point(match[1]),
        )
        for needle in ("tep", "ter", "poch", "atch")
    ),
    *(
        Program(
            f"results with {needle}", needle,
            rf"^{_LOG_PREFIX}((?:{_WORD}[ ]+){{0,4}}(?i:(?:\w+[_/-])?{_SCORE})"
            rf"[ ]*[:=][ ]*{NUMBER}(?:[ ]?%|/\d+(?: .*)?)?)\s*$",
            lambda match, source: Point(_values(match[1])[0]),
        )
        for needle in (":", "=")
    ),
    Program("json", "{", r"^\s*(\{.*\})\s*$", _json_line),
)  # fmt: skip
