"""The corpus of mistakes and the messages that users read about them: `python -m tests.mistakes` shows what changed.

Every mistake is stored in `tests/golden/messages/` beside its messages: a new property or recipe changes none of them.
`--write` stores the messages of today; `--new` also makes the generated mistakes anew, from recipes and reference.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from batchtrain.config import check, load, reference
from batchtrain.config.types import read_path
from tests.properties import BASE, FILE_OF, path_of
from tests.reference_page import type_of

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "tests" / "golden" / "messages"
GENERATED = STORED / "generated.txt"
WRITTEN = STORED / "written.txt"
START, END = "=== ", "---\n"
CHECKS = frozenset(rule.name for rule in check.RULES) - {"renamed", "placeholder", "variable-unset"}
"""Rules across properties and files, which have tests of their own."""
FILES = ("credentials", "config", "pool", "jobs")


class Mistake(NamedTuple):
    """One edit of one file: `base` is a file of a recipe, or a section of the smallest configuration."""

    base: str
    path: str
    edit: str
    """`rename` the key to `value`, `drop` it, or `set` it to `value`."""
    value: Any = None

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)


def messages(name: str, text: str) -> list[str]:
    """What a user reads about one file, without the rules across properties and files."""
    seen = load.examine(Path("somewhere"), {name: text.encode("utf-8", "surrogatepass")})
    problems = [problem for problem in seen.problems if problem.rule not in CHECKS]
    return [f"{problem}{f' => {problem.fix}' if problem.fix else ''}" for problem in problems]


# --- mistakes that are edits ----------------------------------------------------------------------------------------


def file_of(mistake: Mistake) -> str:
    """The name of the file that a mistake stands in."""
    return f"{FILE_OF.get(mistake.base, Path(mistake.base).stem)}.yaml"


def text_of(mistake: Mistake) -> str:
    """The file with the mistake in it."""
    *above, last = read_path(mistake.path)
    data = _data(mistake.base)
    container = data
    for step, following in itertools.pairwise([*above, last]):
        container = _entered(container, step, [] if isinstance(following, int) else {})
    _edited(container, last, mistake)
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return text


def _data(base: str) -> Any:
    if base in FILE_OF:
        return json.loads(json.dumps({base: BASE.get(base, {})}))
    return yaml.load((ROOT / base).read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


def _entered(container: Any, step: str | int, empty: Any) -> Any:
    if isinstance(container, dict):
        return container.setdefault(step, empty)
    if step == len(container):
        container.append(empty)
    return container[step]


def _edited(container: Any, last: str | int, mistake: Mistake) -> None:
    if mistake.edit == "set" and last == (len(container) if isinstance(container, list) else None):
        container.append(mistake.value)
    elif mistake.edit == "set":
        container[last] = mistake.value
    elif mistake.edit == "drop":
        del container[last]
    else:
        items = [(mistake.value if key == last else key, value) for key, value in container.items()]
        container.clear()
        container.update(items)


# --- making them ----------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Any, ...]] = {
    "whole number": ("many", "1.5", "-99", "99999999999", ["1"], {"a": "b"}, "1_000", "012", "", "+4", "1,000"),
    "number": ("much", "50%", ".5", "-7", "1e400", ["1"], {"a": "b"}, "1,5", "1 000"),
    "true or false": ("yes", "maybe", "2", ["true"], {"a": "b"}, "", "off", "'true'"),
    "text": (["x"], {"a": "b"}, "", []),
    "list": ("x", {"a": "b"}, [["x"]], [None], "", [{"a": "b"}]),
    "mapping": ("x", ["x"], {"": "x"}, {"a": ["b"]}, {"nonsense": "x"}, ""),
}


def generated() -> Iterator[Mistake]:
    """Misspelt, missing and ill-typed properties of the recipes; then an ill-typed value of every property."""
    seen: set[str] = set()
    for path in sorted(ROOT.glob("recipes/*/config/*.yaml")):
        if path.stem in FILES:
            base = str(path.relative_to(ROOT))
            yield from _of_recipe(base, _data(base), "", seen)
    turns = {kind: itertools.cycle(values) for kind, values in WRONG.items()}
    for block in reference.blocks():
        place = next((place for place in block.paths if place and place[0] in FILE_OF), None)
        for item in block.properties if place else ():
            assert place is not None
            value = _wrong(item, turns)
            yield Mistake(place[0], path_of((*place, item.name)), "set", value)


def _of_recipe(base: str, data: Any, path: str, seen: set[str]) -> Iterator[Mistake]:
    if isinstance(data, list):
        for number, item in enumerate(data):
            yield from _of_recipe(base, item, f"{path}[{number}]", seen)
    for key, value in data.items() if isinstance(data, dict) else ():
        below = f'{path}."{key}"' if path and "." in key else f"{path}.{key}".removeprefix(".")
        place = ".".join(str(step) for step in read_path(below) if not isinstance(step, int))
        if place not in seen and len(key) > 2:
            seen.add(place)
            yield Mistake(base, below, "rename", key[:-3] + key[-2] + key[-3] + key[-1])
            yield Mistake(base, below, "rename", key.replace("_", "-") if "_" in key else f"{key}s")
            yield Mistake(base, below, "drop")
            yield Mistake(base, below, "set", {"x": "y"} if isinstance(value, str) else "x")
        yield from _of_recipe(base, value, below, seen)


def refused(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """The edits that are mistakes: a user reads a message about each."""
    return [mistake for mistake in mistakes if messages(file_of(mistake), text_of(mistake))]


def _wrong(item: reference.Property, turns: dict[str, Iterator[Any]]) -> Any:
    if type_of(item.kind).startswith("one of"):
        word = type_of(item.kind).split("`")[1]
        return word[:-1] if len(word) > 4 else "nonsense"
    for kind, values in turns.items():
        if type_of(item.kind).startswith(kind):
            return next(values)
    return next(turns["list" if type_of(item.kind).startswith("list") else "mapping"])


# --- stored mistakes ------------------------------------------------------------------------------------------------


def stored() -> list[Mistake]:
    """The generated mistakes as they were stored."""
    lines = GENERATED.read_text(encoding="utf-8").splitlines()
    return [Mistake(*json.loads(line.removeprefix(START))) for line in lines if line.startswith(START)]


def written() -> list[tuple[str, str]]:
    """The mistakes written by hand: `file: what it is`, and the file's text."""
    blocks = re.split(f"(?m)^{START}", WRITTEN.read_text(encoding="utf-8"))[1:]
    titles = (block.partition("\n") for block in blocks)
    return [(title, body.partition(END)[0]) for title, _, body in titles]


def golden(mistakes: list[Mistake]) -> dict[Path, str]:
    """Both golden files as they would be now."""
    ours = "".join(f"{START}{edit}\n{_lines(file_of(edit), text_of(edit))}" for edit in mistakes)
    hands = "".join(f"{START}{name}\n{text}{END}{_lines(name.partition(':')[0], text)}" for name, text in written())
    return {GENERATED: ours, WRITTEN: hands}


def _lines(file: str, text: str) -> str:
    return "".join(f"{message}\n" for message in messages(file, text))


def difference(path: Path, now: str) -> str:
    """Before and after, as a unified diff."""
    before = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, now.splitlines(keepends=True), "before", "after"))


def main() -> None:
    mistakes = refused(generated()) if "--new" in sys.argv else stored()
    now = golden(mistakes)
    for path, text in now.items():
        print(difference(path, text) if path.exists() else "", end="")
        if "--write" in sys.argv:
            path.write_text(text, encoding="utf-8")
    print(f"{len(mistakes)} generated mistakes, {len(written())} written by hand")


if __name__ == "__main__":
    main()
