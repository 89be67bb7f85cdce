"""The files that are made of tables and types are what these say today."""

from __future__ import annotations

import pytest

from tests.environments import ROOT
from tests.generated_files import FILES


@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_is_current(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name](), "run `python -m tests.generated_files`"
