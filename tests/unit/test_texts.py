"""Pages and the package's own texts: every link leads somewhere, and no phrase is one that readers must decode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests import modules

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {ROOT / "docs/reference/config.md", ROOT / "docs/reference/emulator-operations.md"}
"""Their phrases are those of the package's own texts; their links are checked as everywhere."""
PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "docker/*.md", "recipes/*/README.md") for path in ROOT.glob(pattern)
)
FENCED = re.compile(r"^ *```.*?^ *```$", flags=re.M | re.S)
MODULES = sorted((ROOT / "batchtrain").rglob("*.py"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
HARD_TO_READ = {
    r"\bof no account\b": "ignored",
    r"\bnobody\b": "the user, no client, untested",
    r"\b(is|are) said\b": "is reported, is documented",
    r"\bas it should be\b": "the name of the fault",
    r"\bwhoever\b": "the user who, any program that",
    r"\bthat which\b": "what",
    r"\bgo(es)? on\b": "continues",
    r"\bsees? to it\b": "ensures",
    r"\ba person('s)?\b": "a user",
}
"""Pattern -> what to write in its place. See "Plain English" in the style guide."""
HARD_IN_REWRITTEN = HARD_TO_READ | {
    r"\bsomebody\b": "another user, another program",
    r"\b(is|are|was|were) told\b": "gets, receives",
    r"\b(is|are) looked at\b": "is checked",
    r"'s matter\b": "who does it",
    r"\bstands? above\b": "is above",
    r"\bown words\b": "message",
    r"\bcomes? home\b": "is fetched",
    r"\bwhat bec[oa]mes? of\b": "the result for",
    r"\bheld against\b": "compared with",
    r"\bsays it\b": "set by",
}
"""Further phrases that the folders below have no longer."""
REWRITTEN = tuple(ROOT / "batchtrain" / folder for folder in (
    "catalog", "cli", "config", "containers", "diagnosis", "emulator", "frameworks", "launchers", "plan", "runs",
    "runtime", "service", "storage",
))  # fmt: skip
SCRIPTS = sorted(path for folder in REWRITTEN for path in folder.rglob("*.sh"))


def prose(path: Path) -> str:
    """The page without its fenced blocks, whose lines stay as empty ones."""
    return FENCED.sub(lambda block: "\n" * block[0].count("\n"), path.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """The anchors of a page: of its headings, as GitHub makes them, and its own."""
    text = prose(path)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def broken(path: Path) -> Iterator[str]:
    for link in LINK.findall(prose(path)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def test_every_link_of_a_page_leads_somewhere() -> None:
    assert {name(page): found for page in PAGES if (found := list(broken(page)))} == {}


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and other texts of a module, each on one line."""
    for node in modules.nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())


def hard(lines: Iterable[tuple[int, str]], phrases: Mapping[str, str] = HARD_TO_READ) -> list[str]:
    """Every phrase of the lines that is hard to read, with what to write in its place."""
    suspicious = re.compile("|".join(phrases), flags=re.I)
    return [
        f"line {number}: {found[0]!r}: write {better!r}"
        for number, line in lines
        if suspicious.search(line)
        for pattern, better in phrases.items()
        for found in re.finditer(pattern, line, flags=re.I)
    ]


def test_a_page_has_no_phrase_that_must_be_read_twice() -> None:
    texts = {name(page): enumerate(prose(page).splitlines(), start=1) for page in PAGES if page not in GENERATED}
    assert {page: found for page, lines in texts.items() if (found := hard(lines))} == {}


def test_a_module_has_no_phrase_that_must_be_read_twice() -> None:
    rewritten = {module for module in MODULES if any(folder in module.parents for folder in REWRITTEN)}
    phrases = {module: HARD_IN_REWRITTEN if module in rewritten else HARD_TO_READ for module in MODULES}
    assert {name(path): found for path in MODULES if (found := hard(strings(path), phrases[path]))} == {}


def test_a_script_has_no_phrase_that_must_be_read_twice() -> None:
    texts = {name(script): enumerate(script.read_text(encoding="utf-8").splitlines(), start=1) for script in SCRIPTS}
    assert {script: found for script, lines in texts.items() if (found := hard(lines, HARD_IN_REWRITTEN))} == {}


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_no_text_installs_batchtrain_from_an_index_where_the_name_is_not_ours() -> None:
    installs = re.compile(r"pip install [^`\n&]*\bbatchtrain\b.*")
    texts = {name(path): path.read_text(encoding="utf-8") for path in (*PAGES, *MODULES, *NOTEBOOKS)}
    assert {path: found for path, text in texts.items() if (found := installs.findall(text))} == {}


def test_no_line_of_javascript_has_more_than_120_columns() -> None:
    scripts = [path for path in (ROOT / "batchtrain").rglob("*.js") if "uplot" not in path.parts]
    lines = ((path.name, line) for path in scripts for line in path.read_text(encoding="utf-8").splitlines())
    assert [(file, line) for file, line in lines if len(line) > 120] == []
