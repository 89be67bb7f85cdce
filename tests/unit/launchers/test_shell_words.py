"""Shell text."""

from __future__ import annotations

import shlex
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchtrain.launchers import python, shell
from tests import examples


@pytest.mark.property
@examples.of(100)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_word_is_read_back_as_it_was(value: str) -> None:
    assert shlex.split(shell.word(value)) == [value]


@pytest.mark.property
@examples.of(100)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_line_of_a_comment_is_one(text: str) -> None:
    assert all(line.startswith("# ") for line in shell.comment(text).splitlines())


def test_a_line_that_ends_in_a_backslash_does_not_swallow_the_next() -> None:
    assert shell.verbatim("run \\") == "run \\\n"


def test_empty_lines_and_blocks_are_left_out() -> None:
    assert shell.script("a", "", shell.block("why", "b", "")) == "a\n\n# why\nb\n"
    assert shell.continued("a", "", "b") == "a \\\n  b"


@pytest.mark.parametrize("text", ["a" * 200_000, "a " * 100_000, '"' + "a" * 200_000, "'a' " * 50_000])
def test_the_words_of_a_long_command_take_little_more_memory_than_its_text(text: str) -> None:
    tracemalloc.start()
    try:
        shell.is_simple(text)
        python.with_mpi4py(f"python {text}")
        assert tracemalloc.get_traced_memory()[1] < 10 * len(text)
    finally:
        tracemalloc.stop()
