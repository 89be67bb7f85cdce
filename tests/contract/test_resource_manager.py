"""Azure Resource Manager's answers over https: paging, tokens, refusals, and the one request that changes something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchtrain.errors import NotAllowed, NotFound, ServiceError, UsageError
from batchtrain.service import arm
from batchtrain.service.rest import Rest
from tests import management
from tests.certificates import Certificates, issue
from tests.management import SUBSCRIPTION, Answers, FixedToken, Management

pytestmark = pytest.mark.process


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return issue(tmp_path)


@pytest.fixture
def answers() -> Answers:
    return management.answers()


@pytest.fixture
def served(answers: Answers, certificates: Certificates) -> Iterator[Management]:
    with management.serve(answers, certificates) as running:
        yield running


@pytest.fixture
def rest(served: Management, certificates: Certificates) -> Iterator[Rest]:
    made = arm.connect(FixedToken(), served.endpoint, ca=str(certificates.ca))
    yield made
    made.close()


def test_the_account_is_found_by_its_endpoint_in_whatever_subscription(rest: Rest) -> None:
    seen = arm.account(rest, "https://sampleacct.japaneast.batch.azure.com")
    assert seen is not None
    assert (seen.subscription, seen.name) == (SUBSCRIPTION, "sampleacct")
    assert arm.account(rest, "https://other.japaneast.batch.azure.com") is None


def test_the_token_is_for_resource_manager_and_travels_with_each_request(
    served: Management, certificates: Certificates
) -> None:
    credential = FixedToken()
    made = arm.connect(credential, served.endpoint, ca=str(certificates.ca))
    arm.subscriptions(made)
    assert credential.scopes == [(f"{served.endpoint}/.default",)]
    assert served.asked[0].authorization == "Bearer a-token"


def test_every_page_of_batch_s_sizes_is_read(rest: Rest, served: Management) -> None:
    sold = arm.batch_sizes(rest, SUBSCRIPTION, "japaneast")
    assert [one.name for one in sold][2:] == ["Standard_ND256isr_R300_v7", "Standard_D2_v2"]
    assert served.asked[0].query == {"api-version": ["2025-06-01"]}


def test_the_compute_service_s_list_is_asked_for_one_region_and_its_machines_alone(
    rest: Rest, served: Management
) -> None:
    sold = arm.compute_sizes(rest, SUBSCRIPTION, "japaneast")
    assert [one.name for one in sold] == ["Standard_ND96isr_H100_v5", "Standard_D4s_v5"]
    assert served.asked[0].query["$filter"] == ["location eq 'japaneast'"]


def test_a_pool_s_identities_are_set_and_nothing_else_of_it(rest: Rest, served: Management) -> None:
    seen = arm.account(rest, "https://sampleacct.japaneast.batch.azure.com", SUBSCRIPTION)
    assert seen is not None
    identity = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/me"
    assert arm.set_pool_identity(rest, seen, "my pool", [identity]) == (identity,)
    asked = served.asked[-1]
    assert (asked.verb, asked.path) == ("PATCH", f"{seen.path}/pools/my%20pool")
    assert asked.body == {"identity": {"type": "UserAssigned", "userAssignedIdentities": {identity: {}}}}


def test_no_identities_take_them_all_away(rest: Rest, served: Management) -> None:
    seen = arm.account(rest, "https://sampleacct.japaneast.batch.azure.com", SUBSCRIPTION)
    assert seen is not None
    assert arm.set_pool_identity(rest, seen, "p", []) == ()
    assert served.asked[-1].body == {"identity": {"type": "None"}}


def test_a_missing_role_is_shown_with_the_role_to_ask_for(rest: Rest, answers: Answers) -> None:
    answers["/subscriptions"] = 403
    with pytest.raises(
        NotAllowed, match=r"list subscriptions: .*\(AuthorizationFailed\); the signed-in identity needs"
    ):
        arm.subscriptions(rest)


def test_a_refused_token_says_to_sign_in_again(rest: Rest, answers: Answers) -> None:
    answers["/subscriptions"] = 401
    with pytest.raises(NotAllowed, match=r"\(InvalidAuthenticationToken\); sign in again"):
        arm.subscriptions(rest)


def test_an_unknown_subscription_is_not_found(rest: Rest) -> None:
    with pytest.raises(NotFound, match="list Batch accounts of subscription none"):
        list(arm.accounts(rest, "none"))


def test_a_next_page_on_another_host_gets_no_token(rest: Rest, answers: Answers) -> None:
    answers["/subscriptions"] = {"value": [], "nextLink": "https://elsewhere.example/subscriptions"}
    with pytest.raises(ServiceError, match=r"another host, elsewhere\.example"):
        arm.subscriptions(rest)


def test_resource_manager_is_not_asked_over_http() -> None:
    with pytest.raises(UsageError, match="must begin with https"):
        arm.connect(FixedToken(), "http://127.0.0.1:1")


def test_a_region_s_name_cannot_change_the_filter(rest: Rest) -> None:
    with pytest.raises(UsageError, match="no name of a region"):
        arm.compute_sizes(rest, SUBSCRIPTION, "x' or location ne '")
