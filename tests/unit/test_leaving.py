"""When a run continues without its command."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.catalog.prices import Hour, Price
from batchtrain.client.leaving import Leaver, has_storage, leave
from batchtrain.client.limits import UNLIMITED, Guard, Limits
from batchtrain.config.types import Recipe, convert
from batchtrain.errors import TerminalClosed, Terminated, TimedOut
from batchtrain.formula import Seen, evaluate
from batchtrain.life.endings import SeenEnd, SeenJob, cause_of, decide
from batchtrain.life.intents import RUN
from batchtrain.service import job_actions
from tests.unit.plan.jobs import recipe

STORED = {"output_data": {"azure_storage": [{"storage_account_settings": "s", "remote_path": "models"}]}}
NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)


def of(*tasks: dict[str, Any]) -> Recipe:
    return recipe({"id": "j", "tasks": [{"command": "x", **task} for task in tasks]})


RUNNING = SeenEnd(cause_of(None), jobs=(SeenJob("j", runs=True),), is_submitted=True)


@pytest.mark.parametrize(
    ("error", "tasks", "act"),
    [
        (KeyboardInterrupt(), ({},), "ask"),
        (TerminalClosed(), (STORED,), "leave"),
        (TerminalClosed(), (STORED, {}), "write"),
        (Terminated(), (STORED,), "write"),
        (TimedOut(""), (STORED,), "write"),
        (None, (STORED,), "write"),
    ],
)
def test_an_interrupt_leaves_a_run_by_its_signal_and_its_storage(
    error: BaseException | None, tasks: tuple[dict[str, Any], ...], act: str
) -> None:
    rule = decide(RUNNING._replace(cause=cause_of(error), is_stored=has_storage(of(*tasks))))
    assert rule is not None and rule.act == act


def handed_over(
    recipe: Recipe, leaver: Leaver, error: BaseException | None = None, limits: Limits = UNLIMITED
) -> tuple[bool, list[Any]]:
    """Whether the run was left, and the steps that end it later; each ends with the error."""
    steps: list[Any] = []

    def error_of(step: Any) -> BaseException | None:
        steps.append(step)
        return error

    price = Price("D4s_v5", "westeurope", "USD", 1.0, None)
    hour = Hour("p", "D4s_v5", 2, 0, price) if limits.price is not None else None
    guard = Guard(limits, hour, lambda: datetime(2026, 11, 23, tzinfo=timezone.utc))
    client: Any = SimpleNamespace(batch=None, carry_out=print)
    said = list[str]()
    ending: Any = SimpleNamespace(
        client=client, recipe=recipe, intent=RUN, error_of=error_of, tell=lambda event: said.append(event.text),
        register=SimpleNamespace(runs=frozenset({"r"})),
    )  # fmt: skip
    is_left = leave(ending, guard, leaver)
    assert any("nodes cost money until you delete them" in text for text in said) == (is_left and error is not None)
    assert any("its limit leaves no time" in text for text in said) == (not is_left and not steps)
    assert any("the run continues without this command" in text for text in said) == is_left
    return is_left, steps


POOL = {
    "id": "p",
    "vm_configuration": {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}},
    "vm_size": "STANDARD_D4S_V5", "vm_count": {"dedicated": 2}, "inter_node_communication_enabled": True,
}  # fmt: skip


def with_pool(pool: dict[str, Any], **job: Any) -> Recipe:
    data = {
        "directory": "x",
        "pool": {**POOL, **pool},
        "jobs": [{"id": "j", "tasks": [{"command": "x", **STORED}], **job}],
    }
    return convert(data, Recipe)


def test_the_job_of_an_automatic_pool_that_is_left_ends_with_its_last_task() -> None:
    is_left, [step] = handed_over(with_pool({}, auto_pool={}), "terminal")
    assert (is_left, step.func, step.args[1:]) == (True, job_actions.complete, ("j", {"r"}))


@pytest.mark.parametrize("pool", [{}, {"on_bad_node": "replace"}])
def test_a_pool_that_is_left_has_no_nodes_after_its_last_task(pool: dict[str, Any]) -> None:
    _, [step] = handed_over(with_pool(pool), "terminal")
    assert step.args[1].action == "pool.autoscale"


@pytest.mark.parametrize("pool", [{}, {"idle_timeout": "2h"}, {"autoscale": {"formula": "$TargetDedicatedNodes = 2;"}}])
def test_a_limit_of_the_price_pays_for_the_nodes_until_the_pool_has_none(pool: dict[str, Any]) -> None:
    _, [limit, empty] = handed_over(with_pool(pool), "user", limits=Limits(price=4.0))
    assert limit.args[3] == pytest.approx(2 * 3600 - 300)
    step = empty.args[1]
    pending = {"$PendingTasks": tuple((NOW - timedelta(seconds=30) * n, 0.0) for n in range(10, -1, -1))}
    result = evaluate(step.document["autoScaleFormula"], Seen(NOW, pending, 2))
    assert (result.dedicated, result.low_priority) == (0, 0)


def test_a_run_whose_limit_leaves_no_time_ends_with_its_command() -> None:
    assert handed_over(with_pool({}), "user", limits=Limits(price=0.1)) == (False, [])


@pytest.mark.parametrize(("leaver", "is_left"), [("terminal", False), ("user", True)])
def test_a_run_whose_end_could_not_be_set_is_left_only_where_somebody_reads_it(leaver: Leaver, is_left: bool) -> None:
    assert handed_over(with_pool({}), leaver, TimedOut("no answer"))[0] == is_left


@pytest.mark.parametrize("state", [{"is_submitted": False}, {"jobs": (SeenJob("j"),)}, {"keeps": frozenset({"job"})}])
def test_a_run_that_does_not_train_is_left_by_nobody(state: dict[str, Any]) -> None:
    assert not RUNNING._replace(**state).may_continue
