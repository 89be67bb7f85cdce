"""The network of a pool: subnet, addresses, ports, who may connect, and the login on each node."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from batchtrain.errors import PlanError
from batchtrain.plan.network import access_rules
from batchtrain.plan.pool_users import with_dates
from tests.unit.plan.pools import WINDOWS, plan, rules, sent

SSH = {"username": "al", "ssh_public_key_data": "ssh-ed25519 AAAA"}
BY_NAME = {"name": "v", "resource_group": "g", "subnet": {"name": "s"}}
ADDRESS = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/a"


def network(pool: dict[str, Any], **more: Any) -> dict[str, Any]:
    return dict(sent(pool, **more)["networkConfiguration"])


def ports(pool: dict[str, Any]) -> list[dict[str, Any]]:
    return list(network(pool)["endpointConfiguration"]["inboundNATPools"])


def login(pool: dict[str, Any]) -> dict[str, Any]:
    step = plan(pool).steps[-1]
    assert (step.action, step.path) == ("node.user", "/pools/p/nodes/{each}/users")
    return step.document


# --- the subnet -----------------------------------------------------------------------------------------------------


def test_a_pool_without_network_settings_has_no_network_configuration() -> None:
    assert "networkConfiguration" not in sent()


def test_a_network_by_name_is_put_together_from_the_subscription() -> None:
    found = network({"virtual_network": BY_NAME}, credentials={"management": {"subscription_id": "u"}})
    path = "/subscriptions/u/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
    assert found["subnetId"] == path


def test_a_network_by_name_takes_the_resource_group_of_the_batch_account() -> None:
    credentials = {"management": {"subscription_id": "u"}, "batch": {"resource_group": "h"}}
    told = {"virtual_network": {"name": "v", "subnet": {"name": "s"}}}
    assert "/resourceGroups/h/" in network(told, credentials=credentials)["subnetId"]


def test_a_network_whose_subscription_is_not_known_yet_is_planned_all_the_same() -> None:
    subnet = network({"virtual_network": {**BY_NAME, "resource_group": None}})["subnetId"]
    start = "/subscriptions/{{management:subscription_id}}/resourceGroups/{{management:resource_group}}/providers/"
    assert subnet.startswith(start)


@pytest.mark.parametrize("told", [{}, {"name": "v"}])
def test_half_a_network_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="virtual_network"):
        plan({"virtual_network": told})


# --- addresses ------------------------------------------------------------------------------------------------------


def test_given_public_addresses_are_user_managed() -> None:
    made = plan({"public_ips": [ADDRESS]})
    found = made.steps[0].document["networkConfiguration"]["publicIPAddressConfiguration"]
    assert (found["provision"], found["ipAddressIds"]) == ("usermanaged", (ADDRESS,))
    assert "addresses-of-your-own" in rules(made)


# --- ports ----------------------------------------------------------------------------------------------------------


def test_a_login_opens_its_port_by_itself() -> None:
    (port,) = ports({"ssh": SSH})
    assert (port["backendPort"], port["frontendPortRangeStart"], port["frontendPortRangeEnd"]) == (22, 49000, 49999)
    assert rules(plan({"ssh": SSH})) == ["ssh-endpoint"]


def test_the_ports_of_a_login_begin_where_the_file_says_and_end_before_the_last_one() -> None:
    (port,) = ports({"ssh": SSH, "remote_access_control": {"starting_port": 64536}})
    assert (port["frontendPortRangeStart"], port["frontendPortRangeEnd"]) == (64536, 65534)


def test_a_port_that_is_open_already_is_not_opened_twice() -> None:
    own = {"name": "n", "backend_port": 22, "frontend_port_range": [100, 200]}
    assert [port["name"] for port in ports({"ssh": SSH, "network": {"inbound_nat_pools": [own]}})] == ["n"]


def test_a_pool_without_public_addresses_opens_no_port() -> None:
    found = network({"ssh": SSH, "network": {"public_ip": "nopublicipaddresses"}})
    assert "endpointConfiguration" not in found


def test_a_windows_pool_opens_the_port_of_its_desktop() -> None:
    told = {"vm_configuration": {"platform_image": WINDOWS}, "rdp": {"username": "al"}, "ssh": SSH}
    assert [port["backendPort"] for port in ports(told)] == [3389]


def test_a_denied_address_comes_before_the_allowed_and_all_others_last() -> None:
    made = access_rules(("10.0.0.0/8",), ("*", "10.1.0.0/16"))
    rules = [(one.priority, one.access, one.source_address_prefix) for one in made]
    assert rules == [(150, "deny", "10.1.0.0/16"), (151, "allow", "10.0.0.0/8"), (152, "deny", "*")]


# --- logins ---------------------------------------------------------------------------------------------------------


def test_a_login_ends_after_a_span_since_a_plan_has_no_clock() -> None:
    ends = {"expiryTime": "{{expires:P7D}}", "sshPublicKey": "ssh-ed25519 AAAA"}
    assert login({"ssh": {**SSH, "expiry_days": 7}}) == {"name": "al", "isAdmin": True, **ends}


def test_a_plan_for_display_has_the_time_at_which_a_login_ends() -> None:
    shown = with_dates(plan({"ssh": {**SSH, "expiry_days": 7}}), datetime(2026, 11, 21, 12, tzinfo=timezone.utc))
    assert shown.steps[-1].document["expiryTime"] == "2026-11-28T12:00:00Z"


def test_a_login_of_no_days_leaves_its_end_to_the_service() -> None:
    assert "expiryTime" not in login({"ssh": {**SSH, "expiry_days": 0}})


@pytest.mark.parametrize(("told", "key"), [({"ssh_public_key": "me.pub"}, "{{ssh:me.pub}}"), ({}, "{{ssh:}}")])
def test_a_public_key_is_read_or_made_when_the_login_is(told: dict[str, Any], key: str) -> None:
    assert login({"ssh": {"username": "al", **told}})["sshPublicKey"] == key


def test_a_windows_login_has_a_password_that_no_plan_shows() -> None:
    told = {"vm_configuration": {"platform_image": WINDOWS}, "rdp": {"username": "al", "password": "hunter2"}}
    assert login(told)["password"] == "{{user:al:password}}"
