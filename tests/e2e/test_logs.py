"""`jobs logs` of a gang: all its ranks, to the last line, and chosen ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell
from tests.e2e.test_live_block import COUNT, in_order, recipe

pytestmark = pytest.mark.process


@pytest.mark.slow
def test_following_a_gang_shows_every_line_of_every_rank_once_and_to_the_last(
    batchtrain: Shell, tmp_path: Path
) -> None:
    place = recipe(tmp_path, COUNT, 4)
    batchtrain("pool", "add", place, "--local")
    batchtrain("jobs", "add", place, "--local")
    followed = batchtrain("jobs", "logs", "digits", "--local", "--follow")
    assert in_order(followed.stdout.splitlines())

    def logs(*words: str, code: int = 0) -> list[str]:
        done = batchtrain("jobs", "logs", "digits", "--local", *words, code=code)
        return (done.stdout or done.stderr).splitlines()

    assert in_order(logs())
    lines = logs("--rank", "0,3")
    assert len(lines) == 2000
    assert {line.rpartition("] ")[2].split()[1] for line in lines} == {"0", "3"}
    assert len(logs("--node", "n1")) == 4000
    assert len(logs("--grep", r"line 1000$", "--follow")) == 8
    (document,) = map(json.loads, logs("--rank", "5", "--grep", "line 7$", "--json"))
    assert document == {"line": "rank 5 line 7", "rank": 5, "node": "n1"}
    assert "no line of stdout.txt has a time" in " ".join(logs("--since", "10m", code=2))
    assert "`x` is no list of numbers; write it as 0,3 or 0-7" in " ".join(logs("--rank", "x", code=2))
    assert "`(` is no regular expression" in " ".join(logs("--grep", "(", code=2))
