"""Every operation that azure-mgmt-batch 19 calls: none answers 501. The paths and successes are those of its source."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batchtrain.emulator import arm_applications, pools, resource_manager, tokens, wire
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.machine import packages
from batchtrain.emulator.package_files import FOLDER, PackageFolder
from batchtrain.emulator.reply import Reply
from tests.emulation import BASE, START, Stage, document
from tests.unit.emulator.arm import ACCOUNT, ACCOUNTS, KEY, LOCATION, pool_body
from tests.unit.emulator.arm import answer as ask

TENANT = tokens.TENANT


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage()
    stage.world.package_files = PackageFolder(tmp_path)
    stage.world.applications = lambda: packages.installed(tmp_path)
    return stage


def made(stage: Stage, name: str = "p", **more: object) -> Reply:
    reply = ask(stage, "PUT", f"{ACCOUNT}/pools/{name}", {"properties": pool_body(**more)})
    stage.settle()
    return reply


OPERATIONS: list[tuple[str, str, int]] = [
    ("GET", "/providers/Microsoft.Batch/operations", 200),
    ("GET", "/subscriptions/s/providers/Microsoft.Batch/batchAccounts", 200),
    ("GET", ACCOUNTS, 200),
    ("GET", ACCOUNT, 200),
    ("PUT", ACCOUNT, 200),
    ("PATCH", ACCOUNT, 200),
    ("DELETE", ACCOUNT, 409),
    ("POST", f"{ACCOUNT}/listKeys", 200),
    ("POST", f"{ACCOUNT}/regenerateKeys", 409),
    ("POST", f"{ACCOUNT}/syncAutoStorageKeys", 204),
    ("GET", f"{ACCOUNT}/outboundNetworkDependenciesEndpoints", 200),
    ("GET", f"{ACCOUNT}/detectors", 200),
    ("GET", f"{ACCOUNT}/detectors/d", 404),
    ("GET", f"{ACCOUNT}/pools", 200),
    ("GET", f"{ACCOUNT}/pools/p", 200),
    ("PUT", f"{ACCOUNT}/pools/p", 200),
    ("PATCH", f"{ACCOUNT}/pools/p", 200),
    ("POST", f"{ACCOUNT}/pools/p/disableAutoScale", 200),
    ("POST", f"{ACCOUNT}/pools/p/stopResize", 409),
    ("DELETE", f"{ACCOUNT}/pools/p", 202),
    ("GET", f"{ACCOUNT}/applications", 200),
    ("GET", f"{ACCOUNT}/applications/a", 200),
    ("PUT", f"{ACCOUNT}/applications/b", 200),
    ("PATCH", f"{ACCOUNT}/applications/a", 200),
    ("DELETE", f"{ACCOUNT}/applications/none", 204),
    ("DELETE", f"{ACCOUNT}/applications/a", 200),
    ("GET", f"{ACCOUNT}/applications/a/versions", 200),
    ("PUT", f"{ACCOUNT}/applications/a/versions/1", 200),
    ("GET", f"{ACCOUNT}/applications/a/versions/1", 404),
    ("POST", f"{ACCOUNT}/applications/a/versions/1/activate", 409),
    ("DELETE", f"{ACCOUNT}/applications/a/versions/1", 204),
    ("GET", f"{ACCOUNT}/privateLinkResources", 200),
    ("GET", f"{ACCOUNT}/privateLinkResources/x", 404),
    ("GET", f"{ACCOUNT}/privateEndpointConnections", 200),
    ("GET", f"{ACCOUNT}/privateEndpointConnections/x", 404),
    ("PATCH", f"{ACCOUNT}/privateEndpointConnections/x", 404),
    ("DELETE", f"{ACCOUNT}/privateEndpointConnections/x", 404),
    ("GET", f"{ACCOUNT}/networkSecurityPerimeterConfigurations", 200),
    ("GET", f"{ACCOUNT}/networkSecurityPerimeterConfigurations/x", 404),
    ("POST", f"{ACCOUNT}/networkSecurityPerimeterConfigurations/x/reconcile", 404),
    ("GET", f"{LOCATION}/quotas", 200),
    ("GET", f"{LOCATION}/virtualMachineSkus", 200),
    ("POST", f"{LOCATION}/checkNameAvailability", 200),
]


@pytest.mark.parametrize(("verb", "path", "status"), OPERATIONS)
def test_every_operation_is_answered(stage: Stage, verb: str, path: str, status: int) -> None:
    made(stage)
    ask(stage, "PUT", f"{ACCOUNT}/applications/a", {})
    body = {"properties": pool_body()} if "/pools/" in path and verb == "PUT" else {}
    reply = ask(stage, verb, path, None if verb in ("GET", "DELETE") else body)
    assert reply.status == status, reply.document


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/subscriptions", {"value": [resource_manager.SUBSCRIPTION]}),
        ("/subscriptions/s", resource_manager.SUBSCRIPTION),
        ("/tenants", {"value": [{"id": f"/tenants/{TENANT}", "tenantId": TENANT, "displayName": "emulator"}]}),
    ],
)
def test_what_az_login_reads_has_other_api_versions(stage: Stage, path: str, document: object) -> None:
    for version in ("2022-12-01", "2016-06-01"):
        reply = ask(stage, "GET", path, version=version)
        assert (reply.status, reply.document) == (200, document)
    assert ask(stage, "GET", ACCOUNT, version="2016-06-01").status == 400


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ab", "Invalid"), ("abc", ""), ("a" * 24, ""), ("a" * 25, "Invalid"), ("Abc", "Invalid"), ("a-b", "Invalid"),
        ("batchtrain", "AlreadyExists"),
    ],
)  # fmt: skip
def test_a_name_is_available_unless_it_is_invalid_or_taken(stage: Stage, name: str, reason: str) -> None:
    document = ask(stage, "POST", f"{LOCATION}/checkNameAvailability", {"name": name}).document
    assert document is not None
    assert (document["nameAvailable"], document.get("reason", "")) == (not reason, reason)


def test_the_account_has_the_same_answer_in_the_list_and_after_a_change(stage: Stage) -> None:
    (listed,) = ask(stage, "GET", ACCOUNTS).document["value"]  # type: ignore[index]
    for verb in ("GET", "PUT", "PATCH"):
        found = ask(stage, verb, ACCOUNT, None if verb == "GET" else {}).document
        assert found is not None and found["id"] == ACCOUNT
        properties, expected = found["properties"], listed["properties"]
        assert {**properties, "autoStorage": 0} == {**expected, "autoStorage": 0}
        assert properties["autoStorage"]["storageAccountId"].startswith("/subscriptions/s/resourceGroups/g/providers/")


@pytest.mark.parametrize(("scope", "group"), [("", "emulator"), ("/resourceGroups/mine", "mine")])
def test_accounts_are_listed_in_the_asked_subscription_and_group(stage: Stage, scope: str, group: str) -> None:
    reply = ask(stage, "GET", f"/subscriptions/sub{scope}/providers/Microsoft.Batch/batchAccounts")
    (account,) = reply.document["value"]  # type: ignore[index]
    where = f"/subscriptions/sub/resourceGroups/{group}/providers/Microsoft.Batch/batchAccounts/batchtrain"
    assert (account["id"], account["location"]) == (where, "eastus")


def test_operations_are_listed_as_the_official_test_expects(stage: Stage) -> None:
    """azure-sdk-for-python, test_mgmt_batch_list_operations."""
    operations = ask(stage, "GET", "/providers/Microsoft.Batch/operations").document["value"]  # type: ignore[index]
    first = operations[0]
    assert (len(operations), len({operation["name"] for operation in operations})) == (54, 54)
    assert first["name"] == "Microsoft.Batch/batchAccounts/providers/Microsoft.Insights/diagnosticSettings/read"
    assert first["origin"] == "system"
    assert first["display"]["provider"] == "Microsoft Batch"
    assert first["display"]["operation"] == "Read diagnostic setting"


@pytest.mark.parametrize(
    "version",
    ["2020-09-01", "2021-01-01", "2021-06-01", "2022-01-01", "2022-06-01", "2022-10-01", "2023-05-01", "2023-11-01",
     "2024-02-01", "2024-07-01", "2025-06-01", "2026-10-01"],
)  # fmt: skip
def test_every_version_since_azure_mgmt_batch_14_has_its_own_names(stage: Stage, version: str) -> None:
    path = f"{ACCOUNT}/pools/p"
    cifs = {"source": "s", "relativeMountPath": "m", "password": "p"}
    name = "username" if version < "2022-10-01" else "userName"
    body = pool_body(mountConfiguration=[{"cifsMountConfiguration": {**cifs, name: "u"}}])
    assert ask(stage, "PUT", path, {"properties": body}, version=version).status == 200
    shown = ask(stage, "GET", path, version=version).document["properties"]  # type: ignore[index]
    assert shown["mountConfiguration"][0]["cifsMountConfiguration"][name] == "u"
    assert ("currentNodeCommunicationMode" in shown) == ("2022-10-01" <= version < "2025")


def test_sizes_of_a_region_are_listed_by_filter_and_page(stage: Stage) -> None:
    path = f"{LOCATION}/virtualMachineSkus"
    (size,) = ask(stage, "GET", path, filter="name eq 'Standard_ND96asr_v4'").document["value"]  # type: ignore[index]
    assert size["capabilities"][-2:] == [{"name": "GPUs", "value": "8"}, {"name": "RdmaEnabled", "value": "True"}]
    names, skip = list[str](), ""
    while True:
        page = ask(stage, "GET", path, maxresults="100", **({"skiptoken": skip} if skip else {})).document
        assert page is not None
        names += [size["name"] for size in page["value"]]
        if "nextLink" not in page:
            break
        assert len(page["value"]) == 100
        skip = page["nextLink"].partition("skiptoken=")[2].partition("&")[0]
    longest = ask(stage, "GET", path).document
    assert longest is not None and names[:1000] == [size["name"] for size in longest["value"]]
    assert len(set(names)) == len(names) > 1000


def test_a_patch_changes_the_given_properties_only(stage: Stage) -> None:
    made(stage, displayName="d", metadata=[{"name": "a", "value": "b"}])
    formula = {"formula": "$TargetDedicatedNodes = 0;"}
    body = {"properties": {"metadata": [], "scaleSettings": {"autoScale": formula}}}
    shown = ask(stage, "PATCH", f"{ACCOUNT}/pools/p", body).document["properties"]  # type: ignore[index]
    assert (shown["displayName"], shown["metadata"]) == ("d", [])
    assert shown["scaleSettings"]["autoScale"]["formula"] == formula["formula"]
    back = ask(stage, "POST", f"{ACCOUNT}/pools/p/disableAutoScale").document
    assert "fixedScale" in back["properties"]["scaleSettings"]  # type: ignore[index]


def test_a_patch_gives_a_pool_its_identities(stage: Stage) -> None:
    """Terraform and batchtrain itself send `identity` alone."""
    made(stage)
    identity = {"type": "UserAssigned", "userAssignedIdentities": {"/i": {}}}
    assert document(ask(stage, "PATCH", f"{ACCOUNT}/pools/p", {"identity": identity}))["identity"] == identity
    assert document(stage.do(pools.get_pool, "p"))["identity"]["type"] == "UserAssigned"


def test_pools_are_listed_by_filter_selection_and_page(stage: Stage) -> None:
    """azure-rest-api-specs, Pool.tsp (078c5af2)."""
    for name in ("a1", "a2", "b"):
        made(stage, name)
    by_filter = ask(stage, "GET", f"{ACCOUNT}/pools", filter="startswith(name,'a') and properties/vmSize eq 'x'")
    assert by_filter.document == {"value": []}
    for size in ("standard_d2_v3", "Standard_D2_v3"):
        by_size = f"properties/vmSize eq '{size}' and properties/interNodeCommunication eq 'disabled' and name eq 'b'"
        assert len(ask(stage, "GET", f"{ACCOUNT}/pools", filter=by_size).document["value"]) == 1  # type: ignore[index]
    page = ask(stage, "GET", f"{ACCOUNT}/pools", filter="startswith(name,'a')", select="properties/vmSize",
               maxresults="1").document  # fmt: skip
    assert page is not None and "skiptoken=1" in page["nextLink"]
    assert [(pool["name"], list(pool["properties"])) for pool in page["value"]] == [("a1", ["vmSize"])]
    refused = ask(stage, "GET", f"{ACCOUNT}/pools", filter="properties/displayName eq 'x'")
    assert refused.status == 400


def test_the_etag_of_a_pool_is_weak(stage: Stage) -> None:
    """PoolDelete.json of azure-rest-api-specs (2f8b389b), and azure-sdk-for-java."""
    reply = made(stage)
    assert reply.headers["ETag"] == reply.document["etag"] == f'W/"{stage.world.pool("p").record.etag}"'  # type: ignore[index]


def test_a_package_is_uploaded_activated_and_used(stage: Stage, tmp_path: Path) -> None:
    ask(stage, "PUT", f"{ACCOUNT}/applications/solver", {"properties": {"displayName": "A solver"}})
    where = f"{ACCOUNT}/applications/solver/versions/1.0"
    package = ask(stage, "PUT", where, {}).document
    assert package is not None and package["properties"]["state"] == "Pending"
    link = package["properties"]["storageUrl"].removeprefix(BASE)
    path, _, text = link.partition("?")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("run", "x")

    async def content() -> AsyncIterator[bytes]:
        yield archive.getvalue()

    names = arm_applications.package_of_link(path, dict(wire.query_pairs(text)), KEY)
    asyncio.run(arm_applications.files(stage.world).keep(*names, content()))
    active = ask(stage, "POST", f"{where}/activate", {"format": "zip"}).document["properties"]  # type: ignore[index]
    assert active == {"state": "Active", "format": "zip", "lastActivationTime": wire.timestamp(START)}
    ask(stage, "PATCH", f"{ACCOUNT}/applications/solver", {"properties": {"defaultVersion": "1.0"}})
    (application,) = packages.installed(tmp_path)
    assert (application.id, application.versions, application.default) == ("solver", ("1.0",), "1.0")
    shown = ask(stage, "GET", f"{ACCOUNT}/applications/solver").document
    assert shown["properties"] == {"allowUpdates": True, "displayName": "A solver", "defaultVersion": "1.0"}  # type: ignore[index]
    assert ask(stage, "DELETE", f"{ACCOUNT}/applications/solver").status == 409
    assert [ask(stage, "DELETE", path).status for path in (where, f"{ACCOUNT}/applications/solver")] == [200, 200]
    assert ask(stage, "GET", f"{ACCOUNT}/applications/solver").status == 404


def test_an_active_package_is_replaced_only_where_updates_are_allowed(stage: Stage, tmp_path: Path) -> None:
    path = f"{ACCOUNT}/applications/solver"
    ask(stage, "PUT", path, {})
    (tmp_path / FOLDER / "solver" / "1.0.zip").touch()
    for is_allowed in (True, False):
        shown = ask(stage, "PATCH", path, {"properties": {"allowUpdates": is_allowed}}).document
        assert shown["properties"]["allowUpdates"] == is_allowed  # type: ignore[index]
        assert ask(stage, "PUT", f"{path}/versions/1.0", {}).status == (200 if is_allowed else 409)


def test_applications_and_packages_are_listed_by_page(stage: Stage, tmp_path: Path) -> None:
    for name in ("a", "b"):
        ask(stage, "PUT", f"{ACCOUNT}/applications/{name}", {})
        (tmp_path / FOLDER / "a" / f"{name}.zip").touch()
    for kind in ("applications", "applications/a/versions"):
        page = ask(stage, "GET", f"{ACCOUNT}/{kind}", maxresults="1").document
        assert page is not None and [item["name"] for item in page["value"]] == ["a"] and "nextLink" in page


def test_a_default_version_is_chosen_and_given_up(stage: Stage, tmp_path: Path) -> None:
    path = f"{ACCOUNT}/applications/solver"
    ask(stage, "PUT", path, {})
    for version in ("1.0", "2.0"):
        (tmp_path / FOLDER / "solver" / f"{version}.zip").touch()
    for version in ("1.0", ""):
        shown = ask(stage, "PATCH", path, {"properties": {"defaultVersion": version}}).document
        assert shown["properties"].get("defaultVersion", "") == version  # type: ignore[index]
    assert ask(stage, "PATCH", path, {"properties": {"defaultVersion": "3.0"}}).status == 409


def test_a_link_with_a_wrong_signature_takes_no_package() -> None:
    with pytest.raises(Fault, match="AuthorizationFailure"):
        arm_applications.package_of_link(f"{arm_applications.UPLOADS}solver/1.0", {"sig": "x"}, KEY)


@pytest.mark.parametrize("name", ["..", "a/b", "%2e%2e", ""])
def test_a_name_that_leads_elsewhere_makes_no_application(stage: Stage, tmp_path: Path, name: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    ask(stage, "PUT", f"{ACCOUNT}/applications/{name}", {})
    assert sorted(tmp_path.rglob("*")) == before
