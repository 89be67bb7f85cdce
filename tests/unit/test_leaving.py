"""When a run continues without its command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.client.leaving import leaver_of
from batchtrain.config.types import Recipe
from batchtrain.errors import TerminalClosed, Terminated, TimedOut
from tests.unit.plan.jobs import recipe

STORED = {"output_data": {"azure_storage": [{"storage_account_settings": "s", "remote_path": "models"}]}}
CONTINUE = lambda hour: True  # noqa: E731


def of(*tasks: dict[str, Any]) -> Recipe:
    return recipe({"id": "j", "tasks": [{"command": "x", **task} for task in tasks]})


def ending(**fields: Any) -> Any:
    return SimpleNamespace(**{"submitted": True, "ended": set(), "kept_kinds": frozenset(), "hour": "", **fields})


@pytest.mark.parametrize(
    ("error", "tasks", "leaver"),
    [
        (KeyboardInterrupt(), ({},), "user"),
        (TerminalClosed(), (STORED,), "terminal"),
        (TerminalClosed(), (STORED, {}), ""),
        (Terminated(), (STORED,), ""),
        (TimedOut(""), (STORED,), ""),
        (None, (STORED,), ""),
    ],
)
def test_an_interrupt_leaves_a_run_by_its_signal_and_its_storage(
    error: BaseException | None, tasks: tuple[dict[str, Any], ...], leaver: str
) -> None:
    assert leaver_of(error, of(*tasks), ending(), CONTINUE) == leaver


@pytest.mark.parametrize("state", [{"submitted": False}, {"ended": {"j"}}, {"kept_kinds": {"job"}}])
def test_a_run_that_does_not_train_is_left_by_nobody(state: dict[str, Any]) -> None:
    assert leaver_of(TerminalClosed(), of(STORED), ending(**state), CONTINUE) == ""
