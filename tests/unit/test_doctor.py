"""How what was looked up is judged; nobody is asked anything here."""

from __future__ import annotations

import re
from datetime import date, datetime, timezone
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from batchtrain import records
from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Prices
from batchtrain.catalog.sizes import VmSize
from batchtrain.config.candidates import candidates_of
from batchtrain.config.types import (
    Alternative,
    Autoscale,
    Candidates,
    CustomImage,
    Job,
    MultiInstance,
    NodeCaps,
    PlatformImage,
    Pool,
    Recipe,
    Scenario,
    Secret,
    StopWhen,
    Task,
    VmConfiguration,
    VmCount,
)
from batchtrain.diagnosis import doctor
from batchtrain.diagnosis.doctor import Facts, Region, Unknown
from batchtrain.errors import Check
from batchtrain.frameworks.jax import JaxBlock
from batchtrain.records import Image
from batchtrain.service import arm
from batchtrain.service.connect import Account
from batchtrain.service.entra import SignIn
from tests import management

TODAY = date(2026, 11, 21)
ACCOUNT = Account("https://mine.japaneast.batch.azure.com", "mine", Secret("a2V5"))
IMAGE = Image("microsoft-dsvm", "ubuntu-hpc", "2404", "batch.node.ubuntu 24.04", ("DockerCompatible",))
H100, D4S = arm.sold_of(management.H100), arm.sold_of(management.D4S)
FAMILIES = {"nd96isr_h100_v5": H100.family, "d4s_v5": D4S.family, "d8s_v5": D4S.family}


def recipe(vm_size: str = "STANDARD_D4S_V5", dedicated: int = 2, spot: int = 0, **image: Any) -> Recipe:
    named = {"publisher": "Microsoft-DSVM", "offer": "ubuntu-hpc", "sku": "2404", **image}
    pool = Pool(
        id="train", vm_size=vm_size, vm_count=VmCount(dedicated=dedicated, low_priority=spot),
        vm_configuration=VmConfiguration(platform_image=PlatformImage(**named)),
    )  # fmt: skip
    return Recipe(directory=".", pool=pool, jobs=(Job(id="digits", tasks=(Task(command="true"),)),))


def region(size: arm.Sold | None = D4S, blocked: str = "", **account: Any) -> Region:
    return Region(arm.account_of(management.account(**account)), size, blocked, FAMILIES)


def facts(**changed: Any) -> Facts:
    known: dict[str, Any] = {
        "account": ACCOUNT, "today": TODAY, "skew": 0.4, "pools": (), "jobs": (), "images": (IMAGE,),
        "region": region(), "recipe": recipe(),
    }  # fmt: skip
    return Facts(**known | changed)


def pool(name: str = "other", vm_size: str = "standard_d8s_v5", dedicated: int = 1, spot: int = 0) -> records.Pool:
    return records.Pool(name, "active", "steady", vm_size, dedicated, dedicated, spot, spot)


def check(name: str, seen: Facts) -> Check:
    return next(one for one in doctor.checks(seen) if one.check == name)


@pytest.mark.parametrize(
    ("plain", "result", "found", "step"),
    [
        ("", "ok", "its own root and host name", ""),
        ("no namespaces", "warn", "because no namespaces: .* counts one host where Azure has", "allow them"),
    ],
)
def test_what_local_nodes_lack_is_told(plain: str, result: str, found: str, step: str) -> None:
    isolation = check(
        "isolation",
        facts(account=ACCOUNT._replace(emulated=True, plain_nodes=plain, plain_nodes_remedy=plain and "allow them")),
    )
    assert (isolation.result, isolation.next_step) == (result, step)
    assert re.search(found, isolation.found)
    assert all(one.check != "isolation" for one in doctor.checks(facts()))


def test_a_recipe_that_fits_passes_every_check() -> None:
    assert {one.check: one.result for one in doctor.checks(facts())} == dict.fromkeys(
        (
            "account", "clock", "pools", "jobs", "image", "registry", "VM size", "account settings", "region",
            "quota", "spot quota", "cost",
        ),
        "ok",
    )  # fmt: skip


def test_without_a_recipe_the_account_alone_is_checked() -> None:
    found = {one.check: one.result for one in doctor.checks(facts(recipe=None))}
    assert [name for name, result in found.items() if result == "not checked"] == [
        "image", "registry", "VM size", "region", "quota", "spot quota", "cost",
    ]  # fmt: skip


def test_an_hour_of_the_pool_is_priced_where_the_catalogue_has_its_price() -> None:
    prices = Prices("japaneast", "USD", {"Standard_D4s_v5": 0.25}, {"Standard_D4s_v5": 0.05})
    chosen = structs.replace(recipe(dedicated=2, spot=2), catalog=Catalog(prices=(prices,)))
    assert check("cost", facts(recipe=chosen)).found == (
        "an hour of pool train costs 0.60 USD in japaneast: 4 node hours of STANDARD_D4S_V5 (2 dedicated, 2 spot)"
    )


def test_without_a_price_an_hour_is_node_hours_and_the_command_that_reads_prices() -> None:
    seen = check("cost", facts())
    assert seen.found == "an hour of pool train is 2 node hours of STANDARD_D4S_V5 (2 dedicated, 0 spot)"
    assert seen.next_step == (
        "the catalogue has no price of STANDARD_D4S_V5 (dedicated) in japaneast;"
        " `batchtrain catalog refresh --prices --location japaneast` reads it; or write what an hour of a node costs"
        " into catalog.yaml beside the recipe:"
        " `prices: [{region: japaneast, currency: USD, dedicated: {STANDARD_D4S_V5: PRICE}}]`"
    )


@pytest.mark.parametrize(("stop_when", "suggests"), [(None, True), (StopWhen(silent="20m"), False)])
def test_a_gang_without_a_limit_of_its_silence_is_given_one(stop_when: StopWhen | None, suggests: bool) -> None:
    gang = MultiInstance(num_instances=2, jax=JaxBlock())
    job = Job(id="j", stop_when=stop_when, tasks=(Task(command="x", multi_instance=gang),))
    local = ACCOUNT._replace(emulated=True)
    check_ = check("cost", facts(account=local, recipe=structs.replace(recipe(), jobs=(job,))))
    assert ("stop_when" in check_.next_step) is suggests


def test_an_account_that_refuses_fails_and_nothing_else_is_held_against_it() -> None:
    refused = Unknown("list pools: refused (AuthenticationFailed)")
    seen = facts(pools=refused, jobs=refused, images=refused, region=Unknown("the account cannot be used"))
    results = {one.check: one.result for one in doctor.checks(seen)}
    assert (results["account"], results["VM size"]) == ("fail", "ok")
    assert set(results.values()) == {"fail", "not checked", "ok"}
    assert not seen.unreachable


def test_a_silent_account_is_unreachable() -> None:
    assert facts(pools=Unknown("no answer", unreachable=True)).unreachable


def with_pool(seen: Recipe, **changed: Any) -> Recipe:
    assert seen.pool is not None
    return replace(seen, pool=replace(seen.pool, **changed))


def supported_until(*end: int) -> dict[str, Any]:
    return {"images": (replace(IMAGE, ends=datetime(*end, tzinfo=timezone.utc)),)}  # type: ignore[arg-type]


def of_ones_own(agent: str) -> VmConfiguration:
    return VmConfiguration(custom_image=CustomImage(arm_image_id="/a", node_agent=agent))


THREE_JOBS = tuple(records.Job(f"j{number}", "active", "p") for number in range(3))
SCHEDULES = tuple(records.JobSchedule(f"s{number}", "active") for number in range(region().account.jobs or 0))
BUSY = (pool("a", dedicated=10), pool("b", "standard_nd96isr_h100_v5", dedicated=1))
MOST = Scenario(name="pending_tasks", maximum_vm_count=NodeCaps(dedicated=10_000, low_priority=0))
ENDLESS = "$TargetDedicatedNodes = $PendingTasks.GetSample(1);"
SHARED_QUOTA = region(dedicatedCoreQuotaPerVMFamilyEnforced=False, dedicatedCoreQuota=100)
OWN_CATALOG = Catalog((VmSize("Standard_X9", "X", 9, 18),))
OF_THE_SUBSCRIPTION = region(poolAllocationMode="UserSubscription")

VERDICTS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "a clock that is right": ("clock", {"skew": 0.4}, "ok", ""),
    "a clock half a minute behind": ("clock", {"skew": -30}, "ok", ""),
    "a clock a minute ahead": ("clock", {"skew": 61}, "warn", ""),
    "a clock a quarter of an hour behind": ("clock", {"skew": -899}, "warn", ""),
    "a clock whose signatures are refused": ("clock", {"skew": 900}, "fail", ""),
    "a clock that was not compared": ("clock", {"skew": None}, "not checked", ""),
    "a pool of the same name": ("pools", {"pools": (pool("train"),)}, "warn", ": batchtrain pool del train$"),
    "a full account": ("pools", {"pools": (pool(),), "region": region(poolQuota=1)}, "fail", ""),
    "a job of the same name": (
        "jobs", {"jobs": (records.Job("digits", "completed", "train"),)}, "warn", "-> batchtrain jobs del digits$"),
    "as many active jobs as may be": (
        "jobs", {"jobs": THREE_JOBS, "region": region(activeJobAndJobScheduleQuota=3)}, "fail", ""),
    "fewer active jobs than may be": (
        "jobs", {"jobs": THREE_JOBS, "region": region(activeJobAndJobScheduleQuota=4)}, "ok", ""),
    "active schedules, which count as jobs": ("jobs", {"schedules": SCHEDULES}, "fail", ""),
    "schedules that have ended": (
        "jobs", {"schedules": tuple(replace(one, state="completed") for one in SCHEDULES)}, "ok", ""),
    "an image that the account lacks": (
        "image", {"recipe": recipe(sku="2004")}, "fail", "-> use microsoft-dsvm:ubuntu-hpc:2404$"),
    "an image in another case": ("image", {"recipe": recipe(publisher="MICROSOFT-DSVM")}, "ok", ""),
    "a wrong node agent": (
        "image", {"recipe": recipe(node_agent="batch.node.ubuntu 22.04")}, "fail",
        "-> write `node_agent: batch.node.ubuntu 24.04`$"),
    "a native image without a container engine": (
        "image", {"images": (replace(IMAGE, capabilities=("Generation2VMImage",)),), "recipe": recipe(native=True)},
        "fail", ""),
    "an image whose support has ended": ("image", supported_until(2026, 11, 20), "fail", ""),
    "an image whose support ends soon": ("image", supported_until(2027, 1, 1), "warn", ""),
    "an image whose support ends later": ("image", supported_until(2027, 6, 30), "ok", ""),
    "an own image with an agent that the account knows": (
        "image", {"recipe": with_pool(recipe(), vm_configuration=of_ones_own("batch.node.ubuntu 24.04"))},
        "not checked", ""),
    "an own image with another agent": (
        "image", {"recipe": with_pool(recipe(), vm_configuration=of_ones_own("mine"))}, "fail", ""),
    "a size that is gone, with today's": (
        "VM size", {"recipe": recipe("STANDARD_NC24R")}, "fail", "-> .*Standard_ND40rs_v2"),
    "a size that goes soon": ("VM size", {"recipe": recipe("Standard_HC44rs")}, "warn", ""),
    "a size of today": ("VM size", {"recipe": recipe("STANDARD_D4S_V5")}, "ok", ""),
    "an unknown size": ("VM size", {"recipe": recipe("Standard_D4s_v55")}, "warn", ""),
    "a size of one's own catalogue": ("VM size", {"recipe": recipe("standard_x9"), "catalog": OWN_CATALOG}, "ok", ""),
    "a key where the account wants Entra ID": (
        "account settings", {"region": region(allowedAuthenticationModes=["AAD"])}, "fail",
        "accepts AAD, not SharedKey"),
    "a token that the account accepts": (
        "account settings", {"account": ACCOUNT._replace(key=None, sign_in=SignIn("default"))}, "ok", ""),
    "a private account": ("account settings", {"region": region(publicNetworkAccess="Disabled")}, "warn", ""),
    "a size that Batch does not offer in the region": ("region", {"region": region(None)}, "fail", ""),
    "a size that the subscription may not have": (
        "region", {"region": region(blocked="NotAvailableForSubscription")}, "fail", "NotAvailableForSubscription"),
    "a size whose support ends soon": (
        "region", {"region": region(D4S._replace(ends=date(2026, 12, 1)))}, "warn", ""),
    "quota beside other pools of the family": (
        "quota", {"pools": BUSY, "recipe": recipe(dedicated=5)}, "ok",
        r"^20 cores needed, 80 of 100 used \(standardDSv5Family\) ->"),
    "no quota beside other pools of the family": (
        "quota", {"pools": BUSY, "recipe": recipe(dedicated=6)}, "fail", ""),
    "the pool itself, which is not counted twice": (
        "quota", {"pools": (pool("train", "standard_d4s_v5", dedicated=25),), "recipe": recipe(dedicated=25)}, "ok",
        r"^100 cores needed, 0 of 100 used \(standardDSv5Family\) ->"),
    "all pools where families are not counted": (
        "quota", {"region": SHARED_QUOTA, "pools": (pool(vm_size="standard_nd96isr_h100_v5"),)}, "fail",
        r"^8 cores needed, 96 of 100 used \(dedicated cores\) ->"),
    "a pool that scales, by its most nodes": (
        "quota", {"recipe": with_pool(recipe(dedicated=1), autoscale=Autoscale(scenario=MOST))}, "fail", ""),
    "a pool without a maximum": (
        "quota", {"recipe": with_pool(recipe(), autoscale=Autoscale(formula=ENDLESS))}, "not checked",
        r"min\(NUMBER"),
    "nodes of one's own subscription": ("quota", {"region": OF_THE_SUBSCRIPTION}, "not checked", "az vm list-usage"),
    "spot nodes of one's own subscription": (
        "spot quota", {"region": OF_THE_SUBSCRIPTION}, "not checked", "az vm list-usage"),
    "spot nodes within their own quota": (
        "spot quota", {"region": region(lowPriorityCoreQuota=10), "recipe": recipe(dedicated=0, spot=2)}, "ok", ""),
    "more spot nodes than their own quota": (
        "spot quota", {"region": region(lowPriorityCoreQuota=10), "recipe": recipe(dedicated=0, spot=3)}, "fail", ""),
}  # fmt: skip


@pytest.mark.parametrize(("name", "seen", "result", "text"), VERDICTS.values(), ids=VERDICTS)
def test_a_fact_is_judged(name: str, seen: dict[str, Any], result: str, text: str) -> None:
    found = check(name, facts(**seen))
    assert found.result == result
    assert re.search(text, f"{found.found} -> {found.next_step}")


def test_what_resource_manager_does_not_tell_is_not_checked_and_says_why() -> None:
    found = [one for one in doctor.checks(facts(region=Unknown("no role"))) if one.found == "no role"]
    assert [one.check for one in found] == ["account settings", "region", "quota", "spot quota"]
    assert {one.result for one in found} == {"not checked"}


def test_no_check_shows_a_key() -> None:
    assert "a2V5" not in repr(doctor.checks(facts()))


def test_an_image_that_is_in_no_registry_is_a_warning_with_the_command() -> None:
    images = structs.replace(recipe().resources, docker_images=("example/pytorch:cpu",))
    named = structs.replace(recipe(), resources=images)
    found = check("registry", facts(recipe=named))
    assert (found.result, found.found.partition(" is ")[0]) == ("warn", "example/pytorch:cpu")
    assert found.next_step == "batchtrain config set registry NAME, then batchtrain images build . --push"
    stored = check("registry", facts(recipe=named, registry="mine.azurecr.io"))
    assert stored.found == "images of recipes come from mine.azurecr.io"


# --- candidates -----------------------------------------------------------------------------------------------------

PRICES = Prices("japaneast", "USD", {"Standard_D4s_v5": 0.5, "Standard_D8s_v5": 1.0})


def candidates(*quotas: int) -> tuple[Check, ...]:
    """The rows of three candidates in accounts with these quotas of dedicated cores."""
    pool = recipe().pool
    assert pool is not None
    alternatives = (Alternative(vm_size="STANDARD_D8S_V5"), Alternative(vm_size="STANDARD_D16S_V5"))
    whole = replace(
        recipe(),
        pool=replace(pool, candidates=Candidates(alternatives=alternatives)),
        catalog=Catalog(prices=(PRICES,)),
    )
    looked = [
        facts(
            recipe=option.recipe, region=region(dedicatedCoreQuota=quota, dedicatedCoreQuotaPerVMFamilyEnforced=False)
        )
        for option, quota in zip(candidates_of(whole), quotas, strict=True)
    ]
    return doctor.candidate_checks(whole, "japaneast", looked)


def test_a_candidate_is_shown_with_its_price_the_quota_and_what_the_checks_say() -> None:
    first, *_ = candidates(100, 100, 100)
    assert (first.check, first.result) == ("candidate 1", "ok")
    assert first.found.split("; ") == [
        "2 dedicated STANDARD_D4S_V5",
        "1.00 USD an hour",
        "8 cores needed, 0 of 100 used (dedicated cores)",
        "checks: ok",
    ]


def test_a_candidate_without_quota_is_a_warning_while_another_one_has_it() -> None:
    assert [check.result for check in candidates(0, 100, 0)] == ["warn", "ok", "warn"]


def test_candidates_that_all_lack_quota_are_failures_with_the_next_step() -> None:
    found = candidates(0, 0, 0)
    assert [check.result for check in found] == ["fail", "fail", "fail"]
    assert found[1].next_step.startswith("fewer nodes, or ask for 16 cores")
    assert found[2].found.split("; ")[1] == "price unknown"


def test_what_depends_on_the_candidate_is_judged_for_each_and_not_for_the_pool_file() -> None:
    pool = recipe().pool
    assert pool is not None
    several = replace(pool, candidates=Candidates(alternatives=(Alternative(spot=True),)))
    names = {check.check for check in doctor.checks(facts(recipe=replace(recipe(), pool=several)))}
    assert not names & {"image", "VM size", "region", "quota", "spot quota", "cost"}
