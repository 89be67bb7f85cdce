"""How large the package is: `python tests/bench/size.py`.

Prints lines by folder, the longest files and functions, groups of modules that import each other, and file names that
occur more than once. `--against COMMIT` prints only the lines by folder, then and now.

`--check` compares the figures of the package with the table in `size.json` and exits with 1 if one is worse, as
`.ci/run` does. `--write` updates the table. Raising a figure is a line in a commit, whose message gives the reason.
"""

from __future__ import annotations

import ast
import functools
import io
import json
import re
import statistics
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests import modules  # noqa: E402

SHOWN = 10
CODE = ("*.py", "*.pyi", "*.sh", "*.js", "*.css", "*.html")
TABLE = Path(__file__).with_suffix(".json")
GENERATED = ("_data", "__pycache__")
"""Folders of the package with recipes, docs and schemas, as a wheel has them, and with bytecode."""

POINTERS = frozenset({
    "asked", "brought", "built", "chosen", "done", "due", "found", "given", "gone", "here", "kept", "known", "left",
    "listed", "lost", "made", "named", "one", "own", "place", "rest", "said", "seen", "sent", "shown", "standing",
    "taken", "theirs", "there", "told", "whole", "written",
})  # fmt: skip
PARTICIPLE = re.compile(r"_?[a-z]+ed")
TERMS = frozenset({
    "allowed", "changed", "closed", "completed", "created", "dedicated", "disabled", "enabled", "failed", "modified",
    "required", "seed", "speed", "started", "stopped", "succeeded",
})  # fmt: skip
"""Words that end like participles and are the usual name of a state, of a field of Azure Batch, or of a thing."""


class Function(NamedTuple):
    lines: int
    where: str


def main() -> None:
    if sys.argv[1:2] in (["--check"], ["--write"]):
        sys.exit(check(figures(), write=sys.argv[1] == "--write"))
    lines = code_lines()
    if sys.argv[1:2] == ["--against"]:
        compare(sys.argv[2], folders_of(lines))
        return
    folders = (f"{count:6,}  {folder}" for folder, count in folders_of(lines).most_common())
    report(f"{sum(lines.values()):,} lines in {len(lines)} files, by folder", folders)
    report("longest files", (f"{count:6,}  {within(path)}" for path, count in longest(lines)))
    functions = all_functions()
    over = sum(1 for item in functions if item.lines > 50)
    median = statistics.median(item.lines for item in functions)
    title = f"{len(functions):,} functions, median {median:.0f} lines, {over} above 50; the longest"
    report(title, (f"{item.lines:6,}  {item.where}" for item in sorted(functions, reverse=True)[:SHOWN]))
    circles = modules.circles(modules.graph())
    report(f"{len(circles)} import circles", (f"  {' <-> '.join(circle)}" for circle in circles))
    twice = names_used_again()
    report(f"{len(twice)} file names occur more than once", (f"{count:6}  {name}" for name, count in twice))


def check(figures: Mapping[str, float], *, write: bool) -> int:
    """Print each figure beside the table's; 1 if one is above it."""
    table: dict[str, float] = json.loads(TABLE.read_text(encoding="utf-8"))
    worse = [name for name in figures if name not in table or figures[name] > table[name]]
    print("   now   table")
    for name, figure in figures.items():
        print(f"{figure:6,}  {table.get(name, 0):6,}  {name}{'  WORSE' if name in worse else ''}")
    if write:
        TABLE.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    elif worse:
        print(f"{TABLE.name} allows less: make the package smaller, or raise the figure in a commit that says why")
    return 1 if worse and not write else 0


def figures() -> dict[str, float]:
    """What must not become worse, each with its name in the table."""
    lines = code_lines()
    functions = all_functions()
    return {
        "lines of code": sum(lines.values()),
        "lines of other files in the wheel": other_lines(set(lines)),
        "modules at the root of the package": len(list(modules.PACKAGE.glob("*.py"))),
        "floors: the longest chain of imports between folders and root modules": floors(),
        "imports inside functions": sum(map(deferred_imports, modules.files())),
        "private functions that are called once": sum(map(called_once, modules.files())),
        "percent of bound names that are a participle or pointer alone": pointer_share(),
        "lines of the longest file": max(lines.values()),
        "lines of the longest function": max(functions).lines,
        "file names that occur more than once": len(names_used_again()),
    }


def code_lines() -> dict[Path, int]:
    """Lines of each file with code."""
    files = (path for kind in CODE for path in modules.PACKAGE.rglob(kind) if not set(path.parts) & set(GENERATED))
    return {path: len(path.read_bytes().splitlines()) for path in files}


def other_lines(code: set[Path]) -> int:
    """Lines of what else the wheel has: data of the package and the Dockerfiles."""
    files = (path for folder in (modules.PACKAGE, ROOT / "docker") for path in folder.rglob("*") if path.is_file())
    other = (path for path in files if path not in code and not set(path.parts) & set(GENERATED))
    return sum(len(path.read_bytes().splitlines()) for path in other)


def floors() -> int:
    """How many folders and root modules the longest chain of imports passes through."""
    part = {name: name.split(".")[1] if "." in name else name for name in modules.graph()}
    edges: dict[str, set[str]] = {}
    for name, imported in modules.graph().items():
        edges.setdefault(part[name], set()).update(part[other] for other in imported if part[other] != part[name])

    @functools.cache
    def height(room: str) -> int:
        return 1 + max(map(height, edges[room]), default=0)

    return max(map(height, edges))


def called_once(path: Path) -> int:
    """Private functions of a module's top level whose only mention is one call."""
    functions = (node for node in modules.tree(path).body if isinstance(node, _FUNCTION))
    private = {function.name for function in functions if function.name.startswith("_")}
    mentions = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in modules.nodes(path)
        if isinstance(node, (ast.Name, ast.Attribute))
    )
    calls = {
        node.func.id for node in modules.nodes(path) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return sum(mentions[name] == 1 and name in calls for name in private)


def deferred_imports(path: Path) -> int:
    """Imports that stand in functions; only a command's door and a heavy library may have one."""
    functions = (node for node in modules.nodes(path) if isinstance(node, _FUNCTION))
    inner = (node for function in functions for node in ast.walk(function))
    return len({node for node in inner if isinstance(node, (ast.Import, ast.ImportFrom))})


def pointer_share() -> float:
    """Share of the names bound by assignments, loops, parameters and `except` that say nothing of what they hold."""
    names = Counter(name for path in modules.files() for name in bound_names(path))
    alone = sum(count for name, count in names.items() if name.lstrip("_") in POINTERS or _is_participle(name))
    return round(100 * alone / names.total(), 2)


def _is_participle(name: str) -> bool:
    return bool(PARTICIPLE.fullmatch(name)) and name.lstrip("_") not in TERMS


def bound_names(path: Path) -> Iterator[str]:
    for node in modules.nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def names_used_again() -> list[tuple[str, int]]:
    names = Counter(path.name for path in modules.files() if not path.name.startswith("__"))
    return [(name, count) for name, count in names.most_common() if count > 1]


def report(title: str, rows: Iterable[str]) -> None:
    print(title, *rows, "", sep="\n")


def compare(commit: str, now: Counter[str]) -> None:
    """Lines by folder at a commit, now, and the difference; folders with the same number are left out."""
    archive = subprocess.run(["git", "archive", commit, "batchtrain"], cwd=ROOT, capture_output=True, check=True).stdout
    then: Counter[str] = Counter()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if (file := tar.extractfile(member)) and any(path.match(kind) for kind in CODE):
                then[path.parent.as_posix()] += len(file.read().splitlines())
    rows = [*sorted({*then, *now}), "together"]
    then["together"], now["together"] = then.total(), now.total()
    changed = (row for row in rows if then[row] != now[row])
    report(f"  then     now  change  since {commit}", (_change(then[row], now[row], row) for row in changed))


def _change(then: int, now: int, row: str) -> str:
    return f"{then:6,}  {now:6,}  {now - then:+6,}  {row}"


def folders_of(lines: dict[Path, int]) -> Counter[str]:
    folders: Counter[str] = Counter()
    for path, count in lines.items():
        folders[path.relative_to(modules.PACKAGE.parent).parent.as_posix()] += count
    return folders


def longest(lines: dict[Path, int]) -> list[tuple[Path, int]]:
    return Counter(lines).most_common(SHOWN)


def within(path: Path) -> str:
    return path.relative_to(modules.PACKAGE).as_posix()


def all_functions() -> list[Function]:
    return [item for path in modules.files() for item in functions_of(path)]


def functions_of(path: Path) -> Iterator[Function]:
    for node in modules.nodes(path):
        if isinstance(node, _FUNCTION):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(length, f"{within(path)}:{node.lineno} {node.name}")


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

if __name__ == "__main__":
    main()
