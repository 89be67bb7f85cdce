"""The scripts of tests/bench are run by hand: what they import must still be there."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.parametrize("script", sorted(path.name for path in BENCH.glob("*.py")))
def test_a_bench_script_finds_what_it_imports(script: str) -> None:
    assert callable(runpy.run_path(str(BENCH / script), run_name="bench")["main"])
