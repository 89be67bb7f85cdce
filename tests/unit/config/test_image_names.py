"""Names of container images."""

from __future__ import annotations

import pytest

from batchtrain.config.image_names import below, is_name, is_registry, server_of

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


@pytest.mark.parametrize(
    ("name", "copy"),
    [("ubuntu:22.04", "r.io/to/ubuntu:22.04"), ("hub/a", "r.io/to/hub/a"), ("reg.io:5000/a/b:1", "r.io/to/a/b:1"),
     ("reg.io/a@" + DIGEST, "r.io/to/a@" + DIGEST)],
)  # fmt: skip
def test_a_copy_has_the_path_the_tag_and_the_digest_of_its_image(name: str, copy: str) -> None:
    assert [below(to, name) for to in ("r.io/to", "r.io/to/")] == [copy, copy]


@pytest.mark.parametrize(
    ("text", "good"),
    [("r.io", True), ("r.io:5000/a/b/", True), ("localhost", True), ("", False), ("a/b", False), ("hub", False),
     ("https://r.io", False), ("r.io/A", False), ("r.io/a:1", False)],
)  # fmt: skip
def test_a_registry_is_a_server_with_or_without_a_path(text: str, *, good: bool) -> None:
    assert is_registry(text) is good
