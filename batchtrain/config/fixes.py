"""Edits of a file's text for `config validate --fix` and `config migrate`.

An edit replaces one key or one scalar in place and keeps its quotes; comments, order and line endings are unchanged.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from batchtrain.catalog import fit
from batchtrain.catalog.vm_images import Reference
from batchtrain.config import document, override, schema
from batchtrain.config.check.subject import IMAGE_KINDS, Subject
from batchtrain.config.check.vm_images import size_of_today, successor
from batchtrain.config.dialect import OLD_SECTIONS, Rewrite
from batchtrain.config.document import Document, Position
from batchtrain.config.load import Examined, Section
from batchtrain.config.masking import masked_line, masked_yaml
from batchtrain.config.types import Path, Recipe
from batchtrain.errors import Problem

Files = Mapping[str, bytes]
Judge = Callable[[Files], Examined]
"""Reads the contents of files and returns their problems."""

ROUNDS = 20  # an edit can uncover a mistake below it


class Fix(NamedTuple):
    """One edit: position, old text, new text, the rule, and what follows from it, such as the prices of two sizes."""

    file: str
    line: int
    column: int
    old: str
    new: str
    rule: str
    why: str = ""

    def __str__(self) -> str:
        change = f"`{self.old}` is now `{self.new}`"
        if not (self.old and self.new):
            change = f"`{self.new}` is added" if self.new else f"`{self.old}` is removed here"
        return f"{self.file}:{self.line}:{self.column}: {change}{f': {self.why}' if self.why else ''} [{self.rule}]"


class Fixed(NamedTuple):
    """Files after all edits; `files` holds those that changed."""

    files: dict[str, bytes]
    applied: tuple[Fix, ...]
    left: Examined
    """The problems of the files after the edits."""
    notes: tuple[Problem, ...] = ()
    """Remarks about the edits, such as a program that must be rebuilt for the new GPUs."""


class _Edit(NamedTuple):
    start: int
    end: int
    text: str
    rule: str
    why: str = ""


def fix(files: Files, judge: Judge) -> Fixed:
    """Fix every problem that has exactly one solution, and remove quotes from numbers."""
    return _settled(files, judge, _fixes)


def migrate(files: Files, judge: Judge) -> Fixed:
    """Replace deprecated names, and retired sizes and images; other mistakes are unchanged."""
    result = _settled(files, judge, _older)
    if not any(item.rule == "size-retired" for item in result.applied):
        return result
    return result._replace(notes=tuple(_about_new_size(judge(files), result.left)))


def _about_new_size(before: Examined, now: Examined) -> Iterator[Problem]:
    """What programs need on the size that is in place of the former one, at its line."""
    pool, subject = now.reading.sections["pool_specification"], Subject(before.recipe)
    programs = size_of_today(subject, subject.size).programs if subject.size else ""
    position = pool.document.position((pool.key, "vm_size"))
    line = masked_line(pool.document.ruler().line(position.line))
    for problem in before.problems if programs else ():
        if problem.rule == "size-retired":
            yield problem._replace(
                message=f"{pool.data['vm_size']} is in place of {subject.pool.vm_size}. {programs}", source=line,
                line=position.line, column=position.column, end_line=position.end_line, end_column=position.end_column,
            )  # fmt: skip


def difference(before: Files, after: Files) -> str:
    """The changes as a unified diff, in which secrets are masked."""
    lines: list[str] = []
    for file, new in after.items():
        old_lines, new_lines = _lines(before[file]), _lines(new)
        lines += difflib.unified_diff(old_lines, new_lines, file, file, lineterm="")
    return "\n".join(lines)


def _lines(content: bytes) -> list[str]:
    return masked_yaml(content.decode("utf-8-sig", "replace")).splitlines()


def _settled(files: Files, judge: Judge, answers: Callable[[Examined], Mapping[str, list[_Edit]]]) -> Fixed:
    """Repeats the edits until there is nothing to edit."""
    now = dict(files)
    fixes: list[Fix] = []
    hopeless: set[str] = set()  # files that an edit would break
    review = judge(now)
    for _ in range(ROUNDS):
        changed = False
        for file, edits in answers(review).items():
            if file not in now or file in hopeless or not edits:
                continue
            content, file_fixes = _edited(review.reading.documents[file], now[file], edits)
            if content is None:
                hopeless.add(file)
                continue
            now[file], changed = content, changed or bool(file_fixes)
            fixes += file_fixes
        if not changed:
            break
        review = judge(now)
    changes = {file: content for file, content in now.items() if content != files[file]}
    return Fixed(changes, tuple(sorted(fixes, key=lambda edit: edit[:3])), review)


def _edited(yaml: Document, content: bytes, edits: Iterable[_Edit]) -> tuple[bytes | None, list[Fix]]:
    """The content of a file with the edits; None if the result would be worse to read than before."""
    ruler, text, end = yaml.ruler(), yaml.text, 0
    fixes: list[Fix] = []
    parts: list[str] = []
    for edit in sorted(set(edits)):
        old = text[edit.start : edit.end]
        if edit.start < end or old == edit.text:
            continue
        line, column = ruler.position(edit.start)
        if old.strip() or edit.text.strip():  # not only the indentation
            fixes.append(Fix(yaml.file, line, column, _bare(old), _bare(edit.text), *edit[3:]))
        parts += [text[end : edit.start], edit.text]
        end = edit.end
    mark = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
    new_content = mark + "".join([*parts, text[end:]]).encode()
    before, after = (document.parse(yaml.file, version)[1] for version in (content, new_content))
    return (None, []) if len(after) > len(before) else (new_content, fixes)


def _bare(word: str) -> str:
    word = word.strip(", \r\n")
    quoted = len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" and word[0] not in word[1:-1]
    return word[1:-1] if quoted else word


# --- what to edit ---------------------------------------------------------------------------------------------------


def _fixes(review: Examined) -> dict[str, list[_Edit]]:
    edits = _answers(review)
    for file, quote_edits in _quoted(review).items():
        edits[file] = _without_quarrels([*edits.get(file, ()), *quote_edits])
    return edits


def _quoted(review: Examined) -> dict[str, list[_Edit]]:
    """Quoted numbers and booleans: batchtrain reads them, but an editor with the schema reports them as texts."""
    edits: dict[str, list[_Edit]] = {}
    for name, section in review.reading.sections.items():
        if not section.document.readable:
            continue
        numbers = {
            (review.reading.written(path), False): text
            for path, text in schema.numbers(name, section.data)
            if _NUMBER.fullmatch(text) and not review.reading.setting(path)
        }
        positions = section.document.positions(numbers) if numbers else {}
        edits.setdefault(section.document.file, []).extend(
            _Edit(position.start, position.end, numbers[where], "quoted")
            for where, position in positions.items()
            if position.exact and position.style in ("'", '"')
        )
    return edits


_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?|true|false")


def _answers(review: Examined) -> dict[str, list[_Edit]]:
    edits: dict[str, list[_Edit]] = {}
    ruler_of = cache(lambda file: review.reading.documents[file].ruler())
    for problem in review.problems:
        if problem.fix and problem.line:
            start = ruler_of(problem.file).offset(problem.line, problem.column)
            edit = _Edit(start, start + problem.end_column - problem.column, problem.fix, problem.rule)
            edits.setdefault(problem.file, []).append(edit)
    return {file: _without_quarrels(edits[file]) for file in edits}


def _without_quarrels(edits: list[_Edit]) -> list[_Edit]:
    """Two edits of one position cancel each other."""
    texts: dict[tuple[int, int], set[str]] = {}
    for edit in edits:
        texts.setdefault(edit[:2], set()).add(edit.text)
    return [edit for edit in edits if len(texts[edit[:2]]) == 1]


def _older(review: Examined) -> dict[str, list[_Edit]]:
    renamings = review._replace(problems=tuple(problem for problem in review.problems if problem.rule == "renamed"))
    edits = _answers(renamings)
    for name, section in review.reading.sections.items():
        if section.document.readable and section.key in OLD_SECTIONS:
            position = section.document.position((section.key,), key=True)
            edits.setdefault(section.document.file, []).append(_replaced(position, name, "renamed"))
    pool = review.reading.sections.get("pool_specification")
    if pool is not None and pool.document.readable and isinstance(pool.data, dict):
        edits.setdefault(pool.document.file, []).extend(
            (*_size(pool, review.recipe), *_image(pool, review.recipe), *_native(pool, review.recipe))
        )
    return edits if any(edits.values()) else _rewritten(review)


def _rewritten(review: Examined) -> dict[str, list[_Edit]]:
    """The edits of deprecated properties that more than a new key replaces. They move text, so they come after the
    others, and one in each mapping a round: none of them inside of another."""
    edits: dict[str, list[_Edit]] = {}
    homes: set[Path] = set()
    for rewrite in review.reading.rewrites:
        home = rewrite.path if isinstance(rewrite.path[-1], int) else rewrite.path[:-1]
        if any(home[: len(other)] == other or other[: len(home)] == home for other in homes):
            continue
        section = review.reading.sections[str(rewrite.path[0])]
        if section.document.readable and (moves := _moved(section, rewrite)):
            homes.add(home)
            edits.setdefault(section.document.file, []).extend(moves)
    return edits


def _moved(section: Section, rewrite: Rewrite) -> list[_Edit]:
    """A key and its value below the new keys; empty if their position is unknown."""
    yaml, path = section.document, (section.key, *rewrite.path[1:])
    key, value = yaml.position(path, key=True), yaml.position(path)
    if not (key.exact and value.exact):
        return []
    quote = '"' if key.style == '"' else ""
    old = yaml.text[value.start : value.end]
    new = rewrite.values.get(_bare(old).lower())
    text = old if new is None else f"{quote}{new}{quote}"
    is_block = "\n" in yaml.text[key.end : value.end] and text[0] not in "{["
    names = [f"{quote}{step}{quote}" for step in rewrite.steps]
    if isinstance(path[-1], int):
        return [_Edit(value.start, value.end, _nested(names[1:], text), "renamed")]
    if new_home := _home(yaml, path, rewrite):
        first = (*new_home, next(iter(_below(yaml.data, new_home))))
        name, *below = rewrite.steps[len(new_home) - len(path) + 1 :]
        if is_block:  # its lines have another indentation there
            text = json.dumps(override.at(yaml.data, path), ensure_ascii=False)
        nested = _nested([f"{quote}{step}{quote}" for step in below], text)
        return [_removed(yaml.text, key.start, value.end), _before(yaml, first, str(name), nested, "renamed")]
    beside = [_before(yaml, path, name, content, "renamed") for name, content in rewrite.beside.items()]
    if len(names) > 1 and is_block:
        return _indented(yaml.text, key, value, names)
    return [*beside, _Edit(key.start, value.end, f"{names[0]}: {_nested(names[1:], text)}", "renamed")]


def _nested(names: list[str], text: str) -> str:
    return text if not names else f"{{{names[0]}: {_nested(names[1:], text)}}}"


def _home(yaml: Document, path: Path, rewrite: Rewrite) -> Path:
    """The deepest of the new mappings that the file has already; empty if it has none."""
    homes = ((*path[:-1], *rewrite.steps[:count]) for count in range(len(rewrite.steps) - 1, 0, -1))
    return next((home for home in homes if home != path and _below(yaml.data, home)), ())


def _indented(text: str, key: Position, value: Position, names: list[str]) -> list[_Edit]:
    """A block of lines, two columns further right for each new key above it."""
    line = text.rfind("\n", 0, key.start) + 1
    column, end = " " * (key.start - line), "\r\n" if text[:line].endswith("\r\n") else "\n"
    keys = f":{end}".join(f"{column if number else ''}{'  ' * number}{name}" for number, name in enumerate(names))
    shift = "  " * (len(names) - 1)
    starts = (match.end() for match in re.finditer(r"\n(?=[^\r\n])", text[: value.end]) if match.end() > key.end)
    return [_Edit(key.start, key.end, keys, "renamed"), *(_Edit(start, start, shift, "renamed") for start in starts)]


def _removed(text: str, start: int, end: int) -> _Edit:
    """Removes a key and its value: with its line in a block, with its comma in `{}`."""
    line = text.rfind("\n", 0, start) + 1
    comma = re.match(r"\s*,[ \t]*(\r?\n[ \t]*)?", text[end:])
    rest = re.match(r"[ \t]*(\r?\n|$)", text[end:])
    if comma:
        return _Edit(start, end + comma.end(), "", "renamed")
    if rest and not text[line:start].strip() and not text[:start].rstrip().endswith(","):
        return _Edit(line, end + rest.end(), "", "renamed")
    before = text[:start].rstrip()
    return _Edit(len(before) - 1 if before.endswith(",") else start, end, "", "renamed")


def _size(pool: Section, recipe: Recipe) -> Iterator[_Edit]:
    """For a retired size, the nearest of today's, unless it is much dearer, or the image that the pool will have does
    not start on it."""
    subject, name = Subject(recipe), str(pool.data.get("vm_size", ""))
    size = recipe.catalog.size(name)
    if size is None or size.retired is None:
        return
    today = size_of_today(subject, size)
    if today.today is None or today.is_dear:
        return
    today_size, image = recipe.catalog.size(today.today), subject.image
    if image is not None and image.retired is not None and (reference := successor(subject, image)):
        image = recipe.catalog.image(*reference.split(":"))
    if image is not None and today_size is not None and not fit.starts(today_size, image):
        return
    position = pool.document.position((pool.key, "vm_size"))
    if position.exact:
        edit = _replaced(position, today.today.upper() if name.isupper() else today.today, "size-retired")
        yield edit._replace(why=str(today.costs or ""))


def _image(pool: Section, recipe: Recipe) -> Iterator[_Edit]:
    """For a retired image, the current image that meets the pool's needs: containers, GPUs, InfiniBand; none while the
    user has to choose the size."""
    subject = Subject(recipe)
    image = subject.image
    if image is None or image.retired is None or not (today := successor(subject, image)):
        return
    if subject.size is not None and size_of_today(subject, subject.size).is_dear:
        return
    news = dict(zip(Reference._fields, today.split(":"), strict=True))
    path = (pool.key, "vm_configuration", "platform_image")
    if str(_below(pool.data, path[1:]).get("version", "latest")) != "latest":
        news["version"] = "latest"  # the other image does not have this version
    successor_image = recipe.catalog.image(*today.split(":"))
    if "node_agent" in _below(pool.data, path[1:]) and successor_image is not None:
        news["node_agent"] = successor_image.node_agent
    positions = pool.document.positions(((*path, name), False) for name in news)
    if any(not position.exact for position in positions.values()):
        return
    for ((*_, name), _), position in positions.items():
        yield _replaced(position, news[str(name)], "image-retired")


def _native(pool: Section, recipe: Recipe) -> Iterator[_Edit]:
    """Adds `native: true` to a pool with containers, because Batch itself runs them."""
    subject = Subject(recipe)
    if recipe.pool is None or not subject.containers or recipe.pool.vm_configuration.native:
        return
    for kind in IMAGE_KINDS:
        path = (pool.key, "vm_configuration", kind)
        image = _below(pool.data, path[1:])
        if "native" in image:
            yield _replaced(pool.document.position((*path, "native")), "true", NATIVE)
        elif image and pool.document.position(first := (*path, next(iter(image))), key=True).exact:
            yield _before(pool.document, first, "native", "true")


NATIVE = "containers-native"


def _below(data: Any, path: Path) -> dict[str, Any]:
    """The mapping at a path of the data; an empty one if it does not exist."""
    below = override.at(data, path)
    return below if isinstance(below, dict) else {}


def _before(yaml: Document, path: Path, key: str, value: str, rule: str = NATIVE) -> _Edit:
    """Adds a property before another one of the mapping, in the same style."""
    position = yaml.position(path, key=True)
    quote = position.style if position.style in ("'", '"') else ""
    line = yaml.text.rfind("\n", 0, position.start) + 1
    indent = yaml.text[line : position.start]
    end = "\r\n" if yaml.text[:line].endswith("\r\n") else "\n"
    after = f"{end}{indent.replace('-', ' ')}" if line and re.fullmatch(r"[ \t]*(- +)*", indent) else " "
    comma = "," if after == " " or quote == '"' else ""
    return _Edit(position.start, position.start, f"{quote}{key}{quote}: {value}{comma}{after}", rule)


def _replaced(position: Position, text: str, rule: str) -> _Edit:
    """The edit of a scalar; a number that must be a text gets quotes."""
    quote = position.style if position.style in ("'", '"') else "'" if re.fullmatch(r"[0-9.eE_+-]+", text) else ""
    return _Edit(position.start, position.end, f"{quote}{text}{quote}", rule)
