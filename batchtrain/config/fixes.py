"""Edits of a file's text for `config validate --fix` and `config migrate`.

An edit replaces one key or one scalar in place and keeps its quotes; comments, order and line endings are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from batchtrain.catalog import fit, sizes
from batchtrain.catalog.vm_images import Reference
from batchtrain.config import document, schema
from batchtrain.config.check.subject import IMAGE_KINDS, Subject
from batchtrain.config.check.vm_images import successor
from batchtrain.config.dialect import OLD_SECTIONS
from batchtrain.config.document import Document, Position
from batchtrain.config.load import Examined, Section
from batchtrain.config.masking import masked_yaml
from batchtrain.config.types import Path, Recipe
from batchtrain.errors import Problem

Files = Mapping[str, bytes]
Judge = Callable[[Files], Examined]
"""Reads the contents of files and returns their problems."""

ROUNDS = 20  # an edit can uncover a mistake below it
ANSWERED = frozenset({"renamed", "size-retired", "image-retired", "elsewhere", "gone"})
"""Rules about deprecated and retired values: `migrate` fixes them, or lists those that it cannot fix."""


class Fix(NamedTuple):
    """One edit: position, old text, new text, and the rule."""

    file: str
    line: int
    column: int
    old: str
    new: str
    rule: str

    def __str__(self) -> str:
        if not self.old:
            return f"{self.file}:{self.line}:{self.column}: `{self.new}` is added [{self.rule}]"
        return f"{self.file}:{self.line}:{self.column}: `{self.old}` is now `{self.new}` [{self.rule}]"


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


def fix(files: Files, judge: Judge) -> Fixed:
    """Fix every problem that has exactly one solution, and remove quotes from numbers."""
    return _settled(files, judge, _fixes)


def migrate(files: Files, judge: Judge) -> Fixed:
    """Replace deprecated names, and retired sizes and images; other mistakes are unchanged."""
    result = _settled(files, judge, _older)
    if not any(item.rule == "size-retired" for item in result.applied):
        return result
    before = judge(files)
    size = Subject(before.recipe).size
    remarks = tuple(item for item in before.problems if item.rule == "size-retired")
    return result._replace(notes=remarks if size and size.gpus else ())


def difference(before: Files, after: Files) -> str:
    """The changes as a unified diff, in which secrets are masked."""
    import difflib  # 6 ms, and only needed here

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
        insertion = edit.text.strip(", \r\n")
        fixes.append(Fix(yaml.file, *ruler.position(edit.start), _bare(old), _bare(insertion), edit.rule))
        parts += [text[end : edit.start], edit.text]
        end = edit.end
    mark = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
    new_content = mark + "".join([*parts, text[end:]]).encode()
    before, after = (document.parse(yaml.file, version)[1] for version in (content, new_content))
    return (None, []) if len(after) > len(before) else (new_content, fixes)


def _bare(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


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
    return edits


def _size(pool: Section, recipe: Recipe) -> Iterator[_Edit]:
    """For a retired size, today's size, unless the image that the pool will have does not start on it."""
    name = str(pool.data.get("vm_size", ""))
    size = recipe.catalog.size(name)
    today = sizes.today_for(size).today if size else None
    if size is None or size.retired is None or today is None:
        return
    subject, today_size = Subject(recipe), recipe.catalog.size(today)
    image = subject.image
    if image is not None and image.retired is not None and (reference := successor(subject, image)):
        image = recipe.catalog.image(*reference.split(":"))
    if image is not None and today_size is not None and not fit.starts(today_size, image):
        return
    position = pool.document.position((pool.key, "vm_size"))
    if position.exact:
        yield _replaced(position, today.upper() if name.isupper() else today, "size-retired")


def _image(pool: Section, recipe: Recipe) -> Iterator[_Edit]:
    """For a retired image, the current image that meets the pool's needs: containers, GPUs, InfiniBand."""
    subject = Subject(recipe)
    image = subject.image
    if image is None or image.retired is None or not (today := successor(subject, image)):
        return
    news = dict(zip(Reference._fields, today.split(":"), strict=True))
    path = (pool.key, "vm_configuration", "platform_image")
    if str(_below(pool.data, path[1:]).get("version", "latest")) != "latest":
        news["version"] = "latest"  # the other image does not have this version
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
        elif image:
            yield _before(pool.document, (*path, next(iter(image))), "native", "true")


NATIVE = "containers-native"


def _below(data: Any, path: Path) -> dict[str, Any]:
    """The mapping at a path of the data; an empty one if it does not exist."""
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _before(yaml: Document, path: Path, key: str, value: str) -> _Edit:
    """Adds a property before another one of the mapping, in the same style."""
    position = yaml.position(path, key=True)
    quote = position.style if position.style in ("'", '"') else ""
    line = yaml.text.rfind("\n", 0, position.start) + 1
    indent = yaml.text[line : position.start]
    end = "\r\n" if yaml.text[:line].endswith("\r\n") else "\n"
    after = f"{end}{indent}" if line and not indent.strip() else " "
    comma = "," if after == " " or quote == '"' else ""
    return _Edit(position.start, position.start, f"{quote}{key}{quote}: {value}{comma}{after}", NATIVE)


def _replaced(position: Position, text: str, rule: str) -> _Edit:
    """The edit of a scalar; a number that must be a text gets quotes."""
    quote = position.style if position.style in ("'", '"') else "'" if re.fullmatch(r"[0-9.eE_+-]+", text) else ""
    return _Edit(position.start, position.end, f"{quote}{text}{quote}", rule)
