"""Tasks that are made one by one when they are sent."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchtrain.config.travel import Source
from batchtrain.config.types import Recipe, convert
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import File
from batchtrain.plan import Facts, Plan, PoolFacts, factory, plan_jobs, wire
from batchtrain.plan import job as job_plan
from batchtrain.plan.factory_tasks import FactoryTasks
from batchtrain.plan.task_stream import ListedTasks, TaskStream, _Seen, document
from tests import examples
from tests.unit.plan.jobs import IMAGE

POOL = PoolFacts("p", "STANDARD_D2S_V5", 1, 0, False, 1)
STORAGE = {"storage": {"link": {"account": "mine", "account_key": "a2V5"}}}


def body(**more: object) -> wire.TaskCreate:
    return wire.TaskCreate(id="a", command_line='echo "<0|0>"', **more)  # type: ignore[arg-type]


def test_a_document_without_placeholders_is_sent_as_it_is_shown() -> None:
    made = document(body())
    assert not made.placeholders
    assert json.loads(made.filled(lambda _: "never")) == json.loads(made.body) == wire.document(body())


def test_placeholders_are_filled_where_they_are_and_nowhere_else() -> None:
    url = wire.Template("https://h/", wire.Placeholder("sas", "link/c/b"), "#end")
    settings = (wire.Environment(name="A", value="{{sas:link/c/b}}"), wire.Environment(name="B", value=url))
    made = document(body(environment_settings=settings))
    assert made.placeholders
    assert json.loads(made.body) == json.loads(wire.encoded(body(environment_settings=settings)))
    sent = json.loads(made.filled(lambda placeholder: f'"{placeholder.kind}"'))
    assert [item["value"] for item in sent["environmentSettings"]] == ["{{sas:link/c/b}}", 'https://h/"sas"#end']
    assert sent["commandLine"] == 'echo "<0|0>"'


def test_the_variables_of_a_vault_join_those_of_the_task() -> None:
    settings = wire.VaultSettings("https://v/secrets/s", (wire.Environment(name="A", value="1"),))
    made = document(body(environment_settings=settings))
    sent = json.loads(made.filled(lambda _: '{"A": "0", "B": "2"}'))
    assert sent["environmentSettings"] == [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]


# --- the tasks of factories -----------------------------------------------------------------------------------------

TEXT = st.text("abz019.-_/ '\"\\{}$é", max_size=6)
NUMBER = st.one_of(st.integers(-1000, 1000), st.floats(allow_nan=False))
RANGE = st.builds(lambda start, size, step: {"start": start, "stop": start + size * step, "step": step},
                  st.integers(-30, 30), st.integers(1, 4), st.integers(1, 7))  # fmt: skip
AXIS = st.one_of(st.lists(st.one_of(TEXT, NUMBER), min_size=1, max_size=4), RANGE)
FACTORIES = st.one_of(
    st.fixed_dictionaries({"grid": st.fixed_dictionaries({"a": AXIS, "b": AXIS})}),
    st.fixed_dictionaries({"list": st.lists(st.fixed_dictionaries({"a": TEXT, "b": NUMBER}), min_size=1, max_size=5)}),
)
FIELDS = st.lists(
    st.sampled_from(["{a}", "{b}", " ", "x", "--lr ", "{{", "'", '"', "/", "{a:>4}", "{a:04}", "{a!s}"]), max_size=6
)
NAMED = FIELDS.map("".join)


@pytest.mark.property
@given(
    made=FACTORIES, command=NAMED, variable=NAMED, path=NAMED, local=NAMED,
    source=st.booleans(), container=st.booleans(), task_id=st.sampled_from([None, "t", "t-{a}-{b}"]),
)  # fmt: skip
@examples.of(200)
def test_a_stream_has_the_documents_that_each_task_alone_would_have(
    made: dict[str, Any], command: str, variable: str, path: str, local: str, source: bool, container: bool,
    task_id: str | None,
) -> None:  # fmt: skip
    output = {"storage_account_settings": "link", "remote_path": f"c/{path}", "local_path": local or "x"}
    task = {
        "command": f"run {command}", "task_factory": made, "id": task_id,
        "environment_variables": {"A": variable}, "output_data": {"azure_storage": [output]},
        "source": "src" if source else None, "docker_image": "busybox" if container else None,
    }  # fmt: skip
    document = {"directory": "x", "credentials": STORAGE, "jobs": [{"id": "j", "tasks": [task]}]}
    recipe = convert(document, Recipe)
    facts, sources = Facts(pool=POOL), {"src": Source((File("train.py", b"print(1)"),))}
    try:
        [alone] = [step for step in plan_jobs(recipe, facts, sources).steps if step.action == "task.add"]
    except PlanError:
        return
    with patch.object(job_plan, "COLLECTION_TASKS", 0):
        [streamed] = [step for step in plan_jobs(recipe, facts, sources).steps if step.action == "task.add"]
    assert isinstance(streamed.body, TaskStream)
    expected = alone.document.get("value", [alone.document])
    documents = list(streamed.body.documents())
    assert [json.loads(each.body) for each in documents] == json.loads(json.dumps(expected))
    assert [each.id for each in documents] == [each["id"] for each in expected]
    assert streamed.body.count == len(documents)
    assert streamed.body.first == documents[0]
    assert streamed.body.last == documents[-1]


def of_factories(*factories: tuple[str | None, dict[str, Any]], made: dict[int, Any] = {}, **job: Any) -> Plan:  # noqa: B006
    """The plan of a job with a task of each id and factory. made: the rows of custom ones."""
    tasks = [{"id": task_id, "command": "x", "task_factory": factory or None} for task_id, factory in factories]
    recipe = convert({"directory": "x", "jobs": [{"id": "j", "tasks": tasks, **job}]}, Recipe)
    return plan_jobs(recipe, Facts(pool=POOL, made={("j", number): rows for number, rows in made.items()}))


def grid(*values: int) -> dict[str, Any]:
    return {"grid": {"a": list(values)}}


IN_STORAGE = {"storage_account_settings": "link", "remote_path": "c/p"}
FILES = {"file": {"azure_storage": IN_STORAGE, "task_filepath": "file_name"}}
CUSTOM: dict[str, Any] = {"custom": {"module": "m"}}
REPEATED = r"tasks\[{}\].task_factory: made task {} has the id `{}` of an earlier one; write all parameters into `id`"


def test_an_id_that_two_factories_make_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(PlanError, match=REPEATED.format(1, 1, "T-3")):
        of_factories(("t-{a}", grid(1, 2, 3)), ("T-{a}", grid(4, 3)))


def test_an_id_that_a_short_custom_factory_makes_twice_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(PlanError, match=REPEATED.format(0, 2, "t-1")):
        of_factories(("t-{0}", CUSTOM), made={0: ((1,), (2,), (1,))})


def test_an_id_of_the_merge_task_is_refused_for_a_task_of_a_factory() -> None:
    with pytest.raises(PlanError, match=REPEATED.format(0, 1, "t-2")):
        of_factories(("t-{a}", grid(1, 2)), merge_task={"id": "t-2", "command": "x"})


def test_examples_of_tasks_that_are_made_later_may_have_one_id() -> None:
    tasks = [{"id": "t-{file_name}", "command": "x", "task_factory": FILES}] * 2
    pool = {"id": "p", "vm_size": "STANDARD_D2S_V5", "vm_configuration": {"platform_image": IMAGE}}
    document = {"directory": "x", "pool": pool, "credentials": STORAGE, "jobs": [{"id": "j", "tasks": tasks}]}
    plan_jobs(convert(document, Recipe))


@pytest.mark.parametrize("others", [(("t-{a}", grid(5, 150)),), (("t-150", None),)], ids=["factory", "task"])
def test_an_id_that_two_parts_of_a_stream_have_ends_it(others: Any) -> None:
    plan = of_factories(("t-{a}", {"grid": {"a": {"start": 100, "stop": 300}}}), *others)
    with pytest.raises(PlanError, match="`t-150`"):
        list(the_stream(plan).documents())


def test_an_id_that_values_repeat_ends_the_stream_with_its_number() -> None:
    rows = ((number if number < 5000 else 17,) for number in range(5001))
    stream = streamed_of({"custom": {"module": "m"}}, list(rows), id="t-{0}")
    documents = stream.documents()
    assert sum(1 for _ in islice(documents, 5000)) == 5000
    with pytest.raises(PlanError, match=r"made task 5,000 has the id `t-17` of an earlier one"):
        next(documents)


def test_an_id_that_is_too_long_ends_the_stream() -> None:
    rows: list[tuple[Any, ...]] = [(number,) for number in range(200)]
    stream = streamed_of({"custom": {"module": "m"}}, [*rows, ("x" * 64,)], id="t-{0}")
    with pytest.raises(PlanError, match="x` has 66 characters"):
        list(stream.documents())


def test_the_number_of_a_long_custom_factory_is_known_at_its_end() -> None:
    stream = streamed_of({"custom": {"module": "m"}}, [(number,) for number in range(101)])
    assert (stream.count, stream.last, stream.largest) == (None, None, None)
    assert sum(1 for _ in stream.documents()) == 101


def test_a_long_custom_factory_beside_another_task_is_planned() -> None:
    plan = of_factories(("t-{0}", CUSTOM), ("one", None), made={0: [(number,) for number in range(150)]})
    stream = the_stream(plan)
    assert (stream.count, stream.largest, len(list(stream.documents()))) == (151, None, 151)
    assert "(151 tasks)" in str(plan)


def test_a_million_tasks_are_counted_without_making_them() -> None:
    axes = {"a": {"start": 0, "stop": 1000}, "b": {"start": 0, "stop": 1000}}
    with patch.object(FactoryTasks, "documents", side_effect=AssertionError):
        stream = streamed_of({"grid": axes}, [])
        assert stream.count == 1_000_000
        assert stream.last is not None
        assert stream.last.id == "task-999999"
        assert stream.largest == len(stream.last.body)


def streamed_of(made: dict[str, Any], rows: list[tuple[Any, ...]], **task: Any) -> TaskStream:
    command = "run {0}" if "custom" in made else "run {a} {b}"
    tasks = [{"command": command, "task_factory": made, **task}]
    recipe = convert({"directory": "x", "jobs": [{"id": "j", "tasks": tasks}]}, Recipe)
    return the_stream(plan_jobs(recipe, Facts(pool=POOL, made={("j", 0): rows} if rows else {})))


# --- what is known of a stream --------------------------------------------------------------------------------------


def of_files(count: int, **task: Any) -> Plan:
    tasks = [{"command": "run {file_name}", "task_factory": FILES, **task}]
    recipe = convert({"directory": "x", "credentials": STORAGE, "jobs": [{"id": "j", "tasks": tasks}]}, Recipe)
    names = [f"p/f{number}.bin" for number in range(count)]
    return plan_jobs(recipe, Facts(pool=POOL, listings={"link/c/p": names}))


def the_stream(plan: Plan) -> TaskStream:
    [stream] = [step.body for step in plan.steps if step.action == "task.add"]
    assert isinstance(stream, TaskStream)
    return stream


def test_each_task_of_a_file_gets_the_link_to_its_own_file() -> None:
    documents = list(the_stream(of_files(150)).documents())
    assert len(documents) == 150
    for number in (0, 1, 149):
        sent = json.loads(documents[number].filled(lambda placeholder: f"https://h/{placeholder.name}"))
        [file] = sent["resourceFiles"]
        assert file["httpUrl"].partition("?")[0] == f"https://h/link/c/p/f{number}.bin"
        assert file["filePath"] == f"f{number}.bin"
        assert f"run f{number}.bin" in sent["commandLine"]


def test_only_values_of_the_configuration_determine_a_stream() -> None:
    assert the_stream(of_factories(("t-{a}", {"grid": {"a": {"start": 0, "stop": 200}}}))).ruled
    assert not the_stream(of_files(150)).ruled
    assert not streamed_of({"custom": {"module": "m"}}, [(number,) for number in range(101)]).ruled


@pytest.mark.parametrize(("count", "ruled"), [(1, True), (2, True), (3, False)])
def test_tasks_that_are_written_one_by_one_determine_a_stream_if_all_are_shown(count: int, ruled: bool) -> None:
    bodies = [wire.TaskCreate(id=f"t{number}", command_line="x" * (number + 1)) for number in range(count)]
    stream = TaskStream((ListedTasks(bodies),))
    assert (stream.ruled, stream.count, stream.first.id, stream.last and stream.last.id) == (
        ruled, count, "t0", f"t{count - 1}",
    )  # fmt: skip
    assert stream.largest == max(len(task.body) for task in stream.documents())


@pytest.mark.parametrize(("parts", "shown"), [(5, [0, 1, 2, 3, 4]), (7, [0, 1, 2, 3, 6])])
def test_a_plan_shows_the_first_and_the_last_factories_of_a_stream(parts: int, shown: list[int]) -> None:
    def listed(number: int) -> ListedTasks:
        return ListedTasks([wire.TaskCreate(id=f"{number}{end}", command_line="x") for end in "abc"])

    document = TaskStream(tuple(listed(number) for number in range(parts))).shown()
    assert document["count"] == 3 * parts
    assert [task["id"] for task in document["tasks"]] == [f"{number}{end}" for number in shown for end in "ac"]


def test_the_plan_of_a_stream_has_the_launch_of_each_factory() -> None:
    sweep = {"grid": {"a": {"start": 0, "stop": 200}}}
    plan = of_factories(("t-{a}", sweep), ("u-{a}", sweep), ("v", None), merge_task={"id": "m", "command": "merge"})
    assert [name.rpartition("/")[2] for name, _ in plan.launch] == ["t-0", "u-0", "v", "m"]
    assert the_stream(plan).count == 402


def test_a_large_number_of_repeated_texts_is_found() -> None:
    seen = _Seen()
    assert all(seen.add(str(number)) for number in range(20_000))
    assert not any(seen.add(str(number)) for number in range(20_000))


@pytest.mark.parametrize("copied", [True, False])
def test_an_error_of_a_factory_names_the_place_of_its_job_or_of_the_one_that_was_copied(copied: bool) -> None:
    jobs = [{"id": name, "tasks": [{"command": "x", "task_factory": CUSTOM}]} for name in "jk"]
    recipe = convert({"directory": "x", "jobs": jobs}, Recipe)
    job = msgspec.structs.replace(recipe.jobs[1]) if copied else recipe.jobs[1]
    with pytest.raises(PlanError, match=r"^job_specifications\[1\]\.tasks\[0\]\.task_factory: its function"):
        list(factory.expand(recipe, job, Facts(pool=POOL)))
