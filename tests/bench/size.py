"""Print how large the package is: `python tests/bench/size.py`. Not a test: nothing fails.

Lines by folder, the longest files and functions, groups of modules that import each other, and file names that occur
more than once. `--against COMMIT` prints only the lines by folder, then and now.
"""

from __future__ import annotations

import ast
import io
import statistics
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests import modules  # noqa: E402

SHOWN = 10
CODE = ("*.py", "*.sh", "*.js", "*.css", "*.html")


class Function(NamedTuple):
    lines: int
    where: str


def main() -> None:
    lines = {path: len(path.read_bytes().splitlines()) for kind in CODE for path in modules.PACKAGE.rglob(kind)}
    if sys.argv[1:2] == ["--against"]:
        compare(sys.argv[2], folders_of(lines))
        return
    folders = (f"{count:6,}  {folder}" for folder, count in folders_of(lines).most_common())
    report(f"{sum(lines.values()):,} lines in {len(lines)} files, by folder", folders)
    report("longest files", (f"{count:6,}  {within(path)}" for path, count in longest(lines)))
    functions = [item for path in modules.files() for item in functions_of(path)]
    over = sum(1 for item in functions if item.lines > 50)
    median = statistics.median(item.lines for item in functions)
    title = f"{len(functions):,} functions, median {median:.0f} lines, {over} above 50; the longest"
    report(title, (f"{item.lines:6,}  {item.where}" for item in sorted(functions, reverse=True)[:SHOWN]))
    circles = modules.circles(modules.graph())
    report(f"{len(circles)} import circles", (f"  {' <-> '.join(circle)}" for circle in circles))
    names = Counter(path.name for path in modules.files() if not path.name.startswith("__"))
    twice = [(name, count) for name, count in names.most_common() if count > 1]
    report(f"{len(twice)} file names occur more than once", (f"{count:6}  {name}" for name, count in twice))


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


def functions_of(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(length, f"{within(path)}:{node.lineno} {node.name}")


if __name__ == "__main__":
    main()
