"""Makes the page about the emulator's operations from the tables that the service uses; pure.

`python -m tests.generated_files` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.emulator import models, query, routes, versions
from batchtrain.emulator.models import Field
from batchtrain.emulator.routes import Route

EFFECTS = {"": "acted on", "kept": "kept only", "unshown": "taken, never shown", "refused": "refused"}
HEAD = """<!-- Written by `python -m tests.generated_files` from the service's tables; do not edit. -->

# The operations of the emulator

The emulator has all {count} operations of the service. A request with a property, a query parameter or a filter that is
not on this page is refused with 400, as on Azure. See also [the differences](../explanation/emulator-differences.md).

| operation | verb and path | body | query |
|---|---|---|---|
"""
FORMER = """
Older service versions also have:
"""
FILTERS = """
## Filters of lists

Operators are `eq`, `ne`, `gt`, `ge`, `lt`, `le` and `startswith`, joined by `and` and `or`. *All* stands for all of
them, and *order* for all except `startswith`.

| list | property and operators |
|---|---|
"""
BODIES = """
## Properties of request bodies

- *acted on*: the property has the same effect as on Azure; [the differences](../explanation/emulator-differences.md)
  list the exceptions.
- *kept only*: the property and everything below it is validated, stored and returned, and has no effect.
- *taken, never shown*: the property is accepted, but no answer contains it, for example because it is a secret.
- *refused*: a request with this property is refused, and the answer gives the reason.

`!` marks a required property. If only some service versions have a property, its row names them.
"""


def page() -> str:
    """The whole page as Markdown."""
    rows = (_operation(route) for route in sorted(routes.ROUTES, key=lambda route: (route.path, route.verb)))
    filters = (_filters(kind, filters) for kind, filters in query.FILTERS.items())
    head = HEAD.format(count=len(routes.ROUTES))
    former = map(_former, routes.FORMER)
    return "".join([head, *rows, FORMER, *former, FILTERS, *filters, BODIES, *map(_model, bodies())])


def bodies(*, effects: tuple[str, ...] = tuple(EFFECTS), revision: int = versions.NEWEST) -> tuple[str, ...]:
    """The models of request bodies in the order of their tables, and the models that they contain through properties
    with one of these effects, up to a revision of the service."""
    names: set[str] = set()
    waiting = [route.body for route in routes.ROUTES if route.body]
    while waiting:
        model = waiting.pop()
        if model in models.fields() and model not in names:
            names.add(model)
            fields = models.fields()[model]
            waiting += [field.kind for field in fields if field.effect in effects and field.since <= revision]
    return tuple(model for model in models.fields() if model in names)


def effect(model: str, field: Field) -> str:
    """What the emulator does with a property. A kept property is kept with everything in it."""
    return field.effect or ("" if model in bodies(effects=("",)) else "kept")


def _operation(route: Route) -> str:
    body = f"[{route.body}](#{route.body.lower()})" if route.body else ""
    parameters = " ".join(f"`{name}`" for name in route.query if name != "$skiptoken")
    return f"| {route.name} | {route.verb} {route.path} | {body} | {parameters} |\n"


def _former(route: Route) -> str:
    return f"\n- {route.name}, {route.verb} {route.path}: until {versions.name(route.until)}\n"


def _filters(kind: str, filters: query.Filters) -> str:
    sets = {frozenset(words.split()): name for name, words in query.SETS.items()}
    sets = {words: f"*{'all' if name == 'text' else name}*" for words, name in sets.items() if name != "same"}
    pairs = (
        f"`{name}` {sets.get(words) or ' '.join(sorted(words))}" for name, words in sorted(filters.operators.items())
    )
    return f"| {kind} | {', '.join(pairs)} |\n"


def _model(model: str) -> str:
    lines = "".join(_rows(model))
    return f"\n### {model}\n\n| property | type | emulator |\n|---|---|---|\n{lines}"


def _rows(model: str) -> Iterator[str]:
    for field in models.fields()[model]:
        name = f"`{field.name}`{'!' if field.required else ''}{_span(field)}"
        target = f", as `{'/'.join(field.into)}`" if field.into else ""
        what = "refused unless empty" if field.kind == "retired" else EFFECTS[effect(model, field)]
        yield f"| {name} | {_type(field)} | {what}{target} |\n"


def _type(field: Field) -> str:
    many = "list of " if field.many else ""
    if field.kind in models.enums():
        return many + ", ".join(f"`{value}`{_last(field.kind, value)}" for value in models.enums()[field.kind])
    return many + (f"[{field.kind}](#{field.kind.lower()})" if field.kind in models.fields() else TYPES[field.kind])


TYPES = {
    "str": "text",
    "int": "whole number",
    "bool": "true or false",
    "duration": "ISO 8601 duration",
    "time": "ISO 8601 time",
    "map": "texts by name",
    "object": "object",
    "retired": "",
    "subnet": "id of a subnet",
    "address": "id of a public IP address",
    "image": "id of a gallery's image",
    "gallery": "id of an image that is shared",
}


def _last(enum: str, value: str) -> str:
    """The last service version with a value, if the newest does not have it."""
    revisions = (revision for revision in versions.REVISIONS.values() if value in models.values_of(enum, revision))
    last = max(revisions)
    return f" (until {versions.name(last)})" if last < versions.NEWEST else ""


def _span(field: Field) -> str:
    """The service versions that have a property, if not all of them have it."""
    first = f"since {versions.name(field.since)}" if field.since else ""
    last = f"until {versions.name(field.until)}" if field.until < versions.NEWEST else ""
    return f" ({' '.join(filter(None, (first, last)))})" if first or last else ""
