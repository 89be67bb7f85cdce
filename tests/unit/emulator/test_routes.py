"""Verb and path to operation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchtrain.emulator import models, routes
from batchtrain.emulator.faults import Fault
from tests import operations_page

PACKAGE = Path(routes.__file__).parent


def test_all_operations_of_the_service_have_a_route() -> None:
    assert len({(route.verb, route.path) for route in routes.ROUTES}) == len(routes.ROUTES) == 72


@pytest.mark.parametrize(
    ("verb", "path", "name", "segments"),
    [
        ("GET", "/pools", "list_pools", ()),
        ("GET", "/pools/", "list_pools", ()),
        ("HEAD", "/pools/p", "pool_exists", ("p",)),
        ("POST", "/jobs/j/addtaskcollection", "create_task_collection", ("j",)),
        ("GET", "/jobs/a%20b/tasks/t", "get_task", ("a b", "t")),
        ("GET", "/jobs/j/tasks/t/files", "list_task_files", ("j", "t")),
        ("GET", "/jobs/j/tasks/t/files/wd%2Fa%20b", "download_task_file", ("j", "t", "wd/a b")),
        ("GET", "/jobs/j/tasks/t/files/wd/a", "download_task_file", ("j", "t", "wd/a")),
        ("GET", "/pools/p/nodes/n/files/x%252F", "download_node_file", ("p", "n", "x%2F")),
    ],
)
def test_a_path_finds_its_operation_and_decoded_segments(
    verb: str, path: str, name: str, segments: tuple[str, ...]
) -> None:
    route, path_segments = routes.find(verb, path)
    assert (route.name, path_segments) == (name, segments)


@pytest.mark.parametrize(
    ("verb", "path", "status"), [("GET", "/", 404), ("GET", "/nothing", 404), ("PUT", "/pools", 405)]
)
def test_an_unknown_path_is_404_and_an_unknown_verb_405(verb: str, path: str, status: int) -> None:
    with pytest.raises(Fault) as refusal:
        routes.find(verb, path)
    assert refusal.value.status == status


def test_what_is_acted_on_is_named_in_the_emulators_sources() -> None:
    """Nothing is called "acted on" that no code reads."""
    sources = (path for path in PACKAGE.rglob("*.py") if path.name not in ("properties.py", "models.py"))
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    fields = ((model, field) for model in operations_page.bodies() for field in models.fields()[model])
    acted = {field.name for model, field in fields if not operations_page.effect(model, field) and not field.into}
    assert acted - words <= set(models.RETIRED)
