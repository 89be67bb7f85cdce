"""The program of the fabric checks measures each two nodes once, and no node twice at the same time."""

from __future__ import annotations

import importlib.util
import sys
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "recipes" / "Fabric-Checks-OpenMPI" / "src" / "fabric.py"


@pytest.fixture
def fabric(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, without an MPI."""
    nothing = SimpleNamespace(MPI=None, allreduce=None, pingpong=None, say=None)
    for name in ("mpi4py", "bench"):
        monkeypatch.setitem(sys.modules, name, nothing)
    spec = importlib.util.spec_from_file_location("fabric", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 8, 17])
def test_each_two_nodes_are_measured_once_and_no_node_twice_in_a_round(fabric: Any, number: int) -> None:
    rounds = list(fabric.rounds(number))
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(number), 2))
    assert all(len({node for pair in pairs for node in pair}) == 2 * len(pairs) for pairs in rounds)


def test_the_bandwidth_is_that_of_the_busiest_link(fabric: Any) -> None:
    assert fabric.busbw(1_000_000_000, 4, 1.0) == pytest.approx(1.5)
