"""The only reader (and writer) of configuration: a directory of YAML files in, a typed Recipe or every problem out."""

from __future__ import annotations

import gc
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from batchtrain.catalog.offer import Catalog
from batchtrain.config import catalog_file, check, document, override, schema
from batchtrain.config.check import Finding
from batchtrain.config.dialect import OLD_SECTIONS, renamed, today
from batchtrain.config.document import Document
from batchtrain.config.filled import CREDENTIALS, filled_in, placeholders
from batchtrain.config.places import RESERVED
from batchtrain.config.schema import Flaw, dotted
from batchtrain.config.types import ELSEWHERE, ELSEWHERE_FILES, SECRETS, Credentials, Recipe
from batchtrain.errors import ConfigError, Problem, UsageError

NAMES = ("credentials", "config", "pool", "jobs")
SUFFIXES = (".yaml", ".yml", ".json")
MISSING = {
    "pool_specification": "there is no pool here: a pool.yaml with `pool_specification` is missing",
    "job_specifications": "there are no jobs here: a jobs.yaml with `job_specifications` is missing",
}
MOST_OF_A_RULE = 100
"""Problems of one rule that are spelt out; the rest is counted."""
SETTING = "--set"
"""What stands for the file of a value that was given on the command line."""

_At = tuple[str | int, ...]


class Loaded(NamedTuple):
    """A configuration that can be used, and what is worth saying about it."""

    recipe: Recipe
    warnings: tuple[Problem, ...]


class Section(NamedTuple):
    """One top-level section: where it was read, and its data in today's words."""

    document: Document
    key: str
    """The section's name as the file has it."""
    data: Any


class _Pruned(NamedTuple):
    """What was left out of a section because it is wrong, and every path above that."""

    paths: frozenset[_At]
    above: frozenset[_At]


class Examined(NamedTuple):
    """Everything there is to know of a directory's files, whether they are valid or not."""

    recipe: Recipe
    problems: tuple[Problem, ...]
    reading: Reading

    @property
    def valid(self) -> bool:
        """Whether nothing is an error."""
        return all(problem.level != "error" for problem in self.problems)


def load(
    directory: str | Path,
    *,
    settings: Mapping[str, str] | None = None,
    needs: Iterable[str] = (),
    ignore: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
) -> Loaded:
    """Read a configuration directory, or a recipe directory that has one as `config/`.

    settings: values that win over the files', by path (`pool_specification.vm_count.dedicated`).
    needs: top-level keys that must be there. ignore: names of checks to silence. files: files that stand in for those
    of the directory, by part (`jobs`: jobs-other.yaml).
    Raises ConfigError with all problems of all files, UsageError when there is nothing to read.
    """
    found = examined(directory, settings=settings, needs=needs, ignore=ignore, files=files)
    return Loaded(found.recipe, found.problems)


def examined(
    directory: str | Path,
    *,
    settings: Mapping[str, str] | None = None,
    needs: Iterable[str] = (),
    ignore: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
) -> Examined:
    """As `load`, with where everything was read."""
    place = find(directory, files)
    catalog = catalog_file.load(place)
    found = examine(place, read(place, files), settings=settings, needs=needs, ignore=ignore, catalog=catalog)
    if not found.valid:
        raise ConfigError(found.problems)
    return found._replace(recipe=msgspec.structs.replace(found.recipe, warnings=found.problems))


def examine(
    place: Path,
    files: Mapping[str, bytes],
    *,
    settings: Mapping[str, str] | None = None,
    needs: Iterable[str] = (),
    ignore: Iterable[str] = (),
    catalog: Catalog | None = None,
    most: int = MOST_OF_A_RULE,
) -> Examined:
    """Judge files by their contents.

    place: the directory they stand for. catalog: sizes and images, the tables' own when absent. most: how many
    problems of one rule are told.
    """
    with _unhurried_collector(files):
        reading = Reading(place)
        for file, content in files.items():
            reading.take(file, content)
        reading.rename()
        reading.override(settings or {})
        values = {name: reading.convert(name) for name in reading.sections}
        if not reading.flawed:  # a file that cannot be read is said already, and may be the one that is missed
            reading.require(needs)
        recipe = Recipe(
            directory=str(place),
            catalog=catalog or Catalog(),
            **{FIELDS[name]: value for name, value in values.items() if value is not None},
        )
        reading.check(recipe, reading.unknown(values))
        silent = _known_checks(ignore) | reading.silenced(recipe.settings.ignore_checks)
        recipe = msgspec.structs.replace(recipe, silent=silent)
        return Examined(recipe, reading.problems(silent, most), reading)


def load_credentials(directory: str | Path, files: Mapping[str, str] | None = None) -> Credentials | None:
    """What a directory's files say of accounts, and nothing else of them; None when they do not.

    Raises ConfigError when that part cannot be read.
    """
    try:
        place = find(directory, files or {})
    except UsageError:
        return None
    reading = Reading(place)
    for file, content in read(place, files or {}).items():
        reading.take(file, content)
    if "credentials" not in reading.sections:
        return None
    reading.only("credentials")
    reading.rename()
    found: Credentials | None = reading.convert("credentials")
    problems = reading.problems(frozenset())
    if any(problem.level == "error" for problem in problems):
        raise ConfigError(problems)
    return found


def _known_checks(names: Iterable[str]) -> frozenset[str]:
    for name in names:
        if name not in _CHECKS:
            hint = schema.did_you_mean(name, _CHECKS) or "`batchtrain config checks` lists them."
            raise UsageError(f"there is no check called `{name}`. {hint}")
    return frozenset(names)


_CHECKS = tuple(rule.name for rule in check.RULES)
_READS = {rule.name: rule.reads for rule in check.RULES}


@contextmanager
def _unhurried_collector(files: Mapping[str, bytes]) -> Iterator[None]:
    """Large files make millions of objects, none of them garbage: looking for some would double the time."""
    if sum(map(len, files.values())) < 2**20 or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# --- which files ----------------------------------------------------------------------------------------------------


def find(directory: str | Path, chosen: Mapping[str, str] | None = None) -> Path:
    """The directory that really holds the files: itself, or its `config/`.

    chosen: files that are named by themselves; with one of them the directory need not hold any.
    """
    place = Path(directory)
    if not place.is_dir():
        raise UsageError(f"{place} is not a directory; give a recipe directory or its config directory")
    for candidate in (place, place / "config"):
        if any(_files(candidate, NAMES)):
            return candidate
    if chosen:
        return place
    raise UsageError(
        f"{place} holds no configuration: expected pool.yaml and jobs.yaml there or in {place / 'config'};"
        " `batchtrain recipe new NAME DIR` makes one"
    )


def read(place: Path, chosen: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The files' contents by path; of one that is too large only its beginning, which is enough to refuse it.

    chosen: files that stand in for those of the place, by part. Raises UsageError where one is not there.
    """
    own = chosen or {}
    files = [*_chosen(own), *_files(place, (*(name for name in NAMES if name not in own), *ELSEWHERE_FILES))]
    contents = {}
    for file in files:
        with file.open("rb") as stream:
            contents[str(file)] = stream.read(document.LARGEST + 1)
    return contents


def _chosen(chosen: Mapping[str, str]) -> Iterator[Path]:
    for name in sorted(chosen, key=NAMES.index):
        file = Path(chosen[name])
        if not file.is_file():
            raise UsageError(f"{file} is no file; it was to stand in for {name}.yaml")
        yield file


def write(path: str, content: bytes) -> None:
    """Replace a file of configuration at once, with the mode it has; through a link, what it points to."""
    target = Path(path).resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(stat.S_IMODE(target.stat().st_mode))
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _files(place: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        for suffix in SUFFIXES:
            file = place / (name + suffix)
            if file.is_file():
                yield file
            elif file.is_symlink() or file.exists():
                what = "is a link to nothing" if not file.exists() else "is no file"
                raise UsageError(f"{file} {what}; {name}{suffix} is part of the configuration")


FIELDS = {
    "credentials": "credentials",
    "batchtrain": "settings",
    "global_resources": "resources",
    "data_replication": "replication",
    "pool_specification": "pool",
    "job_specifications": "jobs",
}
"""Top-level sections, and the attribute of a Recipe each one is."""


# --- files to sections, and everything that is wrong with them -------------------------------------------------------


class Reading:
    """What was read so far, and what is wrong with it; places are looked up at the end, all at once."""

    def __init__(self, place: Path) -> None:
        self.sections: dict[str, Section] = {}
        self.documents: dict[str, Document] = {}
        self.settings: dict[_At, str] = {}
        """Values given on the command line: the path, and the words it was given in."""
        self._place = place
        self._written: dict[_At, _At] = {}  # a path of today: the path in the words of its file
        self._pruned: dict[str, _Pruned] = {}  # by section
        self._told: list[Problem] = []
        self._flaws: list[Flaw] = []
        self._top: list[Flaw] = []  # about top-level keys, each with its file

    @property
    def flawed(self) -> bool:
        """Whether something is an error so far."""
        return any(one.level == "error" for found in (self._told, self._flaws, self._top) for one in found)

    def take(self, file: str, content: bytes) -> None:
        """Read one file; each top-level key stands in one file only."""
        section = ELSEWHERE_FILES.get(Path(file).stem)
        if section:
            self._told.append(Problem("elsewhere", f"{ELSEWHERE[section]}.", file, 1, 1, section, "warning"))
            return
        parsed, found = document.parse(file, content)
        self.documents[file] = parsed
        self._told.extend(found)
        if not parsed.readable:
            return
        if not isinstance(parsed.data, dict):
            self._told.append(Problem("type", "the file must be a mapping.", file, *parsed.place(())[:2]))
            return
        for key, data in parsed.data.items():
            self._section(parsed, key, data)

    def only(self, name: str) -> None:
        """Forget everything else, and what was wrong with it."""
        self.sections = {name: self.sections[name]}
        self._told, self._flaws, self._top = [], [], []

    def _section(self, parsed: Document, key: str, data: Any) -> None:
        name = OLD_SECTIONS.get(key, key)
        if name in ELSEWHERE:
            self._tell(parsed, Flaw((key,), "elsewhere", ELSEWHERE[name], level="warning"))
        elif name not in schema.SECTIONS:
            known = (*schema.SECTIONS, *OLD_SECTIONS)
            hidden = _confidential(parsed) and not schema.nearest(key, known)[0]
            message = "this key is not known here" if hidden else f"`{schema.shortened(key)}` is not known here"
            taken = tuple(name for name in known if name in parsed.data)
            word = "" if hidden else key
            flaw = Flaw((key,), "unknown-key", message, word=word, known=known, taken=taken, hidden=hidden)
            self._tell(parsed, flaw)
        elif name in self.sections:
            other = self.sections[name].document.file
            self._tell(parsed, Flaw((key,), "duplicate-key", f"`{key}` also stands in {other}"))
        else:
            self.sections[name] = Section(parsed, key, data)
            self._flaws.extend(schema.without_values(name, data, parsed.nulls))

    def _tell(self, parsed: Document, flaw: Flaw) -> None:
        self._top.append(flaw._replace(file=parsed.file, at_key=True))

    # --- words of older files ---

    def rename(self) -> None:
        """Today's words in place of older ones, each with a warning."""
        for name, section in self.sections.items():
            if section.key != name:
                self._written[name,] = (section.key,)
            self.sections[name] = section._replace(data=renamed(name, section.data, self._written, self._flaws))
        if "credentials" in self.sections:
            section = self.sections["credentials"]
            self._flaws.extend(placeholders(section.data, CREDENTIALS))
            self.sections["credentials"] = section._replace(data=filled_in(section.data))

    # --- --set a.b[0].c=value ---

    def override(self, settings: Mapping[str, str]) -> None:
        """Values of the command line, which win over the files'."""
        for name, text in settings.items():
            words = override.steps(name)
            head = OLD_SECTIONS.get(str(words[0]), str(words[0])) if words else ""
            if head not in schema.SECTIONS or len(words) < 2:
                hint = "" if head in schema.SECTIONS else schema.did_you_mean(head, tuple(schema.SECTIONS))
                message = "this names no property; write it as pool_specification.vm_size=..."
                self._told.append(Problem("unknown-key", message, SETTING, path=schema.shortened(name), hint=hint))
                continue
            section = self.sections.get(head) or Section(Document(SETTING, {}, readable=False), head, None)
            path = today((head, *override.joined(head, words[1:], section.data)))
            self.settings[path] = name
            self.sections[head] = section._replace(data=override.put(section.data, path[1:], self._value(path, text)))

    def _value(self, path: _At, text: str) -> Any:
        """A list or a mapping is written as YAML (`[a, b]`); everything else is taken as it is."""
        if text == "null":
            return None
        kind = schema.shape_of(path) if text[:1] in ("[", "{") else None
        if kind is None or not schema.is_nested(kind):
            return text
        parsed, found = document.parse(SETTING, text.encode("utf-8", "surrogateescape"))
        self._told.extend(Problem(p.rule, p.message, SETTING, path=dotted(path)) for p in found)
        return parsed.data

    # --- data to values ---

    def convert(self, name: str) -> Any:
        """A section's value, as far as it is what the types ask for: without what is wrong, so that the rules can look
        at the rest; None when nothing is left of it.
        """
        data = self.sections[name].data
        for _ in range(_PRUNINGS):
            try:
                return msgspec.convert(data, schema.SECTIONS[name], strict=False)
            except (msgspec.ValidationError, RecursionError) as error:
                found = list(schema.flaws(name, data)) or [Flaw((name,), "type", str(error))]  # msgspec's word counts
            if name != "credentials" or any(flaw.rule != "missing" for flaw in found):
                break
            for flaw in found:  # offline nobody needs them
                self._flaws.append(flaw._replace(rule="placeholder", level="warning"))
                data = override.put(data, flaw.path[1:], None)
        self._flaws.extend(found)
        return self._rest(name, data, found)

    def _rest(self, name: str, data: Any, found: list[Flaw]) -> Any:
        """What is left of a section without its mistakes; None where too much hangs on them."""
        wrong = {_property_of(flaw.path) for flaw in found}
        if any(len(path) < 2 or path[-1] == "id" for path in wrong):  # names are looked for by other rules
            return None
        kept = override.without(data, (path[1:] for path in wrong))
        try:
            rest = msgspec.convert(kept, schema.SECTIONS[name], strict=False)
        except (msgspec.ValidationError, RecursionError):
            return None
        self._pruned[name] = _Pruned(frozenset(wrong), frozenset(path[:n] for path in wrong for n in range(len(path))))
        return rest

    def require(self, needs: Iterable[str]) -> None:
        """Sections that must be there."""
        for name in needs:
            if name not in self.sections:
                self._told.append(Problem("missing-file", MISSING[name], str(self._place)))

    def check(self, recipe: Recipe, broken: frozenset[str]) -> None:
        """Rules across properties and files."""
        for finding in (*check.run(recipe, broken), *_sources(recipe)):
            if not self._pruned or not self._hangs_on_mistakes(finding):
                self._flaws.append(Flaw(finding.path, finding.rule, finding.message, level=finding.level))

    def _hangs_on_mistakes(self, finding: Finding) -> bool:
        """Whether a finding may come of what was left out: it is about that, or reads another section that has some."""
        section = str(finding.path[0])
        if any(name in self._pruned for name in _READS.get(finding.rule, ()) if name != section):
            return True
        pruned = self._pruned.get(section)
        if pruned is None:
            return False
        return finding.path in pruned.above or any(
            finding.path[:n] in pruned.paths for n in range(1, len(finding.path) + 1)
        )

    def unknown(self, values: Mapping[str, Any]) -> frozenset[str]:
        """Sections of which nothing is known: they have mistakes, or stand in a file that cannot be read."""
        wrong = {name for name, value in values.items() if value is None}
        if any(not parsed.readable for parsed in self.documents.values()):
            wrong |= set(schema.SECTIONS) - set(self.sections)
        return frozenset(wrong)

    def silenced(self, names: tuple[str, ...]) -> frozenset[str]:
        """The checks that the files silence; a name that is none is a mistake."""
        for number, name in enumerate(names):
            if name not in _CHECKS:
                path = ("batchtrain", "ignore_checks", number)
                message = f"there is no check called `{schema.shortened(name)}`; `batchtrain config checks` lists them"
                self._flaws.append(Flaw(path, "value", message, word=name, known=_CHECKS))
        return frozenset(names)

    # --- problems with their places ---

    def problems(self, silent: frozenset[str], most: int = MOST_OF_A_RULE) -> tuple[Problem, ...]:
        """What was found, but of silenced rules, with places, sorted; of one kind the first are shown, all counted."""
        found: list[Problem] = []
        for kind in (self._told, self._flaws, self._top):
            shown, counted = _capped([one for one in kind if one.rule not in silent], most)
            found += self._in_place(shown)
            for (rule, level), count in counted.items():
                message = f"and {count:,} more like these; the first {most} are shown."
                found.append(Problem(rule, message, level=level))
        once = {problem._replace(path=""): problem for problem in reversed(found)}  # aliases lead to one place
        return tuple(sorted(once.values(), key=_order))

    def _in_place(self, found: Iterable[Problem | Flaw]) -> Iterator[Problem]:
        """Problems with their places and lines; each file is looked through once."""
        by_file: dict[str, list[Any]] = {}
        for one in found:
            by_file.setdefault(self._file_of(one), []).append(one)
        for file, here in by_file.items():
            if file not in self.documents:
                yield from (one if isinstance(one, Problem) else self._unplaced(one) for one in here)
                continue
            parsed = self.documents[file]
            ruler = parsed.ruler()
            wanted = {(self._path_of(one), one.at_key) for one in here if not isinstance(one, Problem)}
            places = parsed.places(wanted) if wanted else {}
            for one in here:
                problem = one if isinstance(one, Problem) else self._at(parsed, one, places)
                yield self._veiled(parsed, problem, ruler, isinstance(one, Problem))

    def _file_of(self, one: Problem | Flaw) -> str:
        if one.file or isinstance(one, Problem):
            return one.file
        section = self.sections.get(str(one.path[0])) if one.path and not self.setting(one.path) else None
        return section.document.file if section and section.document.readable else ""

    def _path_of(self, flaw: Flaw) -> _At:
        return flaw.path if flaw.file else self.written(flaw.path)

    def _unplaced(self, flaw: Flaw) -> Problem:
        told = _sentence(flaw, flaw.path)
        return told._replace(file=SETTING) if self.setting(flaw.path) or flaw.path[:1] in self._from_settings else told

    @property
    def _from_settings(self) -> set[_At]:
        """Sections that no file has."""
        return {(name,) for name, section in self.sections.items() if section.document.file == SETTING}

    def setting(self, path: _At) -> str:
        """The words a value was given in on the command line; empty when it was not."""
        return next((self.settings[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.settings), "")

    def _at(self, parsed: Document, flaw: Flaw, places: Mapping[tuple[_At, bool], document.Place]) -> Problem:
        path = self._path_of(flaw)
        where = places[path, flaw.at_key]
        problem = _sentence(flaw, path)
        return problem._replace(
            file=parsed.file, line=where.line, column=where.column, end_line=where.end_line,
            end_column=where.end_column, fix=_as_written(problem.fix, where),
        )  # fmt: skip

    def written(self, path: _At) -> _At:
        """A path in the words of the file it was read from."""
        if not self._written:
            return path
        for length in range(len(path), 0, -1):
            older = self._written.get(path[:length])
            if older is not None:
                return self.written(older[:-1]) + older[-1:] + path[length:]
        return path

    def _veiled(self, parsed: Document, problem: Problem, ruler: document.Ruler, of_the_text: bool) -> Problem:
        """With its line of the file, unless a secret may stand there; and with no secret in the message."""
        if _confidential(parsed):
            return problem._replace(message=_QUOTED.sub(_unless_ours, problem.message)) if of_the_text else problem
        if not parsed.readable and any(name in parsed.text for name in SECRETS):
            return problem
        return problem._replace(source=_SECRET.sub(r"\1***", ruler.line(problem.line)))


def _property_of(path: _At) -> _At:
    """The property that a mistake is in: a list as a whole, since its items have no names."""
    while isinstance(path[-1], int):
        path = path[:-1]
    return path


_PRUNINGS = 5  # what is left when something is taken out may miss something again
_QUOTED = re.compile(r"`([^`]*)`")
_SECRET = re.compile(
    rf"(?i)((?:{'|'.join(sorted(SECRETS))})[\"']?\s*:\s*|[?&]sig=)(?:\"[^\"]*\"?|'[^']*'?|[^\s,&}}\]]+)"
)


def _unless_ours(quoted: re.Match[str]) -> str:
    """What a message quotes of the credentials, hidden; but signs, and names of the language, are no secrets."""
    word = quoted[1].strip("&*")
    return quoted[0] if not re.search(r"\w", word) or schema.is_known(word) else "`***`"


def _confidential(parsed: Document) -> bool:
    """Whether any line of a file may hold a secret."""
    return Path(parsed.file).stem == "credentials" or (isinstance(parsed.data, dict) and "credentials" in parsed.data)


def _sentence(flaw: Flaw, path: _At) -> Problem:
    hint, fix = schema.advice(flaw)
    where = path[:-1] if flaw.hidden else path
    message = flaw.message if flaw.message.endswith((".", "?", "!")) else f"{flaw.message}."
    see = schema.anchor(flaw.path)
    return Problem(flaw.rule, message, path=dotted(where), level=flaw.level, hint=hint, fix=fix, see=see)


def _as_written(fix: str, where: document.Place) -> str:
    """What replaces the text of a place: in the quotes that stand there; empty where nothing can be replaced."""
    if not fix or not where.exact or where.style not in ("", "'", '"'):
        return ""
    plain = re.fullmatch(r"-?[0-9][0-9.eE+-]*|true|false", fix) is not None
    if plain:
        return fix
    return f"{where.style}{fix}{where.style}"


def _capped(found: list[Any], most: int) -> tuple[list[Any], dict[tuple[str, str], int]]:
    """The first of each rule, and how many more there are."""
    seen: dict[tuple[str, str], int] = {}
    kept = []
    for one in found:
        kind = (one.rule, one.level)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= most:
            kept.append(one)
    return kept, {kind: count - most for kind, count in seen.items() if count > most}


_LEVELS = {"error": 0, "warning": 1, "info": 2}


def _order(problem: Problem) -> tuple[int, bool, str, int, int]:
    return _LEVELS[problem.level], not problem.file, problem.file, problem.line, problem.column


def _sources(recipe: Recipe) -> Iterator[Finding]:
    """The checks that look at the disk, so they live with the reader."""
    known: dict[str, tuple[str, str]] = {}
    for number, job in enumerate(recipe.jobs):
        for index, task in enumerate(job.tasks):
            if task.source is None:
                continue
            if task.source not in known:
                known[task.source] = _judged(Path(recipe.directory), task.source)
            rule, message = known[task.source]
            if rule:
                yield Finding(rule, "error", ("job_specifications", number, "tasks", index, "source"), message)


def _judged(directory: Path, source: str) -> tuple[str, str]:
    """What is wrong with a source, by rule; two empty texts where nothing is."""
    if "\0" in source or not (directory / source).is_dir():
        return "source-missing", f"there is no directory `{schema.shortened(source)}` beside this file"
    taken = sorted(name for name in RESERVED if os.path.lexists(directory / source / name))
    if taken:
        names = f"{' and '.join(f'`{name}`' for name in taken)} of it would take the place of the task's own"
        return "source-reserved", f"{names}; rename {'them' if len(taken) > 1 else 'it'}"
    return "", ""
