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
            "account",
            "clock",
            "pools",
            "jobs",
            "image",
            "registry",
            "VM size",
            "account settings",
            "region",
            "quota",
            "spot quota",
            "cost",
        ),
        "ok",
    )


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


@pytest.mark.parametrize(
    ("skew", "result"),
    [(0.4, "ok"), (-30, "ok"), (61, "warn"), (-899, "warn"), (900, "fail"), (None, "not checked")],
)
def test_a_clock_is_judged_by_how_far_it_is_off(skew: float | None, result: str) -> None:
    assert check("clock", facts(skew=skew)).result == result


def test_a_pool_of_the_same_name_is_said_with_the_command_that_deletes_it() -> None:
    found = check("pools", facts(pools=(pool("train"),)))
    assert (found.result, found.next_step.rpartition(": ")[2]) == ("warn", "batchtrain pool del train")


def test_a_full_account_takes_no_pool() -> None:
    assert check("pools", facts(pools=(pool(),), region=region(poolQuota=1))).result == "fail"


def test_a_job_of_the_same_name_is_said() -> None:
    found = check("jobs", facts(jobs=(records.Job("digits", "completed", "train"),)))
    assert (found.result, found.next_step) == ("warn", "batchtrain jobs del digits")


def test_active_jobs_are_held_against_their_quota() -> None:
    jobs = tuple(records.Job(f"j{number}", "active", "p") for number in range(3))
    assert check("jobs", facts(jobs=jobs, region=region(activeJobAndJobScheduleQuota=3))).result == "fail"
    assert check("jobs", facts(jobs=jobs, region=region(activeJobAndJobScheduleQuota=4))).result == "ok"


def test_an_image_that_the_account_does_not_have_fails_with_its_replacement() -> None:
    found = check("image", facts(recipe=recipe(offer="ubuntu-hpc", sku="2004")))
    assert (found.result, found.next_step) == ("fail", "use microsoft-dsvm:ubuntu-hpc:2404")


def test_an_image_is_found_in_whatever_case_it_is_written() -> None:
    assert check("image", facts(recipe=recipe(publisher="MICROSOFT-DSVM"))).result == "ok"


def test_a_wrong_node_agent_fails_with_the_right_one() -> None:
    found = check("image", facts(recipe=recipe(node_agent="batch.node.ubuntu 22.04")))
    assert (found.result, found.next_step) == ("fail", "write `node_agent: batch.node.ubuntu 24.04`")


def test_an_image_without_a_container_engine_cannot_be_native() -> None:
    seen = replace(IMAGE, capabilities=("Generation2VMImage",))
    assert check("image", facts(images=(seen,), recipe=recipe(native=True))).result == "fail"


@pytest.mark.parametrize(("end", "result"), [((2026, 11, 20), "fail"), ((2027, 1, 1), "warn"), ((2027, 6, 30), "ok")])
def test_an_image_s_end_of_support_is_judged_by_the_day(end: tuple[int, int, int], result: str) -> None:
    seen = replace(IMAGE, ends=datetime(*end, tzinfo=timezone.utc))
    assert check("image", facts(images=(seen,))).result == result


@pytest.mark.parametrize(
    ("size", "result"),
    [("STANDARD_NC24R", "fail"), ("Standard_HC44rs", "warn"), ("STANDARD_D4S_V5", "ok"), ("Standard_D4s_v55", "warn")],
)
def test_a_size_is_judged_by_its_day_of_retirement(size: str, result: str) -> None:
    assert check("VM size", facts(recipe=recipe(size))).result == result


def test_a_gone_size_comes_with_today_s() -> None:
    assert "Standard_ND40rs_v2" in check("VM size", facts(recipe=recipe("STANDARD_NC24R"))).next_step


def test_a_size_of_the_person_s_own_catalogue_is_known() -> None:
    own = Catalog((VmSize("Standard_X9", "X", 9, 18),))
    assert check("VM size", facts(recipe=recipe("standard_x9"), catalog=own)).result == "ok"


def test_a_key_is_no_use_where_the_account_wants_entra() -> None:
    found = check("account settings", facts(region=region(allowedAuthenticationModes=["AAD"])))
    assert (found.result, "accepts AAD, not SharedKey" in found.found) == ("fail", True)


def test_a_token_is_held_against_what_the_account_accepts() -> None:
    account = ACCOUNT._replace(key=None, sign_in=SignIn("default"))
    assert check("account settings", facts(account=account)).result == "ok"


def test_a_private_account_is_said() -> None:
    assert check("account settings", facts(region=region(publicNetworkAccess="Disabled"))).result == "warn"


def test_a_size_that_batch_does_not_take_there_fails() -> None:
    assert check("region", facts(region=region(None))).result == "fail"


def test_a_size_that_the_subscription_may_not_have_fails() -> None:
    found = check("region", facts(region=region(blocked="NotAvailableForSubscription")))
    assert (found.result, "NotAvailableForSubscription" in found.found) == ("fail", True)


def test_a_size_whose_support_ends_soon_is_said() -> None:
    assert check("region", facts(region=region(D4S._replace(ends=date(2026, 12, 1))))).result == "warn"


def test_quota_counts_what_other_pools_of_the_family_have() -> None:
    busy = (pool("a", dedicated=10), pool("b", "standard_nd96isr_h100_v5", dedicated=1))
    found = check("quota", facts(pools=busy, recipe=recipe(dedicated=5)))
    assert (found.result, found.found) == ("ok", "20 cores needed, 80 of 100 used (standardDSv5Family)")
    assert check("quota", facts(pools=busy, recipe=recipe(dedicated=6))).result == "fail"


def test_the_pool_itself_is_not_counted_twice() -> None:
    seen = facts(pools=(pool("train", "standard_d4s_v5", dedicated=25),), recipe=recipe(dedicated=25))
    assert check("quota", seen).found == "100 cores needed, 0 of 100 used (standardDSv5Family)"


def test_quota_counts_all_pools_where_families_are_not_counted() -> None:
    together = region(dedicatedCoreQuotaPerVMFamilyEnforced=False, dedicatedCoreQuota=100)
    seen = facts(region=together, pools=(pool(vm_size="standard_nd96isr_h100_v5"),))
    assert check("quota", seen).found == "8 cores needed, 96 of 100 used (dedicated cores)"


def test_spot_nodes_have_a_quota_of_their_own() -> None:
    few = region(lowPriorityCoreQuota=10)
    assert check("spot quota", facts(region=few, recipe=recipe(dedicated=0, spot=2))).result == "ok"
    assert check("spot quota", facts(region=few, recipe=recipe(dedicated=0, spot=3))).result == "fail"


def test_nodes_in_the_person_s_own_subscription_are_not_counted_here() -> None:
    for name in ("quota", "spot quota"):
        found = check(name, facts(region=region(poolAllocationMode="UserSubscription")))
        assert (found.result, "az vm list-usage" in found.found) == ("not checked", True)


def test_what_resource_manager_does_not_tell_is_not_checked_and_says_why() -> None:
    found = [one for one in doctor.checks(facts(region=Unknown("no role"))) if one.found == "no role"]
    assert [one.check for one in found] == ["account settings", "region", "quota", "spot quota"]
    assert {one.result for one in found} == {"not checked"}


def test_no_check_shows_a_key() -> None:
    assert "a2V5" not in repr(doctor.checks(facts()))


def test_job_schedules_count_against_the_same_quota_as_jobs() -> None:
    quota = region().account.jobs
    assert quota is not None
    schedules = tuple(records.JobSchedule(f"s{number}", "active") for number in range(quota))
    assert check("jobs", facts(schedules=schedules)).result == "fail"
    assert check("jobs", facts(schedules=tuple(replace(one, state="completed") for one in schedules))).result == "ok"


def test_a_pool_that_scales_is_held_against_the_quota_with_its_most_nodes() -> None:
    seen = recipe(dedicated=1)
    assert seen.pool is not None
    scenario = Scenario(name="pending_tasks", maximum_vm_count=NodeCaps(dedicated=10_000, low_priority=0))
    scaled = structs.replace(seen, pool=structs.replace(seen.pool, autoscale=Autoscale(scenario=scenario)))
    assert check("quota", facts()).result == "ok"
    assert check("quota", facts(recipe=scaled)).result == "fail"


def test_a_pool_without_a_maximum_is_not_held_against_the_quota() -> None:
    seen = recipe()
    assert seen.pool is not None
    formula = Autoscale(formula="$TargetDedicatedNodes = $PendingTasks.GetSample(1);")
    scaled = structs.replace(seen, pool=structs.replace(seen.pool, autoscale=formula))
    found = check("quota", facts(recipe=scaled))
    assert (found.result, "min(NUMBER" in found.found) == ("not checked", True)


@pytest.mark.parametrize(("agent", "result"), [("batch.node.ubuntu 24.04", "not checked"), ("mine", "fail")])
def test_the_node_agent_of_an_image_of_ones_own_is_one_that_the_account_knows(agent: str, result: str) -> None:
    own = VmConfiguration(custom_image=CustomImage(arm_image_id="/a", node_agent=agent))
    seen = recipe()
    assert seen.pool is not None
    found = check("image", facts(recipe=structs.replace(seen, pool=structs.replace(seen.pool, vm_configuration=own))))
    assert found.result == result


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
