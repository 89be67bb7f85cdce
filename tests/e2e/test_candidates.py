"""Three candidates: the first account has no quota, the second no capacity, and the third runs the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import mapped_images, server

from .conftest import Shell

pytestmark = [pytest.mark.process, pytest.mark.slow]
POOL = """\
pool_specification:
  id: p
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
  vm_size: STANDARD_D4S_V5
  vm_count: {dedicated: 2}
  candidates:
    patience: 1s
    alternatives:
    - {account: west, vm_size: STANDARD_D2S_V5}
    - {account: east, spot: true}
"""
JOBS = "job_specifications: [{id: j, tasks: [{id: t, command: echo done}]}]\n"
ACCOUNTS = ((), ("--batch-account", "west"), ("--batch-account", "east"))


@pytest.fixture
def recipe(batchtrain: Shell, tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "recipe"
    place.mkdir()
    (place / "pool.yaml").write_text(POOL, encoding="utf-8")
    (place / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    batchtrain("emulator", "start", "--port", "0", "--quota", "dedicated-cores=0")
    for account in ("west", "east"):
        batchtrain("emulator", "start", "--account", account)
    batchtrain("emulator", "capacity", "--account", "west", "STANDARD_D2S_V5=1")
    yield place
    for account in ("west", "east"):
        server.stop(mapped_images.account_dir(batchtrain.home, account))


def pools(batchtrain: Shell) -> list[Any]:
    return [json.loads(batchtrain("pool", "list", "--local", *to, "-o", "json").stdout) for to in ACCOUNTS]


def test_a_run_goes_to_the_first_candidate_with_nodes_and_leaves_nothing(batchtrain: Shell, recipe: Path) -> None:
    result = batchtrain("run", str(recipe), "--local")
    assert result.stdout.splitlines() == ["done"]
    assert "candidate 1 of 3, 2 dedicated STANDARD_D4S_V5, has no nodes after" in result.stderr
    assert "candidate 2 of 3, 2 dedicated STANDARD_D2S_V5 in account west, has no nodes after" in result.stderr
    assert "candidate 3 of 3, 2 spot STANDARD_D4S_V5 in account east, has the nodes" in result.stderr
    record = json.loads((batchtrain.cwd / "runs" / "latest" / "run.json").read_bytes())
    assert [(one["account"], one.get("code", "")) for one in record["candidates"]] == [
        ("batchtrain", "AccountCoreQuotaReached"),
        ("west", "AllocationFailed"),
        ("east", ""),
    ]
    assert (record["account"], record["state"]) == ("east", "completed")
    assert pools(batchtrain) == [[], [], []]


def test_a_pool_is_added_where_there_are_nodes_and_found_there(batchtrain: Shell, recipe: Path) -> None:
    batchtrain("pool", "add", str(recipe), "--local")
    first, second, third = pools(batchtrain)
    assert (first, second, [pool["spot"] for pool in third]) == ([], [], [2])
    batchtrain("pool", "del", "p", "--local", "--batch-account", "east", "-y")


def test_a_run_without_any_nodes_names_all_candidates_and_leaves_nothing(batchtrain: Shell, recipe: Path) -> None:
    batchtrain("emulator", "capacity", "--account", "east", "low-priority-cores=4")
    result = batchtrain("run", str(recipe), "--local", code=4)
    assert "none of 3 candidates has nodes for the pool" in result.stderr
    assert "2 spot STANDARD_D4S_V5 in account east: AccountLowPriorityCoreQuotaReached" in result.stderr
    assert pools(batchtrain) == [[], [], []]
