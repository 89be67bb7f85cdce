"""The limits of a pool's NAT pools: the last value that is taken and the first that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.catalog import meaning

NAT: dict[str, Any] = {
    "name": "a", "protocol": "tcp", "backendPort": 8000, "frontendPortRangeStart": 1000, "frontendPortRangeEnd": 1039,
}  # fmt: skip


def refused(*pools: dict[str, Any], **addresses: Any) -> str:
    """The property that is refused; empty if all are taken."""
    network = {"endpointConfiguration": {"inboundNATPools": list(pools)}, "publicIPAddressConfiguration": addresses}
    refusal = next(meaning.network(network), None)
    return refusal.path.rpartition("/")[2].partition("[")[0] if refusal else ""


def ports(start: int, end: int) -> dict[str, int]:
    return {"frontendPortRangeStart": start, "frontendPortRangeEnd": end}


def rules(*priorities: int) -> dict[str, Any]:
    return {
        "networkSecurityGroupRules": [{"priority": priority, "sourceAddressPrefix": "*"} for priority in priorities]
    }


def source(prefix: str, *ports: str) -> dict[str, Any]:
    """A rule's source. The refusals are those of Azure's REST reference (NetworkSecurityGroupRule)."""
    rule = {"priority": 150, "sourceAddressPrefix": prefix, "sourcePortRanges": list(ports)}
    return {"networkSecurityGroupRules": [rule]}


@pytest.mark.parametrize(
    ("taken", "not_taken", "where"),
    [
        ({"name": "x" * 77}, {"name": "x" * 78}, "name"),
        ({"name": "x"}, {"name": ""}, "name"),
        ({"name": "a.b_"}, {"name": "a."}, "name"),
        ({"name": "1-b"}, {"name": "_b"}, "name"),
        ({"backendPort": 1}, {"backendPort": 0}, "backendPort"),
        ({"backendPort": 65_535}, {"backendPort": 65_536}, "backendPort"),
        ({"backendPort": 29_875}, {"backendPort": 29_876}, "backendPort"),
        ({"backendPort": 29_878}, {"backendPort": 29_877}, "backendPort"),
        (ports(1, 40), ports(0, 40), "frontendPortRangeStart"),
        (ports(65_495, 65_534), ports(65_495, 65_535), "frontendPortRangeStart"),
        (ports(49_900, 49_999), ports(49_900, 50_000), "frontendPortRangeStart"),
        (ports(55_001, 55_100), ports(55_000, 55_100), "frontendPortRangeStart"),
        (ports(1, 40), ports(40, 39), "frontendPortRangeStart"),
        (ports(1, 40), ports(40, 40), "frontendPortRangeEnd"),
        (ports(1000, 1039), ports(1000, 1038), "frontendPortRangeEnd"),
        (rules(150), rules(149), "priority"),
        (rules(4096), rules(4097), "priority"),
        (rules(150, 151), rules(150, 150), "priority"),
        (source("10.0.0.0/8"), source("10.0.0.0/33"), "sourceAddressPrefix"),
        (source("VirtualNetwork"), source("not an address"), "sourceAddressPrefix"),
        (source("fd00::1"), source(""), "sourceAddressPrefix"),
        (source("*", "0-65535"), source("*", "0-65536"), "sourcePortRanges"),
        (source("*", "1-5", "6"), source("*", "1-5", "5"), "sourcePortRanges"),
        (source("*", "*"), source("*", "*", "80"), "sourcePortRanges"),
        (source("*", "80"), source("*", "80-70"), "sourcePortRanges"),
        (rules(*range(150, 175)), rules(*range(150, 176)), "inboundNATPools"),
    ],
)
def test_a_nat_pool_at_a_limit_is_taken_and_beyond_it_refused(
    taken: dict[str, Any], not_taken: dict[str, Any], where: str
) -> None:
    assert refused(NAT | taken) == ""
    assert refused(NAT | not_taken) == where


NEXT = {"name": "b", "backendPort": 8001, **ports(1040, 1080)}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({}, ""),
        (ports(900, 999), ""),
        ({"backendPort": 8000, "protocol": "udp"}, ""),
        ({"backendPort": 8000}, "backendPort"),
        ({"name": "a"}, "name"),
        (ports(1039, 1080), "frontendPortRangeStart"),
        (ports(900, 1000), "frontendPortRangeStart"),
        (ports(900, 1100), "frontendPortRangeStart"),
    ],
)
def test_two_nat_pools_share_a_port_of_the_nodes_only_in_two_protocols(change: dict[str, Any], where: str) -> None:
    assert refused(NAT, NAT | NEXT | change) == where


def test_every_pair_of_nat_pools_is_compared() -> None:
    pools = [NAT | {"name": f"n{n}", "backendPort": 80 + n, **ports(1000 + 40 * n, 1039 + 40 * n)} for n in range(6)]
    assert refused(*pools[:5]) == ""
    assert refused(*pools) == "inboundNATPools", "at most five"
    assert refused(*pools[:4], pools[4] | {"name": "n0"}) == "name"


@pytest.mark.parametrize(
    ("addresses", "where"),
    [
        ({"provision": "usermanaged", "ipAddressIds": ["a"]}, ""),
        ({"provision": "batchmanaged"}, ""),
        ({"provision": "nopublicipaddresses", "ipAddressIds": ["a"]}, "ipAddressIds"),
        ({"ipAddressIds": ["a"]}, "ipAddressIds"),
        ({"provision": "usermanaged", "ipAddressIds": []}, "ipAddressIds"),
        ({"ipFamilies": ["IPv4"]}, ""),
        ({"ipFamilies": ["IPv6"]}, "ipFamilies"),
    ],
)
def test_addresses_are_given_with_usermanaged_only(addresses: dict[str, Any], where: str) -> None:
    assert refused(**addresses) == where
