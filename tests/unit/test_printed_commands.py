"""No command that the product prints can change what exists without the user's word."""

from __future__ import annotations

import re

from tests.printed_commands import REPLACES, effect, printed


def test_the_table_has_every_command_that_messages_and_documentation_print() -> None:
    assert sorted({command for command, _ in printed() if not effect(command)}) == []


def test_a_command_that_replaces_what_exists_runs_only_where_nothing_exists() -> None:
    harmful = [
        (command, text)
        for command, text in printed()
        if effect(command) == REPLACES and not re.search(rf" show [^`]*\|\| {re.escape(command)}", text)
    ]
    assert harmful == []
