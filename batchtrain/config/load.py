"""The only reader (and writer) of configuration: a directory of YAML files in, a typed Recipe or every problem out."""

from __future__ import annotations

import functools
import gc
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from batchtrain.catalog.offer import Catalog
from batchtrain.config import catalog_file, document, override, schema, source_directory, untyped, user_settings
from batchtrain.config.dialect import OLD_SECTIONS, Rewrite, renamed, today
from batchtrain.config.document import Document
from batchtrain.config.image_names import in_registry
from batchtrain.config.local_storage import NOT_LOCAL, without_accounts
from batchtrain.config.masking import masked_line, masked_text
from batchtrain.config.schema import Flaw, Verdict, dotted
from batchtrain.config.secret_names import SECRETS
from batchtrain.config.types import ELSEWHERE, ELSEWHERE_FILES, Credentials, Recipe, convert, read_path
from batchtrain.config.unfilled import CREDENTIALS, filled_in, placeholders, stand_in, to_fill, unfilled
from batchtrain.errors import ConfigError, Problem, UsageError, counted

if TYPE_CHECKING:
    from batchtrain.config.check import Rule

NAMES = ("credentials", "config", "pool", "jobs")
WHOLE = "batchtrain"
"""The file that has all sections but the credentials, in place of the other files."""
SUFFIXES = (".yaml", ".yml", ".json")
MISSING = {
    "pool_specification": "there is no pool: a pool.yaml with `pool_specification` is missing",
    "job_specifications": "there are no jobs: a jobs.yaml with `job_specifications` is missing",
}
EMPTY = {"pool_specification": "describe the pool below it", "job_specifications": "write the jobs below it as a list"}
"""Sections that cannot be empty, with what to write."""
MOST = 100
"""Maximum number of problems to show; the others are counted."""
SETTING = "setting"
"""The file name of a value of `--set`, BATCHTRAIN_SET or `settings`."""

_At = tuple[str | int, ...]


class Loaded(NamedTuple):
    """A valid configuration with its warnings."""

    recipe: Recipe
    warnings: tuple[Problem, ...]


class Section(NamedTuple):
    """One top-level section: its origin, and its data with current names."""

    document: Document
    key: str
    """The name of the section in the file."""
    data: Any


class Examined(NamedTuple):
    """Everything known about the files of a directory, valid or not."""

    recipe: Recipe
    problems: tuple[Problem, ...]
    reading: Reading

    @property
    def valid(self) -> bool:
        """Whether no problem is an error."""
        return all(problem.level != "error" for problem in self.problems)


def load(
    directory: str | Path,
    *,
    settings: Mapping[str, str] | None = None,
    needs: Iterable[str] = (),
    ignore: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    local: bool = False,
    real_storage: bool = False,
) -> Loaded:
    """Read a configuration directory, or a recipe directory that has one as `config/`.

    settings: values that override the files, by path (`pool_specification.vm_count.dedicated`). needs: required
    top-level keys. ignore: names of checks to silence. files: replacements for files of the directory, by part (`jobs`:
    jobs-other.yaml). local: the files are for the emulator, which accepts more, and whose storage replaces all accounts
    unless real_storage is given. Raises ConfigError with all problems of all files, UsageError if there is nothing to
    read.
    """
    review = examined(
        directory, settings=settings, needs=needs, ignore=ignore, files=files, local=local, real_storage=real_storage
    )
    return Loaded(review.recipe, review.problems)


def examined(
    directory: str | Path,
    *,
    settings: Mapping[str, str] | None = None,
    needs: Iterable[str] = (),
    ignore: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    local: bool = False,
    real_storage: bool = False,
    most: int = MOST,
) -> Examined:
    """As `load`, with the origin of every value. most: the number of problems to show."""
    folder = find(directory, files)
    catalog, registry = catalog_file.load(folder), user_settings.load().registry
    review = examine(
        folder, read(folder, files), settings=settings, needs=needs, ignore=ignore, catalog=catalog, local=local,
        real_storage=real_storage, most=most, registry=registry,
    )  # fmt: skip
    if not review.valid:
        raise ConfigError(review.problems)
    return review._replace(recipe=msgspec.structs.replace(review.recipe, warnings=review.problems))


def examine(
    folder: Path,
    files: Mapping[str, bytes],
    *,
    settings: Mapping[str, str] | None = None,
    needs: Iterable[str] = (),
    ignore: Iterable[str] = (),
    catalog: Catalog | None = None,
    most: int = MOST,
    local: bool = False,
    real_storage: bool = False,
    registry: str = "",
) -> Examined:
    """Check files by their contents.

    place: their directory. catalog: sizes and images, by default those of the tables. most: the number of problems to
    show. local: the files are for the emulator. registry: replaces `example` in names of images.
    """
    with _unhurried_collector(files):
        reading = Reading(folder)
        for file, content in files.items():
            reading.take(file, content)
        reading.rename()
        reading.override(settings or {})
        if registry:
            reading.choose_registry(registry)
        values = {name: reading.convert(name, most) for name in reading.sections}
        if not reading.flawed:  # an unreadable file is reported already, and may be the missing one
            reading.require(needs)
        recipe = Recipe(
            directory=str(folder),
            catalog=catalog or Catalog(),
            **{schema.FIELDS[name]: value for name, value in values.items() if value is not None},
        )
        if local and not real_storage:
            recipe = without_accounts(recipe)
        reading.check(recipe, {name for name, value in values.items() if value is None}, local=local)
        names = tuple(ignore)
        if name := next((name for name in names if name not in _rules()), ""):
            hint = schema.did_you_mean(name, tuple(_rules())) or "`batchtrain config checks` lists them."
            raise UsageError(f"there is no check called `{name}`. {hint}")
        silent = reading.silenced(recipe.settings.ignore_checks) | {*names, *(NOT_LOCAL if local else ())}
        recipe = msgspec.structs.replace(recipe, silent=silent, placeholders=reading.placeholders)
        return Examined(recipe, reading.problems(silent, most), reading)


def load_credentials(directory: str | Path, files: Mapping[str, str] | None = None) -> Credentials | None:
    """Only the accounts of a directory's files; None without accounts.

    Raises ConfigError if that part cannot be read.
    """
    try:
        folder = find(directory, files or {})
    except UsageError:
        return None
    reading = Reading(folder)
    for file, content in read(folder, files or {}).items():
        reading.take(file, content)
    if "credentials" not in reading.sections:
        stems = {"credentials", Path((files or {}).get("credentials", "")).stem}
        faults = tuple(fault for fault in reading.problems(frozenset()) if Path(fault.file).stem in stems)
        if any(fault.level == "error" for fault in faults):
            raise ConfigError(faults)
        return None
    reading.only("credentials")
    reading.rename()
    credentials: Credentials | None = reading.convert("credentials")
    problems = reading.problems(frozenset())
    if any(problem.level == "error" for problem in problems):
        raise ConfigError(problems)
    return credentials


@functools.cache
def _rules() -> Mapping[str, Rule]:
    """Every rule by its name."""
    return {rule.name: rule for rule in _checks().RULES}


def _checks() -> Any:
    """The package of the rules. Importing them takes a while, and accounts are read without them."""
    from batchtrain.config import check

    return check


def _judged(section: str, data: Any, most: int = sys.maxsize) -> Verdict:
    """The mistakes in a section; jsonschema takes 60 ms to import and is needed only for a mistake."""
    from batchtrain.config import judge

    return judge.judged(section, data, most)


@contextmanager
def _unhurried_collector(files: Mapping[str, bytes]) -> Iterator[None]:
    """Stops the garbage collector: a large file makes millions of objects and no garbage, and collecting doubles the
    time."""
    if sum(map(len, files.values())) < 2**20 or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# --- which files ----------------------------------------------------------------------------------------------------


def find(directory: str | Path, replacements: Mapping[str, str] | None = None) -> Path:
    """The directory that holds the files: the given one, or its `config/`.

    replacements: files that the user named; with one of them, the directory may be empty.
    """
    folder = Path(directory)
    if folder.suffix == ".py" and folder.is_file():
        raise UsageError(
            f"{folder} is a script, and this command takes a recipe; {recipe_of_script((str(folder),), folder.parent)}"
        )
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a directory; give a recipe directory or its config directory")
    candidates = [candidate for candidate in (folder, folder / "config") if any(_files(candidate, (WHOLE, *NAMES)))]
    files = [file for candidate in candidates for file in configuration_files(candidate)]
    whole, others = [file for file in files if file.stem == WHOLE], [file for file in files if file.stem != WHOLE]
    if whole and others:
        raise UsageError(
            f"{whole[0]} is a whole recipe, and {others[0]} is a part of one; move the sections into one of them, and"
            " remove the other"
        )
    if candidates or replacements:
        return next(iter(candidates), folder)
    raise UsageError(
        f"{folder.resolve()} holds no configuration: expected batchtrain.yaml, or pool.yaml and jobs.yaml, there or in"
        f" {folder / 'config'}; name another directory, or the pool or the job if the command takes its id;"
        " `batchtrain init SCRIPT` makes one for a script, and `batchtrain recipe new NAME DIR` copies one"
    )


def recipe_of_script(words: Iterable[str], folder: Path) -> str:
    """The commands that write the recipe of a script, and show what it sends. words: the script and its options."""
    init, plan = ("batchtrain", "init", *words), ("batchtrain", "config", "plan", str(folder))
    return f"`{shlex.join(init)}` writes its recipe, and `{shlex.join(plan)}` then shows what a run would send"


def configuration_files(folder: Path) -> Iterator[Path]:
    """The files of a recipe in a directory, without its credentials."""
    return (file for file in _files(folder, (WHOLE, *NAMES)) if file.stem != "credentials")


def read(folder: Path, replacements: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The contents of the files by path; only the beginning of a file that is too large.

    replacements: replacements for files, by part. Raises UsageError if one does not exist.
    """
    new_files = {name: Path((replacements or {})[name]) for name in sorted(replacements or {}, key=NAMES.index)}
    for name, file in new_files.items():
        if not file.is_file():
            raise UsageError(f"{file} is not a file; it was given in place of {name}.yaml")
    names = (WHOLE, *(name for name in NAMES if name not in new_files), *ELSEWHERE_FILES)
    contents = {}
    for file in (*new_files.values(), *_files(folder, names)):
        with file.open("rb") as stream:
            contents[str(file)] = stream.read(document.LARGEST + 1)
    return contents


def _files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        for suffix in SUFFIXES:
            file = folder / (name + suffix)
            if file.is_file():
                yield file
            elif file.is_symlink() or file.exists():
                what = "is a broken link" if not file.exists() else "is no file"
                raise UsageError(f"{file} {what}; {name}{suffix} is part of the configuration")


# --- files to sections, and everything that is wrong with them -------------------------------------------------------


class Reading:
    """The data read so far and its problems. Positions are found at the end, all in one pass."""

    def __init__(self, folder: Path) -> None:
        self.sections: dict[str, Section] = {}
        self.documents: dict[str, Document] = {}
        self.settings: dict[_At, str] = {}
        """Paths of values on the command line, and their texts there."""
        self.rewrites: list[Rewrite] = []
        """Deprecated properties that more than a new key replaces."""
        self._folder = folder
        self._written: dict[_At, _At] = {}  # current path: the path with the names of its file
        self._pruned: dict[str, set[_At]] = {}  # by section: the paths that are omitted because they are wrong
        self._above: set[_At] = set()  # the parents of these paths
        self._unjudged = 0  # further parts with mistakes, which `_flaws` lacks
        self._problems: list[Problem] = []
        self._flaws: list[Flaw] = []
        self._top: list[Flaw] = []  # about top-level keys, each with its file
        self._left_out: tuple[Problem, ...] = ()  # about the checks that wait for other mistakes
        self._unfilled: dict[_At, Flaw] = {}  # the placeholders of pool and jobs

    @property
    def flawed(self) -> bool:
        """Whether there is an error so far."""
        return any(flaw.level == "error" for flaws in (self._problems, self._flaws, self._top) for flaw in flaws)

    def take(self, file: str, content: bytes) -> None:
        """Read one file. Each top-level key must be in only one file."""
        section = ELSEWHERE_FILES.get(Path(file).stem)
        if section:
            self._problems.append(Problem("elsewhere", f"{ELSEWHERE[section]}.", file, 1, 1, section, "warning"))
            return
        yaml, faults = document.parse(file, content)
        self.documents[file] = yaml
        self._problems.extend(faults)
        if not yaml.readable:
            return
        if not isinstance(yaml.data, dict):
            self._problems.append(Problem("type", "the file must be a mapping.", file, *yaml.position(())[:2]))
            return
        for key, data in yaml.data.items():
            self._section(yaml, key, data)
        for mapping, key in yaml.nulls:
            if mapping is yaml.data:
                self._section(yaml, key, None)

    def only(self, name: str) -> None:
        """Forget all other sections and their problems."""
        self.sections = {name: self.sections[name]}
        self._problems, self._flaws, self._top = [], [], []

    def _section(self, yaml: Document, key: str, data: Any) -> None:
        name = OLD_SECTIONS.get(key, key)
        if name in EMPTY and not data:
            self._tell(yaml, Flaw((key,), "value", f"`{key}` is empty; {EMPTY[name]}, or remove the key"))
        elif name in schema.SECTIONS and data is None:
            return  # an empty section counts as absent
        elif name in ELSEWHERE:
            self._tell(yaml, Flaw((key,), "elsewhere", ELSEWHERE[name], level="warning"))
        elif name not in schema.SECTIONS:
            names = (*schema.SECTIONS, *OLD_SECTIONS)
            hidden = _confidential(yaml) and not schema.nearest(key, names)[0]
            message = "this key is not known here" if hidden else f"`{schema.shortened(key)}` is not known here"
            present = tuple(name for name in names if name in yaml.data)
            word = "" if hidden else key
            flaw = Flaw((key,), "unknown-key", message, word=word, known=names, taken=present, hidden=hidden)
            self._tell(yaml, flaw)
        elif name == "credentials" and Path(yaml.file).stem == WHOLE:
            text = "accounts and secrets stand in a credentials.yaml beside this file, so that this file can be shared"
            self._tell(yaml, Flaw((key,), "elsewhere", text))
        elif name in self.sections:
            other = self.sections[name].document.file
            self._tell(yaml, Flaw((key,), "duplicate-key", f"`{key}` is also in {other}"))
        else:
            is_jobs = name == "job_specifications"
            self.sections[name] = Section(yaml, key, untyped.typed(yaml, data) if is_jobs else data)
            self._flaws.extend(schema.without_values(name, data, yaml.nulls))

    def _tell(self, yaml: Document, flaw: Flaw) -> None:
        self._top.append(flaw._replace(file=yaml.file, at_key=True))

    # --- words of older files ---

    def rename(self) -> None:
        """Replace deprecated names, with a warning for each."""
        for name, section in self.sections.items():
            if section.key != name:
                self._written[name,] = (section.key,)
            self.sections[name] = section._replace(
                data=renamed(name, section.data, self._written, self._flaws, self.rewrites)
            )
        if "credentials" in self.sections:
            section = self.sections["credentials"]
            self._flaws.extend(placeholders(section.data, CREDENTIALS))
            self.sections["credentials"] = section._replace(data=filled_in(section.data))

    # --- --set a.b[0].c=value ---

    def override(self, settings: Mapping[str, str]) -> None:
        """Apply the values of the command line, which override the files."""
        for name, text in (pair for setting in settings.items() for pair in self._long_values(*setting)):
            words = read_path(name)
            head = OLD_SECTIONS.get(str(words[0]), str(words[0])) if words else ""
            if head not in schema.SECTIONS or len(words) < 2:
                path = override.whole_path(words)
                names, hint = tuple(schema.SECTIONS), ""
                if not path and head not in names:
                    short = override.SHORT_WORDS if len(words) == 1 else ()
                    all_known = f"{schema.did_you_mean(head, names)} Short words: {', '.join(short)}."
                    hint = schema.did_you_mean(head, (*names, *short)) or all_known
                whole = f"`{dotted(path)}`" if path else "all of it, such as `pool_specification.vm_size`."
                message = f"this is not the path of a property; write {whole}"
                self._problems.append(Problem("unknown-key", message, SETTING, path=schema.shortened(name), hint=hint))
                continue
            section = self.sections.get(head) or Section(Document(SETTING, {}, readable=False), head, None)
            path = today((head, *override.joined(head, words[1:], section.data)))
            if (numbered_path := override.numbered(section.data, path[1:])) != path[1:]:
                message = f"an item of a list has a number; write `{dotted((head, *numbered_path))}`"
                self._problems.append(Problem("unknown-key", message, SETTING, path=schema.shortened(name)))
                continue
            try:
                data = override.put(section.data, path[1:], self._value(path, text))
            except IndexError as error:
                self._problems.append(Problem("unknown-key", str(error), SETTING, path=schema.shortened(name)))
                continue
            self.settings[_first_new(section.data, path)] = self.settings[path] = name
            self.sections[head] = section._replace(data=data)

    def _long_values(self, name: str, text: str) -> tuple[tuple[str, str], ...]:
        """The paths that a setting means, each with its value."""
        data_of = {name: section.data for name, section in self.sections.items()}
        pool, jobs = data_of.get("pool_specification"), data_of.get("job_specifications")
        return override.long_values(name, text, pool, jobs) or ((name, text),)

    def choose_registry(self, registry: str) -> None:
        """Set the user's registry in the image names of recipes."""
        for name, section in self.sections.items():
            self.sections[name] = section._replace(data=in_registry(section.data, registry))

    def _value(self, path: _At, text: str) -> Any:
        """The value of a text: YAML for a list or a mapping (`[a, b]`), otherwise the text itself."""
        if text == "null":
            return None
        kind = schema.shape_of(path) if text[:1] in ("[", "{") else None
        if kind is None or not schema.is_nested(kind):
            return text
        setting, faults = document.parse(SETTING, text.encode("utf-8", "surrogateescape"))
        self._problems.extend(Problem(p.rule, p.message, SETTING, path=dotted(path)) for p in faults)
        return setting.data

    # --- data to values ---

    def convert(self, name: str, most: int = MOST) -> Any:
        """The typed value of a section without its invalid parts, so that the rules can check the rest; None if nothing
        is left. most: the maximum number of mistakes to find.
        """
        data = self.sections[name].data
        stand_ins = self._find_placeholders(name)
        for _ in range(_PRUNINGS):
            try:
                return convert(data, schema.SECTIONS[name])
            except (msgspec.ValidationError, RecursionError) as error:
                verdict = _judged(name, data, most)
                if not verdict.flaws:
                    verdict = Verdict((Flaw((name,), "type", str(error)),))
            if name == "credentials" and all(flaw.rule == "missing" for flaw in verdict.flaws):
                for flaw in verdict.flaws:  # the values are not needed offline
                    self._flaws.append(flaw._replace(rule="placeholder", level="warning"))
                    data = override.put(data, flaw.path[1:], None)
            elif paths := [flaw.path for flaw in verdict.flaws if stand_ins.get(flaw.path)]:
                for path in paths:
                    data = override.put(data, path[1:], stand_ins[path].pop())
            else:
                break
        self._flaws.extend(verdict.flaws)
        self._unjudged += verdict.unjudged
        return None if verdict.unjudged else self._rest(name, data, verdict.flaws)

    def _find_placeholders(self, name: str) -> dict[_At, list[str | None]]:
        """Report the placeholders of a section; returns the values that stand in for each, the last one first: a name,
        or None (absent) where no name is valid."""
        section = self.sections[name]
        if name == "credentials" or "<" not in section.document.text:
            return {}
        texts = {path: text for path, text in unfilled(section.data, (name,)) if not self.setting(path)}
        self._unfilled |= {path: to_fill(path) for path in texts}
        self._flaws.extend(map(to_fill, texts))
        return {path: [None, stand_in(text)] for path, text in texts.items()}

    @property
    def placeholders(self) -> tuple[Problem, ...]:
        """The placeholders of pool and jobs, with their positions."""
        return tuple(self._positioned(list(self._unfilled.values())))

    def _rest(self, name: str, data: Any, flaws: Iterable[Flaw]) -> Any:
        """The section without its invalid parts. Returns None if too much depends on them."""
        unknown_keys = [flaw for flaw in flaws if flaw.rule == "unknown-key"]
        for flaw in unknown_keys:  # the rules read a misspelt key as the one that was meant, and no others
            if name_meant := schema.advice(flaw).fix:
                now = (*flaw.path[:-1], name_meant)
                data, self._written[now] = override.put(data, now[1:], override.at(data, flaw.path[1:])), flaw.path
        data = override.without(data, (flaw.path[1:] for flaw in unknown_keys))
        wrong = {flaw.path for flaw in flaws if flaw.rule != "unknown-key"}
        for _ in range(_PRUNINGS):
            while items := {path for path in wrong if isinstance(path[-1], int)}:  # items have no names: the whole list
                wrong = wrong - items | {path[:-1] for path in items}
            if any(len(path) < 2 or path[-1] == "id" for path in wrong):  # other rules look up these names
                return None
            valid_parts = override.without(data, (path[1:] for path in wrong))
            try:
                value = convert(valid_parts, schema.SECTIONS[name])
                break
            except (msgspec.ValidationError, RecursionError):
                blocks = {flaw.path for flaw in _judged(name, valid_parts).flaws}  # they lack a value now
                wrong = blocks | {path for path in wrong if blocks.isdisjoint(path[:n] for n in range(len(path)))}
        else:
            return None
        if wrong:
            self._pruned[name] = wrong
        self._above.update(path[:n] for path in wrong for n in range(len(path)))
        return value

    def require(self, needs: Iterable[str]) -> None:
        """Report missing sections."""
        for name in needs:
            if name not in self.sections:
                self._problems.append(Problem("missing-file", MISSING[name], str(self._folder)))

    def check(self, recipe: Recipe, invalid: set[str], *, local: bool) -> None:
        """Run the rules across properties and files. invalid: sections of which nothing is left. local: for the
        emulator."""
        unreadable = {yaml.file for yaml in self.documents.values() if not yaml.readable}
        unfit_sections = frozenset(invalid | (set(schema.SECTIONS) - set(self.sections) if unreadable else set()))
        left_out = {rule.name for rule in _rules().values() if rule.find and rule.needs(unfit_sections)}
        reasons = unreadable | invalid if left_out else set()
        for finding in _checks().run(recipe, unfit_sections, source_directory.surveys(recipe, local=local)):
            if self._is_about_omission(finding.path):
                continue
            if incomplete := _rules()[finding.rule].needs(self._pruned.keys() - {finding.path[0]}):
                left_out.add(finding.rule)
                reasons |= incomplete
            else:
                self._flaws.append(Flaw(finding.path, finding.rule, finding.message, level=finding.level))
        if left_out and not self._unjudged:
            message = f"{counted(len(left_out), 'check')} left out because of mistakes in {', '.join(sorted(reasons))}"
            self._left_out = (Problem("left-out", message, level="info"),)

    def _is_about_omission(self, path: _At) -> bool:
        """Whether an omitted part or a placeholder may cause a finding at the path."""
        parts = self._pruned.get(str(path[0]), ())
        return path in self._unfilled or path in self._above or any(path[:n] in parts for n in range(1, len(path) + 1))

    def silenced(self, names: tuple[str, ...]) -> frozenset[str]:
        """The checks that the files silence; an unknown name is a mistake."""
        for number, name in enumerate(names):
            if name not in _rules():
                path = ("batchtrain", "ignore_checks", number)
                message = f"there is no check called `{schema.shortened(name)}`; `batchtrain config checks` lists them"
                self._flaws.append(Flaw(path, "value", message, word=name, known=tuple(_rules())))
        return frozenset(names)

    # --- problems with their places ---

    def problems(self, silent: frozenset[str], most: int = MOST) -> tuple[Problem, ...]:
        """The findings without those of silenced rules, with positions, sorted; the first are shown, the others are
        counted."""
        everything: list[Problem | Flaw] = [*self._problems, *self._top, *self._flaws]
        findings = [item for item in everything if item.rule not in silent]
        findings.sort(key=lambda item: _LEVELS[item.level])
        placed = self._positioned(findings[:most])
        problems = [problem._replace(message=masked_text(problem.message)) for problem in placed]
        once = {problem._replace(path=""): problem for problem in reversed(problems)}  # aliases have the same position
        sorted_problems = sorted(
            once.values(), key=lambda item: (_LEVELS[item.level], not item.file, item.file, item.line, item.column)
        )
        more = len(findings) - len(problems) + self._unjudged
        if more:
            about = f"{'at least ' if self._unjudged else ''}{more:,} more"
            message = f"and {about}; `batchtrain config validate {shlex.quote(str(self._folder))} -o json` shows all."
            sorted_problems.append(Problem("more", message, level="error" if self._unjudged else findings[most].level))
        return (*sorted_problems, *self._left_out)

    def _positioned(self, findings: Iterable[Problem | Flaw]) -> Iterator[Problem]:
        """Problems with their positions and lines; each file is read once."""
        by_file: dict[str, list[Any]] = {}
        for finding in findings:
            by_file.setdefault(self._file_of(finding), []).append(finding)
        for file, of_file in by_file.items():
            if file not in self.documents:
                yield from (finding if isinstance(finding, Problem) else self._unplaced(finding) for finding in of_file)
                continue
            yaml = self.documents[file]
            ruler = yaml.ruler()
            flaws = (finding for finding in of_file if not isinstance(finding, Problem))
            paths = {(self._path_of(flaw), flaw.at_key) for flaw in flaws}
            positions = yaml.positions(paths) if paths else {}
            for finding in of_file:
                problem = finding if isinstance(finding, Problem) else self._at(yaml, finding, positions)
                yield self._veiled(yaml, problem, ruler, isinstance(finding, Problem))

    def _file_of(self, finding: Problem | Flaw) -> str:
        if finding.file or isinstance(finding, Problem):
            return finding.file
        section = self.sections.get(str(finding.path[0])) if finding.path and not self.setting(finding.path) else None
        return section.document.file if section and section.document.readable else ""

    def _path_of(self, flaw: Flaw) -> _At:
        return flaw.path if flaw.file else self.written(flaw.path)

    def _unplaced(self, flaw: Flaw) -> Problem:
        section = self.sections.get(str(flaw.path[0])) if flaw.path else None
        is_setting = bool(self.setting(flaw.path))
        if is_setting:
            flaw = flaw._replace(taken=())  # a setting may replace what is there
        is_setting = is_setting or (section is not None and section.document.file == SETTING)
        problem = _sentence(flaw, flaw.path)
        return problem._replace(file=SETTING) if is_setting else problem

    def setting(self, path: _At) -> str:
        """The text of a value on the command line; empty without one."""
        return next((self.settings[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.settings), "")

    def _at(self, yaml: Document, flaw: Flaw, positions: Mapping[tuple[_At, bool], document.Position]) -> Problem:
        path = self._path_of(flaw)
        position = positions[path, flaw.at_key]
        problem = _sentence(flaw, path)
        fix = problem.fix if position.exact and position.style in ("", "'", '"') else ""
        if fix and not re.fullmatch(r"-?[0-9][0-9.eE+-]*|true|false", fix):
            fix = f"{position.style}{fix}{position.style}"
        return problem._replace(
            file=yaml.file, line=position.line, column=position.column, end_line=position.end_line,
            end_column=position.end_column, fix=fix,
        )  # fmt: skip

    def written(self, path: _At) -> _At:
        """A path with the names of the file it was read from."""
        if not self._written:
            return path
        for length in range(len(path), 0, -1):
            older = self._written.get(path[:length])
            if older is not None:
                return self.written(older + path[length:])
        return path

    def _veiled(self, yaml: Document, problem: Problem, ruler: document.Ruler, of_the_text: bool) -> Problem:
        """Add the line of the file, unless it may contain a secret; removes secrets from the message."""
        if _confidential(yaml):
            return problem._replace(message=_QUOTED.sub(_unless_ours, problem.message)) if of_the_text else problem
        if not yaml.readable and any(name in yaml.text for name in SECRETS):
            return problem
        return problem._replace(source=masked_line(ruler.line(problem.line)))


def _first_new(data: Any, path: _At) -> _At:
    """The beginning of a setting's path that its section does not have yet; the whole path if it has all of it."""
    for length, step in enumerate(path[1:], 2):
        items = data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
        if step not in items:
            return path[:length]
        data = items[step]
    return path


_PRUNINGS = 5  # removing a part may make another one incomplete
_QUOTED = re.compile(r"`([^`]*)`")


def _unless_ours(match: re.Match[str]) -> str:
    """The message without quoted values of the credentials; punctuation and names of the language are not secrets."""
    word = match[1].strip("&*")
    return match[0] if not re.search(r"\w", word) or schema.is_known(word) else "`***`"


def _confidential(yaml: Document) -> bool:
    """Whether any line of a file may hold a secret."""
    return Path(yaml.file).stem == "credentials" or (isinstance(yaml.data, dict) and "credentials" in yaml.data)


def _sentence(flaw: Flaw, path: _At) -> Problem:
    hint, fix = schema.advice(flaw)
    where = dotted(path[:-1] if flaw.hidden else path)
    message = flaw.message if flaw.message.endswith((".", "?", "!")) else f"{flaw.message}."
    return Problem(flaw.rule, message, path=where, level=flaw.level, hint=hint, fix=fix, see=schema.anchor(flaw.path))


_LEVELS = {"error": 0, "warning": 1, "info": 2}
