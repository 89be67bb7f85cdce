"""The host names of an emulator's certificate."""

from __future__ import annotations

import pytest

from batchtrain.emulator import trust

LONGEST = ".".join(["a" * 63] * 3 + ["b" * 61])


@pytest.mark.parametrize(
    ("name", "checked"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("Name.EastUS.batch.azure.com", "name.eastus.batch.azure.com"),
        (LONGEST, LONGEST),
    ],
)
def test_a_host_name_is_in_lower_case_and_an_address_in_its_short_form(name: str, checked: str) -> None:
    assert trust.checked(name) == checked


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", f"{LONGEST}b", "a..b"])
def test_what_is_no_host_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a host name; one looks like NAME"):
        trust.checked(name)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.9.9.9", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("example.org", False)],
)
def test_only_these_hosts_always_mean_this_machine(host: str, *, loopback: bool) -> None:
    assert trust.loopback(host) == loopback
