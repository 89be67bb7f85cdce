"""The answers to commands of Batch Shipyard, and the pages for users of other tools, held against the commands that
exist."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from batchtrain.cli.app import root
from batchtrain.cli.shipyard import ANSWERS, PAGE
from tests import shipyard_page

PAGES = sorted(shipyard_page.FILE.parent.glob("from-*.md"))


def refusal(words: Sequence[str]) -> str:
    """The message for a command that does not exist; empty for one that exists."""
    at: click.Command = root
    context = click.Context(root, info_name="batchtrain")
    rest = list(words)
    while isinstance(at, click.Group):
        try:
            name, child, rest = at.resolve_command(context, rest)
        except click.UsageError as error:
            return error.message
        assert child is not None
        at, context = child, click.Context(child, info_name=name, parent=context)
    return ""


def test_all_commands_of_batch_shipyard_have_an_answer() -> None:
    assert len(ANSWERS) == 105


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_for_users_of_other_tools_exists(page: Path) -> None:
    commands = re.findall(r"`batchtrain ([a-z][^`]+)`", page.read_text(encoding="utf-8"))
    assert commands
    assert [command for command in commands if refusal(command.split())] == []


def test_a_command_of_batch_shipyard_exists_or_is_answered() -> None:
    refused = {name: refusal([*name.split(), "--configdir", "x"]) for name in ANSWERS}
    same = {name for name, message in refused.items() if not message}
    assert [name for name in same if ANSWERS[name].command != name and not name.startswith("jobs tasks ")] == []
    assert [name for name in ANSWERS.keys() - same if f"Batch Shipyard's `{name}` " not in refused[name]] == []


@pytest.mark.parametrize("words", [["fs", "cluster"], ["pool", "nodes"], ["slurm"]])
def test_a_group_of_batch_shipyard_leads_to_the_page(words: list[str]) -> None:
    assert f"`batchtrain help {PAGE}`" in refusal(words)


def test_a_misspelt_command_is_no_command_of_batch_shipyard() -> None:
    assert "Did you mean `batchtrain pool add`?" in refusal(["pool", "ad"])


def test_the_page_is_made_of_the_answers() -> None:
    assert shipyard_page.FILE.read_text(encoding="utf-8") == shipyard_page.page(), "run `python -m tests.shipyard_page`"
