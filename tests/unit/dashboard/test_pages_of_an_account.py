"""The documents of the pages of an emulated account and its runs, as files to read.

BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.batch import models

from batchtrain import markup
from batchtrain.dashboard.reading import DOCUMENTS
from batchtrain.records.gang import LOOKS
from batchtrain.runs import directory
from tests import modules
from tests.unit.client import account
from tests.unit.client.account import Site
from tests.unit.client.test_runs import interrupt, of
from tests.unit.dashboard.asking import BEARER, Client, dashboard
from tests.unit.plan.jobs import recipe

GOLDEN = Path(__file__).parents[2] / "golden" / "dashboard"
VARYING = frozenset(
    {"seconds", "node_hours", "time", "from", "to", "version", "versions", "user", "runs_dir", "cost", "eTag"}
)
"""The names of values that differ from one run, or one machine, to the next."""


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    numbers = itertools.count(1)
    monkeypatch.setattr(directory.secrets, "token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
    name = request.node.name.removeprefix("test_")
    with account.opened(tmp_path, GOLDEN / f"{name}.txt", monkeypatch) as site:
        yield site


def shown(value: Any, name: str = "") -> Any:
    """A document without what differs from one run to the next."""
    if isinstance(value, dict):
        varying = VARYING | {"size"} if "path" in value else VARYING
        return {key: f"a {type(item).__name__}" if key in varying and item is not None else shown(item, key)
                for key, item in value.items()}  # fmt: skip
    if isinstance(value, list):
        return [shown(item, name) for item in value if not _differs(item)]
    return "a time" if isinstance(value, float) and value > 1e9 else value


def _differs(row: Any) -> bool:
    """Whether a row is about the time or the cost of a run."""
    name = row.get("name", "") if isinstance(row, dict) else ""
    return name in ("seconds", "cost") or name.endswith(" (s)")


def lines(document: Any) -> list[str]:
    """A line for each part of a document."""
    if isinstance(document, dict):
        return [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in document.items()]
    return [json.dumps(row, ensure_ascii=False) for row in document]


def look(site: Site, client: Client, *paths: str, **names: str) -> None:
    for path in paths:
        answer = client(
            "GET", f"/api/v1{path.format_map({key: quote(value) for key, value in names.items()})}", **BEARER
        )
        document = shown(answer.document)
        site.write(f"\n## {path}: {answer.status} {answer.headers.get('link', '')}".rstrip())
        site.write("\n".join(lines(document)))


def test_the_pages_of_an_account(site: Site) -> None:
    tasks = [{"id": f"t{number}", "command": command}
             for number, command in enumerate(("print step=1 loss=0.5", "exit 3", "wait", "wait", "wait"))]  # fmt: skip
    made = recipe({"tasks": tasks})
    site.client.pools.add(made, tell=lambda _: None)
    site.client.jobs.add(made, tell=lambda _: None)
    node = site.client.pools.nodes("p")[0].id
    with dashboard(site.root / "runs", site.client.account) as client:
        paths = [row.path for row in DOCUMENTS if "{run}" not in row.path and "/stacks" not in row.path]
        for task in ("t0", "t1", "t2"):
            look(site, client, *(path for path in paths if "{task}" in path), job="j", task=task, node=node)
        look(site, client, *(path for path in paths if "{task}" not in path), job="j", pool="p", node=node)
        look(site, client, "/jobs/j/tasks?limit=2", "/jobs/j/tasks?limit=2&skip=1:", "/jobs/j/tasks?limit=0")
        look(site, client, "/jobs/j/tasks?state=active", "/jobs/j/tasks?prefix=t1", "/jobs/j/tasks?limit=x")
        look(site, client, "/jobs?state=active", "/jobs?state=completed", "/jobs?prefix=x", "/jobs?skip=1")
        look(site, client, "/jobs/j/tasks/t0/logs?start=5&limit=4", "/jobs/j/tasks/t0/logs?end=3")
        look(site, client, "/jobs/j/tasks/t0/logs?limit=0", "/jobs/j/tasks/t0/search?find=LOSS")
        look(site, client, "/jobs/x", "/pools/x", "/jobs/j/tasks/x")
    site.assert_as_written()


def test_the_pages_of_recorded_runs(site: Site) -> None:
    site.run("a run that fails", of("exit 3", "a"))
    site.run("a run", of("print step=1 loss=0.5", "b"))
    site.run("the run again", of("print step=1 loss=0.25", "b"))
    site.steps = {"tasks.seen": interrupt}
    site.run("a run until Ctrl-C", of("wait", "c"))
    names = sorted(path.name for path in (site.root / "runs").iterdir() if (path / "run.json").exists())
    of_job = {job: [name for name in names if f"-{job}-" in name] for job in "abc"}
    with dashboard(site.root / "runs") as client:
        paths = [row.path for row in DOCUMENTS if "{run}" in row.path and "/file" not in row.path]
        for job in "abc":
            look(site, client, *paths, run=of_job[job][-1], task="task-00000")
        look(site, client, "/runs", "/runs?text=fail", "/runs?sort=loss", "/runs?skip=3", "/overview", "/account")
        look(site, client, "/runs/compare?id={a}&id={b}", "/runs/compare?id={a}", a=of_job["b"][0], b=of_job["b"][1])
        look(site, client, "/runs/x", "/runs/{run}/tasks/task-00000/logs?file=x", run=of_job["b"][0])
        look(site, client, "/runs/{run}/tasks/task-00000/search?find=LOSS", run=of_job["b"][0])
        look(site, client, "/pools", "/jobs")
    site.assert_as_written()


@pytest.mark.parametrize(
    ("file", "start", "golden", "path"),
    [
        ("runs.js", "const columns", "the_pages_of_recorded_runs", "/runs"),
        ("pools.js", "const COLUMNS", "the_pages_of_an_account", "/pools"),
        ("jobs.js", 'ui.records("Tasks"', "the_pages_of_an_account", "/jobs/j/tasks?limit=2"),
    ],
)
def test_a_row_has_what_the_columns_of_its_table_show(file: str, start: str, golden: str, path: str) -> None:
    """A table omits a column that is empty in all rows, and so hides a value that no document has."""
    script = (modules.PACKAGE / "dashboard/static/js" / file).read_text(encoding="utf-8")
    table = re.search(rf"^( *).*{re.escape(start)}.*\n((?:\1 +.*\n)+)", script, re.M)
    assert table
    uses = re.findall(r': "(\w+)",$|\(\{ ([\w, ]+) \}\) =>|\b(?:run|pool|task)\.(\w+)', table[2], re.M)
    names = {name for use in uses for text in use for name in text.split(", ") if name}
    document = (GOLDEN / f"{golden}.txt").read_text(encoding="utf-8").partition(f"## {path}: 200")[2]
    assert names - json.loads(document.splitlines()[1]).keys() == set()
    assert len(names) > 5


def test_every_condition_of_a_rank_has_a_look() -> None:
    script = (modules.PACKAGE / "dashboard/static/js/ranks.js").read_text(encoding="utf-8")
    table = script.partition("const CONDITIONS = {")[2].partition("}")[0]
    assert re.findall(r"(\w+): \[", table) == [condition for condition in LOOKS if condition]


@pytest.mark.parametrize(
    "states",
    [
        models.AllocationState, models.BatchJobScheduleState, models.BatchJobState, models.BatchNodeState,
        models.BatchPoolState, models.BatchTaskState,
    ],
)  # fmt: skip
def test_every_state_of_the_service_has_a_tone(states: type[Enum]) -> None:
    assert [state.value for state in states if state.value not in markup.TONES] == []
