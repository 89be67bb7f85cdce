"""A plan as text: what is alike is shown once, what is long is shortened, and the rest is counted."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.config.travel import LargeSource
from batchtrain.config.types import Secret
from batchtrain.errors import Problem
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import Plan, Step, render, wire
from batchtrain.plan.payload import VARIABLE
from batchtrain.plan.render import FILE_MARK, SHOWN
from batchtrain.plan.task_stream import ListedTasks, TaskStream
from batchtrain.plan.types import Upload


def task(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"t{number}", "commandLine": "train", **more}


def text(*tasks: dict[str, Any], **parts: Any) -> list[str]:
    """The lines about tasks without the bodies."""
    plan = Plan((Step("task.add", "j", {"value": list(tasks)}),) if tasks else (), **parts)
    return [line for line in str(plan).splitlines() if not line.startswith(("{", "}")) and not line.startswith('  "')]


def test_tasks_alike_are_shown_by_what_differs() -> None:
    assert text(task(0), task(1), task(2, commandLine="other"), task(3, commandLine={"name": "N", "value": "v"})) == [
        "POST /jobs/j/addtaskcollection   (4 tasks)",
        "  t1 is like t0",
        '  t2 is like t0, but commandLine "other"',
        '  t3 is like t0, but commandLine {"name":"N","value":"v"}',
    ]


@pytest.mark.parametrize(("differing", "alike"), [(1, True), (2, True), (3, False)])
def test_tasks_with_few_different_fields_are_alike(differing: int, alike: bool) -> None:
    first, other = ({f"f{n}": n < differing and mark for n in range(4)} for mark in ("a", "b"))
    assert any("is like" in line for line in text(task(0, **first), task(1, **other))) == alike


def test_a_task_with_another_field_is_not_alike() -> None:
    assert not any("is like" in line for line in text(task(0), task(1, priority=1)))


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (SHOWN + 1, []),
        (SHOWN + 2, ["  and t6, like these; `-o json` shows them in full"]),
        (SHOWN + 3, ["  and 2 like these, t6 to t7; `-o json` shows them in full"]),
        (SHOWN + 2000, ["  and 1,999 like these, t6 to t2004; `-o json` shows them in full"]),
    ],
)
def test_further_tasks_alike_are_counted(count: int, more: list[str]) -> None:
    lines = text(*map(task, range(count)))
    assert [line for line in lines if "is like" in line] == [f"  t{n} is like t0" for n in range(1, SHOWN + 1)]
    assert lines[SHOWN + 1 :] == more


@pytest.mark.parametrize(
    ("kinds", "more"), [(SHOWN, []), (SHOWN + 2, ["  and 2 others; `-o json` shows them in full"])]
)
def test_further_kinds_of_tasks_are_counted(kinds: int, more: list[str]) -> None:
    tasks = [task(number, **{f"field{number}": 1}) for number in range(kinds)]
    assert text(*tasks)[1:] == more
    assert str(Plan((Step("task.add", "j", {"value": tasks}),))).count('"commandLine"') == SHOWN


def test_the_number_of_shown_tasks_is_that_of_all_requests_together() -> None:
    steps = tuple(Step("task.add", job, {"value": [*map(task, range(4))]}) for job in "jk")
    lines = [line for line in str(Plan(steps)).splitlines() if line.startswith("  ") and "is like" in line]
    assert lines == [f"  t{number} is like t0" for number in (1, 2, 3, 0, 1)]


def test_collections_of_one_job_are_one_and_counted() -> None:
    steps = tuple(Step("task.add", "j", {"value": [task(number)]}) for number in range(3))
    assert str(Plan(steps)).splitlines()[0] == "POST /jobs/j/addtaskcollection   (3 tasks in 3 requests)"


def test_a_stream_has_its_number_and_its_largest_task() -> None:
    bodies = tuple(wire.TaskCreate(id=name, command_line="x" * 1000) for name in "abc")
    stream = TaskStream((ListedTasks(bodies),))
    first = str(Plan((Step("task.add", "j", stream),))).splitlines()[0]
    assert first == f"POST /jobs/j/addtaskcollection   (3 tasks, the largest of {stream.largest:,} bytes)"


@pytest.mark.parametrize(("length", "ending"), [(98, '"'), (99, "…")])
def test_a_long_value_is_cut_where_tasks_differ(length: int, ending: str) -> None:
    (line,) = (line for line in text(task(0), task(1, commandLine="x" * length)) if "but" in line)
    assert line == f'  t1 is like t0, but commandLine "{"x" * length}{ending}'


def test_the_files_of_a_task_are_shown_by_their_length() -> None:
    variable = {"name": f"{VARIABLE}0", "value": "x" * 5000}
    plan = str(Plan((Step("job.add", "j", {"a": [variable, {"name": "A", "value": "b"}]}),)))
    assert "<5000 characters of the task's files>" in plan
    assert "xxx" not in plan
    assert '"value": "b"' in plan


def test_an_implicit_setting_is_shown_once_and_counted() -> None:
    setting = Implicit("a", "b", "c", "rule", "x")
    plan = Plan(implicit=(setting, setting._replace(where="y"), Implicit("d", "e", "f", "rule", "x")))
    assert str(plan).splitlines() == ["", "implicit:", "  a = b   because c (2 times)", "  d = e   because f"]


def test_equal_launches_are_shown_once_with_their_files() -> None:
    shell = f"first\nsecond{FILE_MARK}a.sh \nbody{FILE_MARK}b.py \nbody"
    plan = Plan(launch=(("a", shell), ("b", "other"), ("c", shell), ("d", shell)))
    assert str(plan).splitlines() == [
        "", "task a (and 2 more) runs:", "  first", "  second",
        "  # with .batchtrain/a.sh, .batchtrain/b.py; `-o json` shows them in full", "", "task b runs:", "  other",
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "last"), [(SHOWN, "  4"), (SHOWN + 1, "and 1 other launches; `-o json` shows them")])
def test_further_launches_are_counted(count: int, last: str) -> None:
    plan = Plan(launch=tuple((f"t{number}", str(number)) for number in range(count)))
    assert str(plan).splitlines()[-1] == last


def test_a_plan_in_a_notebook_folds_its_parts_and_masks_its_secrets() -> None:
    warning = Problem("rule", "beware of hunter22", level="warning")
    plan = Plan(
        (Step("job.add", "j", {"id": "hunter22"}),), (warning,), (Implicit("a", "hunter22", "c", "r", "x"),),
        (("t", "run hunter22"),), hidden=(Secret("hunter22"),),
    )  # fmt: skip
    shown = plan._repr_html_()
    assert "hunter22" not in shown
    parts = ("1 request<", "POST /jobs", "implicit settings", "warnings", "task t runs")
    assert [part for part in parts if part not in shown] == []
    assert "plan: 2 requests" in Plan(plan.steps * 2)._repr_html_()
    assert "warnings" not in Plan(plan.steps)._repr_html_()


def test_a_document_has_every_part_of_a_plan() -> None:
    plan = Plan((Step("pool.add", "p", {"id": "p"}),), launch=(("t", "run"),))
    step = {"action": "pool.add", "method": "POST", "path": "/pools", "body": {"id": "p"}}
    assert render.as_document(plan) == {"steps": [step], "warnings": [], "implicit": [], "launch": {"t": "run"}}


# --- plans as values ------------------------------------------------------------------------------------------------


def test_two_plans_join_in_their_order_and_say_nothing_twice() -> None:
    warning, setting = Problem("r", "w", level="warning"), Implicit("a", "b", "c", "r", "x")
    step, launch, upload = Step("pool.add", "p", {"id": "p"}), ("t", "run"), Upload("x", b"123")
    one = Plan((step,), (warning,), (setting,), (launch,), (upload,))
    other = Plan((step._replace(subject="q"),), (warning,), (setting,), (("u", "run"),), (Upload("y", b""),))
    joined = one.joined(other)
    assert [made.subject for made in joined.steps] == ["p", "q"]
    assert (joined.warnings, joined.implicit) == ((warning,), (setting,))
    assert [name for name, _ in joined.launch] == ["t", "u"]
    assert [item.path for item in joined.uploads] == ["x", "y"]


def test_the_size_of_an_upload_is_that_of_its_bytes_or_of_its_large_source() -> None:
    assert Upload("x", b"123").size == 3
    assert Upload("x", LargeSource((), 1 << 40, "d")).size == 1 << 40
