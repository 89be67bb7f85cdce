"""jsonschema, asked by `judge`, refuses what msgspec refuses and nothing else, and has words for every refusal."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchtrain.config import judge, load, override, reference, schema
from batchtrain.config.types import convert, read_path
from tests import examples
from tests.properties import BASE, path_of
from tests.reference_page import type_of

ROOT = Path(__file__).resolve().parents[3]
PLACES = [place for place in reference.properties() if len(place) > 1]
WORDS = sorted({place[-1] for place in PLACES})
NUMBERS = st.integers(-2, 9).map(str) | st.from_regex(r"-?[0-9]{1,6}(\.[0-9]{0,2})?([eE][+-]?[0-9])?", fullmatch=True)
ODD = ("", " ", "yes", "true", "True", "tRue", "off", "-0", "+4", "007", "nan", "inf", "-Infinity", "9" * 40,
       "9" * 5000, "0x10", "1_000", "²", "日本", "01:00:00", "1.00:00:00", "a\n", "x" * 1025)  # fmt: skip
KEYS = st.sampled_from(WORDS) | st.text(max_size=4)


def below(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists and mappings; a key whose value is null is absent from the data."""
    there = values.filter(lambda value: value is not None)
    return st.lists(values, max_size=3) | st.dictionaries(KEYS, there, max_size=3)


DATA = st.recursive(st.none() | st.sampled_from(ODD) | NUMBERS | st.text(max_size=4), below, max_leaves=5)


def value_for(place: reference.PropertyPath) -> st.SearchStrategy[Any]:
    """Values that come near to what a property takes, and others."""
    kind = type_of(reference.properties()[place].kind)
    if kind.startswith("one of "):
        words = [word.strip(" `") for word in kind.removeprefix("one of ").split(",")]
        return st.sampled_from([*words, words[0].upper(), words[0][:-1], None]) | DATA
    if "number" in kind:
        return NUMBERS | st.sampled_from(ODD) | DATA
    if "list of" in kind:
        return st.lists(NUMBERS, min_size=1, max_size=3) | DATA
    return st.sampled_from(ODD) | DATA


CHANGES = st.sampled_from(PLACES).flatmap(lambda place: st.tuples(st.just(place), value_for(place)))


def section_with(changes: list[tuple[reference.PropertyPath, Any]], section: str) -> Any:
    """A section of the smallest configuration in which some properties have other values."""
    data = copy.deepcopy(BASE.get(section, {}))
    for place, value in changes:
        if place[0] == section:
            words = read_path(path_of(place))
            data = override.put(data, override.joined(section, words[1:], data), value)
    return texts(data)


def texts(data: Any) -> Any:
    """Data as the loader reads them: every scalar is a text."""
    if isinstance(data, dict):
        return {key: texts(value) for key, value in data.items()}
    if isinstance(data, list):
        return [texts(value) for value in data]
    return data if data is None or isinstance(data, str) else str(data)


@pytest.mark.property
@examples.of(500)
@given(st.lists(CHANGES, min_size=1, max_size=2))
@example([(("pool_specification", "autoscale", "scenario", "required_sample_percentage"), "nan")])
@example([(("credentials", "batch", "account_key"), [None])])
def test_jsonschema_refuses_what_msgspec_refuses_and_nothing_else(
    changes: list[tuple[reference.PropertyPath, Any]],
) -> None:
    section = changes[0][0][0]
    data = section_with(changes, section)
    try:
        convert(data, schema.SECTIONS[section])
        taken = True
    except msgspec.ValidationError:
        taken = False
    found = list(judge.mistakes(judge.section_part(section, data)))
    assert taken is (not found), f"{section}: {data} {found}"


@pytest.mark.property
@examples.of(300)
@given(st.lists(st.lists(st.sampled_from(["good", "misspelt", "no mapping"]), max_size=3), min_size=1, max_size=3))
def test_judging_each_job_and_task_by_itself_finds_what_judging_the_whole_finds(jobs: list[list[str]]) -> None:
    tasks: dict[str, Any] = {"good": {"command": "x"}, "misspelt": {"comand": "x"}, "no mapping": "x"}
    data = [{"id": f"j{n}", "tasks": [tasks[kind] for kind in kinds]} for n, kinds in enumerate(jobs)]
    data[0]["priority"] = "high"
    parts = judge.judged("job_specifications", data).flaws
    assert set(parts) == set(judge.mistakes(judge.section_part("job_specifications", data)))


def test_parts_beyond_the_most_are_counted() -> None:
    data = [{"id": "j", "tasks": [{"comand": "x", "nonsense": "y"}] * 5}]
    verdict = judge.judged("job_specifications", data, most=3)
    assert (len(verdict.flaws), verdict.unjudged) == (4, 3)


def test_every_keyword_of_a_schema_that_can_refuse_has_words() -> None:
    silent = {"$ref", "default", "deprecated", "description", "examples", "patternErrorMessage", "prefixItems",
              "properties", "title"}  # fmt: skip
    assert set(keywords({"properties": schema.definitions()})) - silent - set(judge.WORDS) == set()


def keywords(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from keywords(item)
    for key, item in value.items() if isinstance(value, dict) else ():
        yield key
        if key == "properties":
            yield from keywords(list(item.values()))
        elif key not in ("default", "examples"):
            yield from keywords(item)


def test_an_older_word_that_was_not_replaced_is_refused() -> None:
    pool = {**texts(BASE["pool_specification"]), "max_tasks_per_node": "2"}
    assert [flaw.word for flaw in judge.judged("pool_specification", pool).flaws] == ["max_tasks_per_node"]


@pytest.mark.parametrize(("file", "imported"), [("vm_size: a", False), ("vm_sise: a", True)])
def test_jsonschema_is_imported_only_where_something_is_wrong(file: str, imported: bool) -> None:
    text = f"pool_specification: {{id: p, {file}, vm_configuration: {{}}}}"
    program = (
        "import sys; from pathlib import Path; from batchtrain.config import load;"
        f"load.examine(Path('x'), {{'pool.yaml': {text.encode()!r}}}); print('jsonschema' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert said.strip() == str(imported)


def test_no_message_of_jsonschema_is_shown() -> None:
    files = {"credentials.yaml": b"credentials: {batch: {account_service_url: [hunter2], hunter3: x}, aad: hunter4}"}
    seen = load.examine(Path("somewhere"), files, most=sys.maxsize)
    assert len(seen.problems) == 3
    assert "hunter" not in "\n".join(problem.rendered() for problem in seen.problems)
