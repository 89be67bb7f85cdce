"""Pools and jobs that change while they stand, as a person asks for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

POOL = """\
pool_specification:
  id: p
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
"""
JOBS = "job_specifications: [{id: j, tasks: [{command: sleep 600}]}]\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "pool.yaml").write_text(POOL, encoding="utf-8")
    (tmp_path / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_a_pool_grows_and_shrinks_and_its_nodes_boot_anew(place: Path, batchtrain: Any) -> None:
    batchtrain("pool", "add", str(place), "--local")
    grown = json.loads(batchtrain("pool", "resize", "p", "--dedicated", "2", "--local", "-o", "json").stdout)
    assert (grown["dedicated"], grown["allocation"]) == (2, "steady")
    nodes = json.loads(batchtrain("pool", "show", "p", "--local", "-o", "json").stdout)["nodes"]
    assert "rebooting" in batchtrain("pool", "reboot", "p", nodes[0]["id"], "--local").stdout
    shrunk = json.loads(batchtrain("pool", "resize", "p", "--dedicated", "0", "--local", "-o", "json").stdout)
    assert shrunk["dedicated"] == 0


def test_a_pool_that_is_not_there_is_not_resized(batchtrain: Any) -> None:
    said = batchtrain("pool", "resize", "nowhere", "--spot", "1", "--local", code=3).stderr
    assert "nowhere" in said


@pytest.mark.slow
def test_a_job_that_was_disabled_starts_nothing_until_it_is_enabled(place: Path, batchtrain: Any) -> None:
    batchtrain("pool", "add", str(place), "--local")
    batchtrain("jobs", "add", str(place), "--local")
    batchtrain("jobs", "disable", "j", "--running", "requeue", "--local")
    stopped = json.loads(batchtrain("jobs", "show", "j", "--local", "-o", "json").stdout)
    assert stopped["state"] in ("disabling", "disabled")
    batchtrain("jobs", "enable", "j", "--local")
    assert json.loads(batchtrain("jobs", "show", "j", "--local", "-o", "json").stdout)["state"] == "active"


def test_a_pool_without_a_login_has_none_to_make(place: Path, batchtrain: Any) -> None:
    said = batchtrain("pool", "login", str(place), "--local", code=2).stderr
    assert "add `ssh` with a `username` to pool.yaml" in said


@pytest.mark.slow
def test_pool_list_shows_the_hours_of_its_nodes(place: Path, batchtrain: Any) -> None:
    batchtrain("pool", "add", str(place), "--local")
    (row,) = json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout)
    assert 0 < row["node_hours"] < 0.1
    assert "node_hours" in batchtrain("pool", "list", "--local").stdout
