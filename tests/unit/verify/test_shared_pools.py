"""The pools of a verification: what they cost, and that the service empties them in time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from batchtrain import formula
from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Price
from batchtrain.catalog.sizes import VmSize
from batchtrain.config.types import seconds_of
from batchtrain.errors import UsageError
from batchtrain.plan import plan_jobs, plan_pool
from batchtrain.verify import shared_pools
from batchtrain.verify.probes import AREAS
from batchtrain.verify.shared_pools import Work, life_of, recipe_of, refuse_above, work_of, write_program

NOW = datetime(2026, 12, 1, 10, tzinfo=timezone.utc)


def size(name: str = "Standard_D4s_v5") -> VmSize:
    vm_size = Catalog().size(name)
    assert vm_size is not None
    return vm_size


def work(hour: float | None = 1.0, image: str | None = "image", only: str = "", *, local: bool = False) -> list[Work]:
    areas = [area for area in AREAS if only in ("", area.name)]
    price = Price("Standard_D4s_v5", "westeurope", "USD", hour, None)
    works = work_of(size(), 2, areas, price, image=image, local=local)
    return [pool for pool in works if pool.kind.trial is None]


def test_all_probes_of_a_size_share_two_pools() -> None:
    assert [pool.name for pool in work()] == ["verify-host-d4s-v5", "verify-container-d4s-v5"]
    assert [pool.planned.cost for pool in work()] == ["1.00 USD", "1.00 USD"]


def test_a_pool_without_probes_is_left_out() -> None:
    assert [pool.kind.name for pool in work(image=None)] == ["host"]
    assert [pool.kind.name for pool in work(only="autoscale")] == ["host"]
    assert [pool.kind.name for pool in work(only="first-failures")] == ["host", "container"]
    assert work(only="storage", local=True) == []


def test_a_plan_above_the_budget_is_refused() -> None:
    refuse_above(work(), 2.1)
    with pytest.raises(UsageError, match=r"the plan costs 2\.00 USD, and the budget is 1\.00 USD; give --budget"):
        refuse_above(work(), 1.0)


def test_a_budget_without_a_price_is_refused_with_the_command_that_reads_it() -> None:
    with pytest.raises(UsageError, match="batchtrain catalog refresh --prices --location westeurope"):
        refuse_above(work(None), 20, "westeurope")


def test_a_plan_that_just_fits_leaves_time_for_the_tasks() -> None:
    pools = work(30.0)
    assert [life_of(pool, pools, 60.0) for pool in pools] == [timedelta(minutes=20)] * 2


def test_a_plan_with_infiniband_that_just_fits_leaves_time_for_its_start_and_programs() -> None:
    vm_size = size("Standard_ND96isr_H100_v5")
    pools = work_of(vm_size, 2, AREAS, Price(vm_size.name, "westeurope", "USD", 30.0, None), image="image")
    least = sum(pool.cost or 0.0 for pool in pools)
    assert [life_of(pool, pools, least) for pool in pools] == [timedelta(minutes=50)] * 2


def test_the_life_of_all_pools_costs_at_most_the_budget() -> None:
    pools = work(30.0)
    spent = [(life_of(pool, pools, 50.0) + shared_pools.MARGIN).total_seconds() / 3600 * 60 for pool in pools]
    assert sum(spent) == pytest.approx(50.0)


def test_the_formula_has_no_nodes_after_the_end() -> None:
    text = shared_pools.formula(2, NOW)
    times = (NOW + timedelta(minutes=minutes) for minutes in (-1, 1))
    assert [formula.evaluate(text, formula.Seen(time)).dedicated for time in times] == [2, 0]


def test_the_job_of_a_pool_has_a_wall_clock(tmp_path: Path) -> None:
    write_program(tmp_path)
    (host, container) = work()
    for pool in (host, container):
        recipe = recipe_of(pool, tmp_path, "image", NOW, timedelta(minutes=45), local=True)
        assert seconds_of(recipe.jobs[0].max_wall_time or "") == 45 * 60
        assert set(pool.kind.tasks) <= {task.id for task in recipe.jobs[0].tasks}


def test_a_trial_has_a_pool_of_one_node_that_the_service_plans_and_empties(tmp_path: Path) -> None:
    write_program(tmp_path)
    price = Price("Standard_D4s_v5", "westeurope", "USD", 1.0, 0.2)
    trials = [pool for pool in work_of(size(), 2, AREAS, price, image="image") if pool.kind.trial]
    assert [pool.kind.name for pool in trials] == ["nfs", "image", "spot", "ephemeral", "rules", "runtimes", "windows"]
    assert {pool.planned.cost for pool in trials} == {"0.50 USD"}
    for pool in trials:
        recipe = recipe_of(pool, tmp_path, "image", NOW, timedelta(minutes=20), local=False)
        (step,) = (step for step in plan_pool(recipe).steps if step.action == "pool.add")
        assert step.body["autoScaleFormula"].count("? 1 : 0") == 1
        assert plan_jobs(recipe).steps


def test_a_spot_trial_has_a_spot_node_until_its_end() -> None:
    text = shared_pools.formula(1, NOW, spot=True)
    seen = [formula.evaluate(text, formula.Seen(NOW + timedelta(minutes=minutes))) for minutes in (-1, 1)]
    assert [(targets.dedicated, targets.low_priority) for targets in seen] == [(0, 1), (0, 0)]


def test_a_size_with_gpus_gets_no_trials() -> None:
    pools = work_of(size("Standard_ND96isr_H100_v5"), 2, AREAS, None, image="image")
    assert [pool.kind.name for pool in pools] == ["host", "container"]


def test_the_image_of_several_tasks_is_pulled_once(tmp_path: Path) -> None:
    write_program(tmp_path)
    recipe = recipe_of(work()[1], tmp_path, "image", NOW, timedelta(minutes=45), local=True)
    assert recipe.resources.docker_images == ("image",)


def test_every_probe_reads_what_something_observes() -> None:
    tasks = {task for kind in shared_pools.KINDS for task in kind.tasks}
    questions = {name for kind in shared_pools.KINDS for name in kind.questions}
    for probe in (probe for area in AREAS for probe in area.probes):
        part, name = probe.reads.split("/")[:2]
        assert part in tasks or part in ("answers", "pools", "reboots") or name in questions, probe.name
