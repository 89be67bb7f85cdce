"""The training script of the MPI recipes: its shards."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

RECIPES = Path(__file__).parents[3] / "recipes"
SCRIPT = RECIPES / "mpi4py-MPICH" / "src" / "train.py"


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int, int], range]:
    """The script's own function; it computes with whole numbers only, so an empty NumPy is enough to load it."""
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return cast("Callable[[int, int, int], range]", runpy.run_path(str(SCRIPT))["shard"])


@pytest.mark.parametrize("samples", [0, 1, 7, 1437])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_every_sample_is_in_exactly_one_shard(shard: Callable[[int, int, int], range], samples: int, size: int) -> None:
    shards = [shard(samples, rank, size) for rank in range(size)]
    assert sorted(sample for one in shards for sample in one) == list(range(samples))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_no_shard_has_two_samples_more_than_another(shard: Callable[[int, int, int], range], size: int) -> None:
    lengths = [len(shard(1437, rank, size)) for rank in range(size)]
    assert max(lengths) - min(lengths) <= 1
