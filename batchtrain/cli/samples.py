"""The input of an offline evaluation of an autoscale formula: its text, the time and the samples."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from batchtrain.config import load
from batchtrain.errors import UsageError
from batchtrain.formula import METRICS, OLDER_METRICS, PERIOD, Sample
from batchtrain.plan import autoscale


def text_of(formula: str) -> str:
    """The formula of the recipe in the directory with this name, or the text of the file, otherwise the argument."""
    try:
        path = Path(formula)
        if path.is_dir():
            return _of_recipe(path)
        return path.read_text(encoding="utf-8") if path.is_file() else formula
    except UnicodeDecodeError:
        raise UsageError(f"{formula} is not a text file") from None
    except (OSError, ValueError):  # too long for a file name, or with invalid characters
        return formula


def _of_recipe(directory: Path) -> str:
    recipe = load.load(directory, needs=("pool_specification",)).recipe
    text = autoscale.formula(recipe.pool, recipe.jobs) if recipe.pool else None
    if text is None:
        raise UsageError(f"the pool of {directory} has no formula; `pool_specification.autoscale` describes one")
    return text


def moment(text: str | None) -> datetime:
    """A time (UTC if it has no zone). Without a text, the current time."""
    if text is None:
        return datetime.now(timezone.utc)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"`{text}` is not a time such as 2027-01-31T09:00:00Z") from None
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)


def gathered(texts: Iterable[str], file: str | None, now: datetime) -> dict[str, tuple[Sample, ...]]:
    """The samples of `--sample NAME=N,N` and of a JSON file."""
    samples = _of_file(file, now) if file else {}
    for text in texts:
        name, _, numbers = text.partition("=")
        words = [word for word in numbers.split(",") if word.strip()]
        samples[_name(name)] = _spaced([_number(word, text) for word in words], now)
    return samples


def _of_file(file: str, now: datetime) -> dict[str, tuple[Sample, ...]]:
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    if not isinstance(document, dict) or not all(isinstance(values, list) for values in document.values()):
        raise UsageError(f"{file} must hold an object of lists: the samples by name")
    return {_name(name): _samples(name, values, now) for name, values in document.items()}


def _samples(name: str, values: list[object], now: datetime) -> tuple[Sample, ...]:
    """Numbers 30 seconds apart, the last one current, or pairs of a time and a number."""
    if not all(isinstance(value, list) and len(value) == 2 for value in values):
        return _spaced([_number(value, name) for value in values], now)
    pairs = [(moment(str(value[0])), _number(value[1], name)) for value in values if isinstance(value, list)]
    return tuple(sorted(pairs))


def current(nodes: dict[str, int], samples: dict[str, tuple[Sample, ...]], now: datetime) -> None:
    """Add samples of the last hour for the current numbers of nodes that have none."""
    for name, count in nodes.items():
        samples.setdefault(name, _spaced([count] * (timedelta(hours=1) // PERIOD), now))


def _spaced(numbers: list[float], now: datetime) -> tuple[Sample, ...]:
    first = now - PERIOD * (len(numbers) - 1)
    return tuple((first + PERIOD * index, number) for index, number in enumerate(numbers))


def _number(value: object, where: str) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        return float(value)
    except ValueError:
        raise UsageError(f"`{value}` in `{where}` is not a number") from None


def _name(name: str) -> str:
    """The name as the formula language spells it; the `$`, which shells would expand, is optional."""
    full = name.strip() if name.strip().startswith("$") else f"${name.strip()}"
    full = OLDER_METRICS.get(full, full)
    if full not in METRICS:
        raise UsageError(f"`{name}` has no samples; a formula reads {', '.join(METRICS)}")
    return full
