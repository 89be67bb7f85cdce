"""Why a plan is as it is: every decision has a rule with a source, and every property an answer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from batchtrain.config import origin
from batchtrain.config.custom_factories import read_made
from batchtrain.config.load import Examined, examine, find, read
from batchtrain.config.source_directory import read_sources
from batchtrain.config.types import read_path
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import Implicit
from batchtrain.launchers.rules import RULES
from batchtrain.plan import Facts, Plan, Step, explain, plan_recipe
from batchtrain.plan.explain import Decision, Explained, Setting

ROOT = Path(__file__).resolve().parents[3]
DIRECTORIES = sorted(
    path.parent for pattern in ("recipes/*/config", "tests/data/shipyard/*/config") for path in ROOT.glob(pattern)
)

POOL = b"""
pool_specification:
  id: p
  vm_size: STANDARD_HB120RS_V3
  vm_count: {dedicated: 2}
  inter_node_communication_enabled: true
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
"""
JOBS = b"""
job_specifications:
- id: j
  tasks:
  - id: one
    command: ./train
    multi_instance: {num_instances: 2, mpi: {runtime: openmpi}}
  - command: echo
  - command: echo
"""


def asked(question: str = "", *, jobs: bytes = JOBS, pool: bytes = POOL, **settings: str) -> Explained:
    """The answer about a small recipe."""
    found = examine(Path("x"), {"pool.yaml": pool, "jobs.yaml": jobs}, settings=settings)
    view = origin.view(found)
    return explain.explain(plan_recipe(found.recipe), found.recipe, view.values, view.origins, question)


def whats(told: Explained) -> set[str]:
    return {item.what for item in told.decisions}


def test_without_a_question_every_decision_is_told() -> None:
    assert {"infiniband", "user_identity"} <= whats(asked())


def test_a_decision_comes_with_its_reason_its_rule_its_source_and_the_way_out() -> None:
    (one,) = asked("infiniband").decisions
    rule = "infiniband-by-size"
    assert (one.value, one.rule, one.source) == ("true", rule, RULES[rule].source)
    assert "has InfiniBand" in one.because and one.off == "`infiniband: false` on the task or its job"


def test_decisions_alike_are_one_and_counted() -> None:
    implicit = [Implicit("a", "b", "c", "infiniband-by-size", f"job_specifications[0].tasks[{n}]") for n in range(1000)]
    (one,) = explain.decisions(implicit)
    assert (one.times, len(one.where)) == (1000, explain.SHOWN)
    assert "and 997 more" in str(Explained((one,)))


@pytest.mark.parametrize(
    ("question", "is_named"),
    [
        ("job_specifications[0].tasks[0]", True),
        ("job_specifications[0].tasks[1]", False),
        ("job_specifications.tasks", True),
        ("tasks[0]", True),
        ("tasks[1]", False),
    ],
)
def test_a_block_is_asked_for_by_its_path(question: str, is_named: bool) -> None:
    assert ("infiniband" in whats(asked(question))) == is_named


@pytest.mark.parametrize(
    "question",
    ["job_specifications[0].tasks[0].infiniband", "job_specifications.tasks.infiniband", "infiniband-by-size"],
)
def test_a_decision_is_asked_for_by_the_property_that_switches_it_off_or_by_its_rule(question: str) -> None:
    assert whats(asked(question)) == {"infiniband"}


def test_a_property_that_is_set_says_where_and_what_it_becomes() -> None:
    (one,) = asked("pool_specification.vm_size").settings
    assert (one.value, one.origin, one.becomes) == ("STANDARD_HB120RS_V3", "pool.yaml:4", "pool.vmSize")
    assert one.planned == ("STANDARD_HB120RS_V3",)
    assert one.see == "docs/reference/config.md#pool_specification.vm_size"


def test_a_property_of_the_command_line_says_so() -> None:
    (one,) = asked("vm_size", **{"pool_specification.vm_size": "STANDARD_D4S_V5"}).settings
    assert (one.value, one.origin) == ("STANDARD_D4S_V5", "--set")


def test_a_default_is_marked_as_one() -> None:
    (one,) = asked("pool_specification.task_slots_per_node").settings
    assert (one.value, one.origin, one.planned) == (1, "default", (1,))


def test_an_unset_property_is_explained_by_the_reference() -> None:
    (one,) = asked("pool_specification.resize_timeout").settings
    assert (one.value, one.origin, one.becomes) == (None, "not set", "pool.resizeTimeout")
    assert (one.planned, one.times) == ((), 0)


def test_a_property_is_seen_in_the_requests_of_its_own_task() -> None:
    (one,) = asked("job_specifications[0].tasks[0].id").settings
    assert one.planned == ("one",)


def test_a_task_without_an_id_and_a_merge_task_show_their_own_values() -> None:
    jobs = b"job_specifications: [{id: j, tasks: [{command: a}, {command: b}], merge_task: {command: c}}]"
    for path, command in (("tasks[1]", "b"), ("merge_task", "c")):
        (one,) = asked(f"job_specifications[0].{path}.command", jobs=jobs).settings
        assert one.planned == (f"/bin/bash -c '{command}'",)


def test_a_removed_property_names_its_replacement() -> None:
    pool = POOL + b"  certificates: {abc: {}}\n  batch_insights_enabled: true\n"
    (one,) = asked("batch_insights_enabled", pool=pool).settings
    assert "Azure Monitor" in one.gone
    assert "no effect: Batch Insights is archived" in str(Explained((), (one,)))


def test_a_map_is_one_value() -> None:
    (one,) = asked("metadata", pool=POOL + b"  metadata: {a: b, c: d}\n").settings
    assert one.value == {"a": "b", "c": "d"}


def test_an_unknown_name_gets_the_nearest_name() -> None:
    assert explain.hint(Plan(), "infinibnad", {}) == "Did you mean `infiniband`?"
    assert explain.hint(Plan(), "pool_specification.vm_siez", {}) == "Did you mean `pool_specification.vm_size`?"


# --- every decision of every plan -----------------------------------------------------------------------------------


@cache
def planned(directory: Path) -> tuple[Examined, Plan]:
    place = find(directory)
    found = examine(place, read(place))
    made = Facts(made=read_made(found.recipe))
    try:
        return found, plan_recipe(found.recipe, made, read_sources(found.recipe))
    except PlanError:  # that the corpus plans is another test's claim
        return found, Plan()


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.name)
def test_every_decision_of_a_plan_has_a_rule_and_a_place(directory: Path) -> None:
    found, plan = planned(directory)
    view = origin.view(found)
    assert {item.rule for item in plan.implicit} <= set(RULES)
    assert [item for item in plan.implicit if not stands(view.values, item.where)] == []


def stands(values: Any, where: str) -> bool:
    """Whether a path leads to something in the merged view."""
    for step in read_path(where):
        known = range(len(values)) if isinstance(values, list) else values if isinstance(values, dict) else ()
        if step not in known:
            return False
        values = values[step]
    return bool(where)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_sentence_and_a_source(rule: str) -> None:
    assert RULES[rule].sentence.endswith(".")
    assert len(RULES[rule].source) > 10


def test_a_missing_item_is_not_explained() -> None:
    assert asked("job_specifications[7].priority") == Explained(())
    values = {"job_specifications": [{"tasks": [{}, {}, {}]}]}
    assert explain.hint(Plan(), "job_specifications[0].tasks[7]", values) == (
        "`job_specifications[0].tasks` has 3, the last is job_specifications[0].tasks[2]."
    )


def test_a_task_shows_what_it_takes_from_its_job() -> None:
    told = asked("job_specifications[0].tasks[1].shm_size", jobs=JOBS.replace(b"- id: j", b"- id: j\n  shm_size: 8g"))
    assert [(one.path, one.value) for one in told.settings] == [("job_specifications[0].shm_size", "8g")]


def test_a_path_may_begin_inside_its_section() -> None:
    (one,) = asked("tasks[0].command").settings
    assert (one.path, one.value) == ("job_specifications[0].tasks[0].command", "./train")


def test_a_path_with_an_unknown_start_gets_the_valid_starts() -> None:
    assert explain.hint(Plan(), "nosuch.path", {}).startswith("A path begins with one of credentials, batchtrain")


# --- the answer as text ---------------------------------------------------------------------------------------------

SETTING = Setting("a.b", "v", "pool.yaml:4", "What it is.", "pool.x", (), 0, "docs")


@pytest.mark.parametrize(
    ("setting", "lines"),
    [
        (SETTING, ["a.b = v   (pool.yaml:4)", "  What it is.", "  becomes pool.x", "  see docs"]),
        (SETTING._replace(value=None, about="", becomes=""), ["a.b   (pool.yaml:4)", "  see docs"]),
        (SETTING._replace(gone="It is gone."),
         ["a.b = v   (pool.yaml:4)", "  What it is.", "  no effect: It is gone.", "  see docs"]),
        (SETTING._replace(becomes="batchtrain: waits: long"),
         ["a.b = v   (pool.yaml:4)", "  What it is.", "  done by batchtrain itself: waits: long", "  see docs"]),
        (SETTING._replace(planned=("p", {"q": 1}), times=2),
         ["a.b = v   (pool.yaml:4)", "  What it is.", '  becomes pool.x: p, {"q":1}', "  see docs"]),
        (SETTING._replace(planned=("p",), times=1001),
         ["a.b = v   (pool.yaml:4)", "  What it is.", "  becomes pool.x: p and 1,000 more", "  see docs"]),
        (SETTING._replace(value="x" * 100, about="", becomes=""), [f"a.b = {'x' * 100}   (pool.yaml:4)", "  see docs"]),
        (SETTING._replace(value="x" * 101, about="", becomes=""),
         [f"a.b = {'x' * 100}… (101 characters)   (pool.yaml:4)", "  see docs"]),
    ],
)  # fmt: skip
def test_a_setting_is_a_few_lines(setting: Setting, lines: list[str]) -> None:
    assert str(Explained((), (setting,))).splitlines() == lines


def test_decisions_of_one_rule_share_its_sentence() -> None:
    decision = Decision("a", "1", "why", "rule", "It is so.", "the manual", "", ("x", "y"), 2)
    lines = str(Explained((decision, decision._replace(what="b"), decision._replace(off="write c")))).splitlines()
    assert lines == [
        "a = 1", "  because why", "b = 1", "  because why", "  for x, y", "  rule rule: It is so.",
        "  source: the manual", "  it cannot be switched off: nothing else could work", "",
        "a = 1", "  because why", "  for x, y", "  rule rule: It is so.", "  source: the manual",
        "  to switch it off: write c",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("*.x", [3, 1, 2]),
        ("pool.x", [3]),
        ("pool.deep.x", [1]),
        ("pool.x, pool.deep.more.x", [3, 2]),
        ("pool.deep.*.x", [2]),
        ("job.x", []),
        ("batchtrain: does it", []),
        ("", []),
    ],
)
def test_a_field_is_read_from_the_requests(field: str, values: list[int]) -> None:
    plan = Plan((Step("pool.add", "p", {"x": 3, "deep": [{"x": 1}, {"more": {"x": 2}}]}),))
    recipe = examine(Path("x"), {"pool.yaml": POOL, "jobs.yaml": JOBS}).recipe
    assert list(explain.on_wire(plan, recipe, ("pool_specification", "id"), field)) == values


@pytest.mark.parametrize(("more", "count"), [(0, 3), (1, 1)])
def test_a_default_of_many_blocks_is_explained_once(more: int, count: int) -> None:
    settings = asked("elevated", jobs=JOBS + b"  - command: echo\n" * more).settings
    assert [(setting.value, setting.origin) for setting in settings] == [(False, "default")] * count
