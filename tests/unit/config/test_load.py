"""A configuration directory as a typed Recipe, or every problem with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import batchtrain as bt
from batchtrain.config.load import examine, find, load, load_credentials, read
from batchtrain.config.unfilled import require_credentials, require_filled
from batchtrain.errors import ConfigError, UsageError
from batchtrain.plan import plan_recipe

POOL = """\
pool_specification:
  id: p
  vm_configuration:
    platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404', native: true}
  vm_size: STANDARD_D4S_V5
  vm_count: {dedicated: 2}
  inter_node_communication_enabled: true
"""
JOBS = """\
job_specifications:
- id: j
  tasks:
  - command: echo hello
    multi_instance:
      num_instances: 2
      mpi: {runtime: mpich, processes_per_node: "2"}
"""


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / f"{name}.yaml").write_text(text, encoding="utf-8")
    return directory


def problems(directory: Path) -> list[tuple[str, str, int, int]]:
    with pytest.raises(ConfigError) as caught:
        load(directory, needs=("pool_specification", "job_specifications"))
    return [(p.rule, Path(p.file).name, p.line, p.column) for p in caught.value.problems if p.level == "error"]


def test_a_recipe_directory_is_found_through_its_config_folder(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    write(tmp_path / "config", pool=POOL, jobs=JOBS)
    assert load(tmp_path).recipe.directory == str(tmp_path / "config")


def test_a_number_where_text_is_wanted_keeps_its_zeros(tmp_path: Path) -> None:
    pool = POOL.replace("microsoft-dsvm", "openlogic").replace("ubuntu-hpc", "CentOS-HPC").replace("'2404'", "7.10")
    recipe = load(write(tmp_path, pool=pool, jobs=JOBS)).recipe
    assert recipe.pool and recipe.pool.vm_configuration.platform_image
    assert recipe.pool.vm_configuration.platform_image.sku == "7.10"


def test_environment_values_are_text_whatever_they_look_like(tmp_path: Path) -> None:
    jobs = JOBS.replace("- id: j", "- id: j\n  environment_variables: {A: true, B: 007, C: 1.50}")
    recipe = load(write(tmp_path, pool=POOL, jobs=jobs)).recipe
    assert recipe.jobs[0].environment_variables == {"A": "true", "B": "007", "C": "1.50"}


def test_all_problems_of_all_files_come_at_once(tmp_path: Path) -> None:
    pool = POOL.replace("vm_size", "vm_sise").replace("dedicated: 2", "dedicated: two")
    jobs = JOBS.replace("runtime: mpich", "runtime: mpichh")
    assert problems(write(tmp_path, pool=pool, jobs=jobs)) == [
        ("value", "jobs.yaml", 7, 22),
        ("unknown-key", "pool.yaml", 5, 3),
        ("type", "pool.yaml", 6, 25),
    ]


def test_the_older_spelling_of_the_settings_is_read(tmp_path: Path) -> None:
    write(tmp_path, config="batch_shipyard: {storage_account_settings: link}\n", pool=POOL, jobs=JOBS)
    assert load(tmp_path).recipe.settings.storage_account_settings == "link"


def test_an_older_pool_property_is_read_with_a_warning(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, pool=POOL + "  max_tasks_per_node: 1\n", jobs=JOBS))
    assert loaded.recipe.pool and loaded.recipe.pool.task_slots_per_node == 1
    assert "renamed" in {warning.rule for warning in loaded.warnings}


def test_an_older_name_of_a_property_without_an_effect_is_reported_once(tmp_path: Path) -> None:
    ssh = "  ssh: {username: u, generate_tunnel_script: true}\n"
    warnings = load(write(tmp_path, pool=POOL + ssh, jobs=JOBS)).warnings
    assert [warning.rule for warning in warnings if "tunnel" in warning.path] == ["gone"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert problems(write(tmp_path, pool=POOL)) == [("missing-file", tmp_path.name, 0, 0)]


def test_a_directory_without_configuration_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected batchtrain\.yaml, or pool\.yaml and jobs\.yaml"):
        load(tmp_path)


def test_a_setting_wins_over_the_file(tmp_path: Path) -> None:
    settings = {"pool_specification.vm_count.dedicated": "3", "job_specifications[0].tasks[0].command": "x"}
    recipe = load(write(tmp_path, pool=POOL, jobs=JOBS), settings=settings).recipe
    assert recipe.pool and recipe.pool.vm_count.dedicated == 3
    assert recipe.jobs[0].tasks[0].command == "x"


def test_a_setting_of_nothing_is_refused(tmp_path: Path) -> None:
    write(tmp_path, pool=POOL, jobs=JOBS)
    with pytest.raises(ConfigError, match="not the path of a property"):
        load(tmp_path, settings={"pool.vm_size": "x"})


def test_a_rule_is_silenced_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, pool=POOL.replace("D4S_V5", "D4S_V55"), jobs=JOBS)
    with pytest.raises(ConfigError, match="vm-size-unknown"):
        load(tmp_path)
    assert load(tmp_path, ignore=["vm-size-unknown"]).recipe.pool is not None


def test_a_broken_pool_does_not_hide_what_is_wrong_with_the_jobs(tmp_path: Path) -> None:
    jobs = JOBS.replace("num_instances: 2", "num_instances: lots")
    assert problems(write(tmp_path, pool=POOL.replace("vm_size", "vm_sise"), jobs=jobs)) == [
        ("num-instances", "jobs.yaml", 6, 22),
        ("unknown-key", "pool.yaml", 5, 3),
    ]


@pytest.mark.parametrize("number", ["²", "9" * 5000, "--5", "1e3"])
def test_an_odd_number_of_instances_is_refused_and_no_crash(number: str, tmp_path: Path) -> None:
    write(tmp_path, pool=POOL, jobs=JOBS.replace("num_instances: 2", f"num_instances: '{number}'"))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert {problem.rule for problem in caught.value.problems if problem.level == "error"} == {"num-instances"}


def test_an_id_does_not_end_with_a_newline(tmp_path: Path) -> None:
    write(tmp_path, pool=POOL.replace("id: p", 'id: "p\\n"'), jobs=JOBS)
    with pytest.raises(ConfigError, match="not a valid id"):
        load(tmp_path)


def test_silencing_a_check_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    write(tmp_path, pool=POOL, jobs=JOBS)
    with pytest.raises(UsageError, match="Did you mean `size-retired`"):
        load(tmp_path, ignore=["size-retird"])


def test_a_file_with_a_syntax_error_is_not_called_missing_too(tmp_path: Path) -> None:
    assert [rule for rule, *_ in problems(write(tmp_path, pool=POOL + " x: [", jobs=JOBS))] == ["syntax"]


def test_accounts_that_cannot_be_read_are_not_absent(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text("a: [")
    assert load_credentials(tmp_path) is None
    (tmp_path / "credentials.yaml").write_text("credentials:\n  batch_account: {a: [\n")
    with pytest.raises(ConfigError, match=r"^\S*credentials\.yaml:2:22: .*\[syntax\]$"):
        load_credentials(tmp_path)


@pytest.mark.parametrize(
    ("part", "text", "found"),
    [
        ("config", "batchtrian:\n", ("unknown-key", "config.yaml", 1, 1)),
        ("config", "batchtrain: {<<: 5}\n", ("key", "config.yaml", 1, 18)),
        ("config", "batchtrain:\n  <<:\n", ("key", "config.yaml", 2, 6)),
    ],
)
def test_what_says_nothing_is_not_lost_in_silence(
    part: str, text: str, found: tuple[str, str, int, int], tmp_path: Path
) -> None:
    assert found in problems(write(tmp_path, **{"pool": POOL, "jobs": JOBS, part: text}))


def test_an_empty_section_that_need_not_say_anything_is_absent(tmp_path: Path) -> None:
    recipe = load(write(tmp_path, pool=POOL, jobs=JOBS, config="global_resources:\nbatchtrain:\n")).recipe
    assert recipe.resources.docker_images == ()


def test_a_variable_without_a_value_is_not_lost_in_silence(tmp_path: Path) -> None:
    jobs = JOBS.replace("- id: j\n", "- id: j\n  environment_variables:\n    SET: 1\n    UNSET:\n    EMPTY: ''\n")
    loaded = load(write(tmp_path, pool=POOL, jobs=jobs))
    assert ("variable-unset", 5, 5) in [(one.rule, one.line, one.column) for one in loaded.warnings]
    assert loaded.recipe.jobs[0].environment_variables == {"SET": "1", "EMPTY": ""}


def test_a_known_key_without_a_value_is_absent(tmp_path: Path) -> None:
    jobs = JOBS.replace("      num_instances: 2", "      num_instances: 2\n      coordination_command:")
    pool = POOL + "  max_tasks_per_node: null\n"
    assert load(write(tmp_path, pool=pool, jobs=jobs)).recipe.jobs[0].tasks[0].multi_instance is not None


@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("pool_specification.metadata.a.b", "x", {"a.b": "x"}),
        ('pool_specification.metadata["a.b"]', "x", {"a.b": "x"}),
        ("pool_specification.metadata", "{a.b: x}", {"a.b": "x"}),
    ],
)
def test_a_setting_reaches_a_key_with_dots(name: str, value: str, where: dict[str, str], tmp_path: Path) -> None:
    recipe = load(write(tmp_path, pool=POOL, jobs=JOBS), settings={name: value}).recipe
    assert recipe.pool is not None
    assert recipe.pool.metadata == where


def test_a_setting_reaches_below_a_key_with_dots(tmp_path: Path) -> None:
    settings = {"credentials.docker_registry.my.azurecr.io.username": "u"}
    found = load(write(tmp_path, pool=POOL, jobs=JOBS), settings=settings).recipe.credentials.docker_registry
    assert found["my.azurecr.io"].username == "u"


def test_a_setting_may_be_a_list_or_take_a_value_away(tmp_path: Path) -> None:
    away = {"pool_specification.inter_node_communication_enabled": "null"}
    settings = {"global_resources.docker_images": "[a/b, 'c']", **away}
    recipe = load(write(tmp_path, pool=POOL), settings=settings).recipe
    assert recipe.resources.docker_images == ("a/b", "c")
    assert recipe.pool is not None
    assert recipe.pool.inter_node_communication_enabled is False


def test_a_setting_in_older_words_is_read(tmp_path: Path) -> None:
    recipe = load(write(tmp_path, pool=POOL), settings={"pool_specification.max_tasks_per_node": "3"}).recipe
    assert recipe.pool is not None
    assert recipe.pool.task_slots_per_node == 3


def test_a_mistake_in_a_setting_is_reported_for_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, pool=POOL, jobs=JOBS), settings={"pool_specification.vm_count.dedicated": "two"})
    assert [(problem.file, problem.rule) for problem in caught.value.problems] == [
        ("setting", "type"),
        ("", "left-out"),
    ]
    assert "two" in str(caught.value)


@pytest.mark.parametrize(
    ("half", "whole"),
    [
        ("vm_size", "pool_specification.vm_size"),
        ("vm_count.dedicated", "pool_specification.vm_count.dedicated"),
        ("tasks[0].command", "job_specifications[0].tasks[0].command"),
        ("tasks[1].command", "job_specifications[0].tasks[1].command"),
        ("pool.vm_count.low_priority", "pool_specification.vm_count.low_priority"),
        ("docker_image", "job_specifications[0].tasks[0].docker_image"),
        ("max_task_retries", "job_specifications[0].tasks[0].max_task_retries"),
        ("environment_variables", "job_specifications[0].tasks[0].environment_variables"),
    ],
)
def test_half_the_path_of_a_setting_is_answered_with_the_whole(half: str, whole: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"write `{whole}`")):
        load(write(tmp_path, pool=POOL, jobs=JOBS), settings={half: "1"})


def test_the_path_of_no_property_is_answered_with_an_example_and_the_sections(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"such as `pool_specification\.vm_size`\. Known: credentials, "):
        load(write(tmp_path, pool=POOL, jobs=JOBS), settings={"nosuch": "1"})


def test_the_service_needs_credentials_that_are_filled_in(tmp_path: Path) -> None:
    credentials = "credentials:\n  batch: {account_service_url: https://a.b.c, account_key: <account key>}\n"
    recipe = load(write(tmp_path, credentials=credentials, pool=POOL, jobs=JOBS)).recipe
    with pytest.raises(ConfigError) as caught:
        require_credentials(recipe.credentials, recipe.warnings)
    assert [(problem.line, problem.level) for problem in caught.value.problems] == [(2, "error")]
    with pytest.raises(ConfigError, match="account_key"):
        require_credentials(recipe.credentials)


PLACEHOLDERS = """\
job_specifications:
- id: <job id>
  environment_variables: {END_OF_TEXT: <s>}
  tasks:
  - command: cat film.mp4
    max_wall_time: <at most>
    resource_files: [{blob_source: <url of a film>, file_path: film.mp4}]
"""


def test_a_placeholder_is_a_warning_until_something_is_sent(tmp_path: Path) -> None:
    place = write(tmp_path, pool=POOL, jobs=PLACEHOLDERS)
    expected = [("placeholder", 2), ("placeholder", 6), ("placeholder", 7)]
    recipe = load(place).recipe
    assert [(problem.rule, problem.line) for problem in recipe.warnings if problem.rule == "placeholder"] == expected
    assert recipe.jobs[0].id == "job-id"
    for silent in ((), ("placeholder",)):
        with pytest.raises(ConfigError) as caught:
            require_filled(load(place, ignore=silent).recipe, emulated=True)
        assert [(problem.rule, problem.line) for problem in caught.value.problems] == expected
        assert {problem.level for problem in caught.value.problems} == {"error"}


def test_a_placeholder_hides_no_other_mistake(tmp_path: Path) -> None:
    jobs = PLACEHOLDERS.replace("tasks:", "tesks: []\n  tasks:")
    assert problems(write(tmp_path, pool=POOL, jobs=jobs)) == [("unknown-key", "jobs.yaml", 4, 3)]


def test_a_value_of_the_command_line_replaces_a_placeholder(tmp_path: Path) -> None:
    place = write(tmp_path, pool=POOL, jobs=PLACEHOLDERS.replace("<url of a film>", "https://a.b/c"))
    settings = {"job_specifications[0].id": "films", "job_specifications[0].tasks[0].max_wall_time": "01:00:00"}
    recipe = load(place, settings=settings).recipe
    require_filled(recipe, emulated=True)
    assert recipe.jobs[0].id == "films"


def test_a_part_can_be_read_from_another_file(tmp_path: Path) -> None:
    place = write(tmp_path, pool=POOL, jobs=JOBS)
    write(tmp_path, **{"jobs-other": JOBS.replace("id: ", "id: other-", 1)})
    recipe = load(place, files={"jobs": str(tmp_path / "jobs-other.yaml")}).recipe
    assert recipe.jobs[0].id.startswith("other-")


def test_a_missing_replacement_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"jobs-tb.yaml is not a file; it was given in place of jobs.yaml"):
        load(write(tmp_path, pool=POOL, jobs=JOBS), files={"jobs": "jobs-tb.yaml"})


def test_files_that_are_named_need_no_directory_with_files(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere", mine=POOL)
    assert load(tmp_path, files={"pool": str(tmp_path / "elsewhere/mine.yaml")}).recipe.pool is not None


def test_the_plan_goes_by_the_catalogue_of_the_files(tmp_path: Path) -> None:
    sizes = "sizes: [{name: Standard_D2s_v5, cores: 7}]\n"
    recipe = load(write(tmp_path, pool=POOL, jobs=JOBS, catalog=sizes)).recipe
    assert recipe.catalog.size("standard_d2s_v5").cores == 7  # type: ignore[union-attr]


def test_credentials_of_one_storage_account_are_required_alone(tmp_path: Path) -> None:
    credentials = """\
credentials:
  storage:
    a: {account: one, account_key: a2V5}
    b: {account: two, account_key: <key>}
"""
    known = load(write(tmp_path, credentials=credentials, pool=POOL, jobs=JOBS)).recipe.credentials
    assert require_credentials(known, part=("storage", "a")) is known
    with pytest.raises(ConfigError, match=r"storage.b.account_key: `account_key` is a placeholder, but it is needed"):
        require_credentials(known, part=("storage", "b"))


def test_a_silenced_check_of_the_planner_is_not_told(tmp_path: Path) -> None:
    place = write(tmp_path, pool=POOL, jobs=JOBS.replace("num_instances: 2", "num_instances: pool_current_dedicated"))
    told = {name: load(place, ignore=name).recipe for name in ((), ("offline-count",))}
    rules = [{warning.rule for warning in plan_recipe(recipe).warnings} for recipe in told.values()]
    assert ["offline-count" in found for found in rules] == [True, False]


# --- what a review found --------------------------------------------------------------------------------------------


def said(place: Path, **more: Any) -> list[tuple[str, str]]:
    """Every problem's path and words, whether the files are valid or not."""
    found = examine(find(place), read(find(place)), **more)
    return [(problem.path, f"{problem.message} {problem.hint}".strip()) for problem in found.problems]


def test_a_pool_alone_is_a_valid_configuration(tmp_path: Path) -> None:
    assert examine(tmp_path, read(write(tmp_path, pool=POOL))).valid


def test_a_check_that_the_file_silences_and_that_is_none_has_its_place(tmp_path: Path) -> None:
    config = "batchtrain:\n  ignore_checks: [size-retired, size-retird, nonsense]\n"
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, config=config, pool=POOL))
    told = [(p.line, p.column, p.hint) for p in caught.value.problems]
    assert told == [(2, 33, "Did you mean `size-retired`?"), (2, 46, "")]


def test_a_message_about_the_credentials_shows_signs_and_names_of_ours_and_no_more(tmp_path: Path) -> None:
    text = "credentials:\n  batch:\n    account_key: hush1\n    account_key: hush2\n    hush3 \n"
    ((_, words), *_) = said(write(tmp_path, credentials=text))
    assert "needs `: ` after it" in words
    assert "hush" not in words


def test_credentials_that_cannot_be_read_are_not_missed(tmp_path: Path) -> None:
    config = "batchtrain: {storage_account_settings: link}\n"
    jobs = "job_specifications: [{id: j, tasks: [{command: echo}]}]\n"
    place = write(tmp_path, credentials="credentials: [\n", config=config, pool=POOL, jobs=jobs)
    assert {path for path, _ in said(place)} == {""}


def test_a_part_that_is_no_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").mkdir()
    with pytest.raises(UsageError, match=r"jobs.yaml is no file"):
        load(write(tmp_path, pool=POOL))


def test_a_part_that_is_a_broken_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"pool.yaml is a broken link"):
        load(write(tmp_path, jobs=JOBS))


# --- all problems, also where a section has mistakes ----------------------------------------------------------------

TWO_TASKS = """\
job_specifications:
- id: j
  priority: banana
  tasks:
  - {id: a, command: echo, max_task_retries: many, depends_on: [nobody]}
  - {id: b, command: echo, depends_on: [c], docker_image: not/listed}
"""


def test_a_mistake_in_one_property_hides_nothing_beside_it(tmp_path: Path) -> None:
    told = {path.removeprefix("job_specifications[0].") for path, _ in said(write(tmp_path, pool=POOL, jobs=TWO_TASKS))}
    assert told >= {"priority", "tasks[0].max_task_retries", "tasks[0].depends_on[0]", "tasks[1].depends_on[0]"}


def test_a_mistake_hides_findings_about_the_omitted_part(tmp_path: Path) -> None:
    pool = POOL.replace("sku: '2404', ", "")
    assert [path for path, _ in said(write(tmp_path, pool=pool))] == [
        "pool_specification.vm_configuration.platform_image"
    ]


def test_a_mistake_in_one_block_hides_only_what_hangs_on_that_block(tmp_path: Path) -> None:
    volumes = "{a: {volume_driver: none}, b: {volume_driver: glusterfs_on_compute, container_path: /b}}"
    config = f"global_resources: {{volumes: {{shared_data_volumes: {volumes}}}}}\n"
    pool = POOL + "  batch_insights_enabled: true\n"
    told = {path.rpartition("shared_data_volumes.")[2] for path, _ in said(write(tmp_path, config=config, pool=pool))}
    assert told == {"a.volume_driver", "b.volume_driver", "pool_specification.batch_insights_enabled"}


def test_rules_across_files_wait_for_a_section_without_mistakes(tmp_path: Path) -> None:
    config = "global_resources: {docker_images: [5: 6]}\n"
    jobs = "job_specifications: [{id: j, tasks: [{command: echo, docker_image: some/image}]}]\n"
    told = [path for path, _ in said(write(tmp_path, config=config, pool=POOL, jobs=jobs))]
    assert "job_specifications[0].tasks[0].docker_image" not in told


UNKNOWN_KEYS = ["environment_variables: {a: b}", "protocol: tcp", "reboot_on_start_failed: true"]


@pytest.mark.parametrize("key", UNKNOWN_KEYS)
def test_an_unknown_key_hides_no_finding_of_another_file(key: str, tmp_path: Path) -> None:
    inputs = "azure_batch: [{job_id: a, task_id: b}]"
    jobs = f"job_specifications: [{{id: j, tasks: [{{command: echo, input_data: {{{inputs}}}}}]}}]\n"
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, pool=f"{POOL}  {key}\n".replace(", native: true", ""), jobs=jobs))
    assert [problem.rule for problem in caught.value.problems] == ["task-file-input", "unknown-key"]


def test_a_misspelt_key_is_judged_as_the_key_that_was_meant(tmp_path: Path) -> None:
    pool = POOL.replace("inter_node_communication_enabled", "inter_node_comunication_enabled")
    assert problems(write(tmp_path, pool=pool.replace(", native: true", ""), jobs=JOBS)) == [
        ("unknown-key", "pool.yaml", 7, 3)
    ]


def test_the_checks_that_wait_for_other_mistakes_are_counted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, pool=POOL.replace("id: p", "id: [p]"), jobs=JOBS))
    pattern = r"info: \d+ checks left out because of mistakes in pool_specification \[left-out\]"
    assert re.fullmatch(pattern, str(caught.value.problems[-1]))


def test_a_name_that_is_wrong_is_not_missed_by_those_that_name_it(tmp_path: Path) -> None:
    tasks = "[{id: 'a b', command: x}, {id: c, command: x, depends_on: ['a b']}]"
    jobs = f"job_specifications:\n- id: j\n  tasks: {tasks}\n"
    told = {path.partition(".")[2] for path, _ in said(write(tmp_path, pool=POOL, jobs=jobs))}
    assert told - {""} <= {"tasks[0].id", "tasks[1].depends_on[0]"}


@pytest.mark.parametrize("path", ["pool_specification.vm_sise", "pool_specification.vm_coutn.dedicated"])
def test_a_misspelt_setting_suggests_the_property_even_if_the_file_has_it(path: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"setting: error: .*Did you mean `vm_(size|count)`\?"):
        load(write(tmp_path, pool=POOL, jobs=JOBS), settings={path: "4"})


def test_a_setting_may_add_the_next_item_of_a_list_only(tmp_path: Path) -> None:
    write(tmp_path, pool=POOL, jobs=JOBS)
    count = len(load(tmp_path).recipe.jobs[0].tasks)
    added = load(tmp_path, settings={f"job_specifications[0].tasks[{count}].command": "x"}).recipe
    assert len(added.jobs[0].tasks) == count + 1
    with pytest.raises(ConfigError, match=r"the list has no item \[9\]; the next new one is"):
        load(tmp_path, settings={"job_specifications[0].tasks[9].command": "x"})


def test_a_setting_in_python_may_be_a_number(tmp_path: Path) -> None:
    recipe = bt.load(write(tmp_path, pool=POOL, jobs=JOBS), settings={"pool_specification.vm_count.dedicated": 7})
    assert recipe.pool is not None
    assert recipe.pool.vm_count.dedicated == 7


@pytest.mark.parametrize(
    "key", ["yourbatchaccountkey==", "<<REMOVED>>", "[your key]", "{{ key }}", "accountkey==", "my-key", "****"]
)
@pytest.mark.parametrize("part", [("batch",), ("storage", "link")])
def test_an_invented_key_is_a_warning_until_something_is_sent_to_its_account(
    tmp_path: Path, key: str, part: tuple[str, ...]
) -> None:
    entry: dict[str, Any] = {"account_key": key, **({"account": "one"} if part[0] == "storage" else {})}
    for step in reversed(part):
        entry = {step: entry}
    (tmp_path / "credentials.yaml").write_text(json.dumps({"credentials": entry}))
    loaded = load(tmp_path)
    assert {problem.level for problem in loaded.warnings} == {"warning"}
    with pytest.raises(ConfigError):
        require_credentials(loaded.recipe.credentials, loaded.warnings, part=part)


VM = {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}}
SPECIFICATION = {"id": "p", "vm_size": "STANDARD_D4S_V5", "vm_count": {"dedicated": 2}, "vm_configuration": VM}
POOL_JSON = json.dumps({"pool_specification": SPECIFICATION}, indent=2)
NOTATIONS: dict[str, tuple[str, bytes, str]] = {
    "line ends of Windows": ("pool.yaml", POOL.replace("\n", "\r\n").encode(), ""),
    "line ends of old Macs": ("pool.yaml", POOL.replace("\n", "\r").encode(), ""),
    "a byte order mark": ("pool.yaml", b"\xef\xbb\xbf" + POOL.encode(), ""),
    "the suffix yml": ("pool.yml", POOL.encode(), ""),
    "JSON": ("pool.json", POOL_JSON.encode(), ""),
    "JSON with a byte order mark": ("pool.json", b"\xef\xbb\xbf" + POOL_JSON.encode(), ""),
    "JSON with a comma too much": ("pool.json", POOL_JSON.replace('"sku": "2404"', '"sku": "2404",').encode(), ""),
    "JSON with comments of YAML": ("pool.json", f"# the pool\n{POOL_JSON}".encode(), ""),
    "JSON with comments of JavaScript": ("pool.json", f"// the pool\n{POOL_JSON}".encode(), "syntax"),
    "a document's end": ("pool.yaml", f"---\n{POOL}...\n".encode(), ""),
    "several documents": ("pool.yaml", f"{POOL}---\n{POOL}".encode(), "syntax"),
    "an anchor that does not exist": ("pool.yaml", POOL.replace("id: p", "id: *a").encode(), "aliases"),
}


@pytest.mark.parametrize("kind", NOTATIONS)
def test_a_notation_is_read_or_refused_by_name(kind: str) -> None:
    name, content, rule = NOTATIONS[kind]
    errors = {problem.rule for problem in examine(Path(), {name: content}).problems if problem.level == "error"}
    assert errors - {"missing"} == ({rule} if rule else set())
