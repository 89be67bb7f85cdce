"""Task factories: which tasks one task stands for, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from batchtrain.config.factories import id_faults
from batchtrain.config.types import Recipe, Settings, Task, convert
from batchtrain.errors import PlanError
from batchtrain.plan import Facts, PoolFacts, factory
from batchtrain.plan.inputs import ListedFile
from batchtrain.plan.types import OFFLINE

POOL = PoolFacts("p", "x", 1, 0, False, 1)
STORAGE = {"link": {"account": "mine", "account_key": "a2V5"}}


def of_tasks(*tasks: dict[str, Any]) -> Recipe:
    jobs = [{"id": "j", "tasks": list(tasks)}]
    return convert({"directory": "x", "credentials": {"storage": STORAGE}, "jobs": jobs}, Recipe)


def recipe(made: dict[str, Any], command: str | None = "run {0}", **task: Any) -> Recipe:
    return of_tasks({"command": command, "task_factory": made, **task})


def expanded(made: dict[str, Any], command: str | None = "run {0}", facts: Facts = OFFLINE, **task: Any) -> list[Task]:
    whole = recipe(made, command, **task)
    return list(factory.expand(whole, whole.jobs[0], facts))


def commands(made: dict[str, Any], command: str = "{0}", facts: Facts = OFFLINE) -> list[str | None]:
    return [task.command for task in expanded(made, command, facts)]


def sweep(**kind: Any) -> dict[str, Any]:
    return {"parametric_sweep": kind}


# --- parametric sweeps ----------------------------------------------------------------------------------------------


def test_ranges_are_combined_with_the_last_one_running_fastest() -> None:
    ranges = [{"start": 0, "stop": 2}, {"start": 10, "stop": 7, "step": -2}]
    assert commands(sweep(product=ranges), "{} {}") == ["0 10", "0 8", "1 10", "1 8"]


def test_lists_are_combined() -> None:
    assert commands(sweep(product_iterables=["ab", ["x", "yz"]]), "{0}{1}") == ["ax", "ayz", "bx", "byz"]


@pytest.mark.parametrize(
    ("replacement", "wanted"), [(False, ["a b", "a c", "b c"]), (True, ["a a", "a b", "a c", "b b", "b c", "c c"])]
)
def test_combinations_may_take_a_value_twice(replacement: bool, wanted: list[str]) -> None:
    some = {"iterable": ["a", "b", "c"], "length": 2, "replacement": replacement}
    assert commands(sweep(combinations=some), "{} {}") == wanted


def test_permutations_are_every_order() -> None:
    assert commands(sweep(permutations={"iterable": ["a", "b"], "length": 2}), "{}{}") == ["ab", "ba"]


def test_zip_takes_the_first_with_the_first_and_says_when_lists_are_uneven() -> None:
    made = sweep(zip=["ab", ["1", "2", "3"]])
    assert commands(made, "{1}{0}") == ["1a", "2b"]
    whole = recipe(made)
    assert [found.rule for found in factory.warnings(whole, whole.jobs[0])] == ["uneven-zip"]


def test_values_are_formatted_as_python_does() -> None:
    assert commands(sweep(product=[{"start": 7, "stop": 8}]), "{0:03d} {0!r} {{literal}}") == ["007 7 {literal}"]


# --- random, repeat, custom -----------------------------------------------------------------------------------------


def test_random_numbers_come_back_with_the_same_seed_and_differ_with_another() -> None:
    def drawn(seed: int | None) -> list[str | None]:
        return commands({"random": {"generate": 5, "seed": seed, "integer": {"start": 0, "stop": 1000}}})

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(None) == drawn(None)


def test_a_seed_gives_the_numbers_that_python_gives() -> None:
    import random

    source = random.Random(3)
    wanted = [str(source.randrange(5, 100, 5)) for _ in range(4)]
    assert commands({"random": {"generate": 4, "seed": 3, "integer": {"start": 5, "stop": 100, "step": 5}}}) == wanted


@pytest.mark.parametrize(
    ("name", "parameters", "least", "most"),
    [
        ("beta", {"alpha": 2, "beta": 2}, 0, 1),
        ("exponential", {"lambda": 2}, 0, 100),
        ("gamma", {"alpha": 2, "beta": 2}, 0, 1000),
        ("gauss", {"mu": 50, "sigma": 1}, 0, 100),
        ("lognormal", {"mu": 0, "sigma": 1}, 0, 10000),
        ("pareto", {"alpha": 3}, 1, 10000),
        ("triangular", {"low": 3, "high": 5}, 3, 5),
        ("triangular", {"low": 3, "high": 5, "mode": 4}, 3, 5),
        ("uniform", {"a": -2, "b": -1}, -2, -1),
        ("weibull", {"alpha": 1, "beta": 2}, 0, 1000),
    ],
)
def test_every_distribution_gives_numbers_of_its_range(
    name: str, parameters: dict[str, float], least: float, most: float
) -> None:
    made = commands({"random": {"generate": 20, "seed": 1, "distribution": {name: parameters}}})
    assert all(least <= float(str(value)) <= most for value in made)
    assert len(set(made)) == 20


def test_two_random_tasks_of_a_job_get_different_numbers() -> None:
    made = {"random": {"generate": 3, "integer": {"start": 0, "stop": 10**6}}}
    whole = of_tasks(*[{"command": "{}", "task_factory": made}] * 2)
    tasks = factory.expand(whole, whole.jobs[0])
    assert [task.command for task in tasks[:3]] != [task.command for task in tasks[3:]]


def test_repeated_tasks_are_alike_and_their_braces_stay() -> None:
    assert commands({"repeat": 3}, "awk '{print}'") == ["awk '{print}'"] * 3


def test_a_custom_factory_s_tuples_become_commands() -> None:
    facts = Facts(made={("j", 0): (("a", 1), ("b", 2))})
    assert commands({"custom": {"module": "mine"}}, "{0}-{1}", facts) == ["a-1", "b-2"]


def test_a_custom_factory_is_one_task_offline_with_a_note() -> None:
    whole = recipe({"custom": {"module": "mine"}})
    assert [task.command for task in factory.expand(whole, whole.jobs[0])] == ["run {0}"]
    (said,) = factory.warnings(whole, whole.jobs[0])
    assert (said.rule, said.level) == ("offline-custom", "info")


def test_a_custom_factory_that_was_not_called_is_refused_for_an_existing_pool() -> None:
    with pytest.raises(PlanError, match=r"Facts\.made"):
        expanded({"custom": {"module": "mine"}}, facts=Facts(pool=POOL))


# --- a task for each file -------------------------------------------------------------------------------------------

FILES: dict[str, Any] = {"azure_storage": {"storage_account_settings": "link", "remote_path": "data/in"}}
LISTED = Facts(listings={"link/data/in": ("in/a.tar.gz", "in/b c.txt", "in/skip.txt")})


def test_a_file_s_names_are_keywords_of_the_command() -> None:
    words = "{url} {file_path} {file_path_with_container} {file_name} {file_name_no_extension}"
    wanted = "https://mine.blob.core.windows.net/data/in/a.tar.gz in/a.tar.gz data/in/a.tar.gz a.tar.gz a"
    assert commands({"file": FILES}, words, LISTED)[0] == wanted


def test_a_url_is_quoted() -> None:
    assert str(commands({"file": FILES}, "{url}", LISTED)[1]).endswith("/data/in/b%20c.txt")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("file_path", "in/a.tar.gz"),
        ("file_path_with_container", "data/in/a.tar.gz"),
        ("file_name", "a.tar.gz"),
        ("file_name_no_extension", "a"),
    ],
)
def test_the_file_itself_comes_with_the_task_under_the_name_asked_for(name: str, wanted: str) -> None:
    more = {"resource_files": [{"file_path": "own", "blob_source": "https://x/y"}]}
    task = expanded({"file": {**FILES, "task_filepath": name}}, "x", LISTED, **more)[0]
    assert [file.file_path for file in task.resource_files] == ["own", wanted]
    assert task.resource_files[1] == ListedFile(file_path=wanted, blob="link/data/in/a.tar.gz?days=30")


def test_files_are_chosen_by_patterns_and_exclude_wins() -> None:
    chosen = {"azure_storage": {**FILES["azure_storage"], "include": ["*.txt"], "exclude": ["*skip*"]}}
    assert commands({"file": chosen}, "{file_name}", LISTED) == ["b c.txt"]


def test_patterns_that_fit_nothing_are_refused() -> None:
    chosen = {"azure_storage": {**FILES["azure_storage"], "include": ["*.jpg"]}}
    with pytest.raises(PlanError, match="no file of link/data/in fits `include` and `exclude`; 3 are there"):
        commands({"file": chosen}, "{url}", LISTED)


def test_offline_one_example_represents_the_files_with_a_note() -> None:
    whole = recipe({"file": FILES}, "{file_path}")
    assert [task.command for task in factory.expand(whole, whole.jobs[0])] == ["in/example.dat"]
    (said,) = factory.warnings(whole, whole.jobs[0])
    path = "job_specifications[0].tasks[0].task_factory.file"
    assert (said.rule, said.level, said.path) == ("offline-files", "info", path)


def test_files_of_the_source_become_tasks_by_their_path_below_it() -> None:
    made = {"file": {"source": {"path": "images/", "include": ["*.png"], "exclude": ["b*"]}}}
    listed = Facts(listings={factory.key_of_source("src"): ("images/c.png", "images/a.png", "images/b.png", "a.png")})
    command = "score {file_path} {file_name} {file_name_no_extension}"
    tasks = expanded(made, command, listed, source="src")
    assert [task.command for task in tasks] == ["score images/a.png a.png a", "score images/c.png c.png c"]
    assert all(task.source == "src" and not task.resource_files for task in tasks)


def test_a_factory_of_the_source_s_files_needs_a_source_and_knows_no_url() -> None:
    made = {"file": {"source": {}}}
    with pytest.raises(PlanError, match="the task has no `source`"):
        expanded(made, "{file_path}")
    with pytest.raises(PlanError, match="fits no value"):
        expanded(made, "{url}", source="src")


@pytest.mark.parametrize(
    ("made", "task_id", "message"),
    [
        ({"grid": {"lr": ["0.1", "0.2"], "batch": ["1", "2"]}}, "t-{lr}", "values of `batch` make the same id"),
        ({"grid": {"lr": ["0.11", "0.12"]}}, "t-{lr:.1f}", "values of `lr` make the same id"),
        ({"grid": {"lr": ["a b", "a_b"]}}, "t-{lr}", "values of `lr` make the same id"),
        ({"grid": {"n": {"start": 0, "stop": 1000000}}}, "t", ""),
        ({"grid": {"lr": ["0.1", "0.2"], "seed": ["1"]}}, "t-{lr}", ""),
        ({"list": [{"a": "1", "b": "1"}, {"a": "1", "b": "2"}]}, "t-{a}", "`list[1]` makes the id of an earlier set"),
        ({"list": [{"a": "1", "b": "1"}, {"a": "1", "b": "2"}]}, "t-{a}-{b}", ""),
        ({"grid": {"value": ["1", "2"], "text": ["a"]}}, "t-{value}{text}", ""),
        ({"grid": {"a": ["1", "x" * 63]}}, "t-{a}", f"`t-{'x' * 63}` has 65 characters"),
        ({"list": [{"a": "1"}, {"a": "x" * 63}]}, "t-{a}", f"`t-{'x' * 63}` has 65 characters"),
    ],
)
def test_values_that_make_the_same_id_are_found_offline(made: dict[str, Any], task_id: str, message: str) -> None:
    task = recipe(made, "run", id=task_id).jobs[0].tasks[0]
    assert [fault.message[: len(message)] for fault in id_faults(task)] == ([message] if message else [])


@pytest.mark.parametrize(("value", "count"), [("x" * 65, 65), ("", 0)])
def test_an_id_of_values_is_refused_if_its_length_is(value: str, count: int) -> None:
    with pytest.raises(PlanError, match=rf"tasks\[0\]\.id: `{value}` has {count} characters"):
        expanded(sweep(product_iterables=[["a", value]]), id="{0}")


def test_a_container_that_was_not_listed_is_refused_for_an_existing_pool() -> None:
    with pytest.raises(PlanError, match="link/data/in has not been listed"):
        expanded({"file": FILES}, "{url}", facts=Facts(pool=POOL))


def test_how_long_a_link_lasts_goes_with_its_placeholder() -> None:
    settings = convert({"generated_sas_expiry_days": 3}, Settings)
    whole = msgspec.structs.replace(recipe({"file": FILES}, "x"), settings=settings)
    task = factory.expand(whole, whole.jobs[0], LISTED)[0]
    assert task.resource_files[0].blob == "link/data/in/a.tar.gz?days=3"


# --- names and dependencies -----------------------------------------------------------------------------------------


def test_every_made_task_has_the_dependencies_of_the_one_it_stands_in() -> None:
    tasks = expanded({"repeat": 2}, depends_on=["first"])
    assert [task.depends_on for task in tasks] == [("first",), ("first",)]
    assert all(task.task_factory is None for task in tasks)


def test_a_factory_s_own_rule_skips_existing_ids() -> None:
    rule = {"prefix": "t", "zfill_width": 2}
    whole = of_tasks(
        {"command": "a", "id": "T01"},
        {"command": "b", "task_factory": {"repeat": 2, "autogenerated_task_id": rule}},
        {"command": "c", "task_factory": {"repeat": 1, "autogenerated_task_id": rule}},
        {"command": "d", "task_factory": {"repeat": 1}},
    )
    assert [task.id for task in factory.expand(whole, whole.jobs[0])] == ["T01", "t00", "t02", "t03", None]


def test_tasks_without_a_factory_are_the_same() -> None:
    whole = of_tasks({"command": "a"})
    assert factory.expand(whole, whole.jobs[0]) == whole.jobs[0].tasks


# --- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"repeat": 1, "custom": {"module": "m"}}, "`custom` and `repeat` are given; keep one"),
        (sweep(), "parametric_sweep: the factory has no kind"),
        (sweep(product=[{"start": 0, "stop": 1}], zip=["a"]), "`product` and `zip` are given"),
        (sweep(product=[{"start": 5, "stop": 0}]), "no value from 5 to before 0"),
        (sweep(product=[{"start": 0, "stop": 10**8 + 1}]), "creates 100,000,001 tasks"),
        (sweep(product=[{"start": 0, "stop": 10**30}]), "creates more than 10\\^18 tasks"),
        (sweep(permutations={"iterable": ["x"] * 60, "length": 30}), "at most 100,000,000"),
        ({"repeat": 100_000_001}, "creates 100,000,001 tasks"),
        ({"random": {"generate": 1, "integer": {"start": 1, "stop": 1}}}, "no value from 1 to before 1"),
        ({"random": {"generate": 1, "distribution": {}}}, "distribution: the factory has no kind"),
        ({"random": {"generate": 1, "distribution": {"gamma": {"alpha": -1, "beta": 1}}}}, "cannot be drawn"),
    ],
)
def test_a_factory_that_cannot_be_meant_is_refused_with_its_place(made: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        expanded(made)
    assert str(caught.value).startswith("job_specifications[0].tasks[0].task_factory")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("awk '{print $1}' {0}", r"`{print \$1}` fits no value; the factory gives {0}"),
        ("run {0} {1}", r"`\{1\}` fits no value"),
        ("run {} {}", "`{}` fits no value"),
        ("run {0:q}", "`{0:q}` fits no value"),
        ("run {0.x}", "`{0.x}` fits no value"),
    ],
)
def test_a_brace_that_fits_no_value_says_the_way_out(command: str, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        expanded(sweep(product=[{"start": 0, "stop": 2}]), command)
    assert str(caught.value).startswith("job_specifications[0].tasks[0].command: ")
    assert "twice: {{ and }}" in str(caught.value)


def test_a_brace_that_fits_a_later_value_no_more_names_the_task() -> None:
    with pytest.raises(PlanError, match=r"tasks\[0\]\.command, made task 1: `{0\[1\]}` fits no value"):
        expanded(sweep(permutations={"iterable": ["ab", "c"], "length": 1}), "{0[1]}")


def test_a_brace_that_fits_no_file_says_what_a_file_has() -> None:
    with pytest.raises(PlanError, match=r"`{path}` fits no value; the factory gives {url}, {file_path}"):
        commands({"file": FILES}, "{path}", LISTED)


def test_the_id_of_a_factory_begins_the_ids_of_its_tasks() -> None:
    assert [task.id for task in expanded({"repeat": 2}, id="a")] == ["a-00000", "a-00001"]


def test_an_id_with_braces_is_made_of_the_values_and_stays_an_id() -> None:
    made = expanded({"grid": {"lr": ["0.1", "1e-3"], "n": {"start": 1, "stop": 3}}}, "run", id="t-{lr}-{n}")
    assert [task.id for task in made] == ["t-0_1-1", "t-0_1-2", "t-1e-3-1", "t-1e-3-2"]


def test_two_rules_for_the_ids_are_refused() -> None:
    rule = {"autogenerated_task_id": {"prefix": "b"}}
    with pytest.raises(PlanError, match="both make the ids"):
        expanded({**sweep(product=[{"start": 0, "stop": 2}]), **rule}, id="a-{0}")


# --- grids and lists ------------------------------------------------------------------------------------------------

GRID = {"grid": {"lr": ["0.1", "1e-3"], "batch": {"start": 32, "stop": 128, "step": 64}}}


def test_a_grid_is_every_combination_as_it_was_written() -> None:
    assert commands(GRID, "--lr {lr} --batch {batch}") == [
        "--lr 0.1 --batch 32", "--lr 0.1 --batch 96", "--lr 1e-3 --batch 32", "--lr 1e-3 --batch 96",
    ]  # fmt: skip


def test_a_format_formats_the_number_of_a_parameter() -> None:
    assert commands(GRID, "{lr:.3f} {batch:04d} {{lr}}")[2] == "0.001 0032 {lr}"


def test_a_list_is_a_task_for_each_set_in_any_order_of_names() -> None:
    made = {"list": [{"lr": "0.1", "name": "a b"}, {"name": "c", "lr": "2"}]}
    assert commands(made, "{name}/{lr}") == ["a b/0.1", "c/2"]


def test_parameters_are_written_into_variables_files_and_outputs() -> None:
    output = {"storage_account_settings": "link", "remote_path": "runs/{lr}", "local_path": "out/{batch}"}
    file = {"file_path": "in-{batch}", "blob_source": "https://h/{batch}?s={{1}}"}
    [task, *_] = expanded(
        GRID, display_name="lr {lr}", environment_variables={"LR": "{lr}"}, resource_files=[file],
        output_data={"azure_storage": [output]}, command="run",
    )  # fmt: skip
    assert task.environment_variables["LR"] == "0.1"
    assert task.display_name == "lr 0.1"
    assert (task.resource_files[0].file_path, task.resource_files[0].blob_source) == ("in-32", "https://h/32?s={1}")
    [sent] = task.output_data.azure_storage
    assert (sent.remote_path, sent.local_path) == ("runs/0.1", "out/32")


def test_the_parameters_of_a_task_are_recorded_as_json() -> None:
    made = {"list": [{"lr": "1e-3", "n": "-2", "name": 'a "b"', "on": "true", "tag": "007", "x": 0.5}]}
    [task] = expanded(made, "run")
    recorded = json.loads(task.environment_variables["BATCHTRAIN_PARAMETERS"])
    assert recorded == {"lr": 0.001, "n": -2, "name": 'a "b"', "on": True, "tag": 7, "x": 0.5}


def test_a_users_own_record_of_the_parameters_wins() -> None:
    [task, *_] = expanded(GRID, "run", environment_variables={"BATCHTRAIN_PARAMETERS": "mine"})
    assert task.environment_variables == {"BATCHTRAIN_PARAMETERS": "mine"}


# --- refused, again -------------------------------------------------------------------------------------------------


def test_a_factory_without_a_command_is_refused() -> None:
    with pytest.raises(PlanError, match="there is none"):
        expanded(sweep(product=[{"start": 0, "stop": 1}]), None)


def test_a_hundred_thousand_tasks_are_expanded() -> None:
    made = sweep(product=[{"start": 0, "stop": 1000}, {"start": 0, "stop": 100}])
    assert len(expanded(made, "run {0} {1}")) == 100_000
