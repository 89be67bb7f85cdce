"""Whole runs: what they send, tell and leave, as files to read. BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from batchtrain.catalog.prices import Prices
from batchtrain.client import run as commands
from batchtrain.client.client import Client
from batchtrain.client.limits import Limits
from batchtrain.config.types import Credentials, Recipe, convert
from batchtrain.emulator.world import Quotas
from batchtrain.life.intents import KEEP, REUSE
from batchtrain.runs import recording
from batchtrain.service.register import Register
from tests.unit.client.account import ENDPOINT, Site, told
from tests.unit.plan.jobs import recipe

SMALL = "STANDARD_D2S_V5"


def of(command: str = "print hello", name: str = "j", *, pool: dict[str, Any] | None = None, **job: Any) -> Recipe:
    """A job of one task on a pool of two nodes, whose price is known."""
    made = recipe({"id": name, **job}, {"command": command}, {"id": f"p-{name}", **(pool or {})})
    prices = Prices("westeurope", "EUR", {"STANDARD_D4S_V5": 0.25, SMALL: 0.125})
    return replace(made, catalog=made.catalog._replace(prices=(prices,)))


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_job_that_fails_ends_a_run_no_sooner_than_the_next_one(site: Site) -> None:
    jobs = [{"id": "a", "tasks": [{"command": "exit 3"}]}, {"id": "b", "tasks": [{"command": "print b"}]}]
    site.run("run", recipe(jobs=jobs))
    site.assert_as_written()


def test_a_run_keeps_and_uses_again_what_it_is_asked_to(site: Site) -> None:
    site.run("run --reuse without a pool", of(), intent=REUSE)
    site.run("run --reuse with its pool", of(), intent=REUSE)
    site.run("run --reuse with another pool", of(pool={"vm_size": SMALL}), intent=REUSE)
    site.run("run with a pool", of())
    site.run("run --keep", of(name="k"), intent=KEEP)
    site.run("run with a pool and a job", of(name="k"))
    site.run("run --reuse of the job that is there", of(name="k"), intent=REUSE)
    site.client.jobs.handle("k").terminate()
    site.run("run --reuse of the job that has completed", of(name="k"), intent=REUSE)
    site.assert_as_written()


def test_a_run_leaves_what_still_works_after_a_limit_of_its_patience(site: Site) -> None:
    site.run("run --timeout 0", of("wait"), timeout=0.0)
    site.run("run again", of("wait"))
    site.run("run --reuse", of("wait"), intent=REUSE)
    site.finish()
    site.run("run again, once its tasks have ended", of())
    site.assert_as_written()


def test_a_limit_stops_the_tasks_of_a_run_and_deletes_what_it_made(site: Site) -> None:
    site.run("run --max-duration 0", of("wait"), limits=Limits(seconds=0))
    site.run("run --max-price 0", of("wait"), limits=Limits(price=0))
    site.run("run --max-price without a price", recipe(pool={"vm_size": "STANDARD_ND40RS_V2"}), limits=Limits(price=1))
    site.run("run --max-price --reuse", of(), limits=Limits(price=1), intent=REUSE)
    site.run("run --max-price --keep", of(), limits=Limits(price=1), intent=KEEP)
    site.assert_as_written()


def test_the_jobs_of_a_run_bring_their_own_pools(site: Site) -> None:
    site.run("run", of(auto_pool={}))
    site.run("run that keeps alive", of(auto_pool={"keep_alive": True}))
    site.run("run whose job ends by itself", of(auto_pool={}, auto_complete=True))
    site.run("run of a schedule", of(recurrence={"schedule": {"recurrence_interval": "01:00:00"}}))
    site.assert_as_written()


KINDS = (
    "pool.adding", "pool.add", "node.ready", "job.adding", "job.add", "task.add", "tasks.seen", "stdout", "deleted",
)  # fmt: skip


def test_ctrl_c_deletes_what_a_run_has_made_until_then(site: Site) -> None:
    for kind in KINDS:
        site.steps = {kind: interrupt}
        site.run(f"run until {kind}", of(name=kind.replace(".", "-")))
    site.assert_as_written()


def test_a_run_tries_its_candidates_until_one_has_the_nodes(site: Site) -> None:
    site.driver.world.quotas = Quotas(dedicated_cores=4)
    candidates = of(pool={"candidates": {"alternatives": [{"vm_size": SMALL}]}})
    site.run("run", candidates)
    site.driver.world.quotas = Quotas(dedicated_cores=1)
    site.run("run without any nodes", candidates)
    clients = list[object]()
    site.driver.world.quotas = Quotas()
    site.step("pool add", lambda: site.client.pools.add(candidates, on_move=clients.append, tell=site.tell).id)
    assert clients == [site.client]
    site.step("pool add again", site.client.pools.add, candidates, on_move=clients.append, tell=site.tell)
    site.assert_as_written()


def test_a_job_of_another_account_is_not_replaced_by_a_run_that_moves_there(site: Site) -> None:
    site.client.account = site.client.account._replace(label="here")
    there = Client(site.client.account._replace(label="there"))
    there.pace = site.client.pace
    site.client.others.append(there)
    site.driver.world.quotas = Quotas(dedicated_cores=4)
    credentials = {"batch_accounts": {name: {"account_service_url": ENDPOINT} for name in ("here", "there")}}
    made = of(pool={"candidates": {"alternatives": [{"vm_size": SMALL, "account": "there"}]}})
    made = replace(made, credentials=convert(credentials, Credentials))
    site.steps = {"pool.candidate": lambda: there.jobs.add(of(pool={"id": "q"}), tell=lambda _: None)}
    there.pools.add(
        of(pool={"id": "q", "vm_size": "STANDARD_D1_V2", "vm_count": {"dedicated": 1}}), tell=lambda _: None
    )
    site.run("run", made)
    site.assert_as_written()


def test_a_run_that_loses_its_nodes_moves_to_its_next_candidate(site: Site) -> None:
    moves = {"alternatives": [{"vm_size": SMALL}], "recover": True, "patience": "0s"}

    def lose() -> None:
        [node, *_] = site.driver.world.pools["p-j"].nodes.values()
        site.inside.run(site.driver.befall(node.id, "break"))
        site.steps = {"pool.candidate": lambda: site.steps.update({"task.add": finish})}

    def finish() -> None:
        site.steps = {"tasks.seen": site.finish}

    site.steps = {"tasks.seen": lose}
    site.run("run", of("wait", pool={"candidates": moves}))
    site.assert_as_written()


def test_two_runs_share_a_pool_which_ends_with_the_last_of_them(site: Site) -> None:
    def other() -> None:
        site.run("run --reuse, while the first runs", of("print other", "k", pool={"id": "p-j"}), intent=REUSE)
        site.write("\n## the first")
        site.finish()

    site.steps = {"tasks.seen": other}
    site.run("run", of("wait"))
    site.assert_as_written()


def test_a_pool_that_appears_while_a_run_begins_is_not_its_own(site: Site) -> None:
    def add(made: Recipe) -> None:
        site.steps = {}
        site.client.pools.add(made, tell=lambda _: None)

    site.steps = {"run.recorded": lambda: add(of())}
    site.run("run", of())
    site.steps = {"pool.add": lambda: site.client.pools.resize("p-k", dedicated=3, wait=False, tell=lambda _: None)}
    site.run("run whose pool grows", of(name="k"))
    site.assert_as_written()


def test_a_run_that_was_left_keeps_what_it_was_asked_to_keep(site: Site) -> None:
    for name, intent in (("j", KEEP), ("k", REUSE)):
        site.steps = {"tasks.seen": interrupt}
        site.run(f"{intent.command} until Ctrl-C", of("wait", name), ask=lambda _: True, intent=intent)
    site.finish()
    site.run("run of something else", of(name="l"))
    site.steps = {"tasks.seen": interrupt}
    site.run("run until Ctrl-C", of("wait", "m"), ask=lambda _: True)
    site.finish()
    site.run("run --reuse of its pool", of(name="n", pool={"id": "p-m"}), intent=REUSE)
    site.assert_as_written()


def test_jobs_are_followed_on_a_pool_that_is_there(site: Site) -> None:
    def follow(made: Recipe, **options: Any) -> str:
        return told(commands.follow(site.client, made, tell=site.tell, origin=site.origin, **options))

    site.step("follow without a pool", follow, of())
    site.step("pool add", site.client.pools.add, of(), tell=site.tell)
    site.step("follow", follow, of())
    site.step("follow again", follow, of("print again"))
    site.step("follow --recreate", follow, of("exit 4"), recreate=True)
    site.steps = {"tasks.seen": interrupt}
    site.step("follow until Ctrl-C", follow, of("wait", "k", pool={"id": "p-j"}))
    site.assert_as_written()


def test_a_run_that_its_user_leaves_ends_with_a_later_command(site: Site) -> None:
    site.steps = {"tasks.seen": interrupt}
    site.run("run until Ctrl-C", of("wait"), ask=lambda _: True)
    site.run("run of something else", of(name="k"))
    site.run("run of the same", of("wait"))
    site.finish()
    site.run("run of the same, once its tasks have ended", of())
    site.assert_as_written()


def test_results_that_cannot_be_fetched_keep_their_pool_until_it_has_no_nodes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [{"command": "leaves", "results": {"include": ["*"]}}]
    with monkeypatch.context() as full:
        full.setattr(recording, "shutil", SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=0)))
        site.run("run on a full disk", of(tasks=results))
        site.run("run with a pool of its own", of(name="k", tasks=results, auto_pool={}))
        site.run("run again, still on a full disk", of(tasks=results))
    site.run("run again", of(tasks=results))
    site.assert_as_written()


def test_the_merge_task_of_a_job_runs_last_and_is_shown(site: Site) -> None:
    site.run("run", of("print one", merge_task={"command": "print both"}))
    site.assert_as_written()


def test_a_run_does_something_with_its_pool_before_it_ends(site: Site) -> None:
    def see(register: Register) -> None:
        site.write(f"while there is {', '.join(thing.name for thing in register.things())}")

    site.run("run", of(), afterwards=see)
    site.assert_as_written()


def test_a_program_runs_a_recipe_and_reads_its_result(site: Site) -> None:
    client, runs = site.client, site.root / "runs"
    site.step("plan", lambda: [(step.action, step.subject) for step in client.plan(of()).steps])
    site.step("compare with nothing", client.compare, of())
    result = site.step("run", client.run, of(), tell=site.tell, runs_dir=runs)
    site.step("its state", lambda: (result.state, [task.id for task in result.tasks]))
    site.step("run what fails", client.run, of("exit 3"), tell=site.tell, runs_dir=runs)
    site.step("run what fails without a check", client.run, of("exit 3"), check=False, tell=site.tell, runs_dir=runs)
    site.step("run for no time", client.run, of("wait"), max_duration=0, tell=site.tell, runs_dir=runs)
    site.step(
        "run for no time without a check",
        lambda: client.run(of("wait"), max_duration=0, check=False, tell=site.tell, runs_dir=runs).failure,
    )
    site.step("run for no money", client.run, of("wait"), max_price=0, tell=site.tell, runs_dir=runs)
    site.step("resume a run that is not there", client.run, of(), resume="x", tell=site.tell, runs_dir=runs)
    site.step("resume nothing that can be", client.run, of(), resume="latest", tell=site.tell, runs_dir=runs)
    small = of(pool={"vm_size": SMALL})
    client.pools.add(small, tell=lambda _: None)
    site.step("compare with another pool", client.compare, of())
    site.step("run on what is there", client.run, small, reuse=True, tell=site.tell, runs_dir=runs)
    site.assert_as_written()
