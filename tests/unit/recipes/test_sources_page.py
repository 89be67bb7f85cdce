"""The page of the five documents is current, and each test that it names exists."""

from __future__ import annotations

import re

import pytest

from tests import environments, sources_page

ROWS = [row for rows in sources_page.DOCUMENTS.values() for row in rows]


@pytest.mark.parametrize("test", sorted({row.test for row in ROWS if row.test}))
def test_a_test_that_the_page_names_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"\ndef {name}(" in (environments.ROOT / file).read_text(encoding="utf-8")


def test_a_recipe_that_the_page_names_exists() -> None:
    named = set(re.findall(r"recipe `([^`]+)`", sources_page.page()))
    assert named <= {path.name for path in (environments.ROOT / "recipes").iterdir()}


def test_a_row_without_a_test_says_why() -> None:
    assert all(bool(row.test) != bool(row.without) for row in ROWS)
    assert all(re.match("planned only|not done|not tested", row.without) for row in ROWS if row.without)
