"""The pages of `batchtrain help`: a place of one, and tables that a terminal has no room for."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys

import pytest

from batchtrain.cli.pages import _at, _narrow, pages
from batchtrain.config.reference import PAGE

TABLE = """\
# Title

| name | type | default | meaning |
|---|---|---|---|
| <a id="a.b"></a>`b` | text \\| list | | What it is. |
| `c` | number | 1 | Another. |

## `a.d`

| x | y |
|---|---|
| 1 | 2 |
"""


def test_a_row_is_shown_by_its_cells_a_heading_with_its_section_and_an_unknown_place_with_the_page() -> None:
    assert _at(TABLE, "a.b") == "# `a.b`\n\n- name: `b`\n- type: text \\| list\n- meaning: What it is."
    assert _at(TABLE, "a.d").startswith("## `a.d`\n\n| x | y |")
    assert _at(TABLE, "nowhere") == _at(TABLE, "") == TABLE


def test_a_table_of_many_columns_is_a_list_with_every_row() -> None:
    shown = _narrow(TABLE)
    assert "- `b`\n  - type: text \\| list\n  - meaning: What it is.\n- `c`\n  - type: number" in shown
    assert "| x | y |\n|---|---|\n| 1 | 2 |" in shown


def test_every_page_can_be_made_narrow_and_the_page_of_the_configuration_is_one() -> None:
    known = pages()
    assert PAGE.rpartition("/")[2].removesuffix(".md") in known
    assert all(_narrow(path.read_text(encoding="utf-8")) for path in known.values())


@pytest.mark.parametrize("topic", ["help", "run", "pool"])
def test_help_on_a_terminal_shows_a_commands_help(topic: str) -> None:
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "batchtrain.cli", "help", topic]
    process = subprocess.Popen(program, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # how a terminal says that the other side is gone
        while part := os.read(ours, 65536):
            said += part
    os.close(ours)
    assert process.wait() == 0, said
    assert said.count(b"Usage:") == 1
