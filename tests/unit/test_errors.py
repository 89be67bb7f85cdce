"""A problem as a person reads it: the sentence, the line with a caret under what is meant, where to read on."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import batchtrain as bt
from batchtrain.errors import ConfigError, Problem, UsageError

KEY = Problem(
    "unknown-key", "`vm_sise` is not known here.", "pool.yaml", 5, 3, "pool.vm_sise", hint="Did you mean `vm_size`?",
    end_line=5, end_column=10, fix="vm_size", see="docs/x.md#pool", source="  vm_sise: BIG  # why",
)  # fmt: skip


def caret(source: str, column: int, end: int) -> str:
    """What of the shown line stands above the carets."""
    shown = Problem("r", "m", "f", 1, column, end_line=1, end_column=end, source=source).rendered().splitlines()
    return shown[1][shown[2].index("^") : shown[2].rindex("^") + 1]


def test_a_problem_is_a_sentence_a_line_a_caret_and_a_page() -> None:
    assert KEY.rendered().splitlines() == [
        "pool.yaml:5:3: error: pool.vm_sise: `vm_sise` is not known here. Did you mean `vm_size`? [unknown-key]",
        " 5 |   vm_sise: BIG  # why",
        "   |   ^^^^^^^",
        "   = see `batchtrain help x#pool`",
    ]


def test_a_problem_as_text_is_one_line() -> None:
    assert "\n" not in str(KEY._replace(message="a\nb"))


def test_the_message_of_a_configuration_error_is_the_whole_rendering() -> None:
    assert str(ConfigError((KEY, KEY))) == f"{KEY.rendered()}\n{KEY.rendered()}"


def test_a_tab_before_the_word_does_not_shift_the_caret() -> None:
    assert caret("\tkey: value", 2, 5) == "key"


def test_wide_characters_take_two_columns() -> None:
    source = "名前: wrong"
    lines = Problem("r", "m", "f", 1, 5, end_line=1, end_column=10, source=source).rendered().splitlines()
    assert lines[2].removeprefix("   | ") == " " * 6 + "^" * 5


def test_a_long_line_is_cut_around_the_word() -> None:
    source = "x" * 5000 + " wrong " + "y" * 5000
    lines = Problem("r", "m", "f", 1, 5002, end_line=1, end_column=5007, source=source).rendered().splitlines()
    assert len(lines[1]) < 120
    assert caret(source, 5002, 5007) == "wrong"


def test_what_moves_the_cursor_is_written_out() -> None:
    shown = KEY._replace(source="  vm_sise: \x1b[2J\u202e", message="\x1b[31m").rendered()
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_colour_only_paints() -> None:
    import re

    painted = KEY.rendered(color=True)
    assert painted != KEY.rendered()
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == KEY.rendered()


def test_for_machines_what_is_not_known_is_left_out() -> None:
    assert Problem("r", "m").document == {"rule": "r", "message": "m", "level": "error"}
    assert KEY.document["endColumn"] == 10
    assert "source" not in KEY.document


class Owner:
    """An object of the Python API whose call fails."""

    _client = SimpleNamespace(account=SimpleNamespace(option=" --local"))

    def get(self) -> None:
        raise UsageError("`batchtrain jobs stats` shows them, `batchtrain run --reuse` uses it")


@pytest.mark.parametrize(("which", "program"), [("/b/batchtrain", "!batchtrain"), (None, "!/p -m batchtrain.cli")])
def test_the_command_of_an_error_in_a_notebook_runs_in_a_cell_and_reaches_the_account(
    monkeypatch: pytest.MonkeyPatch, which: str | None, program: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: which)
    monkeypatch.setattr(sys, "executable", "/p")
    with pytest.raises(UsageError) as caught:
        Owner().get()
    shown = f"`{program} jobs stats --local` shows them, `client.run(recipe, reuse=True)` uses it"
    assert shown in caught.value._render_traceback_()[0]
    assert str(caught.value) == "`batchtrain jobs stats --local` shows them, `batchtrain run --reuse --local` uses it"


def test_a_notebook_shows_an_error_as_its_cause_and_the_users_line() -> None:
    with pytest.raises(UsageError) as caught:
        bt.load("/no/directory\x1b[2J")
    name, *_, line = caught.value._render_traceback_()
    assert "UsageError" in name
    assert "/no/directory\\u001b[2J is not a directory" in name
    assert "bt.load(" in line
