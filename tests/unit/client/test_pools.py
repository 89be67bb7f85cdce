"""What is done with pools, as files to read. BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from batchtrain.client import local
from batchtrain.config.types import Recipe
from batchtrain.emulator.injection import Injection
from batchtrain.emulator.world import Quotas
from batchtrain.errors import shortened
from batchtrain.life.intents import REUSE
from tests.unit.client.account import Site
from tests.unit.plan.jobs import recipe


def of(**pool: Any) -> Recipe:
    return recipe(pool={"vm_count": {"dedicated": 1}, **pool})


def test_a_pool_is_created_and_shown(site: Site) -> None:
    pools = site.client.pools

    def why() -> Any:
        return pools.reason_to_wait(pools.get("p"), ())

    site.step("stands, before", pools.stands, "p")
    site.step("get, before", pools.get, "p")
    site.step("wait, before", pools.wait, "p", tell=site.tell)
    site.step("add --no-wait", pools.add, of(), wait=False, tell=site.tell)
    site.step("stands", pools.stands, "p")
    site.step("wait", lambda: len(pools.wait("p", tell=site.tell)))
    site.step("add again", pools.add, of(), tell=site.tell)
    site.step("list", lambda: [pool.id for pool in pools.list()])
    site.step("why do its nodes take no tasks", lambda: pools.reason_to_wait(pools.get("p"), pools.nodes("p")))
    site.step("why does it take no tasks without a node", lambda: why().name)
    site.step("diagnose", lambda: pools.diagnose("p").first)
    site.step("add candidates --no-wait", pools.add, of(candidates={"alternatives": [{"vm_size": "a"}]}), wait=False)
    site.step("delete", pools.delete, "p", tell=site.tell)
    site.step("delete again", pools.delete, "p", tell=site.tell)
    site.assert_as_written()


def test_a_pool_of_many_nodes_names_some_and_counts_the_others(site: Site) -> None:
    site.step("add", site.client.pools.add, of(vm_count={"dedicated": 9}), tell=site.tell)
    site.step("delete --no-wait", site.client.pools.delete, "p", wait=False, tell=site.tell)
    site.assert_as_written()


def test_a_pool_is_resized_and_its_nodes_are_rebooted(site: Site) -> None:
    pools = site.client.pools
    pools.add(of(inter_node_communication_enabled=False), tell=site.tell)
    site.step("resize to nothing that is given", pools.resize, "p", tell=site.tell)
    site.step("resize", lambda: pools.resize("p", dedicated=2, spot=1, tell=site.tell).nodes)
    site.step("resize one kind", lambda: pools.resize("p", spot=0, leaving="terminate", tell=site.tell).nodes)
    site.step("resize --no-wait", lambda: pools.resize("p", dedicated=1, wait=False, tell=site.tell).target)
    site.step("reboot", pools.reboot, "p", [node.id for node in pools.nodes("p")])
    site.step("resize to 0", lambda: pools.resize("p", dedicated=0, tell=site.tell).nodes)
    site.assert_as_written()


def test_more_nodes_would_cost_more_than_a_run_may(site: Site) -> None:
    pools = site.client.pools
    limited = of(metadata={"batchtrain:max-price": "5"}, inter_node_communication_enabled=False)
    site.step("add", lambda: pools.add(limited, tell=site.tell).target)
    site.step("resize", pools.resize, "p", dedicated=2, tell=site.tell)
    site.step("resize spot", pools.resize, "p", spot=1, tell=site.tell)
    site.step("resize one kind to as many", lambda: pools.resize("p", spot=0, tell=site.tell).target)
    site.step("resize the other kind to as many", lambda: pools.resize("p", dedicated=1, tell=site.tell).target)
    site.step("resize to as many", lambda: pools.resize("p", dedicated=1, spot=0, tell=site.tell).target)
    site.assert_as_written()


def test_a_pool_of_no_nodes_may_stay_without_them(site: Site) -> None:
    none = of(metadata={"batchtrain:max-price": "5"}, vm_count={"dedicated": 0, "low_priority": 0})
    site.client.pools.add(none, wait=False, tell=lambda _: None)
    assert site.client.pools.resize("p", dedicated=0, wait=False).target == 0
    assert site.client.pools.resize("p", spot=0, wait=False).target == 0


def test_nodes_are_called_by_the_names_that_views_show(site: Site, tmp_path: Path) -> None:
    pools = site.client.pools
    pools.add(of(vm_count={"dedicated": 2}), tell=site.tell)
    job = site.client.jobs.add(recipe(task={"command": "print hello"}), tell=site.tell)
    first, second = pools.nodes("p")
    assert pools.node_ids("p", ("1", first.id, shortened(second.id))) == (second.id, first.id, second.id)
    site.step("the number of a node, where it may not name one", pools.node_ids, "p", ("1",), by_number=False)
    site.step("what no node is called", pools.node_ids, "p", ("x",))
    site.step("what both are called", pools.node_ids, "p", ("tvmps",))
    node = shortened(job.seen_task().node)
    site.step("files", lambda: [row.path for row in pools.files("p", node)])
    rows = pools.get_files("p", node, "**/*.txt", directory=tmp_path / "got")
    assert sorted(row.path.rpartition("/")[2] for row in rows) == ["stderr.txt", "stdout.txt"]
    assert [path.read_text() for path in sorted((tmp_path / "got").rglob("*.txt"))] == ["", "hello\n"]
    site.assert_as_written()


def test_a_login_is_created_on_each_node_of_azure(site: Site) -> None:
    ssh = {"username": "al", "ssh_public_key_data": "ssh-ed25519 AAAA", "ssh_private_key": "/k"}
    pools = site.client.pools
    site.step("add", lambda: pools.add(of(ssh=ssh), tell=site.tell).id)
    site.step("log in", pools.log_in, of(ssh=ssh), tell=site.tell)
    site.step("log in without a login", pools.log_in, of(), tell=site.tell)
    site.step("resize", lambda: pools.resize("p", dedicated=1, recipe=of(ssh=ssh), tell=site.tell).nodes)
    site.client.account = site.client.account._replace(emulated=True)
    site.step("log in on the emulator", pools.log_in, of(ssh=ssh), tell=site.tell)
    site.assert_as_written()


def test_nodes_that_a_resize_did_not_get_are_requested_again(site: Site) -> None:
    def reuse(made: Recipe) -> None:
        site.run("run --reuse", made, intent=REUSE)

    site.driver.world.quotas = Quotas(dedicated_cores=4)
    site.step("add", site.client.pools.add, of(vm_count={"dedicated": 2}), tell=site.tell)
    reuse(of(vm_count={"dedicated": 2}))
    site.driver.world.quotas = Quotas()
    reuse(of(vm_count={"dedicated": 2}))
    site.client.pools.resize("p", dedicated=0, tell=site.tell)
    reuse(of(vm_count={"dedicated": 2}))
    site.assert_as_written()


def test_a_pool_that_idles_gets_the_formula_of_the_plan(site: Site) -> None:
    idle = of(idle_timeout="30m")
    site.step("add", lambda: site.client.pools.add(of(), tell=site.tell).id)
    site.run("run --reuse on a pool of a fixed size", idle, intent=REUSE)
    site.client.pools.delete("p", tell=site.tell)
    site.step("add", lambda: site.client.pools.add(idle, tell=site.tell).id)
    site.run("run --reuse on a pool that idles", idle, intent=REUSE)
    site.run("run --reuse on it with another time", of(idle_timeout="45m"), intent=REUSE)
    site.client.pools.delete("p", tell=site.tell)
    site.client.pools.add(of(autoscale={"formula": "$TargetDedicatedNodes = 0;"}), tell=site.tell)
    site.step("resize a pool with a formula", site.client.pools.resize, "p", dedicated=1, tell=site.tell)
    site.run("run --reuse on it when it has no nodes", idle, intent=REUSE)
    site.assert_as_written()


def test_a_pool_cannot_have_identities_by_an_account_key(site: Site) -> None:
    made = of(identities=("/subscriptions/s",))
    site.step("add", site.client.pools.add, made, tell=site.tell)
    site.step("add a pool that its jobs bring", site.client.pools.add, recipe({"auto_pool": {}}), tell=site.tell)
    site.step("add no pool", site.client.pools.add, replace(made, pool=None), tell=site.tell)
    assert local.blob_store(site.client.account) == ""
    site.assert_as_written()


def test_nodes_whose_start_task_fails_are_rebooted_only_where_the_file_says_so(site: Site) -> None:
    site.driver.world.injections.add(Injection(kind="start-task-fails"))
    for recovery in ("attempt_recovery_on_unusable", "reboot_on_start_task_failed"):
        failing = of(additional_node_prep={"commands": {"pre": ["true"]}}, **{recovery: True})
        site.step(f"add with {recovery}", site.client.pools.add, failing, tell=site.tell)
        site.client.pools.delete("p", tell=site.tell)
    site.assert_as_written()
