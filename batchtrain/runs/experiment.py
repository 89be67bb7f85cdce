"""An experiment: a recipe with a matrix of settings, expanded. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from batchtrain.errors import UsageError

Scalar = str | int | float | bool
NODES = "nodes"
COUNT = "pool_specification.vm_count.dedicated"
COMMAND = "job_specifications[0].tasks[0].command"
RECIPES = {"mxnet": "MXNet-Benchmark", "tensorflow": "TensorFlow-Benchmarks-CPU"}
"""The recipes that take the parameters of DLBS, by `exp.framework`."""
PASSED = (
    "exp.model", "exp.replica_batch", "exp.num_batches", "exp.num_warmup_batches", "exp.gpus", "exp.dtype",
    "exp.phase", "exp.data", "exp.device_type", "exp.num_local_gpus", "mxnet.kv_store",
)  # fmt: skip
"""The parameters of DLBS that these recipes read (docs/reference/dlbs.md)."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of `batchtrain bench`."""

    recipe: str
    """A directory; `{NAME}` is the value of a variable."""
    matrix: dict[str, tuple[Scalar, ...]]
    """Values by variable: `nodes`, a path of --set, or a word in braces of `recipe`, `command` or `arguments`."""
    command: str = ""
    """Replaces the command of the first task; `{NAME}` is the value of a variable."""
    arguments: str = ""
    """Appended to the command of the first task; `{NAME}` is the value of a variable."""
    set: dict[str, Scalar] = {}
    """Settings of all runs, as --set."""
    metric: str = "throughput"


class Case(NamedTuple):
    """One run of an experiment."""

    values: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    recipe: str
    arguments: str = ""

    @property
    def name(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values)

    @property
    def nodes(self) -> int | None:
        return next((int(value) for name, value in self.values if name == NODES), None)


def experiment_of(data: Any, file: str) -> Experiment:
    """Read an experiment. Raises UsageError with the position of the mistake."""
    if not isinstance(data, dict):
        raise UsageError(f"{file} describes no experiment: it needs `recipe` and `matrix` (`batchtrain bench --help`)")
    try:
        experiment = msgspec.convert(data, Experiment)
    except msgspec.ValidationError as error:
        raise UsageError(f"{file}: {error}") from None
    empty = [name for name, values in experiment.matrix.items() if not values]
    if not experiment.matrix or empty:
        raise UsageError(f"{file}: `matrix` needs a list of values for {empty[0] if empty else 'at least one name'}")
    texts = experiment.recipe, experiment.command, experiment.arguments
    for name, values in experiment.matrix.items():
        wrong = [value for value in values if not isinstance(value, int) or value < 1]
        if name == NODES and wrong:
            raise UsageError(f"{file}: matrix.nodes: {wrong[0]} is not a number of nodes")
        if name != NODES and "." not in name and not any(f"{{{name}}}" in text for text in texts):
            raise UsageError(
                f"{file}: matrix.{name} changes nothing: write {{{name}}} in `recipe`, `command` or `arguments`, or a"
                " path of --set"
            )
    return experiment


def cases(experiment: Experiment) -> Iterator[Case]:
    """Every combination of values; the first variable changes slowest."""
    names = tuple(experiment.matrix)
    for combination in itertools.product(*experiment.matrix.values()):
        values = {name: _text(value) for name, value in zip(names, combination, strict=True)}
        settings = {path: _text(value) for path, value in experiment.set.items()}
        for name, value in values.items():
            if name == NODES or "." in name:
                settings[COUNT if name == NODES else name] = value
        if experiment.command:
            settings[COMMAND] = _filled(experiment.command, values)
        recipe, arguments = _filled(experiment.recipe, values), _filled(experiment.arguments, values)
        yield Case(tuple(values.items()), tuple(settings.items()), recipe, arguments)


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- DLBS ------------------------------------------------------------------------------------------------------------


def of_dlbs(data: Mapping[str, Any], recipe: str, file: str) -> tuple[Experiment, tuple[str, ...]]:
    """Convert an experimenter's config.json; also returns the settings that do not apply.

    recipe: the directory of the recipe; empty to choose a recipe that ships with batchtrain by `exp.framework`.
    """
    inapplicable: list[str] = []
    words: list[str] = []
    matrix: dict[str, Any] = {}
    if data.get("extensions"):
        inapplicable.append("extensions: they are not evaluated")
    for name, setting in {**data.get("parameters", {}), **data.get("variables", {})}.items():
        is_variable = name in data.get("variables", {})
        value = setting["val"] if isinstance(setting, Mapping) else setting
        values = tuple(value) if is_variable and isinstance(value, list) else (value,)
        if name == "exp.framework":
            if not recipe:
                if unknown := [item for item in values if item not in RECIPES]:
                    raise UsageError(
                        f"{file}: exp.framework `{unknown[0]}` has no recipe that takes it; name one with --recipe DIR"
                    )
                matrix["framework"] = tuple(RECIPES[item] for item in values)
            continue
        if any(isinstance(item, str) and ("${" in item or "$(" in item) for item in values):
            inapplicable.append(f"{name}: an expression, which only DLBS evaluates")
        elif name == "exp.num_nodes":
            matrix[NODES] = values
        elif name not in PASSED:
            inapplicable.append(f"{name}: the recipe has no such parameter")
        else:
            key = name.rpartition(".")[2]
            matrix[key] = tuple(json.dumps(item) for item in values)
            words.append(f"-P{name}='{{{key}}}'")
    if not recipe and "framework" not in matrix:
        raise UsageError(f"{file}: it has no exp.framework; name the recipe with --recipe DIR")
    document = {"recipe": recipe or "{framework}", "matrix": matrix or {NODES: (1,)}, "arguments": " ".join(words)}
    return experiment_of(document, file), tuple(inapplicable)
