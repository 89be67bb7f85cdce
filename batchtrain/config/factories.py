"""The analysis of a task factory without creating its tasks: its kind, its number of tasks, their values, and its
faults. The rules and the planner ask the same functions, so that what is valid can be planned.
"""

from __future__ import annotations

import math
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import combinations, combinations_with_replacement, islice, permutations, product
from string import Formatter
from typing import Any, NamedTuple

from msgspec import json
from msgspec.structs import replace

from batchtrain.config import ids, types

MOST_TASKS = 100_000_000
MOST_ID = 64
"""Characters of the id of a task."""
MOST_DIGITS = 4
"""Maximum digits of a width in a replacement field; a longer width would fill the memory."""

FEW_TASKS = 100
"""So many values of files and functions are read at once; more are read while their tasks are sent."""
MOST_TEMPLATE_IDS = 10_000
"""So many ids of a template are made to judge dependencies."""
EXAMPLE = "example.dat"
"""Represents the files of a container that were not listed."""

KEYWORDS = ("url", "file_path", "file_path_with_container", "file_name", "file_name_no_extension")
"""The names that the command of a file factory may use for blobs."""

SOURCE_KEYWORDS = ("file_path", "file_name", "file_name_no_extension")
"""The same for files of the task's `source`."""

KINDS = ("parametric_sweep", "random", "file", "custom", "repeat", "grid", "list")
PARAMETERS = "BATCHTRAIN_PARAMETERS"
"""The environment variable with the named parameters of a task, as JSON."""
SWEEPS = ("product", "product_iterables", "combinations", "permutations", "zip")

DRAWS = {
    "beta": "betavariate", "exponential": "expovariate", "gamma": "gammavariate", "gauss": "gauss",
    "lognormal": "lognormvariate", "pareto": "paretovariate", "triangular": "triangular", "uniform": "uniform",
    "weibull": "weibullvariate",
}  # fmt: skip
"""The method of `random.Random` for each distribution; the parameters have the order of the method."""

FORMAT_ERRORS = (LookupError, ValueError, AttributeError, TypeError, OverflowError)
"""The exceptions of `str.format` for braces that fit no value."""

Row = tuple[Any, ...]
"""The values of one task; of a grid or a list in the order of its names."""
Values = Iterable[Row]


class Mistake(NamedTuple):
    """A mistake in a factory; `path` starts at its task."""

    path: types.Path
    message: str


Faults = Iterator[Mistake]
FACTORY: types.Path = ("task_factory",)


def faults(task: types.Task) -> Faults:
    """All faults that make a task with a factory impossible to plan. The first of `JUDGES` that finds a fault reports
    it."""
    for judge in JUDGES:
        yield from judge(task)


def kind(factory: types.TaskFactory) -> str | None:
    """The kind of the factory. Returns None if it has no kind or several."""
    kinds = [name for name in KINDS if getattr(factory, name)]
    return kinds[0] if len(kinds) == 1 else None


def keywords(file: types.FileFactory) -> tuple[str, ...]:
    """The names that the command of a file factory may use."""
    return KEYWORDS if file.source is None else SOURCE_KEYWORDS


def in_source(selection: types.FileFactorySource, names: Iterable[str]) -> list[str]:
    """The files of a source for which tasks are made, in order."""
    top = f"{selection.path.strip('/')}/" if selection.path.strip("/") else ""
    return sorted(name for name in names if name.startswith(top) and chosen(name.removeprefix(top), selection))


def chosen(name: str, selection: types.FileFactoryStorage | types.FileFactorySource) -> bool:
    """Whether a file is selected: by one of `include` (or all), and by none of `exclude`."""
    is_included = not selection.include or any(fnmatchcase(name, pattern) for pattern in selection.include)
    return is_included and not any(fnmatchcase(name, pattern) for pattern in selection.exclude)


# --- what is wrong --------------------------------------------------------------------------------------------------


def kind_faults(task: types.Task) -> Faults:
    """A factory has exactly one kind."""
    factory = task.task_factory
    if factory is None:
        return
    yield from _exactly_one(FACTORY, factory, KINDS)
    if factory.parametric_sweep is not None:
        yield from _exactly_one((*FACTORY, "parametric_sweep"), factory.parametric_sweep, SWEEPS)
    if factory.file is not None:
        yield from _exactly_one((*FACTORY, "file"), factory.file, ("azure_storage", "source"))
        if factory.file.source is not None and task.source is None:
            message = "the task has no `source`; name the directory of the files there"
            yield Mistake((*FACTORY, "file", "source"), message)
    if factory.random is not None:
        path, drawn = (*FACTORY, "random"), factory.random
        yield from _exactly_one(path, drawn, ("integer", "distribution"))
        if drawn.distribution is not None:
            yield from _exactly_one((*path, "distribution"), drawn.distribution, tuple(DRAWS))


def _exactly_one(path: types.Path, block: object, names: tuple[str, ...]) -> Faults:
    present = [name for name in names if getattr(block, name)]
    if not present:
        yield Mistake(path, f"the factory has no kind; add one of {', '.join(f'`{name}`' for name in names)}")
    elif len(present) > 1:
        yield Mistake(path, f"{' and '.join(f'`{name}`' for name in present)} are given; keep one")


def id_faults(task: types.Task) -> Faults:
    """Tasks of a factory have unique ids."""
    factory = task.task_factory
    if task.id is None or factory is None:
        return
    if "{" in task.id and factory.autogenerated_task_id is not None:
        yield Mistake(("id",), "`id` and `autogenerated_task_id` both make the ids; remove one of them")
    elif "{" in task.id and factory.repeat is not None:
        yield Mistake(("id",), f"`repeat` has no values for `{task.id}`; write an id without braces")
    elif "{" in task.id and names(factory) and kind(factory) and not any(_parameter_faults(factory)):
        yield from _repeated_ids(task.id, factory)
        rows: Iterable[Mapping[str, Any]] = factory.list
        if factory.grid:
            longest = (max(column, key=lambda value: len(str(value))) for column in columns(factory))
            rows = (dict(zip(factory.grid, longest, strict=True)),)
        overlong = (message for row in rows if (message := id_fault(_tried(task.id, None, **row))))
        yield from (Mistake(("id",), message) for message in islice(overlong, 1))


def _repeated_ids(template: str, factory: types.TaskFactory) -> Faults:
    """Values that make the same id. Parameters of a grid are judged one by one; ids that are the same for another
    reason are found while the tasks are sent."""
    fields = [(re.split(r"[.\[]", field)[0], f"{{0:{spec}}}") for field, spec, _ in _fields(template)]
    if factory.list:
        earlier_ids: set[tuple[str, ...]] = set()
        for number, row in enumerate(factory.list):
            texts = tuple(ids.cleaned(_tried(text, row.get(name))).lower() for name, text in fields)
            if texts in earlier_ids:
                message = f"`list[{number}]` makes the id of an earlier set; write more parameters into it"
                yield Mistake(("id",), message)
                break
            earlier_ids.add(texts)
    for name, column in zip(factory.grid, columns(factory) if factory.grid else (), strict=True):
        formats = [text for field, text in fields if field == name]
        ids_of_values = ({ids.cleaned(_tried(text, value)).lower() for value in column} for text in formats)
        if len(column) > 1 and not any(len(texts) == len(column) for texts in ids_of_values):
            yield Mistake(("id",), f"values of `{name}` make the same id; write `{{{name}}}` into it")


def id_fault(task_id: str) -> str:
    """What is wrong with the length of an id; empty if it is right."""
    if 1 <= len(task_id) <= MOST_ID:
        return ""
    change = "shorten" if task_id else "write more into"
    return f"`{task_id}` has {len(task_id)} characters, and an id may have 1 to {MOST_ID}; {change} `id`, or its values"


def _tried(text: str, value: object, /, **keyword_values: object) -> str:
    """Values written by a format; ones that do not fit are reported by the rule about commands."""
    try:
        return text.format(value, **keyword_values)
    except FORMAT_ERRORS:
        return str(value)


def value_faults(task: types.Task) -> Faults:
    """The mistakes by which a factory has no values, or not those that the user meant."""
    factory = _clear(task)
    if factory is None:
        return
    if factory.parametric_sweep is not None:
        yield from _sweep_faults((*FACTORY, "parametric_sweep"), factory.parametric_sweep)
    if factory.random is not None and factory.random.integer is not None:
        yield from _steps_faults((*FACTORY, "random", "integer"), factory.random.integer)
    elif factory.random is not None:
        try:
            _draw(factory.random, random.Random(0))()
        except (ValueError, ArithmeticError) as error:
            message = f"its numbers cannot be drawn ({error}); check the parameters of the distribution"
            yield Mistake((*FACTORY, "random", "distribution"), message)
    if factory.grid or factory.list:
        yield from _parameter_faults(factory)
    if factory.file is not None and factory.file.azure_storage is not None:
        prefix = factory.file.azure_storage.remote_path
        if "{" in prefix or "}" in prefix:
            message = f"`{prefix}` has braces, which no placeholder can carry; rename the directory"
            yield Mistake((*FACTORY, "file", "azure_storage", "remote_path"), message)


def _parameter_faults(factory: types.TaskFactory) -> Faults:
    path = (*FACTORY, kind(factory) or "")
    for name in names(factory):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            message = f"`{name}` cannot be written as `{{{name}}}`; use letters, digits and `_`"
            yield Mistake((*path, name) if factory.grid else path, message)
    for name, axis in factory.grid.items():
        if isinstance(axis, types.Steps):
            yield from _steps_faults((*path, name), axis)
        elif not axis:
            yield Mistake((*path, name), "the list is empty, so no task is made")
    for number, row in enumerate(factory.list):
        if different := set(names(factory)).symmetric_difference(row):
            message = f"`{min(different)}` is in some sets of parameters, but not in all"
            yield Mistake((*path, number), message)
            return


def _sweep_faults(path: types.Path, sweep: types.ParametricSweep) -> Faults:
    for number, steps in enumerate(sweep.product):
        yield from _steps_faults((*path, "product", number), steps)
    for name in ("product_iterables", "zip"):
        for number, values in enumerate(getattr(sweep, name)):
            if not values:
                yield Mistake((*path, name, number), "the list is empty, so no task is made")
    for name in ("combinations", "permutations"):
        some = getattr(sweep, name)
        if some is not None and not _count(sweep):
            message = f"{some.length} of {len(some.iterable)} values cannot be chosen, so no task is created"
            yield Mistake((*path, name, "length"), message)


def _steps_faults(path: types.Path, steps: types.Steps) -> Faults:
    if steps.step == 0:
        yield Mistake((*path, "step"), "a step of 0 never ends")
    elif not _length(steps):
        yield Mistake(path, f"there is no value from {steps.start} to before {steps.stop} in steps of {steps.step}")


def size_faults(task: types.Task) -> Faults:
    """The mistake of a factory that makes more tasks than allowed."""
    factory = _clear(task)
    count = counted(factory) if factory is not None and not any(value_faults(task)) else None
    if count is not None and count > MOST_TASKS:
        text = f"{count:,}" if count < 10**18 else "more than 10^18"
        path = (*FACTORY, kind(factory) or "") if factory else FACTORY
        yield Mistake(path, f"the factory creates {text} tasks, but at most {MOST_TASKS:,} are allowed; split the job")


def command_faults(task: types.Task) -> Faults:
    """The braces of a command are filled by the values of its factory."""
    factory = _clear(task)
    if factory is None or any(size_faults(task)) or any(value_faults(task)):
        return
    if task.command is None and not (factory.custom or factory.grid or factory.list or factory.repeat):
        yield Mistake(FACTORY, "a factory writes its values into the `command`, and there is none")
        return
    mistakes: list[Mistake] = []

    def judge(path: types.Path, text: str) -> str:
        wrong = (misfit(text, *example) for example in _examples(factory, text))
        if message := _never(text) if factory.custom is not None else next(filter(None, wrong), ""):
            mistakes.append(Mistake(path, message))
        return text

    written(task, judge)
    yield from mistakes


def _clear(task: types.Task) -> types.TaskFactory | None:
    """The factory of a task, if its kind is unambiguous."""
    return None if any(kind_faults(task)) else task.task_factory


JUDGES: tuple[Callable[[types.Task], Faults], ...] = (kind_faults, id_faults, value_faults, size_faults, command_faults)
"""The order matters: each assumes that the ones before it found no fault."""


# --- texts with values ---------------------------------------------------------------------------------------------


def names(factory: types.TaskFactory) -> tuple[str, ...]:
    """The names of the parameters; empty for values that have numbers."""
    return tuple(factory.grid or (factory.list[0] if factory.list else ()))


def written(task: types.Task, write: Callable[[types.Path, str], str]) -> types.Task:
    """A task of a factory, each of its texts that hold values replaced. Named parameters are also written into
    environment variables and the paths of files."""
    factory = task.task_factory
    changes: dict[str, Any] = {"task_factory": None}
    if task.id is not None and "{" in task.id:
        changes["id"] = write(("id",), task.id)
    if task.command is not None and not (factory and factory.repeat):
        changes["command"] = write(("command",), task.command)
    if factory is not None and names(factory):
        changes |= _everywhere(task, write)
    return replace(task, **changes)


FILE_TEXTS = ("file_path", "blob_source", "storage_container_url", "blob_prefix")
OUTPUT_TEXTS = ("remote_path", "local_path")


def _everywhere(task: types.Task, write: Callable[[types.Path, str], str]) -> dict[str, Any]:
    def written_blocks(path: types.Path, blocks: Iterable[Any], fields: tuple[str, ...]) -> Iterator[Any]:
        for number, block in enumerate(blocks):
            texts = ((name, getattr(block, name)) for name in fields)
            yield replace(block, **{name: write((*path, number, name), text) for name, text in texts if text})

    outputs = written_blocks(("output_data", "azure_storage"), task.output_data.azure_storage, OUTPUT_TEXTS)
    variables = task.environment_variables.items()
    return {
        "display_name": write(("display_name",), task.display_name) if task.display_name else task.display_name,
        "environment_variables": {name: write(("environment_variables", name), text) for name, text in variables},
        "resource_files": tuple(written_blocks(("resource_files",), task.resource_files, FILE_TEXTS)),
        "output_data": replace(task.output_data, azure_storage=tuple(outputs)),
    }


class Parameter(str):
    """A value as it was written. A format formats its number, if it is one."""

    def __format__(self, spec: str) -> str:
        return format(number_of(self), spec) if spec else str(self)


def number_of(text: str) -> str | int | float:
    """The number that a text is; the text itself if it is none."""
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(text)
    return float(text) if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) else str(text)


def recorded(parameters: Mapping[str, Any], record: Callable[[Any], str]) -> str:
    """The parameters of a task as `BATCHTRAIN_PARAMETERS` has them; `record` is `as_json`."""
    return "{" + ", ".join(f'"{name}": {record(value)}' for name, value in parameters.items()) + "}"


def as_json(value: Any) -> str:
    """A number and a boolean as such, everything else as text."""
    plain = str(value)
    if isinstance(value, Parameter):
        value = {"true": True, "false": False}.get(plain, number_of(plain))
    return json.encode(value).decode()


# --- braces ---------------------------------------------------------------------------------------------------------


def misfit(command: str, row: tuple[Any, ...], words: Mapping[str, str]) -> str:
    """Why the braces of a command fit no value, and what to write. Empty if they fit."""
    if wide := re.search(rf"\{{[^{{}}]*:[^{{}}]*[0-9]{{{MOST_DIGITS + 1},}}[^{{}}]*\}}", command):
        return f"`{wide[0][:40]}` is too wide"
    try:
        command.format(*row, **words)
    except FORMAT_ERRORS as error:
        wrong = next(_wrong(command, row, words), "")
        about = f"`{wrong}` fits no value" if wrong else f"its braces do not fit ({error})"
        placeholders = ", ".join(f"{{{name}}}" for name in words or map(str, range(len(row))))
        return f"{about}; the factory gives {placeholders or 'no values'}. {_TWICE}"
    return ""


_TWICE = "Write braces of the shell, as in awk or ${NAME}, twice: {{ and }}"


def _wrong(command: str, row: tuple[Any, ...], words: Mapping[str, str]) -> Iterator[str]:
    """The replacement fields that cannot be filled."""
    automatic = 0
    for field, spec, turn in _fields(command):
        placeholder = "{" + field + (f"!{turn}" if turn else "") + (f":{spec}" if spec else "") + "}"
        name = field
        if not name and not words:
            name, automatic = str(automatic), automatic + 1
        try:
            format(Formatter().get_field(name, row, words)[0], spec or "")
        except FORMAT_ERRORS:
            yield placeholder


def _fields(command: str) -> Iterator[tuple[str, str | None, str | None]]:
    try:
        yield from [(field, spec, turn) for _, field, spec, turn in Formatter().parse(command) if field is not None]
    except ValueError:
        return


def _never(command: str) -> str:
    """Why no values of a function can fill the braces. The values are unknown, so only numbered fields are checked."""
    try:
        list(Formatter().parse(command))
    except ValueError as error:
        return f"its braces do not fit ({error}). {_TWICE}"
    field_name = next((field for field, _, _ in _fields(command) if re.match(r"[^0-9.\[]", field)), None)
    return f"`{{{field_name}}}` fits no value; the factory gives {{0}}, {{1}} and so on. {_TWICE}" if field_name else ""


def _examples(factory: types.TaskFactory, text: str) -> Iterator[tuple[Row, dict[str, Any]]]:
    """The values for which a text must have a format: the first ones, or those of a file name; all of them if only some
    may fit. Of a grid or a product each value is tried once."""
    if factory.file is not None:
        yield (), dict.fromkeys(keywords(factory.file), EXAMPLE)
        return
    if factory.custom is not None or factory.repeat is not None:
        yield (), {}
        return
    sweep = factory.parametric_sweep
    rows = iter(values(factory, 0))
    if not any(spec or re.search(r"[.\[]", field) for field, spec, _ in _fields(text)):
        rows = islice(rows, 1)
    elif factory.grid or (sweep and sweep.product_iterables):
        first, axes = next(rows), enumerate(columns(factory))
        rows = ((*first[:index], value, *first[index + 1 :]) for index, column in axes for value in column)
    elif not factory.list and not (sweep and sweep.zip):
        rows = islice(rows, 1)  # numbers or texts throughout
    parameters = names(factory)
    yield from (((), dict(zip(parameters, row, strict=True))) if parameters else (row, {}) for row in rows)


# --- values ---------------------------------------------------------------------------------------------------------


def count_of(task: types.Task) -> int:
    """The number of tasks that one task becomes; 1 if it is unknown."""
    factory = _clear(task)
    return (counted(factory) if factory is not None else None) or 1


def template_ids(task: types.Task) -> frozenset[str] | None:
    """The ids that the values of a factory make of its template; None if they are unknown, or very many."""
    factory, size = task.task_factory, size_of(task)
    if factory is None or factory.random is not None or size is None or size > MOST_TEMPLATE_IDS or any(faults(task)):
        return None
    parameters = names(factory)
    try:
        return frozenset(
            ids.cleaned(str(task.id).format(*row, **dict(zip(parameters, row, strict=False))))
            for row in values(factory, 0)
        )
    except FORMAT_ERRORS:
        return None


def size_of(task: types.Task) -> int | None:
    """The number of tasks that one task becomes; None if it is unknown."""
    if task.task_factory is None:
        return 1
    return None if any(value_faults(task)) or _clear(task) is None else counted(task.task_factory)


def counted(factory: types.TaskFactory) -> int | None:
    """The number of tasks; None if it depends on files or a function."""
    if factory.parametric_sweep is not None:
        return _count(factory.parametric_sweep)
    if factory.random is not None:
        return factory.random.generate
    if factory.grid:
        axes = factory.grid.values()
        return math.prod(_length(axis) if isinstance(axis, types.Steps) else len(axis) for axis in axes)
    return len(factory.list) or factory.repeat


def _count(sweep: types.ParametricSweep) -> int:
    if sweep.product:
        return math.prod(map(_length, sweep.product))
    if sweep.product_iterables:
        return math.prod(map(len, sweep.product_iterables))
    if some := sweep.combinations:
        size = len(some.iterable)
        return math.comb(size + some.length - 1 if some.replacement and size else size, some.length)
    if order := sweep.permutations:
        return math.perm(len(order.iterable), order.length)
    return min(map(len, sweep.zip))


def _length(steps: types.Steps) -> int:
    """The length of a range, of which `len` knows only those that fit in memory."""
    return max(0, -((steps.start - steps.stop) // steps.step)) if steps.step else 0


def values(factory: types.TaskFactory, seed: int | str) -> Values:
    """The values of each task of a sweep, grid or list, or as many random ones as are wanted. For a factory without
    faults."""
    if factory.random is not None:
        draw = _draw(factory.random, random.Random(seed))
        return ((draw(),) for _ in range(factory.random.generate))
    if factory.grid:
        return product(*map(_axis, factory.grid.values()))
    if factory.list:
        parameters = names(factory)
        return (tuple(_parameter(row[name]) for name in parameters) for row in factory.list)
    assert factory.parametric_sweep is not None
    sweep = factory.parametric_sweep
    if sweep.product:
        return product(*map(_range, sweep.product))
    if sweep.product_iterables:
        return product(*sweep.product_iterables)
    if some := sweep.combinations:
        choose = combinations_with_replacement if some.replacement else combinations
        return choose(some.iterable, some.length)
    if order := sweep.permutations:
        return permutations(order.iterable, order.length)
    return zip(*sweep.zip, strict=False)


def last(factory: types.TaskFactory, seed: int | str) -> Row:
    """The values of the last task; for a factory without faults."""
    if factory.grid:
        return tuple(_axis(axis)[-1] for axis in factory.grid.values())
    sweep = factory.parametric_sweep
    if sweep is not None and sweep.product:
        return tuple(_range(steps)[-1] for steps in sweep.product)
    if sweep is not None and sweep.product_iterables:
        return tuple(axis[-1] for axis in sweep.product_iterables)
    if sweep is not None and (some := sweep.combinations):
        return tuple(some.iterable[-1:] * some.length if some.replacement else some.iterable[-some.length :])
    if sweep is not None and (order := sweep.permutations):
        return tuple(order.iterable[::-1][: order.length])
    return deque(values(factory, seed), maxlen=1)[0]


LONGEST_NUMBER = -2.2250738585072014e-308


def columns(factory: types.TaskFactory) -> Sequence[Sequence[Any]]:
    """For each place in the rows values among which are its longest ones; for a factory without faults."""
    if factory.grid:
        return [_ends(axis) if isinstance(axis, range) else axis for axis in map(_axis, factory.grid.values())]
    if factory.random is not None:
        return [_ends(_range(factory.random.integer)) if factory.random.integer else (LONGEST_NUMBER,)]
    if factory.list:
        return list(zip(*values(factory, 0), strict=True))
    sweep = factory.parametric_sweep
    if sweep is None or sweep.product:
        return [_ends(_range(steps)) for steps in (sweep.product if sweep else ())]
    selection = sweep.combinations or sweep.permutations
    return [selection.iterable] * selection.length if selection else sweep.product_iterables or sweep.zip


def _ends(numbers: range) -> Sequence[int]:
    return numbers[0], numbers[-1]


def _axis(axis: tuple[types.Scalar, ...] | types.Steps) -> Sequence[Any]:
    return _range(axis) if isinstance(axis, types.Steps) else tuple(map(_parameter, axis))


def _parameter(value: types.Scalar) -> Any:
    return Parameter(value) if isinstance(value, str) else value


def _range(steps: types.Steps) -> range:
    return range(steps.start, steps.stop, steps.step)


def _draw(factory: types.RandomFactory, source: random.Random) -> Callable[[], float]:
    """A source of random numbers. It and its calls raise ValueError or ArithmeticError for invalid parameters."""
    if (steps := factory.integer) is not None:
        return lambda: source.randrange(steps.start, steps.stop, steps.step)
    name, shape = next((name, value) for name in DRAWS if (value := getattr(factory.distribution, name)) is not None)
    draw = getattr(source, DRAWS[name])
    parameters = [getattr(shape, field) for field in shape.__struct_fields__]
    return lambda: float(draw(*parameters))
