"""Carries out plans as a command does, with a register of a run of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from batchtrain.plan.marks import Marks
from batchtrain.plan.types import Plan
from batchtrain.records.events import Event
from batchtrain.service import submit
from batchtrain.service.job_addition import ONCE, AddOptions
from batchtrain.service.register import Register

RUN = "r"
"""The name of the run."""
METADATA = Marks(RUN).metadata
"""What the run writes into the metadata of everything that it creates."""


def new_register() -> Register:
    """The empty register of the run."""
    return Register(Marks(RUN))


def carry_out(
    client: Any,
    plan: Plan,
    fill: Callable[..., Any] = lambda _: "",
    upload: Callable[[str, Any], bool] = lambda *_: False,
    *,
    others: submit.Others | None = None,
    options: AddOptions = ONCE,
    register: Register | None = None,
) -> Iterator[Event]:
    """Carry out every step of a plan. register: by default a new one."""
    return submit.submit(client, plan, fill, upload, others, options, register=register or new_register())
