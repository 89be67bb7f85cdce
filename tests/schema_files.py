"""JSON Schemas for editors, generated from the types into `schemas/*.json`: `python -m tests.schema_files`.

The loader reads every YAML scalar as text and accepts deprecated names; the schemas express that, so that an editor
underlines nothing that loads. A test compares the two.
"""

from __future__ import annotations

from typing import Any

import msgspec

from batchtrain.config import reference, schema, types
from batchtrain.config.dialect import OLD_SECTIONS
from batchtrain.config.editor import as_loaded
from batchtrain.config.load import WHOLE
from tests import reference_page
from tests.environments import ROOT


def file_schema(name: str) -> dict[str, Any]:
    """The schema of one file (`credentials`, `config`, `pool`, `jobs`)."""
    generated = msgspec.json.schema(schema.FILES[name], schema_hook=lambda _: {"type": "string"})  # of a Secret
    definitions = {title: as_loaded(block) for title, block in generated["$defs"].items()}
    for block in reference.blocks():
        if block.name in definitions:
            _tell(definitions[block.name], block)
    for rule in types.RENAMED:
        _allow_older(definitions, rule)
    top = definitions[schema.FILES[name].__name__]
    for old, new in OLD_SECTIONS.items():
        if new in top["properties"]:
            top["properties"][old] = _older(top["properties"][new], new)
    title = f"batchtrain {name}.yaml"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "$ref": generated["$ref"]}
    return {**head, "$defs": definitions}


def whole_schema() -> dict[str, Any]:
    """The schema of batchtrain.yaml: the sections of all files but the credentials, by reference to their schemas."""
    sections: dict[str, Any] = {}
    for name, kind in schema.FILES.items():
        if name != "credentials":
            top = file_schema(name)["$defs"][kind.__name__]["properties"]
            sections |= {key: {"$ref": f"{name}.json#/$defs/{kind.__name__}/properties/{key}"} for key in top}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"batchtrain {WHOLE}.yaml",
        "type": "object",
        "properties": sections,
        "additionalProperties": False,
    }


def rendered(name: str) -> bytes:
    """The schema of one file as committed: indented by two, with a newline at the end."""
    document = whole_schema() if name == WHOLE else file_schema(name)
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _or_nothing(definition: dict[str, Any]) -> None:
    """A key without a value counts as absent."""
    if "anyOf" in definition:
        if {"type": "null"} not in definition["anyOf"]:
            definition["anyOf"] = [*definition["anyOf"], {"type": "null"}]
    elif "$ref" in definition:
        definition["anyOf"] = [{"$ref": definition.pop("$ref")}, {"type": "null"}]
    elif "enum" in definition:
        definition["enum"] = [*definition["enum"], None]
    elif "type" in definition:
        kinds = definition["type"] if isinstance(definition["type"], list) else [definition["type"]]
        definition["type"] = [*kinds, "null"]


def _tell(definition: dict[str, Any], block: reference.BlockOf) -> None:
    """Adds the block's sentence, removed properties, values of older files, and absent values to its schema."""
    definition["description"] = block.about  # msgspec takes what help() shows, with the properties
    if not block.about:
        del definition["description"]
    for item in block.properties:
        pattern = (*block.paths[0], item.name)
        item_schema = definition["properties"][item.name]
        if (example := reference_page.example(block, item)) is not None:
            item_schema["examples"] = [example]
        instead = reference.gone(pattern)
        if instead:
            item_schema["deprecated"] = True
            item_schema["description"] = f"{item.description} No effect: {instead}."
        for old, new in reference_page.older_values(pattern):
            if "enum" in item_schema:
                old_value = {
                    "const": old,
                    "deprecated": True,
                    "description": f"Today: `{new}`.",
                    "$comment": schema.OLDER,
                }
                item_schema["anyOf"] = [{"enum": item_schema.pop("enum")}, old_value]
        if not item.required:
            _or_nothing(item_schema)


def _allow_older(definitions: dict[str, Any], rule: types.Renamed) -> None:
    for block in reference.blocks():
        if block.name not in definitions:
            continue
        for pattern in block.paths:
            if reference.pattern(pattern) == rule.path[:-1]:
                properties = definitions[block.name]["properties"]
                is_beside = len(rule.steps) == 1 and not rule.values
                of_today = properties[rule.new] if is_beside else {}
                properties[rule.path[-1]] = _older(of_today, ".".join(rule.steps))
            elif rule.new.startswith("../") and reference.pattern(pattern) == rule.path[:-2]:
                properties = definitions[block.name]["properties"]
                map_of = properties[rule.path[-2]]
                map_of["properties"] = {rule.path[-1]: _older(properties[rule.new[3:]], rule.new[3:])}


def _older(today: dict[str, Any], name: str) -> dict[str, Any]:
    return {**today, "description": f"Older name of `{name}`.", "deprecated": True, "$comment": schema.OLDER}


def main() -> None:
    for name in (*schema.FILES, WHOLE):
        (ROOT / "schemas" / f"{name}.json").write_bytes(rendered(name))


if __name__ == "__main__":
    main()
