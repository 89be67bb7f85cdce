"""The sections, the types of each path, and the messages about mistakes with suggestions.

`judge` finds the mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec

from batchtrain.catalog.likeness import mistakes
from batchtrain.config import types
from batchtrain.config.secret_names import SECRETS
from batchtrain.shipped import shipped

Json = dict[str, Any]
Path = tuple[str | int, ...]

FILES: dict[str, type] = {
    "credentials": types.CredentialsFile,
    "config": types.ConfigFile,
    "pool": types.PoolFile,
    "jobs": types.JobsFile,
}
"""The four files; each has a schema of its name."""

SECTIONS: dict[str, Any] = {
    "credentials": types.Credentials,
    "batchtrain": types.Settings,
    "global_resources": types.GlobalResources,
    "data_replication": types.DataReplication,
    "pool_specification": types.Pool,
    "job_specifications": tuple[types.Job, ...],
}
"""The top-level keys of all files, and the type of each."""

FIELDS = {
    "credentials": "credentials",
    "batchtrain": "settings",
    "global_resources": "resources",
    "data_replication": "replication",
    "pool_specification": "pool",
    "job_specifications": "jobs",
}
"""Top-level sections, and the attribute of Recipe for each."""

REFERENCE = "docs/reference/config.md"
OLDER = "older word"
"""The `$comment` of a schema's names and values that the loader replaces before a section is judged."""


class Flaw(NamedTuple):
    """A fault at a path (from the top-level section down), and what is known about its solution."""

    path: Path
    rule: str
    message: str
    at_key: bool = False
    level: str = "error"
    fix: str = ""
    """What to write instead, if there is exactly one solution; without quotes."""
    word: str = ""
    """The text in the file, for a look-up of the nearest of `known` when the flaw is shown."""
    known: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    """Names that exist beside it, and so are not suggested."""
    hidden: bool = False
    """The last step of the path may be a secret."""
    file: str = ""
    """The position of a top-level key: `path` then has the names of the file."""


class Verdict(NamedTuple):
    """The mistakes in a section."""

    flaws: tuple[Flaw, ...]
    unjudged: int = 0
    """Further parts with mistakes, which were not requested."""


def without_values(section: str, data: Any, nulls: Iterable[tuple[dict[str, Any], str]]) -> Iterator[Flaw]:
    """The mistakes of keys without a value, which are absent from the data: unknown keys, and variables."""
    names: dict[int, list[str]] = {}
    for mapping, name in nulls:
        names.setdefault(id(mapping), []).append(name)
    yield from _nulls(data, (section,), names) if names else ()


def _nulls(data: Any, path: Path, names: Mapping[int, list[str]]) -> Iterator[Flaw]:
    """`names` has the keys without a value by their mapping's identity."""
    if not isinstance(data, (dict, list)):
        return
    if path[-1] == "environment_variables":
        for name in names.get(id(data), ()):
            message = f"`{shortened(name)}` has no value, so it is not set. Write `''` for an empty one"
            yield Flaw((*path, name), "variable-unset", message, at_key=True, level="warning")
    fields = fields_of(shape_of(path))
    for name in names.get(id(data), ()) if fields else ():
        if name not in fields and not any(_matches((*path, name), rule.path) for rule in types.RENAMED):
            yield unknown_key((*path, name), fields, data)
        elif name in NOT_EMPTY and name in fields:
            yield Flaw((*path, name), "value", f"`{name}` has no value; {NOT_EMPTY[name]}", at_key=True)
    for step, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield from _nulls(value, (*path, step), names)


def _matches(path: Path, pattern: types.Pattern) -> bool:
    return len(path) == len(pattern) and all(b in ("*", a) for a, b in zip(path, pattern, strict=True))


def unknown_key(path: Path, candidates: tuple[str, ...], data: Any) -> Flaw:
    """The mistake of a key that is not a candidate; `data` is its mapping."""
    key = str(path[-1])
    hidden = path[0] == "credentials" and not (nearest(key, candidates)[0] or is_known(key))
    return Flaw(
        path, "unknown-key", f"{'this key' if hidden else f'`{shortened(key)}`'} is not known here",
        at_key=True, word="" if hidden else key, known=candidates,
        taken=tuple(name for name in candidates if name in data), hidden=hidden,
    )  # fmt: skip


NOT_EMPTY = {"source": "name a directory, such as `../src`, or remove the key"}
"""Properties that must not be a key without a value; for others it counts as absent."""


# --- what the schemas say about a path ------------------------------------------------------------------------------


@cache
def definitions() -> dict[str, Json]:
    """Every block of the language by its name, without names and values of older files: `$defs` of `schemas/*.json`."""
    blocks: dict[str, Json] = {}
    for name in FILES:
        content = (shipped("schemas") / f"{name}.json").read_bytes()
        parts = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        for block, text in msgspec.json.decode(parts["$defs"], type=dict[str, msgspec.Raw]).items():
            definition = msgspec.json.decode(text)
            blocks[block] = _of_today(definition) if OLDER.encode() in bytes(text) else definition
    return blocks


def _of_today(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_of_today(item) for item in schema if not _is_older(item)]
    if isinstance(schema, dict):
        return {key: _of_today(item) for key, item in schema.items() if not _is_older(item)}
    return schema


def _is_older(item: Any) -> bool:
    return isinstance(item, dict) and item.get("$comment") == OLDER


def pointer(section: str) -> str:
    """The path of a section's schema, from the definitions down."""
    file = next(file for file in FILES.values() if section in file.__struct_fields__)  # type: ignore[attr-defined]
    return f"{file.__name__}/properties/{section}"


def shape_of(path: Path) -> Json | None:
    """The schema at a path. Returns None if the language has no such path."""
    return _shape_at(tuple(0 if isinstance(step, int) else step for step in path))


@lru_cache(maxsize=10_000)
def _shape_at(path: Path) -> Json | None:
    if not path or path[0] not in SECTIONS:
        return None
    block, _, section = pointer(str(path[0])).split("/")
    shape: Json | None = definitions()[block]["properties"][section]
    for step in path[1:]:
        shape = None if shape is None else _below(shape, step)
    return shape


def anchor(path: Path) -> str:
    """The documented path: its names without numbers and user-defined keys."""
    if not path or path[0] not in SECTIONS:
        return ""
    names = [str(path[0])]
    for number, step in enumerate(path[1:], 1):
        if step in fields_of(shape_of(path[:number])):
            names.append(str(step))
        elif shape_of(path[: number + 1]) is None:
            break
    return f"{REFERENCE}#{'.'.join(names)}"


def free_keys(shape: Json) -> Json | None:
    """The schema below any key of a map with user-defined keys; None for everything else."""
    maps = (option for option in _options(shape) if "object" in option.get("type", ()) and not _is_block(option))
    return next((option.get("additionalProperties", {}) for option in maps), None)


def fields_of(shape: Json | None) -> tuple[str, ...]:
    """The properties of a mapping with fixed keys."""
    blocks = (option for option in _options(shape or {}) if _is_block(option))
    return next((tuple(block["properties"]) for block in blocks), ())


def numbers(section: str, data: Any) -> Iterator[tuple[Path, str]]:
    """The paths of numbers and booleans in a section's data, with their texts, which need no quotes."""
    return _numbers((section,), data)


def _numbers(path: Path, data: Any) -> Iterator[tuple[Path, str]]:
    shape = shape_of(path)
    if isinstance(data, str) and shape is not None and all(map(scalar, _options(shape))):
        yield path, data
    for step, item in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from _numbers((*path, step), item)


_SCALARS: dict[str, type] = {"integer": int, "number": float, "boolean": bool}


def scalar(shape: Json) -> type | None:
    """The number or boolean that a text must stand for (ADR 2)."""
    kinds = shape.get("type", ())
    return _SCALARS.get(kinds[0]) if isinstance(kinds, list) else None


def is_nested(shape: Json) -> bool:
    """Whether the value may be a list or a mapping."""
    kinds = (option.get("type", "object" if "enum" not in option else "") for option in _options(shape))
    return any("array" in kind or "object" in kind for kind in kinds)  # without a type, any value is valid


def _below(shape: Json, step: str | int) -> Json | None:
    for option in _options(shape):
        below: Json | None = free_keys(option)
        if isinstance(step, int):
            below = option.get("items") or None
        elif _is_block(option):
            below = option["properties"].get(step)
        if below is not None:
            return below
    return None


def _options(shape: Json) -> tuple[Json, ...]:
    """The possible shapes of a value; null is not one of them."""
    shapes = [definitions()[option["$ref"].rpartition("/")[2]] if "$ref" in option else option
             for option in shape.get("anyOf", (shape,))]  # fmt: skip
    return tuple(option for option in shapes if option.get("type") != "null")


def _is_block(shape: Json) -> bool:
    return shape.get("additionalProperties") is False


# --- what was meant -------------------------------------------------------------------------------------------------


class Advice(NamedTuple):
    """The suggestion of a flaw, and the text that `--fix` writes."""

    hint: str
    fix: str


def advice(flaw: Flaw) -> Advice:
    """The nearest name or value; for a name known elsewhere, where it belongs."""
    if not flaw.word and flaw.rule == "renamed":
        return Advice("", flaw.fix)  # the message names it already
    if not flaw.word:
        return Advice(f"Did you mean `{flaw.fix}`?" if flaw.fix else "", flaw.fix)
    candidates = tuple(name for name in flaw.known if name not in flaw.taken)
    near, sure = nearest(flaw.word, candidates)
    if near and sure and _distance(_flat(near), _flat(flaw.word)) == 0:
        return Advice(f"Did you mean `{near}`?", near)
    if flaw.rule == "unknown-key":
        if flaw.path[0] != "credentials" and flaw.word in SECRETS:
            home = next((_SECRET_HOMES[step] for step in reversed(flaw.path) if step in _SECRET_HOMES), "")
            where = f": `{home}.{flaw.word}`" if home else ""
            return Advice(f"Secrets are allowed only in credentials.yaml{where}.", "")
        if home := _home(flaw, candidates, near):
            return Advice(home, "")
    if near or flaw.fix:
        return Advice(f"Did you mean `{near or flaw.fix}`?", (near if sure else "") if near else flaw.fix)
    is_short = flaw.rule == "unknown-key" and 0 < len(flaw.known) <= 12
    return Advice(f"Known: {', '.join(flaw.known)}." if is_short else "", "")


def is_known(word: str) -> bool:
    """Whether any mapping of the language has a property of this name."""
    return word in SECTIONS or word in _property_names()


@cache
def _property_names() -> frozenset[str]:
    return frozenset().union(*map(fields_of, definitions().values()))


def did_you_mean(word: str, candidates: tuple[str, ...]) -> str:
    """The nearest valid name as a question, or all valid names if they are few, or an empty text."""
    near, _ = nearest(word, candidates)
    if near:
        return f"Did you mean `{near}`?"
    return f"Known: {', '.join(candidates)}." if 0 < len(candidates) <= 12 else ""


@lru_cache(maxsize=1000)
def nearest(word: str, candidates: tuple[str, ...]) -> tuple[str, bool]:
    """The most similar name, and whether it is the only candidate; an empty text if there is none."""
    if len(word) > 80:
        return "", False
    flat = _flat(word)
    ranking = sorted((_distance(flat, _flat(name)), name) for name in candidates)
    if not ranking:
        return "", False
    distance, name = ranking[0]
    if distance > max(1, min(len(flat), len(name)) // 3) or distance >= len(flat):
        return "", False
    alone = len(ranking) == 1 or ranking[1][0] > distance
    return name, alone and (distance * 3 <= len(flat))


def _flat(word: str) -> str:
    return re.sub(r"[-_ .]", "", word).lower()


def _distance(name: str, other: str) -> int:
    """The number of mistakes between two names; for lengths that differ much, a number that is too large for both."""
    if abs(len(name) - len(other)) > max(len(name), len(other)) // 3 + 1:
        return max(len(name), len(other))
    return mistakes(name, other)


_NOUNS = {
    "job_specifications": "the job",
    "tasks": "the task",
    "pool_specification": "the pool",
    "multi_instance": "`multi_instance`",
}


SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("image", "container", "docker", "containerimage"), ("docker_image", "docker_images")),
    **dict.fromkeys(("cmd", "run", "script", "entrypoint", "executable", "args", "arguments"), ("command",)),
    **dict.fromkeys(("env", "envs", "environment", "envvars", "variables"), ("environment_variables",)),
    **dict.fromkeys(
        ("nodes", "numnodes", "nodecount", "instances", "instancecount", "replicas", "workers"),
        ("num_instances", "vm_count"),
    ),
    **dict.fromkeys(
        ("nprocpernode", "procspernode", "ntaskspernode", "ppn", "processcountperinstance", "slots"),
        ("processes_per_node",),
    ),
    **dict.fromkeys(("size", "instancetype", "vmtype", "machinetype"), ("vm_size",)),
    **dict.fromkeys(("timeout", "timelimit", "walltime", "maxduration"), ("max_wall_time",)),
    **dict.fromkeys(("retries", "retry", "maxretries"), ("max_task_retries",)),
    **dict.fromkeys(("spot", "preemptible"), ("low_priority",)),
    **dict.fromkeys(("os", "osimage", "vmimage"), ("platform_image",)),
    "count": ("vm_count",),
    "code": ("source",),
    "name": ("id",),
    "inputs": ("input_data",),
    "outputs": ("output_data",),
    "needs": ("depends_on",),
}
"""Words of Docker, Kubernetes, Slurm and Azure ML (without `_`), and the properties that mean the same here."""
SELDOM = frozenset({"merge_task", "auto_scratch", "singularity_execution", "job_manager", "job_preparation",
                    "job_release", "recurrence"})  # fmt: skip
"""Blocks that few files have: a name that is also elsewhere is meant there."""


def _home(flaw: Flaw, candidates: tuple[str, ...], near: str) -> str:
    """The property that has the meaning of a word, or where a name that matches exactly belongs."""
    mapping = flaw.path[:-1]
    names = synonyms(flaw.word)
    for name in names:
        if name in candidates:
            return f"Did you mean `{name}`?"
    path = property_path(names[:1] or (flaw.word,), mapping)
    if path is None or path[-1] in flaw.known:
        return ""
    shared = _shared(path, mapping)
    is_beside = shared < min(len(mapping), len(path) - 1)
    steps = [step for step in path[0 if is_beside else shared :] if isinstance(step, str)]
    if len(steps) > 3 or (is_beside and near and _distance(flaw.word, near) == 1):
        return ""  # too far to be meant
    if names:
        return "" if shared < len(mapping) else f"Did you mean `{dotted(path)}`?"
    here = _noun(mapping) if mapping else "the top of a file"
    return f"`{flaw.word}` belongs to {_noun(path[:-1])} (`{dotted((*path[:-1], flaw.word))}`), not to {here}."


def synonyms(word: str) -> tuple[str, ...]:
    """The properties that mean what a word of another system means, the most likely one first."""
    return SYNONYMS.get(_flat(word), ())


def property_path(end: Path, beside: Path = ()) -> Path | None:
    """The path of the property that `end` is the end of, such as `vm_count.dedicated`: the nearest one to a mapping."""
    if not end or not is_known(str(end[-1])):  # sooner than to look at every path
        return None
    steps = tuple(0 if isinstance(step, int) else step for step in end)
    paths = [(*path[: -len(end)], *end) for path in _paths() if path[-len(end) :] == steps]
    if not paths:
        return None

    def distance(path: Path) -> tuple[int, int, int]:
        shared = _shared(path, beside)
        return len(SELDOM.intersection(path[shared:])), -shared, len(path)

    path = min(paths, key=distance)
    shared = _shared(path, beside)
    return (*beside[:shared], *path[shared:])


def _shared(path: Path, other: Path) -> int:
    """The number of steps that two paths begin with; numbers of items count as equal."""
    pairs = enumerate(zip(path, other, strict=False))
    unequal = (number for number, (a, b) in pairs if a != b and not (isinstance(a, int) and isinstance(b, int)))
    return next(unequal, min(len(path), len(other)))


@cache
def _paths() -> tuple[Path, ...]:
    """The path of each property; items have the number 0, and user-defined keys are `NAME`."""
    return tuple(path for section in SECTIONS for path in _paths_below((section,), shape_of((section,))))


def _paths_below(path: Path, shape: Json | None) -> Iterator[Path]:
    if shape is None:
        return
    names = fields_of(shape)
    for name in names:
        yield (*path, name)
    steps: Path = (*names, 0, "NAME")
    for step in steps:
        yield from _paths_below((*path, step), _below(shape, step))


_SECRET_HOMES = {
    "user_accounts": "credentials.user_accounts.NAME",
    "additional_registries": "credentials.docker_registry.SERVER",
    "docker": "credentials.docker_registry.SERVER",
    "singularity": "credentials.singularity_registry.SERVER",
    "shared_data_volumes": "credentials.shares.VOLUME",
    "azure_storage": "credentials.storage.LINK",
}
"""Mappings in which users look for a secret, and where it belongs."""


def _noun(path: Path) -> str:
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    return _NOUNS.get(name, f"`{name}`")


# --- words ----------------------------------------------------------------------------------------------------------

PATTERNS = {
    types.ID: "a valid id: 1 to 64 letters, digits, `-` and `_`",
    types.TASK_ID: "a valid id: 1 to 64 letters, digits, `-` and `_`",
    types.LINK: "a valid alias: letters and digits only",
    types.SPAN: "a time span of the form [days.]HH:MM:SS",
    types.DURATION: "a time such as 30m, 1h30m or 2d",
}


def shortened(text: str, longest: int = 60) -> str:
    """A text in a message: shortened to fit a line."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def dotted(path: Path) -> str:
    """A path as users write it: `job_specifications[0].tasks[1].command`; names with dots are quoted."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[^.\[\]\"']+", step):
            text += f".{step}" if text else step
        else:
            text += f'["{shortened(step)}"]'
    return text
