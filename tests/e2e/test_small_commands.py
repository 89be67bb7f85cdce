"""Commands that no other test runs: files and watching of pools, faults and images of the emulator, schemas."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator import server
from tests.e2e.conftest import Shell, pool_file

pytestmark = [pytest.mark.process, pytest.mark.slow]

POOL = pool_file("one")
JOBS = "job_specifications: [{id: job, tasks: [{id: task, command: 'echo 42'}]}]\n"


@pytest.fixture
def standing(batchtrain: Shell, tmp_path: Path) -> Shell:
    """The command line on an emulator with a pool of one node and a job that has ended."""
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "pool.yaml").write_text(POOL, encoding="utf-8")
    (recipe / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    server.spawn(server.Settings(data_dir=batchtrain.home, port=0))
    batchtrain("pool", "add", str(recipe), "--local")
    batchtrain("jobs", "add", str(recipe), "--local")
    return batchtrain


def node_of(batchtrain: Shell) -> dict[str, Any]:
    (node,) = printed(batchtrain, "pool", "show", "one")["nodes"]
    return dict(node)


def printed(batchtrain: Shell, *words: str) -> Any:
    return json.loads(batchtrain(*words, "--local", "-o", "json").stdout)


def test_files_of_a_node_are_listed_and_fetched(standing: Shell, tmp_path: Path) -> None:
    standing("jobs", "watch", "job", "--local")  # ends with the tasks of the job
    node = node_of(standing)["id"]
    names = {file["path"] for file in printed(standing, "pool", "files", "one", node)}
    assert "workitems/job/job-1/task/stdout.txt" in names
    standing("pool", "get", "one", node, "workitems/**/stdout.txt", "--directory", str(tmp_path / "home"), "--local")
    (file,) = (path for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert (file.name, file.read_text(encoding="utf-8")) == ("stdout.txt", "42\n")


def test_watching_a_pool_ends_when_it_is_gone(standing: Shell) -> None:
    watching = standing.start("pool", "watch", "one", "--local")
    assert watching.stderr is not None
    assert watching.stderr.readline().startswith("pool one: ")
    standing("pool", "del", "one", "--yes", "--local")
    assert watching.wait() == 0, watching.communicate()


def test_a_node_is_made_unusable_and_an_account_is_emptied(standing: Shell) -> None:
    standing("emulator", "fault", "node", node_of(standing)["id"], "break")
    assert node_of(standing)["state"] == "unusable"
    standing("emulator", "fault", "add", "skew", "--seconds", "0")
    assert [row["kind"] for row in printed(standing, "emulator", "fault", "list")] == ["skew"]
    standing("emulator", "fault", "clear")
    assert printed(standing, "emulator", "fault", "list") == []
    standing("emulator", "reset", "--yes")
    assert printed(standing, "pool", "list") == printed(standing, "jobs", "list") == []


def test_mapped_images_are_listed_until_they_are_unmapped(batchtrain: Shell) -> None:
    batchtrain("emulator", "images", "map", "example/a:1", sys.prefix)
    assert [row["image"] for row in printed(batchtrain, "emulator", "images", "list")] == ["example/a:1"]
    batchtrain("emulator", "images", "unmap", "example/a:1")
    assert printed(batchtrain, "emulator", "images", "list") == []


def test_the_schema_of_a_file_is_printed(batchtrain: Shell, root: Path) -> None:
    schema = json.loads(batchtrain("config", "schema", "pool").stdout)
    assert schema == json.loads((root / "schemas/pool.json").read_text(encoding="utf-8"))


def test_a_job_that_was_disabled_is_enabled(standing: Shell) -> None:
    standing("jobs", "disable", "job", "--running", "requeue", "--local")
    assert printed(standing, "jobs", "show", "job")["state"] in ("disabling", "disabled")
    standing("jobs", "enable", "job", "--local")
    assert printed(standing, "jobs", "show", "job")["state"] == "active"


def test_a_pool_without_a_login_has_none_to_make(standing: Shell) -> None:
    said = standing("pool", "login", str(standing.cwd / "recipe"), "--local", code=2).stderr
    assert "add `ssh` with a `username` to pool.yaml" in said
