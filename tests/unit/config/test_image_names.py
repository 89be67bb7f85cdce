"""Names of container images."""

from __future__ import annotations

import pytest

from batchtrain.config.image_names import is_name, server_of

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    "name",
    ["ubuntu", "ubuntu:22.04", "a/b", "a__b/c-d.e", "localhost:5000/a", "mcr.microsoft.com/a/b@" + DIGEST,
     "nvcr.io/nvidia/pytorch:24.01-py3", "REG.example.org/a"],
)  # fmt: skip
def test_a_name_that_engines_take(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["My Image:a:b", "Upper/a", "a:b:c", "a/", "a..b", "a@sha256:0a", "", "a b", "https://reg.io/a"]
)
def test_a_name_that_engines_refuse(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize("text", ["a" * 20_000 + "!", "a-" * 10_000 + "!", "a/" * 10_000 + "!", "a__" * 7000 + "!"])
def test_a_name_without_end_takes_no_time(text: str) -> None:
    assert not is_name(text)


@pytest.mark.parametrize(
    ("name", "server"), [("a/b", "hub"), ("ubuntu", "hub"), ("reg.io/a", "reg.io"), ("localhost/a", "localhost")]
)
def test_a_registry_is_what_has_a_dot_or_a_port(name: str, server: str) -> None:
    assert server_of(name) == server
