"""`batchtrain help`: the pages of the documentation, which are part of the package."""

from __future__ import annotations

import difflib
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click

from batchtrain.cli.app import root
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.unknown import FIRST_WORDS
from batchtrain.errors import NotFound
from batchtrain.shipped import shipped

WIDEST = 120
COLUMNS = 4
"""A table with this many columns is shown as a list."""
LEFT_OUT = frozenset({"README", "adr"})


class Page(NamedTuple):
    """A page in the list."""

    topic: str
    about: str


def topics(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The topics for shell completion."""
    return [topic for topic in pages() if topic.startswith(incomplete)]


def command(topic: str | None) -> None:
    """Show a page of the documentation, or list the pages.

    TOPIC#PLACE shows one section or row of the page, such as config#pool_specification.vm_size. For a command without a
    page, shows its --help.
    """
    paths = pages()
    if topic is None:
        headings = {name: re.search(r"^# (.*)", path.read_text(encoding="utf-8"), re.M) for name, path in paths.items()}
        show_rows([Page(name, heading[1] if heading else "") for name, heading in headings.items()])
        return
    name, _, anchor = topic.partition("#")
    if name in root.doors and name not in paths:
        of_command = root.member(name)
        text = of_command.get_help(
            of_command.context_class(of_command, info_name=name, parent=click.get_current_context().find_root())
        )
        show({"topic": name, "text": text}, text)
        return
    if name not in paths:
        raise NotFound(f"no page is called {name}; {_instead(name, paths)}")
    text = _at(paths[name].read_text(encoding="utf-8"), anchor)
    if name in root.doors:
        say(f"the page {name}; `batchtrain {name} --help` describes the command")
    if settings().output != "table" or sys.stdout is None or not sys.stdout.isatty():
        show({"topic": name, "text": text}, text.rstrip("\n"))
    else:
        _leaf(text)


def _instead(word: str, paths: Mapping[str, Path]) -> str:
    """What to read in place of a page that does not exist."""
    if word in FIRST_WORDS:
        return FIRST_WORDS[word]
    if near := difflib.get_close_matches(word, paths, n=1, cutoff=0.75):
        return f"did you mean `batchtrain help {near[0]}`?"
    counts = {name: _mentions(path, word) for name, path in paths.items()}
    best = max(counts, key=lambda name: counts[name])
    if any(counts[best][1:]):
        return f"`batchtrain help {best}` is about it"
    near = difflib.get_close_matches(word, paths, n=1, cutoff=0.4)
    return f"did you mean `batchtrain help {near[0]}`?" if near else "`batchtrain help` lists the pages"


def _mentions(path: Path, word: str) -> tuple[bool, int, int]:
    """Whether a page explains a word, and how often it has the word: in its headings and bold words, and anywhere."""
    text = path.read_text(encoding="utf-8")
    pattern = rf"(?i)(?<![\w-]){re.escape(word)}(?![\w-])"
    heads = len(re.findall(pattern, "\n".join(re.findall(r"^#+ .*|\*\*.*?\*\*", text, re.M))))
    return path.parent.name != "reference" and heads > 0, heads, len(re.findall(pattern, text))


def pages() -> dict[str, Path]:
    """Every page by its topic."""
    files = sorted(shipped("docs").rglob("*.md"))
    return {path.stem: path for path in files if not LEFT_OUT.intersection((path.stem, path.parent.name))}


def _at(text: str, anchor: str) -> str:
    """The part of a page at an anchor: the section of that heading, otherwise the row of a table, otherwise the
    page."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if anchor and re.fullmatch(rf"#+ `?{re.escape(anchor)}`?", line):
            end = next((at for at, later in enumerate(lines) if at > number and later.startswith("#")), len(lines))
            return "\n".join(lines[number:end])
    row = next((number for number, line in enumerate(lines) if anchor and f'id="{anchor}"' in line), None)
    return text if row is None or not lines[row].startswith("|") else _row(lines, row, anchor)


def _row(lines: list[str], row: int, anchor: str) -> str:
    """The row of a table as a list."""
    head = row
    while lines[head - 1].startswith("|"):
        head -= 1
    return "\n".join([f"# `{anchor}`", "", *(f"- {line}" for line in _named(_cells(lines[head]), _cells(lines[row])))])


def _cells(line: str) -> list[str]:
    return [re.sub("<a .*?</a>", "", cell).strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _named(names: list[str], values: list[str]) -> list[str]:
    return [f"{name}: {value}" for name, value in zip(names, values, strict=True) if value]


def _narrow(text: str) -> str:
    """The page with each row of its widest tables as a list: a terminal would cut the words of so many columns."""
    result: list[str] = []
    names: list[str] = []
    for line in text.splitlines():
        cells = _cells(line) if line.startswith("|") else []
        if len(cells) < COLUMNS:
            result, names = [*result, line], []
        elif not names:
            names = cells
        elif not set(line) <= set("|-: "):
            result += [f"- {cells[0]}", *(f"  - {cell}" for cell in _named(names[1:], cells[1:]))]
    return "\n".join(result)


def _leaf(text: str) -> None:
    """On a terminal: formatted by rich, in the pager if the page is longer than the screen. No colours and links,
    because pagers handle them differently."""
    from rich import console, markdown  # 60 ms, and only for a terminal

    terminal = console.Console(color_system=None, width=min(shutil.get_terminal_size().columns, WIDEST))
    with terminal.capture() as capture:
        terminal.print(markdown.Markdown(_narrow(text), hyperlinks=False))
    page = "\n".join(line.rstrip() for line in capture.get().splitlines())
    if page.count("\n") + 2 < shutil.get_terminal_size().lines:
        print(page)
    else:
        click.echo_via_pager(page)
