"""Probes: how their recorded answers are judged, and answers that cannot be read."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from batchtrain.catalog.offer import Catalog
from batchtrain.verify.probe import DIFFERS, HAND, HOLDS, NOT_ASKED, Area, Judgement, Probe, by_hand, judge
from batchtrain.verify.probes import AREAS
from tests import untested_page

PROBES = {probe.name: probe for area in AREAS for probe in area.probes}
NAMES = pytest.mark.parametrize("name", PROBES)
SIZE = Catalog().size("Standard_D4s_v5")
FIRST_FAILURES = (
    "image-built", "allocation", "container-sshd", "key-mount", "task-disk", "topology-file", "nccl-speed",
    "infiniband-ports", "nfs-network", "long-variable",
)  # fmt: skip


def judged(probe: Probe, value: Any) -> str:
    """How a probe judges one value, where it is observed on a size that it fits."""
    part, *names = probe.reads.split("/")
    observations: Any = value
    if names[0] == "nodes":
        observations = {"nodes": {"n0": {names[1]: value}}}
    else:
        for name in reversed(names):
            observations = {name: observations}
    sizes = [size for size in Catalog().sizes if probe.needs.fits(size)]
    return judge(Area("", "", "", ()), probe, {part: observations}, sizes[0], local=False).judgement


def row(probe: Probe, observations: Mapping[str, Any], *, local: bool = False) -> Judgement:
    """How a probe is judged on a size without special hardware."""
    assert SIZE is not None
    return judge(AREAS[0], probe, observations, SIZE, local=local)


@NAMES
def test_a_probe_judges_its_recorded_answers(name: str) -> None:
    probe = PROBES[name]
    answers = [judged(probe, value) for value in (probe.right, probe.wrong, probe.unread)]
    assert answers == [HOLDS, DIFFERS, NOT_ASKED]


@NAMES
def test_an_answer_that_cannot_be_read_never_holds(name: str) -> None:
    probe = PROBES[name]
    for value in ({"unread": "PermissionError"}, {}, [], "", "not this", -7, 3.5, {"n": {"unread": "x"}}, [None]):
        assert value == probe.right or judged(probe, value) != HOLDS or probe.shape in (str, bool), value
    silent: list[dict[str, Any]] = [{}, {"unread": "no node"}, {"nodes": {}}]
    for observations in ({}, *({probe.part: part} for part in silent)):
        assert row(probe, observations).judgement == NOT_ASKED


def test_mutated_observations_are_noticed() -> None:
    counts: Counter[str] = Counter()
    for probe in PROBES.values():
        results = [judged(probe, value) for value in _mutations(probe.right)]
        assert any(result != HOLDS for result in results), probe.name
        counts.update(results)
    assert counts.total() > 600
    assert counts[DIFFERS] > 60
    assert counts[NOT_ASKED] > 200
    assert counts[HOLDS] < counts.total() / 2, "most of what an answer says is judged"


@NAMES
def test_a_part_that_matters_and_cannot_be_read_never_holds(name: str) -> None:
    probe = PROBES[name]
    for path in _paths(probe.right):
        value = _at(probe.right, path)
        if value is not None and judged(probe, _changed(probe.right, path, _other(value))) != HOLDS:
            unread = [_changed(probe.right, path, other) for other in (None, {"unread": "timeout"})]
            assert HOLDS not in [judged(probe, answer) for answer in unread], path


def _mutations(value: Any) -> Iterator[Any]:
    """The answer without one of its parts, with a part that could not be read, and with another value for a part."""
    yield from (None, {"unread": "timeout"})
    for path in _paths(value):
        for other in (None, {"unread": "timeout"}, _other(_at(value, path))):
            yield _changed(value, path, other)
        yield _changed(value, path, ...)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = list(value) if isinstance(value, Mapping) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*path, key)
        yield from _paths(value[key], (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1000 if isinstance(value, (int, float)) else "another"


def _changed(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """A copy with another value at a path; `...` removes it."""
    changed = copy.deepcopy(value)
    parent = _at(changed, path[:-1])
    if other is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = other
    return changed


def test_one_node_that_differs_decides_and_one_that_is_silent_hides_nothing() -> None:
    probe = PROBES["node-python"]

    def on(*values: Any) -> str:
        nodes = {f"n{number}": {"python": value} for number, value in enumerate(values)}
        return row(probe, {"host": {"nodes": nodes}}).judgement

    assert on(probe.right, probe.right) == HOLDS
    assert on(probe.right, probe.unread) == NOT_ASKED
    assert on(probe.right, probe.unread, probe.wrong) == DIFFERS


def test_a_difference_names_the_node_and_the_code_that_depends_on_it() -> None:
    probe = PROBES["node-python"]
    found = row(probe, {"host": {"nodes": {"n1": {"python": probe.wrong}}}})
    assert found.detail.startswith("n1: {")
    assert found.code == probe.code


def test_the_emulator_is_asked_nothing_that_it_cannot_answer() -> None:
    probe = PROBES["infiniband-device"]
    found = row(probe, {}, local=True)
    assert (found.judgement, found.detail) == (NOT_ASKED, f"not on the emulator: {probe.not_local}")


def test_a_size_without_the_hardware_is_said() -> None:
    assert row(PROBES["infiniband-device"], {}).detail == "needs a size with InfiniBand, and Standard_D4s_v5 is none"


def test_names_are_used_once_and_the_named_files_exist() -> None:
    assert len(PROBES) == sum(len(area.probes) for area in AREAS)
    for probe in PROBES.values():
        assert probe.code, probe.name
        assert all(Path(file).is_file() for file in probe.code.split()), probe.name


def test_the_ten_most_probable_first_failures_are_probes() -> None:
    assert set(FIRST_FAILURES) <= set(PROBES)


def test_a_probe_by_hand_takes_the_users_answer() -> None:
    probe = by_hand("bill", "", "", "look at the invoice", why="it comes late", code="x", not_local="y")
    assert (judged(probe, True), judged(probe, False), judged(probe, "perhaps")) == (HOLDS, DIFFERS, NOT_ASKED)
    assert row(probe, {HAND: {}}).detail == "by hand: look at the invoice"


def test_reports_of_the_repository_are_of_azure() -> None:
    for report in untested_page.reports():
        assert report["region"] != "local"
        assert {row["probe"] for row in report["judgements"]} <= set(PROBES)


def test_the_second_report_of_a_day_is_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("2027-01-05-x-Standard_D4s_v5", "2027-01-05-x-Standard_D4s_v5-2", "2027-01-05-x-Standard_D4s_v5-10")
    for name in names:
        (tmp_path / f"{name}.json").write_text(f'{{"name": "{name}"}}', encoding="utf-8")
    monkeypatch.setattr(untested_page, "REPORTS", tmp_path)
    assert [report["name"] for report in untested_page.reports()] == list(names)


def test_the_page_says_where_and_when_an_assumption_was_seen() -> None:
    row = {"probe": "clocks", "judgement": "holds"}
    report = {"date": "2027-01-05", "region": "westeurope", "size": "Standard_D4s_v5", "judgements": [row]}
    judgements = untested_page.seen_in([report, {**report, "date": "2027-02-06"}])
    assert judgements == {"clocks": "holds (Standard_D4s_v5, westeurope, 2027-02-06)"}
