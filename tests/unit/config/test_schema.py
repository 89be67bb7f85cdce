"""The committed schemas are what the types say, and an editor that reads them underlines nothing that loads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from batchtrain.config import judge, reference, schema, secret_names
from batchtrain.config.load import WHOLE
from batchtrain.config.types import RENAMED, credentials
from tests import reference_page, schema_files
from tests.property_examples import EXAMPLES
from tests.reference_page import type_of

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(
    path
    for pattern in ("recipes/*/config/*.yaml", "tests/data/shipyard/*/config/*.yaml")
    for path in ROOT.glob(pattern)
    if path.stem in schema.FILES
)


@pytest.mark.parametrize("name", [*schema.FILES, WHOLE])
def test_a_committed_schema_is_generated_from_the_types(name: str) -> None:
    stale = "run `python -m tests.schema_files`"
    assert (ROOT / "schemas" / f"{name}.json").read_bytes() == schema_files.rendered(name), stale


@cache
def validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(schema_files.file_schema(name))


def underlined(name: str, text: str) -> list[str]:
    """What an editor with our schema marks; scalars are what YAML makes of them."""
    return [error.message for error in validator(name).iter_errors(yaml.safe_load(text))]


def test_numbers_and_booleans_may_stand_where_the_loader_takes_text() -> None:
    text = """
    job_specifications:
    - id: 7
      environment_variables: {OMP_NUM_THREADS: 4, DEBUG: true, RATE: 0.5}
      tasks: [{id: 1, command: "true"}]
    """
    assert underlined("jobs", text) == []


@pytest.mark.parametrize(("seconds", "fits"), [(0, False), (4, False), (5, True), (3600, True)])
def test_nodes_are_waited_for_long_enough_to_answer(seconds: int, fits: bool) -> None:
    launch = {"num_instances": 2, "pytorch": {"barrier_seconds": seconds}}
    data = [{"id": "j", "tasks": [{"command": "x", "multi_instance": launch}]}]
    assert (judge.judged("job_specifications", data) == schema.Verdict(())) is fits
    assert (underlined("jobs", str({"job_specifications": data})) == []) is fits


def test_a_wrong_type_is_underlined() -> None:
    messages = underlined("jobs", "job_specifications: [{id: a, priority: high}]")
    assert messages == ["'high' does not match '^[+-]?[0-9]+$'"]


def test_a_misspelt_section_is_underlined() -> None:
    (message,) = underlined("pool", "pool_specificaton: {}\npool_specification: " + POOL)
    assert "pool_specificaton" in message


POOL = "{id: p, vm_size: s, vm_configuration: {platform_image: {publisher: a, offer: b, sku: 7.10}}}"


def test_older_words_are_taken_and_shown_as_such() -> None:
    config = schema_files.file_schema("config")["$defs"]["ConfigFile"]["properties"]
    pool = schema_files.file_schema("pool")["$defs"]["Pool"]["properties"]
    assert config["batch_shipyard"]["deprecated"] is True
    assert pool["max_tasks_per_node"]["description"] == "Older name of `task_slots_per_node`."
    assert underlined("pool", f"pool_specification: {POOL[:-1]}, max_tasks_per_node: 4}}") == []
    assert underlined("credentials", "credentials: {storage: {aad: {user: x}, link: {account: a}}}") == []


def test_every_older_name_is_in_a_schema() -> None:
    names = {rule.path[-1] for rule in RENAMED}
    taken = {
        key
        for file in schema.FILES
        for block in schema_files.file_schema(file)["$defs"].values()
        for key, value in (*block.get("properties", {}).items(), *maps_of(block))
        if value.get("deprecated")
    }
    assert names - taken == set()


def maps_of(block: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for value in block.get("properties", {}).values():
        yield from value.get("properties", {}).items()


def test_every_property_of_the_reference_is_in_a_schema() -> None:
    known = {
        (title, key)
        for file in schema.FILES
        for title, block in schema_files.file_schema(file)["$defs"].items()
        for key in block.get("properties", {})
    }
    assert {(block.name, item.name) for block in reference.blocks() for item in block.properties} - known == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_no_line_of_a_file_that_loads_is_underlined_but_placeholders(path: Path) -> None:
    assert [problem for problem in underlined(path.stem, path.read_text()) if not problem.startswith("'<")] == []


# --- examples -------------------------------------------------------------------------------------------------------

HIDDEN = secret_names.SECRETS | {"blobxfer_extra_options", "scp_ssh_extra_options", "rsync_extra_options", "setup",
                          "volume_type", "volume_options"}  # fmt: skip
"""Texts that nobody should copy, or that have no effect."""
TEXTS = sorted(
    {
        (block.name, item.name)
        for block in reference.blocks()
        for item in block.properties
        if "[" not in type_of(item.kind) and "text" in type_of(item.kind)
        if not all(reference.gone((*place, item.name)) for place in block.paths)
    }
)


def test_a_text_has_an_example() -> None:
    given = {
        (block.name, item.name): reference_page.example(block, item)
        for block in reference.blocks()
        for item in block.properties
    }
    assert [(block, name) for block, name in TEXTS if given[block, name] is None and name not in HIDDEN] == []


@pytest.mark.parametrize("name", schema.FILES)
def test_an_example_is_valid_where_it_stands(name: str) -> None:
    made = schema_files.file_schema(name)
    for block, definition in made["$defs"].items():
        for key, said in definition.get("properties", {}).items():
            for given in said.get("examples", []):
                found = jsonschema.Draft202012Validator({**said, "$defs": made["$defs"]}).iter_errors(given)
                assert [error.message for error in found] == [], f"{block}.{key}"


def test_every_example_is_of_a_property() -> None:
    known = {name for block, name in TEXTS} | {f"{block}.{name}" for block, name in TEXTS}
    assert set(EXAMPLES) - known == set()


MAY_BE_EMPTY = {
    *("environment_variables", "metadata", "settings", "upload_headers"),  # of any names
    *("iterable", "product_iterables", "zip", "grid", "list"),  # values of a sweep
    *("entrypoint", "blob_prefix", "num_instances", "processes_per_node", "pre", "post"),
    *("additional_docker_run_options", "additional_singularity_options", "blobxfer_extra_options", "mount_options",
      "options", "relative_destination_path", "rsync_extra_options", "scp_ssh_extra_options", "volume_options"),
    *("passphrase", "password", "url"),  # secrets
    *("filename", "name", "public_key_pem", "setup", "sha1_thumbprint", "ssh_private_key", "task_id", "volume_type"),
}  # fmt: skip
"""Texts of pool, settings and jobs: values, options, and properties without effect."""


def test_a_text_is_not_empty_unless_that_has_a_meaning() -> None:
    def may_be_empty(shape: Any) -> bool:
        if isinstance(shape, dict) and shape.get("type") == ["string", "number", "boolean"]:
            return not {"minLength", "pattern"} & shape.keys()
        below = shape.values() if isinstance(shape, dict) else shape if isinstance(shape, (list, tuple)) else ()
        return any(map(may_be_empty, below))

    texts = {name for block, definition in schema.definitions().items() if not hasattr(credentials, block)
             for name, shape in definition.get("properties", {}).items() if may_be_empty(shape)}  # fmt: skip
    assert texts == MAY_BE_EMPTY
