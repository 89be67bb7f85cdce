"""Explains a plan: its implicit settings, and what each property of the files became; values only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from batchtrain.config import factories, ids, reference, schema
from batchtrain.config.masking import is_hidden, masked_document
from batchtrain.config.schema import dotted
from batchtrain.config.types import Job, Path, Recipe, read_path
from batchtrain.launchers.launch import Implicit
from batchtrain.launchers.rules import RULES
from batchtrain.plan.types import Plan

SHOWN = 3
"""Places and values of one kind that are shown; the rest is counted."""


class Decision(NamedTuple):
    """An implicit setting of the plan, with the paths where it applies."""

    what: str
    value: str
    because: str
    rule: str
    sentence: str
    source: str
    off: str
    """What to write so that it does not happen; empty where nothing else could work."""
    where: tuple[str, ...]
    """The first of the blocks it was decided for."""
    times: int


class Setting(NamedTuple):
    """A property: its value, where that comes from, and what it becomes."""

    path: str
    value: Any
    origin: str
    """`pool.yaml:4`, `--set`, or `default`."""
    about: str
    becomes: str
    """The field of the request, or what is done with it."""
    planned: tuple[Any, ...]
    """What stands in that field; the first different ones."""
    times: int
    """How many different ones there are."""
    see: str
    gone: str = ""
    """Why it has no effect, and what to do instead."""


class Explained(NamedTuple):
    """The answer to a question about a plan."""

    decisions: tuple[Decision, ...]
    settings: tuple[Setting, ...] = ()

    def __str__(self) -> str:
        rules = (_rule_text(list(group)) for _, group in groupby(self.decisions, lambda item: item[3:]))
        return "\n\n".join([*rules, *map(_setting_text, self.settings)])


def decisions(implicit: Iterable[Implicit]) -> tuple[Decision, ...]:
    """Decisions of a plan; those alike are one, with how often it was taken."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for item in implicit:
        groups.setdefault(item[:4], []).append(item.where)
    result = []
    for kind, paths in groups.items():
        rule = RULES[kind[3]]
        places = tuple(path for path in dict.fromkeys(paths) if path)[:SHOWN]
        result.append(Decision(*kind, rule.sentence, rule.source, rule.off, places, len(paths)))
    return tuple(result)


def explain(plan: Plan, recipe: Recipe, values: Any, origins: Any, query: str = "") -> Explained:
    """The decisions and settings at a path or with a name; without a query, every decision.

    values, origins: the merged view of the files and of the same shape where each value came from
    (`config.origin.view`). A path may leave out the numbers of items: `job_specifications.tasks.command`, and what
    stands before `tasks`.
    """
    if not query:
        return Explained(decisions(plan.implicit))
    steps = _from_the_top(read_path(query), values)
    if _beyond(steps, values):
        return Explained(())
    implied = decisions(item for item in plan.implicit if _is_about(item, query, steps))
    leaves = list(_leaves(values, origins, ()))
    matching = [
        leaf
        for leaf in leaves
        if _leads_to(steps, leaf[0]) or (query in leaf[0] and _property_path(leaf[0])[-1] == query)
    ]
    leaves_to_show = [leaf for leaf in matching if leaf[2] != DEFAULT] or _of_the_job(steps, leaves)
    leaves_to_show = leaves_to_show or (matching if len(matching) <= SHOWN else matching[:1])
    by_property: dict[Path, list[tuple[Path, Any, str]]] = {}  # the items of a list are one value, as the keys of a map
    for leaf in leaves_to_show:
        by_property.setdefault(_property_path(leaf[0]), []).append(leaf)
    settings = tuple(_setting(plan, recipe, path, members) for path, members in by_property.items())
    if not implied and not settings:
        anchor = reference.anchor(_pattern_of(steps))
        settings = tuple(
            _absent(path, item)
            for path, item in reference.properties().items()
            if reference.anchor(path) == anchor or item.name == query
        )
    return Explained(implied, settings)


def hint(plan: Plan, query: str, values: Any) -> str:
    """The nearest name to an unknown one, or the length of the list for an item beyond its end."""
    if beyond := _beyond(_from_the_top(read_path(query), values), values):
        return beyond
    names = {item.what for item in plan.implicit} | set(RULES)
    names |= {item.name for item in reference.properties().values()}
    last = str(read_path(query)[-1]) if read_path(query) else query
    if last == query:
        return schema.did_you_mean(query, tuple(sorted(names)))
    if read_path(query)[0] not in schema.SECTIONS:
        return f"A path begins with one of {', '.join(schema.SECTIONS)}."
    near, _ = schema.nearest(
        reference.anchor(_pattern_of(read_path(query))), tuple(map(reference.anchor, reference.properties()))
    )
    return f"Did you mean `{near}`?" if near else schema.did_you_mean(last, tuple(sorted(names)))


DEFAULT = "default"


# --- which ones are meant -------------------------------------------------------------------------------------------


def _from_the_top(steps: Path, values: Any) -> Path:
    """A path whose first step is inside a section, with that section: `tasks[0]` is one of the jobs'."""
    if len(steps) < 2 or steps[0] in schema.SECTIONS:
        return steps
    for section in values:
        item_type = schema.shape_of((section, 0)) or schema.shape_of((section,))  # of a list, that of its items
        if steps[0] in schema.fields_of(item_type):
            return (section, *steps)
    return steps


def _beyond(steps: Path, values: Any) -> str:
    """The length of a list whose end a number exceeds; empty otherwise."""
    value = values
    for number, step in enumerate(steps):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int):
            if step >= len(value):
                last = dotted((*steps[:number], len(value) - 1))
                return f"`{dotted(steps[:number])}` has {len(value)}, the last is {last}."
            value = value[step]
        else:
            return ""  # the numbers are left out, or nothing stands there
    return ""


def _of_the_job(steps: Path, leaves: list[tuple[Path, Any, str]]) -> list[tuple[Path, Any, str]]:
    """What a task takes from its job, where it says nothing itself."""
    match steps:
        case ("job_specifications", int(job), "tasks", int(), *rest) if rest:
            above = ("job_specifications", job, *rest)
            return [leaf for leaf in leaves if _leads_to(above, leaf[0]) and leaf[2] != DEFAULT]
    return []


def _pattern_of(steps: Path) -> reference.PropertyPath:
    return tuple(reference.ITEM if isinstance(step, int) else step for step in steps)


def _is_about(item: Implicit, query: str, steps: Path) -> bool:
    if query in (item.what, item.rule):
        return True
    block = read_path(item.where)
    return bool(block) and (_leads_to(steps, block) or _leads_to(steps, (*block, item.what)))


def _leads_to(steps: Path, path: Path) -> bool:
    """Whether a path is the one that was asked for, or below it; numbers may be left out of the question."""
    remaining = list(steps)
    for step in path:
        if not remaining:
            return True
        if step == remaining[0]:
            remaining.pop(0)
        elif not isinstance(step, int) or isinstance(remaining[0], int):
            return False
    return not remaining


# --- what a property became -----------------------------------------------------------------------------------------


def _leaves(values: Any, origins: Any, path: Path) -> Iterator[tuple[Path, Any, str]]:
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from _leaves(value, origins[key], (*path, str(key)))
    elif isinstance(values, (list, tuple)):
        for number, value in enumerate(values):
            yield from _leaves(value, origins[number], (*path, number))
    else:
        yield path, values, origins


def _property_path(path: Path) -> Path:
    """The part of a path that names a property, without items and keys below it."""
    for length in range(len(path), 0, -1):
        if reference.path_of(path[:length]) in reference.properties():
            return path[:length]
    return path


def _setting(plan: Plan, recipe: Recipe, path: Path, members: list[tuple[Path, Any, str]]) -> Setting:
    pattern = reference.path_of(path)
    item = reference.properties().get(pattern)
    if item is None:
        return Setting(dotted(path), _value(path, members), members[0][2], "", "", (), 0, schema.anchor(path))
    distinct = {repr(value): value for value in on_wire(plan, recipe, path, item.wire)} if not is_hidden(path) else {}
    values = _of_the_volume(recipe, path, list(distinct.values()))
    return Setting(
        dotted(path), _value(path, members), members[0][2], item.description, item.wire, tuple(values[:SHOWN]),
        len(values), schema.anchor(path), reference.gone(pattern),
    )  # fmt: skip


def _of_the_volume(recipe: Recipe, path: Path, values: list[Any]) -> list[Any]:
    """Of options that hold volumes, those with the volume that is asked about."""
    match path:
        case ("global_resources", "volumes", str(kind), str(name), *_):
            volume = getattr(recipe.resources.volumes, kind).get(name)
            inside = getattr(volume, "container_path", None)
            return [value for value in values if not isinstance(value, str) or not inside or inside in value]
    return values


def _absent(pattern: reference.PropertyPath, item: reference.Property) -> Setting:
    value = item.default or None
    see = f"{reference.PAGE}#{reference.anchor(pattern)}"
    return Setting(
        reference.written(pattern), value, DEFAULT if value else "not set", item.description, item.wire, (), 0, see,
        reference.gone(pattern),
    )  # fmt: skip


def _value(path: Path, members: list[tuple[Path, Any, str]]) -> Any:
    if len(members) == 1 and members[0][0] == path:
        return members[0][1]
    below = [(member[0][len(path) :], member[1]) for member in members]
    if all(isinstance(steps[0], int) for steps, _ in below):
        return [value for _, value in below]
    return {dotted(steps): value for steps, value in below}


def on_wire(plan: Plan, recipe: Recipe, path: Path, wire: str) -> Iterator[Any]:
    """The values of the request field that a property becomes, in the requests of its job and task."""
    if not wire or wire.startswith("batchtrain:"):
        return
    for field in wire.split(","):
        request, _, steps = field.strip().partition(".")
        for body in _bodies(plan, recipe, path, request):
            yield from _below(body, tuple(steps.split(".")), anywhere=request == "*")


def _bodies(plan: Plan, recipe: Recipe, path: Path, request: str) -> Iterator[dict[str, Any]]:
    """The request bodies of a property's job and task; all bodies if it is in neither."""
    job, task = _owner(recipe, path)
    for step in plan.steps:
        kind = "node user" if step.action == "node.user" else step.action.partition(".")[0]
        is_of_the_job = job is None or kind in ("pool", "node user") or step.subject == job
        if request not in ("*", kind) or not is_of_the_job:
            continue
        body = masked_document(step.document, plan.hidden)
        several = body.get("value", body.get("tasks"))
        for task_body in several if several is not None else [body]:
            if task is None or step.action != "task.add" or task_body.get("id", task) == task:
                yield task_body


def _owner(recipe: Recipe, path: Path) -> tuple[str | None, str | None]:
    """The ids of the job and the task that a path is in; None where it is in none, or a factory makes the task."""
    match path:
        case ("job_specifications", int(number), "tasks", int(task), *_):
            return recipe.jobs[number].id, _task_id(recipe, recipe.jobs[number], task)
        case ("job_specifications", int(number), "merge_task", *_):
            merge = recipe.jobs[number].merge_task
            return recipe.jobs[number].id, ids.merge_id(merge) if merge else None
        case ("job_specifications", int(number), *_):
            return recipe.jobs[number].id, None
        case _:
            return None, None


def _task_id(recipe: Recipe, job: Job, number: int) -> str | None:
    task, sizes = job.tasks[number], [factories.size_of(task) for task in job.tasks]
    if task.task_factory is not None or None in sizes:
        return None if task.task_factory is not None else task.id
    span = ids.naming(job, recipe.settings.autogenerated_task_id, sizes).spans[number]
    return span.id(0) if span else task.id


def _below(value: Any, steps: tuple[str, ...], *, anywhere: bool) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _below(item, steps, anywhere=anywhere)
    elif not steps:
        yield value
    elif isinstance(value, dict):
        names = list(value) if steps[0] == "*" else [steps[0]] if steps[0] in value else []
        for name in names:
            yield from _below(value[name], steps[1:], anywhere=False)
        for below in value.values() if anywhere else ():
            if isinstance(below, (dict, list, tuple)):
                yield from _below(below, steps, anywhere=True)


# --- for people -----------------------------------------------------------------------------------------------------


def _rule_text(items: list[Decision]) -> str:
    """Decisions by one rule for the same blocks: what each is and why, then once what they share."""
    lines = [f"{item.what} = {item.value}\n  because {item.because}" for item in items]
    first = items[0]
    if first.where:
        more = f" and {first.times - len(first.where):,} more" if first.times > len(first.where) else ""
        lines.append(f"  for {', '.join(first.where)}{more}")
    lines += [f"  rule {first.rule}: {first.sentence}", f"  source: {first.source}"]
    lines.append(
        f"  to switch it off: {first.off}" if first.off else "  it cannot be switched off: nothing else could work"
    )
    return "\n".join(lines)


def _setting_text(item: Setting) -> str:
    value = "" if item.value is None else f" = {_shown(item.value)}"
    lines = [f"{item.path}{value}   ({item.origin})"]
    if item.about:
        lines.append(f"  {item.about}")
    if item.gone:
        lines.append(f"  no effect: {item.gone}")
    elif item.becomes.startswith("batchtrain: "):
        lines.append(f"  done by {item.becomes.replace(': ', ' itself: ', 1)}")
    elif item.becomes:
        values = f": {', '.join(map(_shown, item.planned))}" if item.planned else ""
        more = f" and {item.times - len(item.planned):,} more" if item.times > len(item.planned) > 0 else ""
        lines.append(f"  becomes {item.becomes}{values}{more}")
    return "\n".join([*lines, f"  see {item.see}"])


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


LONGEST = 100
"""Characters of a value that are shown."""
