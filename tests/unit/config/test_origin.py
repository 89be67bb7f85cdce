"""The merged view: every value, where it came from, and no secret."""

from __future__ import annotations

from pathlib import Path

from batchtrain.config import document, load, origin

FILES = {
    "here/pool.yaml": (
        b"pool_specification:\n  id: p\n  vm_configuration:\n    platform_image: {publisher: microsoft-dsvm,"
        b" offer: ubuntu-hpc, sku: '2404'}\n  vm_size: STANDARD_D4S_V5\n  vm_count: {dedicated: 2}\n"
        b"  max_tasks_per_node: 3\n  metadata: {a.b: 'true', c: '# no', d: \"two\\nlines\", e: ''}\n"
    ),
    "here/jobs.yaml": b"job_specifications:\n- id: j\n  tasks:\n  - &a {command: one}\n  - {<<: *a, id: t}\n",
    "here/credentials.yaml": b"credentials: {batch: {account_service_url: 'https://a.b.c', account_key: hunter2}}\n",
}


def seen(**settings: str) -> load.Examined:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    return load.examine(Path("here"), FILES, settings=given)


def test_a_value_of_a_file_comes_from_its_line() -> None:
    assert origin.view(seen()).origins["pool_specification"]["vm_size"] == "pool.yaml:5"


def test_a_value_that_is_in_no_file_is_a_default() -> None:
    view = origin.view(seen())
    assert view.values["pool_specification"]["vm_count"]["low_priority"] == 0
    assert view.origins["pool_specification"]["vm_count"]["low_priority"] == "default"


def test_defaults_are_left_out_on_request() -> None:
    assert origin.view(seen(), defaults=False).values["pool_specification"]["vm_count"] == {"dedicated": 2}


def test_a_setting_says_so_and_so_does_its_variable() -> None:
    found = seen(pool_specification__vm_count__dedicated="5", pool_specification__id="q")
    origins = origin.view(found, environment=["pool_specification.id"]).origins["pool_specification"]
    assert (origins["vm_count"]["dedicated"], origins["id"]) == ("--set", "BATCHTRAIN_SET")


def test_an_older_word_keeps_its_line_under_todays_name() -> None:
    assert origin.view(seen()).origins["pool_specification"]["task_slots_per_node"] == "pool.yaml:7"


def test_a_merged_value_comes_from_where_it_was_written() -> None:
    assert origin.view(seen()).origins["job_specifications"][0]["tasks"][1]["command"] == "jobs.yaml:4"


def test_the_yaml_form_reads_back_as_the_same_values() -> None:
    view = origin.view(seen(), defaults=False)
    read, problems = document.parse("x.yaml", origin.as_yaml(view, origins=True).encode())
    assert problems == ()
    assert read.data["pool_specification"]["metadata"] == {"a.b": "true", "c": "# no", "d": "two\nlines", "e": ""}
    assert read.data["job_specifications"] == view.values["job_specifications"]


def test_the_origins_have_the_shape_of_the_values() -> None:
    def shape(value: object) -> object:
        if isinstance(value, dict):
            return {key: shape(item) for key, item in value.items()}
        return [shape(item) for item in value] if isinstance(value, list) else None

    view = origin.view(seen())
    assert shape(view.values) == shape(view.origins)
