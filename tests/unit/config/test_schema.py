"""The committed schemas are what the types say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchtrain.config import schema

SCHEMAS = Path(__file__).resolve().parents[3] / "schemas"


@pytest.mark.parametrize("name", schema.FILES)
def test_a_committed_schema_is_generated_from_the_types(name: str) -> None:
    stale = "run `python -m batchtrain.config schemas`"
    assert (SCHEMAS / f"{name}.json").read_bytes() == schema.rendered(name), stale


@pytest.mark.parametrize("name", schema.FILES)
def test_every_property_has_a_sentence(name: str) -> None:
    assert list(silent(schema.file_schema(name)["$defs"])) == []


def silent(definitions: dict[str, Any]) -> Any:
    for title, block in definitions.items():
        for key, value in block.get("properties", {}).items():
            if not value.get("description"):
                yield f"{title}.{key}"
