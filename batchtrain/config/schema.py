"""Every problem of a section's data, judged by the types; schemas for editors are `editor`'s.

`msgspec.convert` is the fast way in and stops at the first mistake; only when it stops is this slower way taken, which
finds all of them, skipping whatever msgspec takes as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec

from batchtrain.config import types

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
"""Top-level keys over all files, and what stands below each."""

REFERENCE = "docs/reference/config.md"


class Flaw(NamedTuple):
    """What is wrong at a path (from the top-level section down), and what is known of the way out."""

    path: Path
    rule: str
    message: str
    at_key: bool = False
    level: str = "error"
    fix: str = ""
    """What to write instead, where there is exactly one answer; as it would stand without quotes."""
    word: str = ""
    """What was written, for the nearest of `known` to be looked up when the flaw is shown."""
    known: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    """Names that stand beside it already, so that none of them can be what was meant."""
    hidden: bool = False
    """The last step of the path may be a secret."""
    file: str = ""
    """Of a top-level key, where it stands: `path` is then in the file's own words."""


def flaws(section: str, data: Any) -> Iterator[Flaw]:
    """Everything wrong with one section's data, in the order of the data."""
    return _Judge(section).judge(_plain(_shape(section)), data, (section,))


def without_values(section: str, data: Any, nulls: Iterable[tuple[dict[str, Any], str]]) -> Iterator[Flaw]:
    """What is to be said of keys without a value, which are absent from the data: unknown ones, and variables."""
    names: dict[int, list[str]] = {}
    for mapping, name in nulls:
        names.setdefault(id(mapping), []).append(name)
    yield from _Judge(section).nulls(_shape(section), data, (section,), names) if names else ()


# --- what the types know of a path ----------------------------------------------------------------------------------


@cache
def _shape(section: str) -> Any:
    from msgspec import inspect  # 4 ms, and only needed when something is wrong or asked for

    return inspect.type_info(SECTIONS[section])


def shape_of(path: Path) -> Any | None:
    """msgspec's description of what stands at a path; None when the types know no such path."""
    if not path or path[0] not in SECTIONS:
        return None
    kind = _shape(str(path[0]))
    for step in path[1:]:
        kind = _below(kind, step)
        if kind is None:
            return None
    return _plain(kind)


def anchor(path: Path) -> str:
    """Where a path is documented: the names on it without numbers and without keys that a person made up."""
    if not path or path[0] not in SECTIONS:
        return ""
    names, kind = [str(path[0])], _shape(str(path[0]))
    for step in path[1:]:
        fixed = _struct(kind) is not None and not isinstance(step, int)
        kind = _below(kind, step)
        if kind is None:
            break
        if fixed:
            names.append(str(step))
    return f"{REFERENCE}#{'.'.join(names)}"


def free_keys(kind: Any) -> Any | None:
    """What stands below any key of a map whose keys a person makes up; None for everything else."""
    return next((option.value_type for option in _options(kind) if _is(option, "DictType")), None)


def fields_of(kind: Any) -> tuple[str, ...]:
    """The properties of a mapping with fixed ones."""
    struct = _struct(kind)
    return tuple(field.encode_name for field in struct.fields) if struct else ()


def numbers(section: str, data: Any) -> Iterator[tuple[Path, str]]:
    """Where one section's data have a number or a truth, with its text: what need not stand in quotes."""
    yield from _numbers(_shape(section), data, (section,))


def _numbers(kind: Any, data: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(data, str):
        options = _options(kind)
        if options and all(_is(option, "IntType", "FloatType", "BoolType") for option in options):
            yield path, data
        return
    for step, item in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        below = _below(kind, step)
        if below is not None:
            yield from _numbers(below, item, (*path, step))


def is_nested(kind: Any) -> bool:
    """Whether a list or a mapping may stand here."""
    return any(_is(option, *_NESTED) for option in _options(kind))


def _below(kind: Any, step: str | int) -> Any | None:
    for option in _options(kind):
        if _is(option, "StructType") and not isinstance(step, int):
            found = next((field.type for field in option.fields if field.encode_name == step), None)
        elif _is(option, "DictType"):
            found = option.value_type
        elif _is(option, "VarTupleType", "ListType") and isinstance(step, int):
            found = option.item_type
        else:
            continue
        if found is not None:
            return found
    return None


_NESTED = ("StructType", "DictType", "VarTupleType", "ListType", "AnyType")


def _is(kind: Any, *names: str) -> bool:
    return type(kind).__name__ in names


def _plain(kind: Any) -> Any:
    """Without the sentence that comes with it."""
    while _is(kind, "Metadata"):
        kind = kind.type
    return kind


_OPTIONS: dict[int, tuple[Any, tuple[Any, ...]]] = {}  # by identity, with what keeps it alive: asked a million times


def _options(kind: Any) -> tuple[Any, ...]:
    """The shapes something may have; null is none."""
    known = _OPTIONS.get(id(kind))
    if known is None:
        plain = _plain(kind)
        shapes = (_plain(option) for option in plain.types) if _is(plain, "UnionType") else (plain,)
        known = _OPTIONS[id(kind)] = kind, tuple(shape for shape in shapes if not _is(shape, "NoneType"))
    return known[1]


def _struct(kind: Any) -> Any | None:
    return next((option for option in _options(kind) if _is(option, "StructType")), None)


# --- a section's data against its type ------------------------------------------------------------------------------

_FEW = 20  # items of a list that are judged one by one without asking msgspec first


class _Judge:
    def __init__(self, section: str) -> None:
        self._secret = section == "credentials"

    def judge(self, kind: Any, data: Any, path: Path) -> Iterator[Flaw]:
        options = _options(kind)
        if len(options) == 1:
            yield from self._one(options[0], data, path)
            return
        found = [tuple(self._one(option, data, path)) for option in options]
        if not all(found):
            return
        meant = [flaws for option, flaws in zip(options, found, strict=True) if _fits(option, data)]
        if len(meant) == 1:
            yield from meant[0]
            return
        wanted = " or ".join(_said(option) for option in options)
        yield Flaw(path, "type", f"{self._shown(data, path)} is not {wanted}", **self._choice(options, data, path))

    def _choice(self, options: tuple[Any, ...], data: Any, path: Path) -> dict[str, Any]:
        """Words and booleans that may have been meant, over all shapes."""
        if not isinstance(data, str) or self._hides(path):
            return {}
        words = tuple(str(value) for option in options if _is(option, "LiteralType") for value in option.values)
        fixes = {fix for option in options if _is(option, "BoolType", "IntType") if (fix := _mended(option, data))}
        return {"word": data, "known": words, "fix": fixes.pop() if len(fixes) == 1 else ""}

    def _one(self, kind: Any, data: Any, path: Path) -> Iterator[Flaw]:
        name = type(kind).__name__
        if name == "StructType":
            yield from self._mapping(kind, data, path)
        elif name in ("VarTupleType", "ListType"):
            yield from self._sequence(kind, data, path)
        elif name == "TupleType":
            yield from self._some(kind, data, path)
        elif name == "DictType":
            yield from self._map(kind, data, path)
        elif name != "AnyType":
            yield from self._scalar(kind, data, path)

    def _mapping(self, kind: Any, data: Any, path: Path) -> Iterator[Flaw]:
        if not isinstance(data, dict):
            yield self._wrong(kind, data, path)
            return
        fields = {field.encode_name: field for field in kind.fields}
        for key, value in data.items():
            if key in fields:
                yield from self.judge(fields[key].type, value, (*path, key))
            else:
                yield self._unknown(key, tuple(fields), data, path)
        lost = [name for name, field in fields.items() if field.required and name not in data]
        misspelt = {nearest(key, tuple(lost))[0] for key in data if key not in fields} if lost else set()
        for name in lost:
            if name not in misspelt:  # that is said of the misspelt one
                yield Flaw(path, "missing", f"`{name}` is missing", at_key=True)

    def nulls(self, kind: Any, data: Any, path: Path, names: Mapping[int, list[str]]) -> Iterator[Flaw]:
        """Unknown ones of the keys without a value, and variables; `names` has them by their mapping's identity."""
        if not isinstance(data, (dict, list)):
            return
        if path[-1] == "environment_variables":
            for name in names.get(id(data), ()):
                message = f"`{shortened(name)}` has no value, so it is not set. Write `''` for an empty one"
                yield Flaw((*path, name), "variable-unset", message, at_key=True, level="warning")
        known = fields_of(kind)
        for name in names.get(id(data), ()) if known else ():
            if name not in known and not any(rule.path[-1] == name for rule in types.RENAMED):
                yield self._unknown(name, known, data if isinstance(data, dict) else {}, path)
        for step, value in data.items() if isinstance(data, dict) else enumerate(data):
            below = _below(kind, step)
            if below is not None:
                yield from self.nulls(below, value, (*path, step), names)

    def _unknown(self, key: str, known: tuple[str, ...], data: Mapping[str, Any], path: Path) -> Flaw:
        hidden = self._secret and not (nearest(key, known)[0] or key in _vocabulary())
        return Flaw(
            (*path, key), "unknown-key", f"{'this key' if hidden else f'`{shortened(key)}`'} is not known here",
            at_key=True, word="" if hidden else key, known=known, taken=tuple(name for name in known if name in data),
            hidden=hidden,
        )  # fmt: skip

    def _sequence(self, kind: Any, data: Any, path: Path) -> Iterator[Flaw]:
        if not isinstance(data, list):
            yield self._wrong(kind, data, path)
            return
        yield from _lengths(kind, data, path)
        item_type = _type_of(kind.item_type) if len(data) > _FEW else None
        for number, item in enumerate(data):
            if item_type is None or not _taken(item, item_type):
                yield from self.judge(kind.item_type, item, (*path, number))

    def _some(self, kind: Any, data: Any, path: Path) -> Iterator[Flaw]:
        """A list of so many items, each of its own type."""
        if not isinstance(data, list) or len(data) != len(kind.item_types):
            yield self._wrong(kind, data, path)
            return
        for number, (wanted, item) in enumerate(zip(kind.item_types, data, strict=True)):
            yield from self.judge(wanted, item, (*path, number))

    def _map(self, kind: Any, data: Any, path: Path) -> Iterator[Flaw]:
        if not isinstance(data, dict):
            yield self._wrong(kind, data, path)
            return
        yield from _lengths(kind, data, path)
        for key, value in data.items():
            for flaw in self.judge(kind.key_type, key, (*path, key)):
                yield flaw._replace(at_key=True, fix="", hidden=self._secret)
            yield from self.judge(kind.value_type, value, (*path, key))

    def _scalar(self, kind: Any, data: Any, path: Path) -> Iterator[Flaw]:
        if _is(kind, "LiteralType"):
            yield from self._literal(kind, data, path)
            return
        value = _converted(kind, data)
        if value is None:
            yield self._wrong(kind, data, path)
            return
        shown = self._shown(data, path)
        if _is(kind, "StrType"):
            if kind.pattern is not None and not re.search(kind.pattern, value):
                wanted = PATTERNS.get(kind.pattern, f"of the form {kind.pattern}")
                yield Flaw(path, "value", f"{shown} is not {wanted}")
            yield from _lengths(kind, value, path)
        if not _is(kind, "IntType", "FloatType"):
            return
        if kind.ge is not None and not value >= kind.ge:
            yield Flaw(path, "value", f"{shown} is less than {kind.ge}, the least that may stand here")
        if kind.le is not None and not value <= kind.le:
            yield Flaw(path, "value", f"{shown} is more than {kind.le}, the most that may stand here")
        if kind.gt is not None and not value > kind.gt:
            yield Flaw(path, "value", f"{shown} is not more than {kind.gt}")
        if kind.lt is not None and not value < kind.lt:
            yield Flaw(path, "value", f"{shown} is not less than {kind.lt}")

    def _literal(self, kind: Any, data: Any, path: Path) -> Iterator[Flaw]:
        values = tuple(str(value) for value in kind.values)
        if isinstance(data, (dict, list)):
            yield Flaw(path, "type", f"{self._shown(data, path)} is not one of {', '.join(values)}")
        elif data not in values:
            flaw = Flaw(path, "value", f"{self._shown(data, path)} is not one of {', '.join(values)}")
            yield flaw if self._hides(path) else flaw._replace(word=str(data), known=values)

    def _wrong(self, kind: Any, data: Any, path: Path) -> Flaw:
        fix = "" if self._hides(path) else _mended(kind, data)
        return Flaw(path, "type", f"{self._shown(data, path)} is not {_said(kind)}", fix=fix)

    def _shown(self, data: Any, path: Path) -> str:
        return "`***`" if self._hides(path) and not isinstance(data, (dict, list)) else shown(data)

    def _hides(self, path: Path) -> bool:
        return self._secret or not types.SECRETS.isdisjoint(path)


def _beyond(kind: Any, value: Any) -> Iterator[str]:
    """What a scalar's pattern or bounds say against it."""
    if _is(kind, "StrType"):
        if kind.pattern is not None and not re.search(kind.pattern, value):
            yield f"not {PATTERNS.get(kind.pattern, f'of the form {kind.pattern}')}"
        return
    if not _is(kind, "IntType", "FloatType"):
        return
    if kind.ge is not None and not value >= kind.ge:
        yield f"less than {kind.ge}, the least that may stand here"
    if kind.le is not None and not value <= kind.le:
        yield f"more than {kind.le}, the most that may stand here"
    if kind.gt is not None and not value > kind.gt:
        yield f"not more than {kind.gt}"
    if kind.lt is not None and not value < kind.lt:
        yield f"not less than {kind.lt}"


def _fits(kind: Any, data: Any) -> bool:
    """Whether what was written has at least the outer shape."""
    if isinstance(data, dict):
        return _is(kind, "StructType", "DictType")
    if isinstance(data, list):
        return _is(kind, "VarTupleType", "ListType")
    return _is(kind, "StrType")


def _lengths(kind: Any, data: Any, path: Path) -> Iterator[Flaw]:
    if kind.min_length is not None and len(data) < kind.min_length:
        least = "this must not be empty" if kind.min_length == 1 else f"at least {kind.min_length} must stand here"
        yield Flaw(path, "value", least)
    if kind.max_length is not None and len(data) > kind.max_length:
        what = "characters" if isinstance(data, str) else "items"
        yield Flaw(path, "value", f"{len(data)} {what} are more than {kind.max_length}")


def _type_of(kind: Any) -> Any:
    """The type behind a description, where it says all there is to check; None where it does not."""
    kind = _plain(kind)
    return kind.cls if _is(kind, "StructType") else None


def _taken(data: Any, wanted: Any) -> bool:
    try:
        msgspec.convert(data, wanted, strict=False)
    except msgspec.ValidationError:
        return False
    return True


_SCALARS: dict[str, type] = {"StrType": str, "IntType": int, "FloatType": float, "BoolType": bool}


def _converted(kind: Any, data: Any) -> Any:
    """The value that a text stands for, as msgspec has it; None when it stands for none."""
    wanted = _SCALARS.get(type(kind).__name__)
    if wanted is None or isinstance(data, (dict, list)) or data is None:
        return None
    try:
        return msgspec.convert(data, wanted, strict=False)
    except msgspec.ValidationError:
        return None


# --- what was meant -------------------------------------------------------------------------------------------------

_YES = frozenset({"yes", "on", "y", "t"})
_NO = frozenset({"no", "off", "n", "f"})
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}([_,' ][0-9]{3})+|[+-]?[0-9_]*[0-9]")


def _mended(kind: Any, data: Any) -> str:
    """The number or boolean that an ill-formed one can only mean."""
    if not isinstance(data, str) or len(data) > 40:
        return ""
    text = data.strip().strip("'\"").strip()
    if _is(kind, "BoolType"):
        word = text.lower()
        return "true" if word in _YES or word == "true" else "false" if word in _NO or word == "false" else ""
    if not _is(kind, "IntType", "FloatType"):
        return ""
    if _GROUPED.fullmatch(text):
        text = re.sub(r"[_,' ]", "", text)
    text = re.sub(r"^(-?)0+(?=[0-9])", r"\1", text.removeprefix("+"))
    if _is(kind, "FloatType"):
        text = re.sub(r"^(-?)\.", r"\g<1>0.", text).removesuffix("%").removesuffix(".")
    value = _converted(kind, text)
    if value is None or text == data or not re.match("-?[0-9]", text):
        return ""
    fits = (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)
    return text if fits else ""


class Advice(NamedTuple):
    """What a flaw's reader is told, and what `--fix` writes."""

    hint: str
    fix: str


def advice(flaw: Flaw) -> Advice:
    """The nearest name or value; for a name that is known elsewhere, where it belongs."""
    if not flaw.word and flaw.rule == "renamed":
        return Advice("", flaw.fix)  # the message has said it
    if not flaw.word:
        return Advice(f"Did you mean `{flaw.fix}`?" if flaw.fix else "", flaw.fix)
    left = tuple(name for name in flaw.known if name not in flaw.taken)
    near, sure = nearest(flaw.word, left)
    if near and sure and _flat(near) == _flat(flaw.word):
        return Advice(f"Did you mean `{near}`?", near)
    home = (_secret_home(flaw) or _home(flaw)) if flaw.rule == "unknown-key" else ""
    if home:
        return Advice(home, "")
    if near:
        return Advice(f"Did you mean `{near}`?", near if sure else "")
    if flaw.fix:
        return Advice(f"Did you mean `{flaw.fix}`?", flaw.fix)
    listed = flaw.rule == "unknown-key" and 0 < len(flaw.known) <= 12
    return Advice(f"Known: {', '.join(flaw.known)}." if listed else "", "")


def is_known(word: str) -> bool:
    """Whether any mapping of the language has a property of this name."""
    return word in _vocabulary()


def did_you_mean(word: str, known: tuple[str, ...]) -> str:
    """The nearest valid name as a question, else the few valid names, else nothing."""
    near, _ = nearest(word, known)
    if near:
        return f"Did you mean `{near}`?"
    return f"Known: {', '.join(known)}." if 0 < len(known) <= 12 else ""


@lru_cache(maxsize=1000)
def nearest(word: str, known: tuple[str, ...]) -> tuple[str, bool]:
    """The name that is written most alike, and whether no other can have been meant; an empty text for none."""
    if len(word) > 80:
        return "", False
    flat = _flat(word)
    ranked = sorted((_distance(flat, _flat(name)), name) for name in known)
    if not ranked:
        return "", False
    distance, name = ranked[0]
    if distance > max(1, min(len(flat), len(name)) // 3) or distance >= len(flat):
        return "", False
    alone = len(ranked) == 1 or ranked[1][0] > distance
    return name, alone and (distance * 3 <= len(flat))


def _flat(word: str) -> str:
    return re.sub(r"[-_ .]", "", word).lower()


def _distance(one: str, other: str) -> int:
    """Letters to change, add, drop, or exchange with their neighbour."""
    if one == other:
        return 0
    if abs(len(one) - len(other)) > max(len(one), len(other)) // 3 + 1:
        return max(len(one), len(other))
    above: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for column, against in enumerate(other, 1):
            cost = min(last[column] + 1, line[-1] + 1, last[column - 1] + (letter != against))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == against:
                cost = min(cost, above[column - 2] + 1)
            line.append(cost)
        above, last = last, line
    return last[-1]


_NOUNS = {
    "job_specifications": "the job",
    "tasks": "the task",
    "pool_specification": "the pool",
    "multi_instance": "`multi_instance`",
}


def _home(flaw: Flaw) -> str:
    """Where a name belongs that is known exactly, in a mapping above or right below this one."""
    mapping = flaw.path[:-1]
    for length in range(len(mapping) - 1, 0, -1):
        if flaw.word in fields_of(shape_of(mapping[:length])):
            return _belongs(flaw, mapping[:length])
    for name in fields_of(shape_of(mapping)):
        if flaw.word in fields_of(shape_of((*mapping, name))):
            return _belongs(flaw, (*mapping, name))
    return ""


_SECRET_HOMES = {
    "user_accounts": "credentials.user_accounts.NAME",
    "additional_registries": "credentials.docker_registry.SERVER",
    "docker": "credentials.docker_registry.SERVER",
    "singularity": "credentials.singularity_registry.SERVER",
    "shared_data_volumes": "credentials.shares.VOLUME",
    "azure_storage": "credentials.storage.LINK",
}
"""Mappings in which people look for a secret, and where it stands."""


def _secret_home(flaw: Flaw) -> str:
    """Where a secret belongs that was written outside of the credentials."""
    if flaw.path[0] == "credentials" or flaw.word not in types.SECRETS:
        return ""
    home = next((_SECRET_HOMES[step] for step in reversed(flaw.path) if step in _SECRET_HOMES), "")
    return f"Secrets stand in credentials.yaml alone{f': `{home}.{flaw.word}`' if home else ''}."


def _belongs(flaw: Flaw, home: Path) -> str:
    return f"`{flaw.word}` belongs to {_noun(home)} (`{dotted((*home, flaw.word))}`), not to {_noun(flaw.path[:-1])}."


def _noun(path: Path) -> str:
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    return _NOUNS.get(name, f"`{name}`")


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    """Every name that any type knows."""
    names: set[str] = set(SECTIONS)
    seen: set[type] = set()
    waiting = [_shape(section) for section in SECTIONS]
    while waiting:
        for option in _options(waiting.pop()):
            if _is(option, "StructType") and option.cls not in seen:
                seen.add(option.cls)
                names.update(field.encode_name for field in option.fields)
                waiting.extend(field.type for field in option.fields)
            elif _is(option, "DictType"):
                waiting.append(option.value_type)
            elif _is(option, "VarTupleType", "ListType"):
                waiting.append(option.item_type)
    return frozenset(names)


# --- words ----------------------------------------------------------------------------------------------------------

PATTERNS = {
    types.ID: "a valid id: 1 to 64 letters, digits, `-` and `_`",
    types.LINK: "a valid alias: letters and digits only",
    types.SPAN: "a time span of the form [days.]HH:MM:SS",
}
_SAID = {
    "IntType": "a whole number",
    "FloatType": "a number",
    "BoolType": "true or false",
    "StrType": "text",
    "VarTupleType": "a list",
    "ListType": "a list",
    "DictType": "a mapping",
    "StructType": "a mapping",
}


def _said(kind: Any) -> str:
    if _is(kind, "LiteralType"):
        return f"one of {', '.join(str(value) for value in kind.values)}"
    if _is(kind, "TupleType"):
        example = ", ".join(str(1000 + 99 * number) for number in range(len(kind.item_types)))
        return f"a list of {len(kind.item_types)} numbers, such as [{example}]"
    return _SAID.get(type(kind).__name__, "valid")


def shown(value: Any) -> str:
    """A value as a message shows it."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else f"`{shortened(str(value))}`"


def shortened(text: str) -> str:
    """A text as a message shows it: not longer than a line bears."""
    return text if len(text) <= 60 else text[:57] + "..."


def dotted(path: Path) -> str:
    """A path as people write it: `job_specifications[0].tasks[1].command`; names with dots stand in quotes."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[^.\[\]\"']+", step):
            text += f".{step}" if text else step
        else:
            text += f'["{shortened(step)}"]'
    return text
