"""The committed reference page is what the types say, and every place a message links to is on it."""

from __future__ import annotations

import re
from pathlib import Path

from batchtrain.config import reference, schema
from batchtrain.config.types import GONE, RENAMED
from tests import reference_page
from tests.reference_page import type_of

ROOT = Path(__file__).resolve().parents[3]


def test_every_place_has_an_anchor_of_its_own_and_every_link_leads_to_one() -> None:
    page = reference_page.page()
    anchors = re.findall(r'<a id="([^"]+)">', page)
    assert sorted({reference.anchor(place) for place in reference.properties()}) == sorted(anchors)
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) - set(anchors) == set()


def test_a_message_links_to_an_anchor_of_the_page() -> None:
    path = ("credentials", "storage", "mine", "account")
    assert schema.anchor(path) == f"{reference.PAGE}#{reference.anchor(reference.path_of(path))}"


def test_every_rule_about_a_removed_property_matches_one() -> None:
    known = {reference.pattern(place) for place in reference.properties()}
    assert [rule.path for rule in GONE if rule.path not in known] == []


def test_every_older_name_is_on_the_page() -> None:
    page = reference_page.page()
    assert [rule.path for rule in RENAMED if f"{rule.path[-1]}`" not in page] == []


def test_a_property_without_a_sentence_or_a_destination_is_not_to_be() -> None:
    nameless = [
        reference.written((*block.paths[0], item.name))
        for block in reference.blocks()
        for item in block.properties
        if not item.description or (not item.wire and "[" not in type_of(item.kind))
    ]
    assert nameless == []
