"""The documentation site: `python -m tests.site` builds it, without internet, from docs/ and the code.

The pages of the commands, the checks, the Python API, the recipes and the design decisions are made for the site alone.
The pictures are taken by the build where Chromium is installed. It needs the extra `docs`. The site is in
build/docs/site.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

import batchtrain
from batchtrain.cli.app import root
from batchtrain.cli.help import Doors, docstring
from batchtrain.config.check import RULES
from batchtrain.frameworks.block import Block
from tests import environments

ROOT = environments.ROOT
BUILD = ROOT / "build" / "docs"
CONFIGURATION = ROOT / "zensical.toml"
LINK = re.compile(r"\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
ITEM = re.compile(r"(?P<indent> *)(?P<marker>(?:[-*+]|\d+\.) +)")
FENCE = re.compile(r" *(?:```|~~~)")


class NotBuilt(Exception):
    """The site has a fault: each line names one."""


def build(
    folder: Path, python: Path = Path(sys.executable), take: Callable[[Path], object] = lambda images: None
) -> Path:
    """Build the site in `folder` with the packages of `python`, and check its links. Returns its directory.

    take: replaces the committed pictures, and adds more.
    """
    stage(folder)
    take(folder / "docs" / "images")
    _write(folder / "docs" / "pictures.md", "\n".join(_pictures(folder / "docs" / "images")))
    command = (python, "-m", "zensical", "build", "--strict", "--clean")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuilt(done.stdout + done.stderr)
    site = folder / "site"
    if faults := [*unnamed(folder), *broken(site)]:
        raise NotBuilt("\n".join(faults))
    return site


def stage(folder: Path) -> None:
    """Write what the site is built from: its configuration, the pages, and the package, whose docstrings are read."""
    shutil.copytree(ROOT / "batchtrain", folder / "batchtrain", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CONFIGURATION, folder)
    pages = _pages()
    for source, target in pages.items():
        page = source.suffix == ".md"
        content = indented(_linked(source, pages, folder / "docs")) if page else source.read_bytes()
        _write(folder / "docs" / target, content)
    for target, text in _generated().items():
        _write(folder / "docs" / target, text)


def indented(text: str) -> str:
    """The page for Python-Markdown, which wants four spaces for each level of a list and a blank line before it."""
    lines: list[str] = []
    levels: list[int] = []
    fenced = False
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        item = None if fenced else ITEM.match(line)
        if line.strip() and not fenced:
            levels = [column for column in levels if column <= indent]
            if item and not levels and lines and lines[-1].strip() and not ITEM.match(lines[-1]):
                lines.append("")
        column = levels[-1] if levels else 0
        lines.append(" " * (4 * len(levels)) + line[min(column, indent) :] if line.strip() else "")
        if item:
            levels.append(item.end())
        if FENCE.match(line):
            fenced = not fenced
    return "\n".join(lines) + "\n"


def _pages() -> Mapping[Path, str]:
    """Every file of the repository that is a part of the site, and its path there."""
    docs = ROOT / "docs"
    recipes = sorted((ROOT / "recipes").glob("*/README.md"))
    return {
        **{path: path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*")) if path.is_file()},
        docs / "README.md": "index.md",
        ROOT / "docker" / "README.md": "docker.md",
        ROOT / "CHANGELOG.md": "changes.md",
        ROOT / "CONTRIBUTING.md": "contributing.md",
        **{path: f"recipes/{path.parent.name}.md" for path in recipes},
        **{path: f"schemas/{path.name}" for path in sorted((ROOT / "schemas").glob("*.json"))},
    }


INDEXES = {"docs/adr": "adr/index.md", "schemas": "schemas/index.md", "recipes": "recipes/index.md"}
"""Directories of the repository that pages link to, and the page of the site that lists them."""


def _linked(source: Path, pages: Mapping[Path, str], site: Path) -> str:
    """The text of a page whose links lead to pages of the site; a file that is no page is copied to files/."""
    here = Path(pages[source]).parent

    def moved(link: re.Match[str]) -> str:
        if "://" in link[0] or not link["target"]:
            return link[0]
        path = (source.parent / link["target"]).resolve()
        name = path.relative_to(ROOT).as_posix()
        target = pages.get(path) or INDEXES.get(name)
        if not target:
            target = f"files/{name}.txt"
            _write(site / target, path.read_bytes())
        return f"]({os.path.relpath(target, here)}{link['anchor'] or ''})"

    return LINK.sub(moved, source.read_text(encoding="utf-8"))


def _write(file: Path, content: str | bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def _generated() -> Mapping[str, str]:
    """The pages that only the site has."""
    return {
        "reference/commands.md": "\n".join(_commands()),
        "reference/checks.md": "\n".join(_checks()),
        "reference/python.md": "\n".join(_python()),
        "recipes/index.md": _index("Recipes", "recipes/*/README.md", "{0.parent.name}.md"),
        "adr/index.md": _index("Design decisions", "docs/adr/*.md", "{0.name}"),
        "schemas/index.md": _index("JSON Schemas", "schemas/*.json", "{0.name}"),
    }


def _index(title: str, pattern: str, target: str) -> str:
    files = sorted(ROOT.glob(pattern))
    return "\n".join((f"# {title}\n", *(f"* [{_title(file)}]({target.format(file)})" for file in files), ""))


def _title(file: Path) -> str:
    """The heading of a page, or the name of another file."""
    heading = re.search(r"^# (.+)$", file.read_text(encoding="utf-8"), re.M) if file.suffix == ".md" else None
    return heading[1] if heading else file.name


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "Every command takes the [options of all commands](command-line.md) too, before or after its verb.\n"
    for name in root.doors:
        yield f"## batchtrain {name}\n"
        context = click.Context(root.member(name), info_name=name, parent=click.Context(root, info_name="batchtrain"))
        yield from _described(context)


def _described(context: click.Context) -> Iterator[str]:
    """The help of a command, or of a group with all its commands."""
    command = context.command
    text = command.help if isinstance(command, Doors) else docstring(command.function)
    yield f"{inspect.cleandoc(text or '').replace(chr(8), '')}\n"
    if not isinstance(command, Doors):
        yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
        yield from _options(command, context)
        return
    for name in command.doors:
        yield f"### {context.command_path} {name}\n"
        yield from _described(click.Context(command.member(name), info_name=name, parent=context))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    shared = {parameter.name for parameter in root.get_params(context)}
    own = [option for option in command.params if isinstance(option, click.Option) and option.name not in shared]
    rows = [record for option in own if (record := option.get_help_record(context))]
    yield from _table(("option", "meaning"), ((f"`{names}`", text) for names, text in rows)) if rows else ()


def _checks() -> Iterator[str]:
    yield "# Checks\n"
    yield "`batchtrain config validate` and every command that changes something run these checks."
    yield "`--ignore NAME` silences one.\n"
    rows = (
        (f"`{rule.name}`", rule.level, rule.sentence, ", ".join(f"`{part}`" for part in rule.reads)) for rule in RULES
    )
    yield from _table(("name", "level", "requirement", "reads"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
    yield ""


def _python() -> Iterator[str]:
    yield "# Python API\n"
    yield f"```python\nimport batchtrain as bt\n```\n\n{inspect.cleandoc(batchtrain.__doc__ or '').splitlines()[0]}\n"
    for name in batchtrain.__all__:
        value = getattr(batchtrain, name)
        if isinstance(value, type) and issubclass(value, Block):
            yield from _block(name, inspect.cleandoc(value.__doc__ or "").splitlines())
        elif not name.startswith("_"):
            yield f"::: batchtrain.{name}\n"


def _block(name: str, text: list[str]) -> Iterator[str]:
    """A block of jobs.yaml: its first sentence, and its keywords as a table."""
    yield f"## {name}\n\n{text[0]}\n"
    rows = (line.split(": ", 1) for line in text[1:] if ": " in line)
    yield from _table(("keyword", "meaning"), ((f"`{keyword}`", meaning) for keyword, meaning in rows))


def _pictures(images: Path) -> Iterator[str]:
    yield "# Pictures\n"
    yield "What the terminal, a notebook and each page of the dashboard show, light and dark.\n"
    for file in sorted(images.iterdir(), key=lambda file: (file.suffix != ".svg", file.stem)):
        yield f"## {file.stem.replace('-', ' ').capitalize()}\n\n![{file.stem}](images/{file.name})\n"


def take_pictures(images: Path) -> None:
    """Take the pictures in this machine's Chromium; without one, say so and keep the committed pictures."""
    try:
        import pytest  # the site itself needs only the extra `docs`

        from tests import moving_picture, screenshots
    except ImportError as error:
        print(f"the committed pictures are shown: {error} (pip install -e '.[test,browser]')", file=sys.stderr)
        return
    try:
        screenshots.take(images)
        if shutil.which("tmux"):
            moving_picture.write(images / moving_picture.PICTURE.name)
    except pytest.skip.Exception as reason:
        print(f"the committed pictures are shown: {reason}", file=sys.stderr)


def unnamed(folder: Path) -> Iterator[str]:
    """Pages of how-to guides, reference and explanation that the navigation lacks."""
    navigation = (folder / CONFIGURATION.name).read_text(encoding="utf-8")
    for page in sorted((folder / "docs").rglob("*.md")):
        name = page.relative_to(folder / "docs").as_posix()
        if name.split("/")[0] in ("tutorial", "how-to", "reference", "explanation") and f'"{name}"' not in navigation:
            yield f"{CONFIGURATION.name}: `nav` lacks {name}"


class _Page(HTMLParser):
    """The anchors, the links and the loaded files of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        link = values.get("href") or values.get("src")
        if link and (tag == "link" or "src" in values):
            self.loaded.append(link)
        if link:
            self.links.append(link)


def broken(site: Path) -> Iterator[str]:
    """Links of the pages that lead nowhere, and files that a page loads from another server."""
    pages = {file: _Page(file) for file in sorted(site.rglob("*.html")) if file.name != "404.html"}
    for file, page in pages.items():
        name = file.relative_to(site)
        yield from (f"{name} loads {url}" for url in page.loaded if urlsplit(url).netloc)
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (file.parent / unquote(url.path)).resolve() if url.path else file
            known = pages.get(target)
            if not target.exists() or (known and url.fragment and unquote(url.fragment) not in known.anchors):
                yield f"{name}: broken link {link}"


def main() -> int:
    """Build the site and print where it is, or its faults."""
    shutil.rmtree(BUILD, ignore_errors=True)
    try:
        print(build(BUILD, take=take_pictures) / "index.html")
    except NotBuilt as faults:
        print(faults, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
