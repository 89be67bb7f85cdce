"""The search in a file: every match once, wherever the blocks end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchtrain.dashboard import search
from batchtrain.errors import UsageError

LINES = b"[0:0] loss 1\n[1:3] Loss 2 loss\n[0:0] other\n[1:3] \xc3\xa9 loss"


def reader(content: bytes) -> Callable[[int, int], bytes]:
    return lambda start, end: content[start:end]


def found(content: bytes, text: str, **more: Any) -> dict[str, Any]:
    return search.matches(len(content), reader(content), text, **more)


@pytest.mark.parametrize("block", [14, 15, 16, 17, 23, 31, 1000])
def test_each_match_is_counted_once_with_the_beginning_of_its_line(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(search, "BLOCK", block)
    second, last = LINES.index(b"[1:3] L"), LINES.rindex(b"[1:3]")
    assert found(LINES, "LOSS") == {"size": len(LINES), "matches": 4, "skip": 0, "lines": [0, second, second, last]}


def test_a_part_of_the_matches_is_sent_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ROWS", 2)
    content = b"hit\n" * 5
    assert found(content, "hit", skip=1) == {"size": 20, "matches": 5, "skip": 1, "lines": [4, 8]}


def test_only_the_lines_of_a_rank_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BLOCK", 20)
    assert found(LINES, "loss", rank=3)["matches"] == 3
    assert found(LINES, "loss", rank=7)["matches"] == 0


@pytest.mark.parametrize("block", [7, 10, 64])
def test_a_line_longer_than_a_block_is_searched_wholly(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(search, "BLOCK", block)
    monkeypatch.setattr(search, "LONGEST_LINE", 10)
    assert found(b"x" * 50 + b"needle" + b"y" * 50 + b"needle" + b"z" * 9, "needle")["matches"] == 2


def test_what_no_line_can_contain_is_refused_and_nothing_is_nowhere() -> None:
    with pytest.raises(UsageError, match="`find`"):
        found(b"abc", "a\nb")
    assert found(b"abc", "")["matches"] == 0
