"""`check fabric` on emulated nodes, with a real MPI over tcp."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import mapped_images

pytestmark = [pytest.mark.mpi, pytest.mark.process]
ANY = ("--mark", "pair_gb_per_second=0", "--mark", "pair_ratio=0:0:0")
"""Marks that every machine reaches, however busy it is."""


@pytest.fixture
def checked(batchtrain: Any, mpi_environment: Callable[[str], Path]) -> Any:
    mapped_images.map_image(batchtrain.home, "example/openmpi:cpu", mpi_environment("openmpi"))
    return batchtrain


def test_three_nodes_are_measured_over_all_and_between_each_two(checked: Any) -> None:
    done = checked("check", "fabric", "--size", "Standard_HB120rs_v3", "--nodes", "3", "--local", *ANY)
    run = checked.cwd / "runs/latest"
    check = json.loads((run / "fabric.json").read_text())
    assert len(set(check["measured"]["nodes"])) == 3
    assert [(pair["first"], pair["second"]) for pair in check["measured"]["pairs"]] == [(0, 1), (0, 2), (1, 2)]
    assert all(pair["gb_per_second"] > 0 and pair["latency_us"] > 0 for pair in check["measured"]["pairs"])
    assert {line.split()[0] for line in done.stdout.splitlines() if line.lstrip().startswith("n")} >= {"n0", "n1", "n2"}
    assert "<h2>Fabric</h2>" in (run / "report.html").read_text()
    assert checked("pool", "list", "--local", "-o", "json").stdout.strip() == "[]"
    assert "pair_gb_per_second" in checked("runs", "compare", run.resolve().name, run.resolve().name).stdout


def test_the_pool_of_a_directory_is_used_and_stays_although_a_value_below_the_mark_is_exit_code_11(
    checked: Any,
) -> None:
    checked("recipe", "new", "Fabric-Checks-OpenMPI", "mine")
    checked("pool", "add", "mine", "--local", "--set", "pool_specification.vm_count.dedicated=2")
    marks = ("--mark", "pair_gb_per_second=9000:8000:7000")
    done = checked("check", "fabric", "mine", "--local", "-o", "json", *marks, code=11)
    assert "pair_gb_per_second" in done.stderr.splitlines()[-1]
    assert len(json.loads(done.stdout)["measured"]["nodes"]) == 2
    assert [pool["id"] for pool in json.loads(checked("pool", "list", "--local", "-o", "json").stdout)] == ["fabric"]
    checked("pool", "del", "fabric", "--local", "-y")
