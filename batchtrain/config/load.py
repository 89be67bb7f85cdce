"""The only reader of configuration: a directory of YAML files in, a typed Recipe or every problem out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from batchtrain.config import check, document, schema
from batchtrain.config.document import Document
from batchtrain.config.types import Credentials, Recipe
from batchtrain.errors import ConfigError, Problem, UsageError

NAMES = ("credentials", "config", "pool", "jobs")
SUFFIXES = (".yaml", ".yml", ".json")
OLD_SECTIONS = {"batch_shipyard": "batchtrain"}
OLD_POOL_KEYS = {"max_tasks_per_node": "task_slots_per_node"}
MISSING = {
    "pool_specification": "there is no pool here: a pool.yaml with `pool_specification` is missing",
    "job_specifications": "there are no jobs here: a jobs.yaml with `job_specifications` is missing",
}


class Loaded(NamedTuple):
    """A configuration that can be used, and what is worth saying about it."""

    recipe: Recipe
    warnings: tuple[Problem, ...]


class _Section(NamedTuple):
    document: Document
    key: str
    data: Any


def load(
    directory: str | Path,
    *,
    settings: Mapping[str, str] | None = None,
    needs: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> Loaded:
    """Read a configuration directory, or a recipe directory that has one as `config/`.

    settings: values that win over the files', by path (`pool_specification.vm_count.dedicated`).
    needs: top-level keys that must be there. ignore: names of checks to silence.
    Raises ConfigError with all problems of all files, UsageError when there is nothing to read.
    """
    place = find(directory)
    problems: list[Problem] = []
    sections = _sections(place, problems)
    _override(sections, settings or {}, problems)
    values = {name: _convert(name, section, problems) for name, section in sections.items()}
    if not problems:  # a file that cannot be read is said already, and may be the one that is missed
        missing = [name for name in needs if name not in sections]
        problems.extend(Problem("missing-file", MISSING[name], str(place)) for name in missing)
    recipe = Recipe(
        directory=str(place),
        **{_FIELDS[name]: value for name, value in values.items() if value is not None},
    )
    broken = frozenset(name for name, value in values.items() if value is None)
    silent = _known_checks((*ignore, *recipe.settings.ignore_checks))
    problems = [problem for problem in problems if problem.rule not in silent]
    problems.extend(_checked(recipe, sections, broken, silent))
    if any(problem.level == "error" for problem in problems):
        raise ConfigError(_sorted(problems))
    warnings = _sorted(problems)
    return Loaded(msgspec.structs.replace(recipe, warnings=warnings), warnings)


def load_credentials(directory: str | Path) -> Credentials | None:
    """What a directory's files say of accounts, and nothing else of them; None when they do not.

    Raises ConfigError when that part cannot be read.
    """
    problems: list[Problem] = []
    try:
        sections = _sections(find(directory), problems)
    except UsageError:
        return None
    if "credentials" not in sections:
        return None
    problems.clear()
    found: Credentials | None = _convert("credentials", sections["credentials"], problems)
    if problems:
        raise ConfigError(_sorted(problems))
    return found


def _known_checks(names: Iterable[str]) -> frozenset[str]:
    known = tuple(rule.name for rule in check.RULES)
    for name in names:
        if name not in known:
            hint = schema.did_you_mean(name, known) or "`batchtrain config checks` lists them."
            raise UsageError(f"there is no check called `{name}`. {hint}")
    return frozenset(names)


def find(directory: str | Path) -> Path:
    """The directory that really holds the files: itself, or its `config/`."""
    place = Path(directory)
    if not place.is_dir():
        raise UsageError(f"{place} is not a directory; give a recipe directory or its config directory")
    for candidate in (place, place / "config"):
        if any(_files(candidate)):
            return candidate
    raise UsageError(
        f"{place} holds no configuration: expected pool.yaml and jobs.yaml there or in {place / 'config'};"
        " `batchtrain recipe new NAME DIR` makes one"
    )


def _files(place: Path) -> list[Path]:
    found = []
    for name in NAMES:
        here = [place / (name + suffix) for suffix in SUFFIXES if (place / (name + suffix)).is_file()]
        found.extend(here)
    return found


_FIELDS = {
    "credentials": "credentials",
    "batchtrain": "settings",
    "global_resources": "resources",
    "pool_specification": "pool",
    "job_specifications": "jobs",
}


def _sections(place: Path, problems: list[Problem]) -> dict[str, _Section]:
    """Every top-level key over all files; one that stands in two files is a problem."""
    sections: dict[str, _Section] = {}
    for file in _files(place):
        parsed, found = document.parse(str(file), file.read_bytes())
        problems.extend(found)
        if parsed.root is None:
            continue
        if not isinstance(parsed.data, dict):
            problems.append(Problem("type", "the file must be a mapping", str(file), *parsed.place(())))
            continue
        for key in parsed.data:
            _take(sections, parsed, key, problems)
    return sections


def _take(sections: dict[str, _Section], parsed: Document, key: str, problems: list[Problem]) -> None:
    name = OLD_SECTIONS.get(key, key)
    where = parsed.place((key,), key=True)
    if name not in schema.SECTIONS:
        hint = schema.did_you_mean(key, (*schema.SECTIONS, *OLD_SECTIONS))
        problems.append(Problem("unknown-key", f"`{key}` is not known here.", parsed.file, *where, key, hint=hint))
        return
    if name in sections:
        other = sections[name].document.file
        problems.append(Problem("duplicate-key", f"`{key}` also stands in {other}", parsed.file, *where, key))
        return
    data = parsed.data[key]
    if name == "pool_specification" and isinstance(data, dict):
        data = _renamed(parsed, key, data, problems)
    sections[name] = _Section(parsed, key, data)


def _renamed(parsed: Document, key: str, data: dict[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """Older words for today's, each with a warning."""
    for old, new in OLD_POOL_KEYS.items():
        if old in data and new not in data:
            where = parsed.place((key, old), key=True)
            text = f"`{old}` is called `{new}` today"
            problems.append(Problem("renamed", text, parsed.file, *where, f"{key}.{old}", "warning"))
            data = {new if name == old else name: value for name, value in data.items()}
    return data


def _convert(name: str, section: _Section, problems: list[Problem]) -> Any:
    try:
        return msgspec.convert(section.data, schema.SECTIONS[name], strict=False)
    except msgspec.ValidationError as error:
        flaws = schema.flaws(name, section.data)
        if not flaws:  # the two judges disagree: msgspec's word counts
            flaws = (schema.Flaw((), "type", str(error)),)
        problems.extend(_located(section, flaw) for flaw in flaws)
        return None


def _located(section: _Section, flaw: schema.Flaw) -> Problem:
    where = section.document.place((section.key, *flaw.path), key=flaw.at_key)
    path = dotted((section.key, *flaw.path))
    return Problem(flaw.rule, flaw.message + ".", section.document.file, *where, path, hint=flaw.hint)


def dotted(path: Iterable[str | int]) -> str:
    """A path as people write it: `job_specifications[0].tasks[1].command`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _checked(
    recipe: Recipe, sections: Mapping[str, _Section], broken: frozenset[str], ignore: frozenset[str]
) -> list[Problem]:
    found = []
    for finding in (*check.run(recipe, broken), *_missing_sources(recipe)):
        if finding.rule in ignore:
            continue
        section = sections.get(str(finding.path[0])) if finding.path else None
        if section is None:
            found.append(Problem(finding.rule, finding.message, path=dotted(finding.path), level=finding.level))
            continue
        path = (section.key, *finding.path[1:])
        where = section.document.place(path)
        found.append(Problem(finding.rule, finding.message, section.document.file, *where, dotted(path), finding.level))
    return found


def _missing_sources(recipe: Recipe) -> Iterable[check.Finding]:
    """The one check that looks at the disk, so it lives with the reader."""
    for number, job in enumerate(recipe.jobs):
        for index, task in enumerate(job.tasks):
            if task.source and not (Path(recipe.directory) / task.source).is_dir():
                path = ("job_specifications", number, "tasks", index, "source")
                message = f"there is no directory `{task.source}` beside this file"
                yield check.Finding("source-missing", "error", path, message)


_LEVELS = {"error": 0, "warning": 1, "info": 2}


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda p: (_LEVELS[p.level], p.file, p.line, p.column)))


# --- --set a.b[0].c=value -------------------------------------------------------------------------------------------

_STEP = re.compile(r"([^.\[\]]+)|\[([0-9]{1,6})\]")


def _override(sections: dict[str, _Section], settings: Mapping[str, str], problems: list[Problem]) -> None:
    for name, value in settings.items():
        steps: list[str | int] = [word or int(index) for word, index in _STEP.findall(name)]
        head = OLD_SECTIONS.get(str(steps[0]), str(steps[0])) if steps else ""
        if head not in schema.SECTIONS or len(steps) < 2:
            hint = "" if head in schema.SECTIONS else schema.did_you_mean(head, tuple(schema.SECTIONS))
            message = f"`--set {name}` names no property; write it as pool_specification.vm_size=..."
            problems.append(Problem("unknown-key", message, path=name, hint=hint))
            continue
        if head == "pool_specification":
            steps[1] = OLD_POOL_KEYS.get(str(steps[1]), steps[1])
        section = sections.get(head) or _Section(Document("--set", {}, None), head, {})
        sections[head] = section._replace(data=_with(section.data, steps[1:], value))


def _with(data: Any, steps: list[str | int], value: str) -> Any:
    """A copy of `data` with one value put at the end of `steps`; numbers walk into lists."""
    if not steps:
        return None if value == "null" else value
    step, rest = steps[0], steps[1:]
    if isinstance(data, list) or (isinstance(step, int) and not data):
        index = step if isinstance(step, int) else int(step) if re.fullmatch("[0-9]{1,6}", step) else len(data)
        items = list(data)
        if index >= len(items):
            items.append(_with({}, rest, value))
        else:
            items[index] = _with(items[index], rest, value)
        return items
    mapping = dict(data) if isinstance(data, dict) else {}
    mapping[str(step)] = _with(mapping.get(str(step), {}), rest, value)
    return mapping
