"""What no output shows, wherever it was written."""

from __future__ import annotations

import msgspec

from batchtrain.config.types import Credentials, Recipe
from batchtrain.config.veil import secrets_of, veiled, veiled_text
from batchtrain.plan import plan_recipe
from batchtrain.plan.diff import Living, compare, wanted
from batchtrain.plan.render import as_document

KEY = "c2VjcmV0LWtleQ=="
LINK = "https://a.blob.core.windows.net/c/b?sv=2024&sig=abc%2Bdef%3D&se=2030"
TOLD = {
    "directory": ".",
    "credentials": {"storage": {"s": {"account": "one", "account_key": KEY}}},
    "pool": {
        "id": "p",
        "vm_size": "STANDARD_D2S_V5",
        "vm_configuration": {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}},
        "resource_files": [{"blob_source": LINK, "file_path": "b"}],
    },
    "jobs": [{"id": "j", "tasks": [{"id": "t", "command": f"curl '{LINK}'", "environment_variables": {"K": KEY}}]}],
}


def recipe() -> Recipe:
    return msgspec.convert(TOLD, Recipe)


def test_secrets_are_the_values_of_secret_properties() -> None:
    known = msgspec.convert({"batch": {"account": "name-of-it", "account_key": KEY}}, Credentials)
    assert secrets_of(known) == (KEY,)


def test_a_signature_is_masked_and_the_rest_of_the_link_stays() -> None:
    assert veiled_text(f'"{LINK}"') == '"https://a.blob.core.windows.net/c/b?sv=2024&sig=***&se=2030"'


def test_a_document_is_masked_at_every_depth() -> None:
    assert veiled({"a": [{"b": f"x{KEY}y"}, 5]}, [KEY]) == {"a": [{"b": "x***y"}, 5]}


def test_no_rendering_of_a_plan_shows_a_key_or_a_signature() -> None:
    whole = plan_recipe(recipe())
    for shown in (str(whole), repr(whole), whole._repr_html_(), msgspec.json.encode(as_document(whole)).decode()):
        assert KEY not in shown
        assert "abc%2Bdef" not in shown
        assert "sig=***" in shown


def test_the_request_itself_has_the_link_that_was_written() -> None:
    assert LINK.encode() in msgspec.json.encode(plan_recipe(recipe()).steps[0].body)


def test_a_comparison_shows_no_signature_of_either_side() -> None:
    whole = plan_recipe(recipe())
    planned = next(body for kind, _, body in wanted(whole) if kind == "pool")
    other = msgspec.json.decode(msgspec.json.encode(planned).replace(b"abc%2Bdef", b"ghi%2Bjkl"))
    told = str(compare(whole, Living(pools={"p": other})))
    assert "sig=" in told
    assert "abc%2B" not in told
    assert "ghi%2B" not in told
