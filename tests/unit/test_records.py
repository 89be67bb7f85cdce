"""A thing of the service is read and typed once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pytest

import batchtrain.records
from batchtrain.records import Table, Task, cells
from tests.modules import PACKAGE, files, imports, name_of, nodes

OTHERS = {"emulator", "runtime", "testing.py"}
"""What shares no types with the client."""
WRITTEN = {*OTHERS, "config", "plan", "launchers", "frameworks", "catalog", "containers", "formula.py"}
"""The same, what the user writes, and what a plan contains."""
THINGS, SYNONYMS = ("Pool", "Node", "Job", "JobSchedule", "Task"), ("Seen", "Row", "Record")
REASONS = ("Failure", "Finding", "Fault", "Listed")
"""Words that several classes had for one idea each."""
BASES = re.compile(r"(NamedTuple|Struct|Record)$")
READS = re.compile(r"(get|list)_(pool|node|job|task|subtask|supported_image)[a-z_]*")
"""The methods of the SDK that read what `service/read.py` reads."""


def _files_but_for(folders: set[str]) -> list[Path]:
    return [path for path in files() if path.relative_to(PACKAGE).parts[0] not in folders]


def _values(path: Path) -> list[str]:
    """The classes of a file that hold values: named tuples, structs and records."""
    classes = (node for node in nodes(path) if isinstance(node, ast.ClassDef))
    return [node.name for node in classes if any(BASES.search(ast.unparse(base)) for base in node.bases)]


def test_no_other_class_of_the_client_is_a_second_pool_node_job_or_task() -> None:
    client = _files_but_for(WRITTEN)
    defined = Counter(name for path in client if path.name != "events.py" for name in _values(path))
    records = [name for name in vars(batchtrain.records) if name in defined]
    assert {"Pool", "Node", "Job", "JobSchedule", "Task", "File", "Failure", "Metric", "Counts"} <= set(records)
    assert {name: defined[name] for name in records if defined[name] > 1} == {}
    assert [thing + word for thing in THINGS for word in SYNONYMS if thing + word in defined] == []


def test_a_failure_a_finding_and_a_fault_have_one_class_each() -> None:
    defined = Counter(name for path in _files_but_for(OTHERS) for name in _values(path))
    assert {name: defined[name] for name in REASONS if defined[name] > 1} == {}


def test_only_one_module_turns_documents_of_the_service_into_records() -> None:
    users = {name_of(path) for path in files() if "batchtrain.service.answers" in imports(path)}
    assert users == {"batchtrain.service.read"}


def test_only_one_module_asks_for_pools_nodes_jobs_and_tasks() -> None:
    client = _files_but_for(OTHERS)
    asking = {"batchtrain.service.requests.answer", "batchtrain.service.requests.listed"}
    assert {name_of(path) for path in client if asking & imports(path)} == {"batchtrain.service.read"}
    methods = [
        f"{name_of(path)}: {node.func.attr}"
        for path in client
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and READS.fullmatch(node.func.attr)
    ]
    assert methods == []


def test_the_text_of_a_large_table_stays_small() -> None:
    text = str(Table(Task(f"t{number}", "active") for number in range(20_000)))
    assert text.endswith("… and 19,900 more rows")
    assert len(text.splitlines()) == 102
    assert len(text) < 10_000


@pytest.mark.parametrize("seconds", [1e300, 1e12, -1e12])
def test_a_task_may_have_run_for_any_time(seconds: float) -> None:
    started = datetime(2026, 11, 22, tzinfo=timezone.utc)
    assert Task(id="t", state="completed", started=started, seconds=seconds).ended is None


@pytest.mark.parametrize(("value", "cell"), [(11.13621, "11.1"), (0.05123, "0.051"), (3600.0, "3600.0")])
def test_seconds_have_one_decimal_in_every_table_and_below_one_two_digits(value: float, cell: str) -> None:
    assert cells({"seconds": value}) == (cell,)


@pytest.mark.parametrize(
    ("value", "cell"), [(0.0013, "0.0013"), (0.0023, "0.0023"), (2.0, "2.00"), (0.98765, "0.98765")]
)
def test_a_number_of_a_table_keeps_the_digits_that_tell_it_from_others(value: float, cell: str) -> None:
    assert cells({"value": value}) == (cell,)
