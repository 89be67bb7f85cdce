"""docs/explanation/architecture.md as data: its picture, its journeys and its recipes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/explanation/architecture.md"
SEARCH = re.compile(r"`(grep [^`]+)`")
LABEL = re.compile(r'^ *(\w+)\["([^"]+)"\]', re.M)
ARROWS = re.compile(r'^ *(\w+)(?:\["[^"]+"\])? --> (.+)$', re.M)


class Hop(NamedTuple):
    """A step of a journey: client, emulator or node; the file, and the function."""

    where: str
    file: str
    function: str


class Recipe(NamedTuple):
    """How to add something: the command that finds an example of it, and the files that the page names."""

    search: str
    files: tuple[str, ...]

    @property
    def word(self) -> str:
        """What the command searches for."""
        return self.search.split()[2]


def sections(title: str) -> dict[str, str]:
    """The texts below the headings of level 3 in a section of level 2."""
    [section] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return dict(re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", section, re.M | re.S))


def rows(text: str) -> Iterator[list[str]]:
    """The cells of a table without its head; of a cell that begins with a name in backticks, the name."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return ([re.sub(r"^`([^`]+)`.*", r"\1", cell) for cell in line.strip("| ").split(" | ")] for line in lines[2:])


def journeys() -> dict[str, tuple[Hop, ...]]:
    """The steps of each journey, by its title."""
    return {title: tuple(Hop(*cells[:3]) for cells in rows(text)) for title, text in sections("Journeys").items()}


def recipes() -> dict[str, Recipe]:
    """The recipes by their titles."""
    return {
        title: Recipe(SEARCH.findall(text)[0], tuple(cells[0] for cells in rows(text)))
        for title, text in sections("How to add something").items()
    }


def parts() -> dict[str, str]:
    """The box of the picture that each part of the package is in, by the part's name without `.py`."""
    return {
        re.sub(r"\.py$|/$", "", name): box
        for box, label in LABEL.findall(_picture())
        for name in re.findall(r"\w+(?:\.py|/)", label)
    }


def arrows() -> set[tuple[str, str]]:
    """The solid arrows of the picture, box to box."""
    return {(start, end) for start, ends in ARROWS.findall(_picture()) for end in _boxes(ends)}


def _boxes(ends: str) -> Iterator[str]:
    return (re.split(r"\[", end.strip())[0] for end in ends.split("&"))


def _picture() -> str:
    return PAGE.read_text(encoding="utf-8").partition("```mermaid\n")[2].partition("```")[0]
