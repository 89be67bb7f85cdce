"""A plan against what stands: what the service fills in is no difference, everything else is."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from azure.batch import models

from batchtrain.config.types import Recipe
from batchtrain.plan import Plan, Step, canonical, diff, plan_recipe
from batchtrain.plan.diff import Compared, Living
from batchtrain.plan.marks import OWN
from batchtrain.plan.wire import Placeholder, Template, later
from tests import judge
from tests.unit.plan.jobs import recipe as recipe_of


def recipe(pool: dict[str, Any] | None = None, job: dict[str, Any] | None = None, tasks: int = 1) -> Recipe:
    """A small recipe; `pool` and `job` add to it."""
    return recipe_of({"tasks": [{"command": f"echo {number}"} for number in range(tasks)], **(job or {})}, pool=pool)


def as_the_service_tells(plan: Plan) -> Living:
    """What stands when the plan was carried out: with what the service fills in, in its own spelling."""
    pools, jobs, tasks = {}, {}, {}
    for kind, name, body in diff.wanted(plan):
        told = {**filled(diff.FILLED_IN[kind], msgspec.to_builtins(body)), "state": "active", "eTag": "0x1", "url": "x"}
        if kind == "pool":
            timeout = body.get("resizeTimeout", "PT900S")
            pools[name[0]] = {**told, "vmSize": told["vmSize"].lower(), "resizeTimeout": timeout}
        elif kind == "job":
            jobs[name[0]] = told
        else:
            tasks[name[0], name[1]] = told
    return Living(pools, jobs, {}, tasks)


def filled(defaults: Any, body: Any) -> Any:
    """The body with the service's defaults; of blocks that were not asked for, only the service's own."""
    if not isinstance(body, dict) or not isinstance(defaults, dict):
        return body
    own = {"constraints", "userIdentity", "taskSchedulingPolicy"}
    more = {
        key: value for key, value in defaults.items() if key not in body and (not isinstance(value, dict) or key in own)
    }
    return {**{key: filled(defaults.get(key), value) for key, value in body.items()}, **more}


def compared(planned: Recipe, standing: Recipe) -> tuple[Compared, ...]:
    return diff.compare(plan_recipe(planned), as_the_service_tells(plan_recipe(standing)))


def only(found: tuple[Compared, ...]) -> diff.Difference:
    """The one difference there is."""
    (one,) = [difference for item in found for difference in item.differences]
    return one


def test_a_missing_object_will_be_created() -> None:
    found = diff.compare(plan_recipe(recipe()), Living())
    objects = [(item.kind, item.id, item.state) for item in found]
    assert objects == [("pool", "p", "make"), ("job", "j", "make"), ("task", "j/task-00000", "make")]


def test_what_the_service_fills_in_and_respells_is_no_difference() -> None:
    assert {item.state for item in compared(recipe(), recipe())} == {"same"}


def test_a_pool_that_does_not_say_its_slots_has_the_one_of_the_reference() -> None:
    standing = as_the_service_tells(plan_recipe(recipe()))
    told = {name: value for name, value in standing.pools["p"].items() if name != "taskSlotsPerNode"}
    found = diff.compare(plan_recipe(recipe({"task_slots_per_node": 2})), standing._replace(pools={"p": told}))
    assert (only(found).living, only(found).planned) == (1, 2)


def test_a_job_manager_that_does_not_say_it_runs_alone_on_its_node() -> None:
    planned = recipe(job={"job_manager": {"command": "x", "run_exclusive": False}, "tasks": []})
    standing = as_the_service_tells(plan_recipe(planned))
    manager = {name: value for name, value in standing.jobs["j"]["jobManagerTask"].items() if name != "runExclusive"}
    told = standing._replace(jobs={"j": {**standing.jobs["j"], "jobManagerTask": manager}})
    found = diff.compare(plan_recipe(planned), told)
    assert (only(found).living, only(found).planned) == (True, False)


def command(text: str, **more: Any) -> dict[str, Any]:
    return {"tasks": [{"command": text, **more}]}


@pytest.mark.parametrize(
    ("part", "living", "planned", "difference"),
    [
        ("pool", {}, {"vm_count": {"dedicated": 4}}, ("targetDedicatedNodes", 2, 4, diff.RESIZE)),
        ("pool", {}, {"vm_size": "STANDARD_D8S_V5"},
         ("vmSize", "standard_d4s_v5", "STANDARD_D8S_V5", diff.PATCH_EMPTY)),
        ("pool", {"metadata": {"a": "2"}}, {"metadata": {"a": "1"}}, ("metadata[a].value", "2", "1", diff.PATCH)),
        ("pool", {"display_name": "mine"}, {}, ("displayName", "mine", None, diff.PATCH)),
        ("job", {}, {"priority": 7}, ("priority", 0, 7, diff.PATCH)),
        ("job", {}, {"auto_complete": True}, ("onAllTasksComplete", "noaction", "terminatejob", diff.PATCH)),
        ("job", command("a b"), command("A b"),
         ("commandLine", "/bin/bash -c 'a b'", "/bin/bash -c 'A b'", diff.ANEW)),
        ("job", command("a"), command("a", max_task_retries=3),
         ("constraints.maxTaskRetryCount", 0, 3, "in place (PUT)")),
    ],
)  # fmt: skip
def test_a_difference_has_its_path_both_values_and_what_it_takes(
    part: str, living: dict[str, Any], planned: dict[str, Any], difference: tuple[Any, ...]
) -> None:
    assert only(compared(recipe(**{part: planned}), recipe(**{part: living})))[:4] == difference


def test_the_retries_of_a_task_without_constraints_are_its_jobs() -> None:
    planned = recipe(job={"max_task_retries": 2})
    standing = as_the_service_tells(plan_recipe(planned))
    task = {**standing.tasks["j", "task-00000"], "constraints": {"maxTaskRetryCount": 2, "retentionTime": "P7D"}}
    found = diff.compare(plan_recipe(planned), standing._replace(tasks={("j", "task-00000"): task}))
    assert {item.state for item in found} == {"same"}


@pytest.mark.parametrize("count", [2, 101], ids=["tasks", "a stream of tasks"])
def test_a_task_that_was_added_is_to_be_made(count: int) -> None:
    found = compared(recipe(tasks=count + 1), recipe(tasks=count))
    assert [item.state for item in found if item.kind == "task"] == ["same"] * count + ["make"]


def test_the_order_of_metadata_does_not_count() -> None:
    found = compared(recipe({"metadata": {"a": "1", "b": "2"}}), recipe({"metadata": {"b": "2", "a": "1"}}))
    assert {item.state for item in found} == {"same"}


def test_a_pool_that_scales_itself_may_have_any_number_of_nodes() -> None:
    scaled = {"autoscale": {"formula": "$TargetDedicatedNodes = 1;"}}
    standing = as_the_service_tells(plan_recipe(recipe(scaled)))
    pool = {**standing.pools["p"], "targetDedicatedNodes": 17}
    assert diff.compare(plan_recipe(recipe(scaled)), standing._replace(pools={"p": pool}))[0].state == "same"


def test_a_pool_that_scales_itself_is_compared_with_its_timeout() -> None:
    scaled = {"autoscale": {"formula": "$TargetDedicatedNodes = 1;"}, "resize_timeout": "00:20:00"}
    assert compared(recipe(scaled), recipe(scaled))[0].state == "same"
    one = only(compared(recipe({**scaled, "resize_timeout": "00:30:00"}), recipe(scaled)))
    assert (one.path, one.living, one.planned) == ("resizeTimeout", "PT20M", "PT30M")


def test_a_pool_that_is_made_empty_for_its_identities_is_compared_as_grown() -> None:
    identity = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i"
    (_, _, pool), *_ = diff.wanted(plan_recipe(recipe({"identities": [identity]})))
    assert pool["targetDedicatedNodes"] == 2


def test_a_password_is_never_compared() -> None:
    body = {"id": "p", "vmSize": "s", "userAccounts": [{"name": "a", "password": later("user", "a:password")}]}
    plan = Plan((Step("pool.add", "p", body),))
    standing = {"id": "p", "vmSize": "s", "userAccounts": [{"name": "a"}]}
    assert diff.compare(plan, Living(pools={"p": standing}))[0].state == "same"


def test_a_url_is_the_same_with_another_signature() -> None:
    def pool(url: str | Template) -> dict[str, Any]:
        return {"id": "p", "vmSize": "s", "startTask": {"commandLine": "x", "resourceFiles": [{"httpUrl": url}]}}

    plan = Plan((Step("pool.add", "p", pool(Template("https://a/b?", Placeholder("sas", "link/c")))),))
    assert diff.compare(plan, Living(pools={"p": pool("https://a/b?sig=1")}))[0].state == "same"
    assert diff.compare(plan, Living(pools={"p": pool("https://a/OTHER?sig=1")}))[0].state == "differs"


def test_a_users_own_text_is_no_placeholder() -> None:
    def pool(value: str) -> dict[str, Any]:
        return {"id": "p", "vmSize": "s", "metadata": [{"name": "m", "value": value}]}

    plan = Plan((Step("pool.add", "p", pool("{{sas:link/c}}")),))
    assert diff.compare(plan, Living(pools={"p": pool("other")}))[0].state == "differs"


@pytest.mark.parametrize(
    ("one", "other", "same"), [("PT6M", "PT360S", True), ("P1D", "PT24H", True), ("PT1M", "PT1H", False)]
)
def test_spans_are_compared_as_time(one: str, other: str, same: bool) -> None:
    def job(span: str) -> dict[str, Any]:
        return {"id": "j", "poolInfo": {"poolId": "p"}, "constraints": {"maxWallClockTime": span}}

    found = diff.compare(Plan((Step("job.add", "j", job(one)),)), Living(jobs={"j": job(other)}))
    assert (found[0].state == "same") is same


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("pool", models.BatchPoolUpdateOptions),
        ("job", models.BatchJobUpdateOptions),
        ("schedule", models.BatchJobScheduleUpdateOptions),
    ],
)
def test_what_may_be_patched_is_what_the_sdk_says(kind: str, model: Any) -> None:
    patched = {name for name, way in diff.HOW[kind].items() if "PATCH" in way}
    assert patched == set(judge.fields(model))


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("pool", models.BatchPool),
        ("job", models.BatchJob),
        ("schedule", models.BatchJobSchedule),
        ("task", models.BatchTask),
    ],
)
def test_the_service_has_a_field_for_all_it_fills_in(kind: str, model: Any) -> None:
    assert [path for path in paths(diff.FILLED_IN[kind]) if not judge.knows(model, path)] == []


def paths(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return [path]
    return [found for key, below in value.items() for found in paths(below, (*path, key))]


# --- single values --------------------------------------------------------------------------------------------------

TASK = {"id": "t", "commandLine": "x"}


def task_beside(planned: dict[str, Any], living: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """The differences of a task whose job is not in the plan."""
    (found,) = diff.compare(Plan((Step("task.add", "j", planned),)), Living(tasks={("j", "t"): living}))
    return [(item.path, item.living, item.planned) for item in found.differences]


def job_beside(planned: dict[str, Any], living: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    living = {"id": "j", **living}
    (found,) = diff.compare(Plan((Step("job.add", "j", {"id": "j", **planned}),)), Living(jobs={"j": living}))
    return [(item.path, item.living, item.planned) for item in found.differences]


@pytest.mark.parametrize("constraints", [{}, {"constraints": {"retentionTime": "P1D"}}])
def test_a_task_is_not_retried_unless_something_says_so(constraints: dict[str, Any]) -> None:
    planned = {**TASK, **constraints}
    living = {**TASK, "constraints": {**constraints.get("constraints", {}), "maxTaskRetryCount": 0}}
    assert task_beside(planned, living) == []
    living["constraints"]["maxTaskRetryCount"] = 1
    assert [path for path, _, _ in task_beside(planned, living)] == ["constraints.maxTaskRetryCount"]


def test_the_metadata_that_batchtrain_adds_is_no_difference() -> None:
    own = [{"name": name, "value": "x"} for name in OWN]
    mine = {"name": "mine", "value": "1"}
    assert job_beside({"metadata": [mine]}, {"metadata": [*own, mine]}) == []
    assert job_beside({}, {"metadata": own}) == []
    assert job_beside({"metadata": [mine]}, {"metadata": own}) == [("metadata[mine]", None, mine)]


def test_the_items_of_a_list_without_names_are_compared_by_their_numbers() -> None:
    def taking(*paths: str) -> dict[str, Any]:
        return {**TASK, "applicationPackageReferences": list(paths)}

    assert task_beside(taking("a", "b"), taking("a", "b")) == []
    assert task_beside(taking("a", "b"), taking("a", "c")) == [("applicationPackageReferences[1]", "c", "b")]
    assert task_beside(taking("a"), taking("a", "c")) == [("applicationPackageReferences[1]", "c", None)]


def test_what_the_plan_alone_has_is_one_difference() -> None:
    planned = {**TASK, "outer": {"a": {"b": 1}}}
    assert task_beside(planned, TASK) == [("outer", None, {"a": {"b": 1}})]
    assert task_beside(planned, {**TASK, "outer": {"a": {"b": 2}}}) == [("outer.a.b", 2, 1)]


@pytest.mark.parametrize(
    ("before", "after", "key", "same"),
    [
        ("Steady", "steady", "id", False),
        ("TerminateJob", "terminatejob", "onAllTasksComplete", True),
        (1, "1", "id", False),
        (1, 1, "id", True),
        (None, "", "id", False),
        ("P1DT2H", "PT26H", "x", True),
        ("PT1H30M", "PT90M", "x", True),
        ("PT1.5S", "PT1S", "x", False),
        ("P", "P", "x", True),
        ("PT", "P", "x", False),
        ("other", "text", "x", False),
    ],
)
def test_two_values_mean_the_same_in_another_case_or_unit(before: Any, after: Any, key: str, same: bool) -> None:
    assert diff.same(before, after, key) is same


@pytest.mark.parametrize(
    ("count", "names"), [(5, "j/0, j/1, j/2, j/3, j/4"), (6, "j/0, j/1, j/2, j/3, j/4 and 1 more")]
)
def test_some_of_the_tasks_alike_are_named(count: int, names: str) -> None:
    tasks = [Compared("task", f"j/{number}", "same") for number in range(count)]
    other = [Compared("task", "k/0", "same"), Compared("task", "k/1", "make")]
    assert diff.as_text([*tasks, *other]).splitlines() == [
        f"= task {names}: as planned", "= task k/0: as planned", "+ task k/1: to be made",
    ]  # fmt: skip


@pytest.mark.parametrize(("length", "shown"), [(58, '"' + "x" * 58 + '"'), (59, '"' + "x" * 59 + "… (61 characters)")])
def test_a_long_value_of_a_difference_is_cut(length: int, shown: str) -> None:
    difference = diff.Difference("a.b", None, "x" * length, "anew")
    lines = diff.as_text([Compared("job", "j", "differs", (difference,))]).splitlines()
    assert lines == ["~ job j: differs", f"    a.b: nothing -> {shown}   (anew)"]


def test_a_comparison_counts_what_is_as_planned_in_a_notebook() -> None:
    shown = diff.PlanComparison([Compared("job", "j", "same"), Compared("job", "k", "make")])._repr_html_()
    assert "1 of 2 objects are as planned" in shown
    assert "+ job k: to be made" in shown


def test_a_pool_differs_without_its_counts_only_if_something_else_does() -> None:
    counts = [diff.Difference(path, 1, 2, "resize") for path in ("targetDedicatedNodes", "resizeTimeout")]
    secret = diff.Difference("startTask.environmentSettings[API_TOKEN].value", "a", "b", "anew")
    size = diff.Difference("vmSize", "a", "b", "anew")
    found = Compared("pool", "p", "differs", (*counts, secret, size))
    assert diff.but_for_counts(found) == Compared("pool", "p", "differs", (size,))
    assert diff.but_for_counts(found._replace(differences=(*counts, secret))) == Compared("pool", "p", "same")


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every part of a document."""
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from parts(part, (*path, key))


def with_part(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at a path."""
    if not path:
        return value
    copied = copy.deepcopy(document)
    functools.reduce(operator.getitem, path[:-1], copied)[path[-1]] = value
    return copied


@pytest.mark.parametrize("value", [5, "PT1.2.3S", None, True, [], [5], [[{}]], {}, {"name": [5]}, 10**400])
def test_a_part_of_any_form_can_be_compared(value: Any) -> None:
    """The service may answer anything."""
    plan = plan_recipe(recipe())
    living = as_the_service_tells(plan)
    for kind, documents in (("pools", living.pools), ("jobs", living.jobs), ("tasks", living.tasks)):
        ((name, document),) = documents.items()
        for path in list(parts(dict(document)))[1:]:
            changed = with_part(dict(document), path, value)
            diff.as_text(diff.compare(plan, living._replace(**{kind: {name: changed}})))
            canonical.mark(changed)
